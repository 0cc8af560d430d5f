//! Anthropic Messages.
//!
//! Parts stand in the order of a message's content blocks: `parts[i]` is block `i`, and a string is its own only
//! block. In a message with tool results the results are the `tool_result` blocks in order, and `parts` are the
//! other blocks in order.

mod append;
pub(crate) mod block;
pub(crate) mod legality;
pub(crate) mod provider;
pub(crate) mod recall;
mod sent;
pub(crate) mod stream;
mod synthetic;
pub(crate) mod write;

use epitome_core::{
    ContentPart, Event, Fact, Tokens,
    event::{InstructionKind, RawDialect, ToolResult, Usage},
};

use crate::{
    decode_parts::{self, carried_fact},
    error::WireError,
    json::Json,
    normal_digest,
};

/// Reads one message, as it stands in a request or a response.
///
/// ```
/// use epitome_core::event::Fact;
///
/// let event = epitome_wire::anthropic::message(r#"{"role":"user","content":"hi"}"#)?;
/// assert!(matches!(event.fact, Fact::UserSaid { .. }));
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
pub fn message(json: &str) -> Result<Event, WireError> {
    Json::parse(json, "an Anthropic message").map(|message| read_message(&message))
}

/// Reads a `usage` object.
pub fn usage(json: &str) -> Result<Usage, WireError> {
    const WHAT: &str = "an Anthropic usage report";
    Json::parse(json, WHAT)?.require_object(WHAT).map(|usage| read_usage(&usage))
}

pub(crate) fn read_message(message: &Json<'_>) -> Event {
    let normal = normal_digest::anthropic_message(message);
    decode_parts::event(RawDialect::Anthropic, message, fact(message), Some(normal))
}

fn fact(message: &Json<'_>) -> Fact {
    let content = message.get("content");
    match message.text_at("role") {
        Some("user") => asked(content),
        Some("assistant") => Fact::AssistantSaid {
            answer: message.text_at("id").map(Into::into),
            model: message.text_at("model").map(Into::into),
            parts: decode_parts::parts(content, block::answer_part),
        },
        Some("system") => Fact::Instructed {
            what: InstructionKind::Message,
            parts: decode_parts::parts(content, block::user_part),
        },
        _ => carried_fact(message, "message"),
    }
}

/// Reads a user message: the user's words, or tool results and the words beside them.
fn asked(content: Option<&Json<'_>>) -> Fact {
    let blocks = content.and_then(Json::as_array).unwrap_or_default();
    let results: Vec<ToolResult> = blocks.iter().filter_map(block::result).collect();
    if results.is_empty() {
        return Fact::UserSaid { parts: decode_parts::parts(content, block::user_part) };
    }
    let beside = blocks.iter().filter(|block| block::result(block).is_none());
    Fact::ToolReturned { results, parts: beside.map(block::user_part).collect() }
}

/// The parts of a system prompt: a string, or blocks.
pub(crate) fn system_parts(system: &Json<'_>) -> Vec<ContentPart> {
    decode_parts::parts(Some(system), block::user_part)
}

/// Reads usage. Anthropic's `input_tokens` leaves out tokens that the cache read or wrote, so they are added.
pub(crate) fn read_usage(usage: &Json<'_>) -> Usage {
    let hour = usage.get("cache_creation").map_or(0, |split| split.count_at("ephemeral_1h_input_tokens"));
    let short = usage.get("cache_creation").map_or(0, |split| split.count_at("ephemeral_5m_input_tokens"));
    let written = usage.count_at("cache_creation_input_tokens").max(hour.saturating_add(short));
    Usage {
        uncached: Tokens(usage.count_at("input_tokens")),
        cache_read: Tokens(usage.count_at("cache_read_input_tokens")),
        cache_write: Tokens(written),
        cache_write_hour: Tokens(hour),
        output: Tokens(usage.count_at("output_tokens")),
    }
}
