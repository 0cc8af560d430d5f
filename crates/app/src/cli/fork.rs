//! `fork`: a new session that shares another's past.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use epitome::{
    core::{Seq, SessionId, ThreadId},
    lineage::ForkMode,
    store::{
        Store,
        records::{NewFork, NewSession, SessionRow, ThreadRow},
    },
};
use serde_json::json;
use uuid::Uuid;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    session_args::{BlockingSession, SessionOpenOptions},
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
The new session shares the events up to the end of the turn; nothing is copied. By default the model sees there what it \
saw after that turn.

  epitome fork SESSION --at 12
  epitome fork SESSION --at 12 --with-summary     cheap: of what was summarised later, what had happened by then
  epitome fork SESSION --at 12 --full             complete: every word, also of what was summarised before")]
pub(crate) struct ForkArgs {
    /// Session: its id, the start or the last eight digits of it, or its title.
    session: String,

    /// Last turn to share: its number in `epitome show`, or its id.
    #[arg(long, value_name = "TURN")]
    at: String,

    /// Thread to fork; by default the session's current thread.
    #[arg(long)]
    thread: Option<String>,

    /// Title of the new session.
    #[arg(long)]
    title: Option<String>,

    /// Begin with a summary if a later compaction covers the turn, without anything that happened since.
    #[arg(long, conflicts_with = "full")]
    with_summary: bool,

    /// Show everything word for word: compactions before the turn are undone in the fork.
    #[arg(long)]
    full: bool,
}

impl ForkArgs {
    fn mode(&self) -> Option<ForkMode> {
        match (self.with_summary, self.full) {
            (true, _) => Some(ForkMode::WithSummary),
            (false, true) => Some(ForkMode::InFull),
            (false, false) => None,
        }
    }
}

pub(crate) fn run(args: &ForkArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let session = store.find_session(&args.session)?;
    let thread = store_lookup::thread(&*store, &session, args.thread.as_deref())?;
    let turns = store.turns(thread.id)?;
    let (number, row) = store_lookup::turn(thread.id, &turns, &args.at)?;
    let title = args.title.clone().unwrap_or_else(|| format!("{} (fork at turn {number})", session.title));
    let at = row.turn.last;
    let (id, new) = match args.mode() {
        None => share(&*store, &session, &thread, at, &title)?,
        Some(mode) => {
            let opened = BlockingSession::open(&store, thread.id, SessionOpenOptions::default(), None)?;
            let fork = opened.wait(opened.session.fork(at, mode, &title))?;
            (fork.id(), fork.thread())
        }
    };
    let appended = store.head(new)?.seq.0.saturating_sub(at.0);
    if out.is_json() {
        out.object(&json!({
            "session": id,
            "thread": new,
            "title": title,
            "of": session.id,
            "of_thread": thread.id,
            "turn": row.turn.id,
            "at": at,
            "appended": appended,
        }))?;
    } else {
        out.line(format_args!(
            "{NAME}{}{NAME:#} {BOLD}{}{BOLD:#}",
            id,
            text_format::one_line(&title, text_format::width())
        ))?;
        out.line(format_args!("shares turns 1 to {number} ({at} events) with {}", session.id))?;
        let said = match (args.mode(), appended) {
            (None, _) => None,
            (Some(ForkMode::WithSummary), 0) => Some(
                "no later summary covers the turn, or none would be shorter: it stands as its parent did"
                    .to_owned(),
            ),
            (Some(ForkMode::WithSummary), _) => {
                Some("begins with a summary, of nothing that happened after the turn".to_owned())
            }
            (Some(ForkMode::InFull), 0) => {
                Some("everything is shown word for word: nothing was compacted before the turn".to_owned())
            }
            (Some(ForkMode::InFull), undone) => Some(format!(
                "everything is shown word for word: {} undone in it",
                text_format::count(undone, "compaction")
            )),
        };
        if let Some(said) = said {
            out.line(format_args!("{DIM}{said}{DIM:#}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a session that shares the past up to an event and has no events of its own.
fn share(
    store: &dyn Store,
    session: &SessionRow,
    thread: &ThreadRow,
    at: Seq,
    title: &str,
) -> anyhow::Result<(SessionId, ThreadId)> {
    let fork = NewFork {
        of: thread.id,
        at,
        session: NewSession {
            id: SessionId::new(Uuid::now_v7()),
            key: None,
            title: title.to_owned(),
            source: session.source.clone(),
            created: Some(text_format::now()),
            principal: session.principal.clone(),
        },
        thread: ThreadId::new(Uuid::now_v7()),
        name: "main".to_owned(),
    };
    store.fork(&fork)?;
    Ok((fork.session.id, fork.thread))
}
