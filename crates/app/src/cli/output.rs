//! What a command prints: words for people, JSON for programs, never a mix.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Color, Style};
use serde::Serialize;

/// What stands out.
pub(crate) const BOLD: Style = Style::new().bold();
/// What stands back.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Names to copy.
pub(crate) const NAME: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Cyan)));
/// What deserves a look.
pub(crate) const NOTE: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Yellow)));

/// Standard output.
pub(crate) struct Output {
    json: bool,
    terminal: bool,
    stdout: anstream::AutoStream<io::StdoutLock<'static>>,
}

impl Output {
    /// For programs if `json`, else for people.
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        Self { json, terminal: stdout.is_terminal(), stdout: anstream::AutoStream::auto(stdout.lock()) }
    }

    /// Whether a program reads it.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person looks at it right away.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// One JSON line.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// A line of words.
    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> anyhow::Result<()> {
        Ok(writeln!(self.stdout, "{line}")?)
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stdout.write_all(bytes)?;
        Ok(self.stdout.flush()?)
    }
}
