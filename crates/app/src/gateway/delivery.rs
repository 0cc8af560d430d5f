//! Delivery of results to a task that may stop waiting at any moment, even while a result is on its way.

use std::fmt;

use bytes::Bytes;
use epitome::rewrite::RewriteReport;
use tokio::sync::oneshot;

use super::recording::{ComposeDecision, ComposeResult, ComposedRequest};

/// A request whose task waits for the thread that records it, until it may be sent.
#[derive(Debug)]
pub(super) enum WaitingRequest {
    /// It is waiting.
    Waits(oneshot::Sender<ComposeResult>),
    /// It was sent as it came; its counts go here.
    Left(oneshot::Sender<RewriteReport>),
    /// Everything was delivered, or the receiver is gone.
    Told,
}

impl WaitingRequest {
    /// Sends the request as it came, before it is counted.
    pub(super) fn send_unchanged(&mut self, body: &Bytes) {
        let Some(tell) = self.take_waiting_sender() else { return };
        let (tell_count, counted) = oneshot::channel();
        let composed = ComposedRequest { way: ComposeDecision::Whole(counted), body: body.clone() };
        // If the value is not taken, the client disconnected or its own bytes were sent for lack of time; the
        // end of the exchange shows which.
        if tell.send(Ok(Some(DeliveryGuard::new(composed, || {})))).is_ok() {
            *self = Self::Left(tell_count);
        }
    }

    /// Takes the sender that the request waits on, if it is still waiting.
    pub(super) fn take_waiting_sender(&mut self) -> Option<oneshot::Sender<ComposeResult>> {
        match std::mem::replace(self, Self::Told) {
            Self::Waits(tell) => Some(tell),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the sender for the counts, if the request was sent before.
    pub(super) fn take_count_sender(&mut self) -> Option<oneshot::Sender<RewriteReport>> {
        match std::mem::replace(self, Self::Told) {
            Self::Left(tell) => Some(tell),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// A value that knows whether it was taken, and runs a closure if it never is.
pub(super) struct DeliveryGuard<T> {
    made: Option<T>,
    /// Closure that runs if the value is never taken.
    lost: Option<Box<dyn FnOnce() + Send>>,
}

impl<T> DeliveryGuard<T> {
    /// Holds `made` until it is taken; runs `lost` if that becomes impossible.
    pub(super) fn new(made: T, lost: impl FnOnce() + Send + 'static) -> Self {
        Self { made: Some(made), lost: Some(Box::new(lost)) }
    }

    /// Takes the value.
    pub(super) fn take(mut self) -> Option<T> {
        self.lost = None;
        self.made.take()
    }
}

impl<T> Drop for DeliveryGuard<T> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            lost();
        }
    }
}

impl<T> fmt::Debug for DeliveryGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryGuard").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_nobody_takes_is_lost_wherever_it_is() {
        let lost = Arc::new(AtomicUsize::new(0));
        let made = || {
            let lost = Arc::clone(&lost);
            DeliveryGuard::new(7, move || {
                lost.fetch_add(1, Ordering::Relaxed);
            })
        };
        let count = || lost.load(Ordering::Relaxed);
        assert_eq!((made().take(), count()), (Some(7), 0));
        // The receiver is gone.
        let (tell, told) = oneshot::channel();
        drop(told);
        assert!(tell.send(made()).is_err());
        assert_eq!(count(), 1);
        // The receiver listened, and stopped while the value was on its way.
        let (tell, told) = oneshot::channel();
        assert!(tell.send(made()).is_ok());
        assert_eq!(count(), 1);
        drop(told);
        assert_eq!(count(), 2);
    }
}
