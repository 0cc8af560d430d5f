//! Answers as providers would give them, streamed and in one piece, with calls of the recall tool anywhere in them.

use std::fmt::Write as _;

use epitome_wire::{Format, recall_tool::RECALL_TOOL};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) name: &'static str,
    pub(crate) made: Vec<Made>,
    pub(crate) ends: Ends,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Thinking(String),
    Text(String),
    Recall(String),
    Call(String),
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Well,
    AtTheLimit,
}

pub(crate) fn text(text: &str) -> Made {
    Made::Text(text.to_owned())
}

pub(crate) fn recall(id: &str) -> Made {
    Made::Recall(id.to_owned())
}

pub(crate) fn call(id: &str) -> Made {
    Made::Call(id.to_owned())
}

pub(crate) fn answer(name: &'static str, made: impl IntoIterator<Item = Made>) -> Answer {
    Answer { name, made: made.into_iter().collect(), ends: Ends::Well }
}

/// What a call of the tool says, and what any other does.
pub(crate) const HANDLE: &str = r#"{"handle":"recall 1a2b3c4d:12-14"}"#;
const ARGUMENTS: &str = r#"{"path":"a.rs","n":1.0}"#;

/// Any answer that makes these calls, of the recall tool or of others, whatever it says between them.
pub(crate) fn any_answer(
    name: &'static str,
    calls: impl Strategy<Value = Vec<bool>>,
) -> impl Strategy<Value = Answer> {
    let said = prop_oneof![
        2 => "[a-zé😀 \"\\\\\n]{1,12}".prop_map(Made::Text),
        1 => "[a-z ]{1,8}".prop_map(Made::Thinking),
    ];
    let places = prop::collection::vec(any::<Index>(), 8);
    (prop::collection::vec(said, 0..4), calls, places).prop_map(move |(mut made, calls, places)| {
        for (index, (is_recall, place)) in calls.into_iter().zip(places).enumerate() {
            let id = format!("call_{name}_{index}");
            let call = if is_recall { Made::Recall(id) } else { Made::Call(id) };
            made.insert(place.index(made.len() + 1), call);
        }
        // Something follows from what was thought.
        if matches!(made.last(), None | Some(Made::Thinking(_))) {
            made.push(text("So."));
        }
        answer(name, made)
    })
}

impl Answer {
    pub(crate) fn ends(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }

    /// The text it says.
    pub(crate) fn text(&self) -> String {
        let texts = self.made.iter().filter_map(|made| match made {
            Made::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The calls it makes that are the client's.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.made.iter().filter_map(|made| match made {
            Made::Call(id) => Some(id.clone()),
            _ => None,
        });
        calls.collect()
    }

    /// The calls of the recall tool.
    pub(crate) fn recalls(&self) -> Vec<String> {
        let calls = self.made.iter().filter_map(|made| match made {
            Made::Recall(id) => Some(id.clone()),
            _ => None,
        });
        calls.collect()
    }

    fn calls_any(&self) -> bool {
        self.made.iter().any(|made| matches!(made, Made::Call(_) | Made::Recall(_)))
    }

    pub(crate) fn whole(&self, format: Format) -> String {
        match format {
            Format::OpenaiChat => self.chat(),
            Format::OpenaiResponses => self.response("completed").to_string(),
            Format::Anthropic => json!({
                "id": self.name, "type": "message", "role": "assistant", "model": "m",
                "content": self.made.iter().map(block).collect::<Vec<_>>(),
                "stop_reason": self.stop_reason(), "stop_sequence": null,
                "usage": {"input_tokens": 7, "output_tokens": 9}
            })
            .to_string(),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    pub(crate) fn stream(&self, format: Format) -> String {
        match format {
            Format::OpenaiChat => self.chat_stream(),
            Format::OpenaiResponses => self.responses_stream(),
            Format::Anthropic => self.anthropic_stream(),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    fn stop_reason(&self) -> &'static str {
        match self.ends {
            Ends::AtTheLimit => "max_tokens",
            Ends::Well if self.calls_any() => "tool_use",
            Ends::Well => "end_turn",
        }
    }

    fn finish_reason(&self) -> &'static str {
        match self.ends {
            Ends::AtTheLimit => "length",
            Ends::Well if self.calls_any() => "tool_calls",
            Ends::Well => "stop",
        }
    }

    fn chat(&self) -> String {
        let mut message = json!({"role": "assistant", "content": null, "refusal": null, "annotations": []});
        let text = self.text();
        if !text.is_empty() {
            message["content"] = text.into();
        }
        let thought: String = self.made.iter().filter_map(thought).collect();
        if !thought.is_empty() {
            message["reasoning_content"] = thought.into();
        }
        let calls: Vec<Value> = self.made.iter().filter_map(chat_call).collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        json!({
            "id": self.name, "object": "chat.completion", "created": created(self.name), "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason()}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 9}
        })
        .to_string()
    }

    fn chat_stream(&self) -> String {
        let chunk = |choices: Value, usage: Value| {
            json!({"id": self.name, "object": "chat.completion.chunk", "created": created(self.name), "model": "m",
                "choices": choices, "usage": usage})
        };
        let delta =
            |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null);
        let mut events = vec![delta(json!({"role": "assistant", "content": null}))];
        let mut index = 0;
        for made in &self.made {
            match made {
                Made::Thinking(text) => events.push(delta(json!({"reasoning_content": text}))),
                Made::Text(text) => {
                    events.extend(halves(text).map(|half| delta(json!({"content": half}))));
                }
                Made::Recall(_) | Made::Call(_) => {
                    let mut call = chat_call(made).unwrap();
                    call["index"] = index.into();
                    let arguments = call["function"]["arguments"].as_str().unwrap().to_owned();
                    call["function"]["arguments"] = "".into();
                    events.push(delta(json!({"tool_calls": [call]})));
                    events.extend(halves(&arguments).map(|half| {
                        delta(json!({"tool_calls": [{"index": index, "function": {"arguments": half}}]}))
                    }));
                    index += 1;
                }
            }
        }
        events.push(chunk(
            json!([{"index": 0, "delta": {}, "finish_reason": self.finish_reason()}]),
            Value::Null,
        ));
        events.push(chunk(json!([]), json!({"prompt_tokens": 7, "completion_tokens": 9})));
        let mut stream = String::new();
        for event in events {
            write!(stream, "data: {event}\n\n").unwrap();
        }
        stream + "data: [DONE]\n\n"
    }

    fn anthropic_stream(&self) -> String {
        let mut stream = Stream::default();
        stream.event(json!({"type": "message_start", "message": {"id": self.name, "type": "message",
            "role": "assistant", "model": "m", "content": [], "stop_reason": null,
            "usage": {"input_tokens": 7, "output_tokens": 1}}}));
        for (index, made) in self.made.iter().enumerate() {
            let (empty, pieces, kind, key) = match made {
                Made::Thinking(text) => (
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    text.as_str(),
                    "thinking_delta",
                    "thinking",
                ),
                Made::Text(text) => {
                    (json!({"type": "text", "text": ""}), text.as_str(), "text_delta", "text")
                }
                Made::Recall(_) | Made::Call(_) => {
                    let mut empty = block(made);
                    empty["input"] = json!({});
                    (empty, arguments(made), "input_json_delta", "partial_json")
                }
            };
            stream.event(json!({"type": "content_block_start", "index": index, "content_block": empty}));
            stream.event(json!({"type": "ping"}));
            for half in halves(pieces) {
                stream.event(json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: half}}));
            }
            if matches!(made, Made::Thinking(_)) {
                let seal = json!({"type": "signature_delta", "signature": "c2VhbA=="});
                stream.event(json!({"type": "content_block_delta", "index": index, "delta": seal}));
            }
            stream.event(json!({"type": "content_block_stop", "index": index}));
        }
        stream.event(json!({"type": "message_delta", "delta": {"stop_reason": self.stop_reason(),
            "stop_sequence": null}, "usage": {"output_tokens": 9}}));
        stream.event(json!({"type": "message_stop"}));
        stream.text
    }

    fn response(&self, status: &str) -> Value {
        let output: Vec<Value> = if status == "in_progress" {
            Vec::new()
        } else {
            self.made.iter().enumerate().map(|(i, made)| item(self.name, i, made)).collect()
        };
        let (status, details) = match (status, self.ends) {
            ("completed", Ends::AtTheLimit) => ("incomplete", json!({"reason": "max_output_tokens"})),
            (status, _) => (status, Value::Null),
        };
        json!({"id": self.name, "object": "response", "created_at": 1_760_000_000, "status": status, "error": null,
            "incomplete_details": details, "model": "m", "output": output,
            "usage": {"input_tokens": 7, "output_tokens": 9}})
    }

    fn responses_stream(&self) -> String {
        let mut stream = Stream { number: Some(0), ..Stream::default() };
        for kind in ["response.created", "response.in_progress"] {
            stream.event(json!({"type": kind, "response": self.response("in_progress")}));
        }
        for (index, made) in self.made.iter().enumerate() {
            let whole = item(self.name, index, made);
            let mut empty = whole.clone();
            let (list, kind, pieces) = match made {
                Made::Thinking(text) => ("summary", "response.reasoning_summary_text.delta", text.as_str()),
                Made::Text(text) => ("content", "response.output_text.delta", text.as_str()),
                Made::Recall(_) | Made::Call(_) => {
                    ("arguments", "response.function_call_arguments.delta", arguments(made))
                }
            };
            empty[list] = if list == "arguments" { "".into() } else { json!([]) };
            stream.event(json!({"type": "response.output_item.added", "output_index": index, "item": empty}));
            for half in halves(pieces) {
                stream.event(json!({"type": kind, "output_index": index, "content_index": 0, "delta": half}));
            }
            stream.event(json!({"type": "response.output_item.done", "output_index": index, "item": whole}));
        }
        let kind = match self.ends {
            Ends::Well => "response.completed",
            Ends::AtTheLimit => "response.incomplete",
        };
        stream.event(json!({"type": kind, "response": self.response("completed")}));
        stream.text
    }
}

/// A stream of named events, with numbers if it has any.
#[derive(Default)]
struct Stream {
    text: String,
    number: Option<u64>,
}

impl Stream {
    fn event(&mut self, mut event: Value) {
        if let Some(number) = &mut self.number {
            event["sequence_number"] = (*number).into();
            *number += 1;
        }
        write!(self.text, "event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).unwrap();
    }
}

fn created(name: &str) -> u64 {
    1_760_000_000 + name.len() as u64
}

fn arguments(made: &Made) -> &'static str {
    if matches!(made, Made::Recall(_)) { HANDLE } else { ARGUMENTS }
}

fn named(made: &Made) -> Option<(&str, &'static str)> {
    match made {
        Made::Recall(id) => Some((id, RECALL_TOOL)),
        Made::Call(id) => Some((id, "read")),
        Made::Text(_) | Made::Thinking(_) => None,
    }
}

fn thought(made: &Made) -> Option<&str> {
    match made {
        Made::Thinking(text) => Some(text),
        _ => None,
    }
}

fn chat_call(made: &Made) -> Option<Value> {
    let (id, name) = named(made)?;
    Some(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments(made)}}))
}

fn block(made: &Made) -> Value {
    match made {
        Made::Thinking(text) => json!({"type": "thinking", "thinking": text, "signature": "c2VhbA=="}),
        Made::Text(text) => json!({"type": "text", "text": text}),
        Made::Recall(id) | Made::Call(id) => {
            let input: Value = serde_json::from_str(arguments(made)).unwrap();
            json!({"type": "tool_use", "id": id, "name": named(made).unwrap().1, "input": input})
        }
    }
}

fn item(name: &str, index: usize, made: &Made) -> Value {
    match made {
        Made::Thinking(text) => json!({"type": "reasoning", "id": format!("rs_{name}_{index}"),
            "summary": [{"type": "summary_text", "text": text}], "encrypted_content": "c2VhbA=="}),
        Made::Text(text) => {
            json!({"type": "message", "id": format!("msg_{name}_{index}"), "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})
        }
        Made::Recall(id) | Made::Call(id) => {
            json!({"type": "function_call", "id": format!("fc_{name}_{index}"),
            "call_id": id, "name": named(made).unwrap().1, "arguments": arguments(made), "status": "completed"})
        }
    }
}

/// A text in two pieces.
fn halves(text: &str) -> impl Iterator<Item = &str> {
    let middle = (text.len() / 2..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (one, other) = text.split_at(middle);
    [one, other].into_iter().filter(|half| !half.is_empty())
}
