//! Folding of the oldest turns until a measure is met, shared by sliding, splitting and dropping.
//!
//! The plan is made before anything is folded, with the very notes that will be written, so that it is exact: one pass
//! over the segments, one fold. Runs end between turns, so that an answer goes as a whole.
//!
//! Segments that are worth more go later: first all of the work, then additions of hooks, then messages. But
//! a large segment among the latter may free much more room than was asked for, so once the segments that
//! must go are known, the whole is planned again, and segments that are worth less come back, the newest
//! first, as far as there is room.

use std::{
    collections::HashSet,
    ops::{Bound, Range, RangeBounds},
};

use crate::{
    context::{Context, FoldedTotals, Segment, SegmentBody, SegmentKey, Tier},
    id::Seq,
    reducers::stub_text::StubWriter,
    tokens::Tokens,
};

/// Parameters of a folding.
pub(super) struct FoldRule {
    /// Author of the folding.
    pub(super) by: &'static str,
    /// The places that may be folded.
    pub(super) within: (Bound<SegmentKey>, Bound<SegmentKey>),
    /// Quantity that is measured.
    pub(super) measure: FoldMeasure,
}

/// Reach and goal of one step of a folding.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoldStage {
    /// Segments that it may take.
    pub(super) reach: FoldReach,
    /// Until the measure is not over this.
    pub(super) goal: Tokens,
    /// Measure up to which the next stage is not needed.
    pub(super) enough: Tokens,
}

impl FoldStage {
    /// One that is over when its goal is met.
    pub(super) fn until(reach: FoldReach, goal: Tokens) -> Self {
        Self { reach, goal, enough: goal }
    }
}

/// Quantity that a folding makes smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldMeasure {
    /// The whole context.
    Whole,
    /// One tier of it.
    Tier(Tier),
}

impl FoldMeasure {
    fn of(self, context: &Context) -> Tokens {
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

impl FoldRule {
    /// Folds the oldest turns, one stage after the other as far as they are needed. The goal of the first is
    /// the aim of all.
    pub(super) fn fold(&self, given: Context, stages: &[FoldStage]) -> Context {
        let worth = SegmentWorth::of(&given);
        let Some((first, wider)) = stages.split_first() else { return given };
        let (runs, left) = self.plan(&given, &worth, &FoldLimits::through(first.reach), first.goal);
        if left <= first.enough || wider.is_empty() {
            return self.fold_runs(given, &runs);
        }
        let mut emptied = self.fold_runs(given.clone(), &runs);
        let mut reach = first.reach;
        for stage in wider {
            reach = stage.reach;
            emptied = self.fold_to(emptied, &worth, &FoldLimits::through(reach), stage.goal);
            if self.measure.of(&emptied) <= stage.enough {
                break;
            }
        }
        let goal = first.goal.max(self.measure.of(&emptied));
        let planned = self.plan_again(given, &worth, &emptied, reach, goal);
        if self.measure.of(&planned) <= goal { planned } else { emptied }
    }

    /// Folds no more than must go: of the widest reach the segments that `emptied` has lost, and of each one
    /// below as much as the goal then demands.
    fn plan_again(
        &self,
        given: Context,
        worth: &SegmentWorth,
        emptied: &Context,
        widest: FoldReach,
        goal: Tokens,
    ) -> Context {
        let mut limits = FoldLimits::through(widest).up_to(widest, worth.last_gone(&given, emptied, widest));
        for reach in [FoldReach::Messages, FoldReach::Added].into_iter().filter(|reach| *reach < widest) {
            let without = self.fold_to(given.clone(), worth, &limits.up_to(reach, None), Tokens(0));
            let reduced = self.fold_to(without, worth, &limits, goal);
            limits = limits.up_to(reach, worth.last_gone(&given, &reduced, reach));
        }
        self.fold_to(given, worth, &limits, goal)
    }

    fn fold_to(&self, context: Context, worth: &SegmentWorth, limits: &FoldLimits, goal: Tokens) -> Context {
        let (runs, _) = self.plan(&context, worth, limits, goal);
        self.fold_runs(context, &runs)
    }

    fn fold_runs(&self, context: Context, runs: &[Range<usize>]) -> Context {
        if runs.is_empty() {
            return context;
        }
        let scribe = StubWriter::of(&context);
        context.fold(self.by, runs, |folded| scribe.note(folded))
    }
}

/// The newest event that anything this reducer folded stands for: where a later read may begin.
pub(super) fn folded_through(context: &Context, by: &'static str) -> Option<u64> {
    let notes = context.segments().iter().filter(|segment| segment.last_author() == Some(by));
    notes.filter_map(|segment| segment.stands_for().last()).map(|seq| seq.0).max()
}

/// Segments that a folding may take, from the first to go to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FoldReach {
    /// The agent's texts and calls, and earlier additions of hooks.
    Work,
    /// The last addition of each hook to the loop in progress.
    Added,
    /// Messages of the user, the first and the newest aside.
    Messages,
    /// Everything that is not essential: the first message, instructions, pins, the summary.
    Everything,
}

/// Amount that may go: of each reach, the segments up to this one.
#[derive(Clone, Copy, Debug)]
struct FoldLimits([Option<SegmentKey>; 4]);

impl FoldLimits {
    /// All of a reach and of those below it.
    fn through(reach: FoldReach) -> Self {
        const END: SegmentKey = SegmentKey { seq: Seq(u64::MAX), part: usize::MAX };
        let reaches = [FoldReach::Work, FoldReach::Added, FoldReach::Messages, FoldReach::Everything];
        Self(reaches.map(|one| (one <= reach).then_some(END)))
    }

    /// The same, but of one reach only this much.
    fn up_to(mut self, reach: FoldReach, last: Option<SegmentKey>) -> Self {
        self.0[reach as usize] = last;
        self
    }

    fn allow(&self, reach: FoldReach, key: SegmentKey) -> bool {
        self.0[reach as usize].is_some_and(|last| key <= last)
    }
}

/// Value of a context's segments, which decides how long they are kept. It holds for the context it was made
/// of and for all contexts made of that by folding.
pub(crate) struct SegmentWorth {
    /// The newest message and the open exchange.
    newest: Option<SegmentKey>,
    open: Option<(SegmentKey, SegmentKey)>,
    first_message: Option<SegmentKey>,
    /// The last addition of each hook to the loop in progress.
    added: HashSet<SegmentKey>,
    /// Turns with something pinned in their answer: an answer stays as a whole.
    pinned: HashSet<u64>,
}

impl SegmentWorth {
    pub(crate) fn of(context: &Context) -> Self {
        let segments = context.segments();
        let essential = context.essential();
        let pinned = segments.iter().filter(|segment| segment.is_answer() && context.is_pinned(segment));
        let open = segments.get(essential.open.clone()).unwrap_or_default();
        Self {
            newest: essential.newest.map(|newest| segments[newest].key()),
            open: open.first().zip(open.last()).map(|(first, last)| (first.key(), last.key())),
            first_message: segments.iter().find(|segment| segment.is_user()).map(Segment::key),
            added: added(segments, essential.loop_start()),
            pinned: pinned.map(Segment::turn).collect(),
        }
    }

    /// Reach that a folding must have to take a segment; `None` if none may.
    fn reach(&self, context: &Context, segment: &Segment) -> Option<FoldReach> {
        let key = segment.key();
        let is_note = matches!(segment.body(), SegmentBody::Note(_));
        let is_open = self.open.is_some_and(|(first, last)| first <= key && key <= last);
        if segment.is_prefix() || (!is_note && (self.newest == Some(key) || is_open)) {
            return None;
        }
        let is_pinned = if segment.is_answer() {
            self.pinned.contains(&segment.turn())
        } else {
            context.is_pinned(segment)
        };
        let is_kept = matches!(segment.body(), SegmentBody::Instruction(_) | SegmentBody::Summary(_));
        Some(if is_pinned || is_kept || (segment.is_user() && self.first_message == Some(key)) {
            FoldReach::Everything
        } else if segment.is_user() {
            FoldReach::Messages
        } else if !is_note && self.added.contains(&key) {
            FoldReach::Added
        } else {
            FoldReach::Work
        })
    }

    /// Returns true if a segment is more than a text or a call: essential, pinned, an instruction, a summary,
    /// or a hook's addition to the newest message.
    pub(crate) fn holds(&self, context: &Context, segment: &Segment) -> bool {
        match self.reach(context, segment) {
            None | Some(FoldReach::Added) => true,
            Some(FoldReach::Everything) => !segment.is_user() || context.is_pinned(segment),
            Some(FoldReach::Work | FoldReach::Messages) => false,
        }
    }

    /// The last segment of a reach that is shown in `given` and not in `reduced`.
    fn last_gone(&self, given: &Context, reduced: &Context, reach: FoldReach) -> Option<SegmentKey> {
        let shown =
            reduced.segments().iter().filter(|segment| !matches!(segment.body(), SegmentBody::Note(_)));
        let shown: HashSet<SegmentKey> = shown.map(Segment::key).collect();
        let gone =
            |segment: &&Segment| !shown.contains(&segment.key()) && self.reach(given, segment) == Some(reach);
        given.segments().iter().rev().find(gone).map(Segment::key)
    }
}

/// The last addition of each hook to the loop that begins at `start`; segments beside its message may come
/// before it.
fn added(segments: &[Segment], start: usize) -> HashSet<SegmentKey> {
    let asked = segments.get(start).and_then(Segment::source);
    let mut hooks = HashSet::new();
    let newest_first = segments.iter().enumerate().rev();
    let last = newest_first.filter(|(index, segment)| match segment.injection() {
        Some((hook, beside)) => {
            (*index > start || (beside.is_some() && beside == asked)) && hooks.insert(hook)
        }
        None => false,
    });
    last.map(|(_, segment)| segment.key()).collect()
}

struct OpenFold {
    start: usize,
    /// Tokens of the run, as far as the measure includes it, and in all.
    measured: Tokens,
    tokens: Tokens,
    folded: FoldedTotals,
}

impl FoldRule {
    /// Runs to fold, and the measure afterwards.
    fn plan(
        &self,
        context: &Context,
        worth: &SegmentWorth,
        limits: &FoldLimits,
        goal: Tokens,
    ) -> (Vec<Range<usize>>, Tokens) {
        let segments = context.segments();
        let scribe = StubWriter::of(context);
        let within = self.places(context);
        let mut left = self.measure.of(context);
        let mut runs = Vec::new();
        let mut open: Option<OpenFold> = None;
        for index in within.clone() {
            if left <= goal {
                return (runs, left);
            }
            let segment = &segments[index];
            let reach = worth.reach(context, segment);
            if !reach.is_some_and(|reach| limits.allow(reach, segment.key())) {
                if let Some((run, saved)) =
                    open.take().and_then(|open| self.close(context, &scribe, &open, index))
                {
                    runs.push(run);
                    left = less(left, saved);
                }
                continue;
            }
            let run = open.get_or_insert_with(|| OpenFold {
                start: index,
                measured: Tokens(0),
                tokens: Tokens(0),
                folded: FoldedTotals::default(),
            });
            run.measured += self.measure.of_segment(segment);
            run.tokens += segment.tokens();
            run.folded.add(segment);
            let turn_goes_on = segments.get(index + 1).is_some_and(|next| next.turn() == segment.turn());
            if turn_goes_on && index + 1 < within.end {
                continue;
            }
            // A note only costs: while the run without one is not enough, its words need not be written.
            if less(left, run.measured) > goal {
                continue;
            }
            if let Some((run, saved)) = self.close(context, &scribe, run, index + 1)
                && less(left, saved) <= goal
            {
                runs.push(run);
                return (runs, less(left, saved));
            }
        }
        if let Some((run, saved)) =
            open.filter(|_| left > goal).and_then(|open| self.close(context, &scribe, &open, within.end))
        {
            runs.push(run);
            left = less(left, saved);
        }
        (runs, left)
    }

    /// The places that may be folded, as they are in this context.
    fn places(&self, context: &Context) -> Range<usize> {
        let prefix = context.prefix_len();
        let history = &context.segments()[prefix..];
        let before = |segment: &Segment| match self.within.0 {
            Bound::Included(first) => segment.key() < first,
            Bound::Excluded(first) => segment.key() <= first,
            Bound::Unbounded => false,
        };
        let start = history.partition_point(before);
        let length = history[start..].partition_point(|segment| self.within.contains(&segment.key()));
        prefix + start..prefix + start + length
    }

    /// The run that ends here and the tokens that folding it saves; `None` if its note would be no smaller.
    fn close(
        &self,
        context: &Context,
        scribe: &StubWriter,
        open: &OpenFold,
        end: usize,
    ) -> Option<(Range<usize>, Tokens)> {
        let (wrapping, words) =
            context.note_cost(&context.note_text(&scribe.note(&open.folded), &open.folded));
        let note = wrapping + words;
        let saved = less(open.measured, self.measure.of_note(note));
        (note < open.tokens && saved > Tokens(0)).then_some((open.start..end, saved))
    }
}

fn less(tokens: Tokens, by: Tokens) -> Tokens {
    Tokens(tokens.0.saturating_sub(by.0))
}
