//! Events in the life of a summary, reported as they happen.
//!
//! The same is in the log and in the records beside it; this is for a program that needs to know at once: a recorder,
//! an index, a status line. A listener that is too slow misses the oldest; it never holds up the session.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use epitome_core::{
    Seq, SessionId, ThreadId, Tokens,
    event::{Compaction, CompactionTrigger},
    id::JobId,
    meter::Meter,
};
use serde::Serialize;

use super::engine::BUILT_IN_NAME;

/// An event in the life of a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum LifecycleEvent {
    /// A summariser began to work.
    Started {
        /// The thread.
        thread: ThreadId,
        /// The job; none if the built-in summariser did it at once.
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Trigger.
        trigger: CompactionTrigger,
        /// Name of the summariser.
        by: String,
        /// First event the summary will stand for.
        first: Seq,
        /// Last event it will stand for.
        through: Seq,
        /// Tokens that the span costs as it is shown now.
        tokens_before: Tokens,
    },
    /// The summary is there, checked, and waits for the next request.
    Ended {
        /// The thread.
        thread: ThreadId,
        /// The job; none if the built-in summariser did it at once.
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
        /// Name of the summariser.
        by: String,
        /// Tokens that the span cost.
        tokens_before: Tokens,
        /// Tokens that the summary costs.
        tokens_after: Tokens,
    },
    /// An attempt failed. Everything is as it was before.
    Failed {
        /// The thread.
        thread: ThreadId,
        /// The job.
        job: JobId,
        /// Name of the summariser that failed.
        by: String,
        /// Step that failed.
        fault: AttemptFault,
        /// Error.
        error: String,
        /// Next step.
        next: NextStep,
    },
    /// A compaction is in force from now on.
    Adopted {
        /// The thread.
        thread: ThreadId,
        /// The compaction.
        compaction: Seq,
        /// Name of the summariser that wrote it.
        by: String,
        /// Trigger.
        trigger: CompactionTrigger,
        /// The context's size before.
        tokens_before: Option<Tokens>,
        /// The context's size after.
        tokens_after: Option<Tokens>,
    },
    /// A compaction was undone.
    Reverted {
        /// The thread.
        thread: ThreadId,
        /// The compaction.
        compaction: Seq,
    },
    /// A compaction that was undone is in force again.
    Restored {
        /// The thread.
        thread: ThreadId,
        /// The compaction.
        compaction: Seq,
    },
    /// The memory files could not be written. The session goes on; they are tried again with the next request.
    NotesFailed {
        /// The thread.
        thread: ThreadId,
        /// Error.
        error: String,
    },
    /// The context fills again as soon as it is compacted: for a while only necessary compactions are made, and they
    /// go further down.
    Thrashing {
        /// The thread.
        thread: ThreadId,
        /// Largest number of calls between the last compactions.
        calls: u64,
    },
}

/// Step of an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptFault {
    /// The summariser gave no draft.
    NoDraft,
    /// It gave one, and the gate rejected it.
    Rejected,
    /// No summariser was asked: the job could not be worked on.
    Unasked,
}

/// Next step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NextStep {
    /// The same is tried again, after a while.
    Retry,
    /// The built-in summariser takes over.
    BuiltIn,
    /// The job is given up.
    Nothing,
}

/// Callback before a compaction starts and after it ended, for indexing, for extracting memories, for checks.
///
/// It runs on the task that summarises: a slow one delays the summary, never a request.
pub type LifecycleCallback = Arc<dyn Fn(&LifecycleEvent) + Send + Sync>;

/// Listeners to these events.
#[derive(Clone)]
pub(crate) struct LifecycleListeners {
    stream: tokio::sync::broadcast::Sender<LifecycleEvent>,
    pub(crate) before: Option<LifecycleCallback>,
    pub(crate) after: Option<LifecycleCallback>,
}

/// Number of events a slow listener may be behind.
const BACKLOG: usize = 256;

impl LifecycleListeners {
    pub(crate) fn new(before: Option<LifecycleCallback>, after: Option<LifecycleCallback>) -> Self {
        Self { stream: tokio::sync::broadcast::Sender::new(BACKLOG), before, after }
    }

    pub(crate) fn subscribe(&self) -> tokio::sync::broadcast::Receiver<LifecycleEvent> {
        self.stream.subscribe()
    }

    /// Reports a compaction that the built-in summariser makes at once; its span begins at `first`.
    pub(crate) fn built_in(
        &self,
        (session, thread): (SessionId, ThreadId),
        compaction: &Compaction,
        first: Seq,
        meter: &Meter,
    ) {
        let by = BUILT_IN_NAME.to_owned();
        let (trigger, through) = (compaction.trigger, compaction.through);
        let tokens_after = meter.text(compaction.summary.text());
        let saved = compaction.tokens_before.zip(compaction.tokens_after);
        // The rest of the context is the same before and after.
        let tokens_before = saved.map_or(Tokens(0), |(before, after)| before.less(after)) + tokens_after;
        let started = LifecycleEvent::Started {
            thread,
            job: None,
            trigger,
            by: by.clone(),
            first,
            through,
            tokens_before,
        };
        self.report(session, started);
        self.report(session, LifecycleEvent::Ended { thread, job: None, by, tokens_before, tokens_after });
    }

    /// Reports a compaction that took effect at a place of a thread.
    pub(crate) fn adopted(
        &self,
        (session, thread): (SessionId, ThreadId),
        place: Seq,
        by: String,
        made: &Compaction,
    ) {
        let Compaction { trigger, tokens_before, tokens_after, .. } = *made;
        self.report(
            session,
            LifecycleEvent::Adopted { thread, compaction: place, by, trigger, tokens_before, tokens_after },
        );
    }

    /// Reports an event of a session.
    pub(crate) fn report(&self, session: SessionId, happened: LifecycleEvent) {
        let callback = match &happened {
            LifecycleEvent::Started { .. } => self.before.as_ref(),
            LifecycleEvent::Ended { .. } => self.after.as_ref(),
            _ => None,
        };
        // A callback that panics is its author's fault, and no reason to stop working.
        if let Some(callback) = callback
            && catch_unwind(AssertUnwindSafe(|| callback(&happened))).is_err()
        {
            tracing::error!(target: "epitome::compaction", "a callback panicked");
        }
        match &happened {
            // No caller waits for a summary, so nothing but this line tells an operator that none comes.
            LifecycleEvent::Failed { .. } | LifecycleEvent::NotesFailed { .. } => {
                tracing::warn!(target: "epitome::compaction", %session, happened = %happened);
            }
            _ => tracing::info!(target: "epitome::compaction", %session, happened = %happened),
        }
        // Sending fails if there is no listener.
        let _ = self.stream.send(happened);
    }
}

impl fmt::Debug for LifecycleListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("listening", &self.stream.receiver_count()).finish_non_exhaustive()
    }
}

impl fmt::Display for LifecycleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { by, first, through, tokens_before, .. } => {
                write!(f, "{by} summarises events {first}-{through}, {tokens_before} tokens")
            }
            Self::Ended { by, tokens_before, tokens_after, .. } => {
                write!(f, "the summary by {by} is ready: {tokens_before} tokens in {tokens_after}")
            }
            Self::Failed { by, error, next, .. } => {
                let next = match next {
                    NextStep::Retry => "it is tried again",
                    NextStep::BuiltIn => "the built-in summariser takes over",
                    NextStep::Nothing => "it is given up",
                };
                write!(f, "the summary by {by} failed: {error}; {next}")
            }
            Self::Adopted { compaction, by, tokens_before, tokens_after, .. } => {
                write!(f, "compaction {compaction} by {by} is in force")?;
                match (tokens_before, tokens_after) {
                    (Some(before), Some(after)) => write!(f, ": {before} tokens became {after}"),
                    _ => Ok(()),
                }
            }
            Self::Reverted { compaction, .. } => write!(f, "compaction {compaction} was undone"),
            Self::Restored { compaction, .. } => write!(f, "compaction {compaction} is in force again"),
            Self::NotesFailed { error, .. } => f.write_str(error),
            Self::Thrashing { calls, .. } => write!(
                f,
                "the context is full again at most {calls} calls after each compaction: for a while only what must \
                 is compacted, and further down; let results be smaller, or the window larger"
            ),
        }
    }
}
