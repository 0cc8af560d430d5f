//! Reading a thread: its events with the counts of their texts, and the records beside them.

use std::sync::Arc;

use epitome_core::{
    EventId, Logged, Seq, ThreadId, Tokens,
    meter::Meter,
    project::Line,
    seq_set::SeqSet,
    view::{Pass, Window},
};
use epitome_store::{EventLog, Sqlite, StoreError};
use serde::Deserialize;

use super::error::SessionError;

/// Number of events read at a time.
pub(crate) const PAGE: usize = 512;

/// An event with the counts of its texts.
pub(crate) type Counted = (Arc<Logged>, Vec<Tokens>);

/// The events of a thread's view, counted as `meter` counts.
pub(crate) fn read_line(
    store: &Sqlite,
    thread: ThreadId,
    meter: &Meter,
    through: Option<Seq>,
) -> Result<Line, SessionError> {
    let mut line = Line::default();
    let mut from = Seq::START.next();
    loop {
        let page = read_page(store, thread, from, meter)?;
        let full = page.len() == PAGE;
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
    store: &Sqlite,
    thread: ThreadId,
    from: Seq,
    meter: &Meter,
) -> Result<Vec<Counted>, StoreError> {
    let events = store.read(thread, from, PAGE)?;
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let counted = if store.tokenizer() == Some(meter.name()) {
        store.pieces(thread, from, events.len())?
    } else {
        Vec::new()
    };
    Ok(joined(events, counted, meter))
}

/// Reads the part of a thread that is needed to show it through `end`, on the compaction `pivot`.
pub(super) fn read_window(
    store: &Sqlite,
    thread: ThreadId,
    passes: &[Pass],
    (end, pivot): (Seq, Option<&Logged>),
    meter: &Meter,
) -> Result<Line, SessionError> {
    let window = Window::of(passes, end, pivot);
    let mut events = store.read_window(thread, window.from(), &window.without(), Window::KINDS)?;
    events.retain(|logged| logged.id.seq <= end);
    let counted = counts_of(store, thread, &events, meter)?;
    let read = joined(events, counted, meter).into_iter();
    Ok(window.line(read.map(|(logged, pieces)| (logged, Some(pieces)))))
}

/// Reads given events of a thread.
pub(super) fn read_these(
    store: &Sqlite,
    thread: ThreadId,
    these: &SeqSet,
    meter: &Meter,
) -> Result<Vec<Counted>, SessionError> {
    let mut events = Vec::new();
    for run in these.runs() {
        events.extend(read_span(store, thread, run.first, run.last)?);
    }
    let counted = counts_of(store, thread, &events, meter)?;
    Ok(joined(events, counted, meter))
}

/// Counts from the store, if they are the meter's.
fn counts_of(
    store: &Sqlite,
    thread: ThreadId,
    events: &[Logged],
    meter: &Meter,
) -> Result<Vec<(EventId, Vec<Tokens>)>, SessionError> {
    if store.tokenizer() != Some(meter.name()) {
        return Ok(Vec::new());
    }
    let mut seqs = SeqSet::default();
    for logged in events {
        seqs.insert(logged.id.seq);
    }
    Ok(store.pieces_of(thread, &seqs)?)
}

/// Events with their counts; those without one are counted.
fn joined(events: Vec<Logged>, counted: Vec<(EventId, Vec<Tokens>)>, meter: &Meter) -> Vec<Counted> {
    let mut counted = counted.into_iter().peekable();
    let mut page = Vec::with_capacity(events.len());
    for logged in events {
        while counted.next_if(|(id, _)| id.seq < logged.id.seq).is_some() {}
        let pieces = match counted.next_if(|(id, _)| *id == logged.id) {
            Some((_, pieces)) => meter.completed(&logged.event, pieces),
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
    store: &Sqlite,
    thread: ThreadId,
    mut from: Seq,
    through: Seq,
) -> Result<Vec<Logged>, SessionError> {
    let mut span = Vec::new();
    while from <= through {
        let rest = usize::try_from(through.0 - from.0).unwrap_or(PAGE).saturating_add(1);
        let page = store.read(thread, from, rest.min(PAGE))?;
        let Some(last) = page.last() else { break };
        from = last.id.seq.next();
        span.extend(page.into_iter().filter(|logged| logged.id.seq <= through));
    }
    Ok(span)
}
