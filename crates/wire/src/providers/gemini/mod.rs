//! Gemini's `generateContent`, as the Gemini API and Vertex speak it.
//!
//! A content has a role and parts: `parts[i]` of an answer is part `i`, and in a content with results the results are
//! the `functionResponse` parts in order, and `parts` are the other parts in order. Calls need no ids here: one without
//! is known by its function's name on both sides, and calls of one name pair in their order. A signature belongs to the
//! part it stands in, and leaves with that part's bytes.

mod legality;
pub(crate) mod provider;
mod recall;
mod stream;
mod synthetic;
mod target;
mod write;

use epitome_core::{
    ContentPart, Event, Fact, Tokens,
    event::{RawDialect, ReasoningSeal, ToolCall, ToolResult, Usage},
};

use crate::{
    decode_parts::{self, carried_fact},
    error::WireError,
    json::{Json, JsonValue},
    media, normal_digest,
};

/// Reads one content, as it stands in a request or a response.
///
/// ```
/// use epitome_core::event::Fact;
///
/// let event = epitome_wire::gemini::content(r#"{"role":"user","parts":[{"text":"hi"}]}"#)?;
/// assert!(matches!(event.fact, Fact::UserSaid { .. }));
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
pub fn content(json: &str) -> Result<Event, WireError> {
    Json::parse(json, "a Gemini content").map(|content| read_content(&content))
}

/// Reads a `usageMetadata` object.
pub fn usage(json: &str) -> Result<Usage, WireError> {
    const WHAT: &str = "a Gemini usage report";
    Json::parse(json, WHAT)?.require_object(WHAT).map(|usage| read_usage(&usage))
}

pub(crate) fn read_content(content: &Json<'_>) -> Event {
    decode_parts::event(RawDialect::Gemini, content, fact(content), Some(digest(content)))
}

fn fact(content: &Json<'_>) -> Fact {
    match content.text_at("role") {
        Some("model") => Fact::AssistantSaid { answer: None, model: None, parts: parts(content) },
        // A content without a role is the user's. Results once had a role of their own.
        Some("user" | "function" | "tool") | None if content.is_object() => asked(content),
        _ => carried_fact(content, "content"),
    }
}

/// Reads a content of the client's: the user's words, or results and the words beside them.
fn asked(content: &Json<'_>) -> Fact {
    let all = content.array_at("parts");
    let results: Vec<ToolResult> = all.iter().filter_map(result).collect();
    if results.is_empty() {
        return Fact::UserSaid { parts: parts(content) };
    }
    let beside = all.iter().filter(|part| !is_result(part));
    Fact::ToolReturned { results, parts: beside.map(part).collect() }
}

/// Reads the parts of a content.
fn parts(content: &Json<'_>) -> Vec<ContentPart> {
    decode_parts::parts(content.get("parts"), part)
}

/// Reads a part that is no result.
pub(crate) fn part(part: &Json<'_>) -> ContentPart {
    let known = if let Some(text) = part.text_at("text") {
        Some(if is_thought(part) {
            let seal = part.text_at("thoughtSignature");
            let seal = seal.map(|seal| ReasoningSeal::Signature(seal.to_owned()));
            ContentPart::Reasoning { text: text.to_owned(), seal }
        } else {
            ContentPart::text(text)
        })
    } else if let Some(data) = part.get("inlineData") {
        let mime = data.text_at("mimeType").unwrap_or_default();
        data.text_at("data").and_then(|data| media::inline_part(mime, data))
    } else if let Some(file) = part.get("fileData") {
        let mime = file.text_at("mimeType").unwrap_or_default();
        file.text_at("fileUri").map(|uri| media::linked_part(mime, uri))
    } else {
        part.get("functionCall").and_then(call).map(ContentPart::ToolCall)
    };
    known.unwrap_or_else(|| ContentPart::Opaque { name: kind(part).to_owned(), json: part.raw.to_owned() })
}

/// Returns true if a part is a summary of the model's thoughts.
fn is_thought(part: &Json<'_>) -> bool {
    matches!(part.get("thought").map(|thought| &thought.value), Some(JsonValue::Bool(true)))
}

/// Kind of a part: the name of the member that holds its content.
fn kind<'j>(part: &'j Json<'_>) -> &'j str {
    let beside = ["thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"];
    let mut names = part.members().iter().map(|(key, _)| &**key);
    names.find(|key| !beside.contains(key)).unwrap_or("part")
}

fn call(called: &Json<'_>) -> Option<ToolCall> {
    let name = called.text_at("name")?;
    let arguments = called.get("args").filter(|given| !given.is_null()).map_or("", |given| given.raw);
    Some(ToolCall::function(call_id(called)?, name, arguments))
}

/// Id of a call, or of the call that a result answers: its own, or the function's name.
fn call_id<'j>(called: &'j Json<'_>) -> Option<&'j str> {
    called.text_at("id").filter(|id| !id.is_empty()).or_else(|| called.text_at("name"))
}

/// Returns true if a part is a function's result.
fn is_result(part: &Json<'_>) -> bool {
    part.get("functionResponse").is_some_and(|response| call_id(response).is_some())
}

/// Reads a function's result; `None` for any other part.
fn result(part: &Json<'_>) -> Option<ToolResult> {
    let returned = part.get("functionResponse")?;
    let response = returned.get("response");
    let mut parts: Vec<ContentPart> = response.map(said).into_iter().flatten().collect();
    // Media of a result stand in parts of its own.
    parts.extend(returned.array_at("parts").iter().map(self::part));
    Some(ToolResult {
        call: call_id(returned)?.into(),
        name: returned.text_at("name").map(Into::into),
        parts,
        error: response.is_some_and(|response| response.get("error").is_some_and(|error| !error.is_null())),
    })
}

/// Text of a response: of its only member, or of all of it as JSON.
fn said(response: &Json<'_>) -> Option<ContentPart> {
    match response.members() {
        [] if response.is_object() || response.is_null() => None,
        [(_, only)] => Some(ContentPart::text(only.as_text().unwrap_or(response.raw))),
        _ => Some(ContentPart::text(response.raw)),
    }
}

/// The parts of a system instruction: a content, or only a text.
fn system_parts(system: &Json<'_>) -> Vec<ContentPart> {
    if system.is_object() { parts(system) } else { decode_parts::parts(Some(system), part) }
}

/// Reads usage. `promptTokenCount` includes tokens that the cache read, so they are subtracted; thoughts are answered
/// for like the rest of an answer.
pub(crate) fn read_usage(usage: &Json<'_>) -> Usage {
    let all = usage.count_at("promptTokenCount").saturating_add(usage.count_at("toolUsePromptTokenCount"));
    let read = usage.count_at("cachedContentTokenCount").min(all);
    let output = usage.count_at("candidatesTokenCount").saturating_add(usage.count_at("thoughtsTokenCount"));
    Usage {
        uncached: Tokens(all - read),
        cache_read: Tokens(read),
        cache_write: Tokens(0),
        cache_write_hour: Tokens(0),
        output: Tokens(output),
    }
}

/// The normalised digest of a content: members that are `null` and `"thought":false` say nothing.
fn digest(content: &Json<'_>) -> epitome_core::Digest {
    let is_said = |key: &str, value: &Json<'_>| {
        !(value.is_null() || key == "thought" && matches!(value.value, JsonValue::Bool(false)))
    };
    let part = |out: &mut Vec<u8>, part: &Json<'_>| {
        normal_digest::object(out, part, is_said, |out, _, value| normal_digest::plain(out, value));
    };
    normal_digest::digest(&RawDialect::Gemini, |out| {
        normal_digest::object(out, content, is_said, |out, key, value| match key {
            "parts" => normal_digest::each(out, value, part),
            _ => normal_digest::plain(out, value),
        });
    })
}

/// The definitions in an element of the tool list: functions by their names, anything else as it is.
fn tool_parts(tool: &Json<'_>) -> Vec<ContentPart> {
    match tool.get("functionDeclarations").and_then(Json::as_array) {
        Some(functions) => functions.iter().map(decode_parts::tool_part).collect(),
        None => vec![ContentPart::Opaque { name: kind(tool).to_owned(), json: tool.raw.to_owned() }],
    }
}
