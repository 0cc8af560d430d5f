//! Deferred derivation: deriving for many events at once costs a fraction of doing it one by one.
//!
//! A row of the settings names the first event without derived data; it is written with the first such event
//! and removed with the last, so a kill in between loses nothing. Every reader of derived data has it caught
//! up first, in whichever process the events were written.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use epitome_core::{ThreadId, TokenCounter};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    codec::{self, EVENT_COLUMNS, signed},
    derivation::{DerivedEvent, TurnDerivations},
    sqlite_error::SqliteError,
    thread_view,
};
use crate::thread_head::ThreadHead;

/// Most events whose derivation is deferred, beside the limit on the bytes of their texts: beyond them the
/// next writer waits for the derivation.
const MAX_DEFERRED_EVENTS: usize = 512;
const MAX_DEFERRED_BYTES: usize = 1 << 20;

/// The name of the setting: the row of the first event without derived data.
const UNDERIVED_SETTING: &str = "underived";

/// Appended events that are to be derived, held by the one thread that writes.
#[derive(Default)]
pub(super) struct DerivationBacklog {
    derivations: TurnDerivations,
    counter: Option<Arc<dyn TokenCounter>>,
    /// Longest time that it may wait.
    lag: Duration,
    /// Appended in the transaction that is under way.
    fresh: Vec<AppendBatch>,
    /// Appended before, in the order of the rows.
    waiting: Vec<AppendBatch>,
    /// Time of the first of them.
    since: Option<Instant>,
}

/// Events that were appended to a thread, one after the other.
struct AppendBatch {
    thread: ThreadId,
    /// Head of the thread before.
    before: ThreadHead,
    items: Vec<Arc<DerivedEvent>>,
    tokenizer: Option<&'static str>,
}

impl DerivationBacklog {
    /// An empty backlog. Without a lag all is derived in the transaction it belongs to.
    pub(super) fn new(lag: Duration, counter: Option<Arc<dyn TokenCounter>>) -> Self {
        Self { counter, lag, ..Self::default() }
    }

    /// Takes the events appended to `thread` after `before`.
    pub(super) fn take(
        &mut self,
        thread: ThreadId,
        before: ThreadHead,
        items: &[Arc<DerivedEvent>],
        tokenizer: Option<&'static str>,
    ) {
        if !items.is_empty() {
            self.fresh.push(AppendBatch { thread, before, items: items.to_vec(), tokenizer });
        }
    }

    /// Ends a transaction: derives for the events appended in it, or records that this was deferred.
    pub(super) fn end(&mut self, connection: &Connection) -> Result<(), SqliteError> {
        let Some(first) = self.fresh.first().and_then(|batch| batch.items.first()) else { return Ok(()) };
        if self.lag.is_zero() {
            return self.catch_up(connection);
        }
        connection
            .prepare_cached("INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
            .execute(params![UNDERIVED_SETTING, first.row.to_string()])?;
        Ok(())
    }

    /// The transaction is committed.
    pub(super) fn note_committed(&mut self) {
        if !self.fresh.is_empty() {
            self.since.get_or_insert_with(Instant::now);
            self.waiting.append(&mut self.fresh);
        }
    }

    /// Forgets everything: a transaction was lost. Events deferred earlier are read back when they are
    /// needed.
    pub(super) fn forget(&mut self) {
        let Self { derivations, counter: _, lag: _, fresh, waiting, since } = self;
        derivations.forget();
        fresh.clear();
        waiting.clear();
        *since = None;
    }

    /// Remaining time that the deferred events may wait, if there are any.
    pub(super) fn remaining_lag(&self) -> Option<Duration> {
        let since = self.since?;
        let items = || self.waiting.iter().flat_map(|batch| &batch.items);
        if items().count() >= MAX_DEFERRED_EVENTS
            || items().map(|item| item.text.len()).sum::<usize>() >= MAX_DEFERRED_BYTES
        {
            return Some(Duration::ZERO);
        }
        Some((since + self.lag).saturating_duration_since(Instant::now()))
    }

    /// Derives all that is not, in the transaction that is under way.
    pub(super) fn catch_up(&mut self, connection: &Connection) -> Result<(), SqliteError> {
        let (waiting, fresh) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.fresh));
        self.since = None;
        match first_underived_row(connection)? {
            // The events deferred here were derived by another process.
            None => self.derive(connection, fresh),
            Some(first) => {
                let batches: Vec<AppendBatch> = waiting.into_iter().chain(fresh).collect();
                if is_whole(connection, first, &batches)? {
                    self.derive(connection, batches)?;
                } else {
                    self.read_back(connection, first)?;
                }
                record_all_derived(connection)
            }
        }
    }

    /// Derives batches, those of a thread together.
    fn derive(&mut self, connection: &Connection, batches: Vec<AppendBatch>) -> Result<(), SqliteError> {
        let mut threads: Vec<AppendBatch> = Vec::new();
        let mut places: HashMap<(ThreadId, Option<&str>), usize> = HashMap::new();
        for batch in batches {
            let place = *places.entry((batch.thread, batch.tokenizer)).or_insert(threads.len());
            match threads.get_mut(place) {
                Some(thread) => thread.items.extend(batch.items),
                None => threads.push(batch),
            }
        }
        for AppendBatch { thread, before, items, tokenizer } in threads {
            self.derivations.derive(connection, thread, before, &items, tokenizer)?;
        }
        self.derivations.index(connection)
    }

    /// Reads all events from a row on and derives from them: another process appended them, or this one before it was killed.
    fn read_back(&mut self, connection: &Connection, mut first: i64) -> Result<(), SqliteError> {
        let counter = self.counter.clone();
        let tokenizer = counter.as_deref().map(TokenCounter::name);
        loop {
            let mut batches: Vec<AppendBatch> = Vec::new();
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {EVENT_COLUMNS} FROM events WHERE id >= ?1 ORDER BY id LIMIT ?2"
            ))?;
            let mut rows = statement.query(params![first, signed(MAX_DEFERRED_EVENTS as u64)])?;
            while let Some(row) = rows.next()? {
                let stored = codec::stored(connection, row)?;
                let id = stored.logged.id;
                first = stored.row + 1;
                let item = DerivedEvent::stored(stored.row, stored.logged, counter.as_deref());
                let before = thread_view::head_at(connection, id.thread, id.seq.previous())?;
                batches.push(AppendBatch {
                    thread: id.thread,
                    before,
                    items: vec![Arc::new(item)],
                    tokenizer,
                });
            }
            if batches.is_empty() {
                return Ok(());
            }
            self.derive(connection, batches)?;
        }
    }
}

/// Returns true if the derivation of any event was deferred, by any process.
pub(super) fn has_underived_events(connection: &Connection) -> Result<bool, SqliteError> {
    Ok(first_underived_row(connection)?.is_some())
}

/// The row of the first event without derived data.
pub(super) fn first_underived_row(connection: &Connection) -> Result<Option<i64>, SqliteError> {
    let row: Option<String> = connection
        .prepare_cached("SELECT value FROM settings WHERE name = ?1")?
        .query_row([UNDERIVED_SETTING], |row| row.get(0))
        .optional()?;
    // A value that is not a number was not written by Epitome: then all events are examined again.
    Ok(row.map(|row| row.parse().unwrap_or(0)))
}

/// Writes down that everything is derived.
pub(super) fn record_all_derived(connection: &Connection) -> Result<(), SqliteError> {
    connection.prepare_cached("DELETE FROM settings WHERE name = ?1")?.execute([UNDERIVED_SETTING])?;
    Ok(())
}

/// Returns true if these are all events from a row on.
fn is_whole(connection: &Connection, first: i64, batches: &[AppendBatch]) -> Result<bool, SqliteError> {
    let last: Option<i64> =
        connection.prepare_cached("SELECT max(id) FROM events")?.query_row([], |row| row.get(0))?;
    let mut rows = batches.iter().flat_map(|batch| &batch.items).map(|item| item.row);
    let follows = (first..=last.unwrap_or(0)).all(|row| rows.next() == Some(row));
    Ok(follows && rows.next().is_none())
}
