//! Detects that compacting does not help: the context is full again right after.

use epitome_core::Seq;
use serde::{Deserialize, Serialize};

/// Number of compactions in a row, each soon after the one before, that count as thrashing.
const IN_A_ROW: u64 = 3;

/// Largest number of calls between two compactions that are close.
const CLOSE: u64 = 2;

/// Number of calls for which only necessary compactions are then made.
const REST: u64 = 12;

/// Calls at which compactions were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Thrash {
    newest: Option<u64>,
    row: u64,
    standing: Option<Seq>,
}

impl Thrash {
    /// Notes that a call stands on a compaction, which a size demanded if `is_forced`. Returns the distance between
    /// such compactions, if they are too close. A compaction that was requested, that costs nothing because the cache
    /// is cold, or that pays shows nothing about room: it could have waited.
    pub(crate) fn stands_on(&mut self, call: u64, compaction: Seq, is_forced: bool) -> Option<u64> {
        // A compaction that was undone and redone is not new.
        if self.standing.is_some_and(|newest| compaction <= newest) {
            return None;
        }
        self.standing = Some(compaction);
        if !is_forced {
            return None;
        }
        let is_close = self.newest.is_some_and(|newest| call.saturating_sub(newest) <= CLOSE);
        // A compaction that is made meanwhile goes further down: the calls until the next one show nothing about the
        // others.
        if self.holds(call) && !is_close {
            return None;
        }
        self.row = if is_close { self.row + 1 } else { 1 };
        self.newest = Some(call);
        (self.row == IN_A_ROW).then_some(CLOSE)
    }

    /// Returns true if another compaction should be put off, and made to last.
    pub(crate) fn holds(&self, call: u64) -> bool {
        self.row >= IN_A_ROW && self.newest.is_some_and(|newest| call <= newest + REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_compactions_in_a_row_are_followed_by_a_rest() {
        let mut thrash = Thrash::default();
        let at = |thrash: &mut Thrash, call: u64| thrash.stands_on(call, Seq(call), true);
        assert_eq!([5, 9, 11].map(|call| at(&mut thrash, call)), [None, None, None]);
        assert!(!thrash.holds(12));
        assert_eq!(at(&mut thrash, 12), Some(2));
        assert!(thrash.holds(13) && thrash.holds(24) && !thrash.holds(25));
        assert_eq!(at(&mut thrash, 25), None);
        assert!(!thrash.holds(26));
    }

    #[test]
    fn what_could_have_waited_or_was_brought_back_does_not_count() {
        let mut thrash = Thrash::default();
        let told = [(1, 10, true), (2, 20, false), (3, 10, true), (4, 30, false), (5, 40, true)]
            .map(|(call, compaction, is_forced)| thrash.stands_on(call, Seq(compaction), is_forced));
        assert_eq!(told, [None; 5]);
        assert!(!thrash.holds(6));
    }
}
