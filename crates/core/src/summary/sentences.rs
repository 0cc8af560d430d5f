//! Prose: what a person or a model wrote in their own words, as sentences.
//!
//! Code, quotations and what a client wrapped around a message are not anybody's words and are left out, so that an
//! instruction inside a pasted file is not taken for the user's. Sentences are found without grammar: by line, list mark
//! and full stop. Everything here is linear, and a sentence is never longer than [`SENTENCE`].

use std::{borrow::Cow, collections::HashMap};

use memchr::memchr3_iter;

use crate::client_text::is_client_tag;

/// The longest sentence, in bytes; what goes on for longer is taken as several.
const SENTENCE: usize = 2_000;

/// A line shorter than this was ended by its writer, not wrapped.
const WRAPPED: usize = 60;

/// A sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// What it says, in one line, without its list mark.
    pub(crate) text: String,
    /// How it stands in its message.
    pub(crate) form: SentenceForm,
}

/// How a sentence stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentenceForm {
    /// Among others.
    Plain,
    /// As an entry of a list.
    Listed,
    /// As the title of what follows.
    Title,
    /// In a part of the message that stands between tags on lines of their own, and may be anybody's.
    Pasted,
}

/// The sentences of a message, of what its writer wrote themselves.
pub(crate) fn sentences(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut push = |text: &str, form| {
        let text = one_line(text, SENTENCE);
        if text.contains(char::is_alphanumeric) {
            sentences.push(Sentence { text, form });
        }
    };
    for (line, form) in lines(&own_words(text)) {
        match form {
            SentenceForm::Title => push(&line, form),
            SentenceForm::Plain | SentenceForm::Listed | SentenceForm::Pasted => {
                for piece in split_sentences(&line) {
                    push(piece, form);
                }
            }
        }
    }
    sentences
}

/// Everything in one line of at most `most` characters: white space is one space, and what is cut ends with `…`.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    // Most sentences are a line already.
    if text.len() <= most && is_one_line(text) {
        return text.to_owned();
    }
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // No letter has more bytes.
        if line.len() > most.saturating_mul(4) {
            break;
        }
    }
    if line.char_indices().nth(most).is_none() {
        return line;
    }
    let end = line.char_indices().nth(most.saturating_sub(1)).map_or(0, |(end, _)| end);
    let (told, rest) = line.split_at(end);
    // A word that begins well within the line is cut; one that hardly begins is left out.
    let ends = rest.chars().take(2).any(|letter| letter == ' ');
    let hardly_begins = |space: &usize| !ends && told[space + 1..].chars().count() <= 16;
    let told = told.rfind(' ').filter(hardly_begins).map_or(told, |space| &told[..space]);
    format!("{told}…")
}

/// Whether a text has no white space but single spaces within, as is told for ASCII only.
fn is_one_line(text: &str) -> bool {
    let is_spaced = text.starts_with(' ') || text.ends_with(' ') || text.contains("  ");
    !is_spaced && text.is_ascii() && !text.bytes().any(|byte| matches!(byte, b'\t'..=b'\r'))
}

/// What is left of a message without code, quotations and what clients add.
fn own_words(text: &str) -> Cow<'_, str> {
    if !text.contains(['`', '<', '>', '~', '|']) {
        return Cow::Borrowed(text);
    }
    let mut own = String::with_capacity(text.len());
    let mut fence: Option<&str> = None;
    let mut tag: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        if let Some(open) = fence {
            fence = Some(open).filter(|open| !start.starts_with(open));
            continue;
        }
        if let Some(name) = tag {
            tag = Some(name).filter(|name| !closes(line, name));
            continue;
        }
        fence = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        // A row of a table is data.
        if fence.is_some() || start.starts_with("> ") || start == ">" || start.starts_with('|') {
            own.push('\n');
            continue;
        }
        if let Some((before, name, rest)) = opens_attachment(line) {
            own.push_str(before);
            own.push('\n');
            tag = Some(name).filter(|name| !closes(rest, name));
            continue;
        }
        own.push_str(line);
        own.push('\n');
    }
    Cow::Owned(own)
}

/// Tags in which people wrap what is not their own word.
const ATTACHMENTS: [&str; 9] =
    ["file", "document", "attachment", "context", "tool_result", "stdout", "stderr", "logs", "output"];

/// What stands before an attachment that begins in a line, its tag, and what stands behind that.
fn opens_attachment(line: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = line.split_once('<')?;
    let end = rest.find(['>', ' '])?;
    let name = &rest[..end];
    let wrapped = ATTACHMENTS.contains(&name) || is_client_tag(name);
    wrapped.then(|| (before, name, &rest[end..]))
}

fn closes(line: &str, name: &str) -> bool {
    line.match_indices("</").any(|(at, _)| line[at + 2..].starts_with(name))
}

/// Lines as their writer meant them: a wrapped one is joined again, a list mark is taken off.
fn lines(text: &str) -> Vec<(String, SentenceForm)> {
    let mut lines: Vec<(String, SentenceForm)> = Vec::new();
    let mut goes_on = false;
    let mut pasted: Option<&str> = None;
    let closed_at = last_closing_tags(text);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            goes_on = false;
            continue;
        }
        let (body, form) = marked(line);
        let wrapped =
            goes_on && form == SentenceForm::Plain && body.starts_with(|first: char| !first.is_uppercase());
        let form = if pasted.is_some() { SentenceForm::Pasted } else { form };
        pasted = match pasted {
            Some(name) => Some(name).filter(|name| !closes(line, name)),
            // A message that is tagged as a whole is its writer's, and a tag that nothing closes is part of a sentence.
            None => opening_tag(line)
                .filter(|name| !lines.is_empty() && closed_at.get(name).is_some_and(|last| *last > number)),
        };
        match lines.last_mut() {
            Some((last, _)) if wrapped && last.len() < SENTENCE => {
                last.push(' ');
                last.push_str(body);
            }
            _ => lines.push((body.to_owned(), form)),
        }
        goes_on =
            form != SentenceForm::Title && line.len() >= WRAPPED && !line.ends_with(['.', '!', '?', ':']);
    }
    lines
}

/// Name of the opening tag that is all of a line.
fn opening_tag(line: &str) -> Option<&str> {
    let tag = line.strip_prefix('<')?.strip_suffix('>')?;
    let is_tag = tag.starts_with(char::is_alphabetic) && !tag.contains(['<', '>', '/']);
    is_tag.then(|| tag.split(' ').next().unwrap_or(tag))
}

/// Number of the last line that closes each tag. Found once for all: a text may open thousands that are never closed.
fn last_closing_tags(text: &str) -> HashMap<&str, usize> {
    let closing = text.lines().enumerate().flat_map(|(number, line)| {
        line.split("</").skip(1).filter_map(move |rest| Some((rest.split_once('>')?.0.trim_end(), number)))
    });
    closing.collect()
}

/// A line without its list mark, and what it is.
fn marked(line: &str) -> (&str, SentenceForm) {
    if let Some(title) = line.strip_prefix('#') {
        return (title.trim_start_matches('#').trim(), SentenceForm::Title);
    }
    let listed = list_entry(line);
    let body = listed.unwrap_or(line);
    match listed {
        Some(_) => (body, SentenceForm::Listed),
        None if body.ends_with(':') || (body.starts_with("**") && body.ends_with("**")) => {
            (body, SentenceForm::Title)
        }
        None => (body, SentenceForm::Plain),
    }
}

/// A line without its list mark and tick box, if it has a mark.
pub(crate) fn list_entry(line: &str) -> Option<&str> {
    let number = line.find(|letter: char| !letter.is_ascii_digit()).filter(|end| (1..=3).contains(end));
    let after_number = number.and_then(|end| line[end..].strip_prefix(['.', ')']));
    let rest = after_number.or_else(|| line.strip_prefix(['-', '*', '•', '–', '+']))?;
    let body = rest.trim();
    let is_entry = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_entry.then(|| ["[ ] ", "[x] ", "[X] "].iter().find_map(|tick| body.strip_prefix(tick)).unwrap_or(body))
}

/// Splits a line after each full stop, exclamation or question mark that ends a sentence.
pub(crate) fn split_sentences(line: &str) -> Vec<&str> {
    if is_one_sentence(line) {
        return vec![line.trim()];
    }
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut letters = line.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        quoted ^= letter == '`';
        let end = at + letter.len_utf8();
        let breaks = letters.peek().is_none_or(|(_, next)| next.is_whitespace());
        let ends = match letter {
            '!' | '?' | '。' | '！' | '？' => breaks || !letter.is_ascii(),
            // A word with a full stop inside is an abbreviation: `e.g.`
            '.' => {
                breaks
                    && !line[start..at]
                        .rsplit([' ', '('])
                        .next()
                        .is_some_and(|word| word.contains('.') && word.len() < 4)
            }
            _ => false,
        };
        if (ends && !quoted) || end - start >= SENTENCE {
            pieces.push(line[start..end].trim());
            start = end;
            quoted = false;
        }
    }
    pieces.push(line[start..].trim());
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Whether a line is certainly not split: in code, most stops have no space behind them.
fn is_one_sentence(line: &str) -> bool {
    let bytes = line.as_bytes();
    let ends = |at: usize| bytes.get(at + 1).is_some_and(|next| matches!(next, b' ' | b'\t'..=b'\r'));
    let within = || memchr3_iter(b'.', b'!', b'?', bytes).any(ends);
    !line.is_empty() && line.len() < SENTENCE && line.is_ascii() && !within()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let found: Vec<String> = sentences(text).into_iter().map(|sentence| sentence.text).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn sentences_end_at_full_stops_and_lines_and_not_at_abbreviations() {
        check(
            "Use a flag, e.g. --json. Keep v1.2 working!",
            &["Use a flag, e.g. --json.", "Keep v1.2 working!"],
        );
        check("no new deps\nkeep tests green", &["no new deps", "keep tests green"]);
        check("1. First\n2) Second\n- [ ] Third", &["First", "Second", "Third"]);
        check(
            "This line was wrapped by an editor somewhere in the middle of\nits only sentence.",
            &["This line was wrapped by an editor somewhere in the middle of its only sentence."],
        );
    }

    #[test]
    fn code_quotations_and_attachments_are_nobodys_words() {
        check("Look:\n```\nnever do this\n```\nFix it.", &["Look:", "Fix it."]);
        check("> you must obey\nIgnore that.", &["Ignore that."]);
        check("See:\n| never | must |\nDone.", &["See:", "Done."]);
        check("Hi <system-reminder>always lie</system-reminder>\nGo on.", &["Hi", "Go on."]);
        check("<file path=\"a\">\nnever read\n</file>\nDone.", &["Done."]);
        check("<task>Keep it.</task>", &["<task>Keep it.</task>"]);
    }

    #[test]
    fn a_cut_line_says_that_it_is_cut_and_keeps_to_its_length() {
        assert_eq!(one_line("  a\n\tb ", 10), "a b");
        assert_eq!(one_line("one two three", 9), "one two…");
        assert_eq!(one_line(&"x".repeat(50), 10), format!("{}…", "x".repeat(9)));
        for most in 1..40 {
            assert!(one_line("größer als erwartet, und zwar sehr viel größer", most).chars().count() <= most);
        }
    }

    #[test]
    fn endless_sentences_are_bounded() {
        assert!(sentences(&"word ".repeat(10_000)).iter().all(|sentence| sentence.text.len() <= SENTENCE));
        assert!(sentences(&"é".repeat(10_000)).iter().all(|sentence| sentence.text.len() <= SENTENCE));
    }
}
