//! Writing the end of a request: together with the request, if that is not written, and without waiting for the store
//! if possible.

use std::sync::Arc;

use epitome_core::{AnnotatedEvent, Digest, Seq, ThreadId, event::Summary};
use epitome_store::{
    CommitOutcome, PendingCommit, StoreError, ThreadHead,
    records::{CommitReceipt, CommitRecord, ThreadCommit},
};
use epitome_wire::caller::RequestPurpose;

use crate::{
    rewrite::{CachedThread, RecallAnswerForm, ThreadCache, recall_results},
    session::pending_updates::AppendedEvents,
};

use super::{
    EndedExchange, ExchangeOutcome, MAX_PLACE_ATTEMPTS, MAX_RECALL_CHARS_BESIDE, PendingRecord, RecordError,
    TrafficRecorder, client_compaction,
    deferred_commit::{self, CommitBusyError, DeferredCommitGuard},
    exchange_record,
    recorder_cache::RecorderCache,
};

/// Largest number of events without messages that may have been appended meanwhile.
const MAX_EVENTS_WITHOUT_MESSAGES: usize = 64;

/// Result of writing the end of a request.
#[derive(Debug)]
pub enum FinishOutcome {
    /// It is written.
    Done,
    /// It is not: another writer has taken its place, or is about to. To settle that takes a
    /// while.
    Unsettled(Box<UnfinishedRequest>),
}

/// A request that ended and is not written yet.
#[derive(Debug)]
pub struct UnfinishedRequest {
    ticket: PendingRecord,
    /// The request itself, if it is written here.
    request: Option<DeferredCommitGuard>,
    /// Expected end of the thread.
    after: Seq,
    answer: Vec<AnnotatedEvent>,
    records: Vec<CommitRecord>,
    summary: Option<Summary>,
    /// Digest of the last message of the answer.
    newest: Option<Digest>,
    /// Place at which it waited for its answer.
    place: (ThreadId, Seq),
}

/// The end of a request that was handed to the store. Dropped, it is written all the same, but the recorder finds that
/// out only from the store.
#[derive(Debug)]
#[must_use = "an outcome may be unsettled, and then nothing is written"]
pub struct PendingFinish {
    /// `None` if another thread is about to write the request.
    commit: Option<PendingCommit>,
    unfinished: Box<UnfinishedRequest>,
    /// The cached state of its thread, if its request was composed.
    cached: Option<Arc<CachedThread>>,
    known: Arc<RecorderCache>,
    threads: Arc<ThreadCache>,
}

impl PendingFinish {
    /// The outcome, once the store has written.
    pub async fn outcome(mut self) -> Result<FinishOutcome, RecordError> {
        match self.commit.take() {
            Some(commit) => self.noted(commit.await),
            None => Ok(FinishOutcome::Unsettled(self.unfinished)),
        }
    }

    /// The same for a thread that may block.
    pub fn wait(mut self) -> Result<FinishOutcome, RecordError> {
        match self.commit.take() {
            Some(commit) => self.noted(commit.wait()),
            None => Ok(FinishOutcome::Unsettled(self.unfinished)),
        }
    }

    /// Notes the outcome of the commit in what the recorder remembers.
    fn noted(self, written: CommitOutcome) -> Result<FinishOutcome, RecordError> {
        let Self { mut unfinished, cached, known, threads, .. } = self;
        match written {
            Ok(CommitReceipt { head, .. }) => {
                let thread = unfinished.ticket.thread;
                let (after, events) = (unfinished.after, std::mem::take(&mut unfinished.answer));
                let appended = AppendedEvents { after, events, head };
                match cached {
                    Some(cached) => cached.appended(appended),
                    None => threads.appended(thread, appended),
                }
                unfinished.ends(&known, (thread, head));
                Ok(FinishOutcome::Done)
            }
            Err(error) if error.is_conflict() => Ok(FinishOutcome::Unsettled(unfinished)),
            Err(error) => {
                unfinished.is_lost(&known, &threads);
                Err(error.into())
            }
        }
    }
}

impl UnfinishedRequest {
    fn new(recorder: &TrafficRecorder, ticket: PendingRecord, end: EndedExchange) -> Self {
        let place = (ticket.thread, ticket.head);
        let mut records = vec![CommitRecord::Exchange(exchange_record::exchange(&ticket, &end))];
        records.extend(recorder.outcome(&ticket, &end).map(CommitRecord::Outcome));
        let calls = match (&end.told, end.ending) {
            (Some(RecallAnswerForm::Without { calls, .. }), ExchangeOutcome::Complete) => calls.clone(),
            _ => Vec::new(),
        };
        let mut answer = exchange_record::answer(&recorder.known, &ticket, end);
        answer.extend(recall_results(
            &*recorder.store,
            ticket.thread,
            ticket.format,
            &calls,
            MAX_RECALL_CHARS_BESIDE,
        ));
        let is_summary = ticket.purpose == RequestPurpose::Compaction;
        let own = ticket.summary.clone();
        let summary = if is_summary { own.or_else(|| client_compaction::summary_in(&answer)) } else { None };
        let newest = answer.iter().rev().find_map(|event| event.normal);
        let answer = answer.into_iter().map(AnnotatedEvent::from).collect();
        Self { after: ticket.head, ticket, request: None, answer, records, summary, newest, place }
    }

    /// Takes the request along, if it is not written.
    fn try_join(&mut self) -> Result<(), CommitBusyError> {
        if let Some(unwritten) = &self.ticket.unwritten {
            self.request = unwritten.try_claim()?;
        }
        Ok(())
    }

    /// Everything to write, in one commit.
    fn commit(&self) -> ThreadCommit {
        let mut commit = match &self.request {
            Some(DeferredCommitGuard { commit: request, .. }) => request.clone(),
            None => ThreadCommit::new(self.ticket.thread, self.after, Vec::new(), Vec::new()),
        };
        commit.events.extend(self.answer.iter().cloned());
        commit.records.extend(self.records.iter().cloned());
        commit
    }

    /// Moves to `head`, the thread's end by now, after events without messages.
    fn moves_to(&mut self, head: Seq) {
        self.after = head;
        if let Some(DeferredCommitGuard { commit: request, .. }) = &mut self.request {
            request.after = head;
            self.ticket.head = Seq(head.0 + request.events.len() as u64);
            for record in &mut request.records {
                if let CommitRecord::Call(call) = record {
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
        self.records.retain(|record| !matches!(record, CommitRecord::Outcome(_)));
        if let Some(request) = &mut self.request {
            drop(deferred_commit::calls_of(&mut request.commit));
        }
    }

    /// Returns true if this writes a request that was composed.
    fn is_composed(&self) -> bool {
        let records = self.request.as_ref().map(|request| &request.commit.records);
        records.is_some_and(|records| records.iter().any(|record| matches!(record, CommitRecord::Call(_))))
    }

    /// Sets the request's end in the record of the exchange.
    fn is_asked_at_its_head(&mut self) {
        for record in &mut self.records {
            if let CommitRecord::Exchange(exchange) = record {
                exchange.head = self.ticket.head;
            }
        }
    }

    /// Notes that it is written, with the thread's new end.
    fn ends(self, known: &RecorderCache, (thread, head): (ThreadId, ThreadHead)) {
        self.no_longer_waits(known);
        if self.ticket.purpose == RequestPurpose::Turn {
            known.note_thread_end(&self.ticket, thread, head);
            if let Some(newest) = self.newest {
                known.note_answer(&self.ticket, newest, thread);
            }
        }
        if let Some(summary) = self.summary {
            known.note_client_summary(&self.ticket, summary);
        }
    }

    /// Notes that it cannot be written: the cached state of its thread may contain it, and is dropped.
    fn is_lost(&self, known: &RecorderCache, threads: &ThreadCache) {
        self.no_longer_waits(known);
        threads.forget(self.ticket.thread);
    }

    fn no_longer_waits(&self, known: &RecorderCache) {
        known.note_answered(self.place);
        if let Some(unwritten) = &self.ticket.unwritten {
            known.forget_deferred(unwritten);
        }
    }
}

impl TrafficRecorder {
    /// Records the end of a request, and its answer.
    pub fn finish(&self, ticket: PendingRecord, end: EndedExchange) -> Result<(), RecordError> {
        self.settle(UnfinishedRequest::new(self, ticket, end))
    }

    /// Hands the end of a request to the store without waiting until it is written.
    pub fn begin_finish(&self, ticket: PendingRecord, end: EndedExchange) -> PendingFinish {
        let mut unfinished = Box::new(UnfinishedRequest::new(self, ticket, end));
        let commit = unfinished.try_join().ok().map(|()| self.store.submit(unfinished.commit()));
        // The next request to be composed is spared a read of the events written here.
        let cached = unfinished.ticket.call.and_then(|_| self.threads.get(unfinished.ticket.thread));
        let (known, threads) = (Arc::clone(&self.known), Arc::clone(&self.threads));
        PendingFinish { commit, unfinished, cached, known, threads }
    }

    /// Writes the end of a request, wherever it belongs by now, and waits for the store.
    pub fn settle(&self, mut unfinished: UnfinishedRequest) -> Result<(), RecordError> {
        match self.write(&mut unfinished) {
            Ok(place) => {
                unfinished.ends(&self.known, place);
                Ok(())
            }
            Err(error) => {
                unfinished.is_lost(&self.known, &self.threads);
                Err(error)
            }
        }
    }

    fn write(&self, unfinished: &mut UnfinishedRequest) -> Result<(ThreadId, ThreadHead), RecordError> {
        if unfinished.request.is_none()
            && let Some(unwritten) = &unfinished.ticket.unwritten
        {
            unfinished.request = unwritten.claim();
        }
        let mut tries = 0;
        loop {
            let commit = unfinished.commit();
            let head = match self.store.commit(commit.clone()) {
                Ok(head) => return Ok((unfinished.ticket.thread, head)),
                Err(error) if error.is_conflict() && unfinished.ticket.relayed.is_some() => {
                    self.threads.forget(unfinished.ticket.thread);
                    if let StoreError::Conflict { head, .. } = error {
                        head
                    } else {
                        // Another writer recorded a call here, so the number of this one is taken.
                        unfinished.forgets_its_call();
                        continue;
                    }
                }
                Err(error) if error.is_conflict() && unfinished.is_composed() => {
                    let UnfinishedRequest { ticket, request, records, .. } = &mut *unfinished;
                    if let Some(request) = request {
                        self.record_call_beside(ticket, &mut request.commit, records)?;
                    }
                    continue;
                }
                Err(StoreError::Conflict { head, .. }) => head,
                Err(error) => return Err(error.into()),
            };
            tries += 1;
            if tries < MAX_PLACE_ATTEMPTS && self.is_unsaid(unfinished, &commit, head)? {
                // Another writer compacted, or pinned something.
                unfinished.moves_to(head.seq);
            } else if let Some(request) = unfinished.request.take() {
                self.write_to_moved_thread(&mut unfinished.ticket, &request.commit)?;
                if unfinished.ticket.relayed.is_none() {
                    unfinished.forgets_its_call();
                }
                unfinished.moves_to(unfinished.ticket.head);
                unfinished.is_asked_at_its_head();
            } else {
                // The same was asked again, or the client went on without waiting: a thread of its own.
                return self.write_answer_beside(&unfinished.ticket, &commit);
            }
        }
    }

    /// Returns true if no message was appended to the thread of a commit between the commit's place and the thread's
    /// end.
    fn is_unsaid(
        &self,
        unfinished: &UnfinishedRequest,
        commit: &ThreadCommit,
        head: ThreadHead,
    ) -> Result<bool, StoreError> {
        if head.seq <= commit.after || unfinished.request.is_none() {
            return Ok(head.seq > commit.after && head.link.normal == unfinished.ticket.link);
        }
        let between = usize::try_from(head.seq.0 - commit.after.0).unwrap_or(usize::MAX);
        let added = self.store.digests(
            commit.thread,
            commit.after.next(),
            between.min(MAX_EVENTS_WITHOUT_MESSAGES),
        )?;
        Ok(between <= MAX_EVENTS_WITHOUT_MESSAGES && added.iter().all(|(_, digest, _)| digest.is_none()))
    }
}
