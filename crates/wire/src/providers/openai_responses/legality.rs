//! Rules of Responses: calls and outputs pair by id, and reasoning is followed by the item it led to.
//!
//! The newest compaction item stands for everything before it: earlier items no longer count, and a result after it
//! may answer a call that is gone. The item itself is opaque.

use std::collections::HashMap;

use crate::legality::{
    ProviderRules, SealedCompaction, ShapeFaults, ViolationKind, ViolationList, ends, is_elsewhere,
};
use crate::{
    json::{self, Json},
    openai_responses::CLIENT_CALL_KINDS,
};

pub(crate) fn check(
    request: &Json<'_>,
    items: &[Json<'_>],
    rules: &ProviderRules,
    found: &mut ViolationList,
) {
    let newest = items.iter().rposition(is_compaction);
    let begin = newest.map_or(0, |newest| newest + 1);
    let lost =
        if newest.is_some() || is_elsewhere(request) { MissingCalls::Perhaps } else { MissingCalls::Never };
    let mut calls = ResponsesCalls { made: HashMap::new(), lost };
    for (index, item) in items.iter().enumerate().skip(begin) {
        let kind = item.text_at("type").unwrap_or("message");
        if let Some((_, output)) = CLIENT_CALL_KINDS.iter().find(|(call, _)| *call == kind) {
            calls.call(index, output, item, found);
        } else if CLIENT_CALL_KINDS.iter().any(|(_, output)| *output == kind) {
            calls.answer(index, kind, item, found);
        } else if kind == "reasoning" && !items.get(index + 1).is_some_and(is_made) {
            found.add(index, None, ViolationKind::ReasoningAlone);
        }
    }
    calls.close(found);
    ends(items.iter().enumerate().filter_map(|(index, item)| Some((index, speaker(item)?))), rules, found);
}

/// Calls made so far.
struct ResponsesCalls<'j> {
    made: HashMap<&'j str, ResponsesCall>,
    lost: MissingCalls,
}

/// Reports whether a call may have been made that the request does not hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingCalls {
    Never,
    Perhaps,
}

struct ResponsesCall {
    index: usize,
    /// Kind of its output item.
    output: &'static str,
    is_open: bool,
}

impl<'j> ResponsesCalls<'j> {
    fn call(&mut self, index: usize, output: &'static str, item: &'j Json<'_>, found: &mut ViolationList) {
        match item.text_at("call_id") {
            // The provider itself answers a search that has no id.
            None if output == "tool_search_output" => {}
            None => found.add(index, None, ViolationKind::CallWithoutId),
            Some(id) if self.made.contains_key(id) => {
                found.add(index, None, ViolationKind::DuplicateCall(id.to_owned()));
            }
            Some(id) => {
                self.made.insert(id, ResponsesCall { index, output, is_open: true });
            }
        }
    }

    fn answer(&mut self, index: usize, kind: &str, item: &Json<'_>, found: &mut ViolationList) {
        let by_id = || item.text_at("id").filter(|_| kind == "local_shell_call_output");
        let Some(id) = item.text_at("call_id").or_else(by_id) else {
            if kind != "tool_search_output" {
                found.add(index, None, ViolationKind::AnswersNothing(String::new()));
            }
            return;
        };
        match self.made.get_mut(id) {
            Some(call) if call.is_open => {
                call.is_open = false;
                if call.output != kind {
                    found.add(index, None, ViolationKind::WrongKind(id.to_owned()));
                }
            }
            None if self.lost == MissingCalls::Perhaps => {}
            Some(_) | None => found.add(index, None, ViolationKind::AnswersNothing(id.to_owned())),
        }
    }

    fn close(self, found: &mut ViolationList) {
        let open = self.made.iter().filter(|(_, call)| call.is_open);
        let mut open: Vec<(usize, &str)> = open.map(|(id, call)| (call.index, *id)).collect();
        open.sort_unstable();
        for (index, id) in open {
            found.add(index, None, ViolationKind::CallUnanswered(id.to_owned()));
        }
    }
}

fn is_compaction(item: &Json<'_>) -> bool {
    matches!(item.text_at("type"), Some("compaction" | "compaction_summary"))
}

/// Returns true if the model made an item: only such an item can follow reasoning.
fn is_made(item: &Json<'_>) -> bool {
    match item.text_at("type") {
        Some("message") | None => item.text_at("role") == Some("assistant"),
        Some(kind) => !kind.ends_with("_output") || kind == "program_output",
    }
}

/// Role of an item, for the order of roles.
fn speaker<'j>(item: &'j Json<'_>) -> Option<&'j str> {
    match item.text_at("type") {
        Some("message") | None => item.text_at("role").filter(|role| matches!(*role, "user" | "assistant")),
        Some("reasoning" | "function_call" | "custom_tool_call") => Some("assistant"),
        Some(kind) if kind.ends_with("_call") => Some("assistant"),
        Some(kind) if kind.ends_with("_output") => Some("tool"),
        Some(_) => None,
    }
}

/// Finds faults in the shape of an item.
pub(crate) fn shape(item: &Json<'_>, found: &mut ShapeFaults) {
    match item.get("type").map(Json::as_text) {
        Some(Some("message")) => shape_of_message(found, item),
        Some(Some(kind)) => shape_of_item(found, kind, item),
        None if item.get("role").is_some() => shape_of_message(found, item),
        Some(None) | None => found.add("", ViolationKind::ItemWithoutType),
    }
}

fn shape_of_message(found: &mut ShapeFaults, item: &Json<'_>) {
    // The last four are in the provider's own types, though no client is known to send them.
    let known = ["user", "assistant", "system", "developer", "tool", "critic", "discriminator", "unknown"];
    if found.role(item, &known).is_none() {
        return;
    }
    match item.get("content").filter(|content| !content.is_null()) {
        None => found.add("", ViolationKind::ContentMissing),
        Some(content) => found.content("/content", content, &["input_text", "output_text", "text"]),
    }
}

fn shape_of_item(found: &mut ShapeFaults, kind: &str, item: &Json<'_>) {
    let named = matches!(kind, "function_call" | "custom_tool_call");
    if named && item.text_at("name").is_none_or(str::is_empty) {
        found.add("", ViolationKind::CallWithoutName);
    }
    // The provider itself answers a search that has no id.
    let is_call = CLIENT_CALL_KINDS.iter().any(|(call, _)| *call == kind) && kind != "tool_search_call";
    if is_call && item.text_at("call_id").is_none_or(str::is_empty) {
        found.add("", ViolationKind::CallWithoutId);
    }
    let given = match kind {
        "function_call" => "arguments",
        "custom_tool_call" => "input",
        _ => "",
    };
    if let Some(arguments) = item.get(given)
        && arguments.as_text().is_none()
    {
        found.add(&format!("/{given}"), ViolationKind::ArgumentsType(arguments.kind()));
    }
    if matches!(kind, "function_call_output" | "custom_tool_call_output") {
        match item.get("output") {
            None => found.add("", ViolationKind::ContentMissing),
            Some(output) => found.content("/output", output, &["input_text", "output_text", "text"]),
        }
    }
}

/// Finds reasoning in `now` that is followed by another item than before.
pub(crate) fn parted(sent: &[Json<'_>], now: &[Json<'_>], found: &mut ViolationList) {
    let is_reasoning = |item: &Json<'_>| item.text_at("type") == Some("reasoning");
    let next =
        |items: &[Json<'_>], index: usize| items.get(index + 1).map(|item| json::without_member(item, "id"));
    let mut followed: HashMap<&str, Vec<Option<String>>> = HashMap::new();
    for (index, item) in sent.iter().enumerate().filter(|(_, item)| is_reasoning(item)) {
        followed.entry(item.raw).or_default().push(next(sent, index));
    }
    for (index, item) in now.iter().enumerate().filter(|(_, item)| is_reasoning(item)) {
        if let Some(known) = followed.get(item.raw)
            && !known.contains(&next(now, index))
        {
            found.add(index, None, ViolationKind::ReasoningParted);
        }
    }
}

/// The compactions of a request that only their provider can read.
pub(crate) fn sealed_compactions<'j>(request: &'j Json<'_>) -> Vec<SealedCompaction<'j>> {
    let items = request.array_at("input").iter().enumerate();
    items.filter_map(|(message, item)| SealedCompaction::read(message, None, item)).collect()
}
