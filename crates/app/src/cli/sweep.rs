//! `sweep`: every session at many budgets in every format, each request checked.
//!
//! The checks are independent of what made the request: legality on its bytes, its size by a full recount with the exact
//! vocabulary, the same bytes a second time, and no event unaccounted for.

use std::{
    ops::AddAssign,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args as ClapArgs;
use epitome::{
    compact::{CompactError, Compaction, context, line},
    core::{
        Tokens,
        budget::Budget,
        context::{Context, Names},
        meter::{Meter, Overhead},
        pipeline::Pipeline,
        reducers::default_pipeline,
        tokens::O200k,
    },
    import::find_files,
    margin::Margin,
    wire::{
        Format,
        legality::check,
        render::{RenderOptions, recount},
        transcripts::{self, Limits, ReadError},
    },
};
use serde::Serialize;

use super::{
    output::{BOLD, DIM, NOTE, Output},
    parallel::for_all,
    text,
    view::thread_events,
};

/// The smallest budget; each next one is twice as large, up to the whole session.
const SMALLEST: u64 = 2_000;

#[derive(ClapArgs)]
#[command(after_help = "The exit code is 1 if any request breaks a rule. Needs no database.")]
pub(crate) struct Args {
    /// Transcripts, or folders of them.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, Serialize)]
struct Tally {
    sessions: u64,
    threads: u64,
    renders: u64,
    refusals: u64,
    /// Refused although instructions, newest message and open calls would fit.
    refusals_without_need: u64,
    illegal: u64,
    over_budget: u64,
    not_deterministic: u64,
    events_unaccounted: u64,
    failed: u64,
    not_read: u64,
    /// The first few violations, in words.
    examples: Vec<String>,
}

impl Tally {
    fn violations(&self) -> u64 {
        self.refusals_without_need
            + self.illegal
            + self.over_budget
            + self.not_deterministic
            + self.events_unaccounted
            + self.failed
            + self.not_read
    }

    fn example(&mut self, words: impl FnOnce() -> String) {
        if self.examples.len() < 10 {
            self.examples.push(words());
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.threads += other.threads;
        self.renders += other.renders;
        self.refusals += other.refusals;
        self.refusals_without_need += other.refusals_without_need;
        self.illegal += other.illegal;
        self.over_budget += other.over_budget;
        self.not_deterministic += other.not_deterministic;
        self.events_unaccounted += other.events_unaccounted;
        self.failed += other.failed;
        self.not_read += other.not_read;
        let left = 10_usize.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(left));
    }
}

pub(crate) fn run(args: &Args, mut out: Output) -> anyhow::Result<ExitCode> {
    let mut files = Vec::new();
    let mut all = Tally::default();
    for path in &args.paths {
        let (found, unread) = find_files(path);
        files.extend(found);
        for error in unread {
            all.not_read += 1;
            all.example(|| error.to_string());
        }
    }
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for_all(
        &files,
        name,
        |path| sweep_file(path),
        |_, tally| {
            all += tally;
            Ok(())
        },
    )?;
    let violations = all.violations();
    if out.is_json() {
        let mut value = serde_json::to_value(&all)?;
        value["violations"] = violations.into();
        out.object(&value)?;
    } else {
        tell(&all, &mut out)?;
    }
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(all: &Tally, out: &mut Output) -> anyhow::Result<()> {
    out.line(format_args!(
        "{} with {} at budgets from {} tokens up to all of it, in {} formats",
        text::count(all.sessions, "session"),
        text::count(all.threads, "thread"),
        text::short(SMALLEST),
        Format::ALL.len()
    ))?;
    for (what, count) in [
        ("requests rendered and checked", all.renders),
        (
            "refused: instructions, newest message and open calls do not fit",
            all.refusals - all.refusals_without_need,
        ),
    ] {
        out.line(format_args!("{count:>9}  {what}"))?;
    }
    for (what, count) in [
        ("refused without need", all.refusals_without_need),
        ("illegal for their provider", all.illegal),
        ("over the budget by a full recount", all.over_budget),
        ("other bytes the second time", all.not_deterministic),
        ("contexts that leave events unaccounted for", all.events_unaccounted),
        ("not rendered", all.failed),
        ("files not read", all.not_read),
    ] {
        out.line(format_args!("{DIM}{count:>9}  {what}{DIM:#}"))?;
    }
    out.line(format_args!("{BOLD}{:>9}  violations{BOLD:#}", all.violations()))?;
    for example in &all.examples {
        out.line(format_args!("  {NOTE}{example}{NOTE:#}"))?;
    }
    Ok(())
}

fn sweep_file(path: &Path) -> Tally {
    let mut tally = Tally::default();
    let read = std::fs::read(path).map_err(|error| error.to_string()).and_then(|bytes| {
        match transcripts::read(&path.to_string_lossy(), &bytes, &Limits::default()) {
            Ok(reading) => Ok(reading.sessions),
            // Folders hold other files too.
            Err(ReadError::UnknownAgent { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    });
    match read {
        Ok(sessions) => {
            let pipeline = default_pipeline();
            for session in sessions {
                tally.sessions += 1;
                for thread in &session.threads {
                    tally.threads += 1;
                    let meter = Meter::new(Arc::new(O200k), Overhead::default());
                    let events = line(thread_events(&session, thread.id));
                    let whole = context(&events, meter, Names::Thread(thread.id));
                    let name = format!("{}, {}", session.key, thread.name);
                    sweep_thread(&name, &whole, &pipeline, &mut tally);
                }
            }
        }
        Err(error) => {
            tally.not_read += 1;
            tally.example(|| format!("{}: {error}", path.display()));
        }
    }
    tally
}

fn sweep_thread(key: &str, whole: &Context, pipeline: &Pipeline, tally: &mut Tally) {
    let mut budget = SMALLEST;
    loop {
        let ceiling = Tokens(budget.min(whole.tokens().0.max(SMALLEST)));
        for format in Format::ALL {
            try_one(key, whole, ceiling, format, pipeline, tally);
        }
        if ceiling >= whole.tokens() {
            break;
        }
        budget *= 2;
    }
}

fn try_one(
    key: &str,
    whole: &Context,
    ceiling: Tokens,
    format: Format,
    pipeline: &Pipeline,
    tally: &mut Tally,
) {
    let options = RenderOptions::of(format);
    let compaction =
        Compaction { budget: Budget::new(ceiling), margin: Margin::none(ceiling), pipeline, format, options };
    let place = || format!("{key} at {ceiling} tokens as {format}");
    let compacted = match compaction.run(whole.clone()) {
        Ok(compacted) => compacted,
        Err(CompactError::Refused(_)) => {
            tally.refusals += 1;
            // What is around any request, whatever it holds, goes with the instructions.
            let essential: Tokens = whole.essential().tokens(whole).into_iter().sum();
            let needed = essential + whole.meter().overhead().request;
            if needed <= ceiling {
                tally.refusals_without_need += 1;
                tally.example(|| format!("{}: refused, though the essential {needed} tokens fit", place()));
            }
            return;
        }
        Err(error) => {
            tally.failed += 1;
            tally.example(|| format!("{}: {error}", place()));
            return;
        }
    };
    tally.renders += 1;
    let body = &compacted.rendered.body;
    for violation in check(format, body, &compaction.options.rules) {
        tally.illegal += 1;
        tally.example(|| format!("{}: {violation}", place()));
    }
    match recount(format, body, whole.meter()) {
        Ok(tokens) if tokens <= ceiling => {}
        Ok(tokens) => {
            tally.over_budget += 1;
            tally.example(|| format!("{}: {tokens} tokens by recount", place()));
        }
        Err(error) => {
            tally.failed += 1;
            tally.example(|| format!("{}: {error}", place()));
        }
    }
    if compacted.context.accounted() != whole.accounted() {
        tally.events_unaccounted += 1;
        tally.example(|| format!("{}: events unaccounted for", place()));
    }
    match compaction.run(whole.clone()) {
        Ok(again) if again.rendered.body == *body => {}
        _ => {
            tally.not_deterministic += 1;
            tally.example(|| format!("{}: other bytes the second time", place()));
        }
    }
}
