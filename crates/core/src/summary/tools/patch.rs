//! What a patch changes: Codex's `*** Begin Patch`, and unified diffs.
//!
//! A patch's own lines may look like headers, so a hunk is read by the lengths that it announces.

use super::{Change, lines};

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) path: String,
    pub(super) how: Change,
    pub(super) lines: Vec<(u64, u64)>,
}

/// The files that a patch of either kind changes.
pub(super) fn changes(patch: &str) -> Vec<Changed> {
    match patch.find("*** Begin Patch") {
        Some(start) => envelope(&patch[start..]),
        None => unified(patch),
    }
}

/// The files that `apply_patch` says it changed, where it lists them.
pub(super) fn applied(output: &str) -> Option<Vec<Changed>> {
    let start = output.find("Updated the following files:")?;
    let listed = output[start..].lines().skip(1).map_while(|line| {
        let (letter, path) = line.trim_end().split_once(' ')?;
        let how = match letter {
            "A" => Change::Written,
            "M" => Change::Edited,
            "D" => Change::Deleted,
            _ => return None,
        };
        Some(Changed { path: path.to_owned(), how, lines: Vec::new() })
    });
    Some(listed.take(MOST).collect())
}

/// The most files that are told of one patch.
const MOST: usize = 256;

fn envelope(patch: &str) -> Vec<Changed> {
    let mut changes: Vec<Changed> = Vec::new();
    for line in patch.lines().map(str::trim_end) {
        let Some(header) = line.strip_prefix("*** ") else { continue };
        if header == "End Patch" || changes.len() >= MOST {
            break;
        }
        if let Some(to) = header.strip_prefix("Move to: ") {
            // The file is known under its old name: that one is gone.
            if let Some(last) = changes.last_mut() {
                last.how = Change::Deleted;
            }
            changes.push(Changed { path: to.to_owned(), how: Change::Moved, lines: Vec::new() });
            continue;
        }
        let known = [("Add", Change::Written), ("Update", Change::Edited), ("Delete", Change::Deleted)];
        let named = known
            .iter()
            .find_map(|(verb, how)| Some((header.strip_prefix(verb)?.strip_prefix(" File: ")?, *how)));
        if let Some((path, how)) = named {
            changes.push(Changed { path: path.trim().to_owned(), how, lines: Vec::new() });
        }
    }
    changes
}

/// The files of a unified diff, git's or plain.
fn unified(diff: &str) -> Vec<Changed> {
    let mut reader = Unified::default();
    for line in diff.lines() {
        if reader.changes.len() >= MOST {
            break;
        }
        reader.take(line.trim_end_matches('\r'));
    }
    reader.changes
}

#[derive(Default)]
struct Unified {
    changes: Vec<Changed>,
    /// The name before, until the name after is known.
    before: Option<String>,
    /// How many lines the open hunk still has: of the old file and of the new.
    left: (u64, u64),
    /// The new file's next line.
    next: u64,
}

impl Unified {
    fn take(&mut self, line: &str) {
        if self.left != (0, 0) {
            return self.body(line);
        }
        if let Some(path) = line.strip_prefix("--- ") {
            self.before = Some(name(path));
        } else if let Some(path) = line.strip_prefix("+++ ") {
            self.file(&name(path));
        } else if let Some(path) = line.strip_prefix("rename from ") {
            self.push(path, Change::Deleted);
        } else if let Some(path) = line.strip_prefix("rename to ") {
            self.push(path, Change::Moved);
        } else if line.starts_with("@@ ") {
            self.hunk(line);
        }
    }

    fn file(&mut self, after: &str) {
        let Some(before) = self.before.take() else { return };
        match (before.as_str(), after) {
            ("/dev/null", "/dev/null") => {}
            ("/dev/null", path) => self.push(path, Change::Written),
            (path, "/dev/null") => self.push(path, Change::Deleted),
            // A renamed file is already told, and its hunks belong to it.
            (_, path) if self.changes.last().is_some_and(|last| last.path == path) => {}
            (_, path) => self.push(path, Change::Edited),
        }
    }

    fn push(&mut self, path: &str, how: Change) {
        self.changes.push(Changed { path: path.to_owned(), how, lines: Vec::new() });
    }

    fn hunk(&mut self, line: &str) {
        let mut ranges = line.split(' ').skip(1).take(2).map(|range| {
            let (start, length) = range.get(1..)?.split_once(',').unwrap_or((range.get(1..)?, "1"));
            Some((start.parse::<u64>().ok()?, length.parse::<u64>().ok()?))
        });
        if let (Some(Some((_, old))), Some(Some((start, new)))) = (ranges.next(), ranges.next()) {
            self.left = (old, new);
            self.next = start;
        }
    }

    fn body(&mut self, line: &str) {
        let mut touch = |line| {
            if let Some(file) = self.changes.last_mut().filter(|file| file.how != Change::Deleted) {
                lines::add(&mut file.lines, line);
            }
        };
        match line.as_bytes().first() {
            Some(b'+') => {
                touch(self.next);
                self.next = self.next.saturating_add(1);
                self.left.1 = self.left.1.saturating_sub(1);
            }
            Some(b'-') => {
                touch(self.next.max(1));
                self.left.0 = self.left.0.saturating_sub(1);
            }
            Some(b'\\') => {}
            Some(b' ') | None => {
                self.next = self.next.saturating_add(1);
                self.left = (self.left.0.saturating_sub(1), self.left.1.saturating_sub(1));
            }
            // A hunk that ends before it said it would.
            Some(_) => {
                self.left = (0, 0);
                self.take(line);
            }
        }
    }
}

/// A name in a header, without the `a/` or `b/` that git adds and the time that `diff` adds.
fn name(path: &str) -> String {
    let path = path.split('\t').next().unwrap_or(path).trim().trim_matches('"');
    path.strip_prefix("a/").or_else(|| path.strip_prefix("b/")).unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(changes: &[Changed]) -> Vec<String> {
        changes.iter().map(|file| format!("{:?} {} {:?}", file.how, file.path, file.lines)).collect()
    }

    #[test]
    fn an_envelope_names_its_files() {
        let patch = "*** Begin Patch\n*** Add File: a.rs\n+*** Delete File: no\n*** Update File: b c.rs\n\
                     *** Move to: d.rs\n@@ fn x\n-a\n+b\n*** Delete File: e.rs\n*** End Patch\n*** Add File: f\n";
        assert_eq!(
            told(&changes(patch)),
            ["Written a.rs []", "Deleted b c.rs []", "Moved d.rs []", "Deleted e.rs []"]
        );
    }

    #[test]
    fn a_diff_names_its_files_and_lines() {
        let diff = "diff --git a/x.rs b/x.rs\nindex 1..2 100644\n--- a/x.rs\n+++ b/x.rs\n@@ -10,3 +10,4 @@ fn x\n \
                    a\n--- b/no\n+++ c\n+d\n e\n@@ -30 +31,0 @@\n-gone\n--- /dev/null\n+++ b/n.rs\n@@ -0,0 +1,2 \
                    @@\n+a\n+b\n--- a/o.rs\t2020\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\
                    rename from p.rs\nrename to q.rs\n--- a/p.rs\n+++ b/q.rs\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(
            told(&changes(diff)),
            [
                "Edited x.rs [(11, 12), (31, 31)]",
                "Written n.rs [(1, 2)]",
                "Deleted o.rs []",
                "Deleted p.rs []",
                "Moved q.rs [(1, 1)]"
            ]
        );
    }

    #[test]
    fn a_broken_diff_is_read_as_far_as_it_goes() {
        assert_eq!(
            told(&changes("+++ b/x\n@@ -1,9 +1,9 @@\n+a\nnot a diff\n@@ x @@\n")),
            Vec::<String>::new()
        );
        assert_eq!(told(&changes("--- x\n+++ x\n@@ -1,99 +1,99 @@\n+a\n--- y\n")), ["Edited x [(1, 2)]"]);
    }

    #[test]
    fn what_was_applied_is_listed() {
        let listed = applied("Success. Updated the following files:\nM a b.rs\nD c\n\nDone").unwrap();
        assert_eq!(told(&listed), ["Edited a b.rs []", "Deleted c []"]);
        assert_eq!(applied("no"), None);
    }
}
