//! tau2-bench results: `{simulations: [{id, messages}], tasks, info}`, a session per simulation.
//!
//! Both sides of a simulation may call tools: the agent, and the simulated user, for example on their own phone. The
//! agent never sees the user's actions there, only the user's later messages about them. So the user's calls and
//! their results are a thread of their own, `user`, in which they pair as the agent's do in `main`; none of them
//! count as the agent's context, and none are lost. A user message that calls tools goes to the environment and not
//! to the agent, its text included.
//!
//! The policy is the agent's system prompt. If the agent works without a user, its task (`ticket`) is part of that
//! prompt and nowhere else, so it is read too: one instruction of two parts, since a later system prompt replaces an
//! earlier one when a request is made.

use std::collections::HashMap;

use epitome_core::{
    ContentPart, Event, Fact, SessionId,
    event::{InstructionKind, ReasoningSeal, ToolCall, ToolResult},
    id::{AnswerId, ModelName},
};
use serde_json::Value;

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, TranscriptThread, TranscriptThreadStart,
    assemble::{carried_event, content_parts, session_id, single_thread_session, text_parts, thread_id},
    raw_json,
    time::parse_time,
};
use crate::{anthropic, json::Json, openai_chat};

const DIALECT: &str = "tau2";

/// Name of the thread for the simulated user's own tool calls, which the agent does not see.
const USER_THREAD_NAME: &str = "user";

/// Returns true if a document is a set of results.
pub(super) fn recognises(document: &Value) -> bool {
    document["simulations"].is_array() && (document["info"].is_object() || document["tasks"].is_array())
}

/// Reads all simulations. One whose id is no UUID is named after `key`.
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    read_within(MAX_PROMPT_COPY_BYTES, key, json, reading)
}

fn read_within(
    allowance: usize,
    key: &str,
    json: &str,
    reading: &mut TranscriptFile,
) -> Result<(), TranscriptError> {
    let simulations = raw_json::member(json, "simulations").and_then(raw_json::elements);
    let simulations = simulations.ok_or_else(|| TranscriptError::Malformed {
        format: TranscriptFormat::Tau2.name(),
        what: "its `simulations` are not a list: check that the results were written completely".to_owned(),
    })?;
    let info = raw_json::member(json, "info").and_then(|info| Json::parse(info, "the run's info").ok());
    let mut setting = Tau2Settings::of(info.as_ref(), json, allowance);
    for (index, text) in simulations.into_iter().enumerate() {
        simulation(key, index, text, &mut setting, reading);
    }
    Ok(())
}

/// Data that all simulations of a file share.
struct Tau2Settings<'j> {
    /// The policy, as it stands in the file.
    policy: Option<&'j Json<'j>>,
    model: Option<ModelName>,
    /// Tickets by task, if the agent works without a user.
    tickets: HashMap<String, &'j str>,
    /// Number of bytes of these that may still be repeated.
    allowance: usize,
}

/// Largest total size of the prompt's copies. The prompt is written once and belongs to every simulation; the bound
/// is far above any real file, and stops one made to exhaust the memory.
const MAX_PROMPT_COPY_BYTES: usize = 256 << 20;

impl<'j> Tau2Settings<'j> {
    fn of(info: Option<&'j Json<'j>>, json: &'j str, allowance: usize) -> Self {
        let part = |part: &str, key: &str| info.and_then(|info| info.get(part)?.get(key));
        let alone = part("agent_info", "implementation")
            .and_then(Json::as_text)
            .is_some_and(|implementation| implementation.contains("solo"));
        let tasks = raw_json::member(json, "tasks").filter(|_| alone).and_then(raw_json::elements);
        let ticket = |task: &'j str| {
            let id = Json::parse(raw_json::member(task, "id")?, "a task's id").ok()?;
            let ticket = raw_json::member(task, "ticket").filter(|ticket| ticket.starts_with('"'))?;
            Some((id.as_text().unwrap_or(id.raw).to_owned(), ticket))
        };
        Self {
            policy: part("environment_info", "policy").filter(|policy| policy.as_text().is_some()),
            model: part("agent_info", "llm").and_then(Json::as_text).map(Into::into),
            tickets: tasks.unwrap_or_default().into_iter().filter_map(ticket).collect(),
            allowance,
        }
    }

    /// The prompt of a simulation, as pieces of JSON; `None` if that would be too much.
    fn prompt(&mut self, task: Option<&str>) -> Option<Vec<&'j str>> {
        let ticket = task.and_then(|task| self.tickets.get(task).copied());
        let prompt: Vec<&str> = self.policy.map(|policy| policy.raw).into_iter().chain(ticket).collect();
        self.allowance = self.allowance.checked_sub(prompt.iter().map(|json| json.len()).sum())?;
        Some(prompt)
    }
}

fn simulation(
    key: &str,
    index: usize,
    text: &str,
    setting: &mut Tau2Settings<'_>,
    reading: &mut TranscriptFile,
) {
    let Some(messages) = raw_json::member(text, "messages").and_then(raw_json::elements) else {
        reading.warn(format!("simulation {index} has no list of messages; it was left out"));
        return;
    };
    let name = |member: &str| {
        let json = Json::parse(raw_json::member(text, member)?, "a name").ok()?;
        Some(json.as_text().unwrap_or(json.raw).to_owned())
    };
    let id = name("id").unwrap_or_else(|| index.to_string());
    let key = if id.parse::<SessionId>().is_ok() { id } else { format!("{key}#{id}") };

    let mut log = Tau2Log { model: setting.model.clone(), ..Tau2Log::default() };
    match setting.prompt(name("task_id").as_deref()) {
        Some(prompt) => log.instructed(&prompt),
        None => {
            reading.warn(format!("{key}: the policy is too long to be repeated this often; it was left out"));
        }
    }
    let before = reading.warnings.len();
    for (index, message) in messages.into_iter().enumerate() {
        log.message(index, message, reading);
    }
    reading.warnings_are_about(before, &key);
    let mut session =
        single_thread_session(session_id(TranscriptFormat::Tau2, &key), key, name("task_id"), log.agent);
    if !log.user.is_empty() {
        let id = thread_id(session.id, USER_THREAD_NAME);
        session.threads.push(TranscriptThread {
            id,
            name: USER_THREAD_NAME.to_owned(),
            start: TranscriptThreadStart::Root,
            events: log.user,
        });
    }
    reading.sessions.push(session);
}

/// The two lines of events of a simulation, as they are gathered.
#[derive(Debug, Default)]
struct Tau2Log {
    agent: Vec<Event>,
    user: Vec<Event>,
    model: Option<ModelName>,
}

/// Side of a simulation whose tools a message is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tau2Side {
    Agent,
    User,
}

impl Tau2Log {
    fn instructed(&mut self, prompt: &[&str]) {
        let said = |json: &&str| {
            let text = Json::parse(json, "an instruction").ok()?;
            text_parts(text.as_text()?).pop()
        };
        let parts: Vec<ContentPart> = prompt.iter().filter_map(said).collect();
        if !parts.is_empty() {
            let fact = Fact::Instructed { what: InstructionKind::System, parts };
            self.agent.push(Event::native(DIALECT, raw_json::join_values(prompt), fact));
        }
    }

    fn message(&mut self, index: usize, text: &str, reading: &mut TranscriptFile) {
        match Json::parse(text, "a tau2 message") {
            Ok(message) if message.is_object() => self.read_message(index, &message, reading),
            _ => {
                reading.warn(format!("message {index} cannot be read as one; it was carried as it is"));
                self.agent.push(carried_event(DIALECT, text, "message").from_origin(format!("#{index}")));
            }
        }
    }

    fn read_message(&mut self, index: usize, message: &Json<'_>, reading: &mut TranscriptFile) {
        let turn = message.get("turn_idx").and_then(Json::as_count);
        let origin = turn.map_or_else(|| format!("#{index}"), |turn| turn.to_string());
        let (side, fact) = match message.text_at("role") {
            Some("assistant") => (Tau2Side::Agent, self.answer(message)),
            Some("user") if !message.array_at("tool_calls").is_empty() => {
                (Tau2Side::User, Fact::AssistantSaid { answer: None, model: None, parts: said(message) })
            }
            Some("user") => {
                (Tau2Side::Agent, Fact::UserSaid { parts: content_parts(message.get("content")) })
            }
            Some("tool") => returned(message),
            Some("system") => {
                let parts = content_parts(message.get("content"));
                (Tau2Side::Agent, Fact::Instructed { what: InstructionKind::Message, parts })
            }
            role => {
                let role = role.unwrap_or("none");
                reading
                    .warn(format!("message {origin} has the unknown role `{role}`; it was carried as it is"));
                (Tau2Side::Agent, Fact::Carried { kind: role.to_owned() })
            }
        };
        let time = message.text_at("timestamp").and_then(parse_time);
        let usage = match (side, &fact) {
            (Tau2Side::Agent, Fact::AssistantSaid { answer, model, .. }) => {
                used(message, answer.as_ref(), model.as_ref())
            }
            _ => None,
        };
        let event = Event::native(DIALECT, message.raw, fact);
        let line = match side {
            Tau2Side::Agent => &mut self.agent,
            Tau2Side::User => &mut self.user,
        };
        line.extend(
            [Some(event), usage].into_iter().flatten().map(|event| event.at(time).from_origin(&origin)),
        );
    }

    fn answer(&self, message: &Json<'_>) -> Fact {
        let recorded = |key: &str| message.get("raw_data").and_then(|data| data.text_at(key));
        let model = recorded("model").map(Into::into).or_else(|| self.model.clone());
        Fact::AssistantSaid { answer: recorded("id").map(Into::into), model, parts: said(message) }
    }
}

/// The provider's own report if it was kept, else the two numbers that every message has.
fn used(message: &Json<'_>, answer: Option<&AnswerId>, model: Option<&ModelName>) -> Option<Event> {
    let own = message.get("raw_data").and_then(|data| data.get("usage")).filter(|usage| usage.is_object());
    let report = own.or_else(|| message.get("usage").filter(|usage| usage.is_object()))?;
    let usage = match report.get("input_tokens") {
        Some(_) => anthropic::read_usage(report),
        None => openai_chat::read_usage(report),
    };
    let fact = Fact::UsageReported { answer: answer.cloned(), model: model.cloned(), usage };
    Some(Event::native(DIALECT, report.raw, fact))
}

/// Reasoning, text and calls.
fn said(message: &Json<'_>) -> Vec<ContentPart> {
    let data = message.get("raw_data");
    let thinking = data.map(|data| data.array_at("thinking_blocks")).unwrap_or_default();
    let mut parts: Vec<ContentPart> = thinking
        .iter()
        .filter_map(|block| {
            let seal = block.text_at("signature").map(|text| ReasoningSeal::Signature(text.to_owned()));
            Some(ContentPart::Reasoning { text: block.text_at("thinking")?.to_owned(), seal })
        })
        .collect();
    let unsigned = message
        .text_at("reasoning")
        .or_else(|| data.and_then(|data| data.get("message")?.text_at("reasoning_content")))
        .filter(|text| !text.is_empty() && parts.is_empty());
    parts.extend(unsigned.map(|text| ContentPart::Reasoning { text: text.to_owned(), seal: None }));
    parts.extend(content_parts(message.get("content")));
    parts.extend(message.array_at("tool_calls").iter().map(|call| {
        let arguments = call.get("arguments").map_or_else(
            || "{}".to_owned(),
            |arguments| arguments.as_text().map_or_else(|| raw_json::compact(arguments.raw), str::to_owned),
        );
        let name = call.text_at("name").unwrap_or_default();
        ContentPart::ToolCall(ToolCall::function(call.text_at("id").unwrap_or_default(), name, arguments))
    }));
    parts
}

/// Tool results and the side that called: one result, or several in one message.
fn returned(message: &Json<'_>) -> (Tau2Side, Fact) {
    let several = message.array_at("tool_messages");
    let each = if several.is_empty() { std::slice::from_ref(message) } else { several };
    let results = each.iter().map(|message| ToolResult {
        call: message.text_at("id").unwrap_or_default().into(),
        name: message.text_at("name").map(Into::into),
        parts: content_parts(message.get("content")),
        error: message.get("error").is_some_and(|error| error.raw == "true"),
    });
    let user = each.first().and_then(|message| message.text_at("requestor")) == Some("user");
    let side = if user { Tau2Side::User } else { Tau2Side::Agent };
    (side, Fact::ToolReturned { results: results.collect(), parts: Vec::new() })
}

#[cfg(test)]
mod tests;
