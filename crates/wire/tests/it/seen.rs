//! A request that is seen says the same as one that is read, and is recognised by what clients leave as it is.

use epitome_core::{Digest, Event, Fact};
use epitome_wire::{
    Format, StreamDecoder, WireError,
    incoming::{HistoryUnit, IncomingRequest, MessageMemo, PriorHistory, UnitSpeaker, with_unit_digests},
};
use serde_json::{Value, json};

use crate::fixtures;

fn see<'a>(format: Format, body: &'a str, memo: &MessageMemo) -> IncomingRequest<'a> {
    IncomingRequest::read(format, body, memo).unwrap()
}

fn units(format: Format, body: &str) -> Vec<HistoryUnit> {
    see(format, body, &MessageMemo::default()).units().to_vec()
}

/// The request whose history is `items`.
fn request(format: Format, items: &Value) -> String {
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    json!({ "model": "m", key: items }).to_string()
}

fn digests(units: &[HistoryUnit]) -> Vec<Digest> {
    units.iter().map(|unit| unit.digest).collect()
}

fn silent(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        event.normal = None;
    }
    events
}

#[test]
fn a_request_that_is_seen_says_what_it_says_when_it_is_read() {
    for fixture in fixtures::requests() {
        let read = silent(fixture.format.decode_request(&fixture.text).unwrap());
        let memo = MessageMemo::default();
        // The second time everything is known, and is read again when it is asked for.
        for time in ["unknown", "known"] {
            let seen = see(fixture.format, &fixture.text, &memo);
            let (opening, events) = (seen.opening(), seen.events(0));
            let told = events.iter().filter_map(|event| event.normal);
            assert!(told.eq(digests(seen.units())), "{} {time}", fixture.name);
            assert!(opening.iter().all(|event| event.normal.is_none()));
            let all: Vec<Event> = opening.into_iter().chain(events.clone()).collect();
            assert_eq!(silent(all), read, "{} {time}", fixture.name);
            for from in 0..=seen.units().len() {
                let rest = seen.events(from);
                assert!(events.ends_with(&rest), "{} {time} {from}", fixture.name);
                let digests = rest.iter().filter(|event| event.normal.is_some()).count();
                assert_eq!(digests, seen.units().len() - from);
            }
            assert!(seen.events(usize::MAX).iter().all(|event| event.normal.is_none()));
            assert_eq!(
                seen.model(),
                fixture.format.decode_request(&fixture.text).unwrap()[0..1]
                    .iter()
                    .find_map(epitome_wire::requested_model)
            );
        }
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let memo = MessageMemo::default();
    let check = |body: &str, expect: fn(&WireError) -> bool| {
        for format in crate::SCRIPTED {
            let error = IncomingRequest::read(format, body, &memo).unwrap_err();
            assert!(expect(&error), "{body:.60} {error:?}");
        }
    };
    let no_json = |error: &WireError| matches!(error, WireError::NotJson { .. });
    let key_of = |value: &str| format!(r#"{{"messages":[{value}],"input":[{value}]}}"#);
    for body in ["", "{", "{]", r#"{"a":1}x"#, r#"{"metadata":{"a":tru}}"#, r#"{"tools":[01]}"#] {
        check(body, no_json);
    }
    for item in ["{\"role\":\"user\"", "nul", r#"{"role":user}"#, "{]", "1,", "\"\\x\"", "\"\n\""] {
        check(&key_of(item), no_json);
    }
    check("[]", |error| matches!(error, WireError::NotAnObject { .. }));
    let deep = |depth: usize| key_of(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    check(&deep(200), |error| matches!(error, WireError::TooDeep { .. } | WireError::NotJson { .. }));
    check(&deep(1_000_000), |error| matches!(error, WireError::TooDeep { .. } | WireError::NotJson { .. }));
    // The same bytes are refused again.
    check(&key_of("nul"), no_json);
}

#[test]
fn settings_are_told_and_what_changes_from_call_to_call_is_no_instruction() {
    let memo = MessageMemo::default();
    let body = |rest: &str| {
        format!(
            r#"{{"model":"m","stream":true,"system":"Be kind.","tools":[{{"name":"t"}}],"messages":[]{rest}}}"#
        )
    };
    let first = body(r#","metadata":{"user_id":"a"},"max_tokens":32000"#);
    let seen = see(Format::Anthropic, &first, &memo);
    assert!(seen.wants_stream());
    assert_eq!(seen.model().unwrap().to_string(), "m");
    let check = |rest: &str, same: bool| {
        let body = body(rest);
        assert_eq!(
            see(Format::Anthropic, &body, &memo).instructions() == seen.instructions(),
            same,
            "{rest}"
        );
    };
    check("", true);
    check(r#","max_tokens":9000,"stream":false,"metadata":{"user_id":"b"}"#, true);
    check(r#","system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}]"#, true);
    check(r#","system":"Be kinder.""#, false);
    check(r#","tools":[]"#, false);
    check(r#","thinking":{"type":"enabled"}"#, false);
    let chat = |system: &str, key: &str| {
        let body = json!({ "messages": [{ "role": "system", "content": system }, { "role": "user", "content": "hi" }], "prompt_cache_key": key });
        let body = body.to_string();
        let seen = see(Format::OpenaiChat, &body, &memo);
        (seen.instructions(), seen.units().to_vec(), seen.opening().len())
    };
    let (one, other, changed) = (chat("a", "k"), chat("a", "l"), chat("b", "k"));
    assert_eq!(one, other);
    assert_ne!(one.0, changed.0);
    assert_eq!((one.1, one.2), (changed.1, changed.2));
}

#[test]
fn a_request_says_what_its_history_follows() {
    let check = |body: &str, expect: PriorHistory| {
        assert_eq!(see(Format::OpenaiResponses, body, &MessageMemo::default()).follows(), expect, "{body}");
    };
    check(r#"{"input":"hi"}"#, PriorHistory::Nothing);
    check(r#"{"previous_response_id":null,"conversation":null}"#, PriorHistory::Nothing);
    check(r#"{"previous_response_id":"","conversation":{"id":""}}"#, PriorHistory::Nothing);
    check(r#"{"previous_response_id":"resp_1","conversation":"c"}"#, PriorHistory::Response("resp_1".into()));
    check(r#"{"conversation":"conv_1"}"#, PriorHistory::Conversation("conv_1".into()));
    check(r#"{"conversation":{"id":"conv_1"}}"#, PriorHistory::Conversation("conv_1".into()));
}

#[test]
fn what_no_client_need_send_back_belongs_to_the_unit_after_it() {
    let memo = MessageMemo::default();
    let body = request(
        Format::OpenaiResponses,
        &json!([
            { "role": "developer", "content": "Be kind." },
            { "type": "item_reference", "id": "msg_1" },
            { "role": "user", "content": "hi" },
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
            { "type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "ok" },
            { "role": "developer", "content": "Stay kind." },
            { "role": "assistant", "content": [] },
            { "type": "compaction", "encrypted_content": "gAAA" },
            { "type": "compaction_trigger" },
        ]),
    );
    let seen = see(Format::OpenaiResponses, &body, &memo);
    assert_eq!(seen.references(), ["msg_1"]);
    let speakers: Vec<UnitSpeaker> = seen.units().iter().map(|unit| unit.speaker).collect();
    assert_eq!(
        speakers,
        [UnitSpeaker::User, UnitSpeaker::Model, UnitSpeaker::Tools, UnitSpeaker::System, UnitSpeaker::Model]
    );
    let kinds =
        |from: usize| -> Vec<bool> { seen.events(from).iter().map(|event| event.normal.is_some()).collect() };
    assert_eq!(kinds(0), [false, true, false, true, true, true, false, true, false]);
    assert_eq!(kinds(1), [false, true, true, true, false, true, false]);
    assert_eq!(kinds(5), [false]);
    assert_eq!(seen.opening().len(), 2);
    let Fact::AssistantSaid { answer, .. } = &seen.events(1)[1].fact else { panic!("a call") };
    assert_eq!(answer.as_ref().unwrap().to_string(), "rs_1");
}

#[test]
fn a_bare_input_is_the_message_it_stands_for() {
    let bare = r#"{"input":"h\u0069"}"#;
    assert_eq!(
        units(Format::OpenaiResponses, bare),
        units(
            Format::OpenaiResponses,
            &request(
                Format::OpenaiResponses,
                &json!([{ "type": "message", "role": "user", "id": "msg_9", "content": [{ "type": "input_text", "text": "hi" }] }])
            )
        )
    );
    let memo = MessageMemo::default();
    for _ in 0..2 {
        let seen = see(Format::OpenaiResponses, bare, &memo);
        assert_eq!(&*seen.events(0)[0].raw.json, r#""h\u0069""#);
        assert_eq!(&*seen.opening()[0].raw.json, r#"{"input":null}"#);
    }
    assert!(units(Format::OpenaiChat, r#"{"messages":"hi"}"#).is_empty());
}

#[test]
fn agents_preambles_stay_units_and_are_read_as_instructions() {
    let body = request(
        Format::OpenaiResponses,
        &json!([
            { "role": "user", "content": "# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>" },
            { "role": "user", "content": "<environment_context>\n<cwd>/src</cwd>\n</environment_context>" },
            { "role": "user", "content": "Fix it" },
            { "role": "user", "content": "<environment_context>\n<cwd>/doc</cwd>\n</environment_context>" },
        ]),
    );
    let memo = MessageMemo::default();
    for _ in 0..2 {
        let seen = see(Format::OpenaiResponses, &body, &memo);
        assert_eq!(seen.units().len(), 4);
        let kinds: Vec<&str> = seen.events(1).iter().map(|event| event.fact.kind()).collect();
        assert_eq!(kinds, ["instructed", "user_said", "user_said"]);
    }
}

/// An answer as it came, and how clients send it back.
struct Echo {
    format: Format,
    answer: Value,
    echoes: Vec<Value>,
}

fn echoes() -> Vec<Echo> {
    let chat = |message: Value| json!({ "id": "c", "model": "m", "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    let arguments = "{ \"_x\": 1,  \"command\" : \"printf 'h\\u00e9 \\/ \\u003c'\" }";
    let compact = r#"{"_x":1,"command":"printf 'hé / <'"}"#;
    let call = |arguments: &str| json!([{ "id": "call_1", "type": "function", "function": { "name": "bash", "arguments": arguments } }]);
    let input = json!({ "_x": 1, "command": "printf 'hé / <'" });
    vec![
        Echo {
            format: Format::OpenaiChat,
            answer: chat(
                json!({ "role": "assistant", "content": null, "refusal": null, "annotations": [], "reasoning_content": "hm", "tool_calls": call(arguments) }),
            ),
            echoes: vec![
                json!([{ "role": "assistant", "content": null, "tool_calls": call(arguments) }]),
                json!([{ "role": "assistant", "content": "", "tool_calls": call(compact) }]),
                json!([{ "role": "assistant", "reasoning_content": "hm", "tool_calls": call(compact) }]),
                json!([{ "role": "assistant", "reasoning": "hm", "reasoning_details": [{ "text": "hm" }], "content": [], "tool_calls": call(compact) }]),
            ],
        },
        Echo {
            format: Format::OpenaiChat,
            answer: chat(json!({ "role": "assistant", "content": "\n\nHello. ", "tool_calls": [] })),
            echoes: vec![
                json!([{ "role": "assistant", "content": "\n\nHello. " }]),
                json!([{ "role": "assistant", "content": "Hello." }]),
                json!([{ "role": "assistant", "content": [{ "type": "text", "text": "Hello.", "cache_control": { "type": "ephemeral" } }] }]),
            ],
        },
        Echo {
            format: Format::Anthropic,
            answer: json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
                "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "s" },
                    { "type": "redacted_thinking", "data": "d" },
                    { "type": "text", "text": "Let me see.\n", "citations": null },
                    { "type": "tool_use", "id": "toolu_1", "name": "bash", "input": input, "caller": { "type": "direct" } },
                ],
                "usage": { "input_tokens": 1, "output_tokens": 1 } }),
            echoes: vec![
                json!([{ "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "hm", "signature": "s" },
                    { "type": "redacted_thinking", "data": "d" },
                    { "type": "text", "text": "Let me see.\n" },
                    { "type": "tool_use", "id": "toolu_1", "name": "bash", "input": input, "cache_control": { "type": "ephemeral" } },
                ] }]),
                json!([{ "role": "assistant", "content": [
                    { "type": "text", "text": "Let me see." },
                    { "type": "tool_use", "name": "bash", "input": input, "id": "toolu_1" },
                ] }]),
            ],
        },
        Echo {
            format: Format::Anthropic,
            answer: json!({ "id": "msg_2", "type": "message", "role": "assistant", "content": [{ "type": "text", "text": "Done." }], "usage": {} }),
            echoes: vec![
                json!([{ "role": "assistant", "content": "Done." }]),
                json!([{ "role": "assistant", "content": [{ "type": "text", "text": "Done.", "cache_control": { "type": "ephemeral" } }] }]),
            ],
        },
        Echo {
            format: Format::OpenaiResponses,
            answer: json!({ "id": "resp_1", "status": "completed", "output": [
                { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
                { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
                  "content": [{ "type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": [] }] },
                { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "spawn", "namespace": "agents", "arguments": arguments, "status": "completed" },
                { "type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "patch", "input": "*** Begin", "status": "completed" },
            ] }),
            echoes: vec![
                // Codex: everything, byte for byte.
                json!([
                    { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
                    { "type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": [{ "type": "output_text", "text": "Let me see." }] },
                    { "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "spawn", "namespace": "agents", "arguments": arguments },
                    { "type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "patch", "input": "*** Begin", "status": "completed" },
                ]),
                // OpenCode: no ids, arguments written anew.
                json!([
                    { "role": "assistant", "content": [{ "type": "output_text", "text": "Let me see." }] },
                    { "type": "function_call", "call_id": "call_1", "name": "spawn", "namespace": "agents", "arguments": compact },
                    { "type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** Begin" },
                ]),
                json!([
                    { "role": "assistant", "content": "Let me see." },
                    { "type": "reasoning", "summary": [], "encrypted_content": "x" },
                    { "type": "function_call", "call_id": "call_1", "name": "spawn", "namespace": "agents", "arguments": compact },
                    { "type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** Begin" },
                ]),
            ],
        },
    ]
}

#[test]
fn an_answer_is_recognised_however_a_client_sends_it_back() {
    for Echo { format, answer, echoes } in echoes() {
        let events = format.decode_response(&answer.to_string()).unwrap();
        let told: Vec<Digest> =
            with_unit_digests(format, events).iter().filter_map(|event| event.normal).collect();
        assert!(!told.is_empty());
        for echo in echoes {
            assert_eq!(digests(&units(format, &request(format, &echo))), told, "{echo}");
        }
    }
}

#[test]
fn an_answer_is_recognised_by_every_word_of_it() {
    let check = |format: Format, one: Value, other: Value| {
        assert_ne!(
            units(format, &request(format, &one)),
            units(format, &request(format, &other)),
            "{one} {other}"
        );
    };
    for Echo { format, echoes, .. } in echoes() {
        for (from, to) in [
            ("Hello", "Hallo"),
            ("see", "sea"),
            ("Done", "Gone"),
            ("call_1", "call_9"),
            ("toolu_1", "toolu_9"),
            ("bash", "dash"),
            ("printf", "print"),
            ("agents", "spies"),
            ("Begin", "End"),
        ] {
            let echo = echoes[0].to_string();
            if echo.contains(from) {
                check(format, echoes[0].clone(), serde_json::from_str(&echo.replace(from, to)).unwrap());
            }
        }
    }
    let result = |content: Value, error: Value| json!([{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": content, "is_error": error }] }]);
    check(Format::Anthropic, result(json!("a"), json!(false)), result(json!("b"), json!(false)));
    check(Format::Anthropic, result(json!("a"), json!(false)), result(json!("a"), json!(true)));
    check(
        Format::OpenaiChat,
        json!([{ "role": "user", "content": "a" }]),
        json!([{ "role": "assistant", "content": "a" }]),
    );
    check(
        Format::OpenaiChat,
        json!([{ "role": "assistant", "content": "no" }]),
        json!([{ "role": "assistant", "refusal": "no" }]),
    );
}

#[test]
fn a_streamed_answer_is_recognised_as_the_same_in_one_piece() {
    for (stream, response) in fixtures::streams() {
        let mut decoder = StreamDecoder::new(stream.format);
        assert!(!decoder.is_over());
        decoder.push(stream.text.as_bytes());
        decoder.push(b"\n\n");
        // Some servers just end.
        let says_so = stream.format != Format::OpenaiChat || stream.text.contains("[DONE]");
        assert_eq!(decoder.is_over(), says_so, "{}", stream.name);
        let streamed = with_unit_digests(stream.format, decoder.finish().unwrap().events);
        let whole = with_unit_digests(stream.format, stream.format.decode_response(&response).unwrap());
        let digests =
            |events: &[Event]| -> Vec<Option<Digest>> { events.iter().map(|event| event.normal).collect() };
        assert_eq!(digests(&streamed), digests(&whole), "{}", stream.name);
    }
}

#[test]
fn a_stream_is_over_with_its_last_word_and_not_before() {
    let check = |format: Format, stream: &str, over: bool| {
        let mut decoder = StreamDecoder::new(format);
        decoder.push(stream.as_bytes());
        assert_eq!(decoder.is_over(), over, "{stream}");
    };
    let finish = r#"data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    check(Format::OpenaiChat, &format!("{finish}\n\n"), false);
    check(Format::OpenaiChat, &format!("{finish}\n\ndata: [DONE]\n\n"), true);
    check(Format::OpenaiChat, "data: {\"error\":{\"message\":\"no\"}}\n\n", true);
    check(
        Format::Anthropic,
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
        false,
    );
    check(Format::Anthropic, "data: {\"type\":\"message_stop\"}\n\n", true);
    check(Format::Anthropic, "data: {\"type\":\"error\",\"error\":{\"message\":\"no\"}}\n\n", true);
    for kind in ["completed", "incomplete", "failed"] {
        check(
            Format::OpenaiResponses,
            &format!("data: {{\"type\":\"response.{kind}\",\"response\":{{}}}}\n\n"),
            true,
        );
    }
    check(Format::OpenaiResponses, "data: {\"type\":\"response.output_item.done\",\"item\":{}}\n\n", false);
    check(Format::OpenaiResponses, "data: [DONE]\n\n", false);
}

#[test]
fn a_history_that_begins_with_a_summary_says_where() {
    let summary = "<analysis>thought</analysis>\n<summary>\n1. The parser was mended.\n2. Tests pass, all of them.\n</summary>";
    let check = |format: Format, items: Value, summary: &str, expect: Option<usize>| {
        let body = request(format, &items);
        let memo = MessageMemo::default();
        for _ in 0..2 {
            assert_eq!(see(format, &body, &memo).find_summary(summary), expect, "{items}");
        }
    };
    check(
        Format::Anthropic,
        json!([
            { "role": "user", "content": [{ "type": "text", "text": "This session is being continued …\n\nSummary:\n1. The parser was mended.\n2.   Tests pass, all of them.\n\nRead the transcript at …" }] },
            { "role": "assistant", "content": "Going on." },
        ]),
        summary,
        Some(0),
    );
    check(
        Format::OpenaiChat,
        json!([
            { "role": "system", "content": "Be kind." },
            { "role": "user", "content": "What did we do so far?" },
            { "role": "assistant", "content": "The parser was mended, and tests pass." },
            { "role": "user", "content": "Continue if you have next steps" },
        ]),
        "The parser was mended,  and tests pass.",
        Some(1),
    );
    check(
        Format::OpenaiResponses,
        json!([
            { "role": "user", "content": "Fix it" },
            { "role": "user", "content": "Another language model started …:\nThe parser was mended, and tests pass." },
        ]),
        "The parser was mended, and tests pass.",
        Some(1),
    );
    check(
        Format::OpenaiResponses,
        json!([{ "role": "user", "content": "Fix it" }, { "type": "compaction", "encrypted_content": "gA" }]),
        "gA",
        Some(1),
    );
    check(Format::OpenaiResponses, json!([{ "type": "compaction", "encrypted_content": "gA" }]), "gB", None);
    check(Format::OpenaiChat, json!([{ "role": "user", "content": "Done." }]), "Done.", None);
    check(Format::OpenaiChat, json!([{ "role": "user", "content": "Fix it" }]), summary, None);
    check(
        Format::OpenaiChat,
        json!([{ "role": "tool", "tool_call_id": "c", "content": "The parser was mended, and tests pass." }]),
        "The parser was mended, and tests pass.",
        None,
    );
    check(Format::OpenaiChat, json!([]), "", None);
}
