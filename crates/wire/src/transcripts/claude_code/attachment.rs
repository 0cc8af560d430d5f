//! Attachments that Claude Code adds to a conversation beside messages.
//!
//! The agent words attachments as reminders when it sends them, and does not record its words: the facts hold the
//! material of the reminders. Some attachments are for the user's eyes only.

use epitome_core::ContentPart;

use crate::{
    anthropic,
    json::{Json, JsonValue},
};

/// Meaning of an attachment to the model.
pub(super) enum ClaudeAttachment {
    /// The user wrote it while the agent was at work.
    Said(Vec<ContentPart>),
    /// The agent or a hook added it.
    Added {
        /// Source of the addition.
        hook: String,
        /// Its content.
        parts: Vec<ContentPart>,
    },
    /// The model does not see it.
    Hidden,
}

/// Attachments that only the user sees.
const HIDDEN: [&str; 6] = [
    "hook_system_message",
    "hook_cancelled",
    "hook_non_blocking_error",
    "hook_error_during_execution",
    "command_permissions",
    "already_read_file",
];

/// Reads an attachment.
pub(super) fn read(attachment: &Json<'_>) -> ClaudeAttachment {
    let kind = attachment.text_at("type").unwrap_or("attachment");
    let parts = match kind {
        _ if HIDDEN.contains(&kind) => return ClaudeAttachment::Hidden,
        "queued_command" => {
            let parts = anthropic::system_parts(attachment.get("prompt").unwrap_or(attachment));
            if matches!(attachment.text_at("commandMode"), Some("prompt") | None) {
                return ClaudeAttachment::Said(parts);
            }
            parts
        }
        "edited_text_file" => texts(attachment, &["filename", "snippet"]),
        "deferred_tools_delta" | "agent_listing_delta" | "mcp_instructions_delta" | "skill_listing" => {
            let listed = texts(attachment, &["content", "addedBlocks", "addedLines"]);
            if listed.is_empty() && is_empty(attachment) {
                return ClaudeAttachment::Hidden;
            }
            listed
        }
        "hook_success" | "hook_additional_context" => match texts(attachment, &["content"]) {
            parts if parts.is_empty() => return ClaudeAttachment::Hidden,
            parts => parts,
        },
        _ => texts(attachment, &["content"]),
    };
    let parts = if parts.is_empty() {
        vec![ContentPart::Opaque { name: kind.to_owned(), json: attachment.raw.to_owned() }]
    } else {
        parts
    };
    ClaudeAttachment::Added { hook: attachment.text_at("hookName").unwrap_or(kind).to_owned(), parts }
}

/// The texts of some members, each a string or a list of strings.
pub(super) fn texts(object: &Json<'_>, keys: &[&str]) -> Vec<ContentPart> {
    let values = keys.iter().filter_map(|key| object.get(key));
    let lists = values.map(|value| match value.as_array() {
        None => value.as_text().unwrap_or_default().to_owned(),
        Some(list) => list.iter().filter_map(Json::as_text).collect::<Vec<_>>().join("\n"),
    });
    lists.filter(|text| !text.is_empty()).map(ContentPart::text).collect()
}

/// Returns true if the attachment's list is empty.
fn is_empty(attachment: &Json<'_>) -> bool {
    attachment.members().iter().all(|(_, value)| match &value.value {
        JsonValue::Array(list) => list.is_empty(),
        _ => true,
    })
}
