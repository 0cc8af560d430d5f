//! Puts blocks over loops: old requests become a line a turn, and in the end one line.
//!
//! **Trigger:** the context is over the target; a policy sets the time of that in its [`BlockConfig`]. The
//! most recent loop keeps its first and its recent turns, the latter with long outputs cut; the turns between
//! them, and those of earlier loops within the scope, become a line each; loops beyond the scope share one
//! line. It does all of it at once, regardless of the target: existing lines stay as they are, so that the
//! next time is free.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::Context,
    loop_blocks::{BlockConfig, build_context, compact_loops},
    pipeline::{Reducer, ReducerOutput, ReducerState},
};

/// Puts blocks over loops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Blocks(pub BlockConfig);

impl Reducer for Blocks {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let overlay = compact_loops(&context, &self.0, budget.ceiling());
        ReducerOutput { context: build_context(context, &overlay), state }
    }
}
