//! `undo`, `redo`: take a compaction back, and bring it back. Both are events: nothing is deleted.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    session_args::{BlockingSession, ThreadArgs},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
The newest compaction in force is undone: what it stood for is shown again, or the compaction before it. Undo again to go \
further back; `epitome redo` brings back what was undone last. A request that is too long then is made to fit without it.

  epitome undo SESSION")]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    named: ThreadArgs,
}

#[derive(ClapArgs)]
#[command(after_help = "\
Brings back the compaction that was undone last, unless a newer one covers it.

  epitome redo SESSION")]
pub(crate) struct RedoArgs {
    #[command(flatten)]
    named: ThreadArgs,
}

pub(crate) fn undo(args: &UndoArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    turn(&args.named, UndoStep::Back, store, out)
}

pub(crate) fn redo(args: &RedoArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    turn(&args.named, UndoStep::Forward, store, out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UndoStep {
    Back,
    Forward,
}

fn turn(
    named: &ThreadArgs,
    way: UndoStep,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (row, opened) = BlockingSession::of(&store, named)?;
    let (before, _) = opened.wait(opened.session.size())?;
    let (place, done, back) = match way {
        UndoStep::Back => (opened.wait(opened.session.undo())?, "undone", "redo"),
        UndoStep::Forward => (opened.wait(opened.session.redo())?, "in force again", "undo"),
    };
    let (after, _) = opened.wait(opened.session.size())?;
    if out.is_json() {
        out.object(&json!({
            "session": row.id,
            "thread": opened.session.thread(),
            "compaction": place,
            "state": if way == UndoStep::Back { "undone" } else { "in_force" },
            "tokens_before": before,
            "tokens_after": after,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&row.title, text_format::width())))?;
    out.line(format_args!(
        "the compaction at event {NAME}{place}{NAME:#} is {done}: {} → {} tokens",
        text_format::tokens(before),
        text_format::tokens(after)
    ))?;
    out.line(format_args!("{DIM}epitome {back} {} takes that back{DIM:#}", row.id))?;
    Ok(ExitCode::SUCCESS)
}
