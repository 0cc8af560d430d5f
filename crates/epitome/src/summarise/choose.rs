//! Warm or apart: whom it is cheaper to ask for a summary.
//!
//! While the provider's cache still holds the session's request, asking the session's own model once more costs little for
//! a long context, and its answer costs that model's price. A smaller model reads less, at its own price and from no cache.
//! Where a price is not known it is not guessed: then the summariser is asked apart, which is also what keeps it clear of
//! the session's persona.

use epitome_core::{
    Tokens,
    cost::Terms,
    event::Usage,
    profile::{Money, UnknownPrice},
};

/// The session's own request with an instruction appended.
#[derive(Clone, Copy, Debug)]
pub struct Warm<'a> {
    /// The terms of the session's model.
    pub terms: &'a Terms,
    /// What its cache holds of the request.
    pub held: Tokens,
    /// The request and the instruction.
    pub input: Tokens,
    /// How long the answer may be.
    pub output: Tokens,
}

/// The span alone, for a summariser of its own.
#[derive(Clone, Copy, Debug)]
pub struct Apart<'a> {
    /// The terms of its model.
    pub terms: &'a Terms,
    /// All that it is asked with, prompts and repeated notes included.
    pub input: Tokens,
    /// In how many questions.
    pub asks: u64,
    /// How long each answer may be.
    pub output: Tokens,
}

/// The two ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// The session's model, with the session's request.
    Warm,
    /// The summariser, with the span.
    Apart,
}

/// The cheaper of the two ways; apart if they cost the same, or nobody knows.
pub fn cheaper(warm: &Warm<'_>, apart: &Apart<'_>) -> Way {
    match (warm.cost(), apart.cost()) {
        (Ok(warm), Ok(apart)) if warm < apart => Way::Warm,
        _ => Way::Apart,
    }
}

impl Warm<'_> {
    /// What it costs if the cache serves what it holds. What it does not hold is paid as input: a question that is asked
    /// once is worth no write.
    pub fn cost(&self) -> Result<Money, UnknownPrice> {
        let held = self.held.min(self.input);
        let read = if held < self.terms.minimum() { Tokens(0) } else { held };
        let usage = Usage {
            uncached: self.input.less(read),
            cache_read: read,
            output: self.output,
            ..Usage::default()
        };
        self.terms.prices().cost(&usage)
    }
}

impl Apart<'_> {
    /// What it costs from no cache. Each question is billed by itself, as a price may depend on its length.
    pub fn cost(&self) -> Result<Money, UnknownPrice> {
        let asks = self.asks.max(1);
        let one =
            Usage { uncached: Tokens(self.input.0.div_ceil(asks)), output: self.output, ..Usage::default() };
        let one = self.terms.prices().cost(&one)?;
        Ok(Money(one.0.saturating_mul(asks)))
    }
}
