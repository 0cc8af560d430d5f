//! Choice of the cheaper way to ask for a summary, warm or apart.
//!
//! While the provider's cache still holds the session's request, asking the session's own model once more
//! costs little for a long context, and its answer costs that model's price. A smaller model reads less, at
//! its own price and without a cache. An unknown price is not guessed: then the summariser is asked apart,
//! which also keeps it free of the session's persona.

use epitome_core::{
    Tokens,
    cost::CacheTerms,
    event::Usage,
    profile::{Money, UnknownPriceError},
};

/// The session's own request with an instruction appended.
#[derive(Clone, Copy, Debug)]
pub struct WarmRequest<'a> {
    /// Terms of the session's model.
    pub terms: &'a CacheTerms,
    /// Tokens of the request that its cache holds.
    pub held: Tokens,
    /// Tokens of the request and the instruction.
    pub input: Tokens,
    /// Largest size of the answer.
    pub output: Tokens,
}

/// The span alone, for a summariser of its own.
#[derive(Clone, Copy, Debug)]
pub struct SeparateRequest<'a> {
    /// Terms of the summariser's model.
    pub terms: &'a CacheTerms,
    /// All input tokens, prompts and repeated notes included.
    pub input: Tokens,
    /// Number of questions.
    pub asks: u64,
    /// Largest size of each answer.
    pub output: Tokens,
}

/// The two ways to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SummaryRequestMode {
    /// Ask the session's model, with the session's request.
    Warm,
    /// Ask the summariser, with the span.
    Apart,
}

/// The cheaper of the two ways; apart if they cost the same, or if a price is unknown.
pub fn cheaper(warm: &WarmRequest<'_>, apart: &SeparateRequest<'_>) -> SummaryRequestMode {
    match (warm.cost(), apart.cost()) {
        (Ok(warm), Ok(apart)) if warm < apart => SummaryRequestMode::Warm,
        _ => SummaryRequestMode::Apart,
    }
}

impl WarmRequest<'_> {
    /// Cost if the cache serves everything that it holds. The rest is charged as uncached input: writing the
    /// cache does not pay for a single question.
    pub fn cost(&self) -> Result<Money, UnknownPriceError> {
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

impl SeparateRequest<'_> {
    /// Cost without a cache. Each question is charged by itself, because a price may depend on its length.
    pub fn cost(&self) -> Result<Money, UnknownPriceError> {
        let asks = self.asks.max(1);
        let one =
            Usage { uncached: Tokens(self.input.0.div_ceil(asks)), output: self.output, ..Usage::default() };
        let one = self.terms.prices().cost(&one)?;
        Ok(Money(one.0.saturating_mul(asks)))
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::profile::{CacheRules, Profiles, TokenPrices};

    use super::*;

    fn terms(model: &str) -> CacheTerms {
        let profiles = Profiles::builtin();
        let profile = profiles.find(model).expect("it is built in");
        CacheTerms::new(&profile.cache, &profile.prices)
    }

    /// The way for a session of 101 000 tokens, `held` of which are cached, or a span of `span` tokens for a
    /// small model.
    fn way(session: &CacheTerms, held: u64, small: &CacheTerms, span: u64) -> SummaryRequestMode {
        let warm =
            WarmRequest { terms: session, held: Tokens(held), input: Tokens(101_000), output: Tokens(1_500) };
        let apart = SeparateRequest { terms: small, input: Tokens(span), asks: 1, output: Tokens(1_500) };
        cheaper(&warm, &apart)
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        let (opus, haiku) = (terms("claude-opus-5-5"), terms("claude-haiku-4-5"));
        // The session's model costs 0.02 $ to read, 0.004 $ for new input and 0.03 $ for output; the small
        // model's output costs 0.0075 $.
        assert_eq!(way(&opus, 100_000, &haiku, 46_000), SummaryRequestMode::Apart);
        assert_eq!(way(&opus, 100_000, &haiku, 47_000), SummaryRequestMode::Warm);
        assert_eq!(
            way(&opus, 0, &haiku, 100_000),
            SummaryRequestMode::Apart,
            "a cold cache makes the session's model dear"
        );
        assert_eq!(way(&opus, 500, &opus, 101_000), SummaryRequestMode::Apart, "so little is in no cache");
        assert_eq!(
            way(&opus, 100_000, &opus, 40_000),
            SummaryRequestMode::Warm,
            "the same model is cheaper where it is warm"
        );
    }

    #[test]
    fn a_price_that_nobody_knows_decides_for_apart() {
        let known = terms("claude-opus-5-5");
        let unknown = CacheTerms::new(&CacheRules::default(), &TokenPrices::default());
        assert_eq!(way(&known, 100_000, &unknown, 1_000_000), SummaryRequestMode::Apart);
        assert_eq!(way(&unknown, 100_000, &known, 1_000_000), SummaryRequestMode::Apart);
        assert_eq!(way(&unknown, 100_000, &unknown, 1_000_000), SummaryRequestMode::Apart);
    }

    #[test]
    fn every_question_is_paid_for() {
        let haiku = terms("claude-haiku-4-5");
        let cost = |asks| {
            SeparateRequest { terms: &haiku, input: Tokens(40_000), asks, output: Tokens(1_000) }.cost()
        };
        assert_eq!((cost(1), cost(4)), (Ok(Money(45_000_000)), Ok(Money(60_000_000))));
    }
}
