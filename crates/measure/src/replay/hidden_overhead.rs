//! The hidden part of requests, which a transcript does not show.
//!
//! Most agents record the conversation but neither the system prompt nor the tools, which may be tens of
//! thousands of tokens. The provider counted all of it, so the hidden part is the recorded input of a call
//! less its counted part. If the provider's vocabulary differs from ours, or an answer holds hidden thinking,
//! the visible part grows faster by the provider's count than by ours, which the calls of a session show as
//! well.

use std::sync::Arc;

use epitome::{
    core::{Tokens, meter::Meter, projection::EventLine},
    recorded_calls::counted,
};
use serde::{Serialize, Serializer};

use super::recorded_usage::overhead_fit::{fit_points, growth};

/// Hidden part of a transcript's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HiddenOverhead {
    /// Tokens before everything that the transcript shows, by the provider's count.
    pub prefix: Tokens,
    /// Ratio of the provider's count to ours for the visible part.
    pub scale: TokenScale,
    /// Basis of the estimate.
    pub basis: OverheadBasis,
}

/// Basis of the estimated hidden part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OverheadBasis {
    /// The transcript has system prompt and tools, so nothing is hidden.
    Recorded,
    /// Derived from the recorded input of calls.
    Inferred {
        /// Number of these calls.
        calls: usize,
    },
    /// No call has recorded input. An unknown part is not charged, so it is assumed to be empty.
    Assumed,
}

/// Recorded tokens for each counted one, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenScale(u32);

impl HiddenOverhead {
    /// Estimates the hidden part from the calls of a thread. The prefix is the recorded input of the first
    /// call less its counted part, unless a request after one of the client's compactions leaves room for
    /// less: then the thread did not begin where its file does.
    pub fn of(line: &EventLine, meter: &Arc<Meter>) -> Self {
        Self::inferred(line, meter, None)
    }

    /// Estimates the hidden part from the first usage alone, with our counts taken as exact.
    pub fn of_first_call(line: &EventLine, meter: &Arc<Meter>) -> Self {
        Self::inferred(line, meter, Some(TokenScale::ONE))
    }

    /// An empty hidden part, for lack of information.
    pub fn unknown() -> Self {
        Self { prefix: Tokens(0), scale: TokenScale::ONE, basis: OverheadBasis::Assumed }
    }

    fn inferred(line: &EventLine, meter: &Arc<Meter>, scale: Option<TokenScale>) -> Self {
        let calls = counted(line, meter);
        let told = fit_points(&calls);
        let shows_all = calls.first().is_some_and(|call| call.shows_prefix);
        let Some((first, rest)) = told.split_first() else {
            let basis = if shows_all { OverheadBasis::Recorded } else { OverheadBasis::Assumed };
            return Self { basis, ..Self::unknown() };
        };
        let scale = scale.unwrap_or_else(|| growth(&told).unwrap_or(TokenScale::ONE));
        let beyond = |input: Tokens, counted: Tokens| input.less(scale.of(counted));
        // After a compaction a request is small again, and does not contain a beginning that the transcript
        // lacks.
        let mut before = first;
        let mut prefix = beyond(first.input, first.counted);
        for call in rest {
            let left = beyond(call.input, call.counted);
            if call.standing != before.standing && left > Tokens(0) {
                prefix = prefix.min(left);
            }
            prefix = prefix.min(call.input);
            before = call;
        }
        if shows_all {
            return Self { prefix: Tokens(0), scale, basis: OverheadBasis::Recorded };
        }
        Self { prefix, scale, basis: OverheadBasis::Inferred { calls: told.len() } }
    }

    /// The provider's count for a count of ours.
    pub fn scaled(&self, counted: Tokens) -> Tokens {
        self.scale.of(counted)
    }

    /// Tokens by our count that fit beside the prefix into a window.
    pub fn room(&self, window: Tokens) -> Tokens {
        self.scale.within(window.less(self.prefix))
    }
}

impl TokenScale {
    /// Both counts are equal.
    pub const ONE: Self = Self(1_000_000);

    /// `some` for each `each`, within the bounds of plausible differences in counting.
    pub fn ratio(some: u64, each: u64) -> Self {
        let parts = u128::from(some) * u128::from(Self::ONE.0) / u128::from(each.max(1));
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        Self(parts.clamp(Self::ONE.0 / 4, Self::ONE.0 * 4))
    }

    /// The provider's count, to the nearest.
    pub fn of(self, counted: Tokens) -> Tokens {
        let parts = u128::from(counted.0) * u128::from(self.0) + u128::from(Self::ONE.0 / 2);
        Tokens(u64::try_from(parts / u128::from(Self::ONE.0)).unwrap_or(u64::MAX))
    }

    /// Most tokens by our count that the provider counts as no more than `tokens`.
    pub fn within(self, tokens: Tokens) -> Tokens {
        let parts = u128::from(tokens.0) * u128::from(Self::ONE.0) / u128::from(self.0.max(1));
        Tokens(u64::try_from(parts).unwrap_or(u64::MAX))
    }

    /// The ratio as a floating-point number, for people to read.
    pub fn as_number(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE.0)
    }
}

impl Serialize for TokenScale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_number())
    }
}
