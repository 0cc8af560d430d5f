//! The binary `epitome`: reads the command line, runs one command and reports errors plainly.

mod cli;
mod config;
mod gateway;
mod hooks;
mod mcp;
mod setup;
mod units;

use std::{io, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};
use mimalloc::MiMalloc;

/// Allocator of the binary. A request is hundreds of small pieces and a large one, allocated by one thread
/// and freed by another. An allocator made for that takes a tenth less time, and some fifty megabytes more.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => return help(),
        Err(error) if error.use_stderr() && is_hook() => {
            // Agents take the exit code of a wrong command line, 2, for a refusal of what they are about to do.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => error.exit(),
    };
    match cli.run() {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
            anstream::eprintln!("{style}error:{style:#} {error}");
            for cause in error.chain().skip(1) {
                anstream::eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns true if the command line, however wrong, is for `hook`.
fn is_hook() -> bool {
    let command = cli::Cli::command().ignore_errors(true);
    command.try_get_matches().is_ok_and(|given| given.subcommand_name() == Some("hook"))
}

/// Shows the help of a command that lacks its subcommand. Clap does so for an empty command line, but counts
/// a database named by the environment as an argument.
fn help() -> ExitCode {
    let mut command = cli::Cli::command();
    command.build();
    for name in std::env::args().skip(1) {
        if let Some(named) = command.find_subcommand(&name) {
            command = named.clone();
        }
    }
    anstream::eprint!("{}", command.render_help().ansi());
    ExitCode::from(2)
}

/// Returns true if the reader of our output stopped reading, as `head` does. This is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
