//! Histories that hold their newest answer in other words than it was given in.
//!
//! Some clients keep a form of their own of a model's answer: its calls as text, its text with the call written after
//! it. Every request then differs from the record at its newest answer, and only there.

use epitome_core::{ContentPart, Event, Fact, Seq};
use epitome_store::{StoreError, ThreadStart, records::ThreadRow};
use epitome_wire::incoming::UnitSpeaker;

use super::{RequestPlacer, history_match::HistoryMatch, is_aside};

/// Largest number of an answer's events, with reports about it.
const MAX_ANSWER_EVENTS: usize = 64;

/// Number of letters and digits of an answer that must be repeated, and largest number that is compared.
const MIN_REPEATED_CHARS: usize = 12;
const MAX_COMPARED_CHARS: usize = 80;

/// Smallest number of letters and digits by which an id is recognised.
const MIN_ID_CHARS: usize = 6;

/// Evidence that a history continues a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ContinuationEvidence {
    /// It shares answers with the thread, from any source, and differs from it at the newest one.
    Shared,
    /// It repeats the thread's own newest answer.
    Told,
}

impl RequestPlacer<'_, '_> {
    /// The question whose answer this history holds in other words: the thread's newest, after which the thread has
    /// not continued.
    pub(super) fn find_reworded(&self) -> Result<Option<HistoryMatch>, StoreError> {
        let Some(units) = self.before_newest_answer().filter(|_| self.key().is_none()) else {
            return Ok(None);
        };
        let store = &self.recorder.store;
        let said = letters_of(&self.seen.events(units));
        let shares = self.seen.units()[..units].iter().any(|unit| unit.speaker == UnitSpeaker::Model);
        let mut best: Option<(ContinuationEvidence, HistoryMatch)> = None;
        for event in store.histories_of_principal(self.principal, self.links[units])? {
            let thread = store.thread(event.thread)?;
            if is_aside(&thread.name) || thread.key.is_some() {
                continue;
            }
            let Some(answer) = self.newest_answer(&thread, event.seq)? else { continue };
            let evidence = if is_told(&answer, &said) {
                ContinuationEvidence::Told
            } else if shares {
                ContinuationEvidence::Shared
            } else {
                continue;
            };
            if best.as_ref().is_none_or(|(known, _)| evidence > *known) {
                best = Some((evidence, HistoryMatch { units, event, thread }));
            }
        }
        Ok(best.map(|(_, found)| found))
    }

    /// Number of units before the newest answer, if there are messages before it and after it.
    fn before_newest_answer(&self) -> Option<usize> {
        let units = self.seen.units();
        let asked = units.iter().rev().take_while(|unit| unit.speaker != UnitSpeaker::Model).count();
        let through = units.len() - asked;
        let answer =
            units[..through].iter().rev().take_while(|unit| unit.speaker == UnitSpeaker::Model).count();
        Some(through - answer).filter(|before| asked > 0 && *before > 0)
    }

    /// The answer that was given after an event, if the thread ends with it and has no fork there.
    fn newest_answer(&self, thread: &ThreadRow, after: Seq) -> Result<Option<Vec<Event>>, StoreError> {
        let store = &self.recorder.store;
        let events = store.read(thread.id, after.next(), MAX_ANSWER_EVENTS + 1)?;
        let units = || events.iter().filter(|logged| logged.event.normal.is_some());
        let is_answer = units().all(|logged| matches!(logged.event.fact, Fact::AssistantSaid { .. }));
        if events.len() > MAX_ANSWER_EVENTS || units().next().is_none() || !is_answer {
            return Ok(None);
        }
        if !store.has_answer_before(thread.id, thread.head.seq.next())? {
            return Ok(None);
        }
        let goes_on = |other: &ThreadRow| matches!(other.start, ThreadStart::Fork { of, at } if of == thread.id && at >= after);
        if store.threads(thread.session)?.iter().any(goes_on) {
            return Ok(None);
        }
        Ok(Some(events.into_iter().map(|logged| logged.event).collect()))
    }
}

/// Returns true if `said` repeats an answer: one of its calls by its id or its arguments, or the beginning of its
/// text.
fn is_told(answer: &[Event], said: &str) -> bool {
    let is_in = |text: &str, least: usize| {
        let letters: String = letters(text).take(MAX_COMPARED_CHARS).collect();
        letters.len() >= least && said.contains(&letters)
    };
    answer.iter().any(|event| {
        let texts = event.fact.parts().iter().filter_map(|part| match part {
            ContentPart::Text { text } => Some(text),
            _ => None,
        });
        let calls = event.fact.calls();
        texts.into_iter().any(|text| is_in(text, MIN_REPEATED_CHARS) || letters(text).eq(said.chars()))
            || calls
                .into_iter()
                .any(|call| is_in(&call.id.0, MIN_ID_CHARS) || is_in(&call.arguments, MIN_REPEATED_CHARS))
    })
}

/// The letters and digits of texts, calls and results: no quoting changes them.
fn letters_of(events: &[Event]) -> String {
    let mut all = String::new();
    for event in events {
        all.extend(letters(&event.fact.text()));
        for call in event.fact.calls() {
            all.extend(letters(&call.id.0).chain(letters(&call.arguments)));
        }
        if let Fact::ToolReturned { results, .. } = &event.fact {
            all.extend(results.iter().flat_map(|result| letters(&result.call.0)));
        }
    }
    all
}

fn letters(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|letter| letter.is_alphanumeric())
}
