//! The loops of a context, oldest first.
//!
//! A loop begins with the turn in which a user asked and ends where the next one begins; messages that are
//! not yet answered belong to no loop. A note that stands for a user's message begins a loop as the message
//! did, so that a context with blocks over it falls into the same loops as before.

use std::{collections::HashSet, ops::Range};

use crate::{
    context::{Context, EventNaming, FoldedTotals, Segment, SegmentBody, VisibleOutcome},
    event::{LoggedEvent, Timestamp},
    loop_blocks::BlockConfig,
    meter::Meter,
    reducers::fold_oldest::SegmentWorth,
    turn::{TurnMap, TurnRange},
};

/// The loops of a context.
#[derive(Clone, Debug)]
pub struct LoopChain<'c> {
    context: &'c Context,
    held: Vec<bool>,
    loops: Vec<Range<usize>>,
}

/// A loop, with its turns.
#[derive(Clone, Debug)]
pub struct LoopRecord<'c> {
    context: &'c Context,
    held: &'c [bool],
    places: Range<usize>,
    turns: TurnMap,
}

impl<'c> LoopChain<'c> {
    /// Finds the loops of a context.
    pub fn of(context: &'c Context) -> Self {
        let worth = SegmentWorth::of(context);
        let segments = context.segments();
        let held = segments.iter().map(|segment| worth.holds(context, segment)).collect();
        Self { context, held, loops: loops(context) }
    }

    /// The context.
    pub fn context(&self) -> &'c Context {
        self.context
    }

    /// The loops, oldest first.
    pub fn records(&self) -> impl Iterator<Item = LoopRecord<'_>> {
        self.loops.iter().map(|places| LoopRecord {
            context: self.context,
            held: &self.held[places.clone()],
            places: places.clone(),
            turns: turns(&self.context.segments()[places.clone()]),
        })
    }

    /// Time of the newest event that records one.
    pub fn time(&self) -> Option<Timestamp> {
        self.context.segments().iter().rev().find_map(|segment| newest_event(segment)?.event.time)
    }

    /// The runs of segments at `places` that may be replaced: none of them is held.
    pub(super) fn runs(&self, places: Range<usize>) -> Vec<Range<usize>> {
        runs(places, |place| self.held[place])
    }
}

impl<'c> LoopRecord<'c> {
    /// Its segments.
    pub fn segments(&self) -> &'c [Segment] {
        &self.context.segments()[self.places.clone()]
    }

    /// Places of its segments in the context.
    pub fn places(&self) -> Range<usize> {
        self.places.clone()
    }

    /// Its turns. A note is one, however many it stands for.
    pub fn turns(&self) -> &TurnMap {
        &self.turns
    }

    /// Meter that counts its texts.
    pub fn meter(&self) -> &'c Meter {
        self.context.meter()
    }

    /// Way in which its events are named.
    pub fn names(&self) -> EventNaming {
        self.context.names()
    }

    pub(super) fn context(&self) -> &'c Context {
        self.context
    }

    /// Returns true if only the segment itself may be shown: it is essential, pinned, an instruction or a
    /// summary.
    pub fn is_held(&self, place: usize) -> bool {
        self.held.get(place).copied().unwrap_or(false)
    }

    /// All its turns.
    pub fn all_turns(&self) -> Option<TurnRange> {
        let end_turn = self.turns.turn_count().checked_sub(1)?;
        Some(TurnRange { start_turn: 0, end_turn })
    }

    /// Places of the segments of some turns in the loop.
    pub fn places_of(&self, range: TurnRange) -> Range<usize> {
        let start =
            self.turns.turn_msg_range(range.start_turn).map_or(self.places.len(), |places| places.start);
        start..start + self.turns.messages_for_range(range, self.segments()).len()
    }

    /// Places in the loop where something may stand for the segments of some turns: each run without a held
    /// segment.
    pub fn runs(&self, range: TurnRange, config: &BlockConfig) -> Vec<Range<usize>> {
        let segments = self.segments();
        runs(self.places_of(range), |place| {
            self.held[place] || (config.keep_user_messages && segments[place].is_user())
        })
    }

    /// Contents that a note for some of its segments would stand for. Its tokens are those of the originals.
    pub fn folded(&self, places: Range<usize>) -> FoldedTotals {
        let mut folded = FoldedTotals::default();
        for segment in self.segments().get(places).unwrap_or_default() {
            folded.add(segment);
        }
        folded
    }
}

/// The runs in `places` without a held segment.
fn runs(places: Range<usize>, is_held: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for place in places.filter(|place| !is_held(*place)) {
        match runs.last_mut() {
            Some(run) if run.end == place => run.end = place + 1,
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

/// Neighbours of one turn; a note stands by itself.
pub(super) fn turns(segments: &[Segment]) -> TurnMap {
    TurnMap::from_messages(segments, |segment| match segment.body() {
        SegmentBody::Note(_) => None,
        _ => Some(segment.turn()),
    })
}

fn loops(context: &Context) -> Vec<Range<usize>> {
    let segments = context.segments();
    let leads = |segment: &&Segment| {
        matches!(
            segment.body(),
            SegmentBody::Prefix(_) | SegmentBody::Summary(_) | SegmentBody::Instruction(_)
        )
    };
    let first = segments.iter().take_while(leads).count();
    let did = |segment: &Segment| segment.is_answer() || matches!(segment.body(), SegmentBody::Note(_));
    let Some(last) = segments[first..].iter().rposition(did) else { return Vec::new() };
    let asked: HashSet<u64> = segments.iter().filter(|segment| asks(segment)).map(Segment::turn).collect();
    let turns = turns(&segments[first..=first + last]);
    let mut loops: Vec<Range<usize>> = Vec::new();
    for turn in 0..turns.turn_count() {
        let Some(places) = turns.turn_msg_range(turn) else { break };
        let places = first + places.start..first + places.end;
        match loops.last_mut() {
            Some(current) if !begins(segments, places.start, &asked) => current.end = places.end,
            _ => loops.push(places),
        }
    }
    // Results say things beside an answer; these follow the answer's results in the same turn.
    if let Some(current) = loops.last_mut() {
        let turn = segments[current.end - 1].turn();
        let same =
            |segment: &&Segment| segment.turn() == turn && !matches!(segment.body(), SegmentBody::Note(_));
        current.end += segments[current.end..].iter().take_while(same).count();
    }
    loops
}

/// Returns true if a loop begins at a place: a user asked in its turn, and that turn begins here. A note may
/// stand for a part of a turn, so that the next group goes on with it.
fn begins(segments: &[Segment], place: usize, asked: &HashSet<u64>) -> bool {
    let turn = segments[place].turn();
    let goes_on = place.checked_sub(1).is_some_and(|before| last_turn(&segments[before]) >= turn);
    !goes_on && asked.contains(&turn)
}

/// The last turn that a segment is of, or stands for.
pub(super) fn last_turn(segment: &Segment) -> u64 {
    match segment.body() {
        SegmentBody::Note(note) => note.folded.turns.end.saturating_sub(1),
        _ => segment.turn(),
    }
}

/// Returns true if a segment is a user's request or stands for one.
fn asks(segment: &Segment) -> bool {
    match segment.body() {
        SegmentBody::Note(note) => note.folded.user_messages > 0,
        _ => segment.is_user(),
    }
}

fn newest_event(segment: &Segment) -> Option<&LoggedEvent> {
    match segment.body() {
        SegmentBody::Prefix(event)
        | SegmentBody::Instruction(event)
        | SegmentBody::Carried(event)
        | SegmentBody::Summary(event)
        | SegmentBody::User { event, .. }
        | SegmentBody::Answer { event, .. }
        | SegmentBody::Exchange { outcome: VisibleOutcome::Returned { event, .. }, .. }
        | SegmentBody::Exchange { event, outcome: VisibleOutcome::Unanswered, .. } => Some(event),
        SegmentBody::Note(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::context;

    /// The loops, each as the number of turns it has and the events it stands for.
    fn check(log: &str, expect: &[&str]) {
        let context = context(log);
        let chain = LoopChain::of(&context);
        let shown: Vec<String> = chain
            .records()
            .map(|record| {
                format!(
                    "{} turns of {}",
                    record.turns().turn_count(),
                    record.folded(0..record.places().len()).events
                )
            })
            .collect();
        assert_eq!(shown, expect, "{log}");
    }

    #[test]
    fn a_loop_is_a_request_and_all_turns_until_the_next() {
        check(
            "system: Rules.\nuser: One.\nassistant: Yes.\n  call a {}\n  -> done\n  beside: By the way.\nassistant: Done.\nuser: Two.\nuser: And more.\nassistant: Done.\n",
            &["2 turns of 2-5", "1 turns of 6-8"],
        );
        check("user: Go.\nassistant:\n  call a {}\n  -> done\n  beside: Look.\n", &["1 turns of 1-3"]);
    }

    #[test]
    fn what_was_asked_and_not_answered_is_of_no_loop() {
        check("user: One.\nassistant: Yes.\nuser: Two.\ninject memory: A fact.\n", &["1 turns of 1-2"]);
        check("user: One.\n", &[]);
        check("", &[]);
    }

    #[test]
    fn the_summary_a_context_stands_on_is_of_no_loop() {
        check(
            "user: One.\nassistant: Yes.\nuser: Two.\nassistant: Yes.\ncompacted through 2 keep 4: Before.\nuser: Three.\nassistant: Yes.\n",
            &["1 turns of 4", "1 turns of 6-7"],
        );
    }

    #[test]
    fn a_note_that_stands_for_a_request_begins_a_loop() {
        let context = context("user: 9 words of \"a\"\nassistant: Yes.\nuser: Two.\nassistant: 9 words of \"b\"\nassistant: Yes.\n")
            .fold("test", &[0..2, 3..4], |_| "gone".into());
        let chain = LoopChain::of(&context);
        let turns: Vec<usize> = chain.records().map(|record| record.turns().turn_count()).collect();
        assert_eq!(turns, [1, 3]);
    }

    #[test]
    fn a_note_for_a_part_of_a_turn_ends_no_loop() {
        let context = context(
            "user: One.\ninject memory: 9 words of \"fact\"\nuser: Two.\nassistant: Yes.\n",
        )
        .fold("test", std::slice::from_ref(&(1..2)), |_| "gone".into());
        assert_eq!(LoopChain::of(&context).records().count(), 1);
    }
}
