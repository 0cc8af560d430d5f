//! Conversion of Anthropic content blocks to parts.

use epitome_core::{
    ContentPart,
    event::{ReasoningSeal, ToolCall, ToolResult},
};

use crate::{
    decode_parts::{self, opaque_part},
    json::{Json, JsonValue},
    media,
};

/// Reads a block of an answer. A block that only a server can interpret stays opaque.
pub(crate) fn answer_part(block: &Json<'_>) -> ContentPart {
    let known = match block.text_at("type") {
        Some("thinking") => block.text_at("thinking").map(|text| ContentPart::Reasoning {
            text: text.to_owned(),
            seal: block.text_at("signature").map(|signature| ReasoningSeal::Signature(signature.to_owned())),
        }),
        Some("redacted_thinking") => block.text_at("data").map(|data| ContentPart::Reasoning {
            text: String::new(),
            seal: Some(ReasoningSeal::Encrypted(data.to_owned())),
        }),
        Some("tool_use") => call(block),
        _ => return user_part(block),
    };
    known.unwrap_or_else(|| opaque_part(block, "block"))
}

/// Reads a block of a user message, a system prompt or a tool's result.
pub(crate) fn user_part(block: &Json<'_>) -> ContentPart {
    let known = match block.text_at("type") {
        Some("text") => block.text_at("text").map(ContentPart::text),
        Some("image") => block.get("source").and_then(|source| sourced(source, media::ANY_IMAGE)),
        Some("document") => block.get("source").and_then(|source| sourced(source, "application/pdf")),
        _ => None,
    };
    known.unwrap_or_else(|| opaque_part(block, "block"))
}

/// Reads a tool's result, if the block is one and names the call it answers.
pub(crate) fn result(block: &Json<'_>) -> Option<ToolResult> {
    if !is_result(block) {
        return None;
    }
    Some(ToolResult {
        call: block.text_at("tool_use_id")?.into(),
        name: None,
        parts: decode_parts::parts(block.get("content"), user_part),
        error: matches!(block.get("is_error").map(|error| &error.value), Some(JsonValue::Bool(true))),
    })
}

/// Returns true if a block is a tool's result that names the call it answers.
pub(crate) fn is_result(block: &Json<'_>) -> bool {
    block.text_at("type") == Some("tool_result") && block.text_at("tool_use_id").is_some()
}

fn call(block: &Json<'_>) -> Option<ContentPart> {
    let arguments = block.get("input").map_or("", |input| input.raw);
    Some(ContentPart::ToolCall(ToolCall::function(block.text_at("id")?, block.text_at("name")?, arguments)))
}

/// Reads the location of an image or document. A document made of text stays opaque, so that its text is counted and
/// found by search.
fn sourced(source: &Json<'_>, link: &str) -> Option<ContentPart> {
    match source.text_at("type")? {
        "base64" => {
            media::inline_part(source.text_at("media_type").unwrap_or_default(), source.text_at("data")?)
        }
        "url" => Some(media::linked_part(link, source.text_at("url")?)),
        "file" => Some(media::linked_part(link, source.text_at("file_id")?)),
        _ => None,
    }
}
