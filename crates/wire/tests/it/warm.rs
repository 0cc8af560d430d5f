//! A request with an instruction appended is read from the cache as far as it went before, and legal.

use std::collections::BTreeMap;

use epitome_core::{
    Tokens,
    context::UNANSWERED_TEXT,
    cost::{RequestExtension, extends},
};
use epitome_wire::{
    EncodeMode, Format, WireError,
    legality::{ProviderRules, RequestViolation, check},
    render::RenderOptions,
};
use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::{
    fixtures,
    histories::{context, cut, cuts, events, history},
    prompts::memo,
};

const INSTRUCTION: &str = "Sum up the \"above\".\nNo tools.";

fn warm(format: Format, request: &str) -> String {
    format
        .append_instruction(request, INSTRUCTION, Tokens(700))
        .unwrap_or_else(|error| panic!("{format} {request}: {error}"))
}

fn breaches(format: Format, request: &str) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for RequestViolation { breach, .. } in check(format, request, &ProviderRules::of(format)) {
        *counted.entry(breach.to_string()).or_default() += 1;
    }
    counted
}

/// A request that keeps what was sent: the cache finds all of it, the tools have their bytes, and the newest words are the
/// instruction.
fn holds(format: Format, before: &str, after: &str) {
    let mut memo = memo();
    let (old, new) = (format.prompt(before, &mut memo).unwrap(), format.prompt(after, &mut memo).unwrap());
    assert_eq!(extends(&old, &new), RequestExtension::Extends, "{format}\n{before}\n{after}");
    let newest = format.decode_request(after).unwrap().pop().unwrap();
    assert!(newest.fact.text().ends_with(INSTRUCTION), "{format} {after}");
    let bytes = |request: &str, key: &str| {
        let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(request).unwrap();
        members.get(key).map(|value| value.get().to_owned())
    };
    assert_eq!(bytes(before, "tools"), bytes(after, "tools"));
    assert_ne!(bytes(after, "stream").as_deref(), Some("true"));
}

#[test]
fn every_request_is_read_from_the_cache_and_breaks_no_rule_that_it_kept() {
    let mut refused = Vec::new();
    for fixture in fixtures::requests() {
        let (format, before) = (fixture.format, fixture.text.as_str());
        let after = match format.append_instruction(before, INSTRUCTION, Tokens(700)) {
            Ok(after) => after,
            Err(WireError::CannotAppend { setting }) => {
                refused.push(format!("{format} {}: {setting}", fixture.name));
                continue;
            }
            Err(error) => panic!("{}: {error}", fixture.name),
        };
        holds(format, before, &after);
        let (old, new) = (breaches(format, before), breaches(format, &after));
        for (breach, count) in new {
            assert!(old.get(&breach).is_some_and(|old| *old >= count), "{format} {}: {breach}", fixture.name);
        }
    }
    assert_eq!(refused, ["openai-responses bare.json: previous_response_id"]);
}

#[test]
fn every_request_that_was_made_legal_stays_legal() {
    let mut tried = 0;
    for fixture in fixtures::requests() {
        for format in crate::SCRIPTED {
            let events = fixture.format.decode_request(&fixture.text).unwrap();
            let before = format.encode(&events, EncodeMode::Legal).unwrap().body;
            let Ok(after) = format.append_instruction(&before, INSTRUCTION, Tokens(700)) else { continue };
            if check(format, &before, &ProviderRules::of(format)).is_empty() {
                tried += 1;
                holds(format, &before, &after);
                assert_eq!(
                    check(format, &after, &ProviderRules::of(format)),
                    [],
                    "{format} {}\n{after}",
                    fixture.name
                );
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

/// The end of a request, once its instruction stands in it.
fn check_end(format: Format, history: &str, expect: &str) {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let before = format!(r#"{{"{key}":{history}}}"#);
    let after = warm(format, &before);
    let tail = &after[after.find('[').unwrap()..];
    let end = tail.rfind(']').unwrap() + 1;
    let instruction = serde_json::to_string(INSTRUCTION).unwrap();
    assert_eq!(tail[..end].replace(&instruction, "INSTRUCTION"), expect, "{format} {history}");
    if !history.starts_with("[{\"role\":\"assistant") {
        assert_eq!(check(format, &after, &ProviderRules::of(format)), [], "{after}");
    }
}

#[test]
fn open_calls_are_answered_first() {
    let anthropic = |history: &str, expect: &str| check_end(Format::Anthropic, history, expect);
    let asked = r#"{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]}"#;
    let stand = |id: &str| {
        format!(
            r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{UNANSWERED_TEXT}","is_error":true}}"#
        )
    };
    let text = r#"{"type":"text","text":INSTRUCTION}"#;
    let said = |blocks: &str| format!(r#"{{"role":"user","content":[{blocks}]}}"#);
    anthropic(
        &format!("[{asked}]"),
        &format!("[{asked},{}]", said(&format!("{},{},{text}", stand("a"), stand("b")))),
    );
    let result = r#"{ "type":"tool_result","tool_use_id":"a","content":"ok"}"#;
    anthropic(
        &format!("[{asked},{}]", said(&format!("{result} "))),
        &format!("[{asked},{}]", said(&format!("{result},{},{text} ", stand("b")))),
    );

    let chat = |history: &str, expect: &str| check_end(Format::OpenaiChat, history, expect);
    let asked = r#"{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"custom","custom":{"name":"f","input":""}}]}"#;
    let tool =
        |id: &str, said: &str| format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{said}"}}"#);
    let user = r#"{"role":"user","content":INSTRUCTION}"#;
    chat(
        &format!("[ {asked},{} ]", tool("a", "ok")),
        &format!("[ {asked},{},{},{user} ]", tool("a", "ok"), tool("b", UNANSWERED_TEXT)),
    );
    let called = r#"{"role":"assistant","function_call":{"name":"now","arguments":"{}"}}"#;
    chat(
        &format!("[{called}]"),
        &format!(r#"[{called},{{"role":"function","name":"now","content":"{UNANSWERED_TEXT}"}},{user}]"#),
    );

    let responses = |history: &str, expect: &str| check_end(Format::OpenaiResponses, history, expect);
    let user = r#"{"type":"message","role":"user","content":INSTRUCTION}"#;
    let calls = r#"{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"custom_tool_call","call_id":"b","name":"g","input":""},{"type":"function_call_output","call_id":"a","output":"ok"}"#;
    responses(
        &format!("[{calls}]"),
        &format!(
            r#"[{calls},{{"type":"custom_tool_call_output","call_id":"b","output":"{UNANSWERED_TEXT}"}},{user}]"#
        ),
    );
}

#[test]
fn the_last_message_grows_only_where_roles_alternate() {
    let text = r#"{"type":"text","text":INSTRUCTION}"#;
    let anthropic = |history: &str, expect: &str| check_end(Format::Anthropic, history, expect);
    anthropic(
        r#"[{"role":"user","content":"hi"}]"#,
        &format!(r#"[{{"role":"user","content":[{{"type":"text","text":"hi"}},{text}]}}]"#),
    );
    anthropic(
        r#"[{"content":[ {"type":"text","text":"hi"} ],"role":"user"}]"#,
        &format!(r#"[{{"content":[ {{"type":"text","text":"hi"}},{text} ],"role":"user"}}]"#),
    );
    let answered = r#"{"role":"user","content":"hi"},{"role":"assistant","content":"Well, "}"#;
    anthropic(&format!("[{answered}]"), &format!(r#"[{answered},{{"role":"user","content":[{text}]}}]"#));
    check_end(
        Format::OpenaiChat,
        r#"[{"role":"user","content":"hi"}]"#,
        r#"[{"role":"user","content":"hi"},{"role":"user","content":INSTRUCTION}]"#,
    );
    check_end(
        Format::OpenaiResponses,
        r#""hi""#,
        r#"[{"role":"user","content":"hi"},{"type":"message","role":"user","content":INSTRUCTION}]"#,
    );
}

#[test]
fn only_settings_change_that_no_cache_holds() {
    let check = |format: Format, before: &str, expect: &str| {
        let after = warm(format, before);
        let settings = format.decode_request(&after).unwrap().swap_remove(0).raw.json.to_string();
        assert_eq!(settings, expect, "{format}");
    };
    check(
        Format::OpenaiChat,
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{}],"tool_choice":"auto","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":9,"n":2,"prompt_cache_key":"k"}"#,
        r#"{"model":"m","messages":null,"tools":null,"tool_choice":"none","stream":false,"stream_options":null,"max_completion_tokens":700,"n":1,"prompt_cache_key":"k"}"#,
    );
    check(
        Format::OpenaiChat,
        r#"{"messages":[{"role":"user","content":"a"}],"tools":[{}]}"#,
        r#"{"messages":null,"tools":null,"tool_choice":"none"}"#,
    );
    check(Format::OpenaiChat, r#"{"messages":[{"role":"user","content":"a"}]}"#, r#"{"messages":null}"#);
    check(
        Format::OpenaiResponses,
        r#"{"input":"a","tools":[{}],"background":true,"reasoning":{"effort":"high"},"store":false}"#,
        r#"{"input":null,"tools":null,"background":false,"reasoning":{"effort":"high"},"store":false,"max_output_tokens":700,"tool_choice":"none"}"#,
    );
    check(
        Format::Anthropic,
        r#"{"messages":[{"role":"user","content":"a"}],"tools":[{}],"tool_choice":{"type":"auto"},"thinking":{"type":"enabled","budget_tokens":2048},"max_tokens":9000,"stream":true}"#,
        r#"{"messages":null,"tools":null,"tool_choice":{"type":"auto"},"thinking":{"type":"enabled","budget_tokens":2048},"max_tokens":2748,"stream":false}"#,
    );
}

#[test]
fn a_request_that_cannot_be_answered_in_words_is_refused() {
    let check = |format: Format, member: &str, setting: &str| {
        let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
        let request = format!(r#"{{"{key}":[{{"role":"user","content":"a"}}],{member}}}"#);
        let refused = format.append_instruction(&request, "x", Tokens(1)).unwrap_err();
        assert!(
            matches!(refused, WireError::CannotAppend { setting: found } if found == setting),
            "{refused}"
        );
    };
    check(Format::OpenaiChat, r#""response_format":{"type":"json_schema"}"#, "response_format");
    check(Format::OpenaiResponses, r#""text":{"format":{"type":"json_object"}}"#, "text.format");
    check(Format::OpenaiResponses, r#""previous_response_id":"r""#, "previous_response_id");
    check(Format::OpenaiResponses, r#""conversation":"c""#, "conversation");
    check(Format::Anthropic, r#""tool_choice":{"type":"any"}"#, "tool_choice");
    check(Format::Anthropic, r#""output_config":{"format":{"type":"json_schema"}}"#, "output_config.format");
    for format in crate::SCRIPTED {
        assert!(format.append_instruction("{", "x", Tokens(1)).is_err());
        assert!(format.append_instruction("[]", "x", Tokens(1)).is_err());
        assert_eq!(check_empty(format), 1);
    }
}

/// How many messages an empty request has once it has its instruction.
fn check_empty(format: Format) -> usize {
    let events = format.decode_request(&format.append_instruction("{}", "x", Tokens(1)).unwrap()).unwrap();
    events.len() - 1
}

proptest! {
    #[test]
    fn every_rendering_can_be_appended_to(steps in history(24), cuts in cuts()) {
        let context = cut(context(&events(&steps)), &cuts);
        for format in crate::SCRIPTED {
            let before = format.render(&context, &RenderOptions::of(format)).unwrap().body;
            let after = warm(format, &before);
            holds(format, &before, &after);
            prop_assert_eq!(check(format, &after, &ProviderRules::of(format)), [], "{}", after);
        }
    }
}
