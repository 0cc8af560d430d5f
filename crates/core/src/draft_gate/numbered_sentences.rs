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
    summary::StructuredSummary,
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
    let mut sentences = number_sentences(span);
    sentences.retain(|number, text| speech.is_said_at(number.at, text));
    sentences
}

/// A draft in which the recorded words stand behind the numbers at the beginnings of its lines. Who goes on with the draft
/// without seeing the sentences needs them. Numbers that lead nowhere are left out.
pub fn with_sentence_texts(draft: &str, sentences: &NumberedSentences) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in draft.lines() {
        let (numbers, rest) = leading_numbers(without_mark(line.trim()));
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

/// How many sentences have a number at each end of a message. What is longer is shown without its middle, and each sentence
/// is looked for in all of its message.
const ENDS: u64 = 128;

/// The sentences of a span that have a number.
pub(super) fn number_sentences(span: &[Arc<LoggedEvent>]) -> NumberedSentences {
    let mut sentences = NumberedSentences::new();
    for (index, event) in span.iter().enumerate() {
        let Fact::AssistantSaid { parts, .. } = &event.event.fact else { continue };
        let mut own: Vec<&str> = parts.iter().flat_map(of_part).collect();
        if announces_a_call(parts, &span[index + 1..]) {
            own.pop();
        }
        let telling: Vec<&str> = own.into_iter().filter(|sentence| is_statement(sentence)).collect();
        let last = (telling.len() as u64).saturating_sub(ENDS);
        let at = event.id.seq;
        let places = (1..).zip(telling).filter(|(place, _)| *place <= ENDS || *place > last);
        sentences.extend(places.map(|(place, text)| (SentenceNumber { at, place }, text.to_owned())));
    }
    sentences
}

/// The sentences of a part that are prose, in order.
fn of_part(part: &ContentPart) -> Vec<&str> {
    let ContentPart::Text { text } = part else { return Vec::new() };
    let (mut own, mut fenced) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") || line.starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced && is_prose(line) {
            own.extend(sentences(without_mark(line)));
        }
    }
    own
}

/// Whether a line is prose: no title, quotation, row of a table, data or markup.
fn is_prose(line: &str) -> bool {
    let is_title = || {
        let bold = line.strip_prefix("**").and_then(|rest| rest.strip_suffix("**"));
        bold.is_some_and(|inner| !inner.contains("**"))
    };
    !line.starts_with(['#', '|', '>', '<', '{', '}', '[', ']']) && !is_title()
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

/// The sentences of a line. A mark ends one where something new begins behind it, outside of code.
pub(super) fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (sentence, after) = rest.split_at(sentence_end(rest));
        rest = after.trim_start();
        (!sentence.is_empty()).then_some(sentence)
    })
}

/// How long the sentence is that a text begins with.
fn sentence_end(text: &str) -> usize {
    const MARKS: [char; 6] = ['.', '!', '?', '。', '！', '？'];
    let mut in_code = false;
    for (at, letter) in text.char_indices() {
        in_code ^= letter == '`';
        if in_code || !MARKS.contains(&letter) {
            continue;
        }
        let behind = &text[at + letter.len_utf8()..];
        let closed = behind.trim_start_matches(['*', '_', '"', '\'', ')', '”', '»', '」']);
        let next = closed.trim_start();
        let parted = !letter.is_ascii() || next.len() < closed.len();
        if parted && !next.starts_with(char::is_lowercase) && !closed.starts_with(MARKS) {
            return text.len() - closed.len();
        }
    }
    text.len()
}

/// A line without its list mark.
fn without_mark(line: &str) -> &str {
    unbulleted(line).unwrap_or(line)
}

/// A line without its list mark, if it has one.
pub(super) fn unbulleted(text: &str) -> Option<&str> {
    let number = text.find(|letter: char| !letter.is_ascii_digit()).filter(|end| (1..=3).contains(end));
    let after_number = number.and_then(|end| text[end..].strip_prefix(['.', ')']));
    let after_mark = || text.strip_prefix(['-', '*', '•', '–', '+', '·', '‣', '◦', '▪']);
    let rest = after_number.or_else(after_mark)?;
    if rest.is_empty() {
        return Some("");
    }
    rest.starts_with([' ', '\t']).then(|| rest.trim())
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
    fn a_line_is_parted_where_something_new_begins() {
        let check = |line: &str, expect: &[&str]| assert_eq!(sentences(line).collect::<Vec<_>>(), expect);
        check("It works. It is fast! Is it?", &["It works.", "It is fast!", "Is it?"]);
        check("See e.g. the map in a.rs at 1.5 s.", &["See e.g. the map in a.rs at 1.5 s."]);
        check("Run `make. Then` again. Done.", &["Run `make. Then` again.", "Done."]);
        check("**Done.** He said \"wait.\" Next", &["**Done.**", "He said \"wait.\"", "Next"]);
        check("地図を選んだ。速いからだ！次", &["地図を選んだ。", "速いからだ！", "次"]);
        check("Wait... What", &["Wait...", "What"]);
        check("", &[]);
    }

    #[test]
    fn only_prose_has_sentences() {
        let text = "# Title here it is\n**Title in bold:**\n- **Cache:** it is bounded.\n```\nlet a = b. It is.\n```\n\
                    | a | b |\n> Somebody said so.\n{\"a\": 1}\n<tag>It is.</tag>\n1. Moved it. 2.1 went away.";
        let part = ContentPart::text(text);
        let own = of_part(&part);
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
