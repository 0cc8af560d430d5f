//! What a model says and calls, in each format, streamed or in one piece; and a client that keeps what it saw of it.

use std::fmt::Write;

use epitome::wire::Format;
use serde_json::{Value, json};

use super::{
    http::{Message, chunked},
    played::{ok, post},
    talk::STREAM,
};

/// What a model says and calls.
pub(super) struct Says<'a> {
    /// What the answer is called.
    pub(super) id: &'a str,
    pub(super) text: &'a str,
    /// Tools and their arguments.
    pub(super) calls: &'a [(&'a str, Value)],
    pub(super) ends: Ends,
}

/// How an answer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Well,
    /// It may not be any longer.
    AtTheLimit,
}

impl Says<'_> {
    /// As a provider of `format` sends it.
    pub(super) fn sent(&self, format: Format, is_streamed: bool) -> Vec<u8> {
        if is_streamed {
            return [STREAM.as_bytes(), &chunked(self.events(format).as_bytes(), 61)].concat();
        }
        ok("Content-Type: application/json\r\n", &self.whole(format).to_string()).into_bytes()
    }

    /// As one piece of JSON.
    pub(super) fn whole(&self, format: Format) -> Value {
        let Self { id, text, .. } = self;
        match format {
            Format::OpenaiChat => {
                let mut message = json!({ "role": "assistant", "content": text });
                if !self.calls.is_empty() {
                    message["tool_calls"] = self.parts(format).into();
                }
                let choice = json!({ "index": 0, "message": message, "finish_reason": self.reason(format) });
                json!({ "id": id, "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
                    "usage": { "prompt_tokens": 100, "completion_tokens": 10 } })
            }
            Format::OpenaiResponses => {
                let is_limited = self.ends == Ends::AtTheLimit;
                json!({ "id": id, "object": "response", "error": null, "model": "m", "output": self.parts(format),
                    "status": if is_limited { "incomplete" } else { "completed" },
                    "incomplete_details": is_limited.then(|| json!({ "reason": "max_output_tokens" })),
                    "usage": { "input_tokens": 100, "output_tokens": 10 } })
            }
            Format::Anthropic => json!({ "id": id, "type": "message", "role": "assistant", "model": "m",
                "content": self.parts(format), "stop_reason": self.reason(format),
                "usage": { "input_tokens": 100, "output_tokens": 10 } }),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    fn reason(&self, format: Format) -> &'static str {
        match (format, self.calls.is_empty()) {
            (Format::Anthropic, _) if self.ends == Ends::AtTheLimit => "max_tokens",
            (_, _) if self.ends == Ends::AtTheLimit => "length",
            (Format::Anthropic, true) => "end_turn",
            (Format::Anthropic, false) => "tool_use",
            (_, true) => "stop",
            (_, false) => "tool_calls",
        }
    }

    /// Its blocks or items; in Chat its calls.
    fn parts(&self, format: Format) -> Vec<Value> {
        let Self { id, text, .. } = self;
        let said = match format {
            Format::OpenaiChat => None,
            Format::OpenaiResponses => {
                Some(json!({ "id": format!("msg_{id}"), "type": "message", "status": "completed",
                "role": "assistant", "content": [{ "type": "output_text", "text": text, "annotations": [] }] }))
            }
            Format::Anthropic => Some(json!({ "type": "text", "text": text })),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        let call = |(tool, arguments): &(&str, Value)| {
            let (call, written) = (format!("{id}_{tool}"), arguments.to_string());
            match format {
                Format::OpenaiChat => json!({ "id": call, "type": "function",
                    "function": { "name": tool, "arguments": written } }),
                Format::OpenaiResponses => json!({ "id": format!("fc_{call}"), "type": "function_call",
                    "status": "completed", "call_id": call, "name": tool, "arguments": written }),
                Format::Anthropic => {
                    json!({ "type": "tool_use", "id": call, "name": tool, "input": arguments })
                }
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            }
        };
        said.into_iter().chain(self.calls.iter().map(call)).collect()
    }

    fn events(&self, format: Format) -> String {
        let mut events = Vec::new();
        let parts = self.parts(format);
        let whole = self.whole(format);
        match format {
            Format::OpenaiChat => {
                let chunk = |delta: Value, finish: Value| {
                    json!({ "id": self.id, "object": "chat.completion.chunk", "created": 1, "model": "m",
                        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
                };
                events.push(chunk(json!({ "role": "assistant", "content": "" }), Value::Null));
                events.push(chunk(json!({ "content": self.text }), Value::Null));
                for (index, mut call) in parts.into_iter().enumerate() {
                    call["index"] = index.into();
                    events.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
                }
                events.push(chunk(json!({}), self.reason(format).into()));
                events.push(json!({ "id": self.id, "model": "m", "choices": [], "usage": whole["usage"] }));
            }
            Format::OpenaiResponses => {
                let begun =
                    json!({ "id": self.id, "object": "response", "status": "in_progress", "output": [] });
                events.push(json!({ "type": "response.created", "response": begun }));
                for (index, item) in parts.into_iter().enumerate() {
                    for kind in ["response.output_item.added", "response.output_item.done"] {
                        events.push(json!({ "type": kind, "output_index": index, "item": item }));
                    }
                }
                let kind = format!("response.{}", whole["status"].as_str().expect("a status"));
                events.push(json!({ "type": kind, "response": whole }));
            }
            Format::Anthropic => {
                let begun = json!({ "id": self.id, "type": "message", "role": "assistant", "model": "m",
                    "content": [], "usage": { "input_tokens": 100, "output_tokens": 1 } });
                events.push(json!({ "type": "message_start", "message": begun }));
                for (index, mut block) in parts.into_iter().enumerate() {
                    let delta = if block["type"] == "text" {
                        json!({ "type": "text_delta", "text": std::mem::replace(&mut block["text"], "".into()) })
                    } else {
                        let input = std::mem::replace(&mut block["input"], json!({}));
                        json!({ "type": "input_json_delta", "partial_json": input.to_string() })
                    };
                    events.push(
                        json!({ "type": "content_block_start", "index": index, "content_block": block }),
                    );
                    events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
                    events.push(json!({ "type": "content_block_stop", "index": index }));
                }
                events
                    .push(json!({ "type": "message_delta", "delta": { "stop_reason": whole["stop_reason"] },
                    "usage": { "output_tokens": 10 } }));
                events.push(json!({ "type": "message_stop" }));
            }
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
        let mut stream = String::new();
        for event in events {
            if let Some(kind) = event["type"].as_str() {
                writeln!(stream, "event: {kind}").expect("a string takes all");
            }
            write!(stream, "data: {event}\n\n").expect("a string takes all");
        }
        if format == Format::OpenaiChat { stream + "data: [DONE]\n\n" } else { stream }
    }
}

/// A client with a tool of its own, in any format.
pub(super) struct Client {
    pub(super) format: Format,
    is_streamed: bool,
    history: Vec<Value>,
}

impl Client {
    pub(super) fn new(format: Format, is_streamed: bool) -> Self {
        Self { format, is_streamed, history: Vec::new() }
    }

    /// The user says something.
    pub(super) fn says(&mut self, words: &str) {
        self.history.push(json!({ "role": "user", "content": words }));
    }

    /// The client's own tool has done its work.
    pub(super) fn returns(&mut self, call: &str, words: &str) {
        self.history.push(match self.format {
            Format::OpenaiChat => json!({ "role": "tool", "tool_call_id": call, "content": words }),
            Format::OpenaiResponses => {
                json!({ "type": "function_call_output", "call_id": call, "output": words })
            }
            Format::Anthropic => json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": call, "content": words }] }),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        });
    }

    /// The client keeps what it saw.
    pub(super) fn heard(&mut self, answer: &Message) {
        let kept = self.kept(answer);
        self.history.extend(kept);
    }

    /// The request for what comes next.
    pub(super) fn request(&self) -> String {
        let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
        let (history, is_streamed) = (&self.history, self.is_streamed);
        let (path, body) = match self.format {
            Format::OpenaiChat => (
                "/v1/chat/completions",
                json!({ "model": "m", "stream": is_streamed, "messages": history,
                    "tools": [{ "type": "function", "function": { "name": "bash", "parameters": schema } }] }),
            ),
            Format::OpenaiResponses => (
                "/v1/responses",
                json!({ "model": "m", "stream": is_streamed, "store": false, "input": history,
                    "tools": [{ "type": "function", "name": "bash", "parameters": schema }] }),
            ),
            Format::Anthropic => (
                "/v1/messages",
                json!({ "model": "m", "stream": is_streamed, "max_tokens": 100, "messages": history,
                    "tools": [{ "name": "bash", "input_schema": schema }] }),
            ),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        post(path, "Accept-Encoding: gzip, br\r\nIdempotency-Key: once\r\n", &body.to_string())
    }

    /// What a client adds to its history.
    pub(super) fn kept(&self, answer: &Message) -> Vec<Value> {
        if !self.is_streamed {
            let whole: Value = serde_json::from_slice(&answer.body).expect("JSON");
            return match self.format {
                Format::OpenaiChat => vec![whole["choices"][0]["message"].clone()],
                Format::OpenaiResponses => list(&whole["output"]),
                Format::Anthropic => vec![json!({ "role": "assistant", "content": whole["content"] })],
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            };
        }
        let events = events(answer);
        match self.format {
            Format::OpenaiChat => vec![chat(&events)],
            Format::OpenaiResponses => {
                let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
                let items: Vec<Value> = done.map(|event| event["item"].clone()).collect();
                let last = events.last().expect("an end");
                assert_eq!(list(&last["response"]["output"]), items, "{last}");
                items
            }
            Format::Anthropic => vec![json!({ "role": "assistant", "content": blocks(&events) })],
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }
}

/// The events of a streamed answer.
pub(super) fn events(answer: &Message) -> Vec<Value> {
    let text = answer.text();
    let payloads =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    payloads.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().expect("a list").clone()
}

fn chat(events: &[Value]) -> Value {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for event in events {
        let delta = &event["choices"][0]["delta"];
        text += delta["content"].as_str().unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let mut call = call.clone();
            assert_eq!(call["index"], calls.len());
            call.as_object_mut().expect("a call").remove("index");
            calls.push(call);
        }
    }
    let mut message = json!({ "role": "assistant", "content": text });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn blocks(events: &[Value]) -> Vec<Value> {
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("message_start"), count("message_stop")), (1, 1));
    let mut blocks: Vec<Value> = Vec::new();
    for event in events {
        if event["type"] == "content_block_start" {
            assert_eq!(event["index"], blocks.len());
            blocks.push(event["content_block"].clone());
        } else if event["type"] == "content_block_delta" {
            let block = blocks.last_mut().expect("it has begun");
            match event["delta"]["partial_json"].as_str() {
                Some(input) => block["input"] = serde_json::from_str(input).expect("JSON"),
                None => block["text"] = event["delta"]["text"].clone(),
            }
        }
    }
    blocks
}
