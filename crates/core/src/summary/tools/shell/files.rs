//! Which files a script reads and changes, told from its words.

use super::{
    options::{Known, Words, unwrapped},
    place::Surroundings,
    programs::{self, Act},
    syntax::{Command, Join, Mode, Place, Script},
};
use crate::summary::tools::{
    Change, Deed,
    outcome::{End, Outcome},
    patch,
};

/// What a script does, as it is gone through.
pub(super) struct Effects<'a> {
    script: &'a Script<'a>,
    surroundings: Surroundings,
    outcome: Option<&'a Outcome<'a>>,
    /// The beginning of the output, in which programs complain.
    output: Vec<&'a str>,
    deeds: Vec<Deed>,
    depth: usize,
}

/// The most deeds of one command line.
const MOST: usize = 256;

/// How much of a line of output is looked at.
const LONGEST_LINE: usize = 500;

/// How deep `bash -c` is followed.
const DEEPEST: usize = 3;

impl<'a> Effects<'a> {
    /// What a script did, seen from a folder.
    pub(super) fn of(
        script: &'a Script<'a>,
        folder: Option<&str>,
        outcome: Option<&'a Outcome<'a>>,
        depth: usize,
    ) -> Vec<Deed> {
        if outcome.is_some_and(|outcome| outcome.end == End::Refused) {
            return Vec::new();
        }
        let surroundings = Surroundings::new(folder);
        let lines = outcome.into_iter().flat_map(Outcome::lines).take(MOST);
        let output = lines.map(|line| &line[..line.floor_char_boundary(LONGEST_LINE)]).collect();
        let mut effects = Self { script, surroundings, outcome, output, deeds: Vec::new(), depth };
        for (at, command) in script.commands.iter().enumerate() {
            if effects.deeds.len() < MOST {
                effects.command(at, command);
            }
        }
        effects.deeds.truncate(MOST);
        effects.deeds
    }

    fn command(&mut self, at: usize, command: &Command<'_>) {
        let values: Vec<Known> =
            command.words.iter().flat_map(|word| self.surroundings.values(word)).collect();
        // Programs are looked up by the words that are known; an unknown one before the program hides it.
        let known: Vec<&str> = values.iter().map_while(|word| word.as_deref()).collect();
        let own = unwrapped(known.clone());
        let skipped = known.len() - own.len();
        if let Some((name, _)) = own.split_first() {
            let rest: Vec<Known> = values[(skipped + 1).min(values.len())..].to_vec();
            self.program(at, command, name, &rest);
        } else {
            command.words.iter().for_each(|word| self.surroundings.assign(word));
        }
        for redirect in &command.redirects {
            let how = if redirect.how == Mode::Replace { Change::Written } else { Change::Edited };
            for path in self.surroundings.values(&redirect.to).into_iter().flatten() {
                self.changed(command, &path, how, Certainty::Opened);
            }
        }
    }

    fn program(&mut self, at: usize, command: &Command<'_>, name: &str, words: &[Known]) {
        match name {
            "cd" | "pushd" => {
                let to = Words::of(words, &[]);
                let to = to.operands.first().cloned().unwrap_or_else(|| Some("~".to_owned()));
                self.surroundings.enter(&self.script.groups, command.group, to.as_deref());
            }
            "export" | "local" | "declare" | "readonly" => {
                command.words.iter().for_each(|word| self.surroundings.assign(word));
            }
            "for" => self.each(words),
            "bash" | "sh" | "zsh" | "dash" | "eval" => self.within(command, name, words),
            "apply_patch" | "applypatch" => self.patch(at, command, words),
            "patch" => self.patched(at, command, words),
            "git" if words.first().is_some_and(|verb| verb.as_deref() == Some("apply")) => {
                self.git_apply(at, command, words);
            }
            _ => {
                let after = self.script.commands.get(at + 1).filter(|next| next.join == Join::Pipe);
                let filter: Vec<&str> = after
                    .map_or_else(Vec::new, |next| next.words.iter().filter_map(|word| word.text()).collect());
                let acts = programs::acts(name, words, &unwrapped(filter));
                self.acts(at, command, name, acts);
            }
        }
    }

    fn acts(&mut self, at: usize, command: &Command<'_>, name: &str, acts: Vec<Act>) {
        let piped = command.join == Join::Pipe;
        for act in acts {
            match act {
                Act::Searched(what) if !piped => self.deeds.push(Deed::Searched { what }),
                Act::Read(path, lines) if !self.complained(name, &path) => {
                    let path = self.path(command, &path);
                    self.deeds.push(Deed::Read { path, lines });
                }
                Act::Changed(path, how, lines) if self.happened(at, name, &path) => {
                    let path = self.path(command, &path);
                    self.deeds.push(Deed::Changed { path, how, lines });
                }
                Act::Searched(_) | Act::Read(..) | Act::Changed(..) => {}
            }
        }
    }

    /// `for name in words`.
    fn each(&mut self, words: &[Known]) {
        if let [Some(name), Some(of), values @ ..] = words
            && of == "in"
        {
            let values: Option<Vec<String>> = values.iter().cloned().collect();
            self.surroundings.set(name, values.unwrap_or_default());
        }
    }

    /// A script inside the script.
    fn within(&mut self, command: &Command<'_>, name: &str, words: &[Known]) {
        let sorted = Words::of(words, &[]);
        let inner = if name == "eval" || sorted.has(&["-c"]) { sorted.known().next() } else { command.input };
        if let Some(inner) = inner.filter(|_| self.depth < DEEPEST) {
            let folder = self.path(command, ".");
            let folder = Some(folder.as_str()).filter(|folder| *folder != ".");
            let script = Script::of(inner);
            self.deeds.extend(Effects::of(&script, folder, self.outcome, self.depth + 1));
        }
    }

    /// Codex's own patches, given as a here-document or as a word.
    fn patch(&mut self, at: usize, command: &Command<'_>, words: &[Known]) {
        let given = words.iter().flatten().map(String::as_str).next();
        let Some(text) = command.input.or(given) else { return };
        let whole = self.last(at) && self.outcome.is_some_and(Outcome::failed);
        let listed = self.outcome.filter(|_| whole).map(|outcome| patch::applied(&outcome.body));
        // Of a patch that failed only what it lists was applied.
        let changes = listed.map_or_else(|| patch::changes(text), Option::unwrap_or_default);
        self.tell(command, changes);
    }

    /// `patch` names the files that it changes, one a line.
    fn patched(&mut self, at: usize, command: &Command<'_>, words: &[Known]) {
        let words = Words::of(words, &["-i", "-d", "-o", "-F", "-D"]);
        if words.has(&["--dry-run"]) {
            return;
        }
        let named = self.output.iter().filter_map(|line| {
            let path = line.strip_prefix("patching file ")?;
            Some(path.trim_matches('\'').to_owned())
        });
        let named: Vec<String> = named.collect();
        if !named.is_empty() {
            for path in named {
                self.changed(command, &path, Change::Edited, Certainty::Told);
            }
        } else if let Some(path) = words.known().next() {
            if self.happened(at, "patch", path) {
                self.changed(command, path, Change::Edited, Certainty::Told);
            }
        } else if let Some(text) = command.input.filter(|_| self.happened(at, "patch", "")) {
            self.tell(command, patch::changes(text));
        }
    }

    fn git_apply(&mut self, at: usize, command: &Command<'_>, words: &[Known]) {
        let words = Words::of(words, &[]);
        let looks = ["--check", "--stat", "--numstat", "--summary", "--cached"];
        if let Some(text) = command.input
            && !words.has(&looks)
            && self.happened(at, "error", "")
        {
            self.tell(command, patch::changes(text));
        }
    }

    fn tell(&mut self, command: &Command<'_>, changes: Vec<patch::Changed>) {
        for patch::Changed { path, how, lines } in changes {
            let path = self.path(command, &path);
            self.deeds.push(Deed::Changed { path, how, lines });
        }
    }

    fn changed(&mut self, command: &Command<'_>, path: &str, how: Change, sure: Certainty) {
        let refused = sure == Certainty::Opened && self.unopened(path);
        if !(refused || path.starts_with("/dev/") || path.is_empty()) {
            let path = self.path(command, path);
            self.deeds.push(Deed::Changed { path, how, lines: Vec::new() });
        }
    }

    fn path(&self, command: &Command<'_>, path: &str) -> String {
        self.surroundings.path(&self.script.groups, command.group, path)
    }

    /// Whether a command is the last one of the script.
    fn last(&self, at: usize) -> bool {
        let mut after = self.script.commands.iter().skip(at + 1);
        !after.any(|command| command.place == Place::Outside)
    }

    /// Whether a program did what it was told to a path. Of a script that failed the last command is taken to be the
    /// one that did, and any program says so itself when it cannot do something.
    fn happened(&self, at: usize, name: &str, path: &str) -> bool {
        let failed = self.outcome.is_some_and(Outcome::failed);
        !(failed && self.last(at) || self.complained(name, path))
    }

    /// Whether a program says that it could not do something to a path, or to anything.
    fn complained(&self, name: &str, path: &str) -> bool {
        let complaint = |line: &&str| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ") && mentions(rest, path))
        };
        self.output.iter().any(complaint)
    }

    /// Whether the shell says that it could not open a file to write to.
    fn unopened(&self, path: &str) -> bool {
        const WHY: &[&str] =
            &["No such file or directory", "Permission denied", "Is a directory", "Read-only"];
        let says = |line: &str| {
            let shell = ["bash: ", "sh: ", "zsh: ", "/bin/"].iter().any(|start| line.starts_with(start));
            shell && line.contains(path) && WHY.iter().any(|why| line.contains(why))
        };
        self.output.iter().any(|line| says(line))
    }
}

/// Whether a line names a path, and not only a longer one. Every line names the empty path.
fn mentions(line: &str, path: &str) -> bool {
    let inside = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    path.is_empty()
        || line.match_indices(path).any(|(at, _)| {
            let after = line[at + path.len()..].chars().next();
            !line[..at].ends_with(inside) && !after.is_some_and(inside)
        })
}

/// How it is known that a file was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// The shell opened it for writing.
    Opened,
    /// A program said so, or was told to and did not fail.
    Told,
}
