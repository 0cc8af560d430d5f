//! Recording of the traffic between an agent and its provider: each request finds its place in the log by its
//! client's ids and by its own history, and each answer follows it.
//!
//! No byte of the traffic is changed here. All of it blocks on the store: callers in async code give it a thread.

mod client_compaction;
mod deferred_commit;
mod exchange_record;
mod finish;
pub(crate) mod placement;
mod received_request;
mod recorder_cache;
mod subagent_parent;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use epitome_core::{
    AnnotatedEvent, Digest, Event, Seq, SessionId, ThreadId,
    event::{Summary, Timestamp},
    id::ModelName,
};
use epitome_store::{
    CommitOutcome, PendingCommit, Store, StoreError, ThreadHead, ThreadStart,
    records::{CommitRecord, ThreadCommit, ThreadOpening},
};
use epitome_wire::{
    Format, WireError,
    caller::{ClientProgram, RequestPurpose},
    incoming::{IncomingRequest, MessageMemo},
};

use crate::{
    import::title_of,
    rewrite::{CachedThread, RecallAnswerForm, RelayedThread, ThreadCache},
    session::{SessionError, call_input::WriteTiming},
};

pub use self::finish::{FinishOutcome, PendingFinish, UnfinishedRequest};
pub(crate) use self::received_request::{MAX_PLACE_ATTEMPTS, ReceivedRequest};
use self::{
    deferred_commit::{DeferredCommit, DeferredCommitGuard, RelationMark},
    placement::{RequestPlace, ThreadKind},
    recorder_cache::RecorderCache,
};

/// Number of messages remembered by their bytes: some hundred long sessions, a few megabytes.
const MEMO_MESSAGES: usize = 65_536;

/// Largest number of items that a request may name instead of holding them.
const MAX_NAMED_ITEMS: usize = 1_024;

/// Number of letters a recall returns beside the results of other calls.
const MAX_RECALL_CHARS_BESIDE: usize = 8_000;

/// Records requests and answers.
#[derive(Debug)]
pub struct TrafficRecorder {
    store: Arc<dyn Store>,
    pub(crate) memo: MessageMemo,
    known: Arc<RecorderCache>,
    /// Cached state of threads whose requests are composed.
    pub(crate) threads: Arc<ThreadCache>,
}

/// An incoming request.
pub struct RequestArrival<'a> {
    /// Its owner. A principal's requests never continue another principal's sessions.
    pub principal: &'a str,
    /// The provider's format.
    pub format: Format,
    /// The body, not compressed.
    pub body: &'a str,
    /// The same bytes, if they may be kept instead of a copy because they hold no more memory than their length.
    pub shared: Option<&'a Bytes>,
    /// Looks up a header by its lower-case name.
    pub header: &'a dyn Fn(&str) -> Option<&'a str>,
    /// Time at which it came.
    pub at: Timestamp,
    /// Its purpose, if it is known from elsewhere than the request.
    pub purpose: Option<RequestPurpose>,
}

/// A request that was recorded and waits for its answer.
#[derive(Debug)]
pub struct PendingRecord {
    /// Its session.
    pub session: SessionId,
    /// The thread it continues.
    pub thread: ThreadId,
    /// The last event of the request.
    pub head: Seq,
    /// Way in which it was placed.
    pub placed: PlacementKind,
    /// Program that sent it.
    pub client: ClientProgram,
    /// Its purpose.
    pub purpose: RequestPurpose,
    /// Model it asks.
    pub model: Option<ModelName>,
    /// Number of its call, if it was composed.
    pub call: Option<u64>,
    /// Number of its call, if it was relayed as it came.
    pub relayed: Option<u64>,
    /// Our summary, with which a client's own request for one is answered.
    pub(crate) summary: Option<Summary>,
    /// Cached state of the thread in which the call was made.
    pub(crate) cached: Option<Arc<CachedThread>>,
    /// The first event that the client does not have though its provider does.
    pub(crate) unsent: Option<Seq>,
    /// True if its provider keeps the answer.
    pub(crate) keeps_answer: bool,
    /// Its owner.
    principal: String,
    pub(crate) format: Format,
    at: Timestamp,
    bytes: u64,
    /// The normalised chain after the request.
    pub(crate) link: Digest,
    instructions: Digest,
    key: Option<String>,
    line: ThreadKind,
    /// The request itself, if it is written with its answer.
    unwritten: Option<Arc<DeferredCommit>>,
    unwritten_bytes: usize,
}

impl PendingRecord {
    /// Size of the part of the request that is still to be written.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }
}

/// Way in which a request was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlacementKind {
    /// It begins a session.
    Began,
    /// It begins a thread of a session: a subagent, a title, a summary.
    Joined,
    /// It continues its thread.
    Continued,
    /// It continues its thread after the client compacted it.
    Compacted,
    /// It repeats a request that had no answer yet.
    Retried,
    /// It differs from its thread's history, and forks it.
    Forked,
}

impl PlacementKind {
    /// Name of the way.
    pub fn name(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Joined => "joined",
            Self::Continued => "continued",
            Self::Compacted => "compacted",
            Self::Retried => "retried",
            Self::Forked => "forked",
        }
    }
}

/// The end of a request.
#[derive(Debug)]
pub struct EndedExchange {
    /// The answer as far as it came, and its usage.
    pub answer: Vec<Event>,
    /// Way it ended.
    pub ending: ExchangeOutcome,
    /// The provider's status, if it gave one.
    pub status: Option<u16>,
    /// Number of bytes sent back.
    pub bytes: u64,
    /// Time to the first byte.
    pub first_byte: Option<Duration>,
    /// Total time.
    pub took: Duration,
    /// Time at which it ended.
    pub at: Timestamp,
    /// The request a policy would have sent, as JSON.
    pub observed: Option<String>,
    /// The client's form of the answer, if it differs.
    pub told: Option<RecallAnswerForm>,
}

/// Way a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeOutcome {
    /// The provider answered in full.
    Complete,
    /// The provider refused, in words or a status.
    Refused,
    /// The answer broke off.
    Cut,
    /// The client went away.
    Cancelled,
    /// The provider was not reached, or said nothing in time.
    Unreached,
}

impl ExchangeOutcome {
    /// Name of the way.
    pub fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Refused => "refused",
            Self::Cut => "cut",
            Self::Cancelled => "cancelled",
            Self::Unreached => "unreached",
        }
    }
}

/// Reason a request could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The body is not a request.
    #[error("the request cannot be read: {0}")]
    Unreadable(#[from] WireError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other writers append to the same session all the time.
    #[error("others write to this session faster than a request can be placed in it; send it again")]
    Busy,
}

/// Requests that were handed to the store before their answers came. Answers that come meanwhile wait for them.
#[derive(Debug)]
#[must_use = "what could not be written is put back"]
pub struct PendingRequests {
    commits: Vec<PendingRequest>,
    known: Arc<RecorderCache>,
}

/// One of them.
#[derive(Debug)]
struct PendingRequest {
    commit: PendingCommit,
    leaving: DeferredCommitGuard,
    unwritten: Arc<DeferredCommit>,
}

impl PendingRequests {
    /// Returns when all are written; those that cannot be are put back.
    pub async fn written(self) {
        for PendingRequest { commit, leaving, unwritten } in self.commits {
            leaving.noted(&commit.await, &unwritten, &self.known);
        }
    }

    /// The same for a thread that may block.
    pub fn wait(self) {
        for PendingRequest { commit, leaving, unwritten } in self.commits {
            leaving.noted(&commit.wait(), &unwritten, &self.known);
        }
    }
}

impl DeferredCommitGuard {
    /// Notes the outcome of its commit.
    fn noted(self, written: &CommitOutcome, unwritten: &Arc<DeferredCommit>, known: &RecorderCache) {
        match written {
            Ok(_) => known.forget_deferred(unwritten),
            // Its answer will report the fault, or find another place.
            Err(_) => self.put_back(),
        }
    }
}

/// A request at its place, apart from the commit that writes it.
#[derive(Debug)]
pub(crate) struct PlacedRequest {
    ticket: PendingRecord,
    /// Words of the user by which the session can be recognised.
    words: Option<String>,
    /// True if the commit changes the thread.
    goes_on: bool,
}

impl TrafficRecorder {
    /// Records into `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, memo: MessageMemo::new(MEMO_MESSAGES), known: Arc::default(), threads: Arc::default() }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Records a request: finds the thread it continues, or makes one, and appends its new messages.
    pub fn record(&self, arrival: &RequestArrival<'_>) -> Result<PendingRecord, RecordError> {
        self.record_at(arrival, WriteTiming::Now)
    }

    /// The same, but the new messages are written when it is [finished](Self::finish), together with its answer,
    /// unless they are [needed before](Self::write_deferred_before). Other requests to this recorder are placed as if
    /// they were written.
    pub fn record_deferred(&self, arrival: &RequestArrival<'_>) -> Result<PendingRecord, RecordError> {
        self.record_at(arrival, WriteTiming::MayWait)
    }

    fn record_at(
        &self,
        arrival: &RequestArrival<'_>,
        writing: WriteTiming,
    ) -> Result<PendingRecord, RecordError> {
        let mut request = self.receive(arrival)?;
        loop {
            let place = request.place()?;
            let written = self.relay(&request, place, writing).map(Some);
            if let Some(ticket) = request.accept(written)? {
                return Ok(ticket);
            }
        }
    }

    /// Reads a request that is to be recorded.
    pub(crate) fn receive<'r, 'a>(
        &'r self,
        arrival: &'r RequestArrival<'a>,
    ) -> Result<ReceivedRequest<'r, 'a>, RecordError> {
        ReceivedRequest::read(self, arrival)
    }

    /// Notes that a principal's request went on without being recorded: it is unknown how much their provider's cache
    /// holds of it.
    pub fn note_unread(&self, principal: &str, at: Timestamp) {
        self.threads.clients.note_unread(principal, at);
    }

    /// Hands requests to the store that came before a time and still wait for their answers. Does not wait for the store.
    pub fn write_deferred_before(&self, time: Timestamp) -> PendingRequests {
        let mut commits = Vec::new();
        for unwritten in self.known.unwritten_before(time) {
            let Ok(Some(leaving)) = unwritten.try_claim() else { continue };
            let commit = self.store.submit(leaving.commit.clone());
            commits.push(PendingRequest { commit, leaving, unwritten });
        }
        PendingRequests { commits, known: Arc::clone(&self.known) }
    }

    /// Writes the requests that have one of these marks, and returns their number.
    fn write_down(&self, marks: &[RelationMark]) -> Result<usize, StoreError> {
        let unwritten = self.known.unwritten(marks);
        for unwritten in &unwritten {
            if !unwritten.write(&*self.store)? {
                self.threads.forget(unwritten.thread);
            }
            self.known.forget_deferred(unwritten);
            self.known.forget(unwritten.thread);
        }
        Ok(unwritten.len())
    }

    /// Writes a request that was to be written with its answer. `false` if another writer has continued its thread.
    pub(crate) fn write_now(&self, ticket: &PendingRecord) -> Result<bool, StoreError> {
        let Some(unwritten) = &ticket.unwritten else { return Ok(true) };
        let is_down = unwritten.write(&*self.store)?;
        self.known.forget_deferred(unwritten);
        if !is_down {
            self.threads.forget(ticket.thread);
        }
        Ok(is_down)
    }

    /// Fills in items that the request only names, as many as a client would.
    pub(crate) fn resolve(&self, principal: &str, seen: &mut IncomingRequest<'_>) -> Result<(), StoreError> {
        let named: BTreeSet<String> = seen.references().iter().take(MAX_NAMED_ITEMS).cloned().collect();
        let mut known = BTreeMap::new();
        for id in named {
            if let Some(item) = self.store.item_of(principal, &id)? {
                known.insert(id, self.store.event(item)?.event);
            }
        }
        if !known.is_empty() {
            seen.resolve(&known);
        }
        Ok(())
    }

    /// The place in a thread at which a request with this history ends.
    fn seen_before(&self, thread: ThreadId, link: Digest) -> Result<Option<RequestPlace>, StoreError> {
        let thread = match self.store.thread(thread) {
            Ok(thread) => thread,
            // Its session is elsewhere, and so is the thread.
            Err(StoreError::UnknownThread(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let digests = self.store.digests(thread.id, Seq(1), usize::MAX >> 1)?;
        let Some((seq, ..)) = digests.iter().rfind(|(.., after)| *after == link) else { return Ok(None) };
        let is_end = thread.head.link.normal == link;
        Ok(Some(RequestPlace {
            session: thread.session,
            thread: thread.id,
            after: if is_end { thread.head.seq } else { *seq },
            link,
            new: Vec::new(),
            opens: None,
            placed: if is_end { PlacementKind::Retried } else { PlacementKind::Forked },
            line: ThreadKind::of(&thread),
            key: thread.key,
        }))
    }

    /// Writes a request at its place.
    pub(crate) fn write_at_place(
        &self,
        request: &ReceivedRequest<'_, '_>,
        place: RequestPlace,
    ) -> Result<PendingRecord, RecordError> {
        let (commit, placed) = self.commit_at_place(request, place);
        // A request that is sent again is in the log already.
        let head = if commit.events.is_empty() && commit.opens.is_none() {
            commit.after
        } else {
            self.store.commit(commit)?.seq
        };
        Ok(self.note_written(placed, head, None))
    }

    /// Records a request that goes on as it came, with a call from which it can be written again: at once, or with
    /// its answer if that is allowed.
    pub(crate) fn relay(
        &self,
        request: &ReceivedRequest<'_, '_>,
        place: RequestPlace,
        writing: WriteTiming,
    ) -> Result<PendingRecord, RecordError> {
        let ReceivedRequest { arrival, seen, .. } = request;
        self.threads.clients.note_relayed(arrival.principal, seen, arrival.at);
        let is_fork =
            matches!(&place.opens, Some(opens) if matches!(opens.thread.start, ThreadStart::Fork { .. }));
        if is_fork || (place.new.is_empty() && place.opens.is_none()) {
            // The shared part of a fork can be read once the fork exists. A request that is asked again is in the
            // log.
            let mut ticket = self.write_at_place(request, place)?;
            ticket.relayed = self.relay_again(arrival, seen, ticket.thread)?;
            return Ok(ticket);
        }
        let thread = place.thread;
        let mut relayed = self.relayed_thread(thread, place.opens.as_ref())?;
        let (mut commit, placed) = self.commit_at_place(request, place);
        let mut call = None;
        if let Some(relayed) = &mut relayed {
            let told = audited(thread, relayed.call_records(&*self.store, arrival, seen, &commit))?;
            let (number, records) = told.unzip();
            call = number;
            commit.records.extend(records.into_iter().flatten());
        }
        let head = Seq(commit.after.0 + commit.events.len() as u64);
        let unwritten = match writing {
            WriteTiming::Now => {
                self.store.commit(commit).map_err(|error| as_conflict(error, thread))?;
                None
            }
            WriteTiming::MayWait => Some(commit),
        };
        let mut ticket = self.note_written(placed, head, None);
        ticket.relayed = call;
        if let Some(relayed) = relayed.filter(|_| call.is_some()) {
            self.threads.note_relayed(thread, relayed);
        }
        if let Some(commit) = unwritten {
            self.leave_unwritten(&mut ticket, commit, request);
        }
        Ok(ticket)
    }

    /// Records a call for a request that is in the log and goes on once more, and returns the call's number.
    fn relay_again(
        &self,
        arrival: &RequestArrival<'_>,
        seen: &IncomingRequest<'_>,
        thread: ThreadId,
    ) -> Result<Option<u64>, RecordError> {
        let mut tries = 0;
        loop {
            let Some(mut relayed) = self.relayed_thread(thread, None)? else { return Ok(None) };
            // Calls are numbered in order: one that repeats an earlier request stands at the thread's end by now.
            let mut commit = ThreadCommit::new(thread, relayed.head(), Vec::new(), Vec::new());
            let told = audited(thread, relayed.call_records(&*self.store, arrival, seen, &commit))?;
            let Some((call, records)) = told else { return Ok(None) };
            commit.records = records;
            match self.store.commit(commit) {
                Ok(_) => {
                    self.threads.note_relayed(thread, relayed);
                    return Ok(Some(call));
                }
                Err(error) if error.is_conflict() && tries < MAX_PLACE_ATTEMPTS => tries += 1,
                Err(error) => return Err(as_conflict(error, thread).into()),
            }
        }
    }

    /// State from which a request to be relayed continues.
    fn relayed_thread(
        &self,
        thread: ThreadId,
        opens: Option<&ThreadOpening>,
    ) -> Result<Option<RelayedThread>, StoreError> {
        audited(thread, self.threads.relayed(&*self.store, thread, opens))
    }

    /// Leaves a request to be written with its answer.
    pub(crate) fn leave_unwritten(
        &self,
        ticket: &mut PendingRecord,
        commit: ThreadCommit,
        ReceivedRequest { arrival, seen, caller, .. }: &ReceivedRequest<'_, '_>,
    ) {
        let mut marks = self.known.marks(arrival.principal, caller, seen);
        marks.push(self.known.mark_of(ticket.session));
        ticket.unwritten_bytes = commit.events.iter().map(|event| event.raw.json.len()).sum();
        let unwritten = Arc::new(DeferredCommit::new(commit, arrival.at, marks));
        self.known.note_deferred(&unwritten);
        ticket.unwritten = Some(unwritten);
    }

    /// The commit that writes a request at its place.
    pub(crate) fn commit_at_place(
        &self,
        ReceivedRequest { arrival, seen, caller, .. }: &ReceivedRequest<'_, '_>,
        place: RequestPlace,
    ) -> (ThreadCommit, PlacedRequest) {
        let RequestPlace { session, thread, after, link, new, opens, placed, key, line } = place;
        let events: Vec<Event> = new.into_iter().map(|event| at(event, arrival.at)).collect();
        let words = (caller.purpose == RequestPurpose::Turn)
            .then(|| events.iter().rev().find_map(title_of))
            .flatten();
        let is_head =
            opens.is_some() || line != ThreadKind::Main || self.known.head_of(session) == Some(thread);
        let records = if is_head || events.is_empty() { Vec::new() } else { vec![CommitRecord::Head] };
        let goes_on = !events.is_empty() || opens.is_some();
        let events = events.into_iter().map(AnnotatedEvent::from).collect();
        let ticket = PendingRecord {
            session,
            thread,
            head: after,
            placed,
            client: caller.client,
            purpose: caller.purpose,
            model: seen.model(),
            call: None,
            relayed: None,
            summary: None,
            cached: None,
            unsent: None,
            keeps_answer: seen.keeps_answer(),
            principal: arrival.principal.to_owned(),
            format: arrival.format,
            at: arrival.at,
            bytes: arrival.body.len() as u64,
            link,
            instructions: seen.instructions(),
            key,
            line,
            unwritten: None,
            unwritten_bytes: 0,
        };
        (ThreadCommit { thread, after, events, records, opens }, PlacedRequest { ticket, words, goes_on })
    }

    /// Notes that a request was written, or will be with its answer: `head` is its last event, `call` the number of its
    /// call.
    pub(crate) fn note_written(&self, request: PlacedRequest, head: Seq, call: Option<u64>) -> PendingRecord {
        let PlacedRequest { ticket, words, goes_on } = request;
        let ticket = PendingRecord { head, call, ..ticket };
        if goes_on {
            self.known.forget(ticket.thread);
        }
        if let Some(words) = words {
            let words = words.trim_end_matches('…').to_owned();
            self.known.note_user_text(&ticket.principal, ticket.session, words);
        }
        if ticket.line == ThreadKind::Main {
            self.known.note_head(ticket.session, ticket.thread);
        }
        self.known.note_waiting(&ticket);
        ticket
    }

    /// Returns true if a model recently gave this principal this answer.
    pub(crate) fn has_recent_answer(&self, principal: &str, said: Digest) -> bool {
        self.known.thread_answered_with(principal, said).is_some()
    }

    /// Gives up a ticket, because its request is placed once more.
    pub(crate) fn give_up(&self, ticket: &PendingRecord) {
        self.known.note_answered((ticket.thread, ticket.head));
    }

    /// Moves a ticket to the new end of its thread, where decisions were recorded.
    pub(crate) fn move_to_head(&self, ticket: &mut PendingRecord, head: Seq, call: Option<u64>) {
        self.give_up(ticket);
        ticket.head = head;
        ticket.call = call.or(ticket.call);
        self.known.note_waiting(ticket);
    }
}

/// The result of preparing the record of a call. An unreadable record, written by another version, must not stop a
/// request: its call is not recorded.
fn audited<T>(thread: ThreadId, told: Result<T, SessionError>) -> Result<Option<T>, StoreError> {
    match told {
        Ok(told) => Ok(Some(told)),
        Err(SessionError::Store(error)) => Err(error),
        Err(error) => {
            tracing::warn!(target: "epitome::record", %thread, %error, "a request is recorded without its call");
            Ok(None)
        }
    }
}

/// Turns a concurrent creation into a conflict, so that the request is placed again.
pub(crate) fn as_conflict(error: StoreError, thread: ThreadId) -> StoreError {
    match error {
        conflict @ StoreError::Conflict { .. } => conflict,
        error if error.is_conflict() => {
            StoreError::Conflict { thread, after: Seq::START, head: ThreadHead::START }
        }
        error => error,
    }
}

/// Sets an event's time to the request's, unless it has one.
fn at(event: Event, time: Timestamp) -> Event {
    if event.time.is_some() { event } else { event.at(Some(time)) }
}
