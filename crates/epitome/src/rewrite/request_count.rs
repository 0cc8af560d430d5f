//! The size of a request as it would be sent: composed like the request itself, from the same state, with nothing written.
//!
//! Clients size their windows by a provider's counting route. If that counted what the client holds, they would compact what
//! is compacted already.

use std::sync::Arc;

use epitome_core::{AnnotatedEvent, Event, Seq, Tokens, context::EventNaming, projection::project};
use epitome_store::ThreadStart;
use epitome_wire::incoming::RequestFrame;

use super::{
    BodySlice, LifecycleHub,
    client_call::draft_request,
    request_rewrite::RequestRewrite,
    rewrite_decision::{CallTarget, DispositionPlan, RewriteDecision},
    thread_cache::{CachedThread, ThreadAccess},
};
use crate::{
    compact,
    recorder::{RecordError, placement::RequestPlace},
    session::{
        SessionError,
        call_input::{CallInput, LimitTrust},
        setup::RequestLimit,
        thread_reading::read_span,
    },
};

/// Size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    /// Tokens of the request that would be sent, as the provider would count them as far as that is known.
    pub tokens: Tokens,
    /// True if the client's own request would be sent, which its provider can count itself.
    pub is_unchanged: bool,
}

impl<'b> RequestRewrite<'_, 'b> {
    /// Counts the request as it would be sent. Nothing is written.
    pub fn count(&mut self) -> Result<RequestCount, RecordError> {
        let RewriteDecision { place, plan, .. } = self.decide()?;
        let composed = match plan {
            DispositionPlan::Compose(target, frame) | DispositionPlan::Fork(target, frame) => {
                self.count_composed(place, target, frame)
            }
            DispositionPlan::Relay(_) | DispositionPlan::Compact(..) | DispositionPlan::Summarise(..) => {
                Ok(None)
            }
        };
        match composed {
            Ok(Some(count)) => Ok(count),
            Err(SessionError::Store(error)) => Err(error.into()),
            Ok(None) | Err(_) => Ok(self.count_whole()),
        }
    }

    /// Size of the client's own request.
    fn count_whole(&self) -> RequestCount {
        let seen = &self.request.seen;
        let line = compact::line(seen.opening().into_iter().chain(seen.events(0)));
        let tokens = match CallTarget::of(self) {
            Some(target) => project(&line, Arc::clone(&target.setup.meter), EventNaming::Messages).tokens(),
            // No token is shorter than a byte, and few are much longer than four.
            None => Tokens(seen.body().len() as u64 / 4),
        };
        RequestCount { tokens, is_unchanged: true }
    }

    /// Composes the request in a state of its own, which is dropped.
    fn count_composed(
        &self,
        place: RequestPlace,
        CallTarget { setup, limit, .. }: CallTarget,
        frame: RequestFrame<'b>,
    ) -> Result<Option<RequestCount>, SessionError> {
        let limit = self.limit_of_session(&place)?.unwrap_or(limit);
        let (heard, place_of) = (LifecycleHub::default(), (place.session, place.thread));
        let access = ThreadAccess { heard: &heard, ..self.access() };
        let cached = match &place.opens {
            Some(_) => CachedThread::fresh(access, place_of, setup),
            None => CachedThread::open(access, place_of, setup, None)?,
        };
        let cached = cached.without_memory();
        cached.is_limited(limit)?;
        let unanswered = self.unanswered(&place);
        let after = if place.opens.is_some() { Seq::START } else { place.after };
        let mut events = self.shared_events(&place)?;
        events.extend(place.new);
        let events = events.into_iter().map(AnnotatedEvent::from).collect();
        let (opens, taught) = (place.opens, LimitTrust::Doubted);
        let arriving = CallInput { events, opens, taught, unanswered, ..CallInput::default() };
        let drafted = draft_request(&cached, (after, arriving), self.input(frame))?;
        Ok(drafted.map(|drafted| RequestCount {
            tokens: drafted.expected,
            is_unchanged: is_whole(&drafted.cuts, self.request.seen.body().len()),
        }))
    }

    /// The limit of the session's last request, if this process has made it: clients do not say in a counting request how long
    /// the answer may be.
    fn limit_of_session(&self, place: &RequestPlace) -> Result<Option<RequestLimit>, SessionError> {
        if self.request.seen.answer_limit().is_some() {
            return Ok(None);
        }
        let thread = match place.opens.as_ref().map(|opens| &opens.thread.start) {
            Some(ThreadStart::Fork { of, .. }) => *of,
            _ => place.thread,
        };
        let Some(cached) = self.recorder.threads.get(thread) else { return Ok(None) };
        let window = self.wishes.window.or(self.composing.window);
        Ok(cached.engine.state()?.limit.filter(|limit| limit.window == window))
    }

    /// Events that a fork shares with its parent.
    fn shared_events(&self, place: &RequestPlace) -> Result<Vec<Event>, SessionError> {
        let start = place.opens.as_ref().map(|opens| &opens.thread.start);
        let Some(ThreadStart::Fork { of, at }) = start else { return Ok(Vec::new()) };
        let shared = read_span(&**self.recorder.store(), *of, Seq::START.next(), *at)?;
        Ok(shared.into_iter().map(|logged| logged.event).collect())
    }
}

/// Returns true if the pieces are the client's body from its beginning to its end.
fn is_whole(cuts: &[BodySlice], length: usize) -> bool {
    let mut end = 0;
    for cut in cuts {
        match cut {
            BodySlice::Client(range) if range.start == end => end = range.end,
            BodySlice::Own(text) if text.is_empty() => {}
            _ => return false,
        }
    }
    end == length
}
