//! Errors in reading provider JSON.
//!
//! Odd content is not an error: it is carried. Only text that is not JSON at all, or that cannot be walked safely, is
//! refused.

/// Deepest nesting that is read, the same as `serde_json`'s own limit.
pub(crate) const MAX_DEPTH: usize = 128;

/// Reason provider JSON could not be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The text is not JSON.
    #[error("reading {what}: it is not one complete JSON value; send exactly one")]
    NotJson {
        /// Name of the text being read.
        what: &'static str,
        /// Position and kind of the JSON error.
        source: serde_json::Error,
    },
    /// The JSON is nested so deep that walking it could exhaust the stack.
    #[error("reading {what}: it is nested more than {MAX_DEPTH} levels deep; flatten it")]
    TooDeep {
        /// Name of the text being read.
        what: &'static str,
    },
    /// A whole request, response or usage report is not an object.
    #[error("reading {what}: expected a JSON object, found {found}")]
    NotAnObject {
        /// Name of the text being read.
        what: &'static str,
        /// Kind of value found instead.
        found: &'static str,
    },
    /// A value that should be a list is not one.
    #[error("reading {what}: expected a JSON list with at least one element, found {found}")]
    NotAList {
        /// Name of the text being read.
        what: &'static str,
        /// Kind of value found instead.
        found: &'static str,
    },
    /// Settings contain a member that must be an event of its own.
    #[error("reading a session's settings: `{key}` is not one; say it apart")]
    NotASetting {
        /// The member.
        key: &'static str,
    },
    /// A setting prevents a question from being appended to this request.
    #[error(
        "appending to a request: with its `{setting}` the answer would be no text, or the history is not in it; ask in a \
         request of its own instead"
    )]
    CannotAppend {
        /// Setting that prevents it.
        setting: &'static str,
    },
    /// A response holds neither an answer nor an error.
    #[error("reading {what}: there is none, nor an error; is this the right format for the server?")]
    NothingSaid {
        /// Name of the text being read.
        what: &'static str,
    },
    /// A response is an error message of the provider.
    #[error("reading {what}: the provider answered with an error instead: {said}")]
    NoAnswer {
        /// Name of the text being read.
        what: &'static str,
        /// The provider's words.
        said: String,
    },
    /// A streamed answer grew beyond what was allowed.
    #[error(
        "assembling a streamed answer: it is larger than the {limit} bytes allowed; raise the limit to read it"
    )]
    TooLarge {
        /// The configured limit.
        limit: usize,
    },
}
