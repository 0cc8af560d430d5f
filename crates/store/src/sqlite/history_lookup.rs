//! Lookup of the thread that a request continues: by its history, by its client's name for the thread, or by
//! the answers and items that it only names.
//!
//! Every lookup is for one principal, and goes through the session of its result, so that no data of another
//! principal is seen. Each is an index away and bounded, the newest first.

use epitome_core::{Digest, EventId, Seq, SessionId, ThreadId, id::AnswerId};
use rusqlite::{Connection, ToSql, params};

use super::{
    SqliteStore,
    codec::{self, AsBlob, signed, unsigned},
    sessions,
    sqlite_error::SqliteError,
    thread_view,
};
use crate::{error::StoreError, log::ThreadStart, records::ThreadRow, traits::HistoryLookup};

/// Most results of a lookup. A batch of equal first prompts leaves thousands; callers need the newest few.
const MAX_LOOKUP_RESULTS: i64 = 16;

impl HistoryLookup for SqliteStore {
    fn histories_ending_with(&self, normal: Digest) -> Result<Vec<EventId>, StoreError> {
        self.lend("recognising a history", |connection| {
            let sql = "SELECT thread, seq FROM events
                 WHERE normal_link = ?1 AND normal_digest IS NOT NULL ORDER BY id";
            events(connection, sql, &[&normal.0])
        })
    }

    fn histories_of_principal(&self, principal: &str, normal: Digest) -> Result<Vec<EventId>, StoreError> {
        self.lend("recognising a history", |connection| {
            let sql = "SELECT events.thread, events.seq FROM events
                 CROSS JOIN threads ON threads.id = events.thread
                 CROSS JOIN sessions ON sessions.id = threads.session
                 WHERE events.normal_link = ?2 AND events.normal_digest IS NOT NULL AND sessions.principal = ?1
                 ORDER BY events.id DESC LIMIT ?3";
            events(connection, sql, &[&principal, &normal.0, &MAX_LOOKUP_RESULTS])
        })
    }

    fn threads_by_key(&self, principal: &str, key: &str) -> Result<Vec<ThreadRow>, StoreError> {
        self.lend("finding a thread", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT threads.id FROM threads
                 CROSS JOIN sessions ON sessions.id = threads.session
                 WHERE threads.key = ?2 AND sessions.principal = ?1
                 ORDER BY threads.number DESC LIMIT ?3",
            )?;
            let mut rows = statement.query(params![principal, key, MAX_LOOKUP_RESULTS])?;
            let mut threads = Vec::new();
            while let Some(row) = rows.next()? {
                let made = thread_view::thread(connection, codec::thread(row, 0)?)?;
                threads.extend(made.map(|made| thread_view::thread_row(connection, made)).transpose()?);
            }
            Ok(threads)
        })
    }

    fn session_by_key(&self, principal: &str, key: &str) -> Result<Option<SessionId>, StoreError> {
        self.lend("finding a session", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id FROM sessions WHERE key = ?2 AND principal = ?1 ORDER BY created DESC LIMIT 1",
            )?;
            let mut rows = statement.query(params![principal, key])?;
            rows.next()?.map(|row| codec::session(row, 0)).transpose()
        })
    }

    fn session_named(
        &self,
        principal: &str,
        key: &str,
        id: SessionId,
    ) -> Result<Option<SessionId>, StoreError> {
        self.lend("finding a session", |connection| sessions::session_named(connection, principal, key, id))
    }

    fn has_answer_before(&self, thread: ThreadId, before: Seq) -> Result<bool, StoreError> {
        self.lend("finding an answer", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM exchanges
                    WHERE thread = ?1 AND head < ?2 AND ending = 'complete')",
            )?;
            let (mut thread, mut before) = (thread, before);
            loop {
                if statement.query_row(params![thread.blob(), signed(before.0)], |row| row.get(0))? {
                    return Ok(true);
                }
                match thread_view::thread(connection, thread)?.map(|made| made.start) {
                    Some(ThreadStart::Fork { of, at }) => (thread, before) = (of, before.min(at.next())),
                    _ => return Ok(false),
                }
            }
        })
    }

    fn answer_of(&self, principal: &str, answer: &AnswerId) -> Result<Option<EventId>, StoreError> {
        self.lend_derived("finding an answer", |connection| {
            let sql = "SELECT turn_rows.thread, (SELECT max(seq) FROM events
                    WHERE events.thread = turn_rows.thread AND events.kind = 'assistant_said'
                    AND events.seq BETWEEN turn_rows.seq AND turn_rows.last)
                 FROM turn_rows
                 CROSS JOIN threads ON threads.id = turn_rows.thread
                 CROSS JOIN sessions ON sessions.id = threads.session
                 WHERE turn_rows.answer = ?2 AND sessions.principal = ?1
                 ORDER BY threads.number DESC, turn_rows.seq DESC LIMIT 1";
            Ok(events(connection, sql, &[&principal, &answer.0])?.pop())
        })
    }

    fn item_of(&self, principal: &str, id: &str) -> Result<Option<EventId>, StoreError> {
        self.lend("finding an item", |connection| {
            let sql = "SELECT events.thread, events.seq FROM events
                 CROSS JOIN threads ON threads.id = events.thread
                 CROSS JOIN sessions ON sessions.id = threads.session
                 WHERE events.origin = ?2 AND events.dialect = 'openai-responses' AND sessions.principal = ?1
                 ORDER BY events.id DESC LIMIT 1";
            Ok(events(connection, sql, &[&principal, &id])?.pop())
        })
    }

    fn last_client_compaction(&self, thread: ThreadId, through: Seq) -> Result<Option<Seq>, StoreError> {
        self.lend("reading the log", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT max(seq) FROM events WHERE thread = ?1 AND kind = 'compacted' AND seq BETWEEN ?2 AND ?3
                 AND normal_digest = normal_link AND {INDEXED}",
                INDEXED = thread_view::INDEXED_KINDS_CONDITION,
            ))?;
            for segment in thread_view::owned_event_ranges(connection, thread, Seq::START)?.into_iter().rev() {
                let (first, last) = (segment.after.next(), segment.until.min(through));
                let range = params![segment.thread.blob(), signed(first.0), signed(last.0)];
                let found: Option<i64> = statement.query_row(range, |row| row.get(0))?;
                if let Some(found) = found {
                    return Ok(Some(Seq(unsigned(found))));
                }
            }
            Ok(None)
        })
    }

    fn digests(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(Seq, Option<Digest>, Digest)>, StoreError> {
        self.lend("reading the log", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT seq, normal_digest, normal_link FROM events
                 WHERE thread = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4",
            )?;
            let mut digests = Vec::new();
            for segment in thread_view::owned_event_ranges(connection, thread, from)? {
                let first = signed(from.max(segment.after.next()).0);
                let left = signed((limit - digests.len()) as u64);
                let range = params![segment.thread.blob(), first, signed(segment.until.0), left];
                let mut rows = statement.query(range)?;
                while let Some(row) = rows.next()? {
                    let digest = row.get::<_, Option<[u8; 32]>>(1)?.map(Digest);
                    digests.push((codec::seq(row, 0)?, digest, Digest(row.get(2)?)));
                }
            }
            Ok(digests)
        })
    }
}

/// The events in the rows of a statement that gives a thread and a place.
fn events(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<EventId>, SqliteError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.extend(codec::event_id(row, 0)?);
    }
    Ok(found)
}
