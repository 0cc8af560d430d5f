//! Whether a call failed, and in which words.

use super::{
    Arguments, Kind, Outcome, call, command,
    edits::by_an_action,
    errors,
    outcome::End,
    script,
    shell::{self, One, Output, Zero},
};
use crate::event::{ToolCall, ToolResult};

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
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
/// use epitome_core::{Part, event::{ToolCall, ToolResult}, summary::tools::failure};
///
/// let call = ToolCall::function("1", "Bash", r#"{"command": "git status"}"#);
/// let parts = vec![Part::text("Exit code 128\nfatal: not a git repository")];
/// let result = ToolResult { call: "1".into(), name: None, parts, error: true };
/// let failure = failure(&call, &result).expect("it failed");
/// assert_eq!((failure.exit, failure.words.as_str()), (Some(128), "fatal: not a git repository"));
/// ```
pub fn failure(call: &ToolCall, result: &ToolResult) -> Option<Failure> {
    let outcome = Outcome::of(result);
    let arguments = Arguments::of(call);
    match Kind::of(&call.name.0, &arguments) {
        Kind::Shell | Kind::Cell => of_a_command(&command(&arguments).unwrap_or_default(), &outcome),
        Kind::Running => {
            let command = outcome.command.clone().unwrap_or_default();
            outcome.failed().then(|| of_a_command(&command, &outcome))?
        }
        Kind::Script => of_a_script(arguments.free().unwrap_or_default(), &outcome),
        _ => of_a_tool(&outcome),
    }
}

/// Whether a call only looks something up: where that fails, nothing is broken.
pub(crate) fn looks_up(call: &ToolCall) -> bool {
    let arguments = Arguments::of(call);
    match Kind::of(&call.name.0, &arguments) {
        Kind::Read | Kind::Search => true,
        Kind::Shell => shell::nature(&command(&arguments).unwrap_or_default()).0.output == Output::Content,
        _ => false,
    }
}

/// What a command line runs, by which two of its runs are the same.
pub(crate) fn run_kinds(command: &str) -> Vec<String> {
    shell::kinds(command)
}

fn of_a_tool(outcome: &Outcome<'_>) -> Option<Failure> {
    let failed = outcome.failed() || errors::tells_of(outcome);
    failed.then(|| Failure { exit: outcome.exit, words: errors::of_a_tool(&outcome.body) })
}

fn of_a_command(command: &str, outcome: &Outcome<'_>) -> Option<Failure> {
    let typed = || by_an_action(command, Some(outcome)).is_some();
    if outcome.end == End::Refused || errors::tells_of(outcome) && typed() {
        return of_a_tool(outcome);
    }
    let (nature, programs) = shell::nature(command);
    let failure = |words| Failure { exit: outcome.exit, words };
    if outcome.failed() {
        let nothing = outcome.exit == Some(1)
            && nature.one == One::Nothing
            && !errors::complains(&outcome.body, &programs);
        let content = nature.output == Output::Content;
        return (!nothing).then(|| failure(errors::of_a_failure(&outcome.body, &programs, content)));
    }
    // A zero that tells of every command, or content that may hold anything, leaves nothing to look for.
    let clear = outcome.exit == Some(0) && nature.zero == Zero::Success;
    if clear || nature.output == Output::Content || typed() {
        return None;
    }
    errors::of_a_report(&outcome.body, &programs).map(failure)
}

/// A script's output is that of the commands it runs, if it runs one.
fn of_a_script(text: &str, outcome: &Outcome<'_>) -> Option<Failure> {
    let made: Vec<ToolCall> = script::calls(text).into_iter().filter_map(call).collect();
    match made.as_slice() {
        [only] => {
            let arguments = Arguments::of(only);
            match Kind::of(&only.name.0, &arguments) {
                Kind::Shell => of_a_command(&command(&arguments).unwrap_or_default(), outcome),
                Kind::Running => outcome.failed().then(|| of_a_command("", outcome))?,
                _ => of_a_tool(outcome),
            }
        }
        _ => outcome.failed().then(|| of_a_tool(outcome))?,
    }
}
