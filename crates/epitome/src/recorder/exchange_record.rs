//! Records of how a request ended.

use epitome_core::{
    AnnotatedEvent, ChainLink, Digest, Event, Fact, Seq, ThreadId, event::Timestamp, id::AnswerId,
};
use epitome_store::{
    NewThread, StoreError, ThreadHead, ThreadStart,
    records::{
        CommitReceipt, CommitRecord, HeadPromotion, NewCall, NewCallOutcome, NewExchange, ThreadCommit,
        ThreadOpening,
    },
};
use epitome_wire::incoming::with_unit_digests;
use uuid::Uuid;

use crate::{rewrite::as_client_saw, session::answer_reader::beside_history};

use super::{
    EndedExchange, ExchangeOutcome, MAX_PLACE_ATTEMPTS, PendingRecord, PlacementKind, RecordError,
    TrafficRecorder, at, deferred_commit, placement::ThreadKind, recorder_cache::RecorderCache,
};

/// The record of the exchange beside the log.
pub(super) fn exchange(ticket: &PendingRecord, end: &EndedExchange) -> NewExchange {
    NewExchange {
        head: ticket.head,
        time: ticket.at,
        client: ticket.client.name().to_owned(),
        purpose: ticket.purpose.name().to_owned(),
        format: ticket.format.to_string(),
        model: ticket.model.as_ref().map(|model| model.0.clone()),
        status: end.status,
        ending: end.ending.name().to_owned(),
        bytes_in: ticket.bytes,
        bytes_out: end.bytes,
        first_byte: end.first_byte,
        took: end.took,
        observed: end.observed.clone(),
        error: None,
    }
}

/// Makes an answer's id distinct from the one before it, if a server gives both the same: they would be joined.
fn told_apart(
    ticket: &PendingRecord,
    mut answer: Vec<Event>,
    is_called_again: impl Fn(&AnswerId) -> bool,
) -> Vec<Event> {
    let named = |event: &Event| match &event.fact {
        Fact::AssistantSaid { answer, .. } => answer.clone(),
        _ => None,
    };
    let Some(name) = answer.iter().find_map(named).filter(is_called_again) else { return answer };
    for event in &mut answer {
        if let Fact::AssistantSaid { answer: Some(answer), .. } = &mut event.fact
            && *answer == name
        {
            answer.0 = format!("{}#{}", name.0, ticket.head);
        }
    }
    answer
}

/// Events of the answer. An answer that broke off is kept without a digest: the client may send it back, or not.
pub(super) fn answer(known: &RecorderCache, ticket: &PendingRecord, end: EndedExchange) -> Vec<Event> {
    let answer = told_apart(ticket, end.answer, |name| known.repeats_answer_id(ticket.thread, name));
    let came = match end.ending {
        ExchangeOutcome::Complete => {
            let answer = with_unit_digests(ticket.format, answer);
            match &end.told {
                Some(told) => as_client_saw(ticket, answer, told),
                None => answer,
            }
        }
        ExchangeOutcome::Refused
        | ExchangeOutcome::Cut
        | ExchangeOutcome::Cancelled
        | ExchangeOutcome::Unreached => answer.into_iter().map(beside_history).collect(),
    };
    came.into_iter().map(|event| at(event, end.at)).collect()
}

impl TrafficRecorder {
    /// Writes a request to whose thread another process has appended: it may have written the very same request, or
    /// else the request becomes a fork.
    pub(super) fn write_to_moved_thread(
        &self,
        ticket: &mut PendingRecord,
        request: &ThreadCommit,
    ) -> Result<(), RecordError> {
        let moved = self.moved_to_its_session(request)?;
        let request = moved.as_ref().unwrap_or(request);
        ticket.session = request.opens.as_ref().map_or(ticket.session, |opens| opens.thread.session);
        let written = match &moved {
            Some(moved) => self.store.commit(moved.clone()).map(Some),
            None => Ok(None),
        };
        let found = match written {
            Ok(Some(head)) => (request.thread, head.seq, ticket.placed),
            Ok(None) | Err(StoreError::Conflict { .. }) => {
                match self.seen_before(request.thread, ticket.link)? {
                    Some(place) => {
                        // The process that wrote the same request has recorded a call for it.
                        ticket.relayed = None;
                        (place.thread, place.after, place.placed)
                    }
                    None => self.fork_away(ticket, request)?,
                }
            }
            Err(error) => return Err(error.into()),
        };
        (ticket.thread, ticket.head, ticket.placed) = found;
        Ok(())
    }

    /// Writes a composed request whose place was taken. Its call is recorded in a thread of its own, which forks from
    /// everything it was composed of; the request and its answer find their place without it.
    pub(super) fn record_call_beside(
        &self,
        ticket: &PendingRecord,
        request: &mut ThreadCommit,
        ended: &mut Vec<CommitRecord>,
    ) -> Result<(), RecordError> {
        self.threads.forget(request.thread);
        let mut records = deferred_commit::calls_of(request);
        // The number of calls that others made meanwhile does not concern the fork.
        records.retain(|record| !matches!(record, CommitRecord::CallsSoFar(_)));
        let (of, at) = (request.thread, request.after);
        // The thread is new, and no other process records this call.
        let id = ThreadId::new(Uuid::now_v7()).beside(of.uuid());
        for record in &mut records {
            // The summary that was made for the call itself moves with it.
            if let CommitRecord::Call(NewCall { summary: Some(summary), .. }) = record
                && summary.thread == of
                && summary.seq > at
            {
                summary.thread = id;
            }
        }
        let moved = self.moved_to_its_session(request)?;
        let thread = if let Some(opens) = &moved.as_ref().unwrap_or(request).opens {
            NewThread { id, key: None, ..opens.thread.clone() }
        } else {
            let name = self.store.thread(of)?.name;
            NewThread { id, session: ticket.session, name, start: ThreadStart::Fork { of, at }, key: None }
        };
        let opens = ThreadOpening { session: None, thread, head: HeadPromotion::No };
        let commit = ThreadCommit {
            events: request.events.clone(),
            ..ThreadCommit::opening(opens, Vec::new(), records)
        };
        let CommitReceipt { head, calls } = self.store.commit_numbered(commit)?;
        // The outcome of a call is recorded in the call's own thread.
        let outcomes = ended.extract_if(.., |record| matches!(record, CommitRecord::Outcome(_)));
        let outcomes = calls.into_iter().zip(outcomes).map(|(call, outcome)| match outcome {
            CommitRecord::Outcome(outcome) => CommitRecord::Outcome(NewCallOutcome { call, ..outcome }),
            other => other,
        });
        self.store.commit(ThreadCommit::new(id, head.seq, Vec::new(), outcomes.collect()))?;
        Ok(())
    }

    /// Moves a request that begins a session which another process began at another time to that session. `None` if
    /// it is in its place.
    fn moved_to_its_session(&self, request: &ThreadCommit) -> Result<Option<ThreadCommit>, StoreError> {
        let mut moved = request.clone();
        let Some(ThreadOpening { session: Some(session), thread, .. }) = &mut moved.opens else {
            return Ok(None);
        };
        let Some(key) = &session.key else { return Ok(None) };
        let Some(known) = self.store.session_named(&session.principal, key, session.id)? else {
            return Ok(None);
        };
        if known == session.id {
            return Ok(None);
        }
        let id = thread.id.beside(known.uuid());
        (session.id, thread.session, thread.id, moved.thread) = (known, known, id, id);
        Ok(Some(moved))
    }

    fn fork_away(
        &self,
        ticket: &mut PendingRecord,
        request: &ThreadCommit,
    ) -> Result<(ThreadId, Seq, PlacementKind), RecordError> {
        let (of, at, end) = (request.thread, request.after, ticket.link);
        let key = ticket.key.clone();
        let id = ThreadId::derived(&[
            &of.to_string(),
            &at.to_string(),
            &end.to_string(),
            key.as_deref().unwrap_or_default(),
        ])
        .beside(of.uuid());
        let name = self.store.thread(of)?.name;
        let thread =
            NewThread { id, session: ticket.session, name, start: ThreadStart::Fork { of, at }, key };
        let head = if ticket.line == ThreadKind::Main { HeadPromotion::Yes } else { HeadPromotion::No };
        let opens = ThreadOpening { session: None, thread, head };
        // The fork shares the calls before its own, so this one is numbered after them.
        let calls = deferred_commit::calls_of(&mut request.clone());
        let mut commit = ThreadCommit {
            events: request.events.clone(),
            ..ThreadCommit::opening(opens, Vec::new(), calls)
        };
        let mut written = self.store.commit(commit.clone());
        if let Err(StoreError::CallsConflict { .. }) = written {
            (ticket.relayed, commit.records) = (None, Vec::new());
            written = self.store.commit(commit);
        }
        match written {
            Ok(head) => Ok((id, head.seq, PlacementKind::Forked)),
            // A third process wrote the very same request, too.
            Err(error @ StoreError::Conflict { .. }) => match self.seen_before(id, end)? {
                Some(place) => {
                    ticket.relayed = None;
                    Ok((id, place.after, place.placed))
                }
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Outcome of a request's call, composed or relayed.
    pub(super) fn outcome(&self, ticket: &PendingRecord, end: &EndedExchange) -> Option<NewCallOutcome> {
        let call = ticket.call.or(ticket.relayed)?;
        let mut outcome = self.outcome_of(ticket, call, &end.answer, end.at);
        if ticket.summary.is_some() {
            outcome.error = Some("answered by the gateway, with its own summary".to_owned());
            return Some(outcome);
        }
        outcome.error = (end.ending != ExchangeOutcome::Complete).then(|| match end.status {
            Some(status) => format!("{}: the provider answered {status}", end.ending.name()),
            None => end.ending.name().to_owned(),
        });
        Some(outcome)
    }

    /// Outcome of a composed request's call.
    pub(crate) fn outcome_of(
        &self,
        ticket: &PendingRecord,
        call: u64,
        answer: &[Event],
        at: Timestamp,
    ) -> NewCallOutcome {
        let usage = answer.iter().rev().find_map(|event| match &event.fact {
            Fact::UsageReported { usage, .. } => Some(*usage),
            _ => None,
        });
        let name = answer.iter().find_map(|event| match &event.fact {
            Fact::AssistantSaid { answer, .. } => answer.clone(),
            _ => None,
        });
        if let (Some(usage), Some(cached)) = (&usage, self.threads.get(ticket.thread)) {
            cached.counted(call, usage);
        }
        let setup = ticket.cached.as_ref().map(|cached| cached.setup());
        let profile = setup.as_ref().and_then(|setup| setup.profile.as_ref());
        let cost = usage.as_ref().zip(profile).and_then(|(usage, profile)| profile.prices.cost(usage).ok());
        NewCallOutcome { call, time: Some(at), answer: name, usage, cost, error: None, refusal: None }
    }

    /// Notes that a composed request was replaced, because it could wait no longer: the recorded call never left, and
    /// the answer does not belong to it.
    pub fn note_call_not_sent(&self, ticket: &mut PendingRecord, at: Timestamp) -> Result<(), RecordError> {
        let Some(call) = ticket.call.take() else { return Ok(()) };
        if ticket.unwritten.as_ref().is_some_and(|unwritten| unwritten.drop_call()) {
            self.threads.forget(ticket.thread);
            return Ok(());
        }
        let error = Some("never left: it was not ready in time".to_owned());
        let outcome = NewCallOutcome {
            call,
            time: Some(at),
            answer: None,
            usage: None,
            cost: None,
            error,
            refusal: None,
        };
        let commit =
            ThreadCommit::new(ticket.thread, ticket.head, Vec::new(), vec![CommitRecord::Outcome(outcome)]);
        self.append_unsaid(ticket.thread, &commit)?;
        Ok(())
    }

    /// Writes an answer to a request that is no longer the end of its thread: in a thread of its own, unless the
    /// thread continues with the same answer already. Its usage and its outcome are written in any case.
    pub(super) fn write_answer_beside(
        &self,
        ticket: &PendingRecord,
        commit: &ThreadCommit,
    ) -> Result<(ThreadId, ThreadHead), RecordError> {
        let known = self.store.thread(ticket.thread)?;
        if self.says_the_same(ticket, &commit.events)? {
            return self.append_unsaid(ticket.thread, commit);
        }
        let end = chained(ticket.link, &commit.events).to_string();
        let names = [&*ticket.thread.to_string(), &ticket.head.to_string(), &end];
        let id = ThreadId::derived(&names).beside(ticket.thread.uuid());
        let thread = NewThread {
            id,
            session: ticket.session,
            name: known.name,
            start: ThreadStart::Fork { of: ticket.thread, at: ticket.head },
            key: ticket.key.clone(),
        };
        // A client that asked again continues with the new answer; one that did not wait continues without it.
        let is_asked_again = ticket.line == ThreadKind::Main && ticket.placed == PlacementKind::Forked;
        let head = if is_asked_again { HeadPromotion::Yes } else { HeadPromotion::No };
        let opens = ThreadOpening { session: None, thread, head };
        // The outcome of a call is recorded in the call's own thread.
        let (outcomes, records): (Vec<CommitRecord>, Vec<CommitRecord>) =
            commit.records.iter().cloned().partition(|record| matches!(record, CommitRecord::Outcome(_)));
        let there = ThreadCommit { records: outcomes, events: Vec::new(), ..commit.clone() };
        if !there.records.is_empty() {
            self.append_unsaid(ticket.thread, &there)?;
        }
        let commit = &ThreadCommit { records, ..commit.clone() };
        match self.store.commit(ThreadCommit { thread: id, opens: Some(opens), ..commit.clone() }) {
            Ok(head) => Ok((id, head)),
            // The very same answer was recorded in the same place before.
            Err(StoreError::Conflict { .. }) => self.append_unsaid(id, commit),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if the thread continues after a request with the same answer.
    fn says_the_same(&self, ticket: &PendingRecord, answer: &[AnnotatedEvent]) -> Result<bool, StoreError> {
        let says = self.store.digests(ticket.thread, ticket.head.next(), 64)?;
        let mut said = says.iter().filter_map(|(_, digest, _)| *digest);
        let mut digests = answer.iter().filter_map(|event| event.normal);
        Ok(digests.all(|digest| said.next() == Some(digest)))
    }

    /// Writes events that belong to no history at the end of a thread, wherever that is by now.
    fn append_unsaid(
        &self,
        thread: ThreadId,
        commit: &ThreadCommit,
    ) -> Result<(ThreadId, ThreadHead), RecordError> {
        let unsaid: Vec<AnnotatedEvent> =
            commit.events.iter().filter(|event| event.normal.is_none()).cloned().collect();
        let mut tries = 0;
        loop {
            let after = self.store.head(thread)?.seq;
            let (events, records) = (unsaid.clone(), commit.records.clone());
            match self.store.commit(ThreadCommit { thread, after, events, records, opens: None }) {
                Ok(head) => return Ok((thread, head)),
                Err(StoreError::Conflict { .. }) if tries < MAX_PLACE_ATTEMPTS => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn chained(link: Digest, events: &[AnnotatedEvent]) -> Digest {
    events.iter().filter_map(|event| event.normal).fold(link, ChainLink::advance_normal)
}
