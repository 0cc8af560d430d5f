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

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use epitome_core::{
    AnnotatedEvent, Digest, Event, EventId, LoggedEvent, Seq, SessionId, ThreadId, TokenCounter, Tokens,
    event::Timestamp, lineage, seq_set::SeqSet, turn::Turn,
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tempfile::TempDir;

use self::{
    append::PreparedAppend, connection_pool::ConnectionPool, deferred_derivation::DerivationBacklog,
    schema::StoreAccess, sqlite_error::SqliteError, writer::WriterThread,
};
use crate::{
    error::{CHECKING_ACTION, OPENING_ACTION, StoreError},
    log::{EventLog, NewThread},
    records::{
        AuditLine, BackupProgress, CreateOutcome, DoctorReport, ErasureReport, LedgerEntry, LedgerFilter,
        NewFork, NewSession, ScrubState, SearchHit, SearchQuery, SessionRow, ThreadRow, TurnRow,
    },
    thread_head::ThreadHead,
};

/// Settings for opening a store.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Time to wait for another process that holds the lock.
    pub busy_timeout: Duration,
    /// Counts the tokens of every event as it is appended.
    pub counter: Option<Arc<dyn TokenCounter>>,
    /// Number of connections for reading that are kept open.
    pub readers: usize,
    /// The most pages of 4 KiB the file may grow to.
    pub page_limit: Option<u32>,
    /// Failures that an acknowledged write survives.
    pub durability: Durability,
    /// Longest time that a write may wait for others to share its commit, when several come one after
    /// another.
    pub gather: Duration,
    /// Longest time that turns, sums, counts and the search index may be deferred, to be derived for many
    /// events at once. Queries of this store see them up to date all the same; only other readers of the file
    /// see that they are behind.
    pub lag: Duration,
}

/// Failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The power going out: it is on the disk.
    #[default]
    PowerCut,
    /// The process being killed: the data is with the operating system. Nothing is ever damaged, but a power
    /// failure may take the last moments.
    Kill,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            counter: None,
            readers: 4,
            page_limit: None,
            durability: Durability::default(),
            gather: Duration::ZERO,
            lag: Duration::ZERO,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("busy_timeout", &self.busy_timeout)
            .field("counter", &self.counter.as_ref().map(|counter| counter.name()))
            .field("readers", &self.readers)
            .field("page_limit", &self.page_limit)
            .field("durability", &self.durability)
            .field("gather", &self.gather)
            .field("lag", &self.lag)
            .finish()
    }
}

/// Schemes by which databases are named, with or without slashes behind.
const DATABASE_URL_SCHEMES: [&str; 12] = [
    "file",
    "sqlite",
    "sqlite3",
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "mssql",
    "jdbc",
    "libsql",
    "mongodb",
    "redis",
];

/// The scheme of a text that looks like a URL. A single letter is none: some systems name their disks so.
fn url_scheme(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(':')?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte);
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_letter);
    let scheme = scheme.to_ascii_lowercase();
    (is_scheme && (rest.starts_with("//") || DATABASE_URL_SCHEMES.contains(&scheme.as_str())))
        .then_some(scheme)
}

/// The log in one SQLite file, with everything derived from it.
///
/// ```
/// use epitome_core::{Event, Fact, ContentPart, Seq, SessionId, ThreadId};
/// use epitome_store::{EventLog, NewThread, SqliteOptions, SqliteStore, ThreadStart, records::SearchQuery};
///
/// let directory = tempfile::tempdir()?;
/// let store = SqliteStore::open(&directory.path().join("epitome.db"), SqliteOptions::default())?;
/// let (session, thread) = (SessionId::derived(&["demo"]), ThreadId::derived(&["demo"]));
/// store.open(&NewThread { id: thread, session, name: "main".into(), key: None, start: ThreadStart::Root })?;
/// let said = Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("find me later")] }, None);
/// store.append(thread, Seq::START, vec![said])?;
/// assert_eq!(store.search(&SearchQuery::everything("later"))?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore {
    path: PathBuf,
    options: SqliteOptions,
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
        f.debug_struct("Sqlite")
            .field("path", &self.path)
            .field("options", &self.options)
            .field("temporary", &self.home.is_some())
            .finish_non_exhaustive()
    }
}

impl EventLog for SqliteStore {
    fn open(&self, thread: &NewThread) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.writer.write("making a thread", move |desk| append::open(desk, &thread))
    }

    fn append(&self, thread: ThreadId, after: Seq, events: Vec<Event>) -> Result<ThreadHead, StoreError> {
        let mut append = PreparedAppend::new(
            thread,
            after,
            events.into_iter().map(AnnotatedEvent::from),
            self.options.counter.as_deref(),
        );
        self.writer.write("appending to the log", move |desk| append.run(desk))
    }

    fn read(&self, thread: ThreadId, from: Seq, limit: usize) -> Result<Vec<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| thread_view::events(connection, thread, from, limit))
    }

    fn head(&self, thread: ThreadId) -> Result<ThreadHead, StoreError> {
        self.lend("reading the log", |connection| thread_view::head(connection, thread))
    }
}

/// Opening, and the log beyond [`EventLog`].
impl SqliteStore {
    /// Opens the store at `path`, and makes it if there is none. One that is there and cannot be written can still be
    /// looked at: then every writing method fails with [`StoreError::ReadOnly`].
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        Self::check_path(path)?;
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
        Ok(Self { path: path.to_owned(), access, tokenizer, readers, writer, home: None, options })
    }

    /// Refuses a path that looks like the URL of a database: it would become a folder of that name, and the
    /// user would not find the recorded data there. A path that begins with `./` or `/` is always accepted.
    pub fn check_path(path: &Path) -> Result<(), StoreError> {
        url_scheme(&path.to_string_lossy()).map_or(Ok(()), |scheme| Err(StoreError::Url { scheme }))
    }

    /// A new store where the system keeps temporary files, private like any other. It is gone when it is dropped.
    pub fn temporary(options: SqliteOptions) -> Result<Self, StoreError> {
        let home = tempfile::Builder::new().prefix("epitome-").tempdir().map_err(|source| {
            StoreError::Io { doing: "making a temporary directory in", path: std::env::temp_dir(), source }
        })?;
        let store = Self::open(&home.path().join("epitome.db"), options)?;
        Ok(Self { home: Some(home), ..store })
    }

    /// Opens the same store once more: a store that was read-only may be writable by now.
    pub fn reopen(&self) -> Result<Self, StoreError> {
        Self::open(&self.path, self.options.clone())
    }

    /// Returns true if the store is read-only.
    pub fn is_read_only(&self) -> bool {
        self.access == StoreAccess::ReadOnly
    }

    /// Path of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tokenizer whose counts are shown: the counter's, or the first one that ever counted here.
    pub fn tokenizer(&self) -> Option<&str> {
        self.tokenizer.as_deref()
    }

    /// The events of the thread's view that are of one of `kinds` (as [`Fact::kind`](epitome_core::Fact::kind)
    /// names them), oldest first.
    pub fn events_of_kinds(&self, thread: ThreadId, kinds: &[&str]) -> Result<Vec<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| thread_view::events_of_kinds(connection, thread, kinds))
    }

    /// One event.
    pub fn event(&self, id: EventId) -> Result<LoggedEvent, StoreError> {
        self.lend("reading the log", |connection| thread_view::event(connection, id))
    }

    /// A medium's bytes, if any event brought it inline and it was large enough to be stored apart.
    pub fn media(&self, hash: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.lend("reading a medium", |connection| media::fetch(connection, hash))
    }

    /// The newest compaction of the thread's view that holds: one that is not undone, or was brought back.
    pub fn compaction_in_force(&self, thread: ThreadId) -> Result<Option<LoggedEvent>, StoreError> {
        self.lend("reading the log", |connection| thread_view::compaction_in_force(connection, thread))
    }

    fn lend<T>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, StoreError> {
        self.readers
            .with_connection(read)
            .map_err(|fault| fault.into_store_error(doing, &self.path, self.options.busy_timeout))
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
        let _ = self.writer.write(doing, |desk| desk.backlog.catch_up(desk.connection));
    }
}

/// Token counts.
impl SqliteStore {
    /// The token counts of the thread's view from `from` on, by the store's tokenizer, oldest first.
    pub fn event_counts(
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

    /// The same, for each text of an event apart, in the order [`epitome_core::Fact::visit_text`] shows them.
    pub fn text_counts(
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

    /// A thread's view from `from` on, without these events, and the events of these kinds wherever they are; oldest first.
    pub fn read_window(
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

    /// The counts of each text of these events of a thread's view, as [`text_counts`](Self::text_counts) gives them.
    pub fn text_counts_of(
        &self,
        thread: ThreadId,
        events: &SeqSet,
    ) -> Result<Vec<(EventId, Vec<Tokens>)>, StoreError> {
        let Some(tokenizer) = self.tokenizer() else { return Ok(Vec::new()) };
        self.lend_derived("reading token counts", |connection| {
            thread_view::text_counts_of(connection, tokenizer, thread, events)
        })
    }

    /// Counts every event that the store's counter has not counted yet; gives how many. Without a counter, none.
    pub fn count_missing(&self) -> Result<u64, StoreError> {
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
            total += self.writer.write("storing token counts", move |desk| {
                let mut new = 0;
                for (id, pieces) in &rows {
                    let row = std::iter::once((id.seq, pieces.as_slice()));
                    new += derivation::add_count_rows(desk.connection, id.thread, row, name)?;
                }
                Ok(new)
            })?;
        }
    }
}

/// Sessions and threads.
impl SqliteStore {
    /// Makes a session. Making it again only fills in empty fields; its owner never changes.
    pub fn create_session(&self, session: &NewSession) -> Result<CreateOutcome, StoreError> {
        let session = session.clone();
        self.writer.write("making a session", move |desk| sessions::create(desk, &session))
    }

    /// All sessions, the most recently active first.
    pub fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        self.lend_derived("listing sessions", |connection| sessions::rows(connection, self.tokenizer()))
    }

    /// One session.
    pub fn session(&self, id: SessionId) -> Result<SessionRow, StoreError> {
        self.lend_derived("reading a session", |connection| sessions::row(connection, self.tokenizer(), id))
    }

    /// The session that `text` means: an id or a beginning of one (four characters or more), a title, an agent's
    /// own id, or a part of a title. Of these the first that fits exactly one session.
    pub fn find_session(&self, text: &str) -> Result<SessionRow, StoreError> {
        self.lend_derived("finding a session", |connection| {
            let id = sessions::find(connection, text)?;
            sessions::row(connection, self.tokenizer(), id)
        })
    }

    /// Names a session.
    pub fn set_title(&self, session: SessionId, title: &str) -> Result<(), StoreError> {
        let title = title.to_owned();
        self.writer.write("naming a session", move |desk| sessions::set_title(desk, session, &title))
    }

    /// Labels a session.
    pub fn add_label(&self, session: SessionId, label: &str) -> Result<CreateOutcome, StoreError> {
        let label = label.to_owned();
        self.writer.write("labelling a session", move |desk| sessions::add_label(desk, session, &label))
    }

    /// Takes a label off; whether it was there does not matter.
    pub fn remove_label(&self, session: SessionId, label: &str) -> Result<(), StoreError> {
        let label = label.to_owned();
        self.writer.write("labelling a session", move |desk| sessions::remove_label(desk, session, &label))
    }

    /// Chooses the thread a session goes on with.
    pub fn set_head(&self, session: SessionId, thread: ThreadId) -> Result<(), StoreError> {
        self.writer.write("moving a session's head", move |desk| sessions::set_head(desk, session, thread))
    }

    /// Forks a thread into a session of its own, in one step.
    pub fn fork(&self, fork: &NewFork) -> Result<ThreadHead, StoreError> {
        let fork = fork.clone();
        self.writer.write("forking", move |desk| sessions::fork(desk, &fork))
    }

    /// The threads of a session, in the order they were made.
    pub fn threads(&self, session: SessionId) -> Result<Vec<ThreadRow>, StoreError> {
        self.lend("reading a session", |connection| sessions::threads(connection, session))
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Result<ThreadRow, StoreError> {
        self.lend("reading a thread", |connection| {
            let made = thread_view::thread(connection, id)?.ok_or(StoreError::UnknownThread(id))?;
            thread_view::thread_row(connection, made)
        })
    }
}

/// Turns.
impl SqliteStore {
    /// The turns of the thread's view, oldest first: its whole history, compactions included.
    pub fn turns(&self, thread: ThreadId) -> Result<Vec<TurnRow>, StoreError> {
        self.lend_derived("reading turns", |connection| turns::turns(connection, self.tokenizer(), thread))
    }

    /// The chain of parents of a turn, oldest first, the turn itself last.
    pub fn history(&self, turn: EventId) -> Result<Vec<TurnRow>, StoreError> {
        self.lend_derived("reading turns", |connection| turns::history(connection, self.tokenizer(), turn))
    }

    /// The turns a compaction covers: from the first one that the compaction before it kept, through the last it
    /// summarised, and that earlier compaction itself; one that was reverted before does not count.
    pub fn covered_turns(&self, compaction: EventId) -> Result<Vec<EventId>, StoreError> {
        let turns: Vec<Turn> = self.history(compaction)?.into_iter().map(|row| row.turn).collect();
        lineage::covered_by(&turns, compaction).ok_or(StoreError::UnknownTurn(compaction))
    }
}

/// The ledger, and search over both.
impl SqliteStore {
    /// Adds an entry and links it to turns. Adding the same entry again only adds the links.
    pub fn ledger_add(&self, entry: &LedgerEntry, turns: &[EventId]) -> Result<CreateOutcome, StoreError> {
        let (entry, turns) = (entry.clone(), turns.to_vec());
        self.writer.write("adding to the ledger", move |desk| ledger::add(desk, &entry, &turns))
    }

    /// Ledger entries, oldest first.
    pub fn ledger(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        self.lend("reading the ledger", |connection| ledger::list(connection, filter))
    }

    /// The turns an entry is linked to.
    pub fn ledger_turns(&self, channel: &str, id: &str) -> Result<Vec<EventId>, StoreError> {
        self.lend("reading the ledger", |connection| ledger::turns(connection, channel, id))
    }

    /// Searches events and ledger, best hits first.
    pub fn search(&self, search: &SearchQuery) -> Result<Vec<SearchHit>, StoreError> {
        self.lend_derived("searching", |connection| search::search(connection, search))
    }
}

/// Care of the file.
impl SqliteStore {
    /// Makes all derived data again from the log, and any missing indexes, triggers and views of the schema.
    /// It is the same afterwards, unless it was damaged. Counts by other tokenizers than the store's counter
    /// are kept. Remains of earlier erasures are scrubbed from the files.
    pub fn rebuild(&self) -> Result<ScrubState, StoreError> {
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

    /// Checks everything that can be checked, and changes nothing.
    pub fn doctor(&self) -> Result<DoctorReport, StoreError> {
        self.catch_up(CHECKING_ACTION);
        doctor::examine(&self.path, &self.options, self.access)
            .map_err(|fault| fault.into_store_error(CHECKING_ACTION, &self.path, self.options.busy_timeout))
    }

    /// Copies the store to a new file while it is in use.
    pub fn backup(&self, to: &Path, progress: &mut dyn FnMut(BackupProgress)) -> Result<(), StoreError> {
        Self::check_path(to)?;
        self.lend("backing up", |connection| backup::backup(connection, to, progress))
    }

    /// Removes a session for good. Forks of it in other sessions read as before: the part they share with it
    /// is copied into their own lines first, so the ids of those events name the fork afterwards.
    pub fn erase(&self, session: SessionId, now: Timestamp) -> Result<ErasureReport, StoreError> {
        self.readers.close_idle();
        self.writer.write_exclusive("erasing a session", move |connection, backlog| {
            erase::erase(connection, backlog, session, now)
        })
    }

    /// Overwrites and releases the remains of erased rows in the files.
    pub fn scrub(&self) -> Result<ScrubState, StoreError> {
        self.readers.close_idle();
        self.writer.write_exclusive("scrubbing", |connection, _| erase::scrub(connection))
    }

    /// Actions on the store as a whole, oldest first.
    pub fn audit(&self) -> Result<Vec<AuditLine>, StoreError> {
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
