//! Each session as it was really sent, simulated and held against its recorded usage.
//!
//! A simulation that policies are judged by must first tell what happened. So every call of a thread is sent again with the
//! client's own compactions in force, and what the simulated cache reads is compared with what the provider says it read:
//! once with what the whole recording tells about what is unseen, and once with what the first call tells.

pub(crate) mod fit;
pub(crate) mod sent;
mod simulate;
mod sum;
#[cfg(test)]
mod tests;
mod why;

use std::sync::Arc;

use epitome_core::{
    Tokens,
    cost::Mode,
    event::Usage,
    meter::Meter,
    profile::{CacheRules, Money, Prices, Profile},
    project::Line,
};
use serde::Serialize;

pub use self::sum::{Comparison, Reported};
use self::{
    fit::{Fitted, told},
    sent::{Reader, Thoughts},
    simulate::{Guess, Seen, Simulation},
};
use super::unseen::{Basis, Unseen};

/// A thread's simulation beside its recording.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Whose it is.
    pub thread: String,
    /// How many calls say what they used.
    pub calls: u64,
    /// How many say nothing.
    pub silent: u64,
    /// What the first call says about what is unseen.
    pub inferred: Unseen,
    /// What all calls say.
    pub recorded: Unseen,
    /// How near the simulation came, by what it was told and how the cache was taken to behave.
    pub sides: Vec<Side>,
    /// The calls it was furthest off, the furthest first, with all that the recording tells.
    pub worst: Vec<Worst>,
}

/// How near a simulation came.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// What was taken to be unseen.
    pub prefix: Prefix,
    /// How the cache was taken to behave: `ideal` or `breakpoints`.
    pub cache: &'static str,
    /// What the calls used.
    pub recorded: Used,
    /// What they used in the simulation.
    pub simulated: Used,
    /// Calls that found less than half of what the call before had sent.
    pub cold: Cold,
    /// By which part of what is recorded each call's input was off.
    #[serde(skip)]
    pub input_errors: Vec<f64>,
    /// By which part of the larger of both each call's cache reads were off; 0 where both are 0. None, and no money, if
    /// the recording says nothing of a cache.
    #[serde(skip)]
    pub read_errors: Vec<f64>,
}

/// What is taken to be unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefix {
    /// What all calls of the recording say, as far as they go.
    Recorded,
    /// What the first call says.
    Inferred,
}

/// What calls used, their answers aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// All input.
    pub input: Tokens,
    /// What of it the cache read.
    pub cache_read: Tokens,
    /// What the input costs, where prices are known.
    pub money: Option<Money>,
}

/// Calls that found less than half of what the call before had sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cold {
    /// They did, and so they do in the simulation.
    pub found: u64,
    /// They did, and not so in the simulation.
    pub missed: u64,
    /// They do in the simulation and did not.
    pub wrong: u64,
}

/// A call that the simulation was far off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Worst {
    /// Whose it is.
    pub thread: String,
    /// The call, from 0.
    pub call: usize,
    /// What it used.
    pub recorded: Usage,
    /// What it used in the simulation.
    pub simulated: Usage,
    /// Why, in words.
    pub why: String,
}

impl Worst {
    /// By how many tokens it was off, reads and input together.
    pub fn off(&self) -> Tokens {
        off(&self.recorded, &self.simulated)
    }
}

/// How many calls of a thread are told of.
const WORST: usize = 10;

/// Sends a thread again and compares, unless no call says what it used. `profile` is that of the model that answered, whose
/// counts are by `meter`; without one the cache is taken to be ideal and nothing has a price.
pub fn compare(thread: &str, line: &Line, meter: &Arc<Meter>, profile: Option<&Profile>) -> Option<Compared> {
    let reader = Reader::new(line, meter, Thoughts::of(profile));
    let calls = reader.calls();
    let points = told(&calls);
    let fitted = Fitted::of(&points)?;
    let inferred = Unseen::of_first_call(line, meter);
    let basis = Basis::Inferred { calls: points.len() };
    let recorded = Unseen { prefix: fitted.prefix, scale: fitted.scale, basis };
    let (rules, prices) = profile.map_or_else(
        || (CacheRules::default(), Prices::default()),
        |profile| (profile.cache.clone(), profile.prices),
    );
    let frame = meter.overhead().request;
    let mut simulations = Vec::new();
    for (prefix, guess) in
        [(Prefix::Recorded, Guess::Fitted(fitted)), (Prefix::Inferred, Guess::First(inferred))]
    {
        for mode in [Mode::Breakpoints, Mode::Ideal] {
            // Where a profile does not know how its cache behaves, only the best case can be told.
            if let Ok(simulation) = Simulation::new(guess.clone(), &calls, (&rules, &prices), mode, frame) {
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
    let cache = if cached { Told::Recorded } else { Told::Silent };
    let worst = simulations
        .first()
        .map_or_else(Vec::new, |(_, _, simulation)| worst(thread, &simulation.seen, cache));
    let spoken = calls.iter().filter(|call| call.usage.is_some()).count();
    Some(Compared {
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

/// Whether a recording says anything about the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// It does.
    Recorded,
    /// No call read or wrote any: whoever recorded it left that out, or there was none.
    Silent,
}

fn side((prefix, mode): (Prefix, Mode), told: Told, seen: &[Seen], prices: &Prices) -> Side {
    let cache = match mode {
        Mode::Ideal => "ideal",
        Mode::Breakpoints => "breakpoints",
    };
    let mut side = Side {
        prefix,
        cache,
        recorded: Used { money: Some(Money(0)), ..Used::default() },
        simulated: Used { money: Some(Money(0)), ..Used::default() },
        cold: Cold::default(),
        input_errors: Vec::with_capacity(seen.len()),
        read_errors: Vec::with_capacity(seen.len()),
    };
    let mut before: Option<&Seen> = None;
    for call in seen {
        side.recorded.add(&call.recorded, prices);
        side.simulated.add(&call.simulated, prices);
        let (recorded, simulated) = (call.recorded.input(), call.simulated.input());
        side.input_errors.push(part(recorded, simulated, recorded));
        if told == Told::Silent {
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
    if told == Told::Silent {
        (side.recorded.money, side.simulated.money) = (None, None);
    }
    side
}

impl Used {
    fn add(&mut self, usage: &Usage, prices: &Prices) {
        self.input += usage.input();
        self.cache_read += usage.cache_read;
        let cost = prices.cost(&Usage { output: Tokens(0), ..*usage }).ok();
        self.money = self.money.zip(cost).map(|(money, cost)| money + cost);
    }

    /// Dollars for a million tokens of input.
    #[expect(clippy::cast_precision_loss, reason = "what a person reads needs no more digits")]
    pub fn price(&self) -> Option<f64> {
        (self.input > Tokens(0)).then_some(self.money?.dollars() * 1e6 / self.input.0 as f64)
    }
}

impl Cold {
    fn add(&mut self, was: bool, is: bool) {
        match (was, is) {
            (true, true) => self.found += 1,
            (true, false) => self.missed += 1,
            (false, true) => self.wrong += 1,
            (false, false) => {}
        }
    }
}

/// Whether a call found less than half of what the one before had sent.
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

/// The calls that were furthest off, the furthest first.
fn worst(thread: &str, seen: &[Seen], told: Told) -> Vec<Worst> {
    if told == Told::Silent {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(off(&seen[*at].recorded, &seen[*at].simulated)));
    let tell = |at: usize| Worst {
        thread: thread.to_owned(),
        call: seen[at].call,
        recorded: seen[at].recorded,
        simulated: seen[at].simulated,
        why: why::why(&seen[at], at.checked_sub(1).and_then(|before| seen.get(before))),
    };
    order.into_iter().take(WORST).map(tell).collect()
}
