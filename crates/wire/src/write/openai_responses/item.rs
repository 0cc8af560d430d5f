//! Items, written from their content.

use epitome_core::event::{CallForm, ToolCall};

use super::super::{
    Entry, STAND_IN,
    portable::{Piece, Source},
};
use crate::{
    json::{self, Json, quoted},
    openai_responses::CALLS,
};

/// A picture of one pixel, for calls that can only be answered with a picture.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Returns true if a client answers items of this kind. The provider itself answers a search that has no id.
pub(super) fn is_call(kind: &str) -> bool {
    kind != "tool_search_call" && CALLS.iter().any(|(call, _)| *call == kind)
}

/// Returns true if items of this kind are a client's answers.
pub(super) fn is_output(kind: &str) -> bool {
    kind != "tool_search_output" && CALLS.iter().any(|(_, output)| *output == kind)
}

/// Returns true if an item is of the kind that a kind of call requires as its answer.
pub(super) fn answers(own: &Json<'_>, called: &str) -> bool {
    let output = CALLS.iter().find(|(call, _)| *call == called).map(|(_, output)| *output);
    own.text_at("type") == output
}

/// Kind of a call.
pub(super) fn kind(entry: &Entry<'_>, call: &ToolCall) -> &'static str {
    let own = entry.own.as_ref().and_then(|own| own.text_at("type"));
    let known = own.and_then(|own| CALLS.iter().find(|(call, _)| *call == own));
    known.map_or_else(
        || match call.form {
            CallForm::Function => "function_call",
            CallForm::Custom => "custom_tool_call",
        },
        |(call, _)| call,
    )
}

/// Text and calls in their order: texts that follow each other are one message.
pub(super) fn answer(pieces: &[Piece<'_>], id: impl Fn(&ToolCall, usize) -> String) -> Vec<String> {
    let mut items = Vec::new();
    let mut said: Vec<String> = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Call(call, place) => {
                items.extend(told(&mut said));
                items.push(call_item(call, &id(call, *place)));
            }
            Piece::Refusal(text) => said.push(format!(r#"{{"type":"refusal","refusal":{}}}"#, quoted(text))),
            Piece::Text(_) | Piece::Medium { .. } => {
                said.extend(piece.note().map(output_text));
            }
        }
    }
    items.extend(told(&mut said));
    items
}

/// A message of the model.
pub(super) fn spoken(text: &str) -> String {
    message("assistant", &output_text(text))
}

fn output_text(text: &str) -> String {
    format!(r#"{{"type":"output_text","text":{}}}"#, quoted(text))
}

fn told(said: &mut Vec<String>) -> Option<String> {
    let parts = std::mem::take(said).join(",");
    (!parts.is_empty()).then(|| message("assistant", &parts))
}

pub(super) fn message(role: &str, parts: &str) -> String {
    format!(r#"{{"type":"message","role":"{role}","content":[{parts}]}}"#)
}

pub(super) fn part(piece: &Piece<'_>) -> Option<String> {
    if let Piece::Medium { mime, source, .. } = piece
        && let Some(json) = medium(mime, source)
    {
        return Some(json);
    }
    piece.note().map(|note| text(&quoted(note)))
}

pub(super) fn text(literal: &str) -> String {
    format!(r#"{{"type":"input_text","text":{literal}}}"#)
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

fn call_item(call: &ToolCall, id: &str) -> String {
    let (id, name) = (quoted(id), quoted(&call.name.0));
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

/// Writes the answer to a call of some kind from its content.
pub(super) fn output(called: &str, id: &str, pieces: &[Piece<'_>]) -> String {
    if !matches!(called, "function_call" | "custom_tool_call") {
        let said: Vec<String> = pieces.iter().filter_map(|piece| piece.note().map(str::to_owned)).collect();
        return plain_output(called, id, &said.join("\n"), Ending::Returned);
    }
    let output = match pieces {
        [] => quoted(""),
        [Piece::Text(text)] => quoted(text),
        several => format!("[{}]", several.iter().filter_map(part).collect::<Vec<_>>().join(",")),
    };
    format!(r#"{{"type":"{called}_output","call_id":{},"output":{output}}}"#, quoted(id))
}

/// Writes the stand-in for a call that has no result, in the form its kind of call requires.
pub(crate) fn stand_in(called: &str, id: &str) -> String {
    plain_output(called, id, STAND_IN, Ending::Interrupted)
}

/// Way a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Returned,
    Interrupted,
}

fn plain_output(called: &str, id: &str, said: &str, ending: Ending) -> String {
    let (id, text) = (quoted(id), quoted(said));
    match called {
        "local_shell_call" => format!(r#"{{"type":"local_shell_call_output","id":{id},"output":{text}}}"#),
        "shell_call" => {
            let chunk = match ending {
                Ending::Returned => chunk(&text, r#""""#, EXITED),
                Ending::Interrupted => chunk(r#""""#, &text, FAILED),
            };
            format!(r#"{{"type":"shell_call_output","call_id":{id},"output":[{chunk}]}}"#)
        }
        "apply_patch_call" => {
            let status = if ending == Ending::Returned { "completed" } else { "failed" };
            format!(
                r#"{{"type":"apply_patch_call_output","call_id":{id},"status":"{status}","output":{text}}}"#
            )
        }
        "computer_call" => {
            format!(r#"{{"type":"computer_call_output","call_id":{id},"output":{}}}"#, screenshot())
        }
        "tool_search_call" => {
            format!(r#"{{"type":"tool_search_output","call_id":{id},"execution":"client","tools":[]}}"#)
        }
        "custom_tool_call" => {
            format!(r#"{{"type":"custom_tool_call_output","call_id":{id},"output":{text}}}"#)
        }
        _ => format!(r#"{{"type":"function_call_output","call_id":{id},"output":{text}}}"#),
    }
}

/// Writes the output of an item whose output is not plain content; `None` if it is.
pub(super) fn replacement(own: &Json<'_>, said: &[String]) -> Option<String> {
    match own.text_at("type")? {
        "local_shell_call_output" | "apply_patch_call_output" => Some(quoted(&said.join("\n"))),
        "shell_call_output" => {
            let ended = own.array_at("output").last().and_then(|chunk| chunk.get("outcome"));
            let ended = ended.map_or(EXITED, |ended| ended.raw);
            Some(json::list(said.iter().map(|text| chunk(&quoted(text), r#""""#, ended))))
        }
        "computer_call_output" => Some(screenshot()),
        "tool_search_output" => Some("[]".to_owned()),
        _ => None,
    }
}

/// Exit of a successful command.
const EXITED: &str = r#"{"type":"exit","exit_code":0}"#;

/// Exit of a failed command.
const FAILED: &str = r#"{"type":"exit","exit_code":1}"#;

fn chunk(stdout: &str, stderr: &str, outcome: &str) -> String {
    format!(r#"{{"stdout":{stdout},"stderr":{stderr},"outcome":{outcome}}}"#)
}

fn screenshot() -> String {
    format!(r#"{{"type":"computer_screenshot","image_url":"{PIXEL}"}}"#)
}
