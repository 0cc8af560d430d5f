//! Every session at many budgets in every format.
//!
//! The checks do not depend on the code that made the request: legality on its bytes, its size by a full
//! recount, the same bytes a second time, and no event of the log unaccounted for. Every format is tried with
//! the exact vocabulary. A session with a known model is also tried with everything that its profile says:
//! its counts, its overhead, its own rules, and what its thinking is bound to.

use std::{ops::AddAssign, path::Path, sync::Arc};

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
    request_plan::{RequestPlan, RequestSettings},
    token_margin::TokenMargin,
    wire::{
        Format,
        legality::{ProviderRules, check, check_against},
        render::{RenderOptions, SETTLE_THINKING, recount},
    },
};
use serde::Serialize;

use crate::transcript_sessions::transcript_sessions;

/// Smallest budget; each next one is twice as large, up to the whole session.
pub const SMALLEST_BUDGET: u64 = 2_000;

/// Findings of a sweep.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SweepTally {
    /// Sessions that were read.
    pub sessions: u64,
    /// Their threads.
    pub threads: u64,
    /// Requests that were rendered and checked.
    pub renders: u64,
    /// Requests made with the profile of the session's model.
    pub by_their_models: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Refusals although instructions, newest message and open calls would fit.
    pub refusals_without_need: u64,
    /// Requests that break a rule of their provider.
    pub illegal: u64,
    /// Requests over their budget by a full recount.
    pub over_budget: u64,
    /// Requests that had other bytes the second time.
    pub not_deterministic: u64,
    /// Contexts that leave events unaccounted for.
    pub events_unaccounted: u64,
    /// Requests that could not be rendered.
    pub failed: u64,
    /// Files that could not be read.
    pub not_read: u64,
    /// The first few violations, in words.
    pub examples: Vec<String>,
}

impl SweepTally {
    /// Number of violations of all kinds.
    pub fn violations(&self) -> u64 {
        self.refusals_without_need
            + self.illegal
            + self.over_budget
            + self.not_deterministic
            + self.events_unaccounted
            + self.failed
            + self.not_read
    }

    /// Counts a file or a folder that could not be read.
    pub fn unread(&mut self, words: impl FnOnce() -> String) {
        self.not_read += 1;
        self.example(words);
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

/// Tries every thread of a file at many budgets.
pub fn sweep_budgets(path: &Path) -> SweepTally {
    let mut tally = SweepTally::default();
    match transcript_sessions(path) {
        Ok(sessions) => {
            let pipeline = default_pipeline();
            let profiles = Profiles::builtin();
            for session in sessions {
                tally.sessions += 1;
                for thread in &session.threads {
                    tally.threads += 1;
                    let events = line(session.thread_events(thread.id));
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
        Err(error) => tally.unread(|| format!("{}: {error}", path.display())),
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
                RequestCompaction { budget, margin, strategy: *pipeline, format: self.format, options }
                    .run(whole)
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
        let mut budget = SMALLEST_BUDGET;
        loop {
            let ceiling = Tokens(budget.min(self.whole.tokens().0.max(SMALLEST_BUDGET)));
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
