//! Streams: the same events as the answer in one piece, wherever the bytes are cut.

use epitome_core::Event;
use epitome_wire::{Format, StreamDecoder, StreamEnding, StreamedAnswer, WireError};

use crate::fixtures;

fn decoded<'a>(format: Format, chunks: impl IntoIterator<Item = &'a [u8]>) -> StreamedAnswer {
    let mut stream = StreamDecoder::new(format);
    for chunk in chunks {
        stream.push(chunk);
    }
    stream.finish().unwrap()
}

/// The same facts, digests, times and names, from JSON that says the same.
fn assert_same(streamed: &[Event], whole: &[Event], name: &str) {
    let value = |event: &Event| serde_json::from_str::<serde_json::Value>(&event.raw.json).unwrap();
    assert_eq!(streamed.len(), whole.len(), "{name}");
    for (one, other) in streamed.iter().zip(whole) {
        assert_eq!(one.fact, other.fact, "{name}");
        assert_eq!((one.normal, one.time, &one.origin), (other.normal, other.time, &other.origin), "{name}");
        assert_eq!(one.raw.dialect, other.raw.dialect, "{name}");
        assert_eq!(value(one), value(other), "{name}");
    }
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    for (stream, whole) in fixtures::streams() {
        let whole = stream.format.decode_response(&whole).unwrap();
        let streamed = decoded(stream.format, [stream.text.as_bytes()]);
        assert_eq!(streamed.ending, StreamEnding::Complete, "{}", stream.name);
        assert_same(&streamed.events, &whole, &stream.name);
    }
}

fn check_cuts(format: Format) {
    for (stream, _) in fixtures::streams().into_iter().filter(|(stream, _)| stream.format == format) {
        let bytes = stream.text.as_bytes();
        let whole = decoded(stream.format, [bytes]);
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(decoded(stream.format, [one, other]), whole, "{} cut at {cut}", stream.name);
        }
        assert_eq!(decoded(stream.format, bytes.chunks(1)), whole, "{} byte by byte", stream.name);
    }
}

#[test]
fn where_a_chat_stream_is_cut_into_chunks_does_not_matter() {
    check_cuts(Format::OpenaiChat);
}

#[test]
fn where_a_responses_stream_is_cut_into_chunks_does_not_matter() {
    check_cuts(Format::OpenaiResponses);
}

#[test]
fn where_an_anthropic_stream_is_cut_into_chunks_does_not_matter() {
    check_cuts(Format::Anthropic);
}

#[test]
fn a_stream_that_breaks_off_anywhere_gives_what_came() {
    for (stream, _) in fixtures::streams() {
        let bytes = stream.text.as_bytes();
        let mut longest = 0;
        for end in (0..bytes.len()).step_by(7) {
            let streamed = decoded(stream.format, [&bytes[..end]]);
            let text: usize = streamed.events.iter().map(|event| event.fact.text().len()).sum();
            if streamed.ending != StreamEnding::Complete {
                longest = longest.max(text);
            }
        }
        assert!(longest > 0, "{}: nothing came of a broken stream", stream.name);
    }
}

fn check(format: Format, payloads: &[&str], ending: &StreamEnding, expect: &[&str]) {
    let lines: Vec<String> = payloads.iter().map(|payload| format!("data: {payload}\n\n")).collect();
    let streamed = decoded(format, lines.iter().map(String::as_bytes));
    assert_eq!(&streamed.ending, ending);
    let facts: Vec<String> = streamed.events.iter().map(|event| event.fact.text()).collect();
    assert_eq!(facts.iter().map(String::as_str).collect::<Vec<_>>(), expect);
}

#[test]
fn a_tool_call_cut_in_the_middle_keeps_the_text_of_its_arguments() {
    check(
        Format::Anthropic,
        &[
            r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[]}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"t","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}"#,
        ],
        &StreamEnding::Cut,
        &["t\n\"{\\\"a\\\":\""],
    );
    check(
        Format::OpenaiResponses,
        &[
            r#"{"type":"response.created","response":{"id":"r","output":[]}}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"t","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\":"}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"reasoning","summary":[]}}"#,
            r#"{"type":"response.reasoning_text.delta","output_index":1,"content_index":0,"delta":"Hm"}"#,
        ],
        &StreamEnding::Cut,
        &["t\n{\"a\":", "Hm", ""],
    );
}

#[test]
fn an_error_in_a_stream_is_told_and_what_came_before_it_is_kept() {
    let failed = |said: &str| StreamEnding::Failed(said.to_owned());
    check(
        Format::OpenaiChat,
        &[
            r#"{"id":"c","choices":[{"index":0,"delta":{"content":"So"}}]}"#,
            r#"{"error":{"message":"server_error","code":500}}"#,
            "[DONE]",
        ],
        &failed("server_error"),
        &["So", ""],
    );
    check(
        Format::Anthropic,
        &[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#],
        &failed("Overloaded"),
        &[],
    );
    check(
        Format::OpenaiResponses,
        &[
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","role":"assistant","content":"So"}}"#,
            r#"{"type":"response.failed","response":{"id":"r","error":{"code":"context_length_exceeded","message":"too long"}}}"#,
        ],
        &failed("too long"),
        &["So", ""],
    );
    check(Format::OpenaiResponses, &[r#"{"type":"error","message":"gone"}"#], &failed("gone"), &[]);
}

#[test]
fn a_damaged_line_marks_the_stream_and_nothing_else() {
    check(
        Format::OpenaiChat,
        &[
            r#"{"id":"c","choices":[{"index":0,"delta":{"content":"So"}}]}"#,
            r#"{"id":"c","choices":[{"index":0,"del"#,
            r#"{"id":"c","choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ],
        &StreamEnding::Cut,
        &["So!", ""],
    );
    check(Format::Anthropic, &[], &StreamEnding::Cut, &[]);
}

#[test]
fn odd_events_do_no_harm() {
    for format in crate::SCRIPTED {
        check(
            format,
            &["null", "[]", "7", "\"x\"", "{}", r#"{"type":null}"#, r#"{"choices":null}"#],
            &StreamEnding::Cut,
            &[],
        );
    }
    check(
        Format::Anthropic,
        &[
            r#"{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"lost"}}"#,
            r#"{"type":"content_block_start","index":18446744073709551615,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":18446744073709551615,"delta":{"type":"text_delta","text":"far"}}"#,
            r#"{"type":"content_block_start","index":3,"content_block":"odd"}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"x"}}"#,
            r#"{"type":"message_stop"}"#,
        ],
        &StreamEnding::Complete,
        &["\"odd\"\nfar"],
    );
    check(
        Format::OpenaiResponses,
        &[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","role":"assistant","content":[]}}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"content_index":18446744073709551615,"delta":"far"}"#,
            r#"{"type":"response.output_text.delta","output_index":5,"content_index":0,"delta":"lost"}"#,
        ],
        &StreamEnding::Cut,
        &["far", ""],
    );
}

#[test]
fn what_is_kept_of_a_stream_is_bounded() {
    let limited = |format: Format, payload: &str, times: usize| {
        let mut stream = StreamDecoder::new(format).with_limit(10_000);
        for _ in 0..times {
            stream.push(format!("data: {payload}\n\n").as_bytes());
        }
        stream.finish()
    };
    let start =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"0123456789"}}"#;
    for (format, payload) in [
        (Format::OpenaiChat, r#"{"choices":[{"index":0,"delta":{"content":"0123456789"}}]}"#),
        (
            Format::OpenaiResponses,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"x"}}"#,
        ),
        (Format::Anthropic, start),
    ] {
        assert!(limited(format, payload, 50).is_ok(), "{format}");
        assert!(
            matches!(limited(format, payload, 2000), Err(WireError::TooLarge { limit: 10_000 })),
            "{format}"
        );
    }
    let mut endless = StreamDecoder::new(Format::Anthropic).with_limit(10_000);
    endless.push(&vec![b'x'; 100_000]);
    assert!(endless.finish().is_err());
}
