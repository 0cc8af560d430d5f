//! What came back from a call, without what each agent wraps it in.
//!
//! Every agent tells a command's exit code in its own words, before or after the output. Only the lines at both ends
//! are looked at: in between stands what the command wrote, which may say anything.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::RawValue;

use crate::event::{Part, ToolResult};

/// What came back from a call.
#[derive(Clone, Debug)]
pub(super) struct Outcome<'a> {
    /// The exit code, where it is told.
    pub(super) exit: Option<i64>,
    /// What the tool wrote.
    pub(super) body: Cow<'a, str>,
    /// The command that the result says it is about.
    pub(super) command: Option<String>,
    /// How it went.
    pub(super) end: End,
}

/// How a call went, as far as its result says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It is not said to have failed.
    Fine,
    /// The tool failed.
    Failed,
    /// It was never run: someone refused it, or it could not be.
    Refused,
}

/// How many lines at either end may belong to the wrapping.
const WRAPPING: usize = 8;

impl<'a> Outcome<'a> {
    /// What a result says.
    pub(super) fn of(result: &'a ToolResult) -> Self {
        let mut outcome = Self { exit: None, body: text(result), command: None, end: End::Fine };
        // A wrapping may hold another one: a script's output is a command's, told as JSON.
        for _ in 0..3 {
            let Some(inner) = outcome.unwrapped() else { break };
            outcome.body = inner;
        }
        let refused = REFUSED.iter().any(|words| outcome.body.trim_start().starts_with(words));
        outcome.end = match outcome.exit {
            _ if refused && outcome.exit.is_none() => End::Refused,
            Some(0) | None if !result.error => End::Fine,
            _ => End::Failed,
        };
        outcome
    }

    /// Takes one wrapping off and notes what it says.
    fn unwrapped(&mut self) -> Option<Cow<'a, str>> {
        let body = std::mem::take(&mut self.body);
        let (inner, said) = match json(&body).or_else(|| framed(&body)).or_else(|| trailed(&body)) {
            Some((inner, said)) => (Some(inner), said),
            None => (None, Said::default()),
        };
        self.exit = said.exit.or(self.exit);
        self.command = said.command.or(self.command.take());
        let inner = inner.map(|inner| match inner {
            Inner::Own(text) => Cow::Owned(text),
            Inner::Part(from, to) => match &body {
                Cow::Borrowed(text) => Cow::Borrowed(&text[from..to]),
                Cow::Owned(text) => Cow::Owned(text[from..to].to_owned()),
            },
        });
        self.body = body;
        inner
    }

    /// Whether the call failed or was never run.
    pub(super) fn failed(&self) -> bool {
        self.end != End::Fine
    }

    /// The output's lines, without the blanks at their ends.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.body.lines().map(str::trim_end)
    }
}

/// How a result begins that stands for a call which was never run.
const REFUSED: &[&str] = &[
    "The user doesn't want to",
    "User rejected",
    "[Request interrupted by user",
    "<tool_use_error>",
    "Permission to use",
    "Permission for this tool use was denied",
    "rejected by user",
    "exec command rejected by user",
    "patch rejected by user",
    "Tool execution was cancelled",
    "The user rejected permission",
];

#[derive(Default)]
struct Said {
    exit: Option<i64>,
    command: Option<String>,
}

enum Inner {
    /// A stretch of the text, from and to.
    Part(usize, usize),
    /// Other text.
    Own(String),
}

type Unwrapped = Option<(Inner, Said)>;

fn text(result: &ToolResult) -> Cow<'_, str> {
    let mut texts = result.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    let mut whole = Cow::Borrowed(first);
    for text in texts {
        let whole = whole.to_mut();
        if !whole.ends_with('\n') {
            whole.push('\n');
        }
        whole.push_str(text);
    }
    whole
}

/// `{"output": …, "metadata": {"exit_code": …}}`, and what else tools call these.
fn json(body: &str) -> Unwrapped {
    type Object<'j> = BTreeMap<Cow<'j, str>, &'j RawValue>;
    let trimmed = body.trim();
    if !(trimmed.starts_with('{') && trimmed.ends_with('}')) {
        return None;
    }
    let object: Object<'_> = serde_json::from_str(trimmed).ok()?;
    let text = |name: &str| {
        let text: Option<String> = serde_json::from_str(object.get(name)?.get()).ok();
        text.filter(|text| !text.is_empty())
    };
    let number = |object: &Object<'_>| {
        let names = ["exit_code", "exitCode", "returncode", "return_code"];
        names.iter().find_map(|name| serde_json::from_str(object.get(*name)?.get()).ok())
    };
    let within: Option<Object<'_>> =
        object.get("metadata").and_then(|metadata| serde_json::from_str(metadata.get()).ok());
    let exit = number(&object).or_else(|| within.as_ref().and_then(number));
    let output: Vec<String> = ["output", "stdout", "stderr"].iter().filter_map(|name| text(name)).collect();
    if exit.is_none() && !object.contains_key("output") {
        return None;
    }
    Some((Inner::Own(output.join("\n")), Said { exit, command: None }))
}

/// Lines before the output: Codex's, Claude Code's, Gemini's, and those of others that resemble them.
fn framed(body: &str) -> Unwrapped {
    let (mut said, mut at, mut known) = (Said::default(), 0, false);
    for line in body.split_inclusive('\n').take(WRAPPING) {
        let bare = line.trim_end();
        if let Some(rest) = bare.strip_prefix("Output:") {
            let start = if rest.is_empty() { at + line.len() } else { at + "Output:".len() };
            return known.then(|| (Inner::Part(start, frame_end(body, start, &mut said)), said));
        }
        let exit = exit_code(bare);
        said.exit = exit.or(said.exit);
        if let Some(command) = bare.strip_prefix("Command: ") {
            said.command = Some(command.to_owned());
        }
        if exit.is_none() && !FRAME.iter().any(|start| bare.starts_with(start)) {
            break;
        }
        known = true;
        at += line.len();
    }
    // Claude Code writes nothing but the code before the output.
    (said.exit.is_some()).then_some((Inner::Part(at, body.len()), said))
}

const FRAME: &[&str] = &[
    "Command: ",
    "Chunk ID: ",
    "Wall time",
    "Process running with",
    "Original token count: ",
    "Total output lines: ",
    "Script completed",
    "Script running",
    "Script failed",
    "Directory: ",
    "Session ID: ",
];

/// Where the output ends that Gemini frames, with its exit code after it.
fn frame_end(body: &str, start: usize, said: &mut Said) -> usize {
    let rest = &body[start..];
    if said.command.is_none() {
        return body.len();
    }
    let mut end = body.len();
    let mut at = body.len();
    for line in rest.split_inclusive('\n').rev().take(WRAPPING) {
        at -= line.len();
        let bare = line.trim_end();
        let own = ["Error: (none)", "Signal: ", "Background PIDs: ", "Process Group PGID: "];
        let exit = exit_code(bare);
        said.exit = said.exit.or(exit);
        if exit.is_some() || own.iter().any(|start| bare.starts_with(start)) {
            end = at;
        } else if !bare.is_empty() {
            break;
        }
    }
    end.max(start)
}

/// Lines after the output: pi's, OpenHands', and those of others that resemble them.
fn trailed(body: &str) -> Unwrapped {
    let mut at = body.len();
    for line in body.split_inclusive('\n').rev().take(WRAPPING) {
        at -= line.len();
        let bare = line.trim();
        if let Some(exit) = exit_code(bare) {
            return Some((Inner::Part(0, at), Said { exit: Some(exit), command: None }));
        }
        if !(bare.is_empty() || bare.starts_with('[') || bare.starts_with('(') || bare.starts_with('<')) {
            break;
        }
    }
    None
}

/// The exit code that a line of a wrapping tells.
fn exit_code(line: &str) -> Option<i64> {
    const STARTS: &[&str] = &[
        "Exit code: ",
        "Exit code ",
        "Exit Code: ",
        "exit code: ",
        "Process exited with code ",
        "Command exited with code ",
        "Command failed with exit code ",
        "[The command completed with exit code ",
        "[Command finished with exit code ",
        "[exit code: ",
        "(exit code ",
        "<returncode>",
    ];
    let rest = STARTS.iter().find_map(|start| line.strip_prefix(start))?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(rest.len());
    // Nothing but the end of a sentence or a tag may follow, or the line is the command's own.
    let after = &rest[digits..];
    (after.len() <= "</returncode>".len()).then(|| rest[..digits].parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, exit: Option<i64>, body: &str) {
        let result = ToolResult { call: "c".into(), name: None, parts: vec![Part::text(text)], error: false };
        let outcome = Outcome::of(&result);
        assert_eq!((outcome.exit, outcome.body.trim_end()), (exit, body), "{text}");
    }

    #[test]
    fn every_agents_wrapping_comes_off() {
        check("Exit code 128\nfatal: no", Some(128), "fatal: no");
        check("Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code 1\nOutput:\nno", Some(1), "no");
        check("Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.\n", Some(0), "Success.");
        check(r#"{"output":"a\nb","metadata":{"exit_code":2}}"#, Some(2), "a\nb");
        check(
            "Script completed\nWall time 1 seconds\nOutput:\n{\"exit_code\":3,\"output\":\"x\"}",
            Some(3),
            "x",
        );
        check("no\n\n\nCommand exited with code 1", Some(1), "no");
        check("no\n[The command completed with exit code 2.]\n[Current directory: /a]", Some(2), "no");
        check("<returncode>1</returncode>\n<output>\nno</output>", Some(1), "<output>\nno</output>");
        check(
            "Command: ls\nDirectory: (root)\nOutput: (empty)\nError: (none)\nExit Code: 1\nSignal: 0",
            Some(1),
            " (empty)",
        );
        check(
            "Command: ls\nDirectory: (root)\nOutput: a\nError: bad\nExit Code: 1",
            Some(1),
            " a\nError: bad",
        );
    }

    #[test]
    fn what_a_command_wrote_is_left_alone() {
        check("Output:\nx", None, "Output:\nx");
        check("a\nexit code: 7\nb\nc", None, "a\nexit code: 7\nb\nc");
        check("{\"a\": 1}", None, "{\"a\": 1}");
        check(
            "Exit code 3 is what the manual calls a failure",
            None,
            "Exit code 3 is what the manual calls a failure",
        );
        check("", None, "");
    }
}
