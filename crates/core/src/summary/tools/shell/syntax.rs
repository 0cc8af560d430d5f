//! What a command line is made of.

/// A script: its simple commands, in the order they stand.
#[derive(Debug, Default)]
pub(super) struct Script<'a> {
    pub(super) commands: Vec<Command<'a>>,
    /// The group that each group stands in. The first is the script itself.
    pub(super) groups: Vec<usize>,
}

/// A simple command.
#[derive(Debug, Default)]
pub(super) struct Command<'a> {
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
    /// The here-document that it reads.
    pub(super) input: Option<&'a str>,
    /// How it hangs together with the one before.
    pub(super) join: Join,
    /// The subshell it runs in.
    pub(super) group: usize,
    /// Where it stands.
    pub(super) place: Place,
    /// By which a here-document finds the command that announced it.
    pub(super) serial: usize,
}

/// How a command hangs together with the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Join {
    /// It runs whatever that one did.
    #[default]
    Then,
    /// It runs if that one succeeded.
    And,
    /// It runs if that one failed.
    Or,
    /// It reads what that one wrote.
    Pipe,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// In the script itself.
    #[default]
    Outside,
    /// In a word of another command.
    Within,
}

/// A file that takes a command's output.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) to: Word,
    pub(super) how: Mode,
    pub(super) from: Stream,
}

/// Which output goes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// What the command writes.
    Output,
    /// Something beside it: errors, as a rule.
    Beside,
}

/// How a file takes a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// From its beginning.
    Replace,
    /// At its end.
    Append,
}

/// A word, in pieces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) pieces: Vec<Piece>,
}

/// A piece of a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// These letters.
    Text(String),
    /// A variable's value.
    Variable(String),
    /// What only a running shell knows.
    Unknown,
}

impl Word {
    /// The word, if it is known as it stands.
    pub(super) fn text(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    pub(super) fn push(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }
}
