//! The log as its users see it: threads are opened, appended to and read. There is no other verb, so that no
//! implementation has to refuse one.

use epitome_core::{
    Digest, Event, EventId, LoggedEvent, Seq, SessionId, ThreadId, id::CallId, seq_set::SeqSet,
};

use crate::{error::StoreError, thread_head::ThreadHead};

/// Keeps threads of events, for ever and in order.
///
/// An implementor must keep true, at any time and for any number of callers and processes:
/// - an append is all or nothing, and durable when it returns, as far as the implementation can be durable;
/// - within a thread's view events are numbered 1, 2, 3 … without a gap, and reading the same place again
///   always gives the same event;
/// - of two appends after the same event one is refused with [`StoreError::Conflict`];
/// - a fork reads as a copy of its parent up to the fork point, regardless of later changes to the parent.
///
/// The suite in `conformance` tries all of it.
///
/// ```
/// use epitome_core::{Event, Fact, ContentPart, Seq, SessionId, ThreadId};
/// use epitome_store::{NewThread, StoreOptions, ThreadStart, temporary_store};
///
/// let log = temporary_store(StoreOptions::default())?;
/// let (session, thread) = (SessionId::derived(&["demo"]), ThreadId::derived(&["demo"]));
/// log.open(&NewThread { id: thread, session, name: "main".into(), key: None, start: ThreadStart::Root })?;
/// let said = Event::from_fact(Fact::UserSaid { parts: vec![ContentPart::text("hello")] }, None);
/// let head = log.append(thread, Seq::START, vec![said])?;
///
/// let fork = ThreadId::derived(&["fork"]);
/// let start = ThreadStart::Fork { of: thread, at: head.seq };
/// log.open(&NewThread { id: fork, session, name: "fork".into(), key: None, start })?;
/// assert_eq!(log.read(fork, Seq(1), 10)?, log.read(thread, Seq(1), 10)?);
/// # Ok::<(), epitome_store::StoreError>(())
/// ```
pub trait EventLog: Send + Sync {
    /// Makes a thread. Making the same thread again is no error; making a different one under its id is.
    fn open(&self, thread: &NewThread) -> Result<(), StoreError>;

    /// Appends `events` if the thread's head is `after`, all or none. An empty list only checks the head.
    fn append(&self, thread: ThreadId, after: Seq, events: Vec<Event>) -> Result<ThreadHead, StoreError>;

    /// The events of the thread's view, its parents' shared part included, from `from` on, oldest first, at most
    /// `limit`.
    fn read(&self, thread: ThreadId, from: Seq, limit: usize) -> Result<Vec<LoggedEvent>, StoreError>;

    /// End of the thread.
    fn head(&self, thread: ThreadId) -> Result<ThreadHead, StoreError>;

    /// One event.
    fn event(&self, id: EventId) -> Result<LoggedEvent, StoreError>;

    /// The events of the thread's view that are of one of `kinds` (as [`Fact::kind`](epitome_core::Fact::kind)
    /// names them), oldest first.
    fn events_of_kinds(&self, thread: ThreadId, kinds: &[&str]) -> Result<Vec<LoggedEvent>, StoreError>;

    /// A thread's view from `from` on, without these events, and the events of these kinds wherever they are; oldest first.
    fn read_window(
        &self,
        thread: ThreadId,
        from: Seq,
        without: &SeqSet,
        kinds: &[&str],
    ) -> Result<Vec<LoggedEvent>, StoreError>;

    /// The newest compaction of the thread's view that holds: one that is not undone, or was brought back.
    fn compaction_in_force(&self, thread: ThreadId) -> Result<Option<LoggedEvent>, StoreError>;

    /// A medium's bytes, if any event brought it inline and it was large enough to be stored apart.
    fn media(&self, hash: Digest) -> Result<Option<Vec<u8>>, StoreError>;
}

/// A thread to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewThread {
    /// Its id.
    pub id: ThreadId,
    /// The session it belongs to.
    pub session: SessionId,
    /// Name for people: "main", a subagent's name.
    pub name: String,
    /// The id the client itself gives it, where it does.
    pub key: Option<String>,
    /// Beginning of the thread.
    pub start: ThreadStart,
}

/// Beginning of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadStart {
    /// Empty.
    Root,
    /// As a copy of another thread up to an event, in one row.
    Fork {
        /// The thread it continues.
        of: ThreadId,
        /// The last event they share; [`Seq::START`] if none.
        at: Seq,
    },
    /// Empty, on behalf of another thread: a subagent.
    Spawned {
        /// The event that made the call, where it is known.
        by: Option<EventId>,
        /// The call it answers, where it is known.
        call: Option<CallId>,
    },
}
