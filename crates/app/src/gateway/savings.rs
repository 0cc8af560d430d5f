//! Savings by compaction: measured against the sessions that are left as they are, and estimated from those
//! that are compacted.
//!
//! *Measured* compares the cost of a call in both groups of sessions, as a mean over sessions. Sessions are
//! assigned by lot and both groups were paid for, so nothing has to be assumed. *Estimated* compares the cost
//! of all compacted calls with their cost if they had been sent as the client sent them. It is only as good
//! as our price for requests that were never sent, and is left out if most calls have no such price.
//!
//! Calls of a session resemble each other, so both intervals are over sessions. They use the delta method on
//! exact sums from which nothing is ever removed: a bootstrap would need every session kept, and in
//! simulations with sessions as uneven as real ones its intervals were no more accurate. The measured saving
//! counts each session once because of that unevenness: with all calls pooled, a few long sessions decide the
//! result, and a nominal 95 % interval covers 80 %.

mod ratio_sums;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use epitome::{
    core::{SessionId, Tokens, profile::Money},
    holdout::HoldoutGroup,
    rewrite::{RewriteStatus, UnknownCacheReason},
};
use serde::Serialize;

use self::ratio_sums::{RatioSums, float, student};

/// Fewest sessions in a group for which an interval is reported.
const MIN_SESSIONS_FOR_INTERVAL: u64 = 20;

/// Most sessions of a principal that are listed one by one: the newest.
const MAX_LISTED_SESSIONS: usize = 1_000;

/// Upper limit of a session's cost, so that sums of squares do not overflow: a million dollars.
const MAX_SESSION_NANODOLLARS: u64 = 1_000_000_000_000_000;

/// Group of a call, if it takes part in the comparison. A call that was to be compacted but could not be made
/// smaller is in the treated group; one that was never to be compacted is in neither.
pub(crate) fn group(left: RewriteStatus) -> Option<HoldoutGroup> {
    match left {
        RewriteStatus::Composed | RewriteStatus::Unfit | RewriteStatus::Illegal | RewriteStatus::Ahead => {
            Some(HoldoutGroup::Treated)
        }
        RewriteStatus::HeldOut => Some(HoldoutGroup::HeldOut),
        RewriteStatus::Managed | RewriteStatus::Remote | RewriteStatus::Aside | RewriteStatus::OwnSummary => {
            None
        }
    }
}

/// Savings of all sessions and of each principal's.
#[derive(Debug, Default)]
pub(crate) struct Savings {
    all: SavingsSums,
    principals: HashMap<Arc<str>, PrincipalCosts>,
}

/// A call that was paid for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaidCall<'a> {
    /// Owner of the session.
    pub(crate) principal: &'a str,
    /// Its session.
    pub(crate) session: SessionId,
    /// Group of the session.
    pub(crate) arm: HoldoutGroup,
    /// Input tokens that the provider counted.
    pub(crate) input: Tokens,
    /// Cost of the call; `None` if no price is known.
    pub(crate) cost: Option<Money>,
    /// Cost of the call as the client sent it, if that was estimated.
    pub(crate) full: Option<Money>,
    /// Reason why that cost is unknown.
    pub(crate) unknown: Option<UnknownCacheReason>,
}

/// Share of the cost that is saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SavingInterval {
    /// The best estimate; below 0 if more was paid.
    pub(crate) point: Option<f64>,
    /// Lower end of the 95 % interval.
    pub(crate) low: Option<f64>,
    /// Upper end of the 95 % interval.
    pub(crate) high: Option<f64>,
    /// Reason why a part is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<String>,
}

/// Contents of the savings page.
#[derive(Debug, Serialize)]
pub(crate) struct SavingsPage {
    /// The result to go by.
    measured: SavingInterval,
    estimated: EstimatedSaving,
    treated: GroupCosts,
    held_out: GroupCosts,
    /// Sessions, newest first.
    sessions: Vec<SessionSavings>,
}

/// A saving that rests on requests that were never sent.
#[derive(Debug, Serialize)]
struct EstimatedSaving {
    #[serde(flatten)]
    saving: SavingInterval,
    /// Explanation for readers of the page.
    about: &'static str,
    /// Number of calls left out because their uncompacted cost is unknown, by the reason.
    uncompared_calls: BTreeMap<&'static str, u64>,
}

/// Explanation of the estimate.
const ABOUT: &str = "an estimate: the same calls, priced as the client sent them with the cache it would have had; the \
                     measured saving needs none";

#[derive(Debug, Serialize)]
struct SessionSavings {
    session: SessionId,
    arm: &'static str,
    calls: u64,
    input_tokens: u64,
    cost_dollars: f64,
    cost_full_dollars: f64,
    saved: Option<f64>,
}

/// Totals of a group of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct GroupCosts {
    /// Number of sessions.
    pub(crate) sessions: u64,
    calls: u64,
    input_tokens: u64,
    #[serde(rename = "cost_dollars", serialize_with = "dollars")]
    cost: Money,
    /// Cost of the calls of which both costs are known.
    #[serde(rename = "cost_compared_dollars", serialize_with = "dollars")]
    compared: Money,
    #[serde(rename = "cost_full_dollars", serialize_with = "dollars")]
    full: Money,
}

impl Savings {
    /// Counts a call.
    pub(crate) fn record(&mut self, paid: &PaidCall<'_>) {
        if !self.principals.contains_key(paid.principal) {
            self.principals.insert(Arc::from(paid.principal), PrincipalCosts::default());
        }
        // The entry was inserted above if it was missing.
        let Some(account) = self.principals.get_mut(paid.principal) else { return };
        let (before, after) = account.record(paid);
        for figures in [&mut account.figures, &mut self.all] {
            figures.replace(before.as_ref(), &after);
            if let Some(why) = paid.unknown {
                *figures.uncompared.entry(why).or_default() += 1;
            }
        }
    }

    /// Estimated saving over all sessions.
    pub(crate) fn estimated(&self) -> SavingInterval {
        self.all.estimated()
    }

    /// Measured saving over all sessions.
    pub(crate) fn measured(&self) -> SavingInterval {
        self.all.measured()
    }

    /// Totals of a group's sessions.
    pub(crate) fn total(&self, arm: HoldoutGroup) -> GroupCosts {
        *self.all.total(arm)
    }

    /// Page for one principal: their own sessions and no others.
    pub(crate) fn page(&self, principal: &str) -> SavingsPage {
        let nothing = PrincipalCosts::default();
        let account = self.principals.get(principal).unwrap_or(&nothing);
        let figures = &account.figures;
        let uncompared = figures.uncompared.iter();
        SavingsPage {
            measured: figures.measured(),
            estimated: EstimatedSaving {
                saving: figures.estimated(),
                about: ABOUT,
                uncompared_calls: uncompared.map(|(why, calls)| (why.name(), *calls)).collect(),
            },
            treated: figures.treated,
            held_out: figures.held_out,
            sessions: account.newest().map(|(session, told)| told.line(session)).collect(),
        }
    }
}

/// Costs of a principal's sessions.
#[derive(Debug, Default)]
struct PrincipalCosts {
    figures: SavingsSums,
    sessions: HashMap<SessionId, SessionCosts>,
    /// Sessions by the time of their last call.
    order: BTreeMap<u64, SessionId>,
    moment: u64,
}

impl PrincipalCosts {
    /// Counts a call; returns its session's totals before and after.
    fn record(&mut self, paid: &PaidCall<'_>) -> (Option<SessionCosts>, SessionCosts) {
        let before = self.sessions.get(&paid.session).copied();
        let mut after = before.unwrap_or_else(|| SessionCosts::new(paid.arm));
        self.order.remove(&after.moment);
        self.moment += 1;
        after.moment = self.moment;
        after.record(paid);
        self.sessions.insert(paid.session, after);
        self.order.insert(after.moment, paid.session);
        // A session that is removed here and then continues counts as a new one.
        if self.sessions.len() > MAX_LISTED_SESSIONS
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.sessions.remove(&oldest);
        }
        (before, after)
    }

    fn newest(&self) -> impl Iterator<Item = (SessionId, &SessionCosts)> {
        self.order.values().rev().filter_map(|session| Some((*session, self.sessions.get(session)?)))
    }
}

/// Totals of a session.
#[derive(Clone, Copy, Debug)]
struct SessionCosts {
    arm: HoldoutGroup,
    calls: u64,
    /// Calls whose price is known.
    priced: u64,
    /// Calls of which both costs are known.
    both: u64,
    input: Tokens,
    cost: Money,
    /// Cost of the calls of which both costs are known.
    compared: Money,
    full: Money,
    moment: u64,
}

impl SessionCosts {
    fn new(arm: HoldoutGroup) -> Self {
        let nothing = Money(0);
        Self {
            arm,
            calls: 0,
            priced: 0,
            both: 0,
            input: Tokens(0),
            cost: nothing,
            compared: nothing,
            full: nothing,
            moment: 0,
        }
    }

    fn record(&mut self, paid: &PaidCall<'_>) {
        let add = |sum: Money, money: Money| Money((sum + money).0.min(MAX_SESSION_NANODOLLARS));
        self.calls += 1;
        self.input += paid.input;
        if let Some(cost) = paid.cost {
            self.priced += 1;
            self.cost = add(self.cost, cost);
        }
        if let (Some(cost), Some(full)) = (paid.cost, paid.full) {
            self.both += 1;
            self.compared = add(self.compared, cost);
            self.full = add(self.full, full);
        }
    }

    /// Mean cost of a call of this session.
    fn rate(&self) -> Option<u64> {
        self.cost.0.checked_div(self.priced)
    }

    fn line(&self, session: SessionId) -> SessionSavings {
        SessionSavings {
            session,
            arm: self.arm.name(),
            calls: self.calls,
            input_tokens: self.input.0,
            cost_dollars: self.cost.dollars(),
            cost_full_dollars: self.full.dollars(),
            saved: (self.full > Money(0)).then(|| 1.0 - self.compared.dollars() / self.full.dollars()),
        }
    }
}

/// Sums over sessions. A session's old totals are only ever replaced by its new ones.
#[derive(Debug, Default)]
struct SavingsSums {
    treated: GroupCosts,
    held_out: GroupCosts,
    /// Compacted sessions: their cost with and without compaction.
    estimate: RatioSums,
    /// Mean cost of a call in each session, of compacted sessions and of the others.
    rates: [RatioSums; 2],
    /// Calls of compacted sessions of which both costs are known.
    both: u64,
    /// Calls whose cost without compaction is unknown.
    uncompared: BTreeMap<UnknownCacheReason, u64>,
}

impl SavingsSums {
    /// Replaces a session's totals when it has another call.
    fn replace(&mut self, before: Option<&SessionCosts>, after: &SessionCosts) {
        let total = match after.arm {
            HoldoutGroup::Treated => &mut self.treated,
            HoldoutGroup::HeldOut => &mut self.held_out,
        };
        let nothing = SessionCosts::new(after.arm);
        let known = before.unwrap_or(&nothing);
        let grown = |after: Money, before: Money| Money(after.0.saturating_sub(before.0));
        total.sessions += u64::from(before.is_none());
        total.calls += after.calls - known.calls;
        total.input_tokens += after.input.less(known.input).0;
        total.cost = total.cost + grown(after.cost, known.cost);
        total.compared = total.compared + grown(after.compared, known.compared);
        total.full = total.full + grown(after.full, known.full);
        if let Some(rate) = known.rate() {
            self.rates[after.arm as usize].remove(rate, 1);
        }
        if let Some(rate) = after.rate() {
            self.rates[after.arm as usize].add(rate, 1);
        }
        if after.arm == HoldoutGroup::Treated {
            self.both += after.both - known.both;
            if known.full > Money(0) {
                self.estimate.remove(known.compared.0, known.full.0);
            }
            if after.full > Money(0) {
                self.estimate.add(after.compared.0, after.full.0);
            }
        }
    }

    fn total(&self, arm: HoldoutGroup) -> &GroupCosts {
        match arm {
            HoldoutGroup::Treated => &self.treated,
            HoldoutGroup::HeldOut => &self.held_out,
        }
    }

    fn estimated(&self) -> SavingInterval {
        // A part of the calls stands for all of them only if it is the larger part.
        let uncompared: u64 = self.uncompared.values().sum();
        if uncompared > self.both
            && let Some((why, _)) = self.uncompared.iter().max_by_key(|(_, calls)| **calls)
        {
            return SavingInterval::missing(format!(
                "what {uncompared} of {} calls would have cost is not known, for most of them because {}",
                uncompared + self.both,
                why.words()
            ));
        }
        let Some(ratio) = self.estimate.ratio() else {
            return SavingInterval::missing("no compacted session has a known price yet".to_owned());
        };
        let point = Some(1.0 - ratio.value);
        // Sessions are weighted: if a few of them cost nearly everything, the sample is small however many
        // there are.
        let telling = ratio.weight;
        if telling < float(MIN_SESSIONS_FOR_INTERVAL) {
            let missing = format!(
                "too few sessions for an interval: {} sessions are worth {telling:.0} of equal size, {MIN_SESSIONS_FOR_INTERVAL} are needed",
                ratio.sessions
            );
            return SavingInterval { point, missing: Some(missing), ..SavingInterval::default() };
        }
        let reach = student(telling - 1.0) * ratio.variance.sqrt();
        let (low, high) = (Some(1.0 - ratio.value - reach), Some(1.0 - ratio.value + reach));
        SavingInterval { point, low, high, missing: None }
    }

    fn measured(&self) -> SavingInterval {
        let [treated, held_out] = &self.rates;
        if treated.sessions.min(held_out.sessions) < MIN_SESSIONS_FOR_INTERVAL {
            return SavingInterval::missing(format!(
                "too few sessions: {} compacted and {} left as they are have a known price, {MIN_SESSIONS_FOR_INTERVAL} of each are needed",
                treated.sessions, held_out.sessions
            ));
        }
        let (Some(treated), Some(held_out)) = (treated.ratio(), held_out.ratio()) else {
            return SavingInterval::missing("nothing was paid".to_owned());
        };
        if treated.value <= 0.0 || held_out.value <= 0.0 {
            return SavingInterval::missing("one of the groups cost nothing".to_owned());
        }
        // Logarithms turn the quotient into a difference, and make its distribution more even.
        let parts = [&treated, &held_out]
            .map(|ratio| (ratio.variance / ratio.value.powi(2), float(ratio.sessions) - 1.0));
        let variance: f64 = parts.iter().map(|(variance, _)| variance).sum();
        let freedom =
            variance.powi(2) / parts.iter().map(|(part, freedom)| part.powi(2) / freedom).sum::<f64>();
        let reach = if variance > 0.0 { student(freedom) * variance.sqrt() } else { 0.0 };
        let quotient = treated.value / held_out.value;
        SavingInterval {
            point: Some(1.0 - quotient),
            low: Some(1.0 - quotient * reach.exp()),
            high: Some(1.0 - quotient * (-reach).exp()),
            missing: None,
        }
    }
}

impl SavingInterval {
    fn missing(why: String) -> Self {
        Self { missing: Some(why), ..Self::default() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn dollars<S: serde::Serializer>(money: &Money, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(money.dollars())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers that are the same in every run (SplitMix64).
    struct Dice(u64);

    impl Dice {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }

        /// A number between 0 and 1, both excluded.
        fn share(&mut self) -> f64 {
            (float(self.next() >> 11) + 0.5) / float(1 << 53)
        }

        fn normal(&mut self) -> f64 {
            (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
        }

        /// A number of calls as in real sessions: most are short, and a few very long.
        fn calls(&mut self) -> u32 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most some thousands"
            )]
            let calls = (2.5 + self.normal()).exp() as u32;
            calls.max(1)
        }
    }

    fn nano(dollars: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few dollars at most")]
        let nano = (dollars * 1e9) as u64;
        nano
    }

    fn session(number: u64) -> SessionId {
        SessionId::derived(&[&number.to_string()])
    }

    fn paid(number: u64, arm: HoldoutGroup, cost: u64, full: Option<u64>) -> PaidCall<'static> {
        PaidCall {
            principal: "anna",
            session: session(number),
            arm,
            input: Tokens(100),
            cost: Some(Money(cost)),
            full: full.map(Money),
            unknown: None,
        }
    }

    /// Counts how many of a thousand intervals contain the true value.
    fn covered(truth: f64, mut play: impl FnMut() -> SavingInterval) -> usize {
        let holds = |saving: SavingInterval| {
            saving.low.zip(saving.high).is_some_and(|(low, high)| (low..=high).contains(&truth))
        };
        (0..1_000).filter(|_| holds(play())).count()
    }

    /// A session's cost and number of calls: a call costs more the longer its session is, and 40 % less if it
    /// is compacted.
    fn played(dice: &mut Dice, arm: HoldoutGroup) -> (f64, u64) {
        let calls = dice.calls();
        let saved = if arm == HoldoutGroup::Treated { 0.4 } else { 0.0 };
        let call = 0.02 * (0.5 * dice.normal()).exp() * (1.0 + 0.025 * f64::from(calls)) * (1.0 - saved);
        (call * f64::from(calls), u64::from(calls))
    }

    #[test]
    fn a_measured_interval_holds_the_truth_about_95_times_of_100() {
        for (seed, treated, held_out) in [(1, 180, 20), (2, 20, 20), (3, 100, 100)] {
            let mut dice = Dice(seed);
            let covered = covered(0.4, || {
                let mut figures = SavingsSums::default();
                for (arm, sessions) in [(HoldoutGroup::Treated, treated), (HoldoutGroup::HeldOut, held_out)] {
                    for _ in 0..sessions {
                        let (cost, calls) = played(&mut dice, arm);
                        figures.rates[arm as usize].add(nano(cost / float(calls)), 1);
                    }
                }
                figures.measured()
            });
            assert!((920..=970).contains(&covered), "{treated} against {held_out}: {covered}");
        }
    }

    #[test]
    fn calls_thrown_together_would_promise_too_much() {
        let mut dice = Dice(5);
        let covered = covered(0.4, || {
            let mut figures = SavingsSums::default();
            for (arm, sessions) in [(HoldoutGroup::Treated, 180), (HoldoutGroup::HeldOut, 20)] {
                for _ in 0..sessions {
                    let (cost, calls) = played(&mut dice, arm);
                    figures.rates[arm as usize].add(nano(cost), calls);
                }
            }
            figures.measured()
        });
        assert!(covered < 850, "{covered}");
    }

    #[test]
    fn an_estimated_interval_holds_the_truth_about_95_times_of_100() {
        // A session's cost grows with its calls; its saving varies, and is a third on average.
        let mut dice = Dice(4);
        let covered = covered(1.0 / 3.0, || {
            let mut figures = SavingsSums::default();
            for _ in 0..400 {
                let full = 0.02 * f64::from(dice.calls()) * (0.5 * dice.normal()).exp();
                let kept = 2.0 / 3.0 * (1.0 + 0.5 * (dice.share() - 0.5));
                figures.estimate.add(nano(full * kept), nano(full));
            }
            figures.estimated()
        });
        assert!((920..=970).contains(&covered), "{covered}");
    }

    #[test]
    fn what_is_saved_is_a_quotient_of_sums_and_of_means() {
        let mut savings = Savings::default();
        for number in 0..40 {
            let arm = if number < 20 { HoldoutGroup::Treated } else { HoldoutGroup::HeldOut };
            // Two calls a session, so that each session is counted before it is complete.
            for _ in 0..2 {
                let cost = if arm == HoldoutGroup::Treated { 600 } else { 1_000 };
                savings.record(&paid(number, arm, cost, Some(800)));
            }
        }
        let (estimated, measured) = (savings.estimated(), savings.measured());
        assert_eq!((estimated.point, estimated.low, estimated.high), (Some(0.25), Some(0.25), Some(0.25)));
        let near = |saved: Option<f64>| saved.is_some_and(|saved| (saved - 0.4).abs() < 1e-9);
        assert!(near(measured.point) && near(measured.low) && near(measured.high), "{measured:?}");
        let total = savings.total(HoldoutGroup::HeldOut);
        assert_eq!((total.sessions, total.calls, total.cost), (20, 40, Money(40_000)));
    }

    #[test]
    fn of_few_sessions_no_interval_is_told() {
        let mut savings = Savings::default();
        assert_eq!(savings.estimated().point, None);
        for number in 0..39 {
            let arm = if number < 20 { HoldoutGroup::Treated } else { HoldoutGroup::HeldOut };
            savings.record(&paid(number, arm, 600, Some(800)));
        }
        let measured = savings.measured();
        assert_eq!((measured.point, measured.low), (None, None));
        let said = measured.missing.expect("a reason");
        assert!(said.starts_with("too few sessions: 20 compacted and 19 left"), "{said}");
        // One long session among short ones counts as one session.
        savings.record(&paid(0, HoldoutGroup::Treated, 600_000, Some(800_000)));
        let estimated = savings.estimated();
        assert_eq!((estimated.point, estimated.low), (Some(0.25), None));
        assert!(estimated.missing.is_some_and(|said| said.contains("worth 1 of equal size")));
    }

    #[test]
    fn a_call_without_a_price_is_counted_and_compared_with_nothing() {
        let mut savings = Savings::default();
        savings.record(&PaidCall { cost: None, ..paid(1, HoldoutGroup::Treated, 0, Some(800)) });
        savings.record(&paid(1, HoldoutGroup::Treated, 600, None));
        savings.record(&paid(1, HoldoutGroup::Treated, 400, Some(800)));
        assert_eq!(savings.estimated().point, Some(0.5));
        let page = savings.page("anna");
        assert_eq!((page.sessions[0].calls, page.sessions[0].saved), (3, Some(0.5)));
        assert_eq!((page.treated.cost, page.treated.compared), (Money(1_000), Money(400)));
    }

    #[test]
    fn an_estimate_of_the_lesser_part_of_the_calls_is_not_told_but_why() {
        let mut savings = Savings::default();
        let unknown = PaidCall {
            unknown: Some(UnknownCacheReason::Unseen),
            ..paid(1, HoldoutGroup::Treated, 600, None)
        };
        savings.record(&paid(1, HoldoutGroup::Treated, 400, Some(800)));
        savings.record(&unknown);
        assert_eq!(savings.estimated().point, Some(0.5));
        savings.record(&unknown);
        let SavingInterval { point, missing, .. } = savings.estimated();
        assert_eq!(point, None);
        assert!(
            missing.is_some_and(|said| said.starts_with("what 2 of 3 calls would have cost is not known"))
        );
        assert_eq!(savings.page("anna").estimated.uncompared_calls, BTreeMap::from([("unseen", 2)]));
    }

    #[test]
    fn what_was_measured_is_told_first_and_an_estimate_says_that_it_is_one() {
        let page = serde_json::to_string(&Savings::default().page("anna")).expect("a page");
        assert!(page.starts_with(r#"{"measured":"#), "{page}");
        assert!(page.contains(r#""about":"an estimate: "#), "{page}");
    }

    #[test]
    fn the_newest_sessions_are_kept_and_the_sums_of_all() {
        let mut savings = Savings::default();
        let many = MAX_LISTED_SESSIONS as u64 + 10;
        for number in 0..many {
            savings.record(&paid(number, HoldoutGroup::Treated, 600, Some(800)));
            // The first goes on with every other one.
            savings.record(&paid(0, HoldoutGroup::Treated, 1, Some(1)));
        }
        let page = savings.page("anna");
        assert_eq!((page.sessions.len(), page.treated.sessions), (MAX_LISTED_SESSIONS, many));
        assert_eq!(page.treated.calls, 2 * many);
        let sessions: Vec<SessionId> = page.sessions.iter().map(|line| line.session).collect();
        assert_eq!(sessions[..2], [session(0), session(many - 1)]);
        assert!(!sessions.contains(&session(1)));
        let sums = savings.all.estimate;
        assert_eq!((sums.sessions, sums.below), (many, 800 * u128::from(many) + u128::from(many)));
    }

    #[test]
    fn nobody_sees_what_somebody_else_saved() {
        let mut savings = Savings::default();
        savings.record(&paid(1, HoldoutGroup::Treated, 600, Some(800)));
        savings.record(&PaidCall { principal: "bob", ..paid(2, HoldoutGroup::Treated, 800, Some(800)) });
        let page = savings.page("bob");
        assert_eq!((page.sessions.len(), page.estimated.saving.point), (1, Some(0.0)));
        assert_eq!(page.sessions[0].session, session(2));
        assert_eq!(
            (savings.page("nobody").sessions.len(), savings.page("nobody").treated),
            (0, GroupCosts::default())
        );
        assert_eq!(savings.total(HoldoutGroup::Treated).sessions, 2);
    }

    #[test]
    fn no_amount_of_money_breaks_it() {
        let mut savings = Savings::default();
        for number in 0..50 {
            let arm = if number % 2 == 0 { HoldoutGroup::Treated } else { HoldoutGroup::HeldOut };
            savings.record(&paid(number, arm, u64::MAX, Some(u64::MAX)));
            savings.record(&paid(number, arm, 0, Some(0)));
        }
        assert!(savings.estimated().point.is_some_and(f64::is_finite));
        assert!(savings.measured().low.is_some_and(f64::is_finite));
    }
}
