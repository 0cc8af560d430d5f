//! Sessions of a file that is measured.

use std::{io, path::Path};

use epitome::wire::transcripts::{self, TranscriptError, TranscriptLimits, TranscriptSession};
use thiserror::Error;

/// Failure to read a file.
#[derive(Debug, Error)]
pub enum TranscriptFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a transcript, but not a whole one.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
}

/// Reads the sessions of a file; none if it is no transcript, since folders hold other files too.
pub fn transcript_sessions(path: &Path) -> Result<Vec<TranscriptSession>, TranscriptFileError> {
    let bytes = std::fs::read(path)?;
    match transcripts::read(&path.to_string_lossy(), &bytes, &TranscriptLimits::default()) {
        Ok(file) => Ok(file.sessions),
        Err(TranscriptError::UnknownAgent { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
