//! Replay of sessions: the cost of each policy, and the facts it would have lost.
//!
//! Every call of a session is made again under a policy, with its cache simulated and its pauses kept, and
//! compared with the facts that the session turned out to need.

mod contender;
pub mod recorded;
pub mod retention;
mod row;
mod stage;
mod total;
pub mod unseen;

pub use self::{
    contender::{Contender, Reach, Writer},
    row::{Fate, Played, Regions, Summarised},
    stage::{Outputs, Part, Shown, Stage},
    total::Total,
};
