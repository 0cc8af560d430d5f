//! Requests that are relayed as they came, recorded so that each can be written again: the log, the parts around a
//! history and the messages whose form differs from the log's make up every byte.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use epitome_core::{AnnotatedEvent, Seq, ThreadId, Tokens};
use epitome_store::{
    Store, ThreadHead,
    records::{CommitRecord, HashedText, NewCall, ThreadCommit},
};
use epitome_wire::{
    Format,
    history_rewrite::RewritePlan,
    incoming::{IncomingRequest, PriorHistory},
    render::RenderOptions,
};

use super::{
    rewrite_body::{LoggedUnitForms, RelayedBody, RewriteInput, RewriteState},
    unit_events::is_item,
};
use crate::{
    recorder::RequestArrival,
    session::{SessionError, pending_updates::AppendedEvents, setup::RecordedRendering},
    thread_lru::ThreadLru,
};

/// Total weight of the cache: the last bodies of some dozens of large sessions. A token is about four bytes.
const MAX_CACHE_WEIGHT: Tokens = Tokens(8_000_000);

/// Number of a thread's newest events that are kept: clients move their marks within the last messages.
const RECENT: usize = 32;

/// Number of events read at a time.
const PAGE: usize = 1_024;

/// Cache of the threads whose requests are relayed, bounded.
#[derive(Debug)]
pub(super) struct RelayedThreadCache {
    kept: Mutex<ThreadLru<RelayedThread>>,
}

impl Default for RelayedThreadCache {
    fn default() -> Self {
        Self { kept: Mutex::new(ThreadLru::new(MAX_CACHE_WEIGHT)) }
    }
}

impl RelayedThreadCache {
    /// Takes out the state of a thread. There is none if its newest request was not relayed.
    pub(super) fn take(&self, thread: ThreadId) -> Option<RelayedThread> {
        self.kept().take(thread)
    }

    /// Remembers a thread.
    pub(super) fn put(&self, thread: ThreadId, relayed: RelayedThread) {
        let weight = Tokens(relayed.rewrite_state.weight() as u64 / 4 + 500);
        self.kept().put(thread, relayed, weight);
    }

    /// Notes that events were appended to a thread.
    pub(super) fn appended(&self, thread: ThreadId, appended: AppendedEvents) {
        let mut kept = self.kept();
        if let Some(mut relayed) = kept.take(thread)
            && relayed.appended(appended)
        {
            let weight = Tokens(relayed.rewrite_state.weight() as u64 / 4 + 500);
            kept.put(thread, relayed, weight);
        }
    }

    fn kept(&self) -> MutexGuard<'_, ThreadLru<RelayedThread>> {
        // No operation under the lock can leave it half done, so a poisoned one is still valid.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cached state of a thread whose requests are relayed: all of it can be read from the store again.
#[derive(Debug)]
pub(crate) struct RelayedThread {
    rewrite_state: RewriteState,
    /// End of the thread.
    head: ThreadHead,
    /// Number of calls in its view.
    calls: u64,
    /// Its newest events.
    recent: VecDeque<(Seq, AnnotatedEvent)>,
    /// True if the texts that all relayed calls name were stored with one of this thread's.
    is_named: bool,
}

impl RelayedThread {
    /// For a thread that is made with its first request.
    pub(super) fn fresh() -> Self {
        let (rewrite_state, recent) = (RewriteState::default(), VecDeque::new());
        Self { rewrite_state, head: ThreadHead::START, calls: 0, recent, is_named: false }
    }

    /// For an existing thread.
    pub(super) fn read(store: &dyn Store, thread: ThreadId) -> Result<Self, SessionError> {
        let mut rewrite_state = RewriteState::restore(store, thread)?;
        rewrite_state.drop_plan();
        let calls = store.last_call(thread)?.map_or(0, |row| row.number + 1);
        let begins =
            store.last_client_compaction(thread, rewrite_state.units.through())?.unwrap_or(Seq::START.next());
        let mut read =
            Self { rewrite_state, head: ThreadHead::START, calls, recent: VecDeque::new(), is_named: false };
        read.head.seq = begins.previous();
        read.read_on(store, thread)?;
        Ok(read)
    }

    /// Reads events appended since.
    fn read_on(&mut self, store: &dyn Store, thread: ThreadId) -> Result<(), SessionError> {
        loop {
            let page = store.read(thread, self.head.seq.next(), PAGE)?;
            let full = page.len() == PAGE;
            for logged in page {
                self.rewrite_state.units.push(&logged);
                self.head = ThreadHead { seq: logged.id.seq, link: logged.link };
                self.recent.push_back((logged.id.seq, AnnotatedEvent::from(logged.event)));
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Takes appended events; `false` if they do not follow the known ones.
    fn appended(&mut self, AppendedEvents { after, events, head }: AppendedEvents) -> bool {
        if self.head.seq != after {
            return false;
        }
        for event in &events {
            self.push(event);
        }
        self.head == head
    }

    fn push(&mut self, event: &AnnotatedEvent) {
        let (seq, link) = (self.head.seq.next(), event.link_after(self.head.link));
        self.head = ThreadHead { seq, link };
        if seq > self.rewrite_state.units.through() {
            self.rewrite_state.units.take(seq, event.normal, link.normal);
        }
        self.recent.push_back((seq, event.clone()));
    }

    /// Known end of the thread.
    pub(crate) fn head(&self) -> Seq {
        self.head.seq
    }

    /// Builds the records for a request that a commit appends, and the number of its call.
    pub(crate) fn call_records(
        &mut self,
        store: &dyn Store,
        arrival: &RequestArrival<'_>,
        seen: &IncomingRequest<'_>,
        commit: &ThreadCommit,
    ) -> Result<(u64, Vec<CommitRecord>), SessionError> {
        if self.head.seq < commit.after {
            self.read_on(store, commit.thread)?;
        }
        if self.head.seq != commit.after && commit.opens.is_none() {
            *self = Self::read(store, commit.thread)?;
        }
        for event in &commit.events {
            self.push(event);
        }
        let RelayedBody { hash, bytes, script, pieces } = self.record_body(store, arrival, seen)?;
        let number = self.calls;
        let mut records = Vec::new();
        let (policy, rendering) = (policy(), rendering(seen.format()));
        let call = NewCall {
            head: self.head.seq,
            time: Some(arrival.at),
            model: seen.model().map(|model| model.0),
            format: seen.format().dialect().name().to_owned(),
            policy: policy.hash,
            profile: None,
            rendering: rendering.hash,
            summary: None,
            epoch: 0,
            cause: None,
            pass: None,
            sent: NewCall::RELAYED_SENT.to_owned(),
            steps: "{}".to_owned(),
            plan: None,
            script: Some(script),
            estimated: Tokens(0),
            hash,
            bytes,
        };
        if !self.is_named {
            records.extend([policy, rendering].map(CommitRecord::Content));
        }
        records.extend(pieces.into_iter().map(CommitRecord::Piece));
        records.extend([CommitRecord::CallsSoFar(number), CommitRecord::Call(call)]);
        self.is_named = true;
        self.calls += 1;
        let old = self.recent.len().saturating_sub(RECENT);
        drop(self.recent.drain(..old));
        Ok((number, records))
    }

    /// Records the body of a request whose events are known.
    fn record_body(
        &mut self,
        store: &dyn Store,
        arrival: &RequestArrival<'_>,
        seen: &IncomingRequest<'_>,
    ) -> Result<RelayedBody, SessionError> {
        let count = self.rewrite_state.units.ends(seen.units().iter().map(|unit| unit.digest)).len();
        let is_here = seen.follows() == PriorHistory::Nothing;
        let frame = seen.frame().filter(|frame| is_here && frame.is_whole() && frame.units.len() <= count);
        let frame = frame.unwrap_or_else(|| seen.unframed());
        let request = RewriteInput::new(seen, frame, arrival.shared);
        let units = self.rewrite_state.units.clone();
        let between = request.frame.between;
        let items = || {
            let items = self.recent.iter().filter(|(_, event)| is_item(event));
            items.map(|(seq, event)| (*seq, &*event.raw.json)).collect()
        };
        let mut logged = LoggedUnitForms::new(&units, between, items);
        self.rewrite_state.relay(store, request, &mut logged)
    }
}

/// Text recorded as the policy if none was in charge.
fn policy() -> HashedText {
    HashedText::new("\"relayed\"")
}

/// Recorded rendering of relayed requests.
fn rendering(format: Format) -> HashedText {
    let rendering = RecordedRendering {
        format,
        options: RenderOptions::of(format),
        tokenizer: String::new(),
        weave: Some(RewritePlan::default()),
    };
    HashedText::new(serde_json::to_string(&rendering).expect("options hold only strings, numbers and lists"))
}
