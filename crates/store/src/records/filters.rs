//! Filters by which sessions and search hits are chosen.

use epitome_core::event::Timestamp;

/// Filter for sessions. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only those of this principal; the empty one owns what was recorded without a token.
    pub principal: Option<String>,
    /// Only those with this label.
    pub label: Option<String>,
}

/// Filter for search hits. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchFilter {
    /// Only events of these sessions. A filter by principal, label or kind leaves the ledger out: its
    /// entries have none.
    pub sessions: SessionFilter,
    /// Only at or after this time.
    pub since: Option<Timestamp>,
    /// Only events of this kind, as [`Fact::kind`](epitome_core::Fact::kind) names it.
    pub kind: Option<String>,
    /// Leave out so many of the best.
    pub skip: usize,
}
