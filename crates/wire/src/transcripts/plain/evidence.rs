//! Which provider a message shows itself to be written for.

use super::super::Format;
use crate::json::Json;

/// The format that a message can only be in; `None` if it could be in several.
pub(super) fn evidence(message: &Json<'_>) -> Option<Format> {
    let blocks = message.array_at("content");
    by_role(message).or_else(|| blocks.iter().find_map(by_block)).or_else(|| by_type(message))
}

/// Whether an OpenAI Responses item may have this type.
pub(super) fn is_item(kind: &str) -> bool {
    const EXACT: [&str; 10] = [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "item_reference",
        "compaction",
        "compaction_trigger",
        "program",
        "additional_tools",
        "configuration_update",
    ];
    // Hosted and local tools come and go; what they have in common is how their items are called.
    let tool = kind.ends_with("_call") || kind.ends_with("_call_output");
    EXACT.contains(&kind) || tool || kind.starts_with("mcp_") || kind == "program_output"
}

fn by_role(message: &Json<'_>) -> Option<Format> {
    let chat = matches!(message.text_at("role"), Some("tool" | "function"))
        || ["tool_calls", "function_call", "reasoning_content", "tool_call_id"]
            .iter()
            .any(|key| message.get(key).is_some_and(|value| !value.is_null()));
    chat.then_some(Format::OpenaiChat)
}

fn by_block(block: &Json<'_>) -> Option<Format> {
    match block.text_at("type")? {
        "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "document" | "image"
        | "search_result" | "server_tool_use" | "container_upload" => Some(Format::Anthropic),
        "image_url" | "input_audio" => Some(Format::OpenaiChat),
        "input_text" | "output_text" | "input_image" | "input_file" | "summary_text" => {
            Some(Format::OpenaiResponses)
        }
        _ if block.get("cache_control").is_some() => Some(Format::Anthropic),
        _ => None,
    }
}

/// By the message's own type: Responses items have one, and so have Anthropic's answers.
fn by_type(message: &Json<'_>) -> Option<Format> {
    let kind = message.text_at("type")?;
    if kind == "message" && ["stop_reason", "usage"].iter().any(|key| message.get(key).is_some()) {
        return Some(Format::Anthropic);
    }
    is_item(kind).then_some(Format::OpenaiResponses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_shows_what_it_is_or_nothing() {
        let check = |json: &str, expect: Option<Format>| {
            assert_eq!(evidence(&Json::parse(json, "a test").unwrap()), expect, "{json}");
        };
        check(r#"{"role":"user","content":"hi"}"#, None);
        check(r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#, None);
        check(r#"{"role":"assistant","content":null,"tool_calls":null}"#, None);
        check(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}"#, Some(Format::OpenaiChat));
        check(r#"{"role":"tool","tool_call_id":"c","content":"x"}"#, Some(Format::OpenaiChat));
        check(r#"{"role":"user","content":[{"type":"image_url"}]}"#, Some(Format::OpenaiChat));
        check(
            r#"{"role":"user","content":[{"type":"text"},{"type":"tool_result"}]}"#,
            Some(Format::Anthropic),
        );
        check(r#"{"role":"user","content":[{"type":"text","cache_control":{}}]}"#, Some(Format::Anthropic));
        check(
            r#"{"type":"message","role":"assistant","content":[{"type":"text"}],"stop_reason":"end_turn"}"#,
            Some(Format::Anthropic),
        );
        check(r#"{"type":"message","role":"user","content":"hi"}"#, Some(Format::OpenaiResponses));
        check(r#"{"role":"user","content":[{"type":"input_text"}]}"#, Some(Format::OpenaiResponses));
        check(r#"{"type":"web_search_call"}"#, Some(Format::OpenaiResponses));
        check(r#"{"type":"note"}"#, None);
    }
}
