//! What a summary has kept of the span it stands for: measured by code, on whatever wrote it.
//!
//! Code reads the whole span afresh, as if there had been no summary before, and takes from it what must be kept: pins,
//! constraints, changed files, failed approaches, errors. Then each of these is looked for in the summary: told there,
//! counted there in a line with a handle that leads to it, or at least within what the summary's first line says how to
//! get back. What is none of that is lost.

use std::{collections::BTreeMap, sync::Arc};

use epitome_core::{
    Logged,
    context::Names,
    event::{Compaction, Summary},
    seq_set::SeqSet,
    summary::{Brief, Caps, Item, Section, summarise},
};
use serde::Serialize;

/// How many of the lost items are kept as examples.
const EXAMPLES: usize = 5;

/// What became of the items that must be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// By section.
    pub sections: BTreeMap<Section, Tally>,
    /// The first few that are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
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
    /// Found again only by the handle of the whole span, in the summary's first line.
    pub covered: u64,
    /// Neither.
    pub lost: u64,
}

impl Tally {
    /// Items that can be found again from the summary, though it does not tell them.
    pub fn reachable(&self) -> u64 {
        self.counted + self.covered
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
            Place::Covered => tally.covered += 1,
            Place::Lost => {
                tally.lost += 1;
                if kept.lost.len() < EXAMPLES {
                    kept.lost.push(format!("{}: {} [{}]", item.section.title(), item.text, item.sources));
                }
            }
        }
    }
    // What was folded over the caps that nobody can lift is counted as one would find it.
    for folded in fresh.folded.iter().filter(|folded| folded.section.must_keep()) {
        let tally = kept.sections.entry(folded.section).or_default();
        tally.items += folded.count;
        match page.reach(folded.section, &folded.sources) {
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
        let is_told = |text: &str| {
            let text = bare(text);
            !text.is_empty() && self.told.get(&item.section).is_some_and(|told| told.contains(&text))
        };
        if carried.is_some_and(|carried| is_told(&carried.text)) || is_told(&item.text) {
            return Place::Shown;
        }
        self.reach(item.section, &item.sources)
    }

    fn reach(&self, section: Section, sources: &SeqSet) -> Place {
        let leads = |handles: &SeqSet| {
            sources.runs().iter().any(|run| handles.contains(run.first) || handles.contains(run.last))
        };
        if self.handles.get(&section).is_some_and(leads) {
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
