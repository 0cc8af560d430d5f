//! Everything a plan is made from.

use std::time::Duration;

use serde::Serialize;

use super::{
    ahead::{Ahead, Removal, Resets, State},
    forecast::{Forecast, Warmth},
};
use crate::{
    budget::Budget,
    cost::Terms,
    event::Usage,
    profile::{Money, Prices},
    tokens::Tokens,
};

/// Everything a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Promises and prices of the provider's cache.
    pub terms: &'a Terms,
    /// Lifetime in seconds that is requested for entries; `None` for the usual time.
    pub lifetime: Option<u64>,
    /// The call before.
    pub since: Since,
    /// The calls to come.
    pub forecast: &'a Forecast,
    /// Size of the request if nothing were changed.
    pub size: Tokens,
    /// Size of its beginning that the call before sent.
    pub sent: Tokens,
    /// Size of its beginning that never changes.
    pub prefix: Tokens,
    /// The thresholds.
    pub budget: &'a Budget,
    /// The threshold that demands a reduction whether it pays or not.
    pub demand: Demand,
    /// Least removal that makes a reduction worth a new epoch before it is forced.
    pub least: Tokens,
    /// Outcome that the free reducers would have.
    pub trial: Trial,
    /// Status of the summary.
    pub summary: Summary<'a>,
}

/// The call before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// There was none.
    First,
    /// It was to another model, whose cache is of no use here.
    OtherModel,
    /// It began so long ago.
    Elapsed(Duration),
    /// It was one of several that read little of the previous prompts: the cache's content is unknown.
    Unread,
}

/// The threshold that demands a reduction whether it pays or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// The trigger, if a reduction is at hand that reaches the target.
    #[default]
    AtTrigger,
    /// Only force.
    AtForce,
}

/// Outcome of a reduction that was tried out and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// Size of the request afterwards.
    pub after: Tokens,
    /// Tokens before the first byte that would change.
    pub first_changed_at: Tokens,
}

impl Trial {
    /// A reduction without an effect.
    pub fn nothing(size: Tokens) -> Self {
        Self { after: size, first_changed_at: size }
    }
}

/// Status of the summary that would take the history's place.
#[derive(Clone, Copy, Debug)]
pub enum Summary<'a> {
    /// The policy has none.
    Never,
    /// One can be made.
    Possible(Offer<'a>),
    /// One is being made.
    Running(Offer<'a>),
    /// Ready: the outcome with it and the free reducers.
    Ready(Trial),
}

/// A summary that could be made.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Size of the span it would stand for.
    pub covers: Tokens,
    /// Size it would have.
    pub expected: Tokens,
    /// Number of calls until it is ready.
    pub calls: usize,
    /// Summariser that makes it.
    pub by: Summariser<'a>,
}

/// Author of a summary.
#[derive(Clone, Copy, Debug)]
pub enum Summariser<'a> {
    /// Code, at once and for free.
    BuiltIn,
    /// The session's own model, which reads the part that it already has in its cache.
    Session,
    /// Another model, to which all of it is new.
    Other(&'a Prices),
}

impl<'a> Situation<'a> {
    pub(super) fn warmth(&self) -> Warmth {
        match (self.since, self.terms.lifetime(self.lifetime)) {
            (Since::First | Since::OtherModel, _) => Warmth::Cold,
            (Since::Elapsed(_), None) | (Since::Unread, _) => Warmth::Unknown,
            (Since::Elapsed(elapsed), Some(lifetime)) if elapsed > Duration::from_secs(lifetime) => {
                Warmth::Cold
            }
            (Since::Elapsed(_), Some(_)) => Warmth::Warm,
        }
    }

    pub(super) fn ahead(&self) -> Ahead<'a> {
        let resets = match self.summary {
            Summary::Never => Resets::Never,
            Summary::Possible(Offer { by: Summariser::BuiltIn, .. }) => Resets::AboveTrigger,
            Summary::Possible(_) | Summary::Running(_) => Resets::AtForce,
            Summary::Ready(_) => Resets::Any,
        };
        let Self { terms, lifetime, forecast, budget, demand, least, .. } = *self;
        Ahead { terms, lifetime, forecast, budget, demand, least, resets }
    }

    pub(super) fn state(&self, warmth: Warmth) -> State {
        let held = match warmth {
            Warmth::Cold => Tokens(0),
            Warmth::Warm | Warmth::Unknown => self.sent.min(self.size),
        };
        let reset = match self.summary {
            Summary::Never => None,
            Summary::Possible(offer) | Summary::Running(offer) => {
                let after = self.size.less(offer.covers) + offer.expected;
                Some(Trial { after, first_changed_at: self.prefix })
            }
            Summary::Ready(trial) => Some(trial),
        };
        let removal = |trial: Trial| {
            let removes = self.size.less(trial.after);
            (removes > Tokens(0))
                .then_some(Removal { from: trial.first_changed_at.min(trial.after), removes })
        };
        State { size: self.size, held, edit: removal(self.trial), reset: reset.and_then(removal) }
    }

    pub(super) fn misses_target(&self) -> bool {
        self.trial.after > self.budget.target()
    }

    /// Price of a model for the summary that could be made, or is being made.
    pub(super) fn summary_cost(&self, state: &State) -> Option<Money> {
        let (Summary::Possible(offer) | Summary::Running(offer)) = self.summary else { return None };
        match offer.by {
            Summariser::BuiltIn => Some(Money(0)),
            Summariser::Session => {
                let read = self.terms.ideal(state.held, self.prefix + offer.covers, self.lifetime);
                self.terms.prices().cost(&Usage { output: offer.expected, ..read }).ok()
            }
            Summariser::Other(prices) => {
                let usage = Usage { uncached: offer.covers, output: offer.expected, ..Usage::default() };
                prices.cost(&usage).ok()
            }
        }
    }
}
