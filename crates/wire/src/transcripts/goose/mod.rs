//! goose's session export, as `goose session import` takes it.
//!
//! goose keeps its sessions in a database of its own and imports an export into it. It marks each message as visible to the
//! user, to the model, or to both: a compaction is a summary that only the model sees, with a line that says so.

use epitome_core::{
    ContentPart,
    event::{Timestamp, ToolResult},
};
use serde_json::{Value, json};

use super::continuation::{
    Continuation, ContinuedContent, SessionTarget, WrittenSession, arguments_object, iso_time, part_text,
    text_of,
};

/// The words behind a summary.
const AFTER_SUMMARY: &str = "Your context was compacted. The previous message contains a summary of the conversation so far.\nDo not mention that you read \
     a summary or that conversation summarization occurred.\nContinue calling tools as necessary to complete the task.";

/// Writes an export.
pub(super) fn write(continuation: &Continuation, target: &SessionTarget) -> WrittenSession {
    let mut conversation = GooseConversation { target, messages: Vec::new() };
    if let Some(summary) = &continuation.summary {
        conversation.push("user", &[text(summary)], GooseReaders::Model);
        conversation.push("assistant", &[text(AFTER_SUMMARY)], GooseReaders::Model);
    }
    for message in &continuation.messages {
        conversation.content(&message.content);
    }
    let messages = conversation.timed();
    let now = iso_time(target.now);
    let export = json!({
        "id": target.id.to_string(),
        "working_dir": target.directory,
        "name": target.title.as_deref().unwrap_or("A session that goes on"),
        "user_set_name": true,
        "session_type": "user",
        "created_at": now,
        "updated_at": now,
        "extension_data": {},
        "total_tokens": null,
        "input_tokens": null,
        "output_tokens": null,
        "accumulated_total_tokens": null,
        "accumulated_input_tokens": null,
        "accumulated_output_tokens": null,
        "schedule_id": null,
        "recipe": null,
        "user_recipe_values": null,
        "message_count": messages.len(),
        "provider_name": null,
        "model_config": null,
        "goose_mode": "auto",
        "conversation": messages,
    });
    WrittenSession { key: None, path: format!("goose-{}.json", target.id), contents: export.to_string() }
}

/// Readers of a message.
#[derive(Clone, Copy)]
enum GooseReaders {
    Model,
    UserAndModel,
}

struct GooseConversation<'t> {
    target: &'t SessionTarget,
    messages: Vec<Value>,
}

impl GooseConversation<'_> {
    fn content(&mut self, content: &ContinuedContent) {
        match content {
            ContinuedContent::User(parts) => {
                self.push("user", &[text(&text_of(parts))], GooseReaders::UserAndModel);
            }
            ContinuedContent::Added(added) => self.push("user", &[text(added)], GooseReaders::Model),
            ContinuedContent::Answer { parts, .. } => {
                let parts: Vec<Value> = parts.iter().filter_map(part).collect();
                self.push("assistant", &parts, GooseReaders::UserAndModel);
            }
            ContinuedContent::Results(results) => {
                let results: Vec<Value> = results.iter().map(returned).collect();
                self.push("user", &results, GooseReaders::UserAndModel);
            }
            ContinuedContent::Carried => {}
        }
    }

    fn push(&mut self, role: &str, content: &[Value], readers: GooseReaders) {
        let is_for_user = matches!(readers, GooseReaders::UserAndModel);
        self.messages.push(json!({
            "id": format!("msg_{}", self.target.part_id(self.messages.len())),
            "role": role,
            "created": 0,
            "content": content,
            "metadata": {"userVisible": is_for_user, "agentVisible": true},
        }));
    }

    /// The messages, a second apart and the last one now: goose sorts them by their times, which are in seconds.
    fn timed(mut self) -> Vec<Value> {
        let Timestamp(now) = self.target.now;
        let count = i64::try_from(self.messages.len()).unwrap_or(i64::MAX);
        for (message, place) in self.messages.iter_mut().zip(1..) {
            message["created"] = Value::from((now / 1000).saturating_sub(count).saturating_add(place));
        }
        self.messages
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn part(part: &ContentPart) -> Option<Value> {
    match part {
        ContentPart::ToolCall(call) => {
            let value = json!({"name": call.name.0, "arguments": arguments_object(&call.arguments)});
            let made = json!({"status": "success", "value": value});
            Some(json!({"type": "toolRequest", "id": call.id.0, "toolCall": made}))
        }
        part => part_text(part).map(|said| text(&said)),
    }
}

fn returned(result: &ToolResult) -> Value {
    let value = json!({"content": [text(&text_of(&result.parts))], "isError": result.error});
    json!({
        "type": "toolResponse",
        "id": result.call.0,
        "toolResult": {"status": "success", "value": value},
    })
}
