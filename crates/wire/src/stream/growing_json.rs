//! JSON that is still growing.
//!
//! Leaves are kept as they were written, so numbers keep their digits; strings are kept unescaped, so that the next
//! piece can be appended. An object with many members gets an index, as their number is the sender's choice.

use std::collections::HashMap;

use crate::json::{Json, JsonValue, quote};

/// A growing value.
#[derive(Clone, Debug)]
pub(crate) enum GrowingJson {
    /// A value that does not grow: any JSON.
    Fixed(String),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<GrowingJson>),
    /// An object.
    Object(GrowingObject),
}

/// The members of a growing object, in the order they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowingObject {
    list: Vec<(String, GrowingJson)>,
    /// Index of the members, once there are too many to search in order.
    places: HashMap<String, usize>,
}

/// Number of members up to which a search in order is faster than an index.
const MAX_UNINDEXED_MEMBERS: usize = 32;

impl GrowingJson {
    /// `null`.
    pub(crate) fn null() -> Self {
        Self::Fixed("null".to_owned())
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Fixed(json) if json == "null")
    }

    /// The members, if it is an object.
    pub(crate) fn members(&mut self) -> Option<&mut GrowingObject> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Appends to a string; anything else becomes one.
    pub(crate) fn append(&mut self, piece: &str) {
        match self {
            Self::Text(text) => text.push_str(piece),
            other => *other = Self::text(piece),
        }
    }

    /// The element at `index` of a list, or a new one at its end. Anything else becomes a list.
    pub(crate) fn element(&mut self, index: u64) -> &mut Self {
        let elements = self.elements();
        let at = usize::try_from(index).unwrap_or(usize::MAX).min(elements.len());
        if at == elements.len() {
            elements.push(Self::null());
        }
        &mut elements[at]
    }

    /// Adds an element to a list; anything else becomes one.
    pub(crate) fn push(&mut self, element: Self) {
        self.elements().push(element);
    }

    fn elements(&mut self) -> &mut Vec<Self> {
        if !matches!(self, Self::List(_)) {
            *self = Self::List(Vec::new());
        }
        match self {
            Self::List(elements) => elements,
            _ => unreachable!("it was made a list just now"),
        }
    }

    /// The JSON so far.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Fixed(json) => out.push_str(json),
            Self::Text(text) => out.push_str(&quote(text)),
            Self::List(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.list.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&quote(key));
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl From<&Json<'_>> for GrowingJson {
    fn from(json: &Json<'_>) -> Self {
        match &json.value {
            JsonValue::Null | JsonValue::Bool(_) | JsonValue::Number => Self::Fixed(json.raw.to_owned()),
            JsonValue::String(text) => Self::text(text),
            JsonValue::Array(elements) => Self::List(elements.iter().map(Self::from).collect()),
            JsonValue::Object(list) => {
                let mut members = GrowingObject::default();
                for (key, value) in list {
                    members.set(key, Self::from(value));
                }
                Self::Object(members)
            }
        }
    }
}

impl GrowingObject {
    /// The member called `key`, made as `null` if it is not there.
    pub(crate) fn at(&mut self, key: &str) -> &mut GrowingJson {
        let place = self.place(key).unwrap_or_else(|| self.add(key));
        &mut self.list[place].1
    }

    pub(crate) fn get(&self, key: &str) -> Option<&GrowingJson> {
        self.place(key).map(|place| &self.list[place].1)
    }

    fn place(&self, key: &str) -> Option<usize> {
        if self.list.len() <= MAX_UNINDEXED_MEMBERS {
            self.list.iter().position(|(name, _)| name == key)
        } else {
            self.places.get(key).copied()
        }
    }

    fn add(&mut self, key: &str) -> usize {
        let place = self.list.len();
        self.list.push((key.to_owned(), GrowingJson::null()));
        if place == MAX_UNINDEXED_MEMBERS {
            self.places.extend(self.list.iter().zip(0..).map(|((name, _), place)| (name.clone(), place)));
        } else if place > MAX_UNINDEXED_MEMBERS {
            self.places.insert(key.to_owned(), place);
        }
        place
    }

    pub(crate) fn set(&mut self, key: &str, value: GrowingJson) {
        *self.at(key) = value;
    }

    /// Takes over all members of `others`.
    pub(crate) fn take_all(&mut self, others: Self) {
        for (key, value) in others.list {
            self.set(&key, value);
        }
    }

    /// Returns true if no member was ever set.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets every member that `json` has. Returns the number of bytes that this keeps.
    pub(crate) fn assign(&mut self, json: &Json<'_>) -> usize {
        json.members().iter().map(|(key, value)| self.assign_one(key, value)).sum()
    }

    /// Sets every member that `json` has and that is not `null`. Returns the number of bytes that this keeps.
    pub(crate) fn update(&mut self, json: &Json<'_>) -> usize {
        let said = json.members().iter().filter(|(_, value)| !value.is_null());
        said.map(|(key, value)| self.assign_one(key, value)).sum()
    }

    fn assign_one(&mut self, key: &str, value: &Json<'_>) -> usize {
        self.set(key, value.into());
        key.len() + value.raw.len()
    }
}
