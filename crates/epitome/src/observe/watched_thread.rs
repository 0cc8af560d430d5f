//! A thread under observation: the policy's view of it, and the cost of all of it.

use std::sync::Arc;

use epitome_core::{
    Fact, LoggedEvent, Seq, ThreadId, Tokens,
    budget::Budget,
    context::EventNaming,
    cost::{self, CacheAssumption, Prompt, SettingDigests, SimulatedCache},
    event::Timestamp,
    id::{AnswerId, ModelName},
    meter::Meter,
    model_view::{ModelView, NextCall, PreparationReport},
    policy::Policy,
    profile::{Money, Profiles},
    projection::Projection,
};
use epitome_wire::Format;

use super::PolicyObservation;
use crate::{
    call_preparer::CallPreparer,
    call_settings::CallSettings,
    compact::CompactError,
    session::{
        setup::{ObservedLimits, SessionSetup},
        thread_reading::MeteredEvent,
    },
};

/// A thread under observation.
#[derive(Debug)]
pub(super) struct WatchedThread {
    model: Option<ModelName>,
    settings: CallSettings,
    budget: Budget,
    /// The policy's calls.
    calls: CallPreparer,
    /// The whole history.
    full: Projection,
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
        let setup = SessionSetup::new(format, name, None, policy, profiles);
        // The observed client is offered no tool for asking back what would have been left out.
        let names = EventNaming::Hidden(thread);
        let view = ModelView::for_replay(Arc::clone(&setup.meter), names);
        Self {
            model: model.cloned(),
            budget: setup.budget(ObservedLimits::default(), Tokens(0)),
            calls: CallPreparer::new(view, None),
            full: Projection::new(Arc::clone(&setup.meter), names),
            caches: CachePair::of(&setup),
            settings: setup.calls,
            head: Seq::START,
            weight: Tokens(0),
        }
    }

    /// Returns true if its calls go to this model in this format; others count and cost differently.
    pub(super) fn asks(&self, model: Option<&ModelName>, format: Format) -> bool {
        self.model.as_ref() == model && self.settings.format == format
    }

    /// Last event that was taken.
    pub(super) fn head(&self) -> Seq {
        self.head
    }

    /// Meter of the thread.
    pub(super) fn meter(&self) -> &Meter {
        self.full.context().meter()
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
        self.calls.view_mut().push(event, pieces);
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
        let moment = next_call(at, self.model.as_ref(), &self.settings);
        match self.calls.prepare(&self.settings, &self.budget, &moment) {
            Ok(_) => {
                self.calls.sent(at, None);
            }
            Err(_) => self.calls.abandon(),
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
            Ok((_, prompt)) if self.calls.view().passes().is_empty() => prompt.clone(),
            _ => self.whole()?,
        };
        let mut observed = PolicyObservation {
            full: size(&full),
            cost_full: self
                .caches
                .as_mut()
                .and_then(|caches| serve(&mut caches.full, &caches.model, &full, at)),
            epoch: self.calls.view().epoch().number,
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
            }
            Err(refused) => observed.refused = Some(refused),
        }
        Ok(observed)
    }

    /// The policy's request, as a cache sees it.
    fn made(&mut self, at: Timestamp) -> Result<(PreparationReport, Prompt), CompactError> {
        let moment = next_call(Some(at), self.model.as_ref(), &self.settings);
        let (prepared, request) = self.calls.next_request(&self.settings, &self.budget, &moment)?;
        self.calls.sent(Some(at), Some(request.prompt.clone()));
        Ok((prepared, request.prompt))
    }

    /// The whole history, as a cache sees it.
    fn whole(&mut self) -> Result<Prompt, CompactError> {
        let rendered = self.settings.format.render(self.full.context(), &self.settings.options)?;
        Ok(self.calls.prompt(self.settings.format, &rendered.body)?)
    }
}

fn next_call<'a>(
    now: Option<Timestamp>,
    model: Option<&'a ModelName>,
    settings: &'a CallSettings,
) -> NextCall<'a> {
    NextCall { now, model, terms: settings.terms.as_ref(), ..NextCall::default() }
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
