//! What a call of a tool did, whichever agent's tool it is.

use serde_json::Value;

use crate::event::{Part, ToolCall, ToolResult};

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
    /// It wrote down what is to be done.
    Planned {
        /// The steps, in order.
        steps: Vec<Todo>,
    },
}

/// How a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
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

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code, where one is told.
    pub exit: Option<i64>,
    /// The exact words.
    pub words: String,
}

/// What a call did.
pub fn deeds(call: &ToolCall, result: Option<&ToolResult>) -> Vec<Deed> {
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(&call.arguments) else { return vec![] };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let failed = result.is_some_and(|result| failure(call, result).is_some());
    let path = text("path").or_else(|| text("file_path"));
    if let Some(command) = text("command") {
        let exit = result.and_then(|result| failure(call, result)).and_then(|failed| failed.exit);
        return vec![Deed::Ran { command, exit }];
    }
    if let Some(Value::Array(todos)) = fields.get("todos") {
        let step = |todo: &Value| Todo {
            text: todo["content"].as_str().unwrap_or_default().to_owned(),
            state: match todo["status"].as_str() {
                Some("completed") => TodoState::Done,
                Some("in_progress") => TodoState::Active,
                _ => TodoState::Open,
            },
        };
        return vec![Deed::Planned { steps: todos.iter().map(step).collect() }];
    }
    match path {
        Some(_) if failed => vec![],
        Some(path) if call.name.0.to_lowercase().contains("read") => {
            let number = |name: &str| fields.get(name).and_then(Value::as_u64);
            let lines = number("offset").zip(number("limit")).map(|(from, count)| (from, from + count - 1));
            vec![Deed::Read { path, lines }]
        }
        Some(path) => vec![Deed::Changed { path, how: Change::Edited, lines: vec![] }],
        None => vec![],
    }
}

/// Why a call failed, if it did.
pub fn failure(_call: &ToolCall, result: &ToolResult) -> Option<Failure> {
    let mut words = String::new();
    result.parts.iter().for_each(|part: &Part| part.visit_text(&mut |text| words.push_str(text)));
    result.error.then_some(Failure { exit: None, words })
}
