//! Gaps: neighbouring events that need not be there, because a note that was recorded stands for all of them.
//!
//! After a gap, turns must be counted as if its events had been there. So a gap knows their effect on the
//! count, in a form that holds wherever a context begins: the first move among them, which depends on the
//! events before it, is kept as it is; its consequences are kept as numbers. A gap has no other effect
//! outside: calls and their results are both in it or both not, and no call in it is open.

use serde::{Deserialize, Serialize};

use crate::{
    context::{
        Context, ContextNote, Fidelity, FoldedTotals, Segment, SegmentBody, SegmentKey,
        turn_count::{TurnCount, TurnProgress, TurnStep},
    },
    event::{Fact, InstructionKind, LoggedEvent},
    id::Seq,
    seq_set::{SeqRange, SeqSet},
};

/// Neighbouring events that a note stands for, all of them, so that they need not be read.
///
/// Of the events in between, those that say something beyond their place are there all the same: see
/// [`outlasts_notes`](UnreadGap::outlasts_notes).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnreadGap {
    /// The events.
    pub(crate) events: SeqRange,
    /// The first event that any of them belongs to, a result to its call. It is one of them, but for old records: see
    /// [`is_whole`](Self::is_whole).
    pub(crate) since: Seq,
    /// Place of the first segment that they show; `None` if their segments begin before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<GapAnchor>,
    /// The first move among them and its consequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<GapTurnSteps>,
    /// The compaction whose summary the note stands for too: under another one the note is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary_of: Option<Seq>,
}

/// Place of the first segment that a gap hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GapAnchor {
    /// In the turn that goes on when the gap begins.
    Before(SegmentKey),
    /// In the turn of the first move in the gap.
    Within(SegmentKey),
}

/// Effect of a gap on the count of turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GapTurnSteps {
    pub(crate) first: TurnStep,
    /// Number of turns that begin after that of the first move.
    pub(crate) more: u64,
    /// Progress of the last turn.
    pub(crate) ends: TurnProgress,
    /// Distance in turns from the last one back to the newest answer, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered: Option<u64>,
}

impl UnreadGap {
    /// The first event and the last.
    pub fn events(&self) -> SeqRange {
        self.events
    }

    /// The first event that any of them belongs to.
    pub(crate) fn since(&self) -> Seq {
        self.since
    }

    /// Returns true if every call in it has its results, and every result its call. Records once had them in
    /// two gaps, of which the later one is not whole by this; the other one is among those it
    /// [goes back to](Self::since).
    pub(crate) fn is_whole(&self) -> bool {
        self.since >= self.events.first
    }

    /// Returns true if an event must be kept even if a note stands for everything around it: it holds for
    /// later events, or says something about an event elsewhere.
    pub fn outlasts_notes(event: &LoggedEvent) -> bool {
        match &event.event.fact {
            Fact::Instructed { what, .. } => match what {
                InstructionKind::Settings | InstructionKind::System | InstructionKind::Tools => true,
                InstructionKind::Message | InstructionKind::Project => false,
            },
            Fact::Compacted(_)
            | Fact::CompactionReverted { .. }
            | Fact::CompactionRestored { .. }
            | Fact::Pinned { .. }
            | Fact::Unpinned { .. } => true,
            Fact::UserSaid { .. }
            | Fact::AssistantSaid { .. }
            | Fact::ToolReturned { .. }
            | Fact::CompactionRequested { .. }
            | Fact::Injected { .. }
            | Fact::UsageReported { .. }
            | Fact::ModelChanged { .. }
            | Fact::Carried { .. } => false,
        }
    }

    /// Returns true if the note stands for all of it in a context that stands on this compaction and shows
    /// events from `from` on.
    pub(crate) fn holds(&self, from: Seq, standing: Option<Seq>) -> bool {
        self.since >= from && (self.summary_of.is_none() || self.summary_of == standing)
    }

    /// Extends the gap with one that follows it immediately, of the same note.
    pub(crate) fn append(&mut self, next: &Self) {
        self.events.last = self.events.last.max(next.events.last);
        self.since = self.since.min(next.since);
        if self.at.is_none() {
            self.at = match next.at {
                Some(GapAnchor::Before(key)) if self.turns.is_some() => Some(GapAnchor::Within(key)),
                at => at,
            };
        }
        let Some(moves) = &next.turns else { return };
        let Some(mine) = &self.turns else {
            self.turns.clone_from(&next.turns);
            return;
        };
        let mut turns = TurnCount::default();
        mine.apply(&mut turns);
        let begun = mine.begins_at();
        moves.apply(&mut turns);
        self.turns = Some(GapTurnSteps {
            first: mine.first.clone(),
            more: turns.newest.saturating_sub(begun),
            answered: turns.answered.map(|answered| turns.newest.saturating_sub(answered)),
            ends: turns.answer,
        });
    }

    /// One event, of which something is `shown` by itself, and which belongs to one as early as `since`.
    pub(crate) fn of(
        event: &LoggedEvent,
        shown: Option<SegmentKey>,
        since: Seq,
        summary_of: Option<Seq>,
    ) -> Self {
        let seq = event.id.seq;
        let first = TurnStep::of(event);
        let place = if first.is_some() { GapAnchor::Within } else { GapAnchor::Before };
        let turns = first.map(|first| {
            let (ends, answered) = match &first {
                TurnStep::Ask => (TurnProgress::Asked, None),
                TurnStep::Answer(answer) => (TurnProgress::Answered(answer.clone()), Some(0)),
            };
            GapTurnSteps { first, more: 0, ends, answered }
        });
        let events = SeqRange { first: seq, last: seq };
        Self { events, since: since.min(seq), at: shown.map(place), turns, summary_of }
    }
}

impl GapTurnSteps {
    fn apply(&self, turns: &mut TurnCount) {
        turns.advance(&self.first);
        turns.newest = turns.newest.saturating_add(self.more);
        turns.answer = self.ends.clone();
        if let Some(back) = self.answered {
            turns.answered = Some(turns.newest.saturating_sub(back));
        }
    }

    /// The turn of the first move in an empty context.
    fn begins_at(&self) -> u64 {
        let mut turns = TurnCount::default();
        turns.advance(&self.first);
        turns.newest
    }
}

impl Context {
    /// Passes over a gap. Until the recorded decisions are made again, a line in its place names the events.
    pub(crate) fn skip_gap(&mut self, gap: &UnreadGap) {
        self.growth.head = self.growth.head.max(gap.events.last);
        self.growth.begun = true;
        if let Some(GapAnchor::Before(key)) = gap.at {
            self.put_unread(key, gap);
        }
        let before = self.growth.turns.clone();
        if let Some(moves) = &gap.turns {
            moves.apply(&mut self.growth.turns);
            self.growth.blocks.answered |= moves.answered.is_some();
            if let Some(GapAnchor::Within(key)) = gap.at {
                let mut first = before;
                first.advance(&moves.first);
                let after = std::mem::replace(&mut self.growth.turns, first);
                self.put_unread(key, gap);
                self.growth.turns = after;
            }
        }
    }

    fn put_unread(&mut self, key: SegmentKey, gap: &UnreadGap) {
        let events = SeqSet::one(key.seq);
        let hidden = SeqSet::run(gap.events.first, gap.events.last);
        let text = format!("[not shown: {}]", self.names.handles(&hidden));
        let (fixed, content) = self.note_cost(&text);
        self.total += fixed + content;
        self.segments.push(Segment {
            key,
            events: SeqSet::default(),
            turn: self.growth.turns.newest,
            body: SegmentBody::Note(ContextNote {
                text,
                folded: FoldedTotals { events, ..FoldedTotals::default() },
            }),
            fixed,
            counts: vec![content],
            content,
            sent: Vec::new(),
            fidelity: Fidelity::Summary,
            touched: None,
            standing: None,
        });
    }
}

impl Segment {
    /// Returns true if it stands for a gap whose note is yet to be put there: no other decision can be made
    /// about it.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.body, SegmentBody::Note(_)) && self.touched.is_none()
    }
}
