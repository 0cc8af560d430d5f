//! Making a view ready for the next call: keep what was sent, or open an epoch.

use std::sync::Arc;

use serde::Serialize;

use super::{Cause, Pending, View};
use crate::{
    budget::Budget,
    context::{Context, Guard, Recorded, Tier},
    event::{Compaction, Logged, Time, Trigger},
    fit::{Refusal, last_resorts},
    id::ModelName,
    pipeline::{Pipeline, Reduced, State, Step, is_met},
    policy::{Policy, SummaryRules, When},
    profile::CacheRules,
    summary::compaction::{Keep, NothingGained},
    tokens::Tokens,
};

/// When and to whom the next call goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment<'a> {
    /// The time, if anyone knows.
    pub now: Option<Time>,
    /// The model that is asked.
    pub model: Option<&'a ModelName>,
    /// How its prompt cache behaves.
    pub cache: Option<&'a CacheRules>,
}

/// What was done to make a view ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// Why a new epoch begins; `None` if the request only grew.
    pub cause: Option<Cause>,
    /// What each reducer did, in order.
    pub steps: Vec<Step>,
    /// By how much the policy missed its target, if it acted and did.
    pub shortfall: Option<Shortfall>,
    /// The compaction that was made for it, to be appended to the log. The view holds it already.
    #[serde(skip)]
    pub compaction: Option<Arc<Logged>>,
}

/// A policy acted and did not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "the policy aims at {target} tokens and reached {reached}, of which {prefix} are instructions and tools; it will not \
     act again until there is more to gain: raise the target, or add reducers or a summary"
)]
pub struct Shortfall {
    /// What it aims at.
    pub target: Tokens,
    /// What it reached.
    pub reached: Tokens,
    /// Of that, what no policy may touch.
    pub prefix: Tokens,
}

impl View {
    /// Makes the context ready for the next call: what the policy does before every call, and, if it is time to, what it
    /// does at an epoch. What is over the ceiling even then is refused, and the view is as it was.
    pub fn prepare(
        &mut self,
        policy: &Policy,
        budget: &Budget,
        moment: &Moment<'_>,
    ) -> Result<Prepared, Refusal> {
        self.abandon();
        let mut making = Making::of(self, moment);
        let context = self.take_context();
        let context = making.arrivals(context, policy);
        // A copy of the window is dear: it is made only if something that was sent may change.
        let mut before = (policy.has(When::EveryCall) || making.cause.is_some()).then(|| context.clone());
        let mut context = making.every_call(context, policy);
        if let Some(cause) = making.decide(&context, policy, budget, moment, self.considered) {
            before.get_or_insert_with(|| context.clone());
            let target = making.target(policy, budget, &cause);
            context = making.act(self, context, policy, &target, &cause);
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
struct Making {
    cause: Option<Cause>,
    state: State,
    steps: Vec<Step>,
    acted: bool,
    considered: Tokens,
    model: Option<ModelName>,
    first: bool,
    cold: bool,
    now: Option<Time>,
    /// What was decided before the context moved to another pivot.
    edits: Vec<Recorded>,
    compaction: Option<Arc<Logged>>,
}

impl Making {
    fn of(view: &View, moment: &Moment<'_>) -> Self {
        let model_changed = view.last.as_ref().is_some_and(|last| {
            last.model.is_some() && moment.model.is_some() && last.model.as_ref() != moment.model
        });
        let cause = if model_changed { Some(Cause::Model) } else { view.disturbed.clone() };
        Self {
            first: view.last.is_none(),
            cold: view.last.is_none() || cause.is_some() || is_cold(view, moment),
            cause,
            state: view.state.clone(),
            steps: Vec::new(),
            acted: false,
            considered: view.considered,
            model: moment.model.cloned(),
            now: moment.now,
            edits: Vec::new(),
            compaction: None,
        }
    }

    /// What is sent for the first time may be cut freely.
    fn arrivals(&mut self, mut context: Context, policy: &Policy) -> Context {
        context.start_recording();
        if !policy.has(When::OnArrival) {
            return context;
        }
        context.guard_sent(Guard::Kept);
        let mut context = self.run(&policy.pipeline(When::OnArrival), context, &always());
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

    /// Whether it is time to act, and why.
    fn decide(
        &mut self,
        context: &Context,
        policy: &Policy,
        budget: &Budget,
        _moment: &Moment<'_>,
        considered: Tokens,
    ) -> Option<Cause> {
        let tokens = context.tokens();
        if tokens > budget.ceiling() {
            return Some(Cause::Force);
        }
        // Acting again where it did not help a moment ago would reset the cache for nothing.
        let grown = tokens.less(considered) >= Tokens(budget.ceiling().0 / 20);
        if considered > Tokens(0) && !grown {
            return None;
        }
        if let Some(cold) = policy.cold_level(budget) {
            if tokens > budget.force() {
                return Some(Cause::Force);
            }
            if self.cold && tokens > cold {
                return Some(Cause::Cold);
            }
        } else if tokens > budget.trigger() {
            return Some(Cause::Trigger);
        }
        let over = budget.caps().find(|(tier, cap)| context.tier_tokens(*tier) > *cap);
        over.map(|(tier, _)| Cause::Cap(tier))
    }

    /// The budget to act under.
    fn target(&self, policy: &Policy, budget: &Budget, cause: &Cause) -> Budget {
        let target = match (cause, policy.cold_level(budget)) {
            (Cause::Cold, Some(cold)) => cold.min(budget.target()),
            _ => budget.target(),
        };
        // A cap that is met to the token is exceeded again by the next call.
        let caps: Vec<(Tier, Tokens)> = budget.caps().collect();
        caps.into_iter()
            .fold(budget.clone().aim(target), |budget, (tier, cap)| budget.cap(tier, Tokens(cap.0 / 5 * 4)))
    }

    /// Runs the reducers of an epoch down to the target; where they miss it, and the policy summarises, they are run on
    /// what a summary leaves instead.
    fn act(
        &mut self,
        view: &mut View,
        context: Context,
        policy: &Policy,
        budget: &Budget,
        cause: &Cause,
    ) -> Context {
        self.acted = true;
        let pipeline = policy.pipeline(When::AtEpoch);
        let sent = context.changes_of_sent();
        let Some(rules) = policy.summary else {
            let context = self.run(&pipeline, context, budget);
            self.open(context.changes_of_sent() != sent, cause);
            return context;
        };
        let (steps, state) = (self.steps.len(), self.state.clone());
        let trial = self.run(&pipeline, context.clone(), budget);
        if is_met(&trial, budget) {
            self.open(trial.changes_of_sent() != sent, cause);
            return trial;
        }
        match self.summarise(view, context, rules, budget) {
            Ok(context) => {
                self.steps.truncate(steps);
                self.state = state;
                self.open(true, cause);
                self.run(&pipeline, context, budget)
            }
            Err(_) => {
                self.open(trial.changes_of_sent() != sent, cause);
                trial
            }
        }
    }

    /// What was sent has changed: a new epoch begins, unless nothing was ever sent.
    fn open(&mut self, changed: bool, cause: &Cause) {
        if changed && !self.first {
            self.cause.get_or_insert_with(|| cause.clone());
        }
    }

    /// Appends a compaction, and gives the context that stands on it.
    fn summarise(
        &mut self,
        view: &mut View,
        mut context: Context,
        rules: SummaryRules,
        budget: &Budget,
    ) -> Result<Context, NothingGained> {
        let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
        let target = budget.target();
        let mut drafting = rules.drafting(target, prefix);
        let mut draft = drafting.draft(&context, &view.line, Trigger::Threshold);
        let over = |draft: &Compaction| draft.tokens_after.is_some_and(|after| after > target);
        if matches!(drafting.keep, Keep::Turns(_)) && draft.as_ref().is_ok_and(over) {
            // Turns of any size may be more than there is room for.
            drafting.keep = Keep::Tokens(target.less(prefix).less(drafting.length.most()));
            draft = drafting.draft(&context, &view.line, Trigger::Threshold);
        }
        let compaction = draft?;
        self.edits.extend(context.recorded());
        view.context = context;
        self.compaction = view.compact(compaction, self.now);
        view.rebuild();
        let mut context = view.take_context().redo(&self.edits);
        context.start_recording();
        Ok(context)
    }

    fn last_resorts(&mut self, context: Context, budget: &Budget) -> Result<Context, Refusal> {
        if context.tokens() <= budget.ceiling() {
            return Ok(context);
        }
        let sent = context.changes_of_sent();
        let reduced = Reduced { context, state: std::mem::take(&mut self.state) };
        let (Reduced { context, state }, steps) = last_resorts(reduced, budget)?;
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
        let shortfall = (self.acted && over).then(|| Shortfall {
            target: budget.target(),
            reached: context.tokens(),
            prefix: context.tier_tokens(Tier::Prefix),
        });
        if self.acted {
            self.considered = if is_met(context, budget) { Tokens(0) } else { context.tokens() };
        }
        let steps = std::mem::take(&mut self.steps);
        Prepared { cause: self.cause.clone(), steps, shortfall, compaction: self.compaction.clone() }
    }

    fn pending(self, before: Option<Context>, view: &View) -> Pending {
        Pending {
            compacted: self.compaction.is_some(),
            edits: self.edits,
            epoch: self.cause.map(|cause| view.epoch.next(cause)),
            state: self.state,
            before,
            model: self.model,
            considered: self.considered,
        }
    }
}

/// Whether the provider has forgotten what was sent last.
fn is_cold(view: &View, moment: &Moment<'_>) -> bool {
    let lifetime = moment.cache.and_then(|cache| cache.lifetimes.as_ref()?.first().copied());
    let last = view.last.as_ref().and_then(|last| last.at);
    match (moment.now, last, lifetime) {
        (Some(now), Some(last), Some(lifetime)) => {
            let seconds = now.0.saturating_sub(last.0) / 1_000;
            u64::try_from(seconds).is_ok_and(|seconds| seconds >= lifetime)
        }
        _ => false,
    }
}

/// A budget under which every reducer does all it can.
fn always() -> Budget {
    Budget::new(Tokens(u64::MAX)).aim(Tokens(0))
}
