//! The planner: it decides between keeping the request, editing it, replacing the history by a summary, and
//! having a summary made.
//!
//! The provider's cache is useless from the first change on, so a change must be worth it: by money, when the
//! calls to come are played out with it and without it, or because a threshold demands it. A cold cache makes
//! it free. If prices or lifetimes are not known, the thresholds alone decide, and the plan says so.
//!
//! A change that no threshold demands is a bet on calls that may never come, and its removals are final. It
//! is made only if it also pays when half of the expected calls come and its new content has to be written a
//! second time. The forecast supports no more than that: of sessions that are expected to make `n` more
//! calls, nearly half end before `n / 2`, and new content is now and then changed again by another change.

mod cache_observations;
mod cost_projection;
mod forecast;
mod plan_display;
mod plan_inputs;
mod reduction_depth;
#[cfg(test)]
mod tests;

use serde::{Serialize, Serializer};
use thiserror::Error;

use self::cost_projection::{
    ProjectedAction, ProjectedRemoval, ProjectedState, ProjectionInputs, ResetCondition,
};
pub use self::{
    cache_observations::{CacheObservations, CacheableCall},
    forecast::{CacheWarmth, CallHistory, ExpectedCall, Forecast, RemovableContent},
    plan_inputs::{
        LastCallAge, PlanInputs, ReductionDemand, ReductionTrial, SummariserKind, SummaryOffer, SummaryOption,
    },
    reduction_depth::ReductionDepth,
};
use crate::{
    profile::{Money, UnknownPriceError},
    tokens::Tokens,
};

/// Action before the next call, and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallPlan {
    /// Action to take.
    pub action: PlanAction,
    /// Reason for it.
    pub reason: PlanReason,
    /// Numbers that it rests on.
    pub numbers: PlanFigures,
}

/// Action before the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanAction {
    /// Send the old content unchanged, and the new content.
    Keep,
    /// Run the free reducers.
    Edit,
    /// Swap the summary in that is ready.
    Adopt,
    /// Have a summary made in the background and go on sending.
    Summarise,
    /// Make a summary with the built-in summariser and swap it in.
    SummariseNow,
}

/// Reason for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanReason {
    /// The cache is empty by now: all would be written again anyway.
    Cold,
    /// It removes so much that it pays within the calls that are expected.
    Pays,
    /// A threshold would soon demand it, and later it costs more.
    CheaperNow,
    /// A threshold was passed.
    Demanded(BudgetThreshold),
    /// The trigger is near and the free reducers would miss the target.
    TargetMissed,
    /// A summary is being made; until then the rest is not changed twice.
    AwaitsSummary,
    /// Removals are impossible or not worth a new epoch.
    NothingToRemove,
    /// It does not pay within the calls that are expected.
    DoesNotPay,
    /// It pays only if all the expected calls come, and no other change touches the sent content.
    Uncertain,
    /// It would pay, but a pause is expected that makes it free, or a threshold that demands more.
    CheaperLater,
    /// The size is below all thresholds, and the cost is unknown.
    BelowThresholds,
}

/// A threshold of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetThreshold {
    /// The size at which work begins.
    Trigger,
    /// The size at which the call has to wait for it.
    Force,
}

/// Numbers that a plan rests on. If there are two reductions to choose from, the removal is that of the one
/// that is made, or else of the free reducers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanFigures {
    /// Size of the request if nothing were changed.
    pub size: Tokens,
    /// Tokens in the cache that would have to be written again.
    pub suffix: Tokens,
    /// Tokens that would no longer be sent.
    pub removed: Tokens,
    /// Number of calls, this one counted, after which it pays. `None` if it never does or the number is
    /// unknown.
    pub break_even: Option<CallCount>,
    /// The calls that are expected, this one counted.
    pub expected: u64,
    /// Their cost if nothing is changed now.
    pub keep: Option<Money>,
    /// Their cost if the free reducers run now.
    pub edit: Option<Money>,
    /// Their cost if the history is replaced by a summary now.
    pub reset: Option<Money>,
    /// Cost of making a summary.
    pub summary: Option<Money>,
    /// Reason why the money is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownCostError>,
}

/// A number of calls, in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct CallCount(pub u64);

/// Reason why costs are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnknownCostError {
    /// A price is missing.
    #[error(transparent)]
    Price(#[from] UnknownPriceError),
    /// The provider does not say how long its cache holds.
    #[error(
        "nobody promises how long the cache holds; give `cache.lifetimes` for the model in a profile of your own"
    )]
    Lifetime,
    /// The provider reports that the last calls read little of the previous prompts.
    #[error("the last calls read little of what was sent before them, so nobody knows what the cache holds")]
    Unread,
}

impl Serialize for UnknownCostError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Decides on the action before the next call.
///
/// ```
/// use std::time::Duration;
/// use epitome_core::{budget::Budget, cost::CacheTerms, cost_planner::*, profile::Profiles, tokens::Tokens};
///
/// let profiles = Profiles::builtin();
/// let profile = profiles.find("claude-opus-4-5")?;
/// let situation = PlanInputs {
///     terms: &CacheTerms::new(&profile.cache, &profile.prices),
///     lifetime: None,
///     since: LastCallAge::Elapsed(Duration::from_mins(1)),
///     forecast: &Forecast::steady(99, Tokens(0)),
///     size: Tokens(60_000),
///     sent: Tokens(60_000),
///     prefix: Tokens(20_000),
///     budget: &Budget::new(Tokens(180_000)),
///     demand: ReductionDemand::AtTrigger,
///     least: Tokens(1_000),
///     trial: ReductionTrial { after: Tokens(50_000), first_changed_at: Tokens(40_000) },
///     summary: SummaryOption::Never,
/// };
/// // 11.5 calls for each time that what must be written again is as much as what is removed, with room to spare.
/// assert_eq!(plan(&situation).action, PlanAction::Edit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(situation: &PlanInputs<'_>) -> CallPlan {
    let warmth = situation.warmth();
    let ahead = situation.projection_inputs();
    let state = situation.state(warmth);
    let costs = match warmth {
        CacheWarmth::Unknown if situation.since == LastCallAge::Unread => Err(UnknownCostError::Unread),
        CacheWarmth::Unknown => Err(UnknownCostError::Lifetime),
        CacheWarmth::Warm | CacheWarmth::Cold => {
            ChoiceCosts::of(&ahead, state).map_err(UnknownCostError::from)
        }
    };
    let (made, action, reason) = situation.decide(&ahead, &state, warmth, costs.as_ref().ok());
    let numbers = situation.numbers(&ahead, state, made, costs);
    CallPlan { action, reason: reason.in_view_of(&numbers), numbers }
}

impl PlanReason {
    /// Replaces the reason if the cheapest choice disagrees with the break-even, which ignores pauses and
    /// thresholds.
    fn in_view_of(self, numbers: &PlanFigures) -> Self {
        let breaks_even =
            numbers.break_even.is_some_and(|calls| calls.0 < numbers.expected.saturating_mul(100));
        match self {
            Self::Pays if !breaks_even => Self::CheaperNow,
            Self::DoesNotPay if breaks_even => Self::CheaperLater,
            other => other,
        }
    }
}

/// Costs of each choice, to the end of the forecast.
#[derive(Clone, Copy)]
struct ChoiceCosts {
    keep: Money,
    edit: Option<Money>,
    reset: Option<Money>,
}

impl ChoiceCosts {
    fn of(ahead: &ProjectionInputs<'_>, state: ProjectedState) -> Result<Self, UnknownPriceError> {
        let edit = state.edit.map(|_| ahead.cost(state, ProjectedAction::Edit)).transpose()?;
        let reset = state.reset.map(|_| ahead.cost(state, ProjectedAction::Reset)).transpose()?;
        Ok(Self { keep: ahead.cost(state, ProjectedAction::Keep)?, edit, reset })
    }

    /// The cheapest of these that is cheaper than keeping.
    fn cheapest(&self, choices: &[ProjectedAction]) -> Option<ProjectedAction> {
        let cost = |choice: &ProjectedAction| match choice {
            ProjectedAction::Keep => Some(self.keep),
            ProjectedAction::Edit => self.edit,
            ProjectedAction::Reset => self.reset,
        };
        let priced = choices.iter().filter_map(|choice| Some((cost(choice)?, *choice)));
        let cheapest = priced.min_by_key(|(cost, _)| *cost)?;
        (cheapest.0 < self.keep).then_some(cheapest.1)
    }
}

impl PlanInputs<'_> {
    fn decide(
        &self,
        ahead: &ProjectionInputs<'_>,
        state: &ProjectedState,
        warmth: CacheWarmth,
        costs: Option<&ChoiceCosts>,
    ) -> (ProjectedAction, PlanAction, PlanReason) {
        if let Some((made, threshold)) = ahead.demanded_action(state) {
            return (made, self.action(made), PlanReason::Demanded(threshold));
        }
        let choices = self.choices(ahead, state, warmth);
        let cheapest = match costs {
            Some(costs) => costs.cheapest(&choices),
            // It will be written again in any case, at any cost; so the smaller the better.
            None if warmth == CacheWarmth::Cold => choices.last().copied(),
            None => None,
        };
        let made = cheapest.filter(|made| costs.is_none() || ahead.is_safe(*state, *made));
        if let Some(made) = made {
            let reason = if warmth == CacheWarmth::Cold { PlanReason::Cold } else { PlanReason::Pays };
            return (made, self.action(made), reason);
        }
        if self.should_summarise(warmth) {
            return (ProjectedAction::Keep, PlanAction::Summarise, PlanReason::TargetMissed);
        }
        let is_awaited =
            matches!(self.summary, SummaryOption::Running(_)) && state.size > self.budget.trigger();
        let reason = match costs {
            _ if is_awaited => PlanReason::AwaitsSummary,
            _ if choices.is_empty() => PlanReason::NothingToRemove,
            Some(_) if cheapest.is_some() => PlanReason::Uncertain,
            Some(_) => PlanReason::DoesNotPay,
            None => PlanReason::BelowThresholds,
        };
        (ProjectedAction::Keep, PlanAction::Keep, reason)
    }

    /// Actions that may be taken to save money. A summary that is not ready would cost something that no
    /// price expresses: it is made only above the trigger or while the cache is cold, and only if the free
    /// reducers miss the target.
    fn choices(
        &self,
        ahead: &ProjectionInputs<'_>,
        state: &ProjectedState,
        warmth: CacheWarmth,
    ) -> Vec<ProjectedAction> {
        let may_reset = match ahead.resets {
            ResetCondition::Never | ResetCondition::AtForce => false,
            ResetCondition::AboveTrigger => {
                (state.size > self.budget.trigger() || warmth == CacheWarmth::Cold) && self.misses_target()
            }
            ResetCondition::Any => true,
        };
        let edit = ahead.if_worthwhile(state.edit).map(|_| ProjectedAction::Edit);
        let reset = ahead.if_worthwhile(state.reset).filter(|_| may_reset).map(|_| ProjectedAction::Reset);
        edit.into_iter().chain(reset).collect()
    }

    /// Returns true if a model should begin now. While the cache is cold, the session's own model reads its
    /// prefix at a higher price than after this call.
    fn should_summarise(&self, warmth: CacheWarmth) -> bool {
        let SummaryOption::Possible(offer) = self.summary else { return false };
        let is_dear = match offer.by {
            SummariserKind::BuiltIn => return false,
            SummariserKind::Session => warmth == CacheWarmth::Cold,
            SummariserKind::Other(_) => false,
        };
        let then = self.size + self.forecast.growth(offer.calls);
        !is_dear && then > self.budget.trigger() && self.misses_target()
    }

    fn action(&self, made: ProjectedAction) -> PlanAction {
        match (made, self.summary) {
            (ProjectedAction::Keep, _) => PlanAction::Keep,
            (ProjectedAction::Edit, _) => PlanAction::Edit,
            (ProjectedAction::Reset, SummaryOption::Ready(_)) => PlanAction::Adopt,
            (
                ProjectedAction::Reset,
                SummaryOption::Never | SummaryOption::Possible(_) | SummaryOption::Running(_),
            ) => PlanAction::SummariseNow,
        }
    }

    fn numbers(
        &self,
        ahead: &ProjectionInputs<'_>,
        state: ProjectedState,
        made: ProjectedAction,
        costs: Result<ChoiceCosts, UnknownCostError>,
    ) -> PlanFigures {
        let considered = match made {
            ProjectedAction::Keep if state.edit.is_none() && ahead.resets == ResetCondition::Any => {
                ProjectedAction::Reset
            }
            ProjectedAction::Keep | ProjectedAction::Edit => ProjectedAction::Edit,
            ProjectedAction::Reset => ProjectedAction::Reset,
        };
        let removal = if considered == ProjectedAction::Reset { state.reset } else { state.edit };
        let ProjectedRemoval { from, removes } =
            removal.unwrap_or(ProjectedRemoval { from: state.size, removes: Tokens(0) });
        let unsent = self.size.less(self.sent);
        let suffix = self.size.less(removes).less(from).less(unsent);
        let (costs, unknown) = match costs {
            Ok(costs) => (Some(costs), None),
            Err(unknown) => (None, Some(unknown)),
        };
        PlanFigures {
            size: self.size,
            suffix: suffix.min(state.held.less(from)),
            removed: removes,
            break_even: costs.and_then(|_| break_even(ahead, state, considered)),
            expected: self.forecast.calls.len() as u64 + 1,
            keep: costs.map(|costs| costs.keep),
            edit: costs.and_then(|costs| costs.edit),
            reset: costs.and_then(|costs| costs.reset),
            summary: self.summary_cost(&state),
            unknown,
        }
    }
}

/// Number of calls, this one counted, after which a change has paid for itself if the context did not grow:
/// its extra cost now, divided by the saving of each later call.
fn break_even(
    ahead: &ProjectionInputs<'_>,
    state: ProjectedState,
    made: ProjectedAction,
) -> Option<CallCount> {
    let (mut kept, mut changed) = (state, state.after(made));
    let cost = |state: &mut ProjectedState| ahead.serve(state).ok().map(|money| i128::from(money.0));
    let more_now = cost(&mut changed)? - cost(&mut kept)?;
    let less_later = cost(&mut kept)? - cost(&mut changed)?;
    if less_later <= 0 {
        return None;
    }
    let hundredths = (more_now + less_later).max(0) * 100 / less_later;
    u64::try_from(hundredths).ok().map(CallCount)
}
