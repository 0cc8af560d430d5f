//! An answer that no model gave: text of ours in a provider's shape, whole or streamed, as the request asks.
//!
//! A client can only read its provider's answers. A gateway that answers in its place therefore sends the same events
//! in the same order, reports no usage, and names the model that was asked.

use epitome_core::event::Timestamp;
use serde_json::Value;

use crate::{format::Format, json::Json};

/// An answer in the form in which it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntheticResponse {
    /// Its `content-type`.
    pub kind: &'static str,
    /// Its body.
    pub body: String,
}

impl Format {
    /// Writes the answer to `request` with the text `text`. `name` becomes part of its ids, so it should be unique; a
    /// request that cannot be read gets an answer that is not streamed.
    ///
    /// ```
    /// use epitome_core::event::Timestamp;
    /// use epitome_wire::Format;
    ///
    /// let request = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"/compact"}]}"#;
    /// let reply = Format::OpenaiChat.answer_as_model(request, "Done.", "1f", Timestamp(0));
    /// assert_eq!(reply.kind, "text/event-stream");
    /// assert_eq!(Format::OpenaiChat.read_answer_stream(reply.body.as_bytes())?.text(), "Done.");
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn answer_as_model(self, request: &str, text: &str, name: &str, at: Timestamp) -> SyntheticResponse {
        self.provider().synthetic_response(&SyntheticContent::of(request, text, name, at))
    }

    /// Writes the answer to `request` that is one item with the sealed text `sealed`, in place of the compacted history;
    /// `None` if the provider has no such item. `is_compacted` is true if nothing but a compaction was asked for.
    pub fn answer_with_compaction(
        self,
        (request, is_compacted): (&str, bool),
        sealed: &str,
        name: &str,
        at: Timestamp,
    ) -> Option<SyntheticResponse> {
        self.provider().compaction_answer(&SyntheticContent::of(request, sealed, name, at), is_compacted)
    }
}

impl SyntheticResponse {
    /// A body of JSON.
    pub fn json(body: String) -> Self {
        Self { kind: "application/json", body }
    }

    /// An answer in one piece of JSON.
    pub(crate) fn whole(body: &Value) -> Self {
        Self { kind: "application/json", body: body.to_string() }
    }

    /// An answer as server-sent events.
    pub(crate) fn events(body: String) -> Self {
        Self { kind: "text/event-stream", body }
    }
}

/// Fields of a request that shape its answer.
pub(crate) struct AnswerOptions {
    pub(crate) model: String,
    pub(crate) is_streamed: bool,
    /// True if it is streamed as a list of pieces.
    pub(crate) is_listed: bool,
    /// True if a Chat stream is to report usage.
    pub(crate) wants_usage: bool,
}

impl AnswerOptions {
    fn by(request: &str) -> Self {
        let Ok(request) = Json::parse(request, "a request") else {
            return Self { model: String::new(), is_streamed: false, is_listed: false, wants_usage: false };
        };
        let is_set = |holder: &Json<'_>, key: &str| holder.get(key).is_some_and(|value| value.raw == "true");
        Self {
            model: request.text_at("model").unwrap_or_default().to_owned(),
            is_streamed: is_set(&request, "stream"),
            is_listed: request.text_at("stream") == Some("list"),
            wants_usage: request
                .get("stream_options")
                .is_some_and(|options| is_set(options, "include_usage")),
        }
    }
}

/// Content of the answer.
pub(crate) struct SyntheticContent<'t> {
    pub(crate) asked: AnswerOptions,
    pub(crate) text: &'t str,
    pub(crate) name: &'t str,
    pub(crate) seconds: i64,
}

impl<'t> SyntheticContent<'t> {
    fn of(request: &str, text: &'t str, name: &'t str, at: Timestamp) -> Self {
        Self { asked: AnswerOptions::by(request), text, name, seconds: at.0.div_euclid(1000) }
    }
}

/// Writes events preceded by their names, as two of the providers do.
pub(crate) fn named_events(events: Vec<Value>) -> String {
    let named =
        |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use epitome_core::Tokens;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        model_answer::{FinishReason, ModelAnswer},
        stream::StreamEnding,
    };

    fn answered(format: Format, request: &str, text: &str) -> (SyntheticResponse, ModelAnswer) {
        let reply = format.answer_as_model(request, text, "0123456789abcdef", Timestamp(1_700_000_000_123));
        let answered = match reply.kind {
            "text/event-stream" => format.read_answer_stream(reply.body.as_bytes()),
            _ => format.read_answer(&reply.body),
        };
        let answered = answered.expect("our own decoders read it");
        (reply, answered)
    }

    proptest! {
        #[test]
        fn what_is_said_is_what_is_read(
            text in any::<String>(),
            model in "[a-z0-9./:\"é-]{0,20}",
            is_streamed in any::<bool>(),
            wants_usage in any::<bool>(),
        ) {
            let request = json!({
                "model": model, "stream": is_streamed, "stream_options": { "include_usage": wants_usage },
            }).to_string();
            for format in Format::ALL {
                let (reply, answered) = answered(format, &request, &text);
                prop_assert_eq!(reply.kind == "text/event-stream", is_streamed);
                prop_assert_eq!(answered.text(), text.clone());
                prop_assert_eq!(answered.ending, StreamEnding::Complete);
                prop_assert_eq!(answered.finish, Some(FinishReason::Stop));
                prop_assert_eq!(answered.model.map(|model| model.0), Some(model.clone()));
                prop_assert!(answered.calls.is_empty());
                let says_usage = format != Format::OpenaiChat || !is_streamed || wants_usage;
                prop_assert_eq!(answered.usage.is_some(), says_usage);
                prop_assert!(answered.usage.unwrap_or_default().total() == Tokens(0));
            }
        }
    }

    #[test]
    fn a_request_that_cannot_be_read_is_answered_in_one_piece() {
        for (format, request) in Format::ALL.into_iter().zip(["", "[", "[true]"]) {
            assert_eq!(answered(format, request, "no").0.kind, "application/json");
        }
    }

    #[test]
    fn a_stream_is_over_with_its_last_event_and_not_before() {
        for format in Format::ALL {
            let (reply, _) = answered(format, r#"{"stream":true}"#, "hi");
            let mut decoder = crate::StreamDecoder::new(format);
            let events: Vec<&str> = reply.body.split_inclusive("\n\n").collect();
            let over = events.iter().map(|event| {
                decoder.push(event.as_bytes());
                decoder.is_over()
            });
            let over: Vec<bool> = over.collect();
            assert_eq!(over.iter().position(|over| *over), Some(events.len() - 1), "{format}");
        }
    }
}
