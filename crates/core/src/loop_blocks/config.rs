//! Settings for when and how blocks are made.

use serde::{Deserialize, Serialize};

use crate::{loop_blocks::StrategySetting, profile::Share, tokens::Tokens};

/// Settings for when and how blocks are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockConfig {
    /// The part of the window at which the headroom is measured. By default 0.90.
    pub compact_at_pct: Share,
    /// The least headroom, as a part of the window. By default 0.05.
    pub compact_budget_threshold_pct: Share,
    /// Number of earlier loops that are summarised turn by turn. By default three.
    pub compaction_scope: CompactionScope,
    /// Number of turns of the most recent loop that stay unchanged at its beginning. By default 2.
    pub keep_first_turns: usize,
    /// Number of turns of the most recent loop that stay at its end. By default 10.
    pub keep_recent_turns: usize,
    /// Most tokens for the lines that stand for the turns of a loop. By default 2 000.
    pub max_summary_tokens: Tokens,
    /// Number of lines that are kept of an output in the recent turns. By default 50.
    pub tool_output_max_lines: usize,
    /// True if users' messages stay word for word in the loops that are summarised turn by turn. By default
    /// they are part of the line of their turn.
    pub keep_user_messages: bool,
    /// Strategy that summarises a loop. It is code, and so it is not serialised.
    #[serde(skip)]
    pub block_strategy: StrategySetting,
}

/// Number of earlier loops that are summarised turn by turn. Loops beyond share one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionScope {
    /// So many.
    FixedCount(usize),
    /// As many as the window holds once they are summarised: their originals may be larger than it.
    TokenBudget,
}

impl Default for CompactionScope {
    fn default() -> Self {
        Self::FixedCount(3)
    }
}

impl Default for BlockConfig {
    fn default() -> Self {
        Self {
            compact_at_pct: Share::percent(90),
            compact_budget_threshold_pct: Share::percent(5),
            compaction_scope: CompactionScope::default(),
            keep_first_turns: 2,
            keep_recent_turns: 10,
            max_summary_tokens: Tokens(2_000),
            tool_output_max_lines: 50,
            keep_user_messages: false,
            block_strategy: StrategySetting::default(),
        }
    }
}

impl BlockConfig {
    /// The most that a context may use of a window without being compacted: above it, the space left up to the mark is
    /// less than the least headroom. A policy with these blocks acts there, unless it has a trigger of its own.
    pub fn trigger(&self, max_context_tokens: Tokens) -> Tokens {
        let mark = self.compact_at_pct.of(max_context_tokens);
        mark.less(self.compact_budget_threshold_pct.of(max_context_tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_design() {
        let json = serde_json::to_string_pretty(&BlockConfig::default()).unwrap();
        insta::assert_snapshot!(json, @r#"
        {
          "compact_at_pct": 0.9,
          "compact_budget_threshold_pct": 0.05,
          "compaction_scope": {
            "fixed_count": 3
          },
          "keep_first_turns": 2,
          "keep_recent_turns": 10,
          "max_summary_tokens": 2000,
          "tool_output_max_lines": 50,
          "keep_user_messages": false
        }
        "#);
        assert_eq!(serde_json::from_str::<BlockConfig>(&json).unwrap(), BlockConfig::default());
        assert_eq!(toml::from_str::<BlockConfig>("").unwrap(), BlockConfig::default());
    }

    #[test]
    fn a_scope_is_written_as_a_number_of_loops_or_by_name() {
        let scope = |toml: &str| toml::from_str::<BlockConfig>(toml).map(|config| config.compaction_scope);
        assert_eq!(scope("compaction_scope = { fixed_count = 7 }").unwrap(), CompactionScope::FixedCount(7));
        assert_eq!(scope("compaction_scope = \"token_budget\"").unwrap(), CompactionScope::TokenBudget);
        assert!(scope("compaction_scop = \"token_budget\"").is_err());
        assert!(scope("compact_at_pct = 90").is_err());
    }

    #[test]
    fn it_fires_when_the_headroom_falls_below_the_threshold() {
        let config = BlockConfig::default();
        let check = |used, max, expect| {
            assert_eq!(Tokens(used) > config.trigger(Tokens(max)), expect, "{used} of {max}");
        };
        check(850, 1_000, false);
        check(851, 1_000, true);
        check(5_000, 1_000, true);
        check(0, 0, false);
        check(1, 0, true);
        check(170_000, 200_000, false);
        check(170_001, 200_000, true);
        check(u64::MAX - 1, u64::MAX, true);
        let eager = BlockConfig { compact_at_pct: Share::percent(4), ..config };
        assert_eq!(eager.trigger(Tokens(1_000)), Tokens(0), "an empty context has nothing to compact");
    }
}
