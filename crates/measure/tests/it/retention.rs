//! What was needed later, and what requests hold of it: each kind in each way, and what holds for every session.

use std::{fmt::Write as _, sync::Arc};

use epitome::{
    core::{
        ContentPart, Fact, LoggedEvent, Tokens,
        budget::Budget,
        context::{Context, EventNaming, Fidelity, SegmentEdit},
        event::{Compaction, CompactionTrigger, Summary},
        policy::Policy,
        projection::{EventLine, project},
        seq_set::SeqSet,
        summary::{SectionCaps, StructuredSummary, summarise},
    },
    simulate::{MeteredThread, SimulationSettings},
    wire::{Format, render::RenderOptions},
};
use epitome_measure::replay::retention::{
    FactRetention, HORIZON_ANSWERS, NeededFactKind, NeededFacts, RetentionDrift, RetentionForm,
};
use proptest::prelude::*;

use crate::{
    histories::{self, Cuts, cut, cuts, history},
    notation::{logged, meter, read},
};

/// The last answer needs something of each kind.
const EVERY_KIND: &str = r#"
user: Always use tabs in this project.
assistant: Looking.
  call read_file {"path": "src/deep/parser.rs"}
  -> fn parseHeaderLine() { four more words here }
assistant: Next.
  call bash {"command": "cargo frobnicate everything"}
  !> error: the frobnicator refused to start
assistant: Since the frobnicator refused to start I look at parseHeaderLine again.
  call read_file {"path": "src/deep/parser.rs"}
  call bash {"command": "cargo frobnicate everything"}
"#;

/// What stood before the last answer, as a request that shows everything, and that answer's call.
fn before_last_answer(log: &str) -> (NeededFacts, Context, u64) {
    let events = read(log);
    let is_answer = |event: &Arc<LoggedEvent>| matches!(event.event.fact, Fact::AssistantSaid { .. });
    let last = events.iter().rposition(is_answer).unwrap();
    let call = events[..last].iter().filter(|event| is_answer(event)).count() as u64;
    let context = project(&EventLine::new(events[..last].iter().cloned()), meter(), EventNaming::Messages);
    (NeededFacts::of(&EventLine::new(events)), context, call)
}

fn show(retention: &FactRetention) -> String {
    let mut words: Vec<String> = Vec::new();
    for kind in NeededFactKind::ALL {
        for held in RetentionForm::ALL {
            match retention.count(kind, held) {
                0 => {}
                1 => words.push(format!("{} {}", kind.name(), held.name())),
                count => words.push(format!("{count} {} {}", kind.name(), held.name())),
            }
        }
    }
    words.push(format!("user {}/{}", retention.user_messages.kept, retention.user_messages.all));
    words.join(", ")
}

fn check(log: &str, change: impl FnOnce(Context) -> Context, expect: &str) {
    let (needs, context, call) = before_last_answer(log);
    let context = change(context);
    assert_eq!(show(&needs.scorer().score(call, &context)), expect);
}

/// The result at this place, shown otherwise.
fn replace(context: Context, at: usize, text: &str, fidelity: Fidelity) -> Context {
    context.edit("test", |index, segment| {
        let results = segment.call().is_some() && index >= 1;
        let place = (index - usize::from(index > 0)) / 2;
        if results && place == at { SegmentEdit::line(text.to_owned(), fidelity) } else { SegmentEdit::Keep }
    })
}

fn fold(context: Context, words: &str) -> Context {
    let all = 0..context.segments().len();
    context.force_fold("test", &[all], |_| words.to_owned())
}

#[test]
fn a_request_that_shows_everything_holds_every_kind_verbatim() {
    let all = "file verbatim, error verbatim, value verbatim, constraint verbatim, failed_approach verbatim, \
               read_again verbatim, user 1/1";
    check(EVERY_KIND, |context| context, all);
}

#[test]
fn what_a_note_tells_is_in_a_summary_and_what_it_leads_to_has_a_handle() {
    let told = "Always use tabs in this project. Read src/deep/parser.rs: parseHeaderLine. Ran `cargo frobnicate \
                everything`: the frobnicator refused to start";
    let summary = "file summary, error summary, value summary, constraint summary, failed_approach summary, \
                   read_again summary, user 1/1";
    check(EVERY_KIND, |context| fold(context, told), summary);
    let handle = "file handle, error handle, value handle, constraint handle, failed_approach handle, \
                  read_again handle, user 0/1";
    check(EVERY_KIND, |context| fold(context, "[messages 1-5]"), handle);
    let lost =
        "file lost, error lost, value lost, constraint lost, failed_approach lost, read_again lost, user 0/1";
    check(EVERY_KIND, |context| fold(context, "[gone]"), lost);
    check(EVERY_KIND, |context| context.edit("test", |_, _| SegmentEdit::Drop), lost);
}

/// What a session needs is told by a summary in its own words, by its lists of names, or by both.
#[test]
fn a_name_that_only_a_list_of_a_summary_holds_is_told_apart() {
    let events = read(EVERY_KIND);
    let is_answer = |event: &Arc<LoggedEvent>| matches!(event.event.fact, Fact::AssistantSaid { .. });
    let last = events.iter().rposition(is_answer).unwrap();
    let needs = NeededFacts::of(&EventLine::new(events.iter().cloned()));
    let through = events[last - 1].id.seq;
    let shown = |change: fn(&mut StructuredSummary)| {
        let caps = SectionCaps { index: 10_000, ..SectionCaps::default() };
        let mut brief = summarise(&events[..last], None, &caps);
        change(&mut brief);
        let covered = SeqSet::run(events[0].id.seq, through);
        let text = brief.render(&covered, Tokens::MAX, &meter(), EventNaming::Messages);
        let compaction = Compaction {
            summary: Summary::Structured { text, brief: Box::new(brief) },
            through,
            first_kept: None,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Threshold,
        };
        let made = logged(through.0 + 1, Fact::Compacted(compaction));
        let line = EventLine::new(events[..last].iter().cloned().chain([made]));
        let context = project(&line, meter(), EventNaming::Messages);
        let held = needs.scorer().score(2, &context);
        (
            held.count(NeededFactKind::Value, RetentionForm::NameOnly),
            held.count(NeededFactKind::Value, RetentionForm::Summary),
            held.in_request(),
        )
    };
    // The value stood in a result, of which the index tells; what is kept counts it.
    assert_eq!(shown(|_| {}), (1, 0, Some(1.0)));
    assert_eq!(shown(|brief| brief.index.clear()), (0, 0, Some(5.0 / 6.0)));
    let in_words = |brief: &mut StructuredSummary| brief.items[0].text.push_str(" parseHeaderLine is wrong.");
    assert_eq!(shown(in_words), (0, 1, Some(1.0)), "where it stands in words too, these count");
}

#[test]
fn of_a_result_that_is_replaced_the_call_still_names_it() {
    let stubbed = "file verbatim, error verbatim, value handle, constraint verbatim, failed_approach verbatim, \
                   read_again summary, user 1/1";
    let stub = |context| replace(context, 0, "[message 3]", Fidelity::Stub);
    check(EVERY_KIND, stub, stubbed);
    let stubbed = "file verbatim, error lost, value verbatim, constraint verbatim, failed_approach summary, \
                   read_again verbatim, user 1/1";
    check(EVERY_KIND, |context| replace(context, 1, "[gone]", Fidelity::Stub), stubbed);
}

#[test]
fn what_is_left_of_a_cut_result_is_verbatim_and_what_was_put_there_is_not() {
    let left = "file verbatim, error verbatim, value verbatim, constraint verbatim, failed_approach verbatim, \
                read_again summary, user 1/1";
    check(EVERY_KIND, |context| replace(context, 0, "fn parseHeaderLine()", Fidelity::Cut), left);
    let named = left.replace("value verbatim", "value summary");
    check(EVERY_KIND, |context| replace(context, 0, "had parseHeaderLine", Fidelity::Stub), &named);
    let foreign = "user: Hello.\nassistant: Go.\n  call ls {}\n  -> nothing to see here now\nuser: Try fieldNine\n\
                   assistant: I try fieldNine.";
    let elsewhere = |context: Context| {
        let context = replace(context, 0, "says fieldNine", Fidelity::Cut);
        context.edit("test", |_, segment| {
            let newest = segment.is_user() && segment.turn() > 0;
            if newest { SegmentEdit::Drop } else { SegmentEdit::Keep }
        })
    };
    check(foreign, elsewhere, "value summary, user 1/2");
}

#[test]
fn a_value_is_needed_until_the_model_first_writes_it_and_for_so_many_calls_before() {
    let mut log = "user: Mend retryBudget please.\n".to_owned();
    for _ in 0..HORIZON_ANSWERS + 4 {
        log.push_str("assistant: Hm.\nuser: Go on.\n");
    }
    log.push_str("assistant: Now retryBudget.\nuser: Go on.\nassistant: And retryBudget again.\n");
    let needs = NeededFacts::of(&EventLine::new(read(&log)));
    let needed: Vec<u64> = (0..HORIZON_ANSWERS + 10).filter(|call| needs.at(*call) > 0).collect();
    assert_eq!(needed, (5..=HORIZON_ANSWERS + 4).collect::<Vec<_>>());
    assert_eq!(needs.names(5).collect::<Vec<_>>(), [(NeededFactKind::Value, "retryBudget")]);
}

#[test]
fn what_the_model_knew_or_made_up_is_no_value() {
    let none = |log: &str| {
        let needs = NeededFacts::of(&EventLine::new(read(log)));
        let all: Vec<_> = (0..9).flat_map(|call| needs.names(call)).collect();
        assert_eq!(all, [], "{log}");
    };
    none(
        "user: Hello.\nassistant: I call it retryBudget.\nuser: So retryBudget.\nassistant: Yes, retryBudget.",
    );
    none("system: There is retryBudget.\nuser: See retryBudget.\nassistant: Yes, retryBudget.");
    none(
        "user: Hello.\nassistant: Use HasPrefix.\n  call ls {}\n  -> HasPrefix 1000 main test\nassistant: main test 1000",
    );
    none("assistant: Hello from retryBudget.\nuser: Hi.\nassistant: retryBudget");
}

#[test]
fn what_is_fetched_again_after_a_change_is_not_read_again() {
    let kinds = |log: &str| -> Vec<NeededFactKind> {
        let needs = NeededFacts::of(&EventLine::new(read(log)));
        needs.names(2).map(|(kind, _)| kind).filter(|kind| *kind != NeededFactKind::File).collect()
    };
    let twice = |between: &str| {
        format!(
            "user: Go.\nassistant: One.\n  call read_file {{\"path\": \"src/a.rs\"}}\n  -> text\n\
             assistant: Two.\n  {between}\n  -> done\n\
             assistant: Three.\n  call read_file {{\"path\": \"src/a.rs\"}}\n  -> text\n"
        )
    };
    assert_eq!(kinds(&twice(r#"call bash {"command": "make all"}"#)), [NeededFactKind::ReadAgain]);
    assert_eq!(kinds(&twice(r#"call write_file {"path": "src/a.rs", "content": "new"}"#)), []);
}

#[test]
fn every_demand_is_needed_however_many_there_are() {
    let mut log = String::new();
    for number in 0..60 {
        let _ = writeln!(log, "user: Never touch the folder of team {number}.\nassistant: Fine.");
    }
    let needs = NeededFacts::of(&EventLine::new(read(&log)));
    assert_eq!((needs.at(0), needs.at(30), needs.at(59)), (1, 31, 60));
}

#[test]
fn an_empty_session_needs_nothing_and_unknown_calls_neither() {
    let needs = NeededFacts::of(&EventLine::default());
    assert_eq!((needs.at(0), needs.at(u64::MAX)), (0, 0));
    let retention = needs.scorer().score(7, &project(&EventLine::default(), meter(), EventNaming::Messages));
    assert_eq!((retention.total(), retention.in_request(), retention.reachable()), (0, None, None));
}

#[test]
fn retention_adds_up_and_is_written_by_kind_and_way() {
    let (needs, context, call) = before_last_answer(EVERY_KIND);
    let whole = needs.scorer().score(call, &context);
    let lost = needs.scorer().score(call, &fold(context, "[gone]"));
    let mut sum = whole;
    sum += lost;
    assert_eq!((sum.total(), sum.of(RetentionForm::Lost), sum.in_request()), (12, 6, Some(0.5)));
    insta::assert_snapshot!(serde_json::to_string(&sum).unwrap(), @r#"{"file":{"verbatim":1,"summary":0,"name_only":0,"handle":0,"lost":1},"error":{"verbatim":1,"summary":0,"name_only":0,"handle":0,"lost":1},"value":{"verbatim":1,"summary":0,"name_only":0,"handle":0,"lost":1},"constraint":{"verbatim":1,"summary":0,"name_only":0,"handle":0,"lost":1},"failed_approach":{"verbatim":1,"summary":0,"name_only":0,"handle":0,"lost":1},"read_again":{"verbatim":1,"summary":0,"name_only":0,"handle":0,"lost":1},"user_messages":{"kept":1,"all":2}}"#);
    let mut drift = RetentionDrift::default();
    drift.add(0, whole);
    drift.add(9, lost);
    assert_eq!(drift.steps().map(|step| step.total()), [6, 0, 0, 6]);
}

/// A session in which a few names, files and commands come again and again.
fn session() -> impl Strategy<Value = String> {
    let step = (0..5_u8, 0..6_u8, 0..6_u8);
    prop::collection::vec(step, 1..40).prop_map(|steps| {
        let mut log = "user: Always keep theFirstName.\n".to_owned();
        for (what, one, two) in steps {
            let call = match what {
                0 => {
                    let _ = writeln!(log, "user: Look at fieldName{one}x, never at pathOf{two}.");
                    continue;
                }
                1 => format!(r#"call read_file {{"path": "src/mod{one}/file.rs"}}"#),
                2 => format!(r#"call bash {{"command": "make target{one}"}}"#),
                3 => format!(
                    r#"call write_file {{"path": "src/mod{one}/file.rs", "content": "fieldName{two}x"}}"#
                ),
                _ => String::new(),
            };
            let _ = writeln!(log, "assistant: Now pathOf{one} and the part number {two} broke badly.");
            if !call.is_empty() {
                let arrow = if two == 0 { "!>" } else { "->" };
                let _ = writeln!(
                    log,
                    "  {call}\n  {arrow} error: the part number {one} broke badly at fieldName{two}x"
                );
            }
        }
        log
    })
}

/// A policy that leaves everything as it is.
fn none() -> Policy {
    Policy { reduce: Vec::new(), summary: None, ..Policy::named("epitome").unwrap().clone() }
}

/// Plays a session and shows each request with its call.
fn play(line: EventLine, policy: &Policy, ceiling: Tokens, mut each: impl FnMut(u64, &Context)) {
    let meter = Arc::clone(histories::context(&[]).meter());
    let script = MeteredThread::new(line, meter, EventNaming::Messages);
    let budget = Budget::new(ceiling);
    let format = Format::OpenaiChat;
    let rehearsal = SimulationSettings::new(policy, budget, format, RenderOptions::of(format), None);
    rehearsal.run(&script, |call| {
        if let Ok(call) = call {
            each(call.number, call.view.context());
        }
    });
}

fn holds_all(needs: &NeededFacts, line: EventLine) {
    let mut scorer = needs.scorer();
    play(line, &none(), Tokens(100_000_000), |call, context| {
        let held = scorer.score(call, context);
        assert_eq!(held.total(), needs.at(call) as u64);
        assert_eq!(held.of(RetentionForm::Verbatim), held.total(), "call {call}: {}", show(&held));
        assert_eq!(held.user_messages.kept, held.user_messages.all);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_request_that_leaves_nothing_out_lacks_nothing(log in session(), steps in history(30)) {
        let line = EventLine::new(read(&log));
        holds_all(&NeededFacts::of(&line), line);
        let events = histories::events(&steps).into_iter();
        let line = EventLine::new(events.filter(|event| !matches!(event.event.fact, Fact::Compacted(_))));
        holds_all(&NeededFacts::of(&line), line);
    }

    #[test]
    fn what_was_seen_before_makes_no_difference(log in session(), cutting in prop::collection::vec(cuts(), 1..6)) {
        let line = EventLine::new(read(&log));
        let needs = NeededFacts::of(&line);
        let mut scorer = needs.scorer();
        play(line.clone(), &none(), Tokens(100_000_000), |call, context| {
            let cuts: &Cuts = &cutting[usize::try_from(call).unwrap() / 3 % cutting.len()];
            let context = cut(context.clone(), cuts);
            assert_eq!(scorer.score(call, &context), needs.scorer().score(call, &context));
        });
        let mut scorer = needs.scorer();
        play(line, Policy::named("epitome").unwrap(), Tokens(900), |call, context| {
            assert_eq!(scorer.score(call, context), needs.scorer().score(call, context));
        });
    }
}

/// What an attachment or a picture shows is no text, and reasoning is nobody's source.
#[test]
fn reasoning_is_no_source_and_no_use() {
    let log = "user: Hello.\nassistant: Hm.\n  thinking: retryBudget\nuser: And fieldNine.\nassistant: So.\n  \
               thinking: fieldNine\nuser: Well?\nassistant: retryBudget and fieldNine.";
    let (needs, context, call) = before_last_answer(log);
    assert_eq!(needs.names(call).collect::<Vec<_>>(), [(NeededFactKind::Value, "fieldNine")]);
    let thinks = |part: &ContentPart| matches!(part, ContentPart::Reasoning { .. });
    assert!(context.segments().iter().any(|segment| match segment.body() {
        epitome::core::context::SegmentBody::Answer { event, part } =>
            thinks(&event.event.fact.parts()[*part]),
        _ => false,
    }));
    assert_eq!(show(&needs.scorer().score(call, &context)), "value verbatim, user 3/3");
}
