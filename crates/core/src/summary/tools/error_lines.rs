//! The lines in which a tool says what went wrong, verbatim.
//!
//! A line complains for sure if it names an error before a colon, or ends a test or a program as failed. Of a command that
//! failed, lines that point at a place in a file count too, then whatever has a word of trouble, then its last words.

use super::cut;

/// The most bytes of an error that are told.
pub(super) const MAX_ERROR_BYTES: usize = 400;

/// The most lines that are told.
const MOST: usize = 6;

/// How many lines are told of an output that does not say what went wrong.
const LAST: usize = 3;

/// The words of an error in the output of a command that failed, by its programs. Of content only what a program says in
/// its own name is sure.
pub(super) fn failure_lines(body: &str, programs: &[String], is_content: bool) -> String {
    let is_own = |line: &str| is_own(line, programs);
    let ranks: [&dyn Fn(&str) -> bool; 4] = [
        &|line| !is_echo(line) && (is_own(line) || !is_content && (is_sure(line) || is_placed(line))),
        &|line| is_sure(line) && !is_echo(line),
        &|line| has_trouble(line) && !is_echo(line),
        &has_trouble,
    ];
    let told = ranks.into_iter().map(|rank| found(body, rank)).find(|lines| !lines.is_empty());
    joined(&told.unwrap_or_else(|| {
        let lines: Vec<&str> = lines(body).collect();
        lines[lines.len().saturating_sub(LAST)..].to_vec()
    }))
}

/// The words of an error in the output of a command whose exit code says nothing: only those that leave no doubt.
pub(super) fn report_lines(body: &str, programs: &[String]) -> Option<String> {
    let lines = found(body, &|line: &str| is_own(line, programs) || is_sure(line));
    (!lines.is_empty()).then(|| joined(&lines))
}

/// Whether a program of a command complained under its own name.
pub(super) fn has_program_error(body: &str, programs: &[String]) -> bool {
    lines(body).any(|line| is_own(line, programs))
}

/// Whether a result is an error although nothing marks it as one: a short one that begins so, or `{"error": "…"}`.
pub(super) fn is_unmarked_error(body: &str) -> bool {
    const SHORT: usize = 1_000;
    let body = body.trim_start();
    let first = body.lines().next().unwrap_or_default();
    let is_object = || {
        let value: Option<serde_json::Value> = serde_json::from_str(body).ok();
        value.is_some_and(|value| value["error"].as_str().is_some_and(|error| !error.is_empty()))
    };
    let begins = first.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    let refused = first.to_ascii_lowercase().contains("not applied") || first.contains("verification failed");
    body.len() <= SHORT && (begins || refused || body.starts_with('{') && is_object())
}

/// The words of a tool that is no command: its first line that says something, and what that announces.
pub(super) fn tool_error_lines(body: &str) -> String {
    let body = body.trim().trim_start_matches("<tool_use_error>").trim_end_matches("</tool_use_error>");
    let mut lines = lines(body);
    let mut told: Vec<&str> = lines.next().into_iter().collect();
    while told.len() < MOST
        && let Some(next) = told.last().filter(|line| line.ends_with(':')).and_then(|_| lines.next())
    {
        told.push(next);
    }
    joined(&told)
}

/// The lines of an output that say something. What matters stands at a line's beginning; the rest of a long one may be
/// anything.
fn lines(body: &str) -> impl Iterator<Item = &str> {
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| &line[..line.floor_char_boundary(MAX_ERROR_BYTES)])
}

/// The first lines of a rank, each once. One that ends in a colon announces the next, and a bare error the next paragraph.
fn found<'b>(body: &'b str, rank: &dyn Fn(&str) -> bool) -> Vec<&'b str> {
    let mut found: Vec<&str> = Vec::new();
    let mut before = "";
    let mut is_behind_blank = false;
    for line in body.lines().map(str::trim) {
        let line = &line[..line.floor_char_boundary(MAX_ERROR_BYTES)];
        let is_details = before.starts_with("Error: ") && is_behind_blank && !line.starts_with("at ");
        let is_told = rank(line) || before.ends_with(':') || is_details;
        is_behind_blank = line.is_empty();
        if is_behind_blank {
            continue;
        }
        if is_told && found.len() < MOST && !found.contains(&line) {
            found.push(line);
        }
        before = if rank(line) { line } else { "" };
    }
    found
}

/// A program, or the shell, that complains under its own name.
fn is_own(line: &str, programs: &[String]) -> bool {
    let Some((name, rest)) = line.split_once(": ") else { return false };
    let shell = ["bash", "sh", "zsh"].contains(&name.rsplit('/').next().unwrap_or(name));
    shell || programs.iter().any(|program| program == name) && has_trouble(rest)
}

/// What compilers, test runners and runtimes write when something is wrong: `error[E1]: x`, `a.c:1: fatal error: x`,
/// `ValueError: x`, `FAILED x`, `panicked at x`.
fn is_sure(line: &str) -> bool {
    const STARTS: [&str; 6] = ["FAIL", "--- FAIL", "E   ", "npm ERR", "npm error", "panic"];
    const PARTS: &str = " panicked at |... FAILED|: command not found|[rejected]|: error TS|  error  | DATA RACE|Failure in test";
    let is_error = |name: &str| {
        let own = name.rsplit(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or(name);
        let whole =
            ["error", "fatal", "panic", "exception"].iter().any(|word| own.eq_ignore_ascii_case(word));
        whole || own.ends_with("Error") || own.ends_with("Exception")
    };
    // Code that speaks of errors is none: a method is called, and a viewer numbers its lines.
    let is_method = |before: &str| before.trim_end_matches(char::is_alphanumeric).ends_with('.');
    let number = line.split_once('|').map_or("", |(number, _)| number.trim());
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let named = line.match_indices([':', '[', '(']).any(|(at, mark)| {
        let (before, after) = (&line[..at], &line[at + mark.len()..]);
        let nothing = [" none", " (none)", ""].contains(&after) && !before.contains('.');
        is_error(before.trim_end()) && !nothing && !(mark == "(" && is_method(before))
    });
    named
        || STARTS.iter().any(|start| line.starts_with(start))
        || PARTS.split('|').any(|part| line.contains(part))
        || !line.contains(' ') && is_error(line) && line.len() > 9
}

/// A line that only says that something before it failed.
fn is_echo(line: &str) -> bool {
    const STARTS: &str = "make: ***|make[|npm ERR! code|npm error code|npm error path|npm error command|error: could not compile|\
        error: test failed|FAIL\t|ERR_PNPM_|exit status |test result: FAILED";
    line == "FAIL" || STARTS.split('|').any(|start| line.starts_with(start))
}

/// A place in a file with something said about it: `src/a.go:4:2: undefined: b`.
fn is_placed(line: &str) -> bool {
    let mut fields = line.splitn(3, ':');
    let (file, number) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        && file.contains('.')
        && !file.contains(' ')
        && fields.next().is_some_and(|rest| !rest.is_empty())
}

/// Whether a line has a word of trouble.
fn has_trouble(line: &str) -> bool {
    const WORDS: &str = "error|fail|cannot|can't|could not|not found|no such|denied|undefined|invalid|timed out|unable|refused|\
        unexpected|unknown|not a ";
    let lower = line.to_ascii_lowercase();
    WORDS.split('|').any(|word| lower.contains(word))
}

/// Lines, as many as fit; the first one is cut if it must be.
fn joined(lines: &[&str]) -> String {
    let mut words = String::new();
    for line in lines {
        if !words.is_empty() && words.len() + 1 + line.len() > MAX_ERROR_BYTES {
            break;
        }
        if !words.is_empty() {
            words.push('\n');
        }
        words.push_str(&cut(line, MAX_ERROR_BYTES));
    }
    words
}
