//! Updates for an engine that do not wait until it is free: it takes them in before any other operation.
//!
//! All of them are in the store as well. An update that is lost, or comes too late, only costs a read from there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use epitome_core::{AnnotatedEvent, Seq, event::Usage};
use epitome_store::ThreadHead;

/// Number of updates kept for an engine that is not used.
const MAX_PENDING_UPDATES: usize = 8;

/// Updates that wait for the engine.
#[derive(Debug, Default)]
pub(crate) struct PendingUpdates {
    inner: Mutex<UpdateQueue>,
}

#[derive(Debug, Default)]
struct UpdateQueue {
    counted: Vec<(u64, Usage)>,
    written: Vec<AppendedEvents>,
}

/// Events that were appended to the engine's thread.
#[derive(Debug)]
pub(crate) struct AppendedEvents {
    /// End of the thread before them.
    pub(crate) after: Seq,
    /// The events.
    pub(crate) events: Vec<AnnotatedEvent>,
    /// End of the thread after them.
    pub(crate) head: ThreadHead,
}

impl PendingUpdates {
    /// Notes the provider's count for an answered call.
    pub(crate) fn counted(&self, call: u64, usage: &Usage) {
        let mut inner = self.inner();
        if inner.counted.len() >= MAX_PENDING_UPDATES {
            inner.counted.remove(0);
        }
        inner.counted.push((call, *usage));
    }

    /// Notes that events were appended.
    pub(crate) fn appended(&self, appended: AppendedEvents) {
        let mut inner = self.inner();
        if inner.written.len() >= MAX_PENDING_UPDATES {
            inner.written.clear();
        }
        inner.written.push(appended);
    }

    /// Counts since the last look.
    pub(super) fn take_counted(&self) -> Vec<(u64, Usage)> {
        std::mem::take(&mut self.inner().counted)
    }

    /// Appended events since the last look, the oldest first.
    pub(super) fn take_appended(&self) -> Vec<AppendedEvents> {
        std::mem::take(&mut self.inner().written)
    }

    fn inner(&self) -> MutexGuard<'_, UpdateQueue> {
        // No operation under the lock can leave it half done, so a poisoned one is still valid.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
