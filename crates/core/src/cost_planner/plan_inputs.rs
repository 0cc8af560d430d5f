//! Everything a plan is made from.

use std::time::Duration;

use serde::Serialize;

use super::{
    cost_projection::{ProjectedRemoval, ProjectedState, ProjectionInputs, ResetCondition},
    forecast::{CacheWarmth, Forecast},
};
use crate::{
    budget::Budget,
    cost::CacheTerms,
    event::Usage,
    profile::{Money, TokenPrices},
    tokens::Tokens,
};

/// Everything a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInputs<'a> {
    /// Promises and prices of the provider's cache.
    pub terms: &'a CacheTerms,
    /// Lifetime in seconds that is requested for entries; `None` for the usual time.
    pub lifetime: Option<u64>,
    /// The call before.
    pub since: LastCallAge,
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
    pub demand: ReductionDemand,
    /// Least removal that makes a reduction worth a new epoch before it is forced.
    pub least: Tokens,
    /// Outcome that the free reducers would have.
    pub trial: ReductionTrial,
    /// Status of the summary.
    pub summary: SummaryOption<'a>,
}

/// The call before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCallAge {
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
pub enum ReductionDemand {
    /// The trigger, if a reduction is at hand that reaches the target.
    #[default]
    AtTrigger,
    /// Only force.
    AtForce,
}

/// Outcome of a reduction that was tried out and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReductionTrial {
    /// Size of the request afterwards.
    pub after: Tokens,
    /// Tokens before the first byte that would change.
    pub first_changed_at: Tokens,
}

impl ReductionTrial {
    /// A reduction without an effect.
    pub fn unchanged(size: Tokens) -> Self {
        Self { after: size, first_changed_at: size }
    }
}

/// Status of the summary that would take the history's place.
#[derive(Clone, Copy, Debug)]
pub enum SummaryOption<'a> {
    /// The policy has none.
    Never,
    /// One can be made.
    Possible(SummaryOffer<'a>),
    /// One is being made.
    Running(SummaryOffer<'a>),
    /// Ready: the outcome with it and the free reducers.
    Ready(ReductionTrial),
}

/// A summary that could be made.
#[derive(Clone, Copy, Debug)]
pub struct SummaryOffer<'a> {
    /// Size of the span it would stand for.
    pub covers: Tokens,
    /// Size it would have.
    pub expected: Tokens,
    /// Number of calls until it is ready.
    pub calls: usize,
    /// Summariser that makes it.
    pub by: SummariserKind<'a>,
}

/// Author of a summary.
#[derive(Clone, Copy, Debug)]
pub enum SummariserKind<'a> {
    /// Code, at once and for free.
    BuiltIn,
    /// The session's own model, which reads the part that it already has in its cache.
    Session,
    /// Another model, to which all of it is new.
    Other(&'a TokenPrices),
}

impl SummariserKind<'_> {
    /// Returns true if its answers are known to cost money. `terms` are those of the session's own model.
    pub fn costs_money(self, terms: Option<&CacheTerms>) -> bool {
        let prices = match self {
            Self::BuiltIn => None,
            Self::Session => terms.map(CacheTerms::prices),
            Self::Other(prices) => Some(prices),
        };
        let usage = Usage { uncached: Tokens(1_000), output: Tokens(1_000), ..Usage::default() };
        prices.and_then(|prices| prices.cost(&usage).ok()).is_some_and(|cost| cost > Money(0))
    }
}

impl<'a> PlanInputs<'a> {
    pub(super) fn warmth(&self) -> CacheWarmth {
        match (self.since, self.terms.lifetime(self.lifetime)) {
            (LastCallAge::First | LastCallAge::OtherModel, _) => CacheWarmth::Cold,
            (LastCallAge::Elapsed(_), None) | (LastCallAge::Unread, _) => CacheWarmth::Unknown,
            (LastCallAge::Elapsed(elapsed), Some(lifetime)) if elapsed > Duration::from_secs(lifetime) => {
                CacheWarmth::Cold
            }
            (LastCallAge::Elapsed(_), Some(_)) => CacheWarmth::Warm,
        }
    }

    pub(super) fn projection_inputs(&self) -> ProjectionInputs<'a> {
        let resets = match self.summary {
            SummaryOption::Never => ResetCondition::Never,
            SummaryOption::Possible(SummaryOffer { by: SummariserKind::BuiltIn, .. }) => {
                ResetCondition::AboveTrigger
            }
            SummaryOption::Possible(_) | SummaryOption::Running(_) => ResetCondition::AtForce,
            SummaryOption::Ready(_) => ResetCondition::Any,
        };
        let Self { terms, lifetime, forecast, budget, demand, least, .. } = *self;
        ProjectionInputs { terms, lifetime, forecast, budget, demand, least, resets }
    }

    pub(super) fn state(&self, warmth: CacheWarmth) -> ProjectedState {
        let held = match warmth {
            CacheWarmth::Cold => Tokens(0),
            CacheWarmth::Warm | CacheWarmth::Unknown => self.sent.min(self.size),
        };
        let reset = match self.summary {
            SummaryOption::Never => None,
            SummaryOption::Possible(offer) | SummaryOption::Running(offer) => {
                let after = self.size.less(offer.covers) + offer.expected;
                Some(ReductionTrial { after, first_changed_at: self.prefix })
            }
            SummaryOption::Ready(trial) => Some(trial),
        };
        let removal = |trial: ReductionTrial| {
            let removes = self.size.less(trial.after);
            (removes > Tokens(0))
                .then_some(ProjectedRemoval { from: trial.first_changed_at.min(trial.after), removes })
        };
        ProjectedState { size: self.size, held, edit: removal(self.trial), reset: reset.and_then(removal) }
    }

    pub(super) fn misses_target(&self) -> bool {
        self.trial.after > self.budget.target()
    }

    /// Price of a model for the summary that could be made, or is being made.
    pub(super) fn summary_cost(&self, state: &ProjectedState) -> Option<Money> {
        let (SummaryOption::Possible(offer) | SummaryOption::Running(offer)) = self.summary else {
            return None;
        };
        match offer.by {
            SummariserKind::BuiltIn => Some(Money(0)),
            SummariserKind::Session => {
                let read = self.terms.ideal(state.held, self.prefix + offer.covers, self.lifetime);
                self.terms.prices().cost(&Usage { output: offer.expected, ..read }).ok()
            }
            SummariserKind::Other(prices) => {
                let usage = Usage { uncached: offer.covers, output: offer.expected, ..Usage::default() };
                prices.cost(&usage).ok()
            }
        }
    }
}
