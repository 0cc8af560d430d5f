//! OpenHands' `output.jsonl`: one session per line, its `history` a list of actions and observations.
//!
//! Newer files give every event an id, a source and, for actions a model requested, the whole answer of the model
//! (`tool_call_metadata`); older ones are flat records, or pairs `[action, observation]`. A history saved on its own,
//! as a JSON list, is read too. One model call is one turn: actions of one answer share its id. OpenHands itself
//! shows the model the text of an observation; so does this reader.

mod history;

use epitome_core::id::ModelName;
use serde_json::Value;

use self::history::OpenhandsHistory;
use super::{
    TranscriptError, TranscriptFile, TranscriptFormat,
    assemble::{session_id, single_thread_session},
    raw_json,
};
use crate::json::Json;

const DIALECT: &str = "openhands";

/// Returns true if a line is a session, or a document is a history.
pub(super) fn recognises(value: &Value) -> bool {
    match value.as_array() {
        Some(events) => events.first().is_some_and(|event| event["source"].is_string() && is_event(event)),
        None => match value["history"].as_array().map(Vec::as_slice) {
            Some([first, ..]) => is_event(first.get(0).unwrap_or(first)),
            // A run that failed before its first event.
            Some([]) => value["instruction"].is_string(),
            None => false,
        },
    }
}

fn is_event(value: &Value) -> bool {
    value["role"].is_null() && (value["action"].is_string() || value["observation"].is_string())
}

/// Reads a line, or a history on its own. It contains no session name, so `key` names it.
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    let (history, model, title) = if json.starts_with('[') {
        (Some(json), None, None)
    } else {
        (raw_json::member(json, "history"), model(json), title(json))
    };
    let events = history.and_then(raw_json::elements).ok_or_else(|| TranscriptError::Malformed {
        format: TranscriptFormat::Openhands.name(),
        what: "its `history` is not a list: check that the run was written completely".to_owned(),
    })?;
    let mut log = OpenhandsHistory::new(model);
    for text in events {
        match raw_json::elements(text) {
            Some(pair) => pair.into_iter().for_each(|text| log.event(text, reading)),
            None => log.event(text, reading),
        }
    }
    reading.sessions.push(single_thread_session(
        session_id(TranscriptFormat::Openhands, key),
        key,
        title,
        log.events,
    ));
    Ok(())
}

/// The model that the run was configured with.
fn model(json: &str) -> Option<ModelName> {
    let config = raw_json::member(raw_json::member(json, "metadata")?, "llm_config")?;
    Json::parse(config, "the configuration").ok()?.text_at("model").map(Into::into)
}

/// The issue's title, or the id of the benchmark's instance.
fn title(json: &str) -> Option<String> {
    let issue = raw_json::member(json, "issue").and_then(|issue| raw_json::member(issue, "title"));
    let text = issue.or_else(|| raw_json::member(json, "instance_id"))?;
    Json::parse(text, "the title").ok()?.as_text().map(str::to_owned)
}

#[cfg(test)]
mod tests;
