//! What a session does beside making requests: takes answers, compacts on demand, goes back.

use std::{path::Path, sync::Arc, time::Duration};

use epitome_core::{
    Event, Fact, Seq,
    event::{ToolCall, Trigger, Usage},
    id::JobId,
    project::Line,
    summary::compaction::{Drafting, NothingGained},
};
use epitome_store::records::{JobState, Record};
use epitome_wire::{Answered, Finish, is_compact_call, say::Ended};

use super::{
    builder::CompactTool,
    desk::{BUILT_IN, Desk},
    error::SessionError,
    lifecycle::Lifecycle,
    reading::read_line,
    state::State,
};
use crate::lineage::{self, Drafter};

/// What the model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its words.
    pub text: String,
    /// The tools it calls, in order. Calls that the session answers itself are not among them.
    pub calls: Vec<ToolCall>,
    /// Why it ended, if the provider says.
    pub finish: Option<Finish>,
    /// What was used, if the provider says.
    pub usage: Option<Usage>,
}

/// Takes an answer. What the agent asked of the session itself is answered, and given.
pub(super) fn take(
    desk: &Desk,
    body: &str,
    tool: CompactTool,
) -> Result<(Answer, Option<JobId>), SessionError> {
    let format = desk.state()?.setup.format;
    let answered = if body.trim_start().starts_with('{') {
        format.answer(body)?
    } else {
        format.answer_stream(body.as_bytes())?
    };
    desk.answered(&answered)?;
    let mut ordered = None;
    let Answered { calls, finish, usage, .. } = &answered;
    let (own, others): (Vec<&ToolCall>, Vec<&ToolCall>) =
        calls.iter().partition(|call| tool == CompactTool::Offered && is_compact_call(call).is_some());
    for call in own {
        let focus = is_compact_call(call).flatten();
        let said = match order(desk, Trigger::Agent, focus.as_deref()) {
            Ok(job) => {
                ordered = Some(job);
                "A summary of what lies behind is being made; go on."
            }
            Err(SessionError::Nothing(_)) => "There is nothing to compact yet; go on.",
            Err(error) => return Err(error),
        };
        let result = format.say_result(call, said, Ended::Well).at(Some(desk.now()));
        desk.append(&[result])?;
    }
    let answer = Answer {
        text: answered.text(),
        calls: others.into_iter().cloned().collect(),
        finish: finish.clone(),
        usage: *usage,
    };
    Ok((answer, ordered))
}

/// Has a span summarised: marker and job. One that is being made already is taken for it.
pub(super) fn order(desk: &Desk, trigger: Trigger, focus: Option<&str>) -> Result<JobId, SessionError> {
    let mut state = desk.state()?;
    let now = desk.now();
    let mut job = None;
    desk.append_to(&mut state, |state| {
        let budget = state.budget();
        if let Some(running) = desk.store.running_job(desk.thread)? {
            job = Some(running.job.id);
            return Ok((Vec::new(), Vec::new()));
        }
        state.fill_all(&desk.store, desk.thread)?;
        let drafting = state.drafting(&budget);
        drafting.cut(state.view.context(), state.view.line())?;
        let ordered = desk.order(state, &budget, trigger, focus.map(str::to_owned), None, now)?;
        let Some((marker, new)) = ordered else {
            // The very same was made before.
            return Err(NothingGained::NothingOld.into());
        };
        job = Some(new.id);
        Ok((vec![marker], vec![Record::Job(new)]))
    })?;
    job.ok_or(SessionError::Busy)
}

/// Orders a summary if nothing has happened since, and there is enough to summarise.
pub(super) fn order_if_idle(desk: &Arc<Desk>, after: Duration) -> Result<bool, SessionError> {
    let is_due = {
        let state = desk.state()?;
        let last = state.view.last().and_then(|last| last.at);
        let quiet = last.is_some_and(|last| {
            u128::try_from(desk.now().0.saturating_sub(last.0)).unwrap_or(0) >= after.as_millis()
        });
        let budget = state.budget();
        let level = state.setup.policy.cold_level(&budget).unwrap_or(budget.trigger());
        quiet
            && desk.maker.is_some()
            && state.setup.policy.summary.is_some()
            && state.view.context().tokens() > level
            && desk.store.ready_job(desk.thread)?.is_none()
    };
    if !is_due {
        return Ok(false);
    }
    match order(desk, Trigger::Idle, None) {
        Ok(_) => Ok(true),
        Err(SessionError::Nothing(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Compacts with the built-in summariser, at once.
pub(super) fn compact_built_in(desk: &Desk, trigger: Trigger) -> Result<Seq, SessionError> {
    let mut state = desk.state()?;
    let now = Some(desk.now());
    let mut made = None;
    let head = desk.append_to(&mut state, |state| {
        state.fill_all(&desk.store, desk.thread)?;
        let drafting = state.drafting(&state.budget());
        let compaction = drafting.draft(state.view.context(), state.view.line(), trigger)?;
        made = Some(compaction.clone());
        let marker = Event::own(Fact::CompactionRequested { trigger, focus: None }, now);
        Ok((vec![marker, Event::own(Fact::Compacted(compaction), now)], Vec::new()))
    })?;
    if let Some(compaction) = made {
        desk.listeners.tell(Lifecycle::Adopted {
            thread: desk.thread,
            compaction: head.seq,
            by: BUILT_IN.to_owned(),
            trigger,
            tokens_before: compaction.tokens_before,
            tokens_after: compaction.tokens_after,
        });
    }
    Ok(head.seq)
}

/// Puts a summary in force that is ready, outside of any request.
pub(super) fn adopt(desk: &Desk, job: JobId) -> Result<Seq, SessionError> {
    let mut state = desk.state()?;
    let now = Some(desk.now());
    let (mut made, mut by) = (None, String::new());
    let head = desk.append_to(&mut state, |state| {
        let row = desk.store.job(job)?;
        if let JobState::Adopted { compaction } = row.state {
            made = Some((compaction, None));
            return Ok((Vec::new(), Vec::new()));
        }
        let Some(ready) = desk.ready(state)? else {
            return Err(SessionError::Lineage("the summary that was made no longer fits".to_owned()));
        };
        let caps = state.setup.policy.summary.unwrap_or_default().caps;
        let length = state.drafting(&state.budget()).length;
        let finished = ready.finished.with_pins(state.view.line(), &caps);
        let compaction = finished.compaction(state.view.context(), length)?;
        let place = state.head().next();
        made = Some((place, Some(compaction.clone())));
        by = ready.by;
        let adopted = Record::Adopted { job: ready.job, compaction: place };
        Ok((vec![Event::own(Fact::Compacted(compaction), now)], vec![adopted]))
    })?;
    let Some((place, compaction)) = made else { return Ok(head.seq) };
    if let Some(compaction) = compaction {
        desk.listeners.tell(Lifecycle::Adopted {
            thread: desk.thread,
            compaction: place,
            by,
            trigger: compaction.trigger,
            tokens_before: compaction.tokens_before,
            tokens_after: compaction.tokens_after,
        });
    }
    Ok(place)
}

/// Which way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Back.
    Undo,
    /// Forward again.
    Redo,
}

/// Undoes or redoes a compaction.
pub(super) fn turn_back(desk: &Desk, turn: Turn) -> Result<Seq, SessionError> {
    let mut state = desk.state()?;
    let now = Some(desk.now());
    let mut place = None;
    desk.append_to(&mut state, |state| {
        let said = |error: &dyn std::fmt::Display| SessionError::Lineage(error.to_string());
        let line = state.view.line();
        let event = match turn {
            Turn::Undo => lineage::undo(line).map_err(|error| said(&error))?,
            Turn::Redo => lineage::redo(line).map_err(|error| said(&error))?,
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
    desk.listeners.tell(match turn {
        Turn::Undo => Lifecycle::Reverted { thread, compaction },
        Turn::Redo => Lifecycle::Restored { thread, compaction },
    });
    Ok(compaction)
}

/// How summaries are made for a new thread.
pub(super) fn drafter<'d>(state: &'d State, drafting: &'d Drafting) -> Drafter<'d> {
    Drafter { drafting, meter: &state.setup.meter, names: state.view.context().names() }
}

/// Every event of the thread: a fork looks further back than a view does.
pub(super) fn whole(desk: &Desk, state: &State) -> Result<Line, SessionError> {
    read_line(&desk.store, desk.thread, &state.setup.meter, None)
}

/// Writes the memory files of a session, if a compaction has changed what they say.
pub(super) fn keep_memory(desk: &Desk, folder: &Path) -> Result<(), SessionError> {
    let _ = (desk, folder);
    Ok(())
}
