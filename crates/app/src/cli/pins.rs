//! `pin`, `unpin`, `pins`: words and events that no compaction loses.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{Seq, SessionId, ThreadId, context::EventNaming, event::Pin},
    queries::pins,
    store::Store,
};
use serde_json::json;

use super::{
    output::{CliOutput, DIM, NAME},
    session_args::{BlockingSession, ThreadArgs},
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
Every summary shows every pin in full, so they are few and short: at most 20, of 500 characters.

  epitome pin SESSION \"Never touch the lock file.\"
  epitome pin SESSION --event 57
  epitome pins SESSION")]
pub(crate) struct PinArgs {
    #[command(flatten)]
    named: ThreadArgs,
    #[command(flatten)]
    what: PinTargetArgs,
}

#[derive(ClapArgs)]
#[command(after_help = "\
  epitome unpin SESSION \"Never touch the lock file.\"
  epitome unpin SESSION --event 57")]
pub(crate) struct UnpinArgs {
    #[command(flatten)]
    named: ThreadArgs,
    #[command(flatten)]
    what: PinTargetArgs,
}

#[derive(ClapArgs)]
pub(crate) struct PinsArgs {
    #[command(flatten)]
    named: ThreadArgs,
}

#[derive(ClapArgs)]
#[group(required = true, multiple = false)]
struct PinTargetArgs {
    /// Words to pin.
    text: Option<String>,

    /// Event to pin: its number, or its handle.
    #[arg(long, value_name = "N")]
    event: Option<String>,
}

impl PinTargetArgs {
    fn pin(&self, store: &dyn Store, thread: ThreadId) -> anyhow::Result<Pin> {
        let Some(event) = &self.event else { return Ok(Pin::Text(self.text.clone().unwrap_or_default())) };
        if let Ok(number) = event.parse() {
            return Ok(Pin::Event(Seq(number)));
        }
        let handle = store_lookup::handle(event);
        let Some((_, seq)) = handle.filter(|_| !event.contains(['-', ','])) else {
            bail!("`{event}` is no event: give its number, or its handle, such as 1b2c3d4e:57");
        };
        // The handle must lead to an event of this thread.
        epitome::session::call_replay::recall(store, thread, event)?;
        Ok(Pin::Event(seq))
    }
}

pub(crate) fn pin(args: &PinArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (row, opened) = BlockingSession::of(&store, &args.named)?;
    let thread = opened.session.thread();
    let pin = args.what.pin(&*store, thread)?;
    let is_new = !pins(&*store, thread)?.contains(&pin);
    if is_new {
        opened.wait(opened.session.pin(pin.clone()))?;
    }
    report_pin(
        &*store,
        row.id,
        thread,
        &pin,
        if is_new { PinChange::Pinned } else { PinChange::Nothing },
        out,
    )
}

pub(crate) fn unpin(args: &UnpinArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (row, opened) = BlockingSession::of(&store, &args.named)?;
    let thread = opened.session.thread();
    let pin = args.what.pin(&*store, thread)?;
    if !pins(&*store, thread)?.contains(&pin) {
        bail!("this is not pinned, word for word: `epitome pins {}` lists what is", row.id);
    }
    opened.wait(opened.session.unpin(pin.clone()))?;
    report_pin(&*store, row.id, thread, &pin, PinChange::Unpinned, out)
}

#[derive(Clone, Copy)]
enum PinChange {
    Pinned,
    Unpinned,
    Nothing,
}

fn report_pin(
    store: &dyn Store,
    session: SessionId,
    thread: ThreadId,
    pin: &Pin,
    done: PinChange,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let (name, words) = match done {
        PinChange::Pinned => ("pinned", "pinned"),
        PinChange::Unpinned => ("unpinned", "no longer pinned"),
        PinChange::Nothing => ("unchanged", "was pinned already"),
    };
    if out.is_json() {
        out.object(&json!({ "session": session, "thread": thread, "pin": pin, "done": name }))?;
    } else {
        out.line(format_args!("{words}: {}", shown(store, thread, pin)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn list(
    args: &PinsArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (_, thread) = args.named.find(&*store)?;
    let pins = pins(&*store, thread.id)?;
    for pin in &pins {
        if out.is_json() {
            out.object(&json!({ "pin": pin }))?;
        } else {
            out.line(shown(&*store, thread.id, pin)?)?;
        }
    }
    if pins.is_empty() && !out.is_json() {
        out.line("Nothing is pinned.")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(store: &dyn Store, thread: ThreadId, pin: &Pin) -> anyhow::Result<String> {
    let seq = match pin {
        Pin::Text(words) => return Ok(text_format::one_line(words, usize::MAX)),
        Pin::Event(seq) => *seq,
    };
    let event = store.read(thread, seq, 1)?.pop();
    let said = event.map(|logged| logged.event.fact.text()).unwrap_or_default();
    let place = EventNaming::Thread(thread).place(seq);
    Ok(format!("{NAME}{place}{NAME:#} {DIM}{}{DIM:#}", text_format::one_line(&said, text_format::width())))
}
