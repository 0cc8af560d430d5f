//! Detects that compacting does not help: the context is full again right after.

use epitome_core::Seq;
use serde::{Deserialize, Serialize};

/// Number of compactions in a row, each soon after the one before, that count as thrashing.
const THRASHING_COMPACTIONS: u64 = 3;

/// Largest number of calls between two compactions that are close.
const MAX_CLOSE_CALLS: u64 = 2;

/// Number of calls for which only necessary compactions are then made.
const DELAY_CALLS: u64 = 12;

/// Calls at which compactions were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ThrashDetector {
    newest: Option<u64>,
    row: u64,
    standing: Option<Seq>,
}

impl ThrashDetector {
    /// Notes that a call stands on a compaction, which a size demanded if `is_forced`. Returns the distance between
    /// such compactions, if they are too close. A compaction that was requested, that costs nothing because the cache
    /// is cold, or that pays shows nothing about room: it could have waited.
    pub(crate) fn note_compacted_call(&mut self, call: u64, compaction: Seq, is_forced: bool) -> Option<u64> {
        // A compaction that was undone and redone is not new.
        if self.standing.is_some_and(|newest| compaction <= newest) {
            return None;
        }
        self.standing = Some(compaction);
        if !is_forced {
            return None;
        }
        let is_close = self.newest.is_some_and(|newest| call.saturating_sub(newest) <= MAX_CLOSE_CALLS);
        // A compaction that is made meanwhile goes further down: the calls until the next one show nothing about the
        // others.
        if self.delays_compaction(call) && !is_close {
            return None;
        }
        self.row = if is_close { self.row + 1 } else { 1 };
        self.newest = Some(call);
        (self.row == THRASHING_COMPACTIONS).then_some(MAX_CLOSE_CALLS)
    }

    /// Returns true if another compaction should be put off, and made to last.
    pub(crate) fn delays_compaction(&self, call: u64) -> bool {
        self.row >= THRASHING_COMPACTIONS && self.newest.is_some_and(|newest| call <= newest + DELAY_CALLS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_compactions_in_a_row_are_followed_by_a_rest() {
        let mut thrash = ThrashDetector::default();
        let at = |thrash: &mut ThrashDetector, call: u64| thrash.note_compacted_call(call, Seq(call), true);
        assert_eq!([5, 9, 11].map(|call| at(&mut thrash, call)), [None, None, None]);
        assert!(!thrash.delays_compaction(12));
        assert_eq!(at(&mut thrash, 12), Some(2));
        assert!(
            thrash.delays_compaction(13) && thrash.delays_compaction(24) && !thrash.delays_compaction(25)
        );
        assert_eq!(at(&mut thrash, 25), None);
        assert!(!thrash.delays_compaction(26));
    }

    #[test]
    fn what_could_have_waited_or_was_brought_back_does_not_count() {
        let mut thrash = ThrashDetector::default();
        let told = [(1, 10, true), (2, 20, false), (3, 10, true), (4, 30, false), (5, 40, true)].map(
            |(call, compaction, is_forced)| thrash.note_compacted_call(call, Seq(compaction), is_forced),
        );
        assert_eq!(told, [None; 5]);
        assert!(!thrash.delays_compaction(6));
    }
}
