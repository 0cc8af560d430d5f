//! Copying the store while it is in use.

use std::{io, path::Path, time::Duration};

use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};

use super::{schema, sqlite_error::SqliteError};
use crate::{error::StoreError, records::BackupProgress};

/// Pages between two reports: about a megabyte.
const PAGES_PER_STEP: std::ffi::c_int = 256;

/// Copies one moment of the database to a new file that only its owner may read. `source` is in a read transaction,
/// so that appends meanwhile do not make the copy start again.
pub(super) fn backup(
    source: &Connection,
    to: &Path,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<(), SqliteError> {
    let made = schema::owner_only_options().create_new(true).open(to);
    let file = made.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path: to.to_owned() },
        _ => StoreError::Io { doing: "making the backup", path: to.to_owned(), source },
    })?;
    let copied = copy(source, to, progress).and_then(|()| {
        let synced = file.sync_all();
        synced.map_err(|source| StoreError::Io { doing: "syncing", path: to.to_owned(), source }.into())
    });
    if copied.is_err() {
        // A half copy is of no use; that it cannot be removed either is the smaller trouble of the two.
        let _ = std::fs::remove_file(to);
    }
    copied
}

fn copy(source: &Connection, to: &Path, progress: &mut dyn FnMut(BackupProgress)) -> Result<(), SqliteError> {
    // The first read fixes the moment.
    schema::version(source)?;
    let mut target = Connection::open(to)?;
    let backup = Backup::new(source, &mut target)?;
    loop {
        let step = backup.step(PAGES_PER_STEP)?;
        let state = backup.progress();
        let pages = |number: std::ffi::c_int| u64::try_from(number).unwrap_or(0);
        let (total, left) = (pages(state.pagecount), pages(state.remaining));
        progress(BackupProgress { done: total.saturating_sub(left), total });
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
