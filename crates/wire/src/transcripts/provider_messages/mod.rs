//! Messages in a provider's own format: a list of them, `{"messages": [...]}`, a whole request, a message per line,
//! or a conversation per line.
//!
//! Such a file does not name the provider it was for, and plain text is the same for all of them. A message that only
//! one provider understands is read as that provider's. One that any would understand is read in the format of the
//! last message before it that showed one, so that it leaves with its bytes when the rest does.
//!
//! Before the first message that shows a format, the two kinds of files differ:
//! - A document (a list, an object, a line that is a whole conversation) is complete, so its first messages are
//!   read in the format of the first that shows one. The price: a document that showed none and then grows by a
//!   message that does reads differently from its first message on, and an import makes a fork of it, with a
//!   warning.
//! - A file with a message per line is appended to, and its earlier reading must stay valid. So its first
//!   messages are read as OpenAI Chat until a message shows a format. The price: they are written anew when the
//!   file leaves as another provider's.
//!
//! Members of a document beside the messages (an id, metadata) are kept as a request's settings are: the document
//! with `null` in place of the messages, before them. If they change, that too is a fork.

mod evidence;
mod request;

use std::borrow::Cow;

use epitome_core::{
    Event, Fact,
    event::{InstructionKind, RawDialect, RawJson},
    id::AnswerId,
};
use serde_json::Value;

use self::evidence::FormatEvidence;
use super::{
    TranscriptError, TranscriptFile, TranscriptFormat,
    assemble::{carried_event, session_id, single_thread_session},
    raw_json,
};
use crate::{WireError, anthropic, json::Json, openai_chat, openai_responses};

/// Format name from which session ids of such files are derived, in whatever format their messages are read.
const FORMAT: TranscriptFormat = TranscriptFormat::OpenaiChat;

/// Returns true if a document, or a line, is a conversation.
pub(super) fn recognises(value: &Value) -> bool {
    let list = |value: &Value| value.as_array().is_some_and(|list| list.iter().any(is_message));
    let empty = value["messages"].as_array().is_some_and(Vec::is_empty);
    list(value) || list(&value["messages"]) || empty || request::recognises(value)
}

/// Returns true if a value is one message or item. Many logs have records with a role or a type, so more is required.
pub(super) fn is_message(value: &Value) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| value.get(key).is_some());
    let one_of = |key: &str, known: fn(&str) -> bool| value[key].as_str().is_some_and(known);
    let role =
        |role: &str| matches!(role, "system" | "developer" | "user" | "assistant" | "tool" | "function");
    (one_of("role", role) && has(&["content", "tool_calls", "function_call"]))
        || (one_of("type", evidence::is_item) && has(&["call_id", "summary", "encrypted_content"]))
}

/// Reads one conversation. It contains no session name, so `key` names it.
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    let members = raw_json::members(json).unwrap_or_default();
    warn_of_repetition(&members, reading);
    let events = if request::is_request(&members) {
        request::read(json, reading)?
    } else {
        let within = || raw_json::member(json, MESSAGES).and_then(raw_json::elements);
        let messages = raw_json::elements(json).or_else(within).unwrap_or_default();
        let evidence: Vec<FormatEvidence> =
            messages.iter().map(|message| FormatEvidence::of(message)).collect();
        let mut log = MessageLog::new(FormatEvidence::combine(evidence.iter().copied()));
        if members.len() > 1 {
            log.events.push(settings(log.format(), json));
        }
        for (message, evidence) in messages.iter().zip(evidence) {
            log.message(message, evidence, reading);
        }
        log.tell_format(reading);
        log.events
    };
    let title = raw_json::member(json, "title").and_then(|title| Json::parse(title, "a title").ok());
    let title = title.and_then(|title| title.as_text().map(str::to_owned));
    reading.sessions.push(single_thread_session(session_id(FORMAT, key), key, title, events));
    Ok(())
}

/// Reads messages, one a line, as one conversation.
pub(super) fn read_lines(name: &str, lines: &[&str], reading: &mut TranscriptFile) {
    let mut log = MessageLog::new(FormatEvidence::Silent);
    for line in lines {
        log.message(line, FormatEvidence::of(line), reading);
    }
    log.tell_format(reading);
    reading.sessions.push(single_thread_session(session_id(FORMAT, name), name, None, log.events));
}

/// Reads an OpenAI Chat message at an index of its list.
pub(super) fn chat_message(index: usize, json: &str, reading: &mut TranscriptFile) -> Event {
    decoded(index, json, openai_chat::message(json), reading)
}

/// Name of the member in which a document has its messages.
const MESSAGES: &str = "messages";

/// Warns of a repeated key. The last one counts, as it does for any parser; the others stay in the settings.
fn warn_of_repetition(members: &[(Cow<'_, str>, &str)], reading: &mut TranscriptFile) {
    for key in [MESSAGES, "input"] {
        let times = members.iter().filter(|(name, _)| name == key).count();
        if times > 1 {
            reading.warn(format!("`{key}` is there {times} times; the last was read"));
        }
    }
}

/// The document with `null` in place of its messages.
fn settings(format: TranscriptFormat, json: &str) -> Event {
    let dialect = match format {
        TranscriptFormat::Anthropic => RawDialect::Anthropic,
        TranscriptFormat::OpenaiResponses => RawDialect::OpenaiResponses,
        _ => RawDialect::OpenaiChat,
    };
    let raw = RawJson { dialect, json: raw_json::with_value(json, MESSAGES, "null").into() };
    let fact = Fact::Instructed { what: InstructionKind::Settings, parts: Vec::new() };
    Event { time: None, origin: None, fact, raw, normal: None }
}

/// A conversation, as it is gathered.
#[derive(Debug)]
struct MessageLog {
    events: Vec<Event>,
    /// Number of messages so far.
    messages: usize,
    /// Combined evidence of the messages so far.
    shown: FormatEvidence,
    /// The answer that the items of a run belong to.
    run: Option<AnswerId>,
}

impl MessageLog {
    fn new(shown: FormatEvidence) -> Self {
        Self { events: Vec::new(), messages: 0, shown, run: None }
    }

    /// The format in which a message without evidence is read.
    fn format(&self) -> TranscriptFormat {
        match self.shown {
            FormatEvidence::Shown(format) | FormatEvidence::Hinted(format) => format,
            FormatEvidence::Silent => FORMAT,
        }
    }

    /// Sets the format of the file, if this conversation shows it: of several in a file not all do.
    fn tell_format(&self, reading: &mut TranscriptFile) {
        if self.shown != FormatEvidence::Silent {
            reading.format = self.format();
        }
    }

    fn message(&mut self, json: &str, evidence: FormatEvidence, reading: &mut TranscriptFile) {
        self.shown = match evidence {
            FormatEvidence::Shown(_) => evidence,
            _ => FormatEvidence::combine([self.shown, evidence]),
        };
        let index = self.messages;
        self.messages += 1;
        let event = match self.format() {
            TranscriptFormat::Anthropic => anthropic::message(json),
            TranscriptFormat::OpenaiResponses => openai_responses::item(json),
            _ => openai_chat::message(json),
        };
        // Anthropic has no developer role: such messages are read in a format that has it.
        let event = match event {
            Ok(Event { fact: Fact::Carried { kind }, .. }) if kind == "developer" => {
                openai_chat::message(json)
            }
            event => event,
        };
        let mut event = decoded(index, json, event, reading);
        if event.raw.dialect == RawDialect::OpenaiResponses {
            self.join_run(index, &mut event.fact);
        }
        self.events.push(event);
    }

    /// Joins items of one answer, which stand in a row: they share an id, made from the index of the first.
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

/// A message as it was read, or carried if it could not be.
fn decoded(index: usize, json: &str, event: Result<Event, WireError>, reading: &mut TranscriptFile) -> Event {
    let event = event.unwrap_or_else(|error| {
        reading.warn(format!("message {index} was carried as it is: {error}"));
        carried_event("plain", json, "message")
    });
    event.from_origin(format!("#{index}"))
}

#[cfg(test)]
mod tests;
