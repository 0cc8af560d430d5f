//! Totals of the calls of many threads.

use std::ops::AddAssign;

use epitome::core::{Tokens, event::Usage, profile::Money};

use super::{
    ReplayFate, ReplayRow,
    retention::{FactRetention, RetentionDrift},
};

/// Totals of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayTotals {
    /// Number of calls to be made.
    pub calls: u64,
    /// Size of the largest request.
    pub peak: Tokens,
    /// Simulated usage of the calls.
    pub usage: Usage,
    /// Usage of summaries that a model wrote.
    pub summariser: Usage,
    /// Total cost; calls without a known price are left out.
    pub money: Money,
    /// Number of calls without a known price.
    pub unpriced: u64,
    /// Number of resets, which change what was sent before.
    pub resets: u64,
    /// Number of summaries.
    pub summaries: u64,
    /// Number of requests beyond the window.
    pub overflows: u64,
    /// Number of calls that could not be made.
    pub refused: u64,
    /// Number of requests that break a rule of their provider.
    pub illegal: u64,
    /// Needed facts that the requests held.
    pub retention: FactRetention,
    /// The same, by the number of compactions that the requests build on.
    pub drift: RetentionDrift,
}

impl ReplayTotals {
    /// Adds a call.
    pub fn add(&mut self, played: &ReplayRow) {
        self.calls += 1;
        self.peak = self.peak.max(played.tokens);
        add(&mut self.usage, &played.usage);
        let mut charge = |money: Option<Money>| match money {
            Some(money) => self.money = self.money + money,
            None => self.unpriced += 1,
        };
        charge(played.money);
        if let Some(summarised) = &played.summarised {
            charge(summarised.money);
            add(&mut self.summariser, &summarised.usage);
            self.summaries += 1;
        }
        self.resets += u64::from(played.cause.is_some());
        self.overflows += u64::from(played.fate == ReplayFate::Overflowed);
        self.refused += u64::from(played.fate == ReplayFate::Refused);
        self.illegal += u64::from(played.illegal > 0);
        self.retention += played.retention;
        self.drift.add(played.compactions, played.retention);
    }

    /// Mean size of a request.
    pub fn mean(&self) -> Tokens {
        let made = self.calls - self.refused;
        Tokens(self.usage.input().0.checked_div(made).unwrap_or(0))
    }

    /// Share of the input that the cache held.
    pub fn hits(&self) -> Option<f64> {
        share(self.usage.cache_read.0, self.usage.input().0)
    }

    /// Cost as a part of another total's cost.
    pub fn against(&self, other: &Self) -> Option<f64> {
        share(self.money.0, other.money.0)
    }
}

impl<'a> FromIterator<&'a ReplayRow> for ReplayTotals {
    fn from_iter<I: IntoIterator<Item = &'a ReplayRow>>(calls: I) -> Self {
        let mut total = Self::default();
        calls.into_iter().for_each(|played| total.add(played));
        total
    }
}

impl AddAssign<&ReplayTotals> for ReplayTotals {
    fn add_assign(&mut self, other: &ReplayTotals) {
        self.calls += other.calls;
        self.peak = self.peak.max(other.peak);
        add(&mut self.usage, &other.usage);
        add(&mut self.summariser, &other.summariser);
        self.money = self.money + other.money;
        self.unpriced += other.unpriced;
        self.resets += other.resets;
        self.summaries += other.summaries;
        self.overflows += other.overflows;
        self.refused += other.refused;
        self.illegal += other.illegal;
        self.retention += other.retention;
        self.drift += other.drift;
    }
}

fn add(to: &mut Usage, usage: &Usage) {
    to.uncached += usage.uncached;
    to.cache_read += usage.cache_read;
    to.cache_write += usage.cache_write;
    to.cache_write_hour += usage.cache_write_hour;
    to.output += usage.output;
}

#[expect(clippy::cast_precision_loss, reason = "what a person reads needs no more digits")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
