//! Threads as they are read for an answer.

use std::sync::Arc;

use epitome_core::{LoggedEvent, Seq, ThreadId, Tokens, context::EventNaming, projection::EventLine};
use epitome_store::{Store, StoreError};
use epitome_wire::Format;

use crate::{
    request_plan::{last_model_of, native_format_of},
    session::{SessionError, call_replay},
};

/// Number of events that are read at a time.
const PAGE: usize = 1024;

/// All events of a thread's view up to and with `last`.
pub fn events(
    store: &dyn Store,
    thread: ThreadId,
    last: Option<Seq>,
) -> Result<Vec<LoggedEvent>, StoreError> {
    let mut events: Vec<LoggedEvent> = Vec::new();
    loop {
        let from = events.last().map_or(Seq(1), |logged| logged.id.seq.next());
        let page = store.read(thread, from, PAGE)?;
        let full = page.len() == PAGE;
        events.extend(page);
        let beyond = last.is_some_and(|last| events.last().is_some_and(|logged| logged.id.seq >= last));
        if !full || beyond {
            break;
        }
    }
    events.retain(|logged| last.is_none_or(|last| logged.id.seq <= last));
    Ok(events)
}

/// A thread as a view is made of it.
#[derive(Clone, Debug)]
pub struct SessionLine {
    /// The events, with the counts that the log keeps.
    pub line: EventLine,
    /// Form in which its requests name what they leave out.
    pub names: EventNaming,
    /// Name of the counter of the log.
    pub counted_by: Option<String>,
    /// Window that its calls were made for, if one was configured, for instance in a gateway.
    pub window: Option<Tokens>,
}

/// Reads a thread up to and with `last`.
pub fn session_line(
    store: &dyn Store,
    thread: ThreadId,
    last: Option<Seq>,
) -> Result<SessionLine, SessionError> {
    let events = events(store, thread, last)?;
    let mut line = EventLine::default();
    let pieces = store.text_counts(thread, Seq(1), usize::MAX)?;
    let mut pieces = pieces.into_iter().map(|(id, pieces)| (id.seq, pieces)).peekable();
    for event in events {
        while pieces.next_if(|(seq, _)| *seq < event.id.seq).is_some() {}
        match pieces.next_if(|(seq, _)| *seq == event.id.seq) {
            Some((_, counts)) => line.push(Arc::new(event), counts),
            None => line.push_uncounted(Arc::new(event)),
        }
    }
    let names = call_replay::names_of(store, thread, &line)?;
    let window = call_replay::window(store, thread, last)?;
    Ok(SessionLine { line, names, counted_by: store.tokenizer().map(str::to_owned), window })
}

/// Model and format of a thread, from its last call or else from its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelAndFormat {
    /// The model.
    pub model: Option<String>,
    /// The format.
    pub format: Option<Format>,
}

impl ModelAndFormat {
    /// Reads them.
    pub fn of(store: &dyn Store, thread: ThreadId) -> Result<Self, StoreError> {
        let last = store.last_call(thread)?.map(|row| (row.call.model, row.call.format.parse().ok()));
        if let Some((model @ Some(_), format @ Some(_))) = last {
            return Ok(Self { model, format });
        }
        let events = events(store, thread, None)?;
        let events = || events.iter().map(|logged| &logged.event);
        Ok(Self { model: last_model_of(events()), format: native_format_of(events()) })
    }
}
