//! A message while it is written.

use std::borrow::Cow;

use super::block::{self, AnthropicBlock, AnthropicBlockKind};
use crate::{
    json::{self, Json, quote},
    normal_digest,
    write::{AlternatingRole, SourceEvent, WrittenMessage},
};

/// A message while it is written.
pub(crate) struct AnthropicDraft<'e> {
    pub(crate) role: Cow<'e, str>,
    pub(crate) blocks: Vec<AnthropicBlock<'e>>,
    /// Indices of its events, in order.
    pub(crate) events: Vec<usize>,
    /// The event whose bytes it may keep: the only one it is made of.
    source: Option<&'e SourceEvent<'e>>,
    /// True if the event is an answer that is shown in part.
    pub(crate) is_parted: bool,
}

impl<'e> AnthropicDraft<'e> {
    pub(crate) fn new(role: &'e str) -> Self {
        Self { role: role.into(), blocks: Vec::new(), events: Vec::new(), source: None, is_parted: false }
    }

    /// Makes a draft of blocks of one event, or of none.
    pub(crate) fn with(
        role: &'e str,
        blocks: impl IntoIterator<Item = AnthropicBlock<'e>>,
        source: Option<&'e SourceEvent<'e>>,
    ) -> Self {
        let events = source.map(|entry| entry.index).into_iter().collect();
        Self { role: role.into(), blocks: blocks.into_iter().collect(), events, source, is_parted: false }
    }

    /// Appends the content of another draft.
    pub(crate) fn absorb(&mut self, other: Self) {
        if self.events.is_empty() && self.blocks.is_empty() {
            self.source = other.source;
        }
        self.is_parted |= other.is_parted;
        self.blocks.extend(other.blocks);
        for event in other.events {
            if self.events.last() != Some(&event) {
                self.events.push(event);
            }
        }
    }

    /// Returns true if `next` was sent in the same message.
    pub(crate) fn continues(&self, next: &Self) -> bool {
        self.events.last().is_some() && self.events.last() == next.events.first()
    }

    pub(crate) fn speaker(&self) -> AlternatingRole {
        match &*self.role {
            "user" => AlternatingRole::User,
            "assistant" => AlternatingRole::Assistant,
            _ => AlternatingRole::Other,
        }
    }

    pub(crate) fn written(self) -> WrittenMessage {
        // A signed compaction must come first: no block may be put before it.
        let opens = self.blocks.first().is_some_and(|block| block.kind == AnthropicBlockKind::Compaction);
        let speaker = if opens { AlternatingRole::User } else { self.speaker() };
        let json = match self.source.and_then(|source| Some((source, source.own.as_ref()?))) {
            Some((source, own)) if self.events == [source.index] => self.own_json(source, own),
            _ => message(&self.role, &self.list()),
        };
        WrittenMessage { json, events: self.events, speaker }
    }

    /// The message of a single event: its own bytes as far as they are still valid. If it is shown in part, unknown
    /// members are dropped: the part that paid for them may be gone.
    fn own_json(&self, source: &SourceEvent<'_>, own: &Json<'_>) -> String {
        let count = block::count(own);
        let places = self.blocks.iter().map(|block| block.source);
        let untouched = places.eq((0..count).map(|place| Some((source.index, place))));
        let has_results = !source.event.fact.results().is_empty();
        let is_parted = self.is_parted || (has_results && self.blocks.len() < count);
        match (untouched, own.get("content")) {
            (true, Some(content)) if normal_digest::is_anthropic_answer(own) => {
                message(&self.role, content.raw)
            }
            (true, _) => own.raw.to_owned(),
            (false, Some(content)) if !is_parted && !normal_digest::is_anthropic_answer(own) => {
                json::replace_members(own, &[(content, &self.list())])
            }
            (false, _) => message(&self.role, &self.list()),
        }
    }

    fn list(&self) -> String {
        let blocks: Vec<&str> = self.blocks.iter().map(|block| &*block.json).collect();
        format!("[{}]", blocks.join(","))
    }
}

pub(crate) fn message(role: &str, content: &str) -> String {
    format!(r#"{{"role":{},"content":{content}}}"#, quote(role))
}
