//! A session as pi writes it: the messages that are kept, then a `compaction` that says where they begin.
//!
//! A message that is as it was keeps its bytes, but for the reported usage, which pi takes for the size of the conversation.

use epitome_core::{
    ContentPart,
    event::{RawDialect, Timestamp, ToolResult},
};
use serde_json::{Value, json};

use crate::{
    json::{object, quote},
    transcripts::{
        continuation::{
            Continuation, ContinuedContent, ContinuedMessage, STOPPED, SessionTarget, WrittenSession,
            arguments_object, iso_time, part_text, text_of,
        },
        raw_json,
    },
};

/// Writes a session.
pub(in crate::transcripts) fn write(continuation: &Continuation, target: &SessionTarget) -> WrittenSession {
    let mut file = PiFile { target, lines: Vec::new(), first: None, last: None };
    let (id, now) = (target.id.to_string(), iso_time(target.now));
    let directory = &target.directory;
    let head = json!({"type": "session", "version": 3, "id": id, "timestamp": now, "cwd": directory});
    file.lines.push(head.to_string());
    if let Some((provider, model)) = target.provider_and_model() {
        file.entry("model_change", &[("provider", quote(provider)), ("modelId", quote(model))], target.now);
    }
    if let Some(title) = &target.title {
        file.entry("session_info", &[("name", quote(title))], target.now);
    }
    for message in &continuation.messages {
        file.message(message);
    }
    let is_answer = |message: &ContinuedMessage| matches!(message.content, ContinuedContent::Answer { .. });
    if !continuation.messages.iter().any(is_answer) {
        // A file without an answer is not taken for written: pi would append all of it again.
        let answer = file.answered(None, &[ContentPart::text(STOPPED)], target.now);
        let id = file.entry("message", &[("message", answer)], target.now);
        file.first.get_or_insert(id);
    }
    if let Some(summary) = &continuation.summary {
        file.compaction(summary, continuation.tokens_before.0);
    }
    let folder = directory.trim_start_matches(['/', '\\']).replace(['/', '\\', ':'], "-");
    WrittenSession {
        key: Some(id.clone()),
        path: format!("sessions/--{folder}--/{}_{id}.jsonl", now.replace([':', '.'], "-")),
        contents: file.lines.join("\n") + "\n",
    }
}

struct PiFile<'t> {
    target: &'t SessionTarget,
    lines: Vec<String>,
    /// The first entry that is kept.
    first: Option<String>,
    last: Option<String>,
}

impl PiFile<'_> {
    fn message(&mut self, message: &ContinuedMessage) {
        let time = message.time.unwrap_or(self.target.now);
        let own = message.own_in(&RawDialect::Native("pi".to_owned()));
        let own = own.and_then(|entry| raw_json::member(entry, "message")).map(without_usage);
        let added = |text: &String| {
            [("customType", quote("epitome")), ("content", quote(text)), ("display", "true".to_owned())]
        };
        let messages = match (&message.content, own) {
            (ContinuedContent::Added(text), None) => {
                let id = self.entry("custom_message", &added(text), time);
                self.first.get_or_insert(id);
                return;
            }
            (_, Some(own)) => vec![own],
            (ContinuedContent::User(parts), None) => vec![user(parts, time)],
            (ContinuedContent::Answer { model, parts, .. }, None) => {
                vec![self.answered(model.as_ref().map(|model| model.0.as_str()), parts, time)]
            }
            (ContinuedContent::Results(results), None) => {
                results.iter().map(|result| returned(result, time)).collect()
            }
            (ContinuedContent::Carried, None) => Vec::new(),
        };
        for message in messages {
            let id = self.entry("message", &[("message", message)], time);
            self.first.get_or_insert(id);
        }
    }

    fn compaction(&mut self, summary: &str, tokens: u64) {
        // Without a kept message it names itself, which is to say nothing before it.
        let first = self.first.clone().unwrap_or_else(|| self.next_id());
        let members = [
            ("summary", quote(summary)),
            ("firstKeptEntryId", quote(&first)),
            ("tokensBefore", tokens.to_string()),
            ("details", json!({"readFiles": [], "modifiedFiles": []}).to_string()),
            ("fromHook", "false".to_owned()),
        ];
        self.entry("compaction", &members, self.target.now);
    }

    /// Adds an entry below the last one, and gives its id.
    fn entry(&mut self, kind: &str, members: &[(&str, String)], time: Timestamp) -> String {
        let id = self.next_id();
        let parent = self.last.replace(id.clone());
        let envelope = [
            ("type", quote(kind)),
            ("id", quote(&id)),
            ("parentId", parent.map_or_else(|| "null".to_owned(), |parent| quote(&parent))),
            ("timestamp", quote(&iso_time(time))),
        ];
        self.lines.push(object(envelope.into_iter().chain(members.iter().cloned())));
        id
    }

    /// Eight digits, as pi names entries: no two of a file are the same.
    fn next_id(&self) -> String {
        let [a, b, ..] = self.target.id.uuid().into_bytes();
        format!("{a:02x}{b:02x}{:04x}", self.lines.len())
    }

    fn answered(&self, model: Option<&str>, parts: &[ContentPart], time: Timestamp) -> String {
        let blocks: Vec<Value> = parts.iter().filter_map(block).collect();
        let calls = parts.iter().any(|part| matches!(part, ContentPart::ToolCall(_)));
        let (provider, model) =
            self.target.provider_and_model().unwrap_or(("epitome", model.unwrap_or("unknown")));
        let message = json!({
            "role": "assistant",
            "content": blocks,
            "api": "epitome",
            "provider": provider,
            "model": model,
            "usage": no_usage(),
            "stopReason": if calls { "toolUse" } else { "stop" },
            "timestamp": time.0,
        });
        message.to_string()
    }
}

fn user(parts: &[ContentPart], time: Timestamp) -> String {
    let content = json!([{"type": "text", "text": text_of(parts)}]);
    json!({"role": "user", "content": content, "timestamp": time.0}).to_string()
}

fn returned(result: &ToolResult, time: Timestamp) -> String {
    let message = json!({
        "role": "toolResult",
        "toolCallId": result.call.0,
        "toolName": result.name.as_ref().map_or("tool", |name| &name.0),
        "content": [{"type": "text", "text": text_of(&result.parts)}],
        "isError": result.error,
        "timestamp": time.0,
    });
    message.to_string()
}

fn block(part: &ContentPart) -> Option<Value> {
    match part {
        ContentPart::ToolCall(call) => Some(json!({
            "type": "toolCall",
            "id": call.id.0,
            "name": call.name.0,
            "arguments": arguments_object(&call.arguments),
        })),
        part => part_text(part).map(|text| json!({"type": "text", "text": text})),
    }
}

fn without_usage(message: &str) -> String {
    raw_json::with_value(message, "usage", &no_usage().to_string())
}

fn no_usage() -> Value {
    let cost = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0});
    json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": cost})
}
