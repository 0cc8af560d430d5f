//! The window: the events of a thread that must be read to show it, known before any of them is read.

use std::sync::Arc;

use super::{EditRecord, ReadCutoff};
use crate::{
    context::UnreadGap,
    event::{Fact, LoggedEvent},
    id::Seq,
    projection::EventLine,
    seq_set::SeqSet,
    tokens::Tokens,
};

/// Events of a thread that must be read to show it: all from a place on, without those that notes stand for,
/// and those of certain kinds wherever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadWindow {
    from: Seq,
    begins: Option<Seq>,
    gaps: Vec<UnreadGap>,
}

impl ReadWindow {
    /// The kinds of events that are read wherever they are.
    pub const ALWAYS_READ_KINDS: &'static [&'static str] =
        &["instructed", "compacted", "compaction_reverted", "compaction_restored", "pinned", "unpinned"];

    /// The window of a thread that ends at `end` and stands on the compaction `pivot`; `passes` holds the
    /// decisions before its calls, oldest first. Without any record of a floor, it is the whole thread.
    pub fn from_records(passes: &[EditRecord], end: Seq, pivot: Option<&LoggedEvent>) -> Self {
        let floors =
            passes.iter().rev().filter(|pass| pass.head <= end).filter_map(|pass| pass.floor.as_ref());
        let mut floors = floors.peekable();
        let Some(newest) = floors.peek() else {
            return Self { from: Seq::START.next(), begins: None, gaps: Vec::new() };
        };
        let begins = newest.begins;
        let (from, standing) = match pivot.map(|pivot| (pivot.id.seq, &pivot.event.fact)) {
            Some((at, Fact::Compacted(compaction))) => (compaction.kept_from(at), Some(at)),
            _ => (Seq::START, None),
        };
        // A floor holds for the part that was shown then; an older one may cover earlier events.
        let mut until = end;
        let mut gaps: Vec<UnreadGap> = Vec::new();
        for floor in floors {
            gaps.extend(floor.below(until, end).cloned().rev());
            until = until.min(floor.from.previous());
            if until < from {
                break;
            }
        }
        gaps.reverse();
        gaps.retain(|gap| gap.holds(from, standing));
        Self { from: from.max(Seq::START.next()), begins: Some(begins), gaps }
    }

    /// First event of the window.
    pub fn from(&self) -> Seq {
        self.from
    }

    /// The events from there on that need not be read, unless they are of [these kinds](Self::ALWAYS_READ_KINDS).
    pub fn unread_events(&self) -> SeqSet {
        let runs: Vec<SeqSet> =
            self.gaps.iter().map(|gap| SeqSet::run(gap.events().first, gap.events().last)).collect();
        SeqSet::union(&runs)
    }

    /// Makes the line of the events that were read, oldest first, each with the counts of its texts if it has
    /// any.
    pub fn line(self, read: impl IntoIterator<Item = (Arc<LoggedEvent>, Option<Vec<Tokens>>)>) -> EventLine {
        let mut line = match self.begins {
            Some(begins) => EventLine::with_gaps(self.from, begins, self.gaps),
            None => EventLine::default(),
        };
        for (event, pieces) in read {
            line.push_outside_gaps(event, pieces);
        }
        line
    }
}

impl ReadCutoff {
    /// The gaps that end no later than this, in order; gaps out of order are not ours and are ignored.
    fn below(&self, until: Seq, end: Seq) -> impl DoubleEndedIterator<Item = &UnreadGap> {
        let mut reached = Seq::START;
        let in_order = self.gaps.iter().filter(move |gap| {
            let events = gap.events();
            let in_order =
                reached < events.first && events.first <= events.last && gap.since() <= events.first;
            reached = reached.max(events.last);
            in_order && events.last <= end
        });
        whole(in_order.collect()).into_iter().filter(move |gap| gap.events().last <= until)
    }
}

/// The gaps that need no other: not those of old records that have a result without its call, nor any in which that may be.
fn whole(gaps: Vec<&UnreadGap>) -> Vec<&UnreadGap> {
    let mut torn: Option<Seq> = None;
    let mut whole = Vec::new();
    for gap in gaps.into_iter().rev() {
        if !gap.is_whole() {
            torn = Some(torn.map_or(gap.since(), |torn| torn.min(gap.since())));
        } else if torn.is_none_or(|torn| gap.events().last < torn) {
            whole.push(gap);
        }
    }
    whole.reverse();
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pipeline::ReducerState, seq_set::SeqRange};

    /// Checks gaps by their first event, their last one and the first that any belongs to, and the events
    /// that need not be read.
    fn check(gaps: &[[u64; 3]], expect: &str) {
        let gap = |[first, last, since]: [u64; 3]| UnreadGap {
            events: SeqRange { first: Seq(first), last: Seq(last) },
            since: Seq(since),
            at: None,
            turns: None,
            summary_of: None,
        };
        let gaps = gaps.iter().copied().map(gap).collect();
        let floor = Some(ReadCutoff { from: Seq::START, begins: Seq(1), gaps });
        let pass = EditRecord {
            head: Seq(20),
            epoch: None,
            edits: Vec::new(),
            state: ReducerState::default(),
            floor,
        };
        assert_eq!(ReadWindow::from_records(&[pass], Seq(20), None).unread_events().to_string(), expect);
    }

    #[test]
    fn what_notes_stand_for_is_not_read() {
        check(&[[2, 3, 2], [5, 6, 5], [8, 8, 8]], "2-3, 5-6, 8");
    }

    #[test]
    fn gaps_that_are_out_of_order_are_read() {
        check(&[[5, 6, 5], [2, 3, 2], [8, 7, 8], [9, 30, 9]], "5-6");
    }

    #[test]
    fn calls_and_results_that_old_records_have_in_two_gaps_are_read() {
        check(&[[2, 3, 2], [5, 5, 3], [7, 7, 7]], "7");
        check(&[[1, 1, 1], [2, 3, 2], [5, 5, 5], [8, 8, 3]], "1");
        check(&[[1, 1, 1], [3, 3, 3], [5, 5, 3], [8, 8, 5]], "1");
    }
}
