//! Drops the model's reasoning, as far as its provider allows.
//!
//! **Trigger:** the context is over the target, or reasoning over its cap. Reasoning before the newest
//! message of the user goes; the loop in progress keeps its own, because providers want it back byte for byte
//! while tools are at work. The scope limits the reasoning that may go, and the rules of the model may allow
//! less: a policy's reducers are made for a model by [`AnyReducer::for_rules`](super::AnyReducer::for_rules).
//! Reasoning that is bound to everything before it may go from the beginning, and that is where this reducer
//! takes it from.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Segment, SegmentEdit, Tier},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    profile::ProviderRule,
};

/// Drops the model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropReasoning {
    /// Reasoning that may go.
    pub scope: ReasoningScope,
}

/// Reasoning that may go. Each scope goes at least as far as the next.
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
    /// No reasoning at all: the provider wants all of it back.
    Never,
}

impl ReasoningScope {
    /// The same, or less if that is all that a model's rules allow.
    pub fn narrowed_by(self, rules: &BTreeSet<ProviderRule>) -> Self {
        self.max(rules.iter().map(|rule| Self::allowed_by(*rule)).max().unwrap_or(Self::All))
    }

    /// Scope that one rule allows.
    fn allowed_by(rule: ProviderRule) -> Self {
        match rule {
            ProviderRule::ReasoningReturned => Self::KeepWithCalls,
            // The thinking of a loop, and content that a call was signed over, must be there until the loop
            // has ended.
            ProviderRule::ThinkingStaysInOpenLoop
            | ProviderRule::PreservedThinking
            | ProviderRule::ReasoningStaysWithItem
            | ProviderRule::CallsSigned => Self::KeepOpenLoop,
            ProviderRule::RolesAlternate
            | ProviderRule::FirstIsUser
            | ProviderRule::CallsAnswered
            | ProviderRule::ResultsFirst
            | ProviderRule::NoEmptyText
            | ProviderRule::ThinkingVerbatim
            | ProviderRule::CompactionItemOpaque
            | ProviderRule::PrefillRefused => Self::All,
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

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
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
            if goes { SegmentEdit::Drop } else { SegmentEdit::Keep }
        });
        ReducerOutput { context, state }
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
        let check = |scope: ReasoningScope, rules: &[ProviderRule], expect| {
            assert_eq!(scope.narrowed_by(&rules.iter().copied().collect()), expect, "{scope:?} {rules:?}");
        };
        check(All, &[], All);
        check(All, &[ProviderRule::CallsAnswered, ProviderRule::RolesAlternate], All);
        check(All, &[ProviderRule::ThinkingStaysInOpenLoop], KeepOpenLoop);
        check(All, &[ProviderRule::PreservedThinking], KeepOpenLoop);
        check(All, &[ProviderRule::CallsSigned], KeepOpenLoop);
        check(KeepOpenLoop, &[ProviderRule::ReasoningReturned, ProviderRule::CallsSigned], KeepWithCalls);
        check(Never, &[ProviderRule::ReasoningReturned], Never);
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
