//! Folding the oldest turns until a measure is met: what sliding, splitting and dropping share.
//!
//! The plan is made before anything is folded, with the very notes that will be written, so that it is exact: one pass
//! over the segments, one fold. Runs end between turns, so that an answer goes as a whole.

use std::{collections::HashSet, ops::Range};

use crate::{
    context::{Body, Context, Essential, Fidelity, Folded, Segment, Tier},
    reducers::stub::Scribe,
    tokens::Tokens,
};

/// What is folded, and until when.
pub(super) struct Folding<'k> {
    /// Who folds.
    pub(super) by: &'static str,
    /// The places that may be folded.
    pub(super) within: Range<usize>,
    /// What is worth keeping, and what may go all the same.
    pub(super) worth: &'k Worth,
    /// How far it may go.
    pub(super) reach: Reach,
    /// What is measured.
    pub(super) measure: Measure,
    /// When it is enough: the measure is not over this.
    pub(super) goal: Tokens,
}

/// What a folding makes smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The whole context.
    Whole,
    /// One tier of it.
    Tier(Tier),
}

impl Measure {
    pub(super) fn of(self, context: &Context) -> Tokens {
        match self {
            Self::Whole => context.tokens(),
            Self::Tier(tier) => context.tier_tokens(tier),
        }
    }

    fn of_segment(self, segment: &Segment) -> Tokens {
        match self {
            Self::Tier(tier) if segment.tier() != tier => Tokens(0),
            Self::Whole | Self::Tier(_) => segment.tokens(),
        }
    }

    fn of_note(self, note: Tokens) -> Tokens {
        match self {
            Self::Whole | Self::Tier(Tier::Summaries) => note,
            Self::Tier(_) => Tokens(0),
        }
    }
}

/// Folds the oldest turns.
pub(super) fn fold_oldest(context: Context, folding: &Folding<'_>) -> Context {
    let scribe = Scribe::of(&context);
    let runs = plan(&context, folding, &scribe);
    if runs.is_empty() {
        return context;
    }
    context.fold(folding.by, &runs, |folded| scribe.note(folded))
}

/// The newest event that anything this reducer folded stands for: where a later read may begin.
pub(super) fn folded_through(context: &Context, by: &'static str) -> Option<u64> {
    let notes = context.segments().iter().filter(|segment| segment.touched() == Some(by));
    notes.filter_map(|segment| segment.stands_for().last()).map(|seq| seq.0).max()
}

/// What a folding may take, from the first to go to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// What the agent said and did, and what hooks added to messages that are past.
    Work,
    /// Messages of the user too, the first and the newest aside.
    Messages,
    /// Everything that is not essential: the first message, instructions, pins, the summary.
    Everything,
}

/// What is worth keeping in a context, and for how long.
pub(crate) struct Worth {
    essential: Essential,
    first_message: Option<usize>,
    /// Turns with something pinned in their answer: an answer stays as a whole.
    pinned: HashSet<u64>,
}

impl Worth {
    pub(crate) fn of(context: &Context) -> Self {
        let pinned =
            context.segments().iter().filter(|segment| segment.is_answer() && context.is_pinned(segment));
        Self {
            essential: context.essential(),
            first_message: context.segments().iter().position(Segment::is_user),
            pinned: pinned.map(Segment::turn).collect(),
        }
    }

    /// Whether a folding of this reach leaves a segment alone.
    pub(super) fn keeps(&self, context: &Context, reach: Reach, index: usize, segment: &Segment) -> bool {
        match reach {
            Reach::Everything => self.essential.contains(index),
            Reach::Messages | Reach::Work => {
                (segment.is_user() && (reach == Reach::Work || self.first_message == Some(index)))
                    || self.holds(context, index, segment)
            }
        }
    }

    /// Whether a segment is more than something said or done: essential, pinned, an instruction, a summary, or what a
    /// hook added to the newest message.
    pub(crate) fn holds(&self, context: &Context, index: usize, segment: &Segment) -> bool {
        self.essential.contains(index)
            || matches!(segment.body(), Body::Instruction(_) | Body::Summary(_))
            || (segment.is_answer() && self.pinned.contains(&segment.turn()))
            || (!segment.is_answer() && context.is_pinned(segment))
            || (segment.fidelity() == Fidelity::Injected && index > self.essential.loop_start())
    }
}

struct Open {
    start: usize,
    /// What the run costs, as far as the measure sees it, and in all.
    measured: Tokens,
    tokens: Tokens,
    folded: Folded,
}

fn plan(context: &Context, folding: &Folding<'_>, scribe: &Scribe) -> Vec<Range<usize>> {
    let segments = context.segments();
    let within = folding.within.start.max(context.prefix_len())..folding.within.end.min(segments.len());
    let mut left = folding.measure.of(context);
    let mut runs = Vec::new();
    if left <= folding.goal {
        return runs;
    }
    let mut open: Option<Open> = None;
    for index in within.clone() {
        let segment = &segments[index];
        if folding.worth.keeps(context, folding.reach, index, segment) {
            if let Some((run, saved)) =
                open.take().and_then(|open| close(context, folding, scribe, &open, index))
            {
                runs.push(run);
                left = less(left, saved);
            }
            if left <= folding.goal {
                return runs;
            }
            continue;
        }
        let run = open.get_or_insert_with(|| Open {
            start: index,
            measured: Tokens(0),
            tokens: Tokens(0),
            folded: Folded::default(),
        });
        run.measured += folding.measure.of_segment(segment);
        run.tokens += segment.tokens();
        run.folded.add(segment);
        let turn_goes_on = segments.get(index + 1).is_some_and(|next| next.turn() == segment.turn());
        if turn_goes_on && index + 1 < within.end {
            continue;
        }
        // A note only costs: while the run without one is not enough, its words need not be written.
        if less(left, run.measured) > folding.goal {
            continue;
        }
        if let Some((run, saved)) = close(context, folding, scribe, run, index + 1)
            && less(left, saved) <= folding.goal
        {
            runs.push(run);
            return runs;
        }
    }
    runs.extend(open.and_then(|open| close(context, folding, scribe, &open, within.end)).map(|(run, _)| run));
    runs
}

/// The run that ends here and what folding it saves; nothing if its note would be no smaller.
fn close(
    context: &Context,
    folding: &Folding<'_>,
    scribe: &Scribe,
    open: &Open,
    end: usize,
) -> Option<(Range<usize>, Tokens)> {
    let (wrapping, words) = context.note_cost(&scribe.note(&open.folded));
    let note = wrapping + words;
    let saved = less(open.measured, folding.measure.of_note(note));
    (note < open.tokens && saved > Tokens(0)).then_some((open.start..end, saved))
}

fn less(tokens: Tokens, by: Tokens) -> Tokens {
    Tokens(tokens.0.saturating_sub(by.0))
}
