//! Letting sentences in: what of a draft goes into the summary.
//!
//! A model may add to two sections, what was decided or found out and what did not work. Everything else is told by code,
//! from what users said and tools did, whatever a draft says of it: no model gives an order, and none says what is next.

use super::{
    DraftReport,
    claim_support::{SpanSpeech, SupportVerdict},
    numbered_sentences::NumberedSentences,
    parsed_draft::DraftItem,
    secrets::holds_secret,
    text_words::TextWords,
};
use crate::{
    seq_set::SeqSet,
    summary::{ItemSet, StructuredSummary, SummaryItem, SummarySection, one_line},
};

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
    /// The sentences that a draft may choose.
    sentences: &'s NumberedSentences,
    /// The words of every item that is told already.
    known: Vec<Vec<String>>,
}

impl<'s> ItemFilter<'s> {
    pub(super) fn new(
        ground: &StructuredSummary,
        speech: &'s SpanSpeech<'s>,
        sentences: &'s NumberedSentences,
    ) -> Self {
        let known = ground.items.iter().map(|item| telling(&item.text)).collect();
        Self {
            ledger: ItemSet::from_previous(Some(ground)),
            report: DraftReport::default(),
            speech,
            sentences,
            known,
        }
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

    /// Decides on an item.
    pub(super) fn decide(&mut self, item: &DraftItem) {
        let item = &self.recorded(item);
        if holds_secret(&item.text) {
            self.report.secrets += 1;
            return;
        }
        if imitates_a_mark(&item.text) {
            return self.report.drop(item, None);
        }
        let words = telling(&item.text);
        if self.known.contains(&words) {
            self.report.repeated += 1;
            return;
        }
        // What the agent said and nothing failed before is no failed approach, whatever a model calls it.
        let mut section = item.section;
        let mut verdict = self.speech.judge(&item.text, section, &item.cited);
        if verdict == SupportVerdict::Unsaid && section != SummarySection::KeyDecisions {
            section = SummarySection::KeyDecisions;
            verdict = self.speech.judge(&item.text, section, &item.cited);
        }
        match verdict {
            SupportVerdict::Borne(sources) => {
                let text = one_line(&item.text, LONGEST);
                self.known.push(words);
                self.ledger.put(SummaryItem { section, text, key: None, sources, detail: None });
                *self.report.admitted.entry(section).or_default() += 1;
            }
            SupportVerdict::Refuted(by) => self.report.drop(item, Some(by)),
            SupportVerdict::Unsaid => self.report.drop(item, None),
        }
    }

    /// An item with the recorded words in the place of its own, if it chooses a sentence.
    fn recorded(&self, item: &DraftItem) -> DraftItem {
        let Some(number) = item.chosen else { return item.clone() };
        match self.sentences.get(&number) {
            Some(words) => DraftItem { text: words.clone(), cited: SeqSet::one(number.at), ..item.clone() },
            None if item.text.is_empty() => DraftItem { text: number.to_string(), ..item.clone() },
            None => item.clone(),
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
fn telling(text: &str) -> Vec<String> {
    TextWords::of(text).significant_tokens().map(|token| token.text.clone()).collect()
}
