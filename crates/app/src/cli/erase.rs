//! `erase`: the only deletion, after confirmation.

use std::{
    io::{self, BufRead, IsTerminal},
    process::ExitCode,
};

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::store::records::ScrubState;

use super::{
    output::{BOLD, CliOutput, NAME},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(
    after_help = "What forks in other sessions share with it stays with them. A line without content goes to the audit."
)]
pub(crate) struct EraseArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,

    /// Delete without asking.
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(
    args: &EraseArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let row = store.find_session(&args.session)?;
    if !args.yes {
        if !io::stdin().is_terminal() {
            bail!("erasing cannot be undone: say --yes to erase {} without being asked", row.id);
        }
        anstream::eprintln!(
            "Erase {NAME}{}{NAME:#} {BOLD}{}{BOLD:#} ({}, {})? This cannot be undone. Type `erase` to go on:",
            row.id,
            text_format::one_line(&row.title, text_format::width()),
            text_format::count(row.threads, "thread"),
            text_format::count(row.events, "event"),
        );
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if answer.trim() != "erase" {
            bail!("nothing was erased");
        }
    }
    let erased = store.erase(row.id, text_format::now())?;
    if out.is_json() {
        let mut value = serde_json::to_value(&erased)?;
        value["session"] = row.id.to_string().into();
        out.object(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!(
        "Erased {}: {}, {}, {}.",
        row.id,
        text_format::count(erased.threads, "thread"),
        text_format::count(erased.events, "event"),
        text_format::count(erased.media, "medium").replace("mediums", "media"),
    ))?;
    if erased.shared > 0 {
        out.line(format_args!(
            "{} live on as copies: forks in other sessions share them.",
            text_format::count(erased.shared, "event")
        ))?;
    }
    if erased.scrubbed == ScrubState::Waiting {
        out.line("Another process still reads old pages of the file: once it has finished, `epitome doctor --rebuild` clears them.")?;
    }
    Ok(ExitCode::SUCCESS)
}
