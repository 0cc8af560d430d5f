//! Summaries by the span of events they cover: those of jobs, and those written together with their compactions. They are
//! never changed: a better one is a new one.

use epitome_core::{Seq, ThreadId, event::Timestamp};
use rusqlite::{Connection, Row, ToSql, params};

use super::{
    codec::{self, AsBlob, signed, unsigned},
    commit::{check_within, misplaced_record},
    jobs,
    sqlite_error::SqliteError,
    writer::WriteTx,
};
use crate::records::{CompactionSummary, JobId, NewSummary, SummaryRow, SummarySource};

/// The summaries made for this very thread, adopted or not, oldest first.
pub(super) fn rows(connection: &Connection, thread: ThreadId) -> Result<Vec<SummaryRow>, SqliteError> {
    select(connection, "WHERE thread = ?1 ORDER BY number", &thread.blob())
}

/// Adds the summary of a job, whose span it covers.
pub(super) fn insert_of_job(tx: &WriteTx<'_>, job: JobId, summary: &NewSummary) -> Result<(), SqliteError> {
    tx.connection
        .prepare_cached(
            "INSERT INTO summaries (thread, first, through, job, author, prompt_version, created, text, brief, report)
             SELECT thread, first, through, id, ?2, ?3, ?4, ?5, ?6, ?7 FROM jobs WHERE id = ?1",
        )?
        .execute(params![
            job.blob(),
            summary.author,
            summary.prompt_version,
            summary.created.0,
            summary.text,
            summary.brief,
            summary.report,
        ])?;
    Ok(())
}

/// Adds the summary that was written together with a compaction of a thread.
pub(super) fn insert(
    tx: &WriteTx<'_>,
    thread: ThreadId,
    made: &CompactionSummary,
) -> Result<(), SqliteError> {
    let CompactionSummary { compaction, first, through, summary } = made;
    let misplaced = |why| SqliteError::from(misplaced_record("summary", thread, why));
    if !jobs::is_compaction(tx.connection, thread, *compaction)? {
        return Err(misplaced(format!("event {compaction} is no compaction of it")));
    }
    check_within("summary", thread, ("last event", *through), (Seq(1), *compaction))?;
    check_within("summary", thread, ("first event", *first), (Seq(1), *through))?;
    if has_summary(tx.connection, thread, *compaction)? {
        return Err(misplaced(format!("the compaction at event {compaction} has one already")));
    }
    tx.connection
        .prepare_cached(
            "INSERT INTO summaries
                (thread, first, through, compaction, author, prompt_version, created, text, brief, report)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            thread.blob(),
            signed(first.0),
            signed(through.0),
            signed(compaction.0),
            summary.author,
            summary.prompt_version,
            summary.created.0,
            summary.text,
            summary.brief,
            summary.report,
        ])?;
    Ok(())
}

/// Returns true if a compaction of a thread has a summary that was written together with it.
fn has_summary(connection: &Connection, thread: ThreadId, compaction: Seq) -> Result<bool, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM summaries WHERE thread = ?1 AND compaction = ?2")?;
    Ok(statement.exists(params![thread.blob(), signed(compaction.0)])?)
}

/// The summary of a job.
pub(super) fn summary_of_job(connection: &Connection, job: JobId) -> Result<SummaryRow, SqliteError> {
    let found = select(connection, "WHERE job = ?1", &job.blob())?.pop();
    found.ok_or_else(|| SqliteError::Damaged(format!("the job {job} is ready, but its summary is missing")))
}

fn select(connection: &Connection, which: &str, value: &dyn ToSql) -> Result<Vec<SummaryRow>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT number, thread, first, through, job, compaction, author, prompt_version, created, text, brief, report
         FROM summaries {which}"
    ))?;
    let mut rows = statement.query([value])?;
    let mut summaries = Vec::new();
    while let Some(row) = rows.next()? {
        summaries.push(summary_row(row)?);
    }
    Ok(summaries)
}

fn summary_row(row: &Row<'_>) -> Result<SummaryRow, SqliteError> {
    Ok(SummaryRow {
        number: unsigned(row.get(0)?),
        thread: codec::thread(row, 1)?,
        first: codec::seq(row, 2)?,
        through: codec::seq(row, 3)?,
        source: match row.get::<_, Option<i64>>(5)? {
            Some(compaction) => SummarySource::Compaction(Seq(unsigned(compaction))),
            None => SummarySource::Job(codec::job(row, 4)?),
        },
        summary: NewSummary {
            author: row.get(6)?,
            prompt_version: row.get(7)?,
            created: Timestamp(row.get(8)?),
            text: row.get(9)?,
            brief: row.get(10)?,
            report: row.get(11)?,
        },
    })
}
