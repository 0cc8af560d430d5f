//! A session as Codex writes it: a rollout with a `compacted` item, and the items after it.
//!
//! An item that is as it was keeps the bytes of its payload, but for its `id`: a call that names itself is refused without
//! the reasoning that it came with, and reasoning is not taken along.

use std::collections::HashSet;

use epitome_core::{
    ContentPart,
    event::{CallForm, RawDialect, ToolCall, ToolResult},
    id::CallId,
};
use serde_json::{Value, json};

use crate::{
    json::{Json, object, quote, without_member},
    transcripts::continuation::{
        Continuation, ContinuedContent, ContinuedMessage, SessionTarget, WrittenSession, iso_time, text_of,
    },
};

/// Version of Codex whose lines these are.
const VERSION: &str = "0.166.0";

/// The words before a summary.
const SUMMARY_OPENING: &str = "Another language model started to solve this problem and produced a summary of its thinking process. You also have \
     access to the state of the tools that were used by that language model. Use this to build on the work that has already been \
     done and avoid duplicating work. Here is the summary produced by the other language model, use the information in this \
     summary to assist with your own analysis:\n";

/// Writes a session.
pub(in crate::transcripts) fn write(continuation: &Continuation, target: &SessionTarget) -> WrittenSession {
    let mut rollout = RolloutFile { target, lines: Vec::new(), custom: HashSet::new() };
    rollout.meta();
    // Codex lists only sessions in which a user spoke.
    let words = first_words(continuation).or_else(|| target.title.clone());
    let note = json!({"type": "user_message", "message": words.unwrap_or_default(), "kind": "plain"});
    rollout.line("event_msg", &note.to_string(), None);
    if let Some(summary) = &continuation.summary {
        let history = message("user", "input_text", &format!("{SUMMARY_OPENING}{summary}"));
        let compacted = json!({"message": summary, "replacement_history": [history]});
        rollout.line("compacted", &compacted.to_string(), None);
    }
    for message in &continuation.messages {
        rollout.message(message);
    }
    let time = iso_time(target.now);
    let (day, second) = (time[..10].replace('-', "/"), time[..19].replace(':', "-"));
    WrittenSession {
        key: Some(target.id.to_string()),
        path: format!("sessions/{day}/rollout-{second}-{}.jsonl", target.id),
        contents: rollout.lines.join("\n") + "\n",
    }
}

/// The beginning of the first thing that the user says in it.
fn first_words(continuation: &Continuation) -> Option<String> {
    const LETTERS: usize = 200;
    continuation.messages.iter().find_map(|message| match &message.content {
        ContinuedContent::User(parts) => Some(text_of(parts).chars().take(LETTERS).collect()),
        _ => None,
    })
}

struct RolloutFile<'t> {
    target: &'t SessionTarget,
    lines: Vec<String>,
    /// Calls of tools that take text: their results have another type.
    custom: HashSet<CallId>,
}

impl RolloutFile<'_> {
    fn meta(&mut self) {
        let id = self.target.id.to_string();
        let meta = json!({
            "id": id,
            "session_id": id,
            "timestamp": iso_time(self.target.now),
            "cwd": self.target.directory,
            "originator": "codex_cli_rs",
            "cli_version": VERSION,
            "source": "cli",
            "model_provider": self.target.model.as_deref().unwrap_or("openai"),
        });
        self.line("session_meta", &meta.to_string(), None);
    }

    fn message(&mut self, message: &ContinuedMessage) {
        if let ContinuedContent::Answer { parts, .. } = &message.content {
            self.custom.extend(
                calls(parts).filter(|call| call.form == CallForm::Custom).map(|call| call.id.clone()),
            );
        }
        if let Some(own) = message.own_in(&RawDialect::OpenaiResponses) {
            return self.line("response_item", &without_id(own), Some(message));
        }
        for item in self.items(&message.content) {
            self.line("response_item", &item.to_string(), Some(message));
        }
    }

    fn items(&self, content: &ContinuedContent) -> Vec<Value> {
        match content {
            ContinuedContent::User(parts) => vec![message("user", "input_text", &text_of(parts))],
            ContinuedContent::Added(text) => vec![message("user", "input_text", text)],
            ContinuedContent::Answer { parts, .. } => {
                let text = text_of(parts);
                let said = (!text.is_empty()).then(|| message("assistant", "output_text", &text));
                said.into_iter().chain(calls(parts).map(call)).collect()
            }
            ContinuedContent::Results(results) => results.iter().map(|result| self.output(result)).collect(),
            ContinuedContent::Carried => Vec::new(),
        }
    }

    fn output(&self, result: &ToolResult) -> Value {
        let is_custom = self.custom.contains(&result.call);
        let kind = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
        json!({"type": kind, "call_id": result.call.0, "output": text_of(&result.parts)})
    }

    fn line(&mut self, kind: &str, payload: &str, message: Option<&ContinuedMessage>) {
        let time = message.and_then(|message| message.time).unwrap_or(self.target.now);
        let members =
            [("timestamp", quote(&iso_time(time))), ("type", quote(kind)), ("payload", payload.to_owned())];
        self.lines.push(object(members.into_iter()));
    }
}

fn calls(parts: &[ContentPart]) -> impl Iterator<Item = &ToolCall> {
    parts.iter().filter_map(|part| match part {
        ContentPart::ToolCall(call) => Some(call),
        _ => None,
    })
}

fn call(call: &ToolCall) -> Value {
    let (id, name) = (&call.id.0, &call.name.0);
    let mut item = match call.form {
        CallForm::Function => {
            json!({"type": "function_call", "name": name, "arguments": call.arguments, "call_id": id})
        }
        CallForm::Custom => {
            json!({"type": "custom_tool_call", "call_id": id, "name": name, "input": call.arguments})
        }
    };
    if let Some(namespace) = &call.namespace {
        item["namespace"] = Value::from(namespace.as_str());
    }
    item
}

fn message(role: &str, kind: &str, text: &str) -> Value {
    json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})
}

fn without_id(item: &str) -> String {
    match Json::parse(item, "an item") {
        Ok(json) if json.get("id").is_some() => without_member(&json, "id"),
        _ => item.to_owned(),
    }
}
