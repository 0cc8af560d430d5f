//! The budget: one ceiling, the room that must stay free under it, the thresholds for acting, and optional
//! caps.
//!
//! A [`Budget`] is made for a model by [`Budget::for_profile`]. Two questions need no budget: whether a finished call
//! has overflown ([`overflow`]), and how a window divides ([`regions`]).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    context::Tier,
    event::Usage,
    profile::{DegradationSizes, ModelWindow, Profile, Share},
    tokens::Tokens,
};

/// Limits on the size of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    ceiling: Tokens,
    target: Tokens,
    trigger: Tokens,
    force: Tokens,
    caps: BTreeMap<Tier, Tokens>,
    /// The ceiling before anything was reserved under it.
    #[serde(skip)]
    open: Tokens,
    /// Room for the answer, which stays free beside the ceiling.
    #[serde(skip)]
    answer: Tokens,
    /// Sizes at which the model gets worse, if known.
    #[serde(skip)]
    degradation: Option<DegradationSizes>,
    /// Size up to which a first request is left as it came, if it is not `force`.
    #[serde(skip)]
    first_force: Option<Tokens>,
    /// Part of each request that no context shows.
    #[serde(skip)]
    hidden: Tokens,
}

/// Room that must stay free in a model's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WindowReserves {
    /// For the answer; never more than the model can say.
    pub output: Tokens,
    /// Room for text that hooks inject.
    pub injection: Tokens,
    /// For counts that are short: [`Calibration::margin`](crate::calibration::Calibration::margin).
    pub margin: Tokens,
}

impl Default for WindowReserves {
    /// Room for an answer, no injected text, exact counts.
    fn default() -> Self {
        Self { output: Tokens(16_000), injection: Tokens(0), margin: Tokens(0) }
    }
}

impl Budget {
    /// At most `ceiling` tokens of input; a reduction goes down to the ceiling and no further.
    pub fn new(ceiling: Tokens) -> Self {
        Self {
            ceiling,
            target: ceiling,
            trigger: ceiling,
            force: ceiling,
            caps: BTreeMap::new(),
            open: ceiling,
            answer: Tokens(0),
            degradation: None,
            first_force: None,
            hidden: Tokens(0),
        }
    }

    /// The budget of a model: its input less the reserves, and its thresholds as shares of the window less the
    /// output's reserve. A window that is unknown or unlimited has no ceiling and no thresholds.
    pub fn for_profile(profile: &Profile, reserves: WindowReserves) -> Self {
        let Some(usable) = usable(profile, reserves.output) else { return Self::new(Tokens::MAX) };
        let open = match profile.window {
            ModelWindow::Of(window) => usable.min(window.less(answer(profile, reserves.output))),
            ModelWindow::Unknown | ModelWindow::Unlimited => usable,
        };
        let thresholds = profile.thresholds;
        let thresholded = Self {
            target: thresholds.target.of(open),
            trigger: thresholds.trigger.of(open),
            force: thresholds.force.of(open),
            answer: answer(profile, reserves.output),
            degradation: profile.degradation_sizes(),
            ..Self::new(open)
        };
        let budget = thresholded.with_reserve(reserves.injection).with_reserve(reserves.margin);
        // Reserves that eat into the trigger must not eat up the gap below it: every call would compact.
        let target = if budget.trigger < budget.ceiling {
            budget.target
        } else {
            thresholds.target.of(budget.ceiling)
        };
        budget.with_target(target)
    }

    /// The same ceiling less `reserved`, which something else will fill: an answer, injected content, a margin.
    pub fn with_reserve(self, reserved: Tokens) -> Self {
        let ceiling = self.ceiling.less(reserved);
        Self {
            ceiling,
            target: self.target.min(ceiling),
            trigger: self.trigger.min(ceiling),
            force: self.force.min(ceiling),
            ..self
        }
    }

    /// The same for requests of which so much is in no context: instructions and tools that a transcript does not show.
    pub fn with_hidden(self, hidden: Tokens) -> Self {
        Self { hidden, ..self }
    }

    /// The same, beside which so much of the window stays free for an answer.
    pub fn with_answer(self, answer: Tokens) -> Self {
        Self { answer, ..self }
    }

    /// The same for a model that gets worse at these sizes.
    pub fn with_degradation(self, degradation: Option<DegradationSizes>) -> Self {
        Self { degradation, ..self }
    }

    /// The same, but a first request is left as it came up to `size`, however low the thresholds are.
    pub fn with_first_force(self, size: Tokens) -> Self {
        Self { first_force: Some(size.min(self.ceiling)), ..self }
    }

    /// A reduction, once begun, goes down to `target`.
    pub fn with_target(self, target: Tokens) -> Self {
        Self { target: target.min(self.ceiling), ..self }
    }

    /// The same ceiling, with other thresholds. None is above the one that follows it.
    pub fn with_thresholds(self, target: Tokens, trigger: Tokens, force: Tokens) -> Self {
        let force = force.min(self.ceiling);
        let trigger = trigger.min(force);
        Self { target: target.min(trigger), trigger, force, ..self }
    }

    /// At most `tokens` of one tier, by what [`Context::counted_against`](crate::context::Context::counted_against) counts.
    /// The prefix has no cap: no reducer may touch it, so one would never be kept.
    pub fn with_cap(mut self, tier: Tier, tokens: Tokens) -> Self {
        if tier != Tier::Prefix {
            self.caps.insert(tier, tokens);
        }
        self
    }

    /// The most a context may hold.
    pub fn ceiling(&self) -> Tokens {
        self.ceiling
    }

    /// Size of what a request may hold beside its context: what no context shows, and what was reserved.
    pub fn beside(&self) -> Tokens {
        self.hidden + self.open.less(self.ceiling)
    }

    /// Size that a reduction aims for.
    pub fn target(&self) -> Tokens {
        self.target
    }

    /// Above this, background work begins.
    pub fn trigger(&self) -> Tokens {
        self.trigger
    }

    /// Above this, the next call waits for a reduction.
    pub fn force(&self) -> Tokens {
        self.force
    }

    /// Size up to which the first request of a session is left as it came: no message of it was answered, and it may
    /// be a single question about a long text.
    pub fn first_force(&self) -> Tokens {
        self.first_force.map_or(self.force, |size| size.max(self.force).min(self.ceiling))
    }

    /// The ceiling before anything was reserved under it: thresholds are shares of this, because what is reserved for
    /// counts that may be low, or for hooks, says nothing about the model.
    pub fn open(&self) -> Tokens {
        self.open
    }

    /// Room for the answer, which stays free beside the ceiling.
    pub fn answer(&self) -> Tokens {
        self.answer
    }

    /// Sizes at which the model gets worse, if known.
    pub fn degradation(&self) -> Option<DegradationSizes> {
        self.degradation
    }

    /// The cap of a tier, if it has one.
    pub fn cap_of(&self, tier: Tier) -> Option<Tokens> {
        self.caps.get(&tier).copied()
    }

    /// The tiers that have caps.
    pub fn caps(&self) -> impl Iterator<Item = (Tier, Tokens)> {
        self.caps.iter().map(|(tier, tokens)| (*tier, *tokens))
    }
}

/// Most input that a model takes: its input limit, or else its window less the room for the answer, which is
/// `output_cap` or the model's output limit, whichever is less. `None` if that is unlimited or unknown.
pub fn usable(profile: &Profile, output_cap: Tokens) -> Option<Tokens> {
    match (profile.window, profile.input_limit) {
        (ModelWindow::Unlimited, _) | (ModelWindow::Unknown, None) => None,
        (ModelWindow::Unknown | ModelWindow::Of(_), Some(limit)) => Some(limit),
        (ModelWindow::Of(window), None) => Some(window.less(answer(profile, output_cap))),
    }
}

/// By how much the next call would overflow a limit of the input, after one that used this much: its answer is part of it.
pub fn overflow(usable: Tokens, usage: &Usage) -> Option<Tokens> {
    let over = usage.total().less(usable);
    (over > Tokens(0)).then_some(over)
}

fn answer(profile: &Profile, output_cap: Tokens) -> Tokens {
    profile.output_limit.map_or(output_cap, |limit| limit.min(output_cap))
}

/// Division of a window into regions, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WindowRegions {
    /// The whole.
    pub window: Tokens,
    /// System prompt, tools and project instructions.
    pub system_prefix: Tokens,
    /// Room for the answer.
    pub output_reserve: Tokens,
    /// History and summaries: everything outside the two regions above.
    pub usable: Tokens,
    /// The part of `usable` that is kept verbatim.
    pub recent_window: Tokens,
}

/// Division of a model's window, given the sizes of its prefix and of the history that is kept verbatim.
/// `None` if the window is unlimited or unknown.
pub fn regions(
    profile: &Profile,
    output_cap: Tokens,
    prefix: Tokens,
    recent: Tokens,
) -> Option<WindowRegions> {
    let ModelWindow::Of(window) = profile.window else { return None };
    let output_reserve = answer(profile, output_cap).min(window);
    let system_prefix = prefix.min(window.less(output_reserve));
    let usable = window.less(output_reserve).less(system_prefix);
    Some(WindowRegions { window, system_prefix, output_reserve, usable, recent_window: recent.min(usable) })
}

impl WindowRegions {
    /// A region as a part of the window.
    pub fn share(&self, region: Tokens) -> Share {
        Share::ratio(region, self.window)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::Profiles;

    fn profile(toml: &str) -> Profile {
        let mut profiles = Profiles::builtin();
        profiles
            .with_overrides(&format!("[[model]]\nname = \"test\"\nwire = \"anthropic\"\n{toml}"))
            .unwrap();
        profiles.find("test").unwrap().clone()
    }

    fn reserves(output: u64, injection: u64, margin: u64) -> WindowReserves {
        WindowReserves { output: Tokens(output), injection: Tokens(injection), margin: Tokens(margin) }
    }

    #[test]
    fn reserves_lower_the_ceiling_and_the_target_never_exceeds_it() {
        let budget = Budget::new(Tokens(100)).with_target(Tokens(90)).with_reserve(Tokens(20));
        assert_eq!((budget.ceiling(), budget.target()), (Tokens(80), Tokens(80)));
        assert_eq!(Budget::new(Tokens(5)).with_reserve(Tokens(9)).ceiling(), Tokens(0));
    }

    /// Target, trigger, force and ceiling.
    fn check(toml: &str, reserves: WindowReserves, expected: [u64; 4]) {
        let budget = Budget::for_profile(&profile(toml), reserves);
        let Tokens(target) = budget.target();
        assert_eq!([target, budget.trigger().0, budget.force().0, budget.ceiling().0], expected, "{toml}");
    }

    #[test]
    fn thresholds_are_shares_of_the_window_less_the_answer() {
        check("window = 200_000", reserves(16_000, 0, 0), [82_800, 101_200, 156_400, 184_000]);
        check(
            "window = 200_000\noutput_limit = 8_000",
            reserves(16_000, 0, 0),
            [86_400, 105_600, 163_200, 192_000],
        );
        let toml = "window = 200_000\nthresholds = { trigger = 0.7, target = 0.6 }";
        check(toml, reserves(16_000, 0, 0), [110_400, 128_800, 156_400, 184_000]);
    }

    #[test]
    fn an_input_limit_is_never_exceeded() {
        check(
            "window = 400_000\ninput_limit = 272_000",
            reserves(16_000, 0, 0),
            [122_400, 149_600, 231_200, 272_000],
        );
        // Nor is a window that the limit and the answer would fill together.
        check(
            "window = 300_000\ninput_limit = 290_000",
            reserves(20_000, 0, 0),
            [126_000, 154_000, 238_000, 280_000],
        );
        check("input_limit = 1_000", reserves(20_000, 0, 0), [450, 550, 850, 1_000]);
    }

    #[test]
    fn injection_and_margin_lower_the_ceiling_and_leave_the_gap() {
        check("window = 200_000", reserves(16_000, 4_000, 20_000), [82_800, 101_200, 156_400, 160_000]);
        check("window = 200_000", reserves(16_000, 4_000, 100_000), [36_000, 80_000, 80_000, 80_000]);
        check("window = 200_000", reserves(300_000, 0, 0), [0, 0, 0, 0]);
    }

    #[test]
    fn a_window_nobody_knows_triggers_nothing() {
        const NEVER: u64 = u64::MAX;
        check("", reserves(16_000, 9, 9), [NEVER; 4]);
        check("window = 0", reserves(16_000, 9, 9), [NEVER; 4]);
        check("window = 0\ninput_limit = 5", reserves(16_000, 9, 9), [NEVER; 4]);
    }

    #[test]
    fn overflow_counts_everything_the_call_used() {
        let usage = |uncached, cache_read, cache_write, output| Usage {
            uncached: Tokens(uncached),
            cache_read: Tokens(cache_read),
            cache_write: Tokens(cache_write),
            cache_write_hour: Tokens(cache_write),
            output: Tokens(output),
        };
        let check = |toml: &str, cap: u64, usage: Usage, expected: Option<u64>| {
            let usable = usable(&profile(toml), Tokens(cap));
            let over = usable.and_then(|usable| overflow(usable, &usage));
            assert_eq!(over, expected.map(Tokens), "{toml} {usage:?}");
        };
        let full = usage(10, 20, 30, 40);
        check("window = 132\noutput_limit = 50", 32, full, None);
        check("window = 131\noutput_limit = 50", 32, full, Some(1));
        check("window = 131\noutput_limit = 31", 32, full, None);
        check("window = 131", 32, full, Some(1));
        check("window = 1_000\ninput_limit = 99", 32, full, Some(1));
        check("window = 1_000\ninput_limit = 100", 990, full, None);
        check("window = 10", 32, full, Some(100));
        check("window = 0", 32, usage(u64::MAX, 1, 1, 1), None);
        check("", 32, usage(u64::MAX, 1, 1, 1), None);
    }

    #[test]
    fn a_window_divides_without_a_rest() {
        let regions =
            regions(&profile("window = 200_000"), Tokens(16_000), Tokens(10_000), Tokens(8_000)).unwrap();
        let share = |region| regions.share(region).to_string();
        insta::assert_snapshot!(
            format!(
                "prefix {} ({})\noutput {} ({})\nusable {} ({})\nrecent {} ({})",
                regions.system_prefix, share(regions.system_prefix),
                regions.output_reserve, share(regions.output_reserve),
                regions.usable, share(regions.usable),
                regions.recent_window, share(regions.recent_window),
            ),
            @r"
        prefix 10000 (5 %)
        output 16000 (8 %)
        usable 174000 (87 %)
        recent 8000 (4 %)
        "
        );
        assert_eq!(super::regions(&profile(""), Tokens(1), Tokens(1), Tokens(1)), None);
    }

    proptest! {
        #[test]
        fn a_budget_is_ordered_and_keeps_its_reserves(
            window in 1_u64..3_000_000, input_limit in prop::option::of(1_u64..3_000_000),
            output: u32, injection in 0_u64..500_000, margin in 0_u64..500_000,
        ) {
            let limit = input_limit.map_or_else(String::new, |limit| format!("input_limit = {limit}"));
            let profile = profile(&format!("window = {window}\n{limit}"));
            let reserves = reserves(output.into(), injection, margin);
            let budget = Budget::for_profile(&profile, reserves);
            prop_assert!(budget.target() <= budget.trigger());
            prop_assert!(budget.trigger() <= budget.force() && budget.force() <= budget.ceiling());
            let kept_free = budget.ceiling() + reserves.output + reserves.injection + reserves.margin;
            prop_assert!(budget.ceiling() == Tokens(0) || kept_free <= Tokens(window));
            prop_assert!(budget.ceiling() < Tokens(100) || budget.target() < budget.trigger());
        }

        #[test]
        fn regions_add_up_to_the_window(window in 1_u64..3_000_000, output: u32, prefix: u32, recent: u32) {
            let profile = profile(&format!("window = {window}"));
            let regions = regions(&profile, Tokens(output.into()), Tokens(prefix.into()), Tokens(recent.into()));
            let regions = regions.expect("the window is known");
            prop_assert_eq!(regions.system_prefix + regions.output_reserve + regions.usable, Tokens(window));
            prop_assert!(regions.recent_window <= regions.usable);
        }
    }
}
