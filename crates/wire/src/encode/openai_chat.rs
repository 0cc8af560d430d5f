//! Events, to Chat messages.

use std::collections::HashMap;

use epitome_core::{
    Fact, Part,
    event::{CallForm, Instruction, ToolCall, ToolResult},
};

use super::{
    Completion, Entry, Group, STAND_IN, Written, grouped,
    outcomes::Outcomes,
    portable::{Piece, Portable, Source},
};
use crate::{
    json::{Json, quoted},
    normal::CHAT_ECHOED,
};

/// Writes the history.
pub(super) fn write(entries: &[Entry<'_>], completion: Completion) -> Vec<Written> {
    match completion {
        Completion::AsRecorded => recorded(entries),
        Completion::Legal => legal(entries),
    }
}

fn recorded(entries: &[Entry<'_>]) -> Vec<Written> {
    let mut out = Vec::new();
    for group in grouped(entries) {
        match group {
            Group::Answer { fragments, results } => {
                out.extend(answer(&fragments));
                out.extend(results.into_iter().flat_map(everything));
            }
            Group::Other(entry) => out.extend(everything(entry)),
        }
    }
    out
}

/// Every answer followed directly by the results of its calls; nothing answers what was not asked.
fn legal(entries: &[Entry<'_>]) -> Vec<Written> {
    let outcomes = Outcomes::of(entries);
    let mut results_of: HashMap<usize, Vec<Option<Written>>> =
        entries.iter().map(|entry| (entry.index, results(entry).into_iter().map(Some).collect())).collect();
    let mut out = Vec::new();
    for group in grouped(entries) {
        match group {
            Group::Answer { fragments, results } => {
                if fragments.iter().any(|entry| says_something(entry)) {
                    out.extend(answer(&fragments));
                }
                for (index, ordinal) in outcomes.returned(&fragments) {
                    // Each result answers one call, so it is taken once.
                    let place = results_of.get_mut(&index).and_then(|results| results.get_mut(ordinal));
                    out.extend(place.and_then(Option::take));
                }
                out.extend(
                    outcomes.unanswered(&fragments).into_iter().map(|call| stand_in(call, &fragments)),
                );
                out.extend(results.into_iter().filter_map(beside));
            }
            Group::Other(entry) => out.extend(beside(entry)),
        }
    }
    out
}

/// All messages an event is written as.
fn everything(entry: &Entry<'_>) -> Vec<Written> {
    let mut all = results(entry);
    all.extend(beside(entry));
    all
}

/// The messages of an event's results, one each.
fn results(entry: &Entry<'_>) -> Vec<Written> {
    let written = |json: String| Written { json, events: vec![entry.index] };
    match (&entry.own, &entry.event.fact) {
        (Some(own), Fact::ToolReturned { .. }) => vec![written(own.raw.to_owned())],
        (None, Fact::ToolReturned { results, .. }) => {
            let portable = Portable::of(entry.event);
            let result = |result: &ToolResult| {
                let (id, content) = (quoted(&result.call.0), quoted(&portable.plain(&result.parts)));
                written(format!(r#"{{"role":"tool","tool_call_id":{id},"content":{content}}}"#))
            };
            results.iter().map(result).collect()
        }
        _ => Vec::new(),
    }
}

/// The message of what an event says, results aside.
fn beside(entry: &Entry<'_>) -> Option<Written> {
    let json = match (&entry.own, &entry.event.fact) {
        (Some(_), Fact::ToolReturned { .. }) => return None,
        (Some(own), _) => own.raw.to_owned(),
        (None, Fact::Instructed { what: Instruction::Message, .. }) => {
            question("system", &Portable::of(entry.event).pieces())?
        }
        (None, _) => question("user", &Portable::of(entry.event).pieces())?,
    };
    Some(Written { json, events: vec![entry.index] })
}

/// Whether an answer has content or calls: without, it would be refused.
fn says_something(entry: &Entry<'_>) -> bool {
    entry.event.fact.parts().iter().any(|part| match part {
        Part::Text { text } | Part::Refusal { text } => !text.is_empty(),
        Part::Reasoning { .. } => false,
        Part::ToolCall(_) | Part::Media(_) | Part::Opaque { .. } => true,
    })
}

/// An answer, its fragments joined.
fn answer(fragments: &[&Entry<'_>]) -> Option<Written> {
    let own: Option<Vec<&Json<'_>>> = fragments.iter().map(|entry| entry.own.as_ref()).collect();
    let json = match (own.as_deref(), fragments) {
        (Some([only]), [entry]) => Some(match &entry.event.fact {
            Fact::AssistantSaid { answer: Some(_), .. } => narrowed(only),
            _ => only.raw.to_owned(),
        }),
        (Some(own), _) => Some(joined(own)),
        (None, fragments) => synthesised(fragments),
    };
    json.map(|json| Written { json, events: fragments.iter().map(|entry| entry.index).collect() })
}

/// What a request may hold of a response's message, its values' bytes untouched.
fn narrowed(message: &Json<'_>) -> String {
    let kept = message.members().iter().filter(|(key, value)| is_echoed(key, value));
    object(kept.map(|(key, value)| (&**key, echoed(key, value))))
}

fn is_echoed(key: &str, value: &Json<'_>) -> bool {
    let is_empty = value.is_null() || (key == "tool_calls" && value.as_array().is_some_and(<[_]>::is_empty));
    CHAT_ECHOED.contains(&key) && (!is_empty || key == "content")
}

fn echoed(key: &str, value: &Json<'_>) -> String {
    match (key, value.get("id")) {
        ("audio", Some(id)) => format!(r#"{{"id":{}}}"#, id.raw),
        _ => value.raw.to_owned(),
    }
}

/// The fragments of one answer as one message: texts and calls follow each other, of the rest the last word counts.
fn joined(fragments: &[&Json<'_>]) -> String {
    let mut keys: Vec<&str> = Vec::new();
    let mut values: HashMap<&str, Vec<&Json<'_>>> = HashMap::new();
    for (key, value) in fragments.iter().flat_map(|fragment| fragment.members()) {
        if is_echoed(key, value) {
            let known = values.entry(key).or_default();
            if known.is_empty() {
                keys.push(key);
            }
            known.push(value);
        }
    }
    object(keys.into_iter().filter_map(|key| Some((key, combined(key, values.get(key)?)))))
}

fn combined(key: &str, values: &[&Json<'_>]) -> String {
    let said: Vec<&&Json<'_>> =
        values.iter().filter(|value| !value.is_null() && value.as_text() != Some("")).collect();
    match (key, said.as_slice()) {
        (_, []) => values.first().map_or("null", |value| value.raw).to_owned(),
        (_, [only]) => echoed(key, only),
        ("content", several) => list(several.iter().flat_map(|content| match content.as_array() {
            Some(parts) => parts.iter().map(|part| part.raw.to_owned()).collect(),
            None => vec![format!(r#"{{"type":"text","text":{}}}"#, content.raw)],
        })),
        ("tool_calls" | "reasoning_details", several) => {
            let elements = several.iter().filter_map(|value| value.as_array()).flatten();
            list(elements.map(|element| element.raw.to_owned()))
        }
        ("reasoning_content" | "reasoning" | "refusal", several) => {
            quoted(&several.iter().filter_map(|value| value.as_text()).collect::<String>())
        }
        (_, [.., last]) => echoed(key, last),
    }
}

/// An answer that came, at least in part, in another format.
fn synthesised(fragments: &[&Entry<'_>]) -> Option<String> {
    let (mut text, mut refusal, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for entry in fragments {
        let portable = Portable::of(entry.event);
        for piece in portable.pieces() {
            match piece {
                Piece::Call(call) => calls.push(call_json(call)),
                Piece::Refusal(said) => refusal.push(said.to_owned()),
                Piece::Text(_) | Piece::Medium { .. } => text.push(piece.note()),
            }
        }
    }
    if text.is_empty() && refusal.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() { "null".to_owned() } else { quoted(&text.join("\n")) };
    let mut members = vec![("role", quoted("assistant")), ("content", content)];
    if !refusal.is_empty() {
        members.push(("refusal", quoted(&refusal.join("\n"))));
    }
    if !calls.is_empty() {
        members.push(("tool_calls", list(calls.into_iter())));
    }
    Some(object(members.into_iter()))
}

fn call_json(call: &ToolCall) -> String {
    let (id, name) = (quoted(&call.id.0), quoted(&call.name.0));
    match call.form {
        CallForm::Function => {
            let arguments = if call.arguments.is_empty() { "{}" } else { &call.arguments };
            let arguments = quoted(arguments);
            format!(r#"{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}"#)
        }
        CallForm::Custom => {
            let input = quoted(&call.arguments);
            format!(r#"{{"id":{id},"type":"custom","custom":{{"name":{name},"input":{input}}}}}"#)
        }
    }
}

/// A message that is no answer; `None` if it says nothing.
fn question(role: &str, pieces: &[Piece<'_>]) -> Option<String> {
    let content = match pieces {
        [] => return None,
        [Piece::Text(text)] => quoted(text),
        several if role != "user" => quoted(&several.iter().map(Piece::note).collect::<Vec<_>>().join("\n")),
        several => list(several.iter().map(part)),
    };
    Some(format!(r#"{{"role":"{role}","content":{content}}}"#))
}

fn part(piece: &Piece<'_>) -> String {
    let medium = match piece {
        Piece::Medium { mime, source } => medium(mime, source),
        Piece::Text(_) | Piece::Refusal(_) | Piece::Call(_) => None,
    };
    medium.unwrap_or_else(|| format!(r#"{{"type":"text","text":{}}}"#, quoted(&piece.note())))
}

fn medium(mime: &str, source: &Source<'_>) -> Option<String> {
    let data_url = |data: &str| quoted(&format!("data:{mime};base64,{data}"));
    Some(match source {
        Source::Url(url) if mime.starts_with("image/") => {
            format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, quoted(url))
        }
        Source::Base64(data) if mime.starts_with("image/") => {
            format!(r#"{{"type":"image_url","image_url":{{"url":{}}}}}"#, data_url(data))
        }
        Source::Base64(data) if matches!(mime, "audio/wav" | "audio/mp3") => {
            let form = mime.trim_start_matches("audio/");
            format!(r#"{{"type":"input_audio","input_audio":{{"data":{},"format":"{form}"}}}}"#, quoted(data))
        }
        Source::Base64(data) if mime == "application/pdf" => {
            let data = data_url(data);
            format!(r#"{{"type":"file","file":{{"filename":"document.pdf","file_data":{data}}}}}"#)
        }
        Source::Url(_) | Source::Base64(_) => return None,
    })
}

/// The answer to a call that never returned. A deprecated call has no id: it is answered by name.
fn stand_in(call: &ToolCall, fragments: &[&Entry<'_>]) -> Written {
    let called_by_name = fragments
        .iter()
        .filter_map(|entry| entry.own.as_ref())
        .any(|own| own.get("function_call").is_some_and(|called| called.text_at("name") == Some(&call.id.0)));
    let (id, content) = (quoted(&call.id.0), quoted(STAND_IN));
    let json = if called_by_name {
        format!(r#"{{"role":"function","name":{id},"content":{content}}}"#)
    } else {
        format!(r#"{{"role":"tool","tool_call_id":{id},"content":{content}}}"#)
    };
    Written { json, events: Vec::new() }
}

fn list(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

fn object<'k>(members: impl Iterator<Item = (&'k str, String)>) -> String {
    let members: Vec<String> = members.map(|(key, value)| format!("{}:{value}", quoted(key))).collect();
    format!("{{{}}}", members.join(","))
}
