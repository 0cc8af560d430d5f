//! Cache marks: where they go, and that they change nothing else.

use std::collections::HashSet;

use epitome_core::{
    ContentPart, Digest, Fact,
    context::Context,
    cost::{Prompt, RequestExtension, extends},
    event::{Compaction, CompactionTrigger, Summary},
    id::Seq,
    profile::{CacheRules, CacheWriteMode},
};
use epitome_wire::{
    Format,
    legality::{ProviderRules, check},
    render::{CacheBreakpoints, RenderOptions, recount},
};
use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use crate::{
    histories::{context, cut, cuts, events, history, logged},
    prompts::memo,
};

const PLACED: CacheBreakpoints = CacheBreakpoints::Placed { most: 4, lifetime: 300 };

fn options(format: Format, breakpoints: CacheBreakpoints) -> RenderOptions {
    RenderOptions { breakpoints, ..RenderOptions::of(format) }
}

/// Every object of a value that carries a mark.
fn marked(value: &Value) -> Vec<&Value> {
    let inside: Vec<&Value> = match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    let own = ["cache_control", "prompt_cache_breakpoint"].iter().any(|key| !value[key].is_null());
    own.then_some(value).into_iter().chain(inside.into_iter().flat_map(marked)).collect()
}

proptest! {
    #[test]
    fn marks_move_and_nothing_else_does(steps in history(24), cuts in cuts(), most in 1..6_u32) {
        let context = cut(context(&events(&steps)), &cuts);
        for format in crate::SCRIPTED {
            let plain = format.render(&context, &options(format, CacheBreakpoints::AsSent)).unwrap();
            let placed = options(format, CacheBreakpoints::Placed { most, lifetime: 3_600 });
            let placed = format.render(&context, &placed).unwrap();
            let found = check(format, &placed.body, &ProviderRules::of(format));
            prop_assert!(found.is_empty(), "{:#?}\n{}", found, placed.body);
            prop_assert!(recount(format, &placed.body, context.meter()).unwrap() <= context.tokens());
            let (before, after) = (format.prompt(&plain.body, &mut memo()).unwrap(), format.prompt(&placed.body, &mut memo()).unwrap());
            prop_assert_eq!(extends(&before, &after), RequestExtension::Extends);
            prop_assert_eq!(extends(&after, &before), RequestExtension::Extends);
            prop_assert_eq!(plain.messages.len(), placed.messages.len());
            for (one, other) in plain.messages.iter().zip(&placed.messages) {
                prop_assert_eq!(&one.events, &other.events);
                let json = &placed.body[other.bytes.clone()];
                prop_assert!(serde_json::from_str::<&RawValue>(json).is_ok(), "{}", json);
            }
            let body: Value = serde_json::from_str(&placed.body).unwrap();
            let marked = marked(&body);
            prop_assert!(marked.len() <= most.min(4) as usize, "{}", placed.body);
            for block in marked {
                let kind = block["type"].as_str().unwrap_or_default();
                prop_assert!(!kind.contains("thinking"), "{}", block);
                prop_assert!(block["text"].as_str().is_none_or(|text| !text.trim().is_empty()), "{}", block);
            }
        }
    }
}

fn of_request(format: Format, request: &Value) -> Context {
    context(&logged(format.decode_request(&request.to_string()).unwrap()))
}

/// What is marked in a request, in order.
fn places(format: Format, request: &Value, breakpoints: CacheBreakpoints) -> String {
    let body = format.render(&of_request(format, request), &options(format, breakpoints)).unwrap().body;
    let body: Value = serde_json::from_str(&body).unwrap();
    marked(&body).into_iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

fn anthropic() -> Value {
    json!({
        "tools": [{"name": "look", "input_schema": {}}, {"name": "later", "input_schema": {}, "defer_loading": true}],
        "system": "Be kind.",
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "A cat."}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "A dog."}, {"type": "text", "text": "Well?"}]},
        ],
    })
}

#[test]
fn anthropic_keeps_the_prefix_the_newest_block_and_the_one_before() {
    insta::assert_snapshot!(places(Format::Anthropic, &anthropic(), PLACED), @r#"
    {"name":"look","input_schema":{},"cache_control":{"type":"ephemeral"}}
    {"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}
    {"type":"tool_result","tool_use_id":"a","content":"A cat.","cache_control":{"type":"ephemeral"}}
    {"type":"text","text":"Well?","cache_control":{"type":"ephemeral"}}
    "#);
    let long = CacheBreakpoints::Placed { most: 2, lifetime: 3_600 };
    insta::assert_snapshot!(places(Format::Anthropic, &anthropic(), long), @r#"
    {"type":"tool_result","tool_use_id":"a","content":"A cat.","cache_control":{"type":"ephemeral","ttl":"1h"}}
    {"type":"text","text":"Well?","cache_control":{"type":"ephemeral","ttl":"1h"}}
    "#);
}

#[test]
fn a_clients_marks_make_way() {
    let mut request = anthropic();
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    request["cache_control"] = mark.clone();
    request["tools"][0]["cache_control"] = mark.clone();
    request["messages"][2]["content"][0]["content"] =
        json!([{"type": "text", "text": "A cat.", "cache_control": mark}]);
    insta::assert_snapshot!(places(Format::Anthropic, &request, PLACED), @r#"
    {"name":"look","input_schema":{},"cache_control":{"type":"ephemeral"}}
    {"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}
    {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"A cat."}],"cache_control":{"type":"ephemeral"}}
    {"type":"text","text":"Well?","cache_control":{"type":"ephemeral"}}
    "#);
}

#[test]
fn openai_marks_the_newest_block_itself() {
    let chat = json!({
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "A cat."},
            {"role": "assistant", "content": "It is a cat."},
            {"role": "user", "content": "Good."},
        ],
        "tools": [{"type": "function", "function": {"name": "look"}}],
    });
    let three = CacheBreakpoints::Placed { most: 3, lifetime: 1_800 };
    insta::assert_snapshot!(places(Format::OpenaiChat, &chat, three), @r#"
    {"type":"text","text":"Be kind.","prompt_cache_breakpoint":{"mode":"explicit"}}
    {"type":"text","text":"A cat.","prompt_cache_breakpoint":{"mode":"explicit"}}
    "#);
    let responses = json!({
        "instructions": "Be kind.",
        "input": [
            {"role": "developer", "content": "Quick."},
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "A cat."},
            {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "A dog."},
        ],
    });
    insta::assert_snapshot!(places(Format::OpenaiResponses, &responses, three), @r#"
    {"type":"input_text","text":"Quick.","prompt_cache_breakpoint":{"mode":"explicit"}}
    {"type":"input_text","text":"A cat.","prompt_cache_breakpoint":{"mode":"explicit"}}
    "#);
}

#[test]
fn the_summary_keeps_what_stands_before_it() {
    let mut request = anthropic();
    let kept = request["messages"].as_array_mut().unwrap().split_off(1);
    let mut events = Format::Anthropic.decode_request(&request.to_string()).unwrap();
    let compaction = Compaction {
        summary: Summary::Text("We looked.".into()),
        through: Seq(4),
        first_kept: None,
        tokens_before: None,
        tokens_after: None,
        trigger: CompactionTrigger::Manual,
    };
    events.push(epitome_core::Event::from_fact(Fact::Compacted(compaction), None));
    events.push(epitome_core::Event::from_fact(
        Fact::UserSaid { parts: vec![ContentPart::text("Go on.")] },
        None,
    ));
    events.extend(
        Format::Anthropic.decode_request(&json!({"messages": kept}).to_string()).unwrap().into_iter().skip(1),
    );
    let body = Format::Anthropic
        .render(&context(&logged(events)), &options(Format::Anthropic, PLACED))
        .unwrap()
        .body;
    let body: Value = serde_json::from_str(&body).unwrap();
    let texts: Vec<&str> = marked(&body).iter().filter_map(|block| block["text"].as_str()).collect();
    assert_eq!(texts, ["Be kind.", "We looked.", "Well?"], "{body:#}");
}

/// A log keeps each message as it first came: as the newest one, with its mark.
#[test]
fn of_too_many_marks_the_newest_stay() {
    let mark = json!({"type": "ephemeral"});
    let said = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": [{"type": "text", "text": index.to_string(), "cache_control": mark}]})
    };
    let request = |count: usize| json!({"system": [{"type": "text", "text": "s", "cache_control": mark}], "messages": (0..count).map(said).collect::<Vec<_>>()});
    let marked_texts = |count: usize| {
        let request = request(count).to_string();
        let context = context(&logged(Format::Anthropic.decode_request(&request).unwrap()));
        let rendered = Format::Anthropic.render(&context, &RenderOptions::of(Format::Anthropic)).unwrap();
        let found = check(Format::Anthropic, &rendered.body, &ProviderRules::of(Format::Anthropic));
        assert!(found.is_empty(), "{found:?}");
        let body: Value = serde_json::from_str(&rendered.body).unwrap();
        let texts: Vec<String> =
            marked(&body).iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect();
        texts.join(" ")
    };
    assert_eq!(marked_texts(3), "s 0 1 2");
    assert_eq!(marked_texts(9), "s 6 7 8");
    let found = check(Format::Anthropic, &request(9).to_string(), &ProviderRules::of(Format::Anthropic));
    assert_eq!(found[0].to_string(), "request: there are 10 cache marks, and 4 are taken");
}

#[test]
fn a_models_cache_says_how_many_and_for_how_long() {
    let check = |written, breakpoints, lifetimes: &[u64], wanted, expect| {
        let cache =
            CacheRules { written, breakpoints, lifetimes: Some(lifetimes.to_vec()), ..CacheRules::default() };
        assert_eq!(CacheBreakpoints::of(&cache, wanted), expect);
    };
    let placed = |most, lifetime| CacheBreakpoints::Placed { most, lifetime };
    let anthropic = Some(CacheWriteMode::Breakpoints);
    check(anthropic, Some(4), &[300, 3_600], None, placed(4, 300));
    check(anthropic, None, &[300, 3_600], Some(301), placed(4, 3_600));
    check(anthropic, Some(4), &[300, 3_600], Some(86_400), placed(4, 3_600));
    check(Some(CacheWriteMode::ImplicitAndExplicit), Some(4), &[1_800], None, placed(3, 1_800));
    check(Some(CacheWriteMode::Automatic), None, &[300], None, CacheBreakpoints::AsSent);
    check(None, None, &[], None, CacheBreakpoints::AsSent);
    check(anthropic, Some(4), &[], None, CacheBreakpoints::AsSent);
}

/// Anthropic's cache, as its manual describes it: entries are written at marks, and found from a mark or from one of the
/// 20 positions before it.
#[derive(Default)]
pub(crate) struct Cache {
    entries: HashSet<Vec<Digest>>,
}

impl Cache {
    /// How many blocks are read from the cache.
    pub(crate) fn ask(&mut self, prompt: &Prompt) -> usize {
        let digests: Vec<Digest> = prompt.blocks.iter().map(|block| block.digest).collect();
        let marks: Vec<usize> =
            (0..digests.len()).filter(|place| prompt.blocks[*place].breakpoint.is_some()).collect();
        assert!(marks.len() <= 4);
        let reach = |mark: usize| {
            let mut positions = 0;
            for place in (0..=mark).rev() {
                if self.entries.contains(&digests[..=place]) {
                    return place + 1;
                }
                let is_run = place > 0 && prompt.blocks[place].tool && prompt.blocks[place - 1].tool;
                positions += usize::from(!is_run);
                if positions > 20 {
                    break;
                }
            }
            0
        };
        let hit = marks.iter().map(|mark| reach(*mark)).max().unwrap_or(0);
        self.entries.extend(marks.iter().map(|mark| digests[..=*mark].to_vec()));
        hit
    }
}

/// An agent's loop: every call appends an answer of so many texts and calls, and its results.
fn simulate(texts: usize, calls: usize, breakpoints: CacheBreakpoints) -> Vec<(usize, usize)> {
    let mut request = json!({"tools": [{"name": "look", "input_schema": {}}], "system": "Be kind.",
        "messages": [{"role": "user", "content": "Look."}]});
    let (mut cache, mut memo, mut sent) = (Cache::default(), memo(), 0);
    let mut found = Vec::new();
    for turn in 0..8 {
        let body = Format::Anthropic
            .render(&of_request(Format::Anthropic, &request), &options(Format::Anthropic, breakpoints))
            .unwrap()
            .body;
        let prompt = Format::Anthropic.prompt(&body, &mut memo).unwrap();
        found.push((cache.ask(&prompt), sent));
        sent = prompt.blocks.len();
        let id = |call: usize| format!("call_{turn}_{call}");
        let mut answer = vec![json!({"type": "thinking", "thinking": "Hm.", "signature": "s"})];
        answer.extend((0..texts).map(|text| json!({"type": "text", "text": format!("Step {turn}.{text}")})));
        answer.extend(
            (0..calls).map(|call| json!({"type": "tool_use", "id": id(call), "name": "look", "input": {}})),
        );
        let result =
            |call| json!({"type": "tool_result", "tool_use_id": id(call), "content": format!("cat {turn}")});
        let mut results: Vec<Value> = (0..calls).map(result).collect();
        if calls == 0 {
            results.push(json!({"type": "text", "text": format!("And {turn}?")}));
        }
        let messages = request["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": answer}));
        messages.push(json!({"role": "user", "content": results}));
    }
    found
}

#[test]
fn a_session_reads_everything_but_the_new_turn() {
    for (texts, calls) in [(1, 1), (1, 0), (0, 30), (45, 3), (60, 0)] {
        for (hit, sent) in simulate(texts, calls, PLACED) {
            assert_eq!(hit, sent, "{texts} texts and {calls} calls a turn");
        }
    }
    // Without marks nothing is ever kept, and from the newest block alone a long turn reaches too far back.
    assert!(simulate(1, 1, CacheBreakpoints::AsSent).iter().all(|(hit, _)| *hit == 0));
    let newest = CacheBreakpoints::Placed { most: 1, lifetime: 300 };
    assert!(simulate(1, 1, newest).iter().all(|(hit, sent)| hit == sent));
    assert!(simulate(45, 3, newest).iter().all(|(hit, _)| *hit == 0));
}
