//! `recall`: the full content behind a handle, whatever the model sees of it today.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use epitome::{core::LoggedEvent, queries::SessionAccess, session::call_replay};
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
A handle names the thread and the events, so no session need be named:

  epitome recall 1b2c3d4e:57
  epitome recall 1b2c3d4e:40-57
  epitome recall \"recall 1b2c3d4e:57\"            as stubs and summaries write it")]
pub(crate) struct RecallArgs {
    /// Handle, as stubs and summaries write it.
    #[arg(required = true)]
    handle: Vec<String>,
}

pub(crate) fn run(
    args: &RecallArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let handle = args.handle.join(" ");
    let (session, thread) = SessionAccess::default().handle_owner(&*store, &handle)?;
    let thread = thread.id;
    let recalled = call_replay::recall(&*store, thread, &handle)?;
    for recalled in &recalled {
        let LoggedEvent { id, event, .. } = &recalled.event;
        if out.is_json() {
            out.object(&json!({
                "id": id,
                "session": session.id,
                "time": event.time.and_then(text_format::rfc3339),
                "kind": event.fact.kind(),
                "fact": event.fact,
            }))?;
            continue;
        }
        let time = event.time.map(|time| format!(" · {}", text_format::minute(time))).unwrap_or_default();
        out.line(format_args!(
            "{NAME}{}:{}{NAME:#} {BOLD}{}{BOLD:#}{time} {DIM}· {}{DIM:#}",
            thread.short(),
            id.seq,
            event.fact.kind().replace('_', " "),
            text_format::one_line(&session.title, 60),
        ))?;
        out.line(strip_control_characters(&event.fact.text()))?;
        let media = event.fact.media().count() as u64;
        if media > 0 {
            out.line(format_args!("{DIM}[{}]{DIM:#}", text_format::count(media, "attachment")))?;
        }
        out.line("")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes from a text what a terminal would interpret.
pub(crate) fn strip_control_characters(said: &str) -> String {
    said.chars().filter(|letter| matches!(letter, '\n' | '\t') || !letter.is_control()).collect()
}
