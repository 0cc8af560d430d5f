//! What a transcript does not show of the requests it tells of.
//!
//! Most agents write down the conversation and neither the system prompt nor the tools, which may be tens of thousands of
//! tokens. The provider counted them all the same: what a call is recorded to have sent, less what is counted of it, is
//! what is unseen. And where the provider's vocabulary is not ours, or an answer holds thinking that nobody may read, what
//! is seen grows faster by its count than by ours, which the calls of a session tell as well.

use std::sync::Arc;

use epitome_core::{Tokens, meter::Meter, project::Line};
use serde::{Serialize, Serializer};

use super::recorded::{
    fit::{growth, told},
    sent::counted,
};

/// What a transcript does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// Tokens that stand before everything the transcript shows, by the provider's count.
    pub prefix: Tokens,
    /// By how much what is shown is more by the provider's count than by ours.
    pub scale: Scale,
    /// How that is known.
    pub basis: Basis,
}

/// How it is known what is unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The transcript has system prompt and tools: nothing is unseen.
    Recorded,
    /// Inferred from what calls are recorded to have sent.
    Inferred {
        /// So many of them.
        calls: usize,
    },
    /// No call says what it sent. What nobody measured is not charged: nothing is taken to be unseen.
    Assumed,
}

/// Recorded tokens for each counted one, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale(u32);

impl Unseen {
    /// What the calls of a thread say. The prefix is what the first call sent beyond what is counted of it, unless a
    /// request after one of the client's compactions leaves room for less: then the thread did not begin where its file
    /// does.
    pub fn of(line: &Line, meter: &Arc<Meter>) -> Self {
        Self::inferred(line, meter, None)
    }

    /// The same from the first usage alone: what is counted is taken to be what is sent.
    pub fn of_first_call(line: &Line, meter: &Arc<Meter>) -> Self {
        Self::inferred(line, meter, Some(Scale::ONE))
    }

    /// Nothing is unseen, as far as anyone knows.
    pub fn assumed() -> Self {
        Self { prefix: Tokens(0), scale: Scale::ONE, basis: Basis::Assumed }
    }

    fn inferred(line: &Line, meter: &Arc<Meter>, scale: Option<Scale>) -> Self {
        let calls = counted(line, meter);
        let told = told(&calls);
        let shows_all = calls.first().is_some_and(|call| call.shows_prefix);
        let Some((first, rest)) = told.split_first() else {
            let basis = if shows_all { Basis::Recorded } else { Basis::Assumed };
            return Self { basis, ..Self::assumed() };
        };
        let scale = scale.unwrap_or_else(|| growth(&told).unwrap_or(Scale::ONE));
        let beyond = |input: Tokens, counted: Tokens| input.less(scale.of(counted));
        // After a compaction a request is small again, and what is missing from the transcript's beginning is not in it.
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
            return Self { prefix: Tokens(0), scale, basis: Basis::Recorded };
        }
        Self { prefix, scale, basis: Basis::Inferred { calls: told.len() } }
    }

    /// What the provider would count where we count so many.
    pub fn scaled(&self, counted: Tokens) -> Tokens {
        self.scale.of(counted)
    }

    /// How many tokens by our count fit beside the prefix into a window.
    pub fn room(&self, window: Tokens) -> Tokens {
        self.scale.within(window.less(self.prefix))
    }
}

impl Scale {
    /// Both count alike.
    pub const ONE: Self = Self(1_000_000);

    /// `some` for each `each`, within bounds beyond which it says nothing about counting.
    pub fn ratio(some: u64, each: u64) -> Self {
        let parts = u128::from(some) * u128::from(Self::ONE.0) / u128::from(each.max(1));
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        Self(parts.clamp(Self::ONE.0 / 4, Self::ONE.0 * 4))
    }

    /// What the provider would count, to the nearest.
    pub fn of(self, counted: Tokens) -> Tokens {
        let parts = u128::from(counted.0) * u128::from(self.0) + u128::from(Self::ONE.0 / 2);
        Tokens(u64::try_from(parts / u128::from(Self::ONE.0)).unwrap_or(u64::MAX))
    }

    /// The most that the provider counts as no more than `tokens`.
    pub fn within(self, tokens: Tokens) -> Tokens {
        let parts = u128::from(tokens.0) * u128::from(Self::ONE.0) / u128::from(self.0.max(1));
        Tokens(u64::try_from(parts).unwrap_or(u64::MAX))
    }

    /// As a number, for people to read.
    pub fn as_number(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE.0)
    }
}

impl Serialize for Scale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_number())
    }
}
