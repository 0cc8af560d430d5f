//! What calls are about: by which a failure and a later success are found to belong together.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::{files::plain_path, prose::one_line, tools::Deed};
use crate::event::ToolCall;

/// How long the name of what a call is about may be.
pub(super) const SUBJECT: usize = 120;

/// What a call was about, in words that stay the same: a command, or the tool and its target.
pub(crate) fn subject(call: &ToolCall, done: &[Deed]) -> String {
    let command = done.iter().find_map(|deed| match deed {
        Deed::Ran { command, .. } => Some(command),
        _ => None,
    });
    if let Some(command) = command {
        return format!("`{}`", one_line(command, SUBJECT));
    }
    let path = done.iter().find_map(|deed| match deed {
        Deed::Read { path, .. } | Deed::Changed { path, .. } => Some(plain_path(path)),
        _ => None,
    });
    let target = path.or_else(|| target(call));
    let name = one_line(&call.name.0, 60);
    target.map_or_else(|| name.clone(), |target| format!("{name} {}", one_line(&target, SUBJECT)))
}

/// The first short text among a call's arguments that names something.
fn target(call: &ToolCall) -> Option<String> {
    const NAMES: [&str; 14] = [
        "file_path",
        "path",
        "filePath",
        "filename",
        "file",
        "absolute_path",
        "notebook_path",
        "command",
        "cmd",
        "query",
        "pattern",
        "url",
        "id",
        "name",
    ];
    let Ok(Value::Object(arguments)) = serde_json::from_str::<Value>(&call.arguments) else { return None };
    NAMES.iter().find_map(|name| arguments.get(*name).and_then(Value::as_str)).map(plain_path)
}

/// The files that a command sets back to what was committed last, as it names them; `.` for all.
pub(super) fn restored(command: &str) -> Vec<String> {
    let Some(at) = command.find("git ") else { return Vec::new() };
    let mut words = command[at + 4..].split_whitespace();
    let verb = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.take_while(|word| !matches!(*word, "&&" | ";" | "|" | "||")).collect();
    let kept = rest.iter().any(|word| matches!(*word, "-b" | "--staged"));
    if !matches!(verb, "checkout" | "restore") || kept {
        return Vec::new();
    }
    rest.iter().filter(|word| !word.starts_with('-')).map(|word| (*word).to_owned()).collect()
}

/// Whether a name on a command line means a file.
pub(crate) fn is_same_file(path: &str, name: &str) -> bool {
    let (path, name) = (path.trim_start_matches("./"), name.trim_start_matches("./"));
    let tail = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|head| head.ends_with('/'));
    !name.is_empty() && (path == name || tail(path, name) || tail(name, path))
}

/// What a call replaces by what, as digests: enough to see that a later call does the opposite.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    pub(super) old: u64,
    pub(super) new: u64,
    /// The beginning of what is replaced.
    pub(super) replaced: String,
}

/// What a call replaces in a file.
pub(super) fn replacements(call: &ToolCall) -> Vec<Replacement> {
    const MOST: usize = 64;
    const NAMES: [(&str, &str); 6] = [
        ("old_string", "new_string"),
        ("old_str", "new_str"),
        ("oldString", "newString"),
        ("oldText", "newText"),
        ("old_text", "new_text"),
        ("search", "replace"),
    ];
    let Ok(Value::Object(arguments)) = serde_json::from_str::<Value>(&call.arguments) else {
        return Vec::new();
    };
    let nested =
        arguments.get("edits").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    let mut found = Vec::new();
    for fields in std::iter::once(&arguments).chain(nested).take(MOST) {
        for (old, new) in NAMES {
            let texts = (fields.get(old).and_then(Value::as_str), fields.get(new).and_then(Value::as_str));
            if let (Some(old), Some(new)) = texts
                && !old.trim().is_empty()
                && !new.trim().is_empty()
            {
                let replaced = one_line(old, 60);
                found.push(Replacement { old: digest(old), new: digest(new), replaced });
            }
        }
    }
    found
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_changes_back_says_of_what() {
        let check = |command: &str, expect: &[&str]| assert_eq!(restored(command), expect, "{command}");
        check("git checkout -- a.rs && make", &["a.rs"]);
        check("git restore .", &["."]);
        check("git stash", &[]);
        check("git checkout -b topic", &[]);
        check("git restore --staged a.rs", &[]);
        check("git status", &[]);
        assert!(is_same_file("/repo/src/a.rs", "src/a.rs") && !is_same_file("src/aa.rs", "a.rs"));
    }
}
