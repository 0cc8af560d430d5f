//! Requested compactions: ordered, made at once, adopted outside of any request, undone and redone; and pins.

use std::{sync::Arc, time::Duration};

use epitome_core::{
    Event, Fact, Seq,
    budget::Budget,
    event::{CompactionTrigger, Pin},
    id::JobId,
    policy::{PaidSummaryUse, SummaryRules},
    projection::EventLine,
    summary::{
        SummaryFocus,
        compaction::{CompactionError, CompactionSettings},
    },
};
use epitome_store::records::{CommitRecord, JobState};

use super::{
    built_in_record::summary_record,
    engine::{AppendAttempts, BUILT_IN_NAME, SessionEngine, SummariserConfig},
    error::SessionError,
    lifecycle::LifecycleEvent,
    state::SessionState,
    summary_jobs,
    thread_reading::read_line,
};
use crate::lineage::{self, ForkDraftSettings};

/// Returns true if a summary is being made already, or waits to be adopted.
pub(super) fn is_under_way(engine: &SessionEngine) -> Result<bool, SessionError> {
    let mut state = engine.state()?;
    state.catch_up(&*engine.store, engine.thread)?;
    Ok(engine.store.running_job(engine.thread)?.is_some() || summary_jobs::ready(engine, &state)?.is_some())
}

/// Orders the summary of a span: marker and job. One that is being made already, or is ready, is used if it fits.
/// `budget` decides how much is kept verbatim; by default the session's own.
pub(crate) fn order(
    engine: &SessionEngine,
    trigger: CompactionTrigger,
    focus: Option<&str>,
    budget: Option<&Budget>,
) -> Result<JobId, SessionError> {
    let mut state = engine.state()?;
    let now = engine.now();
    let mut attempts = AppendAttempts::default();
    loop {
        attempts.begin(engine, &mut state)?;
        let budget = budget.cloned().unwrap_or_else(|| state.budget());
        let mut records = Vec::new();
        if let Some(running) = engine.store.running_job(engine.thread)? {
            let is_for_this = focus.is_none() || running.job.focus.as_deref() == focus;
            let still_stands = running.job.base == state.view().context().standing();
            if still_stands && is_for_this {
                return Ok(running.job.id);
            }
            // The summary it builds on is no longer in force, or its focus differs.
            let reason = if still_stands {
                "somebody asked for another with a focus"
            } else {
                "another compaction was adopted or undone since"
            };
            let reason = reason.to_owned();
            records.push(CommitRecord::CancelJob { job: running.job.id, reason });
        }
        if let Some(ready) = summary_jobs::ready(engine, &state)?.filter(|_| focus.is_none()) {
            return Ok(ready.job);
        }
        state.fill_all(&*engine.store, engine.thread)?;
        let drafting = state.drafting(&budget);
        let attended = focus.and_then(SummaryFocus::new);
        drafting.cut(attended.as_ref(), state.view().context(), state.view().line())?;
        let ordered =
            summary_jobs::order(engine, &state, &budget, trigger, focus.map(str::to_owned), None, now)?;
        let Some((marker, new)) = ordered else {
            // The very same was made before.
            return Err(CompactionError::NothingOld.into());
        };
        let job = new.id;
        records.push(CommitRecord::Job(new));
        if engine.try_append(&mut state, vec![marker], records)?.is_some() {
            return Ok(job);
        }
    }
}

/// Orders a summary if no event has arrived since, and there is enough to summarise. A policy that asks code before it pays for
/// a summary orders none that costs money: the next request gets the built-in one, if it needs any.
pub(crate) fn order_if_idle(engine: &Arc<SessionEngine>, after: Duration) -> Result<bool, SessionError> {
    let is_due = {
        let state = engine.state()?;
        let last = state.view().last().and_then(|last| last.at);
        let quiet = last.is_some_and(|last| {
            u128::try_from(engine.now().0.saturating_sub(last.0)).unwrap_or(0) >= after.as_millis()
        });
        let budget = state.budget();
        let level = state.setup.calls.policy.cold_level(&budget).unwrap_or(budget.trigger());
        let is_ordered = |rules: SummaryRules, maker: &SummariserConfig| {
            rules.paid == PaidSummaryUse::Preferred
                || !maker.kind().costs_money(state.setup.calls.terms.as_ref())
        };
        quiet
            && state
                .setup
                .calls
                .policy
                .summary
                .zip(engine.maker.as_ref())
                .is_some_and(|(rules, maker)| is_ordered(rules, maker))
            && state.view().context().tokens() > level
            && engine.store.ready_job(engine.thread)?.is_none()
    };
    if !is_due {
        return Ok(false);
    }
    match order(engine, CompactionTrigger::Idle, None, None) {
        Ok(_) => Ok(true),
        Err(SessionError::Nothing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Compacts with the built-in summariser, at once.
pub(crate) fn compact_built_in(
    engine: &SessionEngine,
    trigger: CompactionTrigger,
    focus: Option<&str>,
    budget: Option<&Budget>,
) -> Result<Seq, SessionError> {
    let mut state = engine.state()?;
    let now = Some(engine.now());
    let marker =
        Event::from_fact(Fact::CompactionRequested { trigger, focus: focus.map(str::to_owned) }, now);
    let attended = focus.and_then(SummaryFocus::new);
    let mut attempts = AppendAttempts::default();
    loop {
        attempts.begin(engine, &mut state)?;
        state.fill_all(&*engine.store, engine.thread)?;
        let first = state.first_shown();
        let drafting = state.drafting(&budget.cloned().unwrap_or_else(|| state.budget()));
        let (context, line) = (state.view().context(), state.view().line());
        let compaction = drafting.draft(attended.as_ref(), context, line, trigger)?;
        let events = vec![marker.clone(), Event::from_fact(Fact::Compacted(compaction.clone()), now)];
        let place = state.head().next().next();
        let record = summary_record(&compaction, (place, first), BUILT_IN_NAME, engine.now());
        if let Some(head) = engine.try_append(&mut state, events, record.into_iter().collect())? {
            let meter = Arc::clone(&state.setup.meter);
            let place = (engine.session, engine.thread);
            engine.listeners.built_in(place, &compaction, first, &meter);
            engine.listeners.adopted(place, head.seq, BUILT_IN_NAME.to_owned(), &compaction);
            return Ok(head.seq);
        }
    }
}

/// Puts a ready summary in force, outside of any request.
pub(super) fn adopt(engine: &SessionEngine, job: JobId) -> Result<Seq, SessionError> {
    let mut state = engine.state()?;
    let now = Some(engine.now());
    let mut attempts = AppendAttempts::default();
    loop {
        attempts.begin(engine, &mut state)?;
        let row = engine.store.job(job)?;
        if let JobState::Adopted { compaction } = row.state {
            return Ok(compaction);
        }
        let Some(ready) = summary_jobs::ready(engine, &state)? else {
            return Err(SessionError::Lineage("the summary that was made no longer fits".to_owned()));
        };
        let compaction = match ready.compaction(&state) {
            Ok(compaction) => compaction,
            Err(why) => {
                // It will not be smaller the next time either, so it is cancelled for callers that wait for it.
                let cancel = CommitRecord::CancelJob { job: ready.job, reason: why.to_string() };
                engine.append_all(&mut state, &[], &[cancel])?;
                return Err(why.into());
            }
        };
        let place = state.head().next();
        let adopted = CommitRecord::Adopted { job: ready.job, compaction: place };
        let event = Event::from_fact(Fact::Compacted(compaction.clone()), now);
        if engine.try_append(&mut state, vec![event], vec![adopted])?.is_some() {
            engine.listeners.adopted((engine.session, engine.thread), place, ready.by, &compaction);
            return Ok(place);
        }
    }
}

/// Direction to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UndoOrRedo {
    /// Back.
    Undo,
    /// Forward again.
    Redo,
}

/// Undoes or redoes a compaction.
pub(super) fn undo_or_redo(engine: &SessionEngine, turn: UndoOrRedo) -> Result<Seq, SessionError> {
    let mut state = engine.state()?;
    let now = Some(engine.now());
    let said = |error: &dyn std::fmt::Display| SessionError::Lineage(error.to_string());
    let mut attempts = AppendAttempts::default();
    let compaction = loop {
        attempts.begin(engine, &mut state)?;
        let line = state.view().line();
        let event = match turn {
            UndoOrRedo::Undo => lineage::undo(line).map_err(|error| said(&error))?,
            UndoOrRedo::Redo => lineage::redo(line).map_err(|error| said(&error))?,
        };
        let place = match event.fact {
            Fact::CompactionReverted { compaction } | Fact::CompactionRestored { compaction } => compaction,
            _ => Seq::default(),
        };
        if engine.try_append(&mut state, vec![event.at(now)], Vec::new())?.is_some() {
            break place;
        }
    };
    let thread = engine.thread;
    engine.listeners.report(
        engine.session,
        match turn {
            UndoOrRedo::Undo => LifecycleEvent::Reverted { thread, compaction },
            UndoOrRedo::Redo => LifecycleEvent::Restored { thread, compaction },
        },
    );
    Ok(compaction)
}

/// Pins something, or takes a pin away.
pub(super) fn change_pin(engine: &SessionEngine, pin: &Pin, change: PinChange) -> Result<Seq, SessionError> {
    let mut state = engine.state()?;
    let now = Some(engine.now());
    let mut attempts = AppendAttempts::default();
    loop {
        attempts.begin(engine, &mut state)?;
        let line = state.view().line();
        let event = match change {
            PinChange::Add => lineage::pin(line, pin.clone())?,
            PinChange::Remove => {
                lineage::unpin(line, pin.clone()).map_err(|error| SessionError::Lineage(error.to_string()))?
            }
        };
        if let Some(head) = engine.try_append(&mut state, vec![event.at(now)], Vec::new())? {
            return Ok(head.seq);
        }
    }
}

/// Change of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinChange {
    /// It is added.
    Add,
    /// It is taken away.
    Remove,
}

/// Drafter of summaries for a new thread.
pub(super) fn drafter<'d>(
    state: &'d SessionState,
    drafting: &'d CompactionSettings,
) -> ForkDraftSettings<'d> {
    ForkDraftSettings { drafting, meter: &state.setup.meter, names: state.view().context().names() }
}

/// Every event of the thread: a fork looks further back than a view does.
pub(super) fn whole_thread(engine: &SessionEngine, state: &SessionState) -> Result<EventLine, SessionError> {
    read_line(&*engine.store, engine.thread, &state.setup.meter, None)
}
