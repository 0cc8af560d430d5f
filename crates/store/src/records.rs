//! What a store tells about itself: plain rows, the same whichever database they come from.

mod calls;
mod commit;
mod exchanges;
mod jobs;

use epitome_core::{EventId, Seq, SessionId, ThreadId, Tokens, event::Time, id::ModelName, turn::Turn};
use serde::{Deserialize, Serialize};

pub use self::{
    calls::{CallRow, Content, NewCall, NewOutcome, Outcome},
    commit::{BecomesHead, Commit, Committed, Opens, Record},
    exchanges::{ExchangeRow, NewExchange},
    jobs::{Attempt, AttemptRow, AttemptsOf, JobId, JobRow, JobState, NewJob, NewSummary, Next, SummaryRow},
};
use crate::log::{Head, Start};

/// Whether something was made now or was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It is new.
    New,
    /// It was there, and is unchanged.
    Already,
}

/// A session to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The id the agent itself gives it.
    pub key: Option<String>,
    /// What a person calls it; empty if nobody has named it.
    pub title: String,
    /// Where it comes from: an agent's name, "gateway", a file.
    pub source: String,
    /// When it was begun.
    pub created: Option<Time>,
    /// Whose it is, for ever; empty for the one that everybody is without tokens.
    pub principal: String,
}

impl NewSession {
    /// A session with a title and nothing else.
    pub fn titled(id: SessionId, title: impl Into<String>) -> Self {
        Self {
            id,
            key: None,
            title: title.into(),
            source: String::new(),
            created: None,
            principal: String::new(),
        }
    }
}

/// A fork into a session of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFork {
    /// The thread to fork.
    pub of: ThreadId,
    /// The last event to share.
    pub at: Seq,
    /// The session to make for it, of the same principal.
    pub session: NewSession,
    /// The thread to make; it becomes the session's head.
    pub thread: ThreadId,
    /// The thread's name.
    pub name: String,
}

/// A session, counted. The counts are of the events that its threads show, each event once: their own, and those
/// of other sessions which they share because they were forked there. So sums over several sessions count what two
/// of them share twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// What a person calls it.
    pub title: String,
    /// The id the agent itself gives it.
    pub key: Option<String>,
    /// Where it comes from.
    pub source: String,
    /// Whose it is.
    pub principal: String,
    /// When it was begun.
    pub created: Option<Time>,
    /// The thread it goes on with.
    pub head: Option<ThreadId>,
    /// Its labels, sorted.
    pub labels: Vec<String>,
    /// How many threads it has.
    pub threads: u64,
    /// All events.
    pub events: u64,
    /// Events that are part of the history a client sends.
    pub messages: u64,
    /// Turns, compactions included.
    pub turns: u64,
    /// Loops begun.
    pub loops: u64,
    /// Tool calls made.
    pub tool_calls: u64,
    /// Compactions.
    pub compactions: u64,
    /// Tokens of all events by the store's tokenizer, if it has one.
    pub tokens: Option<Tokens>,
    /// The earliest time of an event.
    pub first: Option<Time>,
    /// The latest time of an event.
    pub last: Option<Time>,
}

/// What a session is called, and where it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName {
    /// The id the agent itself gives it.
    pub key: Option<String>,
    /// What a person calls it.
    pub title: String,
    /// The thread it goes on with.
    pub head: Option<ThreadId>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// Its id.
    pub id: ThreadId,
    /// The session it belongs to.
    pub session: SessionId,
    /// What a person reads.
    pub name: String,
    /// The id the client itself gives it.
    pub key: Option<String>,
    /// How it begins.
    pub start: Start,
    /// Where it ends.
    pub head: Head,
}

/// A turn as a thread sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// The turn.
    pub turn: Turn,
    /// The session that owns its first assistant event.
    pub session: SessionId,
    /// Whether any turn, of any thread, follows it.
    pub has_children: bool,
    /// Tokens of its events by the store's tokenizer, if it has one.
    pub tokens: Option<Tokens>,
    /// For a compaction: the last turn its summary covers.
    pub summarized_through: Option<EventId>,
    /// For a compaction: the first turn kept verbatim.
    pub first_kept: Option<EventId>,
}

impl TurnRow {
    /// The model that answered.
    pub fn model(&self) -> Option<&ModelName> {
        self.turn.model.as_ref()
    }
}

/// Something that happened outside any session: a channel's message. Never compacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Its id in its channel.
    pub id: String,
    /// Where it happened.
    pub channel: String,
    /// When it happened.
    pub time: Time,
    /// Who did it.
    pub author: String,
    /// What it says.
    pub text: String,
    /// The JSON it came from.
    pub raw: String,
}

/// Which ledger entries to list. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    /// Only of this channel.
    pub channel: Option<String>,
    /// Only at or after this time.
    pub since: Option<Time>,
    /// Only before this time.
    pub before: Option<Time>,
    /// Only those linked to this turn.
    pub linked: Option<EventId>,
    /// At most so many, the newest.
    pub limit: Option<usize>,
}

/// What to search for, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Words, `"phrases in quotes"` and `prefix*`; all must occur. Anything else is only separation.
    pub words: String,
    /// Where to look.
    pub scope: Scope,
    /// At most so many hits.
    pub limit: usize,
}

impl Search {
    /// Searches everything, for twenty hits.
    pub fn everywhere(words: impl Into<String>) -> Self {
        Self { words: words.into(), scope: Scope::Everything, limit: 20 }
    }
}

/// Where to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all sessions and in the ledger.
    Everything,
    /// In all sessions.
    Sessions,
    /// In what one session's threads show, the past they share with other sessions included.
    Session(SessionId),
    /// In a thread's view, its parents' shared part included.
    Thread(ThreadId),
    /// In the ledger.
    Ledger,
}

/// A place where the words were found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Where.
    pub found: Found,
    /// When it happened.
    pub time: Option<Time>,
    /// How well it fits: higher is better.
    pub score: f64,
    /// The text around the words.
    pub snippet: Vec<Excerpt>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An event.
    Event {
        /// Its id.
        id: EventId,
        /// Its session.
        session: SessionId,
        /// Its kind, as [`epitome_core::Fact::kind`] names it.
        kind: String,
    },
    /// A ledger entry.
    Ledger {
        /// Its channel.
        channel: String,
        /// Its id there.
        id: String,
    },
}

/// A piece of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Excerpt {
    /// Text around a match; `…` where it was cut.
    Plain(String),
    /// A match.
    Match(String),
}

/// What [`doctor`](crate::Sqlite::doctor) found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// Every check, in order.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// Whether every check passed.
    pub fn is_healthy(&self) -> bool {
        self.checks.iter().all(|check| check.problems.is_empty())
    }

    /// All problems of all checks.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().flat_map(|check| check.problems.iter().map(String::as_str))
    }
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// How much of it: "12 events in 3 threads".
    pub covered: String,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<String>,
}

/// What an erasure removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erased {
    /// Threads removed.
    pub threads: u64,
    /// Events removed of which no copy is left.
    pub events: u64,
    /// Media removed.
    pub media: u64,
    /// Events that live on as copies, because forks in other sessions share them.
    pub shared: u64,
    /// Whether the bytes are gone from the files too.
    pub scrubbed: Scrubbed,
}

/// Whether erased bytes are gone from the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scrubbed {
    /// They are.
    Gone,
    /// The rows are gone, but their bytes may still be in the files: another process reads old pages, or the disk
    /// has no room to rewrite them. Run [`scrub`](crate::Sqlite::scrub) or [`rebuild`](crate::Sqlite::rebuild) later.
    Waiting,
}

/// How far a backup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Pages copied.
    pub done: u64,
    /// Pages in all.
    pub total: u64,
}

/// A line of the audit: that something was done, never what it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// When.
    pub time: Time,
    /// What.
    pub what: String,
}
