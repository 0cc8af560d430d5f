//! Epitome's core: the events of a session as immutable facts, and everything that can be derived from them.
//!
//! Everything here is pure and synchronous: no I/O, no clock, no environment, no provider JSON. [`event`]
//! holds the facts, [`chain`] their two hash chains, [`noted`] values derived from a single event, [`turn`]
//! the turns and loops derived from them, [`pairing`] the calls joined with their results, and [`lineage`]
//! the spans that compactions cover.
//!
//! [`project`](mod@project) makes a [`context`] of them, [`reducers`] make it smaller under the eye of the
//! [`pipeline`], and [`fit`](mod@fit) keeps it within a [`budget`] or says why it cannot. [`profile`] holds
//! the known facts about a model, [`tokens`] and [`meter`] count, [`calibration`] learns the error of the
//! counts, and [`tracker`] follows the size.

pub mod blocks;
pub mod budget;
pub mod calibration;
pub mod chain;
pub mod client_text;
pub mod context;
pub mod cost;
pub mod event;
pub mod fit;
pub mod id;
pub mod inject;
pub mod lineage;
pub mod media;
pub mod meter;
pub mod noted;
pub mod pairing;
pub mod pipeline;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod project;
pub mod reducers;
pub mod seq_set;
pub mod standing;
pub mod summary;
pub mod tokens;
pub mod tracker;
pub mod turn;
mod unread;
pub mod verify;
pub mod view;

// The notation of the specs is also that of the unit tests.
#[cfg(test)]
extern crate self as epitome_core;
#[cfg(test)]
#[path = "../tests/it/notation.rs"]
mod notation;

pub use chain::{Digest, Hashing, Link};
pub use event::{Event, Fact, Logged, Part};
pub use id::{EventId, Seq, SessionId, ThreadId};
pub use noted::Noted;
pub use tokens::{TokenCounter, Tokens};
