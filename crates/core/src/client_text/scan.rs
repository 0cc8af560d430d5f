//! Finds the texts of clients within a text of a user message.
//!
//! The text is read once, line by line. Even for hostile input, each place is looked at a bounded number of
//! times: tags that are never closed are remembered by name, and after many searches in vain no more are
//! made.

use std::ops::Range;

use memchr::{memchr, memmem};

use super::table::{ClientText, TABLE, TextMark, named_opening, tagged};

/// A stretch that a client wrote.
#[derive(Debug)]
pub(crate) struct ClientSpan<'t> {
    /// Its place in the text.
    pub(crate) range: Range<usize>,
    /// Row of the table that matched.
    pub(crate) row: &'static ClientText,
    /// The name of its tag, or the line or words that it begins with.
    pub(crate) name: &'t str,
    /// Place of its content, within its tags.
    pub(crate) inside: Range<usize>,
}

impl ClientSpan<'_> {
    /// The end that a section still waits for where its text ends.
    pub(super) fn missing_end(&self, text: &str) -> Option<&'static str> {
        let TextMark::Section { to, .. } = self.row.mark else { return None };
        let is_open = self.range.end == text.len() && !text.ends_with(to);
        is_open.then_some(to)
    }
}

/// Finds the stretches of a text that a client wrote, in order and apart from each other.
pub(crate) fn client_spans(text: &str) -> Vec<ClientSpan<'_>> {
    let mut scanner = ClientTextScanner { text, unclosed: Vec::new(), unmatched: 0, found: Vec::new() };
    if !scanner.take_whole() {
        let start = scanner.take_header();
        let end = scanner.take_end(start);
        scanner.take_lines(start..end, FrameHandling::Enter);
    }
    let mut found = scanner.found;
    found.sort_by_key(|span| span.range.start);
    found
}

/// Number of vain searches for closing tags after which no more are made: no client leaves a tag open.
const MOST_UNCLOSED: usize = 64;

/// Number of tags that may be closed only within lines before matching closing tags are no longer looked for.
const MOST_UNMATCHED: usize = 64;

/// Limit for the length of a client's tag with its attributes.
const LONGEST_TAG: usize = 1_024;

/// Limit for the length of a client's heading, in bytes.
const LONGEST_HEADING: usize = 200;

struct ClientTextScanner<'t> {
    text: &'t str,
    /// Tags that are never closed.
    unclosed: Vec<&'t str>,
    /// Number of tags without a matching closing tag.
    unmatched: usize,
    found: Vec<ClientSpan<'t>>,
}

/// Handling of frames around the user's words: they do not hold each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameHandling {
    Enter,
    Ignore,
}

impl<'t> ClientTextScanner<'t> {
    fn slice(&self, range: Range<usize>) -> &'t str {
        self.text.get(range).unwrap_or_default()
    }

    fn push(&mut self, row: &'static ClientText, range: Range<usize>, name: &'t str) {
        if !range.is_empty() {
            let inside = range.clone();
            self.found.push(ClientSpan { range, row, name, inside });
        }
    }

    /// Takes the whole text if it is a client's as a whole.
    fn take_whole(&mut self) -> bool {
        let text = self.text.trim();
        let mut lines = text.lines();
        let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let whole = TABLE.iter().find_map(|row| {
            let (is_it, name) = match row.mark {
                TextMark::Opening(opening) => (text.starts_with(opening), opening),
                TextMark::NamedOpening { before, behind } => {
                    let opening = named_opening(text, before, behind);
                    (opening.is_some(), opening.unwrap_or_default())
                }
                TextMark::Exactly(words) => (text == words, words),
                TextMark::Bracket(opening) => (text.starts_with(opening) && is_bracket(text), opening),
                TextMark::FirstLine { begins, ends, then } => {
                    let is_first = first.starts_with(begins) && first.trim_end().ends_with(ends);
                    let is_then = then.is_empty() || then.iter().any(|begins| second.starts_with(begins));
                    (is_first && is_then, begins)
                }
                _ => (false, ""),
            };
            is_it.then_some((row, name))
        });
        let Some((row, name)) = whole else { return false };
        self.push(row, 0..self.text.len(), name);
        true
    }

    /// Takes the client's text behind the user's words, which begin at `from`, and returns the place where
    /// the user's words end.
    fn take_end(&mut self, from: usize) -> usize {
        let text = self.slice(from..self.text.len()).trim_end();
        for row in TABLE {
            let (start, name) = match row.mark {
                TextMark::Footer { begins, ends } if text.ends_with(ends) => {
                    (last_line(text, begins), begins)
                }
                TextMark::LastWord(word) if text.ends_with(word) => (Some(text.len() - word.len()), word),
                _ => continue,
            };
            if let Some(start) = start {
                self.push(row, from + start..from + text.len(), name);
                return from + start;
            }
        }
        self.text.len()
    }

    /// Takes the client's text before the user's words, and returns the place where the user's words begin.
    fn take_header(&mut self) -> usize {
        let blank = self.text.len() - self.text.trim_start().len();
        let text = self.slice(blank..self.text.len());
        for row in TABLE {
            let TextMark::Header { begins, to } = row.mark else { continue };
            if !text.starts_with(begins) {
                continue;
            }
            let mut ends = text.match_indices(to).map(|(at, _)| (blank + at, blank + at + to.len()));
            let end =
                ends.find(|(start, end)| begins_a_line(self.text, *start) && ends_a_line(self.text, *end));
            if let Some((_, end)) = end {
                self.push(row, blank..end, begins);
                return end;
            }
        }
        0
    }

    /// Takes the blocks that begin where lines do, or where another ends.
    fn take_lines(&mut self, range: Range<usize>, frames: FrameHandling) {
        let mut at = range.start;
        while at < range.end {
            let start = at + spaces(self.slice(at..range.end));
            // Most lines begin no block; only their end is looked for.
            at = match self.text.as_bytes().get(start) {
                Some(b'<' | b'#' | b'-' | b'[') => self.take_block(start..range.end, frames),
                _ => None,
            }
            .unwrap_or_else(|| self.after_line(start..range.end));
        }
    }

    /// The place behind a line, and behind the code block that it begins: pasted code is the user's.
    fn after_line(&self, range: Range<usize>) -> usize {
        let rest = self.slice(range.clone());
        let line = |from: usize| {
            let rest = rest.as_bytes().get(from..).unwrap_or_default();
            from + memchr(b'\n', rest).map_or(rest.len(), |end| end + 1)
        };
        let mut after = line(0);
        if let Some(fence) = ["```", "~~~"].into_iter().find(|fence| rest.starts_with(fence)) {
            let behind = rest.get(after..).unwrap_or_default();
            let mut closings = behind.match_indices(fence).map(|(at, _)| after + at);
            if let Some(closing) = closings.find(|at| begins_a_line(rest, *at)) {
                after = line(closing);
            }
        }
        range.start + after
    }

    /// Takes the block that begins here, and says where it ends.
    fn take_block(&mut self, range: Range<usize>, frames: FrameHandling) -> Option<usize> {
        let rest = self.slice(range.clone());
        match rest.as_bytes().first()? {
            b'<' => self.take_tagged(range, frames),
            b'#' | b'-' | b'[' => {
                let (row, length, name) = TABLE.iter().find_map(|row| match row.mark {
                    TextMark::Section { begins, to } if rest.starts_with(begins) => {
                        let length = rest.find(to).map_or(rest.len(), |at| at + to.len());
                        Some((row, length, heading(rest)))
                    }
                    // A line is read to its end only where it is then taken, or left, as a whole.
                    TextMark::BracketLine(opening) if rest.starts_with(opening) => {
                        let line = rest.lines().next().unwrap_or_default().trim_end();
                        is_row_of_brackets(line, opening).then_some((row, line.len(), opening))
                    }
                    _ => None,
                })?;
                self.push(row, range.start..range.start + length, name);
                Some(range.start + length)
            }
            _ => None,
        }
    }

    /// Takes the tagged block that begins here, and says where it ends.
    fn take_tagged(&mut self, range: Range<usize>, frames: FrameHandling) -> Option<usize> {
        let rest = self.slice(range.clone());
        let opening_end = rest.bytes().take(LONGEST_TAG).position(|byte| byte == b'>')?;
        // Text that holds a closing bracket is no tag.
        let opening = rest.get(1..opening_end).filter(|opening| !opening.contains("</"))?;
        let name = opening.split([' ', '\n']).next().unwrap_or_default();
        let row = tagged(name, opening)?;
        // Codex has a tag of two words.
        let name = if matches!(row.mark, TextMark::Tag(tag) if tag == opening) { opening } else { name };
        // Frames do not hold each other, so no end is looked for within one.
        let is_nested = matches!(row.mark, TextMark::Frame(_)) && frames == FrameHandling::Ignore;
        if is_nested || self.unclosed.contains(&name) || self.unclosed.len() >= MOST_UNCLOSED {
            return None;
        }
        let Some(length) = self.close(rest, opening_end, name) else {
            self.unclosed.push(name);
            return None;
        };
        if is_mentioned(rest, length) {
            return None;
        }
        let block = range.start..range.start + length;
        let inside = block.start + opening_end + 1..block.end - (name.len() + "</>".len());
        let is_open = match row.mark {
            TextMark::Frame(_) => true,
            TextMark::Arguments(_) => reads_as_words(self.slice(inside.clone())),
            _ => {
                self.take_quoting(row, name, block.clone(), inside);
                return Some(block.end);
            }
        };
        if is_open {
            self.push(row, block.start..inside.start, name);
            self.take_lines(inside.clone(), FrameHandling::Ignore);
            self.push(row, inside.end..block.end, name);
        } else {
            self.found.push(ClientSpan { range: block.clone(), row, name, inside });
        }
        Some(block.end)
    }

    /// The length of the block that a text begins with. Only tags where lines begin or end are counted, so
    /// that a tag mentioned in instructions closes nothing; if they do not match, the first closing tag does.
    fn close(&mut self, text: &str, opening_end: usize, name: &str) -> Option<usize> {
        const TRIES: usize = 64;
        let (open, close) = (format!("<{name}"), format!("</{name}>"));
        let behind = text.get(opening_end..)?;
        let mut closings = behind.match_indices(&close).map(|(at, _)| opening_end + at).peekable();
        let first = *closings.peek()?;
        let tries = if self.unmatched < MOST_UNMATCHED { TRIES } else { 1 };
        let (mut depth, mut from) = (1_usize, opening_end);
        for at in closings.take(tries) {
            // No tag is looked for behind the place in question: the text may be long.
            let between = text.get(from..at).unwrap_or_default();
            let opened = between.match_indices(&open).filter(|(place, _)| begins_a_line(text, from + place));
            depth += opened.count();
            from = at;
            if begins_a_line(text, at) || ends_a_line(text, at + close.len()) {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + close.len());
                }
            }
        }
        self.unmatched += 1;
        Some(first + close.len())
    }

    /// Takes a block, but for the user's words where it quotes them.
    fn take_quoting(
        &mut self,
        row: &'static ClientText,
        name: &'t str,
        block: Range<usize>,
        inside: Range<usize>,
    ) {
        let said = self.slice(inside.clone());
        let quoted = TABLE.iter().find_map(|row| match row.mark {
            TextMark::Quotes { tag, before, behind }
                if tag == name && said.trim_start().starts_with(before) =>
            {
                let blank = said.len() - said.trim_start().len();
                let start = blank + said.get(blank..)?.find('\n')? + 1;
                let end = last_line(said, behind).filter(|end| *end > start).unwrap_or(said.len());
                Some((row, inside.start + start..inside.start + end))
            }
            _ => None,
        });
        let Some((row, words)) = quoted else {
            self.found.push(ClientSpan { range: block, row, name, inside });
            return;
        };
        self.push(row, block.start..words.start, name);
        self.take_lines(words.clone(), FrameHandling::Ignore);
        self.push(row, words.end..block.end, name);
    }
}

/// The length of a run of spaces that a text begins with.
fn spaces(text: &str) -> usize {
    text.bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count()
}

/// The first line of a text, as far as a heading goes. The line may be long and hold many blocks, so the rest is not read.
fn heading(text: &str) -> &str {
    let text = text.get(..text.floor_char_boundary(LONGEST_HEADING)).unwrap_or_default();
    text.lines().next().unwrap_or_default()
}

/// The place of the last line that begins so.
fn last_line(text: &str, begins: &str) -> Option<usize> {
    // Hardly any text has one, and from its beginning a text is searched faster.
    memmem::find(text.as_bytes(), begins.as_bytes())?;
    text.rmatch_indices(begins).map(|(at, _)| at).find(|at| begins_a_line(text, *at))
}

/// Returns true if a text is exactly one bracket.
fn is_bracket(text: &str) -> bool {
    let Some(open) = text.chars().next() else { return false };
    let close = if open == '<' { '>' } else { ']' };
    text.ends_with(close) && !text.contains('\n') && !text.get(1..).is_some_and(|rest| rest.contains(open))
}

/// Returns true if a line consists only of brackets with this opening.
fn is_row_of_brackets(line: &str, opening: &str) -> bool {
    let mut rest = line;
    while let Some(inside) = rest.strip_prefix(opening) {
        let Some((_, after)) = inside.split_once(']') else { return false };
        rest = after.trim_start();
    }
    rest.is_empty()
}

/// Returns true if the text behind a command is addressed to the model: an option is one word.
fn reads_as_words(text: &str) -> bool {
    let text = text.trim();
    text.contains(char::is_whitespace) || !text.is_ascii()
}

/// Returns true if a block is only mentioned: it stands in one line, and the sentence goes on behind it. No
/// line is read to its end for that, because it may hold many blocks.
fn is_mentioned(text: &str, length: usize) -> bool {
    let (block, behind) = text.split_at_checked(length).unwrap_or((text, ""));
    let goes_on = |letter: char| !matches!(letter, '<' | '\n' | '\r');
    let is_apart = behind.starts_with(|letter: char| !letter.is_alphanumeric() && goes_on(letter));
    is_apart && behind.trim_start_matches([' ', '\t']).starts_with(goes_on) && !block.contains('\n')
}

/// Returns true if only space stands before a place in its line.
fn begins_a_line(text: &str, at: usize) -> bool {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let last = before.iter().rev().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    last.is_none_or(|byte| *byte == b'\n')
}

/// Returns true if only space stands behind a place in its line.
fn ends_a_line(text: &str, at: usize) -> bool {
    let after = text.as_bytes().get(at..).unwrap_or_default();
    let next = after.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    next.is_none_or(|byte| *byte == b'\n')
}
