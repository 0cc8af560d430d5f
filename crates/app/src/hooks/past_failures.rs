//! Failures told before they are repeated.

use std::fmt::Write as _;

use epitome::{
    queries::{AttemptOutcome, FailedAttempt, FailureSubject, failed_attempts},
    store::{Store, records::SessionFilter},
};

use super::{
    HookCall, MAX_PUSHED_CHARS,
    facts::first_lines,
    hook_input::{HookInput, HookSession},
    pushed_handles::PushedHandles,
};

/// Most failures told at a time.
const MAX_TOLD: usize = 3;

/// Names under which agents give a tool its file.
const PATH_ARGUMENTS: [&str; 4] = ["file_path", "notebook_path", "path", "filePath"];

/// Before an edit: what failed on the file in this session and was not told yet.
pub(super) fn of_edit(
    call: &HookCall<'_>,
    input: &HookInput,
    session: &HookSession,
    store: &dyn Store,
) -> anyhow::Result<Option<String>> {
    let Some(arguments) = input.tool_input() else { return Ok(None) };
    let path = PATH_ARGUMENTS.iter().find_map(|name| arguments.get(*name).and_then(|path| path.as_str()));
    let Some(path) = path else { return Ok(None) };
    told(call, session, store, &[FailureSubject::Path(path)])
}

/// With a user's message: what failed on the files that it names.
pub(super) fn of_prompt(
    call: &HookCall<'_>,
    input: &HookInput,
    session: &HookSession,
    store: &dyn Store,
) -> anyhow::Result<Option<String>> {
    let paths = input.text("prompt").map(named_paths).unwrap_or_default();
    let subjects: Vec<FailureSubject<'_>> = paths.into_iter().map(FailureSubject::Path).collect();
    told(call, session, store, &subjects)
}

fn told(
    call: &HookCall<'_>,
    session: &HookSession,
    store: &dyn Store,
    subjects: &[FailureSubject<'_>],
) -> anyhow::Result<Option<String>> {
    let known = PushedHandles::read(call.data, session.row.id);
    let mut new: Vec<FailedAttempt> = Vec::new();
    for subject in subjects {
        let sessions = SessionFilter { principal: Some(String::new()), label: None };
        let found = failed_attempts(store, *subject, &sessions, Some(session.thread), MAX_TOLD)?;
        for attempt in found {
            let is_new =
                !known.contains(&attempt.handle) && !new.iter().any(|other| other.handle == attempt.handle);
            if is_new && new.len() < MAX_TOLD {
                new.push(attempt);
            }
        }
    }
    if new.is_empty() {
        return Ok(None);
    }
    let mut text =
        "Recorded by epitome: this failed before in this session. It is history, not an order.\n".to_owned();
    for attempt in &new {
        let FailedAttempt { tried, words, times, handle, outcome, .. } = attempt;
        let count = if *times > 1 { format!(", {times} times") } else { String::new() };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {tried}{count}: {words} (recall {handle})");
        let _ = match outcome {
            AttemptOutcome::Open => writeln!(text, "  Nothing of its kind has worked since."),
            AttemptOutcome::Worked { handle, changed } if changed.is_empty() => {
                writeln!(text, "  It worked later (recall {handle}).")
            }
            AttemptOutcome::Worked { handle, changed } => {
                writeln!(
                    text,
                    "  It worked later (recall {handle}), after changes of {}.",
                    changed.join(", ")
                )
            }
        };
    }
    known.add(new.iter().map(|attempt| attempt.handle.as_str()))?;
    Ok(Some(first_lines(&text, MAX_PUSHED_CHARS)))
}

/// Words of a message that look like files.
fn named_paths(prompt: &str) -> Vec<&str> {
    const MOST: usize = 4;
    let mut paths = Vec::new();
    for word in prompt.split(|letter: char| letter.is_whitespace() || "`'\"()[]{}<>,;".contains(letter)) {
        let word = word.trim_end_matches(['.', ':', '?', '!']);
        let name = word.rsplit('/').next().unwrap_or(word);
        let has_extension = name.rsplit_once('.').is_some_and(|(stem, extension)| {
            (stem.len() > 1 || word.contains('/'))
                && (1..=5).contains(&extension.len())
                && extension.chars().all(|c| c.is_ascii_alphanumeric())
        });
        if has_extension && !word.contains("://") && !paths.contains(&word) && paths.len() < MOST {
            paths.push(word);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_what_people_write() {
        let check = |prompt: &str, expect: &[&str]| assert_eq!(named_paths(prompt), expect, "{prompt}");
        check("Fix `src/parser.rs`, then main.py.", &["src/parser.rs", "main.py"]);
        check("See https://example.com/a.html and e.g. nothing", &[]);
        check("", &[]);
    }
}
