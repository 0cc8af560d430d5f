//! A commit whose outcome is not known yet: the one place where a caller need not wait for the database.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{error::StoreError, location::StoreLocation, records::CommitReceipt};

/// Outcome of a commit.
pub type CommitOutcome = Result<CommitReceipt, StoreError>;

/// A commit that was handed to the database. Dropping it changes nothing: the commit is made all the same.
#[derive(Debug)]
pub struct PendingCommit {
    slot: Arc<CommitSlot>,
    location: StoreLocation,
}

/// The other end of a [`PendingCommit`], with which a store reports the outcome. Dropped without a report, it says that
/// there will never be one.
#[derive(Debug)]
pub struct CommitReporter(Arc<CommitSlot>);

#[derive(Debug)]
struct CommitSlot {
    state: Mutex<CommitSlotState>,
    changed: Condvar,
}

enum CommitSlotState {
    /// The outcome is not known, and nothing waits for it but perhaps a thread.
    Open,
    /// The outcome is not known. This is to be called with it.
    Awaited(Box<dyn FnOnce(CommitOutcome) + Send>),
    /// The outcome, which nothing has taken yet.
    Known(CommitOutcome),
    /// The reporter is gone, so the outcome will never be known.
    Lost,
    /// The outcome was passed on.
    Taken,
}

impl PendingCommit {
    /// A commit that is not done, and the end that reports its outcome. The location is for the error if it never does.
    pub fn new(location: StoreLocation) -> (CommitReporter, Self) {
        let slot = Arc::new(CommitSlot { state: Mutex::new(CommitSlotState::Open), changed: Condvar::new() });
        (CommitReporter(Arc::clone(&slot)), Self { slot, location })
    }

    /// Waits for the outcome. Blocks the calling thread.
    pub fn wait(self) -> CommitOutcome {
        let mut state = self.slot.lock();
        loop {
            match std::mem::replace(&mut *state, CommitSlotState::Taken) {
                CommitSlotState::Known(outcome) => return outcome,
                CommitSlotState::Lost => return Err(StoreError::WriterGone { location: self.location }),
                open => *state = open,
            }
            state = self.slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has `next` called with the outcome: at once if it is known, otherwise by the thread that reports it, so it must not
    /// wait for the store. It is dropped without being called if the reporter is.
    pub fn then(self, next: impl FnOnce(CommitOutcome) + Send + 'static) {
        let mut state = self.slot.lock();
        match std::mem::replace(&mut *state, CommitSlotState::Taken) {
            CommitSlotState::Known(outcome) => {
                drop(state);
                next(outcome);
            }
            CommitSlotState::Open => *state = CommitSlotState::Awaited(Box::new(next)),
            CommitSlotState::Awaited(_) | CommitSlotState::Lost | CommitSlotState::Taken => {}
        }
    }
}

impl CommitReporter {
    /// Reports the outcome.
    pub fn report(self, outcome: CommitOutcome) {
        self.0.settle(CommitSlotState::Known(outcome));
    }
}

impl Drop for CommitReporter {
    fn drop(&mut self) {
        self.0.settle(CommitSlotState::Lost);
    }
}

impl CommitSlot {
    fn lock(&self) -> MutexGuard<'_, CommitSlotState> {
        // Every change under this lock is complete, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first outcome there is; a later one changes nothing.
    fn settle(&self, outcome: CommitSlotState) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, CommitSlotState::Taken) {
            CommitSlotState::Open => *state = outcome,
            CommitSlotState::Awaited(next) => {
                drop(state);
                if let CommitSlotState::Known(outcome) = outcome {
                    next(outcome);
                }
                return;
            }
            settled => *state = settled,
        }
        drop(state);
        self.changed.notify_one();
    }
}

impl fmt::Debug for CommitSlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Awaited(_) => "Awaited",
            Self::Known(_) => "Known",
            Self::Lost => "Lost",
            Self::Taken => "Taken",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::thread_head::ThreadHead;

    fn pending() -> (CommitReporter, PendingCommit) {
        PendingCommit::new(StoreLocation::file("log.db".as_ref()))
    }

    fn receipt() -> CommitReceipt {
        CommitReceipt { head: ThreadHead::START, calls: vec![3] }
    }

    #[test]
    fn an_outcome_is_passed_on_whichever_end_comes_first() {
        let (reporter, pending_commit) = pending();
        reporter.report(Ok(receipt()));
        assert_eq!(pending_commit.wait().expect("reported"), receipt());

        let (reporter, pending_commit) = pending();
        let waiting = std::thread::spawn(move || pending_commit.wait());
        reporter.report(Ok(receipt()));
        assert_eq!(waiting.join().expect("no panic").expect("reported"), receipt());

        for reported_first in [true, false] {
            let (send, told) = mpsc::channel();
            let (reporter, pending_commit) = pending();
            let next = move |outcome| send.send(outcome).expect("somebody listens");
            if reported_first {
                reporter.report(Ok(receipt()));
                pending_commit.then(next);
            } else {
                pending_commit.then(next);
                reporter.report(Ok(receipt()));
            }
            assert_eq!(told.recv().expect("called").expect("reported"), receipt());
        }
    }

    #[test]
    fn a_writer_that_dies_leaves_an_error_to_those_who_wait_and_calls_nobody() {
        let (reporter, pending_commit) = pending();
        let waiting = std::thread::spawn(move || pending_commit.wait());
        drop(reporter);
        let outcome = waiting.join().expect("no panic");
        assert!(matches!(outcome, Err(StoreError::WriterGone { .. })), "{outcome:?}");

        for lost_first in [true, false] {
            let (send, told) = mpsc::channel();
            let (reporter, pending_commit) = pending();
            let next = move |_| send.send(()).expect("somebody listens");
            if lost_first {
                drop(reporter);
                pending_commit.then(next);
            } else {
                pending_commit.then(next);
                drop(reporter);
            }
            assert!(told.recv().is_err(), "it was called");
        }
    }
}
