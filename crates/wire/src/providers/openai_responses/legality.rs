//! Rules of Responses: calls and outputs pair by id, and reasoning is followed by the item it led to.
//!
//! The newest compaction item stands for everything before it: earlier items no longer count, and a result after it
//! may answer a call that is gone. The item itself is opaque.

use std::collections::HashMap;

use crate::legality::{ProviderRules, ViolationKind, ViolationList, ends, is_elsewhere};
use crate::{json::Json, openai_responses::CLIENT_CALL_KINDS};

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
