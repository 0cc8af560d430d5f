//! Requests as a cache sees them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use epitome_core::{
    Tokens,
    cost::{CacheLayer, Prompt, RequestExtension, extends},
    meter::{Meter, TokenOverhead},
    tokens::TokenCounter,
};
use epitome_wire::{
    Format, PromptMemo,
    legality::ProviderRules,
    render::{RenderOptions, recount},
};
use proptest::prelude::*;

use crate::{
    fixtures,
    histories::{Quarters, context, cut, cuts, events, history},
};

pub(crate) fn memo() -> PromptMemo {
    PromptMemo::new(Arc::new(Meter::new(Arc::new(Quarters), TokenOverhead::default())))
}

fn sum(prompt: &Prompt) -> Tokens {
    prompt.blocks.iter().map(|block| block.tokens).sum()
}

/// A request with every object of its history, system prompt and tools marked that could carry a mark.
fn marked(format: Format, request: &str) -> String {
    let mut json: serde_json::Value = serde_json::from_str(request).unwrap();
    let key = if format == Format::Anthropic { "cache_control" } else { "prompt_cache_breakpoint" };
    let mark = |block: &mut serde_json::Value| {
        if let Some(block) = block.as_object_mut() {
            block.insert(key.to_owned(), serde_json::json!({"type": "ephemeral", "mode": "explicit"}));
        }
    };
    let each = |list: Option<&mut serde_json::Value>, visit: &dyn Fn(&mut serde_json::Value)| {
        list.and_then(|list| list.as_array_mut()).into_iter().flatten().for_each(visit);
    };
    each(json.get_mut("tools"), &mark);
    each(json.get_mut("system"), &mark);
    let history = if format == Format::OpenaiResponses { "input" } else { "messages" };
    each(json.get_mut(history), &|message| {
        each(message.get_mut("content"), &mark);
        each(message.get_mut("output"), &mark);
    });
    json.to_string()
}

proptest! {
    #[test]
    fn the_blocks_cost_what_a_recount_finds(steps in history(24), cuts in cuts()) {
        let mut memo = memo();
        let context = cut(context(&events(&steps)), &cuts);
        for format in crate::SCRIPTED {
            for rules in [ProviderRules::default(), ProviderRules::of(format)] {
                let options = RenderOptions { rules, ..RenderOptions::of(format) };
                let body = format.render(&context, &options).unwrap().body;
                let prompt = format.prompt(&body, &mut memo).unwrap();
                prop_assert_eq!(sum(&prompt), recount(format, &body, memo.meter()).unwrap(), "{}", body);
                prop_assert_eq!(&format.prompt(&body, &mut memo).unwrap(), &prompt, "known and unknown alike");
                prop_assert!(prompt.blocks.is_sorted_by_key(|block| block.layer));
            }
        }
    }

    #[test]
    fn marks_change_nothing_but_where_a_cache_is_written(steps in history(16)) {
        let context = context(&events(&steps));
        for format in crate::SCRIPTED {
            let body = format.render(&context, &RenderOptions::of(format)).unwrap().body;
            // Written by serde both times, so that only the marks differ.
            let plain = serde_json::from_str::<serde_json::Value>(&body).unwrap().to_string();
            let marked = marked(format, &plain);
            let (plain, marked) = (format.prompt(&plain, &mut memo()).unwrap(), format.prompt(&marked, &mut memo()).unwrap());
            prop_assert_eq!(extends(&plain, &marked), RequestExtension::Extends);
            prop_assert_eq!(extends(&marked, &plain), RequestExtension::Extends);
            prop_assert_eq!(sum(&plain), sum(&marked));
        }
    }
}

#[test]
fn recorded_requests_add_up_too() {
    let overhead = TokenOverhead { tools: Tokens(346), ..TokenOverhead::default() };
    for fixture in fixtures::requests() {
        let mut memo = PromptMemo::new(Arc::new(Meter::new(Arc::new(Quarters), overhead)));
        let prompt = fixture.format.prompt(&fixture.text, &mut memo).unwrap();
        let counted = recount(fixture.format, &fixture.text, memo.meter()).unwrap();
        assert_eq!(sum(&prompt), counted, "{} {}", fixture.format, fixture.name);
    }
}

/// What each block of a request is: layer, whether it is a tool's, its lifetime.
fn shown(format: Format, request: &str) -> String {
    let prompt = format.prompt(request, &mut memo()).unwrap();
    let block = |block: &epitome_core::cost::PromptBlock| {
        let layer = match block.layer {
            CacheLayer::Tools => "tools",
            CacheLayer::System => "system",
            CacheLayer::Messages => "messages",
        };
        let tool = if block.tool { " tool" } else { "" };
        let kept = block.breakpoint.map_or_else(String::new, |seconds| format!(" kept {seconds} s"));
        format!("{layer} {}{tool}{kept}", block.tokens)
    };
    prompt.blocks.iter().map(block).collect::<Vec<_>>().join("\n")
}

#[test]
fn anthropic_blocks_come_tools_first_with_the_lifetimes_they_ask_for() {
    let request = r#"{"model":"m","messages":[
        {"role":"user","content":"Look."},
        {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"tool_use","id":"a","name":"look","input":{"at":"it"}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"A cat.","cache_control":{"type":"ephemeral"}}]},{"type":"text","text":"Well?","cache_control":null}]}],
        "system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
        "tools":[{"name":"look","input_schema":{"type":"object","properties":{"cache_control":{"type":"string"}}},"cache_control":{"type":"ephemeral","ttl":"5m"}}]}"#;
    insta::assert_snapshot!(shown(Format::Anthropic, request), @r"
    tools 29 kept 300 s
    system 2 kept 3600 s
    messages 6
    messages 5
    messages 12 tool
    messages 14 tool kept 300 s
    messages 2
    ");
    let automatic = r#"{"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
    insta::assert_snapshot!(shown(Format::Anthropic, automatic), @r"
    messages 8
    messages 5 kept 300 s
    ");
}

#[test]
fn a_chat_history_begins_with_its_system_prompt() {
    let request = r#"{"messages":[{"role":"system","content":[{"type":"text","text":"Be kind.","prompt_cache_breakpoint":{"mode":"explicit"}}]},
        {"role":"user","content":[{"type":"text","text":"Look."},{"type":"text","text":"At it."}]},
        {"role":"assistant","content":"I will.","reasoning_content":"Hm.","tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"a","content":"A cat."},
        {"role":"system","content":"Hurry."}],
        "tools":[{"type":"function","function":{"name":"look"}}]}"#;
    insta::assert_snapshot!(shown(Format::OpenaiChat, request), @r"
    tools 12
    system 6 kept 1800 s
    messages 6
    messages 2
    messages 16 tool
    messages 14 tool
    messages 6
    ");
}

#[test]
fn a_responses_request_begins_with_its_instructions() {
    let request = r#"{"instructions":"Be kind.","input":[{"role":"developer","content":"Quick."},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"Look.","prompt_cache_breakpoint":{"mode":"explicit"}}]},
        {"type":"reasoning","summary":[]},
        {"type":"function_call","call_id":"a","name":"look","arguments":"{}"},
        {"type":"function_call_output","call_id":"a","output":"A cat."}],"prompt_cache_options":{"ttl":"1h"}}"#;
    insta::assert_snapshot!(shown(Format::OpenaiResponses, request), @r"
    system 5
    system 6
    messages 6 kept 3600 s
    messages 4
    messages 13 tool
    messages 14 tool
    ");
}

/// Whether the second request extends the first.
fn check(format: Format, previous: &str, next: &str, expect: RequestExtension) {
    let mut memo = memo();
    let [previous, next] = [previous, next].map(|messages| {
        let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
        format.prompt(&format!(r#"{{"{key}":{messages}}}"#), &mut memo).unwrap()
    });
    assert_eq!(extends(&previous, &next), expect);
}

#[test]
fn a_string_is_the_block_it_stands_for() {
    for format in [Format::Anthropic, Format::OpenaiChat] {
        let string = r#"[{"role":"user","content":"a\u0062"}]"#;
        check(
            format,
            string,
            r#"[{"role":"user","content":[{"type":"text","text":"a\u0062"}]}]"#,
            RequestExtension::Extends,
        );
        let escaped = r#"[{"role":"user","content":[{"type":"text","text":"ab"}]}]"#;
        check(format, string, escaped, RequestExtension::Differs { at: 0, layer: CacheLayer::Messages });
    }
    let format = Format::OpenaiResponses;
    check(
        format,
        r#""ab""#,
        r#"[{"role":"user","content":"ab"},{"role":"user","content":"c"}]"#,
        RequestExtension::Extends,
    );
    let string = r#"[{"type":"function_call_output","call_id":"a","output":"b"}]"#;
    let list = r#"[{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"b","prompt_cache_breakpoint":{"mode":"explicit"}}]}]"#;
    check(format, string, list, RequestExtension::Extends);
}

#[test]
fn a_message_may_grow_where_its_provider_reads_blocks() {
    let one = r#"[{"role":"user","content":"a"}]"#;
    let grown = r#"[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]"#;
    check(Format::Anthropic, one, grown, RequestExtension::Extends);
    check(Format::Anthropic, grown, one, RequestExtension::Differs { at: 1, layer: CacheLayer::Messages });
}

#[test]
fn what_moves_to_another_role_or_message_is_another() {
    let at = |at, layer| RequestExtension::Differs { at, layer };
    for format in crate::SCRIPTED {
        let (user, assistant) =
            (r#"[{"role":"user","content":"a"}]"#, r#"[{"role":"assistant","content":"a"}]"#);
        check(format, user, assistant, at(0, CacheLayer::Messages));
    }
    let called =
        |name: &str| format!(r#"[{{"role":"assistant","content":"a","tool_calls":[{{"id":"{name}"}}]}}]"#);
    check(Format::OpenaiChat, &called("a"), &called("b"), at(0, CacheLayer::Messages));
    check(
        Format::OpenaiChat,
        r#"[{"role":"user","content":"a","name":"b"}]"#,
        r#"[{"role":"user","content":"a"}]"#,
        at(0, CacheLayer::Messages),
    );
}

/// Counts the bytes it is shown.
struct Shown(AtomicU64);

impl TokenCounter for Shown {
    fn name(&self) -> &'static str {
        "shown"
    }

    fn count(&self, text: &str) -> Tokens {
        self.0.fetch_add(text.len() as u64, Ordering::Relaxed);
        Tokens(text.len() as u64)
    }
}

#[test]
fn a_session_that_grows_counts_each_text_once() {
    let counter = Arc::new(Shown(AtomicU64::new(0)));
    let mut memo = PromptMemo::new(Arc::new(Meter::new(counter.clone(), TokenOverhead::default())));
    let text = "0123456789".repeat(100);
    for format in crate::SCRIPTED {
        let before = counter.0.load(Ordering::Relaxed);
        let mut messages = Vec::new();
        for turn in 0..40 {
            let role = if turn % 2 == 0 { "user" } else { "assistant" };
            messages.push(format!(r#"{{"role":"{role}","content":"{turn:04} {text}"}}"#));
            let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
            let request = format!(r#"{{"{key}":[{}]}}"#, messages.join(","));
            assert_eq!(format.prompt(&request, &mut memo).unwrap().blocks.len(), messages.len());
        }
        assert_eq!(counter.0.load(Ordering::Relaxed) - before, 40 * 1_005, "{format}");
    }
}

#[test]
fn what_is_no_request_is_refused() {
    for body in ["", "[]", "{", "null"] {
        assert!(Format::Anthropic.prompt(body, &mut memo()).is_err(), "{body}");
    }
    assert_eq!(Format::Anthropic.prompt("{}", &mut memo()).unwrap(), Prompt::default());
}
