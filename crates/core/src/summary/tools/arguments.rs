//! The arguments of a call, by name, looked into only where they matter.
//!
//! Agents spell the same argument `file_path`, `filePath` or `FilePath`, so names are compared by their letters alone.
//! A value may be a whole file: it stays unparsed until it is asked for.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{CallForm, ToolCall};

/// The arguments of one call.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    named: BTreeMap<String, &'a RawValue>,
    /// Arguments that are text rather than JSON.
    free: Option<Cow<'a, str>>,
}

/// The longest value that can be a path, a pattern or a number.
const LONGEST: usize = 4 * 1024;

/// The most values that are taken from a list.
const MOST: usize = 256;

impl<'a> Arguments<'a> {
    /// The arguments as the model wrote them; what is neither JSON nor free text has none.
    pub(super) fn of(call: &'a ToolCall) -> Self {
        let nothing = Self { named: BTreeMap::new(), free: None };
        if call.form == CallForm::Custom {
            return Self { free: Some(Cow::Borrowed(&call.arguments)), ..nothing };
        }
        match serde_json::from_str::<BTreeMap<Cow<'a, str>, &'a RawValue>>(&call.arguments) {
            Ok(given) => Self {
                named: given.into_iter().map(|(name, value)| (letters(&name), value)).collect(),
                ..nothing
            },
            Err(_) => Self { free: serde_json::from_str(&call.arguments).ok().map(Cow::Owned), ..nothing },
        }
    }

    /// The arguments where they are plain text.
    pub(super) fn free(&self) -> Option<&str> {
        self.free.as_deref()
    }

    /// The first of the named arguments that is a short text: a path, a pattern, a choice.
    pub(super) fn short(&self, names: &[&str]) -> Option<String> {
        let short = |json: &&RawValue| json.get().len() <= LONGEST;
        let texts = names.iter().filter_map(|name| self.named.get(*name).copied().filter(short));
        texts.filter_map(text).find(|text| !text.trim().is_empty())
    }

    /// The first of the named arguments that is a text, however long.
    pub(super) fn long(&self, names: &[&str]) -> Option<String> {
        names.iter().filter_map(|name| self.named.get(*name).copied()).find_map(text)
    }

    /// The words of a command that is given as a list.
    pub(super) fn words(&self, names: &[&str]) -> Option<Vec<String>> {
        let json = names.iter().find_map(|name| self.named.get(*name))?;
        serde_json::from_str(json.get()).ok()
    }

    /// Short texts from a list of texts, or of objects which name one.
    pub(super) fn list(&self, names: &[&str], within: &[&str]) -> Vec<String> {
        let lists = names.iter().filter_map(|name| self.named.get(*name));
        let elements = lists.filter_map(|json| serde_json::from_str::<Vec<&RawValue>>(json.get()).ok());
        let texts = elements.flatten().take(MOST).filter_map(|json| {
            if json.get().len() > LONGEST {
                return None;
            }
            text(json).or_else(|| {
                let object: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json.get()).ok()?;
                let found = object.into_iter().find(|(name, _)| within.contains(&letters(name).as_str()));
                found.and_then(|(_, json)| text(json))
            })
        });
        texts.collect()
    }

    /// The first of the named arguments that is a whole number, or a text that says one.
    pub(super) fn number(&self, names: &[&str]) -> Option<i64> {
        names.iter().filter_map(|name| self.named.get(*name).copied()).find_map(number)
    }

    /// Two numbers: a list of them, or a text such as `10-20`.
    pub(super) fn pair(&self, names: &[&str]) -> Option<(i64, i64)> {
        let json = names.iter().find_map(|name| self.named.get(*name))?;
        if json.get().len() > LONGEST {
            return None;
        }
        if let Ok(numbers) = serde_json::from_str::<Vec<&RawValue>>(json.get()) {
            let numbers: Vec<i64> = numbers.into_iter().filter_map(number).collect();
            return <[i64; 2]>::try_from(numbers).ok().map(|[from, to]| (from, to));
        }
        let text = text(json)?;
        let (from, to) = text.split_once(['-', ':', ','])?;
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    }

    /// Whether a named argument is `true`.
    pub(super) fn says(&self, name: &str) -> bool {
        self.named.get(name).is_some_and(|json| matches!(json.get(), "true" | "\"true\""))
    }

    /// A named argument as it was written.
    pub(super) fn raw(&self, name: &str) -> Option<&'a str> {
        self.named.get(name).map(|json| json.get())
    }
}

/// A name without what agents join its words with.
fn letters(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn text(json: &RawValue) -> Option<String> {
    serde_json::from_str(json.get()).ok()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Broken(f64),
    Text(String),
}

fn number(json: &RawValue) -> Option<i64> {
    if json.get().len() > LONGEST {
        return None;
    }
    match serde_json::from_str(json.get()).ok()? {
        Number::Whole(number) => Some(number),
        #[expect(clippy::cast_possible_truncation, reason = "it saturates, and no file has as many lines")]
        Number::Broken(number) => Some(number as i64),
        Number::Text(text) => text.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_their_letters() {
        let call = ToolCall::function("c", "t", r#"{"file_Path": "a", "limit": "7", "range": [1, -1]}"#);
        let arguments = Arguments::of(&call);
        assert_eq!(arguments.short(&["path", "filepath"]).as_deref(), Some("a"));
        assert_eq!((arguments.number(&["limit"]), arguments.pair(&["range"])), (Some(7), Some((1, -1))));
    }

    #[test]
    fn what_is_no_object_has_no_names() {
        for json in ["", "{", "[1]", "7", "{\"path\": }", &"[".repeat(10_000)] {
            let call = ToolCall::function("c", "t", json);
            let arguments = Arguments::of(&call);
            assert_eq!((arguments.short(&["path"]), arguments.free()), (None, None), "{json}");
        }
        let call = ToolCall::function("c", "t", "\"ls -l\"");
        assert_eq!(Arguments::of(&call).free(), Some("ls -l"));
    }
}
