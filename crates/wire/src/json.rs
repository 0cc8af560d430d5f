//! JSON as a tree of slices: every value knows the exact bytes it came from.
//!
//! Untouched messages must leave with the very bytes they came with, numbers must keep their digits, and a block must
//! be found by its index. `serde_json` checks the text; this module finds the slices in it, in one pass. A tree of
//! `serde_json::Value` would lose digits and spans, and nested `RawValue`s would scan a message once per level.
//!
//! Most of a request is long texts that are never inspected: they are passed over at the speed of a search for their
//! end, and unescaped only on demand.
//!
//! A `\u` escape that is half of a surrogate pair (clients that cut strings write them) is valid JSON: it reads
//! as U+FFFD, and its raw bytes stay.

use std::{borrow::Cow, cell::OnceCell, ops::Deref};

use memchr::{memchr, memchr2};
use serde_json::value::RawValue;

use crate::error::{MAX_DEPTH, WireError};

/// A JSON value and the bytes it came from.
#[derive(Clone, Debug)]
pub(crate) struct Json<'a> {
    /// The exact bytes, without surrounding whitespace.
    pub(crate) raw: &'a str,
    /// Offset of `raw` in the text that was parsed, counted without its leading whitespace.
    pub(crate) start: usize,
    /// The value itself.
    pub(crate) value: JsonValue<'a>,
}

/// A JSON value. A number's digits are in [`Json::raw`].
#[derive(Clone, Debug)]
pub(crate) enum JsonValue<'a> {
    Null,
    Bool(bool),
    Number,
    String(JsonText<'a>),
    Array(Vec<Json<'a>>),
    /// Members in their order; a key may repeat.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// A string's text, unescaped on demand.
#[derive(Clone, Debug)]
pub(crate) enum JsonText<'a> {
    /// The text between the quotes, which has no escapes.
    Plain(&'a str),
    /// A literal with escapes, and its text once it has been read.
    Escaped { literal: &'a str, read: OnceCell<String> },
}

impl Deref for JsonText<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Escaped { literal, read } => read.get_or_init(|| unescaped_text(literal)),
        }
    }
}

impl<'a> Json<'a> {
    /// Reads exactly one JSON value.
    pub(crate) fn parse(text: &'a str, what: &'static str) -> Result<Self, WireError> {
        let raw: &'a RawValue =
            serde_json::from_str(text).map_err(|source| WireError::NotJson { what, source })?;
        JsonCursor { text: raw.get(), at: 0 }.value(MAX_DEPTH).ok_or(WireError::TooDeep { what })
    }

    /// The member called `key`; the last one if it repeats.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The member called `key`, if it is a string.
    pub(crate) fn text_at(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_text()
    }

    /// The text of a string.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.value {
            JsonValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// The members of an object; none for anything else.
    pub(crate) fn members(&self) -> &[(Cow<'a, str>, Self)] {
        match &self.value {
            JsonValue::Object(members) => members,
            _ => &[],
        }
    }

    /// The elements of an array.
    pub(crate) fn as_array(&self) -> Option<&[Self]> {
        match &self.value {
            JsonValue::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The elements of the array called `key`; none for anything else.
    pub(crate) fn array_at(&self, key: &str) -> &[Self] {
        self.get(key).and_then(Self::as_array).unwrap_or_default()
    }

    /// The number as a count. A negative number is 0, a fraction is cut off.
    pub(crate) fn as_count(&self) -> Option<u64> {
        if !matches!(self.value, JsonValue::Number) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, as it should"
        )]
        let rounded = |number: f64| number as u64;
        self.raw.parse().ok().or_else(|| self.raw.parse().ok().map(rounded))
    }

    /// The count called `key`; 0 if there is none.
    pub(crate) fn count_at(&self, key: &str) -> u64 {
        self.get(key).and_then(Self::as_count).unwrap_or(0)
    }

    /// Some of its bytes, counted as [`start`](Self::start) is.
    pub(crate) fn slice(&self, bytes: std::ops::Range<usize>) -> &'a str {
        let at = |place: usize| place.saturating_sub(self.start);
        self.raw.get(at(bytes.start)..at(bytes.end)).unwrap_or_default()
    }

    /// Returns true if it is `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, JsonValue::Null)
    }

    /// Returns true if it is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.value, JsonValue::Object(_))
    }

    /// The kind of value, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            JsonValue::Null => "null",
            JsonValue::Bool(_) => "a boolean",
            JsonValue::Number => "a number",
            JsonValue::String(_) => "a string",
            JsonValue::Array(_) => "an array",
            JsonValue::Object(_) => "an object",
        }
    }

    /// The same value, or an error that names the text expected to be an object.
    pub(crate) fn require_object(self, what: &'static str) -> Result<Self, WireError> {
        if self.is_object() { Ok(self) } else { Err(WireError::NotAnObject { what, found: self.kind() }) }
    }
}

/// Returns the bytes of `object` with the values of some members replaced in place; the rest stays as it is.
///
/// `members` are members of `object`, in any order, each with its replacement.
pub(crate) fn replace_members(object: &Json<'_>, members: &[(&Json<'_>, &str)]) -> String {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(member, _)| member.start);
    let mut out = String::with_capacity(object.raw.len());
    let mut from = 0;
    for (member, value) in members {
        let at = member.start.saturating_sub(object.start);
        out.push_str(object.raw.get(from..at).unwrap_or_default());
        out.push_str(value);
        from = at + member.raw.len();
    }
    out.push_str(object.raw.get(from..).unwrap_or_default());
    out
}

/// The bytes of `object` without the member called `key`.
pub(crate) fn without_member(value: &Json<'_>, key: &str) -> String {
    let kept = value.members().iter().filter(|(name, _)| name != key);
    object(kept.map(|(name, member)| (&**name, member.raw.to_owned())))
}

/// Writes a list of values that are JSON already.
pub(crate) fn list(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

/// Writes an object of members whose values are JSON already.
pub(crate) fn object<'k>(members: impl Iterator<Item = (&'k str, String)>) -> String {
    let members: Vec<String> = members.map(|(key, value)| format!("{}:{value}", quote(key))).collect();
    format!("{{{}}}", members.join(","))
}

/// A JSON string literal for `text`.
pub(crate) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("a string can always be written as JSON")
}

/// The bytes a string literal stands for, quotes included in `literal`: UTF-8, except that half a surrogate pair
/// is written as the three bytes UTF-8 would have given it.
pub(crate) fn unescaped(literal: &str) -> Cow<'_, [u8]> {
    unescape(literal, |half, out| {
        #[expect(clippy::cast_possible_truncation, reason = "a code below 0x1_0000 makes three bytes")]
        let bytes = [0xe0 | half >> 12, 0x80 | half >> 6 & 0x3f, 0x80 | half & 0x3f].map(|part| part as u8);
        out.extend(bytes);
    })
}

/// Writes a replacement for half a surrogate pair.
type SurrogateWriter = fn(u32, &mut Vec<u8>);

fn unescape(literal: &str, half: SurrogateWriter) -> Cow<'_, [u8]> {
    let inner = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
    let mut rest = inner.as_bytes();
    let Some(mut escape) = memchr(b'\\', rest) else { return Cow::Borrowed(rest) };
    let mut out = Vec::with_capacity(inner.len());
    loop {
        let (plain, escaped) = rest.split_at(escape);
        out.extend_from_slice(plain);
        rest = unescape_one(escaped.get(1..).unwrap_or_default(), &mut out, half);
        match memchr(b'\\', rest) {
            Some(next) => escape = next,
            None => break,
        }
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// Returns a literal's text.
fn unescaped_text(literal: &str) -> String {
    let bytes = unescape(literal, |_, out| out.extend("\u{fffd}".as_bytes())).into_owned();
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Writes the character of one escape, and returns the bytes after it.
fn unescape_one<'a>(escape: &'a [u8], out: &mut Vec<u8>, half: SurrogateWriter) -> &'a [u8] {
    let Some((&letter, rest)) = escape.split_first() else { return escape };
    let byte = match letter {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => return unescape_unit(rest, out, half),
        other => other,
    };
    out.push(byte);
    rest
}

fn unescape_unit<'a>(digits: &'a [u8], out: &mut Vec<u8>, half: SurrogateWriter) -> &'a [u8] {
    let Some((first, rest)) = hex_unit(digits) else { return digits };
    let low = rest.strip_prefix(b"\\u").and_then(hex_unit);
    let (code, rest) = match (first, low) {
        (0xd800..=0xdbff, Some((second @ 0xdc00..=0xdfff, after))) => {
            (0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00), after)
        }
        _ => (first, rest),
    };
    match char::from_u32(code) {
        Some(letter) => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        None => half(code, out),
    }
    rest
}

fn hex_unit(digits: &[u8]) -> Option<(u32, &[u8])> {
    let (unit, rest) = digits.split_at_checked(4)?;
    let text = str::from_utf8(unit).ok()?;
    Some((u32::from_str_radix(text, 16).ok()?, rest))
}

/// Walks text that is known to be one valid JSON value.
struct JsonCursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonCursor<'a> {
    /// The value that starts here, or `None` if it is nested more than `depth` deep.
    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        let depth = depth.checked_sub(1)?;
        self.skip_space();
        let start = self.at;
        let value = match self.peek() {
            b'"' => JsonValue::String(self.string()),
            b'[' => JsonValue::Array(self.array(depth)?),
            b'{' => JsonValue::Object(self.object(depth)?),
            first => {
                self.skip_scalar();
                match first {
                    b'n' => JsonValue::Null,
                    b't' => JsonValue::Bool(true),
                    b'f' => JsonValue::Bool(false),
                    _ => JsonValue::Number,
                }
            }
        };
        Some(Json { raw: self.text.get(start..self.at)?, start, value })
    }

    fn array(&mut self, depth: usize) -> Option<Vec<Json<'a>>> {
        let mut elements = Vec::new();
        self.at += 1;
        while !self.closes(b']') {
            elements.push(self.value(depth)?);
        }
        Some(elements)
    }

    fn object(&mut self, depth: usize) -> Option<Vec<(Cow<'a, str>, Json<'a>)>> {
        let mut members = Vec::new();
        self.at += 1;
        while !self.closes(b'}') {
            let key = match self.string() {
                JsonText::Plain(key) => key.into(),
                JsonText::Escaped { literal, .. } => unescaped_text(literal).into(),
            };
            self.skip_space();
            self.at += 1;
            members.push((key, self.value(depth)?));
        }
        Some(members)
    }

    /// Steps over a comma and returns false, or over `bracket` and returns true. The end of the text closes
    /// everything.
    fn closes(&mut self, bracket: u8) -> bool {
        self.skip_space();
        if self.peek() == b',' {
            self.at += 1;
            self.skip_space();
            return false;
        }
        let closing = self.at >= self.text.len() || self.peek() == bracket;
        self.at += usize::from(closing);
        closing
    }

    /// The string that starts here.
    fn string(&mut self) -> JsonText<'a> {
        let start = self.at;
        let mut end = start + 1;
        let mut escapes = 0_usize;
        while let Some(rest) = self.text.as_bytes().get(end..)
            && let Some(found) = memchr2(b'"', b'\\', rest)
        {
            if rest[found] == b'"' {
                end += found + 1;
                break;
            }
            escapes += 1;
            end += found + 2;
        }
        self.at = end;
        if escapes == 0 {
            return JsonText::Plain(self.text.get(start + 1..end.saturating_sub(1)).unwrap_or_default());
        }
        JsonText::Escaped { literal: self.text.get(start..end).unwrap_or_default(), read: OnceCell::new() }
    }

    fn skip_scalar(&mut self) {
        while !matches!(self.peek(), b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r' | 0) {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    /// The byte here; 0, which valid JSON cannot hold, at the end.
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any JSON value, written in any way.
    fn anything() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn rebuilt(json: &Json<'_>) -> serde_json::Value {
        match &json.value {
            JsonValue::Null => serde_json::Value::Null,
            JsonValue::Bool(value) => (*value).into(),
            JsonValue::Number => serde_json::from_str(json.raw).unwrap(),
            JsonValue::String(text) => (**text).into(),
            JsonValue::Array(elements) => elements.iter().map(rebuilt).collect(),
            JsonValue::Object(members) => serde_json::Value::Object(
                members.iter().map(|(key, value)| (key.to_string(), rebuilt(value))).collect(),
            ),
        }
    }

    proptest! {
        #[test]
        fn the_tree_says_what_serde_json_says(value in anything(), pretty in any::<bool>()) {
            let text = if pretty { format!(" {value:#}\r\n\t") } else { value.to_string() };
            let json = Json::parse(&text, "a test").unwrap();
            prop_assert_eq!(json.raw, text.trim());
            prop_assert_eq!(rebuilt(&json), serde_json::from_str::<serde_json::Value>(&text).unwrap());
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = Json::parse(&text, "a test");
        }

        #[test]
        fn text_that_looks_like_json_is_read_or_refused(text in r#"[\[\]{}":,0-9a-z\\ue+.\- ]{0,40}"#) {
            let ours = Json::parse(&text, "a test").is_ok();
            prop_assert_eq!(ours, serde_json::from_str::<&RawValue>(&text).is_ok());
        }
    }

    #[test]
    fn escapes_are_read_and_half_a_pair_is_replaced() {
        let check = |literal: &str, expect: &str| {
            assert_eq!(Json::parse(literal, "a test").unwrap().as_text(), Some(expect), "{literal}");
        };
        check(r#""a\n\t\r\b\f\/\\\"z""#, "a\n\t\r\u{8}\u{c}/\\\"z");
        check(r#""\u0041\u00e9\u2028""#, "Aé\u{2028}");
        check(r#""\ud83d\ude00""#, "😀");
        assert!(
            Json::parse(r#""cut \ud83d""#, "a test").unwrap().as_text().unwrap().starts_with("cut \u{fffd}")
        );
        assert_eq!(unescaped(r#""\ud83d""#).as_ref(), [0xed, 0xa0, 0xbd]);
    }

    #[test]
    fn deep_nesting_is_an_error_and_the_last_of_two_keys_counts() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Json::parse(&nested(MAX_DEPTH), "a test").is_ok());
        assert!(matches!(Json::parse(&nested(MAX_DEPTH + 1), "a test"), Err(WireError::TooDeep { .. })));
        assert!(matches!(Json::parse(&nested(1_000_000), "a test"), Err(WireError::TooDeep { .. })));
        assert_eq!(Json::parse(r#"{"a":1,"a":2}"#, "a test").unwrap().count_at("a"), 2);
    }

    #[test]
    fn counts_are_whole_and_never_negative() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(Json::parse(text, "a test").unwrap().as_count(), expect, "{text}");
        };
        check("12345678901234567890", Some(12_345_678_901_234_567_890));
        check("1.5e3", Some(1500));
        check("-4", Some(0));
        check("1e999", Some(u64::MAX));
        check("\"7\"", None);
    }
}
