//! Replay of sessions: the cost of each policy, and the facts it would have lost.
//!
//! Every call of a session is made again under a policy, with its cache simulated and its pauses kept, and
//! compared with the facts that the session turned out to need.

mod assumptions;
mod candidate;
pub mod hidden_overhead;
pub mod recorded_usage;
mod replay_row;
mod replay_run;
mod replay_subject;
mod replay_totals;
pub mod retention;

pub use self::{
    assumptions::{ReplayAssumption, summary_sentences},
    candidate::{CandidateLimit, CandidateSummariser, ReplayCandidate},
    replay_row::{RegionSizes, ReplayFate, ReplayRow, ReplayedSummary},
    replay_run::{AnswerTokens, ReplayConditions, ReplayInput, ReplayedRequest, RequestRoom},
    replay_subject::{PreparedReplay, ReplaySubject, ThreadAsSent},
    replay_totals::ReplayTotals,
};
