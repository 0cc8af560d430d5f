//! Sets of events, kept as runs.
//!
//! A summary may stand for a hundred thousand events and an exchange for two; as runs of neighbours both are
//! small, so that carrying the lineage along is nearly free.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::id::Seq;

/// Events of one thread's view, sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SeqSet {
    runs: Vec<SeqRange>,
}

/// Neighbouring events, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeqRange {
    /// The first event.
    pub first: Seq,
    /// The last event; not before the first.
    pub last: Seq,
}

impl SeqSet {
    /// One event.
    pub fn one(seq: Seq) -> Self {
        Self { runs: vec![SeqRange { first: seq, last: seq }] }
    }

    /// All events from `first` through `last`; none if that is backwards.
    pub fn run(first: Seq, last: Seq) -> Self {
        Self { runs: if first <= last { vec![SeqRange { first, last }] } else { Vec::new() } }
    }

    /// Everything in any of `sets`.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut runs: Vec<SeqRange> = sets.into_iter().flat_map(|set| &set.runs).copied().collect();
        runs.sort_unstable();
        let mut joined = Self::default();
        for run in runs {
            joined.append(run);
        }
        joined
    }

    /// Adds an event.
    pub fn insert(&mut self, seq: Seq) {
        let run = SeqRange { first: seq, last: seq };
        match self.runs.last() {
            Some(last) if last.first > seq => *self = Self::union([&*self, &Self::one(seq)]),
            _ => self.append(run),
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: &Self) {
        match (self.runs.last(), other.runs.first()) {
            (Some(last), Some(first)) if last.first > first.first => *self = Self::union([&*self, other]),
            _ => other.runs.iter().for_each(|run| self.append(*run)),
        }
    }

    /// The part before an event.
    pub fn before(&self, seq: Seq) -> Self {
        let runs = self.runs.iter().take_while(|run| run.first < seq);
        Self {
            runs: runs.map(|run| SeqRange { first: run.first, last: run.last.min(seq.previous()) }).collect(),
        }
    }

    /// Its first run and the newest ones, `most` in all: where something began and how it stands.
    pub fn first_and_last_runs(mut self, most: usize) -> Self {
        let too_many = self.runs.len().saturating_sub(most.max(2));
        if too_many > 0 {
            self.runs.drain(1..=too_many);
        }
        self
    }

    /// At most `most` runs that hold all of it: if it has more, the nearest are joined over the gaps between
    /// them.
    pub fn with_fewer_runs(mut self, most: usize) -> Self {
        let too_many = self.runs.len().saturating_sub(most.max(1));
        if too_many == 0 {
            return self;
        }
        let mut gaps: Vec<u64> = self.runs.windows(2).map(|pair| pair[1].first.0 - pair[0].last.0).collect();
        gaps.sort_unstable();
        let widest_joined = gaps[too_many - 1];
        let runs = std::mem::take(&mut self.runs);
        let mut joined = 0;
        for run in runs {
            match self.runs.last_mut() {
                Some(last) if joined < too_many && run.first.0 - last.last.0 <= widest_joined => {
                    last.last = run.last;
                    joined += 1;
                }
                _ => self.runs.push(run),
            }
        }
        self
    }

    /// Returns true if an event is in the set.
    pub fn contains(&self, seq: Seq) -> bool {
        let after = self.runs.partition_point(|run| run.first <= seq);
        after.checked_sub(1).is_some_and(|index| seq <= self.runs[index].last)
    }

    /// The first event.
    pub fn first(&self) -> Option<Seq> {
        self.runs.first().map(|run| run.first)
    }

    /// The last event.
    pub fn last(&self) -> Option<Seq> {
        self.runs.last().map(|run| run.last)
    }

    /// Number of events in the set.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.last.0 - run.first.0 + 1).sum()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns true if an event is in both.
    pub fn intersects(&self, other: &Self) -> bool {
        self.runs.iter().any(|run| {
            let begin = other.runs.partition_point(|theirs| theirs.last < run.first);
            other.runs.get(begin).is_some_and(|theirs| theirs.first <= run.last)
        })
    }

    /// Events that are in this set and not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Self::default();
        for run in &self.runs {
            let begin = other.runs.partition_point(|gone| gone.last < run.first);
            let mut first = run.first;
            for gone in other.runs[begin..].iter().take_while(|gone| gone.first <= run.last) {
                if first < gone.first {
                    left.append(SeqRange { first, last: gone.first.previous() });
                }
                first = gone.last.next();
            }
            if first <= run.last {
                left.append(SeqRange { first, last: run.last });
            }
        }
        left
    }

    /// Its runs, in order; two neighbours are never apart.
    pub fn runs(&self) -> &[SeqRange] {
        &self.runs
    }

    /// Adds a run that does not begin before the last one.
    fn append(&mut self, run: SeqRange) {
        match self.runs.last_mut() {
            Some(last) if run.first.0 <= last.last.0.saturating_add(1) => last.last = last.last.max(run.last),
            _ => self.runs.push(run),
        }
    }
}

/// Runs that are read need not be sorted, but no run may be backwards.
impl<'de> Deserialize<'de> for SeqSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let runs: Vec<SeqRange> = Deserialize::deserialize(deserializer)?;
        if let Some(backwards) = runs.iter().find(|run| run.last < run.first) {
            let message = format!("a run of events from {} to {}", backwards.first, backwards.last);
            return Err(de::Error::custom(message));
        }
        Ok(Self::union([&Self { runs }]))
    }
}

/// `3, 5-9`.
impl fmt::Display for SeqSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.runs.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{run}")?;
        }
        Ok(())
    }
}

/// `5-9`, or `3` alone.
impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_join_and_a_backward_run_is_empty() {
        let mut set = SeqSet::one(Seq(3));
        set.insert(Seq(5));
        assert_eq!(set.to_string(), "3, 5");
        set.insert(Seq(4));
        assert_eq!(set.to_string(), "3-5");
        assert!(SeqSet::run(Seq(2), Seq(1)).is_empty());
    }

    #[test]
    fn a_set_reads_back_sorted_and_a_backward_run_is_refused() {
        let mut set = SeqSet::run(Seq(5), Seq(9));
        set.insert(Seq(3));
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<SeqSet>(&json).unwrap(), set);
        let unsorted = r#"[{"first":5,"last":9},{"first":3,"last":3}]"#;
        assert_eq!(serde_json::from_str::<SeqSet>(unsorted).unwrap(), set);
        assert!(serde_json::from_str::<SeqSet>(r#"[{"first":5,"last":4}]"#).is_err());
    }

    #[test]
    fn a_set_is_cut_before_an_event_and_bounded_in_two_ways() {
        let set: SeqSet = serde_json::from_str(
            r#"[{"first":1,"last":2},{"first":4,"last":5},{"first":9,"last":9},{"first":11,"last":20}]"#,
        )
        .unwrap();
        assert_eq!(set.before(Seq(5)).to_string(), "1-2, 4");
        assert_eq!(set.before(Seq(1)).to_string(), "");
        assert_eq!(set.before(Seq(99)), set);
        assert_eq!(set.clone().first_and_last_runs(3).to_string(), "1-2, 9, 11-20");
        assert_eq!(set.clone().first_and_last_runs(9), set);
        assert_eq!(set.clone().with_fewer_runs(3).to_string(), "1-5, 9, 11-20");
        assert_eq!(set.clone().with_fewer_runs(1).to_string(), "1-20");
        assert_eq!(SeqSet::default().with_fewer_runs(1).first_and_last_runs(1).to_string(), "");
    }

    proptest! {
        #[test]
        fn what_is_without_another_set_is_in_no_run_of_it(
            one in prop::collection::vec((0..40u64, 0..6u64), 0..8),
            other in prop::collection::vec((0..40u64, 0..6u64), 0..8),
        ) {
            let set = |runs: &[(u64, u64)]| {
                let runs: Vec<SeqSet> =
                    runs.iter().map(|(first, more)| SeqSet::run(Seq(*first), Seq(first + more))).collect();
                SeqSet::union(&runs)
            };
            let (one, other) = (set(&one), set(&other));
            let left = one.without(&other);
            for seq in (0..50).map(Seq) {
                prop_assert_eq!(left.contains(seq), one.contains(seq) && !other.contains(seq));
            }
            prop_assert_eq!(SeqSet::union([&left]), left, "its runs are sorted and apart");
        }

        /// Against the obvious set of numbers.
        #[test]
        fn it_holds_what_was_put_in(steps in prop::collection::vec((0..40u64, 0..4u64), 0..30)) {
            let mut set = SeqSet::default();
            let mut plain = BTreeSet::new();
            for (first, more) in steps {
                if more == 0 {
                    set.insert(Seq(first));
                } else {
                    set.extend(&SeqSet::run(Seq(first), Seq(first + more)));
                }
                plain.extend(first..=first + more);
                prop_assert_eq!(set.count(), plain.len() as u64);
                prop_assert_eq!(set.first().map(|seq| seq.0), plain.first().copied());
                prop_assert_eq!(set.last().map(|seq| seq.0), plain.last().copied());
            }
            for seq in 0..50 {
                prop_assert_eq!(set.contains(Seq(seq)), plain.contains(&seq));
            }
        }
    }
}
