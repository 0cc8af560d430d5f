//! What a policy would have cost a session, and what it would have lost.
//!
//! Every call that a session made is made again under a policy, its cache simulated and its pauses kept, and compared
//! with what the session turned out to need.

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
