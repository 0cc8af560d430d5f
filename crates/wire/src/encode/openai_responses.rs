//! Events, to Responses items.

use std::collections::HashSet;

use epitome_core::{
    Fact,
    event::{CallForm, Instruction, ToolCall, ToolResult},
};

use super::{
    Completion, Entry, History, Layout, STAND_IN, Written,
    outcomes::Outcomes,
    portable::{Piece, Portable, Source},
    skeleton::Head,
};
use crate::{
    json::{Json, quoted},
    request::bare_item,
};

/// A picture of one pixel, for a call that can only be answered with one.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Writes the history.
pub(super) fn write(entries: &[Entry<'_>], completion: Completion, head: &Head<'_>) -> History {
    if let [only] = entries
        && let Some(text) = bare_text(only)
    {
        let message = Written { json: text.to_owned(), events: vec![only.index] };
        return History { messages: vec![message], layout: Layout::Bare };
    }
    History::list(match completion {
        Completion::AsRecorded => entries.iter().flat_map(|entry| items(entry, &|_| true)).collect(),
        Completion::Legal => legal(entries, head),
    })
}

/// The literal of an input that was only a string. A string among the items of a list was carried, and is none.
fn bare_text<'e>(entry: &'e Entry<'_>) -> Option<&'e str> {
    let own = entry.own.as_ref().filter(|own| own.as_text().is_some())?;
    (!matches!(entry.event.fact, Fact::Carried { .. })).then_some(own.raw)
}

fn legal(entries: &[Entry<'_>], head: &Head<'_>) -> Vec<Written> {
    let outcomes = Outcomes::of(entries);
    // With history on the provider's side, a result's call may be there.
    let remote = head.has("previous_response_id") || head.has("conversation");
    let mut out = Vec::new();
    let mut run: Vec<&Entry<'_>> = Vec::new();
    let dangling = dangling(entries);
    for (at, entry) in entries.iter().enumerate() {
        let continues = entries.get(at + 1).is_some_and(Entry::is_answer);
        if !dangling.contains(&entry.index) {
            out.extend(items(entry, &|ordinal| remote || !outcomes.is_stray((entry.index, ordinal))));
        }
        if entry.is_answer() {
            run.push(entry);
        }
        // Stand-ins wait for the end of the answer: nothing may part reasoning from what it led to.
        if !continues {
            for entry in run.drain(..) {
                let calls = outcomes.unanswered(&[entry]);
                out.extend(calls.into_iter().map(|call| stand_in(call, entry)));
            }
        }
    }
    out
}

/// Reasoning that led to nothing: without the item that followed it, it is refused.
fn dangling(entries: &[Entry<'_>]) -> HashSet<usize> {
    let mut dangling = HashSet::new();
    let mut leads_on = false;
    for entry in entries.iter().rev() {
        if !is_reasoning(entry) {
            leads_on = entry.is_answer();
        } else if !leads_on {
            dangling.insert(entry.index);
        }
    }
    dangling
}

fn is_reasoning(entry: &Entry<'_>) -> bool {
    entry.own.as_ref().is_some_and(|own| own.text_at("type") == Some("reasoning"))
}

/// The items an event is written as; of its results those that `keep` wants.
fn items(entry: &Entry<'_>, keep: &dyn Fn(usize) -> bool) -> Vec<Written> {
    let json = match (&entry.own, &entry.event.fact) {
        (Some(_), Fact::ToolReturned { .. }) if !keep(0) => Vec::new(),
        (Some(own), _) => vec![bare_text(entry).map_or_else(|| own.raw.to_owned(), bare_item)],
        (None, fact) => foreign(entry, fact, keep),
    };
    json.into_iter().map(|json| Written { json, events: vec![entry.index] }).collect()
}

/// The items of an event that came in another format.
fn foreign(entry: &Entry<'_>, fact: &Fact, keep: &dyn Fn(usize) -> bool) -> Vec<String> {
    let portable = Portable::of(entry.event);
    let pieces = portable.pieces();
    match fact {
        Fact::AssistantSaid { .. } => answer(&pieces),
        Fact::ToolReturned { results, .. } => {
            let kept = results.iter().enumerate().filter(|(ordinal, _)| keep(*ordinal));
            let outputs = kept.map(|(_, result)| output(&portable, result));
            outputs.chain(message("user", &pieces)).collect()
        }
        Fact::Instructed { what: Instruction::Message, .. } => {
            message("developer", &pieces).into_iter().collect()
        }
        _ => message("user", &pieces).into_iter().collect(),
    }
}

/// Text and calls in their order: texts that follow each other are one message.
fn answer(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut items = Vec::new();
    let mut said: Vec<String> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Call(call) => {
                items.extend(spoken(&mut said));
                items.push(call_item(call));
            }
            Piece::Refusal(text) => said.push(format!(r#"{{"type":"refusal","refusal":{}}}"#, quoted(text))),
            Piece::Text(_) | Piece::Medium { .. } => {
                said.push(format!(r#"{{"type":"output_text","text":{}}}"#, quoted(&piece.note())));
            }
        }
    }
    items.extend(spoken(&mut said));
    items
}

fn spoken(said: &mut Vec<String>) -> Option<String> {
    let parts = std::mem::take(said).join(",");
    (!parts.is_empty()).then(|| format!(r#"{{"type":"message","role":"assistant","content":[{parts}]}}"#))
}

fn message(role: &str, pieces: &[Piece<'_>]) -> Option<String> {
    let content = parts(pieces);
    (!pieces.is_empty()).then(|| format!(r#"{{"type":"message","role":"{role}","content":[{content}]}}"#))
}

fn parts(pieces: &[Piece<'_>]) -> String {
    pieces.iter().map(part).collect::<Vec<_>>().join(",")
}

fn part(piece: &Piece<'_>) -> String {
    let medium = match piece {
        Piece::Medium { mime, source } => medium(mime, source),
        Piece::Text(_) | Piece::Refusal(_) | Piece::Call(_) => None,
    };
    medium.unwrap_or_else(|| format!(r#"{{"type":"input_text","text":{}}}"#, quoted(&piece.note())))
}

fn medium(mime: &str, source: &Source<'_>) -> Option<String> {
    let (is_image, is_file) = (mime.starts_with("image/"), mime == "application/pdf");
    let data_url = |data: &str| quoted(&format!("data:{mime};base64,{data}"));
    match source {
        Source::Url(url) if is_image => {
            Some(format!(r#"{{"type":"input_image","image_url":{}}}"#, quoted(url)))
        }
        Source::Url(url) if is_file => Some(format!(r#"{{"type":"input_file","file_url":{}}}"#, quoted(url))),
        Source::Base64(data) if is_image => {
            Some(format!(r#"{{"type":"input_image","image_url":{}}}"#, data_url(data)))
        }
        Source::Base64(data) if is_file => Some(format!(
            r#"{{"type":"input_file","filename":"document.pdf","file_data":{}}}"#,
            data_url(data)
        )),
        Source::Url(_) | Source::Base64(_) => None,
    }
}

fn call_item(call: &ToolCall) -> String {
    let (id, name) = (quoted(&call.id.0), quoted(&call.name.0));
    let namespace = call
        .namespace
        .as_ref()
        .map_or_else(String::new, |space| format!(r#","namespace":{}"#, quoted(space)));
    match call.form {
        CallForm::Function => {
            let arguments = quoted(if call.arguments.is_empty() { "{}" } else { &call.arguments });
            format!(
                r#"{{"type":"function_call","call_id":{id},"name":{name}{namespace},"arguments":{arguments}}}"#
            )
        }
        CallForm::Custom => {
            let input = quoted(&call.arguments);
            format!(
                r#"{{"type":"custom_tool_call","call_id":{id},"name":{name}{namespace},"input":{input}}}"#
            )
        }
    }
}

fn output(portable: &Portable<'_>, result: &ToolResult) -> String {
    let pieces = portable.said(&result.parts);
    let output = if pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) {
        quoted(&portable.plain(&result.parts))
    } else {
        format!("[{}]", parts(&pieces))
    };
    format!(r#"{{"type":"function_call_output","call_id":{},"output":{output}}}"#, quoted(&result.call.0))
}

/// The answer to a call that never returned, in the form its kind of call wants.
fn stand_in(call: &ToolCall, entry: &Entry<'_>) -> Written {
    let kind = entry.own.as_ref().and_then(|own: &Json<'_>| own.text_at("type"));
    let (id, said) = (quoted(&call.id.0), quoted(STAND_IN));
    let kind = kind.unwrap_or(match call.form {
        CallForm::Function => "function_call",
        CallForm::Custom => "custom_tool_call",
    });
    let json = match kind {
        "local_shell_call" => format!(r#"{{"type":"local_shell_call_output","id":{id},"output":{said}}}"#),
        "shell_call" => format!(
            r#"{{"type":"shell_call_output","call_id":{id},"output":[{{"stdout":"","stderr":{said},"outcome":{{"type":"exit","exit_code":1}}}}]}}"#
        ),
        "apply_patch_call" => format!(
            r#"{{"type":"apply_patch_call_output","call_id":{id},"status":"failed","output":{said}}}"#
        ),
        "computer_call" => format!(
            r#"{{"type":"computer_call_output","call_id":{id},"output":{{"type":"computer_screenshot","image_url":"{PIXEL}"}}}}"#
        ),
        "tool_search_call" => {
            format!(r#"{{"type":"tool_search_output","call_id":{id},"execution":"client","tools":[]}}"#)
        }
        "custom_tool_call" => {
            format!(r#"{{"type":"custom_tool_call_output","call_id":{id},"output":{said}}}"#)
        }
        _ => format!(r#"{{"type":"function_call_output","call_id":{id},"output":{said}}}"#),
    };
    Written { json, events: Vec::new() }
}
