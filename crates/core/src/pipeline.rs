//! The driver: runs reducers in order over a shrinking budget and observes each.
//!
//! A reducer decides, the driver watches: tokens before and after, segments touched and left out, and, in debug
//! builds, that the books still balance. What `explain` shows is what is recorded here.

use std::{collections::BTreeMap, fmt::Debug};

use serde::Serialize;

use crate::{budget::Budget, context::Context, tokens::Tokens};

/// Makes a context smaller, or leaves it as it is.
///
/// Pure: the same context, budget and state give the same result. Infallible: what it cannot do it leaves to the
/// next one. It changes a context only by [`Context::edit`] and [`Context::fold`], so it can neither part a call from
/// its result nor lose an event.
///
/// ```
/// use epitome_core::{
///     budget::Budget,
///     context::{Context, Edit, Tier},
///     pipeline::{Reduced, Reducer, State},
/// };
///
/// #[derive(Debug)]
/// struct ForgetReasoning;
///
/// impl Reducer for ForgetReasoning {
///     fn name(&self) -> &'static str {
///         "forget reasoning"
///     }
///
///     fn reduce(&self, context: Context, _: &Budget, state: State) -> Reduced {
///         let context = context.edit(self.name(), |_, segment| match segment.tier() {
///             Tier::Reasoning => Edit::Drop,
///             _ => Edit::Keep,
///         });
///         Reduced { context, state }
///     }
/// }
/// ```
pub trait Reducer: Debug + Send + Sync {
    /// What it is called in traces, lineage and configuration.
    fn name(&self) -> &'static str;

    /// A smaller context, and what to remember for the next time.
    fn reduce(&self, context: Context, budget: &Budget, state: State) -> Reduced;
}

/// What reducers remember from one call to the next, by their names.
pub type State = BTreeMap<&'static str, u64>;

/// What a reducer gives back.
#[derive(Clone, Debug)]
pub struct Reduced {
    /// The context.
    pub context: Context,
    /// What to remember.
    pub state: State,
}

/// What one reducer did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The reducer.
    pub reducer: &'static str,
    /// The context's size before.
    pub before: Tokens,
    /// The context's size after.
    pub after: Tokens,
    /// How many segments show something else than before.
    pub replaced: usize,
    /// How many segments are no longer shown by themselves.
    pub removed: usize,
}

/// Reducers in order, cheap ones first.
#[derive(Debug, Default)]
pub struct Pipeline {
    reducers: Vec<Box<dyn Reducer>>,
}

impl Pipeline {
    /// Runs `reducers` in this order.
    pub fn new(reducers: Vec<Box<dyn Reducer>>) -> Self {
        Self { reducers }
    }

    /// Reduces `context` until it is at the budget's target and under its caps, or no reducer is left.
    pub fn run(&self, context: Context, budget: &Budget, state: State) -> (Reduced, Vec<Step>) {
        let mut reduced = Reduced { context, state };
        let mut steps = Vec::new();
        for reducer in &self.reducers {
            if is_met(&reduced.context, budget) {
                break;
            }
            let (before, shown) = (reduced.context.tokens(), reduced.context.segments().len());
            let touched = |context: &Context| {
                context.segments().iter().filter(|segment| segment.touched() == Some(reducer.name())).count()
            };
            let touched_before = touched(&reduced.context);
            #[cfg(debug_assertions)]
            let accounted = reduced.context.accounted();
            reduced = reducer.reduce(reduced.context, budget, reduced.state);
            #[cfg(debug_assertions)]
            {
                debug_assert_eq!(reduced.context.fault(), None, "{} broke the books", reducer.name());
                debug_assert_eq!(accounted, reduced.context.accounted(), "{} lost events", reducer.name());
            }
            steps.push(Step {
                reducer: reducer.name(),
                before,
                after: reduced.context.tokens(),
                replaced: touched(&reduced.context).saturating_sub(touched_before),
                removed: shown.saturating_sub(reduced.context.segments().len()),
            });
        }
        (reduced, steps)
    }
}

/// Whether nothing needs to be reduced.
pub fn is_met(context: &Context, budget: &Budget) -> bool {
    context.tokens() <= budget.target() && budget.caps().all(|(tier, cap)| context.tier_tokens(tier) <= cap)
}
