//! Sessions and their threads.

use epitome_core::{SessionId, ThreadId};

use crate::{
    error::StoreError,
    records::{CreateOutcome, NewFork, NewSession, SessionFilter, SessionName, SessionRow, ThreadRow},
    thread_head::ThreadHead,
};

/// Text that means the most recently active session.
pub const LAST_SESSION: &str = "@last";

/// Sessions and their threads.
pub trait SessionStore: Send + Sync {
    /// Makes a session. Making it again only fills in empty fields; its owner never changes.
    fn create_session(&self, session: &NewSession) -> Result<CreateOutcome, StoreError>;

    /// All sessions, the most recently active first.
    fn sessions(&self) -> Result<Vec<SessionRow>, StoreError>;

    /// The most recently active sessions of a filter, at most `limit`. Nothing is counted of the others.
    fn latest_sessions(&self, filter: &SessionFilter, limit: usize) -> Result<Vec<SessionRow>, StoreError>;

    /// One session.
    fn session(&self, id: SessionId) -> Result<SessionRow, StoreError>;

    /// Names of a session and the thread it goes on with, without counting anything.
    fn session_name(&self, session: SessionId) -> Result<SessionName, StoreError>;

    /// The session that `text` means: an id or a beginning of one (four characters or more), a title, an agent's
    /// own id, or a part of a title. Of these the first that fits exactly one session. [`LAST_SESSION`] means the most
    /// recently active one.
    fn find_session(&self, text: &str) -> Result<SessionRow, StoreError>;

    /// Names a session.
    fn set_title(&self, session: SessionId, title: &str) -> Result<(), StoreError>;

    /// Labels a session.
    fn add_label(&self, session: SessionId, label: &str) -> Result<CreateOutcome, StoreError>;

    /// Takes a label off; whether it was there does not matter.
    fn remove_label(&self, session: SessionId, label: &str) -> Result<(), StoreError>;

    /// Chooses the thread a session goes on with.
    fn set_head(&self, session: SessionId, thread: ThreadId) -> Result<(), StoreError>;

    /// Forks a thread into a session of its own, in one step.
    fn fork(&self, fork: &NewFork) -> Result<ThreadHead, StoreError>;

    /// The threads of a session, in the order they were made.
    fn threads(&self, session: SessionId) -> Result<Vec<ThreadRow>, StoreError>;

    /// One thread.
    fn thread(&self, id: ThreadId) -> Result<ThreadRow, StoreError>;

    /// The threads that `name` abbreviates, as handles write it. The short form, in which they are written, goes before the
    /// beginning of an id, which threads made at about the same time share.
    fn abbreviated_threads(&self, name: &str) -> Result<Vec<ThreadRow>, StoreError>;
}
