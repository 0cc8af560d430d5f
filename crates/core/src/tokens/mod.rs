//! Tokens: the unit of every budget, and the counters for them.
//!
//! `O200k` (with the feature `bpe`) counts exactly, for the models whose vocabulary is public; [`EstimateCounter`] comes close for all the others.

mod estimate;
#[cfg(feature = "bpe")]
mod o200k;

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign},
};

use serde::{Deserialize, Serialize};

pub use estimate::EstimateCounter;
#[cfg(feature = "bpe")]
pub use o200k::O200kCounter;

/// A number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub u64);

impl Tokens {
    /// The largest number, as the value of a missing limit.
    pub const MAX: Self = Self(u64::MAX);

    /// Difference from `other`; zero, if that is more.
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(tokens: I) -> Self {
        tokens.fold(Self(0), Add::add)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the tokens of a text.
///
/// An implementor must be deterministic, and two counters with the same [`name`](Self::name) must agree on
/// every text: counts are stored under that name and never made again.
///
/// ```
/// use epitome_core::tokens::{TokenCounter, Tokens};
///
/// struct Words;
/// impl TokenCounter for Words {
///     fn name(&self) -> &'static str {
///         "words"
///     }
///     fn count(&self, text: &str) -> Tokens {
///         Tokens(text.split_whitespace().count() as u64)
///     }
/// }
/// assert_eq!(Words.count("two words"), Tokens(2));
/// ```
pub trait TokenCounter: Send + Sync {
    /// The name counts are stored under.
    fn name(&self) -> &'static str;

    /// The tokens of `text`.
    fn count(&self, text: &str) -> Tokens;
}
