//! Content of an event in terms every format has: text, calls and media with their bytes.
//!
//! Content that has no equivalent in another format becomes a short note, so that the model knows that something
//! stood there. If a meter is given, a note that would cost more than its part is not written.

use std::{borrow::Cow, collections::BTreeMap};

use epitome_core::{
    Digest, Event, Fact, Part,
    event::{Summary, ToolCall},
    media::{Media, Place},
    meter::Meter,
};

use super::Entry;
use crate::{
    json::{Json, Value},
    media,
};

/// A piece of a message that can be written in any format, if need be as a note.
pub(super) enum Piece<'a> {
    Text(Cow<'a, str>),
    Refusal(&'a str),
    Call(&'a ToolCall, usize),
    Medium {
        mime: &'a str,
        source: Source<'a>,
        /// Note in its place if the format has no equivalent.
        note: Option<String>,
    },
}

/// Source of a medium's bytes.
pub(super) enum Source<'a> {
    Base64(&'a str),
    Url(&'a str),
}

impl Piece<'_> {
    /// Text in place of a piece where only text is possible.
    pub(super) fn note(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Refusal(text) => Some(text),
            Self::Call(..) => None,
            Self::Medium { note, .. } => note.as_deref(),
        }
    }
}

/// An event, ready to be written in a format it did not come in.
pub(super) struct Portable<'a> {
    event: &'a Event,
    inline: &'a BTreeMap<Digest, String>,
    meter: Option<&'a Meter>,
}

impl<'a> Portable<'a> {
    pub(super) fn of(entry: &'a Entry<'_>, meter: Option<&'a Meter>) -> Self {
        Self { event: entry.event, inline: entry.inline.get_or_init(|| inline(entry.event)), meter }
    }

    /// Content of the message without its results.
    pub(super) fn pieces(&self) -> Vec<Piece<'_>> {
        match &self.event.fact {
            Fact::Compacted(compaction) => self.summary(&compaction.summary).into_iter().collect(),
            fact => self.said(fact.parts()),
        }
    }

    /// Content of some parts of this event. Reasoning belongs to its provider and is left out.
    pub(super) fn said<'p>(&'p self, parts: &'p [Part]) -> Vec<Piece<'p>> {
        self.said_at(parts.iter().enumerate())
    }

    /// The same for parts that are given with their indices.
    pub(super) fn said_at<'p>(&'p self, parts: impl Iterator<Item = (usize, &'p Part)>) -> Vec<Piece<'p>> {
        parts.filter_map(|(place, part)| self.piece(place, part)).collect()
    }

    /// Texts of some parts, with notes for parts that are not text.
    pub(super) fn texts(&self, parts: &[Part]) -> Vec<String> {
        self.said(parts).iter().filter_map(|piece| piece.note().map(str::to_owned)).collect()
    }

    fn summary<'p>(&'p self, summary: &'p Summary) -> Option<Piece<'p>> {
        match summary {
            Summary::Text(text) | Summary::Structured { text, .. } => Some(Piece::Text(text.into())),
            Summary::Encrypted(sealed) => {
                let note = left_out("summary");
                let room = |meter: &Meter| meter.sealed(sealed) + meter.overhead().summary;
                let fits = self.meter.is_none_or(|meter| meter.text(&note) <= room(meter));
                fits.then(|| Piece::Text(note.into()))
            }
        }
    }

    fn piece<'p>(&'p self, place: usize, part: &'p Part) -> Option<Piece<'p>> {
        Some(match part {
            Part::Text { text } => Piece::Text(text.into()),
            Part::Refusal { text } => Piece::Refusal(text),
            Part::ToolCall(call) => Piece::Call(call, place),
            Part::Opaque { name, .. } => Piece::Text(self.worth(part, left_out(name))?.into()),
            Part::Media(medium) => return self.medium(part, medium),
            Part::Reasoning { .. } => return None,
        })
    }

    fn medium<'p>(&'p self, part: &Part, medium: &'p Media) -> Option<Piece<'p>> {
        let source = match &medium.place {
            Place::Inline { hash, .. } => self.inline.get(hash).map(|base64| Source::Base64(base64)),
            // A file id means nothing to another provider.
            Place::Elsewhere(link) => link.starts_with("http").then_some(Source::Url(link)),
        };
        let kind = if medium.mime.is_empty() { "attachment" } else { &medium.mime };
        let note = self.worth(
            part,
            match &source {
                Some(Source::Url(url)) => format!("[{kind} at {url}]"),
                Some(Source::Base64(_)) | None => left_out(kind),
            },
        );
        match source {
            Some(source) => Some(Piece::Medium { mime: &medium.mime, source, note }),
            None => note.map(|note| Piece::Text(note.into())),
        }
    }

    /// The note, unless it would cost more than the part it stands for.
    fn worth(&self, part: &Part, note: String) -> Option<String> {
        let fits = self.meter.is_none_or(|meter| meter.text(&note) <= meter.part(part));
        fits.then_some(note)
    }
}

/// A note for a part that is left out.
pub(super) fn left_out(what: &str) -> String {
    format!("[{what}: left out, it cannot be shown here]")
}

fn inline(event: &Event) -> BTreeMap<Digest, String> {
    let wanted = event.fact.media().any(|medium| matches!(medium.place, Place::Inline { .. }));
    let mut inline = BTreeMap::new();
    if wanted && let Ok(raw) = Json::parse(&event.raw.json, "an event's raw form") {
        collect(&raw, &mut inline);
    }
    inline
}

/// Collects every base64 string in a value, by the hash of its decoded content.
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
