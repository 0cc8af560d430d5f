//! Drops the model's reasoning, as far as its provider allows.
//!
//! **Trigger:** the context is over the target, or reasoning over its cap. What was reasoned before the newest message of
//! the user goes; the loop that is still going keeps it, since providers want it back byte for byte while tools are at
//! work. Reasoning that is bound to everything before it may only go all at once, or not at all: the scope says so.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Edit, Tier},
    pipeline::{Reduced, Reducer, State},
};

/// Drops the model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropReasoning {
    /// What may go.
    pub scope: ReasoningScope,
}

/// What reasoning may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningScope {
    /// All of it: the provider does without, or another model takes over.
    All,
    /// All but that of the loop that is still going.
    #[default]
    KeepOpenLoop,
    /// None: the provider wants every bit of it back.
    Never,
}

impl Reducer for DropReasoning {
    fn name(&self) -> &'static str {
        "drop_reasoning"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::Reasoning
    }

    fn reduce(&self, context: Context, _: &Budget, state: State) -> Reduced {
        let end = match self.scope {
            ReasoningScope::All => context.segments().len(),
            ReasoningScope::KeepOpenLoop => context.essential().loop_start(),
            ReasoningScope::Never => 0,
        };
        let pinned: Vec<bool> = context.segments().iter().map(|segment| context.is_pinned(segment)).collect();
        let context = context.edit(self.name(), |index, segment| {
            let goes = segment.tier() == Tier::Reasoning && index < end && !pinned[index];
            if goes { Edit::Drop } else { Edit::Keep }
        });
        Reduced { context, state }
    }
}
