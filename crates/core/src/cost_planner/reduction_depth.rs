//! Target of a reduction that resets a warm cache: so low that it has paid for itself before the next one is
//! due, or higher where the information is worth more than the money.
//!
//! The rest is written anew, and the larger it is the sooner the window is full again. The measure is the
//! cost of the session if everything were sent: each call until the next reset reads so much less. As with
//! any bet on calls to come, half of them must do.
//!
//! A small request lacks some of what the next action needs, and an action that goes wrong costs more than
//! tokens. So a small window is filled beyond what pays, up to where more resets cost more than the actions
//! they save.

use crate::{cost::CacheTerms, profile::UnknownPriceError, tokens::Tokens};

/// Size from which a request lacks nothing that was measured to be missed: at 24 000 tokens, 98 % of what a model with the whole
/// history knew of its next action were left, and the rest was within the error. Where requests have it in the mean, with what they
/// hold beside the context, only money counts.
const COMPLETE_REQUEST: u64 = 24_000;

/// Calls that an action costs which lacked something: someone notices, and has it done again.
const FAILED_ACTION_CALLS: u128 = 40;

/// Calls for which room is left at least, whatever they could be told: a reset with each call helps nobody.
const CALLS_WITHOUT_RESET: u64 = 4;

/// Parts of the window at which sizes beyond the one that pays are tried. They are few and fixed, so that a call more or less in the
/// forecast does not make another summary of the same past.
const PARTS: u64 = 16;

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
    /// Size of what a request holds beside the context.
    pub beside: Tokens,
    /// It may go down to this.
    pub least: Tokens,
    /// It need not go below this.
    pub most: Tokens,
}

impl ReductionDepth {
    /// The size that costs least, money and information taken together, of those that are no smaller than the
    /// largest that pays.
    ///
    /// ```
    /// use epitome_core::{cost::CacheTerms, cost_planner::ReductionDepth, profile::Profiles, tokens::Tokens};
    ///
    /// let profiles = Profiles::builtin();
    /// let profile = profiles.find("gpt-5")?;
    /// let terms = CacheTerms::new(&profile.cache, &profile.prices);
    /// let depth = |window: u64, whole: u64| ReductionDepth {
    ///     whole: Tokens(whole),
    ///     prefix: Tokens(400),
    ///     growth: Tokens(1_000),
    ///     force: Tokens(window),
    ///     beside: Tokens(0),
    ///     least: Tokens(window / 2),
    ///     most: Tokens(window / 5 * 4),
    /// };
    /// // A session that has just outgrown its window saves little with each call, one that would send ten windows a lot.
    /// assert!(depth(80_000, 81_000).target(&terms, None)? < depth(80_000, 800_000).target(&terms, None)?);
    /// assert_eq!(depth(80_000, 800_000).target(&terms, None)?, Tokens(64_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn target(&self, terms: &CacheTerms, lifetime: Option<u64>) -> Result<Tokens, UnknownPriceError> {
        let pays = self.largest_that_pays(terms, lifetime)?;
        let in_the_mean = Tokens(pays.0.midpoint(self.force.0)) + self.beside;
        if in_the_mean.0 >= COMPLETE_REQUEST {
            return Ok(pays);
        }
        let (mut best, mut least) = (pays, self.cost_of_call(pays, terms, lifetime)?);
        let spaced = self.force.less(Tokens(self.growth.0.saturating_mul(CALLS_WITHOUT_RESET)));
        let most = self.most.min(spaced);
        let sizes = (1..PARTS).map(|part| Tokens(self.force.0 / PARTS * part));
        for size in sizes.filter(|size| pays < *size && *size <= most) {
            let cost = self.cost_of_call(size, terms, lifetime)?;
            if cost < least {
                (best, least) = (size, cost);
            }
        }
        Ok(best)
    }

    /// The largest size that pays; the least one if none does.
    pub(super) fn largest_that_pays(
        &self,
        terms: &CacheTerms,
        lifetime: Option<u64>,
    ) -> Result<Tokens, UnknownPriceError> {
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

    /// Cost of a call between a reset to `size` and the next one, in the mean: its part of the reset, its own tokens, and
    /// the part of a failed action that it has to expect.
    pub(super) fn cost_of_call(
        &self,
        size: Tokens,
        terms: &CacheTerms,
        lifetime: Option<u64>,
    ) -> Result<u128, UnknownPriceError> {
        let cost = |held: Tokens, total: Tokens| {
            terms.prices().cost(&terms.ideal(held, total, lifetime)).map(|cost| u128::from(cost.0))
        };
        let room = self.force.less(size).max(self.growth).max(Tokens(1));
        let written = cost(self.prefix.min(size), size)?.saturating_sub(cost(size, size)?);
        let middle = Tokens(size.0.midpoint(self.force.max(size).0));
        let call = cost(middle.less(self.growth), middle)?;
        let failed = call * FAILED_ACTION_CALLS * missing_millionths(size, size + room) / 1_000_000;
        Ok(written * u128::from(self.growth.0) / u128::from(room.0) + call + failed)
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

/// How much of what their next actions need is missing in requests that grow from one size to another, in the mean.
/// Of a request with `t` tokens it is `(1 - t / 24 000)² / 2`: 28 % at 6 000 tokens, 20 % at 9 000, 3 % at 18 000.
/// Sessions that were compacted as they went were measured to lack 31, 21 and 7.
fn missing_millionths(from: Tokens, to: Tokens) -> u128 {
    let complete = u128::from(COMPLETE_REQUEST);
    let lacks = |size: Tokens| u128::from(COMPLETE_REQUEST.saturating_sub(size.0)).pow(3);
    let grown = u128::from(to.less(from).0.max(1));
    (lacks(from) - lacks(to.max(from))) * 1_000_000 / (2 * 3 * complete.pow(2) * grown)
}
