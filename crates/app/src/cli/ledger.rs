//! `ledger`: external events, kept beside the sessions and never compacted.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args as ClapArgs, Subcommand};
use epitome::{
    core::{EventId, event::Time},
    store::{
        Sqlite,
        records::{LedgerEntry, LedgerFilter, Made},
    },
};
use serde_json::json;
use uuid::Uuid;

use super::{
    open::{self, Store},
    output::{BOLD, DIM, NAME, Output},
    text,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Record something that happened outside any session.
    Add(Add),
    /// List recorded events, the newest last.
    List(List),
}

#[derive(ClapArgs)]
pub(crate) struct Add {
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
    #[arg(long, value_parser = text::parse_time)]
    time: Option<Time>,

    /// Turn that the event belongs to, as SESSION/TURN. May be given several times.
    #[arg(long = "turn", value_name = "SESSION/TURN")]
    turns: Vec<String>,
}

#[derive(ClapArgs)]
pub(crate) struct List {
    /// List only events of this channel.
    #[arg(long)]
    channel: Option<String>,

    /// List only events at or after this time.
    #[arg(long, value_parser = text::parse_time)]
    since: Option<Time>,

    /// List only events before this time.
    #[arg(long, value_parser = text::parse_time)]
    before: Option<Time>,

    /// List only events linked to this turn, as SESSION/TURN.
    #[arg(long, value_name = "SESSION/TURN")]
    turn: Option<String>,

    /// List at most N events, the newest.
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

pub(crate) fn run(command: Command, store: &Store, out: Output) -> anyhow::Result<ExitCode> {
    match command {
        Command::Add(args) => add(args, store, out),
        Command::List(args) => list(args, store, out),
    }
}

fn add(args: Add, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let store = store.open()?;
    let turns = args.turns.iter().map(|name| linked(&store, name)).collect::<anyhow::Result<Vec<_>>>()?;
    let said = match args.text.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
        _ => args.text,
    };
    let id = args.id.unwrap_or_else(|| Uuid::now_v7().to_string());
    let raw = json!({ "channel": args.channel, "id": id, "author": args.author, "text": said }).to_string();
    let entry = LedgerEntry {
        id,
        channel: args.channel,
        time: args.time.unwrap_or_else(text::now),
        author: args.author,
        text: said,
        raw,
    };
    let made = store.ledger_add(&entry, &turns)?;
    if out.is_json() {
        let mut line = entry_json(&entry, &turns);
        line["new"] = (made == Made::New).into();
        out.object(&line)?;
    } else {
        let word = if made == Made::New { "added" } else { "was there already" };
        out.line(format_args!("{NAME}{}{NAME:#} {word} in {BOLD}{}{BOLD:#}", entry.id, entry.channel))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: List, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let filter = LedgerFilter {
        channel: args.channel,
        since: args.since,
        before: args.before,
        linked: args.turn.as_deref().map(|name| linked(&store, name)).transpose()?,
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
            text::minute(entry.time),
            entry.channel,
            entry.id,
            if turns.is_empty() {
                String::new()
            } else {
                format!(" · {}", text::count(turns.len() as u64, "turn"))
            },
        ))?;
        out.line(format_args!("    {}", text::one_line(&entry.text, text::width().saturating_sub(4) * 3)))?;
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
        "time": text::rfc3339(entry.time),
        "author": entry.author,
        "text": entry.text,
        "turns": turns,
    })
}

fn linked(store: &Sqlite, name: &str) -> anyhow::Result<EventId> {
    let (session, turn) = name.rsplit_once('/').with_context(|| format!("`{name}` is not SESSION/TURN"))?;
    let session = store.find_session(session)?;
    let thread = open::thread(store, &session, None)?;
    let turns = store.turns(thread.id)?;
    Ok(open::turn(thread.id, &turns, turn)?.1.turn.id)
}
