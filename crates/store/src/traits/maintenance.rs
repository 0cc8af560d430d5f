//! Care of a database as a whole: checks, backups, erasure.

use std::sync::Arc;

use epitome_core::{SessionId, event::Timestamp};

use super::Store;
use crate::{
    error::StoreError,
    location::StoreLocation,
    records::{AuditLine, BackupProgress, DoctorReport, ErasureReport, ScrubState},
};

/// Care of a database as a whole.
pub trait StoreMaintenance: Send + Sync {
    /// Location of the store.
    fn location(&self) -> &StoreLocation;

    /// Returns true if the store is read-only.
    fn is_read_only(&self) -> bool;

    /// Opens the same store once more: a store that was read-only may be writable by now.
    fn reopen(&self) -> Result<Arc<dyn Store>, StoreError>;

    /// Makes all derived data again from the log, and whatever else of the schema can be made again (indexes, triggers,
    /// views). It is the same afterwards, unless it was damaged. Counts by other tokenizers than the store's counter
    /// are kept. Remains of earlier erasures are scrubbed from the disk.
    fn rebuild(&self) -> Result<ScrubState, StoreError>;

    /// Checks everything that can be checked, and changes nothing.
    fn doctor(&self) -> Result<DoctorReport, StoreError>;

    /// Copies the store, while it is in use, to a new one at another location.
    fn backup(&self, to: &StoreLocation, progress: &mut dyn FnMut(BackupProgress)) -> Result<(), StoreError>;

    /// Removes a session for good. Forks of it in other sessions read as before: the part they share with it
    /// is copied into their own lines first, so the ids of those events name the fork afterwards.
    fn erase(&self, session: SessionId, now: Timestamp) -> Result<ErasureReport, StoreError>;

    /// Overwrites and releases the remains of erased rows on the disk.
    fn scrub(&self) -> Result<ScrubState, StoreError>;

    /// Actions on the store as a whole, oldest first.
    fn audit(&self) -> Result<Vec<AuditLine>, StoreError>;
}
