//! A thread under observation: the policy's view of it, and the cost of all of it.

use std::sync::Arc;

use epitome_core::{
    Fact, LoggedEvent, Seq, ThreadId, Tokens,
    context::EventNaming,
    cost::{
        self, CacheAssumption, CacheTerms, Prompt, RequestExtension, SettingDigests, SimulatedCache, extends,
    },
    event::Timestamp,
    id::{AnswerId, ModelName},
    meter::Meter,
    model_view::{EpochCause, ModelView, NextCall, PreparationReport},
    policy::Policy,
    profile::{Money, Profiles},
    projection::Projection,
};
use epitome_wire::{Format, PromptMemo};

use super::PolicyObservation;
use crate::{
    compact::CompactError,
    session::{
        setup::{ObservedLimits, SessionSetup},
        thread_reading::MeteredEvent,
    },
    simulate::SimulationSettings,
};

/// A thread under observation.
#[derive(Debug)]
pub(super) struct WatchedThread {
    format: Format,
    model: Option<ModelName>,
    rehearsal: SimulationSettings,
    terms: Option<CacheTerms>,
    memo: PromptMemo,
    /// The policy's view.
    view: ModelView,
    /// The whole history.
    full: Projection,
    /// Last request of the policy.
    sent: Option<Prompt>,
    /// Simulated caches of the provider; `None` if no price is known.
    caches: Option<CachePair>,
    head: Seq,
    weight: Tokens,
}

/// Caches for the requests with and without the policy.
#[derive(Debug)]
struct CachePair {
    model: String,
    full: SimulatedCache,
    policy: SimulatedCache,
}

impl CachePair {
    fn of(setup: &SessionSetup) -> Option<Self> {
        let profile = setup.profile.as_ref()?;
        let cache = || SimulatedCache::new(&profile.cache, &profile.prices, CacheAssumption::Ideal).ok();
        Some(Self { model: profile.name.clone(), full: cache()?, policy: cache()? })
    }
}

impl WatchedThread {
    /// Starts with a thread without events.
    pub(super) fn new(
        thread: ThreadId,
        model: Option<&ModelName>,
        format: Format,
        policy: &Policy,
        profiles: &Profiles,
    ) -> Self {
        let name = model.map_or("", |model| model.0.as_str());
        let setup = SessionSetup::new(format, name, None, policy, profiles, Tokens(0));
        // The observed client is offered no tool for asking back what would have been left out.
        let names = EventNaming::Hidden(thread);
        let budget = setup.budget(ObservedLimits::default());
        Self {
            format,
            model: model.cloned(),
            rehearsal: SimulationSettings::new(
                policy,
                budget,
                format,
                setup.options.clone(),
                setup.terms.clone(),
            ),
            memo: PromptMemo::new(Arc::clone(&setup.meter)),
            view: ModelView::for_replay(Arc::clone(&setup.meter), names),
            full: Projection::new(Arc::clone(&setup.meter), names),
            sent: None,
            caches: CachePair::of(&setup),
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
    pub(super) fn push(&mut self, event: Arc<LoggedEvent>, pieces: Vec<Tokens>) {
        self.head = event.id.seq;
        self.weight += pieces.iter().copied().sum();
        self.full.push(Arc::clone(&event), pieces.clone());
        self.view.push(event, pieces);
    }

    /// Replays earlier events: before every answer, the policy decides as it would have decided then. Only
    /// the last of these calls is rendered, for the contents of the cache.
    pub(super) fn play(&mut self, events: Vec<MeteredEvent>) {
        let begins: Vec<bool> = answers(&events).collect();
        let mut left = begins.iter().filter(|begins| **begins).count();
        let mut now = None;
        for ((event, pieces), begins) in events.into_iter().zip(begins) {
            if begins {
                left -= 1;
                if left == 0 {
                    // A request that cannot be made leaves the cache as it was.
                    let _ = self.call(now.unwrap_or(Timestamp(0)));
                } else {
                    self.pass(now);
                }
            }
            now = event.event.time.or(now);
            self.push(event, pieces);
        }
    }

    /// Decides before a call whose request is not needed.
    fn pass(&mut self, at: Option<Timestamp>) {
        let moment = moment(at, self.model.as_ref(), self.terms.as_ref());
        match self.rehearsal.prepare(&mut self.view, &moment) {
            Ok(_) => {
                self.view.sent(at);
            }
            Err(_) => self.view.abandon(),
        }
    }

    /// Computes what the policy would send now.
    pub(super) fn call(&mut self, at: Timestamp) -> Result<PolicyObservation, CompactError> {
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
        let mut observed = PolicyObservation {
            full: size(&full),
            cost_full: self
                .caches
                .as_mut()
                .and_then(|caches| serve(&mut caches.full, &caches.model, &full, at)),
            epoch: self.view.epoch().number,
            ..PolicyObservation::default()
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
    fn made(&mut self, at: Timestamp) -> Result<(PreparationReport, Prompt), CompactError> {
        let moment = moment(Some(at), self.model.as_ref(), self.terms.as_ref());
        match self.rehearsal.render_next(&mut self.view, &moment, &mut self.memo) {
            Ok((mut prepared, _, prompt)) => {
                let is_grown =
                    self.sent.as_ref().is_none_or(|sent| extends(sent, &prompt) == RequestExtension::Extends);
                if !is_grown && prepared.cause.is_none() {
                    self.view.reset(EpochCause::Format);
                    prepared.cause = Some(EpochCause::Format);
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

fn moment<'a>(
    now: Option<Timestamp>,
    model: Option<&'a ModelName>,
    terms: Option<&'a CacheTerms>,
) -> NextCall<'a> {
    NextCall { now, model, terms, ..NextCall::default() }
}

fn size(prompt: &Prompt) -> Tokens {
    prompt.blocks.iter().map(|block| block.tokens).sum()
}

fn serve(cache: &mut SimulatedCache, model: &str, prompt: &Prompt, at: Timestamp) -> Option<Money> {
    let settings = SettingDigests::default();
    cache.serve(&cost::SimulatedCall { at, model, prompt, settings: &settings, output: Tokens(0) }).money.ok()
}

/// Tells for each event if it begins an answer. Fragments of one answer belong to one call, and an answer
/// that opens a thread to none.
fn answers(events: &[MeteredEvent]) -> impl Iterator<Item = bool> {
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
