//! Signals from outside: to stop, where the first one asks and the second insists, or to read the
//! configuration again.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for signals.
#[derive(Debug)]
pub(super) struct ProcessSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalAction {
    /// Stop, after reporting it on `/readyz`.
    Terminate,
    /// Stop at once: a person at the terminal is waiting.
    Interrupt,
    /// Read the configuration again.
    Reload,
}

impl ProcessSignals {
    /// Listens from now on: a signal that comes before the first wait is not lost.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind: SignalKind| signal(kind).context("listening for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Terminate,
            _ = self.interrupt.recv() => SignalAction::Interrupt,
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }

    /// Waits for the next signal to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await == SignalAction::Reload {}
    }
}
