//! `compact SESSION`: a compaction turn. The summary is appended to the log, and from the next request on the
//! model sees it in place of the turns that it covers; nothing else is changed, and `undo` takes it back.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use epitome::{
    core::{
        Fact, Seq, ThreadId, Tokens,
        event::{Compaction, CompactionTrigger, Summary},
        policy::Policy,
        summary::{
            SummaryFocus,
            compaction::{CompactionError, VerbatimTail},
        },
    },
    session::SessionError,
    store::{
        Store,
        records::{JobState, SessionRow, SummarySource},
    },
};
use serde_json::json;

use super::{
    jobs,
    output::{BOLD, CliOutput, DIM, NAME},
    policies,
    request_source::ViewArgs,
    session_args::{BlockingSession, SessionOpenOptions, SummariserArgs, ThreadArgs},
    store_lookup::DatabaseLocation,
    text_format,
};
use crate::{config::session_settings::read_profiles, units::parse_tokens};

/// Options of a compaction turn.
#[derive(Args)]
#[command(next_help_heading = "A compaction turn (with a SESSION)")]
pub(crate) struct CompactSessionArgs {
    /// Only queue a job; it runs when the session is used next, or with `epitome jobs --work`.
    #[arg(long, conflicts_with_all = ["summariser", "summariser_model"])]
    background: bool,

    /// Keep the last N turns word for word.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep_turns: Option<u64>,

    /// Keep as many of the last turns word for word as fit into N tokens; by default as the policy says.
    #[arg(long, value_name = "N", value_parser = parse_tokens, conflicts_with = "keep_turns")]
    keep_tokens: Option<u64>,

    /// Thread; by default the session's current thread.
    #[arg(long)]
    thread: Option<String>,

    /// Print the whole summary, and not only a page of it.
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    summariser: SummariserArgs,
}

/// Lines of a summary that are printed: with what stands around them, they fill a screen.
const PAGE_LINES: usize = 24;

impl CompactSessionArgs {
    /// The first of these options that was given, if any: none of them applies to a request.
    pub(crate) fn first_given_flag(&self) -> Option<&'static str> {
        let said = [
            ("--background", self.background),
            ("--keep-turns", self.keep_turns.is_some()),
            ("--keep-tokens", self.keep_tokens.is_some()),
            ("--thread", self.thread.is_some()),
            ("--full", self.full),
            ("--summariser", self.summariser.summariser.is_some()),
        ];
        said.iter().find(|(_, is_said)| *is_said).map(|(name, _)| *name)
    }

    fn policy(&self, name: Option<&str>) -> anyhow::Result<Policy> {
        let mut policy =
            name.map(policies::find).transpose()?.unwrap_or_else(|| Policy::builtin()[0].clone());
        let keep = match (self.keep_turns, self.keep_tokens) {
            (Some(turns), _) => Some(VerbatimTail::Turns(turns)),
            (None, Some(tokens)) => Some(VerbatimTail::Tokens(Tokens(tokens))),
            (None, None) => None,
        };
        if let Some(keep) = keep {
            policy.summary.get_or_insert_default().keep = keep;
        }
        Ok(policy)
    }
}

pub(crate) fn run(
    name: &str,
    args: &CompactSessionArgs,
    focus: Option<&SummaryFocus>,
    view: &ViewArgs,
    store: &DatabaseLocation,
    out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let settings = store.session_settings()?;
    let store = store.open_existing()?;
    let named = ThreadArgs { session: name.to_owned(), thread: args.thread.clone() };
    let (session, thread) = named.find(&*store)?;
    let profiles = view.profiles.clone().or(settings.profiles);
    let opening = SessionOpenOptions {
        model: view.model.clone(),
        format: None,
        profiles: read_profiles(profiles.as_deref())?,
        policy: Some(args.policy(view.policy.as_deref().or(settings.policy.as_deref()))?),
        compact: settings.compact,
    };
    let usual = opening.compact.instructions.focus.as_deref().and_then(SummaryFocus::new);
    let focus = focus.or(usual.as_ref());
    let opened = BlockingSession::open(&store, thread.id, opening, Some(&args.summariser))?;
    let asked = focus.map(SummaryFocus::text);
    if args.background {
        let job = opened.wait(opened.session.compact_in_background(asked)).map_err(with_advice)?;
        return jobs::queued(&store.job(job)?, &session, out);
    }
    let place = opened.block_on_with_progress(opened.session.compact(asked)).map_err(with_advice)?;
    report(&*store, (&session, thread.id, place), (focus, args.full), out)
}

/// Adds advice to an error, in the words of this command.
fn with_advice(error: SessionError) -> anyhow::Error {
    match error {
        SessionError::Nothing(nothing @ CompactionError::NothingOld) => {
            anyhow!("{nothing}: --keep-turns N, or --keep-tokens N")
        }
        error => error.into(),
    }
}

/// Author of a compaction's summary: the summariser that did its job, or the built-in one.
fn author(store: &dyn Store, thread: ThreadId, place: Seq) -> anyhow::Result<String> {
    let is_it = |state: &JobState| *state == JobState::Adopted { compaction: place };
    let job = store.jobs(Some(thread))?.into_iter().find(|row| is_it(&row.state));
    let source = job.map_or(SummarySource::Compaction(place), |row| SummarySource::Job(row.job.id));
    let written = store.summaries(thread)?.into_iter().find(|summary| summary.source == source);
    Ok(written.map_or_else(|| "built-in".to_owned(), |written| written.summary.author))
}

fn report(
    store: &dyn Store,
    (session, thread, place): (&SessionRow, ThreadId, Seq),
    (focus, is_full): (Option<&SummaryFocus>, bool),
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let event = store.read(thread, place, 1)?.pop();
    let Some(Fact::Compacted(compaction)) = event.map(|logged| logged.event.fact) else {
        return Err(anyhow!("there is no compaction at event {place}: run `epitome doctor`"));
    };
    let by = author(store, thread, place)?;
    let Compaction { summary, through, first_kept, tokens_before, tokens_after, trigger } = &compaction;
    let is_applied = matches!(summary, Summary::Structured { brief, .. } if brief.focus.is_some());
    if out.is_json() {
        out.object(&json!({
            "session": session.id,
            "thread": thread,
            "compaction": place,
            "by": by,
            "trigger": trigger,
            "focus": focus.map(SummaryFocus::text),
            "focus_applied": focus.map(|_| is_applied),
            "through": through,
            "first_kept": first_kept,
            "tokens_before": tokens_before,
            "tokens_after": tokens_after,
            "summary": summary.text(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format_args!("{BOLD}{}{BOLD:#}", text_format::one_line(&session.title, text_format::width())))?;
    let sizes = match (tokens_before, tokens_after) {
        (Some(before), Some(after)) => {
            format!(": {} → {} tokens", text_format::tokens(*before), text_format::tokens(*after))
        }
        _ => String::new(),
    };
    let kept =
        first_kept.map_or_else(|| "nothing is".to_owned(), |first| format!("from event {first} on all is"));
    out.line(format_args!("compaction at event {NAME}{place}{NAME:#} by {by}{sizes}"))?;
    out.line(format_args!(
        "{DIM}it stands for the events up to {through}; {kept} kept word for word{DIM:#}\n"
    ))?;
    if let Some(focus) = focus {
        out.line(format_args!("{}\n", focus_sentence(focus, is_applied)))?;
    }
    let text = super::recall::strip_control_characters(summary.text());
    let left_out = text.lines().count().saturating_sub(PAGE_LINES);
    if is_full || left_out == 0 {
        out.line(&text)?;
    } else {
        for line in text.lines().take(PAGE_LINES) {
            out.line(text_format::one_line(line, text_format::width()))?;
        }
        let lines = text_format::count(left_out as u64, "more line");
        out.line(format_args!(
            "{DIM}… {lines}: epitome recall {}:{place} prints all{DIM:#}",
            thread.short()
        ))?;
    }
    out.line(format_args!("\n{DIM}epitome undo {} takes it back{DIM:#}", session.id))?;
    Ok(ExitCode::SUCCESS)
}

/// Says whether the focus was found, for people.
pub(crate) fn focus_sentence(focus: &SummaryFocus, is_applied: bool) -> String {
    let text = super::recall::strip_control_characters(focus.text());
    if is_applied {
        format!("focus “{text}”: what speaks of it was given room before the rest")
    } else {
        format!("focus “{text}”: nothing that was summarised speaks of it, so it changed nothing")
    }
}

/// Trigger of a compaction, for people.
pub(crate) fn trigger_name(trigger: CompactionTrigger) -> &'static str {
    match trigger {
        CompactionTrigger::Threshold => "threshold",
        CompactionTrigger::Overflow => "overflow",
        CompactionTrigger::Manual => "asked for",
        CompactionTrigger::Agent => "by the agent",
        CompactionTrigger::Idle => "idle",
        CompactionTrigger::ModelSwitch => "model switch",
        CompactionTrigger::Unknown => "unknown",
    }
}
