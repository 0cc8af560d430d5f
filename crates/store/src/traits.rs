//! Everything that the engine, the gateway and the command line need of a database, as traits by subject.
//!
//! # Where waiting ends
//!
//! Every method blocks the thread that calls it until the database has answered, except
//! [`CallStore::submit`], which never does. Asynchronous callers therefore use threads that
//! may block, such as tokio's `spawn_blocking`, and nothing in these traits depends on a runtime. An implementation
//! with an asynchronous driver has a runtime on threads of its own and lets the calling thread wait for an answer over
//! a channel: then it may be called from anywhere.
//!
//! # What an implementation must keep true
//!
//! - A write is all or nothing, and as durable as [`StoreOptions::durability`](crate::StoreOptions::durability) asks
//!   when it returns.
//! - Of two writers that go on from the same state one is refused with an error for which
//!   [`StoreError::is_conflict`](crate::StoreError::is_conflict) is true. That holds between processes too.
//! - Nothing changes or removes an event but [`StoreMaintenance::erase`].
//! - What is derived from events ([`derived`]) is up to date in every answer.
//! - No method reads a clock or makes up an id: times and ids are the caller's.
//!
//! The suite of the feature `conformance` tries all of it on any implementation.

pub mod calls;
pub mod derived;
pub mod history;
pub mod jobs;
pub mod ledger;
pub mod maintenance;
pub mod sessions;

use std::fmt::Debug;

pub use self::{
    calls::CallStore,
    derived::DerivedData,
    history::HistoryLookup,
    jobs::JobStore,
    ledger::LedgerStore,
    maintenance::StoreMaintenance,
    sessions::{LAST_SESSION, SessionStore},
};
pub use crate::log::EventLog;

/// A database of sessions.
///
/// The engine holds an `Arc<dyn Store>`; methods of all parts can be called on it without importing their traits.
pub trait Store:
    EventLog
    + DerivedData
    + SessionStore
    + HistoryLookup
    + CallStore
    + JobStore
    + LedgerStore
    + StoreMaintenance
    + Debug
{
}

impl<T> Store for T where
    T: EventLog
        + DerivedData
        + SessionStore
        + HistoryLookup
        + CallStore
        + JobStore
        + LedgerStore
        + StoreMaintenance
        + Debug
{
}
