//! The command line: one file a command, and shared modules.

mod backup;
mod calls;
mod compact;
mod compaction_report;
mod context;
mod diff;
mod doctor;
mod erase;
mod eval;
mod export;
mod fork;
mod handoff;
mod history;
mod import;
mod jobs;
mod ledger;
mod live;
mod metrics;
mod models;
mod open;
mod output;
mod parallel;
mod pins;
mod policies;
mod recall;
mod replay;
mod search;
mod serve;
mod sessions;
mod show;
mod structured;
mod sweep;
mod text;
mod turn;
mod undo;
mod view;
mod why;

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
    /// Database file.
    #[arg(long, global = true, value_name = "PATH", env = "EPITOME_DB", hide_env_values = true)]
    // An empty path counts as none, like an empty variable.
    #[arg(value_parser = clap::builder::OsStringValueParser::new().map(PathBuf::from))]
    db: Option<PathBuf>,

    /// Print JSON: one line per item of a list, otherwise one object.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make messages fit a token budget, ready to send; or compact a session.
    Compact(compact::Args),
    /// Read agents' transcripts into the log.
    Import(import::Args),
    /// List the sessions.
    Sessions(sessions::Args),
    /// Show a session turn by turn.
    Show(show::Args),
    /// Write a session in a provider's format, or as JSON Lines.
    Export(export::Args),
    /// Start a new session from a turn of another session.
    Fork(fork::Args),
    /// Walk the whole chain of turns, through every compaction.
    History(history::Args),
    /// Show what the model sees, by region.
    Context(context::Args),
    /// Explain how a context came about: what each reducer did.
    Explain(context::ExplainArgs),
    /// Compare what the model saw at two turns, or would see under two policies.
    Diff(diff::Args),
    /// List queued summaries, or make them.
    Jobs(jobs::Args),
    /// Undo the newest compaction of a session.
    Undo(undo::UndoArgs),
    /// Restore the compaction that was undone last.
    Redo(undo::RedoArgs),
    /// Show the full content behind a handle.
    Recall(recall::Args),
    /// Pin words or an event, so that no compaction loses them.
    Pin(pins::PinArgs),
    /// Remove a pin.
    Unpin(pins::UnpinArgs),
    /// List pins.
    Pins(pins::ListArgs),
    /// Start a new session with a goal and a summary of another session.
    Handoff(handoff::Args),
    /// Explain whether a text was forgotten or compacted out: which calls saw it, and what became of it.
    Why(why::Args),
    /// List the requests a session made: size, cache, cost, hash.
    Calls(calls::Args),
    /// Render a past request again, and check that it matches what was sent.
    ReplayCall(calls::ReplayArgs),
    /// Measure the compaction of a session against its targets.
    Metrics(metrics::Args),
    /// List the known models.
    Models(models::Args),
    /// List the policies, and explain them.
    Policies(policies::Args),
    /// Run a gateway between agents and their providers: it records requests, and keeps them inside the
    /// models' windows if told to.
    Serve(serve::Args),
    /// Replay sessions under several policies: what each would have cost and lost.
    Replay(replay::Args),
    /// Check requests made from sessions at many budgets and in every format.
    Sweep(sweep::Args),
    /// Measure what summaries keep of sessions, after one compaction and after several in a row.
    Eval(eval::Args),
    /// Search words in all sessions and in the ledger.
    Search(search::Args),
    /// Change the title of a session.
    Rename(sessions::RenameArgs),
    /// Add labels to a session, or remove them.
    Label(sessions::LabelArgs),
    /// Keep external events beside the sessions, which are never compacted.
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Copy the database while it is in use.
    Backup(backup::Args),
    /// Check the database: schema, pages, hash chains and all derived data.
    Doctor(doctor::Args),
    /// Delete a session for good.
    Erase(erase::Args),
    /// Print a completion script for a shell.
    Completions {
        /// Shell to write the script for.
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let out = Output::new(self.json);
        let store = Store::new(self.db);
        match self.command {
            Command::Compact(args) => compact::run(&args, &store, out),
            Command::Context(args) => context::run(&args, &store, out),
            Command::Explain(args) => context::explain(&args, &store, out),
            Command::Diff(args) => diff::run(&args, &store, out),
            Command::Jobs(args) => jobs::run(&args, &store, out),
            Command::Undo(args) => undo::undo(&args, &store, out),
            Command::Redo(args) => undo::redo(&args, &store, out),
            Command::Recall(args) => recall::run(&args, &store, out),
            Command::Pin(args) => pins::pin(&args, &store, out),
            Command::Unpin(args) => pins::unpin(&args, &store, out),
            Command::Pins(args) => pins::list(&args, &store, out),
            Command::Handoff(args) => handoff::run(&args, &store, out),
            Command::Why(args) => why::run(&args, &store, out),
            Command::Metrics(args) => metrics::run(&args, &store, out),
            Command::Calls(args) => calls::run(&args, &store, out),
            Command::ReplayCall(args) => calls::replay(&args, &store, out),
            Command::Models(args) => models::run(&args, out),
            Command::Policies(args) => policies::run(&args, out),
            Command::Serve(args) => serve::run(&args, &store, out),
            Command::Replay(args) => replay::run(&args, &store, out),
            Command::Sweep(args) => sweep::run(&args, out),
            Command::Eval(args) => eval::run(&args, out),
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
                // The script is made in memory first, because the generator panics on a closed pipe.
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "epitome", &mut script);
                let mut out = out;
                out.bytes(&script)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
