//! Conversations in Gemini's own form: a whole request to `generateContent`, or a list of contents, as a document or
//! one a line.

use serde_json::Value;

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat,
    assemble::{session_id, single_thread_session},
};
use crate::format::Format;

/// Format of these files.
const FORMAT: TranscriptFormat = TranscriptFormat::GeminiRequest;

/// Returns true if a document, or a line, is a conversation.
pub(super) fn recognises(value: &Value) -> bool {
    let is_content = |value: &Value| {
        let role = value.get("role").and_then(Value::as_str);
        value.get("parts").is_some_and(Value::is_array)
            && role.is_none_or(|role| matches!(role, "user" | "model" | "function" | "tool"))
    };
    let is_list = |value: &Value| value.as_array().is_some_and(|list| list.iter().any(is_content));
    is_list(value) || value.get("contents").is_some_and(is_list)
}

/// Reads one conversation. It contains no session name, so `key` names it.
pub(super) fn read(key: &str, json: &str, reading: &mut TranscriptFile) -> Result<(), TranscriptError> {
    let request = if json.starts_with('[') { format!(r#"{{"contents":{json}}}"#) } else { json.to_owned() };
    let events = Format::Gemini.decode_request(&request).map_err(|error| TranscriptError::Malformed {
        format: FORMAT.name(),
        what: format!("it cannot be read as a request: {error}"),
    })?;
    // A list of contents has no settings.
    let events = events.into_iter().skip(usize::from(json.starts_with('['))).enumerate();
    let events = events.map(|(index, event)| event.from_origin(format!("#{index}"))).collect();
    reading.format = FORMAT;
    reading.sessions.push(single_thread_session(session_id(FORMAT, key), key, None, events));
    Ok(())
}

#[cfg(test)]
mod tests {
    use epitome_core::Fact;

    use super::{super::TranscriptLimits, *};

    #[test]
    fn a_request_and_a_list_of_contents_are_read() {
        let list =
            r#"[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"text":"Hello."}]}]"#;
        let request = format!(r#"{{"contents":{list},"generationConfig":{{"temperature":1}}}}"#);
        for (file, settings) in [(list, 0), (&*request, 1)] {
            let read = super::super::read("/x.json", file.as_bytes(), &TranscriptLimits::default()).unwrap();
            assert_eq!(read.format, FORMAT);
            let events = &read.sessions[0].threads[0].events;
            assert_eq!(events.len(), settings + 2);
            assert!(matches!(events[settings].fact, Fact::UserSaid { .. }));
            assert_eq!(events[settings + 1].fact.text(), "Hello.");
        }
    }
}
