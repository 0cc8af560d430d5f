//! OpenAI Chat Completions, and the many servers that speak it.
//!
//! The parts of an answer stand in a fixed order, whatever the order of the message's members: the reasoning
//! (`reasoning_content`, or `reasoning` where there is none), the content parts, `refusal`, `audio`, the entries of
//! `tool_calls`, `function_call`. Elsewhere `parts[i]` is content part `i`, and a string is its own only part.

pub(crate) mod legality;
pub(crate) mod provider;
pub(crate) mod recall;
pub(crate) mod stream;
mod synthetic;
pub(crate) mod write;

use std::ops::Range;

use epitome_core::{
    ContentPart, Event, Fact, Tokens,
    event::{CallForm, InstructionKind, RawDialect, ToolCall, ToolResult, Usage},
};

use crate::{
    decode_parts::{self, carried_fact, opaque_part},
    error::WireError,
    json::Json,
    media,
    normal_digest::{self, ChatMessageSource},
};

/// Reads one message.
///
/// ```
/// use epitome_core::event::Fact;
///
/// let event = epitome_wire::openai_chat::message(r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#)?;
/// assert!(matches!(event.fact, Fact::ToolReturned { .. }));
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
pub fn message(json: &str) -> Result<Event, WireError> {
    Json::parse(json, "a Chat message").map(|message| read_message(&message, ChatMessageSource::InRequest))
}

/// Reads a `usage` object.
pub fn usage(json: &str) -> Result<Usage, WireError> {
    const WHAT: &str = "a Chat usage report";
    Json::parse(json, WHAT)?.require_object(WHAT).map(|usage| read_usage(&usage))
}

pub(crate) fn read_message(message: &Json<'_>, found: ChatMessageSource) -> Event {
    let normal = normal_digest::chat_message(message, found);
    decode_parts::event(RawDialect::OpenaiChat, message, fact(message), Some(normal))
}

fn fact(message: &Json<'_>) -> Fact {
    let said = || decode_parts::parts(message.get("content"), part);
    match message.text_at("role") {
        Some("user") => Fact::UserSaid { parts: said() },
        Some("assistant") => Fact::AssistantSaid { answer: None, model: None, parts: answer_parts(message) },
        Some("system" | "developer") => Fact::Instructed { what: InstructionKind::Message, parts: said() },
        Some("tool") => returned(message, "tool_call_id"),
        // Calls that this deprecated role answers have no id: the name serves as one on both sides.
        Some("function") => returned(message, "name"),
        _ => carried_fact(message, "message"),
    }
}

pub(crate) fn answer_parts(message: &Json<'_>) -> Vec<ContentPart> {
    let mut parts: Vec<ContentPart> = reasoning(message)
        .map(|text| ContentPart::Reasoning { text: text.to_owned(), seal: None })
        .into_iter()
        .collect();
    parts.extend(decode_parts::parts(message.get("content"), part));
    let refusal = message.text_at("refusal").filter(|text| !text.is_empty());
    parts.extend(refusal.map(|text| ContentPart::Refusal { text: text.to_owned() }));
    parts.extend(message.get("audio").filter(|audio| !audio.is_null()).map(spoken));
    if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
        match calls.as_array() {
            Some(calls) => parts.extend(calls.iter().map(call)),
            None => parts.push(opaque_part(calls, "tool_calls")),
        }
    }
    if let Some(called) = message.get("function_call").filter(|called| !called.is_null()) {
        let known = called.text_at("name").and_then(|name| function(name, called));
        parts.push(known.unwrap_or_else(|| opaque_part(called, "function_call")));
    }
    parts
}

/// Indices of an answer's parts, by the members they come from.
pub(crate) struct ChatPartIndices {
    pub(crate) reasoning: Option<usize>,
    pub(crate) content: Range<usize>,
    pub(crate) refusal: Option<usize>,
    pub(crate) audio: Option<usize>,
    pub(crate) calls: Range<usize>,
    pub(crate) function_call: Option<usize>,
    end: usize,
}

impl ChatPartIndices {
    /// Finds the indices in the parts that [`answer_parts`] reads.
    pub(crate) fn of(message: &Json<'_>) -> Self {
        let mut end = 0;
        let mut take = |count: usize| {
            end += count;
            end - count..end
        };
        let said = |key: &str| message.get(key).filter(|value| !value.is_null());
        let one = |range: Range<usize>| (!range.is_empty()).then_some(range.start);
        let reasoning = one(take(usize::from(reasoning(message).is_some())));
        let content = take(decode_parts::count(message.get("content")));
        let refusal = one(take(usize::from(message.text_at("refusal").is_some_and(|text| !text.is_empty()))));
        let audio = one(take(usize::from(said("audio").is_some())));
        let calls = said("tool_calls").map_or(0, |calls| calls.as_array().map_or(1, <[_]>::len));
        let calls = take(calls);
        let function_call = one(take(usize::from(said("function_call").is_some())));
        Self { reasoning, content, refusal, audio, calls, function_call, end }
    }

    /// Number of parts.
    pub(crate) fn count(&self) -> usize {
        self.end
    }

    /// Returns true if the part at an index is a call, readable or not.
    pub(crate) fn is_call(&self, place: usize) -> bool {
        self.calls.contains(&place) || self.function_call == Some(place)
    }
}

/// Members in which servers put the reasoning of an answer.
pub(crate) const REASONING_MEMBERS: [&str; 2] = ["reasoning_content", "reasoning"];

fn reasoning<'m>(message: &'m Json<'_>) -> Option<&'m str> {
    let reasoning = REASONING_MEMBERS.into_iter().find_map(|key| message.text_at(key));
    reasoning.filter(|text| !text.is_empty())
}

fn returned(message: &Json<'_>, id: &str) -> Fact {
    let Some(call) = message.text_at(id) else { return carried_fact(message, "tool") };
    let result = ToolResult {
        call: call.into(),
        name: message.text_at("name").map(Into::into),
        parts: decode_parts::parts(message.get("content"), part),
        error: false,
    };
    Fact::ToolReturned { results: vec![result], parts: Vec::new() }
}

fn call(call: &Json<'_>) -> ContentPart {
    let known = call.text_at("id").and_then(|id| match (call.get("function"), call.get("custom")) {
        (Some(called), _) if call.text_at("type").is_none_or(|kind| kind == "function") => {
            function(id, called)
        }
        (_, Some(called)) if call.text_at("type") == Some("custom") => {
            Some(ContentPart::ToolCall(ToolCall {
                form: CallForm::Custom,
                ..ToolCall::function(id, called.text_at("name")?, called.text_at("input")?)
            }))
        }
        _ => None,
    });
    known.unwrap_or_else(|| opaque_part(call, "tool_call"))
}

fn function(id: &str, called: &Json<'_>) -> Option<ContentPart> {
    // Some servers send the arguments as an object: its text is the JSON that the model wrote.
    let arguments = called.get("arguments").map_or("", |given| given.as_text().unwrap_or(given.raw));
    Some(ContentPart::ToolCall(ToolCall::function(id, called.text_at("name")?, arguments)))
}

/// Reads an answer's sound: a response holds its bytes, a later request only its id.
fn spoken(audio: &Json<'_>) -> ContentPart {
    let bytes = audio.text_at("data").and_then(|data| media::inline_part("", data));
    bytes
        .or_else(|| audio.text_at("id").map(|id| media::linked_part("", id)))
        .unwrap_or_else(|| opaque_part(audio, "audio"))
}

/// One content part.
pub(crate) fn part(part: &Json<'_>) -> ContentPart {
    let known = match part.text_at("type") {
        Some("text") => part.text_at("text").map(ContentPart::text),
        Some("refusal") => part.text_at("refusal").map(|text| ContentPart::Refusal { text: text.to_owned() }),
        Some("image_url") => part
            .get("image_url")
            .and_then(|image| image.text_at("url").or_else(|| image.as_text()))
            .and_then(|url| media::url_part(media::ANY_IMAGE, url)),
        Some("input_audio") => part.get("input_audio").and_then(audio_part),
        Some("file") => part.get("file").and_then(|file| {
            let bytes = file.text_at("file_data").and_then(|data| media::file_part("", data));
            bytes.or_else(|| file.text_at("file_id").map(|id| media::linked_part("", id)))
        }),
        _ => None,
    };
    known.unwrap_or_else(|| opaque_part(part, "part"))
}

/// Reads sound in a user message: `{"data": …, "format": "wav"}`.
pub(crate) fn audio_part(audio: &Json<'_>) -> Option<ContentPart> {
    let mime = audio.text_at("format").map_or_else(String::new, |format| format!("audio/{format}"));
    media::inline_part(&mime, audio.text_at("data")?)
}

/// A tool definition under its name.
pub(crate) fn tool_part(tool: &Json<'_>) -> ContentPart {
    let inner = tool.get("function").or_else(|| tool.get("custom"));
    match inner.unwrap_or(tool).text_at("name") {
        Some(name) => ContentPart::Opaque { name: name.to_owned(), json: tool.raw.to_owned() },
        None => opaque_part(tool, "tool"),
    }
}

/// Reads usage. Chat's `prompt_tokens` includes tokens that the cache read or wrote, so they are subtracted.
pub(crate) fn read_usage(usage: &Json<'_>) -> Usage {
    split_usage(usage, "prompt_tokens", "prompt_tokens_details", "completion_tokens")
}

/// Reads the same report under other names, which Responses uses.
pub(crate) fn split_usage(usage: &Json<'_>, input: &str, details: &str, output: &str) -> Usage {
    let all = usage.count_at(input);
    let detail = |key: &str| usage.get(details).map_or(0, |details| details.count_at(key));
    let read = detail("cached_tokens").max(usage.count_at("prompt_cache_hit_tokens")).min(all);
    let written = detail("cache_write_tokens").min(all - read);
    Usage {
        uncached: Tokens(all - read - written),
        cache_read: Tokens(read),
        cache_write: Tokens(written),
        cache_write_hour: Tokens(0),
        output: Tokens(usage.count_at(output)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_answer_has_its_place() {
        let check = |message: &str| {
            let json = Json::parse(message, "a test").unwrap();
            let (places, parts) = (ChatPartIndices::of(&json), answer_parts(&json));
            assert_eq!(places.count(), parts.len(), "{message}");
            for (place, part) in parts.iter().enumerate() {
                let is_call = matches!(part, ContentPart::ToolCall(_));
                assert!(!is_call || places.is_call(place), "{message}");
                assert_eq!(
                    places.reasoning == Some(place),
                    matches!(part, ContentPart::Reasoning { .. }),
                    "{message}"
                );
            }
        };
        check(r#"{"role":"assistant"}"#);
        check(r#"{"content":"","reasoning_content":"","reasoning":"x","tool_calls":[]}"#);
        check(
            r#"{"content":[],"reasoning":"x","refusal":"no","audio":{"id":"a"},"function_call":{"name":"f"}}"#,
        );
        check(
            r#"{"tool_calls":[{"id":"a","function":{"name":"t"}},{}],"content":["x",{"type":"text","text":"y"}]}"#,
        );
        check(r#"{"tool_calls":3,"content":{"x":1},"refusal":"","audio":null,"function_call":{}}"#);
    }
}
