//! Why a file could not be read at all.
//!
//! Oddities inside a file are [`Warning`](super::Warning)s and the rest of the file is kept; these are the cases
//! where there is nothing to keep. Each says what was found and what the reader of the message can do about it.

use thiserror::Error;

use super::Warning;

/// Why nothing could be read from a file.
#[derive(Debug, Error)]
pub enum ReadError {
    /// There is nothing in it.
    #[error("the file is empty: read it again once its agent has written to it")]
    Empty,
    /// It holds bytes that are no text.
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
        /// What the parser met.
        #[source]
        source: serde_json::Error,
    },
    /// Its JSON document stops in the middle.
    #[error("the JSON document is cut off: read it again once it is written completely, or get a whole copy")]
    CutOff {
        /// What the parser met.
        #[source]
        source: serde_json::Error,
    },
    /// Its values are nested deeper than any agent nests them.
    #[error("the JSON is nested too deeply to be a transcript: check where the file comes from")]
    TooDeep {
        /// What the parser met.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON, but of no agent that there is a reader for.
    #[error(
        "no agent known here writes such a file (seen: {seen}): the formats that can be read are {known}"
    )]
    UnknownAgent {
        /// What was seen: the top-level keys, or the type of the value.
        seen: String,
        /// The formats there are readers for.
        known: String,
    },
    /// A record that the format cannot do without is missing or malformed.
    #[error("the file looks like {format}, but {what}")]
    Malformed {
        /// The format it looks like.
        format: &'static str,
        /// What is wrong, and what to do.
        what: String,
    },
    /// It is larger than allowed.
    #[error("{what} exceeds the limit of {limit} bytes: raise the limit if the file is trusted")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Its compression is broken.
    #[error("the zstd compression is damaged or cut off: get a whole copy of the file")]
    Compression {
        /// What the decompressor met.
        #[source]
        source: std::io::Error,
    },
}

impl ReadError {
    /// Why a file of lines gave nothing: it has none, or none of them could be used.
    pub(crate) fn nothing(format: &'static str, warnings: &[Warning]) -> Self {
        warnings.first().map_or(Self::Empty, |first| Self::Malformed {
            format,
            what: format!("none of its lines could be used ({first}): get a whole copy of the file"),
        })
    }

    /// Sorts what a JSON parser refused into what it means for the reader of the file.
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

/// serde_json keeps its error codes to itself; its words are all there is to go by.
fn is_too_deep(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("recursion limit exceeded")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_parser_error_becomes_what_it_means() {
        let refused = |text: &str| ReadError::json(serde_json::from_str::<Value>(text).unwrap_err());
        assert!(matches!(refused("{\"a\": [1, 2"), ReadError::CutOff { .. }));
        assert!(matches!(refused(&"[".repeat(100_000)), ReadError::TooDeep { .. }));
        assert!(matches!(refused("hello"), ReadError::NotJson { .. }));
    }
}
