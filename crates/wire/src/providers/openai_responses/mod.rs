//! OpenAI Responses: a history of items.
//!
//! An item is an event. Items that the model made are [`AssistantSaid`](Fact::AssistantSaid), calls that a client
//! answers are tool calls, and calls the provider answers itself stay opaque. `parts[i]` of a message is its content
//! part `i`; every other output item has exactly one part, the item itself. A compaction item is an opaque part named
//! `compaction`.

use epitome_core::{
    ContentPart, Event, Fact,
    event::{CallForm, InstructionKind, RawDialect, ReasoningSeal, ToolCall, ToolResult, Usage},
};

use crate::{
    decode_parts::{self, carried_fact, opaque_part},
    error::WireError,
    json::Json,
    media,
    normal_digest::{self, ItemDirection},
    openai_chat,
};

pub(crate) mod legality;
mod output;
pub(crate) mod provider;
pub(crate) mod recall;
pub(crate) mod stream;
mod synthetic;
pub(crate) mod write;

/// Kinds of calls that a client answers, each with the kind of its output.
pub(crate) const CLIENT_CALL_KINDS: [(&str, &str); 7] = [
    ("function_call", "function_call_output"),
    ("custom_tool_call", "custom_tool_call_output"),
    ("local_shell_call", "local_shell_call_output"),
    ("shell_call", "shell_call_output"),
    ("apply_patch_call", "apply_patch_call_output"),
    ("computer_call", "computer_call_output"),
    ("tool_search_call", "tool_search_output"),
];

/// Reads one item of `input` or `output`.
///
/// ```
/// use epitome_core::event::Fact;
///
/// let event = epitome_wire::openai_responses::item(r#"{"type":"item_reference","id":"rs_1"}"#)?;
/// assert_eq!(event.fact, Fact::Carried { kind: "item_reference".into() });
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
pub fn item(json: &str) -> Result<Event, WireError> {
    Json::parse(json, "a Responses item").map(|item| read_item(&item))
}

/// Reads a `usage` object.
pub fn usage(json: &str) -> Result<Usage, WireError> {
    const WHAT: &str = "a Responses usage report";
    Json::parse(json, WHAT)?.require_object(WHAT).map(|usage| read_usage(&usage))
}

pub(crate) fn read_item(item: &Json<'_>) -> Event {
    let fact = fact(item);
    let side =
        if matches!(fact, Fact::AssistantSaid { .. }) { ItemDirection::Output } else { ItemDirection::Input };
    let normal = normal_digest::responses_item(item, side);
    decode_parts::event(RawDialect::OpenaiResponses, item, fact, Some(normal))
}

fn fact(item: &Json<'_>) -> Fact {
    let kind = item.text_at("type");
    match kind {
        Some("message") => message(item),
        None if item.text_at("role").is_some() => message(item),
        Some(kind) => match output::result(kind, item) {
            Some(result) => Fact::ToolReturned { results: vec![result], parts: Vec::new() },
            None => made(kind, item).map_or_else(|| carried_fact(item, "item"), answer),
        },
        None => carried_fact(item, "item"),
    }
}

fn answer(part: ContentPart) -> Fact {
    Fact::AssistantSaid { answer: None, model: None, parts: vec![part] }
}

fn message(item: &Json<'_>) -> Fact {
    let parts = || decode_parts::parts(item.get("content"), part);
    match item.text_at("role") {
        Some("user") => Fact::UserSaid { parts: parts() },
        Some("assistant") => Fact::AssistantSaid { answer: None, model: None, parts: parts() },
        Some("system" | "developer") => Fact::Instructed { what: InstructionKind::Message, parts: parts() },
        _ => carried_fact(item, "message"),
    }
}

/// Reads an item that the model made, other than a message; `None` for any other item.
fn made(kind: &str, item: &Json<'_>) -> Option<ContentPart> {
    let known = match kind {
        "reasoning" => Some(reasoning(item)),
        "function_call" => call(item, item.text_at("name"), "arguments"),
        "custom_tool_call" => call(item, item.text_at("name"), "input").map(custom),
        "local_shell_call" => call(item, Some("local_shell"), "action"),
        "shell_call" => call(item, Some("shell"), "action"),
        "apply_patch_call" => call(item, Some("apply_patch"), "operation"),
        "computer_call" => {
            let actions = if item.get("action").is_some() { "action" } else { "actions" };
            call(item, Some("computer"), actions)
        }
        // With a call id the client searches; without one the provider does.
        "tool_search_call" => call(item, Some("tool_search"), "arguments"),
        "image_generation_call" => {
            item.text_at("result").and_then(|image| media::inline_part("image/png", image))
        }
        "compaction"
        | "compaction_summary"
        | "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "mcp_call"
        | "mcp_list_tools"
        | "mcp_approval_request"
        | "tool_search_output"
        | "program"
        | "program_output" => None,
        _ => return None,
    };
    Some(known.unwrap_or_else(|| opaque_part(item, kind)))
}

fn custom(part: ContentPart) -> ContentPart {
    match part {
        ContentPart::ToolCall(call) => ContentPart::ToolCall(ToolCall { form: CallForm::Custom, ..call }),
        other => other,
    }
}

fn call(item: &Json<'_>, name: Option<&str>, arguments: &str) -> Option<ContentPart> {
    let arguments = item.get(arguments).map_or("", |given| given.as_text().unwrap_or(given.raw));
    Some(ContentPart::ToolCall(ToolCall {
        namespace: item.text_at("namespace").map(str::to_owned),
        ..ToolCall::function(item.text_at("call_id")?, name?, arguments)
    }))
}

fn reasoning(item: &Json<'_>) -> ContentPart {
    let pieces = ["summary", "content"].into_iter().flat_map(|list| item.array_at(list));
    let text: Vec<&str> = pieces.filter_map(|piece| piece.text_at("text")).collect();
    let seal = item.text_at("encrypted_content").map(|hidden| ReasoningSeal::Encrypted(hidden.to_owned()));
    ContentPart::Reasoning { text: text.join("\n"), seal }
}

/// Returns true if an item is reasoning that no one can read: it has no id that its provider knows it by, no sealed
/// content and no words. Clients write such items for reasoning they did not keep, and a provider refuses them or
/// learns nothing from them.
pub(crate) fn is_empty_reasoning(item: &Json<'_>) -> bool {
    item.text_at("type") == Some("reasoning")
        && item.members().iter().all(|(key, value)| match &**key {
            "type" | "status" => true,
            "id" | "encrypted_content" => value.is_null() || value.as_text() == Some(""),
            "summary" | "content" => {
                let is_blank =
                    |piece: &Json<'_>| piece.text_at("text").is_some_and(|text| text.trim().is_empty());
                value.is_null() || value.as_array().is_some_and(|pieces| pieces.iter().all(is_blank))
            }
            // An unknown member may be the one by which the provider recognises it.
            _ => value.is_null(),
        })
}

/// One content part of a message or of a tool's output.
pub(crate) fn part(part: &Json<'_>) -> ContentPart {
    let known = match part.text_at("type") {
        Some("input_text" | "output_text" | "text") => part.text_at("text").map(ContentPart::text),
        Some("refusal") => part.text_at("refusal").map(|text| ContentPart::Refusal { text: text.to_owned() }),
        Some("input_image" | "computer_screenshot") => image(part),
        Some("input_file") => {
            let bytes = part.text_at("file_data").and_then(|data| media::file_part("", data));
            let named = || part.text_at("file_url").or_else(|| part.text_at("file_id"));
            bytes.or_else(|| named().map(|name| media::linked_part("", name)))
        }
        Some("input_audio") => part.get("input_audio").and_then(openai_chat::audio_part),
        _ => None,
    };
    known.unwrap_or_else(|| opaque_part(part, "part"))
}

fn image(part: &Json<'_>) -> Option<ContentPart> {
    match part.text_at("image_url") {
        Some(url) => media::url_part(media::ANY_IMAGE, url),
        None => part.text_at("file_id").map(|id| media::linked_part(media::ANY_IMAGE, id)),
    }
}

/// Reads usage. `input_tokens` includes tokens that the cache read or wrote, so they are subtracted.
pub(crate) fn read_usage(usage: &Json<'_>) -> Usage {
    openai_chat::split_usage(usage, "input_tokens", "input_tokens_details", "output_tokens")
}

/// A result without any special status.
fn result_of(call: &str, parts: Vec<ContentPart>) -> ToolResult {
    ToolResult { call: call.into(), name: None, parts, error: false }
}
