//! Compaction without a session: everything that is shown goes in, and what is to be shown comes out.
//!
//! A caller who keeps no log has nothing but its messages, so the strategy works on them alone, in memory. With a log a loop
//! gets an overlay beside its record instead, by a [`BlockStrategy`](crate::loop_blocks::BlockStrategy).

use std::{collections::BTreeSet, fmt::Debug};

use crate::{
    budget::Budget,
    context::Context,
    pipeline::{Pipeline, ReducerOutput, ReducerState, ReductionStep},
    profile::ProviderRule,
    reducers::{AnyReducer, default_reducers, pipeline_for},
};

/// Makes messages fit, in memory.
///
/// Pure, like a [`Reducer`](crate::pipeline::Reducer), and bound by the same rules: it changes a context only by
/// [`Context::edit`] and [`Context::fold`]. It need not reach the budget: [`fit`](crate::fit::fit()) brings what is left over
/// the ceiling under it, or says why that cannot be.
///
/// ```
/// use epitome_core::{
///     budget::Budget,
///     compaction_strategy::{CompactionStrategy, InMemoryCompaction},
///     context::Context,
///     pipeline::{ReducerOutput, ReducerState, ReductionStep},
///     reducers::{AnyReducer, DropMiddle, SummariseTurns},
/// };
///
/// /// Summarises turns before anything is cut.
/// #[derive(Debug)]
/// struct SummariesFirst;
///
/// impl CompactionStrategy for SummariesFirst {
///     fn name(&self) -> &'static str {
///         "summaries first"
///     }
///
///     fn compact(
///         &self,
///         messages: Context,
///         budget: &Budget,
///         state: ReducerState,
///     ) -> (ReducerOutput, Vec<ReductionStep>) {
///         let reducers = vec![
///             AnyReducer::SummariseTurns(SummariseTurns { keep_recent_turns: 4, ..SummariseTurns::default() }),
///             AnyReducer::DropMiddle(DropMiddle::default()),
///         ];
///         InMemoryCompaction { reducers, ..InMemoryCompaction::default() }.compact(messages, budget, state)
///     }
/// }
/// ```
pub trait CompactionStrategy: Debug + Send + Sync {
    /// Name of the strategy.
    fn name(&self) -> &'static str;

    /// Makes messages as small as the budget's target and caps ask, with a record of each step.
    fn compact(
        &self,
        messages: Context,
        budget: &Budget,
        state: ReducerState,
    ) -> (ReducerOutput, Vec<ReductionStep>);
}

/// The built-in strategy, in three levels that each run only if the one before was not enough: outputs are cut or
/// replaced by their names, turns are summarised in a line each, and the middle is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InMemoryCompaction {
    /// The reducers, in order.
    pub reducers: Vec<AnyReducer>,
    /// Rules of the provider that reducers heed.
    pub rules: BTreeSet<ProviderRule>,
}

impl Default for InMemoryCompaction {
    fn default() -> Self {
        Self { reducers: default_reducers(), rules: BTreeSet::new() }
    }
}

impl InMemoryCompaction {
    /// The same for a model that has these rules.
    #[must_use]
    pub fn for_rules(self, rules: &BTreeSet<ProviderRule>) -> Self {
        Self { rules: rules.clone(), ..self }
    }
}

impl CompactionStrategy for InMemoryCompaction {
    fn name(&self) -> &'static str {
        "in memory"
    }

    fn compact(
        &self,
        messages: Context,
        budget: &Budget,
        state: ReducerState,
    ) -> (ReducerOutput, Vec<ReductionStep>) {
        pipeline_for(self.reducers.clone(), &self.rules).run(messages, budget, state)
    }
}

/// A pipeline is a strategy as it is.
impl CompactionStrategy for Pipeline {
    fn name(&self) -> &'static str {
        "pipeline"
    }

    fn compact(
        &self,
        messages: Context,
        budget: &Budget,
        state: ReducerState,
    ) -> (ReducerOutput, Vec<ReductionStep>) {
        self.run(messages, budget, state)
    }
}
