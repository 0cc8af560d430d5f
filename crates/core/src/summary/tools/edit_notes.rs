//! What a change did to a file, in a few words: the lines that it touched, and the first of its new ones.
//!
//! Lines are told where the call or its result numbers them: a hunk of a unified diff, or the excerpt that a tool shows of
//! what it edited. Elsewhere the new text has to say it alone.

use std::collections::HashSet;

use super::{
    arguments::CallArguments,
    call_output::CallOutput,
    patch::{hunk_lines, name},
};
use crate::{
    draft_gate::holds_secret,
    event::{ToolCall, ToolResult},
    summary::sentences::one_line,
};

/// How long the words of a note may be, in characters.
const PHRASE: usize = 60;

/// Words that are shorter say nothing of a change.
const SHORTEST_PHRASE: usize = 6;

/// The most changes that are looked at in one call.
const MOST: usize = 64;

/// The most lines of an excerpt that are looked at.
const MOST_LINES: usize = 2_000;

/// The largest texts that are read for a note: a file that was written whole is only counted.
const LARGEST: usize = 256 * 1024;

/// A change of a part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EditNote {
    /// The file, where the change names it itself, as a hunk of a patch does.
    pub(crate) path: Option<String>,
    /// The first and the last of the new lines, where they are numbered.
    pub(crate) lines: Option<(u64, u64)>,
    /// The beginning of the first new line, or of what was taken out.
    pub(crate) phrase: String,
}

impl EditNote {
    /// The note in words; `None` if it would say nothing.
    pub(crate) fn words(&self) -> Option<String> {
        let lines = self.lines.map(|(first, last)| {
            if first == last { format!("line {first}") } else { format!("lines {first}-{last}") }
        });
        match (lines, self.phrase.as_str()) {
            (None, "") => None,
            (Some(lines), "") => Some(lines),
            (None, phrase) => Some(phrase.to_owned()),
            (Some(lines), phrase) => Some(format!("{lines} {phrase}")),
        }
    }
}

/// The changes that a call made, in order; empty if nothing tells them.
pub(crate) fn edit_notes(call: &ToolCall, result: Option<&ToolResult>) -> Vec<EditNote> {
    let arguments = CallArguments::of(call);
    if call.arguments.len() > LARGEST {
        return Vec::new();
    }
    let given = arguments.free().map(str::to_owned);
    let given = given.or_else(|| arguments.long(&["input", "patch", "patchtext", "diff", "command", "cmd"]));
    let is_patch = |text: &String| text.contains("*** Begin Patch") || text.starts_with("--- ");
    if let Some(patch) = given.filter(is_patch) {
        return patch_notes(&patch);
    }
    let shown = result.map(CallOutput::of);
    let excerpt = shown.as_ref().map(|shown| numbered_lines(&shown.body)).unwrap_or_default();
    let edits = arguments.elements(&["edits", "changes"]);
    let nested =
        edits.into_iter().take(MOST).filter_map(|edit| replaced(&CallArguments::within(edit), &excerpt));
    let mut notes: Vec<EditNote> = nested.collect();
    if notes.is_empty() {
        notes.extend(replaced(&arguments, &excerpt));
    }
    if let ([only], Some(shown)) = (notes.as_mut_slice(), shown.as_ref())
        && only.lines.is_none()
    {
        // A tool may answer with the difference that it made.
        only.lines = shown.body.lines().find_map(hunk_lines);
    }
    notes
}

/// The note of an old text and a new one that take each other's place.
fn replaced(arguments: &CallArguments<'_>, excerpt: &[(u64, &str)]) -> Option<EditNote> {
    let new = arguments.starting_with(&["new", "replace"]);
    let old = arguments.starting_with(&["old", "search"]);
    if let (Some(old), Some(new)) = (&old, &new) {
        let lines = place_of(new, excerpt);
        return Some(EditNote { path: None, lines, phrase: difference(old, new) });
    }
    let content = arguments.long(&["content", "filetext", "contents", "newcontents"])?;
    Some(EditNote { path: None, lines: None, phrase: line_count(content.lines().count()) })
}

fn line_count(lines: usize) -> String {
    // A single line says no more than that the file was written.
    if lines > 1 { format!("{lines} lines") } else { String::new() }
}

/// The first line that a change brings, or else the first that it takes out.
fn difference(old: &str, new: &str) -> String {
    let first_without = |text: &str, other: &str| {
        let known: HashSet<&str> = other.lines().map(str::trim).collect();
        text.lines().map(str::trim).find(|line| !known.contains(line) && is_telling(line)).map(str::to_owned)
    };
    match (first_without(new, old), first_without(old, new)) {
        (Some(line), _) => quoted(&line),
        (None, Some(line)) => {
            let line = quoted(&line);
            if line.is_empty() { line } else { format!("without {line}") }
        }
        (None, None) => String::new(),
    }
}

/// Whether a line says something: more than a bracket or a short word. One that names another file would read as if that
/// had been changed.
fn is_telling(line: &str) -> bool {
    line.chars().filter(|letter| letter.is_alphanumeric()).count() >= SHORTEST_PHRASE && !names_file(line)
}

/// Whether a path to a file stands in a line.
fn names_file(line: &str) -> bool {
    let is_around = |letter: char| letter.is_whitespace() || "\"'`()[]{}<>,;=".contains(letter);
    line.split(is_around).any(|word| {
        let name = word.rsplit_once('/').map_or("", |(_, name)| name);
        name.split_once('.').is_some_and(|(stem, kind)| !stem.is_empty() && !kind.is_empty())
    })
}

/// A line as a quotation; empty if it holds a secret.
fn quoted(line: &str) -> String {
    if holds_secret(line) { String::new() } else { format!("`{}`", one_line(line, PHRASE).replace('`', "'")) }
}

/// The lines of an excerpt, where each begins with its number: `   12→text`, `12<tab>text`.
fn numbered_lines(body: &str) -> Vec<(u64, &str)> {
    let numbered = body.lines().filter_map(|line| {
        let line = line.trim_start();
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let text = line[digits..].strip_prefix(['→', '\t'])?;
        Some((line[..digits].parse().ok()?, text))
    });
    numbered.take(MOST_LINES).collect()
}

/// Where a new text stands in an excerpt.
fn place_of(new: &str, excerpt: &[(u64, &str)]) -> Option<(u64, u64)> {
    let wanted: Vec<&str> = new.lines().collect();
    if wanted.is_empty() || wanted.len() > excerpt.len() {
        return None;
    }
    let found = excerpt.windows(wanted.len()).find(|shown| {
        shown.iter().zip(&wanted).all(|((_, text), wanted)| text.trim_end() == wanted.trim_end())
    })?;
    Some((found.first()?.0, found.last()?.0))
}

/// The hunks of a patch, Codex's or a unified diff.
fn patch_notes(text: &str) -> Vec<EditNote> {
    const FILES: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Move to: ", "+++ "];
    let mut notes: Vec<EditNote> = Vec::new();
    let mut path: Option<String> = None;
    // Whether the first new line of the newest note is still to come.
    let mut is_open = false;
    for line in text.lines() {
        if let Some(named) = FILES.iter().find_map(|mark| line.strip_prefix(mark)) {
            path = Some(name(named).to_owned());
            is_open = line.starts_with("*** Add File: ");
            if is_open {
                notes.push(EditNote { path: path.clone(), ..EditNote::default() });
            }
        } else if let Some(heading) = line.strip_prefix("@@") {
            // Codex writes what the hunk stands in, a diff where it stands.
            let heading = heading.trim();
            let is_name = !heading.starts_with('-') && is_telling(heading);
            let phrase = if is_name { quoted(heading) } else { String::new() };
            notes.push(EditNote { path: path.clone(), lines: hunk_lines(line), phrase });
            is_open = true;
        } else if let (true, Some(added)) = (is_open, line.strip_prefix('+').filter(|line| is_telling(line)))
            && let Some(note) = notes.last_mut()
        {
            note.phrase = quoted(added.trim());
            is_open = false;
        }
        if notes.len() == MOST {
            break;
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CallForm, ContentPart};

    /// The notes of a call with its result, each as its file and its words.
    fn check(call: &ToolCall, result: &str, expect: &[&str]) {
        let parts = vec![ContentPart::text(result)];
        let result = ToolResult { call: call.id.clone(), name: None, parts, error: false };
        let told: Vec<String> = edit_notes(call, Some(&result))
            .iter()
            .map(|note| {
                let words = note.words().unwrap_or_default();
                note.path.as_ref().map_or_else(|| words.clone(), |path| format!("{path}: {words}"))
            })
            .collect();
        assert_eq!(told, expect, "{}", call.arguments);
    }

    #[expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]
    fn call(name: &str, arguments: serde_json::Value) -> ToolCall {
        ToolCall::function("c", name, arguments.to_string())
    }

    #[test]
    fn an_edit_is_told_by_its_first_new_line_and_by_lines_where_the_result_numbers_them() {
        let edit = call(
            "Edit",
            serde_json::json!({"file_path": "src/auth.rs", "old_string": "fn check() {\n}",
                "new_string": "fn check() {\n    verify_token();\n}"}),
        );
        check(&edit, "The file was updated.", &["`verify_token();`"]);
        let excerpt = "    49→use std::fs;\n    50→fn check() {\n    51→    verify_token();\n    52→}\n";
        check(&edit, excerpt, &["lines 50-52 `verify_token();`"]);
        check(&edit, "@@ -50,2 +50,3 @@\n fn check() {", &["lines 50-52 `verify_token();`"]);
        let removed = call(
            "Edit",
            serde_json::json!({"path": "a", "old_text": "a line that goes\nx", "new_text": "x"}),
        );
        check(&removed, "", &["without `a line that goes`"]);
        let several = call(
            "multi_edit",
            serde_json::json!({"path": "a", "edits": [
                {"oldText": "one", "newText": "the first change"}, {"oldText": "two", "newText": "the second change"}]}),
        );
        check(&several, "", &["`the first change`", "`the second change`"]);
        check(&call("Write", serde_json::json!({"path": "a", "content": "one\ntwo\n"})), "", &["2 lines"]);
    }

    #[test]
    fn a_patch_is_told_by_its_hunks() {
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@ fn main() {\n-old();\n+new_function();\n\
                     *** Add File: docs/b.md\n+# A new page\n*** End Patch";
        let custom = ToolCall { form: CallForm::Custom, ..ToolCall::function("c", "apply_patch", patch) };
        check(&custom, "", &["src/a.rs: `new_function();`", "docs/b.md: `# A new page`"]);
        let diff = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,3 @@\n one\n+a line that is new\n two\n@@ -9 +10 @@\n-x\n+y\n";
        check(
            &call("apply_patch", serde_json::json!({"patch": diff})),
            "",
            &["src/a.rs: lines 1-3 `a line that is new`", "src/a.rs: line 10"],
        );
    }

    #[test]
    fn secrets_and_what_says_nothing_are_left_out() {
        let secret = "let key = \"sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\";";
        check(
            &call("Edit", serde_json::json!({"path": "a", "old_string": "x", "new_string": secret})),
            "",
            &[""],
        );
        check(
            &call("Edit", serde_json::json!({"path": "a", "old_string": "a", "new_string": "b"})),
            "",
            &[""],
        );
        let file = "table = read('data/raw/2023.csv')";
        check(
            &call("Edit", serde_json::json!({"path": "a", "old_string": "x", "new_string": file})),
            "",
            &[""],
        );
        check(&call("Edit", serde_json::json!({"path": "a"})), "", &[]);
        check(&call("bash", serde_json::json!({"command": "sed -i s/a/b/ x"})), "", &[]);
    }

    #[test]
    fn huge_and_hostile_calls_are_gone_through_once() {
        let lines = "a\n".repeat(60_000);
        let edit = call("Edit", serde_json::json!({"path": "a", "old_string": "", "new_string": lines}));
        let excerpt = "1→a\n".repeat(60_000);
        check(&edit, &excerpt, &[""]);
        let hunks = format!(
            "*** Begin Patch\n*** Update File: a\n{}",
            "@@ -1 +99999999999999999999,2 @@\n".repeat(5_000)
        );
        let custom = ToolCall { form: CallForm::Custom, ..ToolCall::function("c", "apply_patch", hunks) };
        assert_eq!(edit_notes(&custom, None).len(), MOST);
    }
}
