//! What can go wrong when a summariser is asked.
//!
//! An error names the host and never the key, and says whether asking again may help: only those that are transient are
//! asked again, by [`retry`](super::retry).

use std::{error::Error, fmt, time::Duration};

use epitome_core::Tokens;
use epitome_wire::WireError;

use super::key::KeyError;

/// Why a summariser gave no draft.
#[derive(Debug, thiserror::Error)]
pub enum SummarizeError {
    /// It took too long.
    #[error("asking {host} for a summary: {waited} took more than {}; allow more time or ask a faster model", seconds(*.after))]
    Timeout {
        /// Whom.
        host: String,
        /// What took so long.
        waited: Waited,
        /// How long it was allowed to.
        after: Duration,
    },
    /// The server wants to be left alone for a while.
    #[error("asking {host} for a summary: it is asked too often{}; slow down or raise the quota ({said})", wait(*.after))]
    RateLimited {
        /// Whom.
        host: String,
        /// When to come back, if it says so.
        after: Option<Duration>,
        /// Its words.
        said: String,
    },
    /// The question is longer than the model's window.
    #[error(
        "asking {host} for a summary: the question is too long for the model ({said}); give its real window"
    )]
    Overflow {
        /// Whom.
        host: String,
        /// Its words.
        said: String,
    },
    /// The server refused, or broke down.
    #[error("asking {host} for a summary: it answered with status {status} ({said}); {}", advice(*.status))]
    Refused {
        /// Whom.
        host: String,
        /// The HTTP status.
        status: u16,
        /// Its words.
        said: String,
        /// When to come back, if it says so.
        after: Option<Duration>,
    },
    /// The server says that it has moved. Nobody follows: the key is for this host only.
    #[error(
        "asking {host} for a summary: it redirects to {to}; give that address if it can be trusted with the key"
    )]
    Redirected {
        /// Whom.
        host: String,
        /// The host it points to.
        to: String,
    },
    /// The answer is not what the format says.
    #[error("asking {host} for a summary: its answer cannot be read; check the address and the format")]
    Unreadable {
        /// Whom.
        host: String,
        /// What is wrong with it.
        source: WireError,
    },
    /// The answer says that something went wrong.
    #[error("asking {host} for a summary: it answered with an error ({said}); see to that first")]
    Failed {
        /// Whom.
        host: String,
        /// Its words.
        said: String,
    },
    /// The answer is larger than any summary.
    #[error(
        "asking {host} for a summary: its answer is larger than the {limit} bytes allowed; check the address"
    )]
    TooLarge {
        /// Whom.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// The model thought and said nothing.
    #[error(
        "asking {host} for a summary: the model only reasoned and wrote no answer; allow it a longer answer, or turn \
         its reasoning off"
    )]
    ReasoningOnly {
        /// Whom.
        host: String,
    },
    /// The connection failed.
    #[error("asking {host} for a summary: {doing} failed; check that the server runs and can be reached")]
    Io {
        /// Whom.
        host: String,
        /// What was being done.
        doing: &'static str,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no key.
    #[error("asking {host} for a summary: there is no key to ask with")]
    Key {
        /// Whom.
        host: String,
        /// Why not.
        source: KeyError,
    },
    /// The summariser's window holds no question at all.
    #[error(
        "asking {name} for a summary: of its window of {window} tokens the prompt and an answer of {limit} leave too \
         little for the conversation; ask a model with a larger window, or for a shorter summary"
    )]
    Window {
        /// The summariser.
        name: String,
        /// Its window.
        window: Tokens,
        /// How long the summary may be.
        limit: Tokens,
    },
    /// A summariser of one's own failed.
    #[error("asking {name} for a summary: it failed")]
    Other {
        /// The summariser.
        name: String,
        /// Whether asking again may help.
        hope: Hope,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Whether asking again may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hope {
    /// It may.
    Again,
    /// It will not.
    Never,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waited {
    /// Making the connection.
    Connection,
    /// The first byte of the answer.
    FirstByte,
    /// The whole answer.
    Whole,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connecting",
            Self::FirstByte => "the first byte of the answer",
            Self::Whole => "the whole answer",
        })
    }
}

impl SummarizeError {
    /// Whether the same question may be answered a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::RateLimited { .. } | Self::Io { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 409 | 425 | 500..),
            Self::Other { hope, .. } => *hope == Hope::Again,
            Self::Overflow { .. }
            | Self::Redirected { .. }
            | Self::Unreadable { .. }
            | Self::Failed { .. }
            | Self::TooLarge { .. }
            | Self::ReasoningOnly { .. }
            | Self::Key { .. }
            | Self::Window { .. } => false,
        }
    }

    /// When the server wants to be asked again, if it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { after, .. } | Self::Refused { after, .. } => *after,
            _ => None,
        }
    }
}

fn seconds(time: Duration) -> String {
    match time.as_millis() {
        short @ 0..10_000 => format!("{short} ms"),
        long => format!("{} s", long / 1000),
    }
}

fn wait(after: Option<Duration>) -> String {
    after.map_or_else(String::new, |after| format!(" and wants to be left alone for {}", seconds(after)))
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => "check the key, and what it may do",
        404 | 405 => "check the address, the format and the name of the model",
        402 => "see to the account's credit",
        500.. => "try again later, or ask another server",
        _ => "check the model and its limits",
    }
}
