//! SWE-agent's trajectories: `{history: [messages], trajectory: [steps], info}`, one session.
//!
//! The history is the model's view, demonstrations included. One turn is one assistant message with the observation
//! that its action brought. Models with function calling make tool calls; older ones write the action into their
//! text, and the observation comes back as a user message. Both are an action and its outcome: the text action is
//! read as a call of `bash` (SWE-agent runs it in its shell), the user message after it as the result of that call.
//! The thought is kept as text, the message as it was in the raw JSON.
//!
//! The trajectory repeats the same steps without the model's view. It is used if there is no history, and to complete
//! the history of a run that has ended: older versions write the last observation only there. In a run that goes on,
//! the next version of the file will have that observation in its history, so it is not taken from the trajectory: an
//! event that was read once must read the same again.

use std::collections::BTreeSet;

use epitome_core::{
    ContentPart, Event, Fact,
    event::{InstructionKind, ReasoningSeal, ToolCall, ToolResult},
    id::{CallId, ModelName},
};
use serde_json::Value;

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat,
    assemble::{carried_event, content_parts, session_id, single_thread_session, text_parts},
    raw_json,
};
use crate::json::{Json, quote};

const DIALECT: &str = "swe-agent";

/// The tool that an action written as text is a call of.
const SHELL: &str = "bash";

/// Returns true if a document is a trajectory.
pub(super) fn recognises(document: &Value) -> bool {
    let first = |key: &str| document[key].as_array().map(|list| list.first().unwrap_or(&Value::Null));
    let message = |value: &Value| value["role"].is_string();
    let step = |value: &Value| value["action"].is_string() && !value["observation"].is_null();
    match (first("history"), first("trajectory")) {
        (Some(history), Some(trajectory)) => {
            (history.is_null() || message(history)) && (trajectory.is_null() || step(trajectory))
        }
        (Some(history), None) => message(history),
        (None, Some(trajectory)) => step(trajectory),
        (None, None) => false,
    }
}

/// Reads a trajectory. It contains no session name, so `key` names it.
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    let list = |name: &str| raw_json::member(json, name).and_then(raw_json::elements).unwrap_or_default();
    let (history, trajectory) = (list("history"), list("trajectory"));
    if history.is_empty() && trajectory.is_empty() {
        return Err(TranscriptError::Malformed {
            format: TranscriptFormat::SweAgent.name(),
            what: "it has no messages and no steps: read it again once the run has begun".to_owned(),
        });
    }
    let mut log = SweAgentLog { model: model(json), ..SweAgentLog::default() };
    for text in &history {
        log.message(text, reading);
    }
    if history.is_empty() {
        log.prompt(&trajectory, reading);
        for text in &trajectory {
            log.step(text, reading);
        }
    } else if has_ended(json) {
        log.complete(&trajectory, reading);
    }
    if log.agents.len() > 1 {
        reading.warn(format!("{key}: the messages of {} agents are read as one line", log.agents.len()));
    }
    reading.sessions.push(single_thread_session(
        session_id(TranscriptFormat::SweAgent, key),
        key,
        None,
        log.events,
    ));
    Ok(())
}

/// The model, where the run recorded its configuration (as an object, or as text that holds one).
fn model(json: &str) -> Option<ModelName> {
    let config = Json::parse(raw_json::member(json, "replay_config")?, "the configuration").ok()?;
    let name = |config: &Json<'_>| {
        let model = config.get("agent").and_then(|agent| agent.get("model"))?;
        model.text_at("name").or_else(|| model.text_at("model_name")).map(Into::into)
    };
    match config.as_text() {
        Some(text) => Json::parse(text, "the configuration").ok().as_ref().and_then(name),
        None => name(&config),
    }
}

fn has_ended(json: &str) -> bool {
    let info = raw_json::member(json, "info").and_then(|info| Json::parse(info, "the run's info").ok());
    info.is_some_and(|info| info.text_at("exit_status").is_some())
}

/// The events of a trajectory, as they are gathered.
#[derive(Debug, Default)]
struct SweAgentLog {
    events: Vec<Event>,
    model: Option<ModelName>,
    /// Messages and steps seen so far.
    count: usize,
    /// Answers of the run itself, demonstrations aside.
    answers: usize,
    /// Calls whose observation has not come.
    open: Vec<CallId>,
    agents: BTreeSet<String>,
}

impl SweAgentLog {
    fn push(&mut self, raw: &str, fact: Fact) {
        let origin = format!("#{}", self.count);
        self.events.push(Event::native(DIALECT, raw, fact).from_origin(origin));
    }

    fn message(&mut self, text: &str, reading: &mut TranscriptFile) {
        match Json::parse(text, "a SWE-agent message") {
            Ok(message) => {
                self.note_agent(&message);
                self.read_message(&message, reading);
            }
            Err(error) => self.carry(text, "message", &error.to_string(), reading),
        }
        self.count += 1;
    }

    fn read_message(&mut self, message: &Json<'_>, reading: &mut TranscriptFile) {
        let content = message.get("content");
        match message.text_at("role") {
            Some("system") => {
                let what =
                    if self.events.is_empty() { InstructionKind::System } else { InstructionKind::Message };
                self.push(message.raw, Fact::Instructed { what, parts: content_parts(content) });
            }
            Some("assistant") => {
                self.answers += usize::from(message.get("is_demo").is_none_or(|demo| demo.raw != "true"));
                self.answer(message.raw, said(message), calls(message, self.count));
            }
            Some("tool") => {
                let ids = message.array_at("tool_call_ids").iter().filter_map(Json::as_text);
                let ids: Vec<CallId> = ids.map(Into::into).collect();
                let open = std::mem::take(&mut self.open);
                self.observation(
                    message.raw,
                    if ids.is_empty() { open } else { ids },
                    content_parts(content),
                );
            }
            Some("user")
                if !self.open.is_empty() && message.text_at("message_type") != Some("demonstration") =>
            {
                let open = std::mem::take(&mut self.open);
                self.observation(message.raw, open, content_parts(content));
            }
            Some("user") => self.push(message.raw, Fact::UserSaid { parts: content_parts(content) }),
            role => {
                let role = role.unwrap_or("none").to_owned();
                self.carry(message.raw, "message", &format!("its role is `{role}`"), reading);
            }
        }
    }

    fn answer(&mut self, raw: &str, mut parts: Vec<ContentPart>, calls: Vec<ToolCall>) {
        self.open = calls.iter().map(|call| call.id.clone()).collect();
        parts.extend(calls.into_iter().map(ContentPart::ToolCall));
        self.push(raw, Fact::AssistantSaid { answer: None, model: self.model.clone(), parts });
    }

    /// Logs an observation. SWE-agent gives one for all calls of a message: it goes with the first.
    fn observation(&mut self, raw: &str, ids: Vec<CallId>, mut parts: Vec<ContentPart>) {
        let result = |call| ToolResult { call, name: None, parts: std::mem::take(&mut parts), error: false };
        let results = ids.into_iter().map(result).collect();
        self.push(raw, Fact::ToolReturned { results, parts });
    }

    /// Logs the messages in the prompt of a trajectory's first step.
    fn prompt(&mut self, trajectory: &[&str], reading: &mut TranscriptFile) {
        let query = trajectory.first().and_then(|step| {
            ["query", "messages"].iter().find_map(|key| raw_json::elements(raw_json::member(step, key)?))
        });
        for message in query.unwrap_or_default() {
            self.message(message, reading);
        }
    }

    fn step(&mut self, text: &str, reading: &mut TranscriptFile) {
        match Json::parse(text, "a SWE-agent step") {
            Ok(step) if step.text_at("action").is_some() || step.text_at("response").is_some() => {
                // Each step repeats the whole history of its prompt: that is not its own.
                let repeated = ["query", "messages"]
                    .iter()
                    .filter_map(|key| raw_json::member_range(step.raw, &step, key));
                let raw = raw_json::cut(step.raw, repeated.collect());
                self.answer(&raw, said(&step), calls(&step, self.count));
                self.observed(&step);
            }
            Ok(_) => self.carry(text, "step", "it has no action", reading),
            Err(error) => self.carry(text, "step", &error.to_string(), reading),
        }
        self.count += 1;
    }

    /// The outcome that a step of the trajectory records.
    fn observed(&mut self, step: &Json<'_>) {
        if let Some(observation) = step.get("observation")
            && !self.open.is_empty()
            && let Some(text) = observation.as_text()
        {
            let open = std::mem::take(&mut self.open);
            self.observation(observation.raw, open, text_parts(text));
        }
    }

    /// Logs the parts that a run that has ended left out of its history: the last observation, and steps without a
    /// message.
    fn complete(&mut self, trajectory: &[&str], reading: &mut TranscriptFile) {
        let last = self.answers.checked_sub(1).and_then(|last| trajectory.get(last));
        if let Some(Ok(step)) = last.map(|text| Json::parse(text, "a SWE-agent step")) {
            self.observed(&step);
            self.count += 1;
        }
        for text in trajectory.get(self.answers..).unwrap_or_default() {
            self.step(text, reading);
        }
    }

    fn carry(&mut self, raw: &str, kind: &str, why: &str, reading: &mut TranscriptFile) {
        reading.warn(format!("{kind} {} was carried as it is: {why}", self.count));
        self.events.push(carried_event(DIALECT, raw, kind).from_origin(format!("#{}", self.count)));
    }

    fn note_agent(&mut self, message: &Json<'_>) {
        if let Some(agent) = message.text_at("agent")
            && !self.agents.contains(agent)
        {
            self.agents.insert(agent.to_owned());
        }
    }
}

/// Content of an answer beside its calls: reasoning, then the thought if the action is part of the text, else the
/// text.
fn said(answer: &Json<'_>) -> Vec<ContentPart> {
    let thinking = answer.array_at("thinking_blocks").iter().filter_map(|block| {
        let seal = block.text_at("signature").map(|text| ReasoningSeal::Signature(text.to_owned()));
        Some(ContentPart::Reasoning { text: block.text_at("thinking")?.to_owned(), seal })
    });
    let mut parts: Vec<ContentPart> = thinking.collect();
    let thought = answer.text_at("thought").filter(|_| has_text_action(answer));
    match thought {
        Some(thought) => parts.extend(text_parts(thought)),
        None => parts.extend(content_parts(answer.get("content").or_else(|| answer.get("response")))),
    }
    parts
}

/// The calls an answer makes: its own, or the one that its action stands for.
fn calls(answer: &Json<'_>, place: usize) -> Vec<ToolCall> {
    if has_text_action(answer) {
        let action = answer.text_at("action").unwrap_or_default();
        let arguments = format!("{{\"command\":{}}}", quote(action));
        return vec![ToolCall::function(format!("action-{place}"), SHELL, arguments)];
    }
    let call = |call: &Json<'_>| {
        let function = call.get("function").unwrap_or(call);
        let arguments = function.get("arguments");
        let arguments = arguments.map(|arguments| arguments.as_text().unwrap_or(arguments.raw).to_owned());
        let name = function.text_at("name").unwrap_or_default();
        ToolCall::function(call.text_at("id").unwrap_or_default(), name, arguments.unwrap_or_default())
    };
    answer.array_at("tool_calls").iter().map(call).collect()
}

fn has_text_action(answer: &Json<'_>) -> bool {
    answer.array_at("tool_calls").is_empty()
        && answer.text_at("action").is_some_and(|action| !action.is_empty())
}

#[cfg(test)]
mod tests;
