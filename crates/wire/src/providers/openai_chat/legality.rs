//! Rules of Chat: every result answers a call of the answer before it, and every call is answered before the next
//! message of another role.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::legality::{ProviderRule, ProviderRules, ShapeFaults, ViolationKind, ViolationList, ends};
use crate::{decode_parts, json::Json, openai_chat::REASONING_MEMBERS};

pub(crate) fn check(messages: &[Json<'_>], rules: &ProviderRules, found: &mut ViolationList) {
    let mut open = OpenChatCalls::default();
    for (index, message) in messages.iter().enumerate() {
        // Empty content of an answer is reported where its calls are known.
        let is_empty = message.get("content").and_then(Json::as_array).is_some_and(<[_]>::is_empty);
        if is_empty && (message.text_at("role") != Some("assistant") || has_calls(message)) {
            found.add(index, None, ViolationKind::EmptyMessage);
        }
        match message.text_at("role") {
            Some("tool") => open.answer(index, "", message.text_at("tool_call_id"), found),
            Some("function") => open.answer(index, BY_NAME, message.text_at("name"), found),
            role => {
                open.close(found);
                if role == Some("assistant") {
                    open = OpenChatCalls::of(index, message, found);
                }
            }
        }
    }
    open.close(found);
    if rules.has(ProviderRule::ReasoningReturned) {
        reasoning(messages, found);
    }
    if rules.has(ProviderRule::CallsSigned) {
        signatures(messages, found);
    }
    let speakers = messages.iter().enumerate().filter_map(|(index, message)| {
        let role = message.text_at("role")?;
        matches!(role, "user" | "assistant" | "tool" | "function").then_some((index, role))
    });
    ends(speakers, rules, found);
}

fn has_calls(answer: &Json<'_>) -> bool {
    ["tool_calls", "function_call"].into_iter().any(|key| decode_parts::count(answer.get(key)) > 0)
}

/// Checks that if one answer has its reasoning, every answer that called tools has it: the model thinks.
fn reasoning(messages: &[Json<'_>], found: &mut ViolationList) {
    let has = |message: &Json<'_>| REASONING_MEMBERS.into_iter().any(|key| message.text_at(key).is_some());
    let is_answer = |message: &Json<'_>| message.text_at("role") == Some("assistant");
    if !messages.iter().any(|message| is_answer(message) && has(message)) {
        return;
    }
    for (index, message) in messages.iter().enumerate().filter(|(_, message)| is_answer(message)) {
        if !message.array_at("tool_calls").is_empty() && !has(message) {
            found.add(index, None, ViolationKind::ReasoningMissing);
        }
    }
}

/// Checks that since the user's last message, the first call of each answer carries its server's signature.
fn signatures(messages: &[Json<'_>], found: &mut ViolationList) {
    let role = |message: &Json<'_>, role: &str| message.text_at("role") == Some(role);
    let begin = messages.iter().rposition(|message| role(message, "user")).map_or(0, |asked| asked + 1);
    for (index, message) in messages.iter().enumerate().skip(begin) {
        let Some(call) = message.array_at("tool_calls").first().filter(|_| role(message, "assistant")) else {
            continue;
        };
        let signature = || call.get("extra_content")?.get("google")?.text_at("thought_signature");
        if signature().is_none_or(str::is_empty) {
            found.add(
                index,
                0,
                ViolationKind::CallUnsigned(call.text_at("id").unwrap_or_default().to_owned()),
            );
        }
    }
}

/// Prefix for calls that are answered by name, which keeps them apart from calls with ids.
const BY_NAME: &str = "function ";

/// Calls of the last answer that are not answered yet.
#[derive(Default)]
struct OpenChatCalls {
    index: usize,
    ids: BTreeSet<String>,
}

impl OpenChatCalls {
    fn of(index: usize, answer: &Json<'_>, found: &mut ViolationList) -> Self {
        let mut open = Self { index, ids: BTreeSet::new() };
        for (block, call) in answer.array_at("tool_calls").iter().enumerate() {
            match call.text_at("id") {
                None => found.add(index, block, ViolationKind::CallWithoutId),
                Some(id) if !open.ids.insert(id.to_owned()) => {
                    found.add(index, block, ViolationKind::DuplicateCall(id.to_owned()));
                }
                Some(_) => {}
            }
        }
        if let Some(called) = answer.get("function_call").filter(|called| !called.is_null()) {
            match called.text_at("name") {
                Some(name) => drop(open.ids.insert(format!("{BY_NAME}{name}"))),
                None => found.add(index, None, ViolationKind::CallWithoutId),
            }
        }
        let said = |key: &str| decode_parts::count(answer.get(key)) > 0;
        if open.ids.is_empty() && !["content", "refusal", "audio", "tool_calls"].into_iter().any(said) {
            found.add(index, None, ViolationKind::EmptyMessage);
        }
        open
    }

    fn answer(&mut self, index: usize, prefix: &str, id: Option<&str>, found: &mut ViolationList) {
        let id = id.unwrap_or_default();
        if !self.ids.remove(&format!("{prefix}{id}")) {
            found.add(index, None, ViolationKind::AnswersNothing(id.to_owned()));
        }
    }

    fn close(&mut self, found: &mut ViolationList) {
        for id in std::mem::take(&mut self.ids) {
            found.add(self.index, None, ViolationKind::CallUnanswered(id));
        }
    }
}

/// Finds faults in the shape of a message.
pub(crate) fn shape(message: &Json<'_>, found: &mut ShapeFaults) {
    let known = ["system", "developer", "user", "assistant", "tool", "function"];
    let Some(role) = found.role(message, &known) else { return };
    let content = message.get("content").filter(|content| !content.is_null());
    match content {
        None if matches!(role, "assistant" | "function") => {}
        None => found.add("", ViolationKind::ContentNull),
        Some(content) => found.content("/content", content, &["text"]),
    }
    if role != "assistant" {
        return;
    }
    let calls = message.get("tool_calls").filter(|calls| !calls.is_null());
    match calls.map(|calls| (calls, calls.as_array())) {
        None => {}
        Some((calls, None)) => found.add("/tool_calls", ViolationKind::CallsType(calls.kind())),
        Some((_, Some(calls))) => {
            for (index, call) in calls.iter().enumerate() {
                shape_of_call(found, &format!("/tool_calls/{index}"), call);
            }
        }
    }
}

fn shape_of_call(found: &mut ShapeFaults, place: &str, call: &Json<'_>) {
    if !call.is_object() {
        return found.add(place, ViolationKind::NotAnObject(call.kind()));
    }
    // A call of an unknown kind may have its name elsewhere.
    let (inner, given) = match call.text_at("type") {
        None | Some("function") => ("function", "arguments"),
        Some("custom") => ("custom", "input"),
        Some(_) => return,
    };
    if call.text_at("id").is_none_or(str::is_empty) {
        found.add(place, ViolationKind::CallWithoutId);
    }
    let called = call.get(inner);
    if called.and_then(|called| called.text_at("name")).is_none_or(str::is_empty) {
        found.add(place, ViolationKind::CallWithoutName);
    }
    if let Some(arguments) = called.and_then(|called| called.get(given))
        && arguments.as_text().is_none()
    {
        found.add(&format!("{place}/{inner}/{given}"), ViolationKind::ArgumentsType(arguments.kind()));
    }
}

/// Finds answers in `now` that make the same call as an answer with reasoning, but lack that reasoning.
pub(crate) fn unreturned(sent: &[Json<'_>], now: &[Json<'_>], found: &mut ViolationList) {
    let mut known: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (reasoning, call) in sent.iter().filter_map(reasoned) {
        known.entry(call).or_default().insert(reasoning);
    }
    for (index, (reasoning, call)) in
        now.iter().enumerate().filter_map(|(index, message)| Some((index, reasoned(message)?)))
    {
        if known.get(call).is_some_and(|known| !known.contains(reasoning)) {
            found.add(index, None, ViolationKind::ReasoningMissing);
        }
    }
}

/// The reasoning of an answer that called tools, empty if there is none, and the id of its first call.
fn reasoned<'j>(message: &'j Json<'_>) -> Option<(&'j str, &'j str)> {
    let call = message.array_at("tool_calls").first()?.text_at("id")?;
    let reasoning = REASONING_MEMBERS.into_iter().find_map(|key| message.text_at(key)).unwrap_or_default();
    (message.text_at("role") == Some("assistant")).then_some((reasoning, call))
}
