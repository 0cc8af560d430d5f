//! How the gateway is told to stop: the first signal asks, the second insists.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for signals.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on: a signal that comes before anybody waits is not lost.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind: SignalKind| signal(kind).context("listening for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
