//! Refers to outputs: the result of an old call becomes the path, command or pattern for fetching it again.
//!
//! **Trigger:** the context is over the target, or tool results over their cap; then outputs of calls that
//! read, searched or ran something become references, oldest first, until that is no longer so. The newest
//! turns are spared, unless tool results are still over their cap: then only the open exchange is. The line
//! advises to fetch it again only if the call is known to have only read, and reports it if the call had
//! failed.

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentEdit, Tier},
    pipeline::{Reducer, ReducerOutput, ReducerState, excess},
    reducers::{
        fetch_subject::{FetchKind, FetchSubject, RefetchSafety},
        stub_text::{StubWriter, shorten_to, size, tool},
    },
    tokens::Tokens,
};

/// Refers to outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReferOutputs {
    /// Number of newest turns that are spared. By default 4.
    pub spare_turns: u64,
}

impl Default for ReferOutputs {
    fn default() -> Self {
        Self { spare_turns: 4 }
    }
}

impl Reducer for ReferOutputs {
    fn name(&self) -> &'static str {
        "refer_outputs"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let end = (context.last_turn() + 1).saturating_sub(self.spare_turns);
        let left = excess(&context, budget, |tier| self.serves(tier));
        let context = self.refer(context, left, |segment| segment.turn() < end);
        let cap = budget.cap_of(Tier::ToolResults).unwrap_or(Tokens(u64::MAX));
        let over = Tokens(context.tier_tokens(Tier::ToolResults).0.saturating_sub(cap.0));
        ReducerOutput { context: self.refer(context, over, |_| true), state }
    }
}

impl ReferOutputs {
    /// Makes references of the oldest outputs that `may` go, until `left` tokens are saved.
    fn refer(&self, context: Context, mut left: Tokens, may: impl Fn(&Segment) -> bool) -> Context {
        if left == Tokens(0) {
            return context;
        }
        let scribe = StubWriter::of(&context);
        let open = context.essential().open;
        let pinned: Vec<bool> = context.segments().iter().map(|segment| context.is_pinned(segment)).collect();
        context.edit(self.name(), |index, segment| {
            if left == Tokens(0) || open.contains(&index) || pinned[index] || !may(segment) {
                return SegmentEdit::Keep;
            }
            let Some(line) = reference(&scribe, segment) else { return SegmentEdit::Keep };
            let saved = segment.content_tokens().0.saturating_sub(scribe.meter.text(&line).0);
            left = Tokens(left.0.saturating_sub(saved));
            SegmentEdit::line(line, Fidelity::Reference)
        })
    }
}

/// `[read_file src/main.rs: 214 lines, 3120 tokens, no longer shown; read it again if it matters, or recall 1b2c3d4e:57]`
fn reference(scribe: &StubWriter, segment: &Segment) -> Option<String> {
    segment.shown()?;
    if segment.fidelity() >= Fidelity::Reference {
        return None;
    }
    let fetched = FetchSubject::of(segment.call()?)?;
    let again = match (fetched.kind, fetched.again) {
        (FetchKind::Change, _) => return None,
        (FetchKind::Read, RefetchSafety::Harmless) => Some("read it again if it matters"),
        (FetchKind::Search, RefetchSafety::Harmless) => Some("search again if it matters"),
        (FetchKind::Command, RefetchSafety::Harmless) => Some("run it again if it matters"),
        (FetchKind::Page, RefetchSafety::Harmless) => Some("get it again if it matters"),
        (
            FetchKind::Read | FetchKind::Search | FetchKind::Command | FetchKind::Page,
            RefetchSafety::Unknown,
        ) => None,
    };
    let behind = scribe.recall_instruction(segment);
    let how = match again {
        Some(again) => format!("; {again}{}", behind.replacen("; ", ", or ", 1)),
        None => behind,
    };
    let target = shorten_to(&fetched.target, 120);
    Some(format!("[{} `{target}`: {}, no longer shown{how}]", tool(segment), size(segment)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reducers::testing::{reduced, shown};

    #[test]
    fn a_long_command_is_named_by_its_beginning() {
        let command = format!("cat <<EOF\\n{}\\nEOF", "x".repeat(300));
        let log = format!(
            "user: Go.\nassistant:\n  call bash {{\"command\":\"{command}\"}}\n  -> 60 words of \"x\"\nassistant: Done.\n"
        );
        let context = reduced(&ReferOutputs { spare_turns: 1 }, 0, &log);
        let line = context.segments()[1].shown().map(|parts| format!("{parts:?}")).unwrap();
        assert!(line.contains("[bash `cat <<EOF…`: 1 line, 60 tokens"), "{line}");
    }

    #[test]
    fn changes_errors_in_json_and_small_outputs_stay() {
        let log = r#"
user: Go.
assistant:
  call edit_file {"path":"a.rs"}
  -> 60 words of "diff"
  call read_file {broken
  -> 60 words of "x"
  call read_file {"path":"a.rs"}
  -> tiny
assistant: Done.
"#;
        assert_eq!(reduced(&ReferOutputs { spare_turns: 0 }, 0, log).changes().replaced, 0);
    }

    #[test]
    fn nobody_is_told_to_repeat_what_had_effects_and_failures_are_told() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"git push origin b0"}
  !> 60 words of "rejected"
  call bash {"command":"make"}
  -> Exit code 2
  -> 60 words of "error"
  call bash {"command":"git log"}
  -> 60 words of "commit"
  call post_http {"url":"https://example.org","method":"POST"}
  -> 60 words of "ok"
assistant: Done.
"#;
        insta::assert_snapshot!(shown(&ReferOutputs { spare_turns: 0 }, 0, log), @r#"
        user        1       verbatim      1  Go.
        exchange    2-3     reference    20 by refer_outputs  bash {"command":"git push origin b0"} -> [bash `git push origin b0`: failed, 1 line, 60 tokens, no longer shown; message 3]
        exchange    2-3     reference    18 by refer_outputs  bash {"command":"make"} -> [bash `make`: failed with exit code 2, 2 lines, 63 tokens, no longer shown; message 3]
        exchange    2-3     reference    22 by refer_outputs  bash {"command":"git log"} -> [bash `git log`: 1 line, 60 tokens, no longer shown; run it again if it matters, or message 3]
        exchange    2-3     reference    13 by refer_outputs  post_http {"url":"https://example.org","method":"POST"} -> [post_http `https://example.org`: 1 line, 60 tokens, no longer shown; message 3]
        answer      4       verbatim      1  Done.
        total 75
        "#);
    }

    #[test]
    fn the_oldest_goes_first_and_no_more_than_needed() {
        let log = r#"
user: Go.
assistant:
  call read_file {"path":"a"}
  -> 60 words of "a"
  call read_file {"path":"b"}
  -> 60 words of "b"
assistant: Done.
"#;
        insta::assert_snapshot!(shown(&ReferOutputs { spare_turns: 0 }, 100, log), @r#"
        user        1       verbatim      1  Go.
        exchange    2-3     reference    20 by refer_outputs  read_file {"path":"a"} -> [read_file `a`: 1 line, 60 tokens, no longer shown; read it again if it matters, or message 3]
        exchange    2-3     verbatim     62  read_file {"path":"b"} -> b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b b
        answer      4       verbatim      1  Done.
        total 84
        "#);
    }
}
