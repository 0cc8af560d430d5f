//! What came back from a call, without what each agent wraps it in.
//!
//! Every agent tells a command's exit code in its own words, before or after the output. Only the lines at both ends
//! are looked at: in between stands what the command wrote, which may say anything.

use std::borrow::Cow;

use serde_json::Value;

use super::error_lines;
use crate::event::{ContentPart, ToolResult};

/// What came back from a call.
#[derive(Clone, Debug)]
pub(super) struct CallOutput<'a> {
    /// The exit code, where it is told.
    pub(super) exit: Option<i64>,
    /// What the tool wrote.
    pub(super) body: Cow<'a, str>,
    /// How it went.
    pub(super) end: CallStatus,
}

/// How a call went, as far as its result says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStatus {
    /// It is not said to have failed.
    Fine,
    /// The tool failed.
    Failed,
    /// It was never run: someone refused it, or it could not be.
    Refused,
}

/// How many lines at either end may belong to the wrapping.
const WRAPPING: usize = 8;

/// How a result begins that stands for a call which was never run.
const REFUSED: &str = "The user doesn't want to|User rejected|[Request interrupted by user|<tool_use_error>|Permission |\
    rejected by user|Tool execution was cancelled|The user rejected";

/// How lines of a wrapping begin that stand before an output: Codex's and Gemini's.
const BEFORE: &str = "Command: |Chunk ID: |Wall time|Process running with|Original token count: |Total output lines: |Script |\
    Directory: ";

/// The same behind an output, but for exit codes: Gemini's.
const BEHIND: [&str; 4] = ["Error: (none)", "Signal: ", "Background PIDs: ", "Process Group PGID: "];

impl<'a> CallOutput<'a> {
    /// What a result says.
    pub(super) fn of(result: &'a ToolResult) -> Self {
        let mut outcome = Self { exit: None, body: text(result), end: CallStatus::Fine };
        // A wrapping may hold another one: a script's output is a command's, told as JSON.
        for _ in 0..3 {
            let unwrapped = json(&outcome.body).or_else(|| framed(&outcome.body));
            let Some((inner, exit)) = unwrapped else { break };
            outcome.exit = exit.or(outcome.exit);
            outcome.body = Cow::Owned(inner);
        }
        let refused = REFUSED.split('|').any(|words| outcome.body.trim_start().starts_with(words));
        outcome.end = match outcome.exit {
            None if refused => CallStatus::Refused,
            Some(0) | None if !result.error => CallStatus::Fine,
            _ => CallStatus::Failed,
        };
        outcome
    }

    /// Whether the call failed or was never run.
    pub(super) fn failed(&self) -> bool {
        self.end != CallStatus::Fine
    }

    /// The same of a tool that is no command: its words may say so although nothing marks them.
    pub(super) fn is_tool_failure(&self) -> bool {
        self.failed() || error_lines::is_unmarked_error(&self.body)
    }
}

fn text(result: &ToolResult) -> Cow<'_, str> {
    let texts: Vec<&str> = ContentPart::texts(&result.parts).collect();
    match texts.as_slice() {
        [only] => Cow::Borrowed(*only),
        texts => Cow::Owned(texts.join("\n")),
    }
}

/// What is inside `{"output": …, "metadata": {"exit_code": …}}`, whatever tools call these, and the exit code.
fn json(body: &str) -> Option<(String, Option<i64>)> {
    let body = Some(body.trim()).filter(|body| body.starts_with('{'))?;
    let object: Value = serde_json::from_str(body).ok()?;
    let names = ["exit_code", "exitCode", "returncode"];
    let exit = |object: &Value| names.iter().find_map(|name| object[*name].as_i64());
    let exit = exit(&object).or_else(|| exit(&object["metadata"]));
    if exit.is_none() && object.get("output").is_none() {
        return None;
    }
    let texts = ["output", "stdout", "stderr"].iter().filter_map(|name| object[*name].as_str());
    Some((texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"), exit))
}

/// An output with lines around it: before it Codex's, Claude Code's and Gemini's, behind it pi's, `OpenHands'` and
/// Gemini's.
fn framed(body: &str) -> Option<(String, Option<i64>)> {
    let mut exit = None;
    let (mut start, mut is_marked) = (0, false);
    for line in body.split_inclusive('\n').take(WRAPPING) {
        let bare = line.trim_end();
        let code = exit_code(bare);
        exit = exit.or(code);
        if let Some(rest) = bare.strip_prefix("Output:").filter(|_| start > 0) {
            start += if rest.is_empty() { line.len() } else { "Output:".len() };
            is_marked = true;
            break;
        }
        if code.is_none() && !BEFORE.split('|').any(|begins| bare.starts_with(begins)) {
            break;
        }
        start += line.len();
    }
    // Without a mark only an exit code makes of the lines before an output a wrapping.
    let start = if is_marked || exit.is_some() { start } else { 0 };
    let mut end = body.len();
    let mut at = body.len();
    for line in body[start..].split_inclusive('\n').rev().take(WRAPPING) {
        at -= line.len();
        let bare = line.trim();
        let code = exit_code(bare);
        exit = exit.or(code);
        if code.is_some() || is_marked && BEHIND.iter().any(|begins| bare.starts_with(begins)) {
            end = at;
        } else if !(bare.is_empty() || bare.starts_with(['[', '(', '<'])) {
            break;
        }
    }
    (start > 0 || end < body.len()).then(|| (body[start..end].to_owned(), exit))
}

/// The exit code that a line of a wrapping tells: `Exit code: 2`, `[Command finished with exit code 2]`.
fn exit_code(line: &str) -> Option<i64> {
    const STARTS: &str = "exit code|process exited with|command exited with|command failed with|command finished with|\
        the command completed with";
    let bare = line.trim_matches(['[', ']', '(', ')', '.']).to_ascii_lowercase();
    if let Some(tagged) = bare.strip_prefix("<returncode>") {
        return tagged.strip_suffix("</returncode>")?.parse().ok();
    }
    STARTS.split('|').find(|start| bare.starts_with(start))?;
    let (words, code) = bare.rsplit_once(' ')?;
    words.trim_end_matches(':').ends_with("code").then(|| code.parse().ok())?
}
