//! Decision when to act: by thresholds, or, for policies that mind the cache, by the planner.

use std::time::Duration;

use super::{
    EpochCause, ModelView,
    prepare::{EpochDecision, EpochMeans, NextCall, Preparation, SummaryOrder, SummaryStatus},
};
use crate::{
    budget::Budget,
    context::{Context, Tier},
    cost_planner::{
        BudgetThreshold, CallHistory, CallPlan, Forecast, LastCallAge, PlanAction, PlanInputs, PlanReason,
        ReductionDemand, ReductionDepth, ReductionTrial as PlanTrial, SummariserKind, SummaryOffer,
        SummaryOption, plan,
    },
    event::Compaction,
    pipeline::is_met,
    policy::Policy,
    profile::Share,
    tokens::Tokens,
};

/// Growth after which a context is examined again, as part of the request's limit.
pub(super) const REEXAMINATION_GROWTH: Share = Share::percent(5);

/// Number of calls that are made while a model summarises.
const IN_THE_MAKING: usize = 2;

impl Preparation {
    /// Decides if it is time to act, with the reason and the means.
    pub(super) fn decide(
        &mut self,
        view: &ModelView,
        context: &Context,
        policy: &Policy,
        budget: &Budget,
        moment: &NextCall<'_>,
    ) -> Option<EpochDecision> {
        let size = context.tokens();
        if matches!(moment.standby, SummaryStatus::Thrashing) {
            return spaced(context, budget);
        }
        if size > budget.ceiling() {
            let target = self.target(view, context, policy, budget, moment);
            return Some(chosen(EpochCause::Force, budget, target));
        }
        if moment.overflowed {
            // Whatever our count says, this size is over the ceiling, and the target is as far below it as it would be there.
            let share = Share::ratio(self.target(view, context, policy, budget, moment), budget.ceiling());
            return Some(chosen(EpochCause::Usage, budget, share.of(size)));
        }
        // Acting again where it did not help a moment ago would reset the cache in vain.
        let grown = self.has_grown(size, budget) || self.is_newly_forced(size, budget);
        let over = |(tier, cap): &(Tier, Tokens)| context.counted_against(*tier) > *cap;
        let decided = match policy.cold_level(budget) {
            Some(cold) if size > cold => self.weigh(view, context, policy, budget, moment),
            None if size > budget.trigger() && (grown || is_ready(moment)) => {
                self.at_trigger(context, policy, budget, moment)
            }
            Some(_) | None => None,
        };
        decided.or_else(|| {
            let (tier, _) = budget.caps().find(over).filter(|_| grown)?;
            Some(chosen(EpochCause::Cap(tier), budget, budget.target()))
        })
    }

    /// Decision over the trigger for a policy that ignores the cache.
    fn at_trigger(
        &mut self,
        context: &Context,
        policy: &Policy,
        budget: &Budget,
        moment: &NextCall<'_>,
    ) -> Option<EpochDecision> {
        let mut chosen = chosen(EpochCause::Trigger, budget, budget.target());
        if policy.summary.is_some()
            && matches!(moment.standby, SummaryStatus::Possible(_) | SummaryStatus::Running(_))
        {
            let trial = self.trial(context, policy, &chosen.budget);
            if !is_met(&trial.context, &chosen.budget) {
                // Until there is a summary no content is changed twice, as long as there is room.
                self.considered = context.tokens();
                self.wish = SummaryOrder::summary_if(matches!(moment.standby, SummaryStatus::Possible(_)));
                if context.tokens() <= budget.force() {
                    return None;
                }
            }
            chosen.trial = Some(trial);
        }
        Some(chosen)
    }

    /// Returns true if a context has grown so much since its last examination that another one is worthwhile.
    fn has_grown(&self, size: Tokens, budget: &Budget) -> bool {
        size >= self.considered + REEXAMINATION_GROWTH.of(budget.ceiling())
    }

    /// Returns true if a context is over the size that demands a reduction at any cost, and was not when it was last
    /// examined.
    fn is_newly_forced(&self, size: Tokens, budget: &Budget) -> bool {
        size > budget.force() && self.considered <= budget.force()
    }

    /// Asks the planner, if anything may have changed since it was last asked.
    fn weigh(
        &mut self,
        view: &ModelView,
        context: &Context,
        policy: &Policy,
        budget: &Budget,
        moment: &NextCall<'_>,
    ) -> Option<EpochDecision> {
        let since = self.since(view, moment);
        let size = context.tokens();
        // No message of it was answered here: it may be a single question with its examples, and it fits.
        if since == LastCallAge::First && size <= budget.first_force() {
            return None;
        }
        let cold = is_cold(since, moment);
        let grown = self.has_grown(size, budget) || self.is_newly_forced(size, budget);
        if !cold && !is_ready(moment) && !grown {
            return None;
        }
        self.considered = size;
        let target = self.target(view, context, policy, budget, moment);
        let mut chosen = chosen(EpochCause::Cold, budget, target);
        let trial = self.trial(context, policy, &chosen.budget);
        let Some(terms) = moment.terms else {
            let missed = size > budget.trigger() && !is_met(&trial.context, &chosen.budget);
            self.wish = SummaryOrder::summary_if(
                missed && policy.summary.is_some() && matches!(moment.standby, SummaryStatus::Possible(_)),
            );
            chosen.cause = match moment.standby {
                _ if size > budget.force() => EpochCause::Force,
                // A reset of unknown cost is made when it is ready.
                SummaryStatus::Ready(_) if size > budget.trigger() => EpochCause::Trigger,
                SummaryStatus::Possible(_) | SummaryStatus::Running(_) if missed => return None,
                _ if cold => EpochCause::Cold,
                _ => return None,
            };
            chosen.trial = Some(trial);
            return Some(chosen);
        };
        let history = view.last.as_ref().map_or_else(CallHistory::default, |last| last.history);
        let forecast = Forecast::from_history(&history);
        let situation = PlanInputs {
            terms,
            lifetime: moment.cache.requested_lifetime(),
            since,
            forecast: &forecast,
            size,
            sent: view.last.as_ref().map_or(Tokens(0), |last| last.tokens),
            prefix: context.tier_tokens(Tier::Prefix) + context.meter().overhead().request,
            budget: &chosen.budget,
            demand: ReductionDemand::AtForce,
            least: REEXAMINATION_GROWTH.of(budget.ceiling()),
            trial: PlanTrial {
                after: trial.context.tokens(),
                first_changed_at: first_changed(context, &trial.context),
            },
            summary: summary(view, context, policy, &chosen.budget, moment.standby),
        };
        let plan = plan(&situation);
        let decided = cause(&plan);
        self.wish = SummaryOrder::summary_if(plan.action == PlanAction::Summarise);
        self.plan = Some(plan);
        let (cause, means) = decided?;
        chosen.cause = cause;
        chosen.means = means;
        chosen.trial = Some(trial);
        Some(chosen)
    }

    /// Size to reduce to: if the cache is cold, as low as is free; if a warm one has to be reset, as low as
    /// pays.
    fn target(
        &self,
        view: &ModelView,
        context: &Context,
        policy: &Policy,
        budget: &Budget,
        moment: &NextCall<'_>,
    ) -> Tokens {
        if is_cold(self.since(view, moment), moment) {
            return policy.cold_level(budget).unwrap_or(budget.target()).min(budget.target());
        }
        let lean = policy.lowest_target(budget);
        // If the cost of a reset is unknown, resets are made rare.
        let (Some(last), Some(terms)) = (&view.last, moment.terms) else { return lean };
        let depth = ReductionDepth {
            whole: last.history.growth + context.tokens().less(last.tokens),
            prefix: context.tier_tokens(Tier::Prefix) + context.meter().overhead().request,
            growth: last.history.growth_of_call(),
            force: budget.force(),
            beside: budget.beside(),
            least: lean,
            most: budget.target(),
        };
        depth.target(terms, moment.cache.requested_lifetime()).unwrap_or(lean)
    }

    fn since(&self, view: &ModelView, moment: &NextCall<'_>) -> LastCallAge {
        match &view.last {
            None => LastCallAge::First,
            // If a client changed sent content, it is unknown how much of it the cache still holds.
            Some(_) if matches!(self.cause, Some(EpochCause::Model | EpochCause::Undone)) => {
                LastCallAge::OtherModel
            }
            Some(_) if moment.cache.is_unread() => LastCallAge::Unread,
            Some(last) => {
                let elapsed = last.at.zip(moment.now).map_or(0, |(last, now)| now.0.saturating_sub(last.0));
                let elapsed = Duration::from_millis(u64::try_from(elapsed).unwrap_or(0));
                // Where a pause as long as this one was seen to leave the cache as it was, no time has passed.
                let is_held = moment.lifetime().is_some_and(|held| elapsed <= Duration::from_secs(held));
                LastCallAge::Elapsed(if is_held { Duration::ZERO } else { elapsed })
            }
        }
    }
}

impl ModelView {
    /// The budget with the target that a summary should be made for which is ordered now.
    pub fn summary_budget(&self, policy: &Policy, budget: &Budget, moment: &NextCall<'_>) -> Budget {
        let target = Preparation::of(self, moment).target(self, &self.context, policy, budget, moment);
        budget.clone().with_target(target)
    }
}

fn chosen(cause: EpochCause, budget: &Budget, target: Tokens) -> EpochDecision {
    // A cap that is met to the token is exceeded again by the next call.
    let caps: Vec<(Tier, Tokens)> = budget.caps().collect();
    let budget = caps.into_iter().fold(budget.clone().with_target(target), |budget, (tier, cap)| {
        budget.with_cap(tier, Tokens(cap.0 / 5 * 4))
    });
    EpochDecision { cause, budget, trial: None, means: EpochMeans::Summary }
}

fn is_ready(moment: &NextCall<'_>) -> bool {
    matches!(moment.standby, SummaryStatus::Ready(_))
}

/// Returns true if the provider has forgotten the last request.
fn is_cold(since: LastCallAge, moment: &NextCall<'_>) -> bool {
    match since {
        LastCallAge::First | LastCallAge::OtherModel => true,
        LastCallAge::Unread => false,
        LastCallAge::Elapsed(elapsed) => {
            moment.lifetime().is_some_and(|lifetime| elapsed > Duration::from_secs(lifetime))
        }
    }
}

/// Decision if compactions have come too close to each other: none before the limit, and then so much that
/// room for several calls is left. If half of the shown content goes, the next reset of the cache is twice as
/// far away.
fn spaced(context: &Context, budget: &Budget) -> Option<EpochDecision> {
    let size = context.tokens();
    if size <= budget.force() {
        return None;
    }
    let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
    let half = Tokens(budget.target().0.midpoint(prefix.0)).min(budget.target());
    let budget = budget.clone().with_thresholds(half, budget.target(), budget.force());
    Some(chosen(EpochCause::Force, &budget, half))
}

/// Tokens before the first segment that has changed.
fn first_changed(before: &Context, after: &Context) -> Tokens {
    let same = before.segments().iter().zip(after.segments()).take_while(|(one, other)| one == other);
    same.map(|(segment, _)| segment.tokens()).sum::<Tokens>() + before.meter().overhead().request
}

/// Cause that follows from a plan, if it is one to act.
fn cause(plan: &CallPlan) -> Option<(EpochCause, EpochMeans)> {
    let means = match plan.action {
        PlanAction::Keep | PlanAction::Summarise => return None,
        PlanAction::Edit => EpochMeans::Reducers,
        PlanAction::Adopt => EpochMeans::Ready,
        PlanAction::SummariseNow => EpochMeans::Summary,
    };
    let cause = match plan.reason {
        PlanReason::Cold => EpochCause::Cold,
        PlanReason::Demanded(BudgetThreshold::Trigger) => EpochCause::Trigger,
        PlanReason::Demanded(BudgetThreshold::Force) => EpochCause::Force,
        PlanReason::Pays
        | PlanReason::CheaperNow
        | PlanReason::TargetMissed
        | PlanReason::AwaitsSummary
        | PlanReason::NothingToRemove
        | PlanReason::DoesNotPay
        | PlanReason::Uncertain
        | PlanReason::CheaperLater
        | PlanReason::BelowThresholds => EpochCause::BreakEven,
    };
    Some((cause, means))
}

/// Status of the summary that would take the history's place.
fn summary<'a>(
    view: &ModelView,
    context: &Context,
    policy: &Policy,
    budget: &Budget,
    standby: SummaryStatus<'a>,
) -> SummaryOption<'a> {
    let Some(rules) = policy.summary else { return SummaryOption::Never };
    let prefix = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
    let drafting = rules.compaction_settings(budget, prefix);
    let covers = context.tokens().less(prefix).less(drafting.room());
    // Standing context is carried regardless of the summary.
    let expected = (drafting.expected(covers) + context.standing_tokens()).min(covers);
    let offer = |by, calls| SummaryOffer { covers, expected, calls, by };
    match standby {
        SummaryStatus::BuiltIn | SummaryStatus::Thrashing => {
            SummaryOption::Possible(offer(SummariserKind::BuiltIn, 0))
        }
        SummaryStatus::Possible(by) => SummaryOption::Possible(offer(by, IN_THE_MAKING)),
        SummaryStatus::Running(by) => SummaryOption::Running(offer(by, IN_THE_MAKING)),
        SummaryStatus::Ready(finished) => {
            let made = finished.clone().with_pins(&view.line, &rules.caps);
            match made.into_compaction(context, drafting.length) {
                Ok(Compaction { tokens_after: Some(after), .. }) => {
                    SummaryOption::Ready(PlanTrial { after, first_changed_at: prefix })
                }
                // It would have no benefit any more.
                Ok(_) | Err(_) => SummaryOption::Possible(offer(SummariserKind::BuiltIn, 0)),
            }
        }
    }
}
