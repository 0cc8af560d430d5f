//! Stores to try things on, and events written as letters.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

pub(crate) use epitome_store::conformance::samples::{
    Quarters, all, append, assert_healthy, attempt, call, calls_seen, commit, counting, events, exchange,
    in_session, job, late, make_call, open, opens, picture, places, policy, queue, ready, root, seen,
    session, set, summary, thread, user,
};
use epitome_store::{Store, StoreError, StoreLocation, StoreOptions, open_store};
use rusqlite::Connection;
use tempfile::TempDir;

/// A store in a directory of its own.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    /// In memory-backed files where there are such: the disk is not what most tests are about.
    pub(crate) fn new() -> Self {
        let builder = tempfile::Builder::new();
        let directory = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
        Self { directory: directory.expect("a temporary directory") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("epitome.db")
    }

    pub(crate) fn open(&self) -> Arc<dyn Store> {
        open_at(&self.path(), counting()).expect("the store opens")
    }

    /// The same, but what is derived is put off for as long as nobody asks for it.
    pub(crate) fn open_late(&self) -> Arc<dyn Store> {
        open_at(&self.path(), late()).expect("the store opens")
    }

    /// A connection of somebody else.
    pub(crate) fn raw(&self) -> Connection {
        raw(&self.path())
    }
}

/// Opens the store in a file.
pub(crate) fn open_at(path: &Path, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    open_store(&StoreLocation::named(path)?, options)
}

pub(crate) fn raw(path: &Path) -> Connection {
    Connection::open(path).expect("the file opens")
}
