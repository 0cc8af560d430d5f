//! Prunes tool results: the older ones in one large step, or none.
//!
//! **Trigger:** the context is over the target, or tool results over their cap. Walking back from the newest
//! segment, the last user turns are left alone, then the newest tokens of tool output before them; older
//! output is pruned, if that frees enough to be worth a change of sent content. The walk ends at the summary
//! the context stands on, or at a result that was pruned before. A pruned result is a short line; its media
//! go with it. A reference is as short already, and stays.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentBody, SegmentEdit, Tier},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::stub_text::StubWriter,
    tokens::Tokens,
};

/// Prunes tool results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prune {
    /// Number of newest user turns that are left alone: a user's message and everything until the next. By
    /// default 2.
    pub spare_user_turns: u64,
    /// Number of newest tokens of tool output before those turns that stay. By default 40 000.
    pub protect: Tokens,
    /// It acts only if it frees more tokens than this. By default 20 000.
    #[serde(alias = "at_least")]
    pub more_than: Tokens,
    /// Tools whose results stay and do not count. By default `skill`: its results are instructions.
    pub protected_tools: BTreeSet<String>,
}

impl Default for Prune {
    fn default() -> Self {
        Self {
            spare_user_turns: 2,
            protect: Tokens(40_000),
            more_than: Tokens(20_000),
            protected_tools: BTreeSet::from(["skill".to_owned()]),
        }
    }
}

impl Reducer for Prune {
    fn name(&self) -> &'static str {
        "prune"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        let pruned = self.chosen(&context);
        if pruned.is_empty() {
            return ReducerOutput { context, state };
        }
        let scribe = StubWriter::of(&context);
        let context = context.edit(self.name(), |index, segment| {
            if pruned.contains(&index) { scribe.result(segment, "pruned") } else { SegmentEdit::Keep }
        });
        ReducerOutput { context, state }
    }
}

impl Prune {
    /// The places of the results to prune; none if too little would be freed.
    fn chosen(&self, context: &Context) -> BTreeSet<usize> {
        let open = context.essential().open;
        let mut chosen = BTreeSet::new();
        let (mut seen, mut freed) = (Tokens(0), Tokens(0));
        for (index, segment) in self.before_the_newest_turns(context) {
            if matches!(segment.body(), SegmentBody::Summary(_)) || segment.last_author() == Some(self.name())
            {
                break;
            }
            if !self.is_prunable(segment) || open.contains(&index) || context.is_pinned(segment) {
                continue;
            }
            seen += segment.content_tokens();
            if seen > self.protect {
                freed += segment.content_tokens();
                chosen.insert(index);
            }
        }
        if freed <= self.more_than { BTreeSet::new() } else { chosen }
    }

    /// Segments older than the spared user turns, newest first.
    fn before_the_newest_turns<'c>(
        &self,
        context: &'c Context,
    ) -> impl Iterator<Item = (usize, &'c Segment)> {
        let mut turns = 0;
        let mut in_messages = false;
        let spared = self.spare_user_turns;
        context.segments().iter().enumerate().rev().skip_while(move |(_, segment)| {
            // Messages in a row are one turn.
            turns += u64::from(segment.is_user() && !in_messages);
            in_messages = segment.is_user();
            turns < spared || (turns == spared && in_messages)
        })
    }

    fn is_prunable(&self, segment: &Segment) -> bool {
        segment.shown().is_some()
            && segment.fidelity() <= Fidelity::Cut
            && segment.call().is_some_and(|call| !self.protected_tools.contains(&call.name.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reducers::testing::reduced;

    /// A user turn with one result of so many words.
    fn turn(words: usize) -> String {
        format!("user: Go.\nassistant:\n  call bash {{}}\n  -> {words} words of \"x\"\n")
    }

    fn check(prune: &Prune, turns: &[usize], expect: &[u64]) {
        let log: String = turns.iter().map(|words| turn(*words)).collect();
        let context = reduced(prune, 0, &log);
        let pruned = context.segments().iter().filter(|segment| segment.last_author() == Some("prune"));
        let found: Vec<u64> = pruned.map(Segment::turn).collect();
        assert_eq!(found, expect, "{turns:?}");
    }

    #[test]
    fn the_numbers_of_the_reference_hold() {
        let prune = Prune::default();
        // The last two user turns are left alone, and do not count.
        check(&prune, &[30_000, 40_000, 90_000, 90_000], &[0]);
        check(&prune, &[30_000, 40_001, 90_000, 90_000], &[0, 1]);
        // Up to 20 000 is not worth it.
        check(&prune, &[20_000, 40_000, 1, 1], &[]);
        check(&prune, &[20_001, 40_000, 1, 1], &[0]);
    }

    #[test]
    fn messages_in_a_row_are_one_user_turn() {
        let prune = Prune { protect: Tokens(0), more_than: Tokens(1), ..Prune::default() };
        let log = format!("{}user: One.\nassistant: Yes.\nuser: Two.\nuser: Two more.\n", turn(50));
        assert_eq!(reduced(&prune, 0, &log).changes().replaced, 1);
        let log = format!("{}user: Two.\nuser: Two more.\n", turn(50));
        assert_eq!(reduced(&prune, 0, &log).changes().replaced, 0);
    }

    #[test]
    fn the_walk_ends_where_an_earlier_one_pruned() {
        let all = Prune { protect: Tokens(0), more_than: Tokens(1), spare_user_turns: 1, ..Prune::default() };
        let log =
            format!("{}{}assistant: Done.\nuser: Thanks.\n", turn(50).replace("bash", "skill"), turn(50));
        let pruned = reduced(&all, 0, &log);
        assert_eq!(pruned.changes().replaced, 1, "a skill's result is protected");
        let unprotected = Prune { protected_tools: BTreeSet::new(), ..all };
        let again = unprotected.reduce(pruned, &Budget::new(Tokens(0)), ReducerState::default());
        assert_eq!(again.context.changes().replaced, 1, "beyond a pruned result nobody looks");
        assert_eq!(reduced(&unprotected, 0, &log).changes().replaced, 2);
    }

    #[test]
    fn without_any_user_turn_to_spare_nothing_is_pruned() {
        let log = "assistant:\n  call bash {}\n  -> 50 words of \"x\"\nassistant: Done.\n";
        let prune = Prune { protect: Tokens(0), more_than: Tokens(1), ..Prune::default() };
        assert_eq!(reduced(&prune, 0, log).changes().replaced, 0);
    }
}
