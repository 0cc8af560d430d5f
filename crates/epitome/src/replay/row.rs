//! What a call came to.

use std::time::Duration;

use epitome_core::{
    Tokens,
    cost::Miss,
    event::{Time, Usage},
    profile::Money,
    view::Cause,
};

use super::retention::Retention;

/// What a call of a session came to under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// The call, from 0.
    pub call: u64,
    /// When it was made, if anyone knows.
    pub at: Option<Time>,
    /// How long after the call before.
    pub pause: Option<Duration>,
    /// Whether it could be sent.
    pub fate: Fate,
    /// The size of the request, with what the transcript does not show of it.
    pub tokens: Tokens,
    /// What that is made of.
    pub regions: Regions,
    /// What of it the cache held, by the simulation.
    pub usage: Usage,
    /// What that costs, where prices are known.
    pub money: Option<Money>,
    /// Why the cache held less than it might have.
    pub missed: Option<Miss>,
    /// Why what was sent before was changed for this call.
    pub cause: Option<Cause>,
    /// How many tokens that took out of the request.
    pub evicted: Tokens,
    /// The summary that was made for it.
    pub summarised: Option<Summarised>,
    /// How many rules of the provider it breaks.
    pub illegal: u64,
    /// What of the needed past it held.
    pub retention: Retention,
    /// How many summaries its requests have stood on so far: how often what is left was summed up again.
    pub compactions: u64,
}

impl Played {
    /// A call that could not be made.
    pub(super) fn refused(call: u64, at: Option<Time>, pause: Option<Duration>) -> Self {
        Self {
            call,
            at,
            pause,
            fate: Fate::Refused,
            tokens: Tokens(0),
            regions: Regions::default(),
            usage: Usage::default(),
            money: Some(Money(0)),
            missed: None,
            cause: None,
            evicted: Tokens(0),
            summarised: None,
            illegal: 0,
            retention: Retention::default(),
            compactions: 0,
        }
    }
}

/// Whether a request could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It could.
    Sent,
    /// It is larger than the window.
    Overflowed,
    /// What must be sent does not fit, and nothing was.
    Refused,
}

/// What a request is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Instructions and tools that the transcript does not show.
    pub unseen: Tokens,
    /// Instructions and tools that it does.
    pub prefix: Tokens,
    /// Summaries and notes.
    pub summary: Tokens,
    /// What users said.
    pub user: Tokens,
    /// Messages that clients and hooks wrote in the user's name.
    pub client: Tokens,
    /// What the model said and which tools it called.
    pub answers: Tokens,
    /// What the model thought.
    pub reasoning: Tokens,
    /// What tools gave back, verbatim.
    pub results: Tokens,
    /// What is left of results that were cut or replaced.
    pub shortened: Tokens,
}

/// A summary that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summarised {
    /// What its maker used; nothing, if no model was asked.
    pub usage: Usage,
    /// What that costs, where prices are known.
    pub money: Option<Money>,
}
