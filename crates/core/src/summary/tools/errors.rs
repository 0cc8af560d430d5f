//! The lines in which a tool says what went wrong, verbatim.
//!
//! Lines are ranked: a program that complains under its own name, what compilers, test runners and runtimes are known
//! to write, what merely looks like a complaint, and what only repeats that something failed before. The best there
//! is are taken, in the order they stand. Everything is one pass over the output.

use super::{cut, outcome::Outcome};

/// The most bytes of an error that are told.
pub(super) const LONGEST: usize = 400;

/// The most lines of one rank that are told.
const MOST: usize = 6;

/// The words of an error in the output of a command that failed.
pub(super) fn of_a_failure(body: &str, programs: &[String], content: bool) -> String {
    let found = Found::of(body, programs);
    let ranks = if content {
        // Known wordings may stand in the files that were shown.
        [&found.own, &found.known, &found.likely, &found.echoes]
    } else {
        [&found.sure, &found.likely, &found.echoes, &found.echoes]
    };
    match ranks.into_iter().find(|lines| !lines.is_empty()) {
        Some(lines) => joined(lines),
        None => joined(&found.last),
    }
}

/// The words of an error in the output of a command whose exit code says nothing: only those that leave no doubt.
pub(super) fn of_a_report(body: &str, programs: &[String]) -> Option<String> {
    let found = Found::of(body, programs);
    (!found.sure.is_empty()).then(|| joined(&found.sure))
}

/// Whether a program of a command complained under its own name.
pub(super) fn complains(body: &str, programs: &[String]) -> bool {
    body.lines().any(|line| is_own(line.trim(), programs))
}

/// Whether a result is an error although nothing marks it as one.
pub(super) fn tells_of(outcome: &Outcome<'_>) -> bool {
    const ALWAYS: &[&str] = &[
        "Your proposed edit has introduced",
        "ERROR:\n",
        "<tool_use_error>",
        "apply_patch verification failed",
    ];
    const SHORT: &[&str] = &[
        "Error:",
        "Error ",
        "ERROR:",
        "error:",
        "Failed to ",
        "File not found",
        "File does not exist",
        "No replacement was performed",
        "String to replace not found",
        "Could not find ",
        "No changes ",
        "Invalid `",
        "Parameter '",
        "ENOENT",
        "EISDIR",
        "No such file",
    ];
    const REFUSED: &[&str] = &["edit was not applied", "patch was not applied", "change was not applied"];
    let body = outcome.body.trim_start();
    let first = body.lines().next().unwrap_or_default().to_ascii_lowercase();
    let refused = body.len() <= 1_000 && REFUSED.iter().any(|words| first.contains(words));
    refused
        || ALWAYS.iter().any(|start| body.starts_with(start))
        || body.len() <= 1_000 && (SHORT.iter().any(|start| body.starts_with(start)) || is_error_object(body))
}

/// `{"error": "…"}`.
fn is_error_object(body: &str) -> bool {
    let value: Option<serde_json::Value> =
        body.starts_with('{').then(|| serde_json::from_str(body).ok()).flatten();
    value.is_some_and(|value| matches!(&value["error"], serde_json::Value::String(text) if !text.is_empty()))
}

/// The words of a tool that is no command: its first line that says something, and what that announces.
pub(super) fn of_a_tool(body: &str) -> String {
    let body = body.trim().trim_start_matches("<tool_use_error>").trim_end_matches("</tool_use_error>");
    let mut told: Vec<&str> = Vec::new();
    let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty()).take(64);
    for line in lines.by_ref() {
        told.push(line);
        let announces = line.ends_with(':') || line.len() < 8;
        if !announces || told.len() >= MOST {
            break;
        }
    }
    // A linter's findings follow their own heading.
    let findings = lines.skip_while(|line| !line.starts_with("ERRORS")).skip(1);
    told.extend(findings.take_while(|line| line.starts_with("- ")).take(MOST));
    joined(&told)
}

/// The lines of each rank, as they stand.
#[derive(Default)]
struct Found<'b> {
    own: Vec<&'b str>,
    known: Vec<&'b str>,
    /// Those of both.
    sure: Vec<&'b str>,
    likely: Vec<&'b str>,
    echoes: Vec<&'b str>,
    /// The last lines, whatever they say.
    last: Vec<&'b str>,
}

/// What the line before makes of the next one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    /// A Python traceback ends with its first line that is not indented.
    Traceback,
    /// A panic's message, or a failed test's, stands on the next line.
    Heading,
    /// An error's details stand in the next paragraph.
    Summary,
    /// That paragraph begins.
    Details,
}

impl<'b> Found<'b> {
    fn of(body: &'b str, programs: &[String]) -> Self {
        let mut found = Self::default();
        let mut after = After::Nothing;
        for whole in body.lines() {
            let line = whole.trim();
            if line.is_empty() || is_prompt(line) {
                after = if after == After::Summary { After::Details } else { after };
                continue;
            }
            let rank = match after {
                After::Traceback | After::Details if !whole.starts_with([' ', '\t']) => Some(Rank::Known),
                // Other tests may report in between.
                After::Heading if !["---", "===", "FAIL"].iter().any(|start| line.starts_with(start)) => {
                    Some(Rank::Known)
                }
                _ => rank(line, programs),
            };
            after = match after {
                After::Traceback if rank.is_none() => After::Traceback,
                _ if line.starts_with("Traceback (most recent call last)") => After::Traceback,
                After::Nothing if line.starts_with("Error: ") => After::Summary,
                _ if line.starts_with("--- FAIL: ")
                    || line.contains("panicked at ") && line.ends_with(':') =>
                {
                    After::Heading
                }
                _ => After::Nothing,
            };
            found.take(line, rank);
        }
        found
    }

    fn take(&mut self, line: &'b str, rank: Option<Rank>) {
        let lists: &mut [&mut Vec<&'b str>] = match rank {
            Some(Rank::Own) => &mut [&mut self.own, &mut self.sure],
            Some(Rank::Known) => &mut [&mut self.known, &mut self.sure],
            Some(Rank::Likely) => &mut [&mut self.likely],
            Some(Rank::Echo) => &mut [&mut self.echoes],
            None => &mut [],
        };
        for list in lists {
            if list.len() < MOST && !list.contains(&line) {
                list.push(line);
            }
        }
        if self.last.len() >= 3 {
            self.last.remove(0);
        }
        self.last.push(line);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Own,
    Known,
    Likely,
    Echo,
}

fn rank(line: &str, programs: &[String]) -> Option<Rank> {
    // What matters stands at a line's beginning; the rest of a long one may be anything.
    let line = without_time(&line[..line.floor_char_boundary(500)]);
    if is_echo(line) {
        Some(Rank::Echo)
    } else if is_own(line, programs) {
        Some(Rank::Own)
    } else if is_known(line) {
        Some(Rank::Known)
    } else if is_likely(line) {
        Some(Rank::Likely)
    } else {
        None
    }
}

/// A line of a log without the time of day before it.
fn without_time(line: &str) -> &str {
    let (time, rest) = line.split_once(' ').unwrap_or((line, ""));
    let clock = time.len() >= 8 && time.bytes().all(|byte| byte.is_ascii_digit() || b":.,".contains(&byte));
    if clock && time.bytes().filter(|byte| *byte == b':').count() == 2 { rest.trim_start() } else { line }
}

/// A line that only says that something before it failed.
fn is_echo(line: &str) -> bool {
    const STARTS: &[&str] = &[
        "make: *** ",
        "make[",
        "npm ERR! code",
        "npm ERR! errno",
        "npm ERR! path",
        "npm ERR! A complete log",
        "npm error code",
        "npm error path",
        "npm error command",
        "npm error A complete log",
        "error: could not compile",
        "error: test failed",
        "error: process didn't exit",
        "error: Recipe",
        "error: script \"",
        "error Command failed",
        "FAIL\t",
        "ELIFECYCLE",
        "ERR_PNPM_",
        "exit status ",
        "test result: FAILED",
        "For more information about this error",
        "mise ERROR",
        "npm error Lifecycle",
        "npm error workspace",
        "npm error location",
        "npm error To see a list",
        "npm ERR! Lifecycle",
        "npm ERR! workspace",
        "npm ERR! location",
    ];
    line == "FAIL"
        || line == "FAILED"
        || line.starts_with('[') && line.ends_with("ERROR task failed")
        || STARTS.iter().any(|start| line.starts_with(start))
}

/// A program, or the shell, that complains under its own name.
fn is_own(line: &str, programs: &[String]) -> bool {
    const SHELLS: &[&str] = &["bash: ", "sh: ", "zsh: ", "zsh:1: ", "/bin/sh: ", "/bin/bash: ", "(eval):"];
    let named = || {
        let (name, rest) = line.split_once(": ")?;
        let known = programs.iter().any(|program| program == name);
        known.then(|| has_trouble(rest))
    };
    SHELLS.iter().any(|start| line.starts_with(start)) || named().unwrap_or(false)
}

/// What compilers, test runners, runtimes and well-known programs write when something is wrong.
fn is_known(line: &str) -> bool {
    const STARTS: &[&str] = &[
        "error: ",
        "error[",
        "Error: ",
        "Error [",
        "ERROR: ",
        "fatal: ",
        "FATAL: ",
        "FAILED ",
        "FAIL ",
        "--- FAIL: ",
        "npm ERR! ",
        "npm error ",
        "panic: ",
        "E   ",
        "Exception in thread",
        "Uncaught ",
        "Segmentation fault",
        "Caused by: ",
        "PHP Fatal error",
        "PHP Parse error",
        "[ERROR] ",
        "** (",
        "FAILURE: ",
        "Failed to compile",
        "Command timed out",
        "Permission denied",
        "! [rejected]",
        "CONFLICT (",
        "WARNING: DATA RACE",
        "Failure in ",
    ];
    const INSIDE: &[&str] = &[
        ": error: ",
        ": error[",
        ": fatal error: ",
        ": error TS",
        " - error TS",
        ": error CS",
        " panicked at ",
        ": Permission denied (",
        " compilation error: ",
        "]: Fatal error",
    ];
    let quiet = ["Error: (none)", "error: none"].contains(&line);
    !quiet
        && (STARTS.iter().any(|start| line.starts_with(start))
            || INSIDE.iter().any(|part| line.contains(part))
            || line.ends_with(": command not found")
            || line.starts_with("test ") && line.ends_with("... FAILED")
            || is_named_error(line)
            || is_go_test(line)
            || is_lint(line))
}

/// `a_test.go:12: what was wrong`, as Go's tests write before they are said to have failed.
fn is_go_test(line: &str) -> bool {
    let rest = line.split_once("_test.go:").filter(|(file, _)| !file.contains(' ')).map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split_once(": ")).map(|(number, _)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `ValueError: bad`, `java.lang.NullPointerException`, `TypeError [ERR_X]: bad`.
fn is_named_error(line: &str) -> bool {
    let end = line.find(|letter: char| !(letter.is_ascii_alphanumeric() || "._".contains(letter)));
    let name = &line[..end.unwrap_or(line.len())];
    let rest = &line[name.len()..];
    let known =
        ["Error", "Exception", "Panic"].iter().any(|kind| name.ends_with(kind) && name.len() > kind.len());
    known && (rest.is_empty() || rest.starts_with(": ") || rest.starts_with(" [") || rest == ":")
}

/// `12:5  error  what is wrong`.
fn is_lint(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let place = words.next().and_then(|place| place.split_once(':'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    place.is_some_and(|(line, column)| digits(line) && digits(column)) && words.next() == Some("error")
}

/// What looks like a complaint: a place in a file with something said about it, or a word of trouble.
fn is_likely(line: &str) -> bool {
    let placed = || {
        let mut fields = line.splitn(3, ':');
        let (file, number) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let rest = fields.next().unwrap_or_default();
        file.contains('.')
            && !file.contains(' ')
            && !number.is_empty()
            && !rest.trim().is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    placed() || has_trouble(line)
}

/// Whether a line has a word of trouble.
fn has_trouble(line: &str) -> bool {
    const WORDS: &[&str] = &[
        "error",
        "fail",
        "cannot",
        "can't",
        "could not",
        "not found",
        "no such",
        "denied",
        "undefined",
        "invalid",
        "timed out",
        "unable",
        "aborted",
        "refused",
        "exception",
        "mismatch",
        "not allowed",
        "unexpected",
        "missing",
        "unknown",
        "unrecognized",
        "illegal",
        "is a directory",
        "not a ",
        "usage:",
    ];
    let lower = line.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word))
}

/// What a shell or an agent adds at the end of an output.
fn is_prompt(line: &str) -> bool {
    [
        "bash-$",
        "(Open file: ",
        "(Current directory: ",
        "[Current working directory: ",
        "[Python Interpreter: ",
    ]
    .iter()
    .any(|start| line.starts_with(start))
}

/// Lines, as many as fit; the first one is cut if it must be.
fn joined(lines: &[&str]) -> String {
    let mut words = String::new();
    for line in lines {
        let space = usize::from(!words.is_empty());
        if words.len() + space + line.len() > LONGEST && !words.is_empty() {
            break;
        }
        if space > 0 {
            words.push('\n');
        }
        words.push_str(&cut(line, LONGEST));
    }
    words
}
