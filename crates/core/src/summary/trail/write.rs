//! A trail as text.
//!
//! What the user said and what tools returned stand between tags that nothing inside can close or open, so that a result
//! which imitates a heading, a quotation or another line of the trail is still visibly a result. Everything else is one line.

use std::{borrow::Cow, fmt::Write as _};

use super::{CallEnding, FoldedRequest, Trail, TrailCall, TrailEntry, TrailKind};
use crate::{context::EventNaming, id::Seq, summary::sentences::one_line};

/// The heading.
const HEADING: &str =
    "\n## What Happened\nOldest first, as it was said and done; […] is where something was left out";

/// An output of one line and no more letters than this stands beside its call.
const SHORT: usize = 120;

/// The tags that stand around texts of more lines.
const TAGS: [&str; 3] = ["user_message", "assistant_message", "tool_result"];

impl Trail {
    /// Writes it as a section of a summary; nothing, if it is empty.
    pub(in crate::summary) fn write(&self, names: EventNaming, text: &mut String) {
        let Some(first) = self.entries.first() else { return };
        text.push_str(HEADING);
        if names.are_shown() {
            let _ = write!(text, "; [{}] is {}", first.at, names.handle(first.at));
        }
        text.push_str(".\n");
        self.entries.iter().for_each(|entry| entry.write(names, text));
    }
}

impl TrailEntry {
    fn write(&self, names: EventNaming, text: &mut String) {
        let number = |at: Seq| if names.are_shown() { format!("[{at}] ") } else { String::new() };
        match &self.what {
            TrailKind::User { text: words } => block("user_message", self.at, words, names, text),
            TrailKind::Client { text: words } => {
                let _ = writeln!(text, "{}client {}", number(self.at), prose_line(words));
            }
            TrailKind::Assistant { text: words, .. } if words.contains(ends_line) => {
                block("assistant_message", self.at, words, names, text);
            }
            TrailKind::Assistant { text: words, .. } => {
                let _ = writeln!(text, "assistant: {}", without_tags(words));
            }
            TrailKind::Call(call) => call.write(self.at, names, text),
            TrailKind::Request(request) => request.write(self.at, names, text),
        }
    }
}

impl TrailCall {
    fn write(&self, at: Seq, names: EventNaming, text: &mut String) {
        let number = if names.are_shown() { format!("[{at}] ") } else { "- ".to_owned() };
        let _ = write!(text, "{number}{} {}", prose_line(&self.tool), code_line(&self.arguments));
        let is_short = !self.output.contains(ends_line) && self.output.len() <= SHORT;
        let ending = match &self.ending {
            CallEnding::Unanswered => "no result".to_owned(),
            CallEnding::Failed(_) if !self.output.is_empty() && !is_short => "failed".to_owned(),
            CallEnding::Failed(words) => format!("failed: {}", prose_line(words)),
            CallEnding::Returned if is_short && !self.output.is_empty() => code_line(&self.output),
            CallEnding::Returned if !self.output.is_empty() => String::new(),
            CallEnding::Returned if self.lines == 0 => "nothing returned".to_owned(),
            CallEnding::Returned if self.lines == 1 => "1 line".to_owned(),
            CallEnding::Returned => format!("{} lines", self.lines),
        };
        if !ending.is_empty() {
            let _ = write!(text, " → {ending}");
        }
        text.push('\n');
        if !is_short {
            block("tool_result", at, &self.output, names, text);
        }
    }
}

impl FoldedRequest {
    fn write(&self, at: Seq, names: EventNaming, text: &mut String) {
        let place = match names.are_shown() {
            true if at == self.last => format!("[{at}] "),
            true => format!("[{at}-{}] ", self.last),
            false => "- ".to_owned(),
        };
        let _ = write!(text, "{place}earlier");
        if self.requests > 1 {
            let _ = write!(text, ", {} requests", self.requests);
        }
        if !self.asked.is_empty() {
            let _ = write!(text, "; asked: {}", prose_line(&self.asked));
        }
        if !self.calls.is_empty() {
            let calls: Vec<String> =
                self.calls.iter().map(|(tool, count)| format!("{} ×{count}", prose_line(tool))).collect();
            let _ = write!(text, "; called {}", calls.join(", "));
        }
        text.push_str(&self.changed_files());
        if !self.concluded.is_empty() {
            let _ = write!(text, "; concluded: {}", prose_line(&self.concluded));
        }
        text.push('\n');
    }

    /// Names of the files that were changed, as they are written; nothing, if none was.
    pub(in crate::summary) fn changed_files(&self) -> String {
        if self.changed.is_empty() {
            return String::new();
        }
        format!("; changed {}", prose_line(&self.changed.join(", ")))
    }
}

/// A text between tags of its own, with its number where names are shown.
fn block(tag: &str, at: Seq, words: &str, names: EventNaming, text: &mut String) {
    let words = without_tags(words);
    let _ = if names.are_shown() {
        writeln!(text, "<{tag} n=\"{at}\">\n{words}\n</{tag}>")
    } else {
        writeln!(text, "<{tag}>\n{words}\n</{tag}>")
    };
}

/// Words in one line, where the space between them says nothing.
fn prose_line(text: &str) -> String {
    without_tags(&one_line(text, usize::MAX)).into_owned()
}

/// Code in one line: the space in it is part of what it says.
fn code_line(text: &str) -> String {
    without_tags(text).replace(ends_line, " ")
}

/// Whether a letter may be read as the end of a line.
fn ends_line(letter: char) -> bool {
    matches!(letter, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// A text in which nothing begins or ends a text of the trail: where it would, there is a space.
pub(in crate::summary) fn without_tags(text: &str) -> Cow<'_, str> {
    let is_tag = |rest: &str| {
        let name = rest.strip_prefix('/').unwrap_or(rest);
        TAGS.iter().any(|tag| name.get(..tag.len()).is_some_and(|name| name.eq_ignore_ascii_case(tag)))
    };
    let mut harmless = String::new();
    let mut copied = 0;
    for (at, _) in text.match_indices('<').filter(|(at, _)| is_tag(&text[at + 1..])) {
        harmless.push_str(&text[copied..=at]);
        harmless.push(' ');
        copied = at + 1;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    harmless.push_str(&text[copied..]);
    Cow::Owned(harmless)
}
