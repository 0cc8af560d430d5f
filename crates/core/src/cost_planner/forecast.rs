//! A forecast: the calls that are still to come, one by one.
//!
//! The benefit of an edit depends on the future: the number of calls that will read less because of it, the
//! chance that a pause will soon make it free, and the chance that the thresholds will demand one anyway. A
//! list of calls holds all of that, and can be played out; an average could not.

use serde::{Deserialize, Serialize};

use crate::tokens::Tokens;

/// The calls expected after the one that is planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// In order.
    pub calls: Vec<ExpectedCall>,
}

/// A call that is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedCall {
    /// Growth of the context since the call before.
    pub growth: Tokens,
    /// State of the cache after the pause before it.
    pub cache: CacheWarmth,
    /// Segments that the free reducers could newly remove.
    pub ripe: Option<RemovableContent>,
}

/// State of the cache for the content that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheWarmth {
    /// It does.
    #[default]
    Warm,
    /// Empty: all of the request will be written again in any case.
    Cold,
    /// Without any promise by the provider.
    Unknown,
}

/// Something that reducers may take from now on. The oldest becomes ripe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovableContent {
    /// Tokens that they remove.
    pub removes: Tokens,
    /// Tokens that then still stand from where they begin to the end.
    pub behind: Tokens,
}

/// Past of a session, from which its future is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallHistory {
    /// The calls so far.
    pub calls: u64,
    /// Those of them that found the cache cold because of a pause.
    pub pauses: u64,
    /// Growth of the context in all of them.
    pub growth: Tokens,
    /// Part of it that the reducers could remove.
    pub ripened: Tokens,
    /// Usual size of the context behind the newest segments that they could remove.
    pub behind: Tokens,
}

/// As if this many calls had been seen before the session, of which three more had been a session's last. Then 63 calls
/// are expected of a new session: 56 sessions of coding agents made 3 508.
const CALLS_BEFORE: u64 = 126;
/// Growth in each of those calls.
const GROWTH_BEFORE: u64 = 1_400;
/// One call in so many comes after the cache has gone cold: 3.7 % of a service's requests.
const CALLS_A_PAUSE: u64 = 27;
/// Most calls that a forecast looks ahead: beyond them any guess is useless.
const FARTHEST: u64 = 1_000;

impl CallHistory {
    /// Average growth in a call, starting from the known average of other sessions.
    pub fn growth_of_call(&self) -> Tokens {
        Tokens(self.growth.0.saturating_add(GROWTH_BEFORE) / self.calls.saturating_add(1))
    }
}

impl Forecast {
    /// Forecast for a session with this past.
    ///
    /// Each call may be the last, with an unknown chance that falls with every call that was not: a session
    /// of `n` calls is expected to make `63 + n / 2` more. Growth and pauses are averages, with 1 400 tokens
    /// a call and a pause in 27 calls to begin with.
    pub fn from_history(history: &CallHistory) -> Self {
        let CallHistory { calls, pauses, growth: _, ripened, behind } = *history;
        let coming = (CALLS_BEFORE.saturating_add(calls) / 2).min(FARTHEST);
        let every = CALLS_A_PAUSE.saturating_add(calls) / pauses.saturating_add(1);
        let growth = history.growth_of_call();
        let removes = Tokens(ripened.0.checked_div(calls).unwrap_or(0)).min(growth);
        let ripe = (removes > Tokens(0)).then_some(RemovableContent { removes, behind });
        let call = |number: u64| {
            let cache =
                if number.is_multiple_of(every.max(1)) { CacheWarmth::Cold } else { CacheWarmth::Warm };
            ExpectedCall { growth, cache, ripe }
        };
        Self { calls: (1..=coming).map(call).collect() }
    }

    /// So many calls without a pause, each with so much more in it.
    pub fn steady(calls: usize, growth: Tokens) -> Self {
        Self { calls: vec![ExpectedCall { growth, ..ExpectedCall::default() }; calls] }
    }

    /// The first half of it: as long a session may turn out to be that was expected to be twice as long.
    pub(super) fn first_half(&self) -> Self {
        Self { calls: self.calls[..self.calls.len() / 2].to_vec() }
    }

    /// Growth of the context in the next `calls` calls.
    pub(super) fn growth(&self, calls: usize) -> Tokens {
        self.calls.iter().take(calls).map(|call| call.growth).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(history: CallHistory, calls: usize, growth: u64, first_pause: Option<usize>, ripe: Option<u64>) {
        let forecast = Forecast::from_history(&history);
        assert_eq!(forecast.calls.len(), calls, "{history:?}");
        let pause = forecast.calls.iter().position(|call| call.cache == CacheWarmth::Cold);
        assert_eq!(pause.map(|pause| pause + 1), first_pause, "{history:?}");
        let first = forecast.calls[0];
        assert_eq!((first.growth.0, first.ripe.map(|ripe| ripe.removes.0)), (growth, ripe), "{history:?}");
    }

    #[test]
    fn a_forecast_learns_from_the_session() {
        check(CallHistory::default(), 63, 1_400, Some(27), None);
        let history = CallHistory { calls: 99, pauses: 0, growth: Tokens(198_600), ..CallHistory::default() };
        check(history, 112, 2_000, None, None);
        check(CallHistory { pauses: 8, ripened: Tokens(49_500), ..history }, 112, 2_000, Some(14), Some(500));
        let absurd = Tokens(u64::MAX);
        let absurd = CallHistory {
            calls: u64::MAX,
            pauses: u64::MAX,
            growth: absurd,
            ripened: absurd,
            behind: absurd,
        };
        check(absurd, 1_000, 1, Some(1), Some(1));
    }
}
