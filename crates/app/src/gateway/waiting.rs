//! A request that waits for the thread which records it, until it may be sent.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use epitome::compose::Done;
use tokio::sync::oneshot;

use super::{
    recording::{Becomes, Composed, Taken},
    unheard::Unheard,
};

/// A request that waits to be sent.
#[derive(Debug)]
pub(super) struct WaitingRequest(Mutex<State>);

#[derive(Debug)]
enum State {
    /// It is waiting.
    Waits(oneshot::Sender<Taken>),
    /// It was sent as it came; its counts go here.
    Left(oneshot::Sender<Done>),
    /// Everything was delivered, or the receiver is gone.
    Told,
}

impl WaitingRequest {
    /// Makes a request that is notified through `tell`.
    pub(super) fn new(tell: oneshot::Sender<Taken>) -> Self {
        Self(Mutex::new(State::Waits(tell)))
    }

    /// Sends the request as it came, before it is counted.
    pub(super) fn goes_on_whole(&self, body: &Bytes) {
        let Some(tell) = self.waits() else { return };
        let (tell_count, counted) = oneshot::channel();
        let composed = Composed { way: Becomes::Whole(counted), body: body.clone() };
        // If the value is not taken, the client disconnected or its own bytes were sent for lack of time; the
        // end of the exchange shows which.
        if tell.send(Ok(Some(Unheard::new(composed, || {})))).is_ok() {
            *self.state() = State::Left(tell_count);
        }
    }

    /// Takes the sender that the request waits on, if it is still waiting.
    pub(super) fn waits(&self) -> Option<oneshot::Sender<Taken>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Told) {
            State::Waits(tell) => Some(tell),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Takes the sender for the counts, if the request was sent before.
    pub(super) fn has_left(&self) -> Option<oneshot::Sender<Done>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Told) {
            State::Left(tell) => Some(tell),
            other => {
                *state = other;
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under this lock is complete, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
