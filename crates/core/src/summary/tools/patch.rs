//! The files that a patch changes: Codex's `*** Begin Patch`, and unified diffs.
//!
//! A patch's own lines may look like headers, so a hunk of a diff is read by the lengths that it announces.

use super::{FileChange, ToolEffect, call_output::CallOutput};

/// The most files that are told of one patch.
const MOST: usize = 256;

/// The files that a patch of either kind changed. Of one that failed only what its result lists was applied.
pub(super) fn patch_file_effects(patch: &str, failed: Option<&CallOutput<'_>>) -> Vec<ToolEffect> {
    let changes = match (failed, patch.find("*** Begin Patch")) {
        (Some(failed), _) => listed(&failed.body),
        (None, Some(start)) => envelope(&patch[start..]),
        (None, None) => unified(patch),
    };
    changes.into_iter().take(MOST).map(|(path, how)| ToolEffect::Changed { path, how }).collect()
}

/// The files that `apply_patch` says it changed.
fn listed(output: &str) -> Vec<(String, FileChange)> {
    let lines = output.lines().skip_while(|line| !line.contains("Updated the following files:")).skip(1);
    let listed = lines.map_while(|line| {
        let (letter, path) = line.trim_end().split_once(' ')?;
        let how = match letter {
            "A" => FileChange::Written,
            "M" => FileChange::Edited,
            "D" => FileChange::Deleted,
            _ => return None,
        };
        Some((path.to_owned(), how))
    });
    listed.collect()
}

fn envelope(text: &str) -> Vec<(String, FileChange)> {
    const HEADERS: [(&str, FileChange); 4] = [
        ("Add File: ", FileChange::Written),
        ("Update File: ", FileChange::Edited),
        ("Delete File: ", FileChange::Deleted),
        ("Move to: ", FileChange::Moved),
    ];
    let mut changes: Vec<(String, FileChange)> = Vec::new();
    let headers = text.lines().filter_map(|line| line.trim_end().strip_prefix("*** "));
    for header in headers.take_while(|header| *header != "End Patch") {
        let named = HEADERS.iter().find_map(|(mark, how)| Some((header.strip_prefix(mark)?, *how)));
        let Some((file, how)) = named else { continue };
        // A file that moves is known under its old name: that one is gone.
        if let Some((_, last)) = changes.last_mut().filter(|_| how == FileChange::Moved) {
            *last = FileChange::Deleted;
        }
        changes.push((file.trim().to_owned(), how));
    }
    changes
}

/// The files of a unified diff, git's or plain.
fn unified(diff: &str) -> Vec<(String, FileChange)> {
    let mut changes: Vec<(String, FileChange)> = Vec::new();
    let mut before = None;
    // How many lines the open hunk still has: of the old file and of the new.
    let (mut old, mut new) = (0_u64, 0_u64);
    for line in diff.lines() {
        let is_part = matches!(line.as_bytes().first(), Some(b'+' | b'-' | b' ' | b'\\') | None);
        if (old, new) != (0, 0) && is_part {
            old = old.saturating_sub(u64::from(!line.starts_with(['+', '\\'])));
            new = new.saturating_sub(u64::from(!line.starts_with(['-', '\\'])));
        } else if let Some(path) = line.strip_prefix("--- ") {
            before = Some(name(path));
        } else if let Some((path, before)) = line.strip_prefix("+++ ").zip(before.take()) {
            changes.push(match (before, name(path)) {
                ("/dev/null", path) => (path.to_owned(), FileChange::Written),
                (path, "/dev/null") => (path.to_owned(), FileChange::Deleted),
                (_, path) => (path.to_owned(), FileChange::Edited),
            });
        } else if line.starts_with("@@ ") {
            (old, new) = hunk(line).unwrap_or_default();
        }
    }
    changes
}

/// How many lines of the old and of the new file follow: `@@ -1,2 +1,3 @@`.
fn hunk(line: &str) -> Option<(u64, u64)> {
    let mut lengths = line.split(' ').skip(1).map(|range| match range.split_once(',') {
        Some((_, length)) => length.parse().ok(),
        None => Some(1),
    });
    Some((lengths.next()??, lengths.next()??))
}

/// The first and the last of the new lines of a hunk; `None` if it only takes some out, or is no hunk of a diff.
pub(super) fn hunk_lines(line: &str) -> Option<(u64, u64)> {
    let (_, new) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let new = new.split_once(" @@")?.0;
    let (start, length) = new.split_once(',').unwrap_or((new, "1"));
    let (start, length): (u64, u64) = (start.parse().ok()?, length.parse().ok()?);
    Some((start, start.checked_add(length.checked_sub(1)?)?))
}

/// A name in a header, without the `a/` or `b/` that git adds and the time that `diff` adds.
pub(super) fn name(path: &str) -> &str {
    let path = path.split('\t').next().unwrap_or(path).trim().trim_matches('"');
    path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path)
}
