//! Exchanges: what passed between a client and its provider, one row a request that ended. Append-only. They belong to
//! the thread of the request, not to its forks.

use std::time::Duration;

use epitome_core::{Seq, ThreadId, event::Time};

/// A request that ended, however it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewExchange {
    /// The last event of the request.
    pub head: Seq,
    /// When it came.
    pub time: Time,
    /// Which program sent it.
    pub client: String,
    /// What it was for.
    pub purpose: String,
    /// In whose format.
    pub format: String,
    /// Who was asked.
    pub model: Option<String>,
    /// The provider's status, if it gave one.
    pub status: Option<u16>,
    /// How it ended.
    pub ending: String,
    /// How many bytes the client sent.
    pub bytes_in: u64,
    /// How many bytes were sent back.
    pub bytes_out: u64,
    /// How long the first byte took. Kept to the millisecond.
    pub first_byte: Option<Duration>,
    /// How long all took. Kept to the millisecond.
    pub took: Duration,
    /// What a policy would have sent instead, as JSON.
    pub observed: Option<String>,
    /// What went wrong, in words without content.
    pub error: Option<String>,
}

/// An exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeRow {
    /// Its number, from 1; a later one has a greater.
    pub number: u64,
    /// The thread of the request.
    pub thread: ThreadId,
    /// What passed.
    pub exchange: NewExchange,
}
