//! Drops the model's reasoning, as far as its provider allows.
//!
//! **Trigger:** the context is over the target, or reasoning over its cap. What was reasoned before the newest message of
//! the user goes; the loop that is still going keeps it, since providers want it back byte for byte while tools are at
//! work. The scope says what may go, and the rules of the model that is asked may allow less: a policy's reducers are
//! made for a model by [`AnyReducer::for_rules`](super::AnyReducer::for_rules). Reasoning that is bound to everything
//! before it may go from the beginning, and that is where this takes it from.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Edit, Segment, Tier},
    pipeline::{Reduced, Reducer, State},
    profile::Rule,
};

/// Drops the model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropReasoning {
    /// What may go.
    pub scope: ReasoningScope,
}

/// What reasoning may go. Each may go further than the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningScope {
    /// All of it: the provider does without, or another model takes over.
    All,
    /// All but that of the loop that is still going.
    #[default]
    KeepOpenLoop,
    /// All but that of the loop that is still going and of answers that called tools: the provider wants it back in every
    /// later request.
    KeepWithCalls,
    /// None: the provider wants every bit of it back.
    Never,
}

impl ReasoningScope {
    /// The same, or less if that is all that a model's rules allow.
    pub fn under(self, rules: &BTreeSet<Rule>) -> Self {
        self.max(rules.iter().map(|rule| Self::allowed_by(*rule)).max().unwrap_or(Self::All))
    }

    /// What one rule leaves to go.
    fn allowed_by(rule: Rule) -> Self {
        match rule {
            Rule::ReasoningReturned => Self::KeepWithCalls,
            // The thinking of a loop, and what a call was signed over, must be there until the loop has ended.
            Rule::ThinkingStaysInOpenLoop
            | Rule::PreservedThinking
            | Rule::ReasoningStaysWithItem
            | Rule::CallsSigned => Self::KeepOpenLoop,
            Rule::RolesAlternate
            | Rule::FirstIsUser
            | Rule::CallsAnswered
            | Rule::ResultsFirst
            | Rule::NoEmptyText
            | Rule::ThinkingVerbatim
            | Rule::CompactionItemOpaque
            | Rule::PrefillRefused => Self::All,
        }
    }
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
            ReasoningScope::KeepOpenLoop | ReasoningScope::KeepWithCalls => context.essential().loop_start(),
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
        let ended = format!("{LOG}assistant: Done.\n  thinking: at the end\nuser: Three.\n");
        check(ReasoningScope::KeepOpenLoop, &ended, 4);
        check(ReasoningScope::KeepWithCalls, &ended, 2);
    }

    #[test]
    fn the_rules_of_a_model_may_allow_less_than_the_scope_and_never_more() {
        use ReasoningScope::{All, KeepOpenLoop, KeepWithCalls, Never};
        let check = |scope: ReasoningScope, rules: &[Rule], expect| {
            assert_eq!(scope.under(&rules.iter().copied().collect()), expect, "{scope:?} {rules:?}");
        };
        check(All, &[], All);
        check(All, &[Rule::CallsAnswered, Rule::RolesAlternate], All);
        check(All, &[Rule::ThinkingStaysInOpenLoop], KeepOpenLoop);
        check(All, &[Rule::PreservedThinking], KeepOpenLoop);
        check(All, &[Rule::CallsSigned], KeepOpenLoop);
        check(KeepOpenLoop, &[Rule::ReasoningReturned, Rule::CallsSigned], KeepWithCalls);
        check(Never, &[Rule::ReasoningReturned], Never);
        check(KeepWithCalls, &[], KeepWithCalls);
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
