//! What an event says, in terms every format has: text, calls and media with their bytes.

use std::{borrow::Cow, collections::BTreeMap};

use epitome_core::{
    Digest, Event, Fact, Part,
    event::{Summary, ToolCall},
    media::{Media, Place},
};

use crate::{
    json::{Json, Value},
    media,
};

/// A piece of a message that can be written in any format, if need be as a note.
pub(super) enum Piece<'a> {
    Text(Cow<'a, str>),
    Refusal(&'a str),
    Call(&'a ToolCall),
    Medium { mime: &'a str, source: Source<'a> },
}

/// Where a medium's bytes are.
pub(super) enum Source<'a> {
    Base64(&'a str),
    Url(&'a str),
}

impl Piece<'_> {
    /// What stands for a piece in a place that takes only text.
    pub(super) fn note(&self) -> String {
        match self {
            Self::Text(text) => text.to_string(),
            Self::Refusal(text) => (*text).to_owned(),
            Self::Call(call) => left_out(&call.name.0),
            Self::Medium { mime, source: Source::Url(url) } => format!("[{} at {url}]", kind_of(mime)),
            Self::Medium { mime, source: Source::Base64(_) } => left_out(kind_of(mime)),
        }
    }
}

/// An event, ready to be written in a format it did not come in.
pub(super) struct Portable<'a> {
    event: &'a Event,
    inline: BTreeMap<Digest, String>,
}

impl<'a> Portable<'a> {
    pub(super) fn of(event: &'a Event) -> Self {
        let wanted = event.fact.media().any(|medium| matches!(medium.place, Place::Inline { .. }));
        let mut inline = BTreeMap::new();
        if wanted && let Ok(raw) = Json::parse(&event.raw.json, "an event's raw form") {
            collect(&raw, &mut inline);
        }
        Self { event, inline }
    }

    /// What the message says, results aside.
    pub(super) fn pieces(&self) -> Vec<Piece<'_>> {
        match &self.event.fact {
            Fact::Compacted(compaction) => vec![Piece::Text(match &compaction.summary {
                Summary::Text(text) => text.into(),
                Summary::Encrypted(_) => left_out("summary").into(),
            })],
            fact => self.said(fact.parts()),
        }
    }

    /// What some parts of this event say. Reasoning is its provider's alone and says nothing here.
    pub(super) fn said<'p>(&'p self, parts: &'p [Part]) -> Vec<Piece<'p>> {
        parts.iter().filter_map(|part| self.piece(part)).collect()
    }

    /// All text of some parts, with notes for what is none.
    pub(super) fn plain(&self, parts: &[Part]) -> String {
        self.said(parts).iter().map(Piece::note).collect::<Vec<_>>().join("\n")
    }

    fn piece<'p>(&'p self, part: &'p Part) -> Option<Piece<'p>> {
        Some(match part {
            Part::Text { text } => Piece::Text(text.into()),
            Part::Refusal { text } => Piece::Refusal(text),
            Part::ToolCall(call) => Piece::Call(call),
            Part::Opaque { name, .. } => Piece::Text(left_out(name).into()),
            Part::Media(medium) => self.medium(medium),
            Part::Reasoning { .. } => return None,
        })
    }

    fn medium<'p>(&'p self, medium: &'p Media) -> Piece<'p> {
        let source = match &medium.place {
            Place::Inline { hash, .. } => self.inline.get(hash).map(|base64| Source::Base64(base64)),
            // A file id means nothing to another provider.
            Place::Elsewhere(link) => link.starts_with("http").then_some(Source::Url(link)),
        };
        match source {
            Some(source) => Piece::Medium { mime: &medium.mime, source },
            None => Piece::Text(left_out(kind_of(&medium.mime)).into()),
        }
    }
}

/// A note that something stood here.
pub(super) fn left_out(what: &str) -> String {
    format!("[{what}: left out, it cannot be shown here]")
}

fn kind_of(mime: &str) -> &str {
    if mime.is_empty() { "attachment" } else { mime }
}

/// Every string of a value that is base64, by the hash of what it holds.
fn collect(value: &Json<'_>, found: &mut BTreeMap<Digest, String>) {
    match &value.value {
        Value::String(text) => {
            if let Some((hash, base64)) = media::held(text) {
                found.insert(hash, base64.to_owned());
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect(element, found)),
        Value::Object(members) => members.iter().for_each(|(_, member)| collect(member, found)),
        Value::Null | Value::Bool(_) | Value::Number => {}
    }
}
