//! Rehearsal of a session: each of its model calls, made again under a policy as if live.
//!
//! A [`MeteredThread`] holds the events, counted once. [`SimulationSettings::run`] plays it to a [`ModelView`] and stops before
//! each answer, as an agent would: the view is prepared, rendered, and shown to the caller; then the recorded
//! answer is added.

use std::{fmt, sync::Arc};

use epitome_core::{
    Fact, LoggedEvent, Seq, Tokens,
    budget::Budget,
    context::EventNaming,
    cost::{CacheTerms, Prompt},
    event::Timestamp,
    id::{AnswerId, ModelName},
    meter::Meter,
    model_view::{
        EpochCause, ModelView, NextCall, PreparationReport, SummaryOrder, SummaryOrigin, SummaryStatus,
    },
    pipeline::ReductionStep,
    policy::{LimitSize, Policy},
    profile::{Profiles, Share},
    projection::{EventLine, project},
    summary::SummaryFocus,
};
use epitome_wire::{
    Format,
    render::{RenderOptions, RenderedRequest},
};
use serde::Serialize;

pub use crate::simulated_job::OrderedSummary;
use crate::{
    call_preparer::{CallPreparer, PreparedRequest},
    call_settings::{CallSettings, TargetModel},
    compact::{CompactError, CompactedRequest, CompactionReport},
    session::setup::{ObservedLimits, SessionSetup},
    simulated_job::SimulatedJobs,
    token_margin::TokenMargin,
};

/// Letters of the index in a request that stands alone. Names serve the many calls that a session still has; the very next one is told
/// more by words from near its place. With 3 000 letters a model knew strings from long ago less well, with a third of the room all else.
const INDEX_OF_ONE_REQUEST: usize = 5_000;

/// How full a request that stands alone is made: no summary has to be written while it grows, only the next calls need room.
const FULL_REQUEST: Share = Share::percent(93);

/// Events of a thread, with the counts of their texts.
#[derive(Clone, Debug)]
pub struct MeteredThread {
    line: EventLine,
    meter: Arc<Meter>,
    names: EventNaming,
}

impl MeteredThread {
    /// Counts events that have no counts yet.
    pub fn new(line: EventLine, meter: Arc<Meter>, names: EventNaming) -> Self {
        Self { line: line.count_missing(&meter), meter, names }
    }

    /// Meter of the counts.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The view after the last event, without a call.
    fn view(&self) -> ModelView {
        let mut view = ModelView::for_replay(Arc::clone(&self.meter), self.names);
        for (event, pieces) in self.line.events_with_counts() {
            view.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
        }
        view
    }
}

/// Settings of a rehearsal.
#[derive(Clone, Debug)]
pub struct SimulationSettings {
    calls: CallSettings,
    budget: Budget,
    model: Option<ModelName>,
    focus: Option<SummaryFocus>,
    summaries: SimulatedSummariser,
    live: Option<LiveLimits>,
}

/// Limits of a live session, which are learnt from call to call.
#[derive(Clone, Debug)]
struct LiveLimits {
    setup: Arc<SessionSetup>,
    count: ProviderCount,
}

/// The count of a simulated provider for a request, from ours.
#[derive(Clone)]
pub struct ProviderCount(pub Arc<dyn Fn(Tokens) -> Tokens + Send + Sync>);

impl fmt::Debug for ProviderCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderCount")
    }
}

/// Author of a rehearsal's summaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimulatedSummariser {
    /// The built-in one, at once.
    #[default]
    BuiltIn,
    /// The session's own model, in the background, as a live session asks it. Its words are unknown, so the built-in summariser's
    /// stand for them.
    OwnModel,
}

impl SimulationSettings {
    /// Rehearses under `policy`, with requests within `budget`, for a model with these rendering options.
    /// Without the terms of its cache, time and money are ignored.
    pub fn new(
        policy: &Policy,
        budget: Budget,
        format: Format,
        options: RenderOptions,
        terms: Option<CacheTerms>,
    ) -> Self {
        Self::with_settings(CallSettings::new(policy, format, options, terms), budget)
    }

    /// Rehearses for a model under `policy`, with requests within `limit`. The model's thresholds apply where the policy
    /// has none.
    pub fn for_model(
        target: TargetModel<'_>,
        policy: &Policy,
        options: RenderOptions,
        limit: Budget,
    ) -> Self {
        Self::with_settings(target.settings(policy, options), target.with_thresholds(limit))
    }

    /// Rehearses what a live session would send to a model with this window, input and output together: room for the answer is
    /// left free, and so is what our counts may be short of, as far as the calls until then have shown it.
    pub fn for_session(
        format: Format,
        model: &str,
        policy: &Policy,
        profiles: &Profiles,
        window: Tokens,
        count: ProviderCount,
    ) -> Self {
        let setup = SessionSetup::new(format, model, Some(window), policy, profiles);
        let budget = setup.budget(ObservedLimits::before_calls(&setup), Tokens(0));
        let (model, summaries) = (Some(setup.model.clone()), SimulatedSummariser::BuiltIn);
        let calls = setup.calls.clone();
        let live = Some(LiveLimits { setup: Arc::new(setup), count });
        Self { calls, budget, model, focus: None, summaries, live }
    }

    fn with_settings(calls: CallSettings, budget: Budget) -> Self {
        let budget = calls.policy.budget(budget);
        let (summaries, live) = (SimulatedSummariser::BuiltIn, None);
        Self { budget, calls, model: None, focus: None, summaries, live }
    }

    /// Sends every call to this model, whichever model answered.
    pub fn with_model(mut self, model: ModelName) -> Self {
        self.model = Some(model);
        self
    }

    /// Has summaries made by this summariser.
    pub fn with_summariser(mut self, summaries: SimulatedSummariser) -> Self {
        self.summaries = summaries;
        self
    }

    /// Makes summaries that attend to `focus`.
    pub fn with_focus(mut self, focus: Option<&SummaryFocus>) -> Self {
        self.focus = focus.cloned();
        self
    }

    /// Largest size of a request, with the policy's limits.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Options that requests are rendered with.
    pub fn options(&self) -> &RenderOptions {
        &self.calls.options
    }
}

/// A call of a rehearsal, ready to be sent.
#[derive(Debug)]
pub struct SimulationCall<'a> {
    /// Number of the call, from 0.
    pub number: u64,
    /// Time of the call: that of the last event before it.
    pub at: Option<Timestamp>,
    /// The model that answered.
    pub model: Option<&'a ModelName>,
    /// The recorded answer.
    pub answer: &'a LoggedEvent,
    /// The view it was rendered from.
    pub view: &'a ModelView,
    /// Steps that prepared it.
    pub prepared: &'a PreparationReport,
    /// The request.
    pub rendered: &'a RenderedRequest,
    /// The request as a cache sees it.
    pub prompt: &'a Prompt,
    /// Summary that a model is asked for once the call is made.
    pub ordered: Option<OrderedSummary>,
}

/// A call of a rehearsal that could not be made.
#[derive(Debug)]
pub struct FailedSimulationCall<'a> {
    /// Number of the call, from 0.
    pub number: u64,
    /// Time of the call.
    pub at: Option<Timestamp>,
    /// The recorded answer.
    pub answer: &'a LoggedEvent,
    /// Reason for the failure.
    pub error: CompactError,
}

impl SimulationSettings {
    /// Plays a script, and calls `each` for every call or failure. Returns the view after the last event.
    pub fn run(
        &self,
        script: &MeteredThread,
        mut each: impl FnMut(Result<SimulationCall<'_>, FailedSimulationCall<'_>>),
    ) -> ModelView {
        let learned = self.live.as_ref().map(|live| ObservedLimits::before_calls(&live.setup));
        let mut stage =
            SimulationState { learned: learned.unwrap_or_default(), ..SimulationState::new(script) };
        let mut answering: Option<AnswerId> = None;
        let mut number = 0;
        for (event, pieces) in script.line.events_with_counts() {
            if let Fact::AssistantSaid { answer, model, .. } = &event.event.fact {
                // Fragments of one answer belong to one call, and an answer that opens a session to none.
                let goes_on = answer.is_some() && *answer == answering;
                if !goes_on && stage.has_history() {
                    let model = self.model.as_ref().or(model.as_ref());
                    self.call(&mut stage, number, model, event, &mut each);
                    number += 1;
                }
                answering.clone_from(answer);
            }
            stage.now = event.event.time.or(stage.now);
            stage.calls.view_mut().push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
        }
        stage.calls.into_view()
    }

    fn call(
        &self,
        stage: &mut SimulationState,
        number: u64,
        model: Option<&ModelName>,
        answer: &LoggedEvent,
        each: &mut impl FnMut(Result<SimulationCall<'_>, FailedSimulationCall<'_>>),
    ) {
        let budget = self.live.as_ref().map(|live| live.setup.budget(stage.learned, Tokens(0)));
        let budget = budget.as_ref().unwrap_or(&self.budget);
        let SimulationState { calls, jobs, learned, now } = stage;
        let standby = match self.summaries {
            SimulatedSummariser::BuiltIn => SummaryStatus::BuiltIn,
            SimulatedSummariser::OwnModel => jobs.status(number, calls.view().context()),
        };
        let moment = NextCall { model, standby, ..self.next_call(*now) };
        match calls.next_request(&self.calls, budget, &moment) {
            Ok((prepared, PreparedRequest { rendered, prompt })) => {
                let (at, view) = (*now, calls.view());
                let aimed = (prepared.wish == SummaryOrder::Summary)
                    .then(|| view.summary_budget(&self.calls.policy, budget, &moment));
                if prepared.author == SummaryOrigin::Ready {
                    jobs.adopted();
                }
                let ordered = aimed.and_then(|budget| {
                    jobs.order(number, view, &self.calls.policy, &budget, self.focus.as_ref())
                });
                let (prepared, rendered, prompt_of) = (&prepared, &rendered, &prompt);
                each(Ok(SimulationCall {
                    number,
                    at,
                    model,
                    answer,
                    view,
                    prepared,
                    rendered,
                    prompt: prompt_of,
                    ordered,
                }));
                if let Some(live) = &self.live {
                    let estimated = view.context().tokens();
                    learned.counted(estimated, (live.count.0)(estimated));
                }
                calls.sent(at, Some(prompt));
            }
            Err(error) => each(Err(FailedSimulationCall { number, at: *now, answer, error })),
        }
    }

    /// A call at a time, of no particular model.
    fn next_call(&self, now: Option<Timestamp>) -> NextCall<'_> {
        let (terms, focus) = (self.calls.terms.as_ref(), self.focus.as_ref());
        NextCall { now, terms, focus, ..NextCall::default() }
    }

    /// The same rehearsal for a request that stands alone, under a policy that takes the cache into account.
    /// No cache holds any of it and no reset follows it, so saving money is no reason to make it small: it is
    /// left as it is if it fits, and else filled but for room for a few calls.
    fn standing_alone(&self) -> Option<Self> {
        self.calls.policy.limits.cold?;
        let mut alone = self.clone();
        if let Some(summary) = &mut alone.calls.policy.summary {
            summary.caps.index = summary.caps.index.min(INDEX_OF_ONE_REQUEST);
        }
        alone.calls.policy.limits.cold = Some(LimitSize::Share(Share::percent(100)));
        alone.budget = self.budget.clone().with_thresholds(
            FULL_REQUEST.of(self.budget.ceiling()),
            self.budget.first_force(),
            self.budget.first_force(),
        );
        Some(alone)
    }
}

/// Result of a policy for a session, with its next request.
#[derive(Clone, Debug)]
pub struct SimulationResult {
    /// The next request.
    pub compacted: CompactedRequest,
    /// Number of calls before it.
    pub calls: u64,
    /// Number of them that were refused because their essential content did not fit.
    pub refused: u64,
    /// Steps of these calls and of the next request.
    pub passes: Vec<PolicyActions>,
    /// True if the next request was made of the whole session at once and not from the call before.
    pub made_anew: bool,
}

/// Actions of a policy before a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyActions {
    /// Number of the call, from 0.
    pub call: u64,
    /// Time of the call.
    pub at: Option<Timestamp>,
    /// Cause of a new epoch; `None` if nothing that was sent has changed.
    pub cause: Option<EpochCause>,
    /// Result of the planner, in a sentence.
    pub plan: Option<String>,
    /// Effect of each reducer.
    pub steps: Vec<ReductionStep>,
    /// Last event of a summary that was made here.
    pub summarised_through: Option<Seq>,
    /// The size of the request.
    pub tokens: Tokens,
    /// Amount by which the policy missed its target, in a sentence.
    pub shortfall: Option<String>,
}

impl PolicyActions {
    /// The actions before a call, if there were any.
    fn of(call: u64, at: Option<Timestamp>, prepared: &PreparationReport, tokens: Tokens) -> Option<Self> {
        let did = |step: &&ReductionStep| step.replaced + step.removed > 0;
        let steps: Vec<ReductionStep> = prepared.steps.iter().filter(did).cloned().collect();
        let through = prepared.compaction.as_ref().and_then(|logged| match &logged.event.fact {
            Fact::Compacted(compaction) => Some(compaction.through),
            _ => None,
        });
        if steps.is_empty() && prepared.cause.is_none() && through.is_none() {
            return None;
        }
        Some(Self {
            call,
            at,
            cause: prepared.cause.clone(),
            plan: prepared.plan.as_ref().map(ToString::to_string),
            steps,
            summarised_through: through,
            tokens,
            shortfall: prepared.shortfall.map(|shortfall| shortfall.to_string()),
        })
    }
}

/// Plays a script to its end and makes the next request. The earlier calls were not really sent, so a policy
/// that takes the cache into account has none to keep: it makes this request of the whole session at once.
pub fn next_request(
    rehearsal: &SimulationSettings,
    script: &MeteredThread,
    margin: TokenMargin,
) -> Result<SimulationResult, CompactError> {
    let (mut calls, mut refused, mut passes, mut now) = (0, 0, Vec::new(), None);
    let mut view = rehearsal.run(script, |call| {
        calls += 1;
        match call {
            Ok(SimulationCall { number, at, prepared, view, .. }) => {
                now = at;
                passes.extend(PolicyActions::of(number, at, prepared, view.context().tokens()));
            }
            Err(_) => refused += 1,
        }
    });
    let alone = rehearsal.standing_alone();
    let made_anew = alone.is_some();
    if made_anew {
        view = script.view();
    }
    let rehearsal = alone.as_ref().unwrap_or(rehearsal);
    let now = script.line.events().rev().find_map(|event| event.event.time).or(now);
    let mut last = CallPreparer::new(view, None);
    let (prepared, PreparedRequest { rendered, .. }) =
        last.next_request(&rehearsal.calls, &rehearsal.budget, &rehearsal.next_call(now))?;
    let context = last.view().context().clone();
    let last = PolicyActions::of(calls, now, &prepared, context.tokens());
    // A request that was made anew does not include the steps of earlier calls.
    let on_the_way = passes.iter().filter(|_| !made_anew);
    let steps = on_the_way.chain(&last).flat_map(|pass| pass.steps.clone()).collect();
    passes.extend(last);
    let SimulationSettings { calls: settings, budget, .. } = rehearsal;
    let report = CompactionReport {
        before: project(&script.line, Arc::clone(&script.meter), script.names).tokens(),
        steps,
        ..CompactionReport::of(&context, &rendered, (budget, margin), settings.format, &settings.options)
    };
    let compacted = CompactedRequest { rendered, context, report };
    Ok(SimulationResult { compacted, calls, refused, passes, made_anew })
}

/// State of a script that is being played.
struct SimulationState {
    calls: CallPreparer,
    jobs: SimulatedJobs,
    /// Limits that the calls have shown, in a rehearsal of a live session.
    learned: ObservedLimits,
    now: Option<Timestamp>,
}

impl SimulationState {
    fn new(script: &MeteredThread) -> Self {
        let view = ModelView::for_replay(Arc::clone(&script.meter), script.names);
        let (jobs, learned) = (SimulatedJobs::default(), ObservedLimits::default());
        Self { calls: CallPreparer::new(view, None), jobs, learned, now: None }
    }

    /// Returns true if there is anything to answer.
    fn has_history(&self) -> bool {
        let context = self.calls.view().context();
        context.segments().len() > context.prefix_len()
    }
}
