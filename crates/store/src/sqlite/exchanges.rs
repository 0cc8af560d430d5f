//! Exchanges between clients and providers. Their places are those of their own thread's view, which stay true when an
//! event gets another owner, so an erasure elsewhere leaves them as they are.

use std::time::Duration;

use epitome_core::{Seq, SessionId, ThreadId, event::Timestamp};
use rusqlite::{Connection, Row, params};

use super::{
    codec::{self, AsBlob, signed, unsigned},
    commit::check_within,
    sessions,
    sqlite_error::SqliteError,
    writer::WriteTx,
};
use crate::records::{ExchangeRow, NewExchange};

/// The exchanges of all threads of a session from the number `from` on, oldest first, at most `limit`.
pub(super) fn rows(
    connection: &Connection,
    session: SessionId,
    from: u64,
    limit: usize,
) -> Result<Vec<ExchangeRow>, SqliteError> {
    sessions::expect_session(connection, session)?;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM exchanges
         WHERE thread IN (SELECT id FROM threads WHERE session = ?1) AND number >= ?2
         ORDER BY number LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![session.blob(), signed(from), signed(limit as u64)])?;
    let mut exchanges = Vec::new();
    while let Some(row) = rows.next()? {
        exchanges.push(exchange_row(row)?);
    }
    Ok(exchanges)
}

const COLUMNS: &str = "number, thread, head, time, status, bytes_in, bytes_out, first_byte_ms, took_ms, client, \
    purpose, format, ending, model, error, observed";

/// Adds an exchange to a thread that ends at `end`.
pub(super) fn insert(
    tx: &WriteTx<'_>,
    thread: ThreadId,
    end: Seq,
    exchange: &NewExchange,
) -> Result<(), SqliteError> {
    check_within("exchange", thread, ("head", exchange.head), (Seq::START, end))?;
    tx.connection
        .prepare_cached(
            "INSERT INTO exchanges (thread, head, time, status, bytes_in, bytes_out, first_byte_ms, took_ms, client,
                purpose, format, ending, model, error, observed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute(params![
            thread.blob(),
            signed(exchange.head.0),
            exchange.time.0,
            exchange.status,
            signed(exchange.bytes_in),
            signed(exchange.bytes_out),
            exchange.first_byte.map(milliseconds),
            milliseconds(exchange.took),
            exchange.client,
            exchange.purpose,
            exchange.format,
            exchange.ending,
            exchange.model,
            exchange.error,
            exchange.observed,
        ])?;
    Ok(())
}

/// Decodes a row of [`COLUMNS`].
fn exchange_row(row: &Row<'_>) -> Result<ExchangeRow, SqliteError> {
    let duration = |milliseconds: i64| Duration::from_millis(unsigned(milliseconds));
    let exchange = NewExchange {
        head: codec::seq(row, 2)?,
        time: Timestamp(row.get(3)?),
        client: row.get(9)?,
        purpose: row.get(10)?,
        format: row.get(11)?,
        model: row.get(13)?,
        status: row.get(4)?,
        ending: row.get(12)?,
        bytes_in: unsigned(row.get(5)?),
        bytes_out: unsigned(row.get(6)?),
        first_byte: row.get::<_, Option<i64>>(7)?.map(duration),
        took: duration(row.get(8)?),
        observed: row.get(15)?,
        error: row.get(14)?,
    };
    Ok(ExchangeRow { number: unsigned(row.get(0)?), thread: codec::thread(row, 1)?, exchange })
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
