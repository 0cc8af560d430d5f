//! Summarises turns: what was done becomes a line a turn, oldest first.
//!
//! **Trigger:** the context is over the target. The turns of earlier requests and those in the middle of the newest one get
//! a line each, which says what was asked and called, what came of it, and how to get it back; no more turns than the
//! target needs. The first and the most recent turns of the newest request stay, and messages of the user do everywhere.
//! Where no line is shorter than its turn, nothing changes.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::Context,
    loop_blocks::{BlockConfig, LoopChain, LoopRecord, TurnOverlay, overlay_turns},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    tokens::Tokens,
};

/// Summarises turns, a line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SummariseTurns {
    /// Number of turns that stay at the beginning of the newest request's work. By default 2.
    pub keep_first_turns: usize,
    /// Number of turns that stay at its end. By default 10.
    pub keep_recent_turns: usize,
    /// Most tokens for the lines that stand for the turns of a request. By default 2 000.
    pub max_summary_tokens: Tokens,
    /// True if users' messages stay word for word, as they do by default. Otherwise they are part of the line of their turn.
    pub keep_user_messages: bool,
}

impl Default for SummariseTurns {
    fn default() -> Self {
        let BlockConfig { keep_first_turns, keep_recent_turns, max_summary_tokens, .. } =
            BlockConfig::default();
        Self { keep_first_turns, keep_recent_turns, max_summary_tokens, keep_user_messages: true }
    }
}

impl SummariseTurns {
    fn config(&self) -> BlockConfig {
        BlockConfig {
            keep_first_turns: self.keep_first_turns,
            keep_recent_turns: self.keep_recent_turns,
            max_summary_tokens: self.max_summary_tokens,
            keep_user_messages: self.keep_user_messages,
            ..BlockConfig::default()
        }
    }

    /// The turns of each loop that may be summarised, oldest loop first.
    fn candidates(&self, chain: &LoopChain<'_>) -> Vec<TurnOverlay> {
        let records: Vec<LoopRecord<'_>> = chain.records().collect();
        let newest = records.len().saturating_sub(1);
        let turns = records.iter().enumerate().map(|(place, record)| {
            let turns = record.turns().turn_count();
            let range = if place == newest {
                self.keep_first_turns..turns.saturating_sub(self.keep_recent_turns)
            } else {
                0..turns
            };
            TurnOverlay { places: record.places(), turns: range }
        });
        turns.filter(|overlay| !overlay.turns.is_empty()).collect()
    }
}

/// The oldest `count` turns of some.
fn oldest(candidates: &[TurnOverlay], count: usize) -> Vec<TurnOverlay> {
    let mut left = count;
    let mut chosen = Vec::new();
    for TurnOverlay { places, turns } in candidates {
        let taken = turns.len().min(left);
        if taken == 0 {
            break;
        }
        left -= taken;
        chosen.push(TurnOverlay { places: places.clone(), turns: turns.start..turns.start + taken });
    }
    chosen
}

impl Reducer for SummariseTurns {
    fn name(&self) -> &'static str {
        "summarise_turns"
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let candidates = self.candidates(&LoopChain::of(&context));
        let all: usize = candidates.iter().map(|overlay| overlay.turns.len()).sum();
        let config = self.config();
        let summarised = |count| overlay_turns(self.name(), &context, &oldest(&candidates, count), &config);
        // The fewest turns that reach the target, or all.
        let (mut least, mut most) = (0, all);
        while least < most {
            let half = least.midpoint(most);
            if summarised(half).tokens() <= budget.target() { most = half } else { least = half + 1 }
        }
        let context = summarised(most);
        ReducerOutput { context, state }
    }
}
