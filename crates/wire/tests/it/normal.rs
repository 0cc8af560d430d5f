//! The normalised digest ignores what it says it ignores, and nothing else.

use epitome_core::{Digest, event::InstructionKind};
use epitome_wire::{Format, anthropic, openai_chat, openai_responses};
use proptest::prelude::*;
use serde_json::{Value, json};

fn digest(format: Format, message: &str) -> Digest {
    let event = match format {
        Format::OpenaiChat => openai_chat::message(message),
        Format::OpenaiResponses => openai_responses::item(message),
        Format::Anthropic => anthropic::message(message),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    event.unwrap().normal.expect("a message has a digest")
}

fn check(format: Format, one: &str, other: &str, same: bool) {
    assert_eq!(digest(format, one) == digest(format, other), same, "{one}\n{other}");
}

#[test]
fn a_string_is_one_text_block_and_nothing_is_nothing() {
    let same = |format: Format, one: &str, other: &str| check(format, one, other, true);
    same(
        Format::Anthropic,
        r#"{"role":"user","content":"hi"}"#,
        r#"{"content":[{"text":"hi","type":"text","cache_control":{"type":"ephemeral"}}],"role":"user"}"#,
    );
    same(
        Format::OpenaiChat,
        r#"{"role":"user","content":"hi"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"h\u0069"}]}"#,
    );
    same(
        Format::OpenaiResponses,
        r#"{"role":"user","content":"hi"}"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}"#,
    );
    same(
        Format::OpenaiResponses,
        r#"{"role":"assistant","content":"hi"}"#,
        r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}"#,
    );
    for content in [
        "null",
        "\"\"",
        "[]",
        r#"[{"type":"text","text":""}]"#,
        r#"[{"type":"text","text":"","cache_control":{}}]"#,
    ] {
        for format in [Format::Anthropic, Format::OpenaiChat] {
            same(format, &format!(r#"{{"role":"user","content":{content}}}"#), r#"{"role":"user"}"#);
        }
    }
    check(
        Format::Anthropic,
        r#"{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":""}]}"#,
        r#"{"role":"user"}"#,
        false,
    );
    check(
        Format::OpenaiResponses,
        r#"{"role":"user","content":"hi"}"#,
        r#"{"role":"user","content":[{"type":"output_text","text":"hi"}]}"#,
        false,
    );
}

#[test]
fn results_are_compared_as_blocks() {
    let result = |content: &str| {
        format!(r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a"{content}}}]}}"#)
    };
    check(
        Format::Anthropic,
        &result(r#","content":"r""#),
        &result(r#","content":[{"type":"text","text":"r"}],"cache_control":{}"#),
        true,
    );
    check(Format::Anthropic, &result(""), &result(r#","content":"""#), true);
    check(Format::Anthropic, &result(""), &result(r#","content":"x""#), false);
    check(Format::Anthropic, &result(""), &result(r#","is_error":true"#), false);
    check(
        Format::OpenaiChat,
        r#"{"role":"tool","tool_call_id":"a","content":"r"}"#,
        r#"{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"r"}]}"#,
        true,
    );
    check(
        Format::OpenaiResponses,
        r#"{"type":"function_call_output","call_id":"a","output":"r"}"#,
        r#"{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"r"}]}"#,
        true,
    );
}

#[test]
fn cache_control_inside_arguments_and_text_counts() {
    let used = |input: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"t","input":{input}}}]}}"#
        )
    };
    check(Format::Anthropic, &used(r#"{"cache_control":1}"#), &used("{}"), false);
    check(
        Format::Anthropic,
        r#"{"role":"user","content":"cache_control"}"#,
        r#"{"role":"user","content":""}"#,
        false,
    );
    let tools = |tools: &str| {
        let events = Format::Anthropic.decode_request(&format!(r#"{{"tools":[{tools}]}}"#)).unwrap();
        let is_tools = |event: &&epitome_core::Event| {
            matches!(event.fact, epitome_core::Fact::Instructed { what: InstructionKind::Tools, .. })
        };
        events.iter().find(is_tools).unwrap().normal
    };
    assert_eq!(tools(r#"{"name":"t","cache_control":{"type":"ephemeral"}}"#), tools(r#"{"name":"t"}"#));
    assert_ne!(tools(r#"{"input_schema":{"cache_control":{}}}"#), tools(r#"{"input_schema":{}}"#));
    assert_ne!(tools(r#"{"name":"a"},{"name":"b"}"#), tools(r#"{"name":"b"},{"name":"a"}"#));
}

#[test]
fn a_system_prompt_is_a_string_or_a_block() {
    let system = |system: &str| {
        Format::Anthropic.decode_request(&format!(r#"{{"system":{system}}}"#)).unwrap()[1].normal
    };
    assert_eq!(
        system(r#""s""#),
        system(r#"[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]"#)
    );
    assert_ne!(system(r#""s""#), system(r#""t""#));
}

#[test]
fn a_bare_input_is_the_message_it_stands_for() {
    let first = |input: &str| {
        let request = format!(r#"{{"input":{input}}}"#);
        Format::OpenaiResponses.decode_request(&request).unwrap().pop().unwrap().normal
    };
    assert_eq!(first(r#""hi""#), first(r#"[{"role":"user","content":"hi"}]"#));
}

#[test]
fn the_same_words_in_two_formats_are_two_things() {
    let message = r#"{"role":"user","content":"hi"}"#;
    assert_ne!(digest(Format::Anthropic, message), digest(Format::OpenaiChat, message));
}

/// A JSON value for a tool's input.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zé\"\\\\]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-d]|cache_control|content|type", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A message of each format with many kinds of blocks.
fn messages(format: Format) -> BoxedStrategy<Value> {
    let parts = ("[a-z]{1,5}", anything(), "[a-z]{1,5}", any::<bool>());
    parts
        .prop_map(move |(text, input, id, error)| match format {
            Format::Anthropic if error => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}, {"type": "odd", "x": input}], "is_error": error},
                {"type": "image", "source": {"type": "url", "url": text}},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": id}]}},
            ]}),
            Format::Anthropic => json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": text, "signature": id},
                {"type": "text", "text": text},
                {"type": "tool_use", "id": id, "name": text, "input": input},
                {"type": "server_tool_use", "id": id, "name": text, "input": input},
            ], "vendor": input}),
            Format::OpenaiChat if error => json!({"role": "user", "name": id, "content": [
                {"type": "text", "text": text}, {"type": "odd", "x": input},
            ], "vendor": input}),
            Format::OpenaiChat => json!({"role": "assistant", "content": text, "reasoning_content": id, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": text, "arguments": input.to_string()}},
                {"id": id, "type": "custom", "custom": {"name": text, "input": input.to_string()}},
            ], "vendor": {"x": 1}}),
            Format::OpenaiResponses if error => json!({"type": "function_call_output", "id": id, "call_id": id, "output": [
                {"type": "input_text", "text": text}, {"type": "odd", "x": input},
            ], "status": "completed"}),
            Format::OpenaiResponses => json!({"type": "function_call", "call_id": id, "name": text, "namespace": id, "arguments": input.to_string(), "vendor": {"x": 1}}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        })
        .boxed()
}

fn any_message() -> impl Strategy<Value = (Format, Value)> {
    prop::sample::select(crate::SCRIPTED.to_vec())
        .prop_flat_map(|format| messages(format).prop_map(move |message| (format, message)))
}

/// The same value with every object's keys the other way round, written with indentation.
fn rewritten(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(key, value)| (key.clone(), rewritten(value))).collect())
        }
        Value::Array(elements) => elements.iter().map(rewritten).collect(),
        other => other.clone(),
    }
}

/// The same message as a client may send it: keys in another order, cache marks on its blocks, arguments respelt.
fn resent(message: &Value) -> Value {
    let mut message = rewritten(message);
    message["cache_control"] = json!({"type": "ephemeral"});
    for block in message.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
        block["cache_control"] = json!({"type": "ephemeral"});
        if block["type"] == "tool_result" {
            for inner in block["content"].as_array_mut().into_iter().flatten() {
                inner["cache_control"] = json!({});
            }
        }
    }
    let respelt = |arguments: &mut Value| {
        let parsed: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
        *arguments = format!(" {:#} ", rewritten(&parsed)).into();
    };
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        if call["type"] == "function" {
            respelt(&mut call["function"]["arguments"]);
        }
    }
    if message["type"] == "function_call" {
        respelt(&mut message["arguments"]);
    }
    message
}

/// Every place in a value, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                places(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Changes what stands at a place, whatever it is.
fn change(value: &mut Value) {
    match value {
        Value::Null => *value = json!("x"),
        Value::Bool(truth) => *truth = !*truth,
        Value::Number(number) => *value = json!(number.as_i64().unwrap_or(0) + 1),
        Value::String(text) => text.push('x'),
        Value::Array(elements) => elements.push(json!("x")),
        Value::Object(members) => {
            members.insert("extra".into(), json!("x"));
        }
    }
}

proptest! {
    #[test]
    fn a_message_sent_again_in_other_words_keeps_its_digest((format, message) in any_message()) {
        let again = resent(&message);
        prop_assert_eq!(digest(format, &message.to_string()), digest(format, &format!("{again:#}")));
    }

    #[test]
    fn any_other_change_of_any_value_changes_the_digest(
        (format, message) in any_message(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut all = Vec::new();
        places(&message, "", &mut all);
        let place = at.get(&all);
        let mut changed = message.clone();
        change(changed.pointer_mut(place).expect("the place was just found"));
        prop_assert_ne!(
            digest(format, &message.to_string()),
            digest(format, &changed.to_string()),
            "{} changed at {}", message, place
        );
    }

    #[test]
    fn any_member_that_goes_and_any_two_blocks_that_swap_change_the_digest((format, message) in any_message()) {
        let before = digest(format, &message.to_string());
        for key in message.as_object().expect("messages are objects").keys() {
            let mut changed = message.clone();
            changed.as_object_mut().unwrap().shift_remove(key);
            prop_assert_ne!(before, digest(format, &changed.to_string()), "without {}", key);
        }
        let mut swapped = message.clone();
        for key in ["content", "output"] {
            if let Some(blocks) = swapped.get_mut(key).and_then(Value::as_array_mut) {
                blocks.reverse();
                prop_assert_ne!(before, digest(format, &swapped.to_string()));
            }
        }
    }
}
