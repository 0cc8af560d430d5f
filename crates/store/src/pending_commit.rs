//! A commit whose outcome is not known yet: the one place where a caller need not wait for the database.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{error::StoreError, location::StoreLocation, records::CommitReceipt};

/// Outcome of a commit.
pub type CommitOutcome = Result<CommitReceipt, StoreError>;

/// A commit that was handed to the database: a future of its outcome, for threads that must not block; others
/// [wait](Self::wait). Dropping it changes nothing: the commit is made all the same.
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
    /// The outcome is not known, and no task waits for it; a thread may.
    Open,
    /// The outcome is not known, and this task waits for it.
    Awaited(Waker),
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
            if let Some(outcome) = state.take_outcome(&self.location) {
                return outcome;
            }
            state = self.slot.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for PendingCommit {
    type Output = CommitOutcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CommitOutcome> {
        let mut state = self.slot.lock();
        if let Some(outcome) = state.take_outcome(&self.location) {
            return Poll::Ready(outcome);
        }
        *state = CommitSlotState::Awaited(context.waker().clone());
        Poll::Pending
    }
}

impl CommitSlotState {
    /// Takes the outcome if there is one, or never will be one.
    fn take_outcome(&mut self, location: &StoreLocation) -> Option<CommitOutcome> {
        match std::mem::replace(self, Self::Taken) {
            Self::Known(outcome) => Some(outcome),
            // A task that asks once more has the outcome already.
            Self::Lost | Self::Taken => Some(Err(StoreError::WriterGone { location: location.clone() })),
            open @ (Self::Open | Self::Awaited(_)) => {
                *self = open;
                None
            }
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
        let waker = match std::mem::replace(&mut *state, CommitSlotState::Taken) {
            CommitSlotState::Open => {
                *state = outcome;
                None
            }
            CommitSlotState::Awaited(waker) => {
                *state = outcome;
                Some(waker)
            }
            settled => {
                *state = settled;
                None
            }
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
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
    use std::{
        pin::pin,
        sync::mpsc::{self, Sender},
        task::Wake,
        thread,
    };

    use super::*;
    use crate::thread_head::ThreadHead;

    fn pending() -> (CommitReporter, PendingCommit) {
        PendingCommit::new(StoreLocation::file("log.db".as_ref()))
    }

    fn receipt() -> CommitReceipt {
        CommitReceipt { head: ThreadHead::START, calls: vec![3] }
    }

    /// Tells when a task is woken.
    struct WakeReport(Sender<()>);

    impl Wake for WakeReport {
        fn wake(self: Arc<Self>) {
            self.0.send(()).expect("somebody listens");
        }
    }

    /// The outcome as a task has it, which begins to wait before or after `end` happens.
    fn awaited(is_ended_first: bool, pending_commit: PendingCommit, end: impl FnOnce()) -> CommitOutcome {
        let (tell, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(WakeReport(tell)));
        let mut context = Context::from_waker(&waker);
        let mut task = pin!(pending_commit);
        if is_ended_first {
            end();
        } else {
            assert!(task.as_mut().poll(&mut context).is_pending());
            assert!(woken.try_recv().is_err(), "nothing happened yet");
            end();
            woken.recv().expect("it is woken");
        }
        match task.poll(&mut context) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it was woken and has no outcome"),
        }
    }

    #[test]
    fn an_outcome_is_passed_on_whichever_end_comes_first() {
        let (reporter, pending_commit) = pending();
        reporter.report(Ok(receipt()));
        assert_eq!(pending_commit.wait().expect("reported"), receipt());

        let (reporter, pending_commit) = pending();
        let waiting = thread::spawn(move || pending_commit.wait());
        reporter.report(Ok(receipt()));
        assert_eq!(waiting.join().expect("no panic").expect("reported"), receipt());

        for is_reported_first in [true, false] {
            let (reporter, pending_commit) = pending();
            let outcome = awaited(is_reported_first, pending_commit, || reporter.report(Ok(receipt())));
            assert_eq!(outcome.expect("reported"), receipt());
        }
    }

    #[test]
    fn a_writer_that_dies_leaves_an_error_to_those_who_wait() {
        let (reporter, pending_commit) = pending();
        let waiting = thread::spawn(move || pending_commit.wait());
        drop(reporter);
        let outcome = waiting.join().expect("no panic");
        assert!(matches!(outcome, Err(StoreError::WriterGone { .. })), "{outcome:?}");

        for is_lost_first in [true, false] {
            let (reporter, pending_commit) = pending();
            let outcome = awaited(is_lost_first, pending_commit, || drop(reporter));
            assert!(matches!(outcome, Err(StoreError::WriterGone { .. })), "{outcome:?}");
        }
    }
}
