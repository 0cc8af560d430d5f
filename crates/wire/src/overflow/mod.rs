//! Recognition of a provider's error that a request is too long, with the numbers it gives.
//!
//! There is no common code for it. OpenAI, Groq and llama.cpp report it in a field; all others report it in words,
//! and servers in between pass on the words of others. So an error is recognised by its code or by one of the
//! wordings in `wordings`, in any format. Errors that only sound like it do not count: a limit of time or money, or
//! an output limit beyond the model's own. Compaction would not help there.
//!
//! Only a provider's errors are examined: an answer that talks about long prompts is an answer. The amount read is
//! bounded, and no bytes make it panic.

mod stream_detector;
mod wordings;

use std::borrow::Cow;

use epitome_core::Tokens;

pub use self::stream_detector::{OverflowDetector, OverflowVerdict};
use self::wordings::{OTHER_LIMITS, OVERFLOW_CODES, WORDINGS};
use crate::{format::Format, json::Json, sse::SsePayloads};

/// A request that was too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextOverflow {
    /// The window, if the provider gives it.
    pub limit: Option<Tokens>,
    /// Size of the request in the provider's own count, if it gives one: with the room for the answer, where that
    /// counts.
    pub asked: Option<Tokens>,
}

/// Recognises a provider's error that a request was too long, from the status of its response and its whole body,
/// which may also be a stream that failed.
///
/// ```
/// use epitome_core::Tokens;
/// use epitome_wire::{Format, overflow::detect_overflow};
///
/// let body = br#"{"type":"error","error":{"type":"invalid_request_error",
///     "message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#;
/// let found = detect_overflow(Format::Anthropic, 400, body).ok_or("not recognised")?;
/// assert_eq!((found.asked, found.limit), (Some(Tokens(213_462)), Some(Tokens(200_000))));
/// assert_eq!(detect_overflow(Format::Anthropic, 529, body), None);
/// # Ok::<(), &str>(())
/// ```
pub fn detect_overflow(format: Format, status: u16, body: &[u8]) -> Option<ContextOverflow> {
    // No key, no money, no such model, too many requests, too busy: these are other errors whatever their text.
    if matches!(status, 401..=404 | 429 | 503 | 529) {
        return None;
    }
    let mut said = ErrorTexts::default();
    let text = String::from_utf8_lossy(body.get(..MAX_BODY_BYTES).unwrap_or(body));
    let text = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    if ["data:", "event:", ":"].iter().any(|start| text.starts_with(start)) {
        said.stream(format, body);
    } else if let Ok(json) = Json::parse(text, "a provider's error") {
        let several = json.as_array().unwrap_or(std::slice::from_ref(&json));
        for value in several.iter().take(MAX_ERRORS) {
            said.value(
                format,
                value,
                if status < 400 { ErrorBodyKind::Answer } else { ErrorBodyKind::Error },
            );
        }
    } else if status >= 400 {
        said.text(text);
    }
    said.judged(status)
}

/// Longest body that is searched. No provider's error is longer.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Longest text that is searched: the error is named at its beginning.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Largest number of errors read from one body.
const MAX_ERRORS: usize = 8;

/// Meaning of a whole JSON value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ErrorBodyKind {
    /// An error, in any shape.
    Error,
    /// An answer, unless it contains an error member.
    Answer,
}

/// Texts and fields of a provider's errors.
#[derive(Default)]
struct ErrorTexts {
    codes: Vec<String>,
    /// In lower case.
    texts: Vec<String>,
    /// Numbers that llama.cpp gives in fields.
    fields: ContextOverflow,
}

impl ErrorTexts {
    /// Reads the errors of a stream.
    fn stream(&mut self, format: Format, body: &[u8]) {
        let mut payloads = SsePayloads::default();
        let mut see = |payload: &str| {
            let may = payload.len() <= MAX_BODY_BYTES && payload.contains("error");
            if may && let Ok(event) = Json::parse(payload, "a streamed event") {
                self.value(format, &event, ErrorBodyKind::Answer);
            }
        };
        payloads.push(body, &mut see);
        payloads.finish(&mut see);
    }

    /// Reads the errors of a body, or of one event of a stream.
    fn value(&mut self, format: Format, value: &Json<'_>, root: ErrorBodyKind) {
        if self.texts.len() >= MAX_ERRORS {
            return;
        }
        let says_so = [value.text_at("type"), value.text_at("object")].contains(&Some("error"));
        if root == ErrorBodyKind::Error || says_so {
            self.error(value);
        }
        let response = format.provider().error_holder(value);
        for holder in [Some(value), response].into_iter().flatten() {
            match holder.get("error") {
                Some(error) if error.is_object() => self.error(error),
                Some(error) => error.as_text().into_iter().for_each(|text| self.text(text)),
                None => {}
            }
        }
    }

    fn error(&mut self, error: &Json<'_>) {
        let codes = ["code", "type"].into_iter().filter_map(|key| error.text_at(key));
        self.codes.extend(codes.filter(|code| code.len() < 100).map(str::to_ascii_lowercase));
        let words = ["message", "detail", "msg"].into_iter().filter_map(|key| error.text_at(key));
        // The error that a server in between received itself.
        let passed_on = error.get("metadata").and_then(|metadata| metadata.text_at("raw"));
        words.chain(passed_on).for_each(|text| self.text(text));
        let count = |key: &str| error.get(key).and_then(Json::as_count).map(Tokens);
        self.fields.limit = self.fields.limit.or(count("n_ctx"));
        self.fields.asked = self.fields.asked.or(count("n_prompt_tokens"));
    }

    fn text(&mut self, text: &str) {
        let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
        self.texts.push(text.to_ascii_lowercase());
    }

    fn judged(&self, status: u16) -> Option<ContextOverflow> {
        let everything = || self.codes.iter().chain(&self.texts);
        if everything().any(|said| OTHER_LIMITS.iter().any(|limit| said.contains(limit))) {
            return None;
        }
        let by_words = self.texts.iter().find_map(|text| WORDINGS.iter().find_map(|it| fit(it.says, text)));
        // Where the answer alone may take the whole window, the setting is wrong, and no shorter history would help.
        if by_words.is_some_and(|found| found.limit.is_some_and(|limit| found.answer >= limit)) {
            return None;
        }
        let by_code = self.codes.iter().any(|code| OVERFLOW_CODES.contains(&code.as_str()))
            || self.texts.iter().any(|text| OVERFLOW_CODES.iter().any(|code| text.contains(code)));
        match by_words {
            Some(found) => Some(ContextOverflow {
                limit: found.limit.or(self.fields.limit),
                asked: found.asked.or(self.fields.asked),
            }),
            None => (by_code || status == 413).then_some(self.fields),
        }
    }
}

/// Numbers found by a wording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OverflowNumbers {
    limit: Option<Tokens>,
    asked: Option<Tokens>,
    /// The room for the answer.
    answer: Tokens,
}

/// Matches a text with a wording, and returns the numbers in it.
fn fit(wording: &str, text: &str) -> Option<OverflowNumbers> {
    let mut found = OverflowNumbers::default();
    let mut rest = text;
    for segment in wording.split('*') {
        let pieces: Vec<WordingPiece<'_>> = pieces(segment);
        let Some(WordingPiece::Literal(first)) = pieces.first() else { return None };
        // The first position at which the whole segment matches.
        let mut places = rest.match_indices(first).filter_map(|(at, _)| rest.get(at..));
        (found, rest) = places.find_map(|place| match_pieces(&pieces, found, place))?;
    }
    Some(found)
}

/// A piece of a wording.
enum WordingPiece<'w> {
    Literal(&'w str),
    Number(&'w str),
}

fn pieces(segment: &str) -> Vec<WordingPiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = segment;
    while let Some((literal, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        pieces.extend((!literal.is_empty()).then_some(WordingPiece::Literal(literal)));
        pieces.push(WordingPiece::Number(name));
        rest = after;
    }
    pieces.extend((!rest.is_empty()).then_some(WordingPiece::Literal(rest)));
    pieces
}

/// Matches the beginning of a text with all pieces, and returns the numbers, with those found before, and the rest of
/// the text.
fn match_pieces<'t>(
    pieces: &[WordingPiece<'_>],
    mut found: OverflowNumbers,
    text: &'t str,
) -> Option<(OverflowNumbers, &'t str)> {
    let mut rest = text;
    for piece in pieces {
        let name = match piece {
            WordingPiece::Literal(literal) => {
                rest = rest.strip_prefix(literal)?;
                continue;
            }
            WordingPiece::Number(name) => *name,
        };
        let (number, after) = number(rest)?;
        rest = after;
        let sum = Some(found.asked.unwrap_or_default() + Tokens(number));
        match name {
            "limit" => found.limit = Some(Tokens(number)),
            "asked" => found.asked = sum,
            "answer" => (found.asked, found.answer) = (sum, Tokens(number)),
            "within" => found.answer = Tokens(number),
            // A large number is a count of characters, not of tokens.
            _ if number >= MIN_LARGE_CHARS => {}
            _ => return None,
        }
    }
    Some((found, rest))
}

/// Smallest number of characters that only a history can have: no id, name or key is longer.
const MIN_LARGE_CHARS: u64 = 100_000;

/// Parses the number that a text begins with, perhaps with commas; a number that is implausibly long is none.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != ',').unwrap_or(text.len());
    let (written, _) = text.split_at(end);
    let written = written.trim_end_matches(',');
    let digits: Cow<'_, str> =
        if written.contains(',') { written.replace(',', "").into() } else { written.into() };
    let number = (digits.len() <= 15).then(|| digits.parse().ok()).flatten()?;
    Some((number, text.get(written.len()..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wording_fits_itself_and_says_where_it_was_seen() {
        for (index, wording) in WORDINGS.iter().enumerate() {
            let said = wording.says.replace("{limit}", "8,192").replace("{asked}", "9000");
            let said = said
                .replace("{answer}", "1000")
                .replace("{within}", "500")
                .replace("{large}", "10485760")
                .replace('*', " … ");
            let found = fit(wording.says, &format!("error: {said}, sorry"));
            let found = found.unwrap_or_else(|| panic!("{} does not fit itself", wording.says));
            assert_eq!(found.limit.is_some(), wording.says.contains("{limit}"), "{said}");
            assert_eq!(found.asked.is_some(), wording.says.contains("{asked}"), "{said}");
            assert!(found.limit.is_none_or(|limit| limit == Tokens(8192)), "{said}");
            let more = if wording.says.contains("{answer}") { 10_000 } else { 9_000 };
            assert!(found.asked.is_none_or(|asked| asked == Tokens(more)), "{said}");
            assert_eq!(wording.says, wording.says.to_ascii_lowercase(), "texts are compared in lower case");
            assert!(!wording.seen.is_empty() && !wording.who.is_empty());
            // An earlier wording that fits must not give fewer numbers.
            let earlier = WORDINGS[..index].iter().find_map(|earlier| fit(earlier.says, &said));
            assert!(
                earlier.is_none_or(|earlier| earlier.limit.is_some() >= found.limit.is_some()
                    && earlier.asked.is_some() >= found.asked.is_some()),
                "{said}: an earlier wording hides its numbers"
            );
        }
    }

    #[test]
    fn numbers_are_read_with_commas_and_never_overflow() {
        let check = |text: &str, expect: Option<(u64, &str)>| assert_eq!(number(text), expect, "{text}");
        check("200000 maximum", Some((200_000, " maximum")));
        check("131,072 tokens", Some((131_072, " tokens")));
        check("4097, however", Some((4097, ", however")));
        check("99999999999999999999 tokens", None);
        check(",", None);
        check("", None);
        check("x", None);
    }
}
