//! `recall`: the full content behind a handle, whatever the model sees of it today.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{LoggedEvent, ThreadId},
    session::call_replay,
    store::{Store, records::SessionRow},
};
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
    let (session, thread) = owner(&*store, &handle)?;
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

/// Finds the thread of a handle in any session. The short form, in which handles are written, is tried before
/// the start of an id, which threads made at about the same time share.
fn owner(store: &dyn Store, handle: &str) -> anyhow::Result<(SessionRow, ThreadId)> {
    let Some((name, _)) = handle.trim().trim_start_matches("recall ").trim_start().split_once(':') else {
        bail!("`{}` is no handle: one looks like 1b2c3d4e:57", text_format::one_line(handle, 80));
    };
    let mut threads = Vec::new();
    for session in store.sessions()? {
        let meant =
            store.threads(session.id)?.into_iter().filter(|thread| thread.id.matches_abbreviation(name));
        threads.extend(meant.map(|thread| (session.clone(), thread.id)));
    }
    if threads.iter().any(|(_, thread)| thread.short() == name) {
        threads.retain(|(_, thread)| thread.short() == name);
    }
    match threads.len() {
        1 => Ok(threads.remove(0)),
        0 => bail!(
            "`{}` leads nowhere: no thread of any session here is called {}; is it in another database (--db)?",
            text_format::one_line(handle, 80),
            text_format::one_line(name, 40),
        ),
        _ => {
            let ids: Vec<String> = threads.iter().map(|(_, thread)| thread.to_string()).collect();
            bail!("`{name}` could mean {} threads: write one of them in full: {}", ids.len(), ids.join(", "))
        }
    }
}

/// Removes from a text what a terminal would interpret.
pub(crate) fn strip_control_characters(said: &str) -> String {
    said.chars().filter(|letter| matches!(letter, '\n' | '\t') || !letter.is_control()).collect()
}
