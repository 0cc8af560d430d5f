//! Codex's scripts: JavaScript that calls the other tools, as `tools.exec_command({cmd: "ls"})`.
//!
//! Only literal texts are read, which agents write as JSON does, and constants that hold one. What the script computes is
//! out of reach.

use serde_json::json;

use crate::event::{CallForm, ToolCall};

/// The most calls of one script.
const MOST: usize = 64;

/// The calls that a script makes, in the order they stand, as the model would have made them. A script does not run
/// scripts.
pub(super) fn calls(script: &str) -> Vec<ToolCall> {
    let calls = script.match_indices("tools.").take(MOST).filter_map(|(at, called)| {
        let (name, given) = script[at + called.len()..].split_once('(')?;
        let is_name = |name: &str| {
            name != "exec" && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        is_name(name).then(|| call(script, name, given.trim_start()))?
    });
    calls.collect()
}

fn call(script: &str, name: &str, given: &str) -> Option<ToolCall> {
    if given.starts_with('{') {
        let field = |name: &str| {
            let value = [format!("{name}:"), format!("\"{name}\":")];
            value.iter().find_map(|start| Some(&given[given.find(start)? + start.len()..])).and_then(literal)
        };
        let arguments = json!({ "cmd": field("cmd")?, "workdir": field("workdir") });
        return Some(ToolCall::function("", name, arguments.to_string()));
    }
    let constant = || {
        let start = format!("{} = ", given.split(')').next()?.trim());
        literal(&script[script.find(&start)? + start.len()..])
    };
    let text = literal(given).or_else(constant)?;
    Some(ToolCall { form: CallForm::Custom, ..ToolCall::function("", name, text) })
}

/// The literal text that something begins with.
fn literal(text: &str) -> Option<String> {
    serde_json::Deserializer::from_str(text).into_iter::<String>().next()?.ok()
}
