//! Summaries that passed the gate, by the span of events they cover. They are never changed: a better one is a new one.

use epitome_core::{ThreadId, event::Timestamp};
use rusqlite::{Connection, Row, ToSql, params};

use super::{
    codec::{self, AsBlob, unsigned},
    sqlite_error::SqliteError,
    writer::WriteTx,
};
use crate::records::{JobId, NewSummary, SummaryRow};

/// The summaries made for this very thread, adopted or not, oldest first.
pub(super) fn rows(connection: &Connection, thread: ThreadId) -> Result<Vec<SummaryRow>, SqliteError> {
    select(connection, "WHERE thread = ?1 ORDER BY number", &thread.blob())
}

/// Adds the summary of a job, whose span it covers.
pub(super) fn insert(tx: &WriteTx<'_>, job: JobId, summary: &NewSummary) -> Result<(), SqliteError> {
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

/// The summary of a job.
pub(super) fn summary_of_job(connection: &Connection, job: JobId) -> Result<SummaryRow, SqliteError> {
    let found = select(connection, "WHERE job = ?1", &job.blob())?.pop();
    found.ok_or_else(|| SqliteError::Damaged(format!("the job {job} is ready, but its summary is missing")))
}

fn select(connection: &Connection, which: &str, value: &dyn ToSql) -> Result<Vec<SummaryRow>, SqliteError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT number, thread, first, through, job, author, prompt_version, created, text, brief, report
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
        job: codec::job(row, 4)?,
        summary: NewSummary {
            author: row.get(5)?,
            prompt_version: row.get(6)?,
            created: Timestamp(row.get(7)?),
            text: row.get(8)?,
            brief: row.get(9)?,
            report: row.get(10)?,
        },
    })
}
