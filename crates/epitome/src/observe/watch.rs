//! A thread under observation: the policy's view of it, and the cost of all of it.

use std::sync::Arc;

use epitome_core::{
    Fact, Logged, Seq, ThreadId, Tokens,
    context::Names,
    cost::{self, Cache, Extension, Mode, Prompt, Settings, Terms, extends},
    event::Time,
    id::{AnswerId, ModelName},
    meter::Meter,
    policy::Policy,
    profile::{Money, Profiles},
    project::Projection,
    view::{Cause, Moment, Prepared, View},
};
use epitome_wire::{Format, PromptMemo};

use super::Observed;
use crate::{
    compact::CompactError,
    rehearse::Rehearsal,
    session::{
        reading::Counted,
        setup::{Learned, Setup},
    },
};

/// A thread under observation.
#[derive(Debug)]
pub(super) struct Watch {
    format: Format,
    model: Option<ModelName>,
    rehearsal: Rehearsal,
    terms: Option<Terms>,
    memo: PromptMemo,
    /// The policy's view.
    view: View,
    /// The whole history.
    full: Projection,
    /// Last request of the policy.
    sent: Option<Prompt>,
    /// Simulated caches of the provider; `None` if no price is known.
    caches: Option<Caches>,
    head: Seq,
    weight: Tokens,
}

/// Caches for the requests with and without the policy.
#[derive(Debug)]
struct Caches {
    model: String,
    full: Cache,
    policy: Cache,
}

impl Caches {
    fn of(setup: &Setup) -> Option<Self> {
        let profile = setup.profile.as_ref()?;
        let cache = || Cache::new(&profile.cache, &profile.prices, Mode::Ideal).ok();
        Some(Self { model: profile.name.clone(), full: cache()?, policy: cache()? })
    }
}

impl Watch {
    /// Starts with a thread without events.
    pub(super) fn new(
        thread: ThreadId,
        model: Option<&ModelName>,
        format: Format,
        policy: &Policy,
        profiles: &Profiles,
    ) -> Self {
        let name = model.map_or("", |model| model.0.as_str());
        let setup = Setup::new(format, name, None, policy, profiles, Tokens(0));
        // The observed client is offered no tool for asking back what would have been left out.
        let names = Names::Hidden(thread);
        let budget = setup.budget(Learned::default());
        Self {
            format,
            model: model.cloned(),
            rehearsal: Rehearsal::new(policy, budget, format, setup.options.clone(), setup.terms.clone()),
            memo: PromptMemo::new(Arc::clone(&setup.meter)),
            view: View::rehearsing(Arc::clone(&setup.meter), names),
            full: Projection::new(Arc::clone(&setup.meter), names),
            sent: None,
            caches: Caches::of(&setup),
            terms: setup.terms,
            head: Seq::START,
            weight: Tokens(0),
        }
    }

    /// Returns true if its calls go to this model in this format; others count and cost differently.
    pub(super) fn asks(&self, model: Option<&ModelName>, format: Format) -> bool {
        self.model.as_ref() == model && self.format == format
    }

    /// Last event that was taken.
    pub(super) fn head(&self) -> Seq {
        self.head
    }

    /// Meter of the thread.
    pub(super) fn meter(&self) -> &Meter {
        self.memo.meter()
    }

    /// Size of the thread in memory.
    pub(super) fn weight(&self) -> Tokens {
        self.weight
    }

    /// Takes the next event.
    pub(super) fn push(&mut self, event: Arc<Logged>, pieces: Vec<Tokens>) {
        self.head = event.id.seq;
        self.weight += pieces.iter().copied().sum();
        self.full.push(Arc::clone(&event), pieces.clone());
        self.view.push(event, pieces);
    }

    /// Replays earlier events: before every answer, the policy decides as it would have decided then. Only
    /// the last of these calls is rendered, for the contents of the cache.
    pub(super) fn play(&mut self, events: Vec<Counted>) {
        let begins: Vec<bool> = answers(&events).collect();
        let mut left = begins.iter().filter(|begins| **begins).count();
        let mut now = None;
        for ((event, pieces), begins) in events.into_iter().zip(begins) {
            if begins {
                left -= 1;
                if left == 0 {
                    // A request that cannot be made leaves the cache as it was.
                    let _ = self.call(now.unwrap_or(Time(0)));
                } else {
                    self.pass(now);
                }
            }
            now = event.event.time.or(now);
            self.push(event, pieces);
        }
    }

    /// Decides before a call whose request is not needed.
    fn pass(&mut self, at: Option<Time>) {
        let moment = moment(at, self.model.as_ref(), self.terms.as_ref());
        match self.rehearsal.prepare(&mut self.view, &moment) {
            Ok(_) => {
                self.view.sent(at);
            }
            Err(_) => self.view.abandon(),
        }
    }

    /// Computes what the policy would send now.
    pub(super) fn call(&mut self, at: Time) -> Result<Observed, CompactError> {
        let made = match self.made(at) {
            Ok(made) => Ok(made),
            Err(error @ (CompactError::Refused(_) | CompactError::Thinking(_))) => Err(error.to_string()),
            Err(error) => return Err(error),
        };
        // As long as nothing was decided, the policy's request is the whole history.
        let full = match &made {
            Ok((_, prompt)) if self.view.passes().is_empty() => prompt.clone(),
            _ => self.whole()?,
        };
        let mut observed = Observed {
            full: size(&full),
            cost_full: self
                .caches
                .as_mut()
                .and_then(|caches| serve(&mut caches.full, &caches.model, &full, at)),
            epoch: self.view.epoch().number,
            ..Observed::default()
        };
        match made {
            Ok((prepared, prompt)) => {
                observed.sent = size(&prompt);
                observed.cost = self
                    .caches
                    .as_mut()
                    .and_then(|caches| serve(&mut caches.policy, &caches.model, &prompt, at));
                observed.cause = prepared.cause.map(|cause| cause.to_string());
                self.sent = Some(prompt);
            }
            Err(refused) => observed.refused = Some(refused),
        }
        Ok(observed)
    }

    /// The policy's request, as a cache sees it.
    fn made(&mut self, at: Time) -> Result<(Prepared, Prompt), CompactError> {
        let moment = moment(Some(at), self.model.as_ref(), self.terms.as_ref());
        match self.rehearsal.ready(&mut self.view, &moment, &mut self.memo) {
            Ok((mut prepared, _, prompt)) => {
                let is_grown =
                    self.sent.as_ref().is_none_or(|sent| extends(sent, &prompt) == Extension::Extends);
                if !is_grown && prepared.cause.is_none() {
                    self.view.reset(Cause::Format);
                    prepared.cause = Some(Cause::Format);
                }
                self.view.sent(Some(at));
                Ok((prepared, prompt))
            }
            Err(error) => {
                self.view.abandon();
                Err(error)
            }
        }
    }

    /// The whole history, as a cache sees it.
    fn whole(&mut self) -> Result<Prompt, CompactError> {
        let rendered = self.format.render(self.full.context(), self.rehearsal.options())?;
        Ok(self.format.prompt(&rendered.body, &mut self.memo)?)
    }
}

fn moment<'a>(now: Option<Time>, model: Option<&'a ModelName>, terms: Option<&'a Terms>) -> Moment<'a> {
    Moment { now, model, terms, ..Moment::default() }
}

fn size(prompt: &Prompt) -> Tokens {
    prompt.blocks.iter().map(|block| block.tokens).sum()
}

fn serve(cache: &mut Cache, model: &str, prompt: &Prompt, at: Time) -> Option<Money> {
    let settings = Settings::default();
    cache.serve(&cost::Call { at, model, prompt, settings: &settings, output: Tokens(0) }).money.ok()
}

/// Tells for each event if it begins an answer. Fragments of one answer belong to one call, and an answer
/// that opens a thread to none.
fn answers(events: &[Counted]) -> impl Iterator<Item = bool> {
    let mut answering: Option<&AnswerId> = None;
    let mut asked = false;
    events.iter().map(move |(event, _)| match &event.event.fact {
        Fact::AssistantSaid { answer, .. } => {
            let goes_on = answer.is_some() && answer.as_ref() == answering;
            answering = answer.as_ref();
            asked && !goes_on
        }
        fact => {
            asked |= !matches!(fact, Fact::Instructed { .. });
            false
        }
    })
}
