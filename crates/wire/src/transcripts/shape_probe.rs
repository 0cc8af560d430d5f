//! The outer structure of a JSON value.
//!
//! To recognise a document, its outer structure is enough. So a document is never parsed as a whole just for that,
//! whatever its size, and no nesting makes the recursion deeper than is safe.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{TranscriptError, raw_json};
use crate::json::Json;

/// Depth of a sketch.
const MAX_SKETCH_DEPTH: usize = 5;
const MAX_SKETCH_ELEMENTS: usize = 3;
const MAX_SKETCH_CHARS: usize = 200;

/// The outer structure of a value, lists and strings cut short.
pub(super) fn sketch(json: &str) -> Value {
    sketch_to(json, MAX_SKETCH_DEPTH)
}

fn sketch_to(json: &str, depth: usize) -> Value {
    let inner = |json: &str| depth.checked_sub(1).map_or(Value::Null, |depth| sketch_to(json, depth));
    match json.trim_ascii_start().as_bytes().first() {
        Some(b'{') if depth == 0 => Value::Object(Map::new()),
        Some(b'[') if depth == 0 => Value::Array(Vec::new()),
        Some(b'{') => {
            let members = raw_json::members(json).unwrap_or_default();
            members.into_iter().map(|(key, value)| (key.into_owned(), inner(value))).collect()
        }
        Some(b'[') => {
            let elements = raw_json::elements(json).unwrap_or_default();
            elements.into_iter().take(MAX_SKETCH_ELEMENTS).map(inner).collect()
        }
        Some(b'"') => {
            let text = Json::parse(json, "a string").ok();
            let text = text.as_ref().and_then(Json::as_text).unwrap_or_default();
            Value::String(text.chars().take(MAX_SKETCH_CHARS).collect())
        }
        _ => serde_json::from_str(json).unwrap_or(Value::Null),
    }
}

/// The error for a text that is nested deeper than any agent nests.
pub(super) fn too_deep(text: &str) -> Option<TranscriptError> {
    let error = serde_json::from_str::<DepthCheck>(text).err().map(TranscriptError::json)?;
    matches!(error, TranscriptError::TooDeep { .. }).then_some(error)
}

/// A value that was checked as deep as `serde_json` goes, without keeping any of it.
struct DepthCheck;

impl<'de> Deserialize<'de> for DepthCheck {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DepthVisitor)
    }
}

struct DepthVisitor;

impl<'de> Visitor<'de> for DepthVisitor {
    type Value = DepthCheck;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<DepthCheck, E> {
        Ok(DepthCheck)
    }

    fn visit_bool<E>(self, _: bool) -> Result<DepthCheck, E> {
        Ok(DepthCheck)
    }

    fn visit_i64<E>(self, _: i64) -> Result<DepthCheck, E> {
        Ok(DepthCheck)
    }

    fn visit_u64<E>(self, _: u64) -> Result<DepthCheck, E> {
        Ok(DepthCheck)
    }

    fn visit_f64<E>(self, _: f64) -> Result<DepthCheck, E> {
        Ok(DepthCheck)
    }

    fn visit_str<E>(self, _: &str) -> Result<DepthCheck, E> {
        Ok(DepthCheck)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DepthCheck, A::Error> {
        while list.next_element::<DepthCheck>()?.is_some() {}
        Ok(DepthCheck)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<DepthCheck, A::Error> {
        while object.next_entry::<IgnoredAny, DepthCheck>()?.is_some() {}
        Ok(DepthCheck)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sketch_is_shallow_and_short() {
        let long = "x".repeat(1000);
        let text = format!(
            r#"{{"s": "{long}", "l": [1, 2, 3, 4, 5], "d": {{"e": {{"f": {{"g": {{"h": [1]}}}}}}}}}}"#
        );
        let expect =
            json!({"s": "x".repeat(MAX_SKETCH_CHARS), "l": [1, 2, 3], "d": {"e": {"f": {"g": {"h": []}}}}});
        assert_eq!(sketch(&text), expect);
    }

    #[test]
    fn too_deep_is_told_from_everything_else() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(too_deep(&deep).is_some());
        for text in [r#"{"a": [1, -1, 1.5, "x", null, true]}"#, "[1", "x"] {
            assert!(too_deep(text).is_none(), "{text}");
        }
    }
}
