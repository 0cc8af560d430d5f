//! Results of a replayed call.

use std::time::Duration;

use epitome::core::{
    Tokens,
    cost::CacheMiss,
    event::{Timestamp, Usage},
    model_view::EpochCause,
    profile::Money,
};

use super::retention::FactRetention;

/// Result of a session's call under a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayRow {
    /// Number of the call, from 0.
    pub call: u64,
    /// Time of the call, if known.
    pub at: Option<Timestamp>,
    /// Time since the call before.
    pub pause: Option<Duration>,
    /// Fate of the request.
    pub fate: ReplayFate,
    /// Size of the request, including its hidden part.
    pub tokens: Tokens,
    /// Size by region.
    pub regions: RegionSizes,
    /// Simulated usage.
    pub usage: Usage,
    /// Cost, if prices are known.
    pub money: Option<Money>,
    /// Reason why the cache held less than it might have.
    pub missed: Option<CacheMiss>,
    /// Cause of a change to what was sent before.
    pub cause: Option<EpochCause>,
    /// Tokens that the change took out of the request.
    pub evicted: Tokens,
    /// Summary that was made for it.
    pub summarised: Option<ReplayedSummary>,
    /// Number of the provider's rules that it breaks.
    pub illegal: u64,
    /// Needed facts that it held.
    pub retention: FactRetention,
    /// Number of summaries that the requests so far build on: how often the remaining content was summarised
    /// again.
    pub compactions: u64,
}

impl ReplayRow {
    /// A call that could not be made.
    pub(super) fn refused(call: u64, at: Option<Timestamp>, pause: Option<Duration>) -> Self {
        Self {
            call,
            at,
            pause,
            fate: ReplayFate::Refused,
            tokens: Tokens(0),
            regions: RegionSizes::default(),
            usage: Usage::default(),
            money: Some(Money(0)),
            missed: None,
            cause: None,
            evicted: Tokens(0),
            summarised: None,
            illegal: 0,
            retention: FactRetention::default(),
            compactions: 0,
        }
    }
}

/// Fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFate {
    /// Sent.
    Sent,
    /// Larger than the window.
    Overflowed,
    /// Not sent, because its essential content does not fit.
    Refused,
}

/// Size of a request by region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionSizes {
    /// Instructions and tools that the transcript does not show.
    pub unseen: Tokens,
    /// Instructions and tools in the transcript.
    pub prefix: Tokens,
    /// Summaries and notes.
    pub summary: Tokens,
    /// Messages of users.
    pub user: Tokens,
    /// Messages that clients and hooks wrote in the user's name.
    pub client: Tokens,
    /// Texts and tool calls of the model.
    pub answers: Tokens,
    /// Reasoning of the model.
    pub reasoning: Tokens,
    /// Results of tools in full.
    pub results: Tokens,
    /// Rest of results that were cut or replaced.
    pub shortened: Tokens,
}

/// A summary that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedSummary {
    /// Usage of the summariser; zero if no model was asked.
    pub usage: Usage,
    /// Its cost, if prices are known.
    pub money: Option<Money>,
}
