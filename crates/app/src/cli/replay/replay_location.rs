//! Locations of what is replayed: files, folders and sessions of the log.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use epitome::{
    core::Seq,
    import::find_files,
    wire::transcripts::{self, TranscriptError, TranscriptLimits},
};
use epitome_measure::replay::ReplaySubject;

use super::super::{request_source, store_lookup, store_lookup::DatabaseLocation};

/// Location of something to be replayed.
#[derive(Clone, Debug)]
pub(in crate::cli) enum ReplayLocation {
    /// A file that was named.
    File(PathBuf),
    /// A file in a named folder, which may hold other files too.
    Found(PathBuf),
    /// A session of the log.
    Session(String),
}

impl ReplayLocation {
    /// Locations that the arguments name: files, all files in folders, and else sessions of the store.
    pub(in crate::cli) fn from_names(names: &[String]) -> anyhow::Result<(Vec<Self>, Vec<String>)> {
        let (mut places, mut unread) = (Vec::new(), Vec::new());
        let mut known = HashSet::new();
        for name in names {
            if Path::new(name).is_dir() {
                let (files, errors) = find_files(Path::new(name));
                places.extend(files.into_iter().map(Self::Found));
                unread.extend(errors.iter().map(ToString::to_string));
            } else if request_source::is_file(name)? {
                places.push(Self::File(name.into()));
            } else {
                places.push(Self::Session(name.clone()));
            }
        }
        // A location that is named twice is replayed once.
        places.retain(|place| known.insert(place.identity()));
        Ok((places, unread))
    }

    /// Name as it was given, or as it was found in a given folder.
    pub(in crate::cli) fn given_name(&self) -> String {
        match self {
            Self::File(path) | Self::Found(path) => path.to_string_lossy().into_owned(),
            Self::Session(name) => name.clone(),
        }
    }

    /// Returns true for a file in a named folder, which may be no transcript.
    pub(in crate::cli) fn is_found(&self) -> bool {
        matches!(self, Self::Found(_))
    }

    /// Path of the file, if it is one, however it was named.
    pub(in crate::cli) fn path(&self) -> Option<PathBuf> {
        let (is_file, path) = self.identity();
        is_file.then_some(path)
    }

    fn identity(&self) -> (bool, PathBuf) {
        match self {
            Self::File(path) | Self::Found(path) => {
                (true, path.canonicalize().unwrap_or_else(|_| path.clone()))
            }
            Self::Session(name) => (false, name.into()),
        }
    }

    pub(in crate::cli) fn name(&self) -> String {
        match self {
            Self::File(path) | Self::Found(path) => {
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            Self::Session(name) => name.clone(),
        }
    }

    /// Reads the threads at this location; none if a file in a folder is no transcript.
    pub(in crate::cli) fn subjects(&self, store: &DatabaseLocation) -> anyhow::Result<Vec<ReplaySubject>> {
        match self {
            Self::File(path) => self.of_file(path),
            Self::Found(path) => self.of_file(path).or_else(|error| match error.downcast_ref() {
                Some(TranscriptError::UnknownAgent { .. }) => Ok(Vec::new()),
                _ => Err(error),
            }),
            Self::Session(name) => {
                let store = store.open_existing()?;
                let session = store.find_session(name)?;
                let thread = store_lookup::thread(&*store, &session, None)?;
                let events = store_lookup::events(&*store, thread.id, None)?;
                Ok(vec![ReplaySubject {
                    file: name.clone(),
                    key: None,
                    name: session.title,
                    thread: thread.id,
                    is_main: true,
                    events: events.into_iter().map(|logged| logged.event).collect(),
                    own: Seq(1),
                }])
            }
        }
    }

    fn of_file(&self, path: &Path) -> anyhow::Result<Vec<ReplaySubject>> {
        let bytes = std::fs::read(path).context("cannot read it")?;
        let reading = transcripts::read(&path.to_string_lossy(), &bytes, &TranscriptLimits::default())?;
        let one = reading.sessions.len() == 1;
        let subjects = reading.sessions.iter().flat_map(|session| {
            ReplaySubject::of_session(session, &self.name(), (!one).then_some(session.key.as_str()))
        });
        Ok(subjects.collect())
    }
}
