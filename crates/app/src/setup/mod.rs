//! Setting up agents: their settings are edited so that every other byte stays, shown before and undone after.
//!
//! What was there before is kept beside the database, so `undo` writes it back byte for byte. If somebody changed a file since,
//! only what is ours is taken out of it. What a user chose is never replaced.

mod agents;
mod json_edit;
mod planned_files;
mod record;
mod text_diff;
mod yaml_edit;

use std::path::{Path, PathBuf};

use anyhow::bail;

pub(crate) use self::agents::{AgentHome, SetupAgent, SetupPart, SetupValues};
use self::{
    planned_files::{PlannedFile, PlannedFiles},
    record::{RecordedFile, SetupRecord},
};

/// A setup of one agent, not yet written.
pub(crate) struct PlannedSetup {
    record: SetupRecord,
    files: PlannedFiles,
    /// Texts of the files without anything of ours.
    bases: Vec<(PathBuf, Option<String>)>,
}

/// A file that a setup or its undoing changes.
pub(crate) struct FileChange<'p> {
    pub(crate) path: &'p Path,
    /// The difference, for people.
    pub(crate) diff: String,
}

/// Result of undoing.
pub(crate) struct UndoReport {
    /// Files that are as they were, byte for byte.
    pub(crate) restored: Vec<PathBuf>,
    /// Files that somebody changed since, from which only what is ours was taken.
    pub(crate) cleaned: Vec<PathBuf>,
    /// Folder with the files as they were before the setup, kept if any file was changed since.
    pub(crate) backups: Option<PathBuf>,
}

impl PlannedSetup {
    /// Plans parts of an agent beside those that it has.
    pub(crate) fn new(
        agent: SetupAgent,
        parts: &[SetupPart],
        values: SetupValues,
        home: &AgentHome,
        state: &Path,
    ) -> anyhow::Result<Self> {
        for part in parts {
            if !agent.parts().iter().any(|(known, _)| known == part) {
                bail!(
                    "{} has no place for {}: `epitome setup` lists what each agent can have",
                    agent.title(),
                    part.name()
                );
            }
        }
        let known = SetupRecord::load(state, agent)?;
        let mut files = PlannedFiles::default();
        let mut all: Vec<SetupPart> = parts.to_vec();
        if let Some(known) = &known {
            known.take_out(home, state, &mut files)?;
            all.extend(&known.parts);
        }
        all.sort_unstable();
        all.dedup();
        // Files of a part that is new are read when it is added.
        let taken_out: Vec<(PathBuf, Option<String>)> =
            files.all().map(|(path, file)| (path.clone(), file.after.clone())).collect();
        for part in &all {
            agent.add(*part, &values, home, &mut files)?;
        }
        let base = |(path, file): (&PathBuf, &PlannedFile)| {
            let before = taken_out.iter().find(|(known, _)| known == path).map(|(_, text)| text.clone());
            (path.clone(), before.unwrap_or_else(|| file.before.clone()))
        };
        let bases = files.all().map(base).collect();
        let made_before = known.map(|known| known.folders).unwrap_or_default();
        Ok(Self { record: SetupRecord::new(agent, all, values, made_before), files, bases })
    }

    /// Files that change.
    pub(crate) fn changes(&self) -> Vec<FileChange<'_>> {
        changes(&self.files)
    }

    /// Keeps what was there, and writes. Returns the folder of the backup.
    pub(crate) fn write(mut self, state: &Path) -> anyhow::Result<PathBuf> {
        let made = SetupRecord::made_folders(state)?;
        for (path, file) in self.files.all() {
            let base = self.bases.iter().find(|(known, _)| known == path).and_then(|(_, text)| text.clone());
            self.record.files.push(RecordedFile::new(path, base, file.after.as_deref()));
            self.record.note_folders(path, &made);
        }
        let folder = self.record.save(state)?;
        for (path, file) in self.files.changed() {
            planned_files::write(path, file.after.as_deref())?;
        }
        Ok(folder)
    }
}

/// Parts that an agent was set up with.
pub(crate) fn parts_of(agent: SetupAgent, state: &Path) -> anyhow::Result<Vec<SetupPart>> {
    Ok(SetupRecord::load(state, agent)?.map(|record| record.parts).unwrap_or_default())
}

/// Values that an agent was set up with.
pub(crate) fn values_of(agent: SetupAgent, state: &Path) -> anyhow::Result<Option<SetupValues>> {
    Ok(SetupRecord::load(state, agent)?.map(|record| record.values))
}

/// Plan of undoing a setup.
pub(crate) struct PlannedUndo {
    record: SetupRecord,
    files: PlannedFiles,
}

impl PlannedUndo {
    /// Plans it; `None` if the agent was not set up.
    pub(crate) fn new(agent: SetupAgent, home: &AgentHome, state: &Path) -> anyhow::Result<Option<Self>> {
        let Some(record) = SetupRecord::load(state, agent)? else { return Ok(None) };
        let mut files = PlannedFiles::default();
        record.take_out(home, state, &mut files)?;
        Ok(Some(Self { record, files }))
    }

    /// Files that change.
    pub(crate) fn changes(&self) -> Vec<FileChange<'_>> {
        changes(&self.files)
    }

    /// Writes them, and forgets the setup.
    pub(crate) fn write(self, state: &Path) -> anyhow::Result<UndoReport> {
        let mut report = UndoReport { restored: Vec::new(), cleaned: Vec::new(), backups: None };
        for (path, file) in self.files.all() {
            let is_as_written = self.record.is_as_written(path, file.before.as_deref());
            if file.before != file.after {
                planned_files::write(path, file.after.as_deref())?;
            }
            if is_as_written { &mut report.restored } else { &mut report.cleaned }.push(path.clone());
        }
        if report.cleaned.is_empty() {
            self.record.forget(state)?;
        } else {
            report.backups = Some(self.record.forget_but_backups(state)?);
        }
        Ok(report)
    }
}

fn changes(files: &PlannedFiles) -> Vec<FileChange<'_>> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    files
        .changed()
        .map(|(path, file)| FileChange {
            path,
            diff: text_diff::diff(&text(&file.before), &text(&file.after)),
        })
        .collect()
}

impl SetupPart {
    /// Name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "--gateway",
            Self::Hooks => "--hooks",
            Self::Mcp => "--mcp",
        }
    }
}
