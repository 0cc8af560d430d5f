//! Settings that requests are made with: derived in one place from a model's profile, a format and a policy.

use epitome_core::{
    Tokens,
    budget::{Budget, WindowReserves},
    cost::CacheTerms,
    meter::{Meter, TokenOverhead},
    policy::Policy,
    profile::{CompactionThresholds, Profile, Share, Tokenizer},
};
use epitome_wire::{
    Format,
    legality::ProviderRules,
    render::{CacheBreakpoints, RenderOptions},
};

/// A model that is asked in a format, as far as its profile describes it. Without a profile nothing is guessed.
#[derive(Clone, Copy, Debug)]
pub struct TargetModel<'p> {
    format: Format,
    profile: Option<&'p Profile>,
}

/// Settings of a session's calls: all that a request is made with, apart from its budget.
#[derive(Clone, Debug)]
pub struct CallSettings {
    pub(crate) format: Format,
    /// The policy, with reducers that leave alone what the model needs back.
    pub(crate) policy: Policy,
    pub(crate) options: RenderOptions,
    /// Terms of the model's prompt cache. Without them, time and money are ignored.
    pub(crate) terms: Option<CacheTerms>,
}

impl<'p> TargetModel<'p> {
    /// A model with this profile, asked in `format`.
    pub fn new(format: Format, profile: Option<&'p Profile>) -> Self {
        Self { format, profile }
    }

    /// The profile, if the format is that of the model's provider: its rules and cache marks apply only there.
    fn native_profile(self) -> Option<&'p Profile> {
        self.profile.filter(|profile| format_spoken_by(profile) == Some(self.format))
    }

    /// Token counter of the model. Tokens of an unknown model are counted with the o200k vocabulary.
    pub fn meter(self) -> Meter {
        let usual = || Meter::new(Tokenizer::O200k.counter(), TokenOverhead::default());
        self.profile.map_or_else(usual, Profile::meter)
    }

    /// Usual limit of an answer: the model's own, but no more than a budget usually leaves for it.
    pub fn answer_limit(self) -> Tokens {
        self.output_limit().min(WindowReserves::default().output)
    }

    /// The most input that the model accepts, by the provider's count; `None` if unknown. `window` stands for the profile's,
    /// `answer` is the length of the answer, if known.
    pub fn input_limit(self, window: Option<Tokens>, answer: Option<Tokens>) -> Option<Tokens> {
        let usual = WindowReserves::default();
        let given = window.map(|window| window.less(room_in(window, answer)));
        let reserves = WindowReserves { output: answer.unwrap_or(usual.output), ..usual };
        let known = self.profile.map(|profile| Budget::for_profile(profile, reserves).ceiling());
        given.into_iter().chain(known.filter(|known| *known != Tokens::MAX)).min()
    }

    /// Rendering options by which the provider accepts a request. Cache marks stay as they are.
    pub fn options(self) -> RenderOptions {
        let own = RenderOptions::of(self.format);
        let rules: Option<ProviderRules> =
            self.native_profile().map(|profile| profile.legality.iter().copied().collect());
        RenderOptions { rules: rules.unwrap_or_else(|| own.rules.clone()), ..own }
    }

    /// `budget` with the model's thresholds, for policies that have none of their own.
    pub fn with_thresholds(self, budget: Budget) -> Budget {
        let thresholds =
            self.profile.map_or_else(CompactionThresholds::default, |profile| profile.thresholds);
        let open = budget.open();
        let of = |share: Share| share.of(open);
        let degradation = self.profile.and_then(Profile::degradation_sizes);
        budget
            .with_thresholds(of(thresholds.target), of(thresholds.trigger), of(thresholds.force))
            .with_degradation(degradation)
    }

    /// Room that a window leaves for the answer beside the [`input_limit`](Self::input_limit).
    pub fn answer_room(self, window: Option<Tokens>, answer: Option<Tokens>) -> Tokens {
        match window {
            Some(window) => room_in(window, answer),
            None => answer.map_or(self.answer_limit(), |answer| answer.min(self.output_limit())),
        }
    }

    /// The longest answer of the model.
    fn output_limit(self) -> Tokens {
        self.profile.and_then(|profile| profile.output_limit).unwrap_or(Tokens::MAX)
    }

    /// Settings of calls to the model under a policy. A policy changes what is sent, so it also sets the cache marks,
    /// in place of the client's.
    pub fn settings(self, policy: &Policy, options: RenderOptions) -> CallSettings {
        let breakpoints = self
            .native_profile()
            .map_or_else(CacheBreakpoints::default, |profile| CacheBreakpoints::of(&profile.cache, None));
        let terms = self.profile.map(|profile| CacheTerms::new(&profile.cache, &profile.prices));
        CallSettings::new(policy, self.format, RenderOptions { breakpoints, ..options }, terms)
    }
}

impl CallSettings {
    /// Settings under `policy`, for a model with these rendering options.
    pub fn new(policy: &Policy, format: Format, options: RenderOptions, terms: Option<CacheTerms>) -> Self {
        let summary = policy.summary.map(|rules| rules.shape).unwrap_or_default();
        let policy = policy.clone().for_rules(options.rules.as_set());
        Self { format, policy, options: RenderOptions { summary, ..options }, terms }
    }
}

/// Room that a configured window leaves for the answer: a quarter of it, or as much as a budget usually leaves. A request
/// for more than half of it is unlikely to get it.
fn room_in(window: Tokens, answer: Option<Tokens>) -> Tokens {
    match answer {
        Some(answer) => answer.min(Tokens(window.0 / 2)),
        None => WindowReserves::default().output.min(Tokens(window.0 / 4)),
    }
}

/// Format of a model's provider.
pub(crate) fn format_spoken_by(profile: &Profile) -> Option<Format> {
    Format::ALL.into_iter().find(|format| format.dialect() == profile.wire.dialect())
}
