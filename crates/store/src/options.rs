//! Settings for opening a store, the same for every database.

use std::{fmt, sync::Arc, time::Duration};

use epitome_core::TokenCounter;

/// Settings for opening a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// Time to wait for another process that holds the lock.
    pub busy_timeout: Duration,
    /// Counts the tokens of every event as it is appended.
    pub counter: Option<Arc<dyn TokenCounter>>,
    /// Number of connections for reading that are kept open.
    pub readers: usize,
    /// Largest size in bytes that a database in a file may grow to. A server has limits of its own.
    pub size_limit: Option<u64>,
    /// Failures that an acknowledged write survives.
    pub durability: Durability,
    /// Longest time that a write may wait for others to share its commit, when several come one after
    /// another.
    pub gather: Duration,
    /// Longest time that turns, sums, counts and the search index may be deferred, to be derived for many
    /// events at once. Queries of this store see them up to date all the same; only other readers of the
    /// database see that they are behind.
    pub lag: Duration,
}

/// Failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The power going out: it is on the disk.
    #[default]
    PowerCut,
    /// The process being killed: the data is with the operating system. Nothing is ever damaged, but a power
    /// failure may take the last moments.
    Kill,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            counter: None,
            readers: 4,
            size_limit: None,
            durability: Durability::default(),
            gather: Duration::ZERO,
            lag: Duration::ZERO,
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("busy_timeout", &self.busy_timeout)
            .field("counter", &self.counter.as_ref().map(|counter| counter.name()))
            .field("readers", &self.readers)
            .field("size_limit", &self.size_limit)
            .field("durability", &self.durability)
            .field("gather", &self.gather)
            .field("lag", &self.lag)
            .finish()
    }
}
