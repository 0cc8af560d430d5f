//! A session as OpenCode imports it: the messages that are kept, then a question for a compaction and its summary.
//!
//! OpenCode sorts messages by their ids and takes the tokens of the last answer for the size of the conversation. So every
//! message has a new id, and no answer has used any tokens; whatever else stood in a message stays.

use epitome_core::{
    ContentPart,
    event::{RawDialect, Timestamp, ToolCall, ToolResult},
};
use serde_json::{Map, Value, json};

use crate::transcripts::{
    continuation::{
        Continuation, ContinuedContent, ContinuedMessage, SessionTarget, WriteSessionError, WrittenSession,
        arguments_object, part_text, text_of,
    },
    opencode::DIALECT,
};

/// Version of OpenCode whose export this is.
const VERSION: &str = "1.18.33";

/// The user's message before answers that follow a summary: OpenCode begins what it keeps with a user.
const GOES_ON: &str = "[The earlier session goes on here.]";

/// Writes an export.
pub(in crate::transcripts) fn write(
    continuation: &Continuation,
    target: &SessionTarget,
) -> Result<WrittenSession, WriteSessionError> {
    let model = OpencodeModel::of(continuation, target).ok_or(WriteSessionError::NoModel)?;
    let mut export = OpencodeExport::new(target, model);
    for message in &continuation.messages {
        export.message(message);
    }
    if let Some(summary) = &continuation.summary {
        export.compaction(summary);
    }
    let document = export.document();
    Ok(WrittenSession {
        path: format!("{}.json", export.session),
        key: Some(export.session),
        contents: document.to_string(),
    })
}

/// Model that messages are sent to.
struct OpencodeModel {
    provider: String,
    model: String,
}

impl OpencodeModel {
    /// The model that was asked for, or that of the newest message that names one.
    fn of(continuation: &Continuation, target: &SessionTarget) -> Option<Self> {
        if let Some((provider, model)) = target.provider_and_model() {
            return Some(Self { provider: provider.to_owned(), model: model.to_owned() });
        }
        continuation.messages.iter().rev().find_map(|message| {
            let info = own(message)?.remove("info")?;
            let at = info.get("model").filter(|model| model.is_object()).unwrap_or(&info);
            let text = |key: &str| at.get(key)?.as_str().map(str::to_owned);
            Some(Self { provider: text("providerID")?, model: text("modelID")? })
        })
    }
}

/// OpenCode's own record of a message.
fn own(message: &ContinuedMessage) -> Option<Map<String, Value>> {
    serde_json::from_str(message.own_in(&RawDialect::Native(DIALECT.to_owned()))?).ok()
}

/// The parts of OpenCode's own record of a message.
fn own_parts(message: &ContinuedMessage) -> Option<Vec<Map<String, Value>>> {
    let Value::Array(parts) = own(message)?.remove("parts")? else { return None };
    parts.into_iter().map(|part| if let Value::Object(part) = part { Some(part) } else { None }).collect()
}

struct OpencodeExport<'t> {
    target: &'t SessionTarget,
    model: OpencodeModel,
    /// Id of the session.
    session: String,
    messages: Vec<Value>,
    /// Id of the newest message of the user.
    asked: Option<String>,
    ids: u64,
}

impl<'t> OpencodeExport<'t> {
    fn new(target: &'t SessionTarget, model: OpencodeModel) -> Self {
        // Newer sessions come first in the order of their ids, so that OpenCode counts these down.
        let place = !(target.now.0.cast_unsigned() << 12) & 0xffff_ffff_ffff;
        let session = format!("ses_{place:012x}{}", suffix(target));
        Self { target, model, session, messages: Vec::new(), asked: None, ids: 0 }
    }

    fn document(&self) -> Value {
        let (now, directory) = (self.target.now.0, &self.target.directory);
        json!({
            "info": {
                "id": self.session,
                "slug": "epitome",
                "projectID": "global",
                "directory": directory,
                "path": "",
                "title": self.target.title.as_deref().unwrap_or("A session that goes on"),
                "agent": "build",
                "model": {"id": self.model.model, "providerID": self.model.provider},
                "version": VERSION,
                "time": {"created": now, "updated": now},
            },
            "messages": self.messages,
        })
    }

    fn message(&mut self, message: &ContinuedMessage) {
        let time = message.time.unwrap_or(self.target.now);
        match &message.content {
            ContinuedContent::User(parts) => {
                let parts = own_parts(message).unwrap_or_else(|| vec![text(&text_of(parts))]);
                self.user(without(parts, "compaction"), time);
            }
            ContinuedContent::Added(added) => {
                let mut part = text(added);
                part.insert("synthetic".to_owned(), Value::Bool(true));
                self.user(vec![part], time);
            }
            ContinuedContent::Answer { parts, .. } => {
                let own = own_parts(message);
                let parts = own.unwrap_or_else(|| parts.iter().filter_map(answered).collect());
                self.answer(parts, time);
            }
            ContinuedContent::Results(results) => self.results(results, message.own.is_some()),
            ContinuedContent::Carried => {}
        }
    }

    /// Puts results into the calls that they answer.
    fn results(&mut self, results: &[ToolResult], are_own: bool) {
        let parts = self.messages.last_mut().and_then(|message| message["parts"].as_array_mut());
        let mut parts: Vec<_> = parts.into_iter().flatten().filter_map(Value::as_object_mut).collect();
        for result in results {
            let place =
                parts.iter().position(|part| part.get("callID").is_some_and(|id| *id == *result.call.0));
            let Some(part) = place.map(|place| &mut parts[place]) else { continue };
            let known = part.get("state").and_then(Value::as_object);
            let status = known.and_then(|state| state.get("status")).and_then(Value::as_str);
            if !(are_own && matches!(status, Some("completed" | "error"))) {
                let input = known.and_then(|state| state.get("input")).cloned();
                part.insert("state".to_owned(), state(&input.unwrap_or_else(|| json!({})), result));
            }
        }
    }

    fn compaction(&mut self, summary: &str) {
        let first = self.messages.first().map(|message| message["info"]["id"].clone());
        let mut part = Map::from_iter([
            ("type".to_owned(), Value::from("compaction")),
            ("auto".to_owned(), Value::Bool(false)),
        ]);
        part.extend(first.map(|first| ("tail_start_id".to_owned(), first)));
        self.user(vec![part], self.target.now);
        self.answer(vec![text(summary)], self.target.now);
        if let Some(info) = self.messages.last_mut().map(|message| &mut message["info"]) {
            info["summary"] = Value::Bool(true);
            info["mode"] = Value::from("compaction");
            info["agent"] = Value::from("compaction");
        }
    }

    fn user(&mut self, parts: Vec<Map<String, Value>>, time: Timestamp) {
        let id = self.next_id("msg");
        let info = json!({
            "role": "user",
            "time": {"created": time.0},
            "agent": "build",
            "model": {"providerID": self.model.provider, "modelID": self.model.model},
            "id": id,
            "sessionID": self.session,
        });
        self.asked = Some(id);
        self.push(&info, parts);
    }

    fn answer(&mut self, parts: Vec<Map<String, Value>>, time: Timestamp) {
        if self.asked.is_none() {
            let mut part = text(GOES_ON);
            part.insert("synthetic".to_owned(), Value::Bool(true));
            self.user(vec![part], time);
        }
        let calls = parts.iter().any(|part| part.get("type").is_some_and(|kind| kind == "tool"));
        let no_tokens = json!({"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}});
        let info = json!({
            "parentID": self.asked,
            "role": "assistant",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": self.target.directory, "root": self.target.directory},
            "cost": 0,
            "tokens": no_tokens,
            "modelID": self.model.model,
            "providerID": self.model.provider,
            "time": {"created": time.0, "completed": time.0},
            "finish": if calls { "tool-calls" } else { "stop" },
            "id": self.next_id("msg"),
            "sessionID": self.session,
        });
        // Steps count tokens again, and name snapshots of another session.
        let parts =
            without(without(without(without(parts, "step-finish"), "step-start"), "patch"), "snapshot");
        self.push(&info, parts);
    }

    fn push(&mut self, info: &Value, parts: Vec<Map<String, Value>>) {
        let message = info["id"].clone();
        let parts: Vec<Value> = parts
            .into_iter()
            .map(|mut part| {
                part.insert("id".to_owned(), Value::from(self.next_id("prt")));
                part.insert("sessionID".to_owned(), Value::from(self.session.as_str()));
                part.insert("messageID".to_owned(), message.clone());
                Value::Object(part)
            })
            .collect();
        self.messages.push(json!({"info": info, "parts": parts}));
    }

    /// An id after all others, and before every id of a later moment.
    fn next_id(&mut self, kind: &str) -> String {
        self.ids += 1;
        let place = ((self.target.now.0.cast_unsigned() << 12) - (1 << 32) + self.ids) & 0xffff_ffff_ffff;
        format!("{kind}_{place:012x}{}", suffix(self.target))
    }
}

/// The end of every id, which tells sessions of one moment apart.
fn suffix(target: &SessionTarget) -> String {
    target.id.uuid().simple().to_string()[18..].to_owned()
}

fn without(mut parts: Vec<Map<String, Value>>, kind: &str) -> Vec<Map<String, Value>> {
    parts.retain(|part| part.get("type").is_none_or(|found| found != kind));
    parts
}

fn text(text: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), Value::from("text")), ("text".to_owned(), Value::from(text))])
}

fn answered(part: &ContentPart) -> Option<Map<String, Value>> {
    match part {
        ContentPart::ToolCall(call) => Some(tool(call)),
        part => part_text(part).map(|said| text(&said)),
    }
}

fn tool(call: &ToolCall) -> Map<String, Value> {
    let part = json!({
        "type": "tool",
        "tool": call.name.0,
        "callID": call.id.0,
        "state": {"status": "pending", "input": arguments_object(&call.arguments), "raw": ""},
    });
    if let Value::Object(part) = part { part } else { Map::new() }
}

fn state(input: &Value, result: &ToolResult) -> Value {
    let (said, time) = (text_of(&result.parts), json!({"start": 0, "end": 0}));
    if result.error {
        return json!({"status": "error", "input": input, "error": said, "time": time});
    }
    let title = result.name.as_ref().map_or("", |name| &name.0);
    json!({"status": "completed", "input": input, "output": said, "title": title, "metadata": {}, "time": time})
}
