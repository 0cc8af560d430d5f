//! Histories that continue after their client compacted them.

use epitome_core::{Event, EventId, Fact, LoggedEvent, Seq, SessionId};
use epitome_store::{
    StoreError, ThreadStart,
    records::{HeadPromotion, ThreadRow},
};
use epitome_wire::summary_prompt::without_summary_prompt;

use super::{RequestPlace, RequestPlacer, ThreadKind, history_match::HistoryMatch, is_aside};
use crate::recorder::{PlacementKind, client_compaction, recorder_cache::ClientSummary};

/// Name of the threads of clients' own summaries.
const COMPACTION: &str = "compaction";

/// Largest number of an answer's events.
const ANSWER: u64 = 64;

impl RequestPlacer<'_, '_> {
    /// The continuation of a session that its client compacted, if the history shows one after the first `known`
    /// units.
    pub(super) fn after_own_compaction(&self, known: usize) -> Result<Option<RequestPlace>, StoreError> {
        for own in self.recorder.known.summaries(self.principal) {
            if let Some(place) = self.going_on(own, known)? {
                return Ok(Some(place));
            }
        }
        // Summaries that this process does not remember may be in the store.
        for own in self.recorded_summaries()? {
            if let Some(place) = self.going_on(own, known)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn going_on(&self, own: ClientSummary, known: usize) -> Result<Option<RequestPlace>, StoreError> {
        let at = self.seen.find_summary(client_compaction::mark(&own.summary)).filter(|at| *at >= known);
        let Some(at) = at else { return Ok(None) };
        let Some(thread) = self.main_of(own.session)? else { return self.going_on_without_main(own, at) };
        let store = &self.recorder.store;
        let goes_on =
            client_compaction::continuation(&**store, &thread, self.seen, &self.links, at, own.summary)?;
        let mut new = vec![goes_on.event];
        new.extend(self.changed_opening(thread.id, thread.head.seq)?);
        new.extend(self.seen.events(goes_on.from));
        Ok(Some(self.at(&thread, thread.head.seq, new, PlacementKind::Compacted)))
    }

    /// The continuation of a session of which nothing was recorded but the request for its summary: that request has its
    /// history, so the conversation begins as a fork of it, before the words that ask for the summary.
    fn going_on_without_main(
        &self,
        own: ClientSummary,
        at: usize,
    ) -> Result<Option<RequestPlace>, StoreError> {
        let store = &self.recorder.store;
        let threads = store.threads(own.session)?;
        let Some(mut thread) = threads.into_iter().rev().find(|thread| thread.name == COMPACTION) else {
            return Ok(None);
        };
        let Some(last) = self.last_before_prompt(&thread)?.filter(|last| *last > Seq::START) else {
            return Ok(None);
        };
        thread.head.seq = last;
        let goes_on =
            client_compaction::continuation(&**store, &thread, self.seen, &self.links, at, own.summary)?;
        let event = EventId { thread: thread.id, seq: last };
        let found = HistoryMatch { units: goes_on.from, event, thread };
        let mut place = self.fork(&found, "main", HeadPromotion::Yes)?;
        place.new.insert(0, goes_on.event);
        place.placed = PlacementKind::Compacted;
        Ok(Some(place))
    }

    /// The last event of a request for a summary before the words that ask for it, or its last event if there are none.
    fn last_before_prompt(&self, thread: &ThreadRow) -> Result<Option<Seq>, StoreError> {
        let from = Seq(thread.head.seq.0.saturating_sub(ANSWER) + 1);
        let most = usize::try_from(ANSWER).unwrap_or(usize::MAX);
        let events = self.recorder.store.read(thread.id, from, most)?;
        let asks = |logged: &&LoggedEvent| {
            matches!(logged.event.fact, Fact::UserSaid { .. } | Fact::ToolReturned { .. })
        };
        let Some(asked) = events.iter().rev().find(asks) else { return Ok(None) };
        let format = self.seen.format();
        if without_summary_prompt(format, asked.event.clone()).as_ref() != Some(&asked.event) {
            return Ok(Some(asked.id.seq.previous()));
        }
        // Our summary stands right behind the request that it answers.
        let ours = events.iter().rev().find(|logged| matches!(logged.event.fact, Fact::Compacted(_)));
        Ok(Some(ours.map_or(asked.id.seq, |ours| ours.id.seq.previous())))
    }

    /// The newest summaries that were recorded for the session with this id.
    fn recorded_summaries(&self) -> Result<Vec<ClientSummary>, StoreError> {
        let store = &self.recorder.store;
        let Some(key) = self.key() else { return Ok(Vec::new()) };
        let session = match self.threads_by_key(key)?.into_iter().next() {
            Some(main) => Some(main.session),
            // Of a session that was resumed there may be nothing but the request for its summary.
            None => store.session_by_key(self.principal, key)?,
        };
        let Some(session) = session else { return Ok(Vec::new()) };
        let mut summaries = Vec::new();
        let threads = store.threads(session)?;
        for thread in threads.iter().rev().filter(|thread| thread.name == COMPACTION).take(2) {
            let principal = self.principal.to_owned();
            let summary = client_compaction::summary_in(&self.last_answer(thread)?);
            summaries.extend(summary.map(|summary| ClientSummary { principal, session, summary }));
        }
        Ok(summaries)
    }

    /// The last answer of a thread itself, not of the one it was forked from.
    fn last_answer(&self, thread: &ThreadRow) -> Result<Vec<Event>, StoreError> {
        let begins = match thread.start {
            ThreadStart::Fork { at, .. } => at.next(),
            ThreadStart::Root | ThreadStart::Spawned { .. } => Seq(1),
        };
        let from = begins.max(Seq(thread.head.seq.0.saturating_sub(ANSWER) + 1));
        let most = usize::try_from(ANSWER).unwrap_or(usize::MAX);
        let events = self.recorder.store.read(thread.id, from, most)?;
        let mut answer: Vec<Event> = Vec::new();
        for logged in events {
            match &logged.event.fact {
                Fact::UserSaid { .. } | Fact::ToolReturned { .. } => answer.clear(),
                _ => answer.push(logged.event),
            }
        }
        Ok(answer)
    }

    /// The thread of a session that this request may continue.
    fn main_of(&self, session: SessionId) -> Result<Option<ThreadRow>, StoreError> {
        let store = &self.recorder.store;
        if let Some(key) = self.key() {
            let mut ours = self.threads_by_key(key)?;
            ours.retain(|thread| !is_aside(&thread.name));
            // A summary that was requested without an id may stand in any session; the client that goes on with it
            // knows which.
            let at = ours.iter().position(|thread| thread.session == session).unwrap_or(0);
            return Ok((at < ours.len()).then(|| ours.swap_remove(at)));
        }
        let head = store.session_name(session)?.head.map(|head| store.thread(head)).transpose()?;
        Ok(head.filter(|thread| ThreadKind::of(thread) == ThreadKind::Main))
    }
}
