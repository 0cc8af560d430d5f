//! What an exchange in mode `compact` came to, counted when it is over: what was done to its request, what that cost, and what
//! the client's own request would have.

use epitome::{
    compose::Done,
    core::{SessionId, Tokens, cost::Terms, event::Usage, profile::Money},
    holdout::Arm,
    recorder::Ending,
    session::BUILT_IN,
};

use super::{
    Gateway,
    metrics::composed::{Adopted, Call, Overflowed, Writer},
};

/// For how long a cache keeps what it is asked to keep for an hour, in seconds.
const HOUR: u64 = 3_600;

/// An exchange that is over.
#[derive(Debug)]
pub(super) struct Account<'a> {
    /// Whose it is.
    pub(super) principal: &'a str,
    /// Its session.
    pub(super) session: SessionId,
    /// The model that was asked.
    pub(super) model: Option<&'a str>,
    /// What was done to the request that was sent last.
    pub(super) done: &'a Done,
    /// What became of it when its provider refused it as too long, as far as was known when it was sent.
    pub(super) overflow: Option<Overflowed>,
    /// How it ended.
    pub(super) ending: Ending,
    /// What the provider says it used.
    pub(super) usage: Option<&'a Usage>,
}

impl Account<'_> {
    /// Counts it.
    pub(super) fn tell(&self, gateway: &Gateway) {
        let Self { principal, session, model, done, usage, .. } = *self;
        let composing = &gateway.composing;
        let full_input = model.zip(usage).and_then(|(model, usage)| {
            let profile = composing.profiles.find(model).ok()?;
            full_input(&Terms::new(&profile.cache, &profile.prices), done, usage)
        });
        gateway.metrics.composed(&Call {
            principal,
            session,
            // By lot alone: a session that is left as it is for another reason stays in its group.
            arm: Arm::of(session, composing.holdout),
            model,
            done,
            usage,
            full_input,
            adopted: done.compaction.as_ref().map(|(trigger, by)| {
                let by = if by == BUILT_IN { Writer::BuiltIn } else { Writer::Model };
                Adopted { by, trigger: *trigger }
            }),
            overflow: self.overflow.map(|overflow| self.overflowed(overflow)),
            recalls: 0,
        });
    }

    /// The smaller request may have been refused, too.
    fn overflowed(&self, overflow: Overflowed) -> Overflowed {
        match self.ending {
            Ending::Complete | Ending::Cut | Ending::Cancelled => overflow,
            Ending::Refused | Ending::Unreached => Overflowed::Lost,
        }
    }
}

/// What the input would have cost as the client sent it, by an ideal cache: what that held is read, the rest is written.
///
/// The provider counted what was sent, so only what was left out is by our own count: of a request that nothing was taken from
/// nothing is saved, however well we count.
fn full_input(terms: &Terms, done: &Done, usage: &Usage) -> Option<Money> {
    let Done { before, after, held, .. } = *done;
    if before == Tokens(0) {
        return None;
    }
    let total = (usage.input() + before).less(after);
    let held = if held == Tokens(0) { held } else { total.less(before.less(held)) };
    let asked = (usage.cache_write_hour > Tokens(0)).then_some(HOUR);
    terms.prices().cost(&terms.ideal(held, total, asked)).ok()
}

#[cfg(test)]
mod tests {
    use epitome::{compose::Left, core::profile::Profiles};

    use super::*;

    fn done(before: u64, after: u64, held: u64) -> Done {
        Done {
            call: None,
            epoch: 1,
            cause: None,
            before: Tokens(before),
            after: Tokens(after),
            held: Tokens(held),
            compaction: None,
            left: Left::Composed,
        }
    }

    fn terms(model: &str) -> Terms {
        let profiles = Profiles::builtin();
        let profile = profiles.find(model).expect("a known model");
        Terms::new(&profile.cache, &profile.prices)
    }

    #[track_caller]
    fn check(model: &str, done: &Done, usage: &Usage, expect: Option<f64>) {
        let money = full_input(&terms(model), done, usage).map(Money::dollars);
        let is_near = match (money, expect) {
            (Some(money), Some(expect)) => (money - expect).abs() < 1e-9,
            (money, expect) => money == expect,
        };
        assert!(is_near, "{money:?} is not {expect:?}");
    }

    #[test]
    fn what_a_cache_held_is_read_and_the_rest_is_written_or_plain_input() {
        let usage = Usage { uncached: Tokens(30_000), ..Usage::default() };
        // At 5 dollars a million, reads at a tenth and writes at five quarters of it.
        check("claude-opus-4-5", &done(100_000, 30_000, 90_000), &usage, Some(0.045 + 0.062_5));
        check("claude-opus-4-5", &done(100_000, 30_000, 0), &usage, Some(0.625));
        let hour =
            Usage { cache_write: Tokens(30_000), cache_write_hour: Tokens(30_000), ..Usage::default() };
        check("claude-opus-4-5", &done(100_000, 30_000, 0), &hour, Some(1.0));
        // At 1.25 dollars a million, reads at a tenth of it, and no price for writes.
        check("gpt-5", &done(100_000, 30_000, 90_000), &usage, Some(0.011_25 + 0.012_5));
    }

    #[test]
    fn of_what_was_left_whole_nothing_is_saved_however_we_count() {
        for counted in [20_000, 30_000, 45_000] {
            let usage = Usage { cache_write: Tokens(30_000), ..Usage::default() };
            check("claude-opus-4-5", &done(counted, counted, 0), &usage, Some(0.187_5));
        }
        let grown = Usage { cache_read: Tokens(27_000), cache_write: Tokens(3_000), ..Usage::default() };
        check("claude-opus-4-5", &done(50_000, 50_000, 47_000), &grown, Some(0.013_5 + 0.018_75));
    }

    #[test]
    fn what_nobody_counted_or_prices_is_not_guessed() {
        let usage = Usage { uncached: Tokens(30_000), ..Usage::default() };
        check("claude-opus-4-5", &done(0, 0, 0), &usage, None);
        let free = Terms::new(&Default::default(), &Default::default());
        assert_eq!(full_input(&free, &done(9_000, 9_000, 0), &usage), None);
    }
}
