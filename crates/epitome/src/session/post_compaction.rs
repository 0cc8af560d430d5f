//! Additions to the request after a compaction: notes in files, a line with their paths, a message that lets the
//! agent go on.
//!
//! The additions are events like any other, appended with the request that first shows them, and the context alone
//! shows if they are due. So a crash, a restart or another process adds nothing twice.

use std::{path::Path, sync::Arc};

use epitome_core::{
    ContentPart, Event, Fact, LoggedEvent, Tokens,
    context::{Context, SegmentBody},
    event::{Compaction, CompactionTrigger, Summary, Timestamp},
    summary::StructuredSummary,
};

use super::{
    builder::{AutoContinue, SessionExtras},
    engine::SessionEngine,
    error::SessionError,
    lifecycle::LifecycleEvent,
    state::SessionState,
};
use crate::memory_files::{FileWriteOutcome, MemoryFiles, reference};

/// Hook name under which the message that lets an agent go on is recorded.
const CONTINUE: &str = "auto_continue";

/// Hook name under which the line about notes is recorded.
const NOTES: &str = "memory_files";

/// The message that lets an agent go on.
const CONTINUE_MESSAGE: &str = "Go on with what is under way: the summary above tells where it stands. If nothing is left to do, or if \
                     you cannot go on without an answer, say so.";

fn line_about(folder: &Path) -> String {
    reference(&MemoryFiles::in_folder(folder).paths())
}

/// Events to add to the request being made, in order, as far as there is room, which there is after a compaction.
pub(super) fn events(
    engine: &SessionEngine,
    state: &mut SessionState,
    extras: &SessionExtras,
    ceiling: Tokens,
    now: Timestamp,
) -> Vec<Event> {
    let continuing =
        extras.auto_continue == AutoContinue::On && ends_without_a_question(state.view().context());
    let notes = extras.memory.as_deref().and_then(|folder| line_about_notes(engine, state, folder));
    let added =
        [notes.map(|line| (NOTES, line)), continuing.then(|| (CONTINUE, CONTINUE_MESSAGE.to_owned()))];
    let event = |(hook, text): (&str, String)| {
        let fact =
            Fact::Injected { hook: hook.to_owned(), beside: None, parts: vec![ContentPart::text(text)] };
        Event::from_fact(fact, Some(now))
    };
    let meter = Arc::clone(state.view().context().meter());
    let mut size = state.view().context().tokens();
    let fits = |added: &(&str, String)| {
        size += meter.overhead().message + meter.text(&added.1);
        size <= ceiling
    };
    added.into_iter().flatten().take_while(fits).map(event).collect()
}

/// The line about the notes, if they exist and no shown message names them.
fn line_about_notes(engine: &SessionEngine, state: &mut SessionState, folder: &Path) -> Option<String> {
    // A failure was reported to listeners.
    let written = write_notes_of(engine, state, folder).ok().flatten();
    let context = state.view().context();
    let is_told = context.segments().iter().filter_map(|segment| segment.injection());
    let is_told = is_told.into_iter().any(|(hook, _)| hook == NOTES);
    (written.is_some() && !is_told).then(|| line_about(folder))
}

/// Writes the summary in force to files; `None` if there is none. Listeners are told of a failure, too: the
/// session goes on without the notes, and they are tried again with the next request.
pub(super) fn write_notes(
    engine: &SessionEngine,
    folder: &Path,
) -> Result<Option<FileWriteOutcome>, SessionError> {
    let mut state = engine.state()?;
    state.catch_up(&*engine.store, engine.thread)?;
    write_notes_of(engine, &mut state, folder)
}

fn write_notes_of(
    engine: &SessionEngine,
    state: &mut SessionState,
    folder: &Path,
) -> Result<Option<FileWriteOutcome>, SessionError> {
    let context = state.view().context();
    let Some((compaction, brief)) = context.summary().and_then(|event| Some((event, brief_of(event)?)))
    else {
        return Ok(None);
    };
    let place = compaction.id.seq;
    if state.noted == Some(place) {
        return Ok(Some(FileWriteOutcome::Unchanged));
    }
    match MemoryFiles::in_folder(folder).write(brief, context.names()) {
        Ok(written) => {
            state.noted = Some(place);
            Ok(Some(written))
        }
        Err(error) => {
            engine.listeners.report(
                engine.session,
                LifecycleEvent::NotesFailed { thread: engine.thread, error: error.to_string() },
            );
            Err(error.into())
        }
    }
}

/// Returns true if a request ends with an automatic summary, or with an answer from before it: a model could not go
/// on from there.
fn ends_without_a_question(context: &Context) -> bool {
    let Some(summary) = context.summary() else { return false };
    let Some(last) = context.segments().last() else { return false };
    let ends = match last.body() {
        SegmentBody::Summary(_) | SegmentBody::Note(_) => true,
        SegmentBody::Answer { event, .. } => event.id.seq < summary.id.seq,
        SegmentBody::Prefix(_)
        | SegmentBody::Instruction(_)
        | SegmentBody::User { .. }
        | SegmentBody::Exchange { .. }
        | SegmentBody::Carried(_) => false,
    };
    ends && is_automatic(summary)
}

fn is_automatic(compaction: &LoggedEvent) -> bool {
    match &compaction.event.fact {
        Fact::Compacted(Compaction { trigger, .. }) => match trigger {
            CompactionTrigger::Threshold
            | CompactionTrigger::Overflow
            | CompactionTrigger::Idle
            | CompactionTrigger::ModelSwitch => true,
            CompactionTrigger::Manual | CompactionTrigger::Agent | CompactionTrigger::Unknown => false,
        },
        _ => false,
    }
}

fn brief_of(compaction: &LoggedEvent) -> Option<&StructuredSummary> {
    match &compaction.event.fact {
        Fact::Compacted(Compaction { summary: Summary::Structured { brief, .. }, .. }) => Some(brief),
        _ => None,
    }
}
