//! Estimated usage of a composed call if it had been sent as the client sent it, on the careful side.
//!
//! The client's request is priced with the cache that the client would have had, in whatever sessions its
//! requests were placed, and as no larger than the model's window: a request that could not have been sent
//! saves nothing. If the contents of that cache are unknown, there is no estimate.

use epitome::{
    core::{Tokens, event::Usage},
    rewrite::{ClientCache, RewriteReport},
};

/// Usage of a call without compaction, from its actual `usage` and the result of composing it; `None` if it
/// cannot be estimated.
pub(super) fn baseline_usage(done: &RewriteReport, usage: &Usage, window: Option<Tokens>) -> Option<Usage> {
    if done.after == Tokens(0) {
        return None;
    }
    let is_whole = done.before == done.after;
    let held = match done.cache {
        ClientCache::AsUsed if is_whole => return Some(*usage),
        ClientCache::Unasked => {
            let input = share(done.before, usage.input(), done.after).min(window.unwrap_or(Tokens::MAX));
            return Some(Usage { uncached: input, output: usage.output, ..Usage::default() });
        }
        // A request that was refused as too long and made smaller: its cache was not looked up.
        ClientCache::AsUsed | ClientCache::Unknown(_) => return None,
        ClientCache::Held(held) => held,
    };
    // Both sizes have the same counter. If the provider counts more than it, the provider would also have
    // counted more for the original.
    let measured = |tokens: Tokens| share(tokens, usage.input(), done.after);
    let input = measured(done.before).min(window.unwrap_or(Tokens(u64::MAX)));
    // A request sent as it came may have been read from more cache entries than the client's own.
    let read = if is_whole { usage.cache_read } else { Tokens(0) };
    let cache_read = measured(held).max(read).min(input);
    let fresh = input.less(cache_read);
    // Uncached input is written to the cache in the proportion that the client's request asks for.
    let cache_write = share(fresh, usage.cache_write, usage.cache_write + usage.uncached);
    let cache_write_hour = share(cache_write, usage.cache_write_hour, usage.cache_write);
    Some(Usage {
        uncached: fresh.less(cache_write),
        cache_read,
        cache_write,
        cache_write_hour,
        output: usage.output,
    })
}

/// The fraction `part / of` of `whole`; zero if `of` is zero.
fn share(whole: Tokens, part: Tokens, of: Tokens) -> Tokens {
    let product = u128::from(whole.0) * u128::from(part.0);
    let quotient = product.checked_div(u128::from(of.0)).unwrap_or(0);
    Tokens(u64::try_from(quotient).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use epitome::rewrite::{RewriteStatus, UnknownCacheReason};

    use super::*;

    fn usage(uncached: u64, cache_read: u64, cache_write: u64) -> Usage {
        Usage {
            uncached: Tokens(uncached),
            cache_read: Tokens(cache_read),
            cache_write: Tokens(cache_write),
            output: Tokens(7),
            ..Usage::default()
        }
    }

    /// Checks a request of 90 that was sent as 30, where a cache would have held 80.
    #[track_caller]
    fn check(used: Usage, window: Option<u64>, expect: Usage) {
        let done = RewriteReport {
            call: None,
            epoch: 0,
            cause: None,
            before: Tokens(90),
            after: Tokens(30),
            cache: ClientCache::Held(Tokens(80)),
            compaction: None,
            left: RewriteStatus::Composed,
        };
        assert_eq!(baseline_usage(&done, &used, window.map(Tokens)), Some(expect));
    }

    #[test]
    fn what_a_cache_held_is_read_and_the_rest_is_new() {
        check(usage(30, 0, 0), None, usage(10, 80, 0));
        check(usage(10, 20, 0), None, usage(10, 80, 0));
        // Half of the new input was written.
        check(usage(5, 20, 5), None, usage(5, 80, 5));
    }

    #[test]
    fn a_provider_that_counts_more_would_have_counted_more() {
        check(usage(60, 0, 0), None, usage(20, 160, 0));
    }

    #[test]
    fn what_could_not_have_been_sent_is_not_saved() {
        check(usage(30, 0, 0), Some(85), usage(5, 80, 0));
        check(usage(30, 0, 0), Some(50), usage(0, 50, 0));
    }

    #[test]
    fn what_nobody_counted_is_not_guessed_and_what_was_left_whole_is_what_was_sent() {
        let whole = |tokens: u64, cache: ClientCache| RewriteReport {
            call: None,
            epoch: 0,
            cause: None,
            before: Tokens(tokens),
            after: Tokens(tokens),
            cache,
            compaction: None,
            left: RewriteStatus::Composed,
        };
        let used = usage(1, 2, 3);
        assert_eq!(baseline_usage(&whole(0, ClientCache::AsUsed), &used, None), None);
        assert_eq!(baseline_usage(&whole(90, ClientCache::AsUsed), &used, None), Some(used));
        let unknown = ClientCache::Unknown(UnknownCacheReason::Unseen);
        assert_eq!(baseline_usage(&whole(90, unknown), &used, None), None);
        // The earlier request was sent in another form: the client's own cache would have held it.
        let held = ClientCache::Held(Tokens(80));
        assert_eq!(baseline_usage(&whole(90, held), &usage(90, 0, 0), None), Some(usage(10, 80, 0)));
        assert_eq!(baseline_usage(&whole(90, held), &usage(5, 85, 0), None), Some(usage(5, 85, 0)));
    }

    #[test]
    fn a_client_that_asks_for_no_cache_would_have_had_none() {
        let done = RewriteReport {
            call: None,
            epoch: 0,
            cause: None,
            before: Tokens(90),
            after: Tokens(30),
            cache: ClientCache::Unasked,
            compaction: None,
            left: RewriteStatus::Composed,
        };
        assert_eq!(baseline_usage(&done, &usage(0, 20, 10), None), Some(usage(90, 0, 0)));
    }
}
