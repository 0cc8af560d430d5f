//! Items, written from their content.

use epitome_core::event::{CallForm, ToolCall};

use crate::write::{
    STAND_IN_RESULT, SourceEvent,
    portable::{MediumSource, PortablePiece},
};
use crate::{
    json::{self, Json, quote},
    openai_responses::CLIENT_CALL_KINDS,
};

/// A picture of one pixel, for calls that can only be answered with a picture.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Returns true if a client answers items of this kind. The provider itself answers a search that has no id.
pub(crate) fn is_call(kind: &str) -> bool {
    kind != "tool_search_call" && CLIENT_CALL_KINDS.iter().any(|(call, _)| *call == kind)
}

/// Returns true if items of this kind are a client's answers.
pub(crate) fn is_output(kind: &str) -> bool {
    kind != "tool_search_output" && CLIENT_CALL_KINDS.iter().any(|(_, output)| *output == kind)
}

/// Returns true if an item is of the kind that a kind of call requires as its answer.
pub(crate) fn answers(own: &Json<'_>, called: &str) -> bool {
    let output = CLIENT_CALL_KINDS.iter().find(|(call, _)| *call == called).map(|(_, output)| *output);
    own.text_at("type") == output
}

/// Kind of a call.
pub(crate) fn kind(entry: &SourceEvent<'_>, call: &ToolCall) -> &'static str {
    let own = entry.own.as_ref().and_then(|own| own.text_at("type"));
    let known = own.and_then(|own| CLIENT_CALL_KINDS.iter().find(|(call, _)| *call == own));
    known.map_or_else(
        || match call.form {
            CallForm::Function => "function_call",
            CallForm::Custom => "custom_tool_call",
        },
        |(call, _)| call,
    )
}

/// Text and calls in their order: texts that follow each other are one message.
pub(crate) fn answer(pieces: &[PortablePiece<'_>], id: impl Fn(&ToolCall, usize) -> String) -> Vec<String> {
    let mut items = Vec::new();
    let mut said: Vec<String> = Vec::new();
    for piece in pieces {
        match piece {
            PortablePiece::Call(call, place) => {
                items.extend(told(&mut said));
                items.push(call_item(call, &id(call, *place)));
            }
            PortablePiece::Refusal(text) => {
                said.push(format!(r#"{{"type":"refusal","refusal":{}}}"#, quote(text)));
            }
            PortablePiece::Text(_) | PortablePiece::Medium { .. } => {
                said.extend(piece.note().map(output_text));
            }
        }
    }
    items.extend(told(&mut said));
    items
}

/// A message of the model.
pub(crate) fn spoken(text: &str) -> String {
    message("assistant", &output_text(text))
}

fn output_text(text: &str) -> String {
    format!(r#"{{"type":"output_text","text":{}}}"#, quote(text))
}

fn told(said: &mut Vec<String>) -> Option<String> {
    let parts = std::mem::take(said).join(",");
    (!parts.is_empty()).then(|| message("assistant", &parts))
}

pub(crate) fn message(role: &str, parts: &str) -> String {
    format!(r#"{{"type":"message","role":"{role}","content":[{parts}]}}"#)
}

pub(crate) fn part(piece: &PortablePiece<'_>) -> Option<String> {
    if let PortablePiece::Medium { mime, source, .. } = piece
        && let Some(json) = medium(mime, source)
    {
        return Some(json);
    }
    piece.note().map(|note| text(&quote(note)))
}

pub(crate) fn text(literal: &str) -> String {
    format!(r#"{{"type":"input_text","text":{literal}}}"#)
}

fn medium(mime: &str, source: &MediumSource<'_>) -> Option<String> {
    let (is_image, is_file) = (mime.starts_with("image/"), mime == "application/pdf");
    let data_url = |data: &str| quote(&format!("data:{mime};base64,{data}"));
    match source {
        MediumSource::Url(url) if is_image => {
            Some(format!(r#"{{"type":"input_image","image_url":{}}}"#, quote(url)))
        }
        MediumSource::Url(url) if is_file => {
            Some(format!(r#"{{"type":"input_file","file_url":{}}}"#, quote(url)))
        }
        MediumSource::Base64(data) if is_image => {
            Some(format!(r#"{{"type":"input_image","image_url":{}}}"#, data_url(data)))
        }
        MediumSource::Base64(data) if is_file => Some(format!(
            r#"{{"type":"input_file","filename":"document.pdf","file_data":{}}}"#,
            data_url(data)
        )),
        MediumSource::Url(_) | MediumSource::Base64(_) => None,
    }
}

fn call_item(call: &ToolCall, id: &str) -> String {
    let (id, name) = (quote(id), quote(&call.name.0));
    let namespace =
        call.namespace.as_ref().map_or_else(String::new, |space| format!(r#","namespace":{}"#, quote(space)));
    match call.form {
        CallForm::Function => {
            let arguments = quote(if call.arguments.is_empty() { "{}" } else { &call.arguments });
            format!(
                r#"{{"type":"function_call","call_id":{id},"name":{name}{namespace},"arguments":{arguments}}}"#
            )
        }
        CallForm::Custom => {
            let input = quote(&call.arguments);
            format!(
                r#"{{"type":"custom_tool_call","call_id":{id},"name":{name}{namespace},"input":{input}}}"#
            )
        }
    }
}

/// Writes the answer to a call of some kind from its content.
pub(crate) fn output(called: &str, id: &str, pieces: &[PortablePiece<'_>]) -> String {
    if !matches!(called, "function_call" | "custom_tool_call") {
        let said: Vec<String> = pieces.iter().filter_map(|piece| piece.note().map(str::to_owned)).collect();
        return plain_output(called, id, &said.join("\n"), OutputStatus::Returned);
    }
    let output = match pieces {
        [] => quote(""),
        [PortablePiece::Text(text)] => quote(text),
        several => format!("[{}]", several.iter().filter_map(part).collect::<Vec<_>>().join(",")),
    };
    format!(r#"{{"type":"{called}_output","call_id":{},"output":{output}}}"#, quote(id))
}

/// Writes the stand-in for a call that has no result, in the form its kind of call requires.
pub(crate) fn stand_in(called: &str, id: &str) -> String {
    plain_output(called, id, STAND_IN_RESULT, OutputStatus::Interrupted)
}

/// Way a call ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputStatus {
    Returned,
    Interrupted,
}

fn plain_output(called: &str, id: &str, said: &str, ending: OutputStatus) -> String {
    let (id, text) = (quote(id), quote(said));
    match called {
        "local_shell_call" => format!(r#"{{"type":"local_shell_call_output","id":{id},"output":{text}}}"#),
        "shell_call" => {
            let chunk = match ending {
                OutputStatus::Returned => chunk(&text, r#""""#, EXITED),
                OutputStatus::Interrupted => chunk(r#""""#, &text, FAILED),
            };
            format!(r#"{{"type":"shell_call_output","call_id":{id},"output":[{chunk}]}}"#)
        }
        "apply_patch_call" => {
            let status = if ending == OutputStatus::Returned { "completed" } else { "failed" };
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
pub(crate) fn replacement(own: &Json<'_>, said: &[String]) -> Option<String> {
    match own.text_at("type")? {
        "local_shell_call_output" | "apply_patch_call_output" => Some(quote(&said.join("\n"))),
        "shell_call_output" => {
            let ended = own.array_at("output").last().and_then(|chunk| chunk.get("outcome"));
            let ended = ended.map_or(EXITED, |ended| ended.raw);
            Some(json::list(said.iter().map(|text| chunk(&quote(text), r#""""#, ended))))
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
