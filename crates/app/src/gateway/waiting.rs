//! A request that waits for the thread which records it, until it may go on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use epitome::compose::Done;
use tokio::sync::oneshot;

use super::{
    recording::{Becomes, Composed, Taken},
    unheard::Unheard,
};

/// A request that waits to go on.
#[derive(Debug)]
pub(super) struct WaitingRequest(Mutex<State>);

#[derive(Debug)]
enum State {
    /// It waits.
    Waits(oneshot::Sender<Taken>),
    /// It went on as it came, and is told how it was counted.
    Left(oneshot::Sender<Done>),
    /// There is nothing more to tell, or nobody to hear it.
    Told,
}

impl WaitingRequest {
    /// One that hears by `tell` what becomes of it.
    pub(super) fn new(tell: oneshot::Sender<Taken>) -> Self {
        Self(Mutex::new(State::Waits(tell)))
    }

    /// It goes on as it came, before it is counted.
    pub(super) fn goes_on_whole(&self, body: &Bytes) {
        let Some(tell) = self.waits() else { return };
        let (tell_count, counted) = oneshot::channel();
        let composed = Composed { way: Becomes::Whole(counted), body: body.clone() };
        // If nobody takes it, the client is gone or its own bytes went on for lack of time: its ending tells of that.
        if tell.send(Ok(Some(Unheard::new(composed, || {})))).is_ok() {
            *self.state() = State::Left(tell_count);
        }
    }

    /// By what it is told, if it still waits.
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

    /// By what it is told how it was counted, if it went on before.
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
        // Nothing in there is ever half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
