//! What a policy would have sent, beside what was sent: nothing of it reaches the provider.
//!
//! A thread that is observed is watched call by call, as if the policy were in charge of it from the first call on: what
//! it decided once stays decided, and each call costs the events that are new and the request that would be sent. What
//! nobody watched for a while is let go, and read from the log again when it is needed.

pub(crate) mod kept;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};

use epitome_core::{
    Seq, ThreadId, Tokens,
    event::Time,
    id::ModelName,
    policy::Policy,
    profile::{Money, Profiles},
};
use epitome_store::{Sqlite, StoreError};
use epitome_wire::Format;
use serde::{Deserialize, Serialize};

use self::{kept::Kept, watch::Watch};
use crate::{
    compact::CompactError,
    session::reading::{Counted, PAGE, read_page},
};

/// How much is kept of what is watched: with what JSON and text take, some hundred megabytes.
const WATCHED: Tokens = Tokens(8_000_000);

/// Computes beside recorded threads what a policy would have sent. Shared by all calls of a process; it blocks on the
/// store.
#[derive(Debug)]
pub struct Observer {
    policy: Policy,
    profiles: Arc<Profiles>,
    watched: Mutex<Kept<Watch>>,
}

/// What a policy would have made of a call.
///
/// The money is for input alone, since the answer is the same, and taken from a prompt cache that holds all it may: both
/// ways, so that what is left between them is the policy's doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The whole history, as it was sent.
    pub full: Tokens,
    /// What the policy would have sent.
    pub sent: Tokens,
    /// What the whole history costs; `None` where no price is known.
    pub cost_full: Option<Money>,
    /// What the policy's request costs.
    pub cost: Option<Money>,
    /// Why the policy would have changed what it had sent before; `None` if it only went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How often it has done so in this thread.
    pub epoch: u64,
    /// Why the policy would have refused to send anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Why there is no observation.
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

impl Observer {
    /// Observes under `policy`, with what `profiles` say of the models.
    pub fn new(policy: Policy, profiles: Arc<Profiles>) -> Self {
        Self { policy, profiles, watched: Mutex::new(Kept::new(WATCHED)) }
    }

    /// What the policy would have sent for the call whose last event is `head`, made at a time to a model in a format.
    ///
    /// A call must be in the log before it is observed, and the calls of a thread are best observed in their order:
    /// one from before costs reading the thread again.
    pub fn call(
        &self,
        store: &Sqlite,
        thread: ThreadId,
        head: Seq,
        model: Option<&ModelName>,
        format: Format,
        at: Time,
    ) -> Result<Observed, ObserveError> {
        let mut watch = self.watch(store, thread, head, model, format)?;
        let observed = watch.call(at).map_err(ObserveError::Request)?;
        let weight = watch.weight();
        self.watched().put(thread, watch, weight);
        Ok(observed)
    }

    /// A thread as it stands at `head`: what is kept of it and what is new, or else all of it again.
    fn watch(
        &self,
        store: &Sqlite,
        thread: ThreadId,
        head: Seq,
        model: Option<&ModelName>,
        format: Format,
    ) -> Result<Watch, StoreError> {
        // Taken out, and put back later: whoever is busy with a thread does not keep others from theirs.
        let watched = self.watched().take(thread);
        if let Some(mut watch) = watched.filter(|watch| watch.asks(model, format) && watch.head() <= head) {
            for (event, pieces) in read(store, thread, watch.head().next(), head, &watch)? {
                watch.push(event, pieces);
            }
            return Ok(watch);
        }
        let mut watch = Watch::new(thread, model, format, &self.policy, &self.profiles);
        let events = read(store, thread, Seq::START.next(), head, &watch)?;
        watch.play(events);
        Ok(watch)
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, Kept<Watch>> {
        // Whatever is in there is whole: it is worked on outside.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of a thread between two places, both included.
fn read(
    store: &Sqlite,
    thread: ThreadId,
    mut from: Seq,
    through: Seq,
    watch: &Watch,
) -> Result<Vec<Counted>, StoreError> {
    let mut events = Vec::new();
    while from <= through {
        let page = read_page(store, thread, from, watch.meter())?;
        let full = page.len() == PAGE;
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
