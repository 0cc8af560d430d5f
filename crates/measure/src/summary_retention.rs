//! Retention of a summary: how much it keeps of the span it stands for, measured by code, whoever wrote it.
//!
//! Code reads the whole span afresh, as if there had been no earlier summary, and collects what must be kept:
//! pins, constraints, changed files, failed approaches, errors. Then it searches the summary for each of
//! these: shown in it, or counted in a line with a handle that leads to it. Anything else may still be
//! reachable through the handle in the summary's first line. But that handle leads to everything, even from
//! an otherwise empty summary, so it does not count as keeping an item.
//!
//! Items that the code does not find in a span are not measured. For the built-in summariser, which is the
//! same code, this measures what is carried from summary to summary and what there is room for, but not what
//! it overlooks.

use std::{collections::BTreeMap, sync::Arc};

use epitome::core::{
    LoggedEvent,
    context::EventNaming,
    event::{Compaction, Summary},
    seq_set::SeqSet,
    summary::{SectionCaps, StructuredSummary, SummaryItem, SummarySection, summarise},
};
use serde::Serialize;

/// Number of items that are listed as examples of those not mentioned.
const EXAMPLES: usize = 5;

/// Fate of the items that must be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SummaryRetention {
    /// Counts by section.
    pub sections: BTreeMap<SummarySection, RetentionTally>,
    /// The first few items that the summary does not mention.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unspoken: Vec<String>,
}

/// Numbers of items by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetentionTally {
    /// All items.
    pub items: u64,
    /// Items shown in the summary.
    pub shown: u64,
    /// Items counted in the summary, with a handle that leads to them.
    pub counted: u64,
    /// Items that only the handle of the whole span, in the summary's first line, leads to: they are not
    /// mentioned.
    pub covered: u64,
    /// Items without even that.
    pub lost: u64,
}

impl RetentionTally {
    /// Items that the summary mentions, one by one or as a number.
    pub fn kept(&self) -> u64 {
        self.shown + self.counted
    }
}

impl std::ops::AddAssign for RetentionTally {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
        self.shown += other.shown;
        self.counted += other.counted;
        self.covered += other.covered;
        self.lost += other.lost;
    }
}

impl SummaryRetention {
    /// Totals over all sections.
    pub fn total(&self) -> RetentionTally {
        self.sections.values().fold(RetentionTally::default(), |mut sum, tally| {
            sum += *tally;
            sum
        })
    }
}

/// Measures how much of a span its summary keeps. The summary's handles are written as `names` says.
pub fn kept(span: &[Arc<LoggedEvent>], compaction: &Compaction, names: EventNaming) -> SummaryRetention {
    let everything = SectionCaps {
        session_intent: usize::MAX,
        files_modified: usize::MAX,
        files_read: usize::MAX,
        commands: usize::MAX,
        key_decisions: usize::MAX,
        failed_approaches: usize::MAX,
        errors: usize::MAX,
        next_steps: usize::MAX,
        trail: 0,
        index: 0,
        standing: 0,
    };
    let fresh = summarise(span, None, &everything);
    let page = SentSummary::of(&compaction.summary, names);
    let mut kept = SummaryRetention::default();
    for item in fresh.items.iter().filter(|item| item.section.must_keep()) {
        let tally = kept.sections.entry(item.section).or_default();
        tally.items += 1;
        match page.look(item) {
            RequiredItemFate::Shown => tally.shown += 1,
            RequiredItemFate::Counted => tally.counted += 1,
            place => {
                if place == RequiredItemFate::Covered {
                    tally.covered += 1;
                } else {
                    tally.lost += 1;
                }
                if kept.unspoken.len() < EXAMPLES {
                    kept.unspoken.push(format!("{}: {} [{}]", item.section.title(), item.text, item.sources));
                }
            }
        }
    }
    // The caps on constraints and pins are fixed, so items beyond them count as reachable as they are.
    for folded in fresh.folded.iter().filter(|folded| folded.section.must_keep()) {
        let tally = kept.sections.entry(folded.section).or_default();
        tally.items += folded.count;
        match page.reach(folded.section, &folded.sources, None) {
            RequiredItemFate::Shown | RequiredItemFate::Counted => tally.counted += folded.count,
            RequiredItemFate::Covered => tally.covered += folded.count,
            RequiredItemFate::Lost => tally.lost += folded.count,
        }
    }
    kept
}

/// Bodies of a summary's sections, by section; a section without a title in the text is missing.
pub fn sections(text: &str) -> BTreeMap<SummarySection, &str> {
    let mut found: BTreeMap<SummarySection, &str> = BTreeMap::new();
    let heads = std::iter::once(0).filter(|_| text.starts_with("## "));
    let heads: Vec<usize> = heads.chain(text.match_indices("\n## ").map(|(at, _)| at + 1)).collect();
    for (index, at) in heads.iter().enumerate() {
        let end = heads.get(index + 1).copied().unwrap_or(text.len());
        let (title, body) = text[*at..end].split_once('\n').unwrap_or((&text[*at..end], ""));
        let title = title.trim_start_matches('#').trim();
        if let Some(section) = SummarySection::ALL.into_iter().find(|section| section.title() == title) {
            found.entry(section).or_insert(body.trim());
        }
    }
    found
}

/// Returns true if a section has content.
pub fn is_filled(body: &str) -> bool {
    !body.is_empty() && body != "(none)"
}

/// Place of an item in a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequiredItemFate {
    Shown,
    Counted,
    Covered,
    Lost,
}

/// A summary as it was sent.
struct SentSummary<'s> {
    brief: Option<&'s StructuredSummary>,
    /// Text of each section, letters and digits only: line breaks and marks make no difference.
    told: BTreeMap<SummarySection, String>,
    /// Events that the handles of each section lead to.
    handles: BTreeMap<SummarySection, SeqSet>,
    /// Events that the handles before the first section lead to.
    opening: SeqSet,
}

impl<'s> SentSummary<'s> {
    fn of(summary: &'s Summary, names: EventNaming) -> Self {
        let text = summary.text();
        let bodies = sections(text);
        let opening = text.find("\n## ").map_or(text, |end| &text[..end]);
        Self {
            brief: match summary {
                Summary::Structured { brief, .. } => Some(brief),
                Summary::Text(_) | Summary::Encrypted(_) => None,
            },
            told: bodies.iter().map(|(section, body)| (*section, bare(body))).collect(),
            handles: bodies.iter().map(|(section, body)| (*section, names.handles_in(body))).collect(),
            opening: names.handles_in(opening),
        }
    }

    fn look(&self, item: &SummaryItem) -> RequiredItemFate {
        // In a summary of items, the item of the same identity matches, even with other words.
        let same =
            |other: &&SummaryItem| other.section == item.section && other.identity() == item.identity();
        let carried = self.brief.and_then(|brief| brief.items.iter().find(same));
        // Where the span was cut decides which sentences share an item, so each sentence is looked for in all
        // items.
        let is_told = |text: &str| {
            let told = self.told.get(&item.section);
            let mut sentences =
                text.split_inclusive(". ").map(bare).filter(|text| !text.is_empty()).peekable();
            sentences.peek().is_some() && sentences.all(|text| told.is_some_and(|told| told.contains(&text)))
        };
        if carried.is_some_and(|carried| is_told(&carried.text)) || is_told(&item.text) {
            return RequiredItemFate::Shown;
        }
        self.reach(item.section, &item.sources, carried)
    }

    /// Finds how events that are not shown can be reached. A line with a count leads from the first to the
    /// last event that it counts, past other events: only events known to be among them count.
    fn reach(
        &self,
        section: SummarySection,
        sources: &SeqSet,
        carried: Option<&SummaryItem>,
    ) -> RequiredItemFate {
        let leads = |handles: &SeqSet| {
            sources.runs().iter().any(|run| handles.contains(run.first) || handles.contains(run.last))
        };
        let mut folded = self.brief.iter().flat_map(|brief| &brief.folded);
        let is_meant = self.brief.is_none()
            || carried.is_some()
            || folded.any(|folded| folded.section == section && leads(&folded.sources));
        if is_meant && self.handles.get(&section).is_some_and(leads) {
            RequiredItemFate::Counted
        } else if leads(&self.opening) {
            RequiredItemFate::Covered
        } else {
            RequiredItemFate::Lost
        }
    }
}

fn bare(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read_as_they_are_written() {
        let text = "Opening.\n\n## Pinned\n(none)\n\n## Errors Encountered\n- boom\n- bang\n\n## Nonsense\n- x\n## Next Steps\n";
        let found = sections(text);
        assert_eq!(found.get(&SummarySection::Pins), Some(&"(none)"));
        assert_eq!(found.get(&SummarySection::Errors), Some(&"- boom\n- bang"));
        assert_eq!(found.get(&SummarySection::NextSteps), Some(&""));
        assert_eq!(found.len(), 3);
        assert!(sections("").is_empty());
    }
}
