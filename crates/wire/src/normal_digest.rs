//! The normalised digest: two messages share it if a client that re-serialised one would send the other.
//!
//! Exactly these differences are ignored:
//! - `cache_control` of a message, a content block or a tool definition, not inside a tool's input or schema;
//! - content, a system prompt or a tool result given as a string or as one text block;
//! - content that is `null`, `""`, one empty text block, an empty list or missing;
//! - the order of an object's keys, how strings are escaped, how numbers are written (`1.0` is `1`), whitespace;
//! - how the JSON inside an arguments string is written; an arguments string that is not JSON is compared as text;
//! - the members of an answer that clients need not send back. Anthropic: all but role and content, once the
//!   message has an id, a type or usage. Chat: `annotations`, members that are `null`, an empty `tool_calls`,
//!   of `audio` all but its id, and of a message inside a response every member not listed in [`CHAT_ECHOED_MEMBERS`].
//!   Responses: an output item's `id`, `status`, passthrough metadata and `null`s, and an output text's
//!   `annotations` and `logprobs`;
//! - a Responses message that omits its type, `message`.
//!
//! The digest is taken over a canonical form with tags and lengths, so no two different values share one.

use epitome_core::{Digest, event::RawDialect};

use crate::json::{self, Json, JsonValue};

/// The members of a Chat answer that clients send back.
pub(crate) const CHAT_ECHOED_MEMBERS: [&str; 10] = [
    "role",
    "content",
    "name",
    "refusal",
    "audio",
    "tool_calls",
    "function_call",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
];

/// The digest of an Anthropic message.
pub(crate) fn anthropic_message(message: &Json<'_>) -> Digest {
    let narrow = is_anthropic_answer(message);
    let keep = |key: &str, value: &Json<'_>| match key {
        "cache_control" => false,
        "content" => !is_empty(value, "text"),
        "role" => true,
        _ => !narrow,
    };
    let write = |out: &mut Vec<u8>, key: &str, value: &Json<'_>| match key {
        "content" => content(out, value, "text"),
        _ => plain(out, value),
    };
    digest(&RawDialect::Anthropic, |out| object(out, message, keep, write))
}

/// Returns true if an Anthropic message has the shape of a response.
pub(crate) fn is_anthropic_answer(message: &Json<'_>) -> bool {
    message.text_at("role") == Some("assistant")
        && (message.text_at("type") == Some("message")
            || message.get("id").is_some()
            || message.get("usage").is_some())
}

/// Source of a Chat message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatMessageSource {
    /// In a request, or by itself.
    InRequest,
    /// In a response.
    InResponse,
}

/// The digest of a Chat message.
pub(crate) fn chat_message(message: &Json<'_>, found: ChatMessageSource) -> Digest {
    let answer = message.text_at("role") == Some("assistant");
    let keep = |key: &str, value: &Json<'_>| match key {
        "cache_control" => false,
        "content" => !is_empty(value, "text"),
        "annotations" if answer => false,
        _ if answer && value.is_null() => false,
        "tool_calls" if answer => value.as_array().is_none_or(|calls| !calls.is_empty()),
        _ => found == ChatMessageSource::InRequest || CHAT_ECHOED_MEMBERS.contains(&key),
    };
    let write = |out: &mut Vec<u8>, key: &str, value: &Json<'_>| match key {
        "content" => content(out, value, "text"),
        "tool_calls" => each(out, value, chat_call),
        "function_call" => called(out, value),
        "audio" if answer && value.get("id").is_some() => {
            object(out, value, |key, _| key == "id", plain_member);
        }
        _ => plain(out, value),
    };
    digest(&RawDialect::OpenaiChat, |out| object(out, message, keep, write))
}

/// Side of a conversation that a Responses item is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemDirection {
    /// The client made it.
    Input,
    /// The model made it, and a client may only echo it.
    Output,
}

/// The digest of a Responses item.
pub(crate) fn responses_item(item: &Json<'_>, side: ItemDirection) -> Digest {
    let text = if side == ItemDirection::Output { "output_text" } else { "input_text" };
    let keep = |key: &str, value: &Json<'_>| match key {
        "cache_control" => false,
        "content" | "output" => !is_empty(value, text),
        "type" => value.as_text() != Some("message"),
        "id" | "status" | "internal_chat_message_metadata_passthrough" => side == ItemDirection::Input,
        _ => side == ItemDirection::Input || !value.is_null(),
    };
    let write = |out: &mut Vec<u8>, key: &str, value: &Json<'_>| match key {
        "content" | "output" => content(out, value, text),
        "arguments" => arguments(out, value),
        _ => plain(out, value),
    };
    digest(&RawDialect::OpenaiResponses, |out| object(out, item, keep, write))
}

/// The digest of a system prompt: a string, or blocks.
pub(crate) fn instructions(dialect: &RawDialect, value: &Json<'_>) -> Digest {
    digest(dialect, |out| content(out, value, "text"))
}

/// The digest of a list of tool definitions.
pub(crate) fn tools(dialect: &RawDialect, value: &Json<'_>) -> Digest {
    digest(dialect, |out| each(out, value, tool))
}

pub(crate) fn digest(dialect: &RawDialect, write: impl FnOnce(&mut Vec<u8>)) -> Digest {
    let mut out = Vec::new();
    text(&mut out, dialect.name().as_bytes());
    write(&mut out);
    Digest::of(&out)
}

/// Writes content as a list of blocks, a string as one block of type `text_type`.
pub(crate) fn content(out: &mut Vec<u8>, value: &Json<'_>, text_type: &str) {
    match &value.value {
        JsonValue::String(_) => {
            // The same bytes that `object` writes for `{"type":…,"text":…}`.
            out.extend(b"[{");
            text(out, b"text");
            plain(out, value);
            text(out, b"type");
            text(out, text_type.as_bytes());
            out.extend(b"}]");
        }
        JsonValue::Array(_) => each(out, value, block),
        _ => plain(out, value),
    }
}

/// Returns true if content is empty.
pub(crate) fn is_empty(value: &Json<'_>, text_type: &str) -> bool {
    match &value.value {
        JsonValue::Null => true,
        JsonValue::String(text) => text.is_empty(),
        JsonValue::Array(blocks) => match blocks.as_slice() {
            [] => true,
            [only] => is_empty_text(only, text_type),
            _ => false,
        },
        _ => false,
    }
}

fn is_empty_text(block: &Json<'_>, text_type: &str) -> bool {
    let said = block.members().iter().filter(|(key, value)| keeps_in_block(block, key, value)).count();
    said == 2 && block.text_at("type") == Some(text_type) && block.text_at("text") == Some("")
}

fn keeps_in_block(block: &Json<'_>, key: &str, value: &Json<'_>) -> bool {
    match key {
        "cache_control" => false,
        "annotations" | "logprobs" => block.text_at("type") != Some("output_text"),
        "content" => block.text_at("type") != Some("tool_result") || !is_empty(value, "text"),
        _ => true,
    }
}

pub(crate) fn block(out: &mut Vec<u8>, value: &Json<'_>) {
    let is_result = value.text_at("type") == Some("tool_result");
    let write = |out: &mut Vec<u8>, key: &str, member: &Json<'_>| match key {
        "content" if is_result => content(out, member, "text"),
        "content" => each(out, member, block),
        "source" => source(out, member),
        _ => plain(out, member),
    };
    object(out, value, |key, member| keeps_in_block(value, key, member), write);
}

/// Writes a document's source, which may itself be made of blocks.
fn source(out: &mut Vec<u8>, value: &Json<'_>) {
    let write = |out: &mut Vec<u8>, key: &str, member: &Json<'_>| match key {
        "content" => each(out, member, block),
        _ => plain(out, member),
    };
    object(out, value, |_, _| true, write);
}

/// Writes a tool definition; a namespace holds further ones.
fn tool(out: &mut Vec<u8>, value: &Json<'_>) {
    let write = |out: &mut Vec<u8>, key: &str, member: &Json<'_>| match key {
        "tools" => each(out, member, tool),
        _ => plain(out, member),
    };
    object(out, value, |key, _| key != "cache_control", write);
}

fn chat_call(out: &mut Vec<u8>, value: &Json<'_>) {
    let write = |out: &mut Vec<u8>, key: &str, member: &Json<'_>| match key {
        "function" => called(out, member),
        _ => plain(out, member),
    };
    object(out, value, |key, _| key != "cache_control", write);
}

fn called(out: &mut Vec<u8>, value: &Json<'_>) {
    let write = |out: &mut Vec<u8>, key: &str, member: &Json<'_>| match key {
        "arguments" => arguments(out, member),
        _ => plain(out, member),
    };
    object(out, value, |_, _| true, write);
}

/// Writes arguments by their value if they are JSON, else by their text.
pub(crate) fn arguments(out: &mut Vec<u8>, value: &Json<'_>) {
    match value.as_text().map(|text| Json::parse(text, "a call's arguments")) {
        Some(Ok(parsed)) => {
            out.push(b'a');
            plain(out, &parsed);
        }
        Some(Err(_)) | None => plain(out, value),
    }
}

/// Writes a list, each element with `write`; anything else as it is.
pub(crate) fn each(out: &mut Vec<u8>, value: &Json<'_>, write: impl Fn(&mut Vec<u8>, &Json<'_>)) {
    let Some(elements) = value.as_array() else { return plain(out, value) };
    out.push(b'[');
    for element in elements {
        write(out, element);
    }
    out.push(b']');
}

/// Writes an object's members in the order of their keys, each with `write`; anything else as it is.
pub(crate) fn object(
    out: &mut Vec<u8>,
    value: &Json<'_>,
    keep: impl Fn(&str, &Json<'_>) -> bool,
    write: impl Fn(&mut Vec<u8>, &str, &Json<'_>),
) {
    let JsonValue::Object(members) = &value.value else { return plain(out, value) };
    let mut kept: Vec<_> = members.iter().filter(|(key, member)| keep(key, member)).collect();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    out.push(b'{');
    for (key, member) in kept {
        text(out, key.as_bytes());
        write(out, key, member);
    }
    out.push(b'}');
}

fn plain_member(out: &mut Vec<u8>, _key: &str, value: &Json<'_>) {
    plain(out, value);
}

/// Writes a value's content exactly; only its notation is ignored.
pub(crate) fn plain(out: &mut Vec<u8>, value: &Json<'_>) {
    match &value.value {
        JsonValue::Null => out.push(b'n'),
        JsonValue::Bool(true) => out.push(b't'),
        JsonValue::Bool(false) => out.push(b'f'),
        JsonValue::Number => number(out, value.raw),
        // A replacement character may have been half a surrogate pair: go back to the literal.
        JsonValue::String(said) if said.contains('\u{fffd}') => text(out, &json::unescaped(value.raw)),
        JsonValue::String(said) => text(out, said.as_bytes()),
        JsonValue::Array(_) => each(out, value, plain),
        JsonValue::Object(_) => object(out, value, |_, _| true, plain_member),
    }
}

pub(crate) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Writes a number's exact decimal value: sign, digits without outer zeros, exponent.
fn number(out: &mut Vec<u8>, literal: &str) {
    out.push(b'#');
    out.extend(decimal(literal).unwrap_or_else(|| literal.to_owned()).as_bytes());
    out.push(b';');
}

/// The same as a text; `None` if the exponent is too large to compute with, so that the number is compared as it is
/// written.
fn decimal(literal: &str) -> Option<String> {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let shift = i64::try_from(digits.len() - significant.len()).ok()? - i64::try_from(fraction.len()).ok()?;
    match significant.trim_start_matches('0') {
        "" => Some("0".to_owned()),
        significant => Some(format!("{sign}{significant}e{}", exponent.checked_add(shift)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbatim(text: &str) -> Digest {
        digest(&RawDialect::Anthropic, |out| plain(out, &Json::parse(text, "a test").unwrap()))
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let check = |one: &str, other: &str, same: bool| {
            assert_eq!(verbatim(one) == verbatim(other), same, "{one} {other}");
        };
        check("1", "1.0", true);
        check("1e5", "100000", true);
        check("-0", "0.00", true);
        check("120e-1", "12", true);
        check("12345678901234567890", "12345678901234567891", false);
        check("0.1", "0.10000000000000001", false);
        check("1", "-1", false);
        check("1e99999999999999999999", "2e99999999999999999999", false);
        check("10", "1", false);
    }

    #[test]
    fn half_a_surrogate_pair_is_not_any_other() {
        assert_ne!(verbatim(r#""\ud83d""#), verbatim(r#""\ud83c""#));
        assert_eq!(verbatim(r#""\ufffd""#), verbatim("\"\u{fffd}\""));
    }
}
