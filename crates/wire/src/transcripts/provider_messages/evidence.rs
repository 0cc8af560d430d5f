//! Evidence in a message for the provider it was written for.
//!
//! Most messages are valid for every provider. Some contain members that only one provider knows, and decide. And
//! some contain members of one provider that the others mostly let pass (a gateway passes `cache_control` on in Chat
//! messages, an SDK writes `"refusal": null`): they decide only if there is no better evidence.

use super::super::TranscriptFormat;
use crate::json::Json;

/// Evidence in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormatEvidence {
    /// It can only be in this format.
    Shown(TranscriptFormat),
    /// It may be in any, but is likely in this one.
    Hinted(TranscriptFormat),
    /// It may be in any.
    Silent,
}

impl FormatEvidence {
    /// Finds the evidence in a message; none if it cannot be read.
    pub(super) fn of(message: &str) -> Self {
        Json::parse(message, "a message").map_or(Self::Silent, |message| evidence(&message))
    }

    /// The format of a whole list of messages, from the first that shows one, or else from the first hint.
    pub(super) fn combine(all: impl IntoIterator<Item = Self>) -> Self {
        let mut best = Self::Silent;
        for one in all {
            match one {
                Self::Shown(_) => return one,
                Self::Hinted(_) if best == Self::Silent => best = one,
                Self::Hinted(_) | Self::Silent => {}
            }
        }
        best
    }
}

fn evidence(message: &Json<'_>) -> FormatEvidence {
    let blocks = message.array_at("content");
    let shown = by_role(message).or_else(|| blocks.iter().find_map(by_block)).or_else(|| by_type(message));
    let hinted = || by_mark(message, blocks).map_or(FormatEvidence::Silent, FormatEvidence::Hinted);
    shown.map_or_else(hinted, FormatEvidence::Shown)
}

/// Returns true if an OpenAI Responses item may have this type.
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
    // Hosted and local tools come and go; the pattern of their items' names stays.
    let tool = kind.ends_with("_call") || kind.ends_with("_call_output");
    EXACT.contains(&kind) || tool || kind.starts_with("mcp_") || kind == "program_output"
}

fn by_role(message: &Json<'_>) -> Option<TranscriptFormat> {
    let chat = matches!(message.text_at("role"), Some("tool" | "function"))
        || ["tool_calls", "function_call", "reasoning_content", "tool_call_id"]
            .iter()
            .any(|key| message.get(key).is_some_and(|value| !value.is_null()));
    chat.then_some(TranscriptFormat::OpenaiChat)
}

fn by_block(block: &Json<'_>) -> Option<TranscriptFormat> {
    match block.text_at("type")? {
        "tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "document" | "image"
        | "search_result" | "server_tool_use" | "container_upload" => Some(TranscriptFormat::Anthropic),
        "image_url" | "input_audio" => Some(TranscriptFormat::OpenaiChat),
        "input_text" | "output_text" | "input_image" | "input_file" | "summary_text" => {
            Some(TranscriptFormat::OpenaiResponses)
        }
        _ => None,
    }
}

/// Decides by the message's own type: Responses items have one, and so have Anthropic's answers.
fn by_type(message: &Json<'_>) -> Option<TranscriptFormat> {
    match message.text_at("type")? {
        "message" => {
            let answer = ["stop_reason", "usage"].iter().any(|key| message.get(key).is_some());
            answer.then_some(TranscriptFormat::Anthropic)
        }
        kind => is_item(kind).then_some(TranscriptFormat::OpenaiResponses),
    }
}

/// Decides by members that others would not write, though they would understand the message.
fn by_mark(message: &Json<'_>, blocks: &[Json<'_>]) -> Option<TranscriptFormat> {
    const CHAT: [&str; 7] =
        ["name", "refusal", "annotations", "audio", "tool_calls", "function_call", "reasoning_content"];
    if blocks.iter().any(|block| block.get("cache_control").is_some()) {
        return Some(TranscriptFormat::Anthropic);
    }
    if message.text_at("type") == Some("message") {
        return Some(TranscriptFormat::OpenaiResponses);
    }
    CHAT.iter().any(|key| message.get(key).is_some()).then_some(TranscriptFormat::OpenaiChat)
}

#[cfg(test)]
mod tests {
    use super::{
        FormatEvidence::{Hinted, Shown, Silent},
        *,
    };

    #[test]
    fn a_message_shows_what_it_is_or_hints_at_it_or_neither() {
        let check =
            |json: &str, expect: FormatEvidence| assert_eq!(FormatEvidence::of(json), expect, "{json}");
        let (chat, anthropic, responses) =
            (TranscriptFormat::OpenaiChat, TranscriptFormat::Anthropic, TranscriptFormat::OpenaiResponses);
        check(r#"{"role":"user","content":"hi"}"#, Silent);
        check(r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#, Silent);
        check(r#"{"role":"assistant","content":null,"tool_calls":null}"#, Hinted(chat));
        check(r#"{"role":"user","name":"Ann","content":"hi"}"#, Hinted(chat));
        check(r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}"#, Shown(chat));
        check(r#"{"role":"tool","tool_call_id":"c","content":"x"}"#, Shown(chat));
        check(r#"{"role":"user","content":[{"type":"image_url"}]}"#, Shown(chat));
        check(r#"{"role":"user","content":[{"type":"text"},{"type":"tool_result"}]}"#, Shown(anthropic));
        check(r#"{"role":"user","content":[{"type":"text","cache_control":{}}]}"#, Hinted(anthropic));
        check(
            r#"{"type":"message","role":"assistant","content":[{"type":"text"}],"stop_reason":"end_turn"}"#,
            Shown(anthropic),
        );
        check(r#"{"type":"message","role":"user","content":"hi"}"#, Hinted(responses));
        check(r#"{"role":"user","content":[{"type":"input_text"}]}"#, Shown(responses));
        check(r#"{"type":"web_search_call"}"#, Shown(responses));
        check(r#"{"type":"note"}"#, Silent);
        check("{", Silent);
    }

    #[test]
    fn what_is_shown_counts_before_any_hint() {
        let (chat, anthropic) = (TranscriptFormat::OpenaiChat, TranscriptFormat::Anthropic);
        let check = |all: &[FormatEvidence], expect: FormatEvidence| {
            assert_eq!(FormatEvidence::combine(all.iter().copied()), expect, "{all:?}");
        };
        check(&[], Silent);
        check(&[Silent, Hinted(anthropic), Hinted(chat)], Hinted(anthropic));
        check(&[Hinted(anthropic), Silent, Shown(chat), Shown(anthropic)], Shown(chat));
    }
}
