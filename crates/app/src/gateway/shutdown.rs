//! What the gateway is told from outside: to stop, where the first signal asks and the second insists, or to read its
//! configuration again.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for signals.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Stop, and let others see it first.
    Terminate,
    /// Stop: whoever sits before it waits.
    Interrupt,
    /// Read the configuration again.
    Reload,
}

impl Signals {
    /// Listens from now on: a signal that comes before anybody waits is not lost.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind: SignalKind| signal(kind).context("listening for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next.
    pub(super) async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.terminate.recv() => Order::Terminate,
            _ = self.interrupt.recv() => Order::Interrupt,
            _ = self.hangup.recv() => Order::Reload,
        }
    }

    /// Waits for the next that says to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await == Order::Reload {}
    }
}
