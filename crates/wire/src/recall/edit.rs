//! A change of some bytes of a body.

use std::ops::Range;

use crate::json::Json;

/// Bytes of a body, and what stands there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bytes; none if something is only put in.
    pub at: Range<usize>,
    /// What stands there instead.
    pub text: String,
}

impl Edit {
    /// The body with the change made in it. One that the change is not for loses what it does not have.
    pub fn apply(&self, body: &str) -> String {
        let before = body.get(..self.at.start).unwrap_or_default();
        let after = body.get(self.at.end..).unwrap_or_default();
        [before, &self.text, after].concat()
    }

    /// The same, for a body that has so many bytes before it.
    pub(super) fn behind(self, bytes: usize) -> Self {
        Self { at: self.at.start + bytes..self.at.end + bytes, ..self }
    }
}

/// How many bytes stand before the value in a text: [`Json::start`] counts without them.
pub(super) fn lead(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len()
}

/// An object with those of its members that `write` gives a value.
pub(super) fn remade<'j>(
    object: &'j Json<'_>,
    mut write: impl FnMut(&'j str, &'j Json<'j>) -> Option<String>,
) -> String {
    let members = object.members().iter().filter_map(|(key, value)| Some((&**key, write(key, value)?)));
    crate::json::object(members)
}
