//! The binary `epitome`: reads the command line, runs one command, says plainly what went wrong.

mod cli;
mod gateway;

use std::{io, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};
use mimalloc::MiMalloc;

/// A request is hundreds of small pieces and a large one, made by one thread and let go of by another. An allocator that is
/// made for that spares a tenth of its time, for some fifty megabytes more.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::MissingSubcommand => return help(),
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

/// Shows the help of the command that needs another after it. Clap does so where nothing at all is said, but a database that
/// the environment names counts as something.
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

/// Whoever read our output stopped reading, as `head` does: nothing went wrong.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
