//! Sessions with usage made up by a known model, whose parameters the comparison has to find again.

use std::sync::Arc;

use epitome::{
    compact::line,
    core::{
        ContentPart, Event, Fact, Seq, Tokens,
        event::{
            Compaction, CompactionTrigger, InstructionKind, Summary, Timestamp, ToolCall, ToolResult, Usage,
        },
        meter::{Meter, TokenOverhead},
        profile::{Profile, Profiles},
        projection::EventLine,
        tokens::EstimateCounter,
    },
    recorded_calls::counted,
};
use proptest::prelude::*;

use super::{
    super::hidden_overhead::{HiddenOverhead, OverheadBasis},
    ColdCallCounts, ComparisonSide, ComparisonTotals, PrefixSource, ThreadComparison, compare,
};

const OPUS: &str = "claude-opus-4-5";

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(EstimateCounter), TokenOverhead::default()))
}

fn profile(name: &str) -> Profile {
    Profiles::builtin().find(name).unwrap().clone()
}

fn own(fact: Fact) -> Event {
    Event::from_fact(fact, None)
}

fn words(count: usize) -> Vec<ContentPart> {
    vec![ContentPart::text("word ".repeat(count))]
}

fn user(count: usize) -> Event {
    own(Fact::UserSaid { parts: words(count) })
}

fn instructed(what: InstructionKind) -> Event {
    own(Fact::Instructed { what, parts: words(100) })
}

fn said(answer: &str, model: &str, parts: Vec<ContentPart>) -> Event {
    own(Fact::AssistantSaid { answer: Some(answer.into()), model: Some(model.into()), parts })
}

fn used(answer: &str, usage: Usage) -> Event {
    own(Fact::UsageReported { answer: Some(answer.into()), model: None, usage })
}

fn compacted(through: u64) -> Event {
    own(Fact::Compacted(Compaction {
        summary: Summary::Text("What was done. ".repeat(40)),
        through: Seq(through),
        first_kept: None,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Unknown,
    }))
}

/// Events before a call.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Time since the call before.
    pause: i64,
    /// Number of words that are added.
    words: usize,
    from: From,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    User,
    Tool,
}

fn step(pause: i64, words: usize) -> Step {
    Step { pause, words, from: From::Tool }
}

/// A session of these steps, in which answer `i` has the usage `usage(i)`.
fn session(steps: &[Step], usage: impl Fn(usize) -> Option<Usage>) -> EventLine {
    let mut now = 1_000_000;
    let mut events = vec![user(50).at(Some(Timestamp(now)))];
    for (at, step) in steps.iter().enumerate() {
        if at > 0 {
            now += step.pause * 1_000;
            let call = format!("call{}", at - 1);
            let result = ToolResult {
                call: call.as_str().into(),
                name: None,
                parts: words(if step.from == From::Tool { step.words } else { 1 }),
                error: false,
            };
            events.push(
                own(Fact::ToolReturned { results: vec![result], parts: vec![] }).at(Some(Timestamp(now))),
            );
            if step.from == From::User {
                events.push(user(step.words).at(Some(Timestamp(now))));
            }
        }
        let call = ToolCall::function(format!("call{at}").as_str(), "read", "{}");
        let answer = format!("answer{at}");
        events.push(
            said(&answer, OPUS, vec![ContentPart::text("Reading on."), ContentPart::ToolCall(call)])
                .at(Some(Timestamp(now))),
        );
        events.extend(usage(at).map(|usage| used(&answer, usage)));
    }
    line(events)
}

/// A session with the usage that a cache of five minutes would have produced.
fn recorded(steps: &[Step], prefix: u64, thousandths: u64) -> EventLine {
    let counts = counted(&session(steps, |_| None), &meter());
    let input = |at: usize| prefix + counts[at].counted.0 * thousandths / 1_000;
    session(steps, |at| {
        let warm = at > 0 && steps[at].pause <= 300;
        let read = if warm { input(at - 1) } else { 0 };
        Some(Usage { cache_read: Tokens(read), cache_write: Tokens(input(at) - read), ..Usage::default() })
    })
}

fn side(compared: &ThreadComparison, prefix: PrefixSource) -> &ComparisonSide {
    let wanted = |side: &&ComparisonSide| side.prefix == prefix && side.cache == "breakpoints";
    compared.sides.iter().find(wanted).unwrap()
}

/// The largest error: of two calls, one always lies on the median.
fn most(errors: &[f64]) -> f64 {
    errors.iter().copied().fold(0.0, f64::max)
}

fn opus(line: &EventLine) -> ThreadComparison {
    compare("a", line, &meter(), Some(&profile(OPUS))).unwrap()
}

/// `input` tokens, none of them from a cache.
fn fresh(input: u64) -> Usage {
    Usage { uncached: Tokens(input), ..Usage::default() }
}

fn check(events: Vec<Event>, prefix: std::ops::RangeInclusive<u64>, basis: OverheadBasis) {
    let unseen = HiddenOverhead::of(&line(events), &meter());
    assert!(prefix.contains(&unseen.prefix.0), "{unseen:?}");
    assert_eq!(unseen.basis, basis);
}

#[test]
fn what_the_first_call_sent_beyond_what_is_counted_is_unseen() {
    let asked = vec![user(10), said("a", OPUS, words(5)), used("a", fresh(40_000))];
    check(asked, 39_900..=39_999, OverheadBasis::Inferred { calls: 1 });
}

#[test]
fn a_transcript_with_system_prompt_and_tools_hides_nothing() {
    let mut events = vec![instructed(InstructionKind::System), instructed(InstructionKind::Tools), user(10)];
    check(events.clone(), 0..=0, OverheadBasis::Assumed);
    events.extend([said("a", OPUS, words(5))]);
    check(events.clone(), 0..=0, OverheadBasis::Recorded);
    events.extend([used("a", fresh(40_000))]);
    check(events.clone(), 0..=0, OverheadBasis::Recorded);
    // Without the tools, the rest of the prefix is attributed to them.
    events.remove(1);
    check(events, 39_000..=39_999, OverheadBasis::Inferred { calls: 1 });
}

#[test]
fn without_usage_nothing_is_taken_to_be_unseen() {
    check(vec![], 0..=0, OverheadBasis::Assumed);
    check(vec![user(10), said("a", OPUS, words(5))], 0..=0, OverheadBasis::Assumed);
    // A call that was broken off reports nothing, and a report without an answer is ignored.
    check(vec![user(10), said("a", OPUS, words(5)), used("a", fresh(0))], 0..=0, OverheadBasis::Assumed);
    check(vec![used("a", fresh(9_000)), user(10), said("a", OPUS, words(5))], 0..=0, OverheadBasis::Assumed);
}

#[test]
fn less_than_what_is_counted_leaves_nothing_unseen() {
    let events = vec![user(10_000), said("a", OPUS, words(5)), used("a", fresh(50))];
    check(events, 0..=0, OverheadBasis::Inferred { calls: 1 });
}

#[test]
fn the_first_call_that_says_something_counts_and_the_last_report_about_it() {
    let events = vec![
        user(10),
        said("a", OPUS, words(5)),
        user(10),
        said("b", OPUS, words(5)),
        used("b", fresh(7)),
        said("b", OPUS, words(5)),
        used("b", fresh(30_000)),
    ];
    check(events, 29_900..=29_999, OverheadBasis::Inferred { calls: 1 });
}

#[test]
fn what_another_model_was_told_does_not_count() {
    let mut events = vec![user(10), said("title", "claude-haiku-4-5", words(5)), used("title", fresh(300))];
    for answer in ["a", "b"] {
        events.extend([user(10), said(answer, OPUS, words(5)), used(answer, fresh(40_000))]);
    }
    check(events, 39_900..=40_000, OverheadBasis::Inferred { calls: 2 });
}

#[test]
fn a_file_that_begins_in_the_middle_is_seen_through_once_the_client_compacted() {
    let mut events = vec![user(10), said("a", OPUS, words(5)), used("a", fresh(150_000))];
    check(events.clone(), 149_900..=150_000, OverheadBasis::Inferred { calls: 1 });
    events.push(compacted(3));
    events.extend([user(10), said("b", OPUS, words(5)), used("b", fresh(40_300))]);
    check(events, 39_500..=40_300, OverheadBasis::Inferred { calls: 2 });
}

#[test]
fn running_totals_are_taken_apart() {
    let steps = [step(1, 100), step(1, 800), step(1, 800), step(1, 800), step(1, 800)];
    let counts = counted(&session(&steps, |_| None), &meter());
    let total = |at: usize| counts[..=at].iter().map(|call| 20_000 + call.counted.0).sum::<u64>();
    let unseen = HiddenOverhead::of(&session(&steps, |at| Some(fresh(total(at)))), &meter());
    assert_eq!((unseen.prefix, unseen.basis), (Tokens(20_000), OverheadBasis::Inferred { calls: 5 }));
    assert!((unseen.scale.as_number() - 1.0).abs() < 0.001, "{:?}", unseen.scale);
}

#[test]
fn a_session_without_usage_is_not_compared() {
    assert!(compare("a", &EventLine::default(), &meter(), Some(&profile(OPUS))).is_none());
    assert!(compare("a", &session(&[step(1, 1); 3], |_| None), &meter(), None).is_none());
    let mut sum = ComparisonTotals::default();
    sum.add(None);
    assert_eq!((sum.without_usage, sum.threads, sum.reports().len()), (1, 0, 0));
}

#[test]
fn a_pause_longer_than_the_lifetime_is_found_and_one_that_the_cache_outlived_is_told() {
    let steps = [step(1, 500), step(10, 900), step(400, 900), step(10, 900)];
    let compared = opus(&recorded(&steps, 30_000, 1_000));
    assert_eq!(
        side(&compared, PrefixSource::Recorded).cold,
        ColdCallCounts { found: 1, missed: 0, wrong: 0 }
    );
    // The same session, except that the provider still had the prefix.
    let counts = counted(&session(&steps, |_| None), &meter());
    let input = |at: usize| 30_000 + counts[at].counted.0;
    let outlived = session(&steps, |at| {
        let read = if at == 0 { 0 } else { input(at - 1) };
        Some(Usage { cache_read: Tokens(read), cache_write: Tokens(input(at) - read), ..Usage::default() })
    });
    let compared = opus(&outlived);
    assert_eq!(
        side(&compared, PrefixSource::Recorded).cold,
        ColdCallCounts { found: 0, missed: 0, wrong: 1 }
    );
    assert_eq!(
        (compared.worst[0].call, compared.worst[0].why.as_str()),
        (2, "the cache outlived a pause of 400 s")
    );
    // A lifetime of an hour that was paid for lasts an hour.
    let hour = session(&steps, |at| {
        let read = if at == 0 { 0 } else { input(at - 1) };
        let written = Tokens(input(at) - read);
        Some(Usage {
            cache_read: Tokens(read),
            cache_write: written,
            cache_write_hour: written,
            ..Usage::default()
        })
    });
    assert_eq!(side(&opus(&hour), PrefixSource::Recorded).cold, ColdCallCounts::default());
}

#[test]
fn a_call_that_was_cold_without_a_reason_is_missed_and_told() {
    let steps = [step(1, 500), step(10, 900), step(20, 900), step(10, 900)];
    let counts = counted(&session(&steps, |_| None), &meter());
    let input = |at: usize| 30_000 + counts[at].counted.0;
    let lost = session(&steps, |at| {
        let read = if at == 0 || at == 2 { 0 } else { input(at - 1) };
        Some(Usage { cache_read: Tokens(read), cache_write: Tokens(input(at) - read), ..Usage::default() })
    });
    let compared = opus(&lost);
    assert_eq!(
        side(&compared, PrefixSource::Recorded).cold,
        ColdCallCounts { found: 0, missed: 1, wrong: 0 }
    );
    assert_eq!(compared.worst[0].call, 2);
    assert!(
        compared.worst[0].why.contains("after 20 s though the transcript shows no change"),
        "{:?}",
        compared.worst[0]
    );
}

#[test]
fn what_the_client_took_out_unsaid_is_seen_from_the_input() {
    let steps =
        [step(1, 2_000), step(10, 2_000), step(10, 2_000), step(10, 2_000), step(10, 2_000), step(10, 2_000)];
    let counts = counted(&session(&steps, |_| None), &meter());
    let input = |at: usize| 30_000 + counts[at].counted.0 - if at < 3 { 0 } else { 4_000 };
    let line = session(&steps, |at| {
        let read = match at {
            0 => 0,
            3 => 30_000,
            _ => input(at - 1),
        };
        Some(Usage { cache_read: Tokens(read), cache_write: Tokens(input(at) - read), ..Usage::default() })
    });
    let compared = opus(&line);
    let (all, first) = (side(&compared, PrefixSource::Recorded), side(&compared, PrefixSource::Inferred));
    assert!(all.input_errors.iter().all(|error| *error < 0.001), "{:?}", all.input_errors);
    assert!(all.read_errors.iter().all(|error| *error < 0.01), "{:?}", all.read_errors);
    assert!(first.input_errors[4] > 0.05, "the first call cannot tell: {:?}", first.input_errors);
}

#[test]
fn a_client_that_was_started_anew_writes_its_own_instructions_anew() {
    let prompt = Usage {
        cache_read: Tokens(16_000),
        cache_write: Tokens(14_100),
        cache_write_hour: Tokens(14_100),
        ..Usage::default()
    };
    let later = Usage {
        cache_read: Tokens(30_100),
        cache_write: Tokens(100),
        cache_write_hour: Tokens(100),
        ..Usage::default()
    };
    let again = Usage { cache_write: Tokens(14_300), cache_write_hour: Tokens(14_300), ..prompt };
    let synthetic = own(Fact::AssistantSaid {
        answer: Some("none".into()),
        model: None,
        parts: vec![ContentPart::text("No response requested.")],
    });
    let events = vec![
        user(20),
        said("a", OPUS, words(5)),
        used("a", prompt),
        user(60),
        said("b", OPUS, words(5)),
        used("b", later),
        synthetic,
        user(60),
        said("c", OPUS, words(5)),
        used("c", again),
    ];
    let timed = events.into_iter().zip(0..).map(|(event, at)| event.at(Some(Timestamp(at * 10_000))));
    let compared = opus(&line(timed));
    assert_eq!((compared.calls, compared.silent), (3, 0), "nobody was asked for the client's own words");
    // Only the part that other sessions share is read.
    let last = compared.worst.iter().find(|worst| worst.call == 2).unwrap();
    assert_eq!(last.simulated.cache_read, Tokens(16_000));
    // It is half of what was sent before: no cold call, and the same on both sides.
    assert_eq!(side(&compared, PrefixSource::Recorded).cold, ColdCallCounts::default());
}

#[test]
fn hidden_reasoning_is_as_large_as_its_answer_used_more_than_it_shows() {
    let hidden = ContentPart::Reasoning { text: String::new(), seal: None };
    let usage = |input: u64, output: u64| Usage { output: Tokens(output), ..fresh(input) };
    let events = vec![
        user(20),
        said("a", OPUS, vec![hidden, ContentPart::text("Yes.")]),
        used("a", usage(30_000, 5_000)),
        user(20),
        said("b", OPUS, words(5)),
        used("b", usage(35_040, 9)),
    ];
    let compared = opus(&line(events));
    let [all, first] = [PrefixSource::Recorded, PrefixSource::Inferred]
        .map(|prefix| most(&side(&compared, prefix).input_errors));
    assert!(all < 0.002 && first > 0.1, "{all} {first}");
}

#[test]
fn reasoning_of_earlier_loops_is_not_sent_where_the_provider_leaves_it_out() {
    let hidden = || ContentPart::Reasoning { text: String::new(), seal: None };
    let events = |last: u64| {
        let usage = |input: u64, output: u64| Usage { output: Tokens(output), ..fresh(input) };
        line(vec![
            user(20),
            said("a", "gpt-5.4", vec![hidden(), ContentPart::text("Yes.")]),
            used("a", usage(30_000, 5_000)),
            user(20),
            said("b", "gpt-5.4", words(5)),
            used("b", usage(last, 9)),
        ])
    };
    let error = |model: &str, last: u64| {
        let compared = compare("a", &events(last), &meter(), Some(&profile(model))).unwrap();
        most(&side(&compared, PrefixSource::Recorded).input_errors)
    };
    assert!(error("gpt-5.4", 30_040) < 0.002 && error("gpt-5.4", 35_040) > 0.1);
    assert!(error("gpt-5.6", 35_040) < 0.002, "{}", error("gpt-5.6", 35_040));
}

#[test]
fn a_recording_that_says_nothing_of_a_cache_is_compared_by_its_input_alone() {
    let steps = [step(1, 500), step(10, 900), step(10, 900)];
    let compared = opus(&session(&steps, |at| Some(fresh(30_000 + 1_000 * at as u64))));
    let side = side(&compared, PrefixSource::Recorded);
    assert_eq!(
        (side.input_errors.len(), side.read_errors.len(), side.cold),
        (3, 0, ColdCallCounts::default())
    );
    assert_eq!((side.recorded.money, compared.worst.len()), (None, 0));
}

#[test]
fn an_unknown_model_is_compared_with_the_ideal_cache_and_without_a_price() {
    let compared =
        compare("a", &recorded(&[step(1, 500), step(10, 900)], 30_000, 1_000), &meter(), None).unwrap();
    let caches: Vec<_> = compared.sides.iter().map(|side| (side.prefix, side.cache)).collect();
    assert_eq!(caches, [(PrefixSource::Recorded, "ideal"), (PrefixSource::Inferred, "ideal")]);
    assert!(compared.sides.iter().all(|side| side.recorded.price().is_none()));
    let mut sum = ComparisonTotals::default();
    sum.add(Some(compared));
    assert_eq!(sum.reports()[0].price_error, None);
}

#[test]
fn absurd_usage_and_times_are_compared_without_harm() {
    let huge = Usage {
        uncached: Tokens(u64::MAX),
        cache_read: Tokens(u64::MAX),
        output: Tokens(u64::MAX),
        ..Usage::default()
    };
    let steps = [step(i64::MAX / 4_000, 10), step(i64::MAX / 4_000, 10), step(-5, 10)];
    for usage in [huge, fresh(1)] {
        let line = session(&steps, |at| (at != 1).then_some(usage));
        let mut sum = ComparisonTotals::default();
        sum.add(compare("a", &line, &meter(), Some(&profile(OPUS))));
        assert_eq!(sum.calls, 2);
        assert!(!sum.reports().is_empty());
    }
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let from = prop_oneof![Just(From::User), Just(From::Tool)];
    let pause = prop_oneof![4 => 1..290_i64, 1 => 310..9_000_i64];
    let step = (pause, 300..3_000_usize, from).prop_map(|(pause, words, from)| Step { pause, words, from });
    prop::collection::vec(step, 6..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_a_made_up_recording_hides_is_found_again(
        steps in any_steps(), prefix in 5_000..60_000_u64, thousandths in 800..2_000_u64,
    ) {
        let line = recorded(&steps, prefix, thousandths);
        let unseen = HiddenOverhead::of(&line, &meter());
        let off = unseen.prefix.0.abs_diff(prefix);
        prop_assert!(off <= 3, "{:?} {}", unseen, prefix);
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let scale = thousandths as f64 / 1_000.0;
        prop_assert!((unseen.scale.as_number() - scale).abs() < 0.003, "{:?} {}", unseen, scale);
        let compared = opus(&line);
        let all = side(&compared, PrefixSource::Recorded);
        prop_assert!(most(&all.input_errors) < 0.005, "{:?}", all.input_errors);
        prop_assert!(most(&all.read_errors) < 0.005, "{:?}", all.read_errors);
        let pauses = steps.iter().skip(1).filter(|step| step.pause > 300).count() as u64;
        prop_assert_eq!(all.cold, ColdCallCounts { found: pauses, missed: 0, wrong: 0 });
        let (recorded, simulated) = (all.recorded.price().unwrap(), all.simulated.price().unwrap());
        prop_assert!((simulated / recorded - 1.0).abs() < 0.01, "{} {}", recorded, simulated);
    }
}
