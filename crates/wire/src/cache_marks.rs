//! Cache marks: the members by which a request asks its provider to keep what it has read so far.
//!
//! They say nothing to the model, and clients move them from call to call, so that code that compares or counts
//! requests must ignore them. A mark counts only where a provider reads it: as a member of a block, part, message or
//! tool, not under the same name inside a tool's input or schema.

use std::{borrow::Cow, ops::Range};

use crate::json::Json;

/// Anthropic's mark; other providers that speak Chat read it too.
pub(crate) const CACHE_CONTROL: &str = "cache_control";

/// OpenAI's mark.
pub(crate) const BREAKPOINT: &str = "prompt_cache_breakpoint";

/// Members whose elements may carry marks of their own.
const HOLDERS: [&str; 4] = ["content", "output", "tools", "tool_calls"];

/// A mark, and the bytes that go with it.
pub(crate) struct CacheMark<'j> {
    pub(crate) key: &'static str,
    pub(crate) value: &'j Json<'j>,
    /// Bytes to cut so that the rest reads as if the mark had never been there, counted as [`Json::start`] is. Empty
    /// if another mark's cut covers it.
    pub(crate) cut: Range<usize>,
}

impl<'j> CacheMark<'j> {
    /// The mark that stands on an object itself.
    pub(crate) fn of_object(object: &'j Json<'j>) -> Option<Self> {
        let mut members = object.members().iter().rev();
        members
            .find_map(|(key, value)| Some(Self { key: mark(key)?, value, cut: 0..0 }))
            .filter(Self::requests_caching)
    }

    /// Returns true if the mark asks for caching: `null` and `false` do not.
    pub(crate) fn requests_caching(&self) -> bool {
        !matches!(self.value.raw, "null" | "false")
    }

    /// Lifetime it asks for, in seconds; `usual` if it names none.
    pub(crate) fn lifetime(&self, usual: u64) -> u64 {
        lifetime(self.value).unwrap_or(usual)
    }
}

/// Lifetime that an object asks for, in seconds, if it names one.
pub(crate) fn lifetime(object: &Json<'_>) -> Option<u64> {
    object.text_at("ttl").and_then(seconds)
}

/// Shows every mark of a value to `see`, in order.
pub(crate) fn each<'j>(value: &'j Json<'j>, see: &mut impl FnMut(CacheMark<'j>)) {
    let members = value.members();
    let first_kept = members.iter().position(|(key, _)| mark(key).is_none());
    for (index, (key, member)) in members.iter().enumerate() {
        if let Some(key) = mark(key) {
            see(CacheMark { key, value: member, cut: cut(value, index, first_kept) });
        } else if HOLDERS.contains(&&**key) {
            member.as_array().unwrap_or_default().iter().for_each(|element| each(element, see));
        } else if key == "source" {
            member.array_at("content").iter().for_each(|block| each(block, see));
        }
    }
}

/// Byte ranges to cut from a value so that no mark is left.
pub(crate) fn mark_ranges(value: &Json<'_>) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    each(value, &mut |mark| cuts.push(mark.cut));
    cuts
}

/// Adds the bytes of a value without its marks.
pub(crate) fn write_without(value: &Json<'_>, out: &mut Vec<u8>) {
    let mut from = value.start;
    for cut in mark_ranges(value).into_iter().filter(|cut| !cut.is_empty()) {
        out.extend_from_slice(value.slice(from..cut.start).as_bytes());
        from = cut.end;
    }
    out.extend_from_slice(value.slice(from..end(value)).as_bytes());
}

/// The bytes of a value without its marks.
pub(crate) fn without<'j>(value: &Json<'j>) -> Cow<'j, str> {
    let cuts = mark_ranges(value);
    if cuts.is_empty() {
        return value.raw.into();
    }
    let mut kept = String::with_capacity(value.raw.len());
    let mut from = value.start;
    for cut in cuts.into_iter().filter(|cut| !cut.is_empty()) {
        kept.push_str(value.slice(from..cut.start));
        from = cut.end;
    }
    kept.push_str(value.slice(from..end(value)));
    kept.into()
}

/// JSON without its marks; text that is not JSON stays as it is.
pub(crate) fn strip_marks(json: &str) -> Cow<'_, str> {
    if !json.contains(CACHE_CONTROL) && !json.contains(BREAKPOINT) {
        return json.into();
    }
    match Json::parse(json, "a block") {
        Ok(value) => without(&value).into_owned().into(),
        Err(_) => json.into(),
    }
}

/// End of a value, counted as [`Json::start`] is.
pub(crate) fn end(value: &Json<'_>) -> usize {
    value.start + value.raw.len()
}

/// Position at which a member would be added to an object that loses its marks; `None` if it has no other member.
pub(crate) fn last_member_end(object: &Json<'_>) -> Option<usize> {
    object.members().iter().rev().find(|(key, _)| mark(key).is_none()).map(|(_, member)| end(member))
}

fn mark(key: &str) -> Option<&'static str> {
    [CACHE_CONTROL, BREAKPOINT].into_iter().find(|mark| *mark == key)
}

/// Byte range to cut for the mark at an index among an object's members.
fn cut(object: &Json<'_>, index: usize, first_kept: Option<usize>) -> Range<usize> {
    let members = object.members();
    match first_kept {
        // The comma before the mark goes with it.
        Some(first) if first < index => end(&members[index - 1].1)..end(&members[index].1),
        Some(first) if index == 0 => key_start(object, 0)..key_start(object, first),
        None if index == 0 => object.start + 1..end(object).saturating_sub(1),
        Some(_) | None => object.start..object.start,
    }
}

/// Start of a member's key: between it and the previous member are only spaces and a comma.
fn key_start(object: &Json<'_>, index: usize) -> usize {
    let before = index.checked_sub(1).map_or(object.start + 1, |before| end(&object.members()[before].1));
    before + object.slice(before..end(object)).find('"').unwrap_or(0)
}

/// Parses `5m`, `1h`, `90s`.
fn seconds(ttl: &str) -> Option<u64> {
    let unit = ttl.char_indices().next_back().map(|(at, _)| at)?;
    let (number, unit) = ttl.split_at(unit);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(marked: &str, expect: &str) {
        let json = Json::parse(marked, "a test").unwrap();
        assert_eq!(without(&json), expect);
        let mut written = Vec::new();
        write_without(&json, &mut written);
        assert_eq!(written, expect.as_bytes());
        assert!(Json::parse(expect, "a test").is_ok());
    }

    #[test]
    fn without_its_marks_a_block_is_what_it_was_before() {
        const MARK: &str = r#""cache_control":{"type":"ephemeral"}"#;
        check(r#"{"type":"text","text":"a"}"#, r#"{"type":"text","text":"a"}"#);
        check(&format!(r#"{{"type":"text","text":"a",{MARK}}}"#), r#"{"type":"text","text":"a"}"#);
        check(&format!(r#"{{ "type": "text", {MARK}, "text": "a" }}"#), r#"{ "type": "text", "text": "a" }"#);
        check(&format!("{{\n  {MARK},\n  \"type\": \"text\"\n}}"), "{\n  \"type\": \"text\"\n}");
        check(
            &format!(r#"{{{MARK}, "prompt_cache_breakpoint":null , "a":1, {MARK}, {MARK}}}"#),
            r#"{"a":1}"#,
        );
        check(&format!("{{ {MARK}, {MARK} }}"), "{}");
    }

    #[test]
    fn a_mark_is_one_only_where_a_provider_reads_it() {
        const MARK: &str = r#""cache_control":{"type":"ephemeral"}"#;
        check(
            &format!(r#"{{"type":"tool_result","content":[{{"type":"text","text":"a",{MARK}}}]}}"#),
            r#"{"type":"tool_result","content":[{"type":"text","text":"a"}]}"#,
        );
        check(
            &format!(r#"{{"source":{{"type":"content","content":[{{"text":"a",{MARK}}}]}}}}"#),
            r#"{"source":{"type":"content","content":[{"text":"a"}]}}"#,
        );
        let input = format!(r#"{{"type":"tool_use","input":{{{MARK},"content":[1]}}}}"#);
        check(&input, &input);
        let schema = format!(r#"{{"name":"t","input_schema":{{"properties":{{{MARK}}}}}}}"#);
        check(&schema, &schema);
        let said = r#"{"type":"text","text":"\"cache_control\":{}"}"#;
        check(said, said);
        assert_eq!(strip_marks(said), said);
        assert_eq!(strip_marks("cache_control {"), "cache_control {");
    }

    #[test]
    fn lifetimes_are_read_in_any_unit() {
        let check = |ttl: &str, expect: Option<u64>| assert_eq!(seconds(ttl), expect, "{ttl}");
        check("5m", Some(300));
        check("1h", Some(3_600));
        check("30s", Some(30));
        check("", None);
        check("h", None);
        check("1ü", None);
        check("99999999999999999999h", None);
        check("9999999999999999999h", None);
    }
}
