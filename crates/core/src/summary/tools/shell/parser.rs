//! A command line as simple commands: their words, the files that take their output, what is fed to them.
//!
//! This reads only as much of the shell's language as tells which files a command names: quotes, here-documents, lists,
//! pipes and redirections. A crate that splits words (such as shlex) knows none of the rest, and a whole shell parser is a
//! large dependency for what stays a reading without running. A word with something that only a running shell can know (a
//! variable, a pattern, another command's output) keeps it as it is written, by which it is known to be no file's name.
//!
//! Every byte is looked at once.

use crate::summary::tools::FileChange;

/// A simple command.
#[derive(Debug, Default)]
pub(super) struct ShellCommand<'a> {
    pub(super) words: Vec<String>,
    /// Files that take its output.
    pub(super) outputs: Vec<(String, FileChange)>,
    /// The here-document that it reads.
    pub(super) input: &'a str,
    /// How it hangs together with the one before.
    pub(super) join: CommandJoin,
    /// How many subshells it stands in.
    pub(super) depth: usize,
}

/// How a command hangs together with the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CommandJoin {
    /// It runs whatever that one did.
    #[default]
    Then,
    /// It runs if that one succeeded.
    And,
    /// It reads what that one wrote.
    Pipe,
}

/// How many commands of a line, and words of a command, are kept.
const MOST_COMMANDS: usize = 512;
const MOST_WORDS: usize = 1024;

/// How many subshells inside each other are told apart.
const DEEPEST: usize = 16;

/// The commands of a line or a script.
pub(super) fn commands(text: &str) -> Vec<ShellCommand<'_>> {
    let mut parser =
        ShellParser { text, at: 0, commands: vec![ShellCommand::default()], awaited: Vec::new() };
    parser.list();
    parser.commands.retain(|command| !command.words.is_empty() || !command.outputs.is_empty());
    parser.commands
}

struct ShellParser<'a> {
    text: &'a str,
    at: usize,
    /// The last one is open.
    commands: Vec<ShellCommand<'a>>,
    /// Here-documents whose text begins after this line: the line that ends each, and the command that reads it.
    awaited: Vec<(String, usize)>,
}

impl<'a> ShellParser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        self.at += if found { what.len() } else { 0 };
        found
    }

    /// Takes what stands before the first of the letters, or all there is.
    fn until(&mut self, letters: &[char]) -> &'a str {
        let rest = self.rest();
        let end = rest.find(letters).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn open(&mut self) -> &mut ShellCommand<'a> {
        self.commands.last_mut().expect("one is always open")
    }

    fn list(&mut self) {
        while let Some(letter) = self.peek() {
            match letter {
                ' ' | '\t' | '\r' => self.at += 1,
                '\n' => {
                    self.at += 1;
                    self.here_documents();
                    self.finish(CommandJoin::Then);
                }
                '#' => drop(self.until(&['\n'])),
                '<' | '>' => self.redirect(),
                '&' if self.rest().starts_with("&>") => self.at += 1,
                ';' | '(' | ')' | '&' | '|' => {
                    let join = if self.eat("&&") {
                        CommandJoin::And
                    } else if self.eat("||") {
                        CommandJoin::Then
                    } else {
                        self.at += 1;
                        if letter == '|' { CommandJoin::Pipe } else { CommandJoin::Then }
                    };
                    self.finish(join);
                    let depth = &mut self.open().depth;
                    match letter {
                        '(' => *depth = (*depth + 1).min(DEEPEST),
                        ')' => *depth = depth.saturating_sub(1),
                        _ => {}
                    }
                }
                _ => {
                    let word = self.word();
                    // A number before a redirection says what is redirected.
                    let is_stream = self.rest().starts_with(['<', '>']) && is_number(&word);
                    let words = &mut self.open().words;
                    if !is_stream && words.len() < MOST_WORDS {
                        words.push(word);
                    }
                }
            }
        }
    }

    /// Ends the command at hand. An end without a command leaves the way in which the next one is joined.
    fn finish(&mut self, join: CommandJoin) {
        let is_full = self.commands.len() >= MOST_COMMANDS;
        let open = self.open();
        let depth = open.depth;
        if open.words.is_empty() && open.outputs.is_empty() {
            open.join = if join == CommandJoin::Then { open.join } else { join };
        } else if !is_full {
            self.commands.push(ShellCommand { join, depth, ..ShellCommand::default() });
        }
    }

    fn redirect(&mut self) {
        // Inside a test the signs of redirection compare.
        let is_test = self.open().words.first().is_some_and(|first| first == "[[");
        if self.eat("<<<") || self.eat("<<-") || self.eat("<<") {
            let is_document = !self.text[..self.at].ends_with("<<<");
            let end = self.target();
            let reader = self.commands.len() - 1;
            self.awaited.extend(is_document.then_some((end, reader)));
        } else if self.eat(">>") {
            let to = self.target();
            self.open().outputs.push((to, FileChange::Edited));
        } else if self.eat(">") {
            self.eat("|");
            let is_duplicate = self.eat("&");
            let to = self.target();
            if !(is_test || is_duplicate && is_number(&to)) {
                self.open().outputs.push((to, FileChange::Written));
            }
        } else {
            self.at += 1;
            self.target();
        }
    }

    fn target(&mut self) -> String {
        while self.eat(" ") || self.eat("\t") {}
        self.word()
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(letter) = self.peek() {
            match letter {
                ' ' | '\t' | '\n' | '\r' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\'' => {
                    self.at += 1;
                    word.push_str(self.until(&['\'']));
                    self.eat("'");
                }
                '"' => self.quoted(&mut word),
                _ => self.letter(letter, &mut word),
            }
        }
        word
    }

    fn quoted(&mut self, word: &mut String) {
        self.at += 1;
        while let Some(letter) = self.peek() {
            match letter {
                '"' => {
                    self.at += 1;
                    return;
                }
                '\\' if !self.rest()[1..].starts_with(['$', '`', '"', '\\', '\n']) => {
                    self.at += 1;
                    word.push('\\');
                }
                letter => self.letter(letter, word),
            }
        }
    }

    fn letter(&mut self, letter: char, word: &mut String) {
        if letter == '$' && self.rest().starts_with("$(") {
            word.push('$');
            self.substitution();
            return;
        }
        self.at += letter.len_utf8();
        match letter {
            '`' => {
                word.push('`');
                self.until(&['`']);
                self.eat("`");
            }
            '\\' => {
                let escaped = self.peek();
                self.at += escaped.map_or(0, char::len_utf8);
                word.extend(escaped.filter(|escaped| *escaped != '\n'));
            }
            letter => word.push(letter),
        }
    }

    /// Goes on behind `$( … )`, with whatever stands inside.
    fn substitution(&mut self) {
        let mut depth = 0_u32;
        while let Some(letter) = self.peek() {
            self.at += letter.len_utf8();
            match letter {
                '(' => depth += 1,
                ')' if depth == 1 => return,
                ')' => depth -= 1,
                '\\' => self.at += self.peek().map_or(0, char::len_utf8),
                '\'' | '"' => {
                    self.until(&[letter]);
                    self.at += self.peek().map_or(0, char::len_utf8);
                }
                '<' if self.eat("<") && !self.eat("<") => {
                    self.eat("-");
                    let end = self.target();
                    self.until(&['\n']);
                    self.eat("\n");
                    self.here_document(&end);
                }
                _ => {}
            }
        }
    }

    /// The texts of the here-documents that were announced on the line before.
    fn here_documents(&mut self) {
        for (end, reader) in std::mem::take(&mut self.awaited) {
            let body = self.here_document(&end);
            self.commands[reader].input = body;
        }
    }

    /// A text up to the line that ends it, or all there is.
    fn here_document(&mut self, end: &str) -> &'a str {
        let start = self.at;
        for line in self.rest().split_inclusive('\n') {
            let before = self.at;
            self.at += line.len();
            if line.trim() == end {
                return &self.text[start..before];
            }
        }
        &self.text[start..]
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}
