//! Commits of events with the records beside them, and reading those records: calls of models, the texts they were made
//! with, and exchanges.

use epitome_core::{Digest, Seq, SessionId, ThreadId, id::ModelName};

use crate::{
    error::StoreError,
    pending_commit::PendingCommit,
    records::{CallRow, CommitReceipt, CountedCall, ExchangeRow, ThreadCommit},
    thread_head::ThreadHead,
};

/// Commits, calls of models and exchanges.
pub trait CallStore: Send + Sync {
    /// Writes events and records together, and makes their thread and session if requested, if the thread
    /// ends where the caller expects; otherwise [`StoreError::Conflict`], as for an append. A refused commit
    /// writes nothing at all.
    ///
    /// Does not wait for the database, so it may be called where nothing may block. Commits that one caller submits one
    /// after another are written in this order.
    fn submit(&self, commit: ThreadCommit) -> PendingCommit;

    /// The same, waiting for the outcome, with the numbers that its calls were given.
    fn commit_numbered(&self, commit: ThreadCommit) -> Result<CommitReceipt, StoreError> {
        self.submit(commit).wait()
    }

    /// The same; gives the thread's new end.
    fn commit(&self, commit: ThreadCommit) -> Result<ThreadHead, StoreError> {
        self.commit_numbered(commit).map(|committed| committed.head)
    }

    /// The text with this hash, if it was ever stored.
    fn content(&self, hash: Digest) -> Result<Option<String>, StoreError>;

    /// The calls of the thread's view from the number `from` on, oldest first, at most `limit`.
    fn calls(&self, thread: ThreadId, from: u64, limit: usize) -> Result<Vec<CallRow>, StoreError>;

    /// One call of the thread's view.
    fn call(&self, thread: ThreadId, number: u64) -> Result<CallRow, StoreError> {
        let call = self.calls(thread, number, 1)?.pop();
        call.filter(|call| call.number == number).ok_or(StoreError::UnknownCall { thread, number })
    }

    /// The newest call of the thread's view.
    fn last_call(&self, thread: ThreadId) -> Result<Option<CallRow>, StoreError>;

    /// The newest call of the thread's view that was not relayed as its client sent it.
    fn last_composed_call(&self, thread: ThreadId) -> Result<Option<CallRow>, StoreError>;

    /// The last counted call of each of the newest threads that asked a model, newest first, at most `limit`: what was estimated
    /// and what its provider counted. Looks at a bounded number of calls, however many there are.
    fn counted_calls(&self, model: &ModelName, limit: usize) -> Result<Vec<CountedCall>, StoreError>;

    /// Decisions for the calls of the thread's view, oldest first: the number and the head of every call that
    /// has any, and the decisions.
    fn edit_records(&self, thread: ThreadId) -> Result<Vec<(u64, Seq, String)>, StoreError>;

    /// Records of rewriting the clients' requests, oldest first: the number of every call that has one, the
    /// rendering it names and the record.
    fn rewrite_records(&self, thread: ThreadId) -> Result<Vec<(u64, Digest, String)>, StoreError> {
        let mut scripts = self.rewrite_records_before(thread, u64::MAX, usize::MAX >> 1)?;
        scripts.reverse();
        Ok(scripts)
    }

    /// The same, newest first, at most `limit` of those before the call `before`.
    fn rewrite_records_before(
        &self,
        thread: ThreadId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Digest, String)>, StoreError>;

    /// The exchanges of all threads of a session from the number `from` on, oldest first, at most `limit`.
    fn exchanges(&self, session: SessionId, from: u64, limit: usize) -> Result<Vec<ExchangeRow>, StoreError>;
}
