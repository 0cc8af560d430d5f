//! `Compaction::run`, the whole way: what it sends is legal, fits, is the same twice, accounts for every event, and is
//! what its report says.

use epitome::{
    compact::{Compacted, Compaction, line},
    core::{
        Event, Fact, Seq, Tokens,
        budget::Budget,
        context::{Context, Fidelity},
        event::{Compaction as Compacting, Summary, Trigger},
        project::Line,
        reducers::default_pipeline,
    },
    margin::Margin,
    wire::{
        Format,
        legality::{Rule, Rules, check, check_against},
        render::{RenderOptions, recount},
    },
};
use proptest::prelude::*;

use crate::histories::{self, history};

/// Makes a request of at most `ceiling` tokens, and checks what holds for each.
fn run(context: &Context, ceiling: Tokens, format: Format, rules: &Rules) -> Option<Compacted> {
    let pipeline = default_pipeline();
    let options = RenderOptions { rules: rules.clone(), ..RenderOptions::of(format) };
    let compaction = Compaction {
        budget: Budget::new(ceiling),
        margin: Margin::none(ceiling),
        pipeline: &pipeline,
        format,
        options,
    };
    let compacted = compaction.run(context.clone()).ok()?;
    let body = &compacted.rendered.body;
    let found: Vec<String> = check(format, body, rules).iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{format} at {ceiling}: {found:#?}\n{body}");
    let counted = recount(format, body, context.meter()).unwrap();
    let report = &compacted.report;
    assert!(
        counted <= report.after.tokens,
        "{format}: {counted} tokens, {} by the report",
        report.after.tokens
    );
    assert!(report.after.tokens <= ceiling, "{} of {ceiling}", report.after.tokens);
    assert_eq!(report.after.bytes, body.len());
    assert_eq!(compaction.run(context.clone()).unwrap().rendered.body, *body, "the same twice");
    let sum = report.steps.windows(2).find(|pair| pair[0].after != pair[1].before);
    assert_eq!(sum, None, "a step begins where the one before it ended");
    assert_eq!(report.steps.first().map_or(report.after.tokens, |step| step.before), context.tokens());
    assert_eq!(report.steps.last().map_or(context.tokens(), |step| step.after), report.after.tokens);
    Some(compacted)
}

/// Every event that a provider would see is shown, stands behind something that is shown, or is left out by someone.
fn assert_accounted(context: &Context, events: &Line) {
    let accounted = context.accounted();
    for event in events.events() {
        let sees = event.event.fact.is_message() && event.event.normal.is_some();
        assert!(!sees || accounted.contains(event.id.seq), "event {} is unaccounted for", event.id.seq);
    }
}

fn preserved() -> Rules {
    Rules::of(Format::Anthropic).with(Rule::PreservedThinking).with(Rule::PrefillRefused)
}

proptest! {
    #[test]
    fn whatever_is_compacted_is_legal_fits_and_is_accounted_for(steps in history(24), share in 1..130_u64) {
        let events = histories::events(&steps);
        let whole = histories::context(&events);
        let line = Line::new(events);
        let ceiling = Tokens(whole.tokens().0 * share / 100);
        for format in Format::ALL {
            for rules in [Rules::of(format), Rules::of(format).with(Rule::PrefillRefused).with(Rule::FirstIsUser)] {
                if let Some(compacted) = run(&whole, ceiling, format, &rules) {
                    assert_accounted(&compacted.context, &line);
                }
            }
        }
    }

    #[test]
    fn thinking_that_is_bound_is_sent_only_behind_what_it_was_made_behind(
        steps in history(24),
        share in 1..130_u64,
    ) {
        let events = histories::events(&steps);
        let whole = histories::context(&events);
        let ceiling = Tokens(whole.tokens().0 * share / 100);
        let Some(sent) = run(&whole, Tokens(u64::MAX >> 1), Format::Anthropic, &preserved()) else { return Ok(()) };
        if let Some(now) = run(&whole, ceiling, Format::Anthropic, &preserved()) {
            assert_accounted(&now.context, &Line::new(events));
            let rules = preserved().without(Rule::ThinkingStaysInOpenLoop);
            let found = check_against(Format::Anthropic, &sent.rendered.body, &now.rendered.body, &rules);
            prop_assert!(found.is_empty(), "{:#?}\n{}\n{}", found, sent.rendered.body, now.rendered.body);
        }
    }
}

/// A session that stands on a summary, with an answer kept from before it.
fn kept_from_before_a_summary() -> Vec<Event> {
    let request = r#"{"messages":[
        {"role":"user","content":"Mend it."},
        {"role":"assistant","content":[{"type":"thinking","thinking":"Old thought.","signature":"1"},
            {"type":"text","text":"On it."}]},
        {"role":"user","content":"And now?"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"New thought.","signature":"2"},
            {"type":"text","text":"Done."}]},
        {"role":"user","content":"Thanks. What is left?"}]}"#;
    let mut events = Format::Anthropic.decode_request(request).unwrap();
    let at = events.iter().position(|event| matches!(event.fact, Fact::AssistantSaid { .. })).unwrap() + 1;
    let compaction = Compacting {
        summary: Summary::Text("The user wants it mended.".into()),
        through: Seq(at as u64 - 1),
        first_kept: Some(Seq(at as u64)),
        tokens_before: None,
        tokens_after: None,
        trigger: Trigger::Manual,
    };
    events.insert(at, Event::own(Fact::Compacted(compaction), None));
    events
}

#[test]
fn thinking_that_a_summary_made_invalid_is_neither_in_the_request_nor_in_the_report() {
    let line = line(kept_from_before_a_summary());
    let events: Vec<_> = line.events().cloned().collect();
    let whole = histories::context(&events);
    let free = run(&whole, Tokens(10_000), Format::Anthropic, &Rules::of(Format::Anthropic)).unwrap();
    assert!(free.rendered.body.contains("Old thought."), "{}", free.rendered.body);
    let bound = run(&whole, Tokens(10_000), Format::Anthropic, &preserved()).unwrap();
    assert!(!bound.rendered.body.contains("Old thought."), "{}", bound.rendered.body);
    assert!(bound.rendered.body.contains("New thought."), "{}", bound.rendered.body);
    let [eviction] = bound.report.evictions.as_slice() else { panic!("{:#?}", bound.report.evictions) };
    assert_eq!((&*eviction.by, eviction.shown_as), ("settle_thinking", None::<Fidelity>));
}
