//! Files as they are and as they shall be, until they are written.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

/// Largest settings file that is edited.
const MAX_BYTES: u64 = 64 << 20;

/// Files to be written, by path.
#[derive(Default)]
pub(super) struct PlannedFiles(BTreeMap<PathBuf, PlannedFile>);

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedFile {
    /// Text as it is; `None` if there is no file.
    pub(super) before: Option<String>,
    /// Text as it shall be; `None` if there shall be no file.
    pub(super) after: Option<String>,
}

impl PlannedFiles {
    /// Edits a file; one that is missing counts as empty.
    pub(super) fn edit(
        &mut self,
        path: &Path,
        edit: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let file = self.file(path)?;
        let edited = edit(file.after.as_deref().unwrap_or_default())
            .with_context(|| format!("{} was not changed", path.display()))?;
        file.after = Some(edited);
        Ok(())
    }

    /// Edits a file if it exists.
    pub(super) fn edit_if_exists(
        &mut self,
        path: &Path,
        edit: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        if self.file(path)?.after.is_some() { self.edit(path, edit) } else { Ok(()) }
    }

    /// Writes a file that is ours as a whole.
    pub(super) fn replace(&mut self, path: &Path, text: String) -> anyhow::Result<()> {
        self.file(path)?.after = Some(text);
        Ok(())
    }

    /// Removes a file if its text is as expected.
    pub(super) fn remove_if(
        &mut self,
        path: &Path,
        is_ours: impl FnOnce(&str) -> bool,
    ) -> anyhow::Result<()> {
        let file = self.file(path)?;
        if file.after.as_deref().is_some_and(is_ours) {
            file.after = None;
        }
        Ok(())
    }

    /// Takes a text for what a file shall be, before further edits.
    pub(super) fn start_from(&mut self, path: &Path, text: Option<String>) -> anyhow::Result<()> {
        self.file(path)?.after = text;
        Ok(())
    }

    /// Files that change.
    pub(super) fn changed(&self) -> impl Iterator<Item = (&PathBuf, &PlannedFile)> {
        self.0.iter().filter(|(_, file)| file.before != file.after)
    }

    /// All files.
    pub(super) fn all(&self) -> impl Iterator<Item = (&PathBuf, &PlannedFile)> {
        self.0.iter()
    }

    fn file(&mut self, path: &Path) -> anyhow::Result<&mut PlannedFile> {
        match self.0.entry(path.to_owned()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let before = read(path)?;
                Ok(place.insert(PlannedFile { after: before.clone(), before }))
            }
        }
    }
}

/// Reads a file, if there is one.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(found) if found.len() > MAX_BYTES => bail!("{} is too large to be settings", path.display()),
        Ok(_) => {}
    }
    match fs::read(path) {
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => bail!("{} is not UTF-8 and was not changed", path.display()),
        },
    }
}

/// Writes or removes a file. It is whole at any time, keeps its permissions, and a link stays one.
pub(super) fn write(path: &Path, text: Option<&str>) -> anyhow::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(text) = text else {
        return fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()));
    };
    let written = || -> io::Result<()> {
        let folder = target.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder)?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let draft = folder.join(format!(".{name}.epitome-{}", std::process::id()));
        fs::write(&draft, text)?;
        if let Ok(known) = fs::metadata(&target) {
            fs::set_permissions(&draft, known.permissions())?;
        }
        fs::rename(&draft, &target).inspect_err(|_| drop(fs::remove_file(&draft)))
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}
