//! Answers that are fed piece by piece: in whichever pieces, the log is that of the whole answer; and an answer that
//! broke off is in the log and not in the history.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use epitome::{
    AssistantAnswer, Event, Fact, Format, Session, SessionError, Tokens, ToolOutput, core::event::Timestamp,
    wire::WireError,
};
use serde_json::json;

use crate::agent;

/// A stream with thinking or none, text beyond ASCII, a call with arguments in pieces, and usage.
fn stream(format: Format) -> String {
    let events = match format {
        Format::OpenaiChat => vec![
            json!({"id": "a", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Zähle"}}]}),
            json!({"id": "a", "choices": [{"index": 0, "delta": {"content": " 数."}}]}),
            json!({"id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "id": "c", "type": "function", "function": {"name": "count", "arguments": ""}}]}}]}),
            json!({"id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "function": {"arguments": "{\"path\":"}}]}}]}),
            json!({"id": "a", "choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": 0, "function": {"arguments": "\"x\"}"}}]}}]}),
            json!({"id": "a", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"id": "a", "choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39}}),
        ],
        Format::OpenaiResponses => {
            let text = json!({"id": "t", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "Zähle 数.", "annotations": []}]});
            let call = json!({"id": "f", "type": "function_call", "status": "completed", "call_id": "c", "name": "count",
                "arguments": "{\"path\":\"x\"}"});
            vec![
                json!({"type": "response.created", "response": {"id": "a", "model": "m", "status": "in_progress", "output": []}}),
                json!({"type": "response.output_item.added", "output_index": 0,
                    "item": {"id": "t", "type": "message", "role": "assistant", "status": "in_progress", "content": []}}),
                json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0,
                    "part": {"type": "output_text", "text": "", "annotations": []}}),
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Zähle"}),
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": " 数."}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": text}),
                json!({"type": "response.output_item.added", "output_index": 1, "item": {"id": "f", "type": "function_call",
                    "status": "in_progress", "call_id": "c", "name": "count", "arguments": ""}}),
                json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"path\":\"x\"}"}),
                json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
                json!({"type": "response.completed", "response": {"id": "a", "model": "m", "status": "completed",
                    "output": [text, call],
                    "usage": {"input_tokens": 30, "output_tokens": 9, "total_tokens": 39}}}),
            ]
        }
        Format::Anthropic => vec![
            json!({"type": "message_start", "message": {"id": "a", "type": "message", "role": "assistant", "model": "m",
                "content": [], "stop_reason": null, "usage": {"input_tokens": 30, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Zähle"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " 数."}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1,
                "content_block": {"type": "tool_use", "id": "c", "name": "count", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"path\":"}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "\"x\"}"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ],
        Format::Gemini => vec![
            json!({"responseId": "a", "modelVersion": "m", "candidates": [
                {"index": 0, "content": {"role": "model", "parts": [{"text": "Zähle"}]}}]}),
            json!({"responseId": "a", "modelVersion": "m", "candidates": [
                {"index": 0, "content": {"role": "model", "parts": [{"text": " 数."}]}}]}),
            json!({"responseId": "a", "modelVersion": "m", "candidates": [{"index": 0, "finishReason": "STOP",
                "content": {"role": "model", "parts": [{"functionCall": {"name": "count", "args": {"path": "x"}}}]}}],
                "usageMetadata": {"promptTokenCount": 30, "candidatesTokenCount": 9, "totalTokenCount": 39}}),
        ],
    };
    let mut text = String::new();
    for event in events {
        if let Some(name) = event["type"].as_str() {
            write!(text, "event: {name}\r\n").unwrap();
        }
        write!(text, "data: {event}\r\n\r\n").unwrap();
    }
    if format == Format::OpenaiChat {
        text.push_str("data: [DONE]\n\n");
    }
    text
}

/// A session that waits for its first answer, and its first request.
async fn waiting(format: Format) -> (Session, String) {
    let clock = Arc::new(AtomicI64::new(1_000_000));
    let session = Session::builder(format, "a model nobody knows")
        .window(Tokens(8_000))
        .system("Count.")
        .clock(move || Timestamp(clock.fetch_add(1_000, Ordering::Relaxed)))
        .begin()
        .await
        .unwrap();
    session.user("How many?").await.unwrap();
    let request = session.next_request().await.unwrap();
    (session, request.body)
}

/// Everything in the log, but for the names of its thread.
fn events(session: &Session) -> Vec<Event> {
    agent::log(&**session.store(), session).into_iter().map(|logged| logged.event).collect()
}

/// The result of an answer that is fed in pieces, and the log.
async fn fed<'b>(
    format: Format,
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> (Result<AssistantAnswer, SessionError>, Session, String) {
    let (session, request) = waiting(format).await;
    let mut stream = session.answer_stream().await.unwrap();
    for piece in pieces {
        stream.push(piece);
    }
    (stream.finish().await, session, request)
}

#[tokio::test]
async fn an_answer_is_the_same_in_whichever_pieces_it_came() {
    for format in Format::ALL {
        let body = stream(format);
        let (whole, _) = waiting(format).await;
        let expect = whole.answered(&body).await.unwrap();
        assert_eq!((expect.text.as_str(), expect.calls.len()), ("Zähle 数.", 1), "{format}");
        assert_eq!(expect.calls[0].arguments, r#"{"path":"x"}"#, "{format}");
        assert_eq!(expect.usage.map(|usage| usage.output), Some(Tokens(9)), "{format}");
        let log = events(&whole);
        let bytes = body.as_bytes();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let ways: [(&str, Vec<&[u8]>); 5] = [
            ("whole", vec![bytes]),
            ("by lines", lines),
            ("byte by byte", bytes.chunks(1).collect()),
            ("in sevens", bytes.chunks(7).collect()),
            ("after white space", [&b"\n \n"[..]].into_iter().chain(bytes.chunks(100)).collect()),
        ];
        for (way, pieces) in ways {
            let (answer, session, _) = fed(format, pieces).await;
            assert_eq!(answer.unwrap(), expect, "{format}, {way}");
            assert_eq!(events(&session), log, "{format}, {way}");
            let result = ToolOutput::of(&expect.calls[0], "7");
            session.tool_results(&[result]).await.unwrap();
            assert!(session.next_request().await.unwrap().body.contains("数"), "{format}, {way}");
            session.replay(0).await.unwrap();
            session.replay(1).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_response_in_one_piece_may_be_fed_as_well() {
    let body = agent::answer(0);
    let (whole, _) = waiting(Format::OpenaiChat).await;
    let expect = whole.answered(&body).await.unwrap();
    let (answer, session, _) = fed(Format::OpenaiChat, body.as_bytes().chunks(9)).await;
    assert_eq!(answer.unwrap(), expect);
    assert_eq!(events(&session), events(&whole));
    // Gemini streams a list where no events are asked for.
    let list = stream(Format::Gemini).replace("data: ", ",").replacen(',', "[", 1) + "]";
    let (answer, _, _) = fed(Format::Gemini, list.as_bytes().chunks(9)).await;
    assert_eq!(answer.unwrap().text, "Zähle 数.");
}

#[tokio::test]
async fn an_answer_that_breaks_off_anywhere_is_kept_beside_the_history() {
    for format in Format::ALL {
        let body = stream(format);
        let mut longest = 0;
        for end in (1..body.len()).step_by(61) {
            let part = &body.as_bytes()[..end];
            let (answer, session, request) = fed(format, part.chunks(1)).await;
            let Err(error) = answer else {
                assert!(end > body.len() / 2, "{format}: complete after {end} of {} bytes", body.len());
                continue;
            };
            let came = events(&session).split_off(2);
            match &error {
                SessionError::AnswerCut { text } => {
                    assert!("Zähle 数.".starts_with(text.as_str()), "{format}, {end}: {text}");
                    longest = longest.max(text.len());
                    assert!(!came.is_empty(), "{format}, {end}");
                }
                SessionError::Wire(WireError::NothingSaid { .. }) => {}
                other => panic!("{format}, {end}: {other}"),
            }
            for event in &came {
                let is_beside = matches!(event.fact, Fact::Carried { .. } | Fact::UsageReported { .. });
                assert!(is_beside && event.normal.is_none(), "{format}, {end}: {event:?}");
            }
            // The same whole.
            let (whole, _) = waiting(format).await;
            let same = String::from_utf8_lossy(part).into_owned();
            if same.as_bytes() == part {
                assert_eq!(whole.answered(&same).await.unwrap_err().to_string(), error.to_string());
                assert_eq!(events(&whole).split_off(2), came, "{format}, {end}");
            }
            // It is known that the call was not answered, and the model is asked the same again.
            let calls = session.calls().await.unwrap();
            assert_eq!(calls[0].outcomes[0].error, Some(error.to_string()), "{format}, {end}");
            assert_eq!(session.next_request().await.unwrap().body, request, "{format}, {end}");
            session.answered(&body).await.unwrap();
            session.replay(1).await.unwrap();
        }
        assert_eq!(longest, "Zähle 数.".len(), "{format}");
    }
}

#[tokio::test]
async fn an_error_of_the_provider_on_its_way_is_told_and_recorded() {
    let body = "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"So\"}}]}\n\n\
                data: {\"error\":{\"message\":\"overloaded\"}}\n\n";
    let (answer, session, request) = fed(Format::OpenaiChat, body.as_bytes().chunks(5)).await;
    let error = answer.unwrap_err();
    assert!(
        matches!(&error, SessionError::Wire(WireError::NoAnswer { said, .. }) if said == "overloaded"),
        "{error}"
    );
    let calls = session.calls().await.unwrap();
    assert_eq!(calls[0].outcomes[0].error, Some(error.to_string()));
    assert!(events(&session).iter().any(|event| event.raw.json.contains("So")));
    assert_eq!(session.next_request().await.unwrap().body, request);
}

#[tokio::test]
async fn an_answer_that_is_given_up_is_kept_too() {
    for format in Format::ALL {
        let body = stream(format);
        let (session, request) = waiting(format).await;
        let mut given_up = session.answer_stream().await.unwrap();
        given_up.push(&body.as_bytes()[..body.len() * 2 / 3]);
        assert!(!given_up.is_over(), "{format}");
        drop(given_up);
        let came = events(&session).split_off(2);
        assert!(came.iter().any(|event| event.raw.json.contains("Zähle")), "{format}: {came:?}");
        assert!(came.iter().all(|event| event.normal.is_none()), "{format}: {came:?}");
        let calls = session.calls().await.unwrap();
        assert_eq!(calls[0].outcomes[0].error.as_deref(), Some("cancelled"), "{format}");
        assert_eq!(session.next_request().await.unwrap().body, request, "{format}");
        // An answer of which nothing came leaves the log alone.
        let before = events(&session);
        drop(session.answer_stream().await.unwrap());
        assert_eq!(events(&session), before, "{format}");
    }
}

#[tokio::test]
async fn the_end_of_a_stream_is_known_where_the_provider_says_it() {
    for format in [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic] {
        let (session, _) = waiting(format).await;
        let (body, mut stream) = (stream(format), session.answer_stream().await.unwrap());
        let (most, last) = body.as_bytes().split_at(body.trim_end().rfind("data:").unwrap());
        stream.push(most);
        assert!(!stream.is_over(), "{format}");
        stream.push(last);
        assert!(stream.is_over(), "{format}");
        stream.finish().await.unwrap();
    }
}
