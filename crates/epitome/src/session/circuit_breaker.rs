//! Stops asking a summariser that has failed three times in a row. After a while it is asked once more.
//!
//! One that is asked with a session's own key rests in that session alone: a wrong key says nothing of others.

use epitome_core::{ThreadId, event::Timestamp};
use epitome_store::{Store, StoreError, records::AttemptFilter};

use crate::summarise::{SummariserScope, Summarize};

/// Number of failures in a row that open the breaker.
pub(crate) const FAILURES_TO_OPEN: usize = 3;

/// Time for which the summariser is not asked again, in milliseconds.
const OPEN_MS: i64 = 5 * 60 * 1_000;

/// Returns true if a summariser should not be asked now.
pub(crate) fn is_open(
    store: &dyn Store,
    summariser: &dyn Summarize,
    thread: ThreadId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let of = match summariser.scope() {
        SummariserScope::Everywhere => AttemptFilter::All,
        SummariserScope::Session => AttemptFilter::Thread(thread),
    };
    let newest = store.attempts(of, Some(summariser.name()), FAILURES_TO_OPEN)?;
    let failed = newest.iter().all(|row| row.attempt.error.is_some());
    // A clock that was set back must not rest it for longer.
    let recent =
        newest.first().is_some_and(|row| (0..OPEN_MS).contains(&now.0.saturating_sub(row.attempt.ended.0)));
    Ok(newest.len() == FAILURES_TO_OPEN && failed && recent)
}
