//! Texts that clients write in the user's name.
//!
//! A user message holds more than the words that a person typed: notifications about tasks, echoes and output
//! of commands, output of hooks, reminders, notes about the environment, files, markers of interruptions,
//! summaries of earlier conversation. Quotes, titles, requests and constraints must only be taken from the
//! user's own words, so one table tells them apart for all clients, and all code that needs the user's words
//! asks here.
//!
//! Only texts at the places where clients put them count: a part of its own, or a block that begins where a line does.
//! A user who mentions a tag in a sentence, or pastes one within a code fence, still speaks.

mod scan;
mod table;

use std::{borrow::Cow, ops::Range};

pub(crate) use scan::{ClientSpan, client_spans};
pub(crate) use table::StandingRule;
use table::{TABLE, TextMark};

use crate::event::{ContentPart, Fact};

/// The kind of a text that a client writes in the user's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientTextKind {
    /// A report of a task, an agent or a server: its words are its own, not the user's.
    Notification,
    /// A command of the client that the user ran.
    CommandEcho,
    /// The output of a command that the user ran.
    CommandOutput,
    /// The output of a hook.
    HookOutput,
    /// The date, the working folder, the project's state.
    Environment,
    /// Instructions of the project, rules, memory.
    Instructions,
    /// The text of a skill.
    Skill,
    /// A reminder of the client.
    Reminder,
    /// A marker that the user interrupted the model.
    Interruption,
    /// A summary of the earlier conversation, or a pointer to it.
    Continuation,
    /// The open file, the selection or the diagnostics of an editor.
    EditorState,
    /// The content of files that the user named.
    Attachment,
    /// The result of a tool, where a client has no other place for it.
    ToolOutput,
    /// A placeholder for an image, or an empty one.
    MediaPlaceholder,
    /// A request of the client itself: for a summary, or to go on.
    ClientPrompt,
    /// A token by which a simulated user ends a conversation.
    ControlToken,
    /// The marks around the user's own words.
    UserWordsFrame,
}

impl ClientTextKind {
    /// The kind in words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notification => "notification",
            Self::CommandEcho => "command",
            Self::CommandOutput => "command output",
            Self::HookOutput => "hook output",
            Self::Environment => "environment",
            Self::Instructions => "instructions",
            Self::Skill => "skill",
            Self::Reminder => "reminder",
            Self::Interruption => "interruption",
            Self::Continuation => "continuation",
            Self::EditorState => "editor state",
            Self::Attachment => "attachment",
            Self::ToolOutput => "tool output",
            Self::MediaPlaceholder => "media placeholder",
            Self::ClientPrompt => "client prompt",
            Self::ControlToken => "control token",
            Self::UserWordsFrame => "frame",
        }
    }
}

/// A stretch of a user message by one writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSpan {
    /// Its place in the text, in bytes.
    pub range: Range<usize>,
    /// The kind of text that a client wrote; none if the user wrote it.
    pub kind: Option<ClientTextKind>,
}

/// Splits a text of a user message into stretches by the user and by the client, in order. Space between two stretches
/// belongs to neither.
///
/// ```
/// use epitome_core::client_text::{ClientTextKind, spans};
///
/// let text = "<system-reminder>\nMind the list.\n</system-reminder>\nFix it.";
/// let kinds: Vec<_> = spans(text).into_iter().map(|span| span.kind).collect();
/// assert_eq!(kinds, [Some(ClientTextKind::Reminder), None]);
/// ```
pub fn spans(text: &str) -> Vec<TextSpan> {
    with_words(text, 0, &client_spans(text))
}

/// Splits each part of a user message as [`spans`] does; parts without text have no spans. A section that a
/// client sends in several parts ends at its closing mark, if it has one.
pub fn spans_of(parts: &[ContentPart]) -> Vec<Vec<TextSpan>> {
    let mut ends = SectionEnds::default();
    let mut open: Option<OpenSection> = None;
    let mut all = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let ContentPart::Text { text } = part else {
            all.push(Vec::new());
            continue;
        };
        let mut spans = Vec::new();
        let mut from = 0;
        if let Some(section) = open.take() {
            let end = text.find(section.end).map(|at| at + section.end.len());
            from = end.unwrap_or(text.len());
            if from > 0 {
                spans.push(TextSpan { range: 0..from, kind: Some(section.kind) });
            }
            if end.is_none() {
                open = Some(section);
            }
        }
        let rest = text.get(from..).unwrap_or_default();
        let found = client_spans(rest);
        if let Some(last) = found.last()
            && let Some(end) = last.missing_end(rest)
            && ends.is_behind(parts, index, end)
        {
            open = Some(OpenSection { end, kind: last.row.kind });
        }
        spans.extend(with_words(rest, from, &found));
        all.push(spans);
    }
    all
}

/// A section whose closing mark stands in a later part.
struct OpenSection {
    end: &'static str,
    kind: ClientTextKind,
}

/// The last parts in which ends of sections stand, each looked for once: a message may have many parts.
#[derive(Default)]
struct SectionEnds(Vec<(&'static str, Option<usize>)>);

impl SectionEnds {
    fn is_behind(&mut self, parts: &[ContentPart], index: usize, end: &'static str) -> bool {
        let known = self.0.iter().find(|(known, _)| *known == end).map(|(_, last)| *last);
        let last = known.unwrap_or_else(|| {
            let has_end =
                |part: &ContentPart| matches!(part, ContentPart::Text { text } if text.contains(end));
            let last = parts.iter().rposition(has_end);
            self.0.push((end, last));
            last
        });
        last.is_some_and(|last| last > index)
    }
}

/// The stretches of a client in a text and the user's words between them, which stands at `offset` in its part.
fn with_words(text: &str, offset: usize, found: &[ClientSpan<'_>]) -> Vec<TextSpan> {
    let mut all = Vec::new();
    let mut from = 0;
    for span in found {
        all.extend(words(text, from..span.range.start));
        from = span.range.end;
        all.push(TextSpan { range: span.range.clone(), kind: Some(span.row.kind) });
    }
    all.extend(words(text, from..text.len()));
    for span in &mut all {
        span.range = offset + span.range.start..offset + span.range.end;
    }
    all
}

/// The user's words in a stretch that no client wrote, without the space around them.
fn words(text: &str, range: Range<usize>) -> Option<TextSpan> {
    let said = text.get(range.clone())?;
    let start = range.start + (said.len() - said.trim_start().len());
    let range = start..start + said.trim().len();
    (!range.is_empty()).then_some(TextSpan { range, kind: None })
}

/// The words that a person wrote in a text of a user message; empty if a client wrote all of it.
///
/// ```
/// use epitome_core::client_text::user_words;
///
/// assert_eq!(user_words("<task-notification>\nDone.\n</task-notification>"), "");
/// assert_eq!(user_words("What is <task-notification> for?"), "What is <task-notification> for?");
/// ```
pub fn user_words(text: &str) -> Cow<'_, str> {
    own_words(text, spans(text))
}

/// The user's words in a text that is split into stretches.
fn own_words(text: &str, spans: Vec<TextSpan>) -> Cow<'_, str> {
    let said: Vec<&str> = spans
        .into_iter()
        .filter(|span| span.kind.is_none())
        .filter_map(|span| text.get(span.range))
        .collect();
    match said[..] {
        [] => Cow::Borrowed(""),
        [one] => Cow::Borrowed(one),
        _ => Cow::Owned(said.join("\n")),
    }
}

/// The words that a person wrote in a message, its parts apart from each other by an empty line. Space at both ends of
/// a message that is all theirs stays.
pub fn user_words_of(parts: &[ContentPart]) -> String {
    let mut said = String::new();
    for (part, spans) in parts.iter().zip(spans_of(parts)) {
        let ContentPart::Text { text } = part else { continue };
        // Quotes of users are word for word, so text is trimmed only where something is taken out.
        let is_all = spans.iter().all(|span| span.kind.is_none());
        let words = if is_all { Cow::Borrowed(text.as_str()) } else { own_words(text, spans) };
        if words.trim().is_empty() {
            continue;
        }
        if !said.is_empty() {
            said.push_str("\n\n");
        }
        said.push_str(&words);
    }
    said
}

/// Returns true if a person speaks in an event: with words of their own, or with an image or a file. A
/// message without any text does not show its author and counts as the user's.
pub fn is_user_speaking(fact: &Fact) -> bool {
    let Fact::UserSaid { parts } = fact else { return false };
    let is_text = |part: &ContentPart| matches!(part, ContentPart::Text { .. });
    let is_blank = ContentPart::texts(parts).all(|text| text.trim().is_empty());
    is_blank || !parts.iter().all(is_text) || !user_words_of(parts).is_empty()
}

/// The words that open a text of a client that puts its name into them, if `text` is one.
pub(crate) fn named_opening(text: &str) -> Option<&str> {
    TABLE.iter().find_map(|row| match row.mark {
        TextMark::NamedOpening { before, behind } => table::named_opening(text, before, behind),
        _ => None,
    })
}

/// Returns true if blocks of a tag are a client's, wherever they stand.
pub(crate) fn is_client_tag(name: &str) -> bool {
    table::tagged(name, name).is_some_and(|row| row.kind != ClientTextKind::UserWordsFrame)
}

#[cfg(test)]
mod tests;
