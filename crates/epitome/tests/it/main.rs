//! The library, tried as people use it: a line of events in, a request out.

#![expect(clippy::unwrap_used, reason = "a test whose input cannot be read has failed")]

mod compaction;
mod rehearsal;
mod session;
mod scripted;
mod summarisers;

/// Histories as the wire formats are tried on.
#[path = "../../../wire/tests/it/histories.rs"]
#[expect(dead_code, reason = "what only the wire formats are tried with")]
mod histories;
