//! Requested compactions: ordered, made at once, adopted outside of any request, undone and redone.

use std::{sync::Arc, time::Duration};

use epitome_core::{
    Event, Fact, Seq,
    budget::Budget,
    event::CompactionTrigger,
    id::JobId,
    projection::EventLine,
    summary::{
        SummaryFocus,
        compaction::{CompactionError, CompactionSettings},
    },
};
use epitome_store::records::{CommitRecord, JobState};

use super::{
    engine::{BUILT_IN_NAME, SessionEngine},
    error::SessionError,
    lifecycle::LifecycleEvent,
    state::SessionState,
    summary_jobs,
    thread_reading::read_line,
};
use crate::lineage::{self, ForkDraftSettings};

/// Returns true if a summary is being made already, or waits to be adopted.
pub(super) fn is_under_way(desk: &SessionEngine) -> Result<bool, SessionError> {
    let mut state = desk.state()?;
    state.catch_up(&*desk.store, desk.thread)?;
    Ok(desk.store.running_job(desk.thread)?.is_some() || summary_jobs::ready(desk, &state)?.is_some())
}

/// Orders the summary of a span: marker and job. One that is being made already, or is ready, is used if it fits.
/// `budget` decides how much is kept verbatim; by default the session's own.
pub(crate) fn order(
    desk: &SessionEngine,
    trigger: CompactionTrigger,
    focus: Option<&str>,
    budget: Option<&Budget>,
) -> Result<JobId, SessionError> {
    let mut state = desk.state()?;
    let now = desk.now();
    let mut job = None;
    desk.append_to(&mut state, |state| {
        let budget = budget.cloned().unwrap_or_else(|| state.budget());
        let mut records = Vec::new();
        if let Some(running) = desk.store.running_job(desk.thread)? {
            let is_for_this = focus.is_none() || running.job.focus.as_deref() == focus;
            let still_stands = running.job.base == state.view().context().standing();
            if still_stands && is_for_this {
                job = Some(running.job.id);
                return Ok((Vec::new(), Vec::new()));
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
        if let Some(ready) = summary_jobs::ready(desk, state)?.filter(|_| focus.is_none()) {
            job = Some(ready.job);
            return Ok((Vec::new(), Vec::new()));
        }
        state.fill_all(&*desk.store, desk.thread)?;
        let drafting = state.drafting(&budget);
        let attended = focus.and_then(SummaryFocus::new);
        drafting.cut(attended.as_ref(), state.view().context(), state.view().line())?;
        let ordered =
            summary_jobs::order(desk, state, &budget, trigger, focus.map(str::to_owned), None, now)?;
        let Some((marker, new)) = ordered else {
            // The very same was made before.
            return Err(CompactionError::NothingOld.into());
        };
        job = Some(new.id);
        records.push(CommitRecord::Job(new));
        Ok((vec![marker], records))
    })?;
    job.ok_or(SessionError::Busy)
}

/// Orders a summary if no event has arrived since, and there is enough to summarise.
pub(crate) fn order_if_idle(desk: &Arc<SessionEngine>, after: Duration) -> Result<bool, SessionError> {
    let is_due = {
        let state = desk.state()?;
        let last = state.view().last().and_then(|last| last.at);
        let quiet = last.is_some_and(|last| {
            u128::try_from(desk.now().0.saturating_sub(last.0)).unwrap_or(0) >= after.as_millis()
        });
        let budget = state.budget();
        let level = state.setup.calls.policy.cold_level(&budget).unwrap_or(budget.trigger());
        quiet
            && desk.maker.is_some()
            && state.setup.calls.policy.summary.is_some()
            && state.view().context().tokens() > level
            && desk.store.ready_job(desk.thread)?.is_none()
    };
    if !is_due {
        return Ok(false);
    }
    match order(desk, CompactionTrigger::Idle, None, None) {
        Ok(_) => Ok(true),
        Err(SessionError::Nothing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Compacts with the built-in summariser, at once.
pub(crate) fn compact_built_in(
    desk: &SessionEngine,
    trigger: CompactionTrigger,
    focus: Option<&str>,
    budget: Option<&Budget>,
) -> Result<Seq, SessionError> {
    let mut state = desk.state()?;
    let now = Some(desk.now());
    let (mut made, mut first) = (None, Seq::START);
    let head = desk.append_to(&mut state, |state| {
        state.fill_all(&*desk.store, desk.thread)?;
        first = state.first_shown();
        let drafting = state.drafting(&budget.cloned().unwrap_or_else(|| state.budget()));
        let attended = focus.and_then(SummaryFocus::new);
        let (context, line) = (state.view().context(), state.view().line());
        let compaction = drafting.draft(attended.as_ref(), context, line, trigger)?;
        made = Some(compaction.clone());
        let marker =
            Event::from_fact(Fact::CompactionRequested { trigger, focus: focus.map(str::to_owned) }, now);
        Ok((vec![marker, Event::from_fact(Fact::Compacted(compaction), now)], Vec::new()))
    })?;
    if let Some(compaction) = made {
        let meter = Arc::clone(&state.setup.meter);
        let place = (desk.session, desk.thread);
        desk.listeners.built_in(place, &compaction, first, &meter);
        desk.listeners.adopted(place, head.seq, BUILT_IN_NAME.to_owned(), &compaction);
    }
    Ok(head.seq)
}

/// Puts a ready summary in force, outside of any request.
pub(super) fn adopt(desk: &SessionEngine, job: JobId) -> Result<Seq, SessionError> {
    let mut state = desk.state()?;
    let now = Some(desk.now());
    let (mut made, mut tried) = (None, job);
    let appended = desk.append_to(&mut state, |state| {
        let row = desk.store.job(job)?;
        if let JobState::Adopted { compaction } = row.state {
            made = Some((compaction, None));
            return Ok((Vec::new(), Vec::new()));
        }
        let Some(ready) = summary_jobs::ready(desk, state)? else {
            return Err(SessionError::Lineage("the summary that was made no longer fits".to_owned()));
        };
        tried = ready.job;
        let compaction = ready.compaction(state)?;
        let place = state.head().next();
        made = Some((place, Some((ready.by, compaction.clone()))));
        let adopted = CommitRecord::Adopted { job: ready.job, compaction: place };
        Ok((vec![Event::from_fact(Fact::Compacted(compaction), now)], vec![adopted]))
    });
    if let Err(SessionError::Nothing(why)) = &appended {
        // It will not be smaller the next time either, so it is cancelled for callers that wait for it.
        let cancel = CommitRecord::CancelJob { job: tried, reason: why.to_string() };
        desk.append_to(&mut state, |_| Ok((Vec::new(), vec![cancel.clone()])))?;
    }
    let head = appended?;
    let Some((place, compaction)) = made else { return Ok(head.seq) };
    if let Some((by, compaction)) = compaction {
        desk.listeners.adopted((desk.session, desk.thread), place, by, &compaction);
    }
    Ok(place)
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
pub(super) fn undo_or_redo(desk: &SessionEngine, turn: UndoOrRedo) -> Result<Seq, SessionError> {
    let mut state = desk.state()?;
    let now = Some(desk.now());
    let mut place = None;
    desk.append_to(&mut state, |state| {
        let said = |error: &dyn std::fmt::Display| SessionError::Lineage(error.to_string());
        let line = state.view().line();
        let event = match turn {
            UndoOrRedo::Undo => lineage::undo(line).map_err(|error| said(&error))?,
            UndoOrRedo::Redo => lineage::redo(line).map_err(|error| said(&error))?,
        };
        place = match event.fact {
            Fact::CompactionReverted { compaction } | Fact::CompactionRestored { compaction } => {
                Some(compaction)
            }
            _ => None,
        };
        Ok((vec![event.at(now)], Vec::new()))
    })?;
    let compaction = place.unwrap_or_default();
    let thread = desk.thread;
    desk.listeners.report(
        desk.session,
        match turn {
            UndoOrRedo::Undo => LifecycleEvent::Reverted { thread, compaction },
            UndoOrRedo::Redo => LifecycleEvent::Restored { thread, compaction },
        },
    );
    Ok(compaction)
}

/// Drafter of summaries for a new thread.
pub(super) fn drafter<'d>(
    state: &'d SessionState,
    drafting: &'d CompactionSettings,
) -> ForkDraftSettings<'d> {
    ForkDraftSettings { drafting, meter: &state.setup.meter, names: state.view().context().names() }
}

/// Every event of the thread: a fork looks further back than a view does.
pub(super) fn whole_thread(desk: &SessionEngine, state: &SessionState) -> Result<EventLine, SessionError> {
    read_line(&*desk.store, desk.thread, &state.setup.meter, None)
}
