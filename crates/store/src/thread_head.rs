//! The end of a thread: where the next event goes, and what a writer says it has seen.

use epitome_core::{ChainLink, Seq};

/// The end of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHead {
    /// The place of the last event; [`Seq::START`] if there is none.
    pub seq: Seq,
    /// Both hash chains there.
    pub link: ChainLink,
}

impl ThreadHead {
    /// The head of a thread without events.
    pub const START: Self = Self { seq: Seq::START, link: ChainLink::ROOT };
}
