//! Errors of asking a summariser.
//!
//! An error names the host and never the key, and says whether asking again may help: only transient ones are
//! retried, by [`retry`](super::retry).

use std::{error::Error, fmt, time::Duration};

use epitome_core::Tokens;
use epitome_wire::WireError;

use super::api_key::KeyError;

/// Reason why a summariser gave no draft.
#[derive(Debug, thiserror::Error)]
pub enum SummarizeError {
    /// The answer took too long.
    #[error("asking {host} for a summary: {waited} took more than {}; allow more time or ask a faster model", seconds(*.after))]
    Timeout {
        /// Host of the server.
        host: String,
        /// Step that took too long.
        waited: TimeoutStep,
        /// Time limit of that step.
        after: Duration,
    },
    /// The server limits the rate of requests.
    #[error("asking {host} for a summary: it is asked too often{}; slow down or raise the quota ({said})", wait(*.after))]
    RateLimited {
        /// Host of the server.
        host: String,
        /// Time to wait, if the server states it.
        after: Option<Duration>,
        /// Message of the server.
        said: String,
    },
    /// The question is longer than the model's window.
    #[error(
        "asking {host} for a summary: the question is too long for the model ({said}); give its real window"
    )]
    Overflow {
        /// Host of the server.
        host: String,
        /// Message of the server.
        said: String,
    },
    /// The server refused the request, or failed.
    #[error("asking {host} for a summary: it answered with status {status} ({said}); {}", advice(*.status))]
    Refused {
        /// Host of the server.
        host: String,
        /// The HTTP status.
        status: u16,
        /// Message of the server.
        said: String,
        /// Time to wait, if the server states it.
        after: Option<Duration>,
    },
    /// The server redirects to another address. This is not followed: the key is for this host only.
    #[error(
        "asking {host} for a summary: it redirects to {to}; give that address if it can be trusted with the key"
    )]
    Redirected {
        /// Host of the server.
        host: String,
        /// Host that it redirects to.
        to: String,
    },
    /// The answer does not have the form of its format.
    #[error("asking {host} for a summary: its answer cannot be read; check the address and the format")]
    Unreadable {
        /// Host of the server.
        host: String,
        /// Error of the reader.
        source: WireError,
    },
    /// The answer contains an error.
    #[error("asking {host} for a summary: it answered with an error ({said}); see to that first")]
    Failed {
        /// Host of the server.
        host: String,
        /// Message of the server.
        said: String,
    },
    /// The answer is larger than any summary.
    #[error(
        "asking {host} for a summary: its answer is larger than the {limit} bytes allowed; check the address"
    )]
    TooLarge {
        /// Host of the server.
        host: String,
        /// Largest size of an answer.
        limit: usize,
    },
    /// The model reasoned but wrote no answer.
    #[error(
        "asking {host} for a summary: the model only reasoned and wrote no answer; allow it a longer answer, or turn \
         its reasoning off"
    )]
    ReasoningOnly {
        /// Host of the server.
        host: String,
    },
    /// The connection failed.
    #[error("asking {host} for a summary: {doing} failed; check that the server runs and can be reached")]
    Io {
        /// Host of the server.
        host: String,
        /// Step that failed.
        doing: &'static str,
        /// Error of the connection.
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no key.
    #[error("asking {host} for a summary: there is no key to ask with")]
    Key {
        /// Host of the server.
        host: String,
        /// Reason why it is missing.
        source: KeyError,
    },
    /// The summariser's window is too small for any question.
    #[error(
        "asking {name} for a summary: of its window of {window} tokens the prompt and an answer of {limit} leave too \
         little for the conversation; ask a model with a larger window, or for a shorter summary"
    )]
    Window {
        /// Name of the summariser.
        name: String,
        /// Size of its window.
        window: Tokens,
        /// Length of the summary.
        limit: Tokens,
    },
    /// A summariser of the application failed.
    #[error("asking {name} for a summary: it failed")]
    Other {
        /// Name of the summariser.
        name: String,
        /// Prospect of asking again.
        hope: RetryProspect,
        /// Error of the summariser.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Prospect of asking a summariser again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryProspect {
    /// Asking again may help.
    Again,
    /// Asking again is useless.
    Never,
}

/// Step of a request that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutStep {
    /// Connecting.
    Connection,
    /// Waiting for the first byte of the answer.
    FirstByte,
    /// Receiving the whole answer.
    Whole,
}

impl fmt::Display for TimeoutStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connecting",
            Self::FirstByte => "the first byte of the answer",
            Self::Whole => "the whole answer",
        })
    }
}

impl SummarizeError {
    /// Returns true if the same question may be answered a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::RateLimited { .. } | Self::Io { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 409 | 425 | 500..),
            Self::Other { hope, .. } => *hope == RetryProspect::Again,
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

    /// Time that the server asks to wait, if it states one.
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
