//! Projection of the coming calls: the cost of the rest of a session with a reduction now, or without it.
//!
//! After the first decision two plain habits are followed: to keep until a threshold demands a reduction, and
//! to take in addition every reduction that a pause makes free. A decision is worth the cheaper of the two.
//! Choosing the cheapest in this sense at each call costs, if the forecast is right, no more than either
//! habit would have: after the best first step at least the habit is still open, and each later step only
//! improves on it.

use super::{BudgetThreshold, CacheWarmth, Forecast, ReductionDemand, RemovableContent};
use crate::{
    budget::Budget,
    cost::CacheTerms,
    profile::{Money, UnknownPriceError},
    tokens::Tokens,
};

/// Inputs that do not change while the calls are played out.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProjectionInputs<'a> {
    pub(super) terms: &'a CacheTerms,
    pub(super) lifetime: Option<u64>,
    pub(super) forecast: &'a Forecast,
    pub(super) budget: &'a Budget,
    pub(super) demand: ReductionDemand,
    pub(super) least: Tokens,
    pub(super) resets: ResetCondition,
}

/// Condition for replacing the history by a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ResetCondition {
    /// Never.
    Never,
    /// As the last resort: no summary by a model is ready, so a lesser one would have to do.
    AtForce,
    /// Above the trigger.
    AboveTrigger,
    /// As soon as it pays: the summary is ready.
    Any,
}

/// A context and the part of it that the cache holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProjectedState {
    pub(super) size: Tokens,
    /// The cache holds so much from the beginning.
    pub(super) held: Tokens,
    pub(super) edit: Option<ProjectedRemoval>,
    pub(super) reset: Option<ProjectedRemoval>,
}

/// Effect of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProjectedRemoval {
    /// Position of the first changed byte.
    pub(super) from: Tokens,
    pub(super) removes: Tokens,
}

/// Actions that are possible before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProjectedAction {
    Keep,
    /// Run the free reducers.
    Edit,
    /// Put a summary in the place of the history.
    Reset,
}

#[derive(Clone, Copy)]
enum KeepCondition {
    UntilDemanded,
    UntilDemandedOrCold,
}

impl ProjectionInputs<'_> {
    /// Cost of this call and all expected ones if this is done before it.
    pub(super) fn cost(
        &self,
        state: ProjectedState,
        first: ProjectedAction,
    ) -> Result<Money, UnknownPriceError> {
        let mut after = state.after(first);
        let now = self.serve(&mut after)?;
        let keeping = self.follow(after, KeepCondition::UntilDemanded)?;
        let using_pauses = self.follow(after, KeepCondition::UntilDemandedOrCold)?;
        Ok(now + keeping.min(using_pauses))
    }

    /// Returns true if a change also pays when only half of the expected calls come, and its new content has
    /// to be written again.
    pub(super) fn is_safe(&self, state: ProjectedState, made: ProjectedAction) -> bool {
        let forecast = self.forecast.first_half();
        let half = ProjectionInputs { forecast: &forecast, ..*self };
        let again = self.price_of_writing(state, made);
        match (half.cost(state, made), half.cost(state, ProjectedAction::Keep), again) {
            (Ok(made), Ok(keep), Ok(again)) => made + again < keep,
            _ => false,
        }
    }

    /// Cost of the cache not holding the changed context; zero if it holds nothing in any case.
    fn price_of_writing(
        &self,
        state: ProjectedState,
        made: ProjectedAction,
    ) -> Result<Money, UnknownPriceError> {
        let (mut kept, mut changed) = (state, state.after(made));
        let (kept, written) = (self.serve(&mut kept)?, self.serve(&mut changed)?);
        // It was served just now, so all of it is held.
        let read = self.serve(&mut changed)?;
        Ok(if written <= kept { Money(0) } else { Money(written.0.saturating_sub(read.0)) })
    }

    /// Action that the thresholds demand, if any.
    pub(super) fn demanded_action(
        &self,
        state: &ProjectedState,
    ) -> Option<(ProjectedAction, BudgetThreshold)> {
        let reaches = |removal: &ProjectedRemoval| state.size.less(removal.removes) <= self.budget.target();
        if state.size > self.budget.force() {
            let made = match (state.edit, state.reset) {
                (Some(edit), _) if reaches(&edit) => ProjectedAction::Edit,
                (_, Some(_)) => ProjectedAction::Reset,
                (Some(_), None) => ProjectedAction::Edit,
                (None, None) => return None,
            };
            return Some((made, BudgetThreshold::Force));
        }
        if self.demand == ReductionDemand::AtForce || state.size <= self.budget.trigger() {
            return None;
        }
        let made = if self.if_worthwhile(state.edit).is_some_and(|edit| reaches(&edit)) {
            ProjectedAction::Edit
        } else if self.resets >= ResetCondition::AboveTrigger && self.if_worthwhile(state.reset).is_some() {
            ProjectedAction::Reset
        } else if self.resets == ResetCondition::Never && self.if_worthwhile(state.edit).is_some() {
            ProjectedAction::Edit
        } else {
            return None;
        };
        Some((made, BudgetThreshold::Trigger))
    }

    /// The removal, if it is worth a new epoch.
    pub(super) fn if_worthwhile(&self, removal: Option<ProjectedRemoval>) -> Option<ProjectedRemoval> {
        removal.filter(|removal| removal.removes >= self.least)
    }

    /// Cost of a call, after which the cache holds all of it.
    pub(super) fn serve(&self, state: &mut ProjectedState) -> Result<Money, UnknownPriceError> {
        let usage = self.terms.ideal(state.held, state.size, self.lifetime);
        state.held = state.size;
        self.terms.prices().cost(&usage)
    }

    fn follow(&self, mut state: ProjectedState, habit: KeepCondition) -> Result<Money, UnknownPriceError> {
        let mut total = Money(0);
        for call in &self.forecast.calls {
            state.size += call.growth;
            if let Some(ripe) = call.ripe {
                state.edit = Some(state.joined(state.edit, ripe));
                state.reset = state.reset.map(|reset| state.joined(Some(reset), ripe));
            }
            let is_cold = call.cache == CacheWarmth::Cold;
            if is_cold {
                state.held = Tokens(0);
            }
            let made = match (self.demanded_action(&state), habit) {
                (Some((made, _)), _) => made,
                (None, KeepCondition::UntilDemandedOrCold)
                    if is_cold && self.if_worthwhile(state.edit).is_some() =>
                {
                    ProjectedAction::Edit
                }
                (None, KeepCondition::UntilDemanded | KeepCondition::UntilDemandedOrCold) => {
                    ProjectedAction::Keep
                }
            };
            state = state.after(made);
            total = total + self.serve(&mut state)?;
        }
        Ok(total)
    }
}

impl ProjectedState {
    /// The state after a move.
    pub(super) fn after(self, made: ProjectedAction) -> Self {
        let (removal, reset) = match made {
            ProjectedAction::Keep => return self,
            ProjectedAction::Edit => {
                let edited = self.edit.map_or(Tokens(0), |edit| edit.removes);
                let rest =
                    self.reset.map(|reset| ProjectedRemoval { removes: reset.removes.less(edited), ..reset });
                (self.edit, rest.filter(|rest| rest.removes > Tokens(0)))
            }
            ProjectedAction::Reset => (self.reset, None),
        };
        let Some(ProjectedRemoval { from, removes }) = removal else { return self };
        Self { size: self.size.less(removes), held: self.held.min(from), edit: None, reset }
    }

    fn joined(&self, removal: Option<ProjectedRemoval>, ripe: RemovableContent) -> ProjectedRemoval {
        let from = self.size.less(ripe.behind).less(ripe.removes);
        match removal {
            Some(older) => {
                ProjectedRemoval { from: older.from.min(from), removes: older.removes + ripe.removes }
            }
            None => ProjectedRemoval { from, removes: ripe.removes },
        }
    }
}
