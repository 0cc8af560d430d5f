//! Questions about recorded sessions, as people ask them on the command line, agents over MCP, and hooks before a call.
//!
//! Whoever asks has a [`SessionAccess`]: the principal whose sessions there are for it, and the project it works in. What
//! it may not see does not exist for it, so an answer never tells that another principal has something.

mod failed_attempts;
mod project_folder;
mod reading;

use std::sync::Arc;

use epitome_core::{SessionId, ThreadId, event::Pin, projection::EventLine};
use epitome_store::{
    Store, StoreError,
    records::{SessionFilter, SessionRow, ThreadRow},
};

pub use self::{
    failed_attempts::{AttemptOutcome, FailedAttempt, FailureSubject, failed_attempts},
    project_folder::label_projects,
    reading::{ModelAndFormat, SessionLine, events, session_line},
};
use crate::{import::project_label, lineage, session::SessionError};

/// Sessions that somebody may ask about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionAccess {
    /// Principal whose sessions they are; `None` for a person who has the whole database.
    pub principal: Option<String>,
    /// Folder of the project in which whoever asks works.
    pub project: Option<String>,
}

/// How far a question reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryScope {
    /// To the sessions of the project, if one is known.
    #[default]
    Project,
    /// To all sessions of the principal.
    All,
}

/// Reason why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The text is no handle.
    #[error("`{handle}` is no handle: one looks like 1b2c3d4e:57")]
    NoHandle {
        /// Part of the text.
        handle: String,
    },
    /// No thread has the name in a handle.
    #[error(
        "`{handle}` leads nowhere: no thread of any session here is called {name}; is it in another database (--db)?"
    )]
    UnknownHandle {
        /// Part of the handle.
        handle: String,
        /// Name of the thread in it.
        name: String,
    },
    /// Several threads have the name in a handle.
    #[error("`{name}` could mean {} threads: write one of them in full: {}", threads.len(), threads.join(", "))]
    AmbiguousHandle {
        /// Name of the thread in it.
        name: String,
        /// Ids of the threads.
        threads: Vec<String>,
    },
    /// Nothing is recorded where the question reaches.
    #[error(
        "no session is recorded {place} yet: import one (epitome import FILE), or record it with epitome serve"
    )]
    NoSession {
        /// Name of the place.
        place: String,
    },
    /// The session has no events.
    #[error("the session {0} has no threads yet")]
    NoThread(SessionId),
    /// The log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session could not be read.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl SessionAccess {
    /// The filter of a scope.
    pub fn filter(&self, scope: QueryScope) -> SessionFilter {
        let project = self.project.as_deref().filter(|_| scope == QueryScope::Project);
        SessionFilter { principal: self.principal.clone(), label: project.map(project_label) }
    }

    /// The named session, or the one that was active last in the project.
    pub fn session(&self, store: &dyn Store, name: Option<&str>) -> Result<SessionRow, QueryError> {
        if let Some(name) = name {
            return Ok(self.named(store, name)?);
        }
        let latest = store.latest_sessions(&self.filter(QueryScope::Project), 1)?.pop();
        latest.ok_or_else(|| QueryError::NoSession {
            place: self.project.as_ref().map_or_else(|| "here".to_owned(), |folder| format!("for {folder}")),
        })
    }

    fn named(&self, store: &dyn Store, name: &str) -> Result<SessionRow, StoreError> {
        let Some(principal) = &self.principal else { return store.find_session(name) };
        let unknown = || StoreError::UnknownSession { asked: name.to_owned(), nearest: Vec::new() };
        match store.find_session(name) {
            Ok(row) if row.principal == *principal => Ok(row),
            // The names of others' sessions are not told.
            Ok(_) | Err(StoreError::UnknownSession { .. } | StoreError::AmbiguousSession { .. }) => {
                Err(unknown())
            }
            Err(error) => Err(error),
        }
    }

    /// The session and thread of a handle, as stubs and summaries write it.
    pub fn handle_owner(
        &self,
        store: &dyn Store,
        handle: &str,
    ) -> Result<(SessionRow, ThreadRow), QueryError> {
        let trimmed = handle.trim().trim_start_matches("recall ").trim_start();
        let Some((name, _)) = trimmed.split_once(':') else {
            return Err(QueryError::NoHandle { handle: excerpt(handle, 80) });
        };
        let mut meant = Vec::new();
        for thread in store.abbreviated_threads(name)? {
            let session = store.session(thread.session)?;
            if self.principal.as_ref().is_none_or(|principal| *principal == session.principal) {
                meant.push((session, thread));
            }
        }
        match meant.len() {
            1 => Ok(meant.remove(0)),
            0 => Err(QueryError::UnknownHandle { handle: excerpt(handle, 80), name: excerpt(name, 40) }),
            _ => {
                let threads = meant.iter().map(|(_, thread)| thread.id.to_string()).collect();
                Err(QueryError::AmbiguousHandle { name: name.to_owned(), threads })
            }
        }
    }
}

/// The thread that a session goes on with.
pub fn head_thread(store: &dyn Store, session: &SessionRow) -> Result<ThreadRow, QueryError> {
    if let Some(head) = session.head {
        return Ok(store.thread(head)?);
    }
    let mut threads = store.threads(session.id)?;
    if threads.is_empty() { Err(QueryError::NoThread(session.id)) } else { Ok(threads.remove(0)) }
}

/// The pins of a thread.
pub fn pins(store: &dyn Store, thread: ThreadId) -> Result<Vec<Pin>, StoreError> {
    let mut line = EventLine::default();
    for event in store.events_of_kinds(thread, &["pinned", "unpinned"])? {
        line.push_uncounted(Arc::new(event));
    }
    Ok(lineage::pins(&line))
}

/// The beginning of a text, in one line.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
        if words.chars().count() > most {
            let mut cut: String = words.chars().take(most).collect();
            cut.push('…');
            return cut;
        }
    }
    words
}
