//! The essential set: the segments without which a request is pointless.
//!
//! The prefix, the newest message of the user, and the open exchange: the last answer, if the results of its
//! calls are not answered yet. A reducer leaves these alone, or in the last resort cuts them; it never leaves
//! them out.

use std::ops::Range;

use crate::{
    context::{Context, Segment, VisibleOutcome, segment::SegmentBody},
    tokens::Tokens,
};

/// Places of the essential segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EssentialSegments {
    /// Number of segments in the prefix.
    pub prefix: usize,
    /// The newest message of the user.
    pub newest: Option<usize>,
    /// The last answer with the results of its calls; empty if it was answered, or called nothing.
    pub open: Range<usize>,
}

impl EssentialSegments {
    /// Returns true if the segment at `index` is essential.
    pub fn contains(&self, index: usize) -> bool {
        index < self.prefix || self.newest == Some(index) || self.open.contains(&index)
    }

    /// Beginning of the loop in progress: the newest message of the user, or the open exchange if that is
    /// earlier. Past the end if there is neither.
    pub fn loop_start(&self) -> usize {
        let open = if self.open.is_empty() { usize::MAX } else { self.open.start };
        self.newest.unwrap_or(usize::MAX).min(open)
    }

    /// Tokens of the prefix, the newest message and the open exchange.
    pub fn tokens(&self, context: &Context) -> [Tokens; 3] {
        let segments = context.segments();
        let sum =
            |range: Range<usize>| segments.get(range).unwrap_or_default().iter().map(Segment::tokens).sum();
        let newest = self.newest.filter(|newest| !self.open.contains(newest));
        [sum(0..self.prefix), newest.map_or(Tokens(0), |at| sum(at..at + 1)), sum(self.open.clone())]
    }
}

impl Context {
    /// Finds the essential segments, from the end: it costs the newest loop, not the window.
    pub fn essential(&self) -> EssentialSegments {
        let newest = self.segments.iter().rposition(Segment::is_user);
        let open = self.open(newest);
        EssentialSegments { prefix: self.growth.prefix, newest, open }
    }

    fn open(&self, newest: Option<usize>) -> Range<usize> {
        let Some(last) = self.segments.iter().rposition(Segment::is_answer) else { return 0..0 };
        // If the newest answer is no longer shown, it called nothing, and the segments shown were answered by
        // it.
        let turn = self.segments[last].turn;
        if self.growth.turns.answered != Some(turn) {
            return 0..0;
        }
        let in_turn = self.segments[..=last].iter().rev().take_while(|segment| segment.turn == turn);
        // A turn begins with its request, which is no part of the answer.
        let length =
            in_turn.enumerate().filter(|(_, segment)| segment.is_answer()).map(|(back, _)| back + 1).last();
        let start = last + 1 - length.unwrap_or(0);
        let answer = &self.segments[start..=last];
        let returned = answer.iter().any(|segment| {
            matches!(&segment.body, SegmentBody::Exchange { outcome: VisibleOutcome::Returned { .. }, .. })
        });
        let called = answer.iter().any(|segment| matches!(segment.body, SegmentBody::Exchange { .. }));
        let interrupted = newest.is_some_and(|newest| newest > last);
        // Calls of an answer are past if the user spoke before they returned anything.
        if returned || (called && !interrupted) { start..last + 1 } else { 0..0 }
    }
}

#[cfg(test)]
mod tests {
    use crate::{context::SegmentEdit, notation::context};

    /// The places of the newest message and of the open exchange.
    fn check(log: &str, newest: Option<usize>, open: std::ops::Range<usize>) {
        let essential = context(log).essential();
        assert_eq!((essential.newest, essential.open), (newest, open), "{log}");
    }

    const OPEN: &str = "user: Go.\nassistant: On it.\n  thinking: Hm.\n  call a {}\n  -> done\n";

    #[test]
    fn the_open_exchange_is_the_whole_last_answer() {
        check(OPEN, Some(0), 1..4);
        check(&format!("{OPEN}user: Also this.\n"), Some(4), 1..4);
    }

    #[test]
    fn an_answered_exchange_is_not_open() {
        check(&format!("{OPEN}assistant: Done.\n"), Some(0), 0..0);
        check("user: Go.\nassistant: Done.\n", Some(0), 0..0);
        check("", None, 0..0);
    }

    #[test]
    fn calls_that_the_user_talked_over_are_past_and_others_still_run() {
        check("user: Go.\nassistant:\n  call a {}\nuser: Stop.\n", Some(2), 0..0);
        check("user: Go.\nassistant:\n  call a {}\n", Some(0), 1..2);
    }

    #[test]
    fn leaving_out_the_last_answer_does_not_reopen_an_older_one() {
        let reduced = context(&format!("{OPEN}assistant: Done.\n"))
            .edit("test", |index, _| if index == 4 { SegmentEdit::Drop } else { SegmentEdit::Keep });
        assert_eq!(reduced.essential().open, 0..0);
    }
}
