//! Whether a call failed, and in which words.

use super::{
    CallArguments, CallOutput, ToolKind, call_output::CallStatus, codex_script, command, error_lines, shell,
};
use crate::event::{ToolCall, ToolResult};

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFailure {
    /// The exit code of a command, where it is told.
    pub exit: Option<i64>,
    /// The lines that say what went wrong, exactly as they stand in the output, and at most 400 bytes of them. Empty
    /// if a command failed without a word.
    pub words: String,
}

/// What went wrong in a call, if something did.
///
/// It is told from the result's own mark, from exit codes, and from what compilers, test runners and runtimes write
/// when an exit code is hidden (`make | tail`) or missing. Output that shows files, matches or history is no such
/// report, whatever words stand in it.
///
/// ```
/// use epitome_core::{ContentPart, event::{ToolCall, ToolResult}, summary::tools::failure};
///
/// let call = ToolCall::function("1", "Bash", r#"{"command": "git status"}"#);
/// let parts = vec![ContentPart::text("Exit code 128\nfatal: not a git repository")];
/// let result = ToolResult { call: "1".into(), name: None, parts, error: true };
/// let failure = failure(&call, &result).expect("it failed");
/// assert_eq!((failure.exit, failure.words.as_str()), (Some(128), "fatal: not a git repository"));
/// ```
pub fn failure(call: &ToolCall, result: &ToolResult) -> Option<ToolFailure> {
    let outcome = CallOutput::of(result);
    // A script's output is that of the command it runs, if it runs one.
    let made = codex_script::calls(script_of(call).as_deref().unwrap_or_default());
    let (call, is_script) = match made.as_slice() {
        [only] => (only, false),
        _ => (call, script_of(call).is_some()),
    };
    let arguments = CallArguments::of(call);
    match ToolKind::of(&call.name.0, &arguments) {
        _ if is_script => outcome.failed().then(|| of_a_tool(&outcome)),
        ToolKind::Shell => of_a_command(&command(&arguments).unwrap_or_default(), &outcome),
        ToolKind::Running => outcome.failed().then(|| of_a_command("", &outcome))?,
        _ => outcome.is_tool_failure().then(|| of_a_tool(&outcome)),
    }
}

/// Whether a result is marked as a failure: by its tool or by an exit code, whatever words stand in it.
pub(crate) fn is_marked_failure(result: &ToolResult) -> bool {
    result.error || CallOutput::of(result).exit.is_some_and(|exit| exit != 0)
}

/// Whether a call only looks something up: where that fails, nothing is broken.
pub(crate) fn is_lookup(call: &ToolCall) -> bool {
    let arguments = CallArguments::of(call);
    match ToolKind::of(&call.name.0, &arguments) {
        ToolKind::Read | ToolKind::Search => true,
        ToolKind::Shell => shell::shows_content(&command(&arguments).unwrap_or_default()),
        _ => false,
    }
}

/// The script that a call runs, if it runs one.
fn script_of(call: &ToolCall) -> Option<String> {
    let arguments = CallArguments::of(call);
    let is_script = ToolKind::of(&call.name.0, &arguments) == ToolKind::Script;
    arguments.free().filter(|_| is_script).map(str::to_owned)
}

fn of_a_tool(outcome: &CallOutput<'_>) -> ToolFailure {
    ToolFailure { exit: outcome.exit, words: error_lines::tool_error_lines(&outcome.body) }
}

fn of_a_command(command: &str, outcome: &CallOutput<'_>) -> Option<ToolFailure> {
    if outcome.end == CallStatus::Refused {
        return Some(of_a_tool(outcome));
    }
    let nature = shell::CommandNature::of(command);
    let failure = |words| ToolFailure { exit: outcome.exit, words };
    if outcome.failed() {
        let found_nothing = outcome.exit == Some(1)
            && nature.compares
            && !error_lines::has_program_error(&outcome.body, &nature.programs);
        let words = error_lines::failure_lines(&outcome.body, &nature.programs, nature.shows_content);
        return (!found_nothing).then(|| failure(words));
    }
    // A zero that tells of every command, or content that may hold anything, leaves nothing to look for.
    let clear = outcome.exit == Some(0) && !nature.hides_failures;
    if clear || nature.shows_content {
        return None;
    }
    error_lines::report_lines(&outcome.body, &nature.programs).map(failure)
}
