//! Jobs: queued by a commit, claimed by one worker at a time for as long as it says it is alive, and ended once.
//!
//! A claim is one statement in the writer's transaction, so of any number of workers, in any number of
//! processes, one gets it. Later reports of a worker count only while the job is its own.

use epitome_core::{
    Seq, ThreadId,
    event::{CompactionTrigger, Timestamp},
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};
use serde::{
    Deserialize,
    de::value::{Error, StrDeserializer},
};

use super::{
    SqliteStore,
    codec::{self, AsBlob, signed, unsigned},
    commit::{check_json, check_within, misplaced_record},
    sqlite_error::SqliteError,
    summaries, thread_view,
    writer::WriteTx,
};
use crate::{
    error::StoreError,
    records::{
        AttemptFilter, AttemptRow, JobAttempt, JobId, JobRow, JobState, NewJob, NewSummary, RetryDecision,
        SummaryRow,
    },
    traits::JobStore,
};

impl JobStore for SqliteStore {
    fn claim_job(
        &self,
        worker: &str,
        now: Timestamp,
        until: Timestamp,
        thread: Option<ThreadId>,
    ) -> Result<Option<JobRow>, StoreError> {
        let worker = worker.to_owned();
        self.writer.write("claiming a job", move |tx| {
            let mut statement = tx.connection.prepare_cached(&format!(
                "UPDATE jobs SET state = 'running', worker = ?1, lease = ?3, attempts = attempts + 1, not_before = NULL
                 WHERE number = (
                    SELECT number FROM jobs
                    WHERE state IN ('queued', 'running') AND (?4 IS NULL OR thread = ?4)
                        AND ((state = 'queued' AND coalesce(not_before, ?2) <= ?2)
                            OR (state = 'running' AND lease <= ?2))
                    ORDER BY number LIMIT 1)
                 RETURNING {COLUMNS}"
            ))?;
            let mut rows =
                statement.query(params![worker, now.0, until.0, thread.map(|thread| thread.blob())])?;
            let claimed = rows.next()?.map(job_row).transpose()?;
            // An UPDATE that is not run to its end is not done.
            while rows.next()?.is_some() {}
            Ok(claimed)
        })
    }

    fn heartbeat(
        &self,
        job: JobId,
        worker: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let worker = worker.to_owned();
        self.writer.write("keeping a job", move |tx| {
            let kept = tx
                .connection
                .prepare_cached(
                    "UPDATE jobs SET lease = ?4 WHERE id = ?1 AND state = 'running' AND worker = ?2 AND lease > ?3",
                )?
                .execute(params![job.blob(), worker, now.0, until.0])?;
            Ok(kept > 0)
        })
    }

    fn finish_job(
        &self,
        job: JobId,
        worker: &str,
        summary: NewSummary,
        attempt: JobAttempt,
    ) -> Result<bool, StoreError> {
        check_json("brief of a summary", Some(&summary.brief))?;
        check_json("report on a summary", Some(&summary.report))?;
        check_json("detail of an attempt", attempt.detail.as_deref())?;
        let worker = worker.to_owned();
        self.writer.write("finishing a job", move |tx| {
            let ended = "UPDATE jobs SET state = 'ready', worker = NULL, lease = NULL, error = NULL
                 WHERE id = ?1 AND state = 'running' AND worker = ?2";
            if tx.connection.prepare_cached(ended)?.execute(params![job.blob(), worker])? == 0 {
                return Ok(false);
            }
            summaries::insert_of_job(tx, job, &summary)?;
            insert_attempt(tx, job, &worker, &attempt)?;
            Ok(true)
        })
    }

    fn fail_job(
        &self,
        job: JobId,
        worker: &str,
        attempt: JobAttempt,
        next: RetryDecision,
    ) -> Result<bool, StoreError> {
        check_json("detail of an attempt", attempt.detail.as_deref())?;
        let worker = worker.to_owned();
        self.writer.write("failing a job", move |tx| {
            let (state, not_before) = match next {
                RetryDecision::RetryAt(time) => ("queued", Some(time.0)),
                RetryDecision::GiveUp => ("failed", None),
            };
            let ended = "UPDATE jobs SET state = ?3, worker = NULL, lease = NULL, not_before = ?4, error = ?5
                 WHERE id = ?1 AND state = 'running' AND worker = ?2";
            let values = params![job.blob(), worker, state, not_before, attempt.error];
            if tx.connection.prepare_cached(ended)?.execute(values)? == 0 {
                return Ok(false);
            }
            insert_attempt(tx, job, &worker, &attempt)?;
            Ok(true)
        })
    }

    fn jobs(&self, of: Option<ThreadId>) -> Result<Vec<JobRow>, StoreError> {
        self.lend("reading jobs", |connection| match of {
            Some(thread) => select(connection, "WHERE thread = ?1 ORDER BY number", &[&thread.blob()]),
            None => select(connection, "ORDER BY number", &[]),
        })
    }

    fn job(&self, id: JobId) -> Result<JobRow, StoreError> {
        self.lend("reading a job", |connection| job(connection, id))
    }

    fn ready_job(&self, thread: ThreadId) -> Result<Option<(JobRow, SummaryRow)>, StoreError> {
        self.lend("reading jobs", |connection| {
            let ready = newest(connection, thread, "state = 'ready'")?;
            ready
                .map(|job| summaries::summary_of_job(connection, job.job.id).map(|summary| (job, summary)))
                .transpose()
        })
    }

    fn running_job(&self, thread: ThreadId) -> Result<Option<JobRow>, StoreError> {
        self.lend("reading jobs", |connection| newest(connection, thread, "state IN ('queued', 'running')"))
    }

    fn attempts(
        &self,
        of: AttemptFilter,
        summariser: Option<&str>,
        newest: usize,
    ) -> Result<Vec<AttemptRow>, StoreError> {
        self.lend("reading attempts", |connection| {
            let mut conditions = vec!["TRUE"];
            let mut values: Vec<Box<dyn ToSql>> = Vec::new();
            match of {
                AttemptFilter::All => {}
                AttemptFilter::Job(job) => {
                    conditions.push("job = ?");
                    values.push(Box::new(job.blob()));
                }
                AttemptFilter::Thread(thread) => {
                    conditions.push("job IN (SELECT id FROM jobs WHERE thread = ?)");
                    values.push(Box::new(thread.blob()));
                }
            }
            if let Some(summariser) = summariser {
                conditions.push("summariser = ?");
                values.push(Box::new(summariser.to_owned()));
            }
            values.push(Box::new(i64::try_from(newest).unwrap_or(i64::MAX)));
            let mut statement = connection.prepare_cached(&format!(
                "SELECT number, job, worker, summariser, started, ended, error, detail FROM job_attempts
                 WHERE {} ORDER BY number DESC LIMIT ?",
                conditions.join(" AND ")
            ))?;
            let mut rows = statement.query(params_from_iter(values))?;
            let mut attempts = Vec::new();
            while let Some(row) = rows.next()? {
                attempts.push(attempt_row(row)?);
            }
            Ok(attempts)
        })
    }

    fn summaries(&self, thread: ThreadId) -> Result<Vec<SummaryRow>, StoreError> {
        self.lend("reading summaries", |connection| summaries::rows(connection, thread))
    }
}

/// Adds a job for a thread that ends at `end`.
pub(super) fn insert(tx: &WriteTx<'_>, end: Seq, job: &NewJob) -> Result<(), SqliteError> {
    let known: Option<[u8; 16]> = tx
        .connection
        .prepare_cached("SELECT id FROM jobs WHERE id = ?1 OR (thread = ?2 AND key = ?3)")?
        .query_row(params![job.id.blob(), job.thread.blob(), job.key], |row| row.get(0))
        .optional()?;
    if let Some(known) = known {
        return Err(StoreError::JobExists(JobId::new(uuid::Uuid::from_bytes(known))).into());
    }
    let fits = |name, place, first, last| check_within("job", job.thread, (name, place), (first, last));
    fits("marker", job.marker, Seq(1), end)?;
    fits("last event", job.through, Seq(1), end)?;
    fits("first event", job.first, Seq(1), job.through)?;
    fits("first event to keep", job.first_kept.unwrap_or(end), Seq(1), end)?;
    fits("base", job.base.unwrap_or(end), Seq(1), end)?;
    if thread_view::head_at(tx.connection, job.thread, job.through)?.link.raw != job.link {
        let why = format!("at event {} it has another history", job.through);
        return Err(misplaced_record("job", job.thread, why).into());
    }
    tx.connection
        .prepare_cached(
            "INSERT INTO jobs (id, thread, key, marker, first, through, first_kept, base, link, cause, focus, detail,
                created) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            job.id.blob(),
            job.thread.blob(),
            job.key,
            signed(job.marker.0),
            signed(job.first.0),
            signed(job.through.0),
            job.first_kept.map(|seq| signed(seq.0)),
            job.base.map(|seq| signed(seq.0)),
            job.link.0,
            trigger_name(job.trigger),
            job.focus,
            job.detail,
            job.created.0,
        ])?;
    Ok(())
}

/// Takes a job's summary into use as a compaction of the thread.
pub(super) fn adopt(
    tx: &WriteTx<'_>,
    thread: ThreadId,
    id: JobId,
    compaction: Seq,
) -> Result<(), SqliteError> {
    let known = job(tx.connection, id)?;
    if known.job.thread != thread {
        let why = format!("the job {id} is for the thread {}", known.job.thread);
        return Err(misplaced_record("adoption", thread, why).into());
    }
    if known.state != JobState::Ready {
        return Err(StoreError::JobNotReady(id).into());
    }
    if !is_compaction(tx.connection, thread, compaction)? {
        let why = format!("event {compaction} is no compaction of it");
        return Err(misplaced_record("adoption", thread, why).into());
    }
    tx.connection
        .prepare_cached("UPDATE jobs SET state = 'adopted', compaction = ?2 WHERE id = ?1")?
        .execute(params![id.blob(), signed(compaction.0)])?;
    Ok(())
}

/// Returns true if a thread's own event is a compaction.
pub(super) fn is_compaction(
    connection: &Connection,
    thread: ThreadId,
    seq: Seq,
) -> Result<bool, SqliteError> {
    let mut statement = connection
        .prepare_cached("SELECT 1 FROM events WHERE thread = ?1 AND kind = 'compacted' AND seq = ?2")?;
    Ok(statement.exists(params![thread.blob(), signed(seq.0)])?)
}

/// Ends a job that is not needed any more; one that has ended stays as it is.
pub(super) fn cancel(tx: &WriteTx<'_>, id: JobId, reason: &str) -> Result<(), SqliteError> {
    let open =
        "UPDATE jobs SET state = 'cancelled', worker = NULL, lease = NULL, not_before = NULL, error = ?2
         WHERE id = ?1 AND state IN ('queued', 'running', 'ready')";
    if tx.connection.prepare_cached(open)?.execute(params![id.blob(), reason])? == 0 {
        job(tx.connection, id)?;
    }
    Ok(())
}

fn insert_attempt(
    tx: &WriteTx<'_>,
    job: JobId,
    worker: &str,
    attempt: &JobAttempt,
) -> Result<(), SqliteError> {
    tx.connection
        .prepare_cached(
            "INSERT INTO job_attempts (job, worker, summariser, started, ended, error, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            job.blob(),
            worker,
            attempt.summariser,
            attempt.started.0,
            attempt.ended.0,
            attempt.error,
            attempt.detail,
        ])?;
    Ok(())
}

/// One job.
fn job(connection: &Connection, id: JobId) -> Result<JobRow, SqliteError> {
    let found = select(connection, "WHERE id = ?1", &[&id.blob()])?.pop();
    found.ok_or(SqliteError::Store(StoreError::UnknownJob(id)))
}

fn newest(connection: &Connection, thread: ThreadId, state: &str) -> Result<Option<JobRow>, SqliteError> {
    let which = format!("WHERE thread = ?1 AND {state} ORDER BY marker DESC, number DESC LIMIT 1");
    Ok(select(connection, &which, &[&thread.blob()])?.pop())
}

/// The jobs that `which` chooses.
pub(super) fn select(
    connection: &Connection,
    which: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<JobRow>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs {which}"))?;
    let mut rows = statement.query(values)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(job_row(row)?);
    }
    Ok(jobs)
}

const COLUMNS: &str = "id, thread, key, marker, first, through, first_kept, base, link, cause, focus, detail, created, \
    state, worker, lease, attempts, not_before, compaction, error, \
    (SELECT summaries.number FROM summaries WHERE summaries.job = jobs.id)";

/// Decodes a row of [`COLUMNS`].
fn job_row(row: &Row<'_>) -> Result<JobRow, SqliteError> {
    let id = codec::job(row, 0)?;
    let optional = |column| -> Result<Option<Seq>, SqliteError> {
        Ok(row.get::<_, Option<i64>>(column)?.map(|seq| Seq(unsigned(seq))))
    };
    let job = NewJob {
        id,
        thread: codec::thread(row, 1)?,
        key: row.get(2)?,
        marker: codec::seq(row, 3)?,
        first: codec::seq(row, 4)?,
        through: codec::seq(row, 5)?,
        first_kept: optional(6)?,
        base: optional(7)?,
        link: epitome_core::Digest(row.get(8)?),
        trigger: trigger(&row.get::<_, String>(9)?),
        focus: row.get(10)?,
        detail: row.get(11)?,
        created: Timestamp(row.get(12)?),
    };
    Ok(JobRow {
        job,
        state: state(id, row)?,
        attempts: unsigned(row.get(16)?),
        not_before: row.get::<_, Option<i64>>(17)?.map(Timestamp),
        error: row.get(19)?,
        summary: row.get::<_, Option<i64>>(20)?.map(unsigned),
    })
}

fn state(id: JobId, row: &Row<'_>) -> Result<JobState, SqliteError> {
    Ok(match row.get::<_, String>(13)?.as_str() {
        "queued" => JobState::Queued,
        "running" => JobState::Running { worker: row.get(14)?, until: Timestamp(row.get(15)?) },
        "ready" => JobState::Ready,
        "adopted" => JobState::Adopted { compaction: codec::seq(row, 18)? },
        "failed" => JobState::Failed,
        "cancelled" => JobState::Cancelled,
        other => return Err(SqliteError::Damaged(format!("the job {id} is in the unknown state `{other}`"))),
    })
}

fn attempt_row(row: &Row<'_>) -> Result<AttemptRow, SqliteError> {
    Ok(AttemptRow {
        number: unsigned(row.get(0)?),
        job: codec::job(row, 1)?,
        worker: row.get(2)?,
        attempt: JobAttempt {
            summariser: row.get(3)?,
            started: Timestamp(row.get(4)?),
            ended: Timestamp(row.get(5)?),
            error: row.get(6)?,
            detail: row.get(7)?,
        },
    })
}

/// The name a trigger has in events.
fn trigger_name(trigger: CompactionTrigger) -> String {
    match serde_json::to_value(trigger) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "unknown".to_owned(),
    }
}

/// A trigger by its name; one that this version does not know is unknown.
fn trigger(name: &str) -> CompactionTrigger {
    CompactionTrigger::deserialize(StrDeserializer::<Error>::new(name)).unwrap_or(CompactionTrigger::Unknown)
}
