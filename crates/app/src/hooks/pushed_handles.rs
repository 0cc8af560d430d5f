//! Handles that a session was told already, so that nothing is told twice: a file a session beside the database.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use epitome::SessionId;

/// Handles of one session.
pub(super) struct PushedHandles {
    path: PathBuf,
    known: Vec<String>,
}

impl PushedHandles {
    /// Reads them. A file that cannot be read holds none: telling something twice is no harm.
    pub(super) fn read(data: &Path, session: SessionId) -> Self {
        let path = data.join("hooks").join(format!("{session}.told"));
        let known = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
        Self { path, known }
    }

    pub(super) fn contains(&self, handle: &str) -> bool {
        self.known.iter().any(|known| known == handle)
    }

    /// Adds some.
    pub(super) fn add<'h>(&self, handles: impl Iterator<Item = &'h str>) -> anyhow::Result<()> {
        let lines: Vec<&str> = handles.flat_map(|handle| [handle, "\n"]).collect();
        let added = || {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?
                .write_all(lines.concat().as_bytes())
        };
        added().with_context(|| format!("cannot write {}", self.path.display()))
    }
}
