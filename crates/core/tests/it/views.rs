//! The invariants of a view, call after call, over generated histories; and what it says when it cannot keep to a budget.

use std::sync::Arc;

use epitome_core::{
    ContentPart, Fact,
    budget::Budget,
    context::{Context, EventNaming},
    cost::CacheTerms,
    event::{LoggedEvent, Timestamp, ToolCall, ToolResult},
    meter::{Meter, TokenOverhead},
    model_view::{EditRecord, EpochCause, ModelView, NextCall, PreparationReport, TargetShortfall},
    policy::Policy,
    profile::Profiles,
    projection::{EventLine, project},
    tokens::Tokens,
};
use proptest::prelude::*;

use crate::{
    histories::history,
    inject::hooks,
    notation::{self, Words, logged, read},
    stage::{Stage, said},
};

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(Words), TokenOverhead::default()))
}

/// One call of a session.
struct Call {
    prepared: PreparationReport,
    said: Vec<String>,
    tokens: Tokens,
    epoch: u64,
    seen: usize,
}

/// Sends a request before every answer, as an agent would; a minute passes between events.
fn calls(
    events: &[Arc<LoggedEvent>],
    policy: &Policy,
    budget: &Budget,
    mut each: impl FnMut(&ModelView),
) -> (ModelView, Vec<Call>) {
    let profiles = Profiles::builtin();
    let profile = profiles.find("claude-opus-4-5").unwrap();
    let terms = CacheTerms::new(&profile.cache, &profile.prices);
    let mut stage = Stage::new(meter());
    let mut calls = Vec::new();
    for (minute, (seen, event)) in (0..).zip(events.iter().enumerate()) {
        if matches!(event.event.fact, Fact::AssistantSaid { .. }) {
            let now = Some(Timestamp(minute * 60_000));
            let view = &mut stage.view;
            let moment = NextCall { now, terms: Some(&terms), ..NextCall::default() };
            if let Ok(prepared) = view.prepare(policy, budget, &moment) {
                let (said, tokens) = (said(view.context()), view.context().tokens());
                view.sent(now);
                each(view);
                calls.push(Call { prepared, said, tokens, epoch: view.epoch().number, seen });
            }
        }
        stage.play(event);
    }
    (stage.view, calls)
}

/// The built-in policies, and some that act all the time.
fn policies() -> Vec<Policy> {
    let eager = r#"
        name = "eager"
        about = "Acts as often as it can, in every way it can."
        limits = { target = 0.3, trigger = 0.5, force = 0.8 }
        caps = { tool_results = 0.2 }
        [[reduce]]
        reducer = "cut_outputs"
        when = "on_arrival"
        tokens = { over = 20, head = 5, tail = 5 }
        spare_turns = 0
        [[reduce]]
        reducer = "expire_tool_results"
        when = "every_call"
        default = { turns = 1 }
        [[reduce]]
        reducer = "evict_media"
        keep_newest = 1
        [[reduce]]
        reducer = "slide_dialogue"
        max_turns = 2
    "#;
    let mut policies = Policy::builtin().to_vec();
    policies.push(Policy::read(eager).unwrap());
    policies
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(policies())
}

fn budget(policy: &Policy, ceiling: u64) -> Budget {
    policy.budget(Budget::new(Tokens(ceiling)))
}

proptest! {
    /// Invariant 5: within an epoch requests only grow at the end, and a pass opens at most one.
    #[test]
    fn within_an_epoch_requests_only_grow(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let (_, calls) = calls(&events, &policy, &budget(&policy, ceiling), |_| ());
        for pair in calls.windows(2) {
            let [before, after] = pair else { continue };
            prop_assert!(after.epoch - before.epoch <= 1);
            prop_assert_eq!(after.epoch != before.epoch, after.prepared.cause.is_some());
            if after.epoch == before.epoch {
                prop_assert!(
                    after.said.starts_with(&before.said),
                    "{} changed what was sent without a word:\n{:#?}\n{:#?}", policy.name, before.said, after.said
                );
            }
        }
    }

    /// Invariant 4, call after call.
    #[test]
    fn every_call_is_within_the_ceiling(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let (_, calls) = calls(&events, &policy, &budget(&policy, ceiling), |_| ());
        for call in calls {
            prop_assert!(call.tokens <= Tokens(ceiling), "{} at {}", policy.name, call.seen);
        }
    }

    /// Invariant 6, call after call.
    #[test]
    fn nothing_is_unaccounted_for_in_any_call(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        calls(&events, &policy, &budget(&policy, ceiling), |view| {
            assert_eq!(view.context().find_inconsistency(), None);
            let accounted = view.context().accounted();
            for event in view.line().events() {
                let rendered = match event.event.fact.kind() {
                    "carried" => event.event.normal.is_some(),
                    "compaction_requested" | "compaction_reverted" | "compaction_restored" | "pinned" | "unpinned"
                    | "usage_reported" | "model_changed" => false,
                    _ => true,
                };
                assert!(!rendered || accounted.contains(event.id.seq), "{} is lost", event.id.seq);
            }
        });
    }

    /// What a policy says of the sizes it leaves alone holds for whatever has them.
    #[test]
    fn a_first_request_of_the_sizes_that_are_untouched_goes_on_as_it_came(
        events in history(60), policy in policy(), ceiling in 200..12_000u64
    ) {
        let budget = budget(&policy, ceiling);
        let Some(sizes) = policy.untouched_sizes(&budget) else { return Ok(()) };
        let mut stage = Stage::new(meter());
        for event in &events {
            stage.play(event);
        }
        let context = stage.view.context();
        let item = |event: &Arc<LoggedEvent>| meter().pieces(&event.event).into_iter().sum::<Tokens>();
        let is_small = stage.view.line().events().all(|event| item(event) <= sizes.item);
        if context.tokens() > sizes.whole || !is_small {
            return Ok(());
        }
        let before = said(context);
        let prepared = stage.view.prepare(&policy, &budget, &NextCall::default());
        prop_assert!(prepared.is_ok_and(|prepared| prepared.acted.is_none() && prepared.compaction.is_none()));
        prop_assert_eq!(said(stage.view.context()), before, "{}", policy.name);
    }

    /// Instructions and tools are never touched: whatever is decided, they stand as they do where nothing was.
    #[test]
    fn the_prefix_is_never_modified(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        calls(&events, &policy, &budget(&policy, ceiling), |view| {
            let untouched = project(view.line(), meter(), EventNaming::Messages);
            let prefix = |context: &Context| context.segments()[..context.prefix_len()].to_vec();
            assert_eq!(prefix(view.context()), prefix(&untouched));
        });
    }

    /// Invariant 2: re-applying what was recorded equals applying it, also through its written form.
    #[test]
    fn a_restored_view_shows_the_same(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let (view, _) = calls(&events, &policy, &budget(&policy, ceiling), |view| {
            let restored = ModelView::restore(view.line(), reread(view.passes()), view.last().cloned(), meter(), EventNaming::Messages);
            assert_eq!(said(restored.context()), said(view.context()));
            assert_eq!(restored.context().tokens(), view.context().tokens());
            assert_eq!(restored.context().accounted(), view.context().accounted());
            assert_eq!(restored.epoch(), view.epoch());
        });
        let uncounted = EventLine::new(view.line().events().cloned());
        let restored = ModelView::restore(&uncounted, reread(view.passes()), None, meter(), EventNaming::Messages);
        prop_assert_eq!(said(restored.context()), said(view.context()));
    }

    /// A revived session goes on as the living one would have: the same decisions, for the same reasons.
    #[test]
    fn a_restored_view_decides_the_same(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let budget = budget(&policy, ceiling);
        let (mut view, _) = calls(&events, &policy, &budget, |_| ());
        let last = view.last().map(|last| {
            let json = serde_json::to_string(last).unwrap();
            serde_json::from_str(&json).unwrap()
        });
        let mut restored = ModelView::restore(view.line(), reread(view.passes()), last, meter(), EventNaming::Messages);
        let profiles = Profiles::builtin();
        let profile = profiles.find("claude-opus-4-5").unwrap();
        let terms = CacheTerms::new(&profile.cache, &profile.prices);
        let now = Some(Timestamp(i64::try_from(events.len()).unwrap() * 60_000));
        let moment = NextCall { now, terms: Some(&terms), ..NextCall::default() };
        prop_assert_eq!(view.prepare(&policy, &budget, &moment), restored.prepare(&policy, &budget, &moment));
        prop_assert_eq!(said(view.context()), said(restored.context()));
    }

    /// What happens after a preparation that was not sent undoes it, and loses nothing.
    #[test]
    fn what_happens_meanwhile_is_kept(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let budget = budget(&policy, ceiling);
        let (mut view, _) = calls(&events, &policy, &budget, |_| ());
        let _ = view.prepare(&policy, &budget, &NextCall::default());
        let next = view.line().events().next_back().map_or(1, |last| last.id.seq.0 + 1);
        let before: Vec<_> = view.line().events().filter(|event| event.id.seq.0 < next).cloned().collect();
        view.abandon();
        let without = view.line().events().count();
        let _ = view.prepare(&policy, &budget, &NextCall::default());
        let said_next = logged(1 + view.line().events().map(|event| event.id.seq.0).max().unwrap_or(0), Fact::UserSaid { parts: vec![] });
        view.push(Arc::clone(&said_next), vec![]);
        let after: Vec<_> = view.line().events().cloned().collect();
        prop_assert_eq!(after.len(), without + 1);
        prop_assert!(before.len() >= without);
        prop_assert_eq!(after.last(), Some(&said_next));
    }

    /// A preparation that is not sent leaves no trace.
    #[test]
    fn what_is_abandoned_leaves_no_trace(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let budget = budget(&policy, ceiling);
        let (mut view, _) = calls(&events, &policy, &budget, |_| ());
        let before = said(view.context());
        let once = view.prepare(&policy, &budget, &NextCall::default());
        view.abandon();
        prop_assert_eq!(&said(view.context()), &before);
        let again = view.prepare(&policy, &budget, &NextCall::default());
        prop_assert_eq!(once, again);
    }
}

/// A view of a log, under a meter that wraps nothing.
fn played(log: &str) -> Stage {
    let mut stage = Stage::new(notation::meter());
    for event in &read(log) {
        stage.play(event);
    }
    stage
}

const ASKED: &str = "system: Be brief.\nuser: One.\nassistant: 30 words of \"one\"\nuser: Two.\n";

#[test]
fn a_hook_over_its_reserve_is_named_with_the_numbers_and_the_call_goes_without_it() {
    let mut stage = played(ASKED);
    let hooks = hooks(&[(5, 10), (12, 10)]);
    let policy = Policy::named("epitome").unwrap();
    let budget = budget(policy, 100).with_reserve(hooks.reserve());
    let prepared = stage.view.prepare(policy, &budget, &NextCall::default()).unwrap();
    let before = said(stage.view.context());
    let error = hooks.inject(stage.view.line().events(), &notation::meter(), None).unwrap_err();
    insta::assert_snapshot!(error, @"injecting what the hook `hook 1` adds to message 4: it needs 12 tokens, and 10 are reserved for it; let it add less, or reserve more");
    assert_eq!(said(stage.view.context()), before, "not even the hook that kept to its reserve has added");
    assert_eq!((prepared.cause, stage.view.sent(None)), (None, None));
}

#[test]
fn what_hooks_add_after_a_reduction_fits_and_nothing_is_reduced_again() {
    let hooks = hooks(&[(9, 10), (8, 10)]);
    let policy =
        Policy::read("base = \"epitome\"\nsummary = false\nreduce = [{ reducer = \"drop_middle\" }]");
    let policy = policy.unwrap();
    let mut stage = played(ASKED);
    let budget = budget(&policy, 40).with_reserve(hooks.reserve());
    stage.view.prepare(&policy, &budget, &NextCall::default()).unwrap();
    let reduced = said(stage.view.context());
    assert!(stage.view.context().tokens() <= Tokens(20));
    for event in hooks.inject(stage.view.line().events(), &notation::meter(), None).unwrap() {
        stage.play(&logged(0, event.fact));
    }
    assert_eq!(&said(stage.view.context())[..reduced.len()], reduced, "what was reduced stays");
    assert_eq!(stage.view.context().segments().len(), reduced.len() + 2);
    assert!(stage.view.context().tokens() <= Tokens(40));
    assert!(stage.view.sent(None).is_some(), "the reduction was recorded");
}

#[test]
fn a_policy_that_cannot_reach_its_target_says_so_and_resets_no_cache_for_it() {
    let policy = r#"
        name = "weak"
        about = "Has nothing to say of what people say."
        limits = { target = 0.4, trigger = 0.5 }
        reduce = [{ reducer = "evict_media" }]
    "#;
    let policy = Policy::read(policy).unwrap();
    let budget = budget(&policy, 100);
    let mut stage = played(ASKED);
    let mut call = |more: &str| {
        for event in &read(more) {
            stage.play(event);
        }
        let prepared = stage.view.prepare(&policy, &budget, &NextCall::default()).unwrap();
        assert_eq!((prepared.cause, stage.view.sent(None)), (None, None), "nothing was changed");
        prepared.shortfall
    };
    assert_eq!(call(""), None, "34 tokens are no reason to act");
    let short = call("assistant: 24 words of \"two\"\nuser: Three.").expect("59 tokens are over the trigger");
    assert_eq!(short, TargetShortfall { target: Tokens(40), reached: Tokens(59), prefix: Tokens(2) });
    insta::assert_snapshot!(short, @"the policy aims at 40 tokens and reached 59, of which 2 are instructions and tools; until there is room it acts more often than it should: allow more tokens, shorten the instructions, or let it cut more");
    assert_eq!(call("assistant: Yes.\nuser: Four."), None, "two tokens more are nothing to gain");
    let again = call("assistant: Yes.\nuser: So what is it now?").expect("five in a hundred are");
    assert_eq!(again.reached, Tokens(67));
}

#[test]
fn undoing_a_compaction_and_bringing_it_back_open_an_epoch_each_and_pins_none() {
    let policy = Policy::named("epitome").unwrap();
    let budget = budget(policy, 1_000);
    let mut stage = played(&format!("{ASKED}assistant: Yes.\ncompacted through 5: Both.\nuser: Three.\n"));
    let mut call = |more: &str| {
        for event in &read(more) {
            stage.play(event);
        }
        let cause = stage.view.prepare(policy, &budget, &NextCall::default()).unwrap().cause;
        stage.view.sent(None);
        (cause, said(stage.view.context()).len())
    };
    let (_, before) = call("");
    assert_eq!(call("revert 6"), (Some(EpochCause::Undone), before + 3));
    assert_eq!(call("restore 6"), (Some(EpochCause::Undone), before));
    assert_eq!(call("pin 7\nunpin 7\npin: words\nunpin: words"), (None, before));
    assert_eq!(EpochCause::Undone.to_string(), "a compaction was undone or restored");
}

#[test]
fn a_target_below_the_prefix_is_told_with_what_the_prefix_takes() {
    let policy = Policy::named("lineage").unwrap();
    let budget = budget(policy, 100);
    let mut stage = played("system: 70 words of \"rule\"\nuser: One.\nassistant: Yes.\nuser: Two.\n");
    let prepared = stage.view.prepare(policy, &budget, &NextCall::default()).unwrap();
    insta::assert_snapshot!(prepared.shortfall.unwrap(), @"the policy aims at 40 tokens and reached 73, of which 70 are instructions and tools; until there is room it acts more often than it should: allow more tokens, shorten the instructions, or let it cut more");
}

#[test]
fn what_cannot_fit_is_refused_with_the_numbers_and_the_view_is_as_it_was() {
    for policy in policies() {
        let mut stage =
            played("system: 60 words of \"rule\"\nuser: One.\nassistant: Yes.\nuser: 90 words of \"two\"\n");
        let before = said(stage.view.context());
        let refusal = stage.view.prepare(&policy, &budget(&policy, 65), &NextCall::default()).unwrap_err();
        assert_eq!((refusal.budget, refusal.prefix, refusal.needed), (Tokens(65), Tokens(60), Tokens(69)));
        assert_eq!(said(stage.view.context()), before, "{}", policy.name);
        assert_eq!(stage.view.sent(None), None, "nothing was prepared");
    }
}

fn reread(passes: &[EditRecord]) -> Vec<EditRecord> {
    let json = serde_json::to_string(passes).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// Some clients put an empty message of the user between a call and its result. It ends no turn, so a summary may be cut
/// between any two of the calls.
#[test]
fn an_empty_message_between_a_call_and_its_result_ends_no_turn() {
    let policy = Policy::named("epitome").unwrap();
    let budget = budget(policy, 4_000);
    let mut stage = Stage::new(meter());
    let play = |stage: &mut Stage, fact| stage.play(&logged(1, fact));
    play(&mut stage, Fact::UserSaid { parts: vec![ContentPart::text("Read them all.")] });
    for number in 0..12 {
        let call = ToolCall::function(format!("c{number}").as_str(), "read", "{}");
        let parts = vec![ContentPart::ToolCall(call.clone())];
        play(&mut stage, Fact::AssistantSaid { answer: None, model: None, parts });
        play(&mut stage, Fact::UserSaid { parts: Vec::new() });
        let parts = vec![ContentPart::text("word ".repeat(500))];
        let result = ToolResult { call: call.id, name: None, parts, error: false };
        play(&mut stage, Fact::ToolReturned { results: vec![result], parts: Vec::new() });
        let prepared = stage.view.prepare(policy, &budget, &NextCall::default()).unwrap();
        assert_eq!(prepared.shortfall, None, "after {number}");
        stage.view.sent(None);
    }
    assert!(stage.view.context().summary().is_some());
}
