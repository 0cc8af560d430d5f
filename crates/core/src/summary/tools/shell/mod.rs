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
