//! The ledger: the items of a summary while it is made.
//!
//! It begins with the items of the summary before. An item stays until another of the same identity takes its place, or
//! until its section is over its cap: then the least important of the oldest are folded into a count with their events.
//! Nothing else leaves it but what its owner strikes, so that nothing is lost by omission.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::{
    ConstraintForce, FoldedItems, IndexEntry, ItemDetail, MAX_PINS, StructuredSummary, SummaryItem,
    SummarySection, Trail,
};
use crate::{
    seq_set::SeqSet,
    standing_context::{MAX_STANDING_CHARS, StandingContext},
    tokens::Tokens,
};

/// How many constraints are shown. Beyond it preferences are folded before rules, older ones before newer.
pub const MAX_CONSTRAINTS: usize = 40;

/// How many runs of events an item names.
const SOURCES: usize = 12;

/// How many runs of events a fold names; between them it names too much rather than too little.
const FOLDED_SOURCES: usize = 12;

/// The key of the first request, which is never folded.
pub(crate) const FIRST_REQUEST_KEY: &str = "first request";

/// How many items of each section a summary shows; pins and constraints have caps of their own ([`MAX_PINS`],
/// [`MAX_CONSTRAINTS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SectionCaps {
    /// Requests of the user, beside the first.
    pub session_intent: usize,
    /// Changed files.
    pub files_modified: usize,
    /// Files that were only read.
    pub files_read: usize,
    /// Commands.
    pub commands: usize,
    /// Decisions.
    pub key_decisions: usize,
    /// Failed approaches.
    pub failed_approaches: usize,
    /// Errors.
    pub errors: usize,
    /// Next steps.
    pub next_steps: usize,
    /// What happened, in order: so many letters of it. By default none.
    pub trail: usize,
    /// The index of names: so many letters. By default there is none.
    pub index: usize,
    /// Standing context, word for word: so many letters of it, and no more than a third of what instructions and tools leave.
    pub standing: usize,
}

impl Default for SectionCaps {
    fn default() -> Self {
        Self {
            session_intent: 16,
            files_modified: 120,
            files_read: 60,
            commands: 40,
            key_decisions: 40,
            failed_approaches: 40,
            errors: 40,
            next_steps: 24,
            trail: 0,
            index: 0,
            standing: MAX_STANDING_CHARS,
        }
    }
}

impl SectionCaps {
    /// The same, where a context has room for no more than this: what has room of its own takes no more than its part.
    pub fn within(self, room: Tokens) -> Self {
        let room = usize::try_from(room.0).unwrap_or(usize::MAX);
        Self {
            trail: self.trail.min(room.saturating_mul(4).max(1)),
            // With three or four letters a token, a quarter of the room or a little more. With less, real sessions kept fewer of the
            // names they needed; with more, users' words had to go.
            index: self.index.min(room),
            ..self
        }
    }

    /// The same, for a span of this size: an index of more letters would be most of it.
    pub fn of_span(self, span: Tokens) -> Self {
        let letters = usize::try_from(span.0).unwrap_or(usize::MAX);
        let trail = self.trail.min(letters.saturating_mul(4).max(1));
        Self { trail, index: self.index.min(letters), ..self }
    }

    /// The same with so many letters less beside the sections; nothing, if there is none to take. An index gives way as far
    /// as it is longer than the trail, then the trail does, but for its shortest form: names say little without what happened.
    pub fn shrunk_by(self, letters: usize) -> Option<Self> {
        let names = letters.min(self.index.saturating_sub(self.trail));
        let letters = letters - names;
        let trail = self.trail.saturating_sub(letters).max(self.trail.min(1));
        let index = (self.index - names).saturating_sub(letters.saturating_sub(self.trail));
        (trail < self.trail || index < self.index).then_some(Self { trail, index, ..self })
    }

    /// How many items of a section are shown.
    pub const fn of(&self, section: SummarySection) -> usize {
        match section {
            SummarySection::Pins => MAX_PINS,
            SummarySection::SessionIntent => self.session_intent,
            SummarySection::Constraints => MAX_CONSTRAINTS,
            // What is asked for, what was reported and said last, and what a model says of it.
            SummarySection::CurrentTask => 6,
            SummarySection::FilesModified => self.files_modified,
            SummarySection::FilesRead => self.files_read,
            SummarySection::Commands => self.commands,
            SummarySection::KeyDecisions => self.key_decisions,
            SummarySection::FailedApproaches => self.failed_approaches,
            SummarySection::Errors => self.errors,
            SummarySection::NextSteps => self.next_steps,
        }
    }
}

/// Items, by section and identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct ItemSet {
    items: Vec<Option<SummaryItem>>,
    places: HashMap<(SummarySection, String), usize>,
    /// What else the summary before says, without its items.
    before: StructuredSummary,
}

impl ItemSet {
    /// Begins with what the summary before says.
    pub(crate) fn from_previous(previous: Option<&StructuredSummary>) -> Self {
        let mut ledger = Self::default();
        if let Some(previous) = previous {
            let mut before = previous.clone();
            for item in std::mem::take(&mut before.items) {
                ledger.put(item);
            }
            ledger.before = StructuredSummary { standing: StandingContext::default(), focus: None, ..before };
        }
        ledger
    }

    /// The item of a section with this identity.
    pub(crate) fn get(&self, section: SummarySection, identity: &str) -> Option<&SummaryItem> {
        // A map's key of two parts cannot be borrowed apart.
        self.places.get(&(section, identity.to_owned())).and_then(|place| self.items[*place].as_ref())
    }

    /// The items of a section, the last put in first.
    pub(crate) fn newest(&self, section: SummarySection) -> impl Iterator<Item = &SummaryItem> {
        self.items.iter().rev().flatten().filter(move |item| item.section == section)
    }

    /// Puts an item in, in place of the one with its identity, whose sources become its own.
    pub(crate) fn put(&mut self, mut item: SummaryItem) {
        let identity = (item.section, item.identity().to_owned());
        let place = *self.places.entry(identity).or_insert_with(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        if let Some(before) = &self.items[place] {
            item.sources.extend(&before.sources);
        }
        item.sources = item.sources.first_and_last_runs(SOURCES);
        self.items[place] = Some(item);
    }

    /// Takes an item out, because something else says what it said.
    pub(crate) fn remove(&mut self, section: SummarySection, identity: &str) -> Option<SummaryItem> {
        let place = self.places.remove(&(section, identity.to_owned()))?;
        self.items[place].take()
    }

    /// Takes all items of a section out.
    pub(crate) fn clear(&mut self, section: SummarySection) {
        let items: Vec<SummaryItem> = self.newest(section).cloned().collect();
        for item in &items {
            self.remove(section, item.identity());
        }
    }

    /// Takes an item out that no longer holds; it is counted instead.
    pub(crate) fn retire(&mut self, section: SummarySection, identity: &str) {
        if let Some(item) = self.remove(section, identity) {
            fold(&mut self.before.folded, section, &[item]);
        }
    }

    /// The trail of the summary before, as it is gone on from.
    pub(super) fn trail(&self) -> &Trail {
        let StructuredSummary { trail, carried_trail, .. } = &self.before;
        if carried_trail.is_empty() { trail } else { carried_trail }
    }

    /// The trail of the summary before, as it was told.
    pub(super) fn told_trail(&self) -> &Trail {
        &self.before.trail
    }

    /// Whether items of a section are only counted by now.
    pub(super) fn has_folded(&self, section: SummarySection) -> bool {
        self.before.folded.iter().any(|folded| folded.section == section)
    }

    /// The index of the summary before.
    pub(super) fn index(&self) -> &[IndexEntry] {
        &self.before.index
    }

    /// The summary: items in order, each section within its cap.
    pub(crate) fn into_summary(self, caps: &SectionCaps) -> StructuredSummary {
        let mut sections: BTreeMap<SummarySection, Vec<SummaryItem>> = BTreeMap::new();
        for item in self.items.into_iter().flatten() {
            sections.entry(item.section).or_default().push(item);
        }
        let mut brief = self.before;
        for (section, mut items) in sections {
            let too_many = items.len().saturating_sub(caps.of(section));
            if too_many > 0 {
                items.sort_by_key(|item| (weight(item), item.sources.last()));
                let kept = items.split_off(too_many);
                fold(&mut brief.folded, section, &items);
                items = kept;
            }
            items.sort_by_key(|item| (item.sources.last(), item.sources.first()));
            brief.items.append(&mut items);
        }
        brief.folded.sort_by_key(|folded| (folded.section, folded.count == 0));
        brief
    }
}

/// Counts items instead of telling them.
fn fold(folded: &mut Vec<FoldedItems>, section: SummarySection, items: &[SummaryItem]) {
    let count = items.len() as u64;
    let sources = items.iter().map(|item| &item.sources);
    let known = folded.extract_if(.., |folded| folded.section == section && folded.count > 0).next();
    let known = known.unwrap_or(FoldedItems { section, count: 0, sources: SeqSet::default() });
    let sources = SeqSet::union(sources.chain([&known.sources])).with_fewer_runs(FOLDED_SOURCES);
    folded.push(FoldedItems { section, count: known.count.saturating_add(count), sources });
}

/// What is folded later than others of its age.
fn weight(item: &SummaryItem) -> u8 {
    use SummarySection::{Errors, FailedApproaches, FilesModified, NextSteps, SessionIntent};
    match (item.section, &item.detail) {
        // What a model added gives way to what tools did or said.
        (
            _,
            Some(ItemDetail::Wish(ConstraintForce::Withdrawn) | ItemDetail::Error { resolved: Some(_), .. }),
        )
        | (NextSteps | FilesModified | FailedApproaches | Errors, None) => 0,
        (_, Some(ItemDetail::Wish(ConstraintForce::Rule))) => 2,
        (SessionIntent, _) if item.key.as_deref() == Some(FIRST_REQUEST_KEY) => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Seq;

    fn item(section: SummarySection, text: &str, key: Option<&str>, seq: u64) -> SummaryItem {
        let key = key.map(str::to_owned);
        SummaryItem { section, text: text.to_owned(), key, sources: SeqSet::one(Seq(seq)), detail: None }
    }

    fn show(brief: &StructuredSummary) -> String {
        let items = brief.items.iter().map(|item| format!("{} [{}]", item.text, item.sources));
        let folded = brief.folded.iter().map(|folded| format!("+{} [{}]", folded.count, folded.sources));
        items.chain(folded).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_later_state_of_a_key_replaces_and_equal_words_are_one_item() {
        let mut ledger = ItemSet::default();
        ledger.put(item(SummarySection::Commands, "make: 1", Some("make"), 1));
        ledger.put(item(SummarySection::KeyDecisions, "tabs", None, 2));
        ledger.put(item(SummarySection::KeyDecisions, "tabs", None, 3));
        ledger.put(item(SummarySection::Commands, "make: 0", Some("make"), 4));
        let brief = ledger.into_summary(&SectionCaps::default());
        assert_eq!(show(&brief), "make: 0 [1, 4]; tabs [2-3]");
        let again = ItemSet::from_previous(Some(&brief)).into_summary(&SectionCaps::default());
        assert_eq!(again, brief);
    }

    #[test]
    fn what_has_room_of_its_own_takes_no_more_than_its_part_of_a_context() {
        let caps = SectionCaps { trail: 1_000, index: 800, ..SectionCaps::default() };
        let check = |caps: SectionCaps, trail, index| {
            assert_eq!((caps.trail, caps.index), (trail, index));
            assert_eq!(caps.commands, SectionCaps::default().commands);
        };
        check(caps.within(Tokens(100_000)), 1_000, 800);
        check(caps.within(Tokens(240)), 960, 240);
        // A trail in its shortest form stays wherever there is to be one.
        check(caps.within(Tokens(0)), 1, 0);
        check(SectionCaps { trail: 0, ..caps }.within(Tokens(0)), 0, 0);
        check(caps.of_span(Tokens(200)), 800, 200);
        let all = SectionCaps { trail: usize::MAX, index: usize::MAX, ..caps };
        assert_eq!(all.within(Tokens::MAX).trail, usize::MAX);
        check(all.of_span(Tokens::MAX), usize::MAX, usize::MAX);
    }

    #[test]
    fn the_trail_gives_room_before_the_index_does() {
        let caps = SectionCaps { trail: 1_000, index: 800, ..SectionCaps::default() };
        let less = |letters| caps.shrunk_by(letters).map(|caps| (caps.trail, caps.index));
        assert_eq!(less(300), Some((700, 800)));
        let longer = SectionCaps { trail: 200, ..caps };
        assert_eq!(longer.shrunk_by(500).map(|caps| (caps.trail, caps.index)), Some((200, 300)));
        assert_eq!(less(1_300), Some((1, 500)));
        assert_eq!(less(usize::MAX), Some((1, 0)));
        assert_eq!(SectionCaps { trail: 1, index: 0, ..caps }.shrunk_by(usize::MAX), None);
        assert_eq!(SectionCaps { trail: 0, index: 0, ..caps }.shrunk_by(1), None);
    }

    #[test]
    fn what_is_over_the_cap_is_counted_with_its_events() {
        let caps = SectionCaps { commands: 2, ..SectionCaps::default() };
        let mut ledger = ItemSet::default();
        (1..=4).for_each(|seq| ledger.put(item(SummarySection::Commands, &format!("c{seq}"), None, seq * 2)));
        let brief = ledger.into_summary(&caps);
        assert_eq!(show(&brief), "c3 [6]; c4 [8]; +2 [2, 4]");
        let mut ledger = ItemSet::from_previous(Some(&brief));
        ledger.put(item(SummarySection::Commands, "c5", None, 10));
        assert_eq!(show(&ledger.into_summary(&caps)), "c4 [8]; c5 [10]; +3 [2, 4, 6]");
    }

    #[test]
    fn the_first_request_and_rules_are_folded_last() {
        let caps = SectionCaps { session_intent: 2, ..SectionCaps::default() };
        let mut ledger = ItemSet::default();
        ledger.put(item(SummarySection::SessionIntent, "first", Some(FIRST_REQUEST_KEY), 1));
        (2..=4)
            .for_each(|seq| ledger.put(item(SummarySection::SessionIntent, &format!("r{seq}"), None, seq)));
        assert_eq!(show(&ledger.into_summary(&caps)), "first [1]; r4 [4]; +2 [2-3]");
        let mut ledger = ItemSet::default();
        for seq in 0..=MAX_CONSTRAINTS as u64 {
            let force = if seq == 0 { ConstraintForce::Rule } else { ConstraintForce::Preference };
            let detail = Some(ItemDetail::Wish(force));
            ledger.put(SummaryItem {
                detail,
                ..item(SummarySection::Constraints, &format!("w{seq}"), None, seq + 1)
            });
        }
        assert!(show(&ledger.into_summary(&caps)).starts_with("w0 [1]; w2 [3]; w3"));
    }
}
