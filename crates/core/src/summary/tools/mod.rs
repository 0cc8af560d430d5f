//! What a call of a tool did, whichever agent's tool it is, and the words in which it failed.
//!
//! Everything is told from the call and its result alone. A call that failed changed nothing; one that nobody answered
//! is taken at its word, since a change that may have happened is worth more than one that is missed. What a program
//! or an inline script writes without naming it on its command line is out of reach.

mod arguments;
mod call_output;
mod codex_script;
mod edit_notes;
mod error_lines;
mod file_tools;
mod patch;
mod plan_steps;
mod shell;
#[cfg(test)]
mod tests;
mod tool_failure;
mod tool_kind;

use serde::{Deserialize, Serialize};

pub use self::tool_failure::{ToolFailure, failure};
use self::{
    arguments::CallArguments,
    call_output::{CallOutput, CallStatus},
    tool_kind::ToolKind,
};
pub(crate) use self::{
    edit_notes::{EditNote, edit_notes},
    shell::{run_kinds, shows_content},
    tool_failure::{is_lookup, is_marked_failure},
    tool_kind::name_words,
};
use crate::event::{ToolCall, ToolResult};

/// What a call did, as its result confirms it.
///
/// ```
/// use epitome_core::{event::ToolCall, summary::tools::{FileChange, ToolEffect, effects}};
///
/// let call = ToolCall::function("1", "Bash", r#"{"command": "sed -i 's/a/b/' src/lib.rs"}"#);
/// let changed = ToolEffect::Changed { path: "src/lib.rs".to_owned(), how: FileChange::Edited };
/// assert!(effects(&call, None).contains(&changed));
/// ```
pub fn effects(call: &ToolCall, result: Option<&ToolResult>) -> Vec<ToolEffect> {
    let outcome = result.map(CallOutput::of);
    let mut told: Vec<ToolEffect> = Vec::new();
    for effect in done(call, outcome.as_ref()) {
        let is_named = effect.path().is_none_or(|path| (1..=LONGEST_PATH).contains(&path.len()));
        // A script may say the same thing many times, of the same file.
        if is_named && told.len() < MOST && !told.contains(&effect) {
            told.push(effect);
        }
    }
    told
}

/// What a tool wrote, without what its agent wraps it in.
pub(crate) fn output_of(result: &ToolResult) -> String {
    CallOutput::of(result).body.into_owned()
}

/// Something a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEffect {
    /// It read a file.
    Read {
        /// The file.
        path: String,
        /// The figures that say which part of it, as they were given; empty if all.
        part: String,
    },
    /// It changed a file.
    Changed {
        /// The file.
        path: String,
        /// How.
        how: FileChange,
    },
    /// It ran a command.
    Ran {
        /// The command line.
        command: String,
        /// How it ended, where that can be told.
        exit: Option<i64>,
    },
    /// It looked for something.
    Searched,
    /// It wrote down what is to be done: the whole plan, in place of what was planned before.
    Planned {
        /// The steps, in order.
        steps: Vec<TodoItem>,
    },
    /// It wrote down one step of a plan that is kept step by step, or how far one is.
    Stepped {
        /// The agent's name for the step.
        id: Option<String>,
        /// What is to be done, where it says so.
        text: Option<String>,
        /// How far it is, where it says so.
        state: Option<TodoState>,
    },
}

impl ToolEffect {
    /// The file that was read or changed.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Read { path, .. } | Self::Changed { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// How a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is new, or was written as a whole.
    Written,
    /// A part of it was changed.
    Edited,
    /// It is gone.
    Deleted,
    /// It has another name now; the path is the new one.
    Moved,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TodoItem {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub state: TodoState,
}

/// How far a step of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TodoState {
    /// Not begun.
    Open,
    /// Being worked on.
    Active,
    /// Done.
    Done,
    /// Given up.
    Dropped,
}

/// The most effects of one call.
const MOST: usize = 256;

/// The longest text that can be a path, and the longest command that is told whole.
const LONGEST_PATH: usize = 1024;
const LONGEST_COMMAND: usize = 2048;

fn done(call: &ToolCall, outcome: Option<&CallOutput<'_>>) -> Vec<ToolEffect> {
    let arguments = CallArguments::of(call);
    match ToolKind::of(&call.name.0, &arguments) {
        ToolKind::Shell => ran(&arguments, outcome),
        ToolKind::Script => scripted(&arguments, outcome),
        ToolKind::Patch => file_tools::patch_effects(&arguments, outcome),
        _ if outcome.is_some_and(CallOutput::is_tool_failure) => Vec::new(),
        ToolKind::Read => file_tools::read_effects(&arguments),
        kind @ (ToolKind::Write | ToolKind::Edit | ToolKind::Delete) => {
            file_tools::change_effects(kind, &arguments)
        }
        ToolKind::Plan => plan_steps::plan_effect(&arguments).into_iter().collect(),
        ToolKind::Step => plan_steps::step_effects(&arguments, outcome),
        ToolKind::Search => vec![ToolEffect::Searched],
        ToolKind::Running | ToolKind::Other => Vec::new(),
    }
}

/// The command line that a call runs.
fn command(arguments: &CallArguments<'_>) -> Option<String> {
    const NAMES: [&str; 7] = ["command", "cmd", "script", "commands", "commandline", "code", "action"];
    let words = || {
        let words: Vec<String> = arguments.elements(&NAMES).into_iter().filter_map(arguments::text).collect();
        match words.as_slice() {
            // A shell that is given a script runs the script.
            [shell, option, script] if shell.ends_with("sh") && option.ends_with('c') => script.clone(),
            words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        }
    };
    let given = arguments.free().map(str::to_owned).or_else(|| arguments.long(&NAMES));
    Some(given.unwrap_or_else(words)).filter(|command| !command.trim().is_empty())
}

/// A word as a shell would read it back.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn ran(arguments: &CallArguments<'_>, outcome: Option<&CallOutput<'_>>) -> Vec<ToolEffect> {
    let Some(command) = command(arguments) else { return Vec::new() };
    if outcome.is_some_and(|outcome| outcome.end == CallStatus::Refused) {
        return Vec::new();
    }
    let folder = arguments.short(&["workdir", "cwd", "directory", "workingdirectory"]);
    let exit = outcome.and_then(|outcome| outcome.exit);
    let ran = ToolEffect::Ran { command: cut(command.trim(), LONGEST_COMMAND), exit };
    std::iter::once(ran)
        .chain(shell::effects(shell::MAX_SHELL_DEPTH, &command, folder.as_deref(), outcome))
        .collect()
}

fn scripted(arguments: &CallArguments<'_>, outcome: Option<&CallOutput<'_>>) -> Vec<ToolEffect> {
    let made = codex_script::calls(arguments.free().unwrap_or_default());
    // One exit code cannot be told of several commands.
    let alone = made.len() == 1;
    let effects = made.iter().flat_map(|call| done(call, outcome)).map(|effect| match effect {
        ToolEffect::Ran { command, exit } => ToolEffect::Ran { command, exit: exit.filter(|_| alone) },
        effect => effect,
    });
    effects.take(MOST).collect()
}

/// The beginning of a text, at most so many bytes of it.
fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
