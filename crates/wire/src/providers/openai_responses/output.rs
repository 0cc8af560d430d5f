//! Results that clients send back for the calls that Responses leaves to them.

use epitome_core::{ContentPart, event::ToolResult};

use super::{part, result_of};
use crate::{
    decode_parts::{self, opaque_part},
    json::Json,
};

/// The result an output item carries, or `None` if it carries none.
pub(crate) fn result(kind: &str, item: &Json<'_>) -> Option<ToolResult> {
    let call = item.text_at("call_id");
    let output = item.get("output");
    match kind {
        "function_call_output" | "custom_tool_call_output" => {
            Some(result_of(call?, decode_parts::parts(output, part)))
        }
        // This kind names its call by `id`.
        "local_shell_call_output" => {
            Some(result_of(call.or_else(|| item.text_at("id"))?, decode_parts::parts(output, part)))
        }
        "shell_call_output" => {
            let chunks = output.and_then(Json::as_array).unwrap_or_default();
            let error =
                chunks.iter().any(|chunk| outcome(chunk).is_some_and(|outcome| outcome != "exit code 0"));
            Some(ToolResult { error, ..result_of(call?, decode_parts::parts(output, chunk_text)) })
        }
        "apply_patch_call_output" => {
            let error = item.text_at("status") == Some("failed");
            Some(ToolResult { error, ..result_of(call?, decode_parts::parts(output, part)) })
        }
        "computer_call_output" => Some(result_of(call?, output.map(part).into_iter().collect())),
        "tool_search_output" => {
            let tools = item.array_at("tools").iter().map(decode_parts::tool_part).collect();
            Some(result_of(call?, tools))
        }
        _ => None,
    }
}

/// Writes a command's output as text: its streams and its exit status.
fn chunk_text(chunk: &Json<'_>) -> ContentPart {
    let (Some(stdout), Some(stderr)) = (chunk.text_at("stdout"), chunk.text_at("stderr")) else {
        return opaque_part(chunk, "shell_output");
    };
    let ended = outcome(chunk).unwrap_or_default();
    let pieces = [stdout, stderr, ended.as_str()].into_iter().filter(|piece| !piece.is_empty());
    ContentPart::text(pieces.collect::<Vec<_>>().join("\n"))
}

fn outcome(chunk: &Json<'_>) -> Option<String> {
    let outcome = chunk.get("outcome")?;
    match outcome.text_at("type")? {
        "exit" => outcome.get("exit_code").map(|code| format!("exit code {}", code.raw)),
        other => Some(other.to_owned()),
    }
}
