//! Writing the end of a request: together with the request, if that is not written, and without waiting for the store
//! if possible.

use std::sync::Arc;

use epitome_core::{Digest, Noted, Seq, ThreadId, event::Summary};
use epitome_store::{
    Head, StoreError,
    records::{Commit, Record},
};
use epitome_wire::caller::Purpose;

use crate::{
    compose::{Lives, Told},
    session::inbox::Appended,
};

use super::{
    End, Ending, GIVEN_BACK, RecordError, Recorder, TRIES, Ticket, ending,
    known::Known,
    own_compaction,
    unwritten::{self, Busy, Leaving},
};

/// Largest number of events without messages that may have been appended meanwhile.
const UNSAID: usize = 64;

/// Result of writing the end of a request.
#[derive(Debug)]
pub enum Finish {
    /// It is written.
    Done,
    /// It is not: another writer has taken its place, or is about to. To [settle](Recorder::settle) that takes a
    /// while.
    Unsettled(Box<Unfinished>),
}

/// A request that ended and is not written yet.
#[derive(Debug)]
pub struct Unfinished {
    ticket: Ticket,
    /// The request itself, if it is written here.
    request: Option<Leaving>,
    /// Expected end of the thread.
    after: Seq,
    answer: Vec<Noted>,
    records: Vec<Record>,
    summary: Option<Summary>,
    /// Digest of the last message of the answer.
    newest: Option<Digest>,
    /// Place at which it waited for its answer.
    place: (ThreadId, Seq),
}

impl Unfinished {
    fn new(recorder: &Recorder, ticket: Ticket, end: End) -> Self {
        let place = (ticket.thread, ticket.head);
        let mut records = vec![Record::Exchange(ending::exchange(&ticket, &end))];
        records.extend(recorder.outcome(&ticket, &end).map(Record::Outcome));
        let calls = match (&end.told, end.ending) {
            (Some(Told::Without { calls, .. }), Ending::Complete) => calls.clone(),
            _ => Vec::new(),
        };
        let mut answer = ending::answer(&recorder.known, &ticket, end);
        answer.extend(recorder.results(ticket.thread, ticket.format, &calls, GIVEN_BACK));
        let is_summary = ticket.purpose == Purpose::Compaction;
        let summary = if is_summary { own_compaction::summary_in(&answer) } else { None };
        let newest = answer.iter().rev().find_map(|event| event.normal);
        let answer = answer.into_iter().map(Noted::from).collect();
        Self { after: ticket.head, ticket, request: None, answer, records, summary, newest, place }
    }

    /// Takes the request along, if it is not written.
    fn try_join(&mut self) -> Result<(), Busy> {
        if let Some(unwritten) = &self.ticket.unwritten {
            self.request = unwritten.try_leave()?;
        }
        Ok(())
    }

    /// Everything to write, in one commit.
    fn commit(&self) -> Commit {
        let mut commit = match &self.request {
            Some(Leaving { commit: request, .. }) => request.clone(),
            None => Commit::new(self.ticket.thread, self.after, Vec::new(), Vec::new()),
        };
        commit.events.extend(self.answer.iter().cloned());
        commit.records.extend(self.records.iter().cloned());
        commit
    }

    /// Moves to `head`, the thread's end by now, after events without messages.
    fn moves_to(&mut self, head: Seq) {
        self.after = head;
        if let Some(Leaving { commit: request, .. }) = &mut self.request {
            request.after = head;
            self.ticket.head = Seq(head.0 + request.events.len() as u64);
            for record in &mut request.records {
                if let Record::Call(call) = record {
                    call.head = self.ticket.head;
                }
            }
            self.is_asked_at_its_head();
        }
    }

    /// Drops the call of a relayed request and its outcome, which cannot be recorded in their place.
    fn forgets_its_call(&mut self) {
        if self.ticket.call.is_some() {
            return;
        }
        self.ticket.relayed = None;
        self.records.retain(|record| !matches!(record, Record::Outcome(_)));
        if let Some(request) = &mut self.request {
            drop(unwritten::calls_of(&mut request.commit));
        }
    }

    /// Returns true if this writes a request that was composed.
    fn is_composed(&self) -> bool {
        let records = self.request.as_ref().map(|request| &request.commit.records);
        records.is_some_and(|records| records.iter().any(|record| matches!(record, Record::Call(_))))
    }

    /// Sets the request's end in the record of the exchange.
    fn is_asked_at_its_head(&mut self) {
        for record in &mut self.records {
            if let Record::Exchange(exchange) = record {
                exchange.head = self.ticket.head;
            }
        }
    }

    /// Notes that it is written, with the thread's new end.
    fn ends(self, known: &Known, (thread, head): (ThreadId, Head)) {
        self.no_longer_waits(known);
        if self.ticket.purpose == Purpose::Turn {
            known.stands(&self.ticket, thread, head);
            if let Some(newest) = self.newest {
                known.answered_with(&self.ticket, newest, thread);
            }
        }
        if let Some(summary) = self.summary {
            known.compacting(&self.ticket, summary);
        }
    }

    /// Notes that it cannot be written: the cached state of its thread may contain it, and is dropped.
    fn is_lost(&self, known: &Known, lives: &Lives) {
        self.no_longer_waits(known);
        lives.forget(self.ticket.thread);
    }

    fn no_longer_waits(&self, known: &Known) {
        known.answered(self.place);
        if let Some(unwritten) = &self.ticket.unwritten {
            known.is_written(unwritten);
        }
    }
}

impl Recorder {
    /// Records the end of a request, and its answer.
    pub fn finish(&self, ticket: Ticket, end: End) -> Result<(), RecordError> {
        self.settle(Unfinished::new(self, ticket, end))
    }

    /// The same without waiting for the store to write. `then` is called with the result, at once or by the thread
    /// that writes, and must not wait for the store either. It is dropped without a call if that thread dies.
    pub fn finish_then(
        &self,
        ticket: Ticket,
        end: End,
        then: impl FnOnce(Result<Finish, RecordError>) + Send + 'static,
    ) {
        let mut unfinished = Box::new(Unfinished::new(self, ticket, end));
        if let Err(Busy) = unfinished.try_join() {
            return then(Ok(Finish::Unsettled(unfinished)));
        }
        let (known, lives) = (Arc::clone(&self.known), Arc::clone(&self.lives));
        // The next request to be composed is spared a read of the events written here.
        let live = unfinished.ticket.call.and_then(|_| self.lives.get(unfinished.ticket.thread));
        self.store.commit_then(unfinished.commit(), move |written| {
            then(match written {
                Ok(head) => {
                    let thread = unfinished.ticket.thread;
                    let (after, events) = (unfinished.after, std::mem::take(&mut unfinished.answer));
                    let appended = Appended { after, events, head };
                    match live {
                        Some(live) => live.appended(appended),
                        None => lives.appended(thread, appended),
                    }
                    unfinished.ends(&known, (thread, head));
                    Ok(Finish::Done)
                }
                Err(error) if error.is_conflict() => Ok(Finish::Unsettled(unfinished)),
                Err(error) => {
                    unfinished.is_lost(&known, &lives);
                    Err(error.into())
                }
            });
        });
    }

    /// Writes the end of a request, wherever it belongs by now, and waits for the store.
    pub fn settle(&self, mut unfinished: Unfinished) -> Result<(), RecordError> {
        match self.write(&mut unfinished) {
            Ok(place) => {
                unfinished.ends(&self.known, place);
                Ok(())
            }
            Err(error) => {
                unfinished.is_lost(&self.known, &self.lives);
                Err(error)
            }
        }
    }

    fn write(&self, unfinished: &mut Unfinished) -> Result<(ThreadId, Head), RecordError> {
        if unfinished.request.is_none()
            && let Some(unwritten) = &unfinished.ticket.unwritten
        {
            unfinished.request = unwritten.leave();
        }
        let mut tries = 0;
        loop {
            let commit = unfinished.commit();
            let head = match self.store.commit(commit.clone()) {
                Ok(head) => return Ok((unfinished.ticket.thread, head)),
                Err(error) if error.is_conflict() && unfinished.ticket.relayed.is_some() => {
                    self.lives.forget(unfinished.ticket.thread);
                    if let StoreError::Conflict { head, .. } = error {
                        head
                    } else {
                        // Another writer recorded a call here, so the number of this one is taken.
                        unfinished.forgets_its_call();
                        continue;
                    }
                }
                Err(error) if error.is_conflict() && unfinished.is_composed() => {
                    let Unfinished { ticket, request, records, .. } = &mut *unfinished;
                    if let Some(request) = request {
                        self.tell_beside(ticket, &mut request.commit, records)?;
                    }
                    continue;
                }
                Err(StoreError::Conflict { head, .. }) => head,
                Err(error) => return Err(error.into()),
            };
            tries += 1;
            if tries < TRIES && self.is_unsaid(unfinished, &commit, head)? {
                // Another writer compacted, or pinned something.
                unfinished.moves_to(head.seq);
            } else if let Some(request) = unfinished.request.take() {
                self.write_elsewhere(&mut unfinished.ticket, &request.commit)?;
                if unfinished.ticket.relayed.is_none() {
                    unfinished.forgets_its_call();
                }
                unfinished.moves_to(unfinished.ticket.head);
                unfinished.is_asked_at_its_head();
            } else {
                // The same was asked again, or the client went on without waiting: a thread of its own.
                return self.beside(&unfinished.ticket, &commit);
            }
        }
    }

    /// Returns true if no message was appended to the thread of a commit between the commit's place and the thread's
    /// end.
    fn is_unsaid(&self, unfinished: &Unfinished, commit: &Commit, head: Head) -> Result<bool, StoreError> {
        if head.seq <= commit.after || unfinished.request.is_none() {
            return Ok(head.seq > commit.after && head.link.normal == unfinished.ticket.link);
        }
        let between = usize::try_from(head.seq.0 - commit.after.0).unwrap_or(usize::MAX);
        let added = self.store.digests(commit.thread, commit.after.next(), between.min(UNSAID))?;
        Ok(between <= UNSAID && added.iter().all(|(_, digest, _)| digest.is_none()))
    }
}
