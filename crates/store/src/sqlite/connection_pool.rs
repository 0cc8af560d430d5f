//! Connections for reading. A few are kept; when all are in use another is opened rather than waited for.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use rusqlite::Connection;

use super::{
    schema::{self, StoreAccess},
    sqlite_error::SqliteError,
};
use crate::options::StoreOptions;

/// Idle connections.
pub(super) struct ConnectionPool {
    path: PathBuf,
    options: StoreOptions,
    access: StoreAccess,
    idle: Mutex<Vec<Connection>>,
}

impl ConnectionPool {
    /// An empty pool.
    pub(super) fn new(path: PathBuf, options: StoreOptions, access: StoreAccess) -> Self {
        Self { path, options, access, idle: Mutex::new(Vec::new()) }
    }

    /// Lends a connection. All that `read` sees is one moment of the database.
    pub(super) fn with_connection<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(&self.path, &self.options, self.access)?,
        };
        let moment = connection.unchecked_transaction()?;
        let outcome = read(&moment);
        moment.finish()?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.options.readers {
            idle.push(connection);
        }
        outcome
    }

    /// Closes every idle connection, so that none keeps old pages alive.
    pub(super) fn close_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
