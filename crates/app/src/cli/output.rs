//! Output of commands: text for people or JSON for programs, never a mix.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Color, Style};
use serde::Serialize;

/// Style of highlighted text.
pub(crate) const BOLD: Style = Style::new().bold();
/// Style of secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Style of names to copy.
pub(crate) const NAME: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Cyan)));
/// Style of notes that deserve attention.
pub(crate) const NOTE: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Yellow)));

/// Standard output.
pub(crate) struct CliOutput {
    json: bool,
    terminal: bool,
    stdout: anstream::AutoStream<io::StdoutLock<'static>>,
}

impl CliOutput {
    /// Writes JSON if `json` is true, else text.
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        Self { json, terminal: stdout.is_terminal(), stdout: anstream::AutoStream::auto(stdout.lock()) }
    }

    /// Returns true if the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns true if the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes one line of JSON.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, line: impl std::fmt::Display) -> anyhow::Result<()> {
        Ok(writeln!(self.stdout, "{line}")?)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stdout.write_all(bytes)?;
        Ok(self.stdout.flush()?)
    }
}
