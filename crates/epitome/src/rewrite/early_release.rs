//! Requests that leave before they are counted.
//!
//! The first request of a session goes on as it came as long as it fits. Its history may be long, and counting,
//! hashing and indexing all of it takes tens of milliseconds. An estimate shows in one millisecond that it fits;
//! everything else is done while the provider works.

use epitome_core::{TokenCounter, Tokens, tokens::EstimateCounter};
use epitome_wire::{
    history_rewrite,
    incoming::{IncomingRequest, RequestFrame},
    render::CacheBreakpoints,
};

use super::{BodySlice, RequestDisposition, RewriteSettings};
use crate::session::setup::{ObservedLimits, RequestLimit, SessionSetup};

/// Shortest body for which this is done: shorter requests are composed too quickly for the wait to be noticed.
const MIN_BODY_BYTES: usize = 32 << 10;

/// Returns true if the first request of a session is certain to go on as it came, by sizes that are quickly known.
///
/// The estimate is not made with any model's vocabulary and may be slightly low. Then the policy would have acted
/// just above its threshold; the request is long gone, and its window has room beyond that.
pub(super) fn fits_unchanged(
    seen: &IncomingRequest<'_>,
    frame: &RequestFrame<'_>,
    composing: &RewriteSettings,
    setup: &SessionSetup,
    limit: RequestLimit,
) -> bool {
    let body = seen.body();
    // A request that must not pass unrecorded waits for the store.
    let adds_nothing = !composing.recall && composing.functions.hooks.reserve() == Tokens(0);
    let may_leave = composing.with_answers && adds_nothing && frame.is_even;
    if !may_leave || body.len() < MIN_BODY_BYTES || is_to_be_marked(setup, body) {
        return false;
    }
    let budget = setup.budget_within(limit, ObservedLimits::default(), Tokens(0));
    let Some(untouched) = setup.calls.policy.untouched_sizes(&budget) else { return false };
    // No token is shorter than a byte.
    let is_small =
        |text: &str, most: Tokens| text.len() as u64 <= most.0 || EstimateCounter.count(text) <= most;
    let mut units = frame.units.iter().filter_map(|unit| body.get(unit.clone()));
    // If an estimate is far too low, the provider would refuse a request that has left, so a fifth is kept free.
    let most = Tokens(untouched.whole.0 - untouched.whole.0 / 5);
    is_small(body, most) && units.all(|unit| is_small(unit, untouched.item))
}

/// Returns true if cache marks would be placed in a request.
fn is_to_be_marked(setup: &SessionSetup, body: &str) -> bool {
    let placed = matches!(setup.calls.options.breakpoints, CacheBreakpoints::Placed { .. });
    placed
        && setup.calls.format.caches_at_marks_only()
        && !history_rewrite::has_cache_marks(setup.calls.format, body)
}

/// Returns true if a request goes on with its client's bytes and no others.
pub(super) fn is_unchanged(way: &RequestDisposition, body: &str) -> bool {
    match way {
        RequestDisposition::Forward(outgoing) => {
            matches!(&*outgoing.cuts, [BodySlice::Client(all)] if *all == (0..body.len()))
        }
        RequestDisposition::Answer { .. } | RequestDisposition::Summary(_) => false,
    }
}
