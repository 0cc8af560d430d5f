//! Values of the core as columns, and back. A column that cannot be such a value means a damaged file.

use std::sync::Arc;

use epitome_core::{
    ChainLink, Digest, Event, EventId, Fact, LoggedEvent, Seq, SessionId, ThreadId, Tokens,
    event::{RawDialect, RawJson, Timestamp},
    id::JobId,
};
use rusqlite::{Connection, Row};

use super::{media, sqlite_error::SqliteError};

/// The columns that [`stored`] reads, in its order.
pub(super) const EVENT_COLUMNS: &str =
    "id, thread, seq, time, dialect, media, normal_digest, raw_link, normal_link, origin, fact, raw, kind";

/// An event as it is stored: the fact's exact text beside its values.
pub(super) struct EventRow {
    pub(super) row: i64,
    pub(super) logged: LoggedEvent,
    pub(super) fact: String,
    pub(super) kind: String,
}

/// Decodes a row of [`EVENT_COLUMNS`]; media that were taken out of the raw JSON are put back.
pub(super) fn stored(connection: &Connection, row: &Row<'_>) -> Result<EventRow, SqliteError> {
    let id = EventId { thread: thread(row, 1)?, seq: seq(row, 2)? };
    let fact: String = row.get(10)?;
    let parsed: Fact = serde_json::from_str(&fact).map_err(|error| SqliteError::unreadable(id, error))?;
    let json: Arc<str> = match (row.get::<_, Option<String>>(11)?, row.get::<_, u32>(5)?) {
        (None, _) => fact.as_str().into(),
        (Some(raw), 0) => raw.into(),
        (Some(packed), _) => {
            media::unpack(connection, &packed)?.map_err(|why| SqliteError::unreadable(id, why))?.into()
        }
    };
    let event = Event {
        time: row.get::<_, Option<i64>>(3)?.map(Timestamp),
        origin: row.get(9)?,
        fact: parsed,
        raw: RawJson { dialect: RawDialect::from(row.get::<_, String>(4)?), json },
        normal: row.get::<_, Option<[u8; 32]>>(6)?.map(Digest),
    };
    let link = ChainLink { raw: Digest(row.get(7)?), normal: Digest(row.get(8)?) };
    Ok(EventRow { row: row.get(0)?, logged: LoggedEvent { id, event, link }, fact, kind: row.get(12)? })
}

/// A thread's id.
pub(super) fn thread(row: &Row<'_>, column: usize) -> Result<ThreadId, SqliteError> {
    Ok(ThreadId::new(uuid(row.get(column)?)))
}

/// A session's id.
pub(super) fn session(row: &Row<'_>, column: usize) -> Result<SessionId, SqliteError> {
    Ok(SessionId::new(uuid(row.get(column)?)))
}

/// A job's id.
pub(super) fn job(row: &Row<'_>, column: usize) -> Result<JobId, SqliteError> {
    Ok(JobId::new(uuid(row.get(column)?)))
}

/// A place. Negative ones are never written; a file that has one gets the start.
pub(super) fn seq(row: &Row<'_>, column: usize) -> Result<Seq, SqliteError> {
    Ok(Seq(unsigned(row.get(column)?)))
}

/// An event's id in two neighbouring columns, both NULL if there is none.
pub(super) fn event_id(row: &Row<'_>, column: usize) -> Result<Option<EventId>, SqliteError> {
    match row.get::<_, Option<[u8; 16]>>(column)? {
        Some(thread) => Ok(Some(EventId { thread: ThreadId::new(uuid(thread)), seq: seq(row, column + 1)? })),
        None => Ok(None),
    }
}

/// The bytes an id is stored as.
pub(super) trait AsBlob {
    /// The bytes.
    fn blob(&self) -> [u8; 16];
}

impl AsBlob for ThreadId {
    fn blob(&self) -> [u8; 16] {
        self.uuid().into_bytes()
    }
}

impl AsBlob for SessionId {
    fn blob(&self) -> [u8; 16] {
        self.uuid().into_bytes()
    }
}

impl AsBlob for JobId {
    fn blob(&self) -> [u8; 16] {
        self.uuid().into_bytes()
    }
}

/// SQLite's integers are signed. No log is so long that the difference matters; a number beyond is taken as the
/// largest.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The other way round.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn uuid(bytes: [u8; 16]) -> uuid::Uuid {
    uuid::Uuid::from_bytes(bytes)
}
/// Counts as LEB128 numbers: nearly always one or two bytes each.
pub(super) fn pieces_blob(pieces: &[Tokens]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(pieces.len() * 2);
    for piece in pieces {
        let mut rest = piece.0;
        while rest >= 0x80 {
            blob.push(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        blob.push((rest & 0x7f) as u8);
    }
    blob
}

/// Reads back a blob written by [`pieces_blob`].
pub(super) fn pieces(blob: &[u8]) -> Result<Vec<Tokens>, SqliteError> {
    let mut pieces = Vec::new();
    let (mut piece, mut shift) = (0_u64, 0);
    for byte in blob {
        if shift > 63 {
            return Err(SqliteError::Damaged("a token count is too large to be one".to_owned()));
        }
        piece |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            pieces.push(Tokens(piece));
            (piece, shift) = (0, 0);
        }
    }
    if shift > 0 {
        return Err(SqliteError::Damaged("token counts are cut off".to_owned()));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_come_back_as_they_went(numbers in prop::collection::vec(any::<u64>(), 0..20)) {
            let counts: Vec<Tokens> = numbers.into_iter().map(Tokens).collect();
            let blob = pieces_blob(&counts);
            prop_assert_eq!(pieces(&blob).ok(), Some(counts.clone()));
            if !counts.is_empty() {
                let mut cut = blob;
                cut.pop();
                prop_assert_ne!(pieces(&cut).ok(), Some(counts), "what was cut off is not the same");
            }
        }

        #[test]
        fn no_blob_of_counts_panics(blob in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = pieces(&blob);
        }
    }
}
