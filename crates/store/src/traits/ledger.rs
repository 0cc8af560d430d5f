//! The ledger: events from outside the sessions, never compacted.

use epitome_core::EventId;

use crate::{
    error::StoreError,
    records::{CreateOutcome, LedgerEntry, LedgerFilter},
};

/// The ledger of events from outside the sessions.
pub trait LedgerStore: Send + Sync {
    /// Adds an entry and links it to turns. Adding the same entry again only adds the links.
    fn ledger_add(&self, entry: &LedgerEntry, turns: &[EventId]) -> Result<CreateOutcome, StoreError>;

    /// Ledger entries, oldest first.
    fn ledger(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError>;

    /// The turns an entry is linked to.
    fn ledger_turns(&self, channel: &str, id: &str) -> Result<Vec<EventId>, StoreError>;
}
