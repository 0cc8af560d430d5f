//! Summaries of a rehearsal that a model makes in the background: ordered, under way, ready, adopted or given up.
//!
//! They take the same way as the jobs of a live session: the span is cut when the summary is ordered, the calls in between do
//! not wait, and a summary that no longer fits is given up.

use epitome_core::{
    Seq, Tokens,
    budget::Budget,
    context::{Context, EventNaming, Tier},
    cost_planner::SummariserKind,
    event::CompactionTrigger,
    model_view::{ModelView, SummaryStatus},
    policy::Policy,
    seq_set::SeqSet,
    summary::{
        SummaryFocus,
        compaction::{FinishedSummary, SummaryLength},
        summarise_for,
    },
};

/// Calls that are made while a model summarises.
const CALLS_IN_THE_MAKING: u64 = 2;

/// A summary that a model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedSummary {
    /// Length of the model's answer: no more than it is allowed, and no more than the summary has.
    pub answer: Tokens,
}

/// Background summaries of a rehearsal.
#[derive(Debug, Default)]
pub(crate) struct SimulatedJobs {
    job: Option<SimulatedJob>,
    /// The last span that was ordered: no span is summarised twice.
    ordered: Option<OrderedSpan>,
}

/// Span of a summary: the compaction that it builds on, and the first event that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OrderedSpan {
    base: Option<Seq>,
    first_kept: Seq,
}

#[derive(Debug)]
struct SimulatedJob {
    finished: FinishedSummary,
    span: OrderedSpan,
    length: SummaryLength,
    /// The first call that finds it ready.
    due: u64,
}

impl SimulatedJobs {
    /// Status of the summary at a call. One that does not fit the context any more, or would save nothing, is given up.
    pub(crate) fn status(&mut self, call: u64, context: &Context) -> SummaryStatus<'_> {
        let fits = |job: &SimulatedJob| {
            job.span.base == context.standing()
                && job.finished.clone().into_compaction(context, job.length).is_ok()
        };
        self.job = self.job.take().filter(|job| call < job.due || fits(job));
        match &self.job {
            None => SummaryStatus::Possible(SummariserKind::Session),
            Some(job) if call < job.due => SummaryStatus::Running(SummariserKind::Session),
            Some(job) => SummaryStatus::Ready(&job.finished),
        }
    }

    /// Notes that the ready summary is in force.
    pub(crate) fn adopted(&mut self) {
        self.job = None;
    }

    /// Orders a summary at a call; `None` if one is under way, or the same was ordered before.
    pub(crate) fn order(
        &mut self,
        call: u64,
        view: &ModelView,
        policy: &Policy,
        budget: &Budget,
        focus: Option<&SummaryFocus>,
    ) -> Option<OrderedSummary> {
        let (rules, context) = (policy.summary.filter(|_| self.job.is_none())?, view.context());
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let drafting = rules.compaction_settings(budget, prefix);
        let cutting = drafting.cut(focus, context, view.line()).ok()?;
        let span = OrderedSpan { base: cutting.standing, first_kept: cutting.first_kept };
        if self.ordered == Some(span) {
            return None;
        }
        self.ordered = Some(span);
        let brief = summarise_for(focus, &cutting.events, cutting.previous.as_ref(), &cutting.caps);
        let limit = drafting.length.of(cutting.covered);
        let covered = SeqSet::run(cutting.first, cutting.first_kept.previous());
        let text = brief.render(&covered, limit, context.meter(), EventNaming::Messages);
        let answer = context.meter().text(&text).min(limit);
        let finished = FinishedSummary {
            first: cutting.first,
            first_kept: cutting.first_kept,
            brief,
            trigger: CompactionTrigger::Threshold,
        };
        let due = call + CALLS_IN_THE_MAKING;
        self.job = Some(SimulatedJob { finished, span, length: drafting.length, due });
        Some(OrderedSummary { answer })
    }
}
