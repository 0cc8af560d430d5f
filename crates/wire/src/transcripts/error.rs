//! Errors for files that could not be read at all.
//!
//! Oddities inside a file are [`TranscriptWarning`]s and the rest of the file is kept; these are the cases in
//! which no content is left. Each message names the finding and tells its reader how to fix it.

use thiserror::Error;

use super::TranscriptWarning;

/// Reason nothing could be read from a file.
#[derive(Debug, Error)]
pub enum TranscriptError {
    /// The file is empty.
    #[error("the file is empty: read it again once its agent has written to it")]
    Empty,
    /// It holds bytes that are not text.
    #[error(
        "the file is not text (byte {at} cannot be part of UTF-8 JSON): give the agent's transcript itself, \
         unpacked if it came in an archive"
    )]
    NotText {
        /// The first offending byte, counted from 0.
        at: usize,
    },
    /// It is text, but not JSON.
    #[error(
        "the file is not JSON or JSONL: check that it is the agent's transcript and not a rendering of it"
    )]
    NotJson {
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// Its JSON document stops in the middle.
    #[error("the JSON document is cut off: read it again once it is written completely, or get a whole copy")]
    CutOff {
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// Its values are nested deeper than any agent nests them.
    #[error("the JSON is nested too deeply to be a transcript: check where the file comes from")]
    TooDeep {
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON, but not of an agent that this crate reads.
    #[error(
        "no agent known here writes such a file (seen: {seen}): the formats that can be read are {known}"
    )]
    UnknownAgent {
        /// Top-level keys of the value, or its type.
        seen: String,
        /// Formats that can be read.
        known: String,
    },
    /// A record that the format cannot do without is missing or malformed.
    #[error("the file looks like {format}, but {what}")]
    Malformed {
        /// The format it looks like.
        format: &'static str,
        /// Fault, and advice.
        what: String,
    },
    /// It is larger than allowed.
    #[error("{what} exceeds the limit of {limit} bytes: raise the limit if the file is trusted")]
    TooLarge {
        /// Name of the part that is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Its compression is broken.
    #[error("the zstd compression is damaged or cut off: get a whole copy of the file")]
    Compression {
        /// The decompressor's error.
        #[source]
        source: std::io::Error,
    },
}

impl TranscriptError {
    /// The error for a file of lines without content: it has no lines, or none of them could be used.
    pub(crate) fn nothing(format: &'static str, warnings: &[TranscriptWarning]) -> Self {
        warnings.first().map_or(Self::Empty, |first| Self::Malformed {
            format,
            what: format!("none of its lines could be used ({first}): get a whole copy of the file"),
        })
    }

    /// Classifies an error of the JSON parser by its meaning for the reader of the file.
    pub(crate) fn json(source: serde_json::Error) -> Self {
        if source.is_eof() {
            Self::CutOff { source }
        } else if is_too_deep(&source) {
            Self::TooDeep { source }
        } else {
            Self::NotJson { source }
        }
    }
}

/// Returns true if the nesting was too deep. serde_json keeps its error codes private, so its message decides.
fn is_too_deep(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("recursion limit exceeded")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_parser_error_becomes_what_it_means() {
        let refused = |text: &str| TranscriptError::json(serde_json::from_str::<Value>(text).unwrap_err());
        assert!(matches!(refused("{\"a\": [1, 2"), TranscriptError::CutOff { .. }));
        assert!(matches!(refused(&"[".repeat(100_000)), TranscriptError::TooDeep { .. }));
        assert!(matches!(refused("hello"), TranscriptError::NotJson { .. }));
    }
}
