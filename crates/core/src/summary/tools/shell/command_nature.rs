//! What a command line's exit code and output can be taken for, and which of its runs are the same.

use super::{
    parser::{CommandJoin, ShellCommand, commands},
    program,
};

/// What a command line's exit code and output can be taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct CommandNature {
    /// Whether an exit code of zero tells only of the last command.
    pub(in super::super) hides_failures: bool,
    /// Whether its output holds content, at least in part: files, history, matches, which may say anything.
    pub(in super::super) shows_content: bool,
    /// Whether an exit code of one says that nothing was found, or that two things differ.
    pub(in super::super) compares: bool,
    /// The names of the programs that it runs.
    pub(in super::super) programs: Vec<String>,
}

impl CommandNature {
    /// The nature of a command line.
    pub(in super::super) fn of(line: &str) -> Self {
        let commands = commands(line);
        let words: Vec<Vec<&str>> = commands.iter().map(|command| program(&command.words)).collect();
        let shows = |(command, words): (&ShellCommand<'_>, &Vec<&str>)| {
            command.join != CommandJoin::Pipe && command.outputs.is_empty() && writes_content(words)
        };
        Self {
            hides_failures: commands.iter().skip(1).any(|command| command.join != CommandJoin::And),
            shows_content: commands.iter().zip(&words).any(shows),
            compares: words.last().is_some_and(|words| compares(words)),
            programs: words.iter().filter_map(|words| words.first().map(|name| (*name).to_owned())).collect(),
        }
    }
}

/// What a command line runs, by which two of its runs are the same: each program with its subcommand or script. Changes of
/// folder, filters behind a pipe, flags and redirections do not count.
pub(crate) fn run_kinds(command: &str) -> Vec<String> {
    const PREPARING: [&str; 8] = ["cd", "export", "set", "source", "echo", "mkdir", "sleep", "pwd"];
    let commands = commands(command);
    let words = commands.iter().filter(|command| command.join != CommandJoin::Pipe);
    let words = words.map(|command| program(&command.words));
    let working = words.filter(|words| words.first().is_some_and(|name| !PREPARING.contains(name)));
    let kinds: Vec<String> = working.map(|words| kind(&words)).collect();
    if kinds.is_empty() { vec![command.to_owned()] } else { kinds }
}

fn kind(words: &[&str]) -> String {
    let interprets = ["python", "python3", "bash", "sh", "node", "ruby", "perl"].contains(&words[0]);
    // Code on the command line is the same only as a whole.
    if interprets && words.iter().any(|word| matches!(*word, "-c" | "-e" | "-lc")) {
        return words.join(" ");
    }
    let is_name = |word: &&str| {
        interprets || word.chars().all(|letter| letter.is_alphanumeric() || "-_:".contains(letter))
    };
    let operands = words[1..].iter().copied().filter(|word| !word.starts_with('-'));
    let operands: Vec<&str> = operands.take_while(is_name).take(2).collect();
    let own = if matches!(operands.first(), Some(&"run" | &"compose")) { 2 } else { 1 };
    [&words[..1], &operands[..own.min(operands.len())]].concat().join(" ")
}

/// Whether the output of a command line is content, at least in part: such a line looks something up.
pub(crate) fn shows_content(line: &str) -> bool {
    CommandNature::of(line).shows_content
}

/// Whether a program writes what it was given or found rather than what it thinks of it.
fn writes_content(words: &[&str]) -> bool {
    const PROGRAMS: &str =
        "cat head tail sed awk nl less bat grep rg ag find fd ls tree jq diff curl gh sqlite3 journalctl";
    match words {
        ["git", verb, ..] => matches!(*verb, "diff" | "log" | "show" | "blame" | "grep"),
        ["sed", rest @ ..] => !rest.iter().any(|word| word.starts_with("-i")),
        [name, ..] => PROGRAMS.split(' ').any(|known| known == *name),
        [] => false,
    }
}

/// Whether a program exits with one when it found nothing, or a difference.
fn compares(words: &[&str]) -> bool {
    const PROGRAMS: [&str; 9] = ["grep", "rg", "ag", "diff", "cmp", "test", "[", "[[", "which"];
    match words {
        ["git", "grep" | "diff", ..] => true,
        [name, ..] => PROGRAMS.contains(name),
        [] => false,
    }
}
