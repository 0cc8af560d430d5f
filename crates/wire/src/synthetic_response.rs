//! An answer that no model gave: text of ours in a provider's shape, whole or streamed, as the request asks.
//!
//! A client can only read its provider's answers. A gateway that answers in its place therefore sends the same events
//! in the same order, reports no usage, and names the model that was asked.

use epitome_core::event::Timestamp;
use serde_json::{Value, json};

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
        let said = SyntheticContent {
            asked: AnswerOptions::by(request),
            text,
            name,
            seconds: at.0.div_euclid(1000),
        };
        if !said.asked.is_streamed {
            let body = match self {
                Self::OpenaiChat => said.chat(),
                Self::OpenaiResponses => said.response("completed", &json!([said.item("completed", text)])),
                Self::Anthropic => said.message(&json!([{ "type": "text", "text": text }]), Some("end_turn")),
            };
            return SyntheticResponse { kind: "application/json", body: body.to_string() };
        }
        let body = match self {
            Self::OpenaiChat => said.chat_chunks(),
            Self::OpenaiResponses => named_events(said.response_events()),
            Self::Anthropic => named_events(said.message_events()),
        };
        SyntheticResponse { kind: "text/event-stream", body }
    }
}

/// Fields of a request that shape its answer.
struct AnswerOptions {
    model: String,
    is_streamed: bool,
    /// True if a Chat stream is to report usage.
    wants_usage: bool,
}

impl AnswerOptions {
    fn by(request: &str) -> Self {
        let Ok(request) = Json::parse(request, "a request") else {
            return Self { model: String::new(), is_streamed: false, wants_usage: false };
        };
        let is_set = |holder: &Json<'_>, key: &str| holder.get(key).is_some_and(|value| value.raw == "true");
        Self {
            model: request.text_at("model").unwrap_or_default().to_owned(),
            is_streamed: is_set(&request, "stream"),
            wants_usage: request
                .get("stream_options")
                .is_some_and(|options| is_set(options, "include_usage")),
        }
    }
}

/// Content of the answer.
struct SyntheticContent<'t> {
    asked: AnswerOptions,
    text: &'t str,
    name: &'t str,
    seconds: i64,
}

impl SyntheticContent<'_> {
    fn chat(&self) -> Value {
        let message = json!({ "role": "assistant", "content": self.text, "refusal": null });
        let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": "stop" });
        json!({
            "id": format!("chatcmpl-{}", self.name),
            "object": "chat.completion",
            "created": self.seconds,
            "model": self.asked.model,
            "choices": [choice],
            "usage": chat_usage(),
        })
    }

    fn chat_chunks(&self) -> String {
        let chunk = |choices: Value| {
            json!({
                "id": format!("chatcmpl-{}", self.name),
                "object": "chat.completion.chunk",
                "created": self.seconds,
                "model": self.asked.model,
                "choices": choices,
            })
        };
        let delta = |delta: Value, finish: Value| {
            chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]))
        };
        let mut chunks = vec![
            delta(json!({ "role": "assistant", "content": "" }), Value::Null),
            delta(json!({ "content": self.text }), Value::Null),
            delta(json!({}), "stop".into()),
        ];
        if self.asked.wants_usage {
            let mut last = chunk(json!([]));
            last["usage"] = chat_usage();
            chunks.push(last);
        }
        let lines = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
        lines.chain(["data: [DONE]\n\n".to_owned()]).collect()
    }

    fn message(&self, content: &Value, stop_reason: Option<&str>) -> Value {
        json!({
            "id": format!("msg_{}", self.name),
            "type": "message",
            "role": "assistant",
            "model": self.asked.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": {
                "input_tokens": 0,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
            },
        })
    }

    fn message_events(&self) -> Vec<Value> {
        let start = json!({ "type": "text", "text": "" });
        let delta = json!({ "type": "text_delta", "text": self.text });
        let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
        vec![
            json!({ "type": "message_start", "message": self.message(&json!([]), None) }),
            json!({ "type": "content_block_start", "index": 0, "content_block": start }),
            json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 0 } }),
            json!({ "type": "message_stop" }),
        ]
    }

    fn response(&self, status: &str, output: &Value) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.name),
            "object": "response",
            "created_at": self.seconds,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": null,
            "max_output_tokens": null,
            "metadata": {},
            "model": self.asked.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null },
            // No provider has stored it: a client that continues from it has to send it.
            "store": false,
            "temperature": 1.0,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": null,
        });
        if status == "completed" {
            response["usage"] = json!({
                "input_tokens": 0,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": 0,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": 0,
            });
        }
        response
    }

    fn item(&self, status: &str, text: &str) -> Value {
        let content = if status == "completed" { json!([part(text)]) } else { json!([]) };
        let id = format!("msg_{}", self.name);
        json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
    }

    fn response_events(&self) -> Vec<Value> {
        let begun = self.response("in_progress", &json!([]));
        let done = self.item("completed", self.text);
        let mut events = vec![
            json!({ "type": "response.created", "response": begun }),
            json!({ "type": "response.in_progress", "response": begun }),
            json!({ "type": "response.output_item.added", "item": self.item("in_progress", "") }),
            json!({ "type": "response.content_part.added", "part": part("") }),
            json!({ "type": "response.output_text.delta", "delta": self.text, "logprobs": [] }),
            json!({ "type": "response.output_text.done", "text": self.text, "logprobs": [] }),
            json!({ "type": "response.content_part.done", "part": part(self.text) }),
            json!({ "type": "response.output_item.done", "item": done }),
            json!({ "type": "response.completed", "response": self.response("completed", &json!([done])) }),
        ];
        for (number, event) in (0..).zip(&mut events) {
            event["sequence_number"] = Value::from(number);
            let is_of_item = event.get("response").is_none();
            let is_of_part = is_of_item && event.get("item").is_none();
            if is_of_item {
                event["output_index"] = 0.into();
            }
            if is_of_part {
                event["content_index"] = 0.into();
                event["item_id"] = done["id"].clone();
            }
        }
        events
    }
}

fn chat_usage() -> Value {
    json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// Writes events preceded by their names, as two of the providers do.
fn named_events(events: Vec<Value>) -> String {
    let named =
        |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use epitome_core::Tokens;
    use proptest::prelude::*;

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
