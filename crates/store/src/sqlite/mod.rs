//! The log in one SQLite file.
#![expect(clippy::todo, unused_variables, reason = "signatures first")]

use std::{path::Path, sync::Arc, time::Duration};

use epitome_core::{
    Digest, Event, EventId, Logged, Seq, SessionId, ThreadId, TokenCounter, Tokens, event::Time,
};

use crate::{
    error::StoreError,
    log::{EventLog, Head, NewThread},
    records::{
        AuditLine, BackupProgress, DoctorReport, Erased, Hit, LedgerEntry, LedgerFilter, Made, NewFork,
        NewSession, Scrubbed, Search, SessionRow, ThreadRow, TurnRow,
    },
};

/// How to open a store.
#[derive(Clone)]
pub struct Options {
    /// How long to wait for another process that holds the lock.
    pub busy_timeout: Duration,
    /// Counts the tokens of every event as it is appended.
    pub counter: Option<Arc<dyn TokenCounter>>,
    /// How many connections for reading are kept open.
    pub readers: usize,
    /// The most pages of 4 KiB the file may grow to.
    pub page_limit: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5), counter: None, readers: 4, page_limit: None }
    }
}

/// The log in one SQLite file, with everything derived from it.
pub struct Sqlite {}

impl EventLog for Sqlite {
    fn open(&self, thread: &NewThread) -> Result<(), StoreError> {
        todo!()
    }
    fn append(&self, thread: ThreadId, after: Seq, events: Vec<Event>) -> Result<Head, StoreError> {
        todo!()
    }
    fn read(&self, thread: ThreadId, from: Seq, limit: usize) -> Result<Vec<Logged>, StoreError> {
        todo!()
    }
    fn head(&self, thread: ThreadId) -> Result<Head, StoreError> {
        todo!()
    }
}

impl Sqlite {
    /// Opens the store at `path`, and makes it if there is none.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        todo!()
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        todo!()
    }

    /// The events of the thread's view that are of one of `kinds` (as `Fact::kind` names them), oldest first.
    pub fn of_kinds(&self, thread: ThreadId, kinds: &[&str]) -> Result<Vec<Logged>, StoreError> {
        todo!()
    }

    /// One event.
    pub fn event(&self, id: EventId) -> Result<Logged, StoreError> {
        todo!()
    }

    /// The events at which a history with this normalised link ends: the same history in any thread.
    pub fn recognise(&self, normal: Digest) -> Result<Vec<EventId>, StoreError> {
        todo!()
    }

    /// A medium's bytes, if any event brought it inline and it was large enough to be stored apart.
    pub fn media(&self, hash: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        todo!()
    }

    /// The token counts of the thread's view from `from` on, by the store's tokenizer, oldest first.
    pub fn counts(
        &self,
        thread: ThreadId,
        from: Seq,
        limit: usize,
    ) -> Result<Vec<(EventId, Tokens)>, StoreError> {
        todo!()
    }

    /// Counts every event that the store's counter has not counted yet; gives how many.
    pub fn count_missing(&self) -> Result<u64, StoreError> {
        todo!()
    }

    /// Makes a session. Making it again changes nothing but what was left empty.
    pub fn create_session(&self, session: &NewSession) -> Result<Made, StoreError> {
        todo!()
    }

    /// All sessions, the most recently active first.
    pub fn sessions(&self) -> Result<Vec<SessionRow>, StoreError> {
        todo!()
    }

    /// One session.
    pub fn session(&self, id: SessionId) -> Result<SessionRow, StoreError> {
        todo!()
    }

    /// The session that `text` means: an id or a beginning of one, a title, an agent's own id, or a part of a title.
    pub fn find_session(&self, text: &str) -> Result<SessionRow, StoreError> {
        todo!()
    }

    /// Names a session.
    pub fn set_title(&self, session: SessionId, title: &str) -> Result<(), StoreError> {
        todo!()
    }

    /// Labels a session.
    pub fn add_label(&self, session: SessionId, label: &str) -> Result<Made, StoreError> {
        todo!()
    }

    /// Takes a label off; whether it was there does not matter.
    pub fn remove_label(&self, session: SessionId, label: &str) -> Result<(), StoreError> {
        todo!()
    }

    /// Chooses the thread a session goes on with.
    pub fn set_head(&self, session: SessionId, thread: ThreadId) -> Result<(), StoreError> {
        todo!()
    }

    /// Forks a thread into a session of its own, in one step.
    pub fn fork(&self, fork: &NewFork) -> Result<Head, StoreError> {
        todo!()
    }

    /// The threads of a session, in the order they were made.
    pub fn threads(&self, session: SessionId) -> Result<Vec<ThreadRow>, StoreError> {
        todo!()
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Result<ThreadRow, StoreError> {
        todo!()
    }

    /// The turns of the thread's view, oldest first: its whole history, compactions included.
    pub fn turns(&self, thread: ThreadId) -> Result<Vec<TurnRow>, StoreError> {
        todo!()
    }

    /// The chain of parents of a turn, oldest first, the turn itself last.
    pub fn history(&self, turn: EventId) -> Result<Vec<TurnRow>, StoreError> {
        todo!()
    }

    /// The newest compaction of the thread's view that was not reverted.
    pub fn pivot(&self, thread: ThreadId) -> Result<Option<Logged>, StoreError> {
        todo!()
    }

    /// Adds an entry and links it to turns. Adding the same entry again only adds the links.
    pub fn ledger_add(&self, entry: &LedgerEntry, turns: &[EventId]) -> Result<Made, StoreError> {
        todo!()
    }

    /// Ledger entries, oldest first.
    pub fn ledger(&self, filter: &LedgerFilter) -> Result<Vec<LedgerEntry>, StoreError> {
        todo!()
    }

    /// The turns an entry is linked to.
    pub fn ledger_turns(&self, channel: &str, id: &str) -> Result<Vec<EventId>, StoreError> {
        todo!()
    }

    /// Searches events and ledger, best hits first.
    pub fn search(&self, search: &Search) -> Result<Vec<Hit>, StoreError> {
        todo!()
    }

    /// Makes everything derived again from the log. It is the same afterwards, unless it was damaged.
    pub fn rebuild(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// Checks everything that can be checked, and changes nothing.
    pub fn doctor(&self) -> Result<DoctorReport, StoreError> {
        todo!()
    }

    /// Copies the store to a new file while it is in use.
    pub fn backup(&self, to: &Path, progress: &mut dyn FnMut(BackupProgress)) -> Result<(), StoreError> {
        todo!()
    }

    /// Removes a session for good, except what forks in other sessions share with it.
    pub fn erase(&self, session: SessionId, now: Time) -> Result<Erased, StoreError> {
        todo!()
    }

    /// Overwrites and releases whatever erased rows left in the files.
    pub fn scrub(&self) -> Result<Scrubbed, StoreError> {
        todo!()
    }

    /// What was done to the store as a whole, oldest first.
    pub fn audit(&self) -> Result<Vec<AuditLine>, StoreError> {
        todo!()
    }
}
