//! Location of a database.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Location of a database. Its text form never shows a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    file: PathBuf,
}

impl StoreLocation {
    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// A file beside the database, for what must not be in it.
    pub fn beside(&self, extension: &str) -> PathBuf {
        let mut name = self.file.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }

    /// Folder of this machine in which the store keeps its files.
    pub fn folder(&self) -> &Path {
        let folder = self.path().parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new("."))
    }

    /// A file, whatever its name looks like.
    pub(crate) fn file(path: &Path) -> Self {
        Self { file: path.to_owned() }
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.display().fmt(f)
    }
}
