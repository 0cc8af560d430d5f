//! Letting sentences in: what of a draft goes into the summary.
//!
//! A model may add to two sections, what was decided or found out and what did not work. Everything else is told by code,
//! from what users said and tools did, whatever a draft says of it: no model gives an order, and none says what is next.

use super::{
    DraftReport,
    claim_support::SpanSpeech,
    parsed_draft::DraftItem,
    secrets::holds_secret,
    text_words::{TextWords, telling},
};
use crate::summary::{ItemSet, StructuredSummary, SummaryItem, SummarySection, one_line};

/// How long an item of a model is at most, in characters.
const LONGEST: usize = 300;

/// The sections that a model may add to.
pub(super) const MODEL_WRITTEN_SECTIONS: [SummarySection; 2] =
    [SummarySection::KeyDecisions, SummarySection::FailedApproaches];

/// Decides on the items of a draft, one after the other.
pub(super) struct ItemFilter<'s> {
    pub(super) ledger: ItemSet,
    pub(super) report: DraftReport,
    speech: &'s SpanSpeech<'s>,
    /// The words of every item that is told already.
    known: Vec<Vec<String>>,
}

impl<'s> ItemFilter<'s> {
    pub(super) fn new(ground: &StructuredSummary, speech: &'s SpanSpeech<'s>) -> Self {
        let known = ground.items.iter().map(|item| words(&item.text)).collect();
        Self { ledger: ItemSet::from_previous(Some(ground)), report: DraftReport::default(), speech, known }
    }

    /// Takes out what a model once said and the span speaks against. It is counted from then on, so that it can be found.
    pub(super) fn retire(&mut self, ground: &StructuredSummary) {
        for item in ground.items.iter().filter(|item| is_the_models(item)) {
            if let Some(by) = self.speech.speaks_against(&item.text) {
                self.ledger.retire(item.section, item.identity());
                self.report.retire(item, by);
            }
        }
    }

    /// Decides on an item. It chooses what the agent stated, by number or by words, and the recorded words are told.
    pub(super) fn decide(&mut self, item: &DraftItem) {
        let numbered = item.chosen.and_then(|number| self.speech.numbered(number));
        let statement = numbered.or_else(|| self.speech.worded(&item.text));
        let text = statement.map_or(&item.text, |statement| &statement.text);
        if holds_secret(text) {
            self.report.secrets += 1;
            return;
        }
        let Some(statement) = statement.filter(|_| !imitates_a_mark(text)) else {
            return self.report.drop(item, None);
        };
        let words = words(text);
        if self.known.contains(&words) {
            self.report.repeated += 1;
            return;
        }
        // What the agent said and nothing failed before is no failed approach, whatever a model calls it.
        let sections = [item.section, SummarySection::KeyDecisions];
        let mut judged = sections.into_iter().filter_map(|of| Some((of, self.speech.judge(statement, of)?)));
        match judged.next() {
            Some((section, Ok(sources))) => {
                let text = one_line(text, LONGEST);
                self.known.push(words);
                self.ledger.put(SummaryItem::new(section, text, sources));
                *self.report.admitted.entry(section).or_default() += 1;
            }
            Some((_, Err(by))) => self.report.drop(item, Some(by)),
            None => self.report.drop(item, None),
        }
    }
}

/// Whether an item is one that a model added.
fn is_the_models(item: &SummaryItem) -> bool {
    let answered = item.text.starts_with("The user answered:");
    MODEL_WRITTEN_SECTIONS.contains(&item.section) && item.key.is_none() && item.detail.is_none() && !answered
}

/// Whether a text holds what could be taken for a speaker's tag or for a heading. Code has its brackets behind a name:
/// `Vec<String>`.
fn imitates_a_mark(text: &str) -> bool {
    let is_tag = |(at, _): (usize, &str)| {
        let (before, after) = (&text[..at], &text[at + 1..]);
        let names = |letter: char| letter.is_alphabetic() || matches!(letter, '/' | '|');
        !before.ends_with(char::is_alphanumeric) && after.starts_with(names) && after.contains(['>', ']'])
    };
    text.contains("## ") || text.match_indices(['<', '[']).any(is_tag)
}

/// What a text says, without the words that add nothing.
fn words(text: &str) -> Vec<String> {
    telling(&TextWords::of(text).tokens).map(|token| token.text.clone()).collect()
}
