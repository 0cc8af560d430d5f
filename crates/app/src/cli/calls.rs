//! `calls`, `replay-call`: the requests of a session, and the proof that they can be rendered again.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{Digest, ThreadId, Tokens, event::Usage, profile::Money},
    session::call_replay::{self, ReplayedCall},
    store::{
        Store,
        records::{CallRow, SessionRow, ThreadRow},
    },
};
use serde_json::{Value, json};

use super::{
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    parallel,
    session_args::ThreadArgs,
    store_lookup::DatabaseLocation,
    text_format, transcript_calls,
};

#[derive(ClapArgs)]
#[command(after_help = "\
Every request that a session made, or that a gateway relayed as its client sent it: its size as estimated and as the provider counted it, what the cache gave, what it \
cost, and the hash of its bytes. Of a session that was imported, its calls as the transcript records them. An epoch begins where the request did more than grow at its end, and its cause says why.

  epitome calls SESSION
  epitome calls SESSION -n 20
  epitome replay-call SESSION 12 --body           what exactly did call 12 send?")]
pub(crate) struct CallsArgs {
    #[command(flatten)]
    named: ThreadArgs,

    /// List only the last N calls.
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<u64>,
}

#[derive(ClapArgs)]
#[command(after_help = "\
The request is rendered from the log and the records beside it alone, and its hash compared with what was sent.

  epitome replay-call SESSION 12
  epitome replay-call SESSION 12 --body | jq .messages
  epitome replay-call SESSION --all")]
pub(crate) struct ReplayCallArgs {
    #[command(flatten)]
    named: ThreadArgs,

    /// Number of the call, as `epitome calls` lists it.
    #[arg(value_name = "N", required_unless_present = "all", conflicts_with = "all")]
    call: Option<u64>,

    /// Print the request itself.
    #[arg(long, conflicts_with = "all")]
    body: bool,

    /// Check every call of the session.
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(
    args: &CallsArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (session, thread) = args.named.find(&*store)?;
    let newest = store.last_call(thread.id)?.map_or(0, |row| row.number + 1);
    let first = args.limit.map_or(0, |limit| newest.saturating_sub(limit));
    let rows = store.calls(thread.id, first, usize::MAX)?;
    if newest == 0 {
        return list_transcript(&*store, (&session, &thread), args.limit, out);
    }
    if out.is_json() {
        for row in &rows {
            out.object(&row_json(row))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&session.title, text_format::width())))?;
    let columns = [
        "call",
        "time",
        "model",
        "estimated",
        "actual",
        "read",
        "written",
        "cost",
        "epoch",
        "cause",
        "summary",
        "hash",
    ];
    let mut table = text_format::table(&columns, &[0, 3, 4, 5, 6, 7, 8, 10]);
    for row in &rows {
        table.add_row(cells(row));
    }
    out.line(table)?;
    let counted: Vec<Usage> = rows.iter().filter_map(usage).collect();
    total(rows.len(), &counted, rows.iter().filter_map(cost).collect(), &mut out)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the calls of a session that was imported, as its transcript records them.
fn list_transcript(
    store: &dyn Store,
    (session, thread): (&SessionRow, &ThreadRow),
    limit: Option<u64>,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let mut calls = transcript_calls::of(store, thread)?;
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    calls.drain(..calls.len().saturating_sub(limit));
    if out.is_json() {
        for call in &calls {
            out.object(&call.json())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if calls.is_empty() {
        out.line("No calls yet: this session has not begun.")?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&session.title, text_format::width())))?;
    transcript_calls::table(&calls, &mut out)?;
    let (usage, costs) = transcript_calls::totals(&calls);
    total(calls.len(), &usage, costs, &mut out)?;
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &CallRow) -> [String; 12] {
    let call = &row.call;
    let usage = usage(row);
    let counted = |pick: fn(&Usage) -> Tokens| {
        usage.as_ref().map(|usage| text_format::tokens(pick(usage))).unwrap_or_default()
    };
    let cause = match (error(row), &call.cause) {
        (Some(error), _) => format!("failed: {error}"),
        (None, Some(cause)) => cause.clone(),
        (None, None) if call.is_relayed() => "relayed".to_owned(),
        (None, None) => String::new(),
    };
    // A relayed request has no epochs, and its parts are not counted.
    let made = |told: String| if call.is_relayed() { String::new() } else { told };
    [
        row.number.to_string(),
        call.time.map(text_format::minute).unwrap_or_default(),
        text_format::one_line(call.model.as_deref().unwrap_or_default(), 24),
        made(text_format::tokens(call.estimated)),
        counted(Usage::input),
        counted(|usage| usage.cache_read),
        counted(|usage| usage.cache_write),
        cost(row).map(|cost| cost.to_string()).unwrap_or_default(),
        made(call.epoch.to_string()),
        text_format::one_line(&cause, 40),
        call.summary.map(|summary| summary.seq.to_string()).unwrap_or_default(),
        short(call.hash),
    ]
}

/// Writes the totals of all calls.
fn total(calls: usize, counted: &[Usage], costs: Vec<Money>, out: &mut CliOutput) -> anyhow::Result<()> {
    let mut facts = vec![text_format::count(calls as u64, "call")];
    if !counted.is_empty() {
        let input: Tokens = counted.iter().map(Usage::input).sum();
        let read: Tokens = counted.iter().map(|usage| usage.cache_read).sum();
        let percent = (u128::from(read.0) * 100).checked_div(u128::from(input.0)).unwrap_or_default();
        facts.push(format!("{} tokens in, {percent} % of them from the cache", text_format::tokens(input)));
    }
    if !costs.is_empty() {
        facts.push(costs.into_iter().sum::<Money>().to_string());
    }
    out.line(format_args!("\n{DIM}{}{DIM:#}", facts.join(" · ")))
}

/// Usage that the provider reported last.
fn usage(row: &CallRow) -> Option<Usage> {
    row.outcomes.iter().rev().find_map(|outcome| outcome.usage)
}

fn cost(row: &CallRow) -> Option<Money> {
    row.outcomes.iter().rev().find_map(|outcome| outcome.cost)
}

/// Error of a failed call.
fn error(row: &CallRow) -> Option<&str> {
    row.outcomes.last().and_then(|outcome| outcome.error.as_deref())
}

fn short(hash: Digest) -> String {
    hash.to_string().chars().take(8).collect()
}

fn row_json(row: &CallRow) -> Value {
    let call = &row.call;
    // Values that are recorded as JSON are shown as JSON.
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    let outcomes: Vec<Value> = row
        .outcomes
        .iter()
        .map(|outcome| {
            json!({
                "time": outcome.time.and_then(text_format::rfc3339),
                "answer": outcome.answer,
                "usage": outcome.usage,
                "cost": outcome.cost.map(Money::dollars),
                "error": outcome.error,
            })
        })
        .collect();
    json!({
        "call": row.number,
        "thread": row.thread,
        "head": call.head,
        "time": call.time.and_then(text_format::rfc3339),
        "model": call.model,
        "format": call.format,
        "policy": call.policy.to_string(),
        "profile": call.profile.map(|profile| profile.to_string()),
        "rendering": call.rendering.to_string(),
        "epoch": call.epoch,
        "cause": call.cause,
        "summary": call.summary,
        "steps": parsed(&call.steps),
        "plan": call.plan.as_deref().map(parsed),
        "estimated": call.estimated,
        "actual": usage(row).map(|usage| usage.input()),
        "usage": usage(row),
        "cost": cost(row).map(Money::dollars),
        "bytes": call.bytes,
        "hash": call.hash.to_string(),
        "relayed": call.is_relayed(),
        "outcomes": outcomes,
    })
}

pub(crate) fn replay(
    args: &ReplayCallArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (_, thread) = args.named.find(&*store)?;
    let Some(number) = args.call else { return replay_all(&*store, thread.id, out) };
    if store.last_call(thread.id)?.is_none() {
        bail!(
            "no requests are recorded: they are when a session is run by the library or passes the gateway; this one was imported, or has not begun"
        );
    }
    let replayed = call_replay::replay_call(&*store, thread.id, number)?;
    let code = if replayed.is_same() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if out.is_json() {
        let mut line = replayed_json(&replayed);
        if args.body {
            line["body"] = replayed.rendered.body.clone().into();
        }
        out.object(&line)?;
        return Ok(code);
    }
    if args.body {
        if !replayed.is_same() {
            anstream::eprintln!("{NOTE}note:{NOTE:#} {}", differs(&replayed));
        }
        out.bytes(replayed.rendered.body.as_bytes())?;
        out.bytes(b"\n")?;
        return Ok(code);
    }
    if replayed.is_same() {
        out.line(format_args!(
            "call {NAME}{number}{NAME:#} is rendered to the very bytes that were sent: {} bytes, {}",
            replayed.rendered.body.len(),
            replayed.row.call.hash
        ))?;
        out.line(format_args!("{DIM}--body prints them{DIM:#}"))?;
    } else {
        out.line(differs(&replayed))?;
    }
    Ok(code)
}

fn differs(replayed: &ReplayedCall) -> String {
    format!(
        "call {} comes out as {} and was sent as {}: the log or a record was changed behind the store's back (epitome \
         doctor finds out), or another version of epitome sent it",
        replayed.row.number,
        Digest::of(replayed.rendered.body.as_bytes()),
        replayed.row.call.hash
    )
}

fn replayed_json(replayed: &ReplayedCall) -> Value {
    json!({
        "call": replayed.row.number,
        "same": replayed.is_same(),
        "sent": replayed.row.call.hash.to_string(),
        "found": Digest::of(replayed.rendered.body.as_bytes()).to_string(),
        "bytes": replayed.rendered.body.len(),
    })
}

/// Checks every call, on all cores.
fn replay_all(store: &dyn Store, thread: ThreadId, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let newest = store.last_call(thread)?.map_or(0, |row| row.number + 1);
    let numbers: Vec<u64> = (0..newest).collect();
    let (mut same, mut wrong) = (0_u64, 0_u64);
    let mut said = Vec::new();
    parallel::for_all(
        &numbers,
        |number| format!("call {number}"),
        |number| call_replay::replay_call(store, thread, *number),
        |number, replayed| {
            match replayed {
                Ok(replayed) if replayed.is_same() => same += 1,
                Ok(replayed) => {
                    wrong += 1;
                    said.push((*number, differs(&replayed)));
                }
                Err(error) => {
                    wrong += 1;
                    said.push((*number, format!("call {number} cannot be rendered again: {error}")));
                }
            }
            Ok(())
        },
    )?;
    if out.is_json() {
        let wrong: Vec<Value> = said.iter().map(|(call, why)| json!({ "call": call, "why": why })).collect();
        out.object(&json!({ "calls": newest, "same": same, "wrong": wrong }))?;
    } else if newest == 0 {
        out.line("No calls are recorded: there is nothing to check.")?;
    } else {
        for (_, why) in &said {
            out.line(why)?;
        }
        out.line(format_args!(
            "{BOLD}{same} of {}{BOLD:#} are rendered to the very bytes that were sent",
            text_format::count(newest, "call")
        ))?;
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
