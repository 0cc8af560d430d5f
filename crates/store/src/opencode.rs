//! OpenCode's own database, read as the JSON that `opencode export` writes.

use std::path::Path;

use crate::error::StoreError;

/// Whether the file is a database of OpenCode.
pub fn is_opencode(path: &Path) -> bool {
    let _ = path;
    todo!()
}

/// Every session in the database as an export, oldest first. The database is only read.
pub fn opencode_exports(path: &Path) -> Result<Vec<String>, StoreError> {
    let _ = path;
    todo!()
}
