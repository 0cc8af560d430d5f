//! Comparisons of many threads, combined.

use epitome::core::profile::Money;
use serde::Serialize;

use super::{ColdCallCounts, ComparedUsage, ComparisonSide, PrefixSource, ThreadComparison, WorstCall};

/// Combined comparisons. A median needs every error, so they are kept.
#[derive(Clone, Debug, Default)]
pub struct ComparisonTotals {
    /// Number of threads with recorded usage.
    pub threads: u64,
    /// Number of threads without.
    pub without_usage: u64,
    /// Number of calls with recorded usage.
    pub calls: u64,
    /// Calls with the largest errors, the largest first.
    pub worst: Vec<WorstCall>,
    sides: Vec<ComparisonSide>,
}

/// Accuracy of the simulations of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SimulationAccuracy {
    /// Source of the assumed prefix.
    pub prefix: PrefixSource,
    /// Simulated behaviour of the cache: `ideal` or `breakpoints`.
    pub cache: &'static str,
    /// Number of calls that were compared.
    pub calls: u64,
    /// Relative error of the input.
    pub input_error: RelativeDeviation,
    /// Error of the cache reads, relative to the larger of both values.
    pub read_error: RelativeDeviation,
    /// Recorded usage. Money covers the threads whose model has prices.
    pub recorded: ComparedUsage,
    /// Simulated usage.
    pub simulated: ComparedUsage,
    /// Relative error of the price of an input token, if prices are known; above 0 if the simulation is
    /// dearer.
    pub price_error: Option<f64>,
    /// Calls that found less than half of what the call before had sent.
    pub cold: ColdCallCounts,
}

/// Relative errors of many calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RelativeDeviation {
    /// Median error.
    pub median: f64,
    /// Mean error.
    pub mean: f64,
}

/// Number of calls with large errors that are listed.
const WORST: usize = 10;

impl ComparisonTotals {
    /// Adds a thread; `None` is one without usage. The order of threads only decides which of two calls with
    /// equal errors is listed.
    pub fn add(&mut self, compared: Option<ThreadComparison>) {
        let Some(compared) = compared else {
            self.without_usage += 1;
            return;
        };
        self.threads += 1;
        self.calls += compared.calls;
        self.worst.extend(compared.worst);
        self.worst.sort_by_key(|worst| std::cmp::Reverse(worst.off()));
        self.worst.truncate(WORST);
        self.sides.extend(compared.sides);
    }

    /// Accuracy of the simulations: prefixes from all calls before those from the first call, and the real
    /// cache before the ideal one.
    pub fn reports(&self) -> Vec<SimulationAccuracy> {
        let mut kinds: Vec<(PrefixSource, &'static str)> =
            self.sides.iter().map(|side| (side.prefix, side.cache)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().map(|(prefix, cache)| self.report(prefix, cache)).collect()
    }

    fn report(&self, prefix: PrefixSource, cache: &'static str) -> SimulationAccuracy {
        let (mut input_errors, mut read_errors, mut cold) =
            (Vec::new(), Vec::new(), ColdCallCounts::default());
        let (mut recorded, mut simulated) = (ComparedUsage::default(), ComparedUsage::default());
        let mut priced = (ComparedUsage::default(), ComparedUsage::default());
        for side in self.sides.iter().filter(|side| (side.prefix, side.cache) == (prefix, cache)) {
            input_errors.extend_from_slice(&side.input_errors);
            read_errors.extend_from_slice(&side.read_errors);
            cold.found += side.cold.found;
            cold.missed += side.cold.missed;
            cold.wrong += side.cold.wrong;
            sum(&mut recorded, &side.recorded);
            sum(&mut simulated, &side.simulated);
            // Prices are compared only between calls that are priced on both sides.
            if side.recorded.money.is_some() && side.simulated.money.is_some() {
                sum(&mut priced.0, &side.recorded);
                sum(&mut priced.1, &side.simulated);
            }
        }
        let price = priced.0.price().zip(priced.1.price()).filter(|(recorded, _)| *recorded > 0.0);
        SimulationAccuracy {
            prefix,
            cache,
            calls: input_errors.len() as u64,
            input_error: RelativeDeviation::of(input_errors),
            read_error: RelativeDeviation::of(read_errors),
            recorded,
            simulated,
            price_error: price.map(|(recorded, simulated)| simulated / recorded - 1.0),
            cold,
        }
    }
}

fn sum(total: &mut ComparedUsage, used: &ComparedUsage) {
    total.input += used.input;
    total.cache_read += used.cache_read;
    if let Some(money) = used.money {
        total.money = Some(total.money.unwrap_or(Money(0)) + money);
    }
}

impl RelativeDeviation {
    #[expect(clippy::cast_precision_loss, reason = "no session has so many calls")]
    fn of(mut errors: Vec<f64>) -> Self {
        errors.sort_unstable_by(f64::total_cmp);
        let Some(median) = errors.get(errors.len() / 2) else { return Self::default() };
        Self { median: *median, mean: errors.iter().sum::<f64>() / errors.len() as f64 }
    }
}
