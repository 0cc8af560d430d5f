//! Runs: what a command line runs, by which a failure and a later success are compared.
//!
//! A line that works says something of one that failed only if it ran the same: the same program with the same
//! subcommand or script, on the same things or on all. `npm run dev` says nothing of `npm run check`, and `make a` nothing
//! of `make b`. Changes of folder, filters behind a pipe, flags and redirections do not count.

/// What a success and a failure must share to be compared at all: the program and its subcommand of a command, or the
/// tool's target.
pub(super) fn kind(subject: &str) -> String {
    kinds(subject).into_iter().next().unwrap_or_default()
}

/// The kinds of everything that a line runs, at least one.
pub(super) fn kinds(subject: &str) -> Vec<String> {
    match command(subject) {
        Some(command) => runs(command).into_iter().map(|run| run.kind).collect(),
        // Whichever tool changes a file, the file is what is changed.
        None => vec![subject.split_once(' ').map_or(subject, |(_, target)| target).to_owned()],
    }
}

/// Whether what failed must have worked within what worked.
pub(super) fn covers(worked: &str, failed: &str) -> bool {
    if worked == failed {
        return true;
    }
    let (Some(worked), Some(failed)) = (command(worked), command(failed)) else {
        return kind(worked) == kind(failed);
    };
    let worked = runs(worked);
    runs(failed).iter().all(|failed| worked.iter().any(|worked| worked.covers(failed)))
}

/// A program that a line runs.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// The program with its subcommand or script.
    kind: String,
    /// What else it is given, flags aside.
    operands: Vec<String>,
}

impl Run {
    /// Without operands it is run on everything.
    fn covers(&self, failed: &Self) -> bool {
        self.kind == failed.kind && (self.operands.is_empty() || self.operands == failed.operands)
    }
}

/// The command of a subject that is one.
fn command(subject: &str) -> Option<&str> {
    subject.strip_prefix('`')?.strip_suffix('`')
}

/// What a command line runs, at least one; what only prepares for that is left out.
fn runs(command: &str) -> Vec<Run> {
    const PREPARING: [&str; 12] =
        ["cd", "export", "set", "source", ".", "echo", "mkdir", "sleep", "true", "pwd", "pushd", "popd"];
    let steps = steps(command);
    let working = steps.iter().filter(|step| !PREPARING.contains(&step[0]));
    let mut runs: Vec<Run> = working.map(|step| run(step)).collect();
    if runs.is_empty() {
        runs.push(Run { kind: command.to_owned(), operands: Vec::new() });
    }
    runs
}

/// The steps of a command line as words, without wrappers and assignments; of a pipe only its source.
fn steps(command: &str) -> Vec<Vec<&str>> {
    let mut steps: Vec<Vec<&str>> = vec![Vec::new()];
    let mut piped = false;
    for word in words(command) {
        match word {
            "|" | "|&" => piped = true,
            "&&" | "||" | ";" | "&" => {
                piped = false;
                steps.push(Vec::new());
            }
            _ if piped => {}
            _ => {
                if let Some(step) = steps.last_mut() {
                    step.push(word);
                }
            }
        }
    }
    let unwrapped = steps.into_iter().map(|step| unwrap(&step).to_vec());
    unwrapped.filter(|step| !step.is_empty()).collect()
}

/// The words of a command line, quoted ones whole, and the marks between its steps.
fn words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    let mut letters = command.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if let Some(open) = quote {
            quote = Some(open).filter(|open| *open != letter);
            continue;
        }
        // `2>&1` and `&>file` are redirections.
        let redirects = letter == '&'
            && (command[..at].ends_with('>') || letters.peek().is_some_and(|(_, next)| *next == '>'));
        let mark = matches!(letter, ';' | '|' | '&') && !redirects;
        if letter.is_whitespace() || mark {
            words.extend(start.take().map(|start| &command[start..at]));
            if mark {
                let double = letters.next_if(|(_, next)| *next == letter || (letter == '|' && *next == '&'));
                words.push(&command[at..at + 1 + usize::from(double.is_some())]);
            }
            continue;
        }
        start.get_or_insert(at);
        if matches!(letter, '"' | '\'') {
            quote = Some(letter);
        }
    }
    words.extend(start.map(|start| &command[start..]));
    words
}

/// A step without what only says how it is run: `sudo`, `FOO=1`, `npx`, `poetry run`, `python -m`.
fn unwrap<'s, 'w>(mut step: &'s [&'w str]) -> &'s [&'w str] {
    loop {
        step = match step {
            ["sudo" | "time" | "env" | "npx" | "bunx" | "exec" | "nice" | "nohup" | "command", rest @ ..] => {
                rest
            }
            ["uv" | "poetry" | "pipenv" | "rye" | "hatch", "run", rest @ ..]
            | ["bundle" | "pnpm" | "yarn" | "npm", "exec" | "dlx", rest @ ..]
            | ["python" | "python3", "-m", rest @ ..] => rest,
            ["timeout", rest @ ..] => {
                let limit =
                    rest.iter().position(|word| word.starts_with(|first: char| first.is_ascii_digit()));
                limit.map_or(rest, |limit| &rest[limit + 1..])
            }
            [first, rest @ ..] if is_assignment(first) => rest,
            _ => return step,
        };
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

fn run(step: &[&str]) -> Run {
    // Code on the command line is the same only as a whole.
    let inline =
        step.iter().any(|word| matches!(*word, "-c" | "-e" | "-lc" | "--eval") || word.starts_with("<<"));
    let program = step[0].rsplit('/').next().unwrap_or(step[0]);
    if inline && is_interpreter(program) {
        return Run { kind: step.join(" "), operands: Vec::new() };
    }
    let mut rest =
        step[1..].iter().copied().filter(|word| !word.starts_with('-') && !redirects(word)).peekable();
    let mut kind = program.to_owned();
    let mut push = |word: &str| kind = format!("{kind} {word}");
    match (program, rest.peek().copied()) {
        ("npm" | "pnpm" | "yarn" | "bun", Some("run" | "run-script"))
        | ("docker" | "podman", Some("compose")) => {
            rest.by_ref().take(2).for_each(&mut push);
        }
        (_, Some(script)) if is_interpreter(program) || is_plain(script) => {
            rest.by_ref().take(1).for_each(&mut push);
        }
        _ => {}
    }
    Run { kind, operands: rest.map(str::to_owned).collect() }
}

fn redirects(word: &str) -> bool {
    word.trim_start_matches(|first: char| first.is_ascii_digit() || first == '&').starts_with(['>', '<'])
}

/// Whether what it is given first is the script that it runs.
fn is_interpreter(program: &str) -> bool {
    matches!(program, "bash" | "sh" | "zsh" | "node" | "ruby" | "perl" | "deno" | "tsx" | "php" | "Rscript")
        || program.starts_with("python")
}

/// Whether a word may be a subcommand: a name, not a path or a pattern.
fn is_plain(word: &str) -> bool {
    word.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_of_a_kind_by_its_program_and_what_that_runs() {
        let check = |subject: &str, expect: &str| assert_eq!(kinds(subject).join(" + "), expect, "{subject}");
        check("`cargo test -p core`", "cargo test");
        check("`cd x && RUST_LOG=1 sudo cargo test`", "cargo test");
        check("`cd x; npm run check 2>&1 | tail -3`", "npm run check");
        check("`npm run lint&&npm test > out.txt; echo $?`", "npm run lint + npm test");
        check("`uv run python3 -m pytest -q tests/a.py`", "pytest");
        check("`timeout 60 ./gradlew build || true`", "gradlew build");
        check("`python tools/gen.py --all`", "python tools/gen.py");
        check("`python -c 'import a; b | c'`", "python -c 'import a; b | c'");
        check("`docker compose up -d`", "docker compose up");
        check("`grep \"a|b\" x.txt`", "grep");
        check("`make`", "make");
        check("`cd x`", "cd x");
        check("``", "");
        check("edit_file src/a.rs", "src/a.rs");
        check("search", "search");
    }

    #[test]
    fn only_the_same_run_or_a_wider_one_covers_a_failure() {
        let check = |failed: &str, worked: &str, expect: bool| {
            let [failed, worked] = [failed, worked].map(|command| format!("`{command}`"));
            assert_eq!(covers(&worked, &failed), expect, "{worked} covers {failed}");
        };
        check("cargo build", "cargo build --release", true);
        check("pytest -q; echo done", "pytest -q", true);
        check("pytest tests/a.py", "pytest", true);
        check("cargo test -p core", "cargo test -p core 2>&1 | tail", true);
        check("make check", "make check && make install", true);
        check("npm run check", "npm run dev", false);
        check("npm run check", "npm run build 2>&1 | tail -3", false);
        check("pytest", "pytest tests/a.py", false);
        check("cargo test -p core", "cargo test -p wire", false);
        check("npm run lint && npm test", "npm run lint", false);
        check("python a.py", "python b.py", false);
        assert!(covers("write a.rs", "edit a.rs") && !covers("edit b.rs", "edit a.rs"));
    }
}
