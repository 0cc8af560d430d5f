//! What a setup wrote, and what stood there before: a folder for each agent beside the database.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    agents::{AgentHome, SetupAgent, SetupPart, SetupValues},
    planned_files::{PlannedFiles, read, write},
};

/// Name of the file that lists the others.
const RECORD_FILE: &str = "setup.json";

/// A setup that was written.
#[derive(Serialize, Deserialize)]
pub(super) struct SetupRecord {
    agent: String,
    pub(super) parts: Vec<SetupPart>,
    pub(super) values: SetupValues,
    pub(super) files: Vec<RecordedFile>,
    /// Folders that were made for the files, the outermost first.
    pub(super) folders: Vec<PathBuf>,
}

/// One file of a setup.
#[derive(Serialize, Deserialize)]
pub(super) struct RecordedFile {
    path: PathBuf,
    /// File with the text that stood there, beside the record; `None` if there was none.
    backup: Option<String>,
    /// Hash of what was written; `None` if the file was removed.
    after: Option<String>,
    #[serde(skip)]
    before: Option<String>,
}

impl RecordedFile {
    pub(super) fn new(path: &Path, before: Option<String>, after: Option<&str>) -> Self {
        Self { path: path.to_owned(), backup: None, after: after.map(digest), before }
    }
}

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

impl SetupRecord {
    pub(super) fn new(
        agent: SetupAgent,
        parts: Vec<SetupPart>,
        values: SetupValues,
        folders: Vec<PathBuf>,
    ) -> Self {
        Self { agent: agent.name().to_owned(), parts, values, files: Vec::new(), folders }
    }

    /// Reads the record of an agent, if it was set up.
    pub(super) fn load(state: &Path, agent: SetupAgent) -> anyhow::Result<Option<Self>> {
        let path = state.join(agent.name()).join(RECORD_FILE);
        let Some(text) = read(&path)? else { return Ok(None) };
        let record = serde_json::from_str(&text).with_context(|| {
            format!("{} is damaged; the backups beside it can be copied back by hand", path.display())
        })?;
        Ok(Some(record))
    }

    /// Plans the files without anything of this setup.
    pub(super) fn take_out(
        &self,
        home: &AgentHome,
        state: &Path,
        files: &mut PlannedFiles,
    ) -> anyhow::Result<()> {
        let agent = self.agent()?;
        let folder = state.join(&self.agent);
        let mut is_changed = false;
        for file in &self.files {
            is_changed |= read(&file.path)?.as_deref().map(digest) != file.after;
        }
        if is_changed {
            agent.remove(&self.values, home, files)?;
        }
        for file in &self.files {
            // A file that nobody changed since is written back as it was.
            if read(&file.path)?.as_deref().map(digest) == file.after {
                let before =
                    match &file.backup {
                        Some(name) => Some(read(&folder.join(name))?.with_context(|| {
                            format!("the backup {} is missing", folder.join(name).display())
                        })?),
                        None => None,
                    };
                files.start_from(&file.path, before)?;
            }
        }
        Ok(())
    }

    /// Returns true if a file has the text that was written.
    pub(super) fn is_as_written(&self, path: &Path, text: Option<&str>) -> bool {
        self.files.iter().any(|file| file.path == path && file.after == text.map(digest))
    }

    /// Folders that the setups of all agents made: one that several use goes with the last of them.
    pub(super) fn made_folders(state: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        for agent in <SetupAgent as clap::ValueEnum>::value_variants() {
            made.extend(Self::load(state, *agent)?.map(|record| record.folders).unwrap_or_default());
        }
        Ok(made)
    }

    /// Notes the folders that writing a file makes, and those of `made` around them.
    pub(super) fn note_folders(&mut self, path: &Path, made: &[PathBuf]) {
        let is_ours = |folder: &&Path| !folder.exists() || made.iter().any(|known| known == folder);
        let mut made: Vec<PathBuf> =
            path.ancestors().skip(1).take_while(is_ours).map(Path::to_owned).collect();
        made.reverse();
        for folder in made {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
    }

    /// Writes the record and its backups, for their owner alone: settings may hold keys. Returns their folder.
    pub(super) fn save(&mut self, state: &Path) -> anyhow::Result<PathBuf> {
        let folder = state.join(&self.agent);
        let private = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
            }
            Ok(())
        };
        private().with_context(|| format!("cannot make {}", folder.display()))?;
        for (number, file) in self.files.iter_mut().enumerate() {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(before) = &file.before {
                let backup = format!("{number}-{name}");
                write(&folder.join(&backup), Some(before))?;
                file.backup = Some(backup);
            }
        }
        write(&folder.join(RECORD_FILE), Some(&(serde_json::to_string_pretty(self)? + "\n")))?;
        Ok(folder)
    }

    /// Removes the record with its backups, and the folders that were made and are empty.
    pub(super) fn forget(&self, state: &Path) -> anyhow::Result<()> {
        let folder = state.join(&self.agent);
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        self.remove_empty_folders();
        Ok(())
    }

    /// Removes the record and leaves its backups, whose folder is returned.
    pub(super) fn forget_but_backups(&self, state: &Path) -> anyhow::Result<PathBuf> {
        let folder = state.join(&self.agent);
        let record = folder.join(RECORD_FILE);
        fs::remove_file(&record).with_context(|| format!("cannot remove {}", record.display()))?;
        self.remove_empty_folders();
        Ok(folder)
    }

    fn remove_empty_folders(&self) {
        for folder in self.folders.iter().rev() {
            // One that somebody else uses by now stays.
            let _ = fs::remove_dir(folder);
        }
    }

    fn agent(&self) -> anyhow::Result<SetupAgent> {
        let known =
            <SetupAgent as clap::ValueEnum>::value_variants().iter().find(|agent| agent.name() == self.agent);
        known.copied().with_context(|| format!("the record is of an unknown agent, {}", self.agent))
    }
}
