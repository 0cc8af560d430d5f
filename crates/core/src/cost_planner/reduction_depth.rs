//! Target of a reduction that resets a warm cache: so low that it has paid for itself before the next one is
//! due.
//!
//! The rest is written anew, and the larger it is the sooner the window is full again. The measure is the
//! cost of the session if everything were sent: each call until the next reset reads so much less. As with
//! any bet on calls to come, half of them must do.

use crate::{cost::CacheTerms, profile::UnknownPriceError, tokens::Tokens};

/// A context that is about to be reduced while the cache holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionDepth {
    /// Size of the request if nothing had ever been left out.
    pub whole: Tokens,
    /// Size of its beginning that never changes.
    pub prefix: Tokens,
    /// Tokens that a call adds.
    pub growth: Tokens,
    /// Size at which the next reduction is due.
    pub force: Tokens,
    /// It may go down to this.
    pub least: Tokens,
    /// It need not go below this.
    pub most: Tokens,
}

impl ReductionDepth {
    /// The largest size that pays; the least one if none does.
    ///
    /// ```
    /// use epitome_core::{cost::CacheTerms, cost_planner::ReductionDepth, profile::Profiles, tokens::Tokens};
    ///
    /// let profiles = Profiles::builtin();
    /// let profile = profiles.find("gpt-5")?;
    /// let terms = CacheTerms::new(&profile.cache, &profile.prices);
    /// let depth = |whole| ReductionDepth {
    ///     whole: Tokens(whole),
    ///     prefix: Tokens(400),
    ///     growth: Tokens(1_000),
    ///     force: Tokens(16_000),
    ///     least: Tokens(7_000),
    ///     most: Tokens(13_000),
    /// };
    /// // A session that has just outgrown its window saves little with each call, one that would send ten windows a lot.
    /// assert_eq!(depth(17_000).target(&terms, None)?, Tokens(7_000));
    /// assert_eq!(depth(160_000).target(&terms, None)?, Tokens(13_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn target(&self, terms: &CacheTerms, lifetime: Option<u64>) -> Result<Tokens, UnknownPriceError> {
        let (mut pays, mut most) = (self.least.0.min(self.most.0), self.most.0);
        // The more is left, the more is written, the fewer calls follow and the less each of them saves.
        while pays < most {
            let size = most - (most - pays) / 2;
            if self.pays_at(Tokens(size), terms, lifetime)? {
                pays = size;
            } else {
                most = size - 1;
            }
        }
        Ok(Tokens(pays))
    }

    fn pays_at(
        &self,
        size: Tokens,
        terms: &CacheTerms,
        lifetime: Option<u64>,
    ) -> Result<bool, UnknownPriceError> {
        let cost = |held: Tokens, total: Tokens| terms.prices().cost(&terms.ideal(held, total, lifetime));
        let reading = cost(size, size)?;
        let written = cost(self.prefix.min(size), size)?.0.saturating_sub(reading.0);
        let saved = cost(self.whole, self.whole)?.0.saturating_sub(reading.0);
        // Until the next one there is room for so much, and half of that must do.
        let grows = self.force.less(size).0 / 2;
        Ok(u128::from(saved) * u128::from(grows) >= u128::from(written) * u128::from(self.growth.0))
    }
}
