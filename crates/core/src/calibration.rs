//! Calibration: how a model's real counts relate to our own, learned from the usage it reports.
//!
//! A counter is wrong in a steady way: it has another vocabulary, and the provider wraps messages in tokens
//! that are not shown. So the ratio of reported to estimated tokens is kept for the last calls, its median
//! corrects an estimate, and its high quantile bounds it. The bound is an order statistic: of `n` ratios and
//! one more of the same kind, each rank is equally likely for the new one, so the chance that it lies above
//! the `k`-th is `1 - k / (n + 1)`, whatever the distribution. Everything is whole numbers, so that a stored
//! calibration gives the same margin everywhere.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{id::ModelName, profile::Share, tokens::Tokens};

/// Relation between the real counts of one model and those of one counter.
///
/// ```
/// use epitome_core::{
///     calibration::{Calibration, TokenObservation, PrefixAvailability},
///     profile::Share,
///     tokens::Tokens,
/// };
///
/// let mut calibration = Calibration::new(Share::percent(10));
/// assert_eq!(calibration.margin(Tokens(1_000)), Tokens(100));
/// for _ in 0..100 {
///     let (estimated, actual) = (Tokens(10_000), Tokens(12_800));
///     calibration.observe(TokenObservation { estimated, actual, prefix: PrefixAvailability::Known });
/// }
/// assert_eq!(calibration.expected(Tokens(1_000)), Tokens(1_280));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredCalibration")]
pub struct Calibration {
    /// Share by which an estimate may be too low before any call was observed.
    prior: Share,
    /// The last ratios, the newest last.
    ratios: VecDeque<TokenRatio>,
    /// The same ratios, the lowest first.
    #[serde(skip_serializing)]
    sorted: Vec<TokenRatio>,
    /// Ratios in a row that did not fit the others.
    doubtful: Vec<TokenRatio>,
}

/// Estimated and reported tokens of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenObservation {
    /// The input as counted before the call.
    pub estimated: Tokens,
    /// The input as reported after it.
    pub actual: Tokens,
    /// Coverage of the system prompt and the tools by the count.
    pub prefix: PrefixAvailability,
}

/// Availability of the system prompt and the tools of a call for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixAvailability {
    /// They were.
    Known,
    /// They were missing, so the two counts cannot be compared.
    Unknown,
}

/// Ratio of reported to estimated tokens, in thousandths.
type TokenRatio = u32;

const ONE: u64 = 1_000;
/// Number of ratios that are kept. With this many the bound is the second highest.
const KEPT: usize = 128;
/// A ratio outside of this is no counter's error: the report is about something else.
const POSSIBLE: std::ops::RangeInclusive<TokenRatio> = 200..=5_000;
/// So many ratios in a row that do not fit the others are the new rule and not exceptions.
const TURNING: usize = 6;
/// Below this many tokens the wrapping, not the text, makes the ratio.
const TELLING: Tokens = Tokens(500);

impl Calibration {
    /// A calibration without observations; an estimate may be too low by `prior`.
    pub fn new(prior: Share) -> Self {
        Self { prior, ratios: VecDeque::new(), sorted: Vec::new(), doubtful: Vec::new() }
    }

    /// Learns from a call, unless it is useless: its prefix was not counted, it was tiny, or its ratio lies
    /// so far off that something else must be wrong. A ratio that lies off again and again is believed.
    pub fn observe(&mut self, observation: TokenObservation) {
        let Some(ratio) = ratio(observation) else { return };
        if self.fits(ratio) {
            self.doubtful.clear();
            self.keep(ratio);
            return;
        }
        self.doubtful.push(ratio);
        if self.doubtful.len() >= TURNING {
            self.ratios.clear();
            self.sorted.clear();
            for ratio in std::mem::take(&mut self.doubtful) {
                self.keep(ratio);
            }
        }
    }

    /// Number of calls that the calibration rests on.
    pub fn observations(&self) -> usize {
        self.ratios.len()
    }

    /// Tokens that will most likely be reported for an estimate.
    pub fn expected(&self, estimate: Tokens) -> Tokens {
        scaled(estimate, self.median().unwrap_or(ONE))
    }

    /// Upper bound of the tokens that will be reported for an estimate. Never less than
    /// [`expected`](Self::expected).
    pub fn bound(&self, estimate: Tokens) -> Tokens {
        scaled(estimate, self.high())
    }

    /// The largest estimate for which `limit` will hold. Never more than `limit` itself: an estimate that is
    /// too high today may not be tomorrow.
    pub fn within(&self, limit: Tokens) -> Tokens {
        let within = u128::from(limit.0) * u128::from(ONE) / u128::from(self.high().max(ONE));
        Tokens(u64::try_from(within).unwrap_or(u64::MAX))
    }

    /// Tokens to keep free beside an estimate, so that the limit holds. Zero if estimates are always too
    /// high.
    pub fn margin(&self, estimate: Tokens) -> Tokens {
        self.bound(estimate).less(estimate)
    }

    fn keep(&mut self, ratio: TokenRatio) {
        let place = |sorted: &[TokenRatio], ratio: TokenRatio| sorted.partition_point(|other| *other < ratio);
        if self.ratios.len() == KEPT
            && let Some(oldest) = self.ratios.pop_front()
        {
            self.sorted.remove(place(&self.sorted, oldest));
        }
        self.ratios.push_back(ratio);
        self.sorted.insert(place(&self.sorted, ratio), ratio);
    }

    /// Returns true if a ratio is of a kind with the others: within eight times their usual distance from the
    /// median, and in any case if it is within a third of it.
    fn fits(&self, ratio: TokenRatio) -> bool {
        let Some(median) = self.median().filter(|_| self.sorted.len() >= TURNING) else { return true };
        let mut distances: Vec<u64> =
            self.sorted.iter().map(|ratio| u64::from(*ratio).abs_diff(median)).collect();
        let middle = distances.len() / 2;
        let (_, usual, _) = distances.select_nth_unstable(middle);
        u64::from(ratio).abs_diff(median) <= (*usual * 8).max(median / 3)
    }

    /// The upper median: of two middle ones the one that asks for more.
    fn median(&self) -> Option<u64> {
        self.sorted.get(self.sorted.len() / 2).copied().map(u64::from)
    }

    /// The ratio that 98 of 100 calls stay below, in thousandths.
    fn high(&self) -> u64 {
        let prior = ONE + u64::from(self.prior.parts()) / 10;
        let Some(highest) = self.sorted.last().copied().map(u64::from) else { return prior };
        let place = (self.sorted.len() + 1) * 98 / 100;
        match self.sorted.get(place) {
            // Enough calls for the quantile to lie within the observed range.
            Some(bound) => u64::from(*bound),
            // Too few: the highest and a part of the prior, which shrinks with every call.
            None => highest + (prior - ONE) / self.sorted.len() as u64 + highest / 100,
        }
    }
}

fn ratio(observation: TokenObservation) -> Option<TokenRatio> {
    let TokenObservation { estimated, actual, prefix } = observation;
    if prefix == PrefixAvailability::Unknown || estimated < TELLING {
        return None;
    }
    let ratio = (u128::from(actual.0) * u128::from(ONE)).div_ceil(u128::from(estimated.0));
    TokenRatio::try_from(ratio).ok().filter(|ratio| POSSIBLE.contains(ratio))
}

/// Rounded up: a margin errs on the safe side.
fn scaled(tokens: Tokens, thousandths: u64) -> Tokens {
    let scaled = (u128::from(tokens.0) * u128::from(thousandths)).div_ceil(u128::from(ONE));
    Tokens(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// A calibration in its stored form. Invalid values are dropped on reading.
#[derive(Deserialize)]
struct StoredCalibration {
    prior: Share,
    #[serde(default)]
    ratios: Vec<TokenRatio>,
    #[serde(default)]
    doubtful: Vec<TokenRatio>,
}

impl From<StoredCalibration> for Calibration {
    fn from(stored: StoredCalibration) -> Self {
        let newest = |ratios: Vec<TokenRatio>, most: usize| {
            let possible: Vec<TokenRatio> =
                ratios.into_iter().filter(|ratio| POSSIBLE.contains(ratio)).collect();
            possible[possible.len().saturating_sub(most)..].to_vec()
        };
        let mut calibration = Self::new(stored.prior);
        for ratio in newest(stored.ratios, KEPT) {
            calibration.keep(ratio);
        }
        calibration.doubtful = newest(stored.doubtful, TURNING - 1);
        calibration
    }
}

/// A calibration for each model and counter: one pair's calibration says nothing about another's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CalibrationTable {
    by_model: BTreeMap<ModelName, BTreeMap<String, Calibration>>,
}

impl CalibrationTable {
    /// The calibration of a model for a counter, or an empty one.
    pub fn get(&self, model: &ModelName, counter: &str, prior: Share) -> Calibration {
        let known = self.by_model.get(model).and_then(|counters| counters.get(counter));
        known.cloned().unwrap_or_else(|| Calibration::new(prior))
    }

    /// Learns from a call.
    pub fn observe(&mut self, model: &ModelName, counter: &str, prior: Share, observation: TokenObservation) {
        let counters = self.by_model.entry(model.clone()).or_default();
        counters.entry(counter.to_owned()).or_insert_with(|| Calibration::new(prior)).observe(observation);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PRIOR: Share = Share::percent(10);

    fn seen(estimated: u64, actual: u64) -> TokenObservation {
        TokenObservation {
            estimated: Tokens(estimated),
            actual: Tokens(actual),
            prefix: PrefixAvailability::Known,
        }
    }

    /// A calibration that saw these ratios, in thousandths, at 10 000 tokens.
    fn after(ratios: impl IntoIterator<Item = u64>) -> Calibration {
        let mut calibration = Calibration::new(PRIOR);
        for ratio in ratios {
            calibration.observe(seen(10_000, 10 * ratio));
        }
        calibration
    }

    #[test]
    fn nothing_known_leaves_the_prior() {
        let calibration = Calibration::new(PRIOR);
        assert_eq!(calibration.expected(Tokens(1_000)), Tokens(1_000));
        assert_eq!(calibration.margin(Tokens(1_000)), Tokens(100));
        assert_eq!(calibration.margin(Tokens(0)), Tokens(0));
        assert_eq!(calibration.margin(Tokens::MAX), Tokens(0));
    }

    #[test]
    fn calls_that_tell_nothing_change_nothing() {
        let mut calibration = Calibration::new(PRIOR);
        calibration.observe(TokenObservation { prefix: PrefixAvailability::Unknown, ..seen(10_000, 40_000) });
        calibration.observe(seen(499, 499));
        calibration.observe(seen(0, 5));
        calibration.observe(seen(10_000, 0));
        calibration.observe(seen(10_000, 90_000));
        assert_eq!(calibration, Calibration::new(PRIOR));
    }

    #[test]
    fn an_outlier_is_passed_over_and_a_new_rule_is_learned() {
        let steady = after([1_280; 20]);
        let mut calibration = steady.clone();
        calibration.observe(seen(10_000, 30_000));
        assert_eq!(calibration.bound(Tokens(1_000)), steady.bound(Tokens(1_000)));
        for _ in 0..TURNING {
            calibration.observe(seen(10_000, 30_000));
        }
        assert_eq!(calibration.expected(Tokens(1_000)), Tokens(3_000));
    }

    #[test]
    fn a_single_call_is_trusted_less_than_many() {
        let margin = |calls: usize| after(vec![1_280; calls]).margin(Tokens(10_000)).0;
        assert!(
            margin(1) > margin(5) && margin(5) > margin(60),
            "{} {} {}",
            margin(1),
            margin(5),
            margin(60)
        );
        assert_eq!(margin(60), 2_800);
    }

    #[test]
    fn an_estimate_that_is_always_too_high_needs_no_margin() {
        assert_eq!(after([800; 60]).margin(Tokens(10_000)), Tokens(0));
    }

    #[test]
    fn it_reads_back_as_stored_and_what_is_wrong_is_left_out() {
        let calibration = after((0..300).map(|at| 1_200 + at % 50));
        let json = serde_json::to_string(&calibration).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&json).unwrap(), calibration);
        let hostile = format!(r#"{{"prior":0.1,"ratios":[0,4294967295,1280{}]}}"#, ",1300".repeat(500));
        let read: Calibration = serde_json::from_str(&hostile).unwrap();
        assert_eq!(read.observations(), KEPT);
        assert_eq!(read.expected(Tokens(10)), Tokens(13));
    }

    #[test]
    fn models_and_counters_are_apart() {
        let (opus, sonnet) = (ModelName::from("opus"), ModelName::from("sonnet"));
        let mut calibrations = CalibrationTable::default();
        calibrations.observe(&opus, "o200k", PRIOR, seen(10_000, 12_800));
        assert_eq!(calibrations.get(&opus, "o200k", PRIOR).observations(), 1);
        assert_eq!(calibrations.get(&opus, "estimate-1", PRIOR).observations(), 0);
        assert_eq!(calibrations.get(&sonnet, "o200k", PRIOR).observations(), 0);
        let json = serde_json::to_string(&calibrations).unwrap();
        assert_eq!(serde_json::from_str::<CalibrationTable>(&json).unwrap(), calibrations);
    }

    /// Ratios scattered evenly around a centre, in an order that repeats for a seed.
    fn stationary(seed: u64, centre: u64, spread: u64) -> impl Iterator<Item = u64> {
        let mut state = seed | 1;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            centre - spread + state % (2 * spread + 1)
        })
    }

    proptest! {
        #[test]
        fn it_converges_on_the_ratio_of_a_steady_model(seed: u64, centre in 700_u64..2_500, spread in 1_u64..100) {
            let calibration = after(stationary(seed, centre, spread).take(KEPT));
            let expected = calibration.expected(Tokens(1_000)).0;
            prop_assert!(expected.abs_diff(centre) <= spread / 2 + 2, "{expected} is not near {centre}");
        }

        #[test]
        fn the_bound_covers_95_of_100_later_calls(seed: u64, centre in 700_u64..2_500, spread in 1_u64..200) {
            let mut ratios = stationary(seed, centre, spread);
            let mut calibration = after(ratios.by_ref().take(KEPT));
            let mut covered = 0;
            for ratio in ratios.take(400) {
                covered += u32::from(10 * ratio <= calibration.bound(Tokens(10_000)).0);
                calibration.observe(seen(10_000, 10 * ratio));
            }
            prop_assert!(covered >= 380, "covered {covered} of 400");
        }

        #[test]
        fn more_estimated_is_more_expected_bounded_and_kept_free(
            ratios in prop::collection::vec(200_u64..5_000, 0..200), a: u64, b: u64,
        ) {
            let calibration = after(ratios);
            let (less, more) = (Tokens(a.min(b) / 2), Tokens(a.max(b) / 2));
            prop_assert!(calibration.expected(less) <= calibration.expected(more));
            prop_assert!(calibration.bound(less) <= calibration.bound(more));
            let fits = calibration.bound(more) < Tokens::MAX;
            prop_assert!(!fits || calibration.margin(less) <= calibration.margin(more));
            prop_assert!(calibration.expected(less) <= calibration.bound(less));
        }

        #[test]
        fn when_calls_were_counted_short_nothing_is_below_the_estimate(
            ratios in prop::collection::vec(1_000_u64..5_000, 1..200), estimate in 0_u64..1 << 50,
        ) {
            let calibration = after(ratios);
            prop_assert!(calibration.expected(Tokens(estimate)) >= Tokens(estimate));
            prop_assert!(calibration.bound(Tokens(estimate)) >= Tokens(estimate));
        }
    }
}
