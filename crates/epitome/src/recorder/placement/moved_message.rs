//! Histories in which a message has moved.
//!
//! Some clients keep a message near the end of every request, such as the files that are being edited: the messages
//! of the last request stand before it in the next one. The answers stay in place.

use epitome_core::{ContentPart, Digest, EventId, Fact, Seq};
use epitome_store::{StoreError, records::ThreadRow};
use epitome_wire::incoming::UnitSpeaker;

use super::{RequestPlacer, history_match::HistoryMatch, is_aside};

/// Number of a history's answers that are looked up.
const ANSWERS: usize = 8;

/// Longest thread that is compared message by message.
const MAX_THREAD_EVENTS: usize = 4_096;

/// Number of events that a thread may begin with before the first message.
const OPENING: usize = 64;

impl RequestPlacer<'_, '_> {
    /// The fork point for a history that holds a whole thread in another order: the thread's newest answer is in it,
    /// and after that a message that stood before it.
    pub(super) fn find_rearranged(&self) -> Result<Option<HistoryMatch>, StoreError> {
        let units = self.seen.units();
        let answers = (1..units.len().saturating_sub(1)).rev();
        let answers = answers.filter(|at| units[*at].speaker == UnitSpeaker::Model).take(ANSWERS);
        for at in answers {
            let known = &self.recorder.known;
            let Some(thread) = known.thread_answered_with(self.principal, units[at].digest) else { continue };
            let thread = match self.recorder.store.thread(thread) {
                Ok(thread) => thread,
                // Its session was erased meanwhile.
                Err(StoreError::UnknownThread(_)) => continue,
                Err(error) => return Err(error),
            };
            if !is_aside(&thread.name)
                && self.is_ours(&thread)
                && let Some(found) = self.parted(thread, at)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The point where this history differs from a thread whose newest answer is its unit `answer`, if only messages
    /// have moved.
    fn parted(&self, thread: ThreadRow, answer: usize) -> Result<Option<HistoryMatch>, StoreError> {
        let store = &self.recorder.store;
        let digests = store.digests(thread.id, Seq(1), MAX_THREAD_EVENTS + 1)?;
        let restarts = digests.iter().any(|(_, digest, link)| *digest == Some(*link));
        if digests.len() > MAX_THREAD_EVENTS || restarts {
            return Ok(None);
        }
        let held: Vec<(Seq, Digest)> =
            digests.into_iter().filter_map(|(seq, digest, _)| Some((seq, digest?))).collect();
        let units = self.seen.units();
        let shared = held.iter().zip(units).take_while(|((_, held), unit)| *held == unit.digest).count();
        let Some((newest, before)) = held.get(shared..).and_then(<[_]>::split_last) else { return Ok(None) };
        if newest.1 != units[answer].digest || answer < shared {
            return Ok(None);
        }
        // The messages between must have been there in the same order, except for the question, from which a client
        // may have removed its reminders to the model.
        let mut rest = before.iter();
        let between = &units[shared..answer];
        let mut unknown = between.iter().filter(|unit| !rest.any(|(_, held)| *held == unit.digest));
        let question = unknown.next();
        if unknown.next().is_some() {
            return Ok(None);
        }
        if let Some(question) = question
            && (between.last() != Some(question) || !self.is_asked_in(&thread, before, answer - 1)?)
        {
            return Ok(None);
        }
        let has_moved =
            units[answer + 1..].iter().any(|unit| before.iter().any(|(_, held)| *held == unit.digest));
        if !has_moved {
            return Ok(None);
        }
        let seq = match shared.checked_sub(1) {
            Some(last) => held[last].0,
            None => self.opening_of(&thread)?,
        };
        if seq == Seq::START {
            return Ok(None);
        }
        let event = EventId { thread: thread.id, seq };
        Ok(Some(HistoryMatch { units: shared, event, thread }))
    }

    /// Returns true if a thread's last question begins with the words of the unit `at`.
    fn is_asked_in(&self, thread: &ThreadRow, held: &[(Seq, Digest)], at: usize) -> Result<bool, StoreError> {
        let said = self.seen.events(at).into_iter().next().map(|event| event.fact);
        let Some(said) = said.as_ref().and_then(text_of).filter(|said| !said.trim().is_empty()) else {
            return Ok(false);
        };
        for (seq, _) in held.iter().rev() {
            let page = self.recorder.store.read(thread.id, *seq, 1)?;
            let Some(text) = page.first().and_then(|logged| text_of(&logged.event.fact)) else { continue };
            return Ok(text.trim_start().starts_with(said.trim()));
        }
        Ok(false)
    }

    /// The last event of a thread's beginning, before the first message.
    fn opening_of(&self, thread: &ThreadRow) -> Result<Seq, StoreError> {
        let events = self.recorder.store.read(thread.id, Seq(1), OPENING)?;
        let opening = events.iter().take_while(|logged| {
            matches!(logged.event.fact, Fact::Instructed { .. }) && logged.event.normal.is_none()
        });
        Ok(opening.last().map_or(Seq::START, |logged| logged.id.seq))
    }
}

/// Text of a user message that consists of one text.
fn text_of(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::UserSaid { parts } => match &parts[..] {
            [ContentPart::Text { text }] => Some(text),
            _ => None,
        },
        _ => None,
    }
}
