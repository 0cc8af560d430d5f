//! Chat's stream: chunks of choices, each with a delta that is to be merged into its message.
//!
//! Many servers speak this, and differ: some repeat ids and roles in every chunk, some leave out indices, some end
//! without `[DONE]`, most add members of their own. So deltas are merged by one general rule: strings grow, objects
//! merge, lists grow, other values are replaced.

use std::collections::BTreeMap;

use crate::stream::{
    AnswerAssembly, PayloadEffect, StreamEnding,
    growing_json::{GrowingJson, GrowingObject},
};
use crate::{
    json::{Json, JsonValue},
    response,
};

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct ChatAssembly {
    envelope: GrowingObject,
    choices: BTreeMap<u64, StreamedChoice>,
}

#[derive(Debug, Default)]
struct StreamedChoice {
    members: GrowingObject,
    message: GrowingObject,
    calls: BTreeMap<u64, GrowingObject>,
}

impl AnswerAssembly for ChatAssembly {
    fn take(&mut self, chunk: &Json<'_>) -> PayloadEffect {
        if let Some(said) = response::error_text(chunk) {
            return PayloadEffect::ending(StreamEnding::Failed(said));
        }
        let mut kept = 0;
        let mut finished = false;
        for (key, value) in chunk.members() {
            match key.as_ref() {
                // Padding against eavesdroppers.
                "obfuscation" => {}
                "object" => self.envelope.set("object", GrowingJson::text("chat.completion")),
                "choices" => {
                    for choice in value.as_array().unwrap_or_default() {
                        kept += self.choices.entry(choice.count_at("index")).or_default().take(choice);
                        finished |= choice.text_at("finish_reason").is_some();
                    }
                }
                key if value.is_null() && self.envelope.get(key).is_some() => {}
                key => {
                    let known = self.envelope.get(key).is_some();
                    self.envelope.set(key, value.into());
                    kept += if known { 0 } else { key.len() + value.raw.len() };
                }
            }
        }
        // Usage follows, and `[DONE]`.
        if finished {
            PayloadEffect::kept(kept).with_ending(StreamEnding::Complete)
        } else {
            PayloadEffect::kept(kept)
        }
    }

    fn ends_with_done(&self) -> bool {
        true
    }

    fn assembled(mut self: Box<Self>) -> Option<String> {
        if self.choices.is_empty() {
            return None;
        }
        let choices = self.choices.into_iter().map(|(index, choice)| choice.built(index)).collect();
        let usage = self.envelope.get("usage").cloned();
        self.envelope.set("choices", GrowingJson::List(choices));
        self.envelope.set("usage", usage.unwrap_or_else(GrowingJson::null));
        Some(GrowingJson::Object(self.envelope).json())
    }
}

impl StreamedChoice {
    fn take(&mut self, choice: &Json<'_>) -> usize {
        let mut kept = 0;
        for (key, value) in choice.members() {
            kept += match key.as_ref() {
                "index" => 0,
                "delta" => self.delta(value),
                key => merge(&mut self.members, key, value),
            };
        }
        kept
    }

    fn delta(&mut self, delta: &Json<'_>) -> usize {
        let mut kept = 0;
        for (key, value) in delta.members() {
            kept += match (key.as_ref(), value.as_array()) {
                ("tool_calls", Some(calls)) => calls.iter().map(|call| self.call(call)).sum(),
                (key, _) => merge(&mut self.message, key, value),
            };
        }
        kept
    }

    /// Adds a piece of a tool call. Without an index it is a new call if it has an id, else more of the last one.
    fn call(&mut self, piece: &Json<'_>) -> usize {
        let last = self.calls.last_key_value().map(|(&index, _)| index);
        let index = match (piece.get("index").and_then(Json::as_count), last) {
            (Some(index), _) => index,
            (None, Some(last)) if piece.text_at("id").is_none() => last,
            (None, Some(last)) => last.saturating_add(1),
            (None, None) => 0,
        };
        let call = self.calls.entry(index).or_default();
        let said = piece.members().iter().filter(|(key, _)| key != "index");
        said.map(|(key, value)| merge(call, key, value)).sum()
    }

    fn built(mut self, index: u64) -> GrowingJson {
        if self.message.get("role").is_none() {
            self.message.set("role", GrowingJson::text("assistant"));
        }
        if !self.calls.is_empty() {
            let calls = self.calls.into_values().map(GrowingJson::Object).collect();
            self.message.set("tool_calls", GrowingJson::List(calls));
        }
        let mut choice = GrowingObject::default();
        choice.set("index", GrowingJson::Fixed(index.to_string()));
        choice.set("message", GrowingJson::Object(self.message));
        for key in ["logprobs", "finish_reason"] {
            choice.at(key);
        }
        choice.take_all(self.members);
        GrowingJson::Object(choice)
    }
}

/// Merges one member of a delta. Returns the number of bytes more that are kept.
fn merge(into: &mut GrowingObject, key: &str, value: &Json<'_>) -> usize {
    let known = into.get(key).is_some_and(|known| !known.is_null());
    match &value.value {
        JsonValue::Null => {
            into.at(key);
            key.len()
        }
        JsonValue::String(piece) => grow(into.at(key), key, piece),
        JsonValue::Object(members) if known && into.at(key).members().is_some() => {
            let Some(inner) = into.at(key).members() else { return 0 };
            members.iter().map(|(key, value)| merge(inner, key, value)).sum()
        }
        JsonValue::Array(elements) if known => {
            let list = into.at(key);
            elements.iter().map(|element| add(list, element)).sum()
        }
        JsonValue::Array(_) | JsonValue::Object(_) | JsonValue::Number | JsonValue::Bool(_) => {
            into.set(key, value.into());
            if known { 0 } else { key.len() + value.raw.len() }
        }
    }
}

/// Appends to a string, unless it is a name: some servers repeat names and ids in every chunk.
fn grow(known: &mut GrowingJson, key: &str, piece: &str) -> usize {
    match known {
        GrowingJson::Text(text) if key == "name" && text == piece => return 0,
        GrowingJson::Text(text) if matches!(key, "role" | "id" | "type" | "format") && !text.is_empty() => {
            return 0;
        }
        _ => known.append(piece),
    }
    piece.len()
}

/// Adds an element: one with the index of the last is more of it; any other is new.
fn add(list: &mut GrowingJson, element: &Json<'_>) -> usize {
    if let GrowingJson::List(elements) = list
        && let Some(last) = elements.last_mut().and_then(GrowingJson::members)
        && let Some(index) = element.get("index")
        && matches!(last.get("index"), Some(GrowingJson::Fixed(known)) if known == index.raw)
    {
        return element.members().iter().map(|(key, value)| merge(last, key, value)).sum();
    }
    list.push(element.into());
    element.raw.len()
}
