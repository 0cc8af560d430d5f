//! `sweep`: every session at many budgets in every format, or call by call under every policy; each request
//! is checked.
//!
//! The checks do not depend on the code that made the request: legality on its bytes, its size by a full
//! recount, the same bytes a second time, and no event of the log unaccounted for. Every format is tried with
//! the exact vocabulary. A session with a known model is also tried with everything that its profile says:
//! its counts, its overhead, its own rules, and what its thinking is bound to.

mod call_sweep;

use std::{
    ops::AddAssign,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args as ClapArgs;
use epitome::{
    compact::{CompactError, CompactedRequest, RequestCompaction, context, line},
    core::{
        Seq, Tokens,
        budget::Budget,
        context::{Context, EventNaming},
        meter::{Meter, TokenOverhead},
        pipeline::Pipeline,
        profile::Profiles,
        projection::EventLine,
        reducers::default_pipeline,
        tokens::O200kCounter,
    },
    import::find_files,
    request_plan::{RequestPlan, RequestSettings},
    token_margin::TokenMargin,
    wire::{
        Format,
        legality::{ProviderRules, check, check_against},
        render::{RenderOptions, SETTLE_THINKING, recount},
        transcripts::{self, TranscriptError, TranscriptLimits},
    },
};
use serde::Serialize;

use super::{
    output::{BOLD, CliOutput, DIM, NOTE},
    parallel::for_all,
    request_source::thread_events,
    text_format,
};
use crate::units::parse_tokens;

/// Smallest budget; each next one is twice as large, up to the whole session.
const SMALLEST: u64 = 2_000;

#[derive(ClapArgs)]
#[command(after_help = "The exit code is 1 if any request breaks a rule. Needs no database.")]
pub(crate) struct SweepArgs {
    /// Transcripts, or folders of them.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,

    /// Repeat every call of every session under these policies, as if live: names, or `all`.
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    policy: Vec<String>,

    /// With --policy: largest size of a request in tokens.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8k,60k,100k", value_parser = parse_tokens)]
    budget: Vec<u64>,
}

/// Findings of a sweep.
#[derive(Clone, Debug, Default, Serialize)]
struct SweepTally {
    sessions: u64,
    threads: u64,
    renders: u64,
    /// Requests made with the profile of the session's model.
    by_their_models: u64,
    refusals: u64,
    /// Refusals although instructions, newest message and open calls would fit.
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

impl SweepTally {
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

impl AddAssign for SweepTally {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.threads += other.threads;
        self.renders += other.renders;
        self.by_their_models += other.by_their_models;
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

pub(crate) fn run(args: &SweepArgs, mut out: CliOutput) -> anyhow::Result<ExitCode> {
    if !args.policy.is_empty() {
        return call_sweep::run(args, out);
    }
    let mut files = Vec::new();
    let mut all = SweepTally::default();
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

fn tell(all: &SweepTally, out: &mut CliOutput) -> anyhow::Result<()> {
    out.line(format_args!(
        "{} with {} at budgets from {} tokens up to all of it, in {} formats",
        text_format::count(all.sessions, "session"),
        text_format::count(all.threads, "thread"),
        text_format::short(SMALLEST),
        Format::ALL.len()
    ))?;
    for (what, count) in [
        ("requests rendered and checked", all.renders),
        ("of them for the session's own model", all.by_their_models),
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

/// Reads the sessions of a file; none if it is not a transcript, since folders hold other files too.
fn sessions(path: &Path) -> Result<Vec<transcripts::TranscriptSession>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    match transcripts::read(&path.to_string_lossy(), &bytes, &TranscriptLimits::default()) {
        Ok(reading) => Ok(reading.sessions),
        Err(TranscriptError::UnknownAgent { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

fn sweep_file(path: &Path) -> SweepTally {
    let mut tally = SweepTally::default();
    match sessions(path) {
        Ok(sessions) => {
            let pipeline = default_pipeline();
            let profiles = Profiles::builtin();
            for session in sessions {
                tally.sessions += 1;
                for thread in &session.threads {
                    tally.threads += 1;
                    let events = line(thread_events(&session, thread.id));
                    let name = format!("{}, {}", session.key, thread.name);
                    let names = EventNaming::Thread(thread.id);
                    let exact = Meter::new(Arc::new(O200kCounter), TokenOverhead::default());
                    let whole = context(&events, exact, names);
                    for format in Format::ALL {
                        SweepThread::in_format(&name, &events, &whole, format, &pipeline).sweep(&mut tally);
                    }
                    if let Some(own) = SweepThread::of_its_model(&name, &events, names, &profiles) {
                        own.sweep(&mut tally);
                    }
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

/// A thread, with everything that its requests are made with.
struct SweepThread<'a> {
    name: String,
    line: &'a EventLine,
    whole: Context,
    format: Format,
    rules: ProviderRules,
    with: SweepPipeline<'a>,
}

enum SweepPipeline<'a> {
    /// The exact vocabulary, and the rules of any model with this format.
    Format(&'a Pipeline, RenderOptions),
    /// The profile of the session's model.
    Model(Box<RequestPlan>),
}

impl<'a> SweepThread<'a> {
    fn in_format(
        name: &str,
        line: &'a EventLine,
        whole: &Context,
        format: Format,
        pipeline: &'a Pipeline,
    ) -> Self {
        let options = RenderOptions::of(format);
        let rules = options.rules.clone();
        let name = format!("{name} as {format}");
        Self {
            name,
            line,
            whole: whole.clone(),
            format,
            rules,
            with: SweepPipeline::Format(pipeline, options),
        }
    }

    /// A subject with the session's model; `None` if the model is unknown.
    fn of_its_model(
        name: &str,
        line: &'a EventLine,
        names: EventNaming,
        profiles: &Profiles,
    ) -> Option<Self> {
        let plan = RequestPlan::new(line.clone(), None, &RequestSettings::default(), profiles).ok()?;
        let name = format!("{name} for {}", plan.profile.as_ref()?.name);
        let (format, rules, whole) = (plan.format, plan.options.rules.clone(), plan.context(names));
        Some(Self { name, line, whole, format, rules, with: SweepPipeline::Model(Box::new(plan)) })
    }

    fn make(&self, ceiling: Tokens) -> Result<CompactedRequest, CompactError> {
        let (whole, budget, margin) = (self.whole.clone(), Budget::new(ceiling), TokenMargin::none(ceiling));
        match &self.with {
            SweepPipeline::Model(plan) => plan.compact(whole, budget, margin),
            SweepPipeline::Format(pipeline, options) => {
                let options = options.clone();
                RequestCompaction { budget, margin, pipeline, format: self.format, options }.run(whole)
            }
        }
    }

    /// Tries every budget.
    fn sweep(&self, tally: &mut SweepTally) {
        let sent = match &self.with {
            SweepPipeline::Model(_) => self.make(Tokens::MAX).ok().filter(|sent| !tells_again(sent)),
            SweepPipeline::Format(..) => None,
        };
        let sent = sent.map(|sent| sent.rendered.body);
        let mut budget = SMALLEST;
        loop {
            let ceiling = Tokens(budget.min(self.whole.tokens().0.max(SMALLEST)));
            self.try_one(ceiling, sent.as_deref(), tally);
            if ceiling >= self.whole.tokens() {
                break;
            }
            budget *= 2;
        }
    }

    fn try_one(&self, ceiling: Tokens, sent: Option<&str>, tally: &mut SweepTally) {
        let place = || format!("{} at {ceiling} tokens", self.name);
        let compacted = match self.make(ceiling) {
            Ok(compacted) => compacted,
            Err(CompactError::Refused(_)) => return self.refused(ceiling, tally),
            Err(error) => {
                tally.failed += 1;
                tally.example(|| format!("{}: {error}", place()));
                return;
            }
        };
        tally.renders += 1;
        tally.by_their_models += u64::from(matches!(self.with, SweepPipeline::Model(_)));
        let body = &compacted.rendered.body;
        let against = sent.map(|sent| check_against(self.format, sent, body, &self.rules));
        for violation in
            check(self.format, body, &self.rules).into_iter().chain(against.into_iter().flatten())
        {
            tally.illegal += 1;
            tally.example(|| format!("{}: {violation}", place()));
        }
        match recount(self.format, body, self.whole.meter()) {
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
        if let Some(lost) = lost(self.line, &compacted.context) {
            tally.events_unaccounted += 1;
            tally.example(|| format!("{}: event {lost} is unaccounted for", place()));
        }
        match self.make(ceiling) {
            Ok(again) if again.rendered.body == *body => {}
            _ => {
                tally.not_deterministic += 1;
                tally.example(|| format!("{}: other bytes the second time", place()));
            }
        }
    }

    fn refused(&self, ceiling: Tokens, tally: &mut SweepTally) {
        tally.refusals += 1;
        // The overhead of any request is counted with the instructions.
        let essential: Tokens = self.whole.essential().tokens(&self.whole).into_iter().sum();
        let needed = essential + self.whole.meter().overhead().request;
        if needed <= ceiling {
            tally.refusals_without_need += 1;
            let name = &self.name;
            tally.example(|| {
                format!("{name}: refused at {ceiling}, though the essential {needed} tokens fit")
            });
        }
    }
}

/// Returns true if a request retells a tool loop in words, which is allowed.
fn tells_again(compacted: &CompactedRequest) -> bool {
    compacted
        .report
        .evictions
        .iter()
        .any(|eviction| eviction.by == SETTLE_THINKING && eviction.shown_as.is_some())
}

/// Finds an event of the log that a provider would see but that a context neither shows nor lists as left
/// out.
fn lost(line: &EventLine, context: &Context) -> Option<Seq> {
    let accounted = context.accounted();
    let seen = line.events().filter(|event| event.event.fact.is_message() && event.event.normal.is_some());
    seen.map(|event| event.id.seq).find(|seq| !accounted.contains(*seq))
}
