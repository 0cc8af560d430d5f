//! Tools that read and change files by name: editors and patches of every agent.

use super::{
    FileChange, ToolEffect, arguments::CallArguments, call_output::CallOutput, patch, shell,
    tool_kind::ToolKind,
};

/// What agents call the argument that names a file.
const PATHS: [&str; 9] = [
    "filepath",
    "path",
    "absolutepath",
    "notebookpath",
    "targetfile",
    "filename",
    "file",
    "relativepath",
    "uri",
];

/// What agents call a list of files.
const LISTS: [&str; 6] = ["paths", "files", "filepaths", "include", "edits", "changes"];

/// Files that were read.
pub(super) fn read_effects(arguments: &CallArguments<'_>) -> Vec<ToolEffect> {
    let part = arguments.figures();
    paths(arguments).into_iter().map(|path| ToolEffect::Read { path, part: part.clone() }).collect()
}

/// Files that were changed.
pub(super) fn change_effects(kind: ToolKind, arguments: &CallArguments<'_>) -> Vec<ToolEffect> {
    if arguments.is_true("dryrun") {
        return Vec::new();
    }
    let how = match kind {
        ToolKind::Delete => FileChange::Deleted,
        ToolKind::Write => FileChange::Written,
        _ => FileChange::Edited,
    };
    paths(arguments).into_iter().map(|path| ToolEffect::Changed { path, how }).collect()
}

/// Files that a patch changed.
pub(super) fn patch_effects(
    arguments: &CallArguments<'_>,
    outcome: Option<&CallOutput<'_>>,
) -> Vec<ToolEffect> {
    let given = arguments.free().map(str::to_owned);
    let text = given.or_else(|| arguments.long(&["input", "patch", "patchtext", "diff", "content"]));
    let failed = outcome.filter(|outcome| outcome.is_tool_failure());
    let mut changes = patch::patch_file_effects(&text.unwrap_or_default(), failed);
    changes.retain(|effect| effect.path().is_some_and(|path| file(path).is_some()));
    // A patch of one file may leave the naming to an argument.
    if changes.is_empty() && failed.is_none() {
        return change_effects(ToolKind::Edit, arguments);
    }
    changes
}

fn paths(arguments: &CallArguments<'_>) -> Vec<String> {
    let one = arguments.short(&PATHS).map(|path| vec![path]);
    let named = one.unwrap_or_else(|| arguments.list(&LISTS, &PATHS));
    named.iter().filter_map(|path| file(path)).collect()
}

/// A path as it is told: without what leads nowhere. What is not on this machine's disk, or is a pattern, is no file.
fn file(path: &str) -> Option<String> {
    let path = path.trim();
    let path = path.strip_prefix("file://").unwrap_or(path);
    (!path.is_empty() && !path.contains("://") && !path.contains('*')).then(|| shell::join(None, path))
}
