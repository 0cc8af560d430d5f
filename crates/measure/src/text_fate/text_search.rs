//! Search for a text in the events of a session.

use std::sync::Arc;

use epitome::core::{Fact, LoggedEvent, projection::EventLine};

use super::MatchKind;

/// Letters shown on each side of a match.
const EXCERPT_MARGIN_CHARS: usize = 48;

/// A piece of an event that holds the text.
#[derive(Clone, Debug)]
pub(super) struct TextOccurrence {
    pub(super) event: Arc<LoggedEvent>,
    pub(super) piece: EventPiece,
}

/// A piece of an event, as contexts show or leave it out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventPiece {
    /// All of it.
    Whole,
    /// A part of an answer.
    Part(usize),
    /// A tool's result.
    Result(usize),
}

impl TextOccurrence {
    /// Text of the piece.
    pub(super) fn text(&self) -> String {
        text_of(&self.event, self.piece)
    }
}

fn text_of(event: &LoggedEvent, piece: EventPiece) -> String {
    let mut all = String::new();
    let mut see = |text: &str| {
        if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(text);
    };
    let fact = &event.event.fact;
    match (piece, fact) {
        (EventPiece::Result(at), _) => {
            for part in fact.results().get(at).iter().flat_map(|result| &result.parts) {
                part.visit_text(&mut see);
            }
        }
        (EventPiece::Part(at), _) => {
            if let Some(part) = fact.parts().get(at) {
                part.visit_text(&mut see);
            }
        }
        // Parts beside results form a message of their own.
        (EventPiece::Whole, Fact::ToolReturned { parts, .. }) => {
            for part in parts {
                part.visit_text(&mut see);
            }
        }
        (EventPiece::Whole, _) => event.event.visit_counted(&mut see),
    }
    all
}

/// Pieces of an event.
fn pieces(fact: &Fact) -> Vec<EventPiece> {
    match fact {
        Fact::AssistantSaid { parts, .. } => (0..parts.len()).map(EventPiece::Part).collect(),
        Fact::ToolReturned { results, .. } => {
            let results = (0..results.len()).map(EventPiece::Result);
            results.chain([EventPiece::Whole]).collect()
        }
        _ => vec![EventPiece::Whole],
    }
}

/// Finds every event that holds a text, each once, oldest first. Case is ignored only if there is no exact
/// match. A summary that repeats the text is reported with the events it stands for: a compaction itself is
/// found only if no other event matches.
pub(super) fn find(line: &EventLine, text: &str) -> (MatchKind, Vec<TextOccurrence>) {
    for matched in [MatchKind::Exact, MatchKind::IgnoringCase] {
        let needle = TextNeedle::new(text, matched);
        let holding = |event: &Arc<LoggedEvent>| {
            let holds = |piece: &EventPiece| needle.is_in(&text_of(event, *piece));
            let piece = pieces(&event.event.fact).into_iter().find(holds)?;
            Some(TextOccurrence { event: Arc::clone(event), piece })
        };
        let found: Vec<TextOccurrence> = line.events().filter_map(holding).collect();
        let is_summary = |found: &TextOccurrence| matches!(found.event.event.fact, Fact::Compacted(_));
        let (summaries, originals): (Vec<TextOccurrence>, Vec<TextOccurrence>) =
            found.into_iter().partition(is_summary);
        let found = if originals.is_empty() { summaries } else { originals };
        if !found.is_empty() {
            return (matched, found);
        }
    }
    (MatchKind::Nowhere, Vec::new())
}

/// A text to search for.
#[derive(Clone, Debug)]
pub(super) struct TextNeedle {
    matched: MatchKind,
    text: String,
    /// Its form in JSON if that differs, for the arguments of calls.
    escaped: Option<String>,
    /// Its form on one line, as summaries write it.
    folded: String,
}

impl TextNeedle {
    pub(super) fn new(text: &str, matched: MatchKind) -> Self {
        let text = match matched {
            MatchKind::IgnoringCase => text.to_lowercase(),
            MatchKind::Exact | MatchKind::Nowhere => text.to_owned(),
        };
        let json = serde_json::Value::from(text.as_str()).to_string();
        let escaped = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
        let escaped = (escaped != text).then(|| escaped.to_owned());
        let folded = fold(&text);
        Self { matched, text, escaped, folded }
    }

    /// Returns true if a text of the log holds it. An empty text is never found.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let lower;
        let text = match self.matched {
            MatchKind::IgnoringCase => {
                lower = text.to_lowercase();
                &lower
            }
            MatchKind::Exact | MatchKind::Nowhere => text,
        };
        !self.text.trim().is_empty()
            && (text.contains(&self.text)
                || self.escaped.as_ref().is_some_and(|escaped| text.contains(escaped.as_str())))
    }

    /// Returns true if the replacement of a text holds it: summaries fold white space.
    pub(super) fn is_told_in(&self, text: &str) -> bool {
        let lower;
        let text = match self.matched {
            MatchKind::IgnoringCase => {
                lower = text.to_lowercase();
                &lower
            }
            MatchKind::Exact | MatchKind::Nowhere => text,
        };
        self.is_in(text) || (!self.folded.is_empty() && fold(text).contains(&self.folded))
    }

    /// The first match in a text with its surroundings, on one line.
    pub(super) fn excerpt(&self, text: &str) -> String {
        // Positions in the compared text, mapped to the original.
        let (compared, origins) = match self.matched {
            MatchKind::IgnoringCase => lowered(text),
            MatchKind::Exact | MatchKind::Nowhere => (text.to_owned(), None),
        };
        let forms = [Some(&self.text), self.escaped.as_ref()];
        let place =
            forms.into_iter().flatten().find_map(|form| Some((compared.find(form.as_str())?, form.len())));
        let Some((at, length)) = place else { return String::new() };
        let origin = |place: usize| match &origins {
            Some(origins) => origins.get(place).copied().unwrap_or(text.len()),
            None => place,
        };
        let (start, end) = (origin(at), origin(at + length));
        let before: Vec<char> = text[..start].chars().rev().take(EXCERPT_MARGIN_CHARS + 1).collect();
        let after: Vec<char> = text[end..].chars().take(EXCERPT_MARGIN_CHARS + 1).collect();
        let cut = |letters: &[char]| if letters.len() > EXCERPT_MARGIN_CHARS { "…" } else { "" };
        let (head, tail) = (cut(&before), cut(&after));
        let before: String = before.into_iter().take(EXCERPT_MARGIN_CHARS).rev().collect();
        let after: String = after.into_iter().take(EXCERPT_MARGIN_CHARS).collect();
        let said: String = text[start..end].chars().take(4 * EXCERPT_MARGIN_CHARS).collect();
        let line = format!("{head}{before}«{said}»{after}{tail}");
        fold(&line.replace(|letter: char| letter.is_control() && !letter.is_whitespace(), ""))
    }
}

/// A text in lower case, and for each byte the position of its letter in the original.
fn lowered(text: &str) -> (String, Option<Vec<usize>>) {
    let (mut lower, mut origins) = (String::with_capacity(text.len()), Vec::with_capacity(text.len()));
    // The case of a word's last letter can depend on the whole word, so the text is converted as a whole.
    let whole = text.to_lowercase();
    for (at, letter) in text.char_indices() {
        for small in letter.to_lowercase() {
            lower.push(small);
            origins.resize(lower.len(), at);
        }
    }
    if lower.len() == whole.len() { (whole, Some(origins)) } else { (lower, Some(origins)) }
}

/// Folds a text to one line.
fn fold(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_with_what_is_around_it_whatever_letters_there_are() {
        let check = |text: &str, needle: &str, matched: MatchKind, expect: &str| {
            assert_eq!(TextNeedle::new(needle, matched).excerpt(text), expect, "{needle} in {text}");
        };
        check("say it twice", "it", MatchKind::Exact, "say «it» twice");
        check("SAY İT Twice", "twice", MatchKind::IgnoringCase, "SAY İT «Twice»");
        check("ΟΔΟΣ", "οδος", MatchKind::IgnoringCase, "«ΟΔΟΣ»");
        check("{\"a\":\"x\\ny\"}", "x\ny", MatchKind::Exact, "{\"a\":\"«x\\ny»\"}");
        let long = format!("{} needle {}", "日".repeat(100), "本".repeat(100));
        let shown = TextNeedle::new("needle", MatchKind::Exact).excerpt(&long);
        assert!(shown.starts_with("…日") && shown.ends_with("本…"), "{shown}");
        check("a\u{1b}[31m b", "b", MatchKind::Exact, "a[31m «b»");
        check("nothing", "else", MatchKind::Exact, "");
    }

    #[test]
    fn an_empty_text_is_nowhere() {
        for matched in [MatchKind::Exact, MatchKind::IgnoringCase] {
            for text in ["", " \n"] {
                assert!(!TextNeedle::new(text, matched).is_in("a \n b"), "{text:?}");
            }
        }
    }
}
