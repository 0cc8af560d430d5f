//! Shortens summaries: the text that stands for the past has a limit.
//!
//! **Trigger:** summaries are over their cap; without one it does nothing. Lines that stand side by side
//! become one. The summary that the context stands on is cut to head and tail, so that the lines keep their
//! room, but never to less than half of the cap. If that is not enough the lines go, oldest first, and in the
//! end the summary itself: a cap is kept. It runs last, because reducers before it leave lines.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    budget::Budget,
    context::{Context, Segment, SegmentBody, SegmentEdit, Tier},
    pipeline::{Reducer, ReducerOutput, ReducerState},
    reducers::{
        cut_text::{HeadAndTail, cut},
        stub_text::{StubWriter, count},
    },
    seq_set::SeqSet,
    tokens::Tokens,
};

/// Shortens summaries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShortenSummaries {}

impl Reducer for ShortenSummaries {
    fn name(&self) -> &'static str {
        "shorten_summaries"
    }

    fn serves(&self, tier: Tier) -> bool {
        tier == Tier::Summaries
    }

    fn reduce(&self, mut context: Context, budget: &Budget, state: ReducerState) -> ReducerOutput {
        if let Some(cap) = budget.cap_of(Tier::Summaries) {
            for step in [Self::join_lines, Self::cut_summary, Self::drop_lines, Self::drop_summaries] {
                if over(&context, cap) > Tokens(0) {
                    context = step(self, context, cap);
                }
            }
        }
        ReducerOutput { context, state }
    }
}

impl ShortenSummaries {
    /// Makes one line of lines that stand side by side.
    fn join_lines(&self, context: Context, _: Tokens) -> Context {
        let scribe = StubWriter::of(&context);
        let lines: Vec<bool> = context.segments().iter().map(|segment| is_line(&scribe, segment)).collect();
        let mut runs: Vec<Range<usize>> = Vec::new();
        for index in (0..lines.len()).filter(|index| lines[*index]) {
            match runs.last_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        runs.retain(|run| run.len() > 1);
        context.fold(self.name(), &runs, |folded| scribe.note(folded))
    }

    /// Cuts the summary that the context stands on to its head and tail.
    fn cut_summary(&self, context: Context, cap: Tokens) -> Context {
        let found = context.segments().iter().enumerate().find_map(|(index, segment)| {
            let SegmentBody::Summary(event) = segment.body() else { return None };
            let told = segment.stands_for().without(&SeqSet::one(event.id.seq));
            // Standing context goes along uncut.
            let mut text = segment.compaction()?.summary.text().to_owned();
            for piece in context.standing_in(segment).pieces {
                text = text.replacen(&piece.text, "", 1);
            }
            Some((index, segment.tokens(), text, told))
        });
        let Some((index, tokens, text, told)) = found else { return context };
        let scribe = StubWriter::of(&context);
        let behind = context.names().recall_suffix_all(&told);
        let lines = less(context.tier_tokens(Tier::Summaries), tokens);
        let wrapping = context.meter().overhead().message;
        let room = less(less(cap, lines).max(Tokens(cap.0 / 2)), wrapping);
        let marker = |lines: u64, tokens: Tokens| {
            format!("[… {}, {tokens} tokens left out{behind} …]", count(lines, "line", "lines"))
        };
        let between = scribe.meter.text(&marker(u64::MAX, tokens));
        // Joining the pieces may cost a token at each seam.
        let half = Tokens(less(room, between).0.saturating_sub(4) / 2);
        let keep = HeadAndTail { head: half, tail: half, lines: None };
        let words =
            cut(&text, less(tokens, wrapping), keep, &scribe.meter, |left| marker(left.lines, left.tokens));
        // Where no part of it fits, or only its provider can read it, a line says that there was one.
        let words = words.filter(|_| half > Tokens(0));
        context.fold(self.name(), std::slice::from_ref(&(index..index + 1)), |folded| match &words {
            Some(words) => words.clone(),
            None => scribe.note(folded),
        })
    }

    /// Leaves out the oldest lines.
    fn drop_lines(&self, context: Context, cap: Tokens) -> Context {
        let scribe = StubWriter::of(&context);
        self.drop_oldest(context, cap, |segment| is_line(&scribe, segment))
    }

    /// Leaves out summaries other than mere lines, too.
    fn drop_summaries(&self, context: Context, cap: Tokens) -> Context {
        self.drop_oldest(context, cap, |_| true)
    }

    fn drop_oldest(&self, context: Context, cap: Tokens, may: impl Fn(&Segment) -> bool) -> Context {
        let mut left = over(&context, cap);
        context.edit(self.name(), |_, segment| {
            if left == Tokens(0) || segment.tier() != Tier::Summaries || !may(segment) {
                return SegmentEdit::Keep;
            }
            left = less(left, segment.tokens());
            SegmentEdit::Drop
        })
    }
}

/// Returns true if a segment is a line that only names removed content, without describing it.
fn is_line(scribe: &StubWriter, segment: &Segment) -> bool {
    matches!(segment.body(), SegmentBody::Note(note) if note.words() == scribe.note(&note.folded))
}

fn over(context: &Context, cap: Tokens) -> Tokens {
    less(context.tier_tokens(Tier::Summaries), cap)
}

fn less(tokens: Tokens, by: Tokens) -> Tokens {
    Tokens(tokens.0.saturating_sub(by.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        notation::{context, show},
        reducers::SlideDialogue,
    };

    const LOG: &str = r#"
system: Rules.
user: One.
assistant: Yes.
compacted through 3: 100 words of "sum"
user: Two.
assistant: 20 words of "two"
user: Three.
assistant: 20 words of "three"
user: Four.
assistant: 20 words of "four"
user: Five.
assistant: Yes.
"#;

    fn at(cap: u64) -> String {
        let slide = SlideDialogue { max_turns: Some(1), max_tokens: None };
        let given = slide.reduce(context(LOG), &Budget::new(Tokens(0)), ReducerState::default());
        let budget = Budget::new(Tokens(u64::MAX)).with_cap(Tier::Summaries, Tokens(cap));
        let reduced = ShortenSummaries::default().reduce(given.context, &budget, given.state);
        assert!(reduced.context.tier_tokens(Tier::Summaries) <= Tokens(cap));
        show(&reduced.context)
    }

    #[test]
    fn the_summary_is_cut_and_the_lines_keep_their_room() {
        insta::assert_snapshot!(at(70), @r"
        prefix      1       verbatim      1  Rules.
        note        2-4     summary      32 by shorten_summaries  sum sum sum sum sum sum sum sum sum sum sum / [… 1 line, 78 tokens left out; messages 2-3 …] / sum sum sum sum sum sum sum sum sum sum sum
        user        5       verbatim      1  Two.
        note        6       summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 6]
        user        7       verbatim      1  Three.
        note        8       summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 8]
        user        9       verbatim      1  Four.
        note        10      summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 10]
        user        11      verbatim      1  Five.
        answer      12      verbatim      1  Yes.
        total 71
        ");
    }

    #[test]
    fn the_oldest_lines_go_before_the_summary() {
        insta::assert_snapshot!(at(50), @r"
        prefix      1       verbatim      1  Rules.
        note        2-4     summary      20 by shorten_summaries  sum sum sum sum sum / [… 1 line, 90 tokens left out; messages 2-3 …] / sum sum sum sum sum
        user        5       verbatim      1  Two.
        user        7       verbatim      1  Three.
        note        8       summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 8]
        user        9       verbatim      1  Four.
        note        10      summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 10]
        user        11      verbatim      1  Five.
        answer      12      verbatim      1  Yes.
        left out    6       by shorten_summaries, 20 tokens
        total 48
        ");
    }

    #[test]
    fn a_summary_of_which_nothing_fits_makes_room_for_the_newest_lines() {
        insta::assert_snapshot!(at(28), @r"
        prefix      1       verbatim      1  Rules.
        user        5       verbatim      1  Two.
        user        7       verbatim      1  Three.
        note        8       summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 8]
        user        9       verbatim      1  Four.
        note        10      summary      11 by slide_dialogue  [1 turn is not shown: 1 message; 20 tokens; message 10]
        user        11      verbatim      1  Five.
        answer      12      verbatim      1  Yes.
        left out    2-4, 6  by shorten_summaries, 120 tokens
        total 28
        ");
    }

    #[test]
    fn a_cap_that_nothing_fits_leaves_nothing() {
        insta::assert_snapshot!(at(5), @r"
        prefix      1       verbatim      1  Rules.
        user        5       verbatim      1  Two.
        user        7       verbatim      1  Three.
        user        9       verbatim      1  Four.
        user        11      verbatim      1  Five.
        answer      12      verbatim      1  Yes.
        left out    2-4, 6, 8, 10 by shorten_summaries, 160 tokens
        total 6
        ");
    }

    #[test]
    fn lines_side_by_side_become_one() {
        let log = "user: One.\nassistant: 20 words of \"a\"\nassistant: 20 words of \"b\"\nassistant: 20 words of \"c\"\nuser: Two.\n";
        let given = context(log);
        let scribe = StubWriter::of(&given);
        let given = given.fold("test", &[1..2, 2..3, 3..4], |folded| scribe.note(folded));
        let budget = Budget::new(Tokens(u64::MAX)).with_cap(Tier::Summaries, Tokens(25));
        let reduced = ShortenSummaries::default().reduce(given, &budget, ReducerState::default());
        insta::assert_snapshot!(show(&reduced.context), @r"
        user        1       verbatim      1  One.
        note        2-4     summary      11 by shorten_summaries  [3 turns are not shown: 3 messages; 60 tokens; messages 2-4]
        user        5       verbatim      1  Two.
        total 13
        ");
    }

    #[test]
    fn without_a_cap_nothing_happens() {
        let reduced = ShortenSummaries::default().reduce(
            context(LOG),
            &Budget::new(Tokens(0)),
            ReducerState::default(),
        );
        assert_eq!(reduced.context.changes(), context(LOG).changes());
    }
}
