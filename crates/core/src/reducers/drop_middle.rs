//! Drops the middle: the last resort, which always reaches the essential set.
//!
//! **Trigger:** the context is over the target. What the agent said and did goes first, oldest turn first, until the
//! target is met; the user's messages stay, with a line between them that says what went. Only if that leaves the
//! context over the ceiling do the user's messages go too, oldest first and the very first of them last, and in the end
//! everything that is not essential, if need be without a line.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Edit},
    pipeline::{Reduced, Reducer, State},
    reducers::fold_oldest::{Folding, Measure, Reach, Worth, fold_oldest, folded_through},
    tokens::Tokens,
};

/// Drops the middle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropMiddle {}

impl Reducer for DropMiddle {
    fn name(&self) -> &'static str {
        "drop_middle"
    }

    fn reduce(&self, context: Context, budget: &Budget, state: State) -> Reduced {
        let mut context = self.fold(context, Reach::Work, budget.target());
        for reach in [Reach::Messages, Reach::Everything] {
            if context.tokens() > budget.ceiling() {
                context = self.fold(context, reach, budget.ceiling());
            }
        }
        if context.tokens() > budget.ceiling() {
            let essential = context.essential();
            context =
                context.edit(
                    self.name(),
                    |index, _| {
                        if essential.contains(index) { Edit::Keep } else { Edit::Drop }
                    },
                );
        }
        let state = match folded_through(&context, self.name()) {
            Some(floor) => state.with(self.name(), floor),
            None => state,
        };
        Reduced { context, state }
    }
}

impl DropMiddle {
    fn fold(&self, context: Context, reach: Reach, goal: Tokens) -> Context {
        let worth = Worth::of(&context);
        let within = 0..context.segments().len();
        fold_oldest(
            context,
            &Folding { by: self.name(), within, worth: &worth, reach, measure: Measure::Whole, goal },
        )
    }
}
