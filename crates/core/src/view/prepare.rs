//! Preparation of a view for the next call: keep the sent content, or open an epoch.

use std::sync::Arc;

use serde::Serialize;

use super::{Cause, Pending, View, decide::STRIDE};
use crate::{
    budget::Budget,
    context::{Context, Guard, Recorded, Tier},
    cost::Terms,
    event::{Compaction, Logged, Time, Trigger},
    fit::{Refusal, last_resorts, last_resorts_but_standing},
    id::{ModelName, Seq},
    pipeline::{Pipeline, Reduced, State, Step, is_met},
    plan::{CacheUse, Plan, Summariser},
    policy::{Policy, SummaryRules, When},
    seq_set::SeqSet,
    standing::STANDING_LETTERS,
    summary::{
        Focus,
        compaction::{Drafting, Finished, Keep, NothingGained},
    },
    tokens::Tokens,
};

/// Time and model of the next call, with its circumstances.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment<'a> {
    /// The time, if anyone knows.
    pub now: Option<Time>,
    /// The model that is asked.
    pub model: Option<&'a ModelName>,
    /// Promises and prices of its prompt cache. Without them, time and money are left out of account.
    pub terms: Option<&'a Terms>,
    /// Status of the summaries that a model makes.
    pub standby: Standby<'a>,
    /// Observations of earlier calls about that cache.
    pub cache: CacheUse,
    /// The first event that the model has not answered yet, if known: no summary includes it as long as there
    /// is room for it. Clients put more into a request than its newest message, such as the files that are
    /// being edited.
    pub unanswered: Option<Seq>,
    /// Topic that a summary made now should focus on.
    pub focus: Option<&'a Focus>,
}

impl Moment<'_> {
    /// Lifetime in seconds of the sent content in the cache; `None` if unknown.
    pub(super) fn lifetime(&self) -> Option<u64> {
        self.terms.and_then(|terms| terms.lifetime(None)).map(|usual| self.cache.lifetime(usual))
    }
}

/// Status of the summary that a model makes in the background.
#[derive(Clone, Copy, Debug, Default)]
pub enum Standby<'a> {
    /// The built-in summariser makes summaries, at once: no model is set up.
    #[default]
    BuiltIn,
    /// One can be asked for, of this maker. A call never waits for it.
    Possible(Summariser<'a>),
    /// One is being made, by this maker.
    Running(Summariser<'a>),
    /// One is there.
    Ready(&'a Finished),
    /// Compactions have come too close to each other: only a context over the limit is compacted, by the
    /// built-in summariser, and so far down that the next one is some calls away.
    Thrashing,
}

/// Record of the work that made a view ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// Cause of a new epoch; `None` if the request only grew.
    pub cause: Option<Cause>,
    /// Reason why the policy acted, if it did. An epoch that was opened otherwise has a cause of its own.
    pub acted: Option<Cause>,
    /// The planner's plan, if it was asked: policies that mind the cache ask when there is something to
    /// decide.
    pub plan: Option<Plan>,
    /// Work of each reducer, in order.
    pub steps: Vec<Step>,
    /// By how much the policy missed its target, if it acted and did.
    pub shortfall: Option<Shortfall>,
    /// The compaction that was made for it, to be appended to the log. The view holds it already.
    #[serde(skip)]
    pub compaction: Option<Arc<Logged>>,
    /// Author of the summary that it carries.
    pub author: Author,
    /// Order to the caller.
    pub wish: Wish,
}

/// Order of a view to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// An empty order.
    #[default]
    Nothing,
    /// A model should begin to summarise, in the background.
    Summary,
}

impl Wish {
    pub(super) fn summary_if(wanted: bool) -> Self {
        if wanted { Self::Summary } else { Self::Nothing }
    }
}

/// Author of the summary that a request was made ready with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Author {
    /// The built-in summariser, or there is none.
    #[default]
    BuiltIn,
    /// Author of the one that was [ready](Standby::Ready).
    Ready,
}

/// A policy acted and did not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "the policy aims at {target} tokens and reached {reached}, of which {prefix} are instructions and tools; until there \
     is room it acts more often than it should: allow more tokens, shorten the instructions, or let it cut more"
)]
pub struct Shortfall {
    /// Size that it aimed at.
    pub target: Tokens,
    /// Size that it reached.
    pub reached: Tokens,
    /// Of that, the part that no policy may touch.
    pub prefix: Tokens,
}

impl View {
    /// Makes the context ready for the next call: the policy's work before every call, and, if it is time to
    /// act, its work at an epoch. A context that is over the ceiling even then is refused, and the view is as
    /// it was.
    pub fn prepare(
        &mut self,
        policy: &Policy,
        budget: &Budget,
        moment: &Moment<'_>,
    ) -> Result<Prepared, Refusal> {
        self.abandon();
        self.needed = SeqSet::default();
        let mut making = Making::of(self, moment);
        let mut context = self.take_context();
        let standing = policy.summary.map_or(STANDING_LETTERS, |rules| rules.caps.standing);
        context.limit_standing(standing, budget.ceiling().less(context.tier_tokens(Tier::Prefix)));
        let context = making.arrivals(context, policy, budget);
        // A copy of the window is dear: it is made only if something that was sent may change.
        let mut before = (policy.has(When::EveryCall) || making.cause.is_some()).then(|| context.clone());
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
        let prepared = making.prepared(&self.context, budget);
        let before = before.filter(|_| prepared.cause.is_some());
        self.pending = Some(making.pending(before, self));
        Ok(prepared)
    }
}

/// A preparation in the making.
pub(super) struct Making {
    pub(super) cause: Option<Cause>,
    state: State,
    steps: Vec<Step>,
    acted: Option<Cause>,
    pub(super) considered: Tokens,
    /// True if the cache has gone cold since the last call.
    paused: bool,
    model: Option<ModelName>,
    /// True for the first call: no content was sent that could change.
    pub(super) first: bool,
    now: Option<Time>,
    unanswered: Option<Seq>,
    focus: Option<Focus>,
    pub(super) plan: Option<Plan>,
    /// Decisions before the context moved to another pivot.
    edits: Vec<Recorded>,
    compaction: Option<Arc<Logged>>,
    author: Author,
    pub(super) wish: Wish,
}

/// Decision for an epoch.
pub(super) struct Chosen {
    pub(super) cause: Cause,
    /// Budget with the size to reduce to.
    pub(super) budget: Budget,
    /// Outcome of the reducers on the context, if that was tried.
    pub(super) trial: Option<Trial>,
    /// Means that may be used.
    pub(super) means: Means,
}

/// Means that may be used at an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// The reducers are run.
    Reducers,
    /// The reducers first; if they miss the target, a summary is made, or the ready one is taken.
    Summary,
    /// The summary that is ready is taken.
    Ready,
}

/// Outcome of the reducers on a context, not yet accepted.
pub(super) struct Trial {
    pub(super) context: Context,
    state: State,
    steps: Vec<Step>,
}

impl Making {
    pub(super) fn of(view: &View, moment: &Moment<'_>) -> Self {
        let model_changed = view.last.as_ref().is_some_and(|last| {
            last.model.is_some() && moment.model.is_some() && last.model.as_ref() != moment.model
        });
        let cause = if model_changed { Some(Cause::Model) } else { view.disturbed.clone() };
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
            plan: None,
            edits: Vec::new(),
            compaction: None,
            author: Author::BuiltIn,
            wish: Wish::Nothing,
        }
    }

    /// Cuts content that is sent for the first time, which may be cut freely.
    fn arrivals(&mut self, mut context: Context, policy: &Policy, budget: &Budget) -> Context {
        context.start_recording();
        if !policy.has(When::OnArrival) {
            return context;
        }
        context.guard_sent(Guard::Kept);
        let mut context = self.run(&policy.pipeline(When::OnArrival), context, &all_of(budget));
        context.guard_sent(Guard::Open);
        context
    }

    fn every_call(&mut self, mut context: Context, policy: &Policy) -> Context {
        for step in policy.reduce.iter().filter(|step| step.when == When::EveryCall) {
            let changed = context.changes_of_sent();
            let pipeline = crate::reducers::pipeline(vec![step.reducer.clone()]);
            context = self.run(&pipeline, context, &always());
            let name = crate::pipeline::Reducer::name(&step.reducer);
            self.open(context.changes_of_sent() != changed, &Cause::EveryCall(name.into()));
        }
        context
    }

    /// Tries out the reducers of an epoch on a context.
    pub(super) fn trial(&self, context: &Context, policy: &Policy, budget: &Budget) -> Trial {
        let pipeline = policy.pipeline(When::AtEpoch);
        let (reduced, steps) = pipeline.run(context.clone(), budget, self.state.clone());
        Trial { context: reduced.context, state: reduced.state, steps }
    }

    /// Runs the reducers of an epoch down to the target; if they miss it, and a summary may be made, they are
    /// run on the context with that summary instead.
    fn act(
        &mut self,
        view: &mut View,
        context: Context,
        policy: &Policy,
        chosen: Chosen,
        standby: Standby<'_>,
    ) -> Context {
        let Chosen { cause, budget, trial, means } = chosen;
        self.acted = Some(cause.clone());
        let sent = context.changes_of_sent();
        let trial = trial.unwrap_or_else(|| self.trial(&context, policy, &budget));
        let is_due = match means {
            Means::Reducers => false,
            Means::Summary => !is_met(&trial.context, &budget),
            Means::Ready => true,
        };
        if is_due
            && let Some(rules) = policy.summary
            && let Ok(context) = self.summarise(view, context, rules, &budget, standby)
        {
            self.open(true, &cause);
            let context = self.run(&policy.pipeline(When::AtEpoch), context, &budget);
            return self.run(&policy.pipeline(When::AfterSummary), context, &budget);
        }
        self.state = trial.state;
        self.steps.extend(trial.steps);
        let context = match means {
            Means::Reducers => trial.context,
            Means::Summary | Means::Ready => {
                self.run(&policy.pipeline(When::AfterSummary), trial.context, &budget)
            }
        };
        self.open(context.changes_of_sent() != sent, &cause);
        context
    }

    /// Notes a change of the sent content: a new epoch begins, unless this is the first request.
    fn open(&mut self, changed: bool, cause: &Cause) {
        if changed && !self.first {
            self.cause.get_or_insert_with(|| cause.clone());
        }
    }

    /// Appends a compaction, and gives the context that stands on it.
    fn summarise(
        &mut self,
        view: &mut View,
        context: Context,
        rules: SummaryRules,
        budget: &Budget,
        standby: Standby<'_>,
    ) -> Result<Context, NothingGained> {
        let compaction = match standby {
            Standby::Ready(finished) => self.ready(view, &context, rules, budget, finished),
            Standby::BuiltIn | Standby::Possible(_) | Standby::Running(_) | Standby::Thrashing => {
                Err(NothingGained::NothingOld)
            }
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
        view: &View,
        context: &Context,
        rules: SummaryRules,
        budget: &Budget,
        finished: &Finished,
    ) -> Result<Compaction, NothingGained> {
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let length = rules.drafting(budget, prefix).length;
        let finished = finished.clone().with_pins(&view.line, &rules.caps);
        let compaction = finished.compaction(context, length)?;
        self.author = Author::Ready;
        Ok(compaction)
    }

    /// The compaction that the built-in summariser makes: one that leaves the unanswered messages, if there
    /// is room.
    fn draft(
        &self,
        view: &mut View,
        context: &Context,
        rules: SummaryRules,
        budget: &Budget,
    ) -> Result<Compaction, NothingGained> {
        // A summary is made of the events, not of the notes about them.
        view.needed = view.line.unread(context);
        if !view.needed.is_empty() {
            return Err(NothingGained::NothingOld);
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
        view: &View,
        context: &Context,
        rules: SummaryRules,
        budget: &Budget,
        unanswered: Option<Seq>,
    ) -> Result<Compaction, NothingGained> {
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let target = budget.target();
        let mut drafting = Drafting { unanswered, ..rules.drafting(budget, prefix) };
        let mut draft = drafting.draft(self.focus.as_ref(), context, &view.line, Trigger::Threshold);
        let over = |draft: &Compaction| draft.tokens_after.is_some_and(|after| after > target);
        if matches!(drafting.keep, Keep::Turns(_)) && draft.as_ref().is_ok_and(over) {
            // Turns of any size may be more than there is room for.
            drafting.keep = Keep::Tokens(target.less(prefix).less(drafting.length.most()));
            draft = drafting.draft(self.focus.as_ref(), context, &view.line, Trigger::Threshold);
        }
        draft
    }

    fn last_resorts(&mut self, context: Context, budget: &Budget) -> Result<Context, Refusal> {
        if context.tokens() <= budget.ceiling() {
            return Ok(context);
        }
        let sent = context.changes_of_sent();
        let reduced = Reduced { context, state: std::mem::take(&mut self.state) };
        // A context that is cut to the ceiling is over it again with the next call.
        let roomier = Budget::new(budget.ceiling()).reserve(STRIDE.of(budget.ceiling()));
        let reached =
            last_resorts_but_standing(reduced.clone(), &roomier).or_else(|_| last_resorts(reduced, budget));
        let (Reduced { context, state }, steps) = reached?;
        self.state = state;
        self.steps.extend(steps);
        self.open(context.changes_of_sent() != sent, &Cause::Force);
        Ok(context)
    }

    fn run(&mut self, pipeline: &Pipeline, context: Context, budget: &Budget) -> Context {
        let (reduced, steps) = pipeline.run(context, budget, std::mem::take(&mut self.state));
        self.state = reduced.state;
        self.steps.extend(steps);
        reduced.context
    }

    fn prepared(&mut self, context: &Context, budget: &Budget) -> Prepared {
        let over = context.tokens() > budget.target();
        let shortfall = (self.acted.is_some() && over).then(|| Shortfall {
            target: budget.target(),
            reached: context.tokens(),
            prefix: context.tier_tokens(Tier::Prefix),
        });
        if self.acted.is_some() {
            self.considered = context.tokens();
        }
        let steps = std::mem::take(&mut self.steps);
        Prepared {
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

    fn pending(self, before: Option<Context>, view: &View) -> Pending {
        Pending {
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
fn is_paused(view: &View, moment: &Moment<'_>) -> bool {
    let since = view.last.as_ref().and_then(|last| last.at).zip(moment.now);
    since.zip(moment.lifetime()).is_some_and(|((last, now), lifetime)| {
        let seconds = now.0.saturating_sub(last.0) / 1_000;
        u64::try_from(seconds).is_ok_and(|seconds| seconds > lifetime)
    })
}

/// The same budget, under which every reducer does all it can.
fn all_of(budget: &Budget) -> Budget {
    Budget::new(budget.ceiling()).aim(Tokens(0))
}

/// A budget under which every reducer does all it can, whatever the window.
fn always() -> Budget {
    Budget::new(Tokens(u64::MAX)).aim(Tokens(0))
}
