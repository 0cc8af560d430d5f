//! `history`: the whole chain of turns, compactions included, and the turns that a compaction covers.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{ThreadId, lineage::covered_by, turn::Turn},
    store::records::TurnRow,
};
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME, NOTE},
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(ClapArgs)]
pub(crate) struct HistoryArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,

    /// Thread; by default the session's current thread.
    #[arg(long)]
    thread: Option<String>,

    /// List only the turns that this compaction covers: its number, or its id.
    #[arg(long, value_name = "TURN")]
    summarized_by: Option<String>,
}

pub(crate) fn run(
    args: &HistoryArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let session = store.find_session(&args.session)?;
    let thread = store_lookup::thread(&*store, &session, args.thread.as_deref())?;
    let rows = store.turns(thread.id)?;
    let chosen = match &args.summarized_by {
        None => rows.iter().enumerate().collect(),
        Some(name) => covered(thread.id, &rows, name)?,
    };
    if out.is_json() {
        for (index, row) in chosen {
            out.object(&turn_json(index + 1, row))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!(
        "{BOLD}{}{BOLD:#} · thread {} · {}",
        text_format::one_line(&session.title, text_format::width()),
        text_format::one_line(&thread.name, 80),
        text_format::count(chosen.len() as u64, "turn")
    ))?;
    for (index, row) in chosen {
        out.line(line(index + 1, row, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn covered<'a>(
    thread: ThreadId,
    rows: &'a [TurnRow],
    name: &str,
) -> anyhow::Result<Vec<(usize, &'a TurnRow)>> {
    let (number, row) = store_lookup::turn(thread, rows, name)?;
    let turns: Vec<Turn> = rows.iter().map(|row| row.turn.clone()).collect();
    let Some(ids) = covered_by(&turns, row.turn.id) else {
        let compactions: Vec<String> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.turn.is_compaction())
            .map(|(index, _)| (index + 1).to_string())
            .collect();
        if compactions.is_empty() {
            bail!("turn {number} is not a compaction; the thread has none");
        }
        bail!("turn {number} is not a compaction; these are: {}", compactions.join(", "));
    };
    Ok(rows.iter().enumerate().filter(|(_, row)| ids.contains(&row.turn.id)).collect())
}

/// A turn, for programs.
pub(crate) fn turn_json(number: usize, row: &TurnRow) -> serde_json::Value {
    let TurnRow { turn, session, has_children, tokens, summarized_through, first_kept } = row;
    let compaction = turn.compaction.as_ref();
    json!({
        "turn": number,
        "id": turn.id,
        "type": if compaction.is_some() { "compaction" } else { "normal" },
        "parent": turn.parent,
        "session": session,
        "loop": turn.loop_index + 1,
        "time": turn.time.and_then(text_format::rfc3339),
        "model": turn.model,
        "tool_calls": turn.tool_calls,
        "tokens": tokens,
        "usage": turn.usage,
        "has_children": has_children,
        "summary": compaction.map(|compaction| compaction.summary.text()),
        "summarized_through": summarized_through,
        "first_kept": first_kept,
        "tokens_before": compaction.and_then(|compaction| compaction.tokens_before),
        "tokens_after": compaction.and_then(|compaction| compaction.tokens_after),
        "trigger": compaction.map(|compaction| compaction.trigger),
    })
}

fn line(number: usize, row: &TurnRow, all: &[TurnRow]) -> String {
    let turn = &row.turn;
    let time = turn.time.map(text_format::minute).unwrap_or_default();
    let tokens = row.tokens.map(text_format::tokens).unwrap_or_default();
    let Some(compaction) = &turn.compaction else {
        let model = turn.model.as_ref().map_or("", |model| &model.0);
        let calls = match turn.tool_calls {
            0 => String::new(),
            calls => format!(" · {}", text_format::count(calls, "call")),
        };
        let id = turn.id;
        return format!("{number:5}  {time}  {tokens:>6} tokens  {model}{calls}  {DIM}{id}{DIM:#}");
    };
    let place = |id| all.iter().position(|row| Some(row.turn.id) == id).map(|index| index + 1);
    let through =
        place(row.summarized_through).map_or(String::new(), |number| format!("through turn {number}"));
    let kept = place(row.first_kept).map_or(String::new(), |number| format!(", kept from turn {number}"));
    let sizes = match (compaction.tokens_before, compaction.tokens_after) {
        (Some(before), Some(after)) => {
            format!(", {} → {} tokens", text_format::tokens(before), text_format::tokens(after))
        }
        (Some(before), None) => format!(", {} tokens before", text_format::tokens(before)),
        _ => String::new(),
    };
    let summary = text_format::one_line(compaction.summary.text(), text_format::width().saturating_sub(10));
    format!(
        "{number:5}  {time}  {NOTE}compaction {through}{kept}{sizes}{NOTE:#}  {NAME}{}{NAME:#}\n       {DIM}{summary}{DIM:#}",
        turn.id
    )
}
