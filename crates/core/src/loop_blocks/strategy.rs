//! Strategy that turns a loop into a block.

use std::{fmt::Debug, ops::Deref, sync::Arc};

use crate::{
    context::{Fidelity, Segment},
    event::Timestamp,
    loop_blocks::{
        BlockConfig, BlockMessage, CompactionBlock, LoopRecord, TurnLines, context_overlay::BLOCKS_AUTHOR,
    },
    reducers::{CutOutputs, stub_text::StubWriter},
    turn::{CompactedSection, TurnRange},
};

/// Makes a block of a loop.
///
/// An implementor decides how a range of turns is summarised; the rest has defaults. It must be deterministic
/// and cover every turn of the range: a turn that it does not summarise must be among its messages as an
/// [original](BlockMessage::Original), in order. It may replace only the segments that [`LoopRecord::runs`]
/// gives: those in between are essential or pinned.
///
/// ```
/// use epitome_core::{
///     loop_blocks::{BlockConfig, BlockMessage, BlockStrategy, LoopRecord},
///     turn::{CompactedSection, TurnRange},
/// };
///
/// #[derive(Debug)]
/// struct Counted;
///
/// impl BlockStrategy for Counted {
///     fn name(&self) -> &'static str {
///         "counted"
///     }
///
///     fn keep_compacted(
///         &self,
///         record: &LoopRecord<'_>,
///         range: TurnRange,
///         config: &BlockConfig,
///     ) -> Option<CompactedSection<BlockMessage>> {
///         let mut messages = Vec::new();
///         let mut place = record.places_of(range).start;
///         for run in record.runs(range, config) {
///             messages.extend((place..run.start).map(BlockMessage::Original));
///             let folded = record.folded(run.clone());
///             let text = format!("[{} turns; {}]", folded.turn_count(), record.names().handles(&folded.events));
///             place = run.end;
///             messages.push(BlockMessage::Note { of: run, text });
///         }
///         messages.extend((place..record.places_of(range).end).map(BlockMessage::Original));
///         Some(CompactedSection { range, messages })
///     }
/// }
/// ```
pub trait BlockStrategy: Debug + Send + Sync {
    /// Name of the strategy.
    fn name(&self) -> &'static str;

    /// Summarises a range of turns. `None` if they stay unchanged.
    fn keep_compacted(
        &self,
        record: &LoopRecord<'_>,
        range: TurnRange,
        config: &BlockConfig,
    ) -> Option<CompactedSection<BlockMessage>>;

    /// The turns at the beginning of the most recent loop that stay as they were.
    fn keep_first(&self, record: &LoopRecord<'_>, config: &BlockConfig) -> Option<TurnRange> {
        let end_turn = record.turns().turn_count().min(config.keep_first_turns).checked_sub(1)?;
        Some(TurnRange { start_turn: 0, end_turn })
    }

    /// The turns at the end of the most recent loop, with long outputs cut; none of those that
    /// [`keep_first`](Self::keep_first) takes.
    fn keep_recent(
        &self,
        record: &LoopRecord<'_>,
        config: &BlockConfig,
    ) -> Option<CompactedSection<BlockMessage>> {
        let after_first = self.keep_first(record, config).map_or(0, |first| first.end_turn + 1);
        let range = recent_turns(record, config, after_first)?;
        let messages = record.places_of(range).map(|at| shortened(record, at, config)).collect();
        Some(CompactedSection { range, messages })
    }

    /// Assembles a block: all three sections of the most recent loop, only the summarised turns of an earlier
    /// one.
    fn compact(
        &self,
        record: &LoopRecord<'_>,
        config: &BlockConfig,
        place: LoopPosition,
        created_at: Option<Timestamp>,
    ) -> CompactionBlock {
        let Some(all) = record.all_turns() else { return CompactionBlock::default() };
        match place {
            LoopPosition::Earlier => CompactionBlock {
                keep_compacted: self.keep_compacted(record, all, config),
                created_at,
                ..CompactionBlock::default()
            },
            LoopPosition::MostRecent => {
                let keep_first = self.keep_first(record, config);
                let keep_recent = self.keep_recent(record, config);
                let recent = keep_recent.as_ref().map(|recent| recent.range);
                let middle = between(all, keep_first, recent);
                let keep_compacted = middle.and_then(|middle| self.keep_compacted(record, middle, config));
                CompactionBlock { keep_first, keep_compacted, keep_recent, created_at }
            }
        }
    }
}

/// Position of a loop in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopPosition {
    /// It is the last one that was answered.
    MostRecent,
    /// Another followed it.
    Earlier,
}

/// A strategy as a setting. Two are the same if they have the same name.
#[derive(Clone, Debug)]
pub struct StrategySetting(pub Arc<dyn BlockStrategy>);

impl Default for StrategySetting {
    fn default() -> Self {
        Self(Arc::new(TurnLines))
    }
}

impl Deref for StrategySetting {
    type Target = dyn BlockStrategy;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl PartialEq for StrategySetting {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for StrategySetting {}

/// The last turns of a loop, none of them before `after_first`.
pub(super) fn recent_turns(
    record: &LoopRecord<'_>,
    config: &BlockConfig,
    after_first: usize,
) -> Option<TurnRange> {
    let turns = record.turns().turn_count();
    let start_turn = turns.saturating_sub(config.keep_recent_turns).max(after_first);
    (start_turn < turns).then(|| TurnRange { start_turn, end_turn: turns - 1 })
}

/// The turns of `all` after `first` and before `recent`.
pub(super) fn between(
    all: TurnRange,
    first: Option<TurnRange>,
    recent: Option<TurnRange>,
) -> Option<TurnRange> {
    let start_turn = first.map_or(all.start_turn, |first| first.end_turn + 1);
    let end = recent.map_or(all.end_turn + 1, |recent| recent.start_turn);
    (start_turn < end).then(|| TurnRange { start_turn, end_turn: end - 1 })
}

/// A segment of a recent turn: an output that is too long is cut, once, and not if the model has yet to read it.
fn shortened(record: &LoopRecord<'_>, at: usize, config: &BlockConfig) -> BlockMessage {
    let segment = &record.segments()[at];
    if segment.call().is_none()
        || record.is_held(at)
        || segment.fidelity() > Fidelity::Cut
        || is_ours(segment)
    {
        return BlockMessage::Original(at);
    }
    let scribe = StubWriter::of(record.context());
    let cut = CutOutputs::by_lines(config.tool_output_max_lines).cut_parts(&scribe, segment);
    match cut {
        Some((parts, _)) => BlockMessage::Shortened { at, parts },
        None => BlockMessage::Original(at),
    }
}

/// Returns true if a block already stands over a segment.
fn is_ours(segment: &Segment) -> bool {
    segment.last_author() == Some(BLOCKS_AUTHOR)
}
