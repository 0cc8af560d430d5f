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

use epitome_core::{Digest, SessionId, ThreadId, event::Time};
use epitome_store::{
    Sqlite, StoreError,
    records::{Commit, Record},
};
use epitome_wire::{caller::Caller, seen::Seen};

/// A request that is not written yet, or was written by another thread.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) thread: ThreadId,
    /// Time at which it came.
    at: Time,
    marks: Vec<Mark>,
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug)]
enum State {
    /// Not written.
    Waiting(Box<Commit>),
    /// Being written, most likely with its answer.
    Leaving,
    /// Written, or impossible to write.
    Gone,
}

/// A request that is being written. Other threads that need it wait until this is dropped.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) commit: Commit,
    of: Arc<Unwritten>,
    becomes: State,
}

impl Leaving {
    /// Puts the request back: it could not be written.
    pub(super) fn stays(mut self) {
        self.becomes = State::Waiting(Box::new(self.commit.clone()));
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        *self.of.state() = std::mem::replace(&mut self.becomes, State::Gone);
        self.of.left.notify_all();
    }
}

impl Unwritten {
    pub(super) fn new(commit: Commit, at: Time, marks: Vec<Mark>) -> Self {
        let thread = commit.thread;
        Self { thread, at, marks, state: Mutex::new(State::Waiting(Box::new(commit))), left: Condvar::new() }
    }

    /// Writes the request, unless that was done. If another writer has continued its thread it is left to its answer,
    /// which finds another place for it; then the result is `false`.
    pub(super) fn write(&self, store: &Sqlite) -> Result<bool, StoreError> {
        let mut state = self.settled();
        if let State::Waiting(commit) = &*state {
            match store.commit(Commit::clone(commit)) {
                Ok(_) => *state = State::Gone,
                Err(error) if error.is_conflict() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Drops the composed call from the commit, since it never left. `false` if the request is written already.
    pub(super) fn never_left(&self) -> bool {
        let mut state = self.settled();
        let State::Waiting(commit) = &mut *state else { return false };
        drop(calls_of(commit));
        true
    }

    /// Takes the request for writing, if it is not written; waits while another thread writes it.
    pub(super) fn leave(self: &Arc<Self>) -> Option<Leaving> {
        self.taken(self.settled())
    }

    /// The same without waiting: an error if another thread is writing it.
    pub(super) fn try_leave(self: &Arc<Self>) -> Result<Option<Leaving>, Busy> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Busy),
        };
        if let State::Leaving = *state { Err(Busy) } else { Ok(self.taken(state)) }
    }

    fn taken(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Option<Leaving> {
        match std::mem::replace(&mut *state, State::Gone) {
            State::Waiting(commit) => {
                *state = State::Leaving;
                Some(Leaving { commit: *commit, of: Arc::clone(self), becomes: State::Gone })
            }
            State::Leaving | State::Gone => None,
        }
    }

    /// State once no thread is writing it.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while let State::Leaving = *state {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No operation under the lock can leave it half done, so a poisoned one is still valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the records of a composed call out of a commit.
pub(super) fn calls_of(commit: &mut Commit) -> Vec<Record> {
    let is_of_call = |record: &mut Record| match record {
        Record::Content(_) | Record::Piece(_) | Record::CallsSoFar(_) | Record::Call(_) => true,
        Record::Outcome(_)
        | Record::Job(_)
        | Record::Adopted { .. }
        | Record::CancelJob { .. }
        | Record::Exchange(_)
        | Record::Head => false,
    };
    commit.records.extract_if(.., is_of_call).collect()
}

/// Another thread is writing the request.
#[derive(Debug)]
pub(super) struct Busy;

/// Mark by which two requests may be related. Two unrelated requests may share one by accident, which only costs a
/// commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark(u64);

/// The marks of a request that is not placed yet.
pub(super) fn marks(
    hasher: &impl BuildHasher,
    principal: &str,
    caller: &Caller,
    seen: &Seen<'_>,
) -> Vec<Mark> {
    let ids = [&caller.session, &caller.thread, &caller.parent].into_iter().flatten();
    let mut marks: Vec<Mark> = ids.map(|id| Mark(hasher.hash_one(("id", principal, id)))).collect();
    let begins: Option<Digest> = seen.units().first().map(|unit| unit.digest);
    marks.extend(begins.map(|digest| Mark(hasher.hash_one(("begins", principal, digest)))));
    marks.sort_unstable_by_key(|mark| mark.0);
    marks.dedup();
    marks
}

/// The mark of all requests of a session.
pub(super) fn mark_of(hasher: &impl BuildHasher, session: SessionId) -> Mark {
    Mark(hasher.hash_one(("session", session)))
}

/// All requests that are not written yet, by their marks.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    by_mark: HashMap<Mark, Vec<Arc<Unwritten>>>,
}

impl Shelf {
    pub(super) fn put(&mut self, unwritten: &Arc<Unwritten>) {
        for mark in &unwritten.marks {
            self.by_mark.entry(*mark).or_default().push(Arc::clone(unwritten));
        }
    }

    pub(super) fn take(&mut self, unwritten: &Arc<Unwritten>) {
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
    pub(super) fn with(&self, marks: &[Mark]) -> Vec<Arc<Unwritten>> {
        once(marks.iter().filter_map(|mark| self.by_mark.get(mark)).flatten().cloned())
    }

    /// Requests that came before a time.
    pub(super) fn before(&self, time: Time) -> Vec<Arc<Unwritten>> {
        once(self.by_mark.values().flatten().filter(|unwritten| unwritten.at < time).cloned())
    }
}

/// Each of them once.
fn once(unwritten: impl Iterator<Item = Arc<Unwritten>>) -> Vec<Arc<Unwritten>> {
    let mut found: Vec<Arc<Unwritten>> = unwritten.collect();
    found.sort_by_key(|unwritten| (unwritten.at, Arc::as_ptr(unwritten)));
    found.dedup_by(|one, other| Arc::ptr_eq(one, other));
    found
}
