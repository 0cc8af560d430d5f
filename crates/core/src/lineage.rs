//! Lineage of a session: the whole chain of turns, and the spans that compactions cover.

use crate::{
    id::{EventId, Seq},
    turn::Turn,
};

/// Status of a compaction by the newest event about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionStatus {
    /// It stands for the span it covers, unless a newer one does.
    Holds,
    /// It was undone.
    Undone,
}

/// The turns that `compaction` covers: from the first turn the compaction before it kept, through the last one it
/// summarised, and that earlier compaction itself. One that had been reverted by then is not counted as earlier. `None`
/// if `compaction` is not a compaction among `turns`.
///
/// `turns` is the whole chain of a thread, oldest first.
pub fn covered_by(turns: &[Turn], compaction: EventId) -> Option<Vec<EventId>> {
    let at = turns.iter().position(|turn| turn.id == compaction)?;
    let this = turns[at].compaction.as_ref()?;
    let previous = turns[..at].iter().rev().find(|turn| turn.in_force_at(compaction.seq));
    let from = previous.map_or(Seq::START, |turn| {
        turn.compaction.as_ref().and_then(|compaction| compaction.first_kept).unwrap_or(turn.id.seq)
    });
    let covered = turns[..at].iter().filter(|turn| match turn.compaction {
        Some(_) => previous.is_some_and(|previous| previous.id == turn.id),
        None => from <= turn.last && turn.id.seq <= this.through,
    });
    Some(covered.map(|turn| turn.id).collect())
}

/// The turn that an event belongs to: the last one that starts at or before it.
pub fn turn_of(turns: &[Turn], event: Seq) -> Option<&Turn> {
    let after = turns.partition_point(|turn| turn.first <= event);
    turns[..after].last().filter(|turn| event <= turn.last)
}
