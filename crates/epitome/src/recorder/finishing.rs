//! The end of a request on its way into the store: with the request, if that is not written, and without waiting, where it
//! need not be waited for.

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

/// How many events somebody may have added meanwhile without saying anything.
const UNSAID: usize = 64;

/// How far the end of a request was written.
#[derive(Debug)]
pub enum Finish {
    /// It is written.
    Done,
    /// It is not: somebody else wrote in its place, or is about to. To [settle](Recorder::settle) that takes a while.
    Unsettled(Box<Unfinished>),
}

/// A request that ended, not written yet.
#[derive(Debug)]
pub struct Unfinished {
    ticket: Ticket,
    /// The request itself, if this writes it.
    request: Option<Leaving>,
    /// Where the thread is thought to end, if it does not.
    after: Seq,
    answer: Vec<Noted>,
    records: Vec<Record>,
    summary: Option<Summary>,
    /// The last thing the answer says, as it is recognised.
    newest: Option<Digest>,
    /// Where it waited for its answer.
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

    /// All that is to be written, in one.
    fn commit(&self) -> Commit {
        let mut commit = match &self.request {
            Some(Leaving { commit: request, .. }) => request.clone(),
            None => Commit::new(self.ticket.thread, self.after, Vec::new(), Vec::new()),
        };
        commit.events.extend(self.answer.iter().cloned());
        commit.records.extend(self.records.iter().cloned());
        commit
    }

    /// The thread ends at `head` by now, and nothing was said meanwhile: this goes on there.
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

    /// The call of a relayed request cannot be told in its place, nor how it ended.
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

    /// Whether this writes a request that was composed.
    fn is_composed(&self) -> bool {
        let records = self.request.as_ref().map(|request| &request.commit.records);
        records.is_some_and(|records| records.iter().any(|record| matches!(record, Record::Call(_))))
    }

    /// The request ends elsewhere than was thought.
    fn is_asked_at_its_head(&mut self) {
        for record in &mut self.records {
            if let Record::Exchange(exchange) = record {
                exchange.head = self.ticket.head;
            }
        }
    }

    /// It is written: its thread ends here.
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

    /// It cannot be written, and what is remembered of its thread may hold it.
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
    /// Records how a request ended, and what was answered.
    pub fn finish(&self, ticket: Ticket, end: End) -> Result<(), RecordError> {
        self.settle(Unfinished::new(self, ticket, end))
    }

    /// The same without waiting for the store to write. `then` is told how it ended, at once or by the thread that writes, and
    /// must not wait for the store either. It is dropped untold if that thread dies.
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
        // Whoever composes the next request need not read what is written here.
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
                        // Somebody else told of a call here: what this one says of itself follows another.
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
                // Somebody compacted, or pinned something.
                unfinished.moves_to(head.seq);
            } else if let Some(request) = unfinished.request.take() {
                self.write_elsewhere(&mut unfinished.ticket, &request.commit)?;
                if unfinished.ticket.relayed.is_none() {
                    unfinished.forgets_its_call();
                }
                unfinished.moves_to(unfinished.ticket.head);
                unfinished.is_asked_at_its_head();
            } else {
                // Somebody asked the same again, or the client went on without waiting: a line of its own.
                return self.beside(&unfinished.ticket, &commit);
            }
        }
    }

    /// Whether nothing was said in the thread of a commit between where that was to go on and where the thread ends.
    fn is_unsaid(&self, unfinished: &Unfinished, commit: &Commit, head: Head) -> Result<bool, StoreError> {
        if head.seq <= commit.after || unfinished.request.is_none() {
            return Ok(head.seq > commit.after && head.link.normal == unfinished.ticket.link);
        }
        let between = usize::try_from(head.seq.0 - commit.after.0).unwrap_or(usize::MAX);
        let added = self.store.digests(commit.thread, commit.after.next(), between.min(UNSAID))?;
        Ok(between <= UNSAID && added.iter().all(|(_, digest, _)| digest.is_none()))
    }
}
