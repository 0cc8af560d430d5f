//! The agent's sentences that a draft may choose, each by its number.
//!
//! A model that copies a sentence changes it; one that names its number cannot. So a question lists what there is to choose
//! from, and the gate puts the recorded words in the place of a number. Titles, questions, code, tables and what only
//! introduces the next line have no number, and neither has the last sentence before a call: it announces the call.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::claim_support::SpanSpeech;
use crate::{
    event::{ContentPart, Fact, LoggedEvent},
    id::Seq,
    summary::{SentenceForm, StructuredSummary, list_entry, sentences, text as text_of},
};

/// Number of a sentence: the event it stands in, and its place among the sentences there that may be chosen.
///
/// ```
/// use epitome_core::{Seq, draft_gate::SentenceNumber};
///
/// assert_eq!(SentenceNumber { at: Seq(57), place: 2 }.to_string(), "57.2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SentenceNumber {
    /// The event.
    pub at: Seq,
    /// The place, counted from 1.
    pub place: u64,
}

impl fmt::Display for SentenceNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.at, self.place)
    }
}

/// The recorded words of sentences, by number.
pub type NumberedSentences = BTreeMap<SentenceNumber, String>;

/// The sentences of a span that are offered to a model: those that the gate would let in if nothing later spoke against
/// them.
pub fn offered_sentences(span: &[Arc<LoggedEvent>]) -> NumberedSentences {
    let speech = SpanSpeech::of(span, &StructuredSummary::default());
    let numbered = speech.statements.into_iter().filter(|statement| !statement.announces);
    numbered.map(|statement| (statement.number, statement.text)).collect()
}

/// A draft in which the recorded words stand behind the numbers at the beginnings of its lines. Who goes on with the draft
/// without seeing the sentences needs them. Numbers that lead nowhere are left out.
pub fn with_sentence_texts(draft: &str, sentences: &NumberedSentences) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in draft.lines() {
        let (numbers, rest) = leading_numbers(list_entry(line.trim()).unwrap_or(line.trim()));
        if numbers.is_empty() {
            lines.push(line.to_owned());
            continue;
        }
        let found = numbers.iter().filter_map(|number| Some((number, sentences.get(number)?)));
        let before = lines.len();
        lines.extend(found.map(|(number, words)| format!("- {number} {words}")));
        if lines.len() == before && !rest.is_empty() {
            lines.push(format!("- {rest}"));
        }
    }
    lines.join("\n")
}

/// The sentences of a message that say something, in order; and the last one before a call, which announces it.
pub(super) fn own_sentences(
    parts: &[ContentPart],
    next: &[Arc<LoggedEvent>],
) -> (Vec<String>, Option<String>) {
    let mut own = sentences(&text_of(parts));
    own.retain(|sentence| {
        let is_prose = matches!(sentence.form, SentenceForm::Plain | SentenceForm::Listed);
        is_prose && !sentence.text.starts_with(['{', '}', '[', ']', '<'])
    });
    let announced = if announces_a_call(parts, next) { own.pop() } else { None };
    let announced = announced.map(|sentence| sentence.text).filter(|text| is_statement(text));
    (own.into_iter().map(|sentence| sentence.text).filter(|text| is_statement(text)).collect(), announced)
}

/// Whether a sentence says something: it neither asks nor introduces what follows.
fn is_statement(sentence: &str) -> bool {
    let bare = sentence.trim_end_matches(['*', '_', '`', '"', '\'', ')', '”', '»', ' ']);
    !bare.ends_with([':', '：', '?', '？', '؟', '…'])
}

/// Whether a message ends before a call of the agent, which may be logged as an event of its own.
fn announces_a_call(parts: &[ContentPart], next: &[Arc<LoggedEvent>]) -> bool {
    let calls = |parts: &[ContentPart]| parts.iter().any(|part| matches!(part, ContentPart::ToolCall(_)));
    let speaks = |parts: &[ContentPart]| parts.iter().any(|part| matches!(part, ContentPart::Text { .. }));
    let following = next.iter().find_map(|event| match &event.event.fact {
        Fact::AssistantSaid { parts, .. } if calls(parts) || speaks(parts) => Some(!speaks(parts)),
        Fact::UserSaid { .. } | Fact::ToolReturned { .. } => Some(false),
        _ => None,
    });
    calls(parts) || following.unwrap_or(false)
}

/// The numbers of sentences that a text begins with, however they are marked, and what stands behind them.
pub(super) fn leading_numbers(text: &str) -> (Vec<SentenceNumber>, &str) {
    let (mut numbers, mut rest) = (Vec::new(), text);
    while let Some((number, after)) = leading_number(rest) {
        numbers.push(number);
        rest = after.trim_start_matches([']', ')', '`', '*', ':', ',', ';', '.', '-', '–', '—', ' ']);
    }
    (numbers, rest)
}

fn leading_number(text: &str) -> Option<(SentenceNumber, &str)> {
    let text = text.trim_start_matches(['[', '(', '`', '*']);
    let (at, behind) = digits(text)?;
    let (place, rest) = digits(behind.strip_prefix('.')?)?;
    // A version, a date and a size are no number of a sentence.
    let next = rest.trim_start_matches('.');
    let goes_on = next.starts_with(|letter: char| letter.is_ascii_digit()) && next.len() < rest.len();
    let ends = !goes_on && !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '%');
    ends.then_some((SentenceNumber { at: Seq(at), place }, rest))
}

fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_has_sentences() {
        let text = "# Title here it is\n**Title in bold:**\n- **Cache:** it is bounded.\n```\nlet a = b. It is.\n```\n\
                    | a | b |\n> Somebody said so.\n{\"a\": 1}\n<tag>It is.</tag>\n1. Moved it. 2.1 went away.";
        let (own, _) = own_sentences(&[ContentPart::text(text)], &[]);
        assert_eq!(own, ["**Cache:** it is bounded.", "Moved it.", "2.1 went away."]);
    }

    #[test]
    fn numbers_are_read_however_they_are_marked() {
        let check = |text: &str, expect: &str, words: &str| {
            let (numbers, rest) = leading_numbers(text);
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            assert_eq!((numbers.join(" "), rest), (expect.to_owned(), words), "{text}");
        };
        check("57.2", "57.2", "");
        check("[57.2]: words", "57.2", "words");
        check("(57.2) – words", "57.2", "words");
        check("`57.2`, **58.1** words", "57.2 58.1", "words");
        check("57.2 3 words", "57.2", "3 words");
        for none in ["57", "57.", "v57.2", "1.2.3", "57.2x", "12.5%", "57 .2", "words 57.2", ""] {
            check(none, "", none);
        }
    }
}
