//! Legal requests, made by drawing.

use std::panic::Location;

use epitome_wire::Format;
use serde_json::{Value, json};

/// Decides by a list of numbers, and by zeros when that has ended.
pub(super) struct Draw<'c> {
    choices: &'c [u64],
    /// How many ids were given.
    ids: usize,
    /// What was decided, and where in the source.
    pub(super) decisions: Vec<Decision>,
}

/// A decision between several ways to go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision {
    pub(super) place: &'static Location<'static>,
    pub(super) ways: usize,
    pub(super) way: usize,
}

impl<'c> Draw<'c> {
    pub(super) fn of(choices: &'c [u64]) -> Self {
        Self { choices, ids: 0, decisions: Vec::new() }
    }

    /// A number below `limit`.
    #[track_caller]
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let (first, rest) =
            self.choices.split_first().map_or((0, self.choices), |(first, rest)| (*first, rest));
        self.choices = rest;
        let way = usize::try_from(first % limit.max(1) as u64).unwrap();
        self.decisions.push(Decision { place: Location::caller(), ways: limit.max(1), way });
        way
    }

    #[track_caller]
    pub(super) fn chance(&mut self) -> bool {
        self.below(2) == 1
    }

    #[track_caller]
    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    pub(super) fn id(&mut self) -> String {
        self.ids += 1;
        format!("call_{}", self.ids)
    }

    pub(super) fn text(&mut self) -> String {
        self.pick(&["Look.", "Ümlaut \u{1f980}", "a\nb", "{\"role\":\"user\"}", "\u{7}", "x y z"]).to_owned()
    }

    /// A value that is neither text nor list.
    #[track_caller]
    pub(super) fn odd(&mut self) -> Value {
        self.pick(&[json!(7), json!(true), json!({ "a": 1 }), json!(-0.5), json!({})])
    }

    /// A value that is no object.
    #[track_caller]
    pub(super) fn no_object(&mut self) -> Value {
        self.pick(&[json!("x"), json!(7), json!(false), json!(["x"]), json!(null)])
    }

    /// A value that is no string.
    #[track_caller]
    pub(super) fn no_text(&mut self) -> Value {
        self.pick(&[json!(7), json!(true), json!({ "a": 1 }), json!(["x"]), json!(null)])
    }
}

pub(super) fn key(format: Format) -> &'static str {
    if format == Format::OpenaiResponses { "input" } else { "messages" }
}

pub(super) fn history(format: Format, request: &mut Value) -> &mut Vec<Value> {
    request[key(format)].as_array_mut().unwrap()
}

/// A request that keeps every rule of its format: a question, two answers that call tools, of which the first calls at
/// least two, their results, an answer in words, a question, and whatever is drawn. It begins and ends with the user.
pub(super) fn legal(format: Format, draw: &mut Draw<'_>) -> Value {
    let mut request = head(format, draw);
    let mut messages = Vec::new();
    if format == Format::OpenaiChat && draw.chance() {
        let role = draw.pick(&["system", "developer"]);
        messages.push(json!({ "role": role, "content": content(format, "user", draw) }));
    }
    messages.push(ask(format, draw));
    let calls = 2 + draw.below(2);
    messages.extend(called(format, calls, draw));
    for _ in 0..=draw.below(2) {
        let calls = 1 + draw.below(3);
        messages.extend(called(format, calls, draw));
    }
    for _ in 0..=draw.below(3) {
        messages.extend(said(format, draw));
        messages.push(ask(format, draw));
        if draw.chance() {
            messages.extend(called(format, 1 + draw.below(2), draw));
        }
    }
    messages.extend(said(format, draw));
    messages.push(ask(format, draw));
    request[key(format)] = Value::Array(messages);
    request
}

fn head(format: Format, draw: &mut Draw<'_>) -> Value {
    let mut request = json!({ "model": "m" });
    if draw.chance() {
        request["tools"] = json!([{ "name": "t", "input_schema": { "type": "object" } }]);
    }
    match format {
        Format::Anthropic => {
            request["system"] = match draw.below(3) {
                0 => json!("Be brief."),
                _ => {
                    json!([{ "type": "text", "text": "Be brief." }, { "type": "text", "text": "And kind." }])
                }
            };
        }
        Format::OpenaiResponses if draw.chance() => request["instructions"] = json!("Be brief."),
        Format::OpenaiChat | Format::OpenaiResponses => {}
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    request
}

/// Content that somebody says: a text, or parts of which the first is one.
fn content(format: Format, role: &str, draw: &mut Draw<'_>) -> Value {
    if draw.below(3) == 0 {
        return json!(draw.text());
    }
    let mut parts = vec![text_part(format, role, draw)];
    if draw.chance() {
        parts.push(json!({ "type": "vendor_part", "anything": [1, { "x": null }] }));
    }
    if draw.chance() {
        parts.push(text_part(format, role, draw));
    }
    json!(parts)
}

fn text_part(format: Format, role: &str, draw: &mut Draw<'_>) -> Value {
    let kind = match (format, role) {
        (Format::OpenaiResponses, "assistant") => "output_text",
        (Format::OpenaiResponses, _) => "input_text",
        _ => "text",
    };
    json!({ "type": kind, "text": draw.text() })
}

fn ask(format: Format, draw: &mut Draw<'_>) -> Value {
    let mut message = json!({ "role": "user", "content": content(format, "user", draw) });
    if format == Format::OpenaiResponses && draw.chance() {
        message["type"] = json!("message");
    }
    if format == Format::OpenaiChat && draw.chance() {
        message["vendor"] = json!({ "x": 1 });
    }
    message
}

/// An answer in words.
fn said(format: Format, draw: &mut Draw<'_>) -> Vec<Value> {
    let mut message = json!({ "role": "assistant", "content": content(format, "assistant", draw) });
    match format {
        Format::OpenaiChat => {
            if draw.chance() {
                message["refusal"] = json!(null);
            }
            vec![message]
        }
        Format::OpenaiResponses => {
            if draw.chance() {
                return vec![reasoning(draw), message];
            }
            vec![message]
        }
        Format::Anthropic => {
            if let Some(blocks) = message["content"].as_array_mut().filter(|_| draw.chance()) {
                blocks.insert(0, thinking(draw));
            }
            vec![message]
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

pub(super) fn thinking(draw: &mut Draw<'_>) -> Value {
    let mark = draw.id();
    match draw.below(3) {
        0 => json!({ "type": "redacted_thinking", "data": mark }),
        _ => json!({ "type": "thinking", "thinking": draw.text(), "signature": mark }),
    }
}

pub(super) fn reasoning(draw: &mut Draw<'_>) -> Value {
    json!({ "type": "reasoning", "id": draw.id(), "summary": [{ "type": "summary_text", "text": draw.text() }] })
}

/// An answer that calls tools, and what they gave.
pub(super) fn called(format: Format, calls: usize, draw: &mut Draw<'_>) -> Vec<Value> {
    let ids: Vec<String> = (0..calls).map(|_| draw.id()).collect();
    let mut answered = ids.clone();
    if draw.chance() {
        answered.reverse();
    }
    match format {
        Format::OpenaiChat => {
            let calls: Vec<Value> = ids.iter().map(|id| chat_call(id, draw)).collect();
            let content = if draw.chance() { json!(null) } else { content(format, "assistant", draw) };
            let mut messages = vec![json!({ "role": "assistant", "content": content, "tool_calls": calls })];
            messages.extend(answered.iter().map(
                |id| json!({ "role": "tool", "tool_call_id": id, "content": content_of_result(format, draw) }),
            ));
            messages
        }
        Format::OpenaiResponses => {
            let mut items: Vec<Value> = vec![reasoning(draw)];
            let kinds: Vec<&str> =
                ids.iter().map(|_| draw.pick(&["function_call", "custom_tool_call"])).collect();
            items.extend(ids.iter().zip(&kinds).map(|(id, kind)| {
                let given = if *kind == "function_call" { "arguments" } else { "input" };
                json!({ "type": kind, "call_id": id, "name": "t", given: "{}" })
            }));
            items.extend(answered.iter().map(|id| {
                let kind = kinds[ids.iter().position(|known| known == id).unwrap()];
                let output = content_of_result(format, draw);
                json!({ "type": format!("{kind}_output"), "call_id": id, "output": output })
            }));
            items
        }
        Format::Anthropic => {
            let mut blocks = vec![thinking(draw)];
            if draw.chance() {
                blocks.push(json!({ "type": "text", "text": draw.text() }));
            }
            blocks.extend(ids.iter().map(
                |id| json!({ "type": "tool_use", "id": id, "name": "t", "input": draw.pick(&[json!({}), json!({ "a": [1] })]) }),
            ));
            let mut results: Vec<Value> = answered
                .iter()
                .map(|id| json!({ "type": "tool_result", "tool_use_id": id, "content": content_of_result(format, draw) }))
                .collect();
            if draw.chance() {
                results.push(json!({ "type": "text", "text": draw.text() }));
            }
            vec![
                json!({ "role": "assistant", "content": blocks }),
                json!({ "role": "user", "content": results }),
            ]
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

fn chat_call(id: &str, draw: &mut Draw<'_>) -> Value {
    match draw.below(3) {
        0 => json!({ "id": id, "type": "custom", "custom": { "name": "t", "input": draw.text() } }),
        1 => json!({ "id": id, "function": { "name": "t", "arguments": "{}" } }),
        _ => json!({ "id": id, "type": "function", "function": { "name": "t", "arguments": draw.text() } }),
    }
}

fn content_of_result(format: Format, draw: &mut Draw<'_>) -> Value {
    content(format, "user", draw)
}

/// Lets the provider's own compaction stand first.
pub(super) fn with_compaction(format: Format, request: &mut Value, draw: &mut Draw<'_>) {
    let seal = draw.id();
    let messages = history(format, request);
    match format {
        Format::OpenaiChat => {}
        Format::OpenaiResponses => {
            messages
                .insert(0, json!({ "type": "compaction", "encrypted_content": seal, "note": draw.text() }));
        }
        Format::Anthropic => {
            let blocks = blocks(&mut messages[0]);
            blocks.insert(0, json!({ "type": "compaction", "content": draw.text(), "signature": seal }));
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

/// The blocks of a message, which a text is made one of.
pub(super) fn blocks(message: &mut Value) -> &mut Vec<Value> {
    let content = &mut message["content"];
    if let Some(text) = content.as_str() {
        *content = json!([{ "type": "text", "text": text }]);
    }
    content.as_array_mut().unwrap()
}

/// Lets the request end within a tool loop: an answer that makes one call, and its result alone.
pub(super) fn with_open_loop(format: Format, request: &mut Value, draw: &mut Draw<'_>) {
    let mut messages = called(format, 1, draw);
    if let Some(results) = messages.last_mut().filter(|_| format == Format::Anthropic) {
        blocks(results).truncate(1);
    }
    history(format, request).extend(messages);
}

/// Gives every answer that calls tools its reasoning.
pub(super) fn with_reasoning(request: &mut Value) {
    for message in
        history(Format::OpenaiChat, request).iter_mut().filter(|message| message["tool_calls"].is_array())
    {
        message["reasoning_content"] = json!("Hm.");
    }
}

/// Gives every answer that calls tools the signature of its server.
pub(super) fn with_signatures(request: &mut Value) {
    for message in
        history(Format::OpenaiChat, request).iter_mut().filter(|message| message["tool_calls"].is_array())
    {
        message["tool_calls"][0]["extra_content"] = json!({ "google": { "thought_signature": "s" } });
    }
}
