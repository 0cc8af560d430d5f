//! Lookups by which a request is recognised: the thread that its history is in.

use epitome_core::{Digest, EventId, Seq, SessionId, ThreadId, id::AnswerId};

use crate::{error::StoreError, records::ThreadRow};

/// Lookups by which a request's history is recognised.
pub trait HistoryLookup: Send + Sync {
    /// The events at which a history with this normalised link ends: the same history in any thread of any principal.
    fn histories_ending_with(&self, normal: Digest) -> Result<Vec<EventId>, StoreError>;

    /// The same in the sessions of one principal, newest first, a few at most.
    fn histories_of_principal(&self, principal: &str, normal: Digest) -> Result<Vec<EventId>, StoreError>;

    /// The threads that a client of this principal calls `key`, newest first, a few at most.
    fn threads_by_key(&self, principal: &str, key: &str) -> Result<Vec<ThreadRow>, StoreError>;

    /// The newest session that a client of this principal calls `key`.
    fn session_by_key(&self, principal: &str, key: &str) -> Result<Option<SessionId>, StoreError>;

    /// The session that a client of this principal calls `key` and that has the [name](SessionId::name) of `id`, wherever it
    /// is placed.
    fn session_named(
        &self,
        principal: &str,
        key: &str,
        id: SessionId,
    ) -> Result<Option<SessionId>, StoreError>;

    /// Returns true if a provider's answer was recorded in the thread's view before the event at `before`.
    fn has_answer_before(&self, thread: ThreadId, before: Seq) -> Result<bool, StoreError>;

    /// The last event of an answer that a provider gave to this principal, in the newest thread that owns it.
    fn answer_of(&self, principal: &str, answer: &AnswerId) -> Result<Option<EventId>, StoreError>;

    /// The newest event that is the item with this id of the Responses format, for this principal.
    fn item_of(&self, principal: &str, id: &str) -> Result<Option<EventId>, StoreError>;

    /// The last event of the thread's view, through `through`, at which the client's history begins anew: a compaction of its
    /// own.
    fn last_client_compaction(&self, thread: ThreadId, through: Seq) -> Result<Option<Seq>, StoreError>;

    /// Digests by which the events of the thread's view are recognised, from `from` on, at most `limit`: the
    /// place of each, its normalised digest, and the normalised link after it. Their content is not read.
    fn digests(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, Option<Digest>, Digest)>, StoreError>;
}
