//! When the reducers run that a policy keeps for when a summary is not enough.

use epitome_core::{
    budget::Budget,
    cost_planner::SummariserKind,
    event::Timestamp,
    model_view::{NextCall, PreparationReport, SummaryOrder, SummaryStatus},
    policy::Policy,
    profile::{Profiles, TokenPrices},
    tokens::Tokens,
};

use crate::{
    notation::{meter, read},
    stage::Stage,
};

const POLICY: &str = r#"
name = "test"
about = "Summarises, and cuts what is left only if that was not enough."
limits = { target = 0.5, trigger = 0.8, force = 0.9 }

[[reduce]]
reducer = "drop_reasoning"

[[reduce]]
reducer = "cut_outputs"
when = "after_summary"
tokens = { over = 60, head = 20, tail = 20 }
spare_turns = 0

[summary]
keep = { tokens = 10_000 }
length = { fixed = 60 }
"#;

/// What is done for the last call of a log, with a window of 400 words.
fn prepared(log: &str, standby: SummaryStatus<'_>) -> (PreparationReport, u64) {
    prepared_under(POLICY, log, standby)
}

fn prepared_under(policy: &str, log: &str, standby: SummaryStatus<'_>) -> (PreparationReport, u64) {
    let policy = Policy::read(policy).unwrap();
    let budget = policy.budget(Budget::new(Tokens(400)));
    let mut stage = Stage::new(meter());
    for event in &read(log) {
        stage.play(event);
    }
    let moment = NextCall { now: Some(Timestamp(0)), standby, ..NextCall::default() };
    let prepared = stage.view.prepare(&policy, &budget, &moment).unwrap();
    let tokens = stage.view.context().tokens().0;
    (prepared, tokens)
}

fn steps(prepared: &PreparationReport) -> Vec<&str> {
    prepared.steps.iter().map(|step| step.reducer).collect()
}

const OLD: &str = "
user: Look around.
assistant: The first.
  call bash {\"command\":\"make\"}
  -> 250 words of \"made\"
";

/// The newest turn always stays.
const NEW: &str = "
assistant: The second.
  call read_file {\"path\":\"a.rs\"}
  -> 100 words of \"a\"
";

#[test]
fn where_the_summary_is_enough_nothing_is_cut() {
    let (prepared, tokens) = prepared(&format!("{OLD}{NEW}"), SummaryStatus::BuiltIn);
    assert!(prepared.compaction.is_some());
    assert_eq!(steps(&prepared), [""; 0]);
    assert!(tokens <= 200, "{tokens}");
}

#[test]
fn where_the_summary_is_not_enough_what_is_left_is_cut() {
    let new = NEW.replace("100", "190");
    let (prepared, tokens) = prepared(&format!("{OLD}{new}"), SummaryStatus::BuiltIn);
    assert!(prepared.compaction.is_some());
    assert_eq!(steps(&prepared), ["drop_reasoning", "cut_outputs"]);
    assert!(tokens <= 200, "{tokens}");
}

#[test]
fn where_there_is_no_summary_to_be_had_what_is_there_is_cut() {
    // All there is is the newest turn.
    let (one, _) = prepared(&OLD.replace("250", "370"), SummaryStatus::BuiltIn);
    assert!(one.compaction.is_none());
    assert_eq!(steps(&one), ["drop_reasoning", "cut_outputs"]);
}

#[test]
fn where_the_other_reducers_are_enough_there_is_neither() {
    let log = format!("{OLD}{NEW}")
        .replace("250 words of", "20 words of")
        .replace("assistant: The first.", "assistant: The first.\n  thinking: 250 words of \"hm\"");
    let (prepared, tokens) =
        prepared(&format!("{log}\nassistant: Done.\nuser: Thanks."), SummaryStatus::BuiltIn);
    assert!(prepared.compaction.is_none());
    assert_eq!(steps(&prepared), ["drop_reasoning"]);
    assert!(tokens <= 200, "{tokens}");
}

/// A model whose answers cost something, and one of which nobody knows what they cost.
fn models() -> (TokenPrices, TokenPrices) {
    let profiles = Profiles::builtin();
    (profiles.find("gpt-5").unwrap().prices, TokenPrices::default())
}

#[test]
fn a_policy_that_says_so_asks_code_before_it_pays_a_model() {
    let (paid, unknown) = models();
    let sparing = POLICY.replace("length = { fixed = 60 }", "length = { fixed = 60 }\npaid = \"if_needed\"");
    let log = format!("{OLD}{NEW}");
    let (made, tokens) =
        prepared_under(&sparing, &log, SummaryStatus::Possible(SummariserKind::Other(&paid)));
    let (built_in, same) = prepared_under(&sparing, &log, SummaryStatus::BuiltIn);
    assert_eq!((made.wish, made.compaction.is_some()), (SummaryOrder::Nothing, true));
    assert_eq!((steps(&made), tokens), (steps(&built_in), same));
    // Where a policy prefers the model, it is asked, whatever it costs, and so is one whose prices nobody knows.
    let (preferred, _) = prepared(&log, SummaryStatus::Possible(SummariserKind::Other(&paid)));
    assert_eq!((preferred.wish, preferred.compaction.is_some()), (SummaryOrder::Summary, false));
    let (asked, _) = prepared_under(&sparing, &log, SummaryStatus::Possible(SummariserKind::Other(&unknown)));
    assert_eq!((asked.wish, asked.compaction.is_some()), (SummaryOrder::Summary, false));
    // Where code misses the target, one is bought.
    let longer = NEW.replace("The second.", "200 words of \"thought\"");
    let (missed, _) = prepared_under(
        &sparing,
        &format!("{OLD}{longer}"),
        SummaryStatus::Possible(SummariserKind::Other(&paid)),
    );
    assert!(missed.shortfall.is_some());
    assert_eq!(missed.wish, SummaryOrder::Summary);
}

#[test]
fn where_compactions_came_too_close_nothing_is_done_before_the_limit_and_then_more() {
    let log = format!("{OLD}{NEW}");
    let (usual, _) = prepared(&log, SummaryStatus::BuiltIn);
    assert!(usual.compaction.is_some());
    // Over the limit: a summary stands for what goes, and less is left than usual.
    let more = log.replace("250", "290");
    let (_, usual) = prepared(&more, SummaryStatus::BuiltIn);
    let (spaced, tokens) = prepared(&more, SummaryStatus::Thrashing);
    assert!(spaced.compaction.is_some() && tokens <= usual, "{tokens} of {usual}");
    assert!(spaced.acted.is_some_and(|cause| cause.is_forced()));
    // Over the trigger alone: nothing.
    let less = log.replace("250", "215");
    let (early, _) = prepared(&less, SummaryStatus::Thrashing);
    assert!(early.compaction.is_none() && early.acted.is_none());
}
