//! `Compaction::run`, the whole way: what it sends is legal, fits, is the same twice, accounts for every event, and is
//! what its report says. A fork needs no case of its own: what it sees is a line like any other.

use std::sync::Arc;

use epitome::{
    compact::{CompactedRequest, EvictedContent, RequestCompaction, context, line},
    core::{
        Event, Fact, Seq, Tokens,
        budget::Budget,
        compaction_strategy::{CompactionStrategy, InMemoryCompaction},
        context::{Context, EventNaming, Fidelity},
        event::{Compaction as Compacting, CompactionTrigger, Summary},
        fit::fit,
        meter::{Meter, TokenOverhead},
        pipeline::{ReducerOutput, ReducerState, ReductionStep},
        projection::EventLine,
        reducers::{AnyReducer, DropMiddle, default_pipeline},
    },
    token_margin::TokenMargin,
    wire::{
        Format,
        legality::{ProviderRule, ProviderRules, check, check_against},
        render::{RenderOptions, SETTLE_THINKING, recount},
    },
};
use proptest::prelude::*;

use crate::histories::{self, Quarters, history};

/// Makes a request of at most `ceiling` tokens, and checks what holds for each.
fn run(
    context: &Context,
    ceiling: Tokens,
    format: Format,
    rules: &ProviderRules,
) -> Option<CompactedRequest> {
    let pipeline = default_pipeline();
    let options = RenderOptions { rules: rules.clone(), ..RenderOptions::of(format) };
    let compaction = RequestCompaction {
        budget: Budget::new(ceiling),
        margin: TokenMargin::none(ceiling),
        strategy: &pipeline,
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
    for eviction in &report.evictions {
        let reached = context.names().handles_in(&eviction.handle);
        assert!(reached.contains(eviction.first) && reached.contains(eviction.last), "{eviction:?}");
    }
    Some(compacted)
}

/// Every event that a provider would see is shown, stands behind something that is shown, or is left out by someone.
fn assert_accounted(context: &Context, events: &EventLine) {
    let accounted = context.accounted();
    for event in events.events() {
        let sees = event.event.fact.is_message() && event.event.normal.is_some();
        assert!(!sees || accounted.contains(event.id.seq), "event {} is unaccounted for", event.id.seq);
    }
}

fn preserved() -> ProviderRules {
    ProviderRules::of(Format::Anthropic)
        .with(ProviderRule::PreservedThinking)
        .with(ProviderRule::PrefillRefused)
}

proptest! {
    #[test]
    fn whatever_is_compacted_is_legal_fits_and_is_accounted_for(steps in history(24), share in 1..130_u64) {
        let events = histories::events(&steps);
        let whole = histories::context(&events);
        let line = EventLine::new(events);
        let ceiling = Tokens(whole.tokens().0 * share / 100);
        for format in crate::SCRIPTED {
            for rules in [ProviderRules::of(format), ProviderRules::of(format).with(ProviderRule::PrefillRefused).with(ProviderRule::FirstIsUser)] {
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
        // One that tells its loop again says nothing of what was bound to what.
        let told = |eviction: &EvictedContent| eviction.by == SETTLE_THINKING && eviction.shown_as.is_some();
        if sent.report.evictions.iter().any(told) {
            return Ok(());
        }
        if let Some(now) = run(&whole, ceiling, Format::Anthropic, &preserved()) {
            assert_accounted(&now.context, &EventLine::new(events));
            let rules = preserved().without(ProviderRule::ThinkingStaysInOpenLoop);
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
        trigger: CompactionTrigger::Manual,
    };
    events.insert(at, Event::from_fact(Fact::Compacted(compaction), None));
    events
}

#[test]
fn thinking_that_a_summary_made_invalid_is_neither_in_the_request_nor_in_the_report() {
    let line = line(kept_from_before_a_summary());
    let events: Vec<_> = line.events().cloned().collect();
    let whole = histories::context(&events);
    let free = run(&whole, Tokens(10_000), Format::Anthropic, &ProviderRules::of(Format::Anthropic)).unwrap();
    assert!(free.rendered.body.contains("Old thought."), "{}", free.rendered.body);
    let bound = run(&whole, Tokens(10_000), Format::Anthropic, &preserved()).unwrap();
    assert!(!bound.rendered.body.contains("Old thought."), "{}", bound.rendered.body);
    assert!(bound.rendered.body.contains("New thought."), "{}", bound.rendered.body);
    let [eviction] = bound.report.evictions.as_slice() else { panic!("{:#?}", bound.report.evictions) };
    assert_eq!((&*eviction.by, eviction.shown_as), ("settle_thinking", None::<Fidelity>));
}

#[test]
fn a_loop_whose_telling_is_longer_than_itself_is_told_where_there_is_room() {
    let long = "a long first question which goes on and on ".repeat(60);
    let request = format!(
        r#"{{"messages":[{{"role":"user","content":"{long}"}},{{"role":"assistant","content":"Hm."}},
        {{"role":"user","content":"Go."}},
        {{"role":"assistant","content":[{{"type":"thinking","thinking":"","signature":"1"}},
            {{"type":"tool_use","id":"a","name":"t","input":{{}}}}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":""}}]}}]}}"#
    );
    // Without wrapping, the words around a loop outweigh it.
    let bare =
        TokenOverhead { message: Tokens(0), call: Tokens(0), request: Tokens(0), ..TokenOverhead::default() };
    let line = line(Format::Anthropic.decode_request(&request).unwrap());
    let whole = context(&line, Meter::new(Arc::new(Quarters), bare), EventNaming::Messages);
    let least = least(&whole);
    let mut told = 0;
    for ceiling in least.0..whole.tokens().0 {
        match run(&whole, Tokens(ceiling), Format::Anthropic, &preserved()) {
            Some(compacted) => told += u64::from(compacted.rendered.body.contains("told again")),
            // Only the least that there can be leaves no room for the telling.
            None => assert!(ceiling < least.0 + 40, "refused at {ceiling}, though {least} are enough"),
        }
    }
    assert!(told > 100, "{told}");
}

/// The least that a context can be made.
fn least(context: &Context) -> Tokens {
    let refused = fit(context.clone(), &Budget::new(Tokens(0)), &default_pipeline(), ReducerState::default());
    refused.unwrap_err().needed
}

/// Thirty questions that each led to a call, in a request of OpenAI's.
fn long_request() -> String {
    let mut messages = vec![serde_json::json!({"role": "user", "content": "Look after the parts."})];
    for turn in 0..30 {
        let id = format!("call_{turn}");
        let arguments = format!("{{\"path\":\"part-{turn}.txt\"}}");
        let call = serde_json::json!({"id": id, "type": "function", "function": {"name": "open_part", "arguments": arguments}});
        let words = format!("the part {turn} is made of oak and has its own number ").repeat(20);
        messages.extend([
            serde_json::json!({"role": "assistant", "content": words, "tool_calls": [call]}),
            serde_json::json!({"role": "tool", "tool_call_id": id, "content": format!("part {turn} is fine")}),
        ]);
    }
    messages.push(serde_json::json!({"role": "user", "content": "And now?"}));
    serde_json::json!({"model": "gpt-5.1", "messages": messages}).to_string()
}

#[test]
fn turns_are_summarised_before_the_middle_is_dropped() {
    let request = long_request();
    let compacted = epitome::compact_request(Format::OpenaiChat, request.as_bytes(), Tokens(6_000)).unwrap();
    let steps: Vec<&str> = compacted.report.steps.iter().map(|step| step.reducer).collect();
    assert!(steps.contains(&"summarise_turns") && !steps.contains(&"drop_middle"), "{steps:?}");
    let body = &compacted.rendered.body;
    for turn in 0..30 {
        assert!(body.contains(&format!("part-{turn}.txt")), "turn {turn} is told: {body}");
    }
    assert!(compacted.report.after.tokens <= Tokens(6_000));
    // Where even the lines are too many, the middle goes.
    let small = epitome::compact_request(Format::OpenaiChat, request.as_bytes(), Tokens(500)).unwrap();
    let steps: Vec<&str> = small.report.steps.iter().map(|step| step.reducer).collect();
    assert_eq!(
        steps.iter().filter(|step| ["summarise_turns", "drop_middle"].contains(step)).count(),
        2,
        "{steps:?}"
    );
    assert!(small.report.after.tokens <= Tokens(500) && small.rendered.body.contains("And now?"));
}

#[test]
fn a_strategy_of_ones_own_makes_a_request_fit() {
    /// Drops the middle at once.
    #[derive(Debug)]
    struct Blunt;

    impl CompactionStrategy for Blunt {
        fn name(&self) -> &'static str {
            "blunt"
        }

        fn compact(
            &self,
            messages: Context,
            budget: &Budget,
            state: ReducerState,
        ) -> (ReducerOutput, Vec<ReductionStep>) {
            let reducers = vec![AnyReducer::DropMiddle(DropMiddle::default())];
            InMemoryCompaction { reducers, ..InMemoryCompaction::default() }.compact(messages, budget, state)
        }
    }

    let request = long_request();
    let made =
        epitome::compact_request_by(&Blunt, Format::OpenaiChat, request.as_bytes(), Tokens(5_000)).unwrap();
    let steps: Vec<&str> = made.report.steps.iter().map(|step| step.reducer).collect();
    assert_eq!(steps, ["drop_middle"]);
    assert!(made.report.after.tokens <= Tokens(5_000) && made.rendered.body.contains("And now?"));
}
