//! Requests that are written down together with their answers: one commit costs little more than half of two.
//!
//! Until then they are only in mind, and a kill takes them along; no client was told anything in full by then. Whatever
//! could have to know of one has it written first: the same session, an id it came with, a history that begins alike.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use epitome_core::{Digest, SessionId, ThreadId};
use epitome_store::{Sqlite, StoreError, records::Commit};
use epitome_wire::{caller::Caller, seen::Seen};

/// A request that is not written down yet, or was by somebody else.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) thread: ThreadId,
    marks: Vec<Mark>,
    commit: Mutex<Option<Commit>>,
}

impl Unwritten {
    pub(super) fn new(commit: Commit, marks: Vec<Mark>) -> Self {
        Self { thread: commit.thread, marks, commit: Mutex::new(Some(commit)) }
    }

    /// Writes it down, unless that was done. If somebody else has gone on with its thread it is left to its answer, which
    /// finds another place for it.
    pub(super) fn write(&self, store: &Sqlite) -> Result<(), StoreError> {
        let mut waiting = self.waiting();
        if let Some(commit) = &*waiting {
            match store.commit(commit.clone()) {
                Ok(_) => *waiting = None,
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What is to be written, if it was not. Whoever wants it written meanwhile waits for the end of this.
    pub(super) fn waiting(&self) -> MutexGuard<'_, Option<Commit>> {
        // A commit is there or is not.
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something by which a request and another may belong together. Two that have nothing in common may have one by accident,
/// which only costs a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark(u64);

/// The marks that a request has before anybody knows where it belongs.
pub(super) fn marks(hasher: &impl BuildHasher, principal: &str, caller: &Caller, seen: &Seen<'_>) -> Vec<Mark> {
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

/// All that are not written yet, by their marks.
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

    /// Those with any of these marks.
    pub(super) fn with(&self, marks: &[Mark]) -> Vec<Arc<Unwritten>> {
        let mut found: Vec<Arc<Unwritten>> = Vec::new();
        for unwritten in marks.iter().filter_map(|mark| self.by_mark.get(mark)).flatten() {
            if !found.iter().any(|other| Arc::ptr_eq(other, unwritten)) {
                found.push(Arc::clone(unwritten));
            }
        }
        found
    }
}
