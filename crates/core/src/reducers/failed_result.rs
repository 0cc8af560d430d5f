//! Failure of a call, as far as its result shows it.
//!
//! Some providers mark a result as an error, others leave it to the words, so that a line in its place would hide that
//! anything went wrong. Agents begin or end the output of a command with how it ended; that is looked for there, at the
//! beginning of a line, and nowhere else.

use crate::{
    context::Segment,
    event::ContentPart,
    reducers::fetch_subject::{FetchKind, FetchSubject},
};

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedResult {
    /// Exit code of the command, if the result has it.
    pub(super) exit: Option<i64>,
}

impl FailedResult {
    /// Failure of a segment's call; `None` if it did not fail, or this is unknown.
    pub(crate) fn of(segment: &Segment) -> Option<Self> {
        let call = segment.call()?;
        let exit = || exit_code(segment).filter(|code| *code != 0);
        if segment.is_error() {
            return Some(Self { exit: exit() });
        }
        let is_command = FetchSubject::of(call).is_some_and(|fetched| fetched.kind == FetchKind::Command);
        exit().filter(|_| is_command).map(|code| Self { exit: Some(code) })
    }
}

/// Beginnings of lines that report how a command ended.
const ENDED: &[&str] = &[
    "exit code",
    "exit status",
    "process exited with code",
    "command exited with code",
    "command finished with exit code",
    "command failed with exit code",
    "returncode",
];

/// Number of bytes that are looked at, at each end of an output.
const WINDOW: usize = 300;

fn exit_code(segment: &Segment) -> Option<i64> {
    segment.original().find_map(|(part, _)| match part {
        ContentPart::Text { text } => said_in(text),
        _ => None,
    })
}

fn said_in(text: &str) -> Option<i64> {
    let head = &text[..text.floor_char_boundary(WINDOW)];
    let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(WINDOW))..];
    if text.trim_start().starts_with('{') {
        let field = |window: &str| number(window.split_once("\"exit_code\":")?.1);
        return field(tail).or_else(|| field(head));
    }
    head.lines().chain(tail.lines()).find_map(said_by)
}

fn said_by(line: &str) -> Option<i64> {
    let line = line.trim_start_matches(|letter: char| letter.is_whitespace() || "[<(".contains(letter));
    let begins = |phrase: &&&str| {
        line.get(..phrase.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(phrase))
    };
    let phrase = ENDED.iter().find(begins)?;
    number(&line[phrase.len()..])
}

/// The number at the beginning of a text, after the characters that join it to its name.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_start_matches([' ', ':', '=', '>']);
    let end =
        text.char_indices().find(|(at, letter)| !(letter.is_ascii_digit() || *at == 0 && *letter == '-'));
    text[..end.map_or(text.len(), |(at, _)| at)].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::context;

    #[test]
    fn the_words_of_many_agents_are_understood() {
        for (text, expect) in [
            ("Exit code 1\nerror: no such file", Some(1)),
            ("Exit code: 0\nWall time: 1 s", Some(0)),
            ("Chunk ID: 7\nProcess exited with code 101\nOutput:\n", Some(101)),
            ("a\nb\n\nCommand exited with code 2", Some(2)),
            ("a\n[Command finished with exit code -1]", Some(-1)),
            ("<returncode>3</returncode>\n<output>", Some(3)),
            (r#"{"output":"x","metadata":{"exit_code":4,"duration_seconds":0.1}}"#, Some(4)),
            ("it says: exit code 1", None),
            ("exit code unknown", None),
            ("ünïcödé", None),
            ("", None),
        ] {
            assert_eq!(said_in(text), expect, "{text}");
        }
        let long = format!("{}\nExit code 1\n{}", "é".repeat(400), "é".repeat(400));
        assert_eq!(said_in(&long), None, "the middle of an output is not looked at");
    }

    #[test]
    fn an_unmarked_failure_is_believed_of_commands_only() {
        let failed = |call: &str, result: &str| {
            let log = format!("assistant:\n  call {call}\n  {result}\n");
            FailedResult::of(&context(&log).segments()[0])
        };
        let bash = r#"bash {"command":"make"}"#;
        let read = r#"read {"path":"a"}"#;
        assert_eq!(failed(bash, "-> Exit code 2"), Some(FailedResult { exit: Some(2) }));
        assert_eq!(failed(bash, "-> Exit code 0"), None);
        assert_eq!(failed(bash, "!> no such thing"), Some(FailedResult { exit: None }));
        assert_eq!(failed(read, "-> Exit code 2"), None);
        assert_eq!(failed(read, "!> Exit code 2"), Some(FailedResult { exit: Some(2) }));
    }
}
