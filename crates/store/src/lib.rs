//! The log of sessions: append-only, in a database.
//!
//! [`open_store`] opens a database and gives a [`Store`]: the facts, the records beside them (sessions, labels, the ledger
//! of outside events, media, calls of models, jobs and their summaries, exchanges between clients and providers, audit)
//! and everything that can be made again from the facts (turns, counts, the search index). Nothing in this crate updates
//! or deletes an event, except [`erase`](traits::StoreMaintenance::erase), on a person's order.
//!
//! The [`traits`] are all that its users see of a database. There is one implementation, in a SQLite file; only this crate
//! knows SQL. It is synchronous, reads no clock, makes up no ids and prints nothing.

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod location;
mod log;
pub mod opencode;
mod opening;
mod options;
mod pending_commit;
pub mod records;
mod sqlite;
mod thread_head;
pub mod traits;

pub use error::{SessionCandidate, StoreError};
pub use location::StoreLocation;
pub use log::{NewThread, ThreadStart};
pub use opening::{open_existing_store, open_store, temporary_store};
pub use options::{Durability, StoreOptions};
pub use pending_commit::{CommitOutcome, CommitReporter, PendingCommit};
pub use thread_head::ThreadHead;
pub use traits::{LAST_SESSION, Store};
