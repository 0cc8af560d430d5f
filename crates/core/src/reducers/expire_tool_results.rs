//! Expires tool results: by age in turns or by count per tool, as a rule for the tool says or else the default.
//!
//! **Trigger:** the context is over the target, or tool results over their cap; then every result that its rule has
//! outlived expires. The pair stays: the model sees that it made the call, and does not make it again. Results that a
//! rule declares durable never expire, and neither do those of the newest turn, which the model is about to read. A
//! result that is a reference stays one: the line that would replace it is hardly shorter, and says less.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentEdit, Tier},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::stub_text::StubWriter,
};

/// Expires tool results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpireToolResults {
    /// Rule for tools without one of their own. By default 10 turns.
    pub default: ResultRetention,
    /// Rules by tool. By default `skill` is never evicted: its results are instructions.
    pub tools: BTreeMap<String, ResultRetention>,
}

/// Time that a result stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultRetention {
    /// For this many turns after the one it was returned in.
    Turns(u64),
    /// While it is among the last so many of its tool.
    Last(usize),
    /// For ever.
    NeverEvict,
}

impl Default for ExpireToolResults {
    fn default() -> Self {
        Self {
            default: ResultRetention::Turns(10),
            tools: BTreeMap::from([("skill".to_owned(), ResultRetention::NeverEvict)]),
        }
    }
}

impl Reducer for ExpireToolResults {
    fn name(&self) -> &'static str {
        "expire_tool_results"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, _: &Budget, state: ReducerState) -> ReducerOutput {
        let expired = self.expired(&context);
        let scribe = StubWriter::of(&context);
        let context = context.edit(self.name(), |index, segment| {
            if expired.contains(&index) { scribe.result(segment, "expired") } else { SegmentEdit::Keep }
        });
        ReducerOutput { context, state }
    }
}

impl ExpireToolResults {
    fn expired(&self, context: &Context) -> HashSet<usize> {
        let now = context.last_turn();
        let mut newer: HashMap<&str, usize> = HashMap::new();
        let newest_first = context.segments().iter().enumerate().rev();
        let expired = newest_first.filter(|(_, segment)| {
            let Some(tool) = returned_by(segment) else { return false };
            let newer = newer.entry(tool).or_default();
            *newer += 1;
            let outlived = match self.retention(tool) {
                ResultRetention::Turns(turns) => now.saturating_sub(segment.turn()) > turns,
                ResultRetention::Last(last) => *newer > last,
                ResultRetention::NeverEvict => false,
            };
            outlived
                && segment.turn() != now
                && segment.fidelity() <= Fidelity::Cut
                && !context.is_pinned(segment)
        });
        expired.map(|(index, _)| index).collect()
    }

    fn retention(&self, tool: &str) -> ResultRetention {
        self.tools.get(tool).copied().unwrap_or(self.default)
    }
}

fn returned_by(segment: &Segment) -> Option<&str> {
    segment.shown()?;
    segment.call().map(|call| call.name.0.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::show,
        reducers::{
            CutOutputs, DropMiddle, ReferOutputs, TokenLimit,
            testing::{reduced, shown},
        },
        tokens::Tokens,
    };

    #[test]
    fn the_newest_turn_stays_whatever_the_rule() {
        let log = r#"
user: Look.
assistant:
  call bash {"command":"a"}
  -> 30 words of "a"
  call bash {"command":"b"}
  -> 30 words of "b"
"#;
        let rule = ExpireToolResults { default: ResultRetention::Last(0), ..ExpireToolResults::default() };
        assert_eq!(reduced(&rule, 0, log).changes().replaced, 0);
    }

    #[test]
    fn media_go_with_their_result_and_what_is_pinned_or_unanswered_stays() {
        let log = r#"
user: Look.
assistant:
  call shot {}
  -> image 640x480
  call shot {"again":true}
  call bash {"command":"x"}
  -> 30 words of "x"
assistant:
  call bash {"command":"y"}
  -> 30 words of "y"
pin 5
assistant: Done.
"#;
        let rule = ExpireToolResults { default: ResultRetention::Turns(0), ..ExpireToolResults::default() };
        insta::assert_snapshot!(shown(&rule, 0, log), @r#"
        user        1       verbatim      1  Look.
        exchange    2-3     stub         11 by expire_tool_results  shot {} -> [shot result expired: 1 attachment, 50 tokens; message 3]
        exchange    2       verbatim      8  shot {"again":true} -> (no result)
        exchange    2-3     stub         11 by expire_tool_results  bash {"command":"x"} -> [bash result expired: 1 line, 30 tokens; message 3]
        exchange    4-5     verbatim     32  bash {"command":"y"} -> y y y y y y y y y y y y y y y y y y y y y y y y y y y y y y
        answer      7       verbatim      1  Done.
        total 64
        "#);
    }

    #[test]
    fn the_line_of_a_result_that_was_cut_says_what_was_there() {
        let log = r#"
user: Look.
assistant:
  call bash {"command":"x"}
  -> 30 lines of "x"
  call read_file {"path":"a"}
  -> 30 lines of "a"
assistant: Done.
"#;
        let rule = ExpireToolResults { default: ResultRetention::Turns(0), ..ExpireToolResults::default() };
        let budget = Budget::new(Tokens(0));
        let cut = reduced(&CutOutputs::by_lines(10), 0, log);
        let expired = rule.reduce(cut, &budget, ReducerState::default()).context;
        insta::assert_snapshot!(show(&expired), @r#"
        user        1       verbatim      1  Look.
        exchange    2-3     stub         11 by expire_tool_results  bash {"command":"x"} -> [bash result expired: 30 lines, 60 tokens; message 3]
        exchange    2-3     stub         11 by expire_tool_results  read_file {"path":"a"} -> [read_file result expired: 30 lines, 60 tokens; message 3]
        answer      4       verbatim      1  Done.
        total 24
        "#);
        let referred = reduced(&ReferOutputs { spare_turns: 0 }, 0, log);
        let expired = rule.reduce(referred, &budget, ReducerState::default()).context;
        insta::assert_snapshot!(show(&expired), @r#"
        user        1       verbatim      1  Look.
        exchange    2-3     reference    13 by refer_outputs  bash {"command":"x"} -> [bash `x`: 30 lines, 60 tokens, no longer shown; message 3]
        exchange    2-3     reference    20 by refer_outputs  read_file {"path":"a"} -> [read_file `a`: 30 lines, 60 tokens, no longer shown; read it again if it matters, or message 3]
        answer      4       verbatim      1  Done.
        total 35
        "#);
        let folded =
            DropMiddle::default().reduce(expired, &Budget::new(Tokens(25)), ReducerState::default()).context;
        insta::assert_snapshot!(show(&folded), @r"
        user        1       verbatim      1  Look.
        note        2-3     summary      16 by drop_middle  [1 turn is not shown: 2 messages, calls: bash ×1, read_file ×1; 124 tokens; messages 2-3]
        answer      4       verbatim      1  Done.
        total 18
        ");
    }

    #[test]
    fn a_result_that_was_only_cut_may_still_expire_and_a_stub_stays() {
        let log = r#"
user: Look.
assistant:
  call bash {"command":"x"}
  -> 30 words of "x"
assistant: Done.
"#;
        let rule = ExpireToolResults { default: ResultRetention::Turns(0), ..ExpireToolResults::default() };
        let cut = CutOutputs {
            tokens: Some(TokenLimit { over: Tokens(5), head: Tokens(5), tail: Tokens(5) }),
            ..CutOutputs::default()
        };
        let cut = reduced(&cut, 0, log);
        let once = rule.reduce(cut, &Budget::new(Tokens(0)), ReducerState::default());
        let twice = rule.reduce(once.context.clone(), &Budget::new(Tokens(0)), once.state);
        assert_eq!((once.context.changes().replaced, twice.context.changes().replaced), (2, 2));
    }
}
