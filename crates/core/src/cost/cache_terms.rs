//! Promises and prices of a provider's cache, read from a profile once.
//!
//! Missing information in the profile is not guessed. For the provider's real behaviour a missing rule is an
//! error that names it; for the best case an unknown limit does not limit.

use thiserror::Error;

use crate::{
    event::Usage,
    profile::{CacheRules, CacheWriteMode, PriceMultiple, TokenPrices},
    tokens::Tokens,
};

/// A rule of a cache that is needed and that the profile does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "following the model's prompt cache: its profile does not say `cache.{field}`; give it in a profile of your own, \
     or ask for the ideal cache"
)]
pub struct UnknownRuleError {
    /// Field of the profile that would hold it.
    pub field: &'static str,
}

/// The terms of a cache that hold wherever its entries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheTerms {
    minimum: Tokens,
    /// In seconds, the usual one first; empty if none is known or promised.
    lifetimes: Vec<u64>,
    written: Option<CacheWriteMode>,
    writes: WriteBilling,
    prices: TokenPrices,
}

/// Billing category of new tokens in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteBilling {
    /// It is a write, with a price of its own.
    Charged,
    /// As ordinary input: the provider keeps it for free.
    AsInput,
}

impl CacheTerms {
    /// The terms as far as they are known: no minimum where none is stated.
    pub fn new(rules: &CacheRules, prices: &TokenPrices) -> Self {
        let is_free = prices.cache_write.is_none_or(|multiple| multiple == PriceMultiple::ONE);
        let writes = match rules.written {
            Some(CacheWriteMode::Automatic) if is_free => WriteBilling::AsInput,
            Some(
                CacheWriteMode::Automatic | CacheWriteMode::Breakpoints | CacheWriteMode::ImplicitAndExplicit,
            )
            | None => WriteBilling::Charged,
        };
        Self {
            minimum: rules.minimum_prefix.unwrap_or_default(),
            lifetimes: rules.lifetimes.clone().unwrap_or_default(),
            written: rules.written,
            writes,
            prices: *prices,
        }
    }

    /// The shortest prefix that is kept.
    pub fn minimum(&self) -> Tokens {
        self.minimum
    }

    /// Prices of tokens.
    pub fn prices(&self) -> &TokenPrices {
        &self.prices
    }

    /// Lifetime in seconds of an entry for which `asked`, or the usual time, was requested: the longest time
    /// on offer that is not more, or else the shortest. `None` if the provider promises nothing.
    pub fn lifetime(&self, asked: Option<u64>) -> Option<u64> {
        let usual = *self.lifetimes.first()?;
        let Some(asked) = asked else { return Some(usual) };
        let granted = self.lifetimes.iter().copied().filter(|lifetime| *lifetime <= asked).max();
        granted.or_else(|| self.lifetimes.iter().copied().min())
    }

    /// Returns true if the whole request is kept for one time, regardless of its breakpoints.
    pub(super) fn keeps_requests_whole(&self) -> bool {
        self.written == Some(CacheWriteMode::Automatic)
    }

    /// Billed usage of a call that read this much of its input and had the rest written for a time, or not at
    /// all.
    pub(super) fn usage(&self, input: InputSplit, output: Tokens) -> Usage {
        let InputSplit { read, written, written_long, uncached } = input;
        match self.writes {
            WriteBilling::Charged => Usage {
                uncached,
                cache_read: read,
                cache_write: written + written_long,
                cache_write_hour: written_long,
                output,
            },
            WriteBilling::AsInput => Usage {
                uncached: uncached + written + written_long,
                cache_read: read,
                cache_write: Tokens(0),
                cache_write_hour: Tokens(0),
                output,
            },
        }
    }

    /// Billed usage in the ideal cache for `total` tokens of input of which it holds the first `held`, when
    /// everything new is to live for `asked`.
    pub fn ideal(&self, held: Tokens, total: Tokens, asked: Option<u64>) -> Usage {
        let read = if held < self.minimum { Tokens(0) } else { held.min(total) };
        let new = total.less(read);
        let input = match self.time(self.lifetime(asked)) {
            _ if total < self.minimum => InputSplit { uncached: total, ..InputSplit::default() },
            WriteLifetime::Usual => InputSplit { read, written: new, ..InputSplit::default() },
            WriteLifetime::Longer => InputSplit { read, written_long: new, ..InputSplit::default() },
        };
        self.usage(input, Tokens(0))
    }

    /// Write price, of the two, that applies to a lifetime.
    pub(super) fn time(&self, lifetime: Option<u64>) -> WriteLifetime {
        match (lifetime, self.lifetimes.first()) {
            (Some(lifetime), Some(usual)) if lifetime > *usual => WriteLifetime::Longer,
            _ => WriteLifetime::Usual,
        }
    }
}

/// The two prices of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteLifetime {
    /// As long as entries usually live.
    Usual,
    /// Longer, which costs more.
    Longer,
}

/// Division of a request's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputSplit {
    pub(super) read: Tokens,
    pub(super) written: Tokens,
    pub(super) written_long: Tokens,
    pub(super) uncached: Tokens,
}
