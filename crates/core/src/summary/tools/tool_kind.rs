//! What kind of tool a name stands for.
//!
//! Tools have no common names, but their names are made of few words: `read_file`, `ReadFile` and
//! `mcp__fs__read_text_file` all say "read". A word decides only together with arguments that fit it, so that
//! `create_issue` is not taken for a file's creation.

use super::arguments::CallArguments;

/// What kind of tool was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// Reads a file.
    Read,
    /// Writes a whole file.
    Write,
    /// Changes a part of a file.
    Edit,
    /// Removes a file.
    Delete,
    /// Applies a patch that names its files.
    Patch,
    /// Looks for something.
    Search,
    /// Runs a command line.
    Shell,
    /// Looks after a command that is already running.
    Running,
    /// Runs a script which calls other tools.
    Script,
    /// Writes down a whole plan.
    Plan,
    /// Writes down or moves one step of a plan.
    Step,
    /// Anything else.
    Other,
}

/// The words that decide, the strongest first: `search_replace` edits, `find_file` searches, `run_tests` runs.
const WORDS: &[(ToolKind, &[&str])] = &[
    (ToolKind::Plan, &["todo", "todos", "todowrite", "plan"]),
    (ToolKind::Delete, &["delete", "remove", "unlink"]),
    (ToolKind::Patch, &["patch", "applypatch"]),
    (
        ToolKind::Edit,
        &["edit", "editor", "multiedit", "replace", "insert", "append", "update", "modify", "diff"],
    ),
    (ToolKind::Write, &["write", "create", "save", "overwrite"]),
    (ToolKind::Search, &["grep", "glob", "find", "search"]),
    (ToolKind::Shell, &["bash", "shell", "exec", "execute", "run", "command", "terminal", "python"]),
    (ToolKind::Read, &["read", "view", "open", "cat", "show", "get"]),
];

impl ToolKind {
    /// The kind of a tool of this name, called with these arguments.
    pub(super) fn of(name: &str, arguments: &CallArguments<'_>) -> Self {
        let words = name_words(own_name(name));
        let said = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
        let kind = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["write", "stdin"] | ["bash", "output"] | ["wait"] => Self::Running,
            ["exec"] if arguments.free().is_some() => Self::Script,
            ["task", "create" | "update" | "list"] => Self::Step,
            ["task", "tracker"] => Self::Plan,
            ["task" | "agent", ..] | ["exit" | "enter", "plan", ..] => Self::Other,
            _ if said(&["directory", "directories", "folder", "dir"]) => Self::Other,
            _ => WORDS.iter().find(|(_, known)| said(known)).map_or(Self::Other, |(kind, _)| *kind),
        };
        kind.told_by(arguments)
    }

    /// Some tools view and edit alike, and say which in an argument.
    fn told_by(self, arguments: &CallArguments<'_>) -> Self {
        if !matches!(self, Self::Edit | Self::Write | Self::Read | Self::Other) {
            return self;
        }
        match arguments.short(&["command"]).as_deref() {
            Some("view" | "read") => Self::Read,
            Some("create" | "write") => Self::Write,
            Some("str_replace" | "insert" | "undo_edit" | "replace") => Self::Edit,
            Some("delete") => Self::Delete,
            _ => self,
        }
    }
}

/// A name without the server or the group it belongs to.
fn own_name(name: &str) -> &str {
    let name = name.rsplit_once("__").map_or(name, |(_, own)| own);
    let own = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    if own.is_empty() { name } else { own }
}

/// The lower-case words of a name, whichever way they are joined.
pub(crate) fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for letter in name.chars().take(128) {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && lower) {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ToolCall;

    fn check(kind: ToolKind, names: &[&str]) {
        for name in names {
            let call = ToolCall::function("c", *name, "{}");
            assert_eq!(ToolKind::of(name, &CallArguments::of(&call)), kind, "{name}");
        }
    }

    #[test]
    fn names_of_many_agents_are_understood() {
        check(
            ToolKind::Read,
            &["Read", "read_file", "mcp__fs__read_text_file", "open", "fs.read_file", "view_image"],
        );
        check(ToolKind::Write, &["Write", "write_file", "create", "write_to_file", "create_file"]);
        check(
            ToolKind::Edit,
            &[
                "Edit",
                "MultiEdit",
                "NotebookEdit",
                "replace",
                "str_replace_editor",
                "edit_file",
                "search_replace",
            ],
        );
        check(
            ToolKind::Edit,
            &["str_replace_based_edit_tool", "apply_diff", "insert_content", "replace_in_file"],
        );
        check(ToolKind::Patch, &["apply_patch", "patch"]);
        check(ToolKind::Delete, &["delete_file", "mcp__fs__remove_file"]);
        check(ToolKind::Search, &["Grep", "Glob", "find_file", "codebase_search", "search_file_content"]);
        check(
            ToolKind::Shell,
            &[
                "Bash",
                "shell",
                "exec_command",
                "local_shell",
                "run_shell_command",
                "execute_bash",
                "run_terminal_cmd",
            ],
        );
        check(ToolKind::Shell, &["developer__shell", "container.exec", "functions.exec_command"]);
        check(ToolKind::Plan, &["TodoWrite", "todowrite", "update_plan", "write_todos", "task_tracker"]);
        check(ToolKind::Running, &["write_stdin", "BashOutput", "wait"]);
        check(
            ToolKind::Other,
            &["Task", "Agent", "ExitPlanMode", "list_directory", "create_directory", "cancel_order", ""],
        );
    }

    #[test]
    fn an_editor_says_in_an_argument_what_it_does() {
        for (command, kind) in
            [("view", ToolKind::Read), ("create", ToolKind::Write), ("insert", ToolKind::Edit)]
        {
            let call = ToolCall::function("c", "t", format!(r#"{{"command": "{command}"}}"#));
            assert_eq!(ToolKind::of("str_replace_editor", &CallArguments::of(&call)), kind);
            assert_eq!(ToolKind::of("developer__text_editor", &CallArguments::of(&call)), kind);
        }
    }
}
