//! Stops asking a summariser that has failed three times in a row. After a while it is asked once more.

use epitome_core::event::Time;
use epitome_store::{Sqlite, StoreError};

/// So many failures in a row.
pub(crate) const IN_A_ROW: usize = 3;

/// For so long it is not asked again, in milliseconds.
const REST: i64 = 5 * 60 * 1_000;

/// Whether a summariser is better left alone.
pub(crate) fn is_open(store: &Sqlite, summariser: &str, now: Time) -> Result<bool, StoreError> {
    let newest = store.attempts(None, Some(summariser), IN_A_ROW)?;
    let failed = newest.iter().all(|row| row.attempt.error.is_some());
    // A clock that was set back must not rest it for longer.
    let recent =
        newest.first().is_some_and(|row| (0..REST).contains(&now.0.saturating_sub(row.attempt.ended.0)));
    Ok(newest.len() == IN_A_ROW && failed && recent)
}
