//! The floor: events that need not be read any more, because notes stand for them.
//!
//! It is found when notes are put in place, with everything there to look at, and recorded beside them; from
//! then on it is known from the records alone. An event is below the floor only if one note stands for all of
//! it and no later event can refer to it: in doubt it is read.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::call_pairs::CallPairs;
use crate::{
    context::{Context, Segment, SegmentBody, SegmentKey, UnreadGap, is_rendered},
    event::{Fact, LoggedEvent},
    id::Seq,
    projection::EventLine,
    seq_set::{SeqRange, SeqSet},
};

/// Events of a thread that need not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCutoff {
    /// First event that it covers: earlier ones were not shown.
    pub(super) from: Seq,
    /// Beginning of the conversation, after the instructions at the head of the thread.
    pub(super) begins: Seq,
    /// Events that notes stand for, in order and apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gaps: Vec<UnreadGap>,
}

impl ReadCutoff {
    /// Events that need not be read of a line that is shown like this; `None` before the first message.
    pub(super) fn of(line: &EventLine, context: &Context) -> Option<Self> {
        let spoken =
            |event: &LoggedEvent| is_rendered(event) && !matches!(event.event.fact, Fact::Instructed { .. });
        let begun = !line.gaps().is_empty() || line.events().any(|event| spoken(event));
        if !begun {
            return None;
        }
        let (from, _) = line.shown_from();
        let begins = line.conversation_start();
        let notes = NoteSegments::of(context);
        let gaps =
            if notes.segments.is_empty() { kept_gaps(line, from) } else { gaps(line, from, begins, &notes) };
        Some(Self { from, begins, gaps })
    }

    /// Returns true if it covers exactly the shown part of a line.
    pub(super) fn is_of(&self, line: &EventLine) -> bool {
        self.from == line.shown_from().0
    }
}

fn kept_gaps(line: &EventLine, from: Seq) -> Vec<UnreadGap> {
    line.gaps().iter().filter(|gap| gap.events().first >= from).cloned().collect()
}

/// The notes of a context, and the events that a note shares with other segments.
struct NoteSegments<'c> {
    segments: Vec<&'c Segment>,
    standing: Option<Seq>,
    /// Events of which something is shown elsewhere.
    shared: SeqSet,
    /// Events of which something is left out.
    left_out: SeqSet,
}

impl<'c> NoteSegments<'c> {
    fn of(context: &'c Context) -> Self {
        let is_note = |segment: &&Segment| matches!(segment.body(), SegmentBody::Note(_));
        let (notes, others): (Vec<_>, Vec<_>) = context.segments().iter().partition(is_note);
        let mut runs: Vec<SeqRange> =
            notes.iter().flat_map(|note| note.stands_for().runs()).copied().collect();
        runs.sort_unstable();
        let mut shared = SeqSet::union(others.iter().map(|segment| segment.stands_for()));
        let mut reached: Option<Seq> = None;
        for run in runs {
            if let Some(reached) = reached.filter(|reached| run.first <= *reached) {
                shared.extend(&SeqSet::run(run.first, run.last.min(reached)));
            }
            reached = reached.max(Some(run.last));
        }
        let left_out = SeqSet::union(context.elided().iter().map(|elision| &elision.events));
        Self { segments: notes, standing: context.standing(), shared, left_out }
    }

    /// The note that alone stands for an event, as far as it is shown.
    fn of_event(&self, event: &LoggedEvent) -> Option<usize> {
        // A text from beside results is shown in its own place, and the results at their calls: one may be
        // left out alone.
        let seq = event.id.seq;
        let apart = matches!(&event.event.fact, Fact::ToolReturned { parts, .. } if !parts.is_empty());
        if apart && self.left_out.contains(seq) { None } else { self.at(seq) }
    }

    /// The note that alone stands for the event at a place.
    fn at(&self, seq: Seq) -> Option<usize> {
        let after = self.segments.partition_point(|note| note.key().seq <= seq);
        let index = after.checked_sub(1)?;
        let note = self.segments[index];
        // The record of the note says nothing of events that came late.
        let stands = note.stands_for().contains(seq) && !note.came_late(seq);
        (stands && !self.shared.contains(seq)).then_some(index)
    }

    /// The compaction whose summary a note stands for too.
    fn summary_of(&self, note: usize) -> Option<Seq> {
        self.standing.filter(|_| self.segments[note].key().part == 0)
    }

    /// Key of the first segment that an event would show, if it begins with this event.
    fn place(&self, note: usize, event: &LoggedEvent) -> Option<SegmentKey> {
        let begins = match &event.event.fact {
            Fact::ToolReturned { parts, .. } => !parts.is_empty(),
            _ => true,
        };
        let (own, seq) = (self.segments[note].key(), event.id.seq);
        // No other segment has this place: an answer's parts come after it.
        let key = if own.seq == seq && own.part != 0 { own } else { SegmentKey { seq, part: 1 } };
        begins.then_some(key)
    }
}

/// Content of a line from some place on.
enum LinePiece<'l> {
    Event(&'l LoggedEvent),
    Gap(&'l UnreadGap),
}

fn pieces(line: &EventLine, from: Seq) -> Vec<LinePiece<'_>> {
    let mut gaps = line.gaps().iter().filter(|gap| gap.events().first >= from).peekable();
    let mut pieces = Vec::new();
    for event in line.events().filter(|event| event.id.seq >= from) {
        while let Some(gap) = gaps.next_if(|gap| gap.events().first <= event.id.seq) {
            pieces.push(LinePiece::Gap(gap));
        }
        pieces.push(LinePiece::Event(event));
    }
    pieces.extend(gaps.map(LinePiece::Gap));
    pieces
}

/// Joins the events that notes stand for to gaps.
fn gaps(line: &EventLine, from: Seq, begins: Seq, notes: &NoteSegments<'_>) -> Vec<UnreadGap> {
    let pieces = pieces(line, from);
    let pairs = CallPairs::of(events(&pieces));
    let read = read(&pieces, begins, notes, &pairs);
    let mut gaps: Vec<UnreadGap> = Vec::new();
    // The note that the last gap belongs to, if the next event may extend it.
    let mut open: Option<usize> = None;
    for piece in pieces {
        let (note, gap) = match piece {
            LinePiece::Gap(gap) => match notes.at(gap.events().first) {
                Some(note) => (Some(note), UnreadGap { summary_of: notes.summary_of(note), ..gap.clone() }),
                None => (None, gap.clone()),
            },
            LinePiece::Event(event) if read.contains(&event.id.seq) => {
                open = None;
                continue;
            }
            LinePiece::Event(event) => match notes.of_event(event).filter(|_| is_in_turn(event)) {
                Some(note) => {
                    let since = pairs.since(event.id.seq);
                    (
                        Some(note),
                        UnreadGap::of(event, notes.place(note, event), since, notes.summary_of(note)),
                    )
                }
                // No part of it is shown, so it parts nothing.
                None => continue,
            },
        };
        match (gaps.last_mut(), note) {
            (Some(last), Some(note)) if open == Some(note) => last.append(&gap),
            _ => gaps.push(gap),
        }
        open = note;
    }
    debug_assert!(gaps.iter().all(UnreadGap::is_whole), "a call and its result are in two gaps: {gaps:?}");
    gaps
}

/// Returns true if an event is shown in the conversation, in its own place.
fn is_in_turn(event: &LoggedEvent) -> bool {
    is_rendered(event) && !UnreadGap::outlasts_notes(event)
}

fn events<'l>(pieces: &[LinePiece<'l>]) -> impl DoubleEndedIterator<Item = &'l LoggedEvent> {
    pieces.iter().filter_map(|piece| match piece {
        LinePiece::Event(event) => Some(*event),
        LinePiece::Gap(_) => None,
    })
}

/// The events that must be read.
fn read(pieces: &[LinePiece<'_>], begins: Seq, notes: &NoteSegments<'_>, pairs: &CallPairs) -> HashSet<Seq> {
    let newest =
        |is: fn(&Fact) -> bool| events(pieces).rfind(|event| is(&event.event.fact)).map(|event| event.id.seq);
    let mut read: HashSet<Seq> = events(pieces)
        .filter(|event| is_in_turn(event))
        .filter(|event| event.id.seq < begins || notes.of_event(event).is_none())
        .map(|event| event.id.seq)
        .collect();
    // Where a thread stands is seen from its newest events.
    read.extend(newest(|_| true));
    read.extend(newest(|fact| matches!(fact, Fact::UserSaid { .. })));
    read.extend(newest(|fact| matches!(fact, Fact::AssistantSaid { .. })));
    read.extend(pairs.unpaired_events());
    pairs.add_partners(&mut read);
    // A gap ends at an event that is read, and at one that a note shares with other segments.
    let place = |piece: &LinePiece<'_>| match piece {
        LinePiece::Event(event) => Some(event.id.seq).filter(|seq| !read.contains(seq)),
        LinePiece::Gap(gap) => Some(gap.events().first).filter(|first| notes.at(*first).is_some()),
    };
    let parted = pairs.inseparable_events(pieces.iter().map(place));
    read.extend(parted);
    read
}
