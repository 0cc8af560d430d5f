//! Data derived from the events of a thread's view: token counts, turns, the search index. It can be made again from
//! the log at any time.

use epitome_core::{EventId, Seq, ThreadId, Tokens, lineage, seq_set::SeqSet, turn::Turn};

use crate::{
    error::StoreError,
    records::{SearchHit, SearchQuery, TurnRow},
};

/// Data derived from events.
pub trait DerivedData: Send + Sync {
    /// The tokenizer whose counts are shown: the counter's, or the first one that ever counted here.
    fn tokenizer(&self) -> Option<&str>;

    /// The token counts of the thread's view from `from` on, by the store's tokenizer, oldest first.
    fn event_counts(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(EventId, Tokens)>, StoreError>;

    /// The same, for each text of an event apart, in the order [`epitome_core::Fact::visit_text`] shows them.
    fn text_counts(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(EventId, Vec<Tokens>)>, StoreError>;

    /// The counts of each text of these events of a thread's view, as [`text_counts`](Self::text_counts) gives them.
    fn text_counts_of(
        &self,
        thread: ThreadId,
        events: &SeqSet,
    ) -> Result<Vec<(EventId, Vec<Tokens>)>, StoreError>;

    /// Counts every event that the store's counter has not counted yet; gives how many. Without a counter, none.
    fn count_missing(&self) -> Result<u64, StoreError>;

    /// The turns of the thread's view, oldest first: its whole history, compactions included.
    fn turns(&self, thread: ThreadId) -> Result<Vec<TurnRow>, StoreError>;

    /// The chain of parents of a turn, oldest first, the turn itself last.
    fn history(&self, turn: EventId) -> Result<Vec<TurnRow>, StoreError>;

    /// The turns a compaction covers: from the first one that the compaction before it kept, through the last it
    /// summarised, and that earlier compaction itself; one that was reverted before does not count.
    fn covered_turns(&self, compaction: EventId) -> Result<Vec<EventId>, StoreError> {
        let turns: Vec<Turn> = self.history(compaction)?.into_iter().map(|row| row.turn).collect();
        lineage::covered_by(&turns, compaction).ok_or(StoreError::UnknownTurn(compaction))
    }

    /// Searches events and ledger, best hits first.
    fn search(&self, search: &SearchQuery) -> Result<Vec<SearchHit>, StoreError>;
}
