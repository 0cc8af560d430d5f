//! The beginning of a streamed answer, examined until it is clear that it is an answer or an error.
//!
//! A stream whose first event reports that the request was too long has sent nothing that a client would miss. So a
//! gateway that holds that event back can still ask again with less.

use crate::{format::Format, json::Json, sse::SsePayloads};

use super::{ContextOverflow, ErrorBodyKind, ErrorTexts};

/// Examines the beginning of a streamed answer.
///
/// ```
/// use epitome_wire::{Format, overflow::{OverflowDetector, OverflowVerdict}};
///
/// let mut detector = OverflowDetector::new(Format::OpenaiResponses);
/// let created = b"data: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\n";
/// assert_eq!(detector.push(created), OverflowVerdict::Untold);
/// let added = b"data: {\"type\":\"response.output_item.added\",\"item\":{}}\n\n";
/// assert_eq!(detector.push(added), OverflowVerdict::Otherwise);
/// ```
#[derive(Debug)]
pub struct OverflowDetector {
    format: Format,
    payloads: SsePayloads,
    opens: OverflowVerdict,
}

/// Kind of beginning of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowVerdict {
    /// The events so far do not decide it.
    Untold,
    /// An error that the request was too long.
    TooLong(ContextOverflow),
    /// Anything else: an answer has begun, or another error.
    Otherwise,
}

impl OverflowDetector {
    /// Waits for a stream in `format`.
    pub fn new(format: Format) -> Self {
        Self { format, payloads: SsePayloads::default(), opens: OverflowVerdict::Untold }
    }

    /// Takes the next bytes, cut anywhere. A decision stays, whatever follows.
    pub fn push(&mut self, bytes: &[u8]) -> OverflowVerdict {
        self.walk(|payloads, see| payloads.push(bytes, see))
    }

    /// Takes the end of the stream.
    pub fn finish(&mut self) -> OverflowVerdict {
        self.walk(SsePayloads::finish)
    }

    fn walk(&mut self, feed: impl FnOnce(&mut SsePayloads, &mut dyn FnMut(&str))) -> OverflowVerdict {
        let Self { format, payloads, opens } = self;
        feed(payloads, &mut |payload| {
            if *opens == OverflowVerdict::Untold {
                *opens = tells(*format, payload);
            }
        });
        *opens
    }
}

/// Decides by one event.
fn tells(format: Format, payload: &str) -> OverflowVerdict {
    if payload.trim().is_empty() {
        return OverflowVerdict::Untold;
    }
    let Ok(event) = Json::parse(payload, "a streamed event") else { return OverflowVerdict::Otherwise };
    let mut said = ErrorTexts::default();
    said.value(format, &event, ErrorBodyKind::Answer);
    if let Some(overflow) = said.judged(200) {
        return OverflowVerdict::TooLong(overflow);
    }
    let is_error = !said.codes.is_empty() || !said.texts.is_empty();
    let is_untold = format.provider().is_before_answer(&event);
    if is_untold && !is_error { OverflowVerdict::Untold } else { OverflowVerdict::Otherwise }
}

#[cfg(test)]
mod tests {
    use epitome_core::Tokens;

    use super::*;

    const TOO_LONG: OverflowVerdict = OverflowVerdict::TooLong(ContextOverflow {
        limit: Some(Tokens(200_000)),
        asked: Some(Tokens(213_462)),
    });
    const WORDS: &str = "prompt is too long: 213462 tokens > 200000 maximum";

    /// Checks all cuts of the bytes, with and without the stream's end after them.
    #[track_caller]
    fn check(format: Format, events: &[&str], expect: OverflowVerdict) {
        let stream = events.iter().map(|event| format!("data: {event}\n\n")).collect::<Vec<_>>().concat();
        for size in [1, 7, stream.len().max(1)] {
            let mut opening = OverflowDetector::new(format);
            let last = stream.as_bytes().chunks(size).map(|chunk| opening.push(chunk)).last();
            assert_eq!(last.unwrap_or(OverflowVerdict::Untold), expect, "{stream}");
            assert_eq!(opening.finish(), expect, "{stream}");
        }
    }

    #[test]
    fn an_error_before_any_answer_tells() {
        let error =
            format!(r#"{{"type":"error","error":{{"type":"invalid_request_error","message":"{WORDS}"}}}}"#);
        check(Format::Anthropic, &[&error], TOO_LONG);
        check(Format::Anthropic, &[r#"{"type":"ping"}"#, &error], TOO_LONG);
        check(Format::OpenaiChat, &[&format!(r#"{{"error":{{"message":"{WORDS}"}}}}"#)], TOO_LONG);
        let begun = ["created", "queued", "in_progress"]
            .map(|kind| format!(r#"{{"type":"response.{kind}","response":{{"id":"r","error":null}}}}"#));
        let failed = r#"{"type":"response.failed","response":{"status":"failed",
            "error":{"code":"context_length_exceeded","message":"Your input exceeds the context window."}}}"#
            .replace('\n', " ");
        let [created, queued, in_progress] = &begun;
        let too_long = OverflowVerdict::TooLong(ContextOverflow::default());
        check(Format::OpenaiResponses, &[created, queued, in_progress, &failed], too_long);
        check(Format::OpenaiResponses, &[created, queued, in_progress], OverflowVerdict::Untold);
    }

    #[test]
    fn whatever_else_comes_first_tells_otherwise() {
        let error = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}"#;
        check(
            Format::Anthropic,
            &[r#"{"type":"message_start","message":{}}"#, error],
            OverflowVerdict::Otherwise,
        );
        check(
            Format::Anthropic,
            &[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#],
            OverflowVerdict::Otherwise,
        );
        check(
            Format::OpenaiChat,
            &[r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#],
            OverflowVerdict::Otherwise,
        );
        check(Format::OpenaiChat, &["[DONE]"], OverflowVerdict::Otherwise);
        check(Format::OpenaiChat, &["<html>"], OverflowVerdict::Otherwise);
        let failed =
            r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#;
        check(Format::OpenaiResponses, &[failed], OverflowVerdict::Otherwise);
        check(
            Format::OpenaiResponses,
            &[r#"{"type":"response.output_item.added"}"#, failed],
            OverflowVerdict::Otherwise,
        );
        check(Format::OpenaiChat, &[], OverflowVerdict::Untold);
        check(Format::Anthropic, &["", " "], OverflowVerdict::Untold);
    }

    #[test]
    fn an_event_that_is_never_closed_tells_at_the_end() {
        let mut opening = OverflowDetector::new(Format::OpenaiChat);
        let event = format!("data: {{\"error\":{{\"message\":\"{WORDS}\"}}}}");
        assert_eq!(opening.push(event.as_bytes()), OverflowVerdict::Untold);
        assert_eq!(opening.finish(), TOO_LONG);
    }
}
