//! Record of the sessions that `resume` added, so that each can be taken away again, and nothing else.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::agent_folders;

/// A session that was added to an agent's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AddedSession {
    /// Id by which the agent resumes it.
    pub(crate) id: String,
    /// Name of the agent.
    pub(crate) agent: String,
    /// The file that was written; none if the agent imported the session.
    pub(crate) path: Option<PathBuf>,
    /// Folder that the agent goes on in.
    pub(crate) directory: PathBuf,
    /// Hash of the file, or of what the agent exported after the import; none if that export failed.
    #[serde(default)]
    pub(crate) hash: Option<String>,
    /// Time of the addition, in milliseconds.
    pub(crate) added: i64,
}

/// The record, a line of JSON for each session.
pub(crate) struct AddedSessions {
    path: PathBuf,
    sessions: Vec<AddedSession>,
}

impl AddedSessions {
    /// Reads the record; there is none before the first session.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let path = agent_folders::data_folder()?.1.join("resumed.jsonl");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        // A line that was cut off while it was written names no session.
        let sessions = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { path, sessions })
    }

    /// Finds a session by its id, else by the start of it, or the newest one.
    pub(crate) fn find(&self, id: Option<&str>) -> anyhow::Result<&AddedSession> {
        let Some(id) = id else {
            return self.sessions.last().context("there is nothing to undo: no session was added yet");
        };
        // goose counts its sessions, so that one id may be the start of another.
        if let Some(session) = self.sessions.iter().rfind(|session| session.id == id) {
            return Ok(session);
        }
        let mut found = self.sessions.iter().filter(|session| session.id.starts_with(id));
        match (found.next(), found.next()) {
            (Some(session), None) => Ok(session),
            (Some(_), Some(_)) => bail!("`{id}` could mean several added sessions: give more of the id"),
            (None, _) => bail!("no added session is called `{id}`; nothing was removed"),
        }
    }

    /// Adds a session to the record, in place of what it holds of that session.
    pub(crate) fn add(session: AddedSession) -> anyhow::Result<()> {
        let mut record = Self::without(&session)?;
        record.sessions.push(session);
        record.write()
    }

    /// Removes a session from the record.
    pub(crate) fn remove(session: &AddedSession) -> anyhow::Result<()> {
        Self::without(session)?.write()
    }

    /// The record as it is now but for a session: agents take their time, and another command may have changed it since.
    fn without(session: &AddedSession) -> anyhow::Result<Self> {
        let mut record = Self::read()?;
        record.sessions.retain(|other| (&other.id, &other.agent) != (&session.id, &session.agent));
        Ok(record)
    }

    /// Writes the record whole and puts it in its place.
    fn write(&self) -> anyhow::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let cannot = || format!("cannot write {}", self.path.display());
        fs::create_dir_all(folder).with_context(cannot)?;
        let new = self.path.with_extension("jsonl.new");
        let mut text = String::new();
        for session in &self.sessions {
            text.push_str(&serde_json::to_string(session)?);
            text.push('\n');
        }
        fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path)).with_context(cannot)
    }
}

/// Writes a file that must not exist yet, readable by its owner alone.
pub(crate) fn write_new(path: &Path, contents: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let mut file = new_file(path).with_context(cannot)?;
    let written = file.write_all(contents.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a session is worse than none.
        let _ = fs::remove_file(path);
    }
    written.with_context(cannot)
}

/// Makes a file that must not exist yet, readable by its owner alone, with its folders.
pub(crate) fn new_file(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Hash of a session's bytes.
pub(crate) fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
