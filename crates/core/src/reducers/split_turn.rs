//! Splits a turn that is too large by itself, and cuts messages that are.
//!
//! **Trigger:** the context is over the target. Three things make one turn too large, and each has its own
//! remedy. An earlier message, such as a pasted log, that takes more than a share of all the room is cut to
//! that share. A loop that alone is over the target has its older exchanges folded into a line; the newest
//! stay. And if the essential set itself is over the ceiling, the newest message and the open results are cut
//! until they fit, the largest most. The summary that the context stands on holds the facts that must never
//! be lost, so these make room for it too, unless it takes most of the room.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Fidelity, Segment, SegmentBody, SegmentEdit},
    event::ContentPart,
    meter::Meter,
    pipeline::{Reducer, ReducerOutput, ReducerState, excess},
    reducers::{
        cut_text::{CuttablePart, HeadAndTail, cut, pieces},
        fold_oldest::{FoldMeasure, FoldReach, FoldRule, FoldStage},
        stub_text::{StubWriter, count, size, tool},
    },
    standing_context::StandingContext,
    tokens::Tokens,
};

/// Splits a turn that is too large by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitTurn {
    /// The most that a single message from before may take of the target less the prefix, in percent. By default 25.
    pub message_percent: u64,
}

impl Default for SplitTurn {
    fn default() -> Self {
        Self { message_percent: 25 }
    }
}

impl Reducer for SplitTurn {
    fn name(&self) -> &'static str {
        "split_turn"
    }

    fn reduce(&self, context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        let context = self.cut_messages(context, budget);
        let context = self.fold_loop(context, budget);
        let context = self.cut_essential(context, budget);
        ReducerOutput { context, state }
    }
}

impl SplitTurn {
    /// Cuts messages of the user from before that are too large, oldest first.
    fn cut_messages(&self, context: Context, budget: &Budget) -> Context {
        let mut left = excess(&context, budget, |_| false);
        if left == Tokens(0) {
            return context;
        }
        let essential = context.essential();
        let [prefix, ..] = essential.tokens(&context);
        let share = budget.target().0.saturating_sub(prefix.0).saturating_mul(self.message_percent) / 100;
        let scribe = StubWriter::of(&context);
        let standing: Vec<StandingContext> =
            context.segments().iter().map(|segment| context.standing_in(segment)).collect();
        context.edit(self.name(), |index, segment| {
            let large = segment.is_user() && segment.content_tokens().0 > share;
            if left == Tokens(0) || !large || essential.contains(index) {
                return SegmentEdit::Keep;
            }
            left = Tokens((left.0 + share).saturating_sub(segment.content_tokens().0));
            cut_to(&scribe, segment, Tokens(share), &standing[index])
        })
    }

    /// Folds the older exchanges of a loop that is over the target by itself.
    fn fold_loop(&self, context: Context, budget: &Budget) -> Context {
        let start = context.essential().loop_start();
        let Some(before) = context.segments().get(context.prefix_len()..start) else { return context };
        // Segments before the loop do not count against it.
        let goal = budget.target() + before.iter().map(Segment::tokens).sum();
        let first =
            context.segments().get(start).map_or(Bound::Unbounded, |first| Bound::Included(first.key()));
        let folding =
            FoldRule { by: self.name(), within: (first, Bound::Unbounded), measure: FoldMeasure::Whole };
        folding.fold(context, &[FoldStage::until(FoldReach::Work, goal)])
    }

    /// Cuts the essential segments until they fit under the ceiling.
    fn cut_essential(&self, context: Context, budget: &Budget) -> Context {
        let essential = context.essential();
        let needed: Tokens = essential.tokens(&context).into_iter().sum();
        let request = context.meter().overhead().request;
        let ceiling = budget.ceiling().less(reserved(&context, budget));
        if needed + request <= ceiling {
            return context;
        }
        let scribe = StubWriter::of(&context);
        let segments = context.segments().iter().enumerate();
        let able =
            segments.filter(|(index, segment)| essential.contains(*index) && segment.shown().is_some());
        let able: Vec<(usize, &Segment)> = able.collect();
        let cuttable: Tokens = able.iter().map(|(_, segment)| segment.content_tokens()).sum();
        let room = (ceiling + cuttable).0.saturating_sub((needed + request).0);
        let standing: Vec<StandingContext> =
            context.segments().iter().map(|segment| context.standing_in(segment)).collect();
        let span =
            |(index, segment): &(usize, &Segment)| SizeRange::of_segment(&scribe, segment, &standing[*index]);
        let spans: Vec<SizeRange> = able.iter().map(span).collect();
        let shares = share_out(&spans, Tokens(room));
        let mut limits = vec![None; context.segments().len()];
        for ((index, segment), share) in able.iter().zip(shares) {
            limits[*index] = (share < segment.content_tokens()).then_some(share);
        }
        context.edit(self.name(), |index, segment| match limits[index] {
            Some(limit) => cut_to(&scribe, segment, limit, &standing[index]),
            None => SegmentEdit::Keep,
        })
    }
}

/// Room for the summary that the context stands on, unless it would leave less than a quarter of the room,
/// and for standing context elsewhere.
fn reserved(context: &Context, budget: &Budget) -> Tokens {
    let is_summary = |segment: &&Segment| matches!(segment.body(), SegmentBody::Summary(_));
    let taken: Tokens = context.segments().iter().filter(is_summary).map(Segment::tokens).sum();
    let essential = context.essential();
    let [prefix, ..] = essential.tokens(context);
    let room = budget.ceiling().less(prefix);
    let is_kept = taken.0 <= room.0 / 4 * 3;
    let segments = context.segments().iter().enumerate();
    let others =
        segments.filter(|(index, segment)| !(essential.contains(*index) || is_kept && is_summary(segment)));
    let standing: Tokens =
        others.map(|(_, segment)| tokens_of(&context.standing_in(segment), context.meter())).sum();
    standing + if is_kept { taken } else { Tokens(0) }
}

fn tokens_of(standing: &StandingContext, meter: &Meter) -> Tokens {
    standing.pieces.iter().map(|piece| meter.text(&piece.text)).sum()
}

/// Least and present size of a segment.
#[derive(Clone, Copy)]
struct SizeRange {
    least: Tokens,
    most: Tokens,
}

impl SizeRange {
    fn new(least: Tokens, most: Tokens) -> Self {
        Self { least: least.min(most), most }
    }

    fn of_segment(scribe: &StubWriter, segment: &Segment, standing: &StandingContext) -> Self {
        let least = scribe.meter.text(&stub(scribe, segment)) + tokens_of(standing, &scribe.meter);
        Self::new(least, segment.content_tokens())
    }
}

/// Divides `room`: every segment gets its least size, and the rest is shared evenly until each has enough.
fn share_out(spans: &[SizeRange], room: Tokens) -> Vec<Tokens> {
    let least: Tokens = spans.iter().map(|span| span.least).sum();
    let mut left = room.0.saturating_sub(least.0);
    let mut wants: Vec<(u64, usize)> =
        spans.iter().enumerate().map(|(index, span)| (span.most.0 - span.least.0, index)).collect();
    wants.sort_unstable();
    let mut shares: Vec<Tokens> = spans.iter().map(|span| span.least).collect();
    let many = wants.len() as u64;
    for (waiting, (want, index)) in (1..=many).rev().zip(wants) {
        let more = want.min(left / waiting);
        left -= more;
        shares[index] += Tokens(more);
    }
    shares
}

/// Shows as much of a segment as fits into `limit`: its parts cut, or one line.
fn cut_to(scribe: &StubWriter, segment: &Segment, limit: Tokens, standing: &StandingContext) -> SegmentEdit {
    if !standing.pieces.is_empty() {
        return cut_beside(scribe, segment, limit, standing);
    }
    let line = || SegmentEdit::line(stub(scribe, segment), Fidelity::Stub);
    // A segment that is a line already has no text to cut.
    if matches!(segment.fidelity(), Fidelity::Reference | Fidelity::Stub) {
        return line();
    }
    let spans: Vec<SizeRange> = pieces(segment).map(|piece| least_of(scribe, segment, piece)).collect();
    let shares = share_out(&spans, limit);
    let parts: Vec<ContentPart> =
        pieces(segment)
            .zip(shares)
            .map(|(piece, share)| {
                if piece.tokens <= share {
                    piece.part.clone()
                } else {
                    shorter(scribe, segment, piece, share)
                }
            })
            .collect();
    let tokens: Tokens = segment
        .parts_with_tokens()
        .zip(&parts)
        .map(|((old, tokens), new)| if old == new { tokens } else { scribe.meter.part(new) })
        .sum();
    if tokens <= limit { SegmentEdit::Replace { parts, fidelity: Fidelity::Cut } } else { line() }
}

/// Shows the standing context of a message, and as much of the rest as fits beside it.
fn cut_beside(
    scribe: &StubWriter,
    segment: &Segment,
    limit: Tokens,
    standing: &StandingContext,
) -> SegmentEdit {
    let mut parts: Vec<ContentPart> =
        standing.pieces.iter().map(|piece| ContentPart::Text { text: piece.text.clone() }).collect();
    let mut rest = String::new();
    for part in segment.shown().unwrap_or_default() {
        match part {
            ContentPart::Text { text } => {
                let own = standing
                    .pieces
                    .iter()
                    .fold(text.clone(), |text, piece| text.replacen(&piece.text, "", 1));
                rest.push_str(own.trim());
                rest.push('\n');
            }
            ContentPart::Media(media) => parts.push(scribe.media(segment, media)),
            ContentPart::Reasoning { .. }
            | ContentPart::ToolCall(_)
            | ContentPart::Refusal { .. }
            | ContentPart::Opaque { .. } => {
                parts.push(part.clone());
            }
        }
    }
    let rest = rest.trim();
    let taken: Tokens = parts.iter().map(|part| scribe.meter.part(part)).sum();
    if taken + scribe.meter.text(&stub(scribe, segment)) > limit {
        // A part that can be neither cut nor replaced by a line has no room beside it.
        parts.truncate(standing.pieces.len());
        parts.push(ContentPart::text(stub(scribe, segment)));
        return SegmentEdit::Replace { parts, fidelity: Fidelity::Cut };
    }
    let room = limit.less(taken);
    let tokens = scribe.meter.text(rest);
    if tokens <= room {
        parts.extend((!rest.is_empty()).then(|| ContentPart::text(rest)));
        return SegmentEdit::Replace { parts, fidelity: Fidelity::Cut };
    }
    let marked = scribe.meter.text(&marker(scribe, segment, u64::MAX, tokens));
    let half = Tokens(room.less(marked).0.saturating_sub(4) / 2);
    let keep = HeadAndTail { head: half, tail: half, lines: None };
    let words =
        cut(rest, tokens, keep, &scribe.meter, |left| marker(scribe, segment, left.lines, left.tokens));
    parts
        .push(ContentPart::text(words.filter(|_| half > Tokens(0)).unwrap_or_else(|| stub(scribe, segment))));
    SegmentEdit::Replace { parts, fidelity: Fidelity::Cut }
}

fn least_of(scribe: &StubWriter, segment: &Segment, piece: CuttablePart<'_>) -> SizeRange {
    let least = match piece.part {
        ContentPart::Text { .. } => scribe.meter.text(&marker(scribe, segment, u64::MAX, piece.whole.1)),
        ContentPart::Media(media) => scribe.meter.part(&scribe.media(segment, media)),
        ContentPart::Reasoning { .. }
        | ContentPart::ToolCall(_)
        | ContentPart::Refusal { .. }
        | ContentPart::Opaque { .. } => piece.tokens,
    };
    SizeRange::new(least, piece.tokens)
}

/// A part that is no larger than its share, if it can be made so.
fn shorter(scribe: &StubWriter, segment: &Segment, piece: CuttablePart<'_>, share: Tokens) -> ContentPart {
    let CuttablePart { part, whole: (whole, tokens), .. } = piece;
    match whole {
        ContentPart::Text { text } => {
            let marked = scribe.meter.text(&marker(scribe, segment, u64::MAX, tokens));
            // Joining the pieces may cost a token at each seam.
            let half = Tokens(share.0.saturating_sub(marked.0).saturating_sub(4) / 2);
            let keep = HeadAndTail { head: half, tail: half, lines: None };
            let text = cut(text, tokens, keep, &scribe.meter, |left| {
                marker(scribe, segment, left.lines, left.tokens)
            });
            text.map_or_else(|| part.clone(), |text| ContentPart::Text { text })
        }
        ContentPart::Media(media) => scribe.media(segment, media),
        ContentPart::Reasoning { .. }
        | ContentPart::ToolCall(_)
        | ContentPart::Refusal { .. }
        | ContentPart::Opaque { .. } => part.clone(),
    }
}

fn marker(scribe: &StubWriter, segment: &Segment, lines: u64, tokens: Tokens) -> String {
    let lines = count(lines, "line", "lines");
    format!("[… {lines}, {tokens} tokens left out{} …]", scribe.recall_instruction(segment))
}

/// The least that can be shown of a message or a result.
fn stub(scribe: &StubWriter, segment: &Segment) -> String {
    let what =
        if segment.call().is_some() { format!("{} result", tool(segment)) } else { "message".to_owned() };
    format!("[{what} too long: {}{}]", size(segment), scribe.recall_instruction(segment))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        notation::{context, show},
        reducers::testing::shown,
    };

    fn at(ceiling: u64, log: &str) -> String {
        let budget = Budget::new(Tokens(ceiling));
        show(&SplitTurn::default().reduce(context(log), &budget, ReducerState::default()).context)
    }

    #[test]
    fn a_picture_that_does_not_fit_becomes_a_line_and_its_text_stays() {
        let log = "user: What is in this picture?\n  + image 640x480\n";
        insta::assert_snapshot!(at(20, log), @r"
        user        1       cut          14 by split_turn  What is in this picture? + [image/png, 640x480, 6 bytes, no longer shown; message 1]
        total 14
        ");
    }

    #[test]
    fn what_was_cut_before_is_cut_from_the_original() {
        let log = "user: 100 words of \"ask\"\n";
        let once =
            SplitTurn::default().reduce(context(log), &Budget::new(Tokens(60)), ReducerState::default());
        let twice = SplitTurn::default().reduce(once.context, &Budget::new(Tokens(30)), once.state);
        insta::assert_snapshot!(show(&twice.context), @r"
        user        1       cut          26 by split_turn  ask ask ask ask ask ask ask ask / [… 1 line, 84 tokens left out; message 1 …] / ask ask ask ask ask ask ask ask
        total 26
        ");
    }

    #[test]
    fn with_no_room_at_all_only_lines_stay() {
        let log = "user: 100 words of \"ask\"\nassistant:\n  call bash {}\n  -> 100 words of \"x\"\n";
        insta::assert_snapshot!(at(0, log), @r"
        user        1       stub          9 by split_turn  [message too long: 1 line, 100 tokens; message 1]
        exchange    2-3     cut          12 by split_turn  bash {} -> [… 1 line, 100 tokens left out; message 3 …]
        total 21
        ");
    }

    #[test]
    fn open_results_make_room_for_the_summary_that_the_context_stands_on() {
        let log = "user: One.\nassistant: Yes.\ncompacted through 2: 30 words of \"sum\"\nassistant:\n  call bash {}\n  -> 100 words of \"x\"\n";
        let check = |ceiling, summary: &str, result: &str| {
            let shown = at(ceiling, log);
            assert!(shown.contains(summary) && shown.contains(result), "{ceiling}: {shown}");
        };
        check(140, "summary      30", "verbatim");
        check(100, "summary      30", "cut ");
        // It would take nearly all of the room: others see to it.
        check(35, "summary      30", "cut ");
    }

    #[test]
    fn the_newest_message_is_cut_for_the_ceiling_and_not_for_the_target() {
        let log = "user: 100 words of \"ask\"\n";
        assert!(shown(&SplitTurn::default(), 10, log).contains("verbatim    100"));
        assert!(at(50, log).contains("cut"));
    }

    proptest! {
        #[test]
        fn shares_use_the_room_and_nobody_gets_more_than_asked(
            spans in prop::collection::vec((0..50u64, 0..200u64), 1..8), room in 0..1_000u64,
        ) {
            let spans: Vec<SizeRange> = spans.into_iter().map(|(least, more)| SizeRange::new(Tokens(least), Tokens(least + more))).collect();
            let shares = share_out(&spans, Tokens(room));
            let (least, most): (Tokens, Tokens) = (spans.iter().map(|span| span.least).sum(), spans.iter().map(|span| span.most).sum());
            let given: Tokens = shares.iter().copied().sum();
            for (span, share) in spans.iter().zip(&shares) {
                prop_assert!(span.least <= *share && *share <= span.most);
            }
            prop_assert!(given <= Tokens(room).max(least));
            // The remainder is less than a token for each.
            prop_assert!(given.0 + spans.len() as u64 > room.clamp(least.0, most.0));
        }
    }
}
