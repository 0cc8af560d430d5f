//! The log in one SQLite file: records, which only grow, and the data derived from them.
//!
//! One thread writes (`writer`), a few connections read (`connection_pool`), any number of processes may share the file.
//! This file is the boundary: it names the failed action, and turns SQLite's codes into words.

mod append;
mod backup;
mod calls;
mod codec;
mod commit;
mod connection_pool;
mod deferred_derivation;
mod derivation;
mod doctor;
mod erase;
mod exchanges;
mod history_lookup;
mod jobs;
mod ledger;
mod media;
mod record_checks;
mod reparent_shared;
mod schema;
mod search;
mod sessions;
mod shared_sums;
mod sqlite_error;
mod summaries;
mod thread_view;
mod turn_rows;
mod turns;
mod writer;

use std::{fmt, path::Path, sync::Arc};

use epitome_core::{
    AnnotatedEvent, Digest, Event, EventId, LoggedEvent, Seq, SessionId, ThreadId, TokenCounter, Tokens,
    event::Timestamp, seq_set::SeqSet,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tempfile::TempDir;

use self::{
    append::PreparedAppend, connection_pool::ConnectionPool, deferred_derivation::DerivationBacklog,
    schema::StoreAccess, sqlite_error::SqliteError, writer::WriterThread,
};
use crate::{
    error::{CHECKING_ACTION, OPENING_ACTION, StoreError},
    location::StoreLocation,
    log::NewThread,
    options::StoreOptions,
    records::{
        AuditLine, BackupProgress, CreateOutcome, DoctorReport, ErasureReport, LedgerEntry, LedgerFilter,
        NewFork, NewSession, ScrubState, SearchHit, SearchQuery, SessionFilter, SessionName, SessionRow,
        ThreadRow, TurnRow,
    },
    thread_head::ThreadHead,
    traits::{DerivedData, EventLog, LAST_SESSION, LedgerStore, SessionStore, Store, StoreMaintenance},
};

/// The log in one SQLite file, with everything derived from it.
pub(crate) struct SqliteStore {
    location: StoreLocation,
    options: StoreOptions,
    access: StoreAccess,
    /// The tokenizer whose counts are shown.
    tokenizer: Option<String>,
    readers: ConnectionPool,
    writer: WriterThread,
    /// The directory of a store that is not to be kept. It is removed last, when no file in it is open any
    /// more.
    home: Option<TempDir>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("location", &self.location)
            .field("options", &self.options)
            .field("temporary", &self.home.is_some())
            .finish_non_exhaustive()
    }
}

impl EventLog for SqliteStore {
    fn open(&self, thread: &NewThread) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.writer.write("making a thread", move |tx| append::open(tx, &thread))
    }

    fn append(&self, thread: ThreadId, after: Seq, events: Vec<Event>) -> Result<ThreadHead, StoreError> {
        let mut append = PreparedAppend::new(
            thread,
            after,
            events.into_iter().map(AnnotatedEvent::from),
            self.options.counter.as_deref(),
        );
        self.writer.write("appending to the log", move |tx| append.run(tx))
    }

    fn read(&self, thread: ThreadId, from: Seq, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| thread_view::events(connection, thread, from, limit))
    }

    fn head(&self, thread: ThreadId) -> Result<ThreadHead, StoreError> {
        self.lend("reading the log", |connection| thread_view::head(connection, thread))
    }

    fn event(&self, id: EventId) -> Result<LoggedEvent, StoreError> {
        self.lend("reading the log", |connection| thread_view::event(connection, id))
    }

    fn events_of_kinds(&self, thread: ThreadId, kinds: &[&str]) -> Result<Vec<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| thread_view::events_of_kinds(connection, thread, kinds))
    }

    fn read_window(
        &self,
        thread: ThreadId,
        from: Seq,
        without: &SeqSet,
        kinds: &[&str],
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| {
            thread_view::window(connection, thread, from, without, kinds)
        })
    }

    fn compaction_in_force(&self, thread: ThreadId) -> Result<Option<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| thread_view::compaction_in_force(connection, thread))
    }

    fn media(&self, hash: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.lend("reading a medium", |connection| media::fetch(connection, hash))
    }
}

/// Opening.
impl SqliteStore {
    /// Opens the store in the file at `path`, as [`open_store`](crate::open_store) does.
    pub(crate) fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let explained =
            |fault: SqliteError| fault.into_store_error(OPENING_ACTION, path, options.busy_timeout);
        let (tokenizer, writer, access) = match schema::open_writer(path, &options) {
            Ok(connection) => {
                let tokenizer =
                    remember_tokenizer(&connection, options.counter.as_deref()).map_err(explained)?;
                let backlog = DerivationBacklog::new(options.lag, options.counter.clone());
                let (patience, gather) = (options.busy_timeout, options.gather);
                let writer = WriterThread::start(connection, path.to_owned(), patience, gather, backlog)?;
                (tokenizer, writer, StoreAccess::Writable)
            }
            Err(refused @ StoreError::ReadOnly { .. }) => {
                let connection = schema::open_read_only(path, &options).map_err(|fault| match fault {
                    // It is of an older version, and cannot be brought up to date.
                    SqliteError::Store(older @ StoreError::ReadOnly { .. }) => older,
                    // Why it cannot even be read says less than why it cannot be written.
                    _ => refused,
                })?;
                let counting = options.counter.as_ref().map(|counter| counter.name().to_owned());
                let known = known_tokenizer(&connection).map_err(explained)?;
                (counting.or(known), WriterThread::read_only(path.to_owned()), StoreAccess::ReadOnly)
            }
            Err(error) => return Err(error),
        };
        let readers = ConnectionPool::new(path.to_owned(), options.clone(), access);
        Ok(Self {
            location: StoreLocation::file(path),
            access,
            tokenizer,
            readers,
            writer,
            home: None,
            options,
        })
    }

    /// A new store where the system keeps temporary files, private like any other. It is gone when it is dropped.
    pub(crate) fn temporary(options: StoreOptions) -> Result<Self, StoreError> {
        let home = tempfile::Builder::new().prefix("epitome-").tempdir().map_err(|source| {
            StoreError::Io { doing: "making a temporary directory in", path: std::env::temp_dir(), source }
        })?;
        let store = Self::open(&home.path().join("epitome.db"), options)?;
        Ok(Self { home: Some(home), ..store })
    }

    fn lend<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        self.readers
            .with_connection(read)
            .map_err(|fault| fault.into_store_error(doing, self.location.path(), self.options.busy_timeout))
    }

    /// The same for derived data, after all of it is up to date.
    fn lend_derived<T>(
        &self,
        doing: &'static str,
        read: impl Fn(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        let seen = self.lend(doing, |connection| {
            Ok(if deferred_derivation::has_underived_events(connection)? {
                None
            } else {
                Some(read(connection)?)
            })
        })?;
        if let Some(seen) = seen {
            return Ok(seen);
        }
        self.catch_up(doing);
        self.lend(doing, read)
    }

    /// Derives for the deferred events. If the store is read-only, only the data derived before can be seen.
    fn catch_up(&self, doing: &'static str) {
        let _ = self.writer.write(doing, |tx| tx.backlog.catch_up(tx.connection));
    }
}

impl DerivedData for SqliteStore {
    fn tokenizer(&self) -> Option<&str> {
        self.tokenizer.as_deref()
    }

    fn event_counts(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(EventId, Tokens)>, StoreError> {
        let Some(tokenizer) = self.tokenizer() else { return Ok(Vec::new()) };
        self.lend_derived("reading token counts", |connection| {
            thread_view::counts(connection, tokenizer, thread, from, limit)
        })
    }

    fn text_counts(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(EventId, Vec<Tokens>)>, StoreError> {
        let Some(tokenizer) = self.tokenizer() else { return Ok(Vec::new()) };
        self.lend_derived("reading token counts", |connection| {
            thread_view::text_counts(connection, tokenizer, thread, from, limit)
        })
    }

    fn text_counts_of(
        &self,
        thread: ThreadId,
        events: &SeqSet,
    ) -> Result<Vec<(EventId, Vec<Tokens>)>, StoreError> {
        let Some(tokenizer) = self.tokenizer() else { return Ok(Vec::new()) };
        self.lend_derived("reading token counts", |connection| {
            thread_view::text_counts_of(connection, tokenizer, thread, events)
        })
    }

    fn count_missing(&self) -> Result<u64, StoreError> {
        const CHUNK: usize = 256;
        let Some(counter) = self.options.counter.as_deref() else { return Ok(0) };
        let name = counter.name();
        let mut total = 0;
        let mut after = 0;
        loop {
            let (rows, last) = self.lend_derived("counting tokens", |connection| {
                derivation::count_missing_tokens(connection, counter, after, CHUNK)
            })?;
            if rows.is_empty() {
                return Ok(total);
            }
            after = last;
            total += self.writer.write("storing token counts", move |tx| {
                let mut new = 0;
                for (id, pieces) in &rows {
                    let row = std::iter::once((id.seq, pieces.as_slice()));
                    new += derivation::add_count_rows(tx.connection, id.thread, row, name)?;
                }
                Ok(new)
            })?;
        }
    }

    fn turns(&self, thread: ThreadId) -> Result<Vec<TurnRow>, StoreError> {
        self.lend_derived("reading turns", |connection| turns::turns(connection, self.tokenizer(), thread))
    }

    fn history(&self, turn: EventId) -> Result<Vec<TurnRow>, StoreError> {
        self.lend_derived("reading turns", |connection| turns::history(connection, self.tokenizer(), turn))
    }

    fn search(&self, search: &SearchQuery) -> Result<Vec<SearchHit>, StoreError> {
        self.lend_derived("searching", |connection| search::search(connection, search))
    }
}

impl SessionStore for SqliteStore {
    fn create_session(&self, session: &NewSession) -> Result<CreateOutcome, StoreError> {
        let session = session.clone();
        self.writer.write("making a session", move |tx| sessions::create(tx, &session))
    }

    fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        self.lend_derived("listing sessions", |connection| sessions::rows(connection, self.tokenizer()))
    }

    fn latest_sessions(&self, filter: &SessionFilter, limit: usize) -> Result<Vec<SessionRow>, StoreError> {
        self.lend_derived("listing sessions", |connection| {
            sessions::latest(connection, self.tokenizer(), filter, limit)
        })
    }

    fn session(&self, id: SessionId) -> Result<SessionRow, StoreError> {
        self.lend_derived("reading a session", |connection| sessions::row(connection, self.tokenizer(), id))
    }

    fn session_name(&self, session: SessionId) -> Result<SessionName, StoreError> {
        self.lend("reading a session", |connection| sessions::name(connection, session))
    }

    fn find_session(&self, text: &str) -> Result<SessionRow, StoreError> {
        if text == LAST_SESSION
            && let Some(newest) = self.sessions()?.into_iter().next()
        {
            return Ok(newest);
        }
        self.lend_derived("finding a session", |connection| {
            let id = sessions::find(connection, text)?;
            sessions::row(connection, self.tokenizer(), id)
        })
    }

    fn set_title(&self, session: SessionId, title: &str) -> Result<(), StoreError> {
        let title = title.to_owned();
        self.writer.write("naming a session", move |tx| sessions::set_title(tx, session, &title))
    }

    fn add_label(&self, session: SessionId, label: &str) -> Result<CreateOutcome, StoreError> {
        let label = label.to_owned();
        self.writer.write("labelling a session", move |tx| sessions::add_label(tx, session, &label))
    }

    fn remove_label(&self, session: SessionId, label: &str) -> Result<(), StoreError> {
        let label = label.to_owned();
        self.writer.write("labelling a session", move |tx| sessions::remove_label(tx, session, &label))
    }

    fn set_head(&self, session: SessionId, thread: ThreadId) -> Result<(), StoreError> {
        self.writer.write("moving a session's head", move |tx| sessions::set_head(tx, session, thread))
    }

    fn fork(&self, fork: &NewFork) -> Result<ThreadHead, StoreError> {
        let fork = fork.clone();
        self.writer.write("forking", move |tx| sessions::fork(tx, &fork))
    }

    fn threads(&self, session: SessionId) -> Result<Vec<ThreadRow>, StoreError> {
        self.lend("reading a session", |connection| sessions::threads(connection, session))
    }

    fn thread(&self, id: ThreadId) -> Result<ThreadRow, StoreError> {
        self.lend("reading a thread", |connection| {
            let made = thread_view::thread(connection, id)?.ok_or(StoreError::UnknownThread(id))?;
            thread_view::thread_row(connection, made)
        })
    }

    fn abbreviated_threads(&self, name: &str) -> Result<Vec<ThreadRow>, StoreError> {
        self.lend("finding a thread", |connection| sessions::abbreviated_threads(connection, name))
    }
}

impl LedgerStore for SqliteStore {
    fn ledger_add(&self, entry: &LedgerEntry, turns: &[EventId]) -> Result<CreateOutcome, StoreError> {
        let (entry, turns) = (entry.clone(), turns.to_vec());
        self.writer.write("adding to the ledger", move |tx| ledger::add(tx, &entry, &turns))
    }

    fn ledger(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        self.lend("reading the ledger", |connection| ledger::list(connection, filter))
    }

    fn ledger_turns(&self, channel: &str, id: &str) -> Result<Vec<EventId>, StoreError> {
        self.lend("reading the ledger", |connection| ledger::turns(connection, channel, id))
    }
}

impl StoreMaintenance for SqliteStore {
    fn location(&self) -> &StoreLocation {
        &self.location
    }

    fn is_read_only(&self) -> bool {
        self.access == StoreAccess::ReadOnly
    }

    fn reopen(&self) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Self::open(self.location.path(), self.options.clone())?))
    }

    fn rebuild(&self) -> Result<ScrubState, StoreError> {
        let counter = self.options.counter.clone();
        self.readers.close_idle();
        self.writer.write_exclusive("rebuilding", move |connection, backlog| {
            backlog.forget();
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            schema::restore(&transaction)?;
            derivation::rebuild(&transaction, counter.as_deref())?;
            transaction.commit()?;
            erase::scrub_if_possible(connection)
        })
    }

    fn doctor(&self) -> Result<DoctorReport, StoreError> {
        self.catch_up(CHECKING_ACTION);
        doctor::examine(self.location.path(), &self.options, self.access).map_err(|fault| {
            fault.into_store_error(CHECKING_ACTION, self.location.path(), self.options.busy_timeout)
        })
    }

    fn backup(&self, to: &StoreLocation, progress: &mut dyn FnMut(BackupProgress)) -> Result<(), StoreError> {
        self.lend("backing up", |connection| backup::backup(connection, to.path(), progress))
    }

    fn erase(&self, session: SessionId, now: Timestamp) -> Result<ErasureReport, StoreError> {
        self.readers.close_idle();
        self.writer.write_exclusive("erasing a session", move |connection, backlog| {
            erase::erase(connection, backlog, session, now)
        })
    }

    fn scrub(&self) -> Result<ScrubState, StoreError> {
        self.readers.close_idle();
        self.writer.write_exclusive("scrubbing", |connection, _| erase::scrub(connection))
    }

    fn audit(&self) -> Result<Vec<AuditLine>, StoreError> {
        self.lend("reading the audit", |connection| {
            let mut statement = connection.prepare_cached("SELECT time, what FROM audit ORDER BY number")?;
            let lines = statement
                .query_map([], |row| Ok(AuditLine { time: Timestamp(row.get(0)?), what: row.get(1)? }))?;
            Ok(lines.collect::<Result<_, _>>()?)
        })
    }
}

/// The tokenizer that the file's own views use is the first that ever counted in it.
fn remember_tokenizer(
    connection: &Connection,
    counter: Option<&dyn TokenCounter>,
) -> Result<Option<String>, SqliteError> {
    let known = known_tokenizer(connection)?;
    let Some(counter) = counter else { return Ok(known) };
    if known.is_none() {
        connection.execute(
            "INSERT INTO settings (name, value) VALUES ('tokenizer', ?1) ON CONFLICT DO NOTHING",
            [counter.name()],
        )?;
    }
    Ok(Some(counter.name().to_owned()))
}

fn known_tokenizer(connection: &Connection) -> Result<Option<String>, SqliteError> {
    let mut statement = connection.prepare("SELECT value FROM settings WHERE name = 'tokenizer'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?)
}
