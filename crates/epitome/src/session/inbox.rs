//! What others tell a desk without waiting until it is free: it takes that in before it does anything else.
//!
//! All of it is in the store as well. A letter that is lost, or comes too late, costs a look there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use epitome_core::{Noted, Seq, event::Usage};
use epitome_store::Head;

/// How many letters are kept for a desk that nobody comes to.
const LETTERS: usize = 8;

/// What is told.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counted: Vec<(u64, Usage)>,
    written: Vec<Appended>,
}

/// Events that were appended to the desk's thread.
#[derive(Debug)]
pub(crate) struct Appended {
    /// Where the thread ended before.
    pub(crate) after: Seq,
    /// The events.
    pub(crate) events: Vec<Noted>,
    /// Where it ended then.
    pub(crate) head: Head,
}

impl Inbox {
    /// A call was answered, and the provider counted this.
    pub(crate) fn counted(&self, call: u64, usage: &Usage) {
        let mut inner = self.inner();
        if inner.counted.len() >= LETTERS {
            inner.counted.remove(0);
        }
        inner.counted.push((call, *usage));
    }

    /// Something was appended.
    pub(crate) fn appended(&self, appended: Appended) {
        let mut inner = self.inner();
        if inner.written.len() >= LETTERS {
            inner.written.clear();
        }
        inner.written.push(appended);
    }

    /// What was counted since anybody looked.
    pub(super) fn take_counted(&self) -> Vec<(u64, Usage)> {
        std::mem::take(&mut self.inner().counted)
    }

    /// What was appended since anybody looked, the oldest first.
    pub(super) fn take_appended(&self) -> Vec<Appended> {
        std::mem::take(&mut self.inner().written)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in there is ever half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
