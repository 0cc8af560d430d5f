//! `fork`: a new session that shares another's past.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use epitome::lineage::ForkMode;
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    session_args::{BlockingSession, SessionOpenOptions},
    store_lookup::{self, DatabaseLocation},
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
The new session shares the events up to the end of the turn; nothing is copied. Where a compaction has summarised the \
turn, the fork begins with a summary of what had happened by then; otherwise the model sees there what it saw after that \
turn.

  epitome fork SESSION --at 12
  epitome fork SESSION --at 12 --with-summary     cheap: begins with a summary at any turn
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

    /// Begin with a summary at any turn, also where nothing was compacted. Nothing that happened after the turn is in it.
    #[arg(long, conflicts_with = "full")]
    with_summary: bool,

    /// Show everything word for word: compactions before the turn are undone in the fork.
    #[arg(long)]
    full: bool,
}

impl ForkArgs {
    fn mode(&self) -> ForkMode {
        match (self.with_summary, self.full) {
            (true, _) => ForkMode::WithSummary,
            (false, true) => ForkMode::InFull,
            (false, false) => ForkMode::SummaryIfCompacted,
        }
    }
}

pub(crate) fn run(args: &ForkArgs, store: &DatabaseLocation, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let opening = SessionOpenOptions::configured(store.session_settings()?)?;
    let store = store.open_existing()?;
    let session = store.find_session(&args.session)?;
    let thread = store_lookup::thread(&*store, &session, args.thread.as_deref())?;
    let turns = store.turns(thread.id)?;
    let (number, row) = store_lookup::turn(thread.id, &turns, &args.at)?;
    let title = args.title.clone().unwrap_or_else(|| format!("{} (fork at turn {number})", session.title));
    let at = row.turn.last;
    let opened = BlockingSession::open(&store, thread.id, opening, None)?;
    let fork = opened.wait(opened.session.fork(at, args.mode(), &title))?;
    let (id, new) = (fork.id(), fork.thread());
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
            (ForkMode::SummaryIfCompacted, 0) => "stands as its parent did after the turn".to_owned(),
            (ForkMode::WithSummary, 0) => {
                "stands as its parent did: it shows a summary already, or none would be shorter".to_owned()
            }
            (ForkMode::SummaryIfCompacted | ForkMode::WithSummary, _) => {
                "begins with a summary, of nothing that happened after the turn".to_owned()
            }
            (ForkMode::InFull, 0) => {
                "everything is shown word for word: nothing was compacted before the turn".to_owned()
            }
            (ForkMode::InFull, undone) => format!(
                "everything is shown word for word: {} undone in it",
                text_format::count(undone, "compaction")
            ),
        };
        out.line(format_args!("{DIM}{said}{DIM:#}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
