//! A summary as of an earlier place: for a fork inside the span that it tells of.

use super::{FoldedItems, SectionCaps, StructuredSummary, SummaryItem, SummarySection, item_set::ItemSet};
use crate::{id::Seq, seq_set::SeqSet};

impl StructuredSummary {
    /// What this summary knows of the events before `seq`, and of nothing else.
    ///
    /// An item stays if all its events lie before. One that was carried on by later events may have said something else
    /// at the time; what that was is not known here, and how many such items there were neither: they become a row whose
    /// count is 0, with the events in which they can be found. What only came later is gone without a trace.
    pub fn before(&self, seq: Seq) -> Self {
        let mut brief = Self::default();
        let mut unknown: Vec<(SummarySection, SeqSet)> = Vec::new();
        for item in &self.items {
            if lies_before(&item.sources, seq) {
                brief.items.push(item.clone());
            } else {
                unknown.push((item.section, item.sources.before(seq)));
            }
        }
        for folded in &self.folded {
            if folded.count > 0 && lies_before(&folded.sources, seq) {
                brief.folded.push(folded.clone());
            } else {
                unknown.push((folded.section, folded.sources.before(seq)));
            }
        }
        for section in SummarySection::ALL {
            let rows = unknown.iter().filter(|(of, _)| *of == section).map(|(_, sources)| sources);
            let sources = SeqSet::union(rows);
            if !sources.is_empty() {
                brief.folded.push(FoldedItems { section, count: 0, sources });
            }
        }
        brief.folded.sort_by_key(|folded| (folded.section, folded.count == 0));
        brief.trail = self.trail.before(seq);
        brief.carried_trail = self.carried_trail.before(seq);
        brief.index = self.index.iter().filter(|entry| entry.at < seq).cloned().collect();
        brief.standing = self.standing.before(seq);
        brief
    }

    /// This summary, and beside it what `other` says of the same events in words of its own: what was decided and tried.
    /// How things stood is this one's to say.
    pub fn merged_with(&self, other: &Self, caps: &SectionCaps) -> Self {
        let mut ledger = ItemSet::from_previous(Some(self));
        let is_told = |item: &&SummaryItem| {
            matches!(item.section, SummarySection::KeyDecisions | SummarySection::FailedApproaches)
        };
        for item in other.items.iter().filter(is_told) {
            if ledger.get(item.section, item.identity()).is_none() {
                ledger.put(item.clone());
            }
        }
        Self { standing: self.standing.clone(), ..ledger.into_summary(caps) }
    }
}

/// An item without events is nobody's, and cannot be said to lie anywhere.
fn lies_before(sources: &SeqSet, seq: Seq) -> bool {
    sources.last().is_some_and(|last| last < seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::SummaryItem;

    #[test]
    fn a_fork_keeps_what_lies_before_it_and_says_what_it_cannot_know() {
        let item = |text: &str, runs: &[(u64, u64)]| SummaryItem {
            section: SummarySection::FilesModified,
            text: text.to_owned(),
            key: None,
            sources: SeqSet::union(
                &runs.iter().map(|(a, b)| SeqSet::run(Seq(*a), Seq(*b))).collect::<Vec<_>>(),
            ),
            detail: None,
        };
        let folded = |count, from, to| FoldedItems {
            section: SummarySection::Errors,
            count,
            sources: SeqSet::run(Seq(from), Seq(to)),
        };
        let brief = StructuredSummary {
            items: vec![item("early", &[(1, 2)]), item("both", &[(3, 4), (9, 9)]), item("late", &[(7, 8)])],
            folded: vec![folded(5, 2, 6), folded(7, 1, 30)],
            ..StructuredSummary::default()
        };
        let fork = brief.before(Seq(7));
        assert_eq!(fork.items, [item("early", &[(1, 2)])]);
        let rows: Vec<String> = fork
            .folded
            .iter()
            .map(|row| format!("{} {} [{}]", row.section.title(), row.count, row.sources))
            .collect();
        assert_eq!(
            rows,
            ["Files Modified 0 [3-4]", "Errors Encountered 5 [2-6]", "Errors Encountered 0 [1-6]"]
        );
        assert_eq!(brief.before(Seq(1)), StructuredSummary::default());
        assert_eq!(brief.before(Seq(99)), brief);
        // A fork of a fork knows no more.
        assert_eq!(fork.before(Seq(7)), fork);
    }

    #[test]
    fn two_summaries_of_the_same_are_joined_without_repeating() {
        let item = |section, text: &str, key: Option<&str>, at| SummaryItem {
            section,
            text: text.to_owned(),
            key: key.map(str::to_owned),
            sources: SeqSet::one(Seq(at)),
            detail: None,
        };
        let own = StructuredSummary {
            items: vec![
                item(SummarySection::CurrentTask, "Fix it.", None, 3),
                item(SummarySection::KeyDecisions, "Use tabs.", None, 4),
                item(SummarySection::Errors, "boom", Some("make"), 5),
            ],
            folded: vec![FoldedItems {
                section: SummarySection::Errors,
                count: 2,
                sources: SeqSet::one(Seq(1)),
            }],
            ..StructuredSummary::default()
        };
        let other = StructuredSummary {
            items: vec![
                item(SummarySection::CurrentTask, "Something later.", None, 3),
                item(SummarySection::KeyDecisions, "Use tabs.", None, 4),
                item(SummarySection::KeyDecisions, "Keep the old name, callers know it.", None, 2),
                item(SummarySection::Errors, "it went boom", Some("make"), 5),
            ],
            folded: vec![FoldedItems {
                section: SummarySection::Commands,
                count: 9,
                sources: SeqSet::one(Seq(1)),
            }],
            ..StructuredSummary::default()
        };
        let joined = own.merged_with(&other, &SectionCaps::default());
        let said: Vec<&str> = joined.items.iter().map(|item| item.text.as_str()).collect();
        assert_eq!(said, ["Fix it.", "Keep the old name, callers know it.", "Use tabs.", "boom"]);
        assert_eq!(joined.folded, own.folded);
    }
}
