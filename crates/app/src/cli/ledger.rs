//! `ledger`: external events, kept beside the sessions and never compacted.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args as ClapArgs, Subcommand};
use epitome::{
    core::{EventId, event::Timestamp},
    store::{
        Store,
        records::{CreateOutcome, LedgerEntry, LedgerFilter},
    },
};
use serde_json::json;
use uuid::Uuid;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(Subcommand)]
pub(crate) enum LedgerCommand {
    /// Record something that happened outside any session.
    Add(LedgerAddArgs),
    /// List recorded events, the newest last.
    List(LedgerListArgs),
}

#[derive(ClapArgs)]
pub(crate) struct LedgerAddArgs {
    /// Text of the event; `-` reads it from standard input.
    text: String,

    /// Channel of the event: a chat, a mailbox, a webhook.
    #[arg(long)]
    channel: String,

    /// Author of the event.
    #[arg(long, default_value = "")]
    author: String,

    /// Id of the event in its channel. Adding the same id again changes nothing.
    #[arg(long)]
    id: Option<String>,

    /// Time of the event; now by default.
    #[arg(long, value_parser = text_format::parse_time)]
    time: Option<Timestamp>,

    /// Turn that the event belongs to, as SESSION/TURN. May be given several times.
    #[arg(long = "turn", value_name = "SESSION/TURN")]
    turns: Vec<String>,
}

#[derive(ClapArgs)]
pub(crate) struct LedgerListArgs {
    /// List only events of this channel.
    #[arg(long)]
    channel: Option<String>,

    /// List only events at or after this time.
    #[arg(long, value_parser = text_format::parse_time)]
    since: Option<Timestamp>,

    /// List only events before this time.
    #[arg(long, value_parser = text_format::parse_time)]
    before: Option<Timestamp>,

    /// List only events linked to this turn, as SESSION/TURN.
    #[arg(long, value_name = "SESSION/TURN")]
    turn: Option<String>,

    /// List at most N events, the newest.
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

pub(crate) fn run(
    command: LedgerCommand,
    store: &DatabaseLocation,
    out: CliOutput,
) -> anyhow::Result<ExitCode> {
    match command {
        LedgerCommand::Add(args) => add(args, store, out),
        LedgerCommand::List(args) => list(args, store, out),
    }
}

fn add(args: LedgerAddArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open()?;
    let turns = args.turns.iter().map(|name| linked(&*store, name)).collect::<anyhow::Result<Vec<_>>>()?;
    let said = match args.text.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
        _ => args.text,
    };
    let id = args.id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let raw = json!({ "channel": args.channel, "id": id, "author": args.author, "text": said }).to_string();
    let entry = LedgerEntry {
        id,
        channel: args.channel,
        time: args.time.unwrap_or_else(text_format::now),
        author: args.author,
        text: said,
        raw,
    };
    let made = store.ledger_add(&entry, &turns)?;
    if out.is_json() {
        let mut line = entry_json(&entry, &turns);
        line["new"] = (made == CreateOutcome::New).into();
        out.object(&line)?;
    } else {
        let word = if made == CreateOutcome::New { "added" } else { "was there already" };
        out.line(format_args!("{NAME}{}{NAME:#} {word} in {BOLD}{}{BOLD:#}", entry.id, entry.channel))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: LedgerListArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let filter = LedgerFilter {
        channel: args.channel,
        since: args.since,
        before: args.before,
        linked: args.turn.as_deref().map(|name| linked(&*store, name)).transpose()?,
        limit: args.limit,
    };
    let entries = store.ledger(&filter)?;
    for entry in &entries {
        let turns = store.ledger_turns(&entry.channel, &entry.id)?;
        if out.is_json() {
            out.object(&entry_json(entry, &turns))?;
            continue;
        }
        let author = if entry.author.is_empty() { "" } else { &entry.author };
        out.line(format_args!(
            "{}  {BOLD}{}{BOLD:#} {author}  {DIM}{}{}{DIM:#}",
            text_format::minute(entry.time),
            entry.channel,
            entry.id,
            if turns.is_empty() {
                String::new()
            } else {
                format!(" · {}", text_format::count(turns.len() as u64, "turn"))
            },
        ))?;
        out.line(format_args!(
            "    {}",
            text_format::one_line(&entry.text, text_format::width().saturating_sub(4) * 3)
        ))?;
    }
    if entries.is_empty() && !out.is_json() {
        out.line("The ledger has no such entries.")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn entry_json(entry: &LedgerEntry, turns: &[EventId]) -> serde_json::Value {
    json!({
        "channel": entry.channel,
        "id": entry.id,
        "time": text_format::rfc3339(entry.time),
        "author": entry.author,
        "text": entry.text,
        "turns": turns,
    })
}

fn linked(store: &dyn Store, name: &str) -> anyhow::Result<EventId> {
    let (session, turn) = name.rsplit_once('/').with_context(|| format!("`{name}` is not SESSION/TURN"))?;
    let session = store.find_session(session)?;
    let thread = store_lookup::thread(store, &session, None)?;
    let turns = store.turns(thread.id)?;
    Ok(store_lookup::turn(thread.id, &turns, turn)?.1.turn.id)
}
