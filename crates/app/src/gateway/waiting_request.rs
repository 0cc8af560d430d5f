//! A request that waits for the thread which records it, until it may be sent.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use epitome::rewrite::RewriteReport;
use tokio::sync::oneshot;

use super::{
    delivery_guard::DeliveryGuard,
    recording::{ComposeDecision, ComposeResult, ComposedRequest},
};

/// A request that waits to be sent.
#[derive(Debug)]
pub(super) struct WaitingRequest(Mutex<WaitState>);

#[derive(Debug)]
enum WaitState {
    /// It is waiting.
    Waits(oneshot::Sender<ComposeResult>),
    /// It was sent as it came; its counts go here.
    Left(oneshot::Sender<RewriteReport>),
    /// Everything was delivered, or the receiver is gone.
    Told,
}

impl WaitingRequest {
    /// Makes a request that is notified through `tell`.
    pub(super) fn new(tell: oneshot::Sender<ComposeResult>) -> Self {
        Self(Mutex::new(WaitState::Waits(tell)))
    }

    /// Sends the request as it came, before it is counted.
    pub(super) fn send_unchanged(&self, body: &Bytes) {
        let Some(tell) = self.take_waiting_sender() else { return };
        let (tell_count, counted) = oneshot::channel();
        let composed = ComposedRequest { way: ComposeDecision::Whole(counted), body: body.clone() };
        // If the value is not taken, the client disconnected or its own bytes were sent for lack of time; the
        // end of the exchange shows which.
        if tell.send(Ok(Some(DeliveryGuard::new(composed, || {})))).is_ok() {
            *self.state() = WaitState::Left(tell_count);
        }
    }

    /// Takes the sender that the request waits on, if it is still waiting.
    pub(super) fn take_waiting_sender(&self) -> Option<oneshot::Sender<ComposeResult>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, WaitState::Told) {
            WaitState::Waits(tell) => Some(tell),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Takes the sender for the counts, if the request was sent before.
    pub(super) fn take_count_sender(&self) -> Option<oneshot::Sender<RewriteReport>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, WaitState::Told) {
            WaitState::Left(tell) => Some(tell),
            other => {
                *state = other;
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        // Every change under this lock is complete, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
