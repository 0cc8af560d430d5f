//! Sessions played again under every policy: each request is legal, fits, shows what its context shows, extends the one
//! before it unless an epoch began, and can be made again from the records.

use std::sync::Arc;

use epitome::{
    compact::CompactError,
    core::{
        Tokens,
        budget::Budget,
        context::{EventNaming, SegmentBody},
        cost::{Prompt, RequestExtension, extends},
        model_view::{EpochCause, ModelView},
        policy::Policy,
        profile::CompactionThresholds,
        projection::EventLine,
        seq_set::SeqSet,
    },
    simulate::{MeteredThread, SimulationCall, SimulationResult, SimulationSettings, next_request},
    token_margin::{MarginBasis, TokenMargin},
    wire::{
        Format,
        legality::{ProviderRule, ProviderRules, check},
        render::RenderOptions,
    },
};
use proptest::prelude::*;

use crate::histories::{self, history};

fn rehearsal(policy: &Policy, ceiling: Tokens, format: Format, rules: ProviderRules) -> SimulationSettings {
    let thresholds = CompactionThresholds::default();
    let of = |share: epitome::core::profile::Share| share.of(ceiling);
    let budget = Budget::new(ceiling).with_thresholds(
        of(thresholds.target),
        of(thresholds.trigger),
        of(thresholds.force),
    );
    SimulationSettings::new(
        policy,
        budget,
        format,
        RenderOptions { rules, ..RenderOptions::of(format) },
        None,
    )
}

fn script(line: EventLine) -> MeteredThread {
    let meter = Arc::clone(histories::context(&[]).meter());
    MeteredThread::new(line, meter, EventNaming::Messages)
}

/// Checks what holds for every call; gives the requests.
fn play(
    rehearsal: &SimulationSettings,
    script: &MeteredThread,
    format: Format,
    ceiling: Tokens,
) -> Vec<String> {
    let mut bodies: Vec<String> = Vec::new();
    let mut before: Option<Prompt> = None;
    let view = rehearsal.run(script, |call| match call {
        Ok(call) => {
            check_one(&call, rehearsal, format, ceiling);
            if let Some(before) = &before
                && let RequestExtension::Differs { at, .. } = extends(before, call.prompt)
            {
                let cause = call.prepared.cause.as_ref();
                let last = bodies.last().map_or("", String::as_str);
                // What is made up to be legal gives way to what is said next.
                let made_up = ["(continued)", "Continue", "[no result: the call was interrupted]"];
                let synthetic = |body: &str| made_up.iter().any(|words| body.contains(words));
                let now = &call.rendered.body;
                assert!(
                    cause.is_some_and(|cause| *cause != EpochCause::Format)
                        || synthetic(last)
                        || synthetic(now),
                    "block {at} changed and nobody said so ({cause:?}):\n{last}\n{now}"
                );
            }
            before = Some(call.prompt.clone());
            bodies.push(call.rendered.body.clone());
        }
        Err(failed) => match failed.error {
            CompactError::Refused(_) | CompactError::Thinking(_) => {}
            error => panic!("call {}: {error}", failed.number),
        },
    });
    let restored = ModelView::restore(
        view.line(),
        view.passes().to_vec(),
        view.last().cloned(),
        Arc::clone(script.meter()),
        view.context().names(),
    );
    let rendered = |view: &ModelView| format.render(view.context(), rehearsal.options()).unwrap().body;
    assert_eq!(rendered(&restored), rendered(&view), "restored from its records");
    bodies
}

fn check_one(call: &SimulationCall<'_>, rehearsal: &SimulationSettings, format: Format, ceiling: Tokens) {
    let body = &call.rendered.body;
    let found: Vec<String> =
        check(format, body, &rehearsal.options().rules).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{format}: {found:#?}\n{body}");
    let counted: Tokens = call.prompt.blocks.iter().map(|block| block.tokens).sum();
    assert!(counted <= ceiling, "{counted} of {ceiling}");
    let sent = SeqSet::union(call.rendered.messages.iter().map(|message| &message.events));
    // What is empty, or says something only to another provider, may be missing; what we say ourselves may not.
    for segment in call.view.context().segments() {
        let ours = match segment.body() {
            SegmentBody::Summary(_) => {
                segment.compaction().is_some_and(|made| !made.summary.text().trim().is_empty())
            }
            body => matches!(body, SegmentBody::Note(_)),
        };
        let missing = segment.stands_for().without(&sent);
        assert!(!ours || missing.is_empty(), "{missing} of {segment:?} is not in\n{body}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_call_under_every_policy_is_sound(steps in history(24), share in 20..100_u64) {
        let events = histories::events(&steps);
        let ceiling = Tokens(histories::context(&events).tokens().0 * share / 100);
        let script = script(EventLine::new(events));
        for policy in Policy::builtin() {
            for format in crate::SCRIPTED {
                let rehearsal = rehearsal(policy, ceiling, format, ProviderRules::of(format));
                let bodies = play(&rehearsal, &script, format, ceiling);
                prop_assert_eq!(play(&rehearsal, &script, format, ceiling), bodies, "the same twice");
            }
            let rules = ProviderRules::of(Format::Anthropic).with(ProviderRule::PreservedThinking).with(ProviderRule::PrefillRefused);
            play(&rehearsal(policy, ceiling, Format::Anthropic, rules), &script, Format::Anthropic, ceiling);
        }
    }
}

/// A session of 40 steps that begins with a rule, each with an output of its own or all with the same.
fn long_script(outputs_differ: bool) -> MeteredThread {
    let mut history =
        vec![r#"{"role":"user","content":"Never touch the lock file. Mend the parser."}"#.to_owned()];
    for step in 0..40 {
        let line = |line: usize| {
            if outputs_differ {
                format!("unit {} of step {step} compiled\n", line * 7 + step)
            } else {
                "compiled ok\n".to_owned()
            }
        };
        let output: String = (0..60).map(line).collect();
        history.push(format!(
            r#"{{"role":"assistant","content":"Step {step}.","tool_calls":[{{"id":"c{step}","type":"function",
               "function":{{"name":"bash","arguments":"{{\"command\":\"make {step}\"}}"}}}}]}}"#
        ));
        history.push(format!(r#"{{"role":"tool","tool_call_id":"c{step}","content":{output:?}}}"#));
    }
    let request = format!(r#"{{"model":"test","messages":[{}]}}"#, history.join(","));
    let events = Format::OpenaiChat.decode_request(&request).unwrap();
    script(epitome::compact::line(events))
}

/// What the old half of a long session says must be in the summary, and the summary in the request.
#[test]
fn a_summary_that_a_policy_made_is_in_the_next_request() {
    let script = long_script(false);
    for name in ["epitome", "retention", "lineage", "pivot", "tiered"] {
        let policy = Policy::named(name).unwrap();
        let format = Format::OpenaiChat;
        let rehearsal = rehearsal(policy, Tokens(4_000), format, ProviderRules::of(format));
        let (mut compacted, mut newest) = (0, String::new());
        rehearsal.run(&script, |call| {
            let call = call.unwrap();
            compacted += u64::from(call.prepared.compaction.is_some());
            if compacted > 0 {
                newest.clone_from(&call.rendered.body);
            }
        });
        assert!(compacted > 0, "{name} never summarised");
        assert!(newest.contains("Never touch the lock file"), "{name} forgot the rule:\n{newest}");
        assert!(newest.contains("## Constraints"), "{name}:\n{newest}");
    }
}

/// The next request of a policy, in a budget of this size.
fn next(policy: &str, script: &MeteredThread, ceiling: Tokens) -> Result<SimulationResult, CompactError> {
    let format = Format::OpenaiChat;
    let rehearsal = rehearsal(Policy::named(policy).unwrap(), ceiling, format, ProviderRules::of(format));
    let margin = TokenMargin { tokens: Tokens(0), limit: ceiling, basis: MarginBasis::Exact };
    next_request(&rehearsal, script, margin)
}

/// Of a request that stands alone nothing but information is at stake: it is not left as the calls before it would have.
#[test]
fn a_request_that_stands_alone_is_filled() {
    let script = long_script(true);
    // In a larger one the trail has told all it has to tell, and what stays verbatim has half of the room.
    for ceiling in [3_000, 4_000].map(Tokens) {
        let made = next("epitome", &script, ceiling).unwrap();
        assert!(made.made_anew && made.calls > 0);
        let report = made.compacted.report;
        let percent = report.after.tokens.0 * 100 / ceiling.0;
        assert!((70..=95).contains(&percent), "{percent} % of {ceiling}: {report:?}");
        assert!(made.compacted.rendered.body.contains("Never touch the lock file"));
    }
    assert!(
        !next("pivot", &script, Tokens(4_000)).unwrap().made_anew,
        "it minds no cache: it goes on as it went"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_request_that_stands_alone_fits_and_is_whole_where_that_fits(steps in history(24), share in 20..140_u64) {
        let events = histories::events(&steps);
        let whole = histories::context(&events);
        let ceiling = Tokens(whole.tokens().0 * share / 100);
        match next("epitome", &script(EventLine::new(events)), ceiling) {
            Ok(made) => {
                let report = made.compacted.report;
                prop_assert!(report.after.tokens <= ceiling);
                // What is large is cut when it arrives, whatever room there is.
                if whole.tokens() <= ceiling && report.steps.is_empty() {
                    prop_assert_eq!(report.after.tokens, whole.tokens());
                }
                let found = check(Format::OpenaiChat, &made.compacted.rendered.body, &ProviderRules::of(Format::OpenaiChat));
                prop_assert!(found.is_empty(), "{found:#?}");
            }
            Err(CompactError::Refused(_) | CompactError::Thinking(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
