//! The end of a request on its way into the store: with the request, if that is not written, and without waiting, where it
//! need not be waited for.

use std::sync::Arc;

use epitome_core::{Event, Seq, ThreadId, event::Summary};
use epitome_store::{
    Head, StoreError,
    records::{Commit, Record},
};
use epitome_wire::caller::Purpose;

use super::{
    End, RecordError, Recorder, Ticket, ending,
    known::Known,
    own_compaction,
    unwritten::{Busy, Leaving},
};

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
    answer: Vec<Event>,
    exchange: Record,
    summary: Option<Summary>,
    /// Where it waited for its answer.
    place: (ThreadId, Seq),
}

impl Unfinished {
    fn new(ticket: Ticket, end: End) -> Self {
        let place = (ticket.thread, ticket.head);
        let exchange = Record::Exchange(ending::exchange(&ticket, &end));
        let answer = ending::answer(&ticket, end);
        let is_summary = ticket.purpose == Purpose::Compaction;
        let summary = if is_summary { own_compaction::summary_in(&answer) } else { None };
        Self { ticket, request: None, answer, exchange, summary, place }
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
        let (answer, exchange) = (self.answer.clone(), self.exchange.clone());
        match &self.request {
            Some(Leaving { commit: request, .. }) => {
                let mut commit = request.clone();
                commit.events.extend(answer);
                commit.records.push(exchange);
                commit
            }
            None => Commit::new(self.ticket.thread, self.ticket.head, answer, vec![exchange]),
        }
    }

    /// It is written: its thread ends here.
    fn ends(self, known: &Known, (thread, head): (ThreadId, Head)) {
        self.no_longer_waits(known);
        if self.ticket.purpose == Purpose::Turn {
            known.stands(&self.ticket, thread, head);
        }
        if let Some(summary) = self.summary {
            known.compacting(&self.ticket, summary);
        }
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
        self.settle(Unfinished::new(ticket, end))
    }

    /// The same without waiting for the store. `then` is told how it ended, at once or by the thread that writes, and must not
    /// wait for the store either. It is dropped untold if that thread dies.
    pub fn finish_then(
        &self,
        ticket: Ticket,
        end: End,
        then: impl FnOnce(Result<Finish, RecordError>) + Send + 'static,
    ) {
        let mut unfinished = Box::new(Unfinished::new(ticket, end));
        if let Err(Busy) = unfinished.try_join() {
            return then(Ok(Finish::Unsettled(unfinished)));
        }
        let known = Arc::clone(&self.known);
        self.store.commit_then(unfinished.commit(), move |written| {
            then(match written {
                Ok(head) => {
                    let thread = unfinished.ticket.thread;
                    unfinished.ends(&known, (thread, head));
                    Ok(Finish::Done)
                }
                Err(StoreError::Conflict { .. }) => Ok(Finish::Unsettled(unfinished)),
                Err(error) => {
                    unfinished.no_longer_waits(&known);
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
                unfinished.no_longer_waits(&self.known);
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
        let mut commit = unfinished.commit();
        let mut written = self.store.commit(commit.clone());
        if let (Err(StoreError::Conflict { .. }), Some(request)) = (&written, &unfinished.request) {
            self.write_elsewhere(&mut unfinished.ticket, &request.commit)?;
            unfinished.request = None;
            commit = unfinished.commit();
            written = self.store.commit(commit.clone());
        }
        match written {
            Ok(head) => Ok((unfinished.ticket.thread, head)),
            // Somebody asked the same again, or the client went on without waiting: a line of its own.
            Err(StoreError::Conflict { .. }) => self.beside(&unfinished.ticket, &commit),
            Err(error) => Err(error.into()),
        }
    }
}
