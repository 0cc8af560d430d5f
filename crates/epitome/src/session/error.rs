//! Errors of a session, with advice.

use epitome_core::{
    context::EventNaming,
    inject::InjectError,
    policy::PolicyError,
    profile::UnknownModelError,
    summary::{PinError, compaction::CompactionError},
};
use epitome_store::StoreError;
use epitome_wire::WireError;

use crate::{compact::CompactError, memory_files::MemoryFileError};

/// Reason a session could not do something. Nothing was changed, unless the error says so.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The log could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No request could be made.
    #[error(transparent)]
    Request(#[from] CompactError),
    /// JSON in a provider's format could not be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The model is not known, and no window was given for it.
    #[error(transparent)]
    Model(#[from] UnknownModelError),
    /// The policy is not known, or wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A hook failed.
    #[error(transparent)]
    Hook(#[from] InjectError),
    /// The event or text cannot be pinned.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// There is nothing to compact.
    #[error(transparent)]
    Nothing(#[from] CompactionError),
    /// There is nothing to undo or redo.
    #[error("{0}")]
    Lineage(String),
    /// A handle leads nowhere.
    #[error("`{handle}` leads to nothing in this session: a handle looks like `{}`", example(*.names))]
    Handle {
        /// The handle.
        handle: String,
        /// Form in which handles are written here.
        names: EventNaming,
    },
    /// An answer was reported for a request that was never made.
    #[error("an answer was reported before any request was made: ask for the next request first")]
    NoCall,
    /// The answer broke off. What came of it is in the log, beside the history: the model can be asked again.
    #[error("the answer broke off after {} characters: ask for the next request and send that", text.chars().count())]
    AnswerCut {
        /// Text that came before.
        text: String,
    },
    /// Other writers append to the same thread faster than a request can be made of it.
    #[error("others append to this session faster than a request can be made of it; try again, or fork it")]
    Busy,
    /// Every request made from a client's history would be refused by its provider.
    #[error("no request can be made of this history that its provider would take")]
    Illegal,
    /// A past call does not come out as it was sent.
    #[error("call {call} is rendered to {found} and was sent as {sent}: {why}")]
    NotReproduced {
        /// The call.
        call: u64,
        /// The hash of what was rendered.
        found: String,
        /// The hash of what was sent.
        sent: String,
        /// Possible cause.
        why: &'static str,
    },
    /// A record beside the log cannot be read.
    #[error("the {what} recorded for call {call} cannot be read: {source}; run `epitome doctor`")]
    Record {
        /// Kind of the record.
        what: &'static str,
        /// Call that it belongs to.
        call: u64,
        /// Error in reading it.
        source: serde_json::Error,
    },
    /// A file beside the session could not be written.
    #[error(transparent)]
    Memory(#[from] MemoryFileError),
    /// The task that did the work is gone: the runtime is shutting down, or the work panicked.
    #[error("the work was interrupted: the runtime is shutting down, or a hook or reducer panicked")]
    Interrupted,
}

fn example(names: EventNaming) -> String {
    names.handle(epitome_core::Seq(57))
}
