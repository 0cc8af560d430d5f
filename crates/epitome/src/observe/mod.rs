//! Observation of a policy: the requests that it would have sent, computed beside the real ones. None of this
//! reaches the provider.
//!
//! An observed thread is followed call by call, as if the policy had been in use from the first call on: its
//! decisions persist, and each call costs only the new events and the request that would be sent. A thread
//! that has not been observed for a while is dropped, and read from the log again when it is needed.

mod watched_thread;

use std::sync::{Arc, Mutex, PoisonError};

use epitome_core::{
    Seq, ThreadId, Tokens,
    event::Timestamp,
    id::ModelName,
    policy::Policy,
    profile::{Money, Profiles},
};
use epitome_store::{Store, StoreError};
use epitome_wire::Format;
use serde::{Deserialize, Serialize};

use self::watched_thread::WatchedThread;
use crate::{
    compact::CompactError,
    session::thread_reading::{EVENTS_PER_PAGE, MeteredEvent, read_page},
    thread_lru::ThreadLru,
};

/// Total size of the observed threads in memory: with the overhead of JSON and text, some hundred megabytes.
const MAX_WATCHED_TOKENS: Tokens = Tokens(8_000_000);

/// Computes for recorded threads what a policy would have sent. It is shared by all calls of a process, and
/// blocks on the store.
#[derive(Debug)]
pub struct PolicyObserver {
    policy: Policy,
    profiles: Arc<Profiles>,
    watched: Mutex<ThreadLru<WatchedThread>>,
}

/// Result of a policy for one call.
///
/// The cost is for input alone, since the answer is the same, and assumes for both requests a prompt cache
/// that holds all it may, so that the difference between them is due to the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyObservation {
    /// Size of the whole history, as it was sent.
    pub full: Tokens,
    /// Size of the policy's request.
    pub sent: Tokens,
    /// Cost of the whole history; `None` if no price is known.
    pub cost_full: Option<Money>,
    /// Cost of the policy's request.
    pub cost: Option<Money>,
    /// Cause of a new epoch, if the policy would have changed what it had sent before; `None` if the request
    /// only grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Number of epochs that it has begun in this thread.
    pub epoch: u64,
    /// Reason why the policy would have refused to send a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Reason for a missing observation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The thread cannot be read.
    #[error("observing a call: its thread cannot be read: {0}")]
    Store(#[from] StoreError),
    /// No request can be made of the thread, with or without a policy.
    #[error("observing a call: no request can be made of its thread")]
    Request(#[source] CompactError),
}

impl PolicyObserver {
    /// Observes under `policy`, with the models of `profiles`.
    pub fn new(policy: Policy, profiles: Arc<Profiles>) -> Self {
        Self { policy, profiles, watched: Mutex::new(ThreadLru::new(MAX_WATCHED_TOKENS)) }
    }

    /// Computes what the policy would have sent for the call whose last event is `head`, made at `at` to
    /// `model` in `format`.
    ///
    /// A call must be in the log before it is observed, and the calls of a thread are best observed in their
    /// order: an earlier one means reading the thread again.
    pub fn call(
        &self,
        store: &dyn Store,
        thread: ThreadId,
        head: Seq,
        model: Option<&ModelName>,
        format: Format,
        at: Timestamp,
    ) -> Result<PolicyObservation, ObserveError> {
        let mut watch = self.watch(store, thread, head, model, format)?;
        let observed = watch.call(at).map_err(ObserveError::Request)?;
        let weight = watch.weight();
        self.watched().put(thread, watch, weight);
        Ok(observed)
    }

    /// The thread as it stands at `head`: from memory with the new events, or else read again as a whole.
    fn watch(
        &self,
        store: &dyn Store,
        thread: ThreadId,
        head: Seq,
        model: Option<&ModelName>,
        format: Format,
    ) -> Result<WatchedThread, StoreError> {
        // It is taken out and put back later, so that work on one thread does not block the others.
        let watched = self.watched().take(thread);
        if let Some(mut watch) = watched.filter(|watch| watch.asks(model, format) && watch.head() <= head) {
            for (event, pieces) in read(store, thread, watch.head().next(), head, &watch)? {
                watch.push(event, pieces);
            }
            return Ok(watch);
        }
        let mut watch = WatchedThread::new(thread, model, format, &self.policy, &self.profiles);
        let events = read(store, thread, Seq::START.next(), head, &watch)?;
        watch.play(events);
        Ok(watch)
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, ThreadLru<WatchedThread>> {
        // The lock is never held during work, so a poisoned lock is usable.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events of a thread between two places, both included.
fn read(
    store: &dyn Store,
    thread: ThreadId,
    mut from: Seq,
    through: Seq,
    watch: &WatchedThread,
) -> Result<Vec<MeteredEvent>, StoreError> {
    let mut events = Vec::new();
    while from <= through {
        let page = read_page(store, thread, from, watch.meter())?;
        let full = page.len() == EVENTS_PER_PAGE;
        let Some((last, _)) = page.last() else { break };
        from = last.id.seq.next();
        events.extend(page.into_iter().filter(|(event, _)| event.id.seq <= through));
        if !full {
            break;
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests;
