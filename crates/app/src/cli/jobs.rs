//! `jobs`: the queue of summaries, and a worker for it.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::bail;
use clap::{Args as ClapArgs, Subcommand};
use epitome::{
    core::{SessionId, ThreadId, event::Timestamp},
    session::WorkOutcome,
    store::{
        Store,
        records::{CommitRecord, JobRow, JobState, SessionRow, ThreadCommit},
    },
};
use serde_json::json;

use super::{
    compact_session::trigger_name,
    output::{CliOutput, DIM, NAME, NOTE},
    session_args::{BlockingSession, SessionOpenOptions, SummariserArgs},
    store_lookup::DatabaseLocation,
    text_format,
};

#[derive(ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
A job is a summary that somebody asked for: a session that ran full, or `epitome compact --background`. Whoever runs the \
session works its jobs off. Where nobody does, or somebody was killed, --work does it here; the next request of the \
session adopts what is ready, or `epitome compact SESSION`.

  epitome jobs                                    what there is
  epitome jobs SESSION --work                     with the built-in summariser
  epitome jobs --work --summariser http://127.0.0.1:8080/v1 --summariser-model small
  epitome jobs cancel 1b2c3d4e")]
pub(crate) struct JobsArgs {
    /// List only jobs of this session; by default of all sessions.
    session: Option<String>,

    /// Run queued and unfinished jobs.
    #[arg(long)]
    work: bool,

    #[command(flatten)]
    summariser: SummariserArgs,

    #[command(subcommand)]
    command: Option<JobsCommand>,
}

#[derive(Subcommand)]
enum JobsCommand {
    /// Cancel a job. A summary that it has already led to stays.
    Cancel(CancelJobArgs),
}

#[derive(ClapArgs)]
struct CancelJobArgs {
    /// Job: its id, or the start or the last eight digits of it.
    id: String,
}

pub(crate) fn run(args: &JobsArgs, store: &DatabaseLocation, out: CliOutput) -> anyhow::Result<ExitCode> {
    let location = store;
    let settings = || SessionOpenOptions::configured(location.session_settings()?);
    let store = location.open_existing()?;
    if let Some(JobsCommand::Cancel(cancel)) = &args.command {
        return self::cancel(cancel, &*store, out);
    }
    let session = args.session.as_deref().map(|name| store.find_session(name)).transpose()?;
    if args.work {
        return work(args, session.as_ref(), (&store, &settings), out);
    }
    if args.summariser.summariser.is_some() {
        bail!("--summariser says who works jobs off: say --work too");
    }
    list(&rows(&*store, session.as_ref())?, &*store, out)
}

/// The jobs of all threads of a session, or of all sessions, oldest first.
fn rows(store: &dyn Store, session: Option<&SessionRow>) -> anyhow::Result<Vec<JobRow>> {
    let mut rows = store.jobs(None)?;
    if let Some(session) = session {
        let threads = store.threads(session.id)?;
        rows.retain(|row| threads.iter().any(|thread| thread.id == row.job.thread));
    }
    Ok(rows)
}

fn list(rows: &[JobRow], store: &dyn Store, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if out.is_json() {
        for row in rows {
            out.object(&row_json(row, session_of(store, row.job.thread)?))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        out.line("No jobs: no summary was asked for in the background.")?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = ["job", "session", "state", "events", "why", "tries", "age", "last error"];
    let mut table = text_format::table(&columns, &[5, 6]);
    for row in rows {
        let id = session_of(store, row.job.thread)?;
        table.add_row([
            row.job.id.short(),
            format!("{} {}", id.short(), text_format::one_line(&store.session(id)?.title, 24)),
            state(row),
            format!("{}-{}", row.job.first, row.job.through),
            trigger_name(row.job.trigger).to_owned(),
            row.attempts.to_string(),
            age(row.job.created),
            row.error.as_deref().map(|error| text_format::one_line(error, 60)).unwrap_or_default(),
        ]);
    }
    out.line(table)?;
    let open = rows.iter().filter(|row| is_open(row)).count() as u64;
    if open > 0 {
        out.line(format_args!(
            "\n{DIM}{} to be done: epitome jobs --work{DIM:#}",
            text_format::count(open, "job")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports a queued job and what happens next.
pub(crate) fn queued(row: &JobRow, session: &SessionRow, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if out.is_json() {
        out.object(&row_json(row, session.id))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (id, span) = (row.job.id.short(), format!("events {}-{}", row.job.first, row.job.through));
    if row.state == JobState::Ready {
        out.line(format_args!("job {NAME}{id}{NAME:#} has its summary ready, of {span}"))?;
        let how = format!("epitome compact {}", session.id);
        out.line(format_args!("{DIM}the next request of the session adopts it, or: {how}{DIM:#}"))?;
    } else {
        out.line(format_args!("job {NAME}{id}{NAME:#} is {}, to summarise {span}", state(row)))?;
        out.line(format_args!(
            "{DIM}whoever runs the session works it off; where nobody does: epitome jobs {} --work{DIM:#}",
            session.id
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn work(
    args: &JobsArgs,
    session: Option<&SessionRow>,
    (store, settings): (&Arc<dyn Store>, &dyn Fn() -> anyhow::Result<SessionOpenOptions>),
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let before = rows(&**store, session)?;
    let open: Vec<&JobRow> = before.iter().filter(|row| is_open(row)).collect();
    let mut threads: Vec<ThreadId> = open.iter().map(|row| row.job.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut failed = 0;
    for thread in threads {
        // A job that cannot be read must not keep the others from running.
        if let Err(error) = work_off(store, thread, settings()?, &args.summariser) {
            anstream::eprintln!("{NOTE}note:{NOTE:#} the jobs of thread {}: {error:#}", thread.short());
            failed += 1;
        }
    }
    for row in open {
        let now = store.job(row.job.id)?;
        let session = session_of(&**store, now.job.thread)?;
        if out.is_json() {
            out.object(&row_json(&now, session))?;
            continue;
        }
        let error = now.error.as_deref().filter(|_| now.state != JobState::Ready);
        let error = error.map(|error| format!(": {}", text_format::one_line(error, text_format::width())));
        out.line(format_args!(
            "job {NAME}{}{NAME:#} is {}{}",
            now.job.id.short(),
            state(&now),
            error.unwrap_or_default()
        ))?;
        if now.state == JobState::Ready {
            out.line(format_args!(
                "{DIM}the next request of the session adopts its summary, or: epitome compact {session}{DIM:#}"
            ))?;
        }
    }
    if before.iter().all(|row| !is_open(row)) && !out.is_json() {
        out.line("Nothing to do: no job is queued.")?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the jobs of a thread. A failed job is tried again after a wait, until the built-in summariser takes
/// over; a job that another process is running is left to that process.
fn work_off(
    store: &Arc<dyn Store>,
    thread: ThreadId,
    opening: SessionOpenOptions,
    summariser: &SummariserArgs,
) -> anyhow::Result<()> {
    let opened = BlockingSession::open(store, thread, opening, Some(summariser))?;
    loop {
        if opened.block_on_with_progress(opened.session.work())? == WorkOutcome::One {
            continue;
        }
        let resting = store.jobs(Some(thread))?.into_iter().filter(|row| row.state == JobState::Queued);
        let Some(next) = resting.filter_map(|row| row.not_before).min() else { return Ok(()) };
        let wait = u64::try_from(next.0.saturating_sub(text_format::now().0)).unwrap_or_default();
        opened.sleep(Duration::from_millis(wait.saturating_add(1)));
    }
}

fn cancel(args: &CancelJobArgs, store: &dyn Store, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    let mut meant: Vec<JobRow> =
        store.jobs(None)?.into_iter().filter(|row| row.job.id.matches_abbreviation(&args.id)).collect();
    let row = match (meant.pop(), meant.is_empty()) {
        (Some(row), true) => row,
        (Some(_), false) => bail!("`{}` could mean {} jobs: give more of the id", args.id, meant.len() + 1),
        (None, _) => bail!("there is no job `{}`: `epitome jobs` lists them", args.id),
    };
    let ended = |row: &JobRow| match row.state {
        JobState::Adopted { compaction } => Some(format!(
            "its summary is in use as the compaction at event {compaction}; `epitome undo` takes that back"
        )),
        JobState::Cancelled => Some("it was cancelled before".to_owned()),
        JobState::Failed => Some("it was given up".to_owned()),
        JobState::Queued | JobState::Running { .. } | JobState::Ready => None,
    };
    let thread = row.job.thread;
    loop {
        if let Some(why) = ended(&store.job(row.job.id)?) {
            bail!("there is nothing to cancel of the job {}: {why}", row.job.id.short());
        }
        let record = CommitRecord::CancelJob { job: row.job.id, reason: "cancelled by hand".to_owned() };
        let after = store.head(thread)?.seq;
        match store.commit(ThreadCommit::new(thread, after, Vec::new(), vec![record])) {
            // The session goes on meanwhile, so a conflict only means that the next round has to look again.
            Err(epitome::store::StoreError::Conflict { .. }) => {}
            done => break done.map(drop)?,
        }
    }
    let row = store.job(row.job.id)?;
    if out.is_json() {
        out.object(&row_json(&row, session_of(store, thread)?))?;
    } else {
        out.line(format_args!("job {NAME}{}{NAME:#} is {}", row.job.id.short(), state(&row)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn is_open(row: &JobRow) -> bool {
    matches!(row.state, JobState::Queued | JobState::Running { .. })
}

fn session_of(store: &dyn Store, thread: ThreadId) -> anyhow::Result<SessionId> {
    Ok(store.thread(thread)?.session)
}

/// State of a job, for people.
fn state(row: &JobRow) -> String {
    match &row.state {
        JobState::Queued => match row.not_before.filter(|time| *time > text_format::now()) {
            Some(time) => format!("queued, again at {}", text_format::clock(time)),
            None => "queued".to_owned(),
        },
        JobState::Running { until, .. } if *until <= text_format::now() => {
            "left unfinished by its worker".to_owned()
        }
        JobState::Running { until, .. } => {
            format!("in the hands of another process, until {} at least", text_format::clock(*until))
        }
        JobState::Ready => "ready".to_owned(),
        JobState::Adopted { compaction } => format!("adopted at event {compaction}"),
        JobState::Failed => "given up".to_owned(),
        JobState::Cancelled => "cancelled".to_owned(),
    }
}

fn age(since: Timestamp) -> String {
    let seconds = u64::try_from(text_format::now().0.saturating_sub(since.0) / 1_000).unwrap_or_default();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn row_json(row: &JobRow, session: SessionId) -> serde_json::Value {
    let (state, worker, until, compaction) = match &row.state {
        JobState::Queued => ("queued", None, None, None),
        JobState::Running { worker, until } => ("running", Some(worker), Some(*until), None),
        JobState::Ready => ("ready", None, None, None),
        JobState::Adopted { compaction } => ("adopted", None, None, Some(*compaction)),
        JobState::Failed => ("failed", None, None, None),
        JobState::Cancelled => ("cancelled", None, None, None),
    };
    json!({
        "id": row.job.id,
        "session": session,
        "thread": row.job.thread,
        "state": state,
        "worker": worker,
        "until": until.and_then(text_format::rfc3339),
        "compaction": compaction,
        "first": row.job.first,
        "through": row.job.through,
        "first_kept": row.job.first_kept,
        "base": row.job.base,
        "trigger": row.job.trigger,
        "focus": row.job.focus,
        "attempts": row.attempts,
        "not_before": row.not_before.and_then(text_format::rfc3339),
        "error": row.error,
        "created": text_format::rfc3339(row.job.created),
        "summary": row.summary,
    })
}
