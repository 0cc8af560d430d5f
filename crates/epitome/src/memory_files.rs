//! Memory files: what a session knows, in files beside it that survive any compaction and cost nothing until they are read.
//!
//! `status.md` says what is being done and what comes next, `decisions.md` what was decided, demanded and tried in vain. Of
//! each file one section is ours, between two marks, and is written anew after each compaction; everything else in the file
//! is somebody's and stays as it is. The first mark carries a digest of the section: if it does not fit, somebody has
//! written into our section too, and what they wrote becomes theirs.

mod section;

use std::{
    fmt::Write as _,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use epitome_core::{
    context::Names,
    summary::{Brief, Item, Section},
};
use thiserror::Error;

use self::section::put;

/// What is being done, and what comes next.
pub const STATUS: &str = "status.md";

/// What was decided, demanded and tried in vain.
pub const DECISIONS: &str = "decisions.md";

/// How many bytes of a file are ours at most.
const OURS: usize = 16 * 1024;

/// How many characters of an item are written.
const ITEM: usize = 400;

/// How many bytes a file may have that somebody else has written to.
const WHOLE: u64 = 4 * 1024 * 1024;

/// How often a file is read again because somebody wrote to it meanwhile.
const TRIES: usize = 4;

/// The memory files of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFiles {
    folder: PathBuf,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It says something new.
    Updated,
    /// It said the same already and was not touched.
    Unchanged,
}

/// Why a memory file was not written. It is as it was.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The system refused.
    #[error("cannot write the memory file {}: {source}. Check that its folder exists and can be written to", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is something else in its place.
    #[error("cannot write the memory file {}: it is a link, a folder or a device. Move it away", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// What is there is no text.
    #[error("cannot write the memory file {}: what is there is not text. Move it away", path.display())]
    NoText {
        /// The file.
        path: PathBuf,
    },
    /// What is there is too much.
    #[error("cannot write the memory file {}: it has {size} bytes, and {WHOLE} is the most. Shorten it or move it away", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
    /// Somebody else writes to it all the time.
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

    /// Where they are: status, decisions.
    pub fn paths(&self) -> [PathBuf; 2] {
        [self.folder.join(STATUS), self.folder.join(DECISIONS)]
    }

    /// Writes what a summary says, with the places it came from. Each file is replaced as a whole or not at all.
    pub fn write(&self, brief: &Brief, names: Names) -> Result<Written, MemoryError> {
        let [status, decisions] = self.paths();
        fs::create_dir_all(&self.folder)
            .map_err(|source| MemoryError::Io { path: self.folder.clone(), source })?;
        let both = [
            update(&status, "# Status", &page(brief, names, &STATUS_SECTIONS))?,
            update(&decisions, "# Decisions", &page(brief, names, &DECISION_SECTIONS))?,
        ];
        Ok(if both.contains(&Written::Updated) { Written::Updated } else { Written::Unchanged })
    }
}

/// The line that refers a model to the files. It is all they cost until they are read.
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

const STATUS_SECTIONS: [Section; 3] = [Section::SessionIntent, Section::CurrentTask, Section::NextSteps];

const DECISION_SECTIONS: [Section; 4] =
    [Section::Pins, Section::KeyDecisions, Section::Constraints, Section::FailedApproaches];

/// Our section of a file: the newest items of each section that there is room for.
fn page(brief: &Brief, names: Names, sections: &[Section]) -> String {
    let room = OURS / sections.len();
    let mut page = String::new();
    for section in sections {
        let _ = writeln!(page, "## {}\n", section.title());
        page.push_str(&items(brief, *section, names, room));
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page
}

fn items(brief: &Brief, section: Section, names: Names, room: usize) -> String {
    let all: Vec<&Item> = brief.section(section).collect();
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

fn line(item: &Item, names: Names) -> String {
    let text = one_line(&item.text, ITEM).replace("<!--", "< !--").replace("-->", "-- >");
    let places = names.handles(&item.sources);
    if places.is_empty() { format!("- {text}\n") } else { format!("- {text} [{places}]\n") }
}

/// A text in one line, and not more than so many characters of it.
fn one_line(text: &str, most: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Puts our section into a file.
fn update(path: &Path, title: &str, page: &str) -> Result<Written, MemoryError> {
    for _ in 0..TRIES {
        let old = read(path)?;
        let new = match &old {
            Some(old) => put(old, page),
            None => put(&format!("{title}\n"), page),
        };
        if old.as_ref() == Some(&new) {
            return Ok(Written::Unchanged);
        }
        if replace(path, old.as_deref(), &new)? == Replaced::Yes {
            return Ok(Written::Updated);
        }
    }
    Err(MemoryError::Busy { path: path.to_owned() })
}

/// What a file says; nothing if there is none.
fn read(path: &Path) -> Result<Option<String>, MemoryError> {
    let failed = |source| MemoryError::Io { path: path.to_owned(), source };
    let known = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        known => known.map_err(failed)?,
    };
    if !known.is_file() {
        return Err(MemoryError::NoFile { path: path.to_owned() });
    }
    if known.len() > WHOLE {
        return Err(MemoryError::TooLarge { path: path.to_owned(), size: known.len() });
    }
    let bytes = fs::read(path).map_err(failed)?;
    String::from_utf8(bytes).map(Some).map_err(|_| MemoryError::NoText { path: path.to_owned() })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    Yes,
    /// Somebody wrote to it meanwhile.
    No,
}

/// Replaces a file that still says `old`. A crash leaves the one or the other, and at worst a file that nobody reads.
fn replace(path: &Path, old: Option<&str>, new: &str) -> Result<Replaced, MemoryError> {
    let failed = |source| MemoryError::Io { path: path.to_owned(), source };
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
            return Ok(Replaced::No);
        }
        fs::rename(&beside, path).map_err(failed).map(|()| Replaced::Yes)
    });
    if !matches!(replaced, Ok(Replaced::Yes)) {
        // What was written beside is of no use to anybody.
        drop(fs::remove_file(&beside));
    }
    replaced
}
