//! Time limits for a peer that pauses.
//!
//! The clock is read only when there is nothing to do, and one timer serves all pauses: a stream of thousands
//! of chunks that never pauses for long costs one timer in all.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep, sleep_until};

/// A time limit for each pause of a peer.
#[derive(Debug)]
pub(super) struct PauseTimeout {
    limit: Duration,
    /// Moment at which the current pause becomes too long.
    end: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl PauseTimeout {
    /// Sets the limit of each pause.
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, end: None, timer: None }
    }

    /// Notes that something came: the pause is over.
    pub(super) fn reset(&mut self) {
        self.end = None;
    }

    /// Notes that nothing came. Ready when the pause has become too long.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let end = *self.end.get_or_insert_with(|| Instant::now() + limit);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        loop {
            ready!(timer.as_mut().poll(cx));
            // The timer was set for an earlier pause.
            if timer.deadline() >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    }
}

/// A connection whose peer has to accept written bytes within a time limit.
pub(super) struct WriteTimeoutStream<Io> {
    io: Io,
    patience: PauseTimeout,
}

impl<Io> WriteTimeoutStream<Io> {
    /// Limits each wait for the peer to `limit`.
    pub(super) fn within(limit: Duration, io: Io) -> Self {
        Self { io, patience: PauseTimeout::new(limit) }
    }

    fn unless_lost<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.patience.reset();
            return done;
        }
        ready!(self.patience.poll_expired(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take its answer")))
    }
}

impl<Io: Read + Unpin> Read for WriteTimeoutStream<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl<Io: Write + Unpin> Write for WriteTimeoutStream<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.unless_lost(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.unless_lost(cx, done)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Waker};

    use super::*;

    #[tokio::test]
    async fn only_a_pause_that_is_too_long_is_one() {
        let is_lost = |patience: &mut PauseTimeout| {
            let mut cx = Context::from_waker(Waker::noop());
            patience.poll_expired(&mut cx).is_ready()
        };
        let hour = Duration::from_hours(1);
        assert!(!is_lost(&mut PauseTimeout::new(hour)));
        // A timer that was set for an earlier pause does not apply to this one.
        let timer = Some(Box::pin(sleep_until(Instant::now())));
        assert!(!is_lost(&mut PauseTimeout { limit: hour, end: None, timer }));
        let mut none = PauseTimeout::new(Duration::ZERO);
        poll_fn(|cx| none.poll_expired(cx)).await;
        none.reset();
        poll_fn(|cx| none.poll_expired(cx)).await;
    }
}
