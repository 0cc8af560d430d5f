//! Content of an event in terms every format has: text, calls and media with their bytes.
//!
//! Content that has no equivalent in another format becomes a short note, so that the model knows that something
//! stood there. If a meter is given, a note that would cost more than its part is not written.

use std::{borrow::Cow, collections::BTreeMap};

use epitome_core::{
    ContentPart, Digest, Event, Fact,
    event::{Summary, ToolCall},
    media::{Media, MediaLocation},
    meter::Meter,
};

use super::SourceEvent;
use crate::{
    json::{Json, JsonValue},
    media,
};

/// A piece of a message that can be written in any format, if need be as a note.
pub(crate) enum PortablePiece<'a> {
    Text(Cow<'a, str>),
    Refusal(&'a str),
    Call(&'a ToolCall, usize),
    Medium {
        mime: &'a str,
        source: MediumSource<'a>,
        /// Note in its place if the format has no equivalent.
        note: Option<String>,
    },
}

/// Source of a medium's bytes.
pub(crate) enum MediumSource<'a> {
    Base64(&'a str),
    Url(&'a str),
}

impl PortablePiece<'_> {
    /// Text in place of a piece where only text is possible.
    pub(crate) fn note(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Refusal(text) => Some(text),
            Self::Call(..) => None,
            Self::Medium { note, .. } => note.as_deref(),
        }
    }
}

/// An event, ready to be written in a format it did not come in.
pub(crate) struct PortableEvent<'a> {
    event: &'a Event,
    inline: &'a BTreeMap<Digest, String>,
    meter: Option<&'a Meter>,
}

impl<'a> PortableEvent<'a> {
    pub(crate) fn of(entry: &'a SourceEvent<'_>, meter: Option<&'a Meter>) -> Self {
        Self { event: entry.event, inline: entry.inline.get_or_init(|| inline(entry.event)), meter }
    }

    /// Content of the message without its results.
    pub(crate) fn pieces(&self) -> Vec<PortablePiece<'_>> {
        match &self.event.fact {
            Fact::Compacted(compaction) => self.summary(&compaction.summary).into_iter().collect(),
            fact => self.pieces_of(fact.parts()),
        }
    }

    /// Content of some parts of this event. Reasoning belongs to its provider and is left out.
    pub(crate) fn pieces_of<'p>(&'p self, parts: &'p [ContentPart]) -> Vec<PortablePiece<'p>> {
        self.said_at(parts.iter().enumerate())
    }

    /// The same for parts that are given with their indices.
    pub(crate) fn said_at<'p>(
        &'p self,
        parts: impl Iterator<Item = (usize, &'p ContentPart)>,
    ) -> Vec<PortablePiece<'p>> {
        parts.filter_map(|(place, part)| self.piece(place, part)).collect()
    }

    /// Texts of some parts, with notes for parts that are not text.
    pub(crate) fn texts(&self, parts: &[ContentPart]) -> Vec<String> {
        self.pieces_of(parts).iter().filter_map(|piece| piece.note().map(str::to_owned)).collect()
    }

    fn summary<'p>(&'p self, summary: &'p Summary) -> Option<PortablePiece<'p>> {
        match summary {
            Summary::Text(text) | Summary::Structured { text, .. } => Some(PortablePiece::Text(text.into())),
            Summary::Encrypted(sealed) => {
                let note = left_out_note("summary");
                let room = |meter: &Meter| meter.sealed(sealed) + meter.overhead().summary;
                let fits = self.meter.is_none_or(|meter| meter.text(&note) <= room(meter));
                fits.then(|| PortablePiece::Text(note.into()))
            }
        }
    }

    fn piece<'p>(&'p self, place: usize, part: &'p ContentPart) -> Option<PortablePiece<'p>> {
        Some(match part {
            ContentPart::Text { text } => PortablePiece::Text(text.into()),
            ContentPart::Refusal { text } => PortablePiece::Refusal(text),
            ContentPart::ToolCall(call) => PortablePiece::Call(call, place),
            ContentPart::Opaque { name, .. } => {
                PortablePiece::Text(self.worth(part, left_out_note(name))?.into())
            }
            ContentPart::Media(medium) => return self.medium(part, medium),
            ContentPart::Reasoning { .. } => return None,
        })
    }

    fn medium<'p>(&'p self, part: &ContentPart, medium: &'p Media) -> Option<PortablePiece<'p>> {
        let source = match &medium.place {
            MediaLocation::Inline { hash, .. } => {
                self.inline.get(hash).map(|base64| MediumSource::Base64(base64))
            }
            // A file id means nothing to another provider.
            MediaLocation::Elsewhere(link) => link.starts_with("http").then_some(MediumSource::Url(link)),
        };
        let kind = if medium.mime.is_empty() { "attachment" } else { &medium.mime };
        let note = self.worth(
            part,
            match &source {
                Some(MediumSource::Url(url)) => format!("[{kind} at {url}]"),
                Some(MediumSource::Base64(_)) | None => left_out_note(kind),
            },
        );
        match source {
            Some(source) => Some(PortablePiece::Medium { mime: &medium.mime, source, note }),
            None => note.map(|note| PortablePiece::Text(note.into())),
        }
    }

    /// The note, unless it would cost more than the part it stands for.
    fn worth(&self, part: &ContentPart, note: String) -> Option<String> {
        let fits = self.meter.is_none_or(|meter| meter.text(&note) <= meter.part(part));
        fits.then_some(note)
    }
}

/// A note for a part that is left out.
pub(crate) fn left_out_note(what: &str) -> String {
    format!("[{what}: left out, it cannot be shown here]")
}

fn inline(event: &Event) -> BTreeMap<Digest, String> {
    let wanted = event.fact.media().any(|medium| matches!(medium.place, MediaLocation::Inline { .. }));
    let mut inline = BTreeMap::new();
    if wanted && let Ok(raw) = Json::parse(&event.raw.json, "an event's raw form") {
        collect(&raw, &mut inline);
    }
    inline
}

/// Collects every base64 string in a value, by the hash of its decoded content.
fn collect(value: &Json<'_>, found: &mut BTreeMap<Digest, String>) {
    match &value.value {
        JsonValue::String(text) => {
            if let Some((hash, base64)) = media::decode_base64(text) {
                found.insert(hash, base64.to_owned());
            }
        }
        JsonValue::Array(elements) => elements.iter().for_each(|element| collect(element, found)),
        JsonValue::Object(members) => members.iter().for_each(|(_, member)| collect(member, found)),
        JsonValue::Null | JsonValue::Bool(_) | JsonValue::Number => {}
    }
}
