//! One call of a session, in three steps that each return the next value.
//!
//! [`CallDraft::decide`] takes in what is new and decides what the request shows; the request is written from the state, by
//! rendering it or from a client's bytes; [`CallDraft::commit`] writes everything in one commit, before the request leaves.

use std::sync::Arc;

use epitome_core::{
    AnnotatedEvent, Digest, Event, Fact, LoggedEvent, Seq, Tokens,
    budget::Budget,
    event::{CompactionTrigger, Timestamp},
    model_view::{EpochCause, NextCall, PreparationReport, SummaryOrder, SummaryOrigin},
};
use epitome_store::{
    ThreadHead,
    records::{CommitRecord, ThreadCommit},
};

use super::{
    builder::SessionExtras,
    built_in_record::summary_record,
    call_input::{CallInput, LimitTrust, WriteTiming, is_reproducible},
    engine::{BUILT_IN_NAME, SessionEngine, overflow_marker},
    error::SessionError,
    lifecycle::LifecycleEvent,
    post_compaction,
    setup::SessionSetup,
    state::{SessionState, SettingsDigests, WrittenCall, is_forced},
    summary_jobs::{self, ReadySummary, SummaryProgress},
};
use crate::compact::CompactError;

/// Number of events from which two threads count: a first request may bring a long history.
const MIN_EVENTS_FOR_PARALLEL_COUNT: usize = 64;

/// A call whose content is decided, and whose request is still to be written from the session's state.
#[derive(Debug)]
pub(crate) struct CallDraft {
    pub(crate) setup: Arc<SessionSetup>,
    /// Tokens that everything would cost without this call's decisions.
    pub(crate) whole: Tokens,
    /// Decisions for the call.
    pub(crate) prepared: PreparationReport,
    number: u64,
    budget: Budget,
    writes: CallWrites,
    summary: ReadyChoice,
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

/// Events and records that are written with a call. The state holds the events already.
#[derive(Debug)]
struct CallWrites {
    now: Timestamp,
    commit: ThreadCommit,
    writing: WriteTiming,
    /// The hooks that added something.
    injected: Vec<String>,
}

/// Use of a summary that is ready.
#[derive(Debug, Default)]
struct ReadyChoice {
    /// A summary that the policy may take.
    ready: Option<ReadySummary>,
    /// A compaction that someone requested and that is in force from now on, with the name of its summariser.
    requested: Option<(Arc<LoggedEvent>, String)>,
    progress: SummaryProgress,
}

impl CallDraft {
    /// Takes in what is new, and decides what the next request shows.
    pub(super) fn decide(
        engine: &SessionEngine,
        state: &mut SessionState,
        extras: &SessionExtras,
        input: CallInput,
    ) -> Result<Self, SessionError> {
        let setup = Arc::clone(&state.setup);
        let CallInput { events, records, opens, taught, writing, recall, unanswered } = input;
        // A call that is made again still concerns the same question.
        state.unanswered = unanswered.or(state.unanswered);
        let (thread, now, after) = (engine.thread, engine.now(), state.head.seq);
        let commit = ThreadCommit { thread, after, events, records, opens };
        let mut writes = CallWrites { now, commit, writing, injected: Vec::new() };
        writes.take_in(state);
        writes.mark_overflow(state);
        state.injection = engine.hooks.due(state.view().line().events());
        state.offer_recall(recall);
        let mut whole = state.view().context().tokens();
        let number = state.last.map_or(0, |(number, _)| number + 1);
        // Decisions for a call that another writer made meanwhile are not in this view.
        writes.commit.records.push(CommitRecord::CallsSoFar(number));
        let summary = writes.choose_summary(engine, state)?;
        let first = state.first_shown();
        let call = next_call(engine, state, &setup, &summary, now);
        let (prepared, budget) = decide_content(engine, state, &setup, &call, taught)?;
        writes.add_compaction(engine, state, &prepared, summary.ready.as_ref(), first);
        // What hooks add has its reserve, and is never reduced with the request that first shows it.
        let reduced = state.view().context().tokens();
        writes.inject(engine, state)?;
        whole += state.view().context().tokens().less(reduced);
        for event in post_compaction::events(engine, state, extras, budget.ceiling(), now) {
            writes.append(state, event);
        }
        Ok(Self { setup, whole, prepared, number, budget, writes, summary })
    }

    /// The same for a call of a client, which goes on by itself and compacts by other means.
    pub(crate) fn for_client(
        engine: &SessionEngine,
        state: &mut SessionState,
        input: CallInput,
    ) -> Result<Self, SessionError> {
        let extras = SessionExtras { memory: engine.memory.clone(), ..SessionExtras::none() };
        Self::decide(engine, state, &extras, input)
    }

    /// Records the call with its written request, in one commit. A call that only grows may be left to its caller to write.
    pub(crate) fn commit(
        self,
        engine: &SessionEngine,
        state: &mut SessionState,
        written: WrittenCall,
    ) -> Result<PreparedCall, SessionError> {
        let Self { setup, prepared, number, budget, mut writes, summary, .. } = self;
        writes.commit.records.extend(state.contents(&setup, &written));
        let call = state.record(&setup, &prepared, written, &writes.injected, writes.now);
        let (hash, tokens, named) = (call.hash, call.estimated, SettingsDigests::by(&call));
        writes.commit.records.push(CommitRecord::Call(call));
        if prepared.wish == SummaryOrder::Summary {
            let call = next_call(engine, state, &setup, &summary, writes.now);
            let aimed = state.view().summary_budget(&setup.calls.policy, &budget, &call);
            writes.order_summary(engine, state, &aimed, number)?;
        }
        let only_grows = matches!(prepared.cause, None | Some(EpochCause::First));
        let unwritten = writes.commit(engine, only_grows)?;
        state.last = Some((number, tokens));
        state.named = Some(named);
        state.answer = None;
        let compaction = report_adopted(engine, &prepared, summary);
        let standing = state.view().context().summary().map(|summary| summary.id.seq);
        if let Some(calls) = state.note_compacted_call(number, standing, is_forced(&prepared)) {
            let thread = engine.thread;
            engine.listeners.report(engine.session, LifecycleEvent::Thrashing { thread, calls });
        }
        state.calls.view_mut().forget();
        let epoch = state.view().epoch().number;
        let (call, head, cause) = (number, state.head.seq, prepared.cause);
        Ok(PreparedCall { call, head, tokens, epoch, cause, hash, compaction, unwritten })
    }
}

impl CallWrites {
    /// Adds arriving events to the state. If they are many, a second thread derives data from each of them, beginning
    /// at the end: each thread finds the results of the other.
    fn take_in(&self, state: &mut SessionState) {
        let meter = Arc::clone(&state.setup.meter);
        std::thread::scope(|scope| {
            if self.commit.events.len() >= MIN_EVENTS_FOR_PARALLEL_COUNT {
                scope.spawn(|| {
                    for event in self.commit.events.iter().rev() {
                        meter.pieces_noted(event);
                        event.fact_json();
                    }
                });
            }
            for event in &self.commit.events {
                state.push(self.commit.thread, event);
            }
        });
    }

    /// Appends an event to the state and to the commit.
    fn append(&mut self, state: &mut SessionState, event: Event) {
        let event = AnnotatedEvent::from(event);
        state.push(self.commit.thread, &event);
        self.commit.events.push(event);
    }

    /// Marks the place where the last call is known to have overflowed, unless it was marked with its answer.
    fn mark_overflow(&mut self, state: &mut SessionState) {
        let is_marker = |logged: &&Arc<LoggedEvent>| {
            let overflow = CompactionTrigger::Overflow;
            matches!(logged.event.fact, Fact::CompactionRequested { trigger, .. } if trigger == overflow)
        };
        let is_answer = |logged: &&Arc<LoggedEvent>| matches!(logged.event.fact, Fact::AssistantSaid { .. });
        let was_noted = || {
            let newest =
                state.view().line().events().rev().find(|logged| is_marker(logged) || is_answer(logged));
            newest.is_some_and(|logged| is_marker(&logged))
        };
        if state.overflowed() && !was_noted() {
            self.append(state, overflow_marker(self.now));
        }
    }

    /// Adds content from hooks to the conversation.
    fn inject(&mut self, engine: &SessionEngine, state: &mut SessionState) -> Result<(), SessionError> {
        let added = engine.hooks.inject(state.view().line().events(), &state.setup.meter, Some(self.now))?;
        for event in added {
            if let Fact::Injected { hook, .. } = &event.fact {
                self.injected.push(hook.clone());
            }
            self.append(state, event);
        }
        Ok(())
    }

    /// Looks for a ready summary. One that was requested is put in force, even if it does not pay.
    fn choose_summary(
        &mut self,
        engine: &SessionEngine,
        state: &mut SessionState,
    ) -> Result<ReadyChoice, SessionError> {
        let mut ready = if self.commit.opens.is_some() { None } else { summary_jobs::ready(engine, state)? };
        // A summary that no longer saves anything is cancelled, or it would be examined before every call in vain.
        if let Some((job, Err(nothing))) = ready.as_ref().map(|ready| (ready.job, ready.compaction(state))) {
            self.commit.records.push(CommitRecord::CancelJob { job, reason: nothing.to_string() });
            ready = None;
        }
        let mut requested = None;
        if let Some(asked) = ready.take_if(|ready| ready.finished.trigger.is_requested()) {
            requested = self.adopt_requested(state, &asked);
        }
        let progress = summary_jobs::progress(engine, state, ready.is_some(), self.now)?;
        Ok(ReadyChoice { ready, requested, progress })
    }

    fn adopt_requested(
        &mut self,
        state: &mut SessionState,
        ready: &ReadySummary,
    ) -> Option<(Arc<LoggedEvent>, String)> {
        let compaction = ready.compaction(state).ok()?;
        self.append(state, Event::from_fact(Fact::Compacted(compaction), Some(self.now)));
        self.commit.records.push(CommitRecord::Adopted { job: ready.job, compaction: state.head.seq });
        Some((Arc::clone(state.view().line().last()?), ready.by.clone()))
    }

    /// Adds the compaction that was made for the call, if there is one. The view holds it already.
    fn add_compaction(
        &mut self,
        engine: &SessionEngine,
        state: &mut SessionState,
        prepared: &PreparationReport,
        ready: Option<&ReadySummary>,
        first: Seq,
    ) {
        let Some(compaction) = &prepared.compaction else { return };
        if let (SummaryOrigin::BuiltIn, Fact::Compacted(made)) = (prepared.author, &compaction.event.fact) {
            let place = (engine.session, engine.thread);
            engine.listeners.built_in(place, made, first, &state.setup.meter);
            let record = summary_record(made, (compaction.id.seq, first), BUILT_IN_NAME, self.now);
            self.commit.records.extend(record);
        }
        self.commit.events.push(compaction.event.clone().into());
        state.head = ThreadHead { seq: compaction.id.seq, link: compaction.link };
        if let (SummaryOrigin::Ready, Some(ready)) = (prepared.author, ready) {
            self.commit.records.push(CommitRecord::Adopted { job: ready.job, compaction: compaction.id.seq });
        }
    }

    /// Orders a summary that a model writes in the background, unless the same was tried before.
    fn order_summary(
        &mut self,
        engine: &SessionEngine,
        state: &mut SessionState,
        budget: &Budget,
        call: u64,
    ) -> Result<(), SessionError> {
        let trigger = CompactionTrigger::Threshold;
        if let Some((marker, job)) =
            summary_jobs::order(engine, state, budget, trigger, None, Some(call), self.now)?
        {
            self.append(state, marker);
            self.commit.records.push(CommitRecord::Job(job));
        }
        Ok(())
    }

    /// Writes everything, or returns the commit if that may wait.
    fn commit(self, engine: &SessionEngine, only_grows: bool) -> Result<Option<ThreadCommit>, SessionError> {
        let Self { commit, writing, .. } = self;
        if writing == WriteTiming::MayWait && only_grows && is_reproducible(&commit) {
            return Ok(Some(commit));
        }
        engine.store.commit(commit)?;
        Ok(None)
    }
}

/// Decides what the request shows, within the state's budget. If nothing fits and the limits that refusals have shown may be
/// doubted, they are dropped and it is decided once more.
fn decide_content(
    engine: &SessionEngine,
    state: &mut SessionState,
    setup: &SessionSetup,
    call: &NextCall<'_>,
    taught: LimitTrust,
) -> Result<(PreparationReport, Budget), SessionError> {
    let place = (&*engine.store, engine.thread);
    let budget = state.budget();
    match state.prepare(place, setup, &budget, call) {
        Err(SessionError::Request(CompactError::Refused(refusal))) if taught == LimitTrust::Doubted => {
            state.learned = state.learned.without_refusals().ok_or(CompactError::Refused(refusal))?;
            let budget = state.budget();
            Ok((state.prepare(place, setup, &budget, call)?, budget))
        }
        prepared => Ok((prepared?, budget)),
    }
}

/// Circumstances of the next call: its time, model and summary.
fn next_call<'m>(
    engine: &'m SessionEngine,
    state: &SessionState,
    setup: &'m SessionSetup,
    summary: &'m ReadyChoice,
    now: Timestamp,
) -> NextCall<'m> {
    let ready = summary.ready.as_ref().map(|ready| &ready.finished);
    NextCall {
        now: Some(now),
        model: Some(&setup.model),
        terms: setup.calls.terms.as_ref(),
        standby: summary.progress.status(engine.maker.as_ref(), ready),
        cache: state.cache,
        unanswered: state.unanswered,
        focus: engine.focus.as_ref(),
        overflowed: state.overflowed(),
    }
}

/// Reports the compactions that took effect to listeners. Returns the last one's trigger, and the name of its summariser.
fn report_adopted(
    engine: &SessionEngine,
    prepared: &PreparationReport,
    summary: ReadyChoice,
) -> Option<(CompactionTrigger, String)> {
    let ReadyChoice { ready, requested, .. } = summary;
    let requested = requested.and_then(|(compaction, by)| adopted(engine, &compaction, Some(by)));
    let Some(compaction) = &prepared.compaction else { return requested };
    let by = ready.filter(|_| prepared.author == SummaryOrigin::Ready).map(|ready| ready.by);
    adopted(engine, compaction, by)
}

fn adopted(
    engine: &SessionEngine,
    logged: &LoggedEvent,
    by: Option<String>,
) -> Option<(CompactionTrigger, String)> {
    let Fact::Compacted(compaction) = &logged.event.fact else { return None };
    let by = by.unwrap_or_else(|| BUILT_IN_NAME.to_owned());
    engine.listeners.adopted((engine.session, engine.thread), logged.id.seq, by.clone(), compaction);
    Some((compaction.trigger, by))
}
