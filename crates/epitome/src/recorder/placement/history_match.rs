//! Places in the log that hold the beginning of a history.

use epitome_core::EventId;
use epitome_store::{StoreError, ThreadStart, records::ThreadRow};
use epitome_wire::incoming::UnitSpeaker;

use super::{RequestPlacer, STEPS, is_aside};
use crate::recorder::recorder_cache::ThreadEnd;

/// A place in the log that holds the beginning of a history.
pub(super) struct HistoryMatch {
    /// Number of units found.
    pub(super) units: usize,
    pub(super) event: EventId,
    pub(super) thread: ThreadRow,
}

impl RequestPlacer<'_, '_> {
    /// Returns true if the thread ends with the units found.
    pub(super) fn is_end(&self, found: &HistoryMatch) -> bool {
        found.thread.head.link.normal == self.links[found.units]
    }

    /// The thread that ends where this history continues, if this process remembers it.
    pub(super) fn standing(&self) -> Option<(ThreadEnd, usize)> {
        let units = self.seen.units();
        let last = units.len();
        // An answer that is new here was given elsewhere: the thread went on through another gateway.
        let asked = units.iter().rev().take_while(|unit| unit.speaker != UnitSpeaker::Model).count();
        // A whole history that is known to its end is a retry or a question asked again, which is not the usual case.
        // And every history begins where a thread stands that has no messages.
        (last.saturating_sub(STEPS.min(asked)).max(1)..last).rev().find_map(|units| {
            let standing = self.recorder.known.thread_end(self.principal, self.links[units])?;
            (standing.key.as_deref() == self.key()).then_some((standing, units))
        })
    }

    /// Returns true if the history found is this request's past: an id shows it, or an answer in it does. Equal
    /// questions alone do not, unless no answer to them was ever recorded, and this request asks for one or includes
    /// it.
    pub(super) fn is_past(&self, found: &HistoryMatch) -> Result<bool, StoreError> {
        if is_aside(&found.thread.name) {
            return Ok(false);
        }
        if self.key().is_some() && self.is_ours(&found.thread) {
            return Ok(true);
        }
        // Scripts supply examples: only an answer that was given here counts.
        let said = self.seen.units()[..found.units].iter().any(|unit| unit.speaker == UnitSpeaker::Model);
        if said && self.recorder.store.has_answer_before(found.thread.id, found.event.seq)? {
            return Ok(true);
        }
        // A fork holds answers in its client's form, because they were recognised as answers given here.
        let is_fork = matches!(found.thread.start, ThreadStart::Fork { .. });
        if said && is_fork && self.key().is_none() && found.thread.key.is_none() {
            return Ok(true);
        }
        let goes_on =
            self.seen.units().get(found.units).is_none_or(|unit| unit.speaker == UnitSpeaker::Model);
        Ok(self.key().is_none()
            && found.thread.key.is_none()
            && goes_on
            && self.is_end(found)
            && !self.recorder.known.is_under_way(found.thread.id, found.thread.head.seq))
    }

    /// A thread that ends where this history continues, if the one found has already continued in the same way: two
    /// runs of one prompt with equal answers.
    pub(super) fn waiting(&self, found: &HistoryMatch) -> Result<Option<HistoryMatch>, StoreError> {
        let is_asked =
            |found: &HistoryMatch| self.recorder.known.is_under_way(found.thread.id, found.thread.head.seq);
        let waits = self.is_end(found) && (self.key().is_some() || !is_asked(found));
        if found.units < self.seen.units().len() || waits {
            return Ok(None);
        }
        let nearest = found.units.saturating_sub(STEPS).max(1);
        for units in (nearest..found.units).rev() {
            let fits = |found: &HistoryMatch| {
                Ok(self.is_end(found) && self.is_ours(&found.thread) && self.is_past(found)?)
            };
            if let Some(waiting) = self.known_to(units, &fits)? {
                return Ok(Some(waiting));
            }
        }
        self.find_reworded()
    }

    /// The longest part of the history that is known under the client's own id; else under any.
    pub(super) fn past(&self) -> Result<Option<HistoryMatch>, StoreError> {
        let last = self.seen.units().len();
        let near = last.saturating_sub(STEPS);
        let mut other = None;
        for units in (near.max(1)..=last).rev() {
            match self.known_to(units, &|found| self.is_past(found))? {
                Some(found) if self.is_ours(&found.thread) => return Ok(Some(found)),
                Some(found) if other.is_none() => other = Some(found),
                Some(_) | None => {}
            }
        }
        let ours = self.far(near, &|found| Ok(self.is_ours(&found.thread) && self.is_past(found)?))?;
        match ours.or(other) {
            Some(found) => Ok(Some(found)),
            None => self.far(near, &|found| self.is_past(found)),
        }
    }

    /// The longest known part of the history for which `fits` holds.
    pub(super) fn longest(
        &self,
        fits: &dyn Fn(&HistoryMatch) -> Result<bool, StoreError>,
    ) -> Result<Option<HistoryMatch>, StoreError> {
        let last = self.seen.units().len();
        let near = last.saturating_sub(STEPS);
        for units in (near.max(1)..=last).rev() {
            if let Some(found) = self.known_to(units, fits)? {
                return Ok(Some(found));
            }
        }
        self.far(near, fits)
    }

    /// The longest known part of the history for which `fits` holds, with fewer than `near` units.
    fn far(
        &self,
        near: usize,
        fits: &dyn Fn(&HistoryMatch) -> Result<bool, StoreError>,
    ) -> Result<Option<HistoryMatch>, StoreError> {
        // A known history is known from its beginning: far from its end, bisection finds its length.
        let (mut known, mut unknown) = (None, near);
        let mut lower = 1;
        while lower < unknown {
            let middle = lower.midpoint(unknown);
            match self.known_to(middle, fits)? {
                Some(found) => {
                    lower = middle + 1;
                    known = Some(found);
                }
                None => unknown = middle,
            }
        }
        Ok(known)
    }

    fn known_to(
        &self,
        units: usize,
        fits: &dyn Fn(&HistoryMatch) -> Result<bool, StoreError>,
    ) -> Result<Option<HistoryMatch>, StoreError> {
        let store = &self.recorder.store;
        let mut best: Option<HistoryMatch> = None;
        for event in store.histories_of_principal(self.principal, self.links[units])? {
            let found = HistoryMatch { units, event, thread: store.thread(event.thread)? };
            if !fits(&found)? {
                continue;
            }
            // Under the same id before under none, at a thread's end before inside one, newest first.
            let rank = |found: &HistoryMatch| (self.is_ours(&found.thread), self.is_end(found));
            if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                best = Some(found);
            }
        }
        Ok(best)
    }
}
