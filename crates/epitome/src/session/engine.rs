//! The engine of a session: synchronous, one operation at a time, and everything is written before it takes effect.
//!
//! The state in memory is a view of the log and of the records beside it. Appends by other writers to the same thread
//! are read before anything else; an operation that fails leaves the log as it was, and the view is made again from
//! it.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use epitome_core::{
    Digest, Event, Fact, Seq, SessionId, ThreadId, Tokens,
    cost::CacheTerms,
    cost_planner::SummariserKind,
    event::{CompactionTrigger, Timestamp},
    inject::Hooks,
    model_view::EpochCause,
    profile::TokenPrices,
    summary::SummaryFocus,
};
use epitome_store::{
    Store, StoreError, ThreadHead,
    records::{CommitRecord, NewCallOutcome, SizeRefusal, ThreadCommit},
};
use epitome_wire::{ModelAnswer, overflow::ContextOverflow};

use super::{
    answer_reader::beside_history,
    builder::SessionExtras,
    call_input::{CallInput, WriteTiming},
    error::SessionError,
    lifecycle::LifecycleListeners,
    next_call::{CallDraft, PreparedCall},
    pending_updates::PendingUpdates,
    setup::SessionSetup,
    state::{SessionState, refusal_text},
};
use crate::{
    rewrite::ForkInheritance,
    summarise::{Summarize, SummaryInstructions},
};

/// Number of attempts at making a request when other writers append meanwhile.
const TRIES: usize = 16;

/// A session without the tasks around it.
#[derive(Debug)]
pub(crate) struct SessionEngine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) thread: ThreadId,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) maker: Option<SummariserConfig>,
    pub(crate) listeners: LifecycleListeners,
    pub(crate) clock: SessionClock,
    /// Focus of every summary.
    pub(crate) focus: Option<SummaryFocus>,
    /// Folder for the memory files of a client's session. A session of the library has its own setting.
    pub(crate) memory: Option<PathBuf>,
    /// Updates that arrive while it may be busy.
    pub(crate) inbox: PendingUpdates,
    state: Mutex<SessionState>,
}

/// Summariser settings.
#[derive(Clone, Debug)]
pub(crate) struct SummariserConfig {
    pub(crate) summariser: Arc<dyn Summarize>,
    /// Summariser for summaries that someone requested and waits for; the same, unless another was configured.
    pub(crate) careful: Option<Arc<dyn Summarize>>,
    /// Prices of the summariser's model, if known.
    pub(crate) prices: TokenPrices,
    /// The terms of its cache, with these prices.
    pub(crate) terms: CacheTerms,
    /// Reports whether the session's own request may be continued instead.
    pub(crate) warm: WarmRequestMode,
    pub(crate) instructions: SummaryInstructions,
}

/// Choice to request a summary by continuing the session's own request, which its provider has in its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmRequestMode {
    /// Never: the summariser is another model, or another endpoint.
    #[default]
    Never,
    /// Only if it is cheaper.
    IfCheaper,
}

/// Source of the time.
#[derive(Clone)]
pub(crate) struct SessionClock(pub(crate) Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl std::fmt::Debug for SessionClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// A request, ready to be sent.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// The JSON of the request.
    pub body: String,
    /// Its number in the session, by which `replay` finds it again.
    pub call: u64,
    /// Tokens it costs by our count.
    pub tokens: Tokens,
    /// Epoch: as long as it is the same, each request extends the one before.
    pub epoch: u64,
    /// Cause of a new epoch; `None` if the request only grew.
    pub cause: Option<EpochCause>,
    /// The hash of its bytes.
    pub hash: Digest,
    /// Time it took to make it. No model is waited for.
    pub made_in: Duration,
}

/// Attempts at appending what is derived from the state, while other writers append to the same thread.
#[derive(Debug, Default)]
pub(crate) struct AppendAttempts {
    made: usize,
}

impl AppendAttempts {
    /// Begins the next attempt: brings the state to the end of the thread. An error if there were enough.
    pub(crate) fn begin(
        &mut self,
        engine: &SessionEngine,
        state: &mut SessionState,
    ) -> Result<(), SessionError> {
        if self.made == TRIES {
            return Err(SessionError::Busy);
        }
        self.made += 1;
        state.catch_up(&*engine.store, engine.thread)
    }
}

/// Way in which an engine learned of appended events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppendNotice {
    /// From the inbox.
    Told,
    /// From the store.
    FromStore,
}

impl SessionEngine {
    pub(crate) fn open(
        store: Arc<dyn Store>,
        (session, thread): (SessionId, ThreadId),
        setup: Arc<SessionSetup>,
        hooks: Arc<Hooks>,
        maker: Option<SummariserConfig>,
        listeners: LifecycleListeners,
        clock: SessionClock,
    ) -> Result<Self, SessionError> {
        let state = SessionState::restore(&*store, thread, setup)?;
        let (inbox, state) = (PendingUpdates::default(), Mutex::new(state));
        let (focus, memory) = (None, None);
        Ok(Self { store, session, thread, hooks, maker, listeners, clock, focus, memory, inbox, state })
    }

    /// For a thread that is made with its first call.
    pub(crate) fn fresh(
        store: Arc<dyn Store>,
        (session, thread): (SessionId, ThreadId),
        setup: Arc<SessionSetup>,
        maker: Option<SummariserConfig>,
        listeners: LifecycleListeners,
        clock: SessionClock,
    ) -> Self {
        let state = Mutex::new(SessionState::fresh(thread, setup));
        let inbox = PendingUpdates::default();
        let (hooks, focus, memory) = (Arc::default(), None, None);
        Self { store, session, thread, hooks, maker, listeners, clock, focus, memory, inbox, state }
    }

    /// Takes over the state of the parent in a fork that has made no call yet.
    pub(crate) fn inherit(&self, inherited: &ForkInheritance) -> Result<(), SessionError> {
        self.state()?.inherits(&*self.store, self.thread, inherited)
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock.0)()
    }

    /// Locks the state. A panic while it was locked makes it invalid, so it is made again from the log.
    pub(crate) fn state(&self) -> Result<MutexGuard<'_, SessionState>, SessionError> {
        let mut state = match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => {
                self.state.clear_poison();
                let mut state = PoisonError::into_inner(poisoned);
                state.reload(&*self.store, self.thread)?;
                state
            }
        };
        for (call, usage) in self.inbox.take_counted() {
            state.counted(call, &usage);
        }
        Ok(state)
    }

    /// Appends events at the thread's current end.
    pub(crate) fn append(&self, events: &[Event]) -> Result<ThreadHead, SessionError> {
        let mut state = self.state()?;
        self.append_all(&mut state, events, &[])
    }

    /// Appends events and records that are the same whatever the thread ends with.
    pub(crate) fn append_all(
        &self,
        state: &mut SessionState,
        events: &[Event],
        records: &[CommitRecord],
    ) -> Result<ThreadHead, SessionError> {
        let mut attempts = AppendAttempts::default();
        loop {
            attempts.begin(self, state)?;
            if let Some(head) = self.try_append(state, events.to_vec(), records.to_vec())? {
                return Ok(head);
            }
        }
    }

    /// Appends events and records that were derived from the state. `None` if another writer was first: they are to be
    /// derived again, in another of the [attempts](AppendAttempts).
    pub(crate) fn try_append(
        &self,
        state: &mut SessionState,
        events: Vec<Event>,
        records: Vec<CommitRecord>,
    ) -> Result<Option<ThreadHead>, SessionError> {
        if events.is_empty() && records.is_empty() {
            return Ok(Some(state.head));
        }
        let commit = ThreadCommit::new(self.thread, state.head.seq, events, records);
        match self.store.commit(commit) {
            Ok(_) => {
                state.catch_up(&*self.store, self.thread)?;
                Ok(Some(state.head))
            }
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the next request, and records it. On an error nothing has changed.
    pub(crate) fn next_request(&self, extras: &SessionExtras) -> Result<SessionRequest, SessionError> {
        let mut state = self.state()?;
        for _ in 0..TRIES {
            state.catch_up(&*self.store, self.thread)?;
            let made = self.try_next_request(&mut state, extras);
            if made.is_err() {
                state.reload(&*self.store, self.thread)?;
            }
            match made {
                Err(SessionError::Store(error)) if error.is_conflict() => {}
                made => return made,
            }
        }
        Err(SessionError::Busy)
    }

    fn try_next_request(
        &self,
        state: &mut SessionState,
        extras: &SessionExtras,
    ) -> Result<SessionRequest, SessionError> {
        let mut draft = CallDraft::decide(self, state, extras, CallInput::default())?;
        let (written, body) = state.write(&draft.setup, &mut draft.prepared)?;
        let PreparedCall { call, tokens, epoch, cause, hash, .. } = draft.commit(self, state, written)?;
        Ok(SessionRequest { body, call, tokens, epoch, cause, hash, made_in: Duration::ZERO })
    }

    /// The state for a call of a client, if the thread ends where the caller expects.
    pub(crate) fn state_for_client(
        &self,
        after: Seq,
        input: &mut CallInput,
    ) -> Result<MutexGuard<'_, SessionState>, SessionError> {
        let mut state = self.state()?;
        let is_new = input.opens.is_some();
        if !is_new && state.head.seq != after && self.hear(&mut state, after)? == AppendNotice::FromStore {
            // The other writer may have made calls, which only the store knows.
            input.writing = WriteTiming::Now;
        }
        if state.head.seq != after {
            let (thread, head) = (self.thread, state.head);
            return Err(StoreError::Conflict { thread, after, head }.into());
        }
        Ok(state)
    }

    /// Makes the state again after a call of a client that failed: nothing of it was written.
    pub(crate) fn restore_state(
        &self,
        state: &mut SessionState,
        is_new_thread: bool,
    ) -> Result<(), SessionError> {
        if !is_new_thread {
            return state.reload(&*self.store, self.thread);
        }
        let (setup, limit) = (Arc::clone(&state.setup), state.limit);
        *state = SessionState::fresh(self.thread, setup);
        state.limit = limit;
        Ok(())
    }

    /// Takes in appended events, from the inbox or else from the store. A wrong end of the thread is noticed at the
    /// next append.
    fn hear(&self, state: &mut SessionState, after: Seq) -> Result<AppendNotice, SessionError> {
        for appended in self.inbox.take_appended() {
            if appended.after == state.head.seq && state.head.seq < after {
                let head = appended.head;
                for event in &appended.events {
                    state.push(self.thread, event);
                }
                if state.head != head {
                    state.reload(&*self.store, self.thread)?;
                }
            }
        }
        if state.head.seq == after {
            state.fill(&*self.store, self.thread)?;
            return Ok(AppendNotice::Told);
        }
        state.follow(&*self.store, self.thread)?;
        Ok(AppendNotice::FromStore)
    }

    /// Notes that the last request was answered.
    pub(crate) fn answered(&self, answered: &ModelAnswer) -> Result<ThreadHead, SessionError> {
        let mut state = self.state()?;
        let now = self.now();
        let (call, estimated) = state.last.ok_or(SessionError::NoCall)?;
        let mut events: Vec<Event> =
            answered.events.iter().map(|event| event.clone().at(event.time.or(Some(now)))).collect();
        let outcome = state.outcome(call, now, &events);
        if let Some(usage) = &answered.usage {
            state.is_counted(estimated, usage);
        }
        if state.overflowed() {
            events.push(overflow_marker(now));
        }
        self.append_all(&mut state, &events, &[CommitRecord::Outcome(outcome)])
    }

    /// Notes that the answer to the last request broke off, or failed: what came of it is kept beside the history.
    pub(crate) fn answer_broken(&self, came: Vec<Event>, error: &str) -> Result<ThreadHead, SessionError> {
        let mut state = self.state()?;
        let now = self.now();
        let (call, estimated) = state.last.ok_or(SessionError::NoCall)?;
        let outcome = NewCallOutcome { error: Some(error.to_owned()), ..state.outcome(call, now, &came) };
        if let Some(usage) = &outcome.usage {
            state.is_counted(estimated, usage);
        }
        let came = came.into_iter().map(|event| {
            let time = event.time.or(Some(now));
            beside_history(event.at(time))
        });
        let came: Vec<Event> = came.collect();
        self.append_all(&mut state, &came, &[CommitRecord::Outcome(outcome)])
    }

    /// Notes that the last request failed.
    pub(crate) fn failed(&self, error: &str) -> Result<(), SessionError> {
        let mut state = self.state()?;
        let (call, _) = state.last.ok_or(SessionError::NoCall)?;
        let failure = self.failure(call, error.to_owned(), None);
        self.append_all(&mut state, &[], &[failure])?;
        Ok(())
    }

    fn failure(&self, call: u64, error: String, refusal: Option<SizeRefusal>) -> CommitRecord {
        let (time, error) = (Some(self.now()), Some(error));
        CommitRecord::Outcome(NewCallOutcome {
            call,
            time,
            answer: None,
            usage: None,
            cost: None,
            error,
            refusal,
        })
    }

    /// Notes that the last request was refused as too long: the next one will be smaller.
    pub(crate) fn overflowed(&self, refused: ContextOverflow) -> Result<(), SessionError> {
        let (call, _) = self.state()?.last.ok_or(SessionError::NoCall)?;
        self.note_overflow(call, refused)?;
        Ok(())
    }

    /// Notes that a call was refused as too long, of several at a time. Returns its estimated size.
    pub(crate) fn note_overflow(&self, call: u64, refused: ContextOverflow) -> Result<Tokens, SessionError> {
        let mut state = self.state()?;
        let estimated = match state.last {
            Some((last, estimated)) if last == call => estimated,
            _ => self.store.call(self.thread, call)?.call.estimated,
        };
        let error = refusal_text(refused);
        let numbers = SizeRefusal { limit: refused.limit, asked: refused.asked };
        let failure = self.failure(call, error, Some(numbers));
        self.append_all(&mut state, &[], &[failure])?;
        state.learned.refused(estimated, refused);
        self.append_all(&mut state, &[overflow_marker(self.now())], &[])?;
        Ok(estimated)
    }

    /// An engine for another thread, with the same settings.
    pub(crate) fn branch(
        &self,
        place: (SessionId, ThreadId),
        setup: Arc<SessionSetup>,
        hooks: Arc<Hooks>,
    ) -> Result<Self, SessionError> {
        let (store, maker) = (Arc::clone(&self.store), self.maker.clone());
        let engine =
            Self::open(store, place, setup, hooks, maker, self.listeners.clone(), self.clock.clone())?;
        Ok(Self { focus: self.focus.clone(), ..engine })
    }

    /// Changes to another model.
    pub(crate) fn switch(&self, setup: Arc<SessionSetup>) -> Result<(), SessionError> {
        let mut state = self.state()?;
        let event = Event::from_fact(Fact::ModelChanged { model: setup.model.clone() }, Some(self.now()));
        self.append_all(&mut state, &[event], &[])?;
        let restored = SessionState::restore(&*self.store, self.thread, setup)?;
        *state = restored;
        Ok(())
    }
}

/// Marker of a compaction that an overflow calls for.
pub(super) fn overflow_marker(now: Timestamp) -> Event {
    let marker = Fact::CompactionRequested { trigger: CompactionTrigger::Overflow, focus: None };
    Event::from_fact(marker, Some(now))
}

/// Name of the built-in summariser.
pub const BUILT_IN_NAME: &str = "built-in";

impl SummariserConfig {
    /// Summariser for a trigger.
    pub(crate) fn summariser_for(&self, trigger: CompactionTrigger) -> &Arc<dyn Summarize> {
        match trigger {
            CompactionTrigger::Manual => self.careful.as_ref().unwrap_or(&self.summariser),
            _ => &self.summariser,
        }
    }

    pub(super) fn kind(&self) -> SummariserKind<'_> {
        match self.warm {
            WarmRequestMode::IfCheaper => SummariserKind::Session,
            WarmRequestMode::Never => SummariserKind::Other(&self.prices),
        }
    }
}
