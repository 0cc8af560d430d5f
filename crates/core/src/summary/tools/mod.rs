//! What a call of a tool did, whichever agent's tool it is, and the words in which it failed.
//!
//! Everything is told from the call and its result alone. A call that failed changed nothing; one that nobody answered
//! is taken at its word, since a change that may have happened is worth more than one that is missed. What a program
//! or an inline script writes without naming it on its command line is out of reach.

mod arguments;
mod edits;
mod errors;
mod failures;
mod lines;
mod name;
mod outcome;
mod patch;
mod plan;
mod script;
mod shell;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::event::{CallForm, ToolCall, ToolResult};

use self::{
    arguments::Arguments,
    name::Kind,
    outcome::{End, Outcome},
    script::{Given, Made},
};

pub use failures::{Failure, failure};
pub(crate) use failures::{looks_up, run_kinds};

/// What a call did, as its result confirms it.
///
/// ```
/// use epitome_core::{event::ToolCall, summary::tools::{Change, Deed, deeds}};
///
/// let call = ToolCall::function("1", "Bash", r#"{"command": "sed -i 's/a/b/' src/lib.rs"}"#);
/// let changed = Deed::Changed { path: "src/lib.rs".to_owned(), how: Change::Edited, lines: Vec::new() };
/// assert!(deeds(&call, None).contains(&changed));
/// ```
pub fn deeds(call: &ToolCall, result: Option<&ToolResult>) -> Vec<Deed> {
    let outcome = result.map(Outcome::of);
    let mut told: Vec<Deed> = Vec::new();
    for deed in done(call, outcome.as_ref()) {
        let named = match &deed {
            Deed::Read { path, .. } | Deed::Changed { path, .. } => {
                !path.is_empty() && path.len() <= LONGEST_PATH
            }
            Deed::Ran { .. } | Deed::Searched { .. } | Deed::Planned { .. } | Deed::Stepped { .. } => true,
        };
        // A script may say the same thing many times, of the same file.
        if named && told.len() < MOST && !told.contains(&deed) {
            told.push(deed);
        }
    }
    told
}

/// What a tool wrote, without what its agent wraps it in.
pub(crate) fn output_of(result: &ToolResult) -> String {
    Outcome::of(result).body.into_owned()
}

/// Something a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It read a file.
    Read {
        /// The file.
        path: String,
        /// Which lines, from and to, if not all.
        lines: Option<(u64, u64)>,
    },
    /// It changed a file.
    Changed {
        /// The file.
        path: String,
        /// How.
        how: Change,
        /// Which lines of it, where that can be told: each run from and to.
        lines: Vec<(u64, u64)>,
    },
    /// It ran a command.
    Ran {
        /// The command line.
        command: String,
        /// How it ended, where that can be told.
        exit: Option<i64>,
    },
    /// It looked for something.
    Searched {
        /// For what.
        what: String,
    },
    /// It wrote down what is to be done: the whole plan, in place of what was planned before.
    Planned {
        /// The steps, in order.
        steps: Vec<Todo>,
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

/// How a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
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
pub struct Todo {
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

/// The most deeds of one call.
const MOST: usize = 256;

/// The longest text that can be a path, and the longest command and pattern that are told whole.
const LONGEST_PATH: usize = 1024;
const LONGEST_COMMAND: usize = 2048;
const LONGEST_PATTERN: usize = 512;

fn done(call: &ToolCall, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let arguments = Arguments::of(call);
    let failed = outcome.is_some_and(Outcome::failed);
    match Kind::of(&call.name.0, &arguments) {
        Kind::Shell => ran(&arguments, outcome),
        Kind::Running => finished(outcome),
        Kind::Script => scripted(&arguments, outcome),
        Kind::Cell => edits::in_a_cell(&arguments, outcome),
        Kind::Patch => edits::patched(&arguments, outcome),
        _ if failed || outcome.is_some_and(errors::tells_of) => Vec::new(),
        Kind::Read => edits::read(&arguments, outcome),
        kind @ (Kind::Write | Kind::Edit | Kind::Delete | Kind::Move | Kind::Copy) => {
            edits::changed(kind, &arguments, outcome)
        }
        Kind::Search => searched(&arguments),
        Kind::Plan => plan::planned(&arguments),
        Kind::Step => plan::stepped(&arguments, outcome),
        Kind::Other => Vec::new(),
    }
}

/// The command line that a call runs.
fn command(arguments: &Arguments<'_>) -> Option<String> {
    const NAMES: &[&str] = &["command", "cmd", "script", "commands", "commandline", "code", "action"];
    let words = |words: Vec<String>| match words.as_slice() {
        // A shell that is given a script runs the script.
        [shell, option, script]
            if option.starts_with('-') && option.ends_with('c') && shell.ends_with("sh") =>
        {
            script.clone()
        }
        _ => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let given = arguments.free().map(str::to_owned).or_else(|| arguments.long(NAMES));
    let given = given.or_else(|| arguments.words(NAMES).map(words)).or_else(|| {
        // The Responses API's own shell keeps the words one level deeper.
        let action = ToolCall::function("", "", arguments.raw("action")?);
        Arguments::of(&action).words(&["command", "commands"]).map(words)
    })?;
    (!given.trim().is_empty()).then_some(given)
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

fn ran(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let Some(command) = command(arguments) else { return Vec::new() };
    if outcome.is_some_and(|outcome| outcome.end == End::Refused) {
        return Vec::new();
    }
    if let Some(deeds) = edits::by_an_action(&command, outcome) {
        return deeds;
    }
    let folder = arguments.short(&["workdir", "cwd", "directory", "workingdirectory", "dirpath"]);
    let mut deeds = vec![Deed::Ran {
        command: cut(command.trim(), LONGEST_COMMAND),
        exit: outcome.and_then(|it| it.exit),
    }];
    deeds.extend(shell::deeds(&command, folder.as_deref(), outcome).into_iter().map(shortened));
    deeds
}

/// A command that was already running, where its result says which and how it ended.
fn finished(outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let ended = outcome.and_then(|outcome| Some((outcome.command.as_deref()?, outcome.exit?)));
    ended
        .map(|(command, exit)| Deed::Ran { command: cut(command, LONGEST_COMMAND), exit: Some(exit) })
        .into_iter()
        .collect()
}

fn scripted(arguments: &Arguments<'_>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let made = script::calls(arguments.free().unwrap_or_default());
    // One exit code cannot be told of several commands.
    let alone = made.len() == 1;
    let deeds =
        made.into_iter().filter_map(call).flat_map(|call| done(&call, outcome)).map(|deed| match deed {
            Deed::Ran { command, exit } => Deed::Ran { command, exit: exit.filter(|_| alone) },
            deed => deed,
        });
    deeds.take(MOST).collect()
}

/// A call that a script makes, as the model would have made it. A script does not run scripts.
fn call(made: Made) -> Option<ToolCall> {
    let (arguments, form) = match made.given {
        Given::Text(text) => (text, CallForm::Custom),
        Given::Named(named) => (serde_json::to_string(&named).ok()?, CallForm::Function),
        Given::Nothing => return None,
    };
    let call = ToolCall { form, ..ToolCall::function("", made.name, arguments) };
    (call.name.0 != "exec").then_some(call)
}

fn searched(arguments: &Arguments<'_>) -> Vec<Deed> {
    const NAMES: &[&str] =
        &["pattern", "query", "regex", "searchterm", "search", "filename", "glob", "q", "name"];
    let what = arguments.short(NAMES);
    what.map(|what| shortened(Deed::Searched { what })).into_iter().collect()
}

fn shortened(deed: Deed) -> Deed {
    match deed {
        Deed::Searched { what } => Deed::Searched { what: cut(what.trim(), LONGEST_PATTERN) },
        deed => deed,
    }
}

/// The beginning of a text, at most so many bytes of it.
fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}
