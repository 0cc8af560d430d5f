//! Blocks over a whole chain of loops: the scope they reach back to, and the context under them.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    context::{Context, Fidelity, Segment, SegmentEdit},
    event::ContentPart,
    id::Seq,
    loop_blocks::{
        BlockConfig, BlockMessage, CompactionBlock, CompactionScope, LoopChain, LoopPosition, LoopRecord,
        strategy::{between, recent_turns},
    },
    reducers::stub_text::StubWriter,
    seq_set::SeqSet,
    tokens::Tokens,
    turn::TurnRange,
};

/// Author of the changes that put blocks over a context.
pub(crate) const BLOCKS_AUTHOR: &str = "blocks";

/// The blocks of a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextOverlay {
    /// The segments of loops beyond the scope that become one line; several runs if something between them must stay.
    pub beyond: Vec<Range<usize>>,
    /// The loops within the scope, oldest first, and the most recent.
    pub loops: Vec<LoopOverlay>,
}

/// The block of one loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopOverlay {
    /// Places of the loop's segments in the context.
    pub places: Range<usize>,
    /// Its block.
    pub block: CompactionBlock,
}

/// Number of earlier loops of a chain that are summarised turn by turn.
pub fn resolve_scope(chain: &LoopChain<'_>, config: &BlockConfig, max_context_tokens: Tokens) -> usize {
    let records: Vec<LoopRecord<'_>> = chain.records().collect();
    let Some((recent, earlier)) = records.split_last() else { return 0 };
    match config.compaction_scope {
        CompactionScope::FixedCount(loops) => loops.min(earlier.len()),
        CompactionScope::TokenBudget => {
            let mut needed = outside(chain, recent, earlier, config);
            let told = earlier.iter().rev().take_while(|record| {
                needed += record.all_turns().map_or(Tokens(0), |all| told(record, all, config));
                needed <= max_context_tokens
            });
            told.count()
        }
    }
}

/// Makes the blocks of a context: all three sections of the most recent loop, only the summarised turns of
/// the earlier ones within the scope. Nothing is changed.
pub fn compact_loops(context: &Context, config: &BlockConfig, max_context_tokens: Tokens) -> ContextOverlay {
    let chain = LoopChain::of(context);
    let scope = resolve_scope(&chain, config, max_context_tokens);
    let records: Vec<LoopRecord<'_>> = chain.records().collect();
    let Some((recent, earlier)) = records.split_last() else { return ContextOverlay::default() };
    let (beyond, within) = earlier.split_at(earlier.len() - scope);
    let beyond = match (beyond.first(), beyond.last()) {
        (Some(first), Some(last)) => chain.runs(first.places().start..last.places().end),
        _ => Vec::new(),
    };
    let time = chain.time();
    let overlay = |record: &LoopRecord<'_>, place| LoopOverlay {
        places: record.places(),
        block: config.block_strategy.compact(record, config, place, time),
    };
    let mut loops: Vec<LoopOverlay> =
        within.iter().map(|record| overlay(record, LoopPosition::Earlier)).collect();
    loops.push(overlay(recent, LoopPosition::MostRecent));
    ContextOverlay { beyond, loops }
}

/// Some turns of a loop that are to be summarised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnOverlay {
    /// Places of the loop's segments in the context.
    pub places: Range<usize>,
    /// Indices of the turns within the loop.
    pub turns: Range<usize>,
}

/// Summarises some turns of a context's loops by the configured strategy, in the name of `author`.
pub fn overlay_turns(
    author: &'static str,
    context: &Context,
    overlays: &[TurnOverlay],
    config: &BlockConfig,
) -> Context {
    let chain = LoopChain::of(context);
    let block = |record: LoopRecord<'_>| {
        let overlay = overlays.iter().find(|overlay| overlay.places == record.places())?;
        let end_turn = overlay.turns.end.checked_sub(1)?;
        let range = TurnRange { start_turn: overlay.turns.start, end_turn };
        let keep_compacted = config.block_strategy.keep_compacted(&record, range, config);
        let block = CompactionBlock { keep_compacted, ..CompactionBlock::default() };
        Some(LoopOverlay { places: record.places(), block })
    };
    let loops = chain.records().filter_map(block).collect();
    build_context_by(author, context.clone(), &ContextOverlay { beyond: Vec::new(), loops })
}

/// Puts blocks over the context they were made for. A block that would not make it smaller is left out.
pub fn build_context(context: Context, overlay: &ContextOverlay) -> Context {
    build_context_by(BLOCKS_AUTHOR, context, overlay)
}

fn build_context_by(author: &'static str, context: Context, overlay: &ContextOverlay) -> Context {
    let mut runs = overlay.beyond.clone();
    let mut cuts: BTreeMap<usize, &[ContentPart]> = BTreeMap::new();
    let mut notes: BTreeMap<(Seq, Seq), &str> = BTreeMap::new();
    for LoopOverlay { places, block } in &overlay.loops {
        let sections = [&block.keep_compacted, &block.keep_recent];
        for message in sections.into_iter().flatten().flat_map(|section| &section.messages) {
            match message {
                BlockMessage::Original(_) => {}
                BlockMessage::Shortened { at, parts } => {
                    cuts.insert(places.start + at, parts);
                }
                BlockMessage::Note { of, text } => {
                    let run = places.start + of.start..places.start + of.end;
                    if let Some(ends) = context.segments().get(run.clone()).and_then(ends) {
                        notes.insert(ends, text);
                        runs.push(run);
                    }
                }
            }
        }
    }
    let scribe = StubWriter::of(&context);
    let context = context.edit(author, |index, _| match cuts.get(&index) {
        Some(parts) => SegmentEdit::Replace { parts: parts.to_vec(), fidelity: Fidelity::Cut },
        None => SegmentEdit::Keep,
    });
    context.fold(author, &runs, |folded| {
        let ends = folded.events.first().zip(folded.events.last());
        ends.and_then(|ends| notes.get(&ends)).map_or_else(|| scribe.note(folded), |text| (*text).to_owned())
    })
}

/// The first and the last event that some segments stand for.
fn ends(segments: &[Segment]) -> Option<(Seq, Seq)> {
    let events = SeqSet::union(segments.iter().map(Segment::stands_for));
    events.first().zip(events.last())
}

/// Cost of the context beside the earlier loops once the middle of the most recent one is summarised.
fn outside(
    chain: &LoopChain<'_>,
    recent: &LoopRecord<'_>,
    earlier: &[LoopRecord<'_>],
    config: &BlockConfig,
) -> Tokens {
    let cost = |segments: &[Segment]| segments.iter().map(Segment::tokens).sum::<Tokens>();
    let earlier: Tokens = earlier.iter().map(|record| cost(record.segments())).sum();
    let first = config.block_strategy.keep_first(recent, config);
    let after_first = first.map_or(0, |first| first.end_turn + 1);
    let last = recent_turns(recent, config, after_first);
    let middle = recent.all_turns().and_then(|all| between(all, first, last));
    let saved = middle.map_or(Tokens(0), |middle| {
        cost(&recent.segments()[recent.places_of(middle)]).less(told(recent, middle, config))
    });
    chain.context().tokens().less(earlier).less(saved)
}

/// The most that some turns cost once they are summarised: the lines fit the limit, and held segments stand
/// beside them.
fn told(record: &LoopRecord<'_>, range: TurnRange, config: &BlockConfig) -> Tokens {
    let runs = record.runs(range, config);
    let is_told = |place: &usize| runs.iter().any(|run| run.contains(place));
    let held = record.places_of(range).filter(|place| !is_told(place));
    let beside: Tokens = held.map(|place| record.segments()[place].tokens()).sum();
    let originals: Tokens = runs.iter().map(|run| record.folded(run.clone()).tokens).sum();
    beside + originals.min(config.max_summary_tokens)
}
