//! Preparation of a view for the next call: keep the sent content, or open an epoch.

use std::sync::Arc;

use serde::Serialize;

use super::{EpochCause, ModelView, PendingContext, decide::REEXAMINATION_GROWTH};
use crate::{
    budget::Budget,
    context::{Context, RecordedChange, SentContentGuard, Tier},
    cost::CacheTerms,
    cost_planner::{CacheObservations, CallPlan, SummariserKind},
    event::{Compaction, CompactionTrigger, LoggedEvent, Timestamp},
    fit::{FitError, last_resorts, last_resorts_but_standing},
    id::{ModelName, Seq},
    pipeline::{Pipeline, ReducerOutput, ReducerState, ReductionStep, is_met},
    policy::{PaidSummaryUse, Policy, StepTiming, SummaryRules},
    reducers::{AnyReducer, CutOutputs, cut_outputs::TokenLimit},
    seq_set::SeqSet,
    standing_context::MAX_STANDING_CHARS,
    summary::{
        SummaryFocus,
        compaction::{CompactionError, CompactionSettings, FinishedSummary, RecentWindow, VerbatimTail},
    },
    tokens::Tokens,
};

/// Time and model of the next call, with its circumstances.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextCall<'a> {
    /// The time, if anyone knows.
    pub now: Option<Timestamp>,
    /// The model that is asked.
    pub model: Option<&'a ModelName>,
    /// Promises and prices of its prompt cache. Without them, time and money are left out of account.
    pub terms: Option<&'a CacheTerms>,
    /// Status of the summaries that a model makes.
    pub standby: SummaryStatus<'a>,
    /// Observations of earlier calls about that cache.
    pub cache: CacheObservations,
    /// The first event that the model has not answered yet, if known: no summary includes it as long as there
    /// is room for it. Clients put more into a request than its newest message, such as the files that are
    /// being edited.
    pub unanswered: Option<Seq>,
    /// Topic that a summary made now should focus on.
    pub focus: Option<&'a SummaryFocus>,
    /// True if the last call used more than the model's input takes, by the provider's own count.
    pub overflowed: bool,
}

impl NextCall<'_> {
    /// Lifetime in seconds of the sent content in the cache; `None` if unknown.
    pub(super) fn lifetime(&self) -> Option<u64> {
        self.terms.and_then(|terms| terms.lifetime(None)).map(|usual| self.cache.lifetime(usual))
    }
}

/// Status of the summary that a model makes in the background.
#[derive(Clone, Copy, Debug, Default)]
pub enum SummaryStatus<'a> {
    /// The built-in summariser makes summaries, at once: no model is set up.
    #[default]
    BuiltIn,
    /// One can be asked for, of this maker. A call never waits for it.
    Possible(SummariserKind<'a>),
    /// One is being made, by this maker.
    Running(SummariserKind<'a>),
    /// One is there.
    Ready(&'a FinishedSummary),
    /// Compactions have come too close to each other: only a context over the limit is compacted, by the
    /// built-in summariser, and so far down that the next one is some calls away.
    Thrashing,
}

impl<'a> NextCall<'a> {
    /// The model that a summary can be ordered of now, if that costs money.
    fn paid_summariser(&self) -> Option<SummariserKind<'a>> {
        match self.standby {
            SummaryStatus::Possible(by) => Some(by).filter(|by| by.costs_money(self.terms)),
            SummaryStatus::BuiltIn
            | SummaryStatus::Running(_)
            | SummaryStatus::Ready(_)
            | SummaryStatus::Thrashing => None,
        }
    }

    /// The call as a policy sees it that asks code for a summary before it pays a model for one; `None` if there is nothing to pay.
    fn without_paid_summaries(&self, policy: &Policy) -> Option<Self> {
        let paid = policy.summary.map(|rules| rules.paid);
        let is_spared = paid == Some(PaidSummaryUse::IfNeeded) && self.paid_summariser().is_some();
        is_spared.then_some(Self { standby: SummaryStatus::BuiltIn, ..*self })
    }
}

/// Record of the work that made a view ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreparationReport {
    /// Cause of a new epoch; `None` if the request only grew.
    pub cause: Option<EpochCause>,
    /// Reason why the policy acted, if it did. An epoch that was opened otherwise has a cause of its own.
    pub acted: Option<EpochCause>,
    /// The planner's plan, if it was asked: policies that mind the cache ask when there is something to
    /// decide.
    pub plan: Option<CallPlan>,
    /// Work of each reducer, in order.
    pub steps: Vec<ReductionStep>,
    /// By how much the policy missed its target, if it acted and did.
    pub shortfall: Option<TargetShortfall>,
    /// The compaction that was made for it, to be appended to the log. The view holds it already.
    #[serde(skip)]
    pub compaction: Option<Arc<LoggedEvent>>,
    /// Author of the summary that it carries.
    pub author: SummaryOrigin,
    /// Order to the caller.
    pub wish: SummaryOrder,
}

/// Order of a view to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryOrder {
    /// An empty order.
    #[default]
    Nothing,
    /// A model should begin to summarise, in the background.
    Summary,
}

impl SummaryOrder {
    pub(super) fn summary_if(wanted: bool) -> Self {
        if wanted { Self::Summary } else { Self::Nothing }
    }
}

/// Author of the summary that a request was made ready with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryOrigin {
    /// The built-in summariser, or there is none.
    #[default]
    BuiltIn,
    /// Author of the one that was [ready](SummaryStatus::Ready).
    Ready,
}

/// A policy acted and did not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "the policy aims at {target} tokens and reached {reached}, of which {prefix} are instructions and tools; until there \
     is room it acts more often than it should: allow more tokens, shorten the instructions, or let it cut more"
)]
pub struct TargetShortfall {
    /// Size that it aimed at.
    pub target: Tokens,
    /// Size that it reached.
    pub reached: Tokens,
    /// Of that, the part that no policy may touch.
    pub prefix: Tokens,
}

impl ModelView {
    /// Makes the context ready for the next call: the policy's work before every call, and, if it is time to
    /// act, its work at an epoch. A context that is over the ceiling even then is refused, and the view is as
    /// it was.
    pub fn prepare(
        &mut self,
        policy: &Policy,
        budget: &Budget,
        moment: &NextCall<'_>,
    ) -> Result<PreparationReport, FitError> {
        self.abandon();
        self.needed = SeqSet::default();
        let spared = moment.without_paid_summaries(policy);
        let moment = spared.as_ref().unwrap_or(moment);
        let mut making = Preparation::of(self, moment);
        let mut context = self.take_context();
        let standing = policy.summary.map_or(MAX_STANDING_CHARS, |rules| rules.caps.standing);
        context.limit_standing(standing, budget.ceiling().less(context.tier_tokens(Tier::Prefix)));
        let context = making.arrivals(context, policy, budget);
        // A copy of the window is dear: it is made only if something that was sent may change.
        let mut before =
            (policy.runs_at(StepTiming::EveryCall) || making.cause.is_some()).then(|| context.clone());
        let mut context = making.every_call(context, policy);
        if let Some(chosen) = making.decide(self, &context, policy, budget, moment) {
            before.get_or_insert_with(|| context.clone());
            context = making.act(self, context, policy, chosen, moment.standby);
        }
        match making.last_resorts(context, budget) {
            Ok(context) => self.context = context,
            Err(refusal) => {
                self.pending = Some(making.pending(None, self));
                self.abandon();
                return Err(refusal);
            }
        }
        let mut prepared = making.prepared(&self.context, budget);
        if spared.is_some() && prepared.shortfall.is_some() {
            prepared.wish = SummaryOrder::Summary;
        }
        let before = before.filter(|_| prepared.cause.is_some());
        self.pending = Some(making.pending(before, self));
        Ok(prepared)
    }
}

/// A preparation in the making.
pub(super) struct Preparation {
    pub(super) cause: Option<EpochCause>,
    state: ReducerState,
    steps: Vec<ReductionStep>,
    acted: Option<EpochCause>,
    pub(super) considered: Tokens,
    /// True if the cache has gone cold since the last call.
    paused: bool,
    model: Option<ModelName>,
    /// True for the first call: no content was sent that could change.
    pub(super) first: bool,
    now: Option<Timestamp>,
    unanswered: Option<Seq>,
    focus: Option<SummaryFocus>,
    /// Trigger of a compaction that is made.
    trigger: CompactionTrigger,
    pub(super) plan: Option<CallPlan>,
    /// Decisions before the context moved to another pivot.
    edits: Vec<RecordedChange>,
    compaction: Option<Arc<LoggedEvent>>,
    author: SummaryOrigin,
    pub(super) wish: SummaryOrder,
}

/// Decision for an epoch.
pub(super) struct EpochDecision {
    pub(super) cause: EpochCause,
    /// Budget with the size to reduce to.
    pub(super) budget: Budget,
    /// Outcome of the reducers on the context, if that was tried.
    pub(super) trial: Option<ReducedTrial>,
    /// Means that may be used.
    pub(super) means: EpochMeans,
}

/// Means that may be used at an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochMeans {
    /// The reducers are run.
    Reducers,
    /// The reducers first; if they miss the target, a summary is made, or the ready one is taken.
    Summary,
    /// The summary that is ready is taken.
    Ready,
}

/// Outcome of the reducers on a context, not yet accepted.
pub(super) struct ReducedTrial {
    pub(super) context: Context,
    state: ReducerState,
    steps: Vec<ReductionStep>,
}

impl Preparation {
    pub(super) fn of(view: &ModelView, moment: &NextCall<'_>) -> Self {
        let model_changed = view.last.as_ref().is_some_and(|last| {
            last.model.is_some() && moment.model.is_some() && last.model.as_ref() != moment.model
        });
        let cause = if model_changed { Some(EpochCause::Model) } else { view.disturbed.clone() };
        Self {
            first: view.last.is_none(),
            cause,
            state: view.state.clone(),
            steps: Vec::new(),
            acted: None,
            considered: view
                .last
                .as_ref()
                .map_or(Tokens(0), |last| last.considered)
                .min(view.context.tokens()),
            paused: is_paused(view, moment),
            model: moment.model.cloned(),
            now: moment.now,
            unanswered: moment.unanswered,
            focus: moment.focus.cloned(),
            trigger: if moment.overflowed {
                CompactionTrigger::Overflow
            } else {
                CompactionTrigger::Threshold
            },
            plan: None,
            edits: Vec::new(),
            compaction: None,
            author: SummaryOrigin::BuiltIn,
            wish: SummaryOrder::Nothing,
        }
    }

    /// Cuts content that is sent for the first time, which may be cut freely.
    fn arrivals(&mut self, mut context: Context, policy: &Policy, budget: &Budget) -> Context {
        context.start_recording();
        if !policy.runs_at(StepTiming::OnArrival) {
            return context;
        }
        context.guard_sent(SentContentGuard::Kept);
        let mut context = self.run(&policy.pipeline(StepTiming::OnArrival), context, &all_of(budget));
        context.guard_sent(SentContentGuard::Open);
        context
    }

    fn every_call(&mut self, mut context: Context, policy: &Policy) -> Context {
        for step in policy.reduce.iter().filter(|step| step.when == StepTiming::EveryCall) {
            let changed = context.changes_of_sent();
            let pipeline = crate::reducers::pipeline(vec![step.reducer.clone()]);
            context = self.run(&pipeline, context, &always());
            let name = crate::pipeline::Reducer::name(&step.reducer);
            self.open(context.changes_of_sent() != changed, &EpochCause::EveryCall(name.into()));
        }
        context
    }

    /// Tries out the reducers of an epoch on a context.
    pub(super) fn trial(&self, context: &Context, policy: &Policy, budget: &Budget) -> ReducedTrial {
        let pipeline = policy.pipeline(StepTiming::AtEpoch);
        let (reduced, steps) = pipeline.run(context.clone(), budget, self.state.clone());
        ReducedTrial { context: reduced.context, state: reduced.state, steps }
    }

    /// Runs the reducers of an epoch down to the target; if they miss it, and a summary may be made, they are
    /// run on the context with that summary instead.
    fn act(
        &mut self,
        view: &mut ModelView,
        context: Context,
        policy: &Policy,
        chosen: EpochDecision,
        standby: SummaryStatus<'_>,
    ) -> Context {
        let EpochDecision { cause, budget, trial, means } = chosen;
        self.acted = Some(cause.clone());
        let sent = context.changes_of_sent();
        let trial = trial.unwrap_or_else(|| self.trial(&context, policy, &budget));
        let is_due = match means {
            EpochMeans::Reducers => false,
            EpochMeans::Summary => !is_met(&trial.context, &budget),
            EpochMeans::Ready => true,
        };
        if is_due
            && let Some(rules) = policy.summary
            && let Ok(context) = self.summarise(view, context, rules, &budget, standby)
        {
            self.open(true, &cause);
            let context = self.cut_recent(context, rules);
            let context = self.run(&policy.pipeline(StepTiming::AtEpoch), context, &budget);
            return self.run(&policy.pipeline(StepTiming::AfterSummary), context, &budget);
        }
        self.state = trial.state;
        self.steps.extend(trial.steps);
        let context = match means {
            EpochMeans::Reducers => trial.context,
            EpochMeans::Summary | EpochMeans::Ready => {
                self.run(&policy.pipeline(StepTiming::AfterSummary), trial.context, &budget)
            }
        };
        self.open(context.changes_of_sent() != sent, &cause);
        context
    }

    /// Cuts the long outputs of the recent turns that a new summary leaves: the cache is lost already.
    fn cut_recent(&mut self, context: Context, rules: SummaryRules) -> Context {
        let VerbatimTail::Recent(RecentWindow { output, .. }) = rules.keep else { return context };
        let half = Tokens(output.0 / 2);
        let limit = TokenLimit { over: output, head: half, tail: half };
        let cut = CutOutputs { tokens: Some(limit), ..CutOutputs::default() };
        self.run(&crate::reducers::pipeline(vec![AnyReducer::CutOutputs(cut)]), context, &always())
    }

    /// Notes a change of the sent content: a new epoch begins, unless this is the first request.
    fn open(&mut self, changed: bool, cause: &EpochCause) {
        if changed && !self.first {
            self.cause.get_or_insert_with(|| cause.clone());
        }
    }

    /// Appends a compaction, and gives the context that stands on it.
    fn summarise(
        &mut self,
        view: &mut ModelView,
        context: Context,
        rules: SummaryRules,
        budget: &Budget,
        standby: SummaryStatus<'_>,
    ) -> Result<Context, CompactionError> {
        let compaction = match standby {
            SummaryStatus::Ready(finished) => self.ready(view, &context, rules, budget, finished),
            SummaryStatus::BuiltIn
            | SummaryStatus::Possible(_)
            | SummaryStatus::Running(_)
            | SummaryStatus::Thrashing => Err(CompactionError::NothingOld),
        };
        let compaction = compaction.or_else(|_| self.draft(view, &context, rules, budget))?;
        let mut context = context;
        self.edits.extend(context.recorded());
        view.context = context;
        self.compaction = view.compact(compaction, self.now);
        view.rebuild();
        let mut context = view.take_context().redo(&self.edits);
        context.start_recording();
        Ok(context)
    }

    /// The compaction that puts a ready summary in force.
    fn ready(
        &mut self,
        view: &ModelView,
        context: &Context,
        rules: SummaryRules,
        budget: &Budget,
        finished: &FinishedSummary,
    ) -> Result<Compaction, CompactionError> {
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let length = rules.compaction_settings(budget, prefix).length;
        let finished = finished.clone().with_pins(&view.line, &rules.caps);
        let compaction = finished.into_compaction(context, length)?;
        self.author = SummaryOrigin::Ready;
        Ok(compaction)
    }

    /// The compaction that the built-in summariser makes: one that leaves the unanswered messages, if there
    /// is room.
    fn draft(
        &self,
        view: &mut ModelView,
        context: &Context,
        rules: SummaryRules,
        budget: &Budget,
    ) -> Result<Compaction, CompactionError> {
        // A summary is made of the events, not of the notes about them.
        view.needed = view.line.unread(context);
        if !view.needed.is_empty() {
            return Err(CompactionError::NothingOld);
        }
        if self.unanswered.is_some()
            && let Ok(draft) = self.drafted(view, context, rules, budget, self.unanswered)
            && draft.tokens_after.is_some_and(|after| after <= budget.force())
        {
            return Ok(draft);
        }
        self.drafted(view, context, rules, budget, None)
    }

    /// The built-in summariser's compaction of a view's events, but for those from `unanswered` on.
    fn drafted(
        &self,
        view: &ModelView,
        context: &Context,
        rules: SummaryRules,
        budget: &Budget,
        unanswered: Option<Seq>,
    ) -> Result<Compaction, CompactionError> {
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let target = budget.target();
        let mut drafting = CompactionSettings { unanswered, ..rules.compaction_settings(budget, prefix) };
        let mut draft = drafting.draft(self.focus.as_ref(), context, &view.line, self.trigger);
        let over = |draft: &Compaction| draft.tokens_after.is_some_and(|after| after > target);
        if matches!(drafting.keep, VerbatimTail::Turns(_)) && draft.as_ref().is_ok_and(over) {
            // Turns of any size may be more than there is room for.
            drafting.keep = VerbatimTail::Tokens(target.less(prefix).less(drafting.length.most()));
            draft = drafting.draft(self.focus.as_ref(), context, &view.line, self.trigger);
        }
        draft
    }

    fn last_resorts(&mut self, context: Context, budget: &Budget) -> Result<Context, FitError> {
        if context.tokens() <= budget.ceiling() {
            return Ok(context);
        }
        let sent = context.changes_of_sent();
        let reduced = ReducerOutput { context, state: std::mem::take(&mut self.state) };
        // A context that is cut to the ceiling is over it again with the next call.
        let roomier = Budget::new(budget.ceiling()).with_reserve(REEXAMINATION_GROWTH.of(budget.ceiling()));
        let reached =
            last_resorts_but_standing(reduced.clone(), &roomier).or_else(|_| last_resorts(reduced, budget));
        let (ReducerOutput { context, state }, steps) = reached?;
        self.state = state;
        self.steps.extend(steps);
        self.open(context.changes_of_sent() != sent, &EpochCause::Force);
        Ok(context)
    }

    fn run(&mut self, pipeline: &Pipeline, context: Context, budget: &Budget) -> Context {
        let (reduced, steps) = pipeline.run(context, budget, std::mem::take(&mut self.state));
        self.state = reduced.state;
        self.steps.extend(steps);
        reduced.context
    }

    fn prepared(&mut self, context: &Context, budget: &Budget) -> PreparationReport {
        let over = context.tokens() > budget.target();
        let shortfall = (self.acted.is_some() && over).then(|| TargetShortfall {
            target: budget.target(),
            reached: context.tokens(),
            prefix: context.tier_tokens(Tier::Prefix),
        });
        if self.acted.is_some() {
            self.considered = context.tokens();
        }
        let steps = std::mem::take(&mut self.steps);
        PreparationReport {
            cause: self.cause.clone(),
            acted: self.acted.clone(),
            plan: self.plan.take(),
            steps,
            shortfall,
            compaction: self.compaction.clone(),
            author: self.author,
            wish: self.wish,
        }
    }

    fn pending(self, before: Option<Context>, view: &ModelView) -> PendingContext {
        PendingContext {
            compacted: self.compaction.as_ref().map(|made| made.id),
            paused: self.paused,
            edits: self.edits,
            epoch: self.cause.map(|cause| view.epoch.next(cause)),
            state: self.state,
            before,
            model: self.model,
            considered: self.considered,
        }
    }
}

/// Returns true if the provider has forgotten the last request, because of the time that has passed.
fn is_paused(view: &ModelView, moment: &NextCall<'_>) -> bool {
    let since = view.last.as_ref().and_then(|last| last.at).zip(moment.now);
    since.zip(moment.lifetime()).is_some_and(|((last, now), lifetime)| {
        let seconds = now.0.saturating_sub(last.0) / 1_000;
        u64::try_from(seconds).is_ok_and(|seconds| seconds > lifetime)
    })
}

/// The same budget, under which every reducer does all it can.
fn all_of(budget: &Budget) -> Budget {
    Budget::new(budget.ceiling()).with_target(Tokens(0))
}

/// A budget under which every reducer does all it can, whatever the window.
fn always() -> Budget {
    Budget::new(Tokens(u64::MAX)).with_target(Tokens(0))
}
