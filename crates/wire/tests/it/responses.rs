//! Whole responses, and that an answer is recognised when it is sent back.

use epitome_core::{Digest, Event, Fact, Tokens, event::Usage};
use epitome_wire::{EncodeMode, Format, WireError, anthropic, openai_chat, openai_responses};

fn decoded(format: Format, json: &str) -> Vec<Event> {
    format.decode_response(json).unwrap()
}

fn usage(uncached: u64, cache_read: u64, cache_write: u64, cache_write_hour: u64, output: u64) -> Usage {
    Usage {
        uncached: Tokens(uncached),
        cache_read: Tokens(cache_read),
        cache_write: Tokens(cache_write),
        cache_write_hour: Tokens(cache_write_hour),
        output: Tokens(output),
    }
}

#[test]
fn usage_is_split_so_that_nothing_is_counted_twice() {
    let check = |format: Format, json: &str, expect: Usage| {
        let read = match format {
            Format::OpenaiChat => openai_chat::usage(json),
            Format::OpenaiResponses => openai_responses::usage(json),
            Format::Anthropic => anthropic::usage(json),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        assert_eq!(read.unwrap(), expect, "{json}");
    };
    check(
        Format::OpenaiChat,
        r#"{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},"completion_tokens_details":{"reasoning_tokens":5}}"#,
        usage(10, 60, 30, 0, 7),
    );
    check(Format::OpenaiChat, r#"{"prompt_tokens":10,"prompt_cache_hit_tokens":4}"#, usage(6, 4, 0, 0, 0));
    check(
        Format::OpenaiChat,
        r#"{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":99,"cache_write_tokens":99}}"#,
        usage(0, 10, 0, 0, 0),
    );
    check(Format::OpenaiChat, r#"{"prompt_tokens":null,"prompt_tokens_details":null}"#, usage(0, 0, 0, 0, 0));
    check(
        Format::OpenaiResponses,
        r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":5}}"#,
        usage(40, 60, 0, 0, 7),
    );
    check(
        Format::Anthropic,
        r#"{"input_tokens":10,"cache_read_input_tokens":60,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":7}"#,
        usage(10, 60, 30, 20, 7),
    );
    check(
        Format::Anthropic,
        r#"{"input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":20}}"#,
        usage(1, 0, 20, 20, 0),
    );
    check(
        Format::Anthropic,
        r#"{"input_tokens":18446744073709551615,"output_tokens":-3}"#,
        usage(u64::MAX, 0, 0, 0, 0),
    );
    assert!(matches!(anthropic::usage("[]"), Err(WireError::NotAnObject { found: "an array", .. })));
}

#[test]
fn a_response_is_an_answer_and_what_it_used() {
    let events = decoded(
        Format::OpenaiResponses,
        r#"{"id":"resp_1","model":"m","created_at":5,"instructions":"long","output":[{"type":"reasoning","id":"rs","summary":[]},{"type":"function_call","call_id":"c","name":"t","arguments":"{}"}],"usage":{"input_tokens":2,"output_tokens":1}}"#,
    );
    let answers = events.iter().map(|event| match &event.fact {
        Fact::AssistantSaid { answer, model, .. } | Fact::UsageReported { answer, model, .. } => {
            (answer.clone().unwrap().0, model.clone().unwrap().0, event.time)
        }
        other => panic!("unexpected {other:?}"),
    });
    assert_eq!(answers.collect::<Vec<_>>(), vec![("resp_1".into(), "m".into(), None); 3]);
    assert_eq!(events[2].normal, None);
    assert_eq!(
        &*events[2].raw.json,
        r#"{"id":"resp_1","model":"m","created_at":5,"instructions":null,"output":null,"usage":{"input_tokens":2,"output_tokens":1}}"#
    );
}

#[test]
fn only_the_first_choice_is_the_answer_and_nothing_is_lost() {
    let events = decoded(
        Format::OpenaiChat,
        r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"a"}},{"index":1,"message":{"role":"assistant","content":"b"}}],"x":1}"#,
    );
    let kinds: Vec<&str> = events.iter().map(|event| event.fact.kind()).collect();
    assert_eq!(kinds, ["assistant_said", "carried", "carried"]);
    assert!(events[1].raw.json.contains("\"b\"") && events[1].normal.is_none());
    assert_eq!(&*events[2].raw.json, r#"{"id":"c","choices":null,"x":1}"#);
    let sent = Format::OpenaiChat.encode(&events, EncodeMode::AsRecorded).unwrap();
    assert_eq!(sent.body, r#"{"messages":[{"role":"assistant","content":"a"}]}"#);
}

#[test]
fn an_error_is_not_an_answer() {
    let check = |format: Format, json: &str, expect: &str| {
        let error = format.decode_response(json).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(Format::Anthropic, r#"{"type":"error","error":{"type":"x","message":"Overloaded"}}"#, "Overloaded");
    check(
        Format::OpenaiChat,
        r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#,
        "too long",
    );
    check(Format::OpenaiResponses, r#"{"id":"r","error":"broken","output":[]}"#, "broken");
    check(Format::OpenaiChat, "[]", "expected a JSON object, found an array");
    check(Format::OpenaiChat, "{", "not one complete JSON value");
}

/// The digest of the first event of a response, and of the same answer as a client sends it.
fn check_echo(format: Format, response: &str, echo: &str, same: bool) {
    let received = decoded(format, response).remove(0).normal;
    let echoed: Option<Digest> = match format {
        Format::OpenaiChat => openai_chat::message(echo),
        Format::OpenaiResponses => openai_responses::item(echo),
        Format::Anthropic => anthropic::message(echo),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    .unwrap()
    .normal;
    assert_eq!(received == echoed, same, "{response}\n{echo}");
}

#[test]
fn an_answer_is_recognised_when_a_client_sends_it_back() {
    check_echo(
        Format::Anthropic,
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1}}"#,
        r#"{"role":"assistant","content":"hi"}"#,
        true,
    );
    let chat = r#"{"id":"c","choices":[{"message":{"role":"assistant","content":null,"refusal":null,"annotations":[],"provider_specific":{"x":1},"tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{ \"b\": 1, \"a\": 2.0 }"}}]}}]}"#;
    check_echo(
        Format::OpenaiChat,
        chat,
        r#"{"role":"assistant","content":"","tool_calls":[{"type":"function","id":"a","function":{"name":"t","arguments":"{\"a\":2,\"b\":1}"}}]}"#,
        true,
    );
    check_echo(
        Format::OpenaiChat,
        chat,
        r#"{"role":"assistant","tool_calls":[{"type":"function","id":"a","function":{"name":"t","arguments":"{\"a\":2,\"b\":3}"}}]}"#,
        false,
    );
    check_echo(
        Format::OpenaiChat,
        r#"{"id":"c","choices":[{"message":{"role":"assistant","content":null,"audio":{"id":"au","data":"aGk=","transcript":"hi","expires_at":1}}}]}"#,
        r#"{"role":"assistant","audio":{"id":"au"}}"#,
        true,
    );
    check_echo(
        Format::OpenaiResponses,
        r#"{"id":"r","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[],"logprobs":[]}]}]}"#,
        r#"{"role":"assistant","content":[{"type":"output_text","text":"hi"}]}"#,
        true,
    );
    check_echo(
        Format::OpenaiResponses,
        r#"{"id":"r","output":[{"type":"function_call","id":"fc_1","call_id":"c","name":"t","namespace":"n","arguments":"{\"a\": 1}","status":"completed"}]}"#,
        r#"{"type":"function_call","call_id":"c","name":"t","namespace":"n","arguments":"{\"a\":1}"}"#,
        true,
    );
    check_echo(
        Format::OpenaiResponses,
        r#"{"id":"r","output":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"g","content":null,"status":null}]}"#,
        r#"{"type":"reasoning","summary":[],"encrypted_content":"h"}"#,
        false,
    );
}

#[test]
fn an_answer_goes_back_as_a_request_may_hold_it_with_the_same_inner_bytes() {
    let check = |format: Format, response: &str, expect: &str| {
        let events = decoded(format, response);
        assert_eq!(format.encode(&events, EncodeMode::AsRecorded).unwrap().body, expect);
    };
    check(
        Format::Anthropic,
        r#"{"id":"m","type":"message","role":"assistant","content":[ {"type":"text","text":"caf\u00e9"} ],"usage":{}}"#,
        r#"{"messages":[{"role":"assistant","content":[ {"type":"text","text":"caf\u00e9"} ]}]}"#,
    );
    check(
        Format::OpenaiChat,
        r#"{"id":"c","choices":[{"message":{"role":"assistant","content":null,"refusal":null,"annotations":[],"audio":{"id":"au","data":"aGk="},"tool_calls":[ {"id":"a" ,"type":"function","function":{"name":"t","arguments":"{}"}} ],"reasoning_content":"h\u006d"}}]}"#,
        r#"{"messages":[{"role":"assistant","content":null,"audio":{"id":"au"},"tool_calls":[ {"id":"a" ,"type":"function","function":{"name":"t","arguments":"{}"}} ],"reasoning_content":"h\u006d"}]}"#,
    );
    check(
        Format::OpenaiResponses,
        r#"{"id":"r","output":[{"type":"reasoning" ,"id":"rs","summary":[],"status":null}]}"#,
        r#"{"input":[{"type":"reasoning" ,"id":"rs","summary":[],"status":null}]}"#,
    );
}
