//! Drops the model's reasoning, as far as its provider allows.
//!
//! **Trigger:** the context is over the target, or reasoning over its cap. What was reasoned before the newest message of
//! the user goes; the loop that is still going keeps it, since providers want it back byte for byte while tools are at
//! work. Reasoning that is bound to everything before it may only go all at once, or not at all: the scope says so.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Edit, Segment, Tier},
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
    /// All but that of answers that called tools: the provider wants it back in every later request.
    KeepWithCalls,
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
            ReasoningScope::All | ReasoningScope::KeepWithCalls => context.segments().len(),
            ReasoningScope::KeepOpenLoop => context.essential().loop_start(),
            ReasoningScope::Never => 0,
        };
        let called: HashSet<u64> = match self.scope {
            ReasoningScope::KeepWithCalls => {
                let calls = context.segments().iter().filter(|segment| segment.call().is_some());
                calls.map(Segment::turn).collect()
            }
            ReasoningScope::All | ReasoningScope::KeepOpenLoop | ReasoningScope::Never => HashSet::new(),
        };
        let pinned: Vec<bool> = context.segments().iter().map(|segment| context.is_pinned(segment)).collect();
        let context = context.edit(self.name(), |index, segment| {
            let stays = index >= end || pinned[index] || called.contains(&segment.turn());
            let goes = segment.tier() == Tier::Reasoning && !stays;
            if goes { Edit::Drop } else { Edit::Keep }
        });
        Reduced { context, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reducers::testing::reduced;

    const LOG: &str = "
user: One.
assistant: Yes.
  thinking: before
user: Two.
assistant:
  thinking: first in the loop
  call bash {}
  -> done
assistant:
  thinking: second in the loop
  call bash {}
  -> done
";

    fn check(scope: ReasoningScope, log: &str, expect: u64) {
        assert_eq!(reduced(&DropReasoning { scope }, 0, log).changes().removed, expect, "{scope:?}");
    }

    #[test]
    fn the_scope_says_what_goes() {
        check(ReasoningScope::KeepOpenLoop, LOG, 1);
        check(ReasoningScope::All, LOG, 3);
        check(ReasoningScope::KeepWithCalls, LOG, 1);
        check(ReasoningScope::Never, LOG, 0);
    }

    #[test]
    fn a_message_in_the_middle_of_a_loop_does_not_cost_the_open_exchange_its_reasoning() {
        check(ReasoningScope::KeepOpenLoop, &format!("{LOG}user: Wait.\n"), 2);
    }

    #[test]
    fn without_a_message_of_the_user_everything_is_one_loop() {
        check(ReasoningScope::KeepOpenLoop, "assistant: Hm.\n  thinking: alone\n", 1);
    }
}
