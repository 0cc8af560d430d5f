//! Input that is wrong, huge or hostile: no panic, no loss.

use epitome_core::Event;
use epitome_wire::{EncodeMode, Format, StreamDecoder, WireError, anthropic, openai_chat, openai_responses};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn a_request_that_is_no_object_says_what_was_expected() {
    let check = |request: &str, expect: &str| {
        let error = Format::OpenaiChat.decode_request(request).unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    check("[]", "reading a Chat request: expected a JSON object, found an array");
    check("null", "reading a Chat request: expected a JSON object, found null");
    check("{} {}", "reading a Chat request: it is not one complete JSON value; send exactly one");
    let deep = format!(r#"{{"messages":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    check(&deep, "reading a Chat request: it is nested more than 128 levels deep; flatten it");
}

#[test]
fn what_stands_in_place_of_a_history_stays_where_it_is() {
    for format in crate::SCRIPTED {
        for request in [
            "{}",
            r#"{"messages":[],"input":[],"tools":[]}"#,
            r#"{"messages":null,"input":null,"system":null}"#,
            r#"{"messages":{"a":1},"input":5,"tools":"x","system":7}"#,
            r#"{"messages":[],"messages":[],"x":1,"x":2}"#,
        ] {
            let events = format.decode_request(request).unwrap();
            assert_eq!(format.encode(&events, EncodeMode::AsRecorded).unwrap().body, request, "{format}");
        }
    }
}

#[test]
fn newer_instructions_win_and_older_ones_only_fill_their_place() {
    let read = |request: &str| Format::Anthropic.decode_request(request).unwrap();
    let mut events =
        read(r#"{"system":"old","tools":[{"name":"t"}],"messages":[{"role":"user","content":"a"}]}"#);
    let again = read(r#"{"model":"m","system":"new","messages":[{"role":"user","content":"b"}]}"#);
    events.extend(again);
    let body = Format::Anthropic.encode(&events, EncodeMode::AsRecorded).unwrap().body;
    assert_eq!(
        body,
        r#"{"model":"m","system":"new","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}"#
    );
    // The newest settings kept a place for tools that were told earlier, and have none for a later prompt.
    let mut events = read(r#"{"tools":[{"name":"t"}],"messages":[]}"#);
    events.push(read(r#"{"tools":[{"name":"gone"}],"messages":[]}"#).remove(0));
    events.push(read(r#"{"system":"late"}"#).remove(1));
    let body = Format::Anthropic.encode(&events, EncodeMode::AsRecorded).unwrap().body;
    assert_eq!(body, r#"{"tools":[{"name":"t"}],"messages":[],"system":"late"}"#);
}

#[test]
fn a_bare_input_that_is_followed_becomes_an_item() {
    let preamble = r#"{"input":"<environment_context>x</environment_context>"}"#;
    let events = Format::OpenaiResponses.decode_request(preamble).unwrap();
    assert_eq!(Format::OpenaiResponses.encode(&events, EncodeMode::AsRecorded).unwrap().body, preamble);

    let mut events = Format::OpenaiResponses.decode_request(r#"{"input":"caf\u00e9"}"#).unwrap();
    events.push(openai_responses::item(r#"{"role":"assistant","content":"yes"}"#).unwrap());
    assert_eq!(
        Format::OpenaiResponses.encode(&events, EncodeMode::Legal).unwrap().body,
        r#"{"input":[{"role":"user","content":"caf\u00e9"},{"role":"assistant","content":"yes"}]}"#
    );
}

#[test]
fn a_damaged_log_is_told_and_not_sent() {
    let mut event = anthropic::message(r#"{"role":"user","content":"x"}"#).unwrap();
    event.raw.json = "{".into();
    let error = Format::Anthropic.encode([&event], EncodeMode::Legal).unwrap_err();
    assert!(error.to_string().contains("event 0"), "{error}");
    // Another format writes what the event says, and does not need its bytes.
    assert!(Format::OpenaiChat.encode([&event], EncodeMode::Legal).is_ok());
}

#[test]
fn answers_that_repeat_themselves_are_told_apart() {
    let items = [
        json!({"type": "function_call", "call_id": "call_1", "name": "t", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "call_1", "output": "r"}),
    ];
    let request = json!({"input": [items[0], items[1], items[0], items[1]]}).to_string();
    let events = Format::OpenaiResponses.decode_request(&request).unwrap();
    let answers: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.fact {
            epitome_core::Fact::AssistantSaid { answer, .. } => answer.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(answers.len(), 2);
    assert_ne!(answers[0], answers[1]);
}

#[test]
fn many_calls_in_one_message_take_no_more_than_many_times_one() {
    const MANY: usize = 10_000;
    let calls: Vec<Value> = (0..MANY)
        .map(|id| json!({"type": "tool_use", "id": id.to_string(), "name": "t", "input": {}}))
        .collect();
    let results: Vec<Value> = (0..MANY)
        .map(|id| json!({"type": "tool_result", "tool_use_id": id.to_string(), "content": "r"}))
        .collect();
    let request = json!({"messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]})
    .to_string();
    let events = Format::Anthropic.decode_request(&request).unwrap();
    for format in crate::SCRIPTED {
        let written = format.encode(&events, EncodeMode::Legal).unwrap();
        assert!(written.body.len() > MANY * 20, "{format}");
    }
    assert_eq!(Format::Anthropic.encode(&events, EncodeMode::Legal).unwrap().body, request);
}

/// Values that look like messages in every format at once.
fn soup() -> impl Strategy<Value = Value> {
    let words = "assistant|user|system|tool|developer|function|text|tool_use|tool_result|thinking|image|message|reasoning|function_call|function_call_output|custom_tool_call|compaction|x|";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5..5i64).prop_map(Value::from),
        words.prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
    ];
    let keys = "role|type|content|text|id|call_id|tool_use_id|tool_call_id|name|input|arguments|output|tool_calls|function|function_call|source|image_url|url|thinking|summary|refusal|audio|usage|model|is_error";
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 1..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// What a format's own names for things are changed to nothing: every message must be carried through.
fn check_carried(format: Format, messages: &[Value]) -> Result<(), TestCaseError> {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let request = json!({"a": 1, key: messages, "tools": messages}).to_string();
    let events = format.decode_request(&request).unwrap();
    let recorded = format.encode(&events, EncodeMode::AsRecorded).unwrap();
    prop_assert_eq!(recorded.body, request);
    for other in crate::SCRIPTED {
        for completion in [EncodeMode::AsRecorded, EncodeMode::Legal] {
            let written = other.encode(&events, completion).unwrap().body;
            prop_assert!(serde_json::from_str::<Value>(&written).is_ok(), "{}", written);
            prop_assert!(other.decode_request(&written).is_ok());
        }
    }
    Ok(())
}

#[test]
fn a_call_with_a_broken_input_leaves_as_it_came_where_it_is_only_recorded() {
    for content in [json!({"type": "tool_use", "input": null}), json!([{"type": "tool_use", "input": "x"}])] {
        check_carried(Format::Anthropic, &[json!({ "content": content })]).unwrap();
        check_carried(Format::Anthropic, &[json!({ "role": "assistant", "content": content })]).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_request_holds_leaves_as_it_came(messages in prop::collection::vec(soup(), 0..6)) {
        for format in crate::SCRIPTED {
            check_carried(format, &messages)?;
        }
    }

    #[test]
    fn whatever_a_response_or_a_stream_holds_is_read(value in soup(), more in prop::collection::vec(soup(), 0..4)) {
        let response = json!({"id": "r", "role": "assistant", "content": value, "output": value, "choices": value, "usage": value});
        for format in crate::SCRIPTED {
            let read: Result<Vec<Event>, WireError> = format.decode_response(&response.to_string());
            let is_read = matches!(read, Ok(_) | Err(WireError::NoAnswer { .. }));
            prop_assert!(is_read);
            let mut stream = StreamDecoder::new(format);
            for (index, value) in more.iter().enumerate() {
                for event in [
                    json!({"type": "message_start", "message": value}),
                    json!({"type": "content_block_start", "index": index, "content_block": value}),
                    json!({"type": "content_block_delta", "index": index, "delta": value}),
                    json!({"type": "message_delta", "delta": value, "usage": value}),
                    json!({"choices": [{"index": 0, "delta": value}, value], "usage": value}),
                    json!({"type": "response.output_item.added", "output_index": index, "item": value}),
                    json!({"type": "response.content_part.added", "output_index": index, "part": value}),
                    json!({"type": "response.output_text.delta", "output_index": index, "delta": "x"}),
                    json!({"type": "response.completed", "response": value}),
                ] {
                    stream.push(format!("data: {event}\n\n").as_bytes());
                }
            }
            prop_assert!(stream.finish().is_ok());
        }
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in any::<String>()) {
        let _ = (anthropic::message(&text), openai_chat::message(&text), openai_responses::item(&text));
        for format in crate::SCRIPTED {
            let _ = (format.decode_request(&text), format.decode_response(&text));
            let mut stream = StreamDecoder::new(format);
            stream.push(text.as_bytes());
            let _ = stream.finish();
        }
    }
}
