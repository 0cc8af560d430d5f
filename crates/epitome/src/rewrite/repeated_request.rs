//! Requests that are made again because their provider refused the first as too long.

use std::sync::Arc;

use epitome_core::Tokens;
use epitome_wire::{
    incoming::{IncomingRequest, RequestFrame},
    overflow::ContextOverflow,
};

use super::{
    RewriteSettings, RewrittenRequest,
    client_call::rewrite_request,
    rewrite_body::RewriteInput,
    thread_cache::{CachedThread, ThreadAccess},
};
use crate::{
    recorder::{PendingRecord, RecordError, RequestArrival, TrafficRecorder},
    session::{SessionError, call_input::CallInput, next_call::PreparedCall},
};

/// Makes a composed request smaller after its provider refused it as too long. `None` if that is impossible.
pub fn compose_smaller(
    recorder: &TrafficRecorder,
    ticket: &mut PendingRecord,
    arrival: &RequestArrival<'_>,
    composing: &RewriteSettings,
    refused: ContextOverflow,
) -> Result<Option<RewrittenRequest>, RecordError> {
    let mut seen = IncomingRequest::read(arrival.format, arrival.body, &recorder.memo)?;
    recorder.resolve(arrival.principal, &mut seen)?;
    let Some(frame) = seen.frame() else { return Ok(None) };
    if !recorder.write_now(ticket)? {
        return Ok(None);
    }
    if ticket.call.is_none() {
        return compose_relayed(recorder, ticket, (&seen, frame), (arrival, composing), refused);
    }
    let (Some(call), Some(cached)) = (ticket.call, recorder.threads.of(ticket)) else { return Ok(None) };
    let input = RewriteInput::new(&seen, frame, arrival.shared);
    let request = RewriteInput { unsent: ticket.unsent, takes_tools: true, ..input };
    let made = smaller(&cached, request, (call, refused));
    cached.work();
    mark_replaced(recorder, ticket, made)
}

/// Composes a request that was sent as it came, and that its provider refused as too long. It is a client's own
/// summary, or a first request that left before it was counted.
fn compose_relayed(
    recorder: &TrafficRecorder,
    ticket: &mut PendingRecord,
    (seen, frame): (&IncomingRequest<'_>, RequestFrame<'_>),
    (arrival, composing): (&RequestArrival<'_>, &RewriteSettings),
    refused: ContextOverflow,
) -> Result<Option<RewrittenRequest>, RecordError> {
    let Some(model) = seen.model() else { return Ok(None) };
    let setup = recorder.threads.setup(&**recorder.store(), seen.format(), &model.0, composing);
    let window = composing.window.into_iter().chain(refused.limit).min();
    let limit = setup.limit_of(window, seen.answer_limit().map(Tokens));
    let place = (ticket.session, ticket.thread);
    let access =
        ThreadAccess { store: recorder.store(), composing, summariser: None, heard: &composing.heard };
    let made = CachedThread::open(access, place, setup, None).and_then(|cached| {
        cached.is_limited(limit)?;
        let input = RewriteInput::new(seen, frame, arrival.shared);
        let request = RewriteInput { takes_tools: seen.has_tools(), ..input };
        Ok((rewrite_request(&cached, (ticket.head, CallInput::default()), request)?, cached))
    });
    let made = made.map(|(made, cached)| {
        ticket.cached = Some(Arc::new(cached));
        made
    });
    mark_replaced(recorder, ticket, made)
}

/// Marks a ticket as one whose call was made again, or could not be, after the first request had left.
pub(super) fn mark_replaced(
    recorder: &TrafficRecorder,
    ticket: &mut PendingRecord,
    made: Result<Option<(PreparedCall, RewrittenRequest)>, SessionError>,
) -> Result<Option<RewrittenRequest>, RecordError> {
    if let Ok(Some((made, outgoing))) = made {
        recorder.move_to_head(ticket, made.head, Some(made.call));
        return Ok(Some(outgoing));
    }
    // The memory of a request that was rewritten in vain is wrong.
    recorder.threads.forget(ticket.thread);
    match made {
        Err(SessionError::Store(error)) if !error.is_conflict() => Err(error.into()),
        _ => Ok(None),
    }
}

/// The same request, after its provider refused it.
fn smaller(
    cached: &CachedThread,
    request: RewriteInput<'_, '_>,
    (call, refused): (u64, ContextOverflow),
) -> Result<Option<(PreparedCall, RewrittenRequest)>, SessionError> {
    let tried = cached.engine.note_overflow(call, refused)?;
    let head = cached.engine.state()?.head();
    rewrite_request(cached, (head, CallInput::default()), RewriteInput { below: Some(tried), ..request })
}
