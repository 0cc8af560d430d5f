//! Calls of models: the content of each request, and its outcome. Append-only, so that any request can be
//! made again and compared with the one that was sent.

use epitome_core::{
    Digest, EventId, Seq, ThreadId, Tokens,
    event::{Timestamp, Usage},
    id::AnswerId,
    profile::Money,
};
use serde::{Deserialize, Serialize};

/// A text that is stored once and named by its hash: a policy, a profile, the options of a rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedText {
    /// The hash of the text. It is checked.
    pub hash: Digest,
    /// The text.
    pub text: String,
}

impl HashedText {
    /// A text under its hash.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { hash: Digest::of(text.as_bytes()), text }
    }
}

/// A request to a model, with everything it follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCall {
    /// The last event it saw. No call sees less than the one before it.
    pub head: Seq,
    /// Time of the call.
    pub time: Option<Timestamp>,
    /// Model that was asked.
    pub model: Option<String>,
    /// Format of the request.
    pub format: String,
    /// The policy, by content.
    pub policy: Digest,
    /// The model's profile, by content.
    pub profile: Option<Digest>,
    /// The options of the rendering, by content.
    pub rendering: Digest,
    /// The compaction it stands on.
    pub summary: Option<EventId>,
    /// The epoch of the view.
    pub epoch: u64,
    /// Cause of the epoch that began with it.
    pub cause: Option<String>,
    /// Decisions for it, as JSON.
    pub pass: Option<String>,
    /// State of the view when it was sent, as JSON; [`RELAYED_SENT`](Self::RELAYED_SENT) for a relayed request.
    pub sent: String,
    /// The edits and injections applied, as JSON.
    pub steps: String,
    /// Plan, as JSON.
    pub plan: Option<String>,
    /// Record of rewriting a client's request, as JSON; `None` if the request was rendered.
    pub script: Option<String>,
    /// Its size, as it was estimated.
    pub estimated: Tokens,
    /// The hash of its bytes.
    pub hash: Digest,
    /// Number of bytes.
    pub bytes: u64,
}

impl NewCall {
    /// Value of `sent` for a request that was relayed as its client sent it: no view was made for it.
    pub const RELAYED_SENT: &str = "null";

    /// Returns true if it was relayed as its client sent it.
    pub fn is_relayed(&self) -> bool {
        self.sent == Self::RELAYED_SENT
    }
}

/// Outcome of a call. It may be reported in several parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCallOutcome {
    /// The number of the call in the thread's view.
    pub call: u64,
    /// Time at which it was known.
    pub time: Option<Timestamp>,
    /// The answer.
    pub answer: Option<AnswerId>,
    /// Usage that the provider counted.
    pub usage: Option<Usage>,
    /// Cost of the call.
    pub cost: Option<Money>,
    /// Error, if any.
    pub error: Option<String>,
    /// Numbers of the provider that refused it as too long, if one did.
    pub refusal: Option<SizeRefusal>,
}

/// Refusal of a request as too long, with the numbers that the provider gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeRefusal {
    /// The provider's limit.
    pub limit: Option<Tokens>,
    /// Size of the request in the provider's count.
    pub asked: Option<Tokens>,
}

/// A call as a thread sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// The thread that made it.
    pub thread: ThreadId,
    /// Its number, from 0. A fork shares the calls that its parent had made up to the fork point, and counts on.
    pub number: u64,
    /// The request.
    pub call: NewCall,
    /// Reports about its end, in order; empty if it never came.
    pub outcomes: Vec<OutcomeRow>,
}

/// Size of a request, by our estimate and by its provider's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedCall {
    /// Our estimate.
    pub estimated: Tokens,
    /// The provider's count.
    pub counted: Tokens,
}

/// Report about a call's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeRow {
    /// Time at which it was known.
    pub time: Option<Timestamp>,
    /// The answer.
    pub answer: Option<AnswerId>,
    /// Usage that the provider counted.
    pub usage: Option<Usage>,
    /// Cost of the call.
    pub cost: Option<Money>,
    /// Error, if any.
    pub error: Option<String>,
    /// Numbers of the provider that refused it as too long, if one did.
    pub refusal: Option<SizeRefusal>,
}
