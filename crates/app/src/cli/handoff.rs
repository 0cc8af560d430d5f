//! `handoff`: starts a new session with a goal and a summary of this one.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use epitome::core::Fact;
use serde_json::json;

use super::{
    output::{BOLD, CliOutput, DIM, NAME},
    session_args::{BlockingSession, SessionOpenOptions, SummariserArgs, ThreadArgs},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(after_help = "\
The new session shares the past of this one. All of it becomes a summary, with every pin and constraint, and the goal is \
the user's next message; what is behind the summary can still be recalled and searched. This session stays as it is.

  epitome handoff SESSION \"Now write the migration guide.\"
  epitome handoff SESSION - < goal.md
  epitome handoff SESSION \"Go on.\" --summariser http://127.0.0.1:8080/v1 --summariser-model NAME")]
pub(crate) struct HandoffArgs {
    #[command(flatten)]
    named: ThreadArgs,

    /// Goal of the new session; `-` reads it from standard input.
    goal: String,

    #[command(flatten)]
    summariser: SummariserArgs,
}

pub(crate) fn run(
    args: &HandoffArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let goal = match args.goal.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
        goal => goal.to_owned(),
    };
    let goal = goal.trim();
    if goal.is_empty() {
        bail!("say what the new session is for: the goal is empty");
    }
    let opening = SessionOpenOptions::configured(store.session_settings()?)?;
    let store = store.open_existing()?;
    let (row, thread) = args.named.find(&*store)?;
    let opened = BlockingSession::open(&store, thread.id, opening, Some(&args.summariser))?;
    let shared = store.head(opened.session.thread())?.seq;
    let (before, _) = opened.wait(opened.session.size())?;
    let new = opened.block_on_with_progress(opened.session.hand_over(goal))?;
    let (after, _) = opened.wait(new.size())?;
    store.set_title(new.id(), &text_format::one_line(goal, 80))?;
    let next = store.read(new.thread(), shared.next(), 1)?.pop();
    let is_summarised = next.is_some_and(|logged| matches!(logged.event.fact, Fact::Compacted(_)));
    if out.is_json() {
        out.object(&json!({
            "session": new.id(),
            "thread": new.thread(),
            "of": row.id,
            "of_thread": opened.session.thread(),
            "at": shared,
            "summarised": is_summarised,
            "tokens_before": before,
            "tokens_after": after,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{NAME}{}{NAME:#} {BOLD}{}{BOLD:#}", new.id(), text_format::one_line(goal, 80)))?;
    if is_summarised {
        out.line(format_args!(
            "goes on from a summary of {}: {} → {} tokens",
            row.id,
            text_format::tokens(before),
            text_format::tokens(after)
        ))?;
    } else {
        out.line(format_args!("shows {} word for word: a summary would be no shorter", row.id))?;
    }
    out.line(format_args!("{DIM}epitome context {} shows what the model sees{DIM:#}", new.id()))?;
    Ok(ExitCode::SUCCESS)
}
