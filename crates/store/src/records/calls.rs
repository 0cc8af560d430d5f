//! Calls of models: what went into each request, and how it ended. Append-only, so that any request can be made again
//! and compared with what was sent.

use epitome_core::{
    Digest, EventId, Seq, ThreadId, Tokens,
    event::{Time, Usage},
    id::AnswerId,
    profile::Money,
};

/// A text that is stored once and named by its hash: a policy, a profile, the options of a rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The hash of the text. It is checked.
    pub hash: Digest,
    /// The text.
    pub text: String,
}

impl Content {
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
    /// When it was made.
    pub time: Option<Time>,
    /// Who was asked.
    pub model: Option<String>,
    /// In whose format.
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
    /// Why an epoch began with it.
    pub cause: Option<String>,
    /// What was decided for it, as JSON.
    pub pass: Option<String>,
    /// What was sent, as JSON; [`RELAYED`](Self::RELAYED) of what was relayed.
    pub sent: String,
    /// The edits and injections applied, as JSON.
    pub steps: String,
    /// What was planned, as JSON.
    pub plan: Option<String>,
    /// How the request of a client was taken over, as JSON; nothing if the request was rendered.
    pub script: Option<String>,
    /// Its size, as it was estimated.
    pub estimated: Tokens,
    /// The hash of its bytes.
    pub hash: Digest,
    /// How many bytes it had.
    pub bytes: u64,
}

impl NewCall {
    /// What was sent, of a request that was relayed as its client sent it: no view was made for it.
    pub const RELAYED: &str = "null";

    /// Whether it was relayed as its client sent it.
    pub fn is_relayed(&self) -> bool {
        self.sent == Self::RELAYED
    }
}

/// How a call ended. It may be reported in several parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOutcome {
    /// The number of the call in the thread's view.
    pub call: u64,
    /// When it was known.
    pub time: Option<Time>,
    /// The answer.
    pub answer: Option<AnswerId>,
    /// What the provider counted.
    pub usage: Option<Usage>,
    /// What it cost.
    pub cost: Option<Money>,
    /// What went wrong.
    pub error: Option<String>,
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
    /// What was reported of its end, in order; nothing if it never came.
    pub outcomes: Vec<Outcome>,
}

/// What was reported of a call's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it was known.
    pub time: Option<Time>,
    /// The answer.
    pub answer: Option<AnswerId>,
    /// What the provider counted.
    pub usage: Option<Usage>,
    /// What it cost.
    pub cost: Option<Money>,
    /// What went wrong.
    pub error: Option<String>,
}
