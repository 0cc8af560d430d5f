//! Cuts large outputs to their head and tail.
//!
//! **Trigger:** the context is over the target, or tool results over their cap; then outputs over a limit are cut, oldest
//! first, until that is no longer so. A line in between says how much is left out and how to get it. The newest turns are
//! spared: the model is about to read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentEdit, Tier},
    event::ContentPart,
    pipeline::{Reducer, ReducerOutput, ReducerState, excess},
    profile::Share,
    reducers::{
        cut_text::{CuttablePart, HeadAndTail, cut, pieces},
        stub_text::{StubWriter, count},
    },
    tokens::Tokens,
};

/// Part of the request's limit from which on a request is taken to be nearly full: that is where policies
/// must act.
pub(crate) const NEARLY_FULL: Share = Share::percent(95);

/// Cuts large outputs to their head and tail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CutOutputs {
    /// The limit in tokens. By default over 2 000, to 500 and 500.
    pub tokens: Option<TokenLimit>,
    /// The limit in lines, of which half stays at each end. By default there is none.
    pub lines: Option<usize>,
    /// Largest part of a request's limit for the outputs of one turn together, if the request would be nearly
    /// full with them: they are cut before everything else is given up for them. By default there is no such
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Number of newest turns that are spared. By default 1.
    pub spare_turns: u64,
    /// The tools whose outputs are cut. By default all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

/// Limit from which a text is too long, and the amount of it that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenLimit {
    /// A text over this is cut. By default 2 000.
    pub over: Tokens,
    /// Amount that stays of its beginning. By default 500.
    pub head: Tokens,
    /// Amount that stays of its end. By default 500.
    pub tail: Tokens,
}

impl Default for TokenLimit {
    fn default() -> Self {
        Self { over: Tokens(2_000), head: Tokens(500), tail: Tokens(500) }
    }
}

impl Default for CutOutputs {
    fn default() -> Self {
        let tokens = Some(TokenLimit::default());
        Self { tokens, lines: None, share: None, spare_turns: 1, tools: Vec::new() }
    }
}

impl CutOutputs {
    /// Cuts by lines alone.
    pub fn by_lines(lines: usize) -> Self {
        Self { tokens: None, lines: Some(lines), ..Self::default() }
    }
}

impl Reducer for CutOutputs {
    fn name(&self) -> &'static str {
        "cut_outputs"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::ToolResults
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let limits = self.limits_of_turns(&context, budget);
        let scribe = StubWriter::of(&context);
        let mut left = excess(&context, budget, |tier| self.serves(tier));
        let end = (context.last_turn() + 1).saturating_sub(self.spare_turns);
        let pinned: Vec<bool> = context.segments().iter().map(|segment| context.is_pinned(segment)).collect();
        let context = context.edit(self.name(), |index, segment| {
            let goes = left > Tokens(0) && segment.turn() < end && self.is_of(segment) && !pinned[index];
            if !goes || segment.fidelity() > Fidelity::Cut {
                return SegmentEdit::Keep;
            }
            let cut = limits.get(&segment.turn()).unwrap_or(self);
            let Some((parts, saved)) = cut.cut_parts(&scribe, segment) else { return SegmentEdit::Keep };
            left = Tokens(left.0.saturating_sub(saved.0));
            SegmentEdit::Replace { parts, fidelity: Fidelity::Cut }
        });
        ReducerOutput { context, state }
    }
}

impl CutOutputs {
    /// Returns true if a segment is the output of one of the tools.
    fn is_of(&self, segment: &Segment) -> bool {
        let is_named = |name: &str| self.tools.is_empty() || self.tools.iter().any(|tool| tool == name);
        segment.call().is_some_and(|call| is_named(&call.name.0))
    }

    /// Cuts the outputs of one tool to head and tail of a limit, the newest too.
    pub fn of_tool(tool: &str, limit: Tokens) -> Self {
        // The line between them has room, too.
        let part = Tokens(limit.0 * 2 / 5);
        let tokens = Some(TokenLimit { over: limit, head: part, tail: part });
        Self { tokens, spare_turns: 0, tools: vec![tool.to_owned()], ..Self::default() }
    }

    /// The same for each turn whose outputs take more than their share of a request that would be nearly
    /// full.
    fn limits_of_turns(&self, context: &Context, budget: &Budget) -> BTreeMap<u64, Self> {
        let full = NEARLY_FULL.of(budget.ceiling());
        let Some(share) = self.share.filter(|_| context.tokens() > full) else { return BTreeMap::new() };
        let mut outputs: BTreeMap<u64, Vec<Tokens>> = BTreeMap::new();
        for segment in context.segments().iter().filter(|segment| segment.call().is_some()) {
            outputs.entry(segment.turn()).or_default().push(segment.tokens());
        }
        let limit = |(turn, outputs): (u64, Vec<Tokens>)| {
            let over = even_share(outputs, share.of(budget.ceiling()))?;
            Some((turn, self.with_limit(over)))
        };
        outputs.into_iter().filter_map(limit).collect()
    }

    /// The same with a lower limit, and the amounts that stay in proportion.
    fn with_limit(&self, over: Tokens) -> Self {
        let (limit, over) = match self.tokens {
            Some(limit) => (limit, over.min(limit.over)),
            // A text that is cut by lines alone is cut in the usual proportion.
            None => (TokenLimit::default(), over),
        };
        let part = |kept: Tokens| {
            let kept = u128::from(kept.0) * u128::from(over.0) / u128::from(limit.over.0.max(1));
            Tokens(u64::try_from(kept).unwrap_or(u64::MAX))
        };
        let tokens = TokenLimit { over, head: part(limit.head), tail: part(limit.tail) };
        Self { tokens: Some(tokens), ..self.clone() }
    }

    /// The parts of a result with those cut that are too long, and the tokens this saves; `None` if none is.
    pub(crate) fn cut_parts(
        &self,
        scribe: &StubWriter,
        segment: &Segment,
    ) -> Option<(Vec<ContentPart>, Tokens)> {
        let mut saved = Tokens(0);
        let mut parts = Vec::new();
        for piece in pieces(segment) {
            parts.push(match self.cut_text(scribe, segment, piece) {
                Some((text, less)) => {
                    saved += less;
                    ContentPart::Text { text }
                }
                None => piece.part.clone(),
            });
        }
        (saved > Tokens(0)).then_some((parts, saved))
    }

    fn cut_text(
        &self,
        scribe: &StubWriter,
        segment: &Segment,
        piece: CuttablePart<'_>,
    ) -> Option<(String, Tokens)> {
        let CuttablePart {
            part: ContentPart::Text { text },
            tokens,
            whole: (ContentPart::Text { text: sent }, cost),
        } = piece
        else {
            return None;
        };
        let whole = HeadAndTail { head: cost, tail: cost, lines: self.lines.map(|lines| lines / 2) };
        let keep = match self.tokens {
            Some(limit) if tokens > limit.over => HeadAndTail { head: limit.head, tail: limit.tail, ..whole },
            _ if self.lines.is_some_and(|lines| text.lines().nth(lines).is_some()) => whole,
            _ => return None,
        };
        let shorter = cut(sent, cost, keep, &scribe.meter, |left| {
            let lines = count(left.lines, "line", "lines");
            format!("[… {lines}, {} tokens left out{} …]", left.tokens, scribe.recall_instruction(segment))
        })?;
        let saved = Tokens(tokens.0.saturating_sub(scribe.meter.text(&shorter).0));
        (saved > Tokens(0)).then_some((shorter, saved))
    }
}

/// The size to which the largest of some outputs must be cut so that together they take no more than `room`;
/// `None` if they fit already.
fn even_share(mut outputs: Vec<Tokens>, room: Tokens) -> Option<Tokens> {
    outputs.sort_unstable();
    let mut left = room;
    for (place, tokens) in outputs.iter().enumerate() {
        let share = Tokens(left.0 / (outputs.len() - place) as u64);
        if *tokens > share {
            return Some(share);
        }
        left = left.less(*tokens);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::{
        context::EventNaming,
        meter::{Meter, TokenOverhead},
        notation::read,
        projection::{EventLine, project},
        reducers::testing::{reduced, shown},
        tokens::TokenCounter,
    };

    #[test]
    fn a_share_limits_outputs_that_are_cut_by_lines_too() {
        let cut = CutOutputs::by_lines(10).with_limit(Tokens(400));
        let expect = TokenLimit { over: Tokens(400), head: Tokens(100), tail: Tokens(100) };
        assert_eq!((cut.tokens, cut.lines), (Some(expect), Some(10)));
    }

    #[test]
    fn each_long_part_is_cut_and_short_ones_stay() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"x"}
  -> short part
  -> 9 lines of "long"
  -> 9 lines of "long"
assistant: Done.
"#;
        let limit = TokenLimit { over: Tokens(10), head: Tokens(4), tail: Tokens(2) };
        let cut = CutOutputs { tokens: Some(limit), ..CutOutputs::default() };
        insta::assert_snapshot!(shown(&cut, 0, log), @r#"
        user        1       verbatim      1  Go.
        exchange    2-3     cut          36 by cut_outputs  bash {"command":"x"} -> short part + long 1 / long 2 / [… 6 lines, 12 tokens left out; message 3 …] / long 9 + long 1 / long 2 / [… 6 lines, 12 tokens left out; message 3 …] / long 9
        answer      4       verbatim      1  Done.
        total 38
        "#);
    }

    #[test]
    fn only_the_outputs_of_named_tools_are_cut() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"x"}
  -> 90 lines of "long"
  call read {"path":"y"}
  -> 90 lines of "long"
"#;
        let shown = shown(&CutOutputs::of_tool("bash", Tokens(20)), 0, log);
        assert_eq!(shown.matches("left out").count(), 1, "{shown}");
        assert!(shown.lines().any(|line| line.contains("bash") && line.contains("left out")), "{shown}");
    }

    #[test]
    fn outputs_of_a_turn_that_fill_a_window_share_a_part_of_it() {
        let log = r#"
user: Go.
assistant:
  call bash {"command":"x"}
  -> short
  call bash {"command":"y"}
  -> 300 lines of "long"
  call bash {"command":"z"}
  -> 400 lines of "long"
assistant: Done.
"#;
        let limit = TokenLimit { over: Tokens(1_000), head: Tokens(400), tail: Tokens(400) };
        let share = Some(Share::percent(40));
        let cut = CutOutputs { tokens: Some(limit), share, spare_turns: 0, ..CutOutputs::default() };
        let sizes = |ceiling| {
            let meter = Arc::new(Meter::new(Arc::new(crate::notation::Words), TokenOverhead::default()));
            let context = project(&EventLine::new(read(log)), meter, EventNaming::Messages);
            let reduced = cut.reduce(
                context,
                &Budget::new(Tokens(ceiling)).with_target(Tokens(0)),
                ReducerState::default(),
            );
            let outputs = reduced.context.segments().iter().filter(|segment| segment.call().is_some());
            outputs.map(|segment| segment.tokens().0 / 100).collect::<Vec<_>>()
        };
        // All of it fits, and is left alone.
        assert_eq!(sizes(10_000), [0, 6, 8]);
        // Both long ones are cut to the rest of two fifths.
        assert_eq!(sizes(1_000), [0, 1, 1]);
        assert_eq!(even_share(vec![Tokens(5), Tokens(1)], Tokens(6)), None);
        assert_eq!(even_share(vec![Tokens(50), Tokens(1), Tokens(9)], Tokens(20)), Some(Tokens(10)));
    }

    #[test]
    fn fifty_lines_stay_and_more_are_cut_to_fifty() {
        let cut = |lines: u64| {
            let log = format!(
                "user: Go.\nassistant:\n  call bash {{}}\n  -> {lines} lines of \"x\"\nassistant: Done.\n"
            );
            let context = reduced(&CutOutputs::by_lines(50), 0, &log);
            format!("{:?}", context.segments()[1].shown())
        };
        assert!(!cut(50).contains("left out"));
        assert!(
            cut(60).contains(r"x 25\n[… 10 lines, 20 tokens left out; message 3 …]\nx 36\n"),
            "{}",
            cut(60)
        );
        // The line between would be longer than the text it replaces.
        assert!(!cut(51).contains("left out"));
    }

    /// Counts the bytes it is asked about.
    #[derive(Default)]
    struct Listening(AtomicUsize);

    impl TokenCounter for &'static Listening {
        fn name(&self) -> &'static str {
            "listening"
        }

        fn count(&self, text: &str) -> Tokens {
            self.0.fetch_add(text.len(), Ordering::Relaxed);
            Tokens(text.len() as u64)
        }
    }

    #[test]
    fn the_text_that_goes_is_never_counted_again() {
        let events =
            read("user: Go.\nassistant:\n  call bash {}\n  -> 100000 lines of \"x\"\nassistant: Done.\n");
        let counter: &'static Listening = Box::leak(Box::default());
        let meter = Arc::new(Meter::new(Arc::new(counter), TokenOverhead::default()));
        let mut line = EventLine::default();
        for event in events {
            let pieces = meter.pieces(&event.event);
            line.push(event, pieces);
        }
        counter.0.store(0, Ordering::Relaxed);
        let context = project(&line, meter, EventNaming::Messages);
        let reduced = CutOutputs::default().reduce(context, &Budget::new(Tokens(0)), ReducerState::default());
        assert_eq!(reduced.context.changes().replaced, 1);
        let bytes = counter.0.load(Ordering::Relaxed);
        assert!(bytes < 10_000, "{bytes} bytes were counted again");
    }
}
