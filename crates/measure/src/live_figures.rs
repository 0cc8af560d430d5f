//! Figures of recorded sessions that are made again as live ones.
//!
//! Each session has a log of its own, limits that are learnt from call to call, and a provider whose cache is simulated and whose
//! count is that of the recorded usage. Its log is then measured as that of any session.

use std::sync::Arc;

use epitome::{
    core::{
        Event, Tokens,
        cost::{
            CacheAssumption, Prompt, PromptBlock, SettingDigests, SimulatedCache, SimulatedCall,
            UnknownRuleError,
        },
        event::{Timestamp, Usage},
        policy::Policy,
        profile::Profiles,
    },
    session::{
        SessionError, SessionRequest,
        live_playback::{LivePlayback, PlayedThread},
    },
    wire::{Format, PromptMemo},
};
use serde::Serialize;
use thiserror::Error;

use crate::{
    metrics::{AnswerOrigin, SessionMetrics, metrics},
    replay::{PreparedReplay, ReplaySubject, hidden_overhead::HiddenOverhead},
};

/// Conditions under which sessions are made again.
#[derive(Clone, Copy, Debug)]
pub struct LiveConditions<'a> {
    /// Policy of the sessions.
    pub policy: &'a Policy,
    /// Window of their model, input and output together.
    pub window: Tokens,
    /// Known models.
    pub profiles: &'a Profiles,
}

/// Figures of a session that was made again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveFigures {
    /// Number of its calls.
    pub calls: u64,
    /// Number of those that could not be made.
    pub refused: u64,
    /// Largest request, by the provider's count.
    pub peak: Tokens,
    /// The five figures.
    pub metrics: SessionMetrics,
}

/// Reason why a session could not be made again.
#[derive(Debug, Error)]
pub enum LiveError {
    /// Nobody knows how its model's cache works.
    #[error(transparent)]
    Cache(#[from] UnknownRuleError),
    /// The session could not go on.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl LiveFigures {
    /// Makes a session again and measures it. Instructions that its transcript lacks are not made up: see
    /// [`ReplaySubject::with_instructions`].
    pub fn of(
        subject: &ReplaySubject,
        ready: &PreparedReplay<'_>,
        conditions: LiveConditions<'_>,
    ) -> Result<Self, LiveError> {
        let LiveConditions { policy, window, profiles } = conditions;
        let (profile, meter, unseen) = (ready.profile, ready.part.script.meter(), ready.part.unseen);
        let playback = LivePlayback {
            format: ready.format,
            model: &profile.name,
            window: Some(window),
            policy,
            profiles,
        };
        let mut provider = SimulatedProvider {
            cache: SimulatedCache::new(&profile.cache, &profile.prices, CacheAssumption::Breakpoints)?,
            memo: PromptMemo::new(Arc::clone(meter)),
            format: ready.format,
            model: &profile.name,
            unseen,
            peak: Tokens(0),
            calls: 0,
        };
        let answered = |request: &SessionRequest, at: Timestamp, answer: &Event| {
            let output = ready.part.outputs.of_event(answer, meter, &unseen);
            provider.answer(request, at, output)
        };
        let PlayedThread { store, thread, refused } = playback.play(subject.played(), answered)?;
        let mut measured = metrics(&*store, thread)?;
        measured.continuation.answers = AnswerOrigin::Recorded;
        Ok(Self { calls: provider.calls + refused, refused, peak: provider.peak, metrics: measured })
    }

    /// Adds the figures of another session.
    pub fn add(&mut self, other: Self) {
        let Self { calls, refused, peak, metrics } = other;
        self.calls += calls;
        self.refused += refused;
        self.peak = self.peak.max(peak);
        self.metrics.add(metrics);
    }
}

/// A provider that counts as the recorded one did, and has its cache.
struct SimulatedProvider<'a> {
    cache: SimulatedCache,
    memo: PromptMemo,
    format: Format,
    model: &'a str,
    unseen: HiddenOverhead,
    peak: Tokens,
    calls: u64,
}

impl SimulatedProvider<'_> {
    fn answer(&mut self, request: &SessionRequest, at: Timestamp, output: Tokens) -> Usage {
        let prompt = self.format.prompt(&request.body, &mut self.memo);
        let blocks = prompt.map(|prompt| prompt.blocks).unwrap_or_default();
        let scaled = |block: PromptBlock| PromptBlock { tokens: self.unseen.scaled(block.tokens), ..block };
        let prompt = Prompt { blocks: blocks.into_iter().map(scaled).collect() };
        let settings = SettingDigests::default();
        let call = SimulatedCall { at, model: self.model, prompt: &prompt, settings: &settings, output };
        let usage = self.cache.serve(&call).usage;
        self.calls += 1;
        self.peak = self.peak.max(usage.input());
        usage
    }
}
