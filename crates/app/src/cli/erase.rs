//! `erase`: the only deletion, after confirmation.

use std::{
    io::{self, BufRead, IsTerminal},
    process::ExitCode,
};

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::store::records::Scrubbed;

use super::{
    open::Store,
    output::{BOLD, NAME, Output},
    text,
};

#[derive(ClapArgs)]
#[command(
    after_help = "What forks in other sessions share with it stays with them. A line without content goes to the audit."
)]
pub(crate) struct Args {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,

    /// Delete without asking.
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let row = store.find_session(&args.session)?;
    if !args.yes {
        if !io::stdin().is_terminal() {
            bail!("erasing cannot be undone: say --yes to erase {} without being asked", row.id);
        }
        anstream::eprintln!(
            "Erase {NAME}{}{NAME:#} {BOLD}{}{BOLD:#} ({}, {})? This cannot be undone. Type `erase` to go on:",
            row.id,
            text::one_line(&row.title, text::width()),
            text::count(row.threads, "thread"),
            text::count(row.events, "event"),
        );
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if answer.trim() != "erase" {
            bail!("nothing was erased");
        }
    }
    let erased = store.erase(row.id, text::now())?;
    if out.is_json() {
        let mut value = serde_json::to_value(&erased)?;
        value["session"] = row.id.to_string().into();
        out.object(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!(
        "Erased {}: {}, {}, {}.",
        row.id,
        text::count(erased.threads, "thread"),
        text::count(erased.events, "event"),
        text::count(erased.media, "medium").replace("mediums", "media"),
    ))?;
    if erased.shared > 0 {
        out.line(format_args!(
            "{} live on as copies: forks in other sessions share them.",
            text::count(erased.shared, "event")
        ))?;
    }
    if erased.scrubbed == Scrubbed::Waiting {
        out.line("Another process still reads old pages of the file: once it has finished, `epitome doctor --rebuild` clears them.")?;
    }
    Ok(ExitCode::SUCCESS)
}
