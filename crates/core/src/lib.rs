//! Epitome's core: the events of a session as immutable facts, and everything that can be derived from them.
//!
//! Everything here is pure and synchronous: no I/O, no clock, no environment, no provider JSON. [`event`]
//! holds the facts, [`hash_chain`] their two hash chains, [`annotated_event`] values derived from a single event, [`turn`]
//! the turns and loops derived from them, [`pairing`] the calls joined with their results, and [`lineage`]
//! the spans that compactions cover.
//!
//! [`projection`](mod@projection) makes a [`context`] of them, [`reducers`] make it smaller under the eye of the
//! [`pipeline`] (without a session by a [`compaction_strategy`]), and [`fit`](mod@fit) keeps it within a [`budget`] or says why it cannot. [`profile`] holds
//! the known facts about a model, [`tokens`] and [`meter`] count, [`calibration`] learns the error of the
//! counts, and [`tracker`] follows the size.

pub mod annotated_event;
pub mod budget;
pub mod calibration;
pub mod client_text;
pub mod compaction_strategy;
pub mod context;
pub mod cost;
pub mod cost_planner;
pub mod draft_gate;
pub mod event;
pub mod fit;
pub mod hash_chain;
pub mod id;
pub mod inject;
pub mod lineage;
pub mod loop_blocks;
pub mod media;
pub mod meter;
pub mod model_view;
pub mod pairing;
pub mod pipeline;
pub mod policy;
pub mod profile;
pub mod projection;
pub mod reducers;
pub mod seq_set;
pub mod standing_context;
pub mod summary;
pub mod tokens;
pub mod tracker;
pub mod turn;
mod unparsed_json;

// The notation of the specs is also that of the unit tests.
#[cfg(test)]
extern crate self as epitome_core;
#[cfg(test)]
#[path = "../tests/it/notation.rs"]
mod notation;

pub use annotated_event::AnnotatedEvent;
pub use event::{ContentPart, Event, Fact, LoggedEvent};
pub use hash_chain::{ChainLink, Digest, DigestHasher};
pub use id::{EventId, Seq, SessionId, ThreadId};
pub use tokens::{TokenCounter, Tokens};
