//! The command line: one file a command, and what they share.

mod backup;
mod doctor;
mod erase;
mod export;
mod fork;
mod history;
mod import;
mod ledger;
mod open;
mod output;
mod search;
mod sessions;
mod show;
mod text;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand, builder::TypedValueParser};

use open::Store;
use output::Output;

/// Keep an LLM agent inside its context window without losing what happened.
///
/// Epitome keeps every session as an immutable log. Import what your agents recorded, look at it turn by turn, search
/// it, fork it, and take it to another provider's format.
#[derive(Parser)]
#[command(name = "epitome", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Start with:  epitome import ~/.claude/projects   then:  epitome sessions")]
pub(crate) struct Cli {
    /// The database file.
    #[arg(long, global = true, value_name = "PATH", env = "EPITOME_DB", hide_env_values = true)]
    // An empty path is none, as an empty variable is.
    #[arg(value_parser = clap::builder::OsStringValueParser::new().map(PathBuf::from))]
    db: Option<PathBuf>,

    /// Print JSON: a line for each item of a list, one object otherwise.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read agents' transcripts into the log.
    Import(import::Args),
    /// List the sessions.
    Sessions(sessions::Args),
    /// Show a session turn by turn.
    Show(show::Args),
    /// Write a session in a provider's format, or as JSON Lines.
    Export(export::Args),
    /// Start a new session from a turn of another.
    Fork(fork::Args),
    /// Walk the whole chain of turns, through every compaction.
    History(history::Args),
    /// Find words in all sessions and in the ledger.
    Search(search::Args),
    /// Give a session another title.
    Rename(sessions::RenameArgs),
    /// Add labels to a session, or take them away.
    Label(sessions::LabelArgs),
    /// Keep external events beside the sessions. They are never compacted.
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Copy the database while it is in use.
    Backup(backup::Args),
    /// Check the database: schema, pages, hash chains, everything derived.
    Doctor(doctor::Args),
    /// Remove a session for good.
    Erase(erase::Args),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let out = Output::new(self.json);
        let store = Store::new(self.db);
        match self.command {
            Command::Import(args) => import::run(&args, &store, out),
            Command::Sessions(args) => sessions::run(&args, &store, out),
            Command::Show(args) => show::run(&args, &store, out),
            Command::Export(args) => export::run(&args, &store, out),
            Command::Fork(args) => fork::run(&args, &store, out),
            Command::History(args) => history::run(&args, &store, out),
            Command::Search(args) => search::run(&args, &store, out),
            Command::Rename(args) => sessions::rename(&args, &store, out),
            Command::Label(args) => sessions::label(&args, &store, out),
            Command::Ledger(command) => ledger::run(command, &store, out),
            Command::Backup(args) => backup::run(&args, &store, out),
            Command::Doctor(args) => doctor::run(&args, &store, out),
            Command::Erase(args) => erase::run(&args, &store, out),
            Command::Completions { shell } => {
                // Made in memory first: the generator panics on a closed pipe.
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "epitome", &mut script);
                let mut out = out;
                out.bytes(&script)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
