//! Comparison of simulated sessions, sent as they really were, with their recorded usage.
//!
//! A simulation that is used to compare policies must first reproduce what happened. So every call of a
//! thread is sent again with the client's own compactions in force, and the reads of the simulated cache are
//! compared with those that the provider reported: once with the hidden part estimated from the whole
//! recording, and once with the estimate from the first call.

mod cache_simulation;
mod comparison_totals;
mod mismatch_reason;
pub(crate) mod overhead_fit;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use epitome::{
    core::{
        Tokens,
        cost::CacheAssumption,
        event::Usage,
        meter::Meter,
        profile::{CacheRules, Money, Profile, TokenPrices},
        projection::EventLine,
    },
    recorded_calls::{RecordedCallReader, SentReasoning},
};
use serde::Serialize;

pub use self::comparison_totals::{ComparisonTotals, SimulationAccuracy};
use self::{
    cache_simulation::{CacheSimulation, ComparedCall, OverheadSource},
    overhead_fit::{FittedOverhead, fit_points},
};
use super::hidden_overhead::{HiddenOverhead, OverheadBasis};

/// Simulation of a thread, with its recording.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadComparison {
    /// Name of the thread.
    pub thread: String,
    /// Number of calls with recorded usage.
    pub calls: u64,
    /// Number of calls without.
    pub silent: u64,
    /// Hidden part by the first call.
    pub inferred: HiddenOverhead,
    /// Hidden part by all calls.
    pub recorded: HiddenOverhead,
    /// Accuracy of the simulation for each source of the prefix and each behaviour of the cache.
    pub sides: Vec<ComparisonSide>,
    /// Calls with the largest errors, the largest first, by all that the recording shows.
    pub worst: Vec<WorstCall>,
}

/// Accuracy of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonSide {
    /// Source of the assumed prefix.
    pub prefix: PrefixSource,
    /// Simulated behaviour of the cache: `ideal` or `breakpoints`.
    pub cache: &'static str,
    /// Recorded usage.
    pub recorded: ComparedUsage,
    /// Simulated usage.
    pub simulated: ComparedUsage,
    /// Calls that found less than half of what the call before had sent.
    pub cold: ColdCallCounts,
    /// Relative error of each call's input.
    #[serde(skip)]
    pub input_errors: Vec<f64>,
    /// Error of each call's cache reads, relative to the larger of both values; 0 if both are 0. Empty, like
    /// the money, if the recording has no cache usage.
    #[serde(skip)]
    pub read_errors: Vec<f64>,
}

/// Source of the assumed prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixSource {
    /// All calls of the recording, as far as they go.
    Recorded,
    /// The first call.
    Inferred,
}

/// Usage of calls, without their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComparedUsage {
    /// All input.
    pub input: Tokens,
    /// Part of it that the cache read.
    pub cache_read: Tokens,
    /// Cost of the input, if prices are known.
    pub money: Option<Money>,
}

/// Calls that found less than half of what the call before had sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColdCallCounts {
    /// Cold in the recording and in the simulation.
    pub found: u64,
    /// Cold in the recording alone.
    pub missed: u64,
    /// Cold in the simulation alone.
    pub wrong: u64,
}

/// A call with a large error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorstCall {
    /// Name of the thread.
    pub thread: String,
    /// Number of the call, from 0.
    pub call: usize,
    /// Recorded usage.
    pub recorded: Usage,
    /// Simulated usage.
    pub simulated: Usage,
    /// Explanation of the error.
    pub why: String,
}

impl WorstCall {
    /// Error in tokens, reads and input together.
    pub fn off(&self) -> Tokens {
        off(&self.recorded, &self.simulated)
    }
}

/// Number of a thread's calls that are listed.
const WORST: usize = 10;

/// Sends a thread again and compares; `None` without recorded usage. `profile` is that of the model that
/// answered, whose counts are by `meter`; without one, the cache is assumed to be ideal and there are no
/// prices.
pub fn compare(
    thread: &str,
    line: &EventLine,
    meter: &Arc<Meter>,
    profile: Option<&Profile>,
) -> Option<ThreadComparison> {
    let reader = RecordedCallReader::new(line, meter, SentReasoning::of(profile));
    let calls = reader.calls();
    let points = fit_points(&calls);
    let fitted = FittedOverhead::of(&points)?;
    let inferred = HiddenOverhead::of_first_call(line, meter);
    let basis = OverheadBasis::Inferred { calls: points.len() };
    let recorded = HiddenOverhead { prefix: fitted.prefix, scale: fitted.scale, basis };
    let (rules, prices) = profile.map_or_else(
        || (CacheRules::default(), TokenPrices::default()),
        |profile| (profile.cache.clone(), profile.prices),
    );
    let frame = meter.overhead().request;
    let mut simulations = Vec::new();
    for (prefix, guess) in [
        (PrefixSource::Recorded, OverheadSource::Fitted(fitted)),
        (PrefixSource::Inferred, OverheadSource::First(inferred)),
    ] {
        for mode in [CacheAssumption::Breakpoints, CacheAssumption::Ideal] {
            // If a profile does not describe its cache, only the ideal case can be simulated.
            if let Ok(simulation) =
                CacheSimulation::new(guess.clone(), &calls, (&rules, &prices), mode, frame)
            {
                simulations.push((prefix, mode, simulation));
            }
        }
    }
    let mut number = 0;
    reader.each(|_, pieces| {
        if let Some(call) = calls.get(number) {
            let model = call.model.as_ref().map_or("", |model| &model.0);
            for (_, _, simulation) in &mut simulations {
                simulation.send(number, call, pieces, model);
            }
        }
        number += 1;
    });
    let cached = calls
        .iter()
        .filter_map(|call| call.usage)
        .any(|usage| usage.cache_read + usage.cache_write > Tokens(0));
    let cache = if cached { UsageReporting::Recorded } else { UsageReporting::Silent };
    let worst = simulations
        .first()
        .map_or_else(Vec::new, |(_, _, simulation)| worst(thread, &simulation.seen, cache));
    let spoken = calls.iter().filter(|call| call.usage.is_some()).count();
    Some(ThreadComparison {
        thread: thread.to_owned(),
        calls: spoken as u64,
        silent: (calls.len() - spoken) as u64,
        inferred,
        recorded,
        sides: simulations
            .into_iter()
            .map(|(prefix, mode, simulation)| side((prefix, mode), cache, &simulation.seen, &prices))
            .collect(),
        worst,
    })
}

/// Presence of cache usage in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsageReporting {
    /// The recording has cache usage.
    Recorded,
    /// No call read or wrote a cache: the recorder left that out, or there was none.
    Silent,
}

fn side(
    (prefix, mode): (PrefixSource, CacheAssumption),
    told: UsageReporting,
    seen: &[ComparedCall],
    prices: &TokenPrices,
) -> ComparisonSide {
    let cache = match mode {
        CacheAssumption::Ideal => "ideal",
        CacheAssumption::Breakpoints => "breakpoints",
    };
    let mut side = ComparisonSide {
        prefix,
        cache,
        recorded: ComparedUsage { money: Some(Money(0)), ..ComparedUsage::default() },
        simulated: ComparedUsage { money: Some(Money(0)), ..ComparedUsage::default() },
        cold: ColdCallCounts::default(),
        input_errors: Vec::with_capacity(seen.len()),
        read_errors: Vec::with_capacity(seen.len()),
    };
    let mut before: Option<&ComparedCall> = None;
    for call in seen {
        side.recorded.add(&call.recorded, prices);
        side.simulated.add(&call.simulated, prices);
        let (recorded, simulated) = (call.recorded.input(), call.simulated.input());
        side.input_errors.push(part(recorded, simulated, recorded));
        if told == UsageReporting::Silent {
            continue;
        }
        let (recorded, simulated) = (call.recorded.cache_read, call.simulated.cache_read);
        side.read_errors.push(part(recorded, simulated, recorded.max(simulated)));
        if let Some(before) = before {
            side.cold
                .add(is_cold(&before.recorded, &call.recorded), is_cold(&before.simulated, &call.simulated));
        }
        before = Some(call);
    }
    if told == UsageReporting::Silent {
        (side.recorded.money, side.simulated.money) = (None, None);
    }
    side
}

impl ComparedUsage {
    fn add(&mut self, usage: &Usage, prices: &TokenPrices) {
        self.input += usage.input();
        self.cache_read += usage.cache_read;
        let cost = prices.cost(&Usage { output: Tokens(0), ..*usage }).ok();
        self.money = self.money.zip(cost).map(|(money, cost)| money + cost);
    }

    /// Dollars per million tokens of input.
    #[expect(clippy::cast_precision_loss, reason = "what a person reads needs no more digits")]
    pub fn price(&self) -> Option<f64> {
        (self.input > Tokens(0)).then_some(self.money?.dollars() * 1e6 / self.input.0 as f64)
    }
}

impl ColdCallCounts {
    fn add(&mut self, was: bool, is: bool) {
        match (was, is) {
            (true, true) => self.found += 1,
            (true, false) => self.missed += 1,
            (false, true) => self.wrong += 1,
            (false, false) => {}
        }
    }
}

/// Returns true if a call found less than half of what the one before had sent.
fn is_cold(before: &Usage, now: &Usage) -> bool {
    now.cache_read.0 < before.input().0 / 2
}

#[expect(clippy::cast_precision_loss, reason = "an error needs no more digits")]
fn part(one: Tokens, other: Tokens, whole: Tokens) -> f64 {
    one.0.abs_diff(other.0) as f64 / whole.0.max(1) as f64
}

fn off(recorded: &Usage, simulated: &Usage) -> Tokens {
    let reads = recorded.cache_read.0.abs_diff(simulated.cache_read.0);
    Tokens(reads.saturating_add(recorded.input().0.abs_diff(simulated.input().0)))
}

/// Calls with the largest errors, the largest first.
fn worst(thread: &str, seen: &[ComparedCall], told: UsageReporting) -> Vec<WorstCall> {
    if told == UsageReporting::Silent {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(off(&seen[*at].recorded, &seen[*at].simulated)));
    let tell = |at: usize| WorstCall {
        thread: thread.to_owned(),
        call: seen[at].call,
        recorded: seen[at].recorded,
        simulated: seen[at].simulated,
        why: mismatch_reason::why(&seen[at], at.checked_sub(1).and_then(|before| seen.get(before))),
    };
    order.into_iter().take(WORST).map(tell).collect()
}
