//! What a summary has kept of the span it stands for: measured by code, on whatever wrote it.
//!
//! Code reads the whole span afresh, as if there had been no summary before, and takes from it what must be kept: pins,
//! constraints, changed files, failed approaches, errors. Then each of these is looked for in the summary: told there, or
//! counted there in a line with a handle that leads to it. What is neither may still be within what the summary's first
//! line says how to get back; but that line leads to everything, even from a summary that says nothing else, and so it
//! counts for no item's being kept.
//!
//! What code does not find in a span is not looked for. Of the built-in summariser, which is the same code, this says
//! what is carried from summary to summary and what there is room for, and not what it overlooks.

use std::{collections::BTreeMap, sync::Arc};

use epitome_core::{
    Logged,
    context::Names,
    event::{Compaction, Summary},
    seq_set::SeqSet,
    summary::{Brief, Caps, Item, Section, summarise},
};
use serde::Serialize;

/// How many of the items that are not spoken of are kept as examples.
const EXAMPLES: usize = 5;

/// What became of the items that must be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// By section.
    pub sections: BTreeMap<Section, Tally>,
    /// The first few that the summary does not speak of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unspoken: Vec<String>,
}

/// Items, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All of them.
    pub items: u64,
    /// Told in the summary.
    pub shown: u64,
    /// Counted in the summary, with a handle that leads to them.
    pub counted: u64,
    /// Found again only by the handle of the whole span, in the summary's first line: nothing speaks of them.
    pub covered: u64,
    /// Not even that.
    pub lost: u64,
}

impl Tally {
    /// Items that the summary speaks of, one by one or as one of so many.
    pub fn kept(&self) -> u64 {
        self.shown + self.counted
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
        self.shown += other.shown;
        self.counted += other.counted;
        self.covered += other.covered;
        self.lost += other.lost;
    }
}

impl Kept {
    /// All sections together.
    pub fn total(&self) -> Tally {
        self.sections.values().fold(Tally::default(), |mut sum, tally| {
            sum += *tally;
            sum
        })
    }
}

/// Looks for everything that must be kept of a span in the summary that stands for it. Its handles are written as
/// `names` says.
pub fn kept(span: &[Arc<Logged>], compaction: &Compaction, names: Names) -> Kept {
    let everything = Caps {
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
    let page = Page::of(&compaction.summary, names);
    let mut kept = Kept::default();
    for item in fresh.items.iter().filter(|item| item.section.must_keep()) {
        let tally = kept.sections.entry(item.section).or_default();
        tally.items += 1;
        match page.look(item) {
            Place::Shown => tally.shown += 1,
            Place::Counted => tally.counted += 1,
            place => {
                if place == Place::Covered {
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
    // Constraints and pins have caps that nobody can lift: those over them are counted as one would find them.
    for folded in fresh.folded.iter().filter(|folded| folded.section.must_keep()) {
        let tally = kept.sections.entry(folded.section).or_default();
        tally.items += folded.count;
        match page.reach(folded.section, &folded.sources, None) {
            Place::Shown | Place::Counted => tally.counted += folded.count,
            Place::Covered => tally.covered += folded.count,
            Place::Lost => tally.lost += folded.count,
        }
    }
    kept
}

/// What the sections of a summary say; nothing where it has none of this title.
pub fn sections(text: &str) -> BTreeMap<Section, &str> {
    let mut found: BTreeMap<Section, &str> = BTreeMap::new();
    let heads = std::iter::once(0).filter(|_| text.starts_with("## "));
    let heads: Vec<usize> = heads.chain(text.match_indices("\n## ").map(|(at, _)| at + 1)).collect();
    for (index, at) in heads.iter().enumerate() {
        let end = heads.get(index + 1).copied().unwrap_or(text.len());
        let (title, body) = text[*at..end].split_once('\n').unwrap_or((&text[*at..end], ""));
        let title = title.trim_start_matches('#').trim();
        if let Some(section) = Section::ALL.into_iter().find(|section| section.title() == title) {
            found.entry(section).or_insert(body.trim());
        }
    }
    found
}

/// Whether a section says anything but that it is empty.
pub fn is_filled(body: &str) -> bool {
    !body.is_empty() && body != "(none)"
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Shown,
    Counted,
    Covered,
    Lost,
}

/// A summary as it was sent.
struct Page<'s> {
    brief: Option<&'s Brief>,
    /// What each section says, letters and digits only: how a line is broken or marked makes no difference.
    told: BTreeMap<Section, String>,
    /// Where the handles of each section lead.
    handles: BTreeMap<Section, SeqSet>,
    /// Where those before the first section lead.
    opening: SeqSet,
}

impl<'s> Page<'s> {
    fn of(summary: &'s Summary, names: Names) -> Self {
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

    fn look(&self, item: &Item) -> Place {
        // Of a summary of items, the one of the same identity is it, whatever words it has by now.
        let same = |other: &&Item| other.section == item.section && other.identity() == item.identity();
        let carried = self.brief.and_then(|brief| brief.items.iter().find(same));
        // Where the span was cut decides which sentences stand together in one item: each must be told, in any of them.
        let is_told = |text: &str| {
            let told = self.told.get(&item.section);
            let mut sentences =
                text.split_inclusive(". ").map(bare).filter(|text| !text.is_empty()).peekable();
            sentences.peek().is_some() && sentences.all(|text| told.is_some_and(|told| told.contains(&text)))
        };
        if carried.is_some_and(|carried| is_told(&carried.text)) || is_told(&item.text) {
            return Place::Shown;
        }
        self.reach(item.section, &item.sources, carried)
    }

    /// Where events are that are not told. A line that counts leads from the first to the last of what it counts, and
    /// so past others: only what is known to be among it is counted.
    fn reach(&self, section: Section, sources: &SeqSet, carried: Option<&Item>) -> Place {
        let leads = |handles: &SeqSet| {
            sources.runs().iter().any(|run| handles.contains(run.first) || handles.contains(run.last))
        };
        let mut folded = self.brief.iter().flat_map(|brief| &brief.folded);
        let is_meant = self.brief.is_none()
            || carried.is_some()
            || folded.any(|folded| folded.section == section && leads(&folded.sources));
        if is_meant && self.handles.get(&section).is_some_and(leads) {
            Place::Counted
        } else if leads(&self.opening) {
            Place::Covered
        } else {
            Place::Lost
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
        assert_eq!(found.get(&Section::Pins), Some(&"(none)"));
        assert_eq!(found.get(&Section::Errors), Some(&"- boom\n- bang"));
        assert_eq!(found.get(&Section::NextSteps), Some(&""));
        assert_eq!(found.len(), 3);
        assert!(sections("").is_empty());
    }
}
