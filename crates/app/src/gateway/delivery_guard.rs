//! A value for a task that may stop waiting for it at any moment, even while the value is on its way. So the
//! value itself knows whether it was taken, and runs a closure if it never is.

use std::fmt;

/// A value that has not been taken yet.
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
        f.debug_struct("Unheard").finish_non_exhaustive()
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
