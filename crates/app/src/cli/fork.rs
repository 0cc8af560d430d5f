//! `fork`: a new session that shares another's past.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use epitome::{
    core::{SessionId, ThreadId},
    store::records::{NewFork, NewSession},
};
use serde_json::json;
use uuid::Uuid;

use super::{
    open::{self, Store},
    output::{BOLD, NAME, Output},
    text,
};

#[derive(ClapArgs)]
#[command(after_help = "The new session shares the events up to the end of the turn; nothing is copied.")]
pub(crate) struct Args {
    /// Its id, the start or the last eight digits of it, or its title.
    session: String,

    /// The last turn to share: its number in `epitome show`, or its id.
    #[arg(long, value_name = "TURN")]
    at: String,

    /// The thread to fork; by default the one the session stands at.
    #[arg(long)]
    thread: Option<String>,

    /// What to call the new session.
    #[arg(long)]
    title: Option<String>,
}

pub(crate) fn run(args: &Args, store: &Store, mut out: Output) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let session = store.find_session(&args.session)?;
    let thread = open::thread(&store, &session, args.thread.as_deref())?;
    let turns = store.turns(thread.id)?;
    let (number, row) = open::turn(thread.id, &turns, &args.at)?;
    let title = args.title.clone().unwrap_or_else(|| format!("{} (fork at turn {number})", session.title));
    let fork = NewFork {
        of: thread.id,
        at: row.turn.last,
        session: NewSession {
            id: SessionId::new(Uuid::now_v7()),
            key: None,
            title: title.clone(),
            source: session.source.clone(),
            created: Some(text::now()),
        },
        thread: ThreadId::new(Uuid::now_v7()),
        name: "main".to_owned(),
    };
    let head = store.fork(&fork)?;
    if out.is_json() {
        out.object(&json!({
            "session": fork.session.id,
            "thread": fork.thread,
            "title": title,
            "of": session.id,
            "of_thread": thread.id,
            "turn": row.turn.id,
            "at": head.seq,
        }))?;
    } else {
        out.line(format_args!(
            "{NAME}{}{NAME:#} {BOLD}{}{BOLD:#}",
            fork.session.id,
            text::one_line(&title, text::width())
        ))?;
        out.line(format_args!("shares turns 1 to {number} ({} events) with {}", head.seq, session.id))?;
    }
    Ok(ExitCode::SUCCESS)
}
