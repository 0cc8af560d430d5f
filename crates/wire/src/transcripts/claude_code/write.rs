//! A session as Claude Code writes it: a compaction and the messages after it, one below the other.
//!
//! A message that is as it was keeps the bytes of its `message`, but for the reported usage: Claude Code takes that of the
//! last answer for the size of the conversation, and would compact at once.

use epitome_core::{ContentPart, event::RawDialect, event::ToolResult};
use serde_json::{Value, json};

use crate::{
    json::{object, quote},
    transcripts::{
        continuation::{
            Continuation, ContinuedContent, ContinuedMessage, SessionTarget, WrittenSession,
            arguments_object, iso_time, part_text, text_of,
        },
        raw_json,
    },
};

/// Version of Claude Code whose lines these are.
const VERSION: &str = "2.1.197";

/// The words before a summary.
const SUMMARY_OPENING: &str = "This session is being continued from a previous conversation that ran out of context. The summary below covers the \
     earlier portion of the conversation.\n\nSummary:\n";

/// Model of texts that no model of Claude Code's wrote.
const NO_MODEL: &str = "<synthetic>";

/// Writes a session.
pub(in crate::transcripts) fn write(continuation: &Continuation, target: &SessionTarget) -> WrittenSession {
    let mut file = ClaudeFile { target, lines: Vec::new(), parent: None, count: 0 };
    if let Some(title) = &target.title {
        let id = target.id.to_string();
        file.lines.push(json!({"type": "custom-title", "customTitle": title, "sessionId": id}).to_string());
    }
    if let Some(summary) = &continuation.summary {
        file.boundary(continuation, summary);
    }
    for message in &continuation.messages {
        file.message(message);
    }
    let folder: String = target.directory.encode_utf16().map(folder_letter).collect();
    WrittenSession {
        key: Some(target.id.to_string()),
        path: format!("projects/{folder}/{}.jsonl", target.id),
        contents: file.lines.join("\n") + "\n",
    }
}

/// A letter of the folder's name: Claude Code writes a dash for whatever is no letter or digit.
fn folder_letter(unit: u16) -> char {
    let letter = char::from_u32(u32::from(unit)).unwrap_or('-');
    if letter.is_ascii_alphanumeric() { letter } else { '-' }
}

struct ClaudeFile<'t> {
    target: &'t SessionTarget,
    lines: Vec<String>,
    parent: Option<String>,
    count: usize,
}

impl ClaudeFile<'_> {
    fn boundary(&mut self, continuation: &Continuation, summary: &str) {
        let tokens = continuation.tokens_before.0;
        let boundary = [
            ("type", quote("system")),
            ("subtype", quote("compact_boundary")),
            ("content", quote("Conversation compacted")),
            ("isMeta", "false".to_owned()),
            ("level", quote("info")),
            ("compactMetadata", json!({"trigger": "manual", "preTokens": tokens}).to_string()),
        ];
        self.line(&boundary, None);
        let text = format!("{SUMMARY_OPENING}{summary}");
        let told = [
            ("type", quote("user")),
            ("message", json!({"role": "user", "content": text}).to_string()),
            ("isVisibleInTranscriptOnly", "true".to_owned()),
            ("isCompactSummary", "true".to_owned()),
        ];
        self.line(&told, None);
    }

    fn message(&mut self, message: &ContinuedMessage) {
        let own = message.own_in(&RawDialect::Anthropic);
        let attachment = message.own_in(&RawDialect::Native("claude-code".to_owned()));
        let (kind, body) = match &message.content {
            ContinuedContent::User(parts) => ("user", own.map_or_else(|| user(parts), str::to_owned)),
            ContinuedContent::Results(results) => {
                ("user", own.map_or_else(|| returned(results), str::to_owned))
            }
            ContinuedContent::Answer { answer, model, parts } => {
                let id = answer.as_ref().map_or_else(|| self.answer_id(), |answer| answer.0.clone());
                let model = model.as_ref().map(|model| model.0.as_str());
                ("assistant", own.map_or_else(|| answered(&id, model, parts), without_usage))
            }
            ContinuedContent::Added(_) if attachment.is_some_and(is_attachment) => {
                let raw = attachment.unwrap_or_default().to_owned();
                return self.line(&[("type", quote("attachment")), ("attachment", raw)], Some(message));
            }
            ContinuedContent::Added(text) => {
                let body = json!({"role": "user", "content": text}).to_string();
                let members = [("type", quote("user")), ("message", body), ("isMeta", "true".to_owned())];
                return self.line(&members, Some(message));
            }
            ContinuedContent::Carried => return,
        };
        self.line(&[("type", quote(kind)), ("message", body)], Some(message));
    }

    /// Adds a line below the last one.
    fn line(&mut self, members: &[(&str, String)], message: Option<&ContinuedMessage>) {
        let uuid = self.target.part_id(self.count).to_string();
        self.count += 1;
        let time = message.and_then(|message| message.time).unwrap_or(self.target.now);
        let parent = self.parent.replace(uuid.clone());
        let envelope = [
            ("parentUuid", parent.map_or_else(|| "null".to_owned(), |parent| quote(&parent))),
            ("isSidechain", "false".to_owned()),
            ("userType", quote("external")),
            ("entrypoint", quote("cli")),
            ("cwd", quote(&self.target.directory)),
            ("sessionId", quote(&self.target.id.to_string())),
            ("version", quote(VERSION)),
            ("uuid", quote(&uuid)),
            ("timestamp", quote(&iso_time(time))),
        ];
        self.lines.push(object(envelope.into_iter().chain(members.iter().cloned())));
    }

    fn answer_id(&self) -> String {
        format!("msg_{}", self.target.part_id(self.count).uuid().simple())
    }
}

/// Returns true if a record is an attachment, and not a line or an entry of a queue.
fn is_attachment(raw: &str) -> bool {
    raw_json::member(raw, "type").is_some() && raw_json::member(raw, "sessionId").is_none()
}

fn user(parts: &[ContentPart]) -> String {
    json!({"role": "user", "content": text_of(parts)}).to_string()
}

fn returned(results: &[ToolResult]) -> String {
    let blocks: Vec<Value> = results
        .iter()
        .map(|result| {
            json!({
                "type": "tool_result",
                "tool_use_id": result.call.0,
                "content": text_of(&result.parts),
                "is_error": result.error,
            })
        })
        .collect();
    json!({"role": "user", "content": blocks}).to_string()
}

fn answered(id: &str, model: Option<&str>, parts: &[ContentPart]) -> String {
    let blocks: Vec<Value> = parts.iter().filter_map(block).collect();
    let calls = parts.iter().any(|part| matches!(part, ContentPart::ToolCall(_)));
    let message = json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model.filter(|model| model.starts_with("claude")).unwrap_or(NO_MODEL),
        "content": blocks,
        "stop_reason": if calls { "tool_use" } else { "end_turn" },
        "stop_sequence": null,
        "usage": no_usage(),
    });
    message.to_string()
}

fn block(part: &ContentPart) -> Option<Value> {
    match part {
        ContentPart::ToolCall(call) => Some(json!({
            "type": "tool_use",
            "id": call.id.0,
            "name": call.name.0,
            "input": arguments_object(&call.arguments),
        })),
        part => part_text(part).map(|text| json!({"type": "text", "text": text})),
    }
}

fn without_usage(message: &str) -> String {
    raw_json::with_value(message, "usage", &no_usage().to_string())
}

fn no_usage() -> Value {
    json!({"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0})
}
