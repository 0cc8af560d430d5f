//! What is written together: events, and the records that must be there if and only if the events are.

use epitome_core::{Event, Seq, ThreadId};

use super::{Content, JobId, NewCall, NewJob, NewOutcome};
use crate::log::Head;

/// Events and records of one thread, written all or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The thread.
    pub thread: ThreadId,
    /// Where the caller thinks it ends.
    pub after: Seq,
    /// What happened. If nothing did, the end of the thread is checked all the same.
    pub events: Vec<Event>,
    /// What is recorded beside it. Contents are stored first, the rest in this order, all after the events.
    pub records: Vec<Record>,
}

/// Something kept beside the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A text that calls name by its hash. To store it again changes nothing.
    Content(Content),
    /// Nothing is written unless so many calls were made in the thread's view. Calls do not move its end, so whoever makes
    /// one out of what was decided for the last says by this that it was the last.
    CallsSoFar(u64),
    /// A request was made. It takes the next number of the thread's view.
    Call(NewCall),
    /// How a call ended.
    Outcome(NewOutcome),
    /// Work to be done for the thread.
    Job(NewJob),
    /// The summary of a job became a compaction of the thread.
    Adopted {
        /// The job; it must be ready.
        job: JobId,
        /// The compaction.
        compaction: Seq,
    },
    /// Nobody needs the job any more. One that has ended stays as it is: whoever cancels cannot know how far it got.
    CancelJob {
        /// The job.
        job: JobId,
        /// Why not.
        reason: String,
    },
}

/// What a commit led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where the thread ends now.
    pub head: Head,
    /// The numbers its calls were given, in order.
    pub calls: Vec<u64>,
}
