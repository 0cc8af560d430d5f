//! The driver: runs reducers in order over a shrinking budget and observes each.
//!
//! A reducer decides, the driver records: the reason for running it, tokens before and after, segments
//! changed and left out, and, in debug builds, that the sums still balance. `explain` shows these records.

use std::{collections::BTreeMap, fmt::Debug};

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Tier},
    tokens::Tokens,
};

/// Makes a context smaller, or leaves it as it is.
///
/// Pure: the same context, budget and state give the same result. Infallible: work that it cannot do is left
/// to the next reducer. It changes a context only by [`Context::edit`] and [`Context::fold`], so it can
/// neither part a call from its result nor lose an event. It leaves out pieces of an answer all together or,
/// if it is reasoning, alone.
///
/// ```
/// use epitome_core::{
///     budget::Budget,
///     context::{Context, SegmentEdit, Tier},
///     pipeline::{ReducerOutput, Reducer, ReducerState},
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
///     fn serves(&self, tier: Tier) -> bool {
///         tier == Tier::Reasoning
///     }
///
///     fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
///         let context = context.edit(self.name(), |_, segment| match segment.tier() {
///             Tier::Reasoning => SegmentEdit::Drop,
///             _ => SegmentEdit::Keep,
///         });
///         ReducerOutput { context, state }
///     }
/// }
/// ```
pub trait Reducer: Debug + Send + Sync {
    /// Name in traces, lineage and configuration.
    fn name(&self) -> &'static str;

    /// Returns true if it makes this tier smaller: it is also run when the tier is over its cap, though the
    /// whole would fit. By default it looks at the whole only.
    fn serves(&self, tier: Tier) -> bool {
        let _ = tier;
        false
    }

    /// Returns a smaller context, and the state for the next time.
    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput;
}

/// Memory of the reducers from one call to the next, a number under each one's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReducerState(BTreeMap<String, u64>);

impl ReducerState {
    /// Number that `reducer` remembers.
    pub fn of(&self, reducer: &str) -> Option<u64> {
        self.0.get(reducer).copied()
    }

    /// The same, with something else remembered for `reducer`.
    pub fn with(mut self, reducer: &str, number: u64) -> Self {
        self.0.insert(reducer.to_owned(), number);
        self
    }
}

/// Outcome of a reducer.
#[derive(Clone, Debug)]
pub struct ReducerOutput {
    /// The context.
    pub context: Context,
    /// State to remember.
    pub state: ReducerState,
}

/// Record of one reducer's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReductionStep {
    /// The reducer.
    pub reducer: &'static str,
    /// Reason for running it.
    pub cause: ReductionCause,
    /// The context's size before.
    pub before: Tokens,
    /// The context's size after.
    pub after: Tokens,
    /// Number of segments whose content was replaced.
    pub replaced: u64,
    /// Number of segments that are no longer shown by themselves.
    pub removed: u64,
}

/// Reason for running a reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReductionCause {
    /// The whole is over its target by so much.
    Target(Tokens),
    /// A tier is over its cap by so much.
    Cap(Tier, Tokens),
    /// So many segments would be refused by the provider, now that others have changed.
    Unsendable(u64),
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

    /// The reducers, in order.
    pub fn reducers(&self) -> impl Iterator<Item = &dyn Reducer> {
        self.reducers.iter().map(AsRef::as_ref)
    }

    /// Runs each reducer in turn as long as there is something for it to do: the context is over the budget's target, or
    /// a tier it serves is over its cap.
    pub fn run(
        &self,
        context: Context,
        budget: &Budget,
        state: ReducerState,
    ) -> (ReducerOutput, Vec<ReductionStep>) {
        let mut reduced = ReducerOutput { context, state };
        let mut steps = Vec::new();
        for reducer in self.reducers() {
            if let Some(cause) = cause(&reduced.context, budget, reducer) {
                let (next, step) = observe(reducer, cause, reduced, budget);
                reduced = next;
                steps.push(step);
            }
        }
        (reduced, steps)
    }
}

/// Runs one reducer and records its work.
fn observe(
    reducer: &dyn Reducer,
    cause: ReductionCause,
    given: ReducerOutput,
    budget: &Budget,
) -> (ReducerOutput, ReductionStep) {
    let ReducerOutput { context, state } = given;
    let (before, changes) = (context.tokens(), context.changes());
    #[cfg(debug_assertions)]
    let accounted = context.accounted();
    let made = reducer.reduce(context, budget, state);
    let (after, now) = (made.context.tokens(), made.context.changes());
    #[cfg(debug_assertions)]
    {
        debug_assert_eq!(made.context.find_inconsistency(), None, "{} broke the books", reducer.name());
        debug_assert_eq!(accounted, made.context.accounted(), "{} lost events", reducer.name());
        debug_assert!(after <= before, "{} made the context larger", reducer.name());
    }
    let step = ReductionStep {
        reducer: reducer.name(),
        cause,
        before,
        after,
        replaced: now.replaced - changes.replaced,
        removed: now.removed - changes.removed,
    };
    (made, step)
}

/// Returns true if no reduction is needed.
pub fn is_met(context: &Context, budget: &Budget) -> bool {
    excess(context, budget, |_| true) == Tokens(0)
}

/// Tokens that must go: those over the target or, if that is more, those by which the tiers in `serves` are
/// over their caps.
pub fn excess(context: &Context, budget: &Budget, serves: impl Fn(Tier) -> bool) -> Tokens {
    over(context.tokens(), budget.target())
        .max(over_caps(context, budget, serves).map(|(_, over)| over).sum())
}

fn cause(context: &Context, budget: &Budget, reducer: &dyn Reducer) -> Option<ReductionCause> {
    match over(context.tokens(), budget.target()) {
        Tokens(0) => over_caps(context, budget, |tier| reducer.serves(tier))
            .next()
            .map(|(tier, over)| ReductionCause::Cap(tier, over)),
        over => Some(ReductionCause::Target(over)),
    }
}

fn over_caps(
    context: &Context,
    budget: &Budget,
    serves: impl Fn(Tier) -> bool,
) -> impl Iterator<Item = (Tier, Tokens)> {
    let caps = budget.caps().filter(move |(tier, _)| serves(*tier));
    let over = caps.map(|(tier, cap)| (tier, over(context.counted_against(tier), cap)));
    over.filter(|(_, over)| *over > Tokens(0))
}

fn over(tokens: Tokens, limit: Tokens) -> Tokens {
    Tokens(tokens.0.saturating_sub(limit.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::SegmentEdit,
        notation::context,
        reducers::{AnyReducer, default_pipeline},
    };

    const LOG: &str = r#"
user: Go.
assistant: 9 words of "said"
  thinking: 9 words of "hm"
  call get_order {"id":1}
  -> 40 words of "item"
user: Next.
assistant: Yes.
"#;

    #[test]
    fn only_reducers_that_serve_a_tier_over_its_cap_run() {
        let budget = Budget::new(Tokens(1_000)).with_cap(Tier::Reasoning, Tokens(5));
        let (reduced, steps) = default_pipeline().run(context(LOG), &budget, ReducerState::default());
        let step = ReductionStep {
            reducer: "drop_reasoning",
            cause: ReductionCause::Cap(Tier::Reasoning, Tokens(4)),
            before: Tokens(63),
            after: Tokens(54),
            replaced: 0,
            removed: 1,
        };
        assert_eq!(steps, [step]);
        assert!(is_met(&reduced.context, &budget));
    }

    #[test]
    fn every_tier_that_can_be_capped_is_served_by_someone() {
        let served = |tier| AnyReducer::all().iter().any(|reducer| reducer.serves(tier));
        for tier in
            [Tier::Prefix, Tier::Summaries, Tier::Dialogue, Tier::Reasoning, Tier::ToolResults, Tier::Media]
        {
            let budget = Budget::new(Tokens(1)).with_cap(tier, Tokens(1));
            assert_eq!(budget.cap_of(tier).is_some(), served(tier), "{tier:?}");
        }
    }

    /// Remembers how often it was run.
    #[derive(Debug)]
    struct Counting;

    impl Reducer for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
            let runs = state.of(self.name()).unwrap_or(0) + 1;
            ReducerOutput {
                context: context.edit(self.name(), |_, _| SegmentEdit::Keep),
                state: state.with(self.name(), runs),
            }
        }
    }

    #[test]
    fn what_a_reducer_remembers_comes_back_to_it() {
        let pipeline = Pipeline::new(vec![Box::new(Counting), Box::new(Counting)]);
        let (reduced, steps) = pipeline.run(context(LOG), &Budget::new(Tokens(0)), ReducerState::default());
        assert_eq!((reduced.state.of("counting"), steps.len()), (Some(2), 2));
        let json = serde_json::to_string(&reduced.state).unwrap();
        assert_eq!(serde_json::from_str::<ReducerState>(&json).unwrap(), reduced.state);
    }

    #[test]
    fn the_excess_is_the_larger_of_whole_and_tiers() {
        let budget = Budget::new(Tokens(60)).with_cap(Tier::ToolResults, Tokens(2));
        assert_eq!(excess(&context(LOG), &budget, |_| true), Tokens(40));
        assert_eq!(excess(&context(LOG), &budget, |_| false), Tokens(3));
    }
}
