//! Summaries in the making: a job is queued, claimed by a worker for a time, and ends ready, failed or
//! cancelled; a ready one is adopted. Jobs belong to the thread that made them, not to its forks.

pub use epitome_core::id::JobId;
use epitome_core::{
    Digest, Seq, ThreadId,
    event::{CompactionTrigger, Timestamp},
};

/// A summary to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Its id.
    pub id: JobId,
    /// The thread it is for.
    pub thread: ThreadId,
    /// Identity of the job: span, prompt version, summariser. A thread has no two jobs with one key.
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
    /// Reason for which it was requested.
    pub trigger: CompactionTrigger,
    /// Topic that the summary should focus on.
    pub focus: Option<String>,
    /// Other data for the caller to read back, as JSON.
    pub detail: String,
    /// Time of its creation.
    pub created: Timestamp,
}

/// Progress of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It waits for a worker.
    Queued,
    /// A worker has it.
    Running {
        /// Name of the worker.
        worker: String,
        /// Time from which others may take it, unless the worker reports before then that it is alive.
        until: Timestamp,
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
    /// No longer needed.
    Cancelled,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job to be done.
    pub job: NewJob,
    /// Progress of the job.
    pub state: JobState,
    /// Number of claims. A worker that died has an attempt here, and no [`AttemptRow`].
    pub attempts: u64,
    /// Earliest time at which it may be claimed.
    pub not_before: Option<Timestamp>,
    /// Last error, or the reason for its cancellation.
    pub error: Option<String>,
    /// The number of its summary.
    pub summary: Option<u64>,
}

/// Record of a worker's attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAttempt {
    /// Summariser that was to write the summary.
    pub summariser: String,
    /// Time of its beginning.
    pub started: Timestamp,
    /// Time of its end.
    pub ended: Timestamp,
    /// Error, if any.
    pub error: Option<String>,
    /// Usage, chunks, the gate's report: JSON.
    pub detail: Option<String>,
}

/// Selection of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFilter {
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
    /// Record of the attempt.
    pub attempt: JobAttempt,
}

/// Next step of a job after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// It is tried again, not before this.
    RetryAt(Timestamp),
    /// It has failed.
    GiveUp,
}

/// A summary: one by a model that passed the gate, or a built-in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSummary {
    /// Author of the summary.
    pub author: String,
    /// By which prompt; `none` if no model was asked.
    pub prompt_version: String,
    /// Its text.
    pub text: String,
    /// Its items, as JSON.
    pub brief: String,
    /// Findings of the gate, as JSON.
    pub report: String,
    /// Time at which it was written.
    pub created: Timestamp,
}

/// A summary that is written together with its compaction, without a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionSummary {
    /// The compaction.
    pub compaction: Seq,
    /// The first event that it covers.
    pub first: Seq,
    /// The last event that it covers.
    pub through: Seq,
    /// The summary.
    pub summary: NewSummary,
}

/// Origin of a summary in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummarySource {
    /// A job, which waits for its adoption or was adopted.
    Job(JobId),
    /// Written together with this compaction.
    Compaction(Seq),
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
    /// Its origin.
    pub source: SummarySource,
    /// The summary.
    pub summary: NewSummary,
}
