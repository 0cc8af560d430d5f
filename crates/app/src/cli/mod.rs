//! The command line: one file a command, and shared modules.

mod agent_folders;
mod agent_programs;
mod backup;
mod calls;
mod compact;
mod compact_session;
mod compaction_report;
mod config;
mod context;
mod diff;
mod doctor;
mod erase;
mod eval;
mod export;
mod fork;
mod handoff;
mod history;
mod hook;
mod import;
mod jobs;
mod last;
mod ledger;
mod mcp;
mod metrics;
mod models;
mod output;
mod parallel;
mod pins;
mod policies;
mod recall;
mod replay;
mod request_source;
mod resume;
mod resumed_sessions;
mod search;
mod serve;
mod session_args;
mod sessions;
mod setup;
mod show;
mod store_lookup;
mod structured_summary;
mod sweep;
mod text_format;
mod transcript_calls;
mod undo;
mod why;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand, builder::TypedValueParser};

use output::CliOutput;
use store_lookup::DatabaseLocation;

use crate::config::session_settings::ConfigPath;

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

    /// Configuration file, for the gateway and for commands that act on sessions. By default the one in your configuration
    /// directory, if it is there: `epitome config` shows what holds.
    #[arg(long, global = true, value_name = "FILE", env = "EPITOME_CONFIG", hide_env_values = true)]
    #[arg(value_parser = clap::builder::OsStringValueParser::new().map(PathBuf::from))]
    config: Option<PathBuf>,

    /// Print JSON: one line per item of a list, otherwise one object.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    /// Make messages fit a token budget, ready to send; or compact a session.
    Compact(compact::CompactArgs),
    /// Make a session smaller and go on with it, in its own agent or in another.
    Resume(resume::ResumeArgs),
    /// Find the newest session of any agent.
    Last(last::LastArgs),
    /// Read agents' transcripts into the log.
    Import(import::ImportArgs),
    /// List the sessions.
    Sessions(sessions::SessionsArgs),
    /// Show a session turn by turn.
    Show(show::ShowArgs),
    /// Write a session in a provider's format, or as JSON Lines.
    Export(export::ExportArgs),
    /// Start a new session from a turn of another session.
    Fork(fork::ForkArgs),
    /// Walk the whole chain of turns, through every compaction.
    History(history::HistoryArgs),
    /// Show what the model sees, by region.
    Context(context::ContextArgs),
    /// Explain how a context came about: what each reducer did.
    Explain(context::ExplainArgs),
    /// Compare what the model saw at two turns, or would see under two policies.
    Diff(diff::DiffArgs),
    /// List queued summaries, or make them.
    Jobs(jobs::JobsArgs),
    /// Undo the newest compaction of a session.
    Undo(undo::UndoArgs),
    /// Restore the compaction that was undone last.
    Redo(undo::RedoArgs),
    /// Show the full content behind a handle.
    Recall(recall::RecallArgs),
    /// Pin words or an event, so that no compaction loses them.
    Pin(pins::PinArgs),
    /// Remove a pin.
    Unpin(pins::UnpinArgs),
    /// List pins.
    Pins(pins::PinsArgs),
    /// Start a new session with a goal and a summary of another session.
    Handoff(handoff::HandoffArgs),
    /// Explain whether a text was forgotten or compacted out: which calls saw it, and what became of it.
    Why(why::WhyArgs),
    /// List the requests a session made: size, cache, cost, hash.
    Calls(calls::CallsArgs),
    /// Render a past request again, and check that it matches what was sent.
    ReplayCall(calls::ReplayCallArgs),
    /// Measure the compaction of a session against its targets.
    Metrics(metrics::MetricsArgs),
    /// List the known models.
    Models(models::ModelsArgs),
    /// List the policies, and explain them.
    Policies(policies::PoliciesArgs),
    /// Run a gateway between agents and their providers: it records requests, and keeps them inside the
    /// models' windows if told to.
    Serve(serve::ServeArgs),
    /// Show the configuration that holds, and where each value is from; or check a file, or list its keys.
    Config(config::ConfigArgs),
    /// Serve recorded sessions to an agent by the Model Context Protocol, on standard input and output.
    Mcp(mcp::McpArgs),
    /// Write hooks, the MCP server or the gateway into an agent's settings, or take them out again.
    Setup(setup::SetupArgs),
    /// Answer an agent's hook: the facts of a session around its compaction, and earlier failures.
    Hook(hook::HookArgs),
    /// Replay sessions under several policies: what each would have cost and lost.
    Replay(replay::ReplayArgs),
    /// Check requests made from sessions at many budgets and in every format.
    Sweep(sweep::SweepArgs),
    /// Measure what summaries keep of sessions, after one compaction and after several in a row.
    Eval(eval::EvalArgs),
    /// Search words in all sessions and in the ledger.
    Search(search::SearchArgs),
    /// Change the title of a session.
    Rename(sessions::RenameArgs),
    /// Add labels to a session, or remove them.
    Label(sessions::LabelArgs),
    /// Keep external events beside the sessions, which are never compacted.
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Copy the database while it is in use.
    Backup(backup::BackupArgs),
    /// Check the database: schema, pages, hash chains and all derived data.
    Doctor(doctor::DoctorArgs),
    /// Delete a session for good.
    Erase(erase::EraseArgs),
    /// Print a completion script for a shell.
    Completions {
        /// Shell to write the script for.
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let out = CliOutput::new(self.json);
        let config = ConfigPath::find(self.config);
        let store = DatabaseLocation::new(self.db, config.clone());
        match self.command {
            CliCommand::Compact(args) => compact::run(&args, &store, out),
            CliCommand::Resume(args) => resume::run(&args, &store, out),
            CliCommand::Last(args) => last::run(&args, out),
            CliCommand::Context(args) => context::run(&args, &store, out),
            CliCommand::Explain(args) => context::explain(&args, &store, out),
            CliCommand::Diff(args) => diff::run(&args, &store, out),
            CliCommand::Jobs(args) => jobs::run(&args, &store, out),
            CliCommand::Undo(args) => undo::undo(&args, &store, out),
            CliCommand::Redo(args) => undo::redo(&args, &store, out),
            CliCommand::Recall(args) => recall::run(&args, &store, out),
            CliCommand::Pin(args) => pins::pin(&args, &store, out),
            CliCommand::Unpin(args) => pins::unpin(&args, &store, out),
            CliCommand::Pins(args) => pins::list(&args, &store, out),
            CliCommand::Handoff(args) => handoff::run(&args, &store, out),
            CliCommand::Why(args) => why::run(&args, &store, out),
            CliCommand::Metrics(args) => metrics::run(&args, &store, out),
            CliCommand::Calls(args) => calls::run(&args, &store, out),
            CliCommand::ReplayCall(args) => calls::replay(&args, &store, out),
            CliCommand::Models(args) => models::run(&args, out),
            CliCommand::Policies(args) => policies::run(&args, out),
            CliCommand::Serve(args) => serve::run(&args, &config, &store, out),
            CliCommand::Config(args) => config::run(&args, &config, &store, out),
            CliCommand::Mcp(args) => {
                // The output holds the lock of standard output, which the server writes to.
                drop(out);
                mcp::run(&args, store)
            }
            CliCommand::Setup(args) => setup::run(&args, &store, out),
            CliCommand::Hook(args) => Ok(hook::run(&args, &store, out)),
            CliCommand::Replay(args) => replay::run(&args, &store, out),
            CliCommand::Sweep(args) => sweep::run(&args, out),
            CliCommand::Eval(args) => eval::run(&args, out),
            CliCommand::Import(args) => import::run(&args, &store, out),
            CliCommand::Sessions(args) => sessions::run(&args, &store, out),
            CliCommand::Show(args) => show::run(&args, &store, out),
            CliCommand::Export(args) => export::run(&args, &store, out),
            CliCommand::Fork(args) => fork::run(&args, &store, out),
            CliCommand::History(args) => history::run(&args, &store, out),
            CliCommand::Search(args) => search::run(&args, &store, out),
            CliCommand::Rename(args) => sessions::rename(&args, &store, out),
            CliCommand::Label(args) => sessions::label(&args, &store, out),
            CliCommand::Ledger(command) => ledger::run(command, &store, out),
            CliCommand::Backup(args) => backup::run(&args, &store, out),
            CliCommand::Doctor(args) => doctor::run(&args, &store, out),
            CliCommand::Erase(args) => erase::run(&args, &store, out),
            CliCommand::Completions { shell } => {
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
