//! Exchanges between a client and its provider, one row for each request that ended. Append-only. They belong
//! to the thread of the request, not to its forks.

use std::time::Duration;

use epitome_core::{Seq, ThreadId, event::Timestamp};

/// A request that ended, however it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewExchange {
    /// The last event of the request.
    pub head: Seq,
    /// Time at which the request came.
    pub time: Timestamp,
    /// Program that sent it.
    pub client: String,
    /// Purpose of the request.
    pub purpose: String,
    /// Format of the request.
    pub format: String,
    /// Model that was asked.
    pub model: Option<String>,
    /// The provider's status, if it gave one.
    pub status: Option<u16>,
    /// Way in which it ended.
    pub ending: String,
    /// Number of bytes from the client.
    pub bytes_in: u64,
    /// Number of bytes to the client.
    pub bytes_out: u64,
    /// Time until the first byte. Kept to the millisecond.
    pub first_byte: Option<Duration>,
    /// Time until the end. Kept to the millisecond.
    pub took: Duration,
    /// Request that a policy would have sent instead, as JSON.
    pub observed: Option<String>,
    /// Error, in words without content.
    pub error: Option<String>,
}

/// An exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeRow {
    /// Its number, from 1; a later one has a greater.
    pub number: u64,
    /// The thread of the request.
    pub thread: ThreadId,
    /// The exchange itself.
    pub exchange: NewExchange,
}
