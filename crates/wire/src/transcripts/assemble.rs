//! Construction of readings and sessions, in the way common to all readers of conversations.

use std::collections::BTreeMap;

use epitome_core::{ContentPart, Event, Fact, Seq, SessionId, ThreadId};

use super::{
    TranscriptFile, TranscriptFormat, TranscriptSession, TranscriptThread, TranscriptThreadStart,
    TranscriptWarning,
};
use crate::json::Json;

impl TranscriptFile {
    /// Makes the reading of a file in which nothing has been found yet.
    pub(crate) fn new(format: TranscriptFormat) -> Self {
        Self { format, sessions: Vec::new(), warnings: Vec::new(), skipped: BTreeMap::new() }
    }

    /// Notes something odd.
    pub(crate) fn warn(&mut self, what: impl Into<String>) {
        self.warnings.push(TranscriptWarning { line: None, what: what.into() });
    }

    /// Adds to the warnings from `from` on the session they are about.
    pub(crate) fn warnings_are_about(&mut self, from: usize, key: &str) {
        for warning in self.warnings.iter_mut().skip(from) {
            warning.what = format!("{key}: {}", warning.what);
        }
    }

    /// Counts a record that is not part of a conversation.
    pub(crate) fn skip(&mut self, kind: &str) {
        match self.skipped.get_mut(kind) {
            Some(count) => *count += 1,
            None => _ = self.skipped.insert(kind.to_owned(), 1),
        }
    }
}

/// The id of a session: its own if that is a UUID, else made of the format and the session's key.
pub(crate) fn session_id(format: TranscriptFormat, key: &str) -> SessionId {
    key.parse().unwrap_or_else(|_| SessionId::derived(&[format.name(), key]))
}

/// The id of a thread of a session.
pub(crate) fn thread_id(session: SessionId, name: &str) -> ThreadId {
    ThreadId::derived(&[&session.to_string(), name])
}

/// The name of the thread that every session has.
pub(crate) const MAIN_THREAD_NAME: &str = "main";

/// A session of one thread with no parent.
pub(crate) fn single_thread_session(
    id: SessionId,
    key: impl Into<String>,
    title: Option<String>,
    events: Vec<Event>,
) -> TranscriptSession {
    let head = thread_id(id, MAIN_THREAD_NAME);
    let thread = TranscriptThread {
        id: head,
        name: MAIN_THREAD_NAME.to_owned(),
        start: TranscriptThreadStart::Root,
        events,
    };
    TranscriptSession { id, key: key.into(), title, folder: None, threads: vec![thread], head }
}

/// The number that the next event of a thread will have.
pub(crate) fn next(events: &[Event]) -> Seq {
    Seq(events.len() as u64 + 1)
}

/// A record that its reader does not understand: carried, so that nothing of it is lost.
pub(crate) fn carried_event(dialect: &'static str, json: &str, kind: &str) -> Event {
    Event::native(dialect, json, Fact::Carried { kind: kind.to_owned() })
}

/// Text as parts: none if the text is empty.
pub(crate) fn text_parts(text: &str) -> Vec<ContentPart> {
    if text.is_empty() { Vec::new() } else { vec![ContentPart::text(text)] }
}

/// Message content as most agents write it: a string, or a list of text and image blocks.
pub(crate) fn content_parts(content: Option<&Json<'_>>) -> Vec<ContentPart> {
    let Some(content) = content else { return Vec::new() };
    if let Some(text) = content.as_text() {
        return text_parts(text);
    }
    content.as_array().unwrap_or_default().iter().map(content_part).collect()
}

fn content_part(block: &Json<'_>) -> ContentPart {
    let kind = block.text_at("type").unwrap_or("block");
    let known = match kind {
        "text" => block.text_at("text").map(ContentPart::text),
        "image_url" => block.get("image_url").and_then(|image| {
            let url = image.text_at("url").or_else(|| image.as_text())?;
            crate::media::url_part(crate::media::ANY_IMAGE, url)
        }),
        _ => None,
    };
    known.unwrap_or_else(|| ContentPart::Opaque { name: kind.to_owned(), json: block.raw.to_owned() })
}
