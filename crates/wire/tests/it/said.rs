//! Plain words become the events that a client's request which says the same would have become.

use std::fmt::Write as _;

use epitome_core::{
    Event, Fact,
    event::{CallForm, InstructionKind, ToolCall},
};
use epitome_wire::{
    EncodeMode, FinishReason, Format, ModelAnswer, StreamEnding, WireError,
    legality::{ProviderRules, check},
    message_builder::{ToolResultInput, ToolResultStatus, UserContent},
};

use crate::fixtures;

/// A request with one message, and what stands before it.
fn request(format: Format, message: &str) -> String {
    match format {
        Format::OpenaiChat | Format::Anthropic => format!(r#"{{"messages":[{message}]}}"#),
        Format::OpenaiResponses => format!(r#"{{"input":[{message}]}}"#),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

/// The newest event of a request that holds nothing but the message `said` came from.
fn sent(format: Format, said: &Event) -> Event {
    format.decode_request(&request(format, &said.raw.json)).unwrap().pop().unwrap()
}

#[test]
fn a_users_words_are_the_message_a_client_would_send() {
    for format in crate::SCRIPTED {
        for text in ["hi", "", "two\nlines \"quoted\" \u{1f600} \\ \u{0}", "<b>&amp;</b>"] {
            let said = format.say_user(text);
            assert_eq!(said, sent(format, &said), "{format} {text}");
            assert_eq!(said.fact.text(), text);
            assert_eq!(said.raw.dialect, format.dialect());
            // The usual SDK's way to write it has the same digest.
            let sdk = match format {
                Format::OpenaiResponses => {
                    format!(
                        r#"{{"role":"user","content":[{{"type":"input_text","text":{}}}]}}"#,
                        serde_json::to_string(text).unwrap()
                    )
                }
                _ => format!(r#"{{"content":{},"role":"user"}}"#, serde_json::to_string(text).unwrap()),
            };
            let read = format.decode_request(&request(format, &sdk)).unwrap().pop().unwrap();
            assert_eq!(read.normal, said.normal, "{format} {text}");
        }
        let said = format.say_user("<system-reminder>mine</system-reminder>");
        assert!(matches!(said.fact, Fact::UserSaid { .. }), "what a caller says is the user's");
    }
}

#[test]
fn pieces_are_text_and_images() {
    for format in crate::SCRIPTED {
        let pieces = [
            UserContent::Text("look"),
            UserContent::Image { mime: "image/png", bytes: b"\x89PNG" },
            UserContent::ImageUrl("https://example.org/a.png"),
        ];
        let said = format.say_parts(&pieces);
        assert_eq!(said, sent(format, &said));
        assert_eq!(said.fact.media().count(), 2, "{format}");
        assert_eq!(said.fact.text(), "look");
    }
}

#[test]
fn system_prompt_tools_and_settings_stand_where_the_format_has_them() {
    let tools = |format: Format| match format {
        Format::OpenaiChat => r#"[ {"type":"function","function":{"name":"f","parameters":{}}} ]"#,
        Format::OpenaiResponses => r#"[{"type":"function","name":"f","parameters":{}}]"#,
        Format::Anthropic => r#"[{"name":"f","input_schema":{"type":"object"}}]"#,
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    for format in crate::SCRIPTED {
        let settings = format.say_settings(r#" {"model":"m", "temperature":1.0} "#).unwrap();
        let events = [
            settings,
            format.say_system("Be kind."),
            format.say_tools(tools(format)).unwrap(),
            format.say_user("hi"),
        ];
        let encoded = format.encode(&events, EncodeMode::Legal).unwrap();
        let decoded = format.decode_request(&encoded.body).unwrap();
        assert!(encoded.body.starts_with(r#"{"model":"m", "temperature":1.0,"#), "{}", encoded.body);
        let sorted = |events: &[Event]| {
            let mut rest: Vec<_> = events[1..].iter().map(|event| format!("{event:?}")).collect();
            rest.sort();
            rest
        };
        assert_eq!(sorted(&decoded), sorted(&events), "{format}");
        let named = matches!(&events[2].fact, Fact::Instructed { what: InstructionKind::Tools, parts } if parts.len() == 1);
        assert!(named);
    }
}

#[test]
fn what_is_no_list_of_tools_and_no_setting_is_refused() {
    for format in crate::SCRIPTED {
        let check = |json: &str| {
            assert!(matches!(format.say_tools(json), Err(WireError::NotAList { .. })), "{json}");
        };
        check("[]");
        check("{}");
        check("null");
        assert!(matches!(format.say_tools("[{},1]"), Err(WireError::NotAnObject { .. })));
        assert!(matches!(format.say_tools("[1"), Err(WireError::NotJson { .. })));
        assert!(matches!(format.say_settings("[]"), Err(WireError::NotAnObject { .. })));
        let history = if format == Format::OpenaiResponses { "input" } else { "messages" };
        let check = |key: &'static str| {
            let refused = format.say_settings(&format!(r#"{{"model":"m","{key}":[{{}}]}}"#)).unwrap_err();
            assert!(matches!(refused, WireError::NotASetting { key: found } if found == key), "{refused}");
            assert!(format.say_settings(&format!(r#"{{"model":"m","{key}":null}}"#)).is_ok());
        };
        check(history);
        check("tools");
    }
}

#[test]
fn results_answer_their_calls() {
    let one = ToolCall::function("call_1", "read", "{}");
    let other = ToolCall { form: CallForm::Custom, ..ToolCall::function("call_2", "patch", "x") };
    let results = [
        ToolResultInput { call: &one, text: "found", ended: ToolResultStatus::Well },
        ToolResultInput { call: &other, text: "no \"such\" file", ended: ToolResultStatus::Badly },
    ];
    for format in crate::SCRIPTED {
        let said = format.say_results(&results);
        assert_eq!(said.len(), if format == Format::Anthropic { 1 } else { 2 });
        let all: Vec<_> = said.iter().flat_map(|event| event.fact.results()).collect();
        assert_eq!(all.iter().map(|result| result.call.0.as_str()).collect::<Vec<_>>(), ["call_1", "call_2"]);
        assert_eq!(all.iter().map(|result| result.error).collect::<Vec<_>>(), [false, true]);
        for event in &said {
            let sent = sent(format, event);
            assert_eq!((&sent.raw, sent.normal), (&event.raw, event.normal), "{format}");
            assert_eq!(sent.fact.text(), event.fact.text());
        }
        let alone = format.say_result(&one, "found", ToolResultStatus::Well);
        assert_eq!(alone, sent(format, &alone));
        assert!(format.say_results(&[]).is_empty());
    }
    let raw = |event: Event| event.raw.json.to_string();
    insta::assert_snapshot!(raw(Format::OpenaiResponses.say_result(&other, "no", ToolResultStatus::Badly)), @r#"{"type":"custom_tool_call_output","call_id":"call_2","output":"no"}"#);
    insta::assert_snapshot!(raw(Format::Anthropic.say_result(&one, "no", ToolResultStatus::Badly)), @r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"no","is_error":true}]}"#);
}

#[test]
fn an_answer_is_the_same_whole_and_streamed() {
    let mut told = String::new();
    for (stream, whole) in fixtures::streams() {
        let answered = stream.format.read_answer(&whole).unwrap();
        assert_eq!(answered.events, stream.format.decode_response(&whole).unwrap());
        assert_eq!(answered.ending, StreamEnding::Complete);
        let ModelAnswer { finish, calls, .. } = &answered;
        let calls: Vec<_> = calls.iter().map(|call| &*call.name.0).collect();
        writeln!(told, "{} {}: {finish:?} {calls:?} {:?}", stream.format, stream.name, answered.text())
            .unwrap();
        let streamed = stream.format.read_answer_stream(stream.text.as_bytes()).unwrap();
        assert_eq!(streamed.text(), answered.text());
        assert_eq!(streamed.calls, answered.calls);
        assert_eq!(
            (streamed.finish, streamed.model, streamed.usage, streamed.ending),
            (answered.finish, answered.model, answered.usage, answered.ending),
        );
    }
    insta::assert_snapshot!(told, @r#"
    openai-chat reasoning.sse: Some(Calls) ["t"] "The answer 😀"
    openai-chat tools.sse: Some(Calls) ["look", "smell", "patch"] ""
    openai-responses hosted.sse: Some(Stop) [] ""
    openai-responses tools.sse: Some(Calls) ["look", "patch"] "Café 😀"
    anthropic server.sse: Some(Stop) [] "Rust."
    anthropic tools.sse: Some(Calls) ["read", "now"] "Café \u{2028} 😀"
    "#);
}

#[test]
fn an_answer_says_why_it_ended() {
    let check = |format: Format, body: &str, expect: Option<FinishReason>| {
        assert_eq!(format.read_answer(body).unwrap().finish, expect, "{format} {body}");
    };
    let chat = |reason: &str| {
        format!(
            r#"{{"choices":[{{"message":{{"role":"assistant","content":"x"}},"finish_reason":{reason}}}]}}"#
        )
    };
    check(Format::OpenaiChat, &chat(r#""stop""#), Some(FinishReason::Stop));
    check(Format::OpenaiChat, &chat(r#""length""#), Some(FinishReason::Length));
    check(Format::OpenaiChat, &chat(r#""content_filter""#), Some(FinishReason::Refused));
    check(Format::OpenaiChat, &chat(r#""odd""#), Some(FinishReason::Other("odd".into())));
    check(Format::OpenaiChat, &chat("null"), None);
    let message = |reason: &str| {
        format!(
            r#"{{"type":"message","role":"assistant","content":[{{"type":"text","text":"x"}}],"stop_reason":"{reason}"}}"#
        )
    };
    check(Format::Anthropic, &message("end_turn"), Some(FinishReason::Stop));
    check(Format::Anthropic, &message("tool_use"), Some(FinishReason::Calls));
    check(Format::Anthropic, &message("max_tokens"), Some(FinishReason::Length));
    check(Format::Anthropic, &message("model_context_window_exceeded"), Some(FinishReason::Window));
    check(Format::Anthropic, &message("refusal"), Some(FinishReason::Refused));
    let response = |status: &str, kind: &str| {
        format!(
            r#"{{"output":[{{"type":"{kind}","role":"assistant","content":"x","call_id":"c","name":"f","arguments":"{{}}","status":"completed"}}],{status}}}"#
        )
    };
    let complete = r#""status":"completed""#;
    check(Format::OpenaiResponses, &response(complete, "message"), Some(FinishReason::Stop));
    check(Format::OpenaiResponses, &response(complete, "function_call"), Some(FinishReason::Calls));
    let cut = r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#;
    check(Format::OpenaiResponses, &response(cut, "message"), Some(FinishReason::Length));
    check(Format::OpenaiResponses, &response(cut, "function_call"), Some(FinishReason::Length));
}

#[test]
fn what_is_no_answer_is_an_error_and_half_of_one_says_so() {
    for format in crate::SCRIPTED {
        assert!(matches!(format.read_answer("{}"), Err(WireError::NothingSaid { .. })), "{format}");
        assert!(matches!(format.read_answer_stream(b""), Err(WireError::NothingSaid { .. })), "{format}");
        let failed = format.read_answer(r#"{"error":{"message":"busy"}}"#).unwrap_err();
        assert!(matches!(failed, WireError::NoAnswer { said, .. } if said == "busy"), "{format}");
    }
    let half =
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hel\"}}]}\n\n";
    let cut = Format::OpenaiChat.read_answer_stream(half).unwrap();
    assert_eq!((cut.text().as_str(), cut.ending, cut.finish), ("hel", StreamEnding::Cut, None));
    let broken = [half.as_slice(), b"data: {\"error\":{\"message\":\"out of memory\"}}\n\n"].concat();
    assert!(matches!(Format::OpenaiChat.read_answer_stream(&broken), Err(WireError::NoAnswer { .. })));
}

#[test]
fn a_loop_of_plain_words_makes_requests_that_decode_to_the_same_digests() {
    for (stream, whole) in fixtures::streams() {
        let format = stream.format;
        let answered = format.read_answer(&whole).unwrap();
        let mut events = vec![format.say_system("Be kind."), format.say_user("go")];
        events.extend(answered.events);
        let results: Vec<ToolResultInput<'_>> = answered
            .calls
            .iter()
            .map(|call| ToolResultInput { call, text: "done", ended: ToolResultStatus::Well })
            .collect();
        events.extend(format.say_results(&results));
        let legal = format.encode(&events, EncodeMode::Legal).unwrap().body;
        assert_eq!(check(format, &legal, &ProviderRules::of(format)), [], "{format} {legal}");
        // What a provider would not take back, such as a compaction amid an answer, is still part of what was said.
        let body = format.encode(&events, EncodeMode::AsRecorded).unwrap().body;
        let digests = |events: &[Event]| {
            let normal = events.iter().filter_map(|event| Some(event.normal?.to_string()));
            normal.collect::<Vec<_>>()
        };
        let sent = format.decode_request(&body).unwrap();
        assert_eq!(digests(&sent), digests(&events), "{format} {}\n{body}", stream.name);
        assert!(!body.contains("usage"), "what no client sends back is not sent: {body}");
    }
}
