//! The engine of a session: synchronous, one operation at a time, and everything is written before it takes effect.
//!
//! The state in memory is a view of the log and of the records beside it. Appends by other writers to the same thread
//! are read before anything else; an operation that fails leaves the log as it was, and the view is made again from
//! it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use epitome_core::{
    AnnotatedEvent, Digest, Event, Fact, LoggedEvent, Seq, SessionId, ThreadId, Tokens,
    budget::Budget,
    cost::CacheTerms,
    cost_planner::SummariserKind,
    event::{Compaction, CompactionTrigger, Timestamp},
    id::JobId,
    inject::Hooks,
    model_view::{EpochCause, NextCall, PreparationReport, SummaryOrder, SummaryOrigin, SummaryStatus},
    profile::TokenPrices,
    summary::{
        StructuredSummary, SummaryFocus,
        compaction::{CompactionError, CompactionSettings, CompactionSpan, FinishedSummary},
    },
};
use epitome_store::{
    Store, StoreError, ThreadHead,
    records::{CommitRecord, JobRow, NewCallOutcome, NewJob, SizeRefusal, SummaryRow, ThreadCommit},
};
use epitome_wire::{ModelAnswer, overflow::ContextOverflow};
use serde::{Deserialize, Serialize};

use super::{
    builder::SessionExtras,
    call_input::{CallInput, LimitTrust, WriteTiming, is_reproducible},
    circuit_breaker,
    error::SessionError,
    lifecycle::{LifecycleEvent, LifecycleListeners},
    pending_updates::PendingUpdates,
    setup::SessionSetup,
    state::{SessionState, SettingsDigests, WrittenCall, is_forced, refusal_text},
};
use crate::{
    compact::CompactError,
    rewrite::ForkInheritance,
    summarise::{Summarize, SummaryInstructions, prompt::PROMPT_VERSION},
};

/// Number of attempts at making a request when other writers append meanwhile.
const TRIES: usize = 16;

/// Number of events from which two threads count: a first request may bring a long history.
const MIN_EVENTS_FOR_PARALLEL_COUNT: usize = 64;

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

/// Way in which an engine learned of appended events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppendNotice {
    /// From the inbox.
    Told,
    /// From the store.
    FromStore,
}

/// A call that was made ready and recorded.
#[derive(Clone, Debug)]
pub(crate) struct PreparedCall {
    /// Its number in the thread's view.
    pub(crate) call: u64,
    /// End of the thread now.
    pub(crate) head: Seq,
    /// Tokens it costs by our count.
    pub(crate) tokens: Tokens,
    pub(crate) epoch: u64,
    /// Cause of an epoch that began with it.
    pub(crate) cause: Option<EpochCause>,
    pub(crate) hash: Digest,
    /// The compaction that was adopted with it: its trigger, and the name of its summariser.
    pub(crate) compaction: Option<(CompactionTrigger, String)>,
    /// Commit that is still to be written.
    pub(crate) unwritten: Option<ThreadCommit>,
}

/// Function that writes the prepared request. It gets the tokens that everything would cost without this call's
/// decisions.
pub(crate) type RequestWriter<'w> = dyn FnMut(
        &mut SessionState,
        &SessionSetup,
        &mut PreparationReport,
        Tokens,
    ) -> Result<WrittenCall, SessionError>
    + 'w;

/// A summary that is ready to be adopted.
#[derive(Clone, Debug)]
pub(crate) struct ReadySummary {
    pub(crate) job: JobId,
    /// Name of its summariser.
    pub(crate) by: String,
    pub(crate) finished: FinishedSummary,
}

impl ReadySummary {
    /// The compaction that puts it in force, or the reason it does not pay.
    pub(crate) fn compaction(&self, state: &SessionState) -> Result<Compaction, CompactionError> {
        let caps = state.setup.policy.summary.unwrap_or_default().caps;
        let length = state.drafting(&state.budget()).length;
        let finished = self.finished.clone().with_pins(state.view.line(), &caps);
        finished.into_compaction(state.view.context(), length)
    }
}

/// Data stored with a job beside its span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobDetail {
    /// Tokens of the span as it was shown.
    pub(crate) covered: Tokens,
    /// Limit on the length of the summary.
    pub(crate) limit: Tokens,
    /// Call whose request may be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<u64>,
    /// Settings of its draft.
    pub(crate) drafting: CompactionSettings,
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
        Ok(Self { store, session, thread, hooks, maker, listeners, clock, inbox, state })
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
        Self { store, session, thread, hooks: Arc::default(), maker, listeners, clock, inbox, state }
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
        self.append_to(&mut state, |_| Ok((events.to_vec(), Vec::new())))
    }

    /// Appends the events that `make` derives from the state; it is called again if another writer was first.
    pub(crate) fn append_to(
        &self,
        state: &mut SessionState,
        mut make: impl FnMut(&mut SessionState) -> Result<(Vec<Event>, Vec<CommitRecord>), SessionError>,
    ) -> Result<ThreadHead, SessionError> {
        for _ in 0..TRIES {
            state.catch_up(&*self.store, self.thread)?;
            let (events, records) = make(state)?;
            if events.is_empty() && records.is_empty() {
                return Ok(state.head);
            }
            let commit = ThreadCommit::new(self.thread, state.head.seq, events, records);
            match self.store.commit(commit) {
                Ok(_) => {
                    state.catch_up(&*self.store, self.thread)?;
                    return Ok(state.head);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(SessionError::Busy)
    }

    /// Makes the next request, and records it. On an error nothing has changed.
    pub(crate) fn next_request(&self, extras: &SessionExtras) -> Result<SessionRequest, SessionError> {
        let mut state = self.state()?;
        for _ in 0..TRIES {
            state.catch_up(&*self.store, self.thread)?;
            let mut body = String::new();
            let made =
                self.make(&mut state, extras, CallInput::default(), &mut |state, setup, prepared, _| {
                    let (written, rendered) = state.write(setup, prepared)?;
                    body = rendered;
                    Ok(written)
                });
            if made.is_err() {
                state.reload(&*self.store, self.thread)?;
            }
            match made {
                Err(SessionError::Store(error)) if error.is_conflict() => {}
                Err(error) => return Err(error),
                Ok(PreparedCall { call, tokens, epoch, cause, hash, .. }) => {
                    return Ok(SessionRequest {
                        body,
                        call,
                        tokens,
                        epoch,
                        cause,
                        hash,
                        made_in: Duration::ZERO,
                    });
                }
            }
        }
        Err(SessionError::Busy)
    }

    /// Makes and records a call for a request that a client is about to send, if the thread ends where the caller
    /// expects. On an error nothing is written.
    pub(crate) fn prepare_client_call(
        &self,
        after: Seq,
        mut arriving: CallInput,
        write: &mut RequestWriter<'_>,
    ) -> Result<PreparedCall, SessionError> {
        let mut state = self.state()?;
        let is_new = arriving.opens.is_some();
        if !is_new && state.head.seq != after && self.hear(&mut state, after)? == AppendNotice::FromStore {
            // The other writer may have made calls, which only the store knows.
            arriving.writing = WriteTiming::Now;
        }
        if state.head.seq != after {
            let (thread, head) = (self.thread, state.head);
            return Err(StoreError::Conflict { thread, after, head }.into());
        }
        let made = self.make(&mut state, &SessionExtras::none(), arriving, write);
        if made.is_err() {
            if is_new {
                let (setup, limit) = (Arc::clone(&state.setup), state.limit);
                *state = SessionState::fresh(self.thread, setup);
                state.limit = limit;
            } else {
                state.reload(&*self.store, self.thread)?;
            }
        }
        made
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

    /// Adds content from hooks to the conversation, and returns the names of the hooks that added any.
    fn inject(
        &self,
        state: &mut SessionState,
        events: &mut Vec<AnnotatedEvent>,
        now: Timestamp,
    ) -> Result<Vec<String>, SessionError> {
        let mut spoke = Vec::new();
        for event in self.hooks.inject(state.view.line().events(), &state.setup.meter, Some(now))? {
            if let Fact::Injected { hook, .. } = &event.fact {
                spoke.push(hook.clone());
            }
            let event = AnnotatedEvent::from(event);
            state.push(self.thread, &event);
            events.push(event);
        }
        Ok(spoke)
    }

    /// Adds arriving events to the state. If they are many, a second thread derives data from each of them, beginning
    /// at the end: each thread finds the results of the other.
    fn take_in(&self, state: &mut SessionState, setup: &SessionSetup, events: &[AnnotatedEvent]) {
        std::thread::scope(|scope| {
            if events.len() >= MIN_EVENTS_FOR_PARALLEL_COUNT {
                scope.spawn(|| {
                    for event in events.iter().rev() {
                        setup.meter.pieces_noted(event);
                        event.fact_json();
                    }
                });
            }
            for event in events {
                state.push(self.thread, event);
            }
        });
    }

    fn make(
        &self,
        state: &mut SessionState,
        extras: &SessionExtras,
        arriving: CallInput,
        write: &mut RequestWriter<'_>,
    ) -> Result<PreparedCall, SessionError> {
        let now = self.now();
        let after = state.head.seq;
        let setup = Arc::clone(&state.setup);
        let CallInput { mut events, mut records, opens, taught, writing, recall, unanswered } = arriving;
        // A call that is made again still concerns the same question.
        state.unanswered = unanswered.or(state.unanswered);
        self.take_in(state, &setup, &events);
        let injected = self.inject(state, &mut events, now)?;
        state.offer_recall(recall);
        let whole = state.view.context().tokens();
        let number = state.last.map_or(0, |(number, _)| number + 1);
        // Decisions for a call that another writer made meanwhile are not in this view.
        records.push(CommitRecord::CallsSoFar(number));
        let mut ready = if opens.is_some() { None } else { self.ready(state)? };
        // A summary that no longer saves anything is cancelled, or it would be examined before every call in vain.
        if let Some((job, Err(nothing))) = ready.as_ref().map(|ready| (ready.job, ready.compaction(state))) {
            records.push(CommitRecord::CancelJob { job, reason: nothing.to_string() });
            ready = None;
        }
        let asked = ready.as_ref().filter(|ready| ready.finished.trigger.is_requested());
        let asked = asked.and_then(|asked| self.adopt_asked(state, asked, now, &mut events, &mut records));
        let ready = ready.filter(|ready| !ready.finished.trigger.is_requested());
        let mut budget = state.budget();
        let standby = self.standby(state, ready.as_ref().map(|ready| &ready.finished), now)?;
        let first = state.first_shown();
        let moment = moment(state, &setup, standby, now);
        let place = (&*self.store, self.thread);
        let mut prepared = match state.prepare(place, &setup, &budget, &moment) {
            Err(SessionError::Request(CompactError::Refused(refusal))) if taught == LimitTrust::Doubted => {
                state.learned = state.learned.without_refusals().ok_or(CompactError::Refused(refusal))?;
                budget = state.budget();
                state.prepare(place, &setup, &budget, &moment)?
            }
            prepared => prepared?,
        };
        if let Some(compaction) = &prepared.compaction {
            if let (SummaryOrigin::BuiltIn, Fact::Compacted(made)) = (prepared.author, &compaction.event.fact)
            {
                self.listeners.built_in((self.session, self.thread), made, first, &setup.meter);
            }
            events.push(compaction.event.clone().into());
            state.head = ThreadHead { seq: compaction.id.seq, link: compaction.link };
            if let (SummaryOrigin::Ready, Some(ready)) = (prepared.author, &ready) {
                records.push(CommitRecord::Adopted { job: ready.job, compaction: compaction.id.seq });
            }
        }
        for event in self.events_after_compaction(state, extras, budget.ceiling(), now) {
            let event = AnnotatedEvent::from(event);
            state.push(self.thread, &event);
            events.push(event);
        }
        let written = write(state, &setup, &mut prepared, whole)?;
        records.extend(state.contents(&setup, &written));
        let sent = written.prompt.clone();
        let call = state.record(&setup, &prepared, written, &injected, now);
        let (hash, tokens, named) = (call.hash, call.estimated, SettingsDigests::by(&call));
        records.push(CommitRecord::Call(call));
        let aimed = state.view.summary_budget(&setup.policy, &budget, &moment);
        if prepared.wish == SummaryOrder::Summary
            && let Some((marker, job)) =
                self.order(state, &aimed, CompactionTrigger::Threshold, None, Some(number), now)?
        {
            let marker = AnnotatedEvent::from(marker);
            state.push(self.thread, &marker);
            events.push(marker);
            records.push(CommitRecord::Job(job));
        }
        let only_grows = matches!(prepared.cause, None | Some(EpochCause::First));
        let commit = ThreadCommit { thread: self.thread, after, events, records, opens };
        let unwritten = if writing == WriteTiming::MayWait && only_grows && is_reproducible(&commit) {
            Some(commit)
        } else {
            self.store.commit(commit)?;
            None
        };
        state.sent = sent;
        state.last = Some((number, tokens));
        state.named = Some(named);
        let mut adopted = None;
        if let Some((compaction, by)) = asked {
            adopted = self.adopted(&compaction, Some(by));
        }
        if let Some(compaction) = &prepared.compaction {
            let by = ready.filter(|_| prepared.author == SummaryOrigin::Ready).map(|ready| ready.by);
            adopted = self.adopted(compaction, by);
        }
        let standing = state.view.context().summary().map(|summary| summary.id.seq);
        if let Some(calls) = state.note_compacted_call(number, standing, is_forced(&prepared)) {
            self.listeners.report(self.session, LifecycleEvent::Thrashing { thread: self.thread, calls });
        }
        state.view.forget();
        let epoch = state.view.epoch().number;
        let (call, head, cause, compaction) = (number, state.head.seq, prepared.cause, adopted);
        Ok(PreparedCall { call, head, tokens, epoch, cause, hash, compaction, unwritten })
    }

    /// Puts a requested summary in force, even if it does not pay.
    fn adopt_asked(
        &self,
        state: &mut SessionState,
        ready: &ReadySummary,
        now: Timestamp,
        events: &mut Vec<AnnotatedEvent>,
        records: &mut Vec<CommitRecord>,
    ) -> Option<(Arc<LoggedEvent>, String)> {
        let compaction = ready.compaction(state).ok()?;
        let event = AnnotatedEvent::from(Event::from_fact(Fact::Compacted(compaction), Some(now)));
        state.push(self.thread, &event);
        events.push(event);
        records.push(CommitRecord::Adopted { job: ready.job, compaction: state.head.seq });
        Some((Arc::clone(state.view.line().last()?), ready.by.clone()))
    }

    /// Reports a compaction to listeners; returns its trigger, and the name of its summariser.
    fn adopted(&self, logged: &LoggedEvent, by: Option<String>) -> Option<(CompactionTrigger, String)> {
        let Fact::Compacted(compaction) = &logged.event.fact else { return None };
        let by = by.unwrap_or_else(|| BUILT_IN_NAME.to_owned());
        let made = Some((compaction.trigger, by.clone()));
        self.listeners.report(
            self.session,
            LifecycleEvent::Adopted {
                thread: self.thread,
                compaction: logged.id.seq,
                by,
                trigger: compaction.trigger,
                tokens_before: compaction.tokens_before,
                tokens_after: compaction.tokens_after,
            },
        );
        made
    }

    /// The ready summary that fits the state, if there is one. A ready one that does not fit is cancelled.
    pub(crate) fn ready(&self, state: &SessionState) -> Result<Option<ReadySummary>, SessionError> {
        if !state.may_have_jobs {
            return Ok(None);
        }
        let Some((job, summary)) = self.store.ready_job(self.thread)? else { return Ok(None) };
        match fits(&*self.store, state, &job, &summary)? {
            Ok(finished) => Ok(Some(ReadySummary { job: job.job.id, by: summary.summary.author, finished })),
            Err(why) => {
                let cancel = CommitRecord::CancelJob { job: job.job.id, reason: why.to_owned() };
                let after = self.store.head(self.thread)?.seq;
                self.store.commit(ThreadCommit::new(self.thread, after, Vec::new(), vec![cancel]))?;
                Ok(None)
            }
        }
    }

    fn standby<'a>(
        &'a self,
        state: &SessionState,
        ready: Option<&'a FinishedSummary>,
        now: Timestamp,
    ) -> Result<SummaryStatus<'a>, SessionError> {
        if state.thrash.delays_compaction(state.last.map_or(0, |(number, _)| number + 1)) {
            return Ok(SummaryStatus::Thrashing);
        }
        if let Some(finished) = ready {
            return Ok(SummaryStatus::Ready(finished));
        }
        let Some(maker) = &self.maker else { return Ok(SummaryStatus::BuiltIn) };
        let by = maker.kind();
        if self.store.running_job(self.thread)?.is_some() {
            return Ok(SummaryStatus::Running(by));
        }
        if circuit_breaker::is_open(&*self.store, &*maker.summariser, self.thread, now)? {
            return Ok(SummaryStatus::BuiltIn);
        }
        Ok(SummaryStatus::Possible(by))
    }

    /// The marker and the job by which a span is summarised; `None` if that span was tried before. A person who asks
    /// for it again, because it was undone or cancelled, gets it again.
    pub(crate) fn order(
        &self,
        state: &SessionState,
        budget: &Budget,
        trigger: CompactionTrigger,
        focus: Option<String>,
        call: Option<u64>,
        now: Timestamp,
    ) -> Result<Option<(Event, NewJob)>, SessionError> {
        let drafting = state.drafting(budget);
        let attended = focus.as_deref().and_then(SummaryFocus::new);
        let (context, line) = (state.view.context(), state.view.line());
        let Ok(cutting) = drafting.cut(attended.as_ref(), context, line) else { return Ok(None) };
        let drafting = CompactionSettings { caps: cutting.caps, ..drafting };
        let mut job = self.job(state, &cutting, drafting, trigger, focus.clone(), call, now)?;
        let known = self.store.jobs(Some(self.thread))?;
        let is_known = |key: &str| known.iter().any(|known| known.job.key == key);
        if is_known(&job.key) {
            if trigger != CompactionTrigger::Manual {
                return Ok(None);
            }
            let mut times = (2_u64..).map(|time| format!("time {time}: {}", job.key));
            job.key = times.find(|key| !is_known(key)).unwrap_or_default();
            job.id = JobId::derived(&[&self.thread.to_string(), &job.key]);
        }
        let marker = Event::from_fact(Fact::CompactionRequested { trigger, focus }, Some(now));
        Ok(Some((marker, job)))
    }

    #[expect(clippy::too_many_arguments, reason = "a job is all of this, and is made in one place")]
    fn job(
        &self,
        state: &SessionState,
        cutting: &CompactionSpan,
        drafting: CompactionSettings,
        trigger: CompactionTrigger,
        focus: Option<String>,
        call: Option<u64>,
        now: Timestamp,
    ) -> Result<NewJob, SessionError> {
        let through = cutting.first_kept.previous();
        let by = self.maker.as_ref().map_or(BUILT_IN_NAME, |maker| maker.summariser_for(trigger).name());
        let base = cutting.standing.map_or_else(|| "none".to_owned(), |base| base.to_string());
        let focused = focus.as_deref().unwrap_or_default();
        let key =
            format!("{}-{through} on {base} by {by}, prompt {}: {focused}", cutting.first, *PROMPT_VERSION);
        let thread = self.thread.to_string();
        let page = self.store.read(self.thread, through, 1)?;
        let link = page.first().map_or(state.head.link.raw, |logged| logged.link.raw);
        let detail = JobDetail {
            covered: cutting.covered,
            limit: drafting.length.of(cutting.covered),
            call,
            drafting,
        };
        Ok(NewJob {
            id: JobId::derived(&[&thread, &key]),
            thread: self.thread,
            key,
            marker: state.head.seq.next(),
            first: cutting.first,
            through,
            first_kept: Some(cutting.first_kept),
            base: cutting.standing,
            link,
            trigger,
            focus,
            detail: serde_json::to_string(&detail).expect("numbers"),
            created: now,
        })
    }

    /// Notes that the last request was answered.
    pub(crate) fn answered(&self, answered: &ModelAnswer) -> Result<ThreadHead, SessionError> {
        let mut state = self.state()?;
        let now = self.now();
        let (call, estimated) = state.last.ok_or(SessionError::NoCall)?;
        let events: Vec<Event> =
            answered.events.iter().map(|event| event.clone().at(event.time.or(Some(now)))).collect();
        let outcome = state.outcome(call, now, answered);
        if let Some(usage) = &answered.usage {
            state.is_counted(estimated, usage);
        }
        self.append_to(&mut state, |_| Ok((events.clone(), vec![CommitRecord::Outcome(outcome.clone())])))
    }

    /// Notes that the last request failed.
    pub(crate) fn failed(&self, error: &str) -> Result<(), SessionError> {
        let mut state = self.state()?;
        let (call, _) = state.last.ok_or(SessionError::NoCall)?;
        self.append_to(&mut state, |_| Ok((Vec::new(), vec![self.failure(call, error.to_owned(), None)])))?;
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
        self.append_to(&mut state, |_| {
            Ok((Vec::new(), vec![self.failure(call, error.clone(), Some(numbers))]))
        })?;
        state.learned.refused(estimated, refused);
        let marker = Fact::CompactionRequested { trigger: CompactionTrigger::Overflow, focus: None };
        let now = Some(self.now());
        self.append_to(&mut state, |_| Ok((vec![Event::from_fact(marker.clone(), now)], Vec::new())))?;
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
        Self::open(store, place, setup, hooks, maker, self.listeners.clone(), self.clock.clone())
    }

    /// Changes to another model.
    pub(crate) fn switch(&self, setup: Arc<SessionSetup>) -> Result<(), SessionError> {
        let mut state = self.state()?;
        let event = Event::from_fact(Fact::ModelChanged { model: setup.model.clone() }, Some(self.now()));
        self.append_to(&mut state, |_| Ok((vec![event.clone()], Vec::new())))?;
        let restored = SessionState::restore(&*self.store, self.thread, setup)?;
        *state = restored;
        Ok(())
    }
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

    fn kind(&self) -> SummariserKind<'_> {
        match self.warm {
            WarmRequestMode::IfCheaper => SummariserKind::Session,
            WarmRequestMode::Never => SummariserKind::Other(&self.prices),
        }
    }
}

/// The summary of a job in the form in which it would be adopted now, or the reason it cannot be.
fn fits(
    store: &dyn Store,
    state: &SessionState,
    job: &JobRow,
    summary: &SummaryRow,
) -> Result<Result<FinishedSummary, &'static str>, SessionError> {
    let standing = state.view.context().standing();
    if standing != job.job.base {
        return Ok(Err("another compaction was adopted or undone since"));
    }
    let page = store.read(job.job.thread, job.job.through, 1)?;
    if page.first().map(|logged| logged.link.raw) != Some(job.job.link) {
        return Ok(Err("the history before it is not what it was"));
    }
    let Ok(brief) = serde_json::from_str::<StructuredSummary>(&summary.summary.brief) else {
        return Ok(Err("its items cannot be read"));
    };
    let first_kept = job.job.first_kept.unwrap_or(job.job.through.next());
    Ok(Ok(FinishedSummary { first: job.job.first, first_kept, brief, trigger: job.job.trigger }))
}

/// Circumstances of the next call: its time, model and summary.
fn moment<'m>(
    state: &SessionState,
    setup: &'m SessionSetup,
    standby: SummaryStatus<'m>,
    now: Timestamp,
) -> NextCall<'m> {
    NextCall {
        now: Some(now),
        model: Some(&setup.model),
        terms: setup.terms.as_ref(),
        standby,
        cache: state.cache,
        unanswered: state.unanswered,
        // A client that knows a focus requests a compaction of its own.
        focus: None,
    }
}
