//! What a command line did, read without running it.
//!
//! [`parser`] takes the line apart. Which files well-known programs read and change is told from the words that they are
//! given. What a program writes of its own accord (a build, an inline Python script, a formatter over a folder) names no
//! file on the command line, so it is out of reach here and is not guessed at.

mod command_nature;
mod parser;

pub(super) use self::command_nature::CommandNature;
pub(crate) use self::command_nature::{run_kinds, shows_content};
use self::parser::{ShellCommand, commands};
use super::{FileChange, ToolEffect, arguments::figures_in, call_output::CallOutput, patch};

/// How deep `bash -c` is followed.
pub(super) const MAX_SHELL_DEPTH: usize = 3;

/// What a command line did, with what came back if anything has.
pub(super) fn effects(
    depth: usize,
    line: &str,
    folder: Option<&str>,
    outcome: Option<&CallOutput<'_>>,
) -> Vec<ToolEffect> {
    let commands = commands(line);
    // The folder of each subshell that is open.
    let mut folders = vec![folder.map(str::to_owned)];
    let mut effects = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        let folder = folders.last().cloned().flatten();
        folders.resize(command.depth + 1, folder);
        let folder = folders.last_mut().expect("a subshell stands in the line itself");
        let words = program(&command.words);
        let (name, operands) = words.split_first().map_or(("", &[][..]), |(name, rest)| (*name, rest));
        match name {
            "cd" => {
                let to = operands.first().filter(|to| is_file(to));
                *folder = to.map(|to| join(folder.as_deref(), to));
            }
            "bash" | "sh" | "zsh" => {
                let inner = operands.iter().skip_while(|word| !word.ends_with('c')).nth(1);
                let inner = inner.copied().unwrap_or(command.input);
                if depth > 0 {
                    effects.extend(self::effects(depth - 1, inner, folder.as_deref(), outcome));
                }
            }
            _ => {
                // Of a line that failed the last command is taken to be the one that did.
                let failed = outcome.filter(|outcome| outcome.failed() && at + 1 == commands.len());
                let touched = touched(name, operands, command, failed);
                let is_patch = name == "apply_patch";
                let is_meant = |path: &str| is_file(path) && !is_refused(name, path, outcome);
                let touched = touched.into_iter().filter(|_| failed.is_none() || is_patch);
                let touched = touched.filter(|effect| effect.path().is_some_and(is_meant));
                effects.extend(touched.map(|effect| seen_from(folder.as_deref(), effect)));
            }
        }
        for (path, how) in command.outputs.iter().filter(|(path, _)| is_file(path)) {
            if !is_refused("", path, outcome) {
                effects.push(ToolEffect::Changed { path: join(folder.as_deref(), path), how: *how });
            }
        }
    }
    effects
}

fn seen_from(folder: Option<&str>, effect: ToolEffect) -> ToolEffect {
    match effect {
        ToolEffect::Read { path, part } => ToolEffect::Read { path: join(folder, &path), part },
        ToolEffect::Changed { path, how } => ToolEffect::Changed { path: join(folder, &path), how },
        effect => effect,
    }
}

/// The files that a program is given and what it does to them.
fn touched(
    name: &str,
    words: &[&str],
    command: &ShellCommand<'_>,
    failed: Option<&CallOutput<'_>>,
) -> Vec<ToolEffect> {
    let has = |letter: char| {
        words.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    let says = |part: &str| words.iter().any(|word| word.starts_with('-') && word.contains(part));
    let operands: Vec<&str> =
        words.iter().copied().filter(|word| !word.is_empty() && !word.starts_with('-')).collect();
    match name {
        "cat" | "nl" | "head" | "tail" | "bat" => read(&operands, words),
        "sed" | "perl" => {
            let files = behind_script(words);
            match name {
                _ if has('i') || says("--in-place") => changed(&files, FileChange::Edited),
                "sed" => read(&files, words),
                _ => Vec::new(),
            }
        }
        "rm" | "unlink" => changed(&operands, FileChange::Deleted),
        "mv" => moved(&operands, true),
        "cp" => moved(&operands, false),
        "touch" => changed(&operands, FileChange::Written),
        "tee" => changed(&operands, if has('a') { FileChange::Edited } else { FileChange::Written }),
        "git" => match operands.split_first() {
            Some((&"mv", operands)) => moved(operands, true),
            Some((&"rm", operands)) if !says("--cached") => changed(operands, FileChange::Deleted),
            Some((&"apply", _)) if !says("--check") => patch::patch_file_effects(command.input, failed),
            _ => Vec::new(),
        },
        "apply_patch" => {
            let given = words.iter().find(|word| word.contains("*** Begin Patch"));
            patch::patch_file_effects(given.copied().unwrap_or(command.input), failed)
        }
        _ => Vec::new(),
    }
}

fn changed(files: &[&str], how: FileChange) -> Vec<ToolEffect> {
    files.iter().map(|path| ToolEffect::Changed { path: (*path).to_owned(), how }).collect()
}

/// The files that a program is given behind a script: that is the first word, or stands behind `-e`.
fn behind_script<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let is_option = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('e');
    let mut is_script = !words.iter().any(|word| is_option(word));
    let mut files = Vec::new();
    // BSD's `-i` has a word of its own for the suffix, empty as a rule.
    for word in words.iter().copied().filter(|word| !word.is_empty()) {
        if word.starts_with('-') {
            is_script |= is_option(word);
        } else if !std::mem::take(&mut is_script) {
            files.push(word);
        }
    }
    files
}

fn read(files: &[&str], words: &[&str]) -> Vec<ToolEffect> {
    let files: Vec<&str> = files.iter().copied().filter(|path| is_file(path)).collect();
    let others: Vec<&str> = words.iter().copied().filter(|word| !files.contains(word)).collect();
    let part = figures_in(&others.join(" "));
    files.iter().map(|path| ToolEffect::Read { path: (*path).to_owned(), part: part.clone() }).collect()
}

/// Sources and where each goes: into a folder if there are several or if the last word is one by its look.
fn moved(operands: &[&str], is_gone: bool) -> Vec<ToolEffect> {
    let Some((target, sources)) = operands.split_last() else { return Vec::new() };
    let into = sources.len() > 1 || target.ends_with('/') || target.ends_with('.');
    let each = sources.iter().flat_map(|source| {
        let own = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let to = if into { format!("{}/{own}", target.trim_end_matches('/')) } else { (*target).to_owned() };
        let gone =
            is_gone.then(|| ToolEffect::Changed { path: (*source).to_owned(), how: FileChange::Deleted });
        let how = if is_gone { FileChange::Moved } else { FileChange::Written };
        gone.into_iter().chain([ToolEffect::Changed { path: to, how }])
    });
    each.collect()
}

/// Whether a program, or the shell that opens a file for it, says that it could not do what it was told to.
fn is_refused(name: &str, path: &str, outcome: Option<&CallOutput<'_>>) -> bool {
    const LINES: usize = 64;
    let lines = outcome.into_iter().flat_map(|outcome| outcome.body.lines()).take(LINES);
    let speaker = |line: &str| {
        let shells = ["bash", "sh", "zsh"];
        line.split_once(": ").is_some_and(|(by, _)| by == name || name.is_empty() && shells.contains(&by))
    };
    lines
        .into_iter()
        .any(|line| speaker(line) && line.split(['\'', ' ', ':', '‘', '’']).any(|word| word == path))
}

/// The words of a command from its program's own name on: without assignments, keywords and what runs another program.
fn program(words: &[String]) -> Vec<&str> {
    const RUNNERS: [&str; 15] = [
        "sudo", "env", "time", "timeout", "nohup", "command", "exec", "npx", "if", "then", "else", "while",
        "do", "!", "{",
    ];
    let is_before = |word: &&str| {
        let is_set = word.split_once('=').is_some_and(|(name, _)| name.bytes().all(is_of_name));
        RUNNERS.contains(word) || is_set || word.starts_with(|first: char| first.is_ascii_digit())
    };
    let mut words: Vec<&str> = words.iter().map(String::as_str).skip_while(is_before).collect();
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or(first);
    }
    // Two words that run the program named after them.
    match words.as_slice() {
        ["uv" | "poetry", "run", ..] | ["pnpm" | "bundle" | "npm", "exec", ..] => words.split_off(2),
        _ => words,
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a word may name a file: no option, figure or device, and nothing in it that only a running shell knows.
fn is_file(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with('-')
        && !word.starts_with("/dev/")
        && !word.contains(['$', '`', '*', '?', '{', '\n'])
        && !word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A path seen from a folder, without the steps that lead nowhere.
pub(super) fn join(folder: Option<&str>, path: &str) -> String {
    let is_absolute = path.starts_with(['/', '~', '\\']) || path.as_bytes().get(1) == Some(&b':');
    let whole = match folder {
        Some(folder) if !is_absolute => format!("{folder}/{path}"),
        _ => path.to_owned(),
    };
    let mut steps: Vec<&str> = Vec::new();
    for step in whole.split('/') {
        match (step, steps.last()) {
            ("." | "", Some(_)) | (".", None) => {}
            ("..", Some(last)) if !matches!(*last, ".." | "" | "~") => drop(steps.pop()),
            _ => steps.push(step),
        }
    }
    match steps.as_slice() {
        [] => ".".to_owned(),
        [""] => "/".to_owned(),
        _ => steps.join("/"),
    }
}
