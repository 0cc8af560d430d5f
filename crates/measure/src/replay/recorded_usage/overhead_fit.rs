//! Estimate of the hidden part of requests from all calls of a thread.
//!
//! Recorded input is modelled as a prefix plus a factor for each counted token. The slope is a weighted
//! median over pairs of calls that are far apart, so that a single wrong report, an image or a burst of
//! hidden thinking does not decide it. The prefix is a median, too, but one for each stretch in which the
//! client only appended: if recorded input falls for no reason in the transcript, the client removed
//! something, and the calls after that have a smaller prefix.

use epitome::{
    core::{Seq, Tokens, profile::bare},
    recorded_calls::RecordedCall,
};

use super::super::hidden_overhead::TokenScale;

/// Recorded input of a call, with our count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FitPoint {
    /// Number of the call.
    pub(crate) call: usize,
    pub(crate) input: Tokens,
    pub(crate) counted: Tokens,
    pub(crate) known: Tokens,
    pub(crate) standing: Option<Seq>,
}

/// Calls with recorded input, of the model that has most of them: another model may have other tools.
pub(crate) fn fit_points(calls: &[RecordedCall]) -> Vec<FitPoint> {
    let name = |call: &RecordedCall| call.model.as_ref().map(|model| bare(&model.0));
    let mut models: Vec<(Option<String>, usize)> = Vec::new();
    for call in calls.iter().filter(|call| call.usage.is_some()) {
        let name = name(call);
        match models.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => models.push((name, 1)),
        }
    }
    // Of models with equally many, the first counts.
    let main = models.into_iter().rev().max_by_key(|(_, count)| *count).map(|(name, _)| name);
    let of_main = calls.iter().enumerate().filter(|(_, call)| main.as_ref() == Some(&name(call)));
    let point = |(number, call): (usize, &RecordedCall)| {
        let RecordedCall { counted, known, standing, .. } = *call;
        Some(FitPoint { call: number, input: call.usage?.input(), counted, known, standing })
    };
    of_main.filter_map(point).collect()
}

/// Smallest difference of counts that says anything about growth.
const MIN_COUNT_DIFFERENCE: u64 = 200;

/// Smallest sum of such differences for an estimate.
const MIN_DIFFERENCE_SUM: u64 = 2_000;

/// Growth of the recorded input for each counted token, if the calls show it.
pub(crate) fn growth(points: &[FitPoint]) -> Option<TokenScale> {
    let mut slopes: Vec<(TokenScale, u64)> = Vec::new();
    for stretch in stretches(points) {
        let apart = stretch.len().div_ceil(2);
        for (one, other) in stretch.iter().zip(stretch.iter().skip(apart)) {
            let counted = other.counted.less(one.counted).0;
            let grown = (other.input + one.known).less(one.input + other.known).0;
            if counted >= MIN_COUNT_DIFFERENCE && grown > 0 {
                slopes.push((TokenScale::ratio(grown, counted), counted));
            }
        }
    }
    slopes.sort_unstable();
    let all: u64 = slopes.iter().fold(0, |all, (_, weight)| all.saturating_add(*weight));
    if all < MIN_DIFFERENCE_SUM {
        return None;
    }
    let mut below = 0_u64;
    slopes.into_iter().find_map(|(slope, weight)| {
        below = below.saturating_add(weight);
        (below >= all / 2).then_some(slope)
    })
}

/// Stretches of calls in which the client only appended.
fn stretches(points: &[FitPoint]) -> impl Iterator<Item = &[FitPoint]> {
    points.chunk_by(|before, now| before.standing == now.standing && !fell(before, now))
}

/// Returns true if recorded input fell although the visible part did not.
fn fell(before: &FitPoint, now: &FitPoint) -> bool {
    let shown = (now.counted + now.known).0 >= (before.counted + before.known).0;
    let enough = Tokens(MIN_FALL_TOKENS.max(before.input.0 / 50));
    shown && now.input + enough <= before.input
}

/// Smallest fall that counts; less is a counting error.
const MIN_FALL_TOKENS: u64 = 500;

/// Estimated hidden part of each call of a thread.
#[derive(Clone, Debug)]
pub(crate) struct FittedOverhead {
    pub(crate) scale: TokenScale,
    /// Prefix of the first stretch.
    pub(crate) prefix: Tokens,
    /// Stretches with their hidden part, in order; negative if the client removed something.
    pub(crate) stretches: Vec<AppendOnlyRun>,
}

/// Calls in which the client only appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendOnlyRun {
    /// First of the calls.
    pub(crate) from: usize,
    /// Size of what they sent beyond the visible part.
    pub(crate) beyond: i64,
}

impl FittedOverhead {
    /// Estimates the hidden part, if the calls allow it.
    pub(crate) fn of(points: &[FitPoint]) -> Option<Self> {
        let scale = growth(points).unwrap_or(TokenScale::ONE);
        let mut fitted: Vec<AppendOnlyRun> = Vec::new();
        for stretch in stretches(points) {
            let mut beyond: Vec<i64> = stretch.iter().map(|point| point.beyond(scale)).collect();
            beyond.sort_unstable();
            let (Some(first), Some(middle)) = (stretch.first(), beyond.get(beyond.len() / 2)) else {
                continue;
            };
            fitted.push(AppendOnlyRun { from: first.call, beyond: *middle });
        }
        let prefix = Tokens(u64::try_from(fitted.first()?.beyond).unwrap_or(0));
        Some(Self { scale, prefix, stretches: fitted })
    }

    /// Index of a call's stretch, and its hidden part.
    pub(crate) fn stretch(&self, call: usize) -> (usize, i64) {
        let at = self.stretches.partition_point(|stretch| stretch.from <= call).saturating_sub(1);
        (at, self.stretches.get(at).map_or(0, |stretch| stretch.beyond))
    }
}

impl FitPoint {
    fn beyond(&self, scale: TokenScale) -> i64 {
        let seen = scale.of(self.counted) + self.known;
        let signed = |tokens: Tokens| i64::try_from(tokens.0).unwrap_or(i64::MAX);
        signed(self.input).saturating_sub(signed(seen))
    }
}
