//! Memory files: knowledge of a session in files beside it, which survive any compaction and cost nothing
//! until they are read.
//!
//! `status.md` holds the current work and the next steps, `decisions.md` decisions, demands and failed
//! attempts. One section of each file is ours, between two marks, and is written anew after each compaction;
//! everything else in the file belongs to its users and stays as it is. The first mark carries a digest of
//! the section: if it does not match, a user has edited our section too, and it becomes theirs.

mod file_section;

use std::{
    fmt::Write as _,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use epitome_core::{
    context::EventNaming,
    summary::{StructuredSummary, SummaryItem, SummarySection},
};
use thiserror::Error;

use self::file_section::put;

/// File with the current work and the next steps.
pub const STATUS_FILE: &str = "status.md";

/// File with decisions, demands and failed attempts.
pub const DECISIONS_FILE: &str = "decisions.md";

/// Most bytes of our section.
const MAX_SECTION_BYTES: usize = 16 * 1024;

/// Most characters of an item.
const ITEM: usize = 400;

/// Most bytes of a file that users have edited.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Number of attempts if other programs write to a file meanwhile.
const TRIES: usize = 4;

/// The memory files of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFiles {
    folder: PathBuf,
}

/// Result of writing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileWriteOutcome {
    /// The content has changed.
    Updated,
    /// The content is the same, and the file was not touched.
    Unchanged,
}

/// Reason why a memory file was not written. Its content is unchanged.
#[derive(Debug, Error)]
pub enum MemoryFileError {
    /// The system refused to read or write.
    #[error("cannot write the memory file {}: {source}. Check that its folder exists and can be written to", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The path is not a regular file.
    #[error("cannot write the memory file {}: it is a link, a folder or a device. Move it away", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("cannot write the memory file {}: what is there is not text. Move it away", path.display())]
    NoText {
        /// The file.
        path: PathBuf,
    },
    /// The file is too large.
    #[error("cannot write the memory file {}: it has {size} bytes, and {MAX_FILE_BYTES} is the most. Shorten it or move it away", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Size of the file.
        size: u64,
    },
    /// Another program keeps writing to the file.
    #[error("cannot write the memory file {}: somebody else keeps changing it. It is written after the next compaction", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl MemoryFiles {
    /// Files in `folder`, which is made when they are first written.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Paths of the files: status, decisions.
    pub fn paths(&self) -> [PathBuf; 2] {
        [self.folder.join(STATUS_FILE), self.folder.join(DECISIONS_FILE)]
    }

    /// Writes the content of a summary, with its sources. Each file is replaced as a whole or not at all.
    pub fn write(
        &self,
        brief: &StructuredSummary,
        names: EventNaming,
    ) -> Result<FileWriteOutcome, MemoryFileError> {
        let [status, decisions] = self.paths();
        fs::create_dir_all(&self.folder)
            .map_err(|source| MemoryFileError::Io { path: self.folder.clone(), source })?;
        let both = [
            update(&status, "# Status", &page(brief, names, &STATUS_SECTIONS))?,
            update(&decisions, "# Decisions", &page(brief, names, &DECISION_SECTIONS))?,
        ];
        Ok(if both.contains(&FileWriteOutcome::Updated) {
            FileWriteOutcome::Updated
        } else {
            FileWriteOutcome::Unchanged
        })
    }
}

/// Line that refers a model to the files. It is their only cost until they are read.
///
/// ```
/// use epitome::memory_files::{MemoryFiles, reference};
///
/// let files = MemoryFiles::in_folder("notes");
/// assert!(reference(&files.paths()).starts_with("Notes of this session are kept in notes/status.md"));
/// ```
pub fn reference(paths: &[PathBuf; 2]) -> String {
    let [status, decisions] = paths.each_ref().map(|path| one_line(&path.display().to_string(), usize::MAX));
    format!(
        "Notes of this session are kept in {status} (current task, next steps) and {decisions} (decisions, constraints, \
         failed approaches); read them if you need more than is told here."
    )
}

const STATUS_SECTIONS: [SummarySection; 3] =
    [SummarySection::SessionIntent, SummarySection::CurrentTask, SummarySection::NextSteps];

const DECISION_SECTIONS: [SummarySection; 4] = [
    SummarySection::Pins,
    SummarySection::KeyDecisions,
    SummarySection::Constraints,
    SummarySection::FailedApproaches,
];

/// Our section of a file: the newest items of each section, as far as there is room.
fn page(brief: &StructuredSummary, names: EventNaming, sections: &[SummarySection]) -> String {
    let room = MAX_SECTION_BYTES / sections.len();
    let mut page = String::new();
    for section in sections {
        let _ = writeln!(page, "## {}\n", section.title());
        page.push_str(&items(brief, *section, names, room));
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page
}

fn items(brief: &StructuredSummary, section: SummarySection, names: EventNaming, room: usize) -> String {
    let all: Vec<&SummaryItem> = brief.section(section).filter(|item| !brief.is_overtaken(item)).collect();
    let mut lines: Vec<String> = Vec::new();
    let mut used = 0;
    for item in all.iter().rev() {
        let line = line(item, names);
        used += line.len();
        if used > room {
            break;
        }
        lines.push(line);
    }
    let folded = brief.folded.iter().filter(|folded| folded.section == section).map(|folded| folded.count);
    let hidden = folded.fold((all.len() - lines.len()) as u64, u64::saturating_add);
    if hidden > 0 {
        lines.push(format!("- ({hidden} earlier ones are in the session)\n"));
    }
    if lines.is_empty() {
        lines.push("None.\n".to_owned());
    }
    lines.reverse();
    lines.concat()
}

fn line(item: &SummaryItem, names: EventNaming) -> String {
    let text = one_line(&item.text, ITEM).replace("<!--", "< !--").replace("-->", "-- >");
    let places = names.handles(&item.sources);
    if places.is_empty() { format!("- {text}\n") } else { format!("- {text} [{places}]\n") }
}

/// Folds a text to one line of at most `most` characters.
fn one_line(text: &str, most: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Puts our section into a file.
fn update(path: &Path, title: &str, page: &str) -> Result<FileWriteOutcome, MemoryFileError> {
    for _ in 0..TRIES {
        let old = read(path)?;
        let new = match &old {
            Some(old) => put(old, page),
            None => put(&format!("{title}\n"), page),
        };
        if old.as_ref() == Some(&new) {
            return Ok(FileWriteOutcome::Unchanged);
        }
        if replace(path, old.as_deref(), &new)? == FileReplacement::Yes {
            return Ok(FileWriteOutcome::Updated);
        }
    }
    Err(MemoryFileError::Busy { path: path.to_owned() })
}

/// Content of a file; `None` if it does not exist.
fn read(path: &Path) -> Result<Option<String>, MemoryFileError> {
    let failed = |source| MemoryFileError::Io { path: path.to_owned(), source };
    let known = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        known => known.map_err(failed)?,
    };
    if !known.is_file() {
        return Err(MemoryFileError::NoFile { path: path.to_owned() });
    }
    if known.len() > MAX_FILE_BYTES {
        return Err(MemoryFileError::TooLarge { path: path.to_owned(), size: known.len() });
    }
    let bytes = fs::read(path).map_err(failed)?;
    String::from_utf8(bytes).map(Some).map_err(|_| MemoryFileError::NoText { path: path.to_owned() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileReplacement {
    Yes,
    /// Another program has changed it meanwhile.
    No,
}

/// Replaces a file if it still contains `old`. A crash leaves either content, and at worst a stray temporary
/// file.
fn replace(path: &Path, old: Option<&str>, new: &str) -> Result<FileReplacement, MemoryFileError> {
    let failed = |source| MemoryFileError::Io { path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", uuid::Uuid::now_v7().simple()));
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        file.write_all(new.as_bytes())?;
        if let Ok(known) = fs::metadata(path) {
            fs::set_permissions(&beside, known.permissions())?;
        }
        file.sync_all()
    })()
    .map_err(failed);
    let replaced = written.and_then(|()| {
        if read(path)?.as_deref() != old {
            return Ok(FileReplacement::No);
        }
        fs::rename(&beside, path).map_err(failed).map(|()| FileReplacement::Yes)
    });
    if !matches!(replaced, Ok(FileReplacement::Yes)) {
        // The temporary file is useless now.
        drop(fs::remove_file(&beside));
    }
    replaced
}
