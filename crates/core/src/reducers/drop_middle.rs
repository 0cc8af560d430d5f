//! Drops the middle: the last resort, which always reaches the essential set.
//!
//! **Trigger:** the context is over the target. The agent's texts and calls go first, oldest turn first,
//! until the target is met; the user's messages stay, with a line between them that names the events that
//! went. Only if that leaves the context nearer to the ceiling than to the target do others follow, down to
//! the target: additions of hooks to the current loop, of which only the newest of each hook is worth more
//! than the work, then the user's messages, oldest first and the very first of them never. If even that is
//! over the ceiling, everything goes that is not essential, if need be without a line. Segments that went
//! only to make room for something large that had to go as well come back, the newest first, as far as the
//! target allows.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, SegmentEdit},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::fold_oldest::{FoldMeasure, FoldReach, FoldRule, FoldStage, folded_through},
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

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        // A reduction that leaves little room below the ceiling is soon followed by the next, and each costs the
        // provider's cache: more goes, and then down to the target, if less than half of that room is free.
        let (target, ceiling) = (budget.target(), budget.ceiling());
        let half_way = Tokens(target.0.midpoint(ceiling.0));
        let folding = FoldRule {
            by: self.name(),
            within: (Bound::Unbounded, Bound::Unbounded),
            measure: FoldMeasure::Whole,
        };
        let mut context = folding.fold(
            context,
            &[
                FoldStage { reach: FoldReach::Work, goal: target, enough: half_way },
                FoldStage { reach: FoldReach::Added, goal: target, enough: half_way },
                FoldStage { reach: FoldReach::Messages, goal: target, enough: ceiling },
                FoldStage::until(FoldReach::Everything, ceiling),
            ],
        );
        if context.tokens() > budget.ceiling() {
            let essential = context.essential();
            context = context.edit(self.name(), |index, _| {
                if essential.contains(index) { SegmentEdit::Keep } else { SegmentEdit::Drop }
            });
        }
        let state = match folded_through(&context, self.name()) {
            Some(floor) => state.with(self.name(), floor),
            None => state,
        };
        ReducerOutput { context, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::{context, show};

    const LOG: &str = r#"
system: Rules.
user: The task.
assistant: 20 words of "one"
instruct: Speak French.
user: 20 words of "second"
assistant: 20 words of "two"
compacted through 1 keep 2: Before.
user: Go on.
assistant: On it.
  call bash {"command":"a"}
  -> 5 words of "a"
"#;

    fn at(ceiling: u64) -> String {
        let budget = Budget::new(Tokens(ceiling));
        show(&DropMiddle::default().reduce(context(LOG), &budget, ReducerState::default()).context)
    }

    #[test]
    fn work_goes_before_messages() {
        insta::assert_snapshot!(at(75), @r#"
        prefix      1       verbatim      1  Rules.
        summary     7       summary       1  Before.
        user        2       verbatim      2  The task.
        note        3       summary      11 by drop_middle  [1 turn is not shown: 1 message; 20 tokens; message 3]
        instruction 4       verbatim      2  Speak French.
        user        5       verbatim     20  second second second second second second second second second second second second second second second second second second second second
        answer      6       verbatim     20  two two two two two two two two two two two two two two two two two two two two
        user        8       verbatim      2  Go on.
        answer      9       verbatim      2  On it.
        exchange    9-10    verbatim      7  bash {"command":"a"} -> a a a a a
        total 68
        "#);
    }

    #[test]
    fn messages_go_before_the_task_the_summary_and_instructions() {
        insta::assert_snapshot!(at(50), @r#"
        prefix      1       verbatim      1  Rules.
        summary     7       summary       1  Before.
        user        2       verbatim      2  The task.
        note        3       summary      11 by drop_middle  [1 turn is not shown: 1 message; 20 tokens; message 3]
        instruction 4       verbatim      2  Speak French.
        note        5-6     summary      15 by drop_middle  [1 turn is not shown: 2 messages, 1 from the user; 40 tokens; messages 5-6]
        user        8       verbatim      2  Go on.
        answer      9       verbatim      2  On it.
        exchange    9-10    verbatim      7  bash {"command":"a"} -> a a a a a
        total 43
        "#);
    }

    /// A log whose summary and message take more than the available room.
    const LARGE: &str = r#"
user: The task.
compacted through 1: 60 words of "sum"
user: 60 words of "paste"
assistant: 20 words of "one"
assistant: 20 words of "two"
user: Go on.
assistant: 20 words of "three"
user: And?
"#;

    #[test]
    fn what_went_in_vain_comes_back_in_the_order_of_its_worth() {
        for (ceiling, least) in [(130, 110), (100, 80), (70, 50), (50, 30)] {
            let reduced = DropMiddle::default().reduce(
                context(LARGE),
                &Budget::new(Tokens(ceiling)),
                ReducerState::default(),
            );
            let tokens = reduced.context.tokens();
            let shown = show(&reduced.context);
            assert!(Tokens(least) <= tokens && tokens <= Tokens(ceiling), "at {ceiling}:\n{shown}");
        }
    }

    #[test]
    fn a_summary_that_goes_is_told_apart_from_messages() {
        let log = "user: One.\nassistant: Yes.\nuser: Two.\ncompacted through 2 keep 3: 30 words of \"sum\"\nuser: Now.\n";
        let budget = Budget::new(Tokens(20));
        let reduced = DropMiddle::default().reduce(context(log), &budget, ReducerState::default());
        insta::assert_snapshot!(show(&reduced.context), @r"
        note        1-2, 4  summary      12 by drop_middle  [a summary of 2 messages is not shown; 30 tokens; messages 1-2]
        user        3       verbatim      1  Two.
        user        5       verbatim      1  Now.
        total 14
        ");
        let log = format!("{log}assistant: 30 words of \"x\"\nuser: And?\n");
        let budget = Budget::new(Tokens(25));
        let reduced = DropMiddle::default().reduce(context(&log), &budget, ReducerState::default());
        insta::assert_snapshot!(show(&reduced.context), @r"
        note        1-6     summary      21 by drop_middle  [1 turn is not shown: 3 messages, 2 from the user, and a summary of 2 messages; 62 tokens; messages 1-6]
        user        7       verbatim      1  And?
        total 22
        ");
    }

    #[test]
    fn everything_goes_before_what_is_essential_if_need_be_without_a_line() {
        insta::assert_snapshot!(at(32), @r#"
        prefix      1       verbatim      1  Rules.
        note        2-7     summary      20 by drop_middle  [2 turns are not shown: 5 messages, 2 from the user, and a summary; 65 tokens; messages 2-6] /  / Speak French.
        user        8       verbatim      2  Go on.
        answer      9       verbatim      2  On it.
        exchange    9-10    verbatim      7  bash {"command":"a"} -> a a a a a
        total 32
        "#);
        insta::assert_snapshot!(at(0), @r#"
        prefix      1       verbatim      1  Rules.
        note        2-7     summary       2 by drop_middle  Speak French.
        user        8       verbatim      2  Go on.
        answer      9       verbatim      2  On it.
        exchange    9-10    verbatim      7  bash {"command":"a"} -> a a a a a
        total 14
        "#);
    }
}
