//! What a command line did, read without running it.
//!
//! [`parser`] takes the line apart, [`programs`] knows which programs read and change the files they are given, and
//! [`files`] goes through the commands with both. What a
//! program writes of its own accord (a build, an inline Python script, a formatter over a folder) names no file on the
//! command line, so it is out of reach here and is not guessed at.

mod files;
mod options;
mod parser;
mod place;
mod programs;
mod syntax;

pub(super) use place::join;

use self::{
    files::Effects,
    syntax::{Join, Place, Script, Stream, Word},
};
use super::{Deed, outcome::Outcome};

/// What a command line did, with what came back if anything has.
pub(super) fn deeds(command: &str, folder: Option<&str>, outcome: Option<&Outcome<'_>>) -> Vec<Deed> {
    let script = Script::of(command);
    Effects::of(&script, folder, outcome, 0)
}

/// What a command line's exit code and output can be taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nature {
    /// What an exit code of zero says.
    pub(super) zero: Zero,
    /// What stands in the output.
    pub(super) output: Output,
    /// What an exit code of one says.
    pub(super) one: One,
}

/// What an exit code of zero says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zero {
    /// All went well.
    Success,
    /// The last command went well, whatever the others did.
    OfTheLast,
}

/// What stands in a command line's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// What programs say about their work.
    Report,
    /// Content, at least in part: files, history, matches, which may hold anything.
    Content,
}

/// What an exit code of one says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum One {
    /// A failure.
    Failure,
    /// That nothing was found, or that two things differ.
    Nothing,
}

/// The nature of a command line, and the names of the programs that it runs.
pub(super) fn nature(command: &str) -> (Nature, Vec<String>) {
    let script = Script::of(command);
    let commands: Vec<_> = script.commands.iter().filter(|command| command.place == Place::Outside).collect();
    let programs: Vec<Vec<&str>> = commands
        .iter()
        .map(|command| options::unwrapped(command.words.iter().filter_map(Word::text).collect()))
        .collect();
    let hides = commands.iter().skip(1).any(|command| command.join != Join::And);
    let content = commands.iter().zip(&programs).any(|(command, words)| {
        let away = command.redirects.iter().any(|redirect| redirect.from == Stream::Output);
        command.join != Join::Pipe && !away && shows_content(words)
    });
    let last = programs.last().map(Vec::as_slice).unwrap_or_default();
    let nature = Nature {
        zero: if hides { Zero::OfTheLast } else { Zero::Success },
        output: if content { Output::Content } else { Output::Report },
        one: if compares(last) { One::Nothing } else { One::Failure },
    };
    (nature, programs.iter().filter_map(|words| words.first().map(|name| (*name).to_owned())).collect())
}

/// What a command line runs, by which two of its runs are the same: each program with its subcommand or script. Changes of
/// folder, filters behind a pipe, flags and redirections do not count.
pub(super) fn kinds(command: &str) -> Vec<String> {
    const PREPARING: [&str; 10] =
        ["cd", "export", "set", "source", ".", "echo", "mkdir", "sleep", "true", "pwd"];
    let script = Script::of(command);
    let outside = script.commands.iter();
    let outside = outside.filter(|command| command.place == Place::Outside && command.join != Join::Pipe);
    let words =
        outside.map(|command| options::unwrapped(command.words.iter().filter_map(Word::text).collect()));
    let working = words.filter(|words| words.first().is_some_and(|name| !PREPARING.contains(name)));
    let kinds: Vec<String> = working.map(|words| kind(&words)).collect();
    if kinds.is_empty() { vec![command.to_owned()] } else { kinds }
}

fn kind(words: &[&str]) -> String {
    let words = match words {
        ["python" | "python3", "-m", rest @ ..] if !rest.is_empty() => rest,
        _ => words,
    };
    // Code on the command line is the same only as a whole.
    if words.iter().any(|word| matches!(*word, "-c" | "-e" | "-lc" | "--eval")) {
        return words.join(" ");
    }
    let interprets = words[0].starts_with("python")
        || matches!(words[0], "bash" | "sh" | "zsh" | "node" | "ruby" | "perl" | "deno" | "tsx" | "php");
    let name = |word: &&str| {
        interprets || word.chars().all(|letter| letter.is_alphanumeric() || "-_:".contains(letter))
    };
    let operands = words[1..].iter().copied().filter(|word| !word.starts_with('-'));
    let operands: Vec<&str> = operands.take_while(name).take(2).collect();
    let own = match operands.first() {
        Some(&"run" | &"compose") => 2,
        _ => 1,
    };
    let own = &operands[..own.min(operands.len())];
    [&words[..1], own].concat().join(" ")
}

/// Whether a program writes what it was given or found rather than what it thinks of it.
fn shows_content(words: &[&str]) -> bool {
    match words {
        ["git", verb, ..] => {
            matches!(*verb, "diff" | "log" | "show" | "blame" | "grep" | "cat-file" | "stash" | "reflog")
        }
        ["gh", ..] => true,
        [name, ..] => {
            matches!(
                *name,
                "cat"
                    | "head"
                    | "tail"
                    | "sed"
                    | "awk"
                    | "nl"
                    | "less"
                    | "more"
                    | "bat"
                    | "grep"
                    | "egrep"
                    | "fgrep"
                    | "rg"
                    | "ag"
                    | "ack"
                    | "find"
                    | "fd"
                    | "ls"
                    | "tree"
                    | "jq"
                    | "yq"
                    | "strings"
                    | "xxd"
                    | "hexdump"
                    | "od"
                    | "diff"
                    | "curl"
                    | "wget"
                    | "man"
                    | "printf"
                    | "echo"
                    | "sort"
                    | "uniq"
                    | "cut"
                    | "tac"
                    | "zcat"
                    | "sqlite3"
                    | "env"
                    | "printenv"
                    | "journalctl"
                    | "dmesg"
            ) && !says_nothing(words)
        }
        [] => false,
    }
}

/// A program that usually shows content, told so that it does not: `echo` marks sections between commands.
fn says_nothing(words: &[&str]) -> bool {
    match words {
        ["echo" | "printf", rest @ ..] => rest.iter().map(|word| word.len()).sum::<usize>() < 200,
        ["sed", rest @ ..] => rest.iter().any(|word| word.starts_with("-i")),
        _ => false,
    }
}

/// Whether a program exits with one when it found nothing, or a difference.
fn compares(words: &[&str]) -> bool {
    match words {
        ["git", "grep" | "diff" | "merge-base" | "show-ref", ..] => true,
        [name, ..] => matches!(
            *name,
            "grep"
                | "egrep"
                | "fgrep"
                | "rg"
                | "ag"
                | "ack"
                | "diff"
                | "cmp"
                | "test"
                | "["
                | "[["
                | "which"
                | "pgrep"
                | "command"
        ),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_of_a_kind_by_its_program_and_what_that_runs() {
        let check = |command: &str, expect: &str| assert_eq!(kinds(command).join(" + "), expect, "{command}");
        check("cargo test -p core", "cargo test");
        check("cd x && RUST_LOG=1 sudo cargo test", "cargo test");
        check("cd x; npm run check 2>&1 | tail -3", "npm run check");
        check("npm run lint&&npm test > out.txt; echo $?", "npm run lint + npm test");
        check("uv run python3 -m pytest -q tests/a.py", "pytest");
        check("timeout 60 ./gradlew build || true", "gradlew build");
        check("python tools/gen.py --all", "python tools/gen.py");
        check("python -c 'import a; b | c'", "python -c import a; b | c");
        check("docker compose up -d", "docker compose up");
        check("make", "make");
        check("cd x", "cd x");
        check("", "");
    }

    #[test]
    fn a_zero_is_trusted_unless_the_line_hides_another_code() {
        let zero = |command| nature(command).0.zero;
        for command in ["make", "cd a && make", "X=1 make > log"] {
            assert_eq!(zero(command), Zero::Success, "{command}");
        }
        for command in ["make | tail", "make; true", "make || true", "make &", "make\nls"] {
            let hides = if command.ends_with('&') { Zero::Success } else { Zero::OfTheLast };
            assert_eq!(zero(command), hides, "{command}");
        }
    }

    #[test]
    fn content_is_told_from_reports() {
        for command in
            ["cat a", "cd x && git diff", "make; sed -n 1,2p a", "sudo cat a", "ls x 2>/dev/null | head"]
        {
            assert_eq!(nature(command).0.output, Output::Content, "{command}");
        }
        for command in
            ["make | tail", "npm t 2>&1 | grep error", "git status", "sed -i s/a/b/ c", "echo -- && make"]
        {
            assert_eq!(nature(command).0.output, Output::Report, "{command}");
        }
    }

    #[test]
    fn a_search_that_finds_nothing_did_not_fail() {
        assert_eq!(nature("cd a && grep -n x b").0.one, One::Nothing);
        assert_eq!(nature("grep -n x b && make").0.one, One::Failure);
    }
}
