//! Blocks: overlays that stand for the loops of a session, beside the originals.
//!
//! Under pressure a loop gets a [`CompactionBlock`]. The most recent one keeps its first turns unchanged, its
//! recent turns with long outputs cut, and a line for each turn in between; earlier loops become such lines
//! altogether; loops beyond the [`CompactionScope`] share one line. [`compact_loops`] makes the blocks
//! without touching anything, and [`build_context`] puts them over a context. The originals stay in the log,
//! and each line names their events.
//!
//! A block is made once: when more loops follow, the lines of a loop that already has them stay the same,
//! byte for byte, so that the part a provider has cached stays valid.

mod config;
mod context_overlay;
mod loop_chain;
mod strategy;
mod turn_lines;
mod turn_summary;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use self::{
    config::{BlockConfig, CompactionScope},
    context_overlay::{
        ContextOverlay, LoopOverlay, TurnOverlay, build_context, compact_loops, overlay_turns, resolve_scope,
    },
    loop_chain::{LoopChain, LoopRecord},
    strategy::{BlockStrategy, LoopPosition, StrategySetting},
    turn_lines::TurnLines,
};
use crate::{
    event::{ContentPart, Timestamp},
    turn::{CompactedSection, TurnRange},
};

/// Content that is shown of a loop instead of all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionBlock {
    /// The turns at the beginning that are shown as they were; only of the most recent loop.
    pub keep_first: Option<TurnRange>,
    /// Lines that stand for the turns in between or, of an earlier loop, for all of them.
    pub keep_compacted: Option<CompactedSection<BlockMessage>>,
    /// The turns at the end, with long outputs cut; only of the most recent loop.
    pub keep_recent: Option<CompactedSection<BlockMessage>>,
    /// Time of the newest event that it could know of, because nothing here reads a clock.
    pub created_at: Option<Timestamp>,
}

/// A message of a block. Places are those of the loop's segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockMessage {
    /// The segment at a place, as it stands.
    Original(usize),
    /// The segment at a place, with its output cut.
    Shortened {
        /// The place.
        at: usize,
        /// Parts of the output that are shown.
        parts: Vec<ContentPart>,
    },
    /// Words that stand for some segments.
    Note {
        /// The segments' places.
        of: Range<usize>,
        /// Text of the note.
        text: String,
    },
}
