//! The log of sessions: append-only, in memory or in one SQLite file.
//!
//! [`EventLog`] has everything that an engine needs: open a thread, append to it, read it. [`SqliteStore`] keeps
//! the facts, the records beside them (sessions, labels, the ledger of outside events, media, calls of
//! models, jobs and their summaries, exchanges between clients and providers, audit) and everything that can
//! be made again from the facts (turns, counts, the search index). [`MemoryLog`] keeps only the facts. Nothing
//! in this crate updates or deletes an event, except [`SqliteStore::erase`], on a person's order.
//!
//! Only this crate knows SQL. It is synchronous, reads no clock, makes up no ids and prints nothing.

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod log;
mod memory;
pub mod opencode;
pub mod records;
mod sqlite;
mod thread_head;

pub use error::{SessionCandidate, StoreError};
pub use log::{EventLog, NewThread, ThreadStart};
pub use memory::MemoryLog;
pub use sqlite::{Durability, SqliteOptions, SqliteStore};
pub use thread_head::ThreadHead;
