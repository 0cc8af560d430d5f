//! Rules of Anthropic: roles alternate from the user on, each call is answered in the next message, results come
//! first in it, and thinking is sealed and never the last block.

use std::collections::{BTreeSet, HashSet};

use crate::legality::{ProviderRule, ProviderRules, ShapeFaults, ViolationKind, ViolationList, ends};
use crate::{
    format::Format,
    json::Json,
    render::{MOST_BREAKPOINTS, count_breakpoints},
};

pub(crate) fn check(
    request: &Json<'_>,
    messages: &[Json<'_>],
    rules: &ProviderRules,
    found: &mut ViolationList,
) {
    for (place, block) in request.array_at("system").iter().enumerate() {
        if is_blank(block) {
            found.at(None, format!("/system/{place}"), ViolationKind::EmptyText);
        }
    }
    let marked = count_breakpoints(Format::Anthropic, request);
    if marked > MOST_BREAKPOINTS as usize {
        found.add(None, None, ViolationKind::TooManyBreakpoints(marked));
    }
    let mut ids = HashSet::new();
    let mut open = OpenToolUses::default();
    for (index, message) in messages.iter().enumerate() {
        let role = message.text_at("role").unwrap_or_default();
        content(index, role, message, found);
        results(index, role, message, &mut open, found);
        open.close(found);
        open = calls(index, role, message, &mut ids, found);
        let repeats = index > 0 && messages[index - 1].text_at("role") == Some(role);
        if repeats && matches!(role, "user" | "assistant") && rules.has(ProviderRule::RolesAlternate) {
            found.add(index, None, ViolationKind::RoleRepeats);
        }
    }
    open.close(found);
    if let Some(last) = messages.last().filter(|last| last.text_at("role") == Some("assistant"))
        && last_text(last).is_some_and(|text| text.ends_with(char::is_whitespace))
    {
        found.add(messages.len() - 1, None, ViolationKind::EndsInSpace);
    }
    let speakers = messages.iter().enumerate().filter_map(|(index, message)| {
        let role = message.text_at("role").filter(|role| matches!(*role, "user" | "assistant"))?;
        // A signed compaction may stand in place of the user's first message.
        let opens = message.array_at("content").first().is_some_and(|block| is(block, "compaction"));
        Some((index, if opens { "user" } else { role }))
    });
    ends(speakers, rules, found);
}

/// Calls of the last message that are not answered yet.
#[derive(Default)]
struct OpenToolUses<'j> {
    made: usize,
    ids: BTreeSet<&'j str>,
}

impl OpenToolUses<'_> {
    fn close(&mut self, found: &mut ViolationList) {
        for id in std::mem::take(&mut self.ids) {
            found.add(self.made, None, ViolationKind::CallUnanswered(id.to_owned()));
        }
    }
}

fn is(block: &Json<'_>, kind: &str) -> bool {
    block.text_at("type") == Some(kind)
}

fn is_blank(block: &Json<'_>) -> bool {
    is(block, "text") && block.text_at("text").is_none_or(|text| text.trim().is_empty())
}

/// The text that a message ends with.
fn last_text<'j>(message: &'j Json<'_>) -> Option<&'j str> {
    let content = message.get("content")?;
    match content.as_array() {
        Some(blocks) => blocks.last().filter(|block| is(block, "text"))?.text_at("text"),
        None => content.as_text(),
    }
}

pub(crate) fn is_thinking(block: &Json<'_>) -> bool {
    is(block, "thinking") || is(block, "redacted_thinking")
}

/// Checks a message's content, block by block.
fn content(index: usize, role: &str, message: &Json<'_>, found: &mut ViolationList) {
    if !matches!(role, "user" | "assistant" | "system") {
        return;
    }
    let Some(blocks) = message.get("content").and_then(Json::as_array) else {
        if message.text_at("content").is_none_or(|text| text.trim().is_empty()) {
            found.add(index, None, ViolationKind::EmptyMessage);
        }
        return;
    };
    if blocks.is_empty() {
        found.add(index, None, ViolationKind::EmptyMessage);
    }
    for (place, block) in blocks.iter().enumerate() {
        let inside = if is(block, "tool_result") { block.array_at("content") } else { &[] };
        if is_blank(block) || inside.iter().any(is_blank) {
            found.add(index, place, ViolationKind::EmptyText);
        }
        let sealed = match block.text_at("type") {
            Some("thinking") => block.text_at("signature").is_some(),
            Some("redacted_thinking") => block.text_at("data").is_some(),
            _ => true,
        };
        if !sealed {
            found.add(index, place, ViolationKind::ThinkingUnsealed);
        }
        if is(block, "compaction") && (index, place) != (0, 0) {
            found.add(index, place, ViolationKind::CompactionNotFirst);
        }
    }
    if role == "assistant" && blocks.last().is_some_and(is_thinking) {
        found.add(index, blocks.len() - 1, ViolationKind::EndsInThinking);
    }
}

/// Pairs the results of a message with the open calls.
fn results(
    index: usize,
    role: &str,
    message: &Json<'_>,
    open: &mut OpenToolUses<'_>,
    found: &mut ViolationList,
) {
    let mut said = false;
    for (place, block) in message.array_at("content").iter().enumerate() {
        if !is(block, "tool_result") {
            said = true;
            continue;
        }
        if said {
            found.add(index, place, ViolationKind::ResultNotFirst);
        }
        let id = block.text_at("tool_use_id").unwrap_or_default();
        if role != "user" || !open.ids.remove(id) {
            found.add(index, place, ViolationKind::AnswersNothing(id.to_owned()));
        }
    }
}

/// Reads the calls a message makes.
fn calls<'j>(
    index: usize,
    role: &str,
    message: &'j Json<'_>,
    ids: &mut HashSet<&'j str>,
    found: &mut ViolationList,
) -> OpenToolUses<'j> {
    let mut open = OpenToolUses { made: index, ids: BTreeSet::new() };
    for (place, block) in message.array_at("content").iter().enumerate() {
        if !is(block, "tool_use") {
            continue;
        }
        match block.text_at("id") {
            Some(id) if role == "assistant" => {
                if !ids.insert(id) {
                    found.add(index, place, ViolationKind::DuplicateCall(id.to_owned()));
                }
                open.ids.insert(id);
            }
            _ => found.add(index, place, ViolationKind::CallWithoutId),
        }
    }
    open
}

/// Finds faults in the shape of a message.
pub(crate) fn shape(message: &Json<'_>, found: &mut ShapeFaults) {
    if found.role(message, &["user", "assistant", "system"]).is_none() {
        return;
    }
    // A message without content is empty, which is found with the rest of the history.
    let Some(content) = message.get("content").filter(|content| !content.is_null()) else { return };
    found.content("/content", content, &["text"]);
    for (index, block) in content.as_array().unwrap_or_default().iter().enumerate() {
        let place = format!("/content/{index}");
        match block.text_at("type") {
            Some("tool_use") => {
                if block.text_at("id").is_none_or(str::is_empty) {
                    found.add(&place, ViolationKind::CallWithoutId);
                }
                if block.text_at("name").is_none_or(str::is_empty) {
                    found.add(&place, ViolationKind::CallWithoutName);
                }
                if let Some(input) = block.get("input").filter(|input| !input.is_object()) {
                    found.add(&format!("{place}/input"), ViolationKind::InputType(input.kind()));
                }
            }
            Some("tool_result") => {
                if let Some(inner) = block.get("content").filter(|inner| !inner.is_null()) {
                    found.content(&format!("{place}/content"), inner, &["text"]);
                }
            }
            _ => {}
        }
    }
}
