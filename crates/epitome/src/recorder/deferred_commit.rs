//! Requests that are written together with their answers: one commit costs little more than half of two.
//!
//! Until then they are only in memory, and a kill loses them; by then no client has received a whole answer. Any
//! request that might be related to one has it written first: one of the same session, with the same id, or with a
//! history that begins alike.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError},
};

use epitome_core::{Digest, SessionId, ThreadId, event::Timestamp};
use epitome_store::{
    Store, StoreError,
    records::{CommitRecord, ThreadCommit},
};
use epitome_wire::{caller::Caller, incoming::IncomingRequest};

/// A request that is not written yet, or was written by another thread.
#[derive(Debug)]
pub(super) struct DeferredCommit {
    pub(super) thread: ThreadId,
    /// Time at which it came.
    at: Timestamp,
    marks: Vec<RelationMark>,
    state: Mutex<DeferredCommitState>,
    left: Condvar,
}

#[derive(Debug)]
enum DeferredCommitState {
    /// Not written.
    Waiting(Box<ThreadCommit>),
    /// Being written, most likely with its answer.
    Leaving,
    /// Written, or impossible to write.
    Gone,
}

/// A request that is being written. Other threads that need it wait until this is dropped.
#[derive(Debug)]
pub(super) struct DeferredCommitGuard {
    pub(super) commit: ThreadCommit,
    of: Arc<DeferredCommit>,
    becomes: DeferredCommitState,
}

impl DeferredCommitGuard {
    /// Puts the request back: it could not be written.
    pub(super) fn put_back(mut self) {
        self.becomes = DeferredCommitState::Waiting(Box::new(self.commit.clone()));
    }
}

impl Drop for DeferredCommitGuard {
    fn drop(&mut self) {
        *self.of.state() = std::mem::replace(&mut self.becomes, DeferredCommitState::Gone);
        self.of.left.notify_all();
    }
}

impl DeferredCommit {
    pub(super) fn new(commit: ThreadCommit, at: Timestamp, marks: Vec<RelationMark>) -> Self {
        let thread = commit.thread;
        Self {
            thread,
            at,
            marks,
            state: Mutex::new(DeferredCommitState::Waiting(Box::new(commit))),
            left: Condvar::new(),
        }
    }

    /// Writes the request, unless that was done. If another writer has continued its thread it is left to its answer,
    /// which finds another place for it; then the result is `false`.
    pub(super) fn write(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let mut state = self.settled();
        if let DeferredCommitState::Waiting(commit) = &*state {
            match store.commit(ThreadCommit::clone(commit)) {
                Ok(_) => *state = DeferredCommitState::Gone,
                Err(error) if error.is_conflict() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Drops the composed call from the commit, since it never left. `false` if the request is written already.
    pub(super) fn drop_call(&self) -> bool {
        let mut state = self.settled();
        let DeferredCommitState::Waiting(commit) = &mut *state else { return false };
        drop(calls_of(commit));
        true
    }

    /// Takes the request for writing, if it is not written; waits while another thread writes it.
    pub(super) fn claim(self: &Arc<Self>) -> Option<DeferredCommitGuard> {
        self.taken(self.settled())
    }

    /// The same without waiting: an error if another thread is writing it.
    pub(super) fn try_claim(self: &Arc<Self>) -> Result<Option<DeferredCommitGuard>, CommitBusyError> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(CommitBusyError),
        };
        if let DeferredCommitState::Leaving = *state { Err(CommitBusyError) } else { Ok(self.taken(state)) }
    }

    fn taken(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, DeferredCommitState>,
    ) -> Option<DeferredCommitGuard> {
        match std::mem::replace(&mut *state, DeferredCommitState::Gone) {
            DeferredCommitState::Waiting(commit) => {
                *state = DeferredCommitState::Leaving;
                Some(DeferredCommitGuard {
                    commit: *commit,
                    of: Arc::clone(self),
                    becomes: DeferredCommitState::Gone,
                })
            }
            DeferredCommitState::Leaving | DeferredCommitState::Gone => None,
        }
    }

    /// State once no thread is writing it.
    fn settled(&self) -> MutexGuard<'_, DeferredCommitState> {
        let mut state = self.state();
        while let DeferredCommitState::Leaving = *state {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, DeferredCommitState> {
        // No operation under the lock can leave it half done, so a poisoned one is still valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the records of a composed call out of a commit.
pub(super) fn calls_of(commit: &mut ThreadCommit) -> Vec<CommitRecord> {
    let is_of_call = |record: &mut CommitRecord| match record {
        CommitRecord::Content(_)
        | CommitRecord::Piece(_)
        | CommitRecord::CallsSoFar(_)
        | CommitRecord::Call(_)
        | CommitRecord::Summary(_) => true,
        CommitRecord::Outcome(_)
        | CommitRecord::Job(_)
        | CommitRecord::Adopted { .. }
        | CommitRecord::CancelJob { .. }
        | CommitRecord::Exchange(_)
        | CommitRecord::Head => false,
    };
    commit.records.extract_if(.., is_of_call).collect()
}

/// Another thread is writing the request.
#[derive(Debug)]
pub(super) struct CommitBusyError;

/// Mark by which two requests may be related. Two unrelated requests may share one by accident, which only costs a
/// commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RelationMark(u64);

/// The marks of a request that is not placed yet.
pub(super) fn marks(
    hasher: &impl BuildHasher,
    principal: &str,
    caller: &Caller,
    seen: &IncomingRequest<'_>,
) -> Vec<RelationMark> {
    let ids = [&caller.session, &caller.thread, &caller.parent].into_iter().flatten();
    let mut marks: Vec<RelationMark> =
        ids.map(|id| RelationMark(hasher.hash_one(("id", principal, id)))).collect();
    let begins: Option<Digest> = seen.units().first().map(|unit| unit.digest);
    marks.extend(begins.map(|digest| RelationMark(hasher.hash_one(("begins", principal, digest)))));
    marks.sort_unstable_by_key(|mark| mark.0);
    marks.dedup();
    marks
}

/// The mark of all requests of a session.
pub(super) fn mark_of(hasher: &impl BuildHasher, session: SessionId) -> RelationMark {
    RelationMark(hasher.hash_one(("session", session)))
}

/// All requests that are not written yet, by their marks.
#[derive(Debug, Default)]
pub(super) struct DeferredCommits {
    by_mark: HashMap<RelationMark, Vec<Arc<DeferredCommit>>>,
}

impl DeferredCommits {
    pub(super) fn put(&mut self, unwritten: &Arc<DeferredCommit>) {
        for mark in &unwritten.marks {
            self.by_mark.entry(*mark).or_default().push(Arc::clone(unwritten));
        }
    }

    pub(super) fn take(&mut self, unwritten: &Arc<DeferredCommit>) {
        for mark in &unwritten.marks {
            if let Some(alike) = self.by_mark.get_mut(mark) {
                alike.retain(|other| !Arc::ptr_eq(other, unwritten));
                if alike.is_empty() {
                    self.by_mark.remove(mark);
                }
            }
        }
    }

    /// Requests with any of these marks.
    pub(super) fn with_marks(&self, marks: &[RelationMark]) -> Vec<Arc<DeferredCommit>> {
        once(marks.iter().filter_map(|mark| self.by_mark.get(mark)).flatten().cloned())
    }

    /// Requests that came before a time.
    pub(super) fn arrived_before(&self, time: Timestamp) -> Vec<Arc<DeferredCommit>> {
        once(self.by_mark.values().flatten().filter(|unwritten| unwritten.at < time).cloned())
    }
}

/// Each of them once.
fn once(unwritten: impl Iterator<Item = Arc<DeferredCommit>>) -> Vec<Arc<DeferredCommit>> {
    let mut found: Vec<Arc<DeferredCommit>> = unwritten.collect();
    found.sort_by_key(|unwritten| (unwritten.at, Arc::as_ptr(unwritten)));
    found.dedup_by(|one, other| Arc::ptr_eq(one, other));
    found
}
