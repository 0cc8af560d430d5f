//! Summaries in the making: a job is queued, claimed by a worker for a time, and ends ready, failed or cancelled; what
//! is ready is adopted. Jobs belong to the thread that made them, not to its forks.

pub use epitome_core::id::JobId;
use epitome_core::{
    Digest, Seq, ThreadId,
    event::{Time, Trigger},
};

/// A summary to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Its id.
    pub id: JobId,
    /// The thread it is for.
    pub thread: ThreadId,
    /// What makes it the same as another: span, prompt version, summariser. A thread has no two jobs with one key.
    pub key: String,
    /// The event that asked for it.
    pub marker: Seq,
    /// The first event to be covered.
    pub first: Seq,
    /// The last event to be covered.
    pub through: Seq,
    /// The first event that stays as it is.
    pub first_kept: Option<Seq>,
    /// The compaction it builds on.
    pub base: Option<Seq>,
    /// The raw chain at `through`. It is checked.
    pub link: Digest,
    /// Why it was asked for.
    pub trigger: Trigger,
    /// What the summary should dwell on.
    pub focus: Option<String>,
    /// What else the caller needs to know again, as JSON.
    pub detail: String,
    /// When it was made.
    pub created: Time,
}

/// How far a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a worker.
    Queued,
    /// A worker has it.
    Running {
        /// Who.
        worker: String,
        /// When others may take it, unless the worker says before then that it is alive.
        until: Time,
    },
    /// Its summary is there.
    Ready,
    /// Its summary is in use.
    Adopted {
        /// As this compaction.
        compaction: Seq,
    },
    /// It was given up.
    Failed,
    /// Nobody needed it any more.
    Cancelled,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// What is to be done.
    pub job: NewJob,
    /// How far it is.
    pub state: JobState,
    /// How often it was claimed. A worker that died has an attempt here, and no [`AttemptRow`].
    pub attempts: u64,
    /// Nobody gets it earlier than this.
    pub not_before: Option<Time>,
    /// What went wrong last, or why it was cancelled.
    pub error: Option<String>,
    /// The number of its summary.
    pub summary: Option<u64>,
}

/// What a worker did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Who wrote the summary, or should have.
    pub summariser: String,
    /// When it began.
    pub started: Time,
    /// When it ended.
    pub ended: Time,
    /// What went wrong.
    pub error: Option<String>,
    /// Usage, chunks, the gate's report: JSON.
    pub detail: Option<String>,
}

/// Whose attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptsOf {
    /// All jobs'.
    All,
    /// One job's.
    Job(JobId),
    /// Those of the jobs of one thread.
    Thread(ThreadId),
}

/// A worker's attempt at a job, for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// Its number; a later one has a greater.
    pub number: u64,
    /// The job.
    pub job: JobId,
    /// The worker.
    pub worker: String,
    /// What it did.
    pub attempt: Attempt,
}

/// What becomes of a job after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is tried again, not before this.
    RetryAt(Time),
    /// It has failed.
    GiveUp,
}

/// A summary that passed the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSummary {
    /// Who wrote it.
    pub author: String,
    /// By which prompt.
    pub prompt_version: String,
    /// Its text.
    pub text: String,
    /// Its items, as JSON.
    pub brief: String,
    /// What the gate found, as JSON.
    pub report: String,
    /// When it was written.
    pub created: Time,
}

/// A summary, and the events it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRow {
    /// Its number; a later one has a greater.
    pub number: u64,
    /// The thread whose events they are, its parents' included.
    pub thread: ThreadId,
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub through: Seq,
    /// The job it comes from.
    pub job: JobId,
    /// The summary.
    pub summary: NewSummary,
}
