//! tau-bench results: a list of `{task_id, trial, traj, reward, info}`, a session each.
//!
//! `traj` holds OpenAI Chat messages as they were sent, so they are read as such.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat,
    assemble::{session_id, single_thread_session},
    provider_messages::chat_message,
    raw_json,
};
use crate::json::Json;

/// Returns true if a document is a list of results, or a line is one result.
pub(super) fn recognises(value: &Value) -> bool {
    let result = value.as_array().and_then(|results| results.first()).unwrap_or(value);
    result["traj"].is_array() && !result["task_id"].is_null()
}

/// Reads a list of results, or one. Each is named after `key`, its task and its trial.
#[expect(clippy::unnecessary_wraps, reason = "the readers of one value share a signature")]
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    let results = raw_json::elements(json).unwrap_or_else(|| vec![json]);
    let mut seen: HashMap<String, u64> = HashMap::new();
    for (index, text) in results.into_iter().enumerate() {
        let Some(messages) = raw_json::member(text, "traj").and_then(raw_json::elements) else {
            reading.warn(format!("result {index} has no list `traj`; it was left out"));
            continue;
        };
        let name = |member: &str| raw_json::member(text, member).map(unquoted).unwrap_or_default();
        let mut key = format!("{key}#{}.{}", name("task_id"), name("trial"));
        let times = seen.entry(key.clone()).or_default();
        *times += 1;
        // The same task and trial twice in a file is two separate runs.
        if *times > 1 {
            key = format!("{key}.{times}");
        }
        let before = reading.warnings.len();
        let events =
            messages.iter().enumerate().map(|(index, message)| chat_message(index, message, reading));
        let events = events.collect();
        reading.warnings_are_about(before, &key);
        reading.sessions.push(single_thread_session(
            session_id(TranscriptFormat::TauBench, &key),
            key,
            None,
            events,
        ));
    }
    Ok(())
}

/// A number as it is written, or the text of a string.
fn unquoted(json: &str) -> String {
    let text = Json::parse(json, "a name").ok().and_then(|json| json.as_text().map(str::to_owned));
    text.unwrap_or_else(|| json.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(json: &str) -> TranscriptFile {
        let mut reading = TranscriptFile::new(TranscriptFormat::TauBench);
        read("/f.json", json, &mut reading).unwrap();
        reading
    }

    #[test]
    fn every_result_is_a_session_named_after_its_task_and_trial() {
        let reading = read_all(
            r#"[{"task_id":0,"trial":0,"traj":[{"role":"user","content":"hi"}]},
                {"task_id":"a","trial":1,"traj":[]},
                {"task_id":0,"trial":0,"traj":[{"role":"user","content":"again"}]},
                {"task_id":9}]"#,
        );
        let keys: Vec<&str> = reading.sessions.iter().map(|session| session.key.as_str()).collect();
        assert_eq!(keys, ["/f.json#0.0", "/f.json#a.1", "/f.json#0.0.2"]);
        assert_eq!(
            reading.sessions[0].threads[0].events[0].raw.json.as_ref(),
            r#"{"role":"user","content":"hi"}"#
        );
        assert_eq!(reading.sessions[0].threads[0].events[0].origin.as_deref(), Some("#0"));
        assert_eq!(reading.warnings.len(), 1);
    }
}
