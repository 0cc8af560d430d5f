//! The invariants of a view, call after call, over generated histories.

use std::sync::Arc;

use epitome_core::{
    Fact,
    budget::Budget,
    context::{Body, Context, Names},
    event::{Instruction, Logged, Time},
    meter::{Meter, Overhead},
    policy::Policy,
    project::Line,
    tokens::Tokens,
    view::{Moment, Pass, Prepared, View},
};
use proptest::prelude::*;

use crate::{histories::history, notation::Words};

fn meter() -> Arc<Meter> {
    Arc::new(Meter::new(Arc::new(Words), Overhead::default()))
}

/// What a request says, message by message, and within messages part by part: what a cache compares.
fn said(context: &Context) -> Vec<String> {
    let mut said = Vec::new();
    for segment in context.segments() {
        if let Body::Prefix(event) = segment.body() {
            // Which of several equal system prompts it is, nobody sees; and settings are no part of what is cached.
            if !matches!(event.event.fact, Fact::Instructed { what: Instruction::Settings, .. }) {
                said.push(format!("{:?}", event.event.fact));
            }
            continue;
        }
        let shown = segment.shown().map(|parts| format!("{parts:?}"));
        said.push(format!("{:?} {:?} {shown:?}", segment.key(), segment.body()));
    }
    said
}

/// One call of a session.
struct Call {
    prepared: Prepared,
    said: Vec<String>,
    tokens: Tokens,
    epoch: u64,
    seen: usize,
}

/// Sends a request before every answer, as an agent would; a minute passes between events.
fn calls(
    events: &[Arc<Logged>],
    policy: &Policy,
    budget: &Budget,
    mut each: impl FnMut(&View),
) -> (View, Vec<Call>) {
    let mut view = View::new(meter(), Names::Messages);
    let mut calls = Vec::new();
    for (seen, event) in events.iter().enumerate() {
        if matches!(event.event.fact, Fact::AssistantSaid { .. }) {
            let now = Some(Time(seen as i64 * 60_000));
            if let Ok(prepared) = view.prepare(policy, budget, &Moment { now, ..Moment::default() }) {
                let (said, tokens) = (said(view.context()), view.context().tokens());
                view.sent(now);
                each(&view);
                calls.push(Call { prepared, said, tokens, epoch: view.epoch().number, seen });
            }
        }
        view.push(Arc::clone(event), meter().pieces(&event.event));
    }
    (view, calls)
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
            assert_eq!(view.context().fault(), None);
            let accounted = view.context().accounted();
            for event in view.line().events() {
                let rendered = match event.event.fact.kind() {
                    "carried" => event.event.normal.is_some(),
                    "compaction_requested" | "compaction_reverted" | "pinned" | "usage_reported" | "model_changed" => false,
                    _ => true,
                };
                assert!(!rendered || accounted.contains(event.id.seq), "{} is lost", event.id.seq);
            }
        });
    }

    /// Invariant 2: re-applying what was recorded equals applying it, also through its written form.
    #[test]
    fn a_restored_view_shows_the_same(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let (view, _) = calls(&events, &policy, &budget(&policy, ceiling), |view| {
            let restored = View::restore(view.line(), reread(view.passes()), meter(), Names::Messages);
            assert_eq!(said(restored.context()), said(view.context()));
            assert_eq!(restored.context().tokens(), view.context().tokens());
            assert_eq!(restored.context().accounted(), view.context().accounted());
            assert_eq!(restored.epoch(), view.epoch());
        });
        let uncounted = Line::new(view.line().events().cloned());
        let restored = View::restore(&uncounted, reread(view.passes()), meter(), Names::Messages);
        prop_assert_eq!(said(restored.context()), said(view.context()));
    }

    /// A preparation that is not sent leaves no trace.
    #[test]
    fn what_is_abandoned_leaves_no_trace(events in history(60), policy in policy(), ceiling in 200..3_000u64) {
        let budget = budget(&policy, ceiling);
        let (mut view, _) = calls(&events, &policy, &budget, |_| ());
        let before = said(view.context());
        let once = view.prepare(&policy, &budget, &Moment::default());
        view.abandon();
        prop_assert_eq!(&said(view.context()), &before);
        let again = view.prepare(&policy, &budget, &Moment::default());
        prop_assert_eq!(once, again);
    }
}

fn reread(passes: &[Pass]) -> Vec<Pass> {
    let json = serde_json::to_string(passes).unwrap();
    serde_json::from_str(&json).unwrap()
}
