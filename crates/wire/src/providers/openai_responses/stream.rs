//! The Responses stream: items are added, grow, and are repeated whole when they are done.
//!
//! The whole item counts (only there is `encrypted_content` final); deltas matter for items that a broken stream left
//! unfinished. The last event repeats the response, on some servers without its output.

use std::collections::BTreeMap;

use crate::stream::{
    AnswerAssembly, PayloadEffect, StreamEnding,
    growing_json::{GrowingJson, GrowingObject},
};
use crate::{json::Json, response};

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct ResponsesAssembly {
    envelope: GrowingObject,
    items: BTreeMap<u64, StreamedItem>,
}

#[derive(Debug)]
struct StreamedItem {
    built: GrowingJson,
    done: bool,
}

impl AnswerAssembly for ResponsesAssembly {
    fn take(&mut self, event: &Json<'_>) -> PayloadEffect {
        let kind = event.text_at("type").unwrap_or_default();
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                PayloadEffect::kept(self.envelope(event))
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                PayloadEffect::kept(self.closed(event)).with_final_ending(StreamEnding::Complete)
            }
            "response.failed" => {
                let said = event.get("response").and_then(response::error_text);
                PayloadEffect::kept(self.closed(event))
                    .with_final_ending(StreamEnding::Failed(said.unwrap_or_else(|| "response.failed".into())))
            }
            "error" => {
                let said =
                    response::error_text(event).or_else(|| event.text_at("message").map(str::to_owned));
                PayloadEffect::ending(StreamEnding::Failed(said.unwrap_or_else(|| event.raw.to_owned())))
            }
            "response.output_item.added" => PayloadEffect::kept(self.put(event, StreamedItem::begun)),
            "response.output_item.done" => PayloadEffect::kept(self.put(event, StreamedItem::done)),
            _ => PayloadEffect::kept(self.grow(kind, event).unwrap_or(0)),
        }
    }

    fn assembled(mut self: Box<Self>) -> Option<String> {
        if self.envelope.is_empty() && self.items.is_empty() {
            return None;
        }
        let items = self.items.into_values().map(|item| item.built).collect();
        self.envelope.set("output", GrowingJson::List(items));
        Some(GrowingJson::Object(self.envelope).json())
    }
}

impl ResponsesAssembly {
    /// Takes the response's own members, the newest values replacing older ones.
    fn envelope(&mut self, event: &Json<'_>) -> usize {
        let Some(response) = event.get("response").filter(|response| response.is_object()) else { return 0 };
        let fresh = if self.envelope.is_empty() { response.raw.len() } else { 0 };
        self.envelope = GrowingObject::default();
        for (key, value) in response.members().iter().filter(|(key, _)| key != "output") {
            self.envelope.set(key, value.into());
        }
        fresh
    }

    /// Takes the last event; items that were never reported as done are read from it.
    fn closed(&mut self, event: &Json<'_>) -> usize {
        let mut kept = self.envelope(event);
        let output = event.get("response").map(|response| response.array_at("output")).unwrap_or_default();
        for (index, item) in (0..).zip(output) {
            if !self.items.get(&index).is_some_and(|known| known.done) {
                self.items.insert(index, StreamedItem::done(item));
                kept += item.raw.len();
            }
        }
        kept
    }

    fn put(&mut self, event: &Json<'_>, make: impl Fn(&Json<'_>) -> StreamedItem) -> usize {
        let Some(item) = event.get("item") else { return 0 };
        self.items.insert(event.count_at("output_index"), make(item));
        item.raw.len()
    }

    fn grow(&mut self, kind: &str, event: &Json<'_>) -> Option<usize> {
        let item = self.items.get_mut(&event.count_at("output_index")).filter(|item| !item.done)?;
        let members = item.built.members()?;
        let kind = kind.strip_prefix("response.")?;
        if let Some(list) = part_added(kind) {
            let part = event.get("part")?;
            *members.at(list).element(place(event)) = part.into();
            return Some(part.raw.len());
        }
        let (what, ended) = match kind.strip_suffix(".delta") {
            Some(what) => (what, false),
            None => (kind.strip_suffix(".done")?, true),
        };
        let grown = match what {
            "output_text" | "reasoning_text" => text_of(members.at("content"), what, "text", event)?,
            "refusal" => text_of(members.at("content"), what, "refusal", event)?,
            "reasoning_summary_text" => text_of(members.at("summary"), "summary_text", "text", event)?,
            "function_call_arguments" | "mcp_call_arguments" => members.at("arguments"),
            "custom_tool_call_input" => members.at("input"),
            "code_interpreter_call_code" => members.at("code"),
            _ => return None,
        };
        // The bytes of a whole item were already counted piece by piece.
        if ended {
            let whole = ["text", "refusal", "arguments", "input", "code"]
                .into_iter()
                .find_map(|key| event.text_at(key))?;
            *grown = GrowingJson::text(whole);
            return Some(0);
        }
        let piece = event.text_at("delta")?;
        grown.append(piece);
        Some(piece.len())
    }
}

/// The list that an event of this kind adds a part to.
fn part_added(kind: &str) -> Option<&'static str> {
    match kind {
        "content_part.added" | "content_part.done" => Some("content"),
        "reasoning_summary_part.added" | "reasoning_summary_part.done" => Some("summary"),
        _ => None,
    }
}

fn place(event: &Json<'_>) -> u64 {
    event.count_at(if event.get("summary_index").is_some() { "summary_index" } else { "content_index" })
}

/// The growing text `key` of a part in `list`. Not every server announces the part first.
fn text_of<'m>(
    list: &'m mut GrowingJson,
    kind: &str,
    key: &str,
    event: &Json<'_>,
) -> Option<&'m mut GrowingJson> {
    let part = list.element(place(event));
    if part.is_null() {
        let mut members = GrowingObject::default();
        members.set("type", GrowingJson::text(kind));
        *part = GrowingJson::Object(members);
    }
    Some(part.members()?.at(key))
}

impl StreamedItem {
    fn begun(item: &Json<'_>) -> Self {
        Self { built: item.into(), done: false }
    }

    fn done(item: &Json<'_>) -> Self {
        Self { built: item.into(), done: true }
    }
}
