//! Anthropic's stream: a message is started, its blocks grow one by one, and a delta reports its end.

use std::collections::BTreeMap;

use crate::stream::{
    AnswerAssembly, PayloadEffect, StreamEnding,
    growing_json::{GrowingJson, GrowingObject},
};
use crate::{json::Json, response};

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct AnthropicAssembly {
    message: GrowingObject,
    blocks: BTreeMap<u64, StreamedBlock>,
}

/// A content block so far.
#[derive(Debug)]
struct StreamedBlock {
    built: GrowingJson,
    /// A tool's input, which arrives as pieces of JSON text.
    input: String,
}

impl AnswerAssembly for AnthropicAssembly {
    fn take(&mut self, event: &Json<'_>) -> PayloadEffect {
        match event.text_at("type") {
            Some("message_start") => {
                PayloadEffect::kept(event.get("message").map_or(0, |message| self.message.assign(message)))
            }
            Some("content_block_start") => self.start(event),
            Some("content_block_delta") => PayloadEffect::kept(self.grow(event).unwrap_or(0)),
            Some("message_delta") => PayloadEffect::kept(self.end(event)),
            Some("message_stop") => PayloadEffect::ending(StreamEnding::Complete),
            Some("error") => PayloadEffect::ending(StreamEnding::Failed(
                response::error_text(event).unwrap_or_else(|| event.raw.to_owned()),
            )),
            _ => PayloadEffect::default(),
        }
    }

    fn assembled(mut self: Box<Self>) -> Option<String> {
        if self.message.is_empty() && self.blocks.is_empty() {
            return None;
        }
        for (key, value) in [("type", "message"), ("role", "assistant")] {
            if self.message.get(key).is_none() {
                self.message.set(key, GrowingJson::text(value));
            }
        }
        let blocks = self.blocks.into_values().map(StreamedBlock::built).collect();
        self.message.set("content", GrowingJson::List(blocks));
        Some(GrowingJson::Object(self.message).json())
    }
}

impl AnthropicAssembly {
    fn start(&mut self, event: &Json<'_>) -> PayloadEffect {
        let Some(block) = event.get("content_block") else { return PayloadEffect::default() };
        self.blocks
            .insert(event.count_at("index"), StreamedBlock { built: block.into(), input: String::new() });
        PayloadEffect::kept(block.raw.len())
    }

    fn grow(&mut self, event: &Json<'_>) -> Option<usize> {
        let block = self.blocks.get_mut(&event.count_at("index"))?;
        let delta = event.get("delta")?;
        let members = block.built.members()?;
        match delta.text_at("type")? {
            "input_json_delta" => {
                let piece = delta.text_at("partial_json")?;
                block.input.push_str(piece);
                Some(piece.len())
            }
            "citations_delta" => {
                let citation = delta.get("citation")?;
                members.at("citations").push(citation.into());
                Some(citation.raw.len())
            }
            // Text, thinking, signature, compaction and kinds yet unknown: strings grow, the rest is set.
            _ => Some(delta.members().iter().map(|(key, value)| member(members, key, value)).sum()),
        }
    }

    fn end(&mut self, event: &Json<'_>) -> usize {
        let mut kept = event.get("delta").map_or(0, |delta| self.message.update(delta));
        for (key, value) in event.members() {
            match key.as_ref() {
                "type" | "delta" => {}
                // Counts are of the whole answer so far, but a later report may leave some of them out.
                "usage" => {
                    if self.message.at("usage").members().is_none() {
                        self.message.set("usage", GrowingJson::Object(GrowingObject::default()));
                    }
                    kept += self.message.at("usage").members().map_or(0, |usage| usage.update(value));
                }
                key => {
                    self.message.set(key, value.into());
                    kept += value.raw.len();
                }
            }
        }
        kept
    }
}

fn member(members: &mut GrowingObject, key: &str, value: &Json<'_>) -> usize {
    match (key, value.as_text()) {
        ("type", _) => 0,
        (_, Some(piece)) => {
            members.at(key).append(piece);
            piece.len()
        }
        (_, None) if value.is_null() => 0,
        (_, None) => {
            members.set(key, value.into());
            value.raw.len()
        }
    }
}

impl StreamedBlock {
    /// The block with its input: as JSON if it is valid, else, if the stream broke off inside it, as text.
    fn built(mut self) -> GrowingJson {
        if !self.input.is_empty()
            && let Some(members) = self.built.members()
        {
            let input = match Json::parse(&self.input, "a tool's input") {
                Ok(input) => GrowingJson::Fixed(input.raw.to_owned()),
                Err(_) => GrowingJson::text(&self.input),
            };
            members.set("input", input);
        }
        self.built
    }
}
