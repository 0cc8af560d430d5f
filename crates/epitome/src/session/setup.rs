//! Settings with which a session's requests are made: a model, its format, its limits, a policy.

use std::sync::Arc;

use epitome_core::{
    Tokens,
    budget::Budget,
    calibration::{Calibration, PrefixAvailability, TokenObservation},
    id::ModelName,
    meter::Meter,
    policy::Policy,
    profile::{DegradationSizes, Profile, Profiles, Share},
};
use epitome_store::{
    Store,
    records::{CountedCall, HashedText},
};
use epitome_wire::{Format, history_rewrite::RewritePlan, overflow::ContextOverflow, render::RenderOptions};
use serde::{Deserialize, Serialize};

use crate::call_settings::{CallSettings, TargetModel};

/// Settings with which a session's requests are made.
#[derive(Debug)]
pub(crate) struct SessionSetup {
    pub(crate) model: ModelName,
    pub(crate) profile: Option<Profile>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) calls: CallSettings,
    /// The most input that the provider accepts, by its own count; `None` if unknown. No margin is kept in it for
    /// counts that may be low.
    pub(crate) limit: Option<Tokens>,
    /// The configured window, in place of the profile's.
    pub(crate) window: Option<Tokens>,
    /// Check of each answer's usage.
    pub(crate) overflow_check: OverflowCheck,
    /// Accuracy of our counts before a session's own calls have shown it: as the profile says, or as other sessions have shown.
    pub(crate) accuracy: Calibration,
    pub(crate) recorded: RecordedSettings,
}

/// Settings recorded with a call, by content.
#[derive(Clone, Debug)]
pub(crate) struct RecordedSettings {
    pub(crate) policy: HashedText,
    pub(crate) profile: Option<HashedText>,
    pub(crate) rendering: HashedText,
}

/// Rendering of a request: with its events and edits, everything needed to render it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedRendering {
    pub(crate) format: Format,
    pub(crate) options: RenderOptions,
    pub(crate) tokenizer: String,
    /// Plan for a client's history, if the request was rewritten from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weave: Option<RewritePlan>,
}

impl SessionSetup {
    /// Settings for a model in a format. A model without a profile is accepted: its window is `window`, or unknown
    /// until the provider refuses a request as too long.
    pub(crate) fn new(
        format: Format,
        model: &str,
        window: Option<Tokens>,
        policy: &Policy,
        profiles: &Profiles,
    ) -> Self {
        let profile = profiles.find(model).ok().cloned();
        let target = TargetModel::new(format, profile.as_ref());
        let meter = Arc::new(target.meter());
        let limit = target.input_limit(window, None);
        let answer = target.answer_limit();
        let answer = limit.map_or(answer, |limit| answer.min(Tokens(limit.0 / 4)));
        let model = ModelName(model.to_owned());
        let options = RenderOptions { model: Some(model.clone()), answer: Some(answer), ..target.options() };
        let calls = target.settings(policy, options);
        let recorded = RecordedSettings {
            policy: HashedText::new(json(policy)),
            profile: profile.as_ref().map(|profile| HashedText::new(json(profile))),
            rendering: rendering(&calls, &meter, None),
        };
        let inexact = profile.as_ref().filter(|profile| !profile.tokenizer.is_exact());
        let accuracy = Calibration::new(inexact.map_or(Share::percent(0), |profile| profile.margin));
        let overflow_check = OverflowCheck::default();
        Self { model, profile, meter, calls, limit, window, overflow_check, accuracy, recorded }
    }

    /// The same settings, with the usage of each answer checked or not.
    pub(crate) fn with_overflow_check(self, overflow_check: OverflowCheck) -> Self {
        Self { overflow_check, ..self }
    }

    /// The same settings, with the accuracy of our counts as the newest sessions with this model have shown it.
    pub(crate) fn with_recorded_counts(mut self, store: &dyn Store) -> Self {
        if self.profile.as_ref().is_some_and(|profile| !profile.tokenizer.is_exact()) {
            // If they cannot be read, the profile's margin is still true, and what the session does next reports the failure.
            for call in store.counted_calls(&self.model, COMPARED_SESSIONS).unwrap_or_default() {
                let CountedCall { estimated, counted } = call;
                self.accuracy.observe(TokenObservation {
                    estimated,
                    actual: counted,
                    prefix: PrefixAvailability::Known,
                });
            }
        }
        self
    }

    fn target(&self) -> TargetModel<'_> {
        TargetModel::new(self.calls.format, self.profile.as_ref())
    }

    /// The most that a request may hold if its sender gives the size of the window or the length of the answer:
    /// exactly that much is left for the answer.
    pub(crate) fn limit_of(&self, window: Option<Tokens>, answer: Option<Tokens>) -> RequestLimit {
        let target = self.target();
        let most = target.input_limit(window, answer);
        RequestLimit { most, window, answer: target.answer_room(window, answer) }
    }

    /// Returns true if requests are made with equal settings.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let named =
            |setup: &Self| (setup.calls.format, setup.recorded.policy.hash, setup.recorded.rendering.hash);
        let profile = |setup: &Self| setup.recorded.profile.as_ref().map(|profile| profile.hash);
        self.overflow_check == other.overflow_check
            && self.model == other.model
            && named(self) == named(other)
            && profile(self) == profile(other)
    }

    /// Recorded rendering of requests that are rewritten from a client's.
    pub(crate) fn weaving(&self, plan: RewritePlan) -> HashedText {
        rendering(&self.calls, &self.meter, Some(plan))
    }

    /// Room of the next request, given the limits that calls have shown. Hooks may add as much as `injection` to it.
    pub(crate) fn budget(&self, learned: ObservedLimits, injection: Tokens) -> Budget {
        let answer = self.target().answer_room(self.window, None);
        self.budget_within(RequestLimit { most: self.limit, window: self.window, answer }, learned, injection)
    }

    /// The same for a request with a limit of its own.
    pub(crate) fn budget_within(
        &self,
        RequestLimit { most, answer, .. }: RequestLimit,
        learned: ObservedLimits,
        injection: Tokens,
    ) -> Budget {
        let estimated = |known: Option<Tokens>| {
            let limit = match (known, learned.limit) {
                (Some(known), Some(learned)) => known.min(learned),
                (known, learned) => known.or(learned).unwrap_or(Tokens::MAX),
            };
            learned.estimated(limit).min(learned.bound.unwrap_or(Tokens::MAX))
        };
        let ceiling = estimated(most.map(|most| self.within(most, learned)));
        let open = Budget::new(estimated(most));
        let margin = open.ceiling().less(ceiling);
        let base = open.with_answer(answer).with_reserve(margin).with_reserve(injection);
        let degradation = self.profile.as_ref().and_then(Profile::degradation_sizes);
        let degradation = degradation.map(|sizes| DegradationSizes {
            onset: learned.estimated(sizes.onset),
            most: learned.estimated(sizes.most),
        });
        self.calls.policy.budget(self.target().with_thresholds(base).with_degradation(degradation))
    }

    /// The largest count of ours for which the provider counts no more than this.
    fn within(&self, most: Tokens, learned: ObservedLimits) -> Tokens {
        let bound = learned.bound_before.unwrap_or_else(|| self.bound_before_calls());
        let permille = if learned.calls < ENOUGH_CALLS { bound } else { bound.min(LEAST_BOUND_PERMILLE) };
        let within = u128::from(most.0) * 1_000 / u128::from(permille.max(1_000));
        Tokens(u64::try_from(within).unwrap_or(u64::MAX))
    }

    /// Most that a provider counts for a thousand tokens of ours, as far as it is known before the calls of a session.
    pub(crate) fn bound_before_calls(&self) -> u64 {
        self.accuracy.bound(Tokens(1_000)).0
    }
}

/// Choice to compact as soon as an answer reports that its call used more than the model's input takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverflowCheck {
    /// The next request is compacted.
    #[default]
    On,
    /// Only the sizes of requests count.
    Off,
}

/// Number of other sessions whose counts are compared.
const COMPARED_SESSIONS: usize = 64;

/// Number of calls that show how a provider counts. One is not enough: its error is that of the next request of its
/// session, which is the same but for its end.
const ENOUGH_CALLS: u32 = 3;

/// Bound that is kept even then: the next content may be of another kind than all before it.
const LEAST_BOUND_PERMILLE: u64 = 1_030;

/// The most that a request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestLimit {
    /// The most input, by the provider's count; `None` if unknown.
    pub(super) most: Option<Tokens>,
    /// The configured window, in place of the profile's.
    pub(crate) window: Option<Tokens>,
    /// Room that stays free for the answer.
    answer: Tokens,
}

/// Limits that the calls of a session have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ObservedLimits {
    /// The limit that the provider named when it refused a request.
    limit: Option<Tokens>,
    /// The largest allowed estimate: less than the one refused.
    bound: Option<Tokens>,
    /// Thousandths by which the provider's last count exceeded the estimate.
    short: u64,
    /// Number of calls that showed how the provider counts.
    calls: u32,
    /// Most that the provider was thought to count for a thousand tokens of ours when the session began.
    bound_before: Option<u64>,
}

/// Largest plausible error of an estimate, in thousandths: beyond this, the count is of something else.
const MAX_SHORTFALL_PERMILLE: u64 = 1_000;

impl ObservedLimits {
    /// Limits of a session without calls.
    pub(crate) fn before_calls(setup: &SessionSetup) -> Self {
        Self { bound_before: Some(setup.bound_before_calls()), ..Self::default() }
    }

    /// Notes the provider's count for a request.
    pub(crate) fn counted(&mut self, estimated: Tokens, actual: Tokens) {
        let short = u128::from(actual.less(estimated).0) * 1_000 / u128::from(estimated.0.max(1));
        self.short = u64::try_from(short).unwrap_or(MAX_SHORTFALL_PERMILLE).min(MAX_SHORTFALL_PERMILLE);
        // Below half of the estimate a report is of something else, and shows no margin.
        self.calls = self.calls.saturating_add(u32::from(actual.0 > estimated.0 / 2));
        // A request that was accepted was not too long.
        self.bound = self.bound.filter(|bound| estimated <= *bound);
        self.limit = self.limit.filter(|limit| actual <= *limit);
    }

    /// Notes that the provider refused a request as too long: the next must be smaller, at any estimate.
    pub(crate) fn refused(&mut self, estimated: Tokens, refused: ContextOverflow) {
        let ContextOverflow { limit, asked } = refused;
        let limit = limit.filter(|limit| *limit > Tokens(0));
        let bound = match (asked, limit) {
            // Reduced by the ratio by which it was too long in the provider's count.
            (Some(asked), Some(limit)) if limit < asked => {
                let bound = u128::from(estimated.0) * u128::from(limit.0) / u128::from(asked.0);
                Tokens(u64::try_from(bound).unwrap_or(u64::MAX))
            }
            (_, Some(limit)) if limit < estimated => limit,
            _ => Tokens(estimated.0 / 5 * 4),
        };
        let bound = bound.min(estimated.less(Tokens(1))).max(Tokens(1));
        self.bound = Some(self.bound.map_or(bound, |known| known.min(bound)));
        self.limit = self.limit.into_iter().chain(limit).min();
    }

    /// The same without limits from refusals; `None` if there are none.
    pub(crate) fn without_refusals(self) -> Option<Self> {
        (self.bound.is_some() || self.limit.is_some()).then_some(Self { bound: None, limit: None, ..self })
    }

    /// What the provider will count for an estimate, as far as calls have shown it.
    pub(crate) fn expected(self, estimated: Tokens) -> Tokens {
        let counted = u128::from(estimated.0) * u128::from(1_000 + self.short) / 1_000;
        Tokens(u64::try_from(counted).unwrap_or(u64::MAX))
    }

    /// The estimate for which the provider will count this much.
    fn estimated(self, counted: Tokens) -> Tokens {
        if counted == Tokens::MAX {
            return counted;
        }
        let estimated = u128::from(counted.0) * 1_000 / u128::from(1_000 + self.short);
        Tokens(u64::try_from(estimated).unwrap_or(u64::MAX))
    }
}

fn rendering(calls: &CallSettings, meter: &Meter, weave: Option<RewritePlan>) -> HashedText {
    let (format, options) = (calls.format, calls.options.clone());
    HashedText::new(json(&RecordedRendering { format, options, tokenizer: meter.name().to_owned(), weave }))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("policies, profiles and options hold only strings, numbers and lists")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(model: &str, window: Option<u64>) -> SessionSetup {
        let policy = Policy::named("epitome").unwrap();
        let window = window.map(Tokens);
        SessionSetup::new(Format::OpenaiChat, model, window, policy, &Profiles::builtin())
    }

    #[test]
    fn a_window_nobody_knows_is_not_guessed() {
        assert_eq!(
            setup("somebody's model", None).budget(ObservedLimits::default(), Tokens(0)).ceiling(),
            Tokens::MAX
        );
        assert_eq!(
            setup("somebody's model", Some(8_000)).budget(ObservedLimits::default(), Tokens(0)).ceiling(),
            Tokens(6_000)
        );
    }

    #[test]
    fn what_the_provider_counts_and_refuses_makes_the_budget_smaller() {
        let setup = setup("somebody's model", Some(8_000));
        let mut learned = ObservedLimits::default();
        learned.counted(Tokens(1_000), Tokens(1_200));
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(5_000));
        learned.counted(Tokens(1_000), Tokens(900));
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(6_000));
        learned.refused(Tokens(5_500), ContextOverflow { limit: Some(Tokens(4_096)), asked: None });
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(4_096));
        learned.refused(Tokens(4_000), ContextOverflow { limit: None, asked: None });
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(3_200));
        learned.counted(Tokens(3_000), Tokens(3_000));
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(3_200));
        learned.counted(Tokens(4_000), Tokens(4_000));
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(4_096));
        learned.counted(Tokens(5_000), Tokens(5_000));
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(6_000));
    }

    #[test]
    fn thresholds_of_a_model_are_of_its_window_whatever_is_kept_free() {
        let policy = Policy::named("tiered").unwrap();
        let profiles = Profiles::builtin();
        let setup = SessionSetup::new(Format::Anthropic, "claude-sonnet-4-5", None, policy, &profiles);
        let mut learned = ObservedLimits::default();
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(147_200));
        assert_eq!(setup.budget(learned, Tokens(0)).trigger(), Tokens(101_200));
        assert_eq!(setup.budget(learned, Tokens(0)).target(), Tokens(82_800));
        // A count that is short is short of a threshold too.
        learned.counted(Tokens(10_000), Tokens(11_000));
        assert_eq!(setup.budget(learned, Tokens(0)).trigger(), Tokens(91_999));
    }

    #[test]
    fn what_is_kept_free_is_the_profiles_until_calls_have_told() {
        let setup = setup("claude-sonnet-4-5", Some(40_000));
        let mut learned = ObservedLimits::default();
        let ceiling = |learned: ObservedLimits| setup.budget(learned, Tokens(0)).ceiling();
        assert_eq!(ceiling(learned), Tokens(24_000));
        // A report about something else changes nothing.
        for actual in [0, 10_000, 10_000] {
            learned.counted(Tokens(10_000), Tokens(actual));
            assert_eq!(ceiling(learned), Tokens(24_000), "{actual}");
        }
        learned.counted(Tokens(10_000), Tokens(10_000));
        assert_eq!(ceiling(learned), Tokens(29_126));
        learned.counted(Tokens(10_000), Tokens(11_000));
        assert_eq!(ceiling(learned), Tokens(26_478));
    }

    #[test]
    fn only_what_requests_hold_beside_the_context_is_left_out_of_it() {
        let setup = setup("claude-sonnet-4-5", Some(200_000));
        let mut learned = ObservedLimits::default();
        assert_eq!(setup.budget(learned, Tokens(0)).beside(), Tokens(36_800));
        learned.refused(Tokens(50_000), ContextOverflow { limit: Some(Tokens(16_000)), asked: None });
        assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(16_000));
        assert_eq!(setup.budget(learned, Tokens(0)).beside(), Tokens(0));
    }

    #[test]
    fn whatever_a_refusal_says_the_next_request_is_smaller() {
        let setup = setup("somebody's model", None);
        let check = |limit: Option<u64>, asked: Option<u64>, expect: u64| {
            let mut learned = ObservedLimits::default();
            learned.refused(
                Tokens(1_000),
                ContextOverflow { limit: limit.map(Tokens), asked: asked.map(Tokens) },
            );
            assert_eq!(setup.budget(learned, Tokens(0)).ceiling(), Tokens(expect), "{limit:?} {asked:?}");
        };
        check(None, None, 800);
        check(Some(900), None, 900);
        check(Some(2_000), None, 800);
        check(Some(2_000), Some(2_500), 800);
        check(Some(2_000), Some(2_001), 999);
        check(Some(2_000), Some(1_500), 800);
        check(Some(0), Some(0), 800);
    }
}
