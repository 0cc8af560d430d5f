//! Notices when compacting does not help: the context is full again right after.

use epitome_core::Seq;

/// So many compactions in a row, each right after the one before, and no more are made.
const IN_A_ROW: u64 = 3;

/// Right after: within this many calls.
const CLOSE: u64 = 2;

/// For so many calls nothing is summarised then.
const REST: u64 = 12;

/// When compactions were made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thrash {
    newest: Option<u64>,
    row: u64,
    standing: Option<Seq>,
}

impl Thrash {
    /// A compaction was adopted with this call. Tells how close they are, if that is too close.
    pub(crate) fn compacted_at(&mut self, call: u64) -> Option<u64> {
        let is_close = self.newest.is_some_and(|newest| call.saturating_sub(newest) <= CLOSE);
        self.row = if is_close { self.row + 1 } else { 1 };
        self.newest = Some(call);
        (self.row >= IN_A_ROW).then_some(CLOSE)
    }

    /// Whether this is the first call that stands on a compaction.
    pub(crate) fn is_new(&mut self, compaction: Seq) -> bool {
        let is_new = self.standing != Some(compaction);
        self.standing = Some(compaction);
        is_new
    }

    /// Whether a call is better made without another.
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
        assert_eq!([5, 9, 11].map(|call| thrash.compacted_at(call)), [None, None, None]);
        assert!(!thrash.holds(12));
        assert_eq!(thrash.compacted_at(12), Some(2));
        assert!(thrash.holds(13) && thrash.holds(24) && !thrash.holds(25));
        assert_eq!(thrash.compacted_at(25), None);
        assert!(!thrash.holds(26));
    }
}
