//! A session, rehearsed: every model call it made, made again under a policy as if live.
//!
//! A [`Script`] is what happened, counted once. [`Rehearsal::run`] plays it to a [`View`] and stops before each answer, as
//! an agent would: the view is made ready, rendered, and shown to the caller; then the answer that really came goes in.

use std::sync::Arc;

use epitome_core::{
    Event, EventId, Fact, Link, Logged, Seq, ThreadId, Tokens,
    budget::Budget,
    context::Names,
    cost::{Prompt, Terms},
    event::{Pin, Time},
    fit::Refusal,
    id::{AnswerId, ModelName},
    meter::Meter,
    policy::Policy,
    profile::Rule,
    view::{Moment, Prepared, View},
};
use epitome_wire::{
    Format, PromptMemo, WireError,
    render::{BoundThinking, RenderError, RenderOptions, Rendered, settle_thinking},
};

/// What happened in a thread, with the counts of its texts.
#[derive(Clone, Debug)]
pub struct Script {
    thread: ThreadId,
    meter: Arc<Meter>,
    events: Vec<(Event, Vec<Tokens>)>,
}

impl Script {
    /// Counts what happened.
    pub fn new(thread: ThreadId, events: impl IntoIterator<Item = Event>, meter: Arc<Meter>) -> Self {
        let counted = |event: Event| {
            let pieces = meter.pieces(&event);
            (event, pieces)
        };
        let events = events.into_iter().map(counted).collect();
        Self { thread, meter, events }
    }

    /// Who counted.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

/// How a session is rehearsed.
#[derive(Clone, Debug)]
pub struct Rehearsal<'a> {
    /// What decides.
    pub policy: &'a Policy,
    /// How much a request may hold, with the policy's limits.
    pub budget: Budget,
    /// The format to render.
    pub format: Format,
    /// What the model demands of a request.
    pub options: RenderOptions,
    /// What its cache promises and costs.
    pub terms: Option<Terms>,
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
    pub answer: &'a Event,
    /// The view it was rendered from.
    pub view: &'a View,
    /// What was done to make it ready.
    pub prepared: &'a Prepared,
    /// The request.
    pub rendered: &'a Rendered,
    /// The request as a cache sees it.
    pub prompt: &'a Prompt,
}

/// Why a call could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NoCall {
    /// It cannot be made small enough.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The thinking of an open tool loop is bound to what would have to change.
    #[error(transparent)]
    Thinking(#[from] BoundThinking),
    /// It cannot be written in this format.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// What was written cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Rehearsal<'_> {
    /// Plays a script, and shows each call, or why there is none.
    pub fn run(&self, script: &Script, mut each: impl FnMut(Result<Call<'_>, NoCall>)) -> View {
        let mut stage = Stage::new(script);
        let mut answering: Option<AnswerId> = None;
        let mut number = 0;
        for (event, pieces) in &script.events {
            if let Fact::AssistantSaid { answer, model, .. } = &event.fact {
                // Fragments of one answer came of one call, and words that open a session came of none.
                let goes_on = answer.is_some() && *answer == answering;
                if !goes_on && stage.has_history() {
                    self.call(&mut stage, number, model.as_ref(), event, &mut each);
                    number += 1;
                }
                answering.clone_from(answer);
            }
            stage.play(event, pieces.clone());
        }
        stage.view
    }

    fn call(
        &self,
        stage: &mut Stage,
        number: u64,
        model: Option<&ModelName>,
        answer: &Event,
        each: &mut impl FnMut(Result<Call<'_>, NoCall>),
    ) {
        let moment = Moment { now: stage.now, model, terms: self.terms.as_ref() };
        let at = stage.now;
        match self.ready(stage, &moment) {
            Ok((prepared, rendered, prompt)) => {
                let (prepared, rendered, prompt) = (&prepared, &rendered, &prompt);
                let view = &stage.view;
                each(Ok(Call { number, at, model, answer, view, prepared, rendered, prompt }));
                stage.view.sent(at);
                stage.adopt();
            }
            Err(error) => {
                stage.view.abandon();
                each(Err(error));
            }
        }
    }

    fn ready(&self, stage: &mut Stage, moment: &Moment<'_>) -> Result<(Prepared, Rendered, Prompt), NoCall> {
        let prepared = stage.view.prepare(self.policy, &self.budget, moment)?;
        if self.options.rules.has(Rule::PreservedThinking) {
            stage.view.settle(|context, sent| {
                let ceiling = self.budget.ceiling();
                settle_thinking(context, sent, &self.options.rules, ceiling).map(|settled| settled.context)
            })?;
        }
        let rendered = self.format.render(stage.view.context(), &self.options)?;
        let prompt = self.format.prompt(&rendered.body, &mut stage.memo)?;
        Ok((prepared, rendered, prompt))
    }
}

/// Where a script is played: its events take the numbers that are free, since a policy may add some of its own.
struct Stage {
    view: View,
    memo: PromptMemo,
    thread: ThreadId,
    head: Seq,
    link: Link,
    now: Option<Time>,
    /// The number each event of the script has here, by the number it had.
    numbers: Vec<Seq>,
}

impl Stage {
    fn new(script: &Script) -> Self {
        Self {
            view: View::new(Arc::clone(&script.meter), Names::Thread(script.thread)),
            memo: PromptMemo::new(Arc::clone(&script.meter)),
            thread: script.thread,
            head: Seq::START,
            link: Link::ROOT,
            now: None,
            numbers: vec![Seq::START],
        }
    }

    /// Whether there is anything to answer.
    fn has_history(&self) -> bool {
        let context = self.view.context();
        context.segments().len() > context.prefix_len()
    }

    fn play(&mut self, event: &Event, pieces: Vec<Tokens>) {
        let mut event = event.clone();
        self.renumber(&mut event.fact);
        self.now = event.time.or(self.now);
        self.head = self.head.next();
        self.link = self.link.next(&event, &event.fact_json());
        let id = EventId { thread: self.thread, seq: self.head };
        self.numbers.push(self.head);
        self.view.push(Arc::new(Logged { id, event, link: self.link }), pieces);
    }

    /// What the view has added of its own counts too.
    fn adopt(&mut self) {
        if let Some(last) = self.view.line().events().last() {
            self.head = last.id.seq;
            self.link = last.link;
        }
    }

    /// References inside a thread follow its events to their new places.
    fn renumber(&self, fact: &mut Fact) {
        let here = |seq: &mut Seq| {
            let at = usize::try_from(seq.0).ok();
            *seq = at.and_then(|at| self.numbers.get(at)).copied().unwrap_or(self.head);
        };
        match fact {
            Fact::Compacted(compaction) => {
                here(&mut compaction.through);
                compaction.first_kept.iter_mut().for_each(here);
            }
            Fact::CompactionReverted { compaction } => here(compaction),
            Fact::Pinned { pin: Pin::Event(seq) } => here(seq),
            Fact::Injected { beside, .. } => beside.iter_mut().for_each(here),
            _ => {}
        }
    }
}
