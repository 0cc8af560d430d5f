//! A question at the end of an Anthropic request.

use std::collections::HashSet;

use epitome_core::context::UNANSWERED_TEXT;

use crate::{
    append_instruction::AppendedRequest,
    json::{self, Json, quote},
};

/// The setting that prevents a request from being asked for a text.
pub(crate) fn barrier(request: &Json<'_>) -> Option<&'static str> {
    let forces = |choice: &Json<'_>| matches!(choice.text_at("type"), Some("any" | "tool"));
    let format = request.get("output_config").and_then(|value| value.get("format"));
    let shapes = format.and_then(|value| value.text_at("type")).is_some_and(|kind| kind != "text");
    let found = [
        ("output_format", request.get("output_format").is_some_and(|value| !value.is_null())),
        ("output_config.format", shapes),
        // Another choice would lose the messages in the cache.
        ("tool_choice", request.get("tool_choice").is_some_and(forces)),
    ];
    found.into_iter().find(|(_, binds)| *binds).map(|(setting, _)| setting)
}

/// Appends an instruction. Roles alternate here, and results come first in the message that answers.
pub(crate) fn message(body: &mut AppendedRequest<'_, '_>, history: &Json<'_>, instruction: &str) {
    let messages = history.as_array().unwrap_or_default();
    let text = |literal: &str| format!(r#"{{"type":"text","text":{literal}}}"#);
    let instruction = text(&quote(instruction));
    let last = messages.last().filter(|last| last.text_at("role") == Some("user"));
    let answered = last.map(|last| last.array_at("content")).unwrap_or_default();
    let asked = if last.is_some() { messages.len().checked_sub(2) } else { messages.len().checked_sub(1) };
    let asked = asked.and_then(|index| messages.get(index));
    let is = |block: &Json<'_>, kind: &str| block.text_at("type") == Some(kind);
    let open = asked.filter(|asked| asked.text_at("role") == Some("assistant")).into_iter();
    let open = open.flat_map(|asked| asked.array_at("content")).filter(|block| is(block, "tool_use"));
    let results = answered.iter().filter(|block| is(block, "tool_result"));
    let returned: HashSet<&str> = results.filter_map(|block| block.text_at("tool_use_id")).collect();
    let open = open.filter_map(|call| call.text_at("id")).filter(|id| !returned.contains(id));
    let results: Vec<String> = open.map(stand_in).collect();
    // A result after other blocks would be refused, as this request would have been without it.
    let is_text = last.is_some_and(|last| last.text_at("content").is_some());
    let fits = !is_text && answered.iter().all(|block| is(block, "tool_result"));
    let blocks = results.into_iter().filter(|_| fits).chain([instruction]);
    match last.and_then(|last| last.get("content")) {
        Some(content) if content.as_array().is_some() => body.append(content, blocks),
        Some(content) if content.as_text().is_some_and(|text| !text.is_empty()) => {
            let said = json::list([text(content.raw)].into_iter().chain(blocks));
            body.put_in_place(content, said);
        }
        _ => {
            let message = format!(r#"{{"role":"user","content":{}}}"#, json::list(blocks));
            body.append(history, [message].into_iter());
        }
    }
}

/// The stand-in for a call without a result.
fn stand_in(id: &str) -> String {
    let (id, said) = (quote(id), quote(UNANSWERED_TEXT));
    format!(r#"{{"type":"tool_result","tool_use_id":{id},"content":{said},"is_error":true}}"#)
}
