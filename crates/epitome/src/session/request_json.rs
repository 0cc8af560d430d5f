//! JSON that a program gives a session for its requests.

use serde_json::{Value, value::RawValue};

/// JSON of a new session's requests: its tools, or its settings.
///
/// The bytes that are sent follow from it. A [`Value`] is written without white space, and the members of its objects
/// in the order in which they were put there. A [`RawValue`] keeps the text that it was read from, for definitions
/// whose bytes are in a prompt cache already.
///
/// ```
/// use epitome::session::RequestJson;
/// use serde_json::{json, value::RawValue};
///
/// assert_eq!(RequestJson::from(json!({"b": 1, "a": 2.0})).as_str(), r#"{"b":1,"a":2.0}"#);
/// let raw: Box<RawValue> = serde_json::from_str(r#"{ "b": 1, "a": 2e0 }"#)?;
/// assert_eq!(RequestJson::from(raw).as_str(), r#"{ "b": 1, "a": 2e0 }"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestJson(String);

impl RequestJson {
    /// The text that is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Value> for RequestJson {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

impl From<&Value> for RequestJson {
    fn from(value: &Value) -> Self {
        Self(value.to_string())
    }
}

/// A list.
impl From<Vec<Value>> for RequestJson {
    fn from(values: Vec<Value>) -> Self {
        Value::Array(values).into()
    }
}

impl From<Box<RawValue>> for RequestJson {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Box::<str>::from(raw).into())
    }
}

impl From<&RawValue> for RequestJson {
    fn from(raw: &RawValue) -> Self {
        Self(raw.get().to_owned())
    }
}
