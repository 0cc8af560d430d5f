//! Pieces of JSON text, taken out or left out byte for byte.
//!
//! An event keeps the JSON it came from exactly. A file of many conversations is split here without being parsed, and
//! members that an agent later changes in a written record are cut out here, so that the record reads the same before
//! and after.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::json::Json;

/// The members of an object, in order; `None` if the text is not an object.
pub(crate) fn members(json: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    serde_json::from_str::<RawMembers<'_>>(json).ok().map(|members| members.0)
}

/// The elements of an array; `None` if the text is not an array.
pub(crate) fn elements(json: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}

/// The value of a member. Of a repeated key the last counts, as it does for any parser.
pub(crate) fn member<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    members(json)?.into_iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// The object with another value for a member, the rest as it is. A repeated key means the last one.
pub(crate) fn with_value(json: &str, key: &str, value: &str) -> String {
    let found = member(json, key).and_then(|member| span(json, member));
    let Some(Range { start, end }) = found else { return json.trim_ascii().to_owned() };
    format!("{}{value}{}", json[..start].trim_ascii_start(), json[end..].trim_ascii_end())
}

/// Byte range of `whole` to cut so that `object`, which is a slice of it, has no member `key`. Cutting it leaves the
/// very text that the object had before the member was added.
pub(crate) fn member_range(whole: &str, object: &Json<'_>, key: &str) -> Option<Range<usize>> {
    let members = object.members();
    let index = members.iter().rposition(|(name, _)| name == key)?;
    let value = span(whole, members[index].1.raw)?;
    if let Some(before) = index.checked_sub(1) {
        return Some(span(whole, members[before].1.raw)?.end..value.end);
    }
    let start = span(whole, object.raw)?.start + 1;
    let rest = &whole[value.end..];
    let comma = rest.len() - rest.trim_ascii_start().len();
    let end = if rest[comma..].starts_with(',') { value.end + comma + 1 } else { value.end };
    Some(start..end)
}

/// The text without some of its ranges.
pub(crate) fn cut(whole: &str, mut ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(whole);
    }
    ranges.sort_by_key(|range| range.start);
    let mut kept = String::with_capacity(whole.len());
    let mut from = 0;
    for range in ranges {
        kept.push_str(whole.get(from..range.start).unwrap_or_default());
        from = from.max(range.end);
    }
    kept.push_str(whole.get(from..).unwrap_or_default());
    Cow::Owned(kept)
}

/// Several values as one value: itself if it is one, else an array.
pub(crate) fn join_values<S: AsRef<str>>(values: &[S]) -> String {
    match values {
        [one] => one.as_ref().to_owned(),
        many => format!("[{}]", many.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(",")),
    }
}

/// The same JSON without the white space between its tokens, as a model wrote it before a file indented it.
pub(crate) fn compact(json: &str) -> String {
    let mut compact = String::with_capacity(json.len());
    let mut inside = false;
    let mut escaped = false;
    for letter in json.chars() {
        if inside {
            inside = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            compact.push(letter);
        } else if !letter.is_ascii_whitespace() {
            inside = letter == '"';
            compact.push(letter);
        }
    }
    compact
}

/// Byte range of `part` in `whole`, if it is a slice of it.
fn span(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start + part.len();
    (end <= whole.len()).then_some(start..end)
}

struct RawMembers<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RawMembersVisitor;
        impl<'de> Visitor<'de> for RawMembersVisitor {
            type Value = Vec<(Cow<'de, str>, &'de str)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((RawKey(key), value)) = map.next_entry::<RawKey<'de>, &'de RawValue>()? {
                    members.push((key, value.get()));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(RawMembersVisitor).map(RawMembers)
    }
}

/// A key, borrowed from the text unless it holds escapes.
#[derive(Deserialize)]
struct RawKey<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_the_exact_bytes() {
        let json = r#"{ "a" : {"b": [1.0,  2]}, "a": "x\u00e9" }"#;
        assert_eq!(member(json, "a"), Some(r#""x\u00e9""#));
        assert_eq!(member(json, "b"), None);
        assert_eq!(member("[1]", "a"), None);
        assert_eq!(elements(" [1.0,  {\"k\": 2}] "), Some(vec!["1.0", "{\"k\": 2}"]));
        assert_eq!(elements("{}"), None);
    }

    #[test]
    fn a_value_is_replaced_in_its_place() {
        let check = |json: &str, expect: &str| assert_eq!(with_value(json, "m", "null"), expect);
        check(" {\"a\": 1, \"m\" : [1, {\"m\": 2}] ,\n\"b\":2}\n", "{\"a\": 1, \"m\" : null ,\n\"b\":2}");
        check(r#"{"m":[1],"m":[2]}"#, r#"{"m":[1],"m":null}"#);
        check(" {} ", "{}");
    }

    #[test]
    fn a_member_cut_out_leaves_what_was_there_before_it_was_added() {
        let check = |with: &str, object: Option<&str>, key: &str, without: &str| {
            let whole = Json::parse(with, "a test").unwrap();
            let object = object.map_or(&whole, |object| whole.get(object).expect("it is there"));
            let range = member_range(with, object, key).expect("the member is there");
            assert_eq!(cut(with, vec![range]), without);
        };
        check("{\"t\": {\n \"a\": 1,\n \"c\": 2\n}}", Some("t"), "c", "{\"t\": {\n \"a\": 1\n}}");
        check("{\n \"s\": {},\n \"a\": 1\n}", None, "s", "{\n \"a\": 1\n}");
        check("{\"a\":1,\"s\":[2],\"b\":3}", None, "s", "{\"a\":1,\"b\":3}");
        check("{ \"s\": 1 }", None, "s", "{ }");
        let empty = Json::parse("{}", "a test").unwrap();
        assert_eq!(member_range("{}", &empty, "s"), None);
    }

    #[test]
    fn compacting_leaves_strings_alone() {
        let check = |json: &str, expect: &str| assert_eq!(compact(json), expect);
        check("{ \"a b\" :\n [ 1.0 , \"x  \\\" y\" ] }", "{\"a b\":[1.0,\"x  \\\" y\"]}");
        check("\"\\\\\" ", "\"\\\\\"");
    }
}
