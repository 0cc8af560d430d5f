//! Conversion of SQLite's error codes to words. Inside this module errors carry no context; the boundary,
//! which knows the action and the file, adds it once.

use std::{path::Path, time::Duration};

use epitome_core::EventId;
use rusqlite::ErrorCode;

use crate::{error::StoreError, location::StoreLocation};

/// An error before the failed action is added to it.
#[derive(Debug)]
pub(super) enum SqliteError {
    /// SQLite refused.
    Sql(rusqlite::Error),
    /// The answer to the caller's request is an error.
    Store(StoreError),
    /// A row that this program cannot have written.
    Damaged(String),
}

impl SqliteError {
    /// An event that cannot be decoded.
    pub(super) fn unreadable(event: EventId, why: impl std::fmt::Display) -> Self {
        Self::Damaged(format!("event {event} cannot be read: {why}"))
    }

    /// Converts to words, for the database at `path` and a wait for its lock of at most `patience`.
    pub(super) fn into_store_error(self, doing: &'static str, path: &Path, patience: Duration) -> StoreError {
        let location = StoreLocation::file(path);
        match self {
            Self::Store(error) => error,
            Self::Damaged(detail) => StoreError::Corrupt { doing, location, detail },
            Self::Sql(source) => match source.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    StoreError::Locked { doing, location, waited: patience }
                }
                Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                    StoreError::ReadOnly { doing, location }
                }
                Some(ErrorCode::DiskFull) => StoreError::DiskFull { doing, location },
                Some(ErrorCode::DatabaseCorrupt) => {
                    StoreError::Corrupt { doing, location, detail: source.to_string() }
                }
                Some(ErrorCode::NotADatabase) => StoreError::NotADatabase {
                    location,
                    detail: "its header is not that of SQLite".to_owned(),
                },
                Some(ErrorCode::TooBig) => StoreError::TooLarge { doing },
                _ => StoreError::Database { doing, source: Box::new(source) },
            },
        }
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for SqliteError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
