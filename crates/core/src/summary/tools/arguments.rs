//! The arguments of a call, by name, looked into only where they matter.
//!
//! Agents spell the same argument `file_path`, `filePath` or `FilePath`, so names are compared by their letters alone.
//! A value may be a whole file: it stays unparsed until it is asked for.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::RawValue;

use crate::event::{CallForm, ToolCall};

/// The arguments of one call.
#[derive(Debug, Default)]
pub(super) struct CallArguments<'a> {
    named: BTreeMap<String, &'a RawValue>,
    /// Arguments that are text rather than JSON.
    free: Option<Cow<'a, str>>,
}

/// The longest value that can be a path, a choice or a figure.
const LONGEST: usize = 4 * 1024;

/// The most values that are taken from a list.
const MOST: usize = 256;

impl<'a> CallArguments<'a> {
    /// The arguments as the model wrote them; what is neither JSON nor free text has none.
    pub(super) fn of(call: &'a ToolCall) -> Self {
        if call.form == CallForm::Custom {
            return Self { free: Some(Cow::Borrowed(&call.arguments)), ..Self::default() };
        }
        match serde_json::from_str::<&RawValue>(&call.arguments) {
            Ok(json) => Self { named: fields(json), free: text(json).map(Cow::Owned) },
            Err(_) => Self::default(),
        }
    }

    /// The fields of one element of a list.
    pub(super) fn within(element: &'a RawValue) -> Self {
        Self { named: fields(element), free: None }
    }

    /// The first text among the arguments whose names begin in one of these ways.
    pub(super) fn starting_with(&self, starts: &[&str]) -> Option<String> {
        let mut named =
            self.named.iter().filter(|(name, _)| starts.iter().any(|start| name.starts_with(start)));
        named.find_map(|(_, json)| text(json))
    }

    /// The arguments where they are plain text.
    pub(super) fn free(&self) -> Option<&str> {
        self.free.as_deref()
    }

    /// The first of the named arguments that is a short text: a path, a choice.
    pub(super) fn short(&self, names: &[&str]) -> Option<String> {
        let short = |json: &&RawValue| json.get().len() <= LONGEST;
        let texts = names.iter().filter_map(|name| self.named.get(*name).copied().filter(short));
        texts.filter_map(text).find(|text| !text.trim().is_empty())
    }

    /// The first of the named arguments that is a text, however long.
    pub(super) fn long(&self, names: &[&str]) -> Option<String> {
        names.iter().filter_map(|name| self.named.get(*name).copied()).find_map(text)
    }

    /// The elements of the first of the named arguments that is a list.
    pub(super) fn elements(&self, names: &[&str]) -> Vec<&'a RawValue> {
        let lists = names.iter().filter_map(|name| serde_json::from_str(self.named.get(*name)?.get()).ok());
        lists.map(|list: Vec<&RawValue>| list.into_iter().take(MOST).collect()).next().unwrap_or_default()
    }

    /// Short texts from a list of texts, or of objects which name one.
    pub(super) fn list(&self, names: &[&str], within: &[&str]) -> Vec<String> {
        let elements = self.elements(names).into_iter().filter(|json| json.get().len() <= LONGEST);
        let inner = |json| within.iter().find_map(|name| text(fields(json).get(*name)?));
        elements.filter_map(|json| text(json).or_else(|| inner(json))).collect()
    }

    /// The figures among the arguments, as `10-20`: they say which part of a file is meant.
    pub(super) fn figures(&self) -> String {
        let is_figure = |json: &&&RawValue| {
            let json = json.get();
            json.len() <= LONGEST && json.bytes().all(|byte| b"0123456789-[], ".contains(&byte))
        };
        let figures = self.named.values().filter(is_figure).map(|json| figures_in(json.get()));
        figures.collect::<Vec<_>>().join("-")
    }

    /// Whether a named argument is `true`.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.named.get(name).is_some_and(|json| json.get() == "true")
    }
}

/// The fields of an object by their letters; none of anything else.
pub(super) fn fields(json: &RawValue) -> BTreeMap<String, &RawValue> {
    let given: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json.get()).unwrap_or_default();
    given.into_iter().map(|(name, value)| (letters(&name), value)).collect()
}

/// A text, if a value is one.
pub(super) fn text(json: &RawValue) -> Option<String> {
    serde_json::from_str(json.get()).ok()
}

/// The figures in a text, joined.
pub(super) fn figures_in(text: &str) -> String {
    let figures = text.split(|letter: char| !letter.is_ascii_digit()).filter(|figure| !figure.is_empty());
    figures.collect::<Vec<_>>().join("-")
}

/// A name without what agents join its words with.
fn letters(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
