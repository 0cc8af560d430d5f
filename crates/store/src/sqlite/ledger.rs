//! The ledger of events outside any session. It is kept beside the log, never compacted, and searched with
//! it.

use epitome_core::{EventId, event::Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::{
    codec::{self, AsBlob, signed},
    derivation,
    sqlite_error::SqliteError,
    thread_view,
    writer::WriteTx,
};
use crate::{
    error::StoreError,
    records::{CreateOutcome, LedgerEntry, LedgerFilter},
};

const COLUMNS: &str = "id, channel, time, author, text, raw, number";

/// Adds an entry, unless it is there, and links it to turns.
pub(super) fn add(
    tx: &WriteTx<'_>,
    entry: &LedgerEntry,
    turns: &[EventId],
) -> Result<CreateOutcome, SqliteError> {
    for (missing, text) in [("channel", &entry.channel), ("id", &entry.id), ("text", &entry.text)] {
        if text.trim().is_empty() {
            return Err(StoreError::EmptyLedgerEntry { missing }.into());
        }
    }
    let (number, made) = match find(tx.connection, &entry.channel, &entry.id)? {
        Some((number, known)) if known == *entry => (number, CreateOutcome::Already),
        Some(_) => {
            let (channel, id) = (entry.channel.clone(), entry.id.clone());
            return Err(StoreError::LedgerDiffers { channel, id }.into());
        }
        None => (insert(tx, entry)?, CreateOutcome::New),
    };
    for turn in turns {
        link(tx, number, *turn)?;
    }
    Ok(made)
}

fn insert(tx: &WriteTx<'_>, entry: &LedgerEntry) -> Result<i64, SqliteError> {
    let number: i64 = tx
        .connection
        .prepare_cached("SELECT coalesce(min(number), 0) - 1 FROM ledger")?
        .query_row([], |row| row.get(0))?;
    tx.connection
        .prepare_cached(
            "INSERT INTO ledger (number, id, channel, time, author, text, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![number, entry.id, entry.channel, entry.time.0, entry.author, entry.text, entry.raw])?;
    derivation::index(tx.connection, number, &entry.text)?;
    Ok(number)
}

fn link(tx: &WriteTx<'_>, entry: i64, turn: EventId) -> Result<(), SqliteError> {
    thread_view::event(tx.connection, turn)?;
    tx.connection
        .prepare_cached(
            "INSERT INTO ledger_links (entry, thread, seq) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute(params![entry, turn.thread.blob(), signed(turn.seq.0)])?;
    Ok(())
}

/// Entries that fit the filter, oldest first.
pub(super) fn list(connection: &Connection, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, SqliteError> {
    let mut conditions = vec!["TRUE"];
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    if let Some(channel) = &filter.channel {
        conditions.push("channel = ?");
        values.push(Box::new(channel.clone()));
    }
    if let Some(since) = filter.since {
        conditions.push("time >= ?");
        values.push(Box::new(since.0));
    }
    if let Some(before) = filter.before {
        conditions.push("time < ?");
        values.push(Box::new(before.0));
    }
    if let Some(turn) = filter.linked {
        conditions.push("number IN (SELECT entry FROM ledger_links WHERE thread = ? AND seq = ?)");
        values.push(Box::new(turn.thread.blob()));
        values.push(Box::new(signed(turn.seq.0)));
    }
    values.push(Box::new(filter.limit.map_or(-1, |limit| signed(limit as u64))));
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM ledger WHERE {} ORDER BY time DESC, number LIMIT ?",
        conditions.join(" AND ")
    ))?;
    let mut rows = statement.query(rusqlite::params_from_iter(values.iter().map(Box::as_ref)))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(entry(row)?);
    }
    entries.reverse();
    Ok(entries)
}

/// The turns an entry is linked to.
pub(super) fn turns(connection: &Connection, channel: &str, id: &str) -> Result<Vec<EventId>, SqliteError> {
    let Some((number, _)) = find(connection, channel, id)? else {
        let (channel, id) = (channel.to_owned(), id.to_owned());
        return Err(StoreError::UnknownLedgerEntry { channel, id }.into());
    };
    let mut statement = connection
        .prepare_cached("SELECT thread, seq FROM ledger_links WHERE entry = ?1 ORDER BY thread, seq")?;
    let mut rows = statement.query([number])?;
    let mut turns = Vec::new();
    while let Some(row) = rows.next()? {
        turns.extend(codec::event_id(row, 0)?);
    }
    Ok(turns)
}

fn find(connection: &Connection, channel: &str, id: &str) -> Result<Option<(i64, LedgerEntry)>, SqliteError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM ledger WHERE channel = ?1 AND id = ?2"))?;
    Ok(statement.query_row([channel, id], |row| Ok((row.get(6)?, entry(row)?))).optional()?)
}

fn entry(row: &Row<'_>) -> rusqlite::Result<LedgerEntry> {
    Ok(LedgerEntry {
        id: row.get(0)?,
        channel: row.get(1)?,
        time: Timestamp(row.get(2)?),
        author: row.get(3)?,
        text: row.get(4)?,
        raw: row.get(5)?,
    })
}
