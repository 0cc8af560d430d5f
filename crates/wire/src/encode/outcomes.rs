//! What became of every call, by the events that hold the call and its result.

use std::collections::{BTreeSet, HashMap};

use epitome_core::{
    Seq,
    event::{ToolCall, ToolResult},
    pairing::{self, Outcome},
};

use super::Entry;

/// Where a result is: its event, and its place among that event's results.
pub(super) type Place = (usize, usize);

/// The calls of a history, paired with their results.
#[derive(Default)]
pub(super) struct Outcomes<'a> {
    returned: HashMap<usize, BTreeSet<Place>>,
    unanswered: HashMap<usize, Vec<&'a ToolCall>>,
    strays: BTreeSet<Place>,
}

impl<'a> Outcomes<'a> {
    pub(super) fn of(entries: &[Entry<'a>]) -> Self {
        let mut places: HashMap<*const ToolResult, Place> = HashMap::new();
        for entry in entries {
            for (ordinal, result) in entry.event.fact.results().iter().enumerate() {
                places.insert(std::ptr::from_ref(result), (entry.index, ordinal));
            }
        }
        let place = |result: &ToolResult| places.get(&std::ptr::from_ref(result)).copied();
        let paired = pairing::pair(entries.iter().map(|entry| (Seq(entry.index as u64), &entry.event.fact)));
        let mut outcomes = Self::default();
        for exchange in paired.exchanges {
            let call = usize::try_from(exchange.at.0).unwrap_or(usize::MAX);
            match exchange.outcome {
                Outcome::Returned { result, .. } => {
                    outcomes.returned.entry(call).or_default().extend(place(result));
                }
                Outcome::Unanswered => outcomes.unanswered.entry(call).or_default().push(exchange.call),
            }
        }
        outcomes.strays.extend(paired.strays.iter().filter_map(|(_, result)| place(result)));
        outcomes
    }

    /// The results of the calls in `entries`, in the order they were sent.
    pub(super) fn returned(&self, entries: &[&Entry<'_>]) -> BTreeSet<Place> {
        entries.iter().filter_map(|entry| self.returned.get(&entry.index)).flatten().copied().collect()
    }

    /// The calls in `entries` that nothing answers, in order.
    pub(super) fn unanswered(&self, entries: &[&Entry<'_>]) -> Vec<&'a ToolCall> {
        entries.iter().filter_map(|entry| self.unanswered.get(&entry.index)).flatten().copied().collect()
    }

    /// Whether the result at `place` answers nothing.
    pub(super) fn is_stray(&self, place: Place) -> bool {
        self.strays.contains(&place)
    }
}
