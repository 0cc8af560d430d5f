//! Measurement, tried on sessions in which everything that is measured was put there.

#![expect(clippy::unwrap_used, reason = "a test whose input cannot be read has failed")]

mod live;
mod metrics;
mod played_sessions;
mod retention;
mod why;

/// Logs and contexts as people write them.
#[path = "../../../core/tests/it/notation.rs"]
#[expect(dead_code, reason = "what only the core is tried with")]
mod notation;

/// Histories as the wire formats are tried on.
#[path = "../../../wire/tests/it/histories.rs"]
mod histories;
