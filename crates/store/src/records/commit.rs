//! Data that is written together: events, and the records that must be there if and only if the events are.

use epitome_core::{AnnotatedEvent, Event, Seq, ThreadId};

use super::{CompactionSummary, HashedText, JobId, NewCall, NewCallOutcome, NewExchange, NewJob, NewSession};
use crate::log::{NewThread, ThreadStart};
use crate::thread_head::ThreadHead;

/// Events and records of one thread, written all or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCommit {
    /// The thread.
    pub thread: ThreadId,
    /// End of the thread that the caller expects.
    pub after: Seq,
    /// New events. Even without any, the end of the thread is checked. Derived values that these events carry
    /// are not computed again.
    pub events: Vec<AnnotatedEvent>,
    /// Records beside the events. Contents are stored first, the rest in this order, all after the events.
    pub records: Vec<CommitRecord>,
    /// The thread, and its session, if they are made by this.
    pub opens: Option<ThreadOpening>,
}

impl ThreadCommit {
    /// To a thread that is there.
    pub fn new(thread: ThreadId, after: Seq, events: Vec<Event>, records: Vec<CommitRecord>) -> Self {
        Self { thread, after, events: noted(events), records, opens: None }
    }

    /// To a thread that is made by it.
    pub fn opening(opens: ThreadOpening, events: Vec<Event>, records: Vec<CommitRecord>) -> Self {
        let (thread, after) = (opens.thread.id, opens.after());
        Self { thread, after, events: noted(events), records, opens: Some(opens) }
    }
}

fn noted(events: Vec<Event>) -> Vec<AnnotatedEvent> {
    events.into_iter().map(AnnotatedEvent::from).collect()
}

/// Session and thread that a commit makes before it writes anything. An identical one that exists stays; then
/// the commit is refused if the thread has gone on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadOpening {
    /// The session of the thread, if it is new. Otherwise it has to be there. The commit is refused if there
    /// is one with its key and its [name](epitome_core::SessionId::name) in another place: another process
    /// made the same session at another moment.
    pub session: Option<NewSession>,
    /// The thread of the commit. A fork shares events of its own principal only.
    pub thread: NewThread,
    /// Option that makes it the head of its session.
    pub head: HeadPromotion,
}

impl ThreadOpening {
    /// End of the thread as it is made: the fork point, or the start.
    pub fn after(&self) -> Seq {
        match self.thread.start {
            ThreadStart::Fork { at, .. } => at,
            ThreadStart::Root | ThreadStart::Spawned { .. } => Seq::START,
        }
    }
}

/// Option that makes a new thread the head of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadPromotion {
    /// It does.
    Yes,
    /// It does not, unless there is no other thread: a session never stands nowhere.
    No,
}

/// Something kept beside the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitRecord {
    /// A text that calls name by its hash. Storing it again changes nothing.
    Content(HashedText),
    /// The same, for a text that the script of a call names: it goes when the thread is erased, unless others name it.
    Piece(HashedText),
    /// Refuses the commit unless exactly so many calls were made in the thread's view. Calls do not move its
    /// end, so this is how a call that is based on the decisions for the last one ensures that it still was
    /// the last.
    CallsSoFar(u64),
    /// A request was made. It takes the next number of the thread's view.
    Call(NewCall),
    /// Outcome of a call.
    Outcome(NewCallOutcome),
    /// Work to be done for the thread.
    Job(NewJob),
    /// The summary of a job became a compaction of the thread.
    Adopted {
        /// The job; it must be ready.
        job: JobId,
        /// The compaction.
        compaction: Seq,
    },
    /// A compaction of this commit, or an earlier one of the thread, has a summary that no job wrote.
    Summary(CompactionSummary),
    /// Cancels a job that is no longer needed. One that has ended stays as it is: its progress is unknown to
    /// whoever cancels it.
    CancelJob {
        /// The job.
        job: JobId,
        /// Reason for the cancellation.
        reason: String,
    },
    /// A request ended.
    Exchange(NewExchange),
    /// The session goes on with the thread of the commit.
    Head,
}

/// Outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitReceipt {
    /// Present end of the thread.
    pub head: ThreadHead,
    /// The numbers its calls were given, in order.
    pub calls: Vec<u64>,
}
