//! The source of the crates without tests, line by line, as `scripts/measure-names` reads it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::harness::workspace;

/// A file of a crate's source.
pub(super) struct SourceFile {
    /// Its path below `crates`.
    pub(super) path: PathBuf,
    /// Its lines, those of tests left out.
    pub(super) lines: Vec<String>,
}

/// Folders that hold no source of a crate itself.
const NO_SOURCE: [&str; 3] = ["tests", "examples", "benches"];

/// Every file of source, in the order of their paths.
pub(super) fn source_files() -> Vec<SourceFile> {
    let root = workspace().join("crates");
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.is_dir() && !NO_SOURCE.contains(&stem) {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(stem) {
                let text = fs::read_to_string(&path).expect("UTF-8");
                let path = path.strip_prefix(&root).map(Path::to_owned).expect("below the root");
                files.push(SourceFile { path, lines: without_tests(&text) });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn is_test(stem: &str) -> bool {
    matches!(stem, "tests" | "test" | "build") || stem.ends_with("_tests")
}

/// The lines of a file but for the items below `#[cfg(test)]`.
fn without_tests(text: &str) -> Vec<String> {
    let mut kept = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push(line.to_owned());
            continue;
        }
        let mut depth = 0_usize;
        for line in lines.by_ref() {
            let code = code_of(line);
            let is_open = depth > 0 || code.contains('{');
            depth = (depth + code.matches('{').count()).saturating_sub(code.matches('}').count());
            if depth == 0 && (is_open || code.trim_end().ends_with(';')) {
                break;
            }
        }
    }
    kept
}

/// A line without its comment, its strings and its letters in quotes.
pub(super) fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.len(),
            '"' => closing_quote(rest),
            '\'' if rest.starts_with("'\\") => 4.min(rest.len()),
            '\'' if rest.chars().nth(2) == Some('\'') => rest.chars().take(3).map(char::len_utf8).sum(),
            _ => {
                code.push(first);
                first.len_utf8()
            }
        };
        rest = rest.get(skipped..).unwrap_or_default();
    }
    code
}

/// The bytes up to and with the quote that ends a string; all of them, if none does on this line.
fn closing_quote(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}
