//! Stops asking a summariser that has failed three times in a row. After a while it is asked once more.
//!
//! One that is asked with a session's own key rests in that session alone: a wrong key says nothing of others.

use epitome_core::{ThreadId, event::Time};
use epitome_store::{Sqlite, StoreError, records::AttemptsOf};

use crate::summarise::{Scope, Summarize};

/// Number of failures in a row that open the breaker.
pub(crate) const IN_A_ROW: usize = 3;

/// Time for which the summariser is not asked again, in milliseconds.
const REST: i64 = 5 * 60 * 1_000;

/// Returns true if a summariser should not be asked now.
pub(crate) fn is_open(
    store: &Sqlite,
    summariser: &dyn Summarize,
    thread: ThreadId,
    now: Time,
) -> Result<bool, StoreError> {
    let of = match summariser.scope() {
        Scope::Everywhere => AttemptsOf::All,
        Scope::Session => AttemptsOf::Thread(thread),
    };
    let newest = store.attempts(of, Some(summariser.name()), IN_A_ROW)?;
    let failed = newest.iter().all(|row| row.attempt.error.is_some());
    // A clock that was set back must not rest it for longer.
    let recent =
        newest.first().is_some_and(|row| (0..REST).contains(&now.0.saturating_sub(row.attempt.ended.0)));
    Ok(newest.len() == IN_A_ROW && failed && recent)
}
