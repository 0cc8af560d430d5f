//! A change of some bytes of a body.

use std::ops::Range;

use crate::json::Json;

/// A byte range of a body, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEdit {
    /// The bytes to replace; an empty range to insert.
    pub at: Range<usize>,
    /// The replacement.
    pub text: String,
}

impl BodyEdit {
    /// Returns the body with the change made in it. Ranges beyond the end of another body are cut to it.
    pub fn apply(&self, body: &str) -> String {
        let before = body.get(..self.at.start).unwrap_or_default();
        let after = body.get(self.at.end..).unwrap_or_default();
        [before, &self.text, after].concat()
    }

    /// The same edit for a body with `bytes` more bytes before it.
    pub(crate) fn shifted(self, bytes: usize) -> Self {
        Self { at: self.at.start + bytes..self.at.end + bytes, ..self }
    }
}

/// Number of bytes before the value in a text: [`Json::start`] counts without them.
pub(crate) fn leading_whitespace(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len()
}

/// An object with those of its members that `write` gives a value.
pub(crate) fn rewrite_members<'j>(
    object: &'j Json<'_>,
    mut write: impl FnMut(&'j str, &'j Json<'j>) -> Option<String>,
) -> String {
    let members = object.members().iter().filter_map(|(key, value)| Some((&**key, write(key, value)?)));
    crate::json::object(members)
}
