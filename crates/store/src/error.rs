//! Errors of a store, in words that name the action and its remedy.

use std::{fmt, io, path::PathBuf, time::Duration};

use epitome_core::{Digest, EventId, Seq, SessionId, ThreadId, id::JobId};

use crate::{location::StoreLocation, thread_head::ThreadHead};

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Someone appended first.
    #[error("the thread {thread} is at event {}, not at {after}: someone appended first; read on from there and try again", head.seq)]
    Conflict {
        /// The thread.
        thread: ThreadId,
        /// Head that the caller expected.
        after: Seq,
        /// Present head.
        head: ThreadHead,
    },
    /// Someone made a call first.
    #[error(
        "the thread {thread} shows {made} calls, not {calls}: someone made one first; read what was decided for it and try again"
    )]
    CallsConflict {
        /// The thread.
        thread: ThreadId,
        /// Number of calls that the caller knew.
        calls: u64,
        /// Present number of calls.
        made: u64,
    },
    /// There is no thread with this id.
    #[error("there is no thread {0}")]
    UnknownThread(ThreadId),
    /// The id is taken by a thread that begins otherwise.
    #[error("the thread {0} exists already and begins otherwise; choose another id")]
    ThreadDiffers(ThreadId),
    /// A fork point the parent does not have.
    #[error("cannot fork the thread {of} at event {at}: it ends at event {head}")]
    ForkBeyondHead {
        /// The parent.
        of: ThreadId,
        /// The fork point asked for.
        at: Seq,
        /// The parent's last event.
        head: Seq,
    },
    /// There is no event with this id.
    #[error("there is no event {0}")]
    UnknownEvent(EventId),
    /// There is no turn with this id.
    #[error("no turn has the id {0}: a turn is named by its first assistant event, or by its compaction")]
    UnknownTurn(EventId),
    /// There is no session by that name.
    #[error("no session is called `{asked}`{}", suggestions(nearest))]
    UnknownSession {
        /// Name that was asked for.
        asked: String,
        /// The sessions with the nearest names.
        nearest: Vec<SessionCandidate>,
    },
    /// Several by that name.
    #[error("`{asked}` could mean {} sessions: {}; give more of the id", candidates.len(), listed(candidates))]
    AmbiguousSession {
        /// Name that was asked for.
        asked: String,
        /// Sessions that it could mean.
        candidates: Vec<SessionCandidate>,
    },
    /// A head must be one of the session's own threads.
    #[error("the thread {thread} is not one of the session {session}, so it cannot be its head")]
    ThreadOfOtherSession {
        /// The thread.
        thread: ThreadId,
        /// The session.
        session: SessionId,
    },
    /// A session belongs to the principal it was made for, and no view shows another principal's messages.
    #[error("the session {0} belongs to another principal; choose a session of the same one")]
    OtherPrincipal(SessionId),
    /// The id is taken by an entry that says something else.
    #[error(
        "the ledger has an entry `{id}` in `{channel}` that says something else; entries are never changed, add a new one"
    )]
    LedgerDiffers {
        /// The channel.
        channel: String,
        /// The entry's id there.
        id: String,
    },
    /// A ledger entry without a text or a channel.
    #[error("a ledger entry needs a {missing}; it is empty")]
    EmptyLedgerEntry {
        /// Field that is missing.
        missing: &'static str,
    },
    /// There is no such ledger entry.
    #[error("the ledger has no entry `{id}` in `{channel}`")]
    UnknownLedgerEntry {
        /// The channel.
        channel: String,
        /// The entry's id there.
        id: String,
    },
    /// The thread has such a job.
    #[error("the job {0} does that already; it is not made twice")]
    JobExists(JobId),
    /// Only a job that is ready can be adopted.
    #[error("the job {0} is not ready, so nothing of it can be adopted; look at its state again")]
    JobNotReady(JobId),
    /// There is no job with this id.
    #[error("there is no job {0}")]
    UnknownJob(JobId),
    /// There is no call with this number.
    #[error("the thread {thread} shows no call {number}")]
    UnknownCall {
        /// The thread.
        thread: ThreadId,
        /// The number asked for.
        number: u64,
    },
    /// A call names a content that is not stored.
    #[error("there is no content {0}; store it in the same commit")]
    UnknownContent(Digest),
    /// A text that does not match its hash.
    #[error("a text was given as the content {hash}, but its hash is {found}")]
    ContentDiffers {
        /// The hash it was given under.
        hash: Digest,
        /// The hash it has.
        found: Digest,
    },
    /// A text that has to be JSON.
    #[error("the {what} is not JSON: {source}")]
    NotJson {
        /// Kind of value that was read.
        what: &'static str,
        /// Reason why it cannot be read.
        source: serde_json::Error,
    },
    /// A record that does not fit the thread it was written to.
    #[error("the {what} does not fit the thread {thread}: {why}")]
    Misplaced {
        /// The record.
        what: &'static str,
        /// The thread.
        thread: ThreadId,
        /// Reason why it does not fit.
        why: String,
    },
    /// A URL where a file is expected. It is not repeated: a password may stand in it.
    #[error(
        "the database is a file, and this is a URL ({scheme}:): this build keeps its log in SQLite and speaks to no other \
         database; give the path of a file such as /var/lib/epitome.db, or ./{scheme}:… if a file is really called so"
    )]
    Url {
        /// Scheme that it begins with.
        scheme: String,
    },
    /// Another connection holds the lock.
    #[error("{doing}: {location} is locked by another process, waited {}; wait for it to finish, or stop it", seconds(*waited))]
    Locked {
        /// Action that failed.
        doing: &'static str,
        /// The database.
        location: StoreLocation,
        /// Time that was waited.
        waited: Duration,
    },
    /// The right to write is missing.
    #[error("{doing}: {location} cannot be written; check the permissions of the file and of its directory")]
    ReadOnly {
        /// Action that failed.
        doing: &'static str,
        /// The database.
        location: StoreLocation,
    },
    /// The disk is full.
    #[error("{doing}: no space left for {location}; nothing was changed; free some space and try again")]
    DiskFull {
        /// Action that failed.
        doing: &'static str,
        /// The database.
        location: StoreLocation,
    },
    /// Damaged pages, or rows that no build can have written.
    #[error("{doing}: {location} is damaged ({detail}); {}", remedy(doing))]
    Corrupt {
        /// Action that failed.
        doing: &'static str,
        /// The database.
        location: StoreLocation,
        /// Description of the damage.
        detail: String,
    },
    /// Something else, under the name of the database.
    #[error("{location} is not a database: {detail}")]
    NotADatabase {
        /// The database.
        location: StoreLocation,
        /// Apparent content of the file.
        detail: String,
    },
    /// A database of another program.
    #[error("{location} is a database of another program, not an Epitome store; give another path")]
    ForeignDatabase {
        /// The database.
        location: StoreLocation,
    },
    /// Written by a newer Epitome.
    #[error(
        "{location} has schema version {found}, this Epitome knows up to {known}; nothing was touched; upgrade Epitome"
    )]
    NewerSchema {
        /// The database.
        location: StoreLocation,
        /// Its version.
        found: i64,
        /// The newest version this build knows.
        known: i64,
    },
    /// Beyond the limits of a database row.
    #[error("{doing}: an event is larger than a row of the database can be; nothing was changed")]
    TooLarge {
        /// Action that failed.
        doing: &'static str,
    },
    /// A file that must not be overwritten.
    #[error("{} exists already; it is not overwritten, give another path", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// Action that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Reason given by the system.
        source: io::Error,
    },
    /// The thread that writes is gone.
    #[error("the writer of {location} stopped unexpectedly; nothing more is written; open the store again")]
    WriterGone {
        /// The database.
        location: StoreLocation,
    },
    /// Anything else that the database reports.
    #[error("{doing}: {source}")]
    Database {
        /// Action that failed.
        doing: &'static str,
        /// Error of the other part.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Returns true if another writer was first: the write was based on a state that has changed since.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Conflict { .. } | Self::CallsConflict { .. } | Self::JobNotReady(_) | Self::JobExists(_)
        )
    }
}

/// A session that may be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCandidate {
    /// Its id.
    pub id: SessionId,
    /// Its title.
    pub title: String,
}

impl fmt::Display for SessionCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.title.as_str() {
            "" => write!(f, "{}", self.id),
            title => write!(f, "`{title}` ({})", self.id),
        }
    }
}

fn suggestions(nearest: &[SessionCandidate]) -> String {
    if nearest.is_empty() {
        "; `epitome sessions` lists them".to_owned()
    } else {
        format!("; the nearest: {}", listed(nearest))
    }
}

/// Name of the action while a store is opened.
pub(crate) const OPENING_ACTION: &str = "opening the store";

/// Name of the action while a store is examined.
pub(crate) const CHECKING_ACTION: &str = "checking";

/// Advice about damage. The doctor is of no use if it is the action itself, or if the file cannot be opened.
fn remedy(doing: &str) -> &'static str {
    match doing {
        OPENING_ACTION | CHECKING_ACTION => "restore a backup",
        _ => "run `epitome doctor` to see where, restore a backup if the log is affected",
    }
}

fn listed(candidates: &[SessionCandidate]) -> String {
    const MAX_SHOWN_CANDIDATES: usize = 8;
    let mut names: Vec<String> =
        candidates.iter().take(MAX_SHOWN_CANDIDATES).map(ToString::to_string).collect();
    if candidates.len() > MAX_SHOWN_CANDIDATES {
        names.push(format!("and {} more", candidates.len() - MAX_SHOWN_CANDIDATES));
    }
    names.join(", ")
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
