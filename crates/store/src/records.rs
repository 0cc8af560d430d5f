//! Plain rows that a store returns, the same for every database.

mod calls;
mod commit;
mod exchanges;
mod filters;
mod jobs;

use epitome_core::{EventId, Seq, SessionId, ThreadId, Tokens, event::Timestamp, id::ModelName, turn::Turn};
use serde::{Deserialize, Serialize};

pub use self::{
    calls::{CallRow, CountedCall, HashedText, NewCall, NewCallOutcome, OutcomeRow, SizeRefusal},
    commit::{CommitReceipt, CommitRecord, HeadPromotion, ThreadCommit, ThreadOpening},
    exchanges::{ExchangeRow, NewExchange},
    filters::{SearchFilter, SessionFilter},
    jobs::{
        AttemptFilter, AttemptRow, CompactionSummary, JobAttempt, JobId, JobRow, JobState, NewJob,
        NewSummary, RetryDecision, SummaryRow, SummarySource,
    },
};
use crate::{log::ThreadStart, thread_head::ThreadHead};

/// Outcome of making something that may be there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
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
    /// Name given by a person; empty if there is none.
    pub title: String,
    /// Source of the session: an agent's name, "gateway", a file.
    pub source: String,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// Principal that owns it, for ever; empty for the one that all requests without tokens share.
    pub principal: String,
}

impl NewSession {
    /// A session with a title and no other data.
    pub fn with_title(id: SessionId, title: impl Into<String>) -> Self {
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

/// A session, counted. The counts are of the events that its threads show, each event once: their own, and
/// those of other sessions which they share because they were forked there. So sums over several sessions
/// count shared events twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Name given by a person.
    pub title: String,
    /// The id the agent itself gives it.
    pub key: Option<String>,
    /// Source of the session.
    pub source: String,
    /// Principal that owns it.
    pub principal: String,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// The thread it goes on with.
    pub head: Option<ThreadId>,
    /// Its labels, sorted.
    pub labels: Vec<String>,
    /// Number of threads.
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
    pub first: Option<Timestamp>,
    /// The latest time of an event.
    pub last: Option<Timestamp>,
}

/// Names of a session, and the thread it goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName {
    /// The id the agent itself gives it.
    pub key: Option<String>,
    /// Name given by a person.
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
    /// Name for people.
    pub name: String,
    /// The id the client itself gives it.
    pub key: Option<String>,
    /// Beginning of the thread.
    pub start: ThreadStart,
    /// End of the thread.
    pub head: ThreadHead,
}

/// A turn as a thread sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// The turn.
    pub turn: Turn,
    /// The session that owns its first assistant event.
    pub session: SessionId,
    /// True if any turn, of any thread, follows it.
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
    /// Channel of the event.
    pub channel: String,
    /// Time of the event.
    pub time: Timestamp,
    /// Author of the event.
    pub author: String,
    /// Text of the entry.
    pub text: String,
    /// The JSON it came from.
    pub raw: String,
}

/// Filter for listing ledger entries. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    /// Only of this channel.
    pub channel: Option<String>,
    /// Only at or after this time.
    pub since: Option<Timestamp>,
    /// Only before this time.
    pub before: Option<Timestamp>,
    /// Only those linked to this turn.
    pub linked: Option<EventId>,
    /// At most so many, the newest.
    pub limit: Option<usize>,
}

/// Words to search for, and the scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    /// Words, `"phrases in quotes"` and `prefix*`; all must occur. Anything else is only separation.
    pub words: String,
    /// Scope of the search.
    pub scope: SearchScope,
    /// At most so many hits.
    pub limit: usize,
    /// Filter of the hits.
    pub filter: SearchFilter,
}

impl SearchQuery {
    /// Searches everything, for twenty hits.
    pub fn everything(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            scope: SearchScope::Everything,
            limit: 20,
            filter: SearchFilter::default(),
        }
    }
}

/// Scope of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchScope {
    /// In all sessions and in the ledger.
    Everything,
    /// In all sessions.
    Sessions,
    /// All that one session's threads show, the past they share with other sessions included.
    Session(SessionId),
    /// In a thread's view, its parents' shared part included.
    Thread(ThreadId),
    /// In the ledger.
    Ledger,
}

/// A place where the words were found.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchHit {
    /// Place of the hit.
    pub found: HitLocation,
    /// Time of the event.
    pub time: Option<Timestamp>,
    /// Relevance: higher is better.
    pub score: f64,
    /// The text around the words.
    pub snippet: Vec<SnippetPart>,
}

/// Place of a search hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HitLocation {
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
pub enum SnippetPart {
    /// Text around a match; `…` where it was cut.
    Plain(String),
    /// A match.
    Match(String),
}

/// Findings of [`doctor`](crate::traits::StoreMaintenance::doctor).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// Every check, in order.
    pub checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    /// Returns true if every check passed.
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
pub struct DoctorCheck {
    /// Name of the check.
    pub name: String,
    /// Coverage of the check: "12 events in 3 threads".
    pub covered: String,
    /// Problems; empty if there are none.
    pub problems: Vec<String>,
}

/// Data that an erasure removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasureReport {
    /// Threads removed.
    pub threads: u64,
    /// Events removed of which no copy is left.
    pub events: u64,
    /// Media removed.
    pub media: u64,
    /// Events that live on as copies, because forks in other sessions share them.
    pub shared: u64,
    /// Progress of removing the bytes from the files too.
    pub scrubbed: ScrubState,
}

/// Progress of removing erased bytes from the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// They are.
    Gone,
    /// The rows are gone, but their bytes may still be in the files: another process reads old pages, or the disk
    /// has no room to rewrite them. Run [`scrub`](crate::traits::StoreMaintenance::scrub) or [`rebuild`](crate::traits::StoreMaintenance::rebuild) later.
    Waiting,
}

/// Progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Parts copied: pages, rows.
    pub done: u64,
    /// Parts in all.
    pub total: u64,
}

/// A line of the audit: an action, never the content it was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// Time of the action.
    pub time: Timestamp,
    /// The action.
    pub what: String,
}
