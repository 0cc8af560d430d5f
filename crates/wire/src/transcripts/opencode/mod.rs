//! OpenCode's export: `{info, messages: [{info, parts}]}`, one session.
//!
//! The log holds the content that the model saw and wrote: a user message's text and media, beside it OpenCode's own
//! additions (it puts the content of attached text files into synthetic text parts, so the file parts themselves add
//! nothing, and a file's words must not be taken for the user's), and a model call for each step of an assistant
//! message, followed by the results of its tools.
//!
//! OpenCode keeps its records in a database and changes them in place: a user message later gets a summary of the
//! files that changed, an old tool output is marked as pruned, the message being written grows. So that a session
//! read again gives the same events first, those two marks are cut out of the raw JSON, and messages at the end
//! that may still change are left for the next reading.

mod message;
mod write;

pub(super) use self::write::write;

use serde_json::Value;

use self::message::{OpencodeLog, OpencodeMessage};
use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, TranscriptThreadStart,
    assemble::{MAIN_THREAD_NAME, session_id, single_thread_session, thread_id},
    raw_json,
};
use crate::json::Json;

/// The name that raw records of this format are kept under.
const DIALECT: &str = "opencode";

/// Returns true if a document is an export.
pub(super) fn recognises(document: &Value) -> bool {
    let info = &document["info"];
    let Some(messages) = document["messages"].as_array() else { return false };
    match messages.first() {
        Some(first) => first["info"]["role"].is_string() && first["parts"].is_array(),
        None => info["id"].is_string() && (info["projectID"].is_string() || info["directory"].is_string()),
    }
}

/// Reads an export. `key` names the session if the export does not.
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    let malformed = |what: &str| TranscriptError::Malformed {
        format: TranscriptFormat::Opencode.name(),
        what: what.to_owned(),
    };
    let info = raw_json::member(json, "info").unwrap_or("{}");
    let info = Json::parse(info, "the session's info")
        .map_err(|_| malformed("its `info` cannot be read: export the session again"))?;
    let messages = raw_json::member(json, "messages")
        .and_then(raw_json::elements)
        .ok_or_else(|| malformed("it has no list of `messages`: export the session again"))?;

    let key = info.text_at("id").unwrap_or(key);
    if info.get("revert").is_some_and(Json::is_object) {
        reading.warn(format!(
            "session {key}: its last messages are marked as undone; they were read all the same"
        ));
    }
    let settled = settled(&messages);
    if settled < messages.len() {
        reading.warn(format!(
            "session {key}: {} at the end may still change; they will be read once the agent has finished them",
            match messages.len() - settled {
                1 => "one message".to_owned(),
                many => format!("{many} messages"),
            }
        ));
    }
    let mut log = OpencodeLog::default();
    for (index, text) in messages[..settled].iter().enumerate() {
        log.message(index, text, reading);
    }

    let title = info.text_at("title").filter(|title| !title.is_empty()).map(str::to_owned);
    let mut session =
        single_thread_session(session_id(TranscriptFormat::Opencode, key), key, title, log.events);
    session.folder = info.text_at("directory").map(str::to_owned);
    if let Some(parent) = info.text_at("parentID") {
        let by = thread_id(session_id(TranscriptFormat::Opencode, parent), MAIN_THREAD_NAME);
        session.threads[0].start = TranscriptThreadStart::Spawned { by: Some(by), call: None };
    }
    reading.sessions.push(session);
    Ok(())
}

/// Number of messages that will not change any more: all but an answer that is still being written, and a request for
/// a compaction whose summary is not there yet.
fn settled(messages: &[&str]) -> usize {
    let last =
        |count: usize| messages.get(count.checked_sub(1)?).and_then(|text| OpencodeMessage::parse(text));
    let mut count = messages.len();
    if last(count).is_some_and(|message| message.is_unfinished()) {
        count -= 1;
    }
    if last(count).is_some_and(|message| message.asks_for_compaction()) {
        count -= 1;
    }
    count
}

#[cfg(test)]
mod tests;
