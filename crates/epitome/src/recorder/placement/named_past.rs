//! Requests that name their past instead of holding it: after a response, or in a conversation that the provider
//! keeps.

use epitome_core::{ChainLink, Digest, Event, EventId, Fact, Seq, SessionId};
use epitome_store::{
    StoreError, ThreadStart,
    records::{HeadPromotion, ThreadRow},
};

use super::{RequestPlace, RequestPlacer, history_match::HistoryMatch};
use crate::recorder::PlacementKind;

/// Kind of the event recorded for a request that names a past which was never recorded.
const UNRESOLVED: &str = "unresolved_past";

impl RequestPlacer<'_, '_> {
    /// Places a request after the answer that it names.
    pub(super) fn place_after_answer(&self, found: Option<EventId>) -> Result<RequestPlace, StoreError> {
        let Some(event) = found else {
            let mut place = self.open(None, "main", ThreadStart::Root)?;
            place.new.push(Event::from_fact(Fact::Carried { kind: UNRESOLVED.to_owned() }, Some(self.at)));
            return Ok(place);
        };
        let store = &self.recorder.store;
        let thread = store.thread(event.thread)?;
        let link = store.event(event)?.link.normal;
        let end = self.chained(link);
        // The same request may be there already: without an answer it is a retry, with one it is asked again.
        let again = store.histories_of_principal(self.principal, end)?;
        if let Some(again) = again.into_iter().find(|again| again.thread == event.thread) {
            let is_end = thread.head.link.normal == end;
            let after = if is_end { thread.head.seq } else { again.seq };
            let placed = if is_end { PlacementKind::Retried } else { PlacementKind::Forked };
            return Ok(RequestPlace { link: end, ..self.at(&thread, after, Vec::new(), placed) });
        }
        let place = if thread.head.link.normal == link {
            let opening = self.changed_opening(thread.id, thread.head.seq)?;
            let new = opening.into_iter().chain(self.seen.events(0)).collect();
            self.at(&thread, thread.head.seq, new, PlacementKind::Continued)
        } else {
            let name = thread.name.clone();
            self.fork(&HistoryMatch { units: 0, event, thread }, &name, HeadPromotion::Yes)?
        };
        Ok(RequestPlace { link: end, ..place })
    }

    /// Places a request in a conversation that the provider keeps: it holds only new messages.
    pub(super) fn in_conversation(&self, id: &str) -> Result<RequestPlace, StoreError> {
        let known = self.threads_by_key(id)?.into_iter().next();
        let Some(thread) = known.filter(|thread| thread.head.seq > Seq::START) else {
            let session = SessionId::derived(&["conversation", self.principal, id]);
            let mut place = self.open_in(session, "main", ThreadStart::Root);
            place.key = Some(id.to_owned());
            if let Some(opens) = &mut place.opens {
                opens.thread.key = Some(id.to_owned());
            }
            return Ok(place);
        };
        if self.ends_with_this(&thread)? {
            let link = thread.head.link.normal;
            return Ok(RequestPlace {
                link,
                ..self.at(&thread, thread.head.seq, Vec::new(), PlacementKind::Retried)
            });
        }
        let opening = self.changed_opening(thread.id, thread.head.seq)?;
        let new = opening.into_iter().chain(self.seen.events(0)).collect();
        let link = self.chained(thread.head.link.normal);
        Ok(RequestPlace { link, ..self.at(&thread, thread.head.seq, new, PlacementKind::Continued) })
    }

    /// Returns true if a thread's last messages are this request's: it was sent before, and had no answer.
    fn ends_with_this(&self, thread: &ThreadRow) -> Result<bool, StoreError> {
        let units = self.seen.units();
        // Between two of them there may be events without a digest.
        let back = 4 * units.len() as u64 + 16;
        let from = Seq(thread.head.seq.0.saturating_sub(back) + 1);
        let tail =
            self.recorder.store.digests(thread.id, from, usize::try_from(back).unwrap_or(usize::MAX))?;
        let mut said = tail.iter().rev().filter_map(|(_, digest, _)| *digest);
        Ok(!units.is_empty() && units.iter().rev().all(|unit| said.next() == Some(unit.digest)))
    }

    fn chained(&self, link: Digest) -> Digest {
        self.seen.units().iter().fold(link, |link, unit| ChainLink::advance_normal(link, unit.digest))
    }
}
