//! Jobs that write summaries, and the summaries.

use epitome_core::{ThreadId, event::Timestamp};

use crate::{
    error::StoreError,
    records::{AttemptFilter, AttemptRow, JobAttempt, JobId, JobRow, NewSummary, RetryDecision, SummaryRow},
};

/// Jobs that write summaries. A worker's name must be its own: two that share one cannot tell their jobs apart.
pub trait JobStore: Send + Sync {
    /// Takes the oldest job, of `thread` or of all, that waits and may be begun at `now`, or that a worker has had for
    /// longer than it said it would. It is this worker's until `until`.
    fn claim_job(
        &self,
        worker: &str,
        now: Timestamp,
        until: Timestamp,
        thread: Option<ThreadId>,
    ) -> Result<Option<JobRow>, StoreError>;

    /// Says at `now` that the worker is alive and keeps its job until `until`. `false`: the job is no longer its own,
    /// because another took it, its time ran out, or it was cancelled.
    fn heartbeat(
        &self,
        job: JobId,
        worker: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Ends a job with its summary, which is ready to be adopted then. `false`: another took it or it was
    /// cancelled, and nothing was written. A worker whose time ran out may still end a job that no other has
    /// taken.
    fn finish_job(
        &self,
        job: JobId,
        worker: &str,
        summary: NewSummary,
        attempt: JobAttempt,
    ) -> Result<bool, StoreError>;

    /// Ends an attempt that failed. `false`: another took the job or it was cancelled, and nothing was
    /// written.
    fn fail_job(
        &self,
        job: JobId,
        worker: &str,
        attempt: JobAttempt,
        next: RetryDecision,
    ) -> Result<bool, StoreError>;

    /// All jobs, or those of one thread, oldest first.
    fn jobs(&self, of: Option<ThreadId>) -> Result<Vec<JobRow>, StoreError>;

    /// One job.
    fn job(&self, id: JobId) -> Result<JobRow, StoreError>;

    /// The job of this very thread whose summary waits to be adopted; of several, the last one requested.
    fn ready_job(&self, thread: ThreadId) -> Result<Option<(JobRow, SummaryRow)>, StoreError>;

    /// The job of this very thread that waits for a worker or has one; of several the one asked for last.
    fn running_job(&self, thread: ThreadId) -> Result<Option<JobRow>, StoreError>;

    /// Attempts, the newest first, at most `newest`, by all summarisers or one.
    fn attempts(
        &self,
        of: AttemptFilter,
        summariser: Option<&str>,
        newest: usize,
    ) -> Result<Vec<AttemptRow>, StoreError>;

    /// The summaries made for this very thread, adopted or not, oldest first.
    fn summaries(&self, thread: ThreadId) -> Result<Vec<SummaryRow>, StoreError>;
}
