//! What the calls of a thread say together about what is unseen.
//!
//! Recorded input is a prefix and so many tokens for each counted one. The slope is a weighted median over pairs of calls
//! that are far apart, so that a call that reports nonsense, an image or a burst of hidden thinking does not decide. The
//! prefix is a median, too, but of each stretch in which the client only appended: where recorded input falls although
//! nothing in the transcript says so, the client took something out, and what is before it goes on with less.

use epitome_core::{Seq, Tokens, profile::bare};

use super::{super::unseen::Scale, sent::Sent};

/// What a call is recorded to have sent, beside what we count of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The number of the call.
    pub(crate) call: usize,
    pub(crate) input: Tokens,
    pub(crate) counted: Tokens,
    pub(crate) known: Tokens,
    pub(crate) standing: Option<Seq>,
}

/// The calls that say what they sent, of the model that says so most often: another may have other tools.
pub(crate) fn told(calls: &[Sent]) -> Vec<Point> {
    let name = |call: &Sent| call.model.as_ref().map(|model| bare(&model.0));
    let mut models: Vec<(Option<String>, usize)> = Vec::new();
    for call in calls.iter().filter(|call| call.usage.is_some()) {
        let name = name(call);
        match models.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => models.push((name, 1)),
        }
    }
    // Of models that say as much the first counts.
    let main = models.into_iter().rev().max_by_key(|(_, count)| *count).map(|(name, _)| name);
    let of_main = calls.iter().enumerate().filter(|(_, call)| main.as_ref() == Some(&name(call)));
    let point = |(number, call): (usize, &Sent)| {
        let Sent { counted, known, standing, .. } = *call;
        Some(Point { call: number, input: call.usage?.input(), counted, known, standing })
    };
    of_main.filter_map(point).collect()
}

/// A difference of counts below this says nothing about growth.
const LITTLE: u64 = 200;

/// With less than this of them in all, nothing is said about growth.
const ENOUGH: u64 = 2_000;

/// How much recorded input grows for each counted token, if the calls tell.
pub(crate) fn growth(points: &[Point]) -> Option<Scale> {
    let mut slopes: Vec<(Scale, u64)> = Vec::new();
    for stretch in stretches(points) {
        let apart = stretch.len().div_ceil(2);
        for (one, other) in stretch.iter().zip(stretch.iter().skip(apart)) {
            let counted = other.counted.less(one.counted).0;
            let grown = (other.input + one.known).less(one.input + other.known).0;
            if counted >= LITTLE && grown > 0 {
                slopes.push((Scale::ratio(grown, counted), counted));
            }
        }
    }
    slopes.sort_unstable();
    let all: u64 = slopes.iter().fold(0, |all, (_, weight)| all.saturating_add(*weight));
    if all < ENOUGH {
        return None;
    }
    let mut below = 0_u64;
    slopes.into_iter().find_map(|(slope, weight)| {
        below = below.saturating_add(weight);
        (below >= all / 2).then_some(slope)
    })
}

/// Stretches of calls in which the client only appended.
fn stretches(points: &[Point]) -> impl Iterator<Item = &[Point]> {
    points.chunk_by(|before, now| before.standing == now.standing && !fell(before, now))
}

/// Whether recorded input fell although what the transcript shows did not.
fn fell(before: &Point, now: &Point) -> bool {
    let shown = (now.counted + now.known).0 >= (before.counted + before.known).0;
    let enough = Tokens(FALL.max(before.input.0 / 50));
    shown && now.input + enough <= before.input
}

/// Input that fell by less was miscounted.
const FALL: u64 = 500;

/// What the recorded calls of a thread say about what was unseen of each.
#[derive(Clone, Debug)]
pub(crate) struct Fitted {
    pub(crate) scale: Scale,
    /// The prefix of the first stretch.
    pub(crate) prefix: Tokens,
    /// From which call on how much is unseen, in order; less than nothing where the client took something out.
    pub(crate) stretches: Vec<Stretch>,
}

/// Calls in which the client only appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    /// The first of them.
    pub(crate) from: usize,
    /// What they sent beyond what is seen.
    pub(crate) beyond: i64,
}

impl Fitted {
    /// What the calls say, if any says anything.
    pub(crate) fn of(points: &[Point]) -> Option<Self> {
        let scale = growth(points).unwrap_or(Scale::ONE);
        let mut fitted: Vec<Stretch> = Vec::new();
        for stretch in stretches(points) {
            let mut beyond: Vec<i64> = stretch.iter().map(|point| point.beyond(scale)).collect();
            beyond.sort_unstable();
            let (Some(first), Some(middle)) = (stretch.first(), beyond.get(beyond.len() / 2)) else {
                continue;
            };
            fitted.push(Stretch { from: first.call, beyond: *middle });
        }
        let prefix = Tokens(u64::try_from(fitted.first()?.beyond).unwrap_or(0));
        Some(Self { scale, prefix, stretches: fitted })
    }

    /// Which stretch a call is of, and what is unseen of it.
    pub(crate) fn stretch(&self, call: usize) -> (usize, i64) {
        let at = self.stretches.partition_point(|stretch| stretch.from <= call).saturating_sub(1);
        (at, self.stretches.get(at).map_or(0, |stretch| stretch.beyond))
    }
}

impl Point {
    fn beyond(&self, scale: Scale) -> i64 {
        let seen = scale.of(self.counted) + self.known;
        let signed = |tokens: Tokens| i64::try_from(tokens.0).unwrap_or(i64::MAX);
        signed(self.input).saturating_sub(signed(seen))
    }
}
