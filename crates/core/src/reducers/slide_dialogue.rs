//! Slides the dialogue: a cap on turns or on tokens, beyond which the oldest turns become a line.
//!
//! **Trigger:** the context is over the target, or the dialogue over its cap. Without a cap of its own or one
//! on the dialogue it does nothing. The agent's texts and calls in the turns beyond the cap fold into one
//! line between the user's messages, which stay as long as the cap on tokens allows; then they go too, oldest
//! first. The newest turn and essential segments always stay.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Segment, Tier},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::fold_oldest::{FoldMeasure, FoldReach, FoldRule, FoldStage, folded_through},
    tokens::Tokens,
};

/// Slides the dialogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlideDialogue {
    /// Number of turns that stay. By default there is no cap on turns.
    pub max_turns: Option<u64>,
    /// Number of tokens that stay, the prefix aside. By default there is no cap on tokens.
    pub max_tokens: Option<Tokens>,
}

impl Reducer for SlideDialogue {
    fn name(&self) -> &'static str {
        "slide_dialogue"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::Dialogue
    }

    fn reduce(&self, mut context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        if let Some(turns) = self.max_turns {
            let first_kept = (context.last_turn() + 1).saturating_sub(turns.max(1));
            let all = FoldStage::until(FoldReach::Work, Tokens(0));
            context = self.fold(context, first_kept, FoldMeasure::Whole, &[all]);
        }
        let newest = context.last_turn();
        let reaches = [FoldReach::Work, FoldReach::Added, FoldReach::Messages];
        if let Some(tokens) = self.max_tokens {
            let goal = tokens + context.tier_tokens(Tier::Prefix) + context.meter().overhead().request;
            let stages = reaches.map(|reach| FoldStage::until(reach, goal));
            context = self.fold(context, newest, FoldMeasure::Whole, &stages);
        }
        if let Some(cap) = budget.cap_of(Tier::Dialogue) {
            let stages = reaches.map(|reach| FoldStage::until(reach, cap));
            context = self.fold(context, newest, FoldMeasure::Tier(Tier::Dialogue), &stages);
        }
        let state = match folded_through(&context, self.name()) {
            Some(floor) => state.with(self.name(), floor),
            None => state,
        };
        ReducerOutput { context, state }
    }
}

impl SlideDialogue {
    /// Folds turns before `first_kept`, oldest first, until the goal is met.
    fn fold(&self, context: Context, first_kept: u64, measure: FoldMeasure, stages: &[FoldStage]) -> Context {
        let history = context.segments().iter().skip(context.prefix_len());
        let kept = history.skip_while(|segment| segment.turn() < first_kept).map(Segment::key).next();
        let end = kept.map_or(Bound::Unbounded, Bound::Excluded);
        FoldRule { by: self.name(), within: (Bound::Unbounded, end), measure }.fold(context, stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::{context, show},
        reducers::testing::{reduced, shown},
    };

    const LOG: &str = r#"
system: Rules.
user: One.
assistant: 20 words of "one"
  call bash {"command":"a"}
  -> 20 words of "a"
assistant: 20 words of "more"
user: Two.
assistant: 20 words of "two"
user: Three.
"#;

    #[test]
    fn without_a_cap_nothing_slides() {
        assert_eq!(reduced(&SlideDialogue::default(), 0, LOG).changes().removed, 0);
    }

    #[test]
    fn sliding_on_folds_the_notes_too_and_adds_them_up() {
        let slide = SlideDialogue { max_turns: Some(2), max_tokens: None };
        let budget = Budget::new(Tokens(0));
        let once = slide.reduce(context(LOG), &budget, ReducerState::default());
        assert_eq!(once.state.of("slide_dialogue"), Some(5));
        let slide = SlideDialogue { max_turns: None, max_tokens: Some(Tokens(20)) };
        let twice = slide.reduce(once.context, &budget, once.state);
        insta::assert_snapshot!(show(&twice.context), @r"
        prefix      1       verbatim      1  Rules.
        user        2       verbatim      1  One.
        note        3-7     summary      18 by slide_dialogue  [3 turns are not shown: 5 messages, 1 from the user, calls: bash ×1; 83 tokens; messages 3-7]
        user        8       verbatim      1  Three.
        total 21
        ");
        assert_eq!(twice.state.of("slide_dialogue"), Some(7));
    }

    #[test]
    fn no_cap_is_so_small_that_the_newest_turn_goes() {
        let slide = SlideDialogue { max_turns: Some(0), max_tokens: Some(Tokens(0)) };
        insta::assert_snapshot!(shown(&slide, 0, LOG), @r"
        prefix      1       verbatim      1  Rules.
        user        2       verbatim      1  One.
        note        3-7     summary      18 by slide_dialogue  [3 turns are not shown: 5 messages, 1 from the user, calls: bash ×1; 83 tokens; messages 3-7]
        user        8       verbatim      1  Three.
        total 21
        ");
    }
}
