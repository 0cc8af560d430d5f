//! Files in a summary: each once, with the lines that were touched.

use super::{
    Detail, Item, Section, ledger::Ledger, prose::one_line, requests::ITEM, tools::Change, work::key,
};
use crate::seq_set::SeqSet;

/// How many runs of lines are told of a file.
const LINES: usize = 12;

/// Notes that a file was read; one that was changed is told as that.
pub(super) fn read(ledger: &mut Ledger, path: &str, lines: Option<(u64, u64)>, sources: &SeqSet) {
    let path = plain_path(path);
    let identity = key(&path);
    if path.is_empty() || ledger.get(Section::FilesModified, &identity).is_some() {
        return;
    }
    let known = match ledger.get(Section::FilesRead, &identity).map(|item| &item.detail) {
        Some(Some(Detail::File { lines, .. })) => Some(lines.clone()),
        _ => None,
    };
    // All of it, once read, says more than any part.
    let merged = match (known, lines) {
        (_, None) => Vec::new(),
        (Some(known), Some(_)) if known.is_empty() => Vec::new(),
        (Some(known), Some(new)) => merge(known, [new]),
        (None, Some(new)) => merge(Vec::new(), [new]),
    };
    let text = format!("{}{}", one_line(&path, ITEM - 100), in_lines(&merged, ": "));
    let detail = Some(Detail::File { how: Vec::new(), lines: merged });
    let sources = sources.clone();
    ledger.put(Item { section: Section::FilesRead, text, key: Some(identity), sources, detail });
}

/// Notes that a file was changed.
pub(super) fn changed(
    ledger: &mut Ledger,
    path: &str,
    new: Change,
    new_lines: &[(u64, u64)],
    sources: &SeqSet,
) {
    if path.is_empty() {
        return;
    }
    let identity = key(path);
    let mut sources = sources.clone();
    if let Some(read) = ledger.strike(Section::FilesRead, &identity) {
        sources.extend(&read.sources);
    }
    let (mut how, known) = match ledger.get(Section::FilesModified, &identity).map(|item| &item.detail) {
        Some(Some(Detail::File { how, lines })) => (how.clone(), lines.clone()),
        _ => (Vec::new(), Vec::new()),
    };
    how.retain(|known| *known != new);
    how.push(new);
    // A file written as a whole has no changed part.
    let lines = match new {
        Change::Written | Change::Deleted => Vec::new(),
        Change::Edited | Change::Moved => merge(known, new_lines.iter().copied()),
    };
    let words: Vec<&str> = how.iter().map(|how| verb(*how)).collect();
    let text = format!("{} ({}{})", one_line(path, ITEM - 100), words.join(", "), in_lines(&lines, "; "));
    let detail = Some(Detail::File { how, lines });
    ledger.put(Item { section: Section::FilesModified, text, key: Some(identity), sources, detail });
}

fn verb(how: Change) -> &'static str {
    match how {
        Change::Written => "written",
        Change::Edited => "edited",
        Change::Deleted => "deleted",
        Change::Moved => "moved here",
    }
}

/// `; lines 1-5, 9`
fn in_lines(lines: &[(u64, u64)], before: &str) -> String {
    let runs: Vec<String> = lines
        .iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
        .collect();
    if runs.is_empty() { String::new() } else { format!("{before}lines {}", runs.join(", ")) }
}

/// Runs of lines in order, those that touch joined; if they are too many, the nearest are joined too.
fn merge(known: Vec<(u64, u64)>, new: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut runs = known;
    runs.extend(new.into_iter().filter(|(from, to)| from <= to));
    runs.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in runs {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    while merged.len() > LINES {
        let gap = |at: &usize| merged[at + 1].0 - merged[*at].1;
        let Some(nearest) = (0..merged.len() - 1).min_by_key(gap) else { break };
        merged[nearest].1 = merged[nearest + 1].1;
        merged.remove(nearest + 1);
    }
    merged
}

/// A path as it is told: without what says nothing, in one line. A line break in it is written as an escape.
pub(super) fn plain_path(path: &str) -> String {
    let path = path.trim();
    let path = path.strip_prefix("./").unwrap_or(path).replace('\r', "\\r").replace('\n', "\\n");
    one_line(&path, usize::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_are_merged_and_bounded() {
        let merge =
            |known: &[(u64, u64)], new: &[(u64, u64)]| super::merge(known.to_vec(), new.iter().copied());
        assert_eq!(merge(&[(1, 5)], &[(6, 9), (20, 30)]), [(1, 9), (20, 30)]);
        assert_eq!(merge(&[], &[(9, 1)]), []);
        assert_eq!(merge(&[], &[(1, u64::MAX), (3, 4)]), [(1, u64::MAX)]);
        let many: Vec<(u64, u64)> = (0..100).map(|at| (at * 10, at * 10 + at % 3)).collect();
        assert_eq!(merge(&[], &many).len(), super::LINES);
    }
}
