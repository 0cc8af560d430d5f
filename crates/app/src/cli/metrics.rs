//! `metrics`: measures the compaction of sessions against its targets.

use std::{collections::HashSet, path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::Args as ClapArgs;
use epitome::{
    core::{Tokens, profile::Profiles},
    import::{ImportError, import_bytes},
    store::{StoreOptions, temporary_store},
    wire::transcripts::{TranscriptError, TranscriptLimits},
};
use epitome_measure::{
    live_figures::{LiveConditions, LiveFigures},
    metrics::{MetricRow, SessionMetrics, metrics},
};
use serde_json::{Value, json};

use super::{
    output::{BOLD, CliOutput, NOTE},
    parallel::for_all,
    policies,
    replay::replay_location::ReplayLocation,
    session_args::ThreadArgs,
    store_lookup::DatabaseLocation,
    text_format,
};
use crate::{config::session_settings::read_profiles, units::parse_tokens};

#[derive(ClapArgs)]
#[command(after_help = "\
Five figures, measured from the log and from the recorded calls: how much smaller summaries are, how much came out of the \
provider's cache, how many tasks ended with an answer that the user did not ask for again, whether failed approaches are \
told, and whether every section is there. What a session says nothing about is not guessed.

  epitome metrics SESSION
  epitome metrics SESSION --json | jq '.rows[] | select(.met != \"yes\")'
  epitome metrics ~/.claude/projects
      Transcripts as they were recorded: what their agents' own compactions did
  epitome metrics ~/.claude/projects --window 100k --policy epitome,tiered
      The same sessions made again, as live sessions under a policy. Their answers are those of the recording, so that they \
      say nothing of how tasks would have ended")]
pub(crate) struct MetricsArgs {
    /// Session of the log, or transcripts and folders of them.
    #[arg(required = true, value_name = "SESSION|FILE|DIR")]
    names: Vec<String>,

    /// Thread of the session; by default its current thread.
    #[arg(long)]
    thread: Option<String>,

    /// Windows to make the sessions again in, input and output together.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_tokens, conflicts_with = "thread")]
    window: Vec<u64>,

    /// Policies to make them again under: names or files.
    #[arg(
        long,
        value_name = "POLICY",
        value_delimiter = ',',
        default_value = "epitome",
        requires = "window"
    )]
    policy: Vec<String>,

    /// Model to make them again with, instead of each session's own.
    #[arg(long, value_name = "MODEL", requires = "window")]
    model: Option<String>,

    /// File of model profiles that add to the built-in ones or override them.
    #[arg(long, value_name = "FILE", requires = "window")]
    profiles: Option<PathBuf>,
}

pub(crate) fn run(
    args: &MetricsArgs,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let (places, mut unread) = ReplayLocation::from_names(&args.names)?;
    if let ([ReplayLocation::Session(session)], true) = (&places[..], args.window.is_empty()) {
        return of_session(session, args.thread.clone(), store, out);
    }
    if args.thread.is_some() {
        bail!("--thread belongs to one session of the log");
    }
    if args.window.is_empty() {
        as_recorded(&places, &mut unread, &mut out)?;
    } else {
        made_again(args, &places, store, &mut unread, &mut out)?;
    }
    // The same file may fail under several policies and windows.
    let mut told = HashSet::new();
    for line in unread.iter().filter(|line| told.insert(line.as_str())) {
        anstream::eprintln!("{NOTE}not read: {line}{NOTE:#}");
    }
    Ok(if unread.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn of_session(
    session: &str,
    thread: Option<String>,
    store: &DatabaseLocation,
    mut out: CliOutput,
) -> anyhow::Result<ExitCode> {
    let store = store.open_existing()?;
    let (session, thread) = ThreadArgs { session: session.to_owned(), thread }.find(&*store)?;
    let measured = metrics(&*store, thread.id)?;
    let rows = measured.rows();
    if out.is_json() {
        out.object(
            &json!({ "session": session.id, "thread": thread.id, "rows": rows, "metrics": measured }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&text_format::one_line(&session.title, text_format::width()), &rows, &mut out)?;
    Ok(ExitCode::SUCCESS)
}

/// Figures of transcripts as they were recorded, with the compactions of their own agents.
fn as_recorded(
    places: &[ReplayLocation],
    unread: &mut Vec<String>,
    out: &mut CliOutput,
) -> anyhow::Result<()> {
    let (mut whole, mut sessions) = (SessionMetrics::default(), 0);
    for_all(places, ReplayLocation::name, recorded, |place, measured| {
        match measured {
            Ok(measured) => {
                sessions += measured.len();
                for one in measured {
                    whole.add(one);
                }
            }
            Err(error) => unread.push(format!("{}: {error:#}", place.name())),
        }
        Ok(())
    })?;
    let title = format!("{} as recorded", text_format::count(sessions as u64, "session"));
    let told = json!({ "sessions": sessions, "metrics": whole });
    report(&title, &whole.rows(), told, out)
}

fn recorded(place: &ReplayLocation) -> anyhow::Result<Vec<SessionMetrics>> {
    let Some(path) = place.path() else {
        bail!("it is a session of the log: name it alone");
    };
    let store = temporary_store(StoreOptions::default())?;
    let bytes = std::fs::read(&path)?;
    let read = import_bytes(&*store, &path.to_string_lossy(), &bytes, &TranscriptLimits::default());
    let imported = match read {
        // A folder may hold other files too.
        Err(ImportError::Read(TranscriptError::UnknownAgent { .. })) if place.is_found() => {
            return Ok(Vec::new());
        }
        read => read?,
    };
    let heads = imported.sessions.iter().filter_map(|session| session.row.head);
    heads.map(|thread| Ok(metrics(&*store, thread)?)).collect()
}

/// Figures of sessions that are made again, by policy and window.
fn made_again(
    args: &MetricsArgs,
    places: &[ReplayLocation],
    store: &DatabaseLocation,
    unread: &mut Vec<String>,
    out: &mut CliOutput,
) -> anyhow::Result<()> {
    let profiles = read_profiles(args.profiles.as_deref())?;
    let policies = args.policy.iter().map(|name| policies::find(name)).collect::<Result<Vec<_>, _>>()?;
    for policy in &policies {
        for window in &args.window {
            let (mut whole, mut sessions) = (LiveFigures::default(), Vec::new());
            let conditions = LiveConditions { policy, window: Tokens(*window), profiles: &profiles };
            let made = |place: &ReplayLocation| live(place, args.model.as_deref(), conditions, store);
            for_all(places, ReplayLocation::name, made, |place, made| {
                match made {
                    Ok(made) => {
                        for (name, one) in made {
                            sessions.push(json!({ "session": name, "peak": one.peak, "calls": one.calls }));
                            whole.add(one);
                        }
                    }
                    Err(error) => unread.push(format!("{}: {error:#}", place.name())),
                }
                Ok(())
            })?;
            let LiveFigures { calls, refused, peak, metrics } = &whole;
            let title = format!(
                "{}, {calls} calls, under {} in a window of {}: the largest request has {}, {refused} refused",
                text_format::count(sessions.len() as u64, "session"),
                policy.name,
                text_format::tokens(Tokens(*window)),
                text_format::tokens(*peak),
            );
            let told = json!({ "policy": policy.name, "window": window, "calls": calls, "refused": refused,
                "peak": peak, "sessions": sessions, "metrics": metrics });
            report(&title, &metrics.rows(), told, out)?;
        }
    }
    Ok(())
}

/// The main thread of each session of a place, made again.
fn live(
    place: &ReplayLocation,
    model: Option<&str>,
    conditions: LiveConditions<'_>,
    store: &DatabaseLocation,
) -> anyhow::Result<Vec<(String, LiveFigures)>> {
    let profiles: &Profiles = conditions.profiles;
    let model = model.map(|model| profiles.find(model)).transpose()?;
    let mut made = Vec::new();
    for subject in place.subjects(store)?.iter().filter(|subject| subject.is_main) {
        let whole = subject.with_instructions(&subject.prepare(model, profiles)?)?;
        let figures = LiveFigures::of(&whole, &whole.prepare(model, profiles)?, conditions)?;
        if figures.calls > 0 {
            made.push((subject.name.clone(), figures));
        }
    }
    Ok(made)
}

fn report(title: &str, rows: &[MetricRow], mut told: Value, out: &mut CliOutput) -> anyhow::Result<()> {
    if out.is_json() {
        told["rows"] = json!(rows);
        return out.object(&told);
    }
    print(title, rows, out)
}

fn print(title: &str, rows: &[MetricRow], out: &mut CliOutput) -> anyhow::Result<()> {
    out.line(format_args!("{BOLD}{title}{BOLD:#}"))?;
    let mut table = text_format::table(&["figure", "value", "target", "met", "made of"], &[]);
    for row in rows {
        let cells = [
            row.name,
            &row.value,
            row.target,
            &row.met.to_string(),
            &text_format::one_line(&row.detail, 120),
        ];
        table.add_row(cells);
    }
    out.line(table)
}
