//! A whole request body, told from a bare list of messages by the members beside the list.

use std::borrow::Cow;

use epitome_core::Event;
use serde_json::Value;

use super::{
    super::{TranscriptError, TranscriptFile, TranscriptFormat, raw_json},
    evidence::FormatEvidence,
};
use crate::format;

/// Members of a request that a stored conversation does not have.
const SETTINGS: [&str; 12] = [
    "model",
    "tools",
    "system",
    "instructions",
    "input",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "stream",
    "tool_choice",
    "anthropic_version",
];

/// Returns true if a value is a request, even if a provider would refuse its messages: such faults can only be
/// reported for a request.
pub(super) fn recognises(value: &Value) -> bool {
    let has = |item: &Value, keys: &[&str]| keys.iter().any(|key| item.get(key).is_some());
    let lists = |key: &str, keys: &[&str]| {
        value[key].as_array().is_some_and(|items| items.iter().any(|item| has(item, keys)))
    };
    let is_named = value["model"].is_string() && (value["input"].is_string() || has(value, &["messages"]));
    lists("messages", &["role", "content"]) || lists("input", &["type", "role", "content"]) || is_named
}

/// Returns true if an object with these members is a request.
pub(super) fn is_request(members: &[(Cow<'_, str>, &str)]) -> bool {
    members.iter().any(|(key, _)| SETTINGS.contains(&key.as_ref()))
}

/// Reads a request.
pub(super) fn read(json: &str, reading: &mut TranscriptFile) -> Result<Vec<Event>, TranscriptError> {
    let format = format_of(json);
    reading.format = format;
    let decoder = match format {
        TranscriptFormat::OpenaiResponses => format::Format::OpenaiResponses,
        TranscriptFormat::Anthropic => format::Format::Anthropic,
        _ => format::Format::OpenaiChat,
    };
    let events = decoder.decode_request(json).map_err(|error| TranscriptError::Malformed {
        format: format.name(),
        what: format!("it cannot be read as a request: {error}"),
    })?;
    Ok(events.into_iter().enumerate().map(|(index, event)| event.from_origin(format!("#{index}"))).collect())
}

/// The provider a request is for: from its settings, its tools or its messages; from the model's name if they do not
/// decide, and from hints in the messages if that does not either.
fn format_of(json: &str) -> TranscriptFormat {
    let member = |key: &str| raw_json::member(json, key);
    let tool = member("tools").and_then(raw_json::elements).and_then(|tools| tools.first().copied());
    let of_tool = |key: &str| tool.is_some_and(|tool| raw_json::member(tool, key).is_some());
    if member("input").is_some() {
        return TranscriptFormat::OpenaiResponses;
    }
    let anthropic = ["system", "anthropic_version", "stop_sequences", "thinking"];
    if anthropic.iter().any(|key| member(key).is_some()) || of_tool("input_schema") {
        return TranscriptFormat::Anthropic;
    }
    let chat = ["max_completion_tokens", "response_format", "stream_options", "stop", "reasoning_effort"];
    if chat.iter().any(|key| member(key).is_some()) || of_tool("function") {
        return TranscriptFormat::OpenaiChat;
    }
    let messages = member("messages").and_then(raw_json::elements).unwrap_or_default();
    let named = member("model").is_some_and(|model| model.starts_with("\"claude"));
    match FormatEvidence::combine(messages.into_iter().map(FormatEvidence::of)) {
        FormatEvidence::Shown(format) => format,
        _ if named => TranscriptFormat::Anthropic,
        FormatEvidence::Hinted(format) => format,
        FormatEvidence::Silent => TranscriptFormat::OpenaiChat,
    }
}
