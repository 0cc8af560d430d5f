//! Messages in a provider's own format: a list of them, `{"messages": [...]}`, a whole request, a message a line,
//! or a conversation a line.
//!
//! Nobody writes into such a file which provider it was for, and plain text says the same to all of them. A
//! message is read as what it shows itself to be; one that shows nothing is read like the one
//! before it, and as OpenAI Chat if nothing has shown yet. Deciding over the whole list would change how the
//! first messages are read when a later one is appended, so it is not done. A request is a snapshot and does not
//! grow: there, everything decides together.

mod evidence;
mod request;

use epitome_core::{Event, Fact, id::AnswerId};
use serde_json::Value;

use self::evidence::evidence;
use super::{
    Format, ReadError, Reading,
    assemble::{carried, session_id, single},
    pieces,
};
use crate::{WireError, anthropic, json::Json, openai_chat, openai_responses};

/// The name that sessions of such files are derived under, whatever their messages turn out to be.
const FORMAT: Format = Format::OpenaiChat;

/// Whether a document, or a line, is a conversation.
pub(super) fn recognises(value: &Value) -> bool {
    let list = |value: &Value| value.as_array().is_some_and(|list| list.iter().any(is_message));
    let empty = value["messages"].as_array().is_some_and(Vec::is_empty);
    list(value) || list(&value["messages"]) || empty || request::recognises(value)
}

/// Whether a value is one message or item. Many logs have records with a role or a type: it takes more than that.
pub(super) fn is_message(value: &Value) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    let one_of = |key: &str, known: fn(&str) -> bool| value[key].as_str().is_some_and(known);
    let role =
        |role: &str| matches!(role, "system" | "developer" | "user" | "assistant" | "tool" | "function");
    (one_of("role", role) && has(&["content", "tool_calls", "function_call"]))
        || (one_of("type", evidence::is_item) && has(&["call_id", "summary", "encrypted_content"]))
}

/// Reads one conversation. It does not name itself: `key` does.
pub(super) fn read(key: &str, json: &str, reading: &mut Reading) -> Result<(), ReadError> {
    let list = pieces::elements(json);
    let within = || pieces::member(json, "messages").and_then(pieces::elements);
    let events = if list.is_none() && request::is_request(json) {
        request::read(json, reading)?
    } else {
        let mut log = Log::default();
        let beside = pieces::members(json).unwrap_or_default();
        for _ in beside.iter().filter(|(key, _)| !matches!(key.as_ref(), "messages" | "title")) {
            reading.skip("member beside the messages");
        }
        for message in list.or_else(within).unwrap_or_default() {
            log.message(message, reading);
        }
        reading.format = log.format.unwrap_or(reading.format);
        log.events
    };
    let title = pieces::member(json, "title").and_then(|title| Json::parse(title, "a title").ok());
    let title = title.and_then(|title| title.as_text().map(str::to_owned));
    reading.sessions.push(single(session_id(FORMAT, key), key, title, events));
    Ok(())
}

/// Reads messages, one a line, as one conversation.
pub(super) fn read_lines(name: &str, lines: &[&str], reading: &mut Reading) {
    let mut log = Log::default();
    for line in lines {
        log.message(line, reading);
    }
    reading.format = log.format.unwrap_or(reading.format);
    reading.sessions.push(single(session_id(FORMAT, name), name, None, log.events));
}

/// Reads an OpenAI Chat message at a place of its list.
pub(super) fn chat_message(index: usize, json: &str, reading: &mut Reading) -> Event {
    decoded(index, json, openai_chat::message(json), reading)
}

/// A conversation, as it is gathered.
#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    format: Option<Format>,
    /// The answer that the items of a run belong to.
    run: Option<AnswerId>,
}

impl Log {
    fn message(&mut self, json: &str, reading: &mut Reading) {
        let index = self.events.len();
        if let Ok(message) = Json::parse(json, "a message")
            && let Some(shown) = evidence(&message)
        {
            self.format = Some(shown);
        }
        let event = match self.format {
            Some(Format::Anthropic) => anthropic::message(json),
            Some(Format::OpenaiResponses) => openai_responses::item(json),
            _ => openai_chat::message(json),
        };
        let mut event = decoded(index, json, event, reading);
        if self.format == Some(Format::OpenaiResponses) {
            self.join_run(index, &mut event.fact);
        }
        self.events.push(event);
    }

    /// Items of one answer stand in a row: they share an id, made from the place of the first.
    fn join_run(&mut self, index: usize, fact: &mut Fact) {
        match fact {
            Fact::AssistantSaid { answer, .. } => {
                let run = self.run.get_or_insert_with(|| format!("run-{index}").into());
                answer.get_or_insert_with(|| run.clone());
            }
            Fact::Carried { .. } | Fact::UsageReported { .. } => {}
            _ => self.run = None,
        }
    }
}

/// A message that was read, or carried if it could not be.
fn decoded(index: usize, json: &str, event: Result<Event, WireError>, reading: &mut Reading) -> Event {
    let event = event.unwrap_or_else(|error| {
        reading.warn(format!("message {index} was carried as it is: {error}"));
        carried("plain", json, "message")
    });
    event.from_origin(format!("#{index}"))
}

#[cfg(test)]
mod tests;
