//! Reading a thread: its events with the counts of their texts, and the records beside them.

use std::sync::Arc;

use epitome_core::{
    EventId, LoggedEvent, Seq, ThreadId, Tokens,
    meter::Meter,
    model_view::{EditRecord, ReadWindow},
    projection::EventLine,
    seq_set::SeqSet,
};
use epitome_store::{Store, StoreError};
use serde::Deserialize;

use super::error::SessionError;

/// Number of events read at a time.
pub(crate) const EVENTS_PER_PAGE: usize = 512;

/// An event with the counts of its texts.
pub(crate) type MeteredEvent = (Arc<LoggedEvent>, Vec<Tokens>);

/// The events of a thread's view, counted as `meter` counts.
pub(crate) fn read_line(
    store: &dyn Store,
    thread: ThreadId,
    meter: &Meter,
    through: Option<Seq>,
) -> Result<EventLine, SessionError> {
    let mut line = EventLine::default();
    let mut from = Seq::START.next();
    loop {
        let page = read_page(store, thread, from, meter)?;
        let full = page.len() == EVENTS_PER_PAGE;
        for (logged, pieces) in page {
            if through.is_some_and(|through| logged.id.seq > through) {
                return Ok(line);
            }
            from = logged.id.seq.next();
            line.push(logged, pieces);
        }
        if !full {
            return Ok(line);
        }
    }
}

/// The next page of events.
pub(crate) fn read_page(
    store: &dyn Store,
    thread: ThreadId,
    from: Seq,
    meter: &Meter,
) -> Result<Vec<MeteredEvent>, StoreError> {
    let events = store.read(thread, from, EVENTS_PER_PAGE)?;
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let counted = if store.tokenizer() == Some(meter.name()) {
        store.text_counts(thread, from, events.len())?
    } else {
        Vec::new()
    };
    Ok(joined(events, counted, meter))
}

/// Reads the part of a thread that is needed to show it through `end`, on the compaction `pivot`.
pub(super) fn read_window(
    store: &dyn Store,
    thread: ThreadId,
    passes: &[EditRecord],
    (end, pivot): (Seq, Option<&LoggedEvent>),
    meter: &Meter,
) -> Result<EventLine, SessionError> {
    let window = ReadWindow::from_records(passes, end, pivot);
    let mut events =
        store.read_window(thread, window.from(), &window.unread_events(), ReadWindow::ALWAYS_READ_KINDS)?;
    events.retain(|logged| logged.id.seq <= end);
    let counted = counts_of(store, thread, &events, meter)?;
    let read = joined(events, counted, meter).into_iter();
    Ok(window.line(read.map(|(logged, pieces)| (logged, Some(pieces)))))
}

/// Reads given events of a thread.
pub(super) fn read_these(
    store: &dyn Store,
    thread: ThreadId,
    these: &SeqSet,
    meter: &Meter,
) -> Result<Vec<MeteredEvent>, SessionError> {
    let mut events = Vec::new();
    for run in these.runs() {
        events.extend(read_span(store, thread, run.first, run.last)?);
    }
    let counted = counts_of(store, thread, &events, meter)?;
    Ok(joined(events, counted, meter))
}

/// Counts from the store, if they are the meter's.
fn counts_of(
    store: &dyn Store,
    thread: ThreadId,
    events: &[LoggedEvent],
    meter: &Meter,
) -> Result<Vec<(EventId, Vec<Tokens>)>, SessionError> {
    if store.tokenizer() != Some(meter.name()) {
        return Ok(Vec::new());
    }
    let mut seqs = SeqSet::default();
    for logged in events {
        seqs.insert(logged.id.seq);
    }
    Ok(store.text_counts_of(thread, &seqs)?)
}

/// Events with their counts; those without one are counted.
fn joined(
    events: Vec<LoggedEvent>,
    counted: Vec<(EventId, Vec<Tokens>)>,
    meter: &Meter,
) -> Vec<MeteredEvent> {
    let mut counted = counted.into_iter().peekable();
    let mut page = Vec::with_capacity(events.len());
    for logged in events {
        while counted.next_if(|(id, _)| id.seq < logged.id.seq).is_some() {}
        let pieces = match counted.next_if(|(id, _)| *id == logged.id) {
            Some((_, pieces)) => meter.with_missing_counts(&logged.event, pieces),
            None => meter.pieces(&logged.event),
        };
        page.push((Arc::new(logged), pieces));
    }
    page
}

/// Reads a record that was written as JSON.
pub(crate) fn parse<T: for<'de> Deserialize<'de>>(
    what: &'static str,
    call: u64,
    json: &str,
) -> Result<T, SessionError> {
    serde_json::from_str(json).map_err(|source| SessionError::Record { what, call, source })
}

/// The events between two places, both included.
pub(crate) fn read_span(
    store: &dyn Store,
    thread: ThreadId,
    mut from: Seq,
    through: Seq,
) -> Result<Vec<LoggedEvent>, SessionError> {
    let mut span = Vec::new();
    while from <= through {
        let rest = usize::try_from(through.0 - from.0).unwrap_or(EVENTS_PER_PAGE).saturating_add(1);
        let page = store.read(thread, from, rest.min(EVENTS_PER_PAGE))?;
        let Some(last) = page.last() else { break };
        from = last.id.seq.next();
        span.extend(page.into_iter().filter(|logged| logged.id.seq <= through));
    }
    Ok(span)
}
