//! Cost of a call. An unknown price makes the cost unknown: it is never taken for zero.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::units::{Money, Price, PriceMultiple};
use crate::{event::Usage, tokens::Tokens};

/// Prices of tokens. The cache prices are multiples of the input price, as providers state them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenPrices {
    /// Dollars for a million tokens of input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Price>,
    /// Dollars for a million tokens of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Price>,
    /// For input read from the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<PriceMultiple>,
    /// For input written to the cache for the usual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<PriceMultiple>,
    /// For input written to the cache for an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_hour: Option<PriceMultiple>,
    /// Different prices for long requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongInputPrices>,
}

/// The prices of a request whose input is longer than a limit. They hold for all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongInputPrices {
    /// Input beyond this makes a request long.
    pub above: Tokens,
    /// A multiple of every input price.
    pub input: PriceMultiple,
    /// A multiple of the output price.
    pub output: PriceMultiple,
}

/// A cost that is unknown because a price is missing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no price is known for {what}; give `price.{field}` for the model in a profile of your own")]
pub struct UnknownPriceError {
    /// Kind of usage that has no price.
    pub what: &'static str,
    /// Field of the profile that would hold it.
    pub field: &'static str,
}

impl TokenPrices {
    /// Cost of a call with this usage.
    pub fn cost(&self, usage: &Usage) -> Result<Money, UnknownPriceError> {
        let long = self.long.filter(|long| usage.input() > long.above);
        let (long_input, long_output) =
            long.map_or((PriceMultiple::ONE, PriceMultiple::ONE), |long| (long.input, long.output));
        let hour = usage.cache_write_hour.min(usage.cache_write);
        let input = [
            (usage.uncached, Some(PriceMultiple::ONE), "uncached input", "input"),
            (usage.cache_read, self.cache_read, "cache reads", "cache_read"),
            (usage.cache_write.less(hour), self.cache_write, "cache writes", "cache_write"),
            (hour, self.cache_write_hour, "cache writes for an hour", "cache_write_hour"),
        ];
        let mut total: u128 = 0;
        for (tokens, multiple, what, field) in input {
            let charge = charge(tokens, self.input, multiple, long_input, UnknownPriceError { what, field })?;
            total = total.saturating_add(charge);
        }
        let unknown = UnknownPriceError { what: "output", field: "output" };
        let output = charge(usage.output, self.output, Some(PriceMultiple::ONE), long_output, unknown)?;
        // Rounded once, at the end.
        let nano = total.saturating_add(output).saturating_add(FINE / 2) / FINE;
        Ok(Money(u64::try_from(nano).unwrap_or(u64::MAX)))
    }

    /// These prices, with missing ones from `base`.
    pub(super) fn merged_over(self, base: Self) -> Self {
        Self {
            input: self.input.or(base.input),
            output: self.output.or(base.output),
            cache_read: self.cache_read.or(base.cache_read),
            cache_write: self.cache_write.or(base.cache_write),
            cache_write_hour: self.cache_write_hour.or(base.cache_write_hour),
            long: self.long.or(base.long),
        }
    }
}

/// Tokens by micro-dollars for a million by two multiples in millionths give 10⁻²⁴ dollars; this many are 10⁻⁹.
const FINE: u128 = 1_000_000_000_000_000;

fn charge(
    tokens: Tokens,
    price: Option<Price>,
    multiple: Option<PriceMultiple>,
    long: PriceMultiple,
    unknown: UnknownPriceError,
) -> Result<u128, UnknownPriceError> {
    if tokens == Tokens(0) {
        return Ok(0);
    }
    let price = price.ok_or_else(|| match unknown.field {
        "output" => unknown.clone(),
        _ => UnknownPriceError { what: unknown.what, field: "input" },
    })?;
    let multiple = multiple.ok_or(unknown)?;
    let fine = u128::from(tokens.0).saturating_mul(u128::from(price.micro_dollars()));
    Ok(fine.saturating_mul(u128::from(multiple.parts())).saturating_mul(u128::from(long.parts())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPUS: &str = "input = 5\noutput = 25\ncache_read = 0.1\ncache_write = 1.25\ncache_write_hour = 2\n";

    fn usage(uncached: u64, cache_read: u64, cache_write: u64, cache_write_hour: u64, output: u64) -> Usage {
        Usage {
            uncached: Tokens(uncached),
            cache_read: Tokens(cache_read),
            cache_write: Tokens(cache_write),
            cache_write_hour: Tokens(cache_write_hour),
            output: Tokens(output),
        }
    }

    fn check(prices: &str, usage: Usage, expected: Result<u64, (&str, &str)>) {
        let prices: TokenPrices = toml::from_str(prices).unwrap();
        let cost = prices.cost(&usage).map(|money| money.0).map_err(|unknown| (unknown.what, unknown.field));
        assert_eq!(cost, expected, "{usage:?}");
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        const MILLION: u64 = 1_000_000;
        const DOLLAR: u64 = 1_000_000_000;
        check(OPUS, usage(MILLION, 0, 0, 0, 0), Ok(5 * DOLLAR));
        check(OPUS, usage(0, MILLION, 0, 0, 0), Ok(DOLLAR / 2));
        check(OPUS, usage(0, 0, MILLION, 0, 0), Ok(6 * DOLLAR + DOLLAR / 4));
        check(OPUS, usage(0, 0, MILLION, MILLION, 0), Ok(10 * DOLLAR));
        check(OPUS, usage(0, 0, 0, 0, MILLION), Ok(25 * DOLLAR));
        check(OPUS, usage(1, 1, 1, 0, 1), Ok(5_000 + 500 + 6_250 + 25_000));
    }

    #[test]
    fn a_long_request_is_dearer_from_its_first_token() {
        let prices = format!("{OPUS}long = {{ above = 1000, input = 2, output = 1.5 }}");
        check(&prices, usage(1_000, 0, 0, 0, 1), Ok(5_000_000 + 25_000));
        check(&prices, usage(1_001, 0, 0, 0, 1), Ok(10_010_000 + 37_500));
    }

    #[test]
    fn an_unknown_price_is_said_and_not_taken_for_nothing() {
        check("", usage(1, 0, 0, 0, 0), Err(("uncached input", "input")));
        check("input = 5", usage(1, 0, 0, 0, 1), Err(("output", "output")));
        check("input = 5\noutput = 1", usage(1, 1, 0, 0, 1), Err(("cache reads", "cache_read")));
        check("input = 5\noutput = 1", usage(1, 0, 0, 0, 1), Ok(6_000));
        check("", usage(0, 0, 0, 0, 0), Ok(0));
        check("input = 0\noutput = 0\ncache_read = 0", usage(9, 9, 0, 0, 9), Ok(0));
    }

    #[test]
    fn absurd_usage_saturates() {
        check(OPUS, usage(u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX), Ok(u64::MAX));
    }
}
