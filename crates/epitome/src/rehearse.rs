//! A session, rehearsed: every model call it made, made again under a policy as if live.
//!
//! A [`Script`] is what happened, counted once. [`Rehearsal::run`] plays it to a [`View`] and stops before each answer, as
//! an agent would: the view is made ready, rendered, and shown to the caller; then the answer that really came goes in.

use std::sync::Arc;

use epitome_core::{
    Fact, Logged, Seq, Tokens,
    budget::Budget,
    context::Names,
    cost::{Extension, Prompt, Terms, extends},
    event::Time,
    id::{AnswerId, ModelName},
    meter::Meter,
    pipeline::Step,
    policy::{Level, Policy},
    profile::{Rule, Share},
    project::{Line, project},
    summary::Focus,
    view::{Cause, Moment, Prepared, View},
};
use epitome_wire::{
    Format, PromptMemo,
    render::{RenderOptions, Rendered, settle_thinking},
};
use serde::Serialize;

use crate::{
    compact::{self, CompactError, Compacted, Report},
    margin::Margin,
};

/// What happened in a thread, with the counts of its texts.
#[derive(Clone, Debug)]
pub struct Script {
    line: Line,
    meter: Arc<Meter>,
    names: Names,
}

impl Script {
    /// Counts what happened, where that was not done before.
    pub fn new(line: Line, meter: Arc<Meter>, names: Names) -> Self {
        Self { line: line.counted_by(&meter), meter, names }
    }

    /// Who counted.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

/// How a session is rehearsed.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    policy: Policy,
    budget: Budget,
    format: Format,
    options: RenderOptions,
    terms: Option<Terms>,
    model: Option<ModelName>,
    focus: Option<Focus>,
}

impl Rehearsal {
    /// Under `policy`, where a request may hold what `budget` says, to a model that makes these demands. Without the
    /// terms of its cache, time and money are left out of account.
    pub fn new(
        policy: &Policy,
        budget: Budget,
        format: Format,
        options: RenderOptions,
        terms: Option<Terms>,
    ) -> Self {
        let shape = policy.summary.map(|rules| rules.shape).unwrap_or_default();
        Self {
            budget: policy.budget(budget),
            policy: policy.clone().for_rules(options.rules.as_set()),
            format,
            options: RenderOptions { summary: shape, ..options },
            terms,
            model: None,
            focus: None,
        }
    }

    /// The same, with every call to this model, whichever answered.
    pub fn asking(mut self, model: ModelName) -> Self {
        self.model = Some(model);
        self
    }

    /// The same, with summaries that attend to something.
    pub fn attending_to(mut self, focus: Option<&Focus>) -> Self {
        self.focus = focus.cloned();
        self
    }

    /// How much a request may hold, with the policy's limits.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// How requests are rendered.
    pub fn options(&self) -> &RenderOptions {
        &self.options
    }
}

/// A call of a rehearsal, ready to be sent.
#[derive(Debug)]
pub struct Call<'a> {
    /// Its number, from 0.
    pub number: u64,
    /// When it was made: when the last thing before it happened.
    pub at: Option<Time>,
    /// The model that answered.
    pub model: Option<&'a ModelName>,
    /// The answer it led to.
    pub answer: &'a Logged,
    /// The view it was rendered from.
    pub view: &'a View,
    /// What was done to make it ready.
    pub prepared: &'a Prepared,
    /// The request.
    pub rendered: &'a Rendered,
    /// The request as a cache sees it.
    pub prompt: &'a Prompt,
}

/// A call of a rehearsal that could not be made.
#[derive(Debug)]
pub struct Failed<'a> {
    /// Its number, from 0.
    pub number: u64,
    /// When it was to be made.
    pub at: Option<Time>,
    /// The answer it led to when it could.
    pub answer: &'a Logged,
    /// Why not.
    pub error: CompactError,
}

impl Rehearsal {
    /// Plays a script, and shows each call, or why there is none. Gives the view after the last event.
    pub fn run(&self, script: &Script, mut each: impl FnMut(Result<Call<'_>, Failed<'_>>)) -> View {
        let mut stage = Stage::new(script);
        let mut answering: Option<AnswerId> = None;
        let mut number = 0;
        for (event, pieces) in script.line.counted() {
            if let Fact::AssistantSaid { answer, model, .. } = &event.event.fact {
                // Fragments of one answer came of one call, and words that open a session came of none.
                let goes_on = answer.is_some() && *answer == answering;
                if !goes_on && stage.has_history() {
                    let model = self.model.as_ref().or(model.as_ref());
                    self.call(&mut stage, number, model, event, &mut each);
                    number += 1;
                }
                answering.clone_from(answer);
            }
            stage.now = event.event.time.or(stage.now);
            stage.view.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
        }
        stage.view
    }

    fn call(
        &self,
        stage: &mut Stage,
        number: u64,
        model: Option<&ModelName>,
        answer: &Logged,
        each: &mut impl FnMut(Result<Call<'_>, Failed<'_>>),
    ) {
        let (terms, focus) = (self.terms.as_ref(), self.focus.as_ref());
        let moment = Moment { now: stage.now, model, terms, focus, ..Moment::default() };
        match self.ready(&mut stage.view, &moment, &mut stage.memo) {
            Ok((mut prepared, rendered, prompt)) => {
                let at = stage.now;
                let extends =
                    stage.sent.as_ref().is_none_or(|sent| extends(sent, &prompt) == Extension::Extends);
                if !extends && prepared.cause.is_none() {
                    stage.view.reset(Cause::Format);
                    prepared.cause = Some(Cause::Format);
                }
                let view = &stage.view;
                let (prepared, rendered) = (&prepared, &rendered);
                each(Ok(Call { number, at, model, answer, view, prepared, rendered, prompt: &prompt }));
                stage.view.sent(at);
                stage.sent = Some(prompt);
            }
            Err(error) => {
                stage.view.abandon();
                each(Err(Failed { number, at: stage.now, answer, error }));
            }
        }
    }

    /// The same for a request that stands alone, under a policy that minds the cache. No cache holds anything of it and no
    /// reset is due after it, so money is no reason to make it small: it is left as it is if it fits, and else filled to the
    /// size where work would begin, which leaves room for a few calls.
    fn standing_alone(&self) -> Option<Self> {
        self.policy.limits.cold?;
        let mut alone = self.clone();
        alone.policy.limits.cold = Some(Level::Share(Share::percent(100)));
        alone.budget =
            self.budget.clone().act(self.budget.trigger(), self.budget.force(), self.budget.force());
        Some(alone)
    }

    /// Makes a view ready for its next call, and renders it.
    pub fn ready(
        &self,
        view: &mut View,
        moment: &Moment<'_>,
        memo: &mut PromptMemo,
    ) -> Result<(Prepared, Rendered, Prompt), CompactError> {
        let prepared = self.prepare(view, moment)?;
        let rendered = self.format.render(view.context(), &self.options)?;
        let prompt = self.format.prompt(&rendered.body, memo)?;
        Ok((prepared, rendered, prompt))
    }

    /// Makes a view ready for its next call.
    pub(crate) fn prepare(&self, view: &mut View, moment: &Moment<'_>) -> Result<Prepared, CompactError> {
        let prepared = view.prepare(&self.policy, &self.budget, moment)?;
        if self.options.rules.has(Rule::PreservedThinking) {
            view.settle(|context, sent| {
                let ceiling = self.budget.ceiling();
                settle_thinking(context, sent, &self.options.rules, ceiling).map(|settled| settled.context)
            })?;
        }
        Ok(prepared)
    }
}

/// What a policy made of a session, and what it would send next.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    /// The next request.
    pub compacted: Compacted,
    /// How many calls were made on the way.
    pub calls: u64,
    /// How many of them were refused: what must be sent did not fit.
    pub refused: u64,
    /// What was done on the way, and for the next request.
    pub passes: Vec<Passed>,
    /// Whether the next request was made of the whole session at once and not of what the call before sent.
    pub made_anew: bool,
}

/// What a policy did before a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Passed {
    /// The call, from 0.
    pub call: u64,
    /// When it was made.
    pub at: Option<Time>,
    /// Why a new epoch began; `None` if nothing that was sent has changed.
    pub cause: Option<Cause>,
    /// What the planner said, in a sentence.
    pub plan: Option<String>,
    /// What each reducer did.
    pub steps: Vec<Step>,
    /// The last event that a summary stands for which was made here.
    pub summarised_through: Option<Seq>,
    /// The size of the request.
    pub tokens: Tokens,
    /// By how much the policy missed its target, in a sentence.
    pub shortfall: Option<String>,
}

impl Passed {
    /// What was done before a call, if anything was.
    fn of(call: u64, at: Option<Time>, prepared: &Prepared, tokens: Tokens) -> Option<Self> {
        let did = |step: &&Step| step.replaced + step.removed > 0;
        let steps: Vec<Step> = prepared.steps.iter().filter(did).cloned().collect();
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

/// Plays a script to its end and makes the request that would come next. Nobody sent the calls before it, so a policy that
/// minds the cache has none to keep: it makes this request of the whole session at once.
pub fn next_request(
    rehearsal: &Rehearsal,
    script: &Script,
    margin: Margin,
) -> Result<Rehearsed, CompactError> {
    let (mut calls, mut refused, mut passes, mut now) = (0, 0, Vec::new(), None);
    let mut view = rehearsal.run(script, |call| {
        calls += 1;
        match call {
            Ok(call) => {
                now = call.at;
                passes.extend(Passed::of(call.number, call.at, call.prepared, call.view.context().tokens()));
            }
            Err(_) => refused += 1,
        }
    });
    let alone = rehearsal.standing_alone();
    let made_anew = alone.is_some();
    if made_anew {
        view = Stage::new(script).told(script);
    }
    let rehearsal = alone.as_ref().unwrap_or(rehearsal);
    let now = script.line.events().rev().find_map(|event| event.event.time).or(now);
    let (terms, focus) = (rehearsal.terms.as_ref(), rehearsal.focus.as_ref());
    let moment = Moment { now, model: None, terms, focus, ..Moment::default() };
    let mut memo = PromptMemo::new(Arc::clone(&script.meter));
    let (prepared, rendered, _) = rehearsal.ready(&mut view, &moment, &mut memo)?;
    let context = view.context().clone();
    let last = Passed::of(calls, now, &prepared, context.tokens());
    // What was done on the way is no part of a request that was made anew.
    let on_the_way = passes.iter().filter(|_| !made_anew);
    let steps = on_the_way.chain(&last).flat_map(|pass| pass.steps.clone()).collect();
    passes.extend(last);
    let whole = project(&script.line, Arc::clone(&script.meter), script.names);
    let report = Report {
        before: whole.tokens(),
        after: compact::size_of(&context, &rendered),
        budget: rehearsal.budget.ceiling() + margin.tokens,
        margin,
        target: rehearsal.budget.target(),
        counter: context.meter().name(),
        steps,
        evictions: compact::evictions(&context),
        illegal: compact::unmended(rehearsal.format, &rendered.body, &rehearsal.options.rules),
        mended: Vec::new(),
    };
    Ok(Rehearsed { compacted: Compacted { rendered, context, report }, calls, refused, passes, made_anew })
}

/// Where a script is played.
struct Stage {
    view: View,
    memo: PromptMemo,
    now: Option<Time>,
    /// The last request.
    sent: Option<Prompt>,
}

impl Stage {
    fn new(script: &Script) -> Self {
        Self {
            view: View::rehearsing(Arc::clone(&script.meter), script.names),
            memo: PromptMemo::new(Arc::clone(&script.meter)),
            now: None,
            sent: None,
        }
    }

    /// The view after the last event, of which no call was made.
    fn told(mut self, script: &Script) -> View {
        for (event, pieces) in script.line.counted() {
            self.view.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
        }
        self.view
    }

    /// Whether there is anything to answer.
    fn has_history(&self) -> bool {
        let context = self.view.context();
        context.segments().len() > context.prefix_len()
    }
}
