//! Requests that pass, made to fit: the client's own bytes, with what is old taken out and a summary in its place.
//!
//! A client that never heard of compaction sends its whole history with every call. Here each call is placed in the log,
//! and what goes on to the provider is the client's request with the decisions of a policy made in it. Whatever nobody
//! touched leaves with the bytes the client sent.

mod again;
mod ahead;
mod client_cache;
mod command;
mod composition;
mod examples;
mod grown;
mod inheritance;
mod live;
mod recalling;
mod relayed;
mod script;
mod units;
mod weaving;

use std::{ops::Range, sync::Arc};

use epitome_core::{ThreadId, Tokens, event::Trigger, policy::Policy, profile::Profiles};
use tokio::sync::broadcast::Receiver;

pub(crate) use self::{
    again::Scripts,
    inheritance::Inheritance,
    live::{Live, Lives},
    recalling::as_told,
    relayed::RelayedThread,
    script::Script,
};
pub use self::{
    client_cache::{ClientCache, UnknownCache},
    recalling::Told,
};
use crate::{
    recorder::Ticket,
    session::{Lifecycle, Warm, lifecycle::Listeners},
    summarise::Summarize,
};

/// How requests are composed.
#[derive(Debug)]
pub struct Composing {
    /// When and how they are made smaller.
    pub policy: Policy,
    /// What is known of models.
    pub profiles: Arc<Profiles>,
    /// How many tokens a model's window holds, whatever its profile says.
    pub window: Option<Tokens>,
    /// How many of a million sessions are left as they are, to compare with.
    pub holdout: u32,
    /// What a user says to have the session compacted, such as `/compact`; nothing if no words do that.
    pub command: Option<String>,
    /// Whether the model of a session that begins is offered a tool by which it gets back what was left out. What a session
    /// began with it keeps: its provider's cache, and thoughts that are bound to what they were thought with, hold the tools.
    pub recall: bool,
    /// Whether a request may be written down with its answer if it only grows: a kill before that takes both along. What is
    /// decided for a request is written before it leaves in any case.
    pub with_answers: bool,
    /// Who hears what becomes of summaries.
    pub heard: Heard,
}

/// What becomes of the summaries of all sessions, for whoever listens.
#[derive(Clone, Debug)]
pub struct Heard {
    listeners: Listeners,
}

impl Default for Heard {
    fn default() -> Self {
        Self { listeners: Listeners::new(None, None) }
    }
}

impl Heard {
    /// Listens from now on. Whoever is too slow misses the oldest.
    pub fn listen(&self) -> Receiver<Lifecycle> {
        self.listeners.subscribe()
    }
}

/// Who writes the summaries of a session.
#[derive(Clone, Debug)]
pub struct Summariser {
    /// Who.
    pub summarise: Arc<dyn Summarize>,
    /// The model, for its prices.
    pub model: String,
    /// Whether the session's own request may be continued instead of showing the material to somebody else.
    pub warm: Warm,
}

/// Who writes the summaries of a session whose request asks this model; nobody, if the built-in summariser does.
pub type Summarisers<'s> = dyn Fn(&str) -> Option<Summariser> + 's;

/// What whoever sent a request wants of it beyond what its body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// How many tokens the window holds, for this request.
    pub window: Option<Tokens>,
    /// Compact now, attending to this (which may be nothing), and send nothing to the provider.
    pub compact: Option<String>,
}

/// A request that was recorded, and what becomes of it.
#[derive(Debug)]
pub struct Composed {
    /// Its record, to be [finished](crate::recorder::Recorder::finish).
    pub ticket: Ticket,
    /// What becomes of it.
    pub way: Way,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Way {
    /// It goes on to the provider, like this.
    Forward(Outgoing),
    /// It does not: the client is told something, as if the model had said it.
    Answer {
        /// What.
        words: String,
        /// The compaction that took effect with it: why, and who wrote its summary.
        compaction: Option<(Trigger, String)>,
    },
}

/// A request as it goes on.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its body, in order.
    pub cuts: Vec<Cut>,
    /// What was done.
    pub done: Done,
    /// Whether its model is offered a tool by which it gets back what was left out, unless the client has one of that name.
    pub recall: bool,
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// These bytes of the client's body.
    Client(Range<usize>),
    /// Words of ours.
    Own(String),
}

impl Cut {
    /// What it says, where `body` is the client's.
    pub fn text<'t>(&'t self, body: &'t str) -> &'t str {
        match self {
            Self::Client(range) => body.get(range.clone()).unwrap_or_default(),
            Self::Own(text) => text,
        }
    }
}

/// What was done to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The audit row: its thread and its number there; none if there is none.
    pub call: Option<(ThreadId, u64)>,
    /// As long as it is the same, each request of a thread extends the one before.
    pub epoch: u64,
    /// Why a new epoch began with it; `None` if the request only grew.
    pub cause: Option<String>,
    /// What the client sent, by our count.
    pub before: Tokens,
    /// What goes on.
    pub after: Tokens,
    /// Of what the client sent, how much a cache would have held if all its requests had gone on as they came.
    pub cache: ClientCache,
    /// The compaction that was adopted with it: why, and who wrote its summary.
    pub compaction: Option<(Trigger, String)>,
    /// Whether a policy was in charge.
    pub left: Left,
}

impl Done {
    /// Of a request that goes on as it came.
    fn nothing(left: Left) -> Self {
        let none = Tokens(0);
        Self {
            call: None,
            epoch: 0,
            cause: None,
            before: none,
            after: none,
            cache: ClientCache::AsUsed,
            compaction: None,
            left,
        }
    }
}

/// Whether a policy was in charge of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// It was.
    Composed,
    /// It was not: the session is one of those that are left as they are, to compare with.
    HeldOut,
    /// It was not: the client has its provider manage the context.
    Managed,
    /// It was not: only the provider has the history.
    Remote,
    /// It was not: it is no part of the conversation, but a title for it.
    Aside,
    /// It was not: it is the client's own summary of the conversation, and its provider's window holds it whole.
    OwnSummary,
    /// It was not: no request could be made that the provider would take.
    Unfit,
    /// It was not: the client's request itself holds what its provider would refuse, and only the client can mend it.
    Illegal,
    /// It was not: it had left as it came before it was counted, and then turned out to be longer than it was estimated.
    Ahead,
}

impl Left {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Composed => "composed",
            Self::HeldOut => "held-out",
            Self::Managed => "managed",
            Self::Remote => "remote",
            Self::Aside => "aside",
            Self::OwnSummary => "own-summary",
            Self::Unfit => "unfit",
            Self::Illegal => "illegal",
            Self::Ahead => "ahead",
        }
    }
}
