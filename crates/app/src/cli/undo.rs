//! `undo`, `redo`: take a compaction back, and bring it back. Both are events: nothing is deleted.

use std::{process::ExitCode, sync::Arc};

use clap::Args as ClapArgs;
use serde_json::json;

use super::{
    live::{Live, Named},
    open::Store,
    output::{BOLD, DIM, NAME, Output},
    text,
};

#[derive(ClapArgs)]
#[command(after_help = "\
The newest compaction in force is undone: what it stood for is shown again, or the compaction before it. Undo again to go \
further back; `epitome redo` brings back what was undone last. A request that is too long then is made to fit without it.

  epitome undo SESSION")]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    named: Named,
}

#[derive(ClapArgs)]
#[command(after_help = "\
Brings back the compaction that was undone last, unless a newer one covers it.

  epitome redo SESSION")]
pub(crate) struct RedoArgs {
    #[command(flatten)]
    named: Named,
}

pub(crate) fn undo(args: &UndoArgs, store: &Store, out: Output) -> anyhow::Result<ExitCode> {
    turn(&args.named, Way::Back, store, out)
}

pub(crate) fn redo(args: &RedoArgs, store: &Store, out: Output) -> anyhow::Result<ExitCode> {
    turn(&args.named, Way::Forward, store, out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Back,
    Forward,
}

fn turn(named: &Named, way: Way, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let store = Arc::new(store.open_existing()?);
    let (row, live) = Live::of(&store, named)?;
    let (before, _) = live.wait(live.session.size())?;
    let (place, done, back) = match way {
        Way::Back => (live.wait(live.session.undo())?, "undone", "redo"),
        Way::Forward => (live.wait(live.session.redo())?, "in force again", "undo"),
    };
    let (after, _) = live.wait(live.session.size())?;
    if out.is_json() {
        out.object(&json!({
            "session": row.id,
            "thread": live.session.thread(),
            "compaction": place,
            "state": if way == Way::Back { "undone" } else { "in_force" },
            "tokens_before": before,
            "tokens_after": after,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text::one_line(&row.title, text::width())))?;
    out.line(format_args!(
        "the compaction at event {NAME}{place}{NAME:#} is {done}: {} → {} tokens",
        text::tokens(before),
        text::tokens(after)
    ))?;
    out.line(format_args!("{DIM}epitome {back} {} takes that back{DIM:#}", row.id))?;
    Ok(ExitCode::SUCCESS)
}
