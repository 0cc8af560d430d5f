//! Margins of budgets, from the accuracy of token counts.
//!
//! A budget is a promise about the provider's count. If the model's vocabulary is public, our count is the
//! provider's. Otherwise it is an estimate and may be short, by as much as the profile says, until calls of
//! the session itself show its accuracy. So a limit is reduced by a margin, and the report states its size
//! and reason.

use std::{fmt, sync::Arc};

use epitome_core::{
    Seq, Tokens,
    budget::{Budget, WindowReserves},
    calibration::{Calibration, PrefixAvailability, TokenObservation},
    id::ModelName,
    meter::Meter,
    profile::{Profile, Share},
    projection::EventLine,
};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::recorded_calls::{self, RecordedCall};

/// Accuracy of a session's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountAccuracy {
    calibration: Calibration,
    basis: MarginBasis,
}

/// Part of a limit that is kept free, and why. Its JSON also has the reason in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenMargin {
    /// Size of the margin.
    pub tokens: Tokens,
    /// Limit that it is taken from.
    pub limit: Tokens,
    /// Reason for its size.
    pub basis: MarginBasis,
}

/// Basis of a margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarginBasis {
    /// The counts are by the model's own vocabulary.
    Exact,
    /// The model has no profile and the session has no usage, so the error of the counts is unknown.
    Unknown,
    /// The counts are estimates, with the profile's bound on their error.
    Profile(Share),
    /// The counts are estimates, with an error measured in this many calls of the session.
    Calls(usize),
}

impl CountAccuracy {
    /// Exact counts, from the provider's own vocabulary.
    pub fn exact() -> Self {
        Self { calibration: Calibration::new(Share::percent(0)), basis: MarginBasis::Exact }
    }

    /// Learns from the calls of a session. `is_same` tells if a model that reported usage is the one to be asked. Without such
    /// a report, `prior` is all that is known.
    ///
    /// Where a transcript shows neither instructions nor tools, the provider's count of a request says nothing of the rest. But
    /// what a request has beyond an earlier one is in the transcript: there the two counts are compared.
    pub fn from_calls(
        line: &EventLine,
        meter: &Arc<Meter>,
        prior: Option<Share>,
        is_same: impl Fn(&ModelName) -> bool,
    ) -> Self {
        let mut calibration = Calibration::new(prior.unwrap_or(Share::percent(0)));
        let mut told = 0;
        let mut start: Option<GrowthStart> = None;
        for call in recorded_calls::counted(line, meter) {
            let usage = call.usage.filter(|_| call.model.as_ref().is_some_and(&is_same));
            let Some(input) = usage.map(|usage| usage.input()) else {
                start = start.map(|start| start.past(&call));
                continue;
            };
            told += 1;
            if call.shows_prefix {
                let (estimated, actual) = (call.counted, input);
                calibration.observe(TokenObservation {
                    estimated,
                    actual,
                    prefix: PrefixAvailability::Known,
                });
                continue;
            }
            let grown = start.as_ref().and_then(|start| start.growth(&call, input));
            if let Some(grown) = grown.filter(|grown| grown.estimated >= COMPARED_GROWTH) {
                calibration.observe(grown);
            }
            start = match start {
                Some(start) if grown.is_some_and(|grown| grown.estimated < COMPARED_GROWTH) => {
                    Some(start.past(&call))
                }
                _ => Some(GrowthStart::at(&call, input)),
            };
        }
        let basis = match (calibration.observations(), prior) {
            (0, None) => MarginBasis::Unknown,
            (0, Some(prior)) => MarginBasis::Profile(prior),
            _ => MarginBasis::Calls(told),
        };
        Self { calibration, basis }
    }

    /// Upper bound of the provider's count for a count of ours.
    pub fn bound(&self, counted: Tokens) -> Tokens {
        self.calibration.bound(counted)
    }

    /// Margin by which a request has to stay below `limit`.
    pub fn margin(&self, limit: Tokens) -> TokenMargin {
        let tokens = limit.less(self.calibration.within(limit));
        TokenMargin { tokens, limit, basis: self.basis }
    }

    /// Budget that keeps a request within `limit` by the provider's count.
    pub fn budget_within(&self, limit: Tokens) -> (Budget, TokenMargin) {
        let margin = self.margin(limit);
        (Budget::new(limit).with_reserve(margin.tokens), margin)
    }

    /// Budget of a model's whole window: its input less room for an answer, with its thresholds.
    pub fn whole_window(&self, profile: &Profile) -> (Budget, TokenMargin) {
        let reserves = WindowReserves::default();
        let margin = self.margin(Budget::for_profile(profile, reserves).ceiling());
        (Budget::for_profile(profile, WindowReserves { margin: margin.tokens, ..reserves }), margin)
    }
}

/// Growth over which counts are compared. With less, one odd result makes the ratio.
const COMPARED_GROWTH: Tokens = Tokens(4_000);

/// Smallest fall of a request by the provider's count that is no error of counting: something was removed from it.
const MIN_FALL: Tokens = Tokens(500);

/// A call from which the growth of the requests after it is measured.
#[derive(Clone, Copy, Debug)]
struct GrowthStart {
    standing: Option<Seq>,
    counted: Tokens,
    input: Tokens,
    /// Size of the reasoning since then that our count does not see.
    concealed: Tokens,
}

impl GrowthStart {
    fn at(call: &RecordedCall, input: Tokens) -> Self {
        Self { standing: call.standing, counted: call.counted, input, concealed: call.concealed }
    }

    /// The same start once the answer to a later call is there.
    fn past(self, call: &RecordedCall) -> Self {
        Self { concealed: self.concealed + call.concealed, ..self }
    }

    /// Growth up to a later call; `None` if the client removed something in between.
    fn growth(&self, call: &RecordedCall, input: Tokens) -> Option<TokenObservation> {
        let estimated = call.counted.0.checked_sub(self.counted.0).map(Tokens)?;
        let is_appended = self.standing == call.standing && input + MIN_FALL > self.input;
        let actual = input.less(self.input + self.concealed);
        is_appended.then_some(TokenObservation { estimated, actual, prefix: PrefixAvailability::Known })
    }
}

impl TokenMargin {
    /// An empty margin: the counts are the provider's own.
    pub fn none(limit: Tokens) -> Self {
        Self { tokens: Tokens(0), limit, basis: MarginBasis::Exact }
    }
}

impl Serialize for TokenMargin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Margin", 4)?;
        fields.serialize_field("tokens", &self.tokens)?;
        fields.serialize_field("limit", &self.limit)?;
        fields.serialize_field("basis", &self.basis)?;
        fields.serialize_field("why", &self.to_string())?;
        fields.end()
    }
}

/// Writes the margin on one line, for people.
impl fmt::Display for TokenMargin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.basis, self.tokens) {
            (_, Tokens(0)) => write!(f, "none, ")?,
            (_, tokens) => write!(f, "{tokens} of {} tokens are kept free, ", self.limit)?,
        }
        match self.basis {
            MarginBasis::Exact => write!(f, "the counts are by the model's own vocabulary"),
            MarginBasis::Unknown => {
                write!(f, "nobody can say how far the counts are off for a model that is not known")
            }
            MarginBasis::Profile(share) => {
                write!(
                    f,
                    "the counts are estimates that may be {share} short, and no call of the session tells more"
                )
            }
            MarginBasis::Calls(1) => write!(f, "by what one call of the session reported"),
            MarginBasis::Calls(calls) => write!(f, "by what {calls} calls of the session reported"),
        }
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::{
        ContentPart, Event, Fact,
        event::{InstructionKind, ReasoningSeal, Usage},
        profile::Profiles,
    };

    use super::*;
    use crate::compact::line;

    /// A session of calls to `model`, each of which reported `thousandths` of the meter's count.
    fn session(meter: &Meter, model: &str, calls: usize, thousandths: u64) -> EventLine {
        let own = |fact| Event::from_fact(fact, None);
        let words = |text: &str| vec![ContentPart::text(text.repeat(400))];
        let mut events =
            vec![own(Fact::Instructed { what: InstructionKind::System, parts: words("Mend services. ") })];
        let mut counted = meter.overhead().request + meter.event(&events[0], None);
        for _ in 0..calls {
            let asked = own(Fact::UserSaid { parts: words("Look at the reader again. ") });
            counted += meter.event(&asked, None);
            let said = own(Fact::AssistantSaid {
                answer: None,
                model: Some(model.into()),
                parts: vec![ContentPart::text("Yes.")],
            });
            let usage = Usage { uncached: Tokens(counted.0 * thousandths / 1_000), ..Usage::default() };
            counted += meter.event(&said, None);
            let reported = own(Fact::UsageReported { answer: None, model: None, usage });
            events.extend([asked, said, reported]);
        }
        line(events).count_missing(meter)
    }

    fn check(model: &str, calls: usize, thousandths: u64, limit: u64, expect: &str) {
        let profiles = Profiles::builtin();
        let profile = profiles.find("claude-opus-4-5").unwrap();
        let meter = Arc::new(profile.meter());
        let line = session(&meter, model, calls, thousandths);
        let trust = CountAccuracy::from_calls(&line, &meter, Some(profile.margin), |name| {
            profiles.find(&name.0).is_ok_and(|found| found.name == profile.name)
        });
        let (budget, margin) = trust.budget_within(Tokens(limit));
        assert_eq!(budget.ceiling() + margin.tokens, Tokens(limit));
        assert_eq!(margin.to_string(), expect);
    }

    #[test]
    fn a_profile_says_how_much_may_be_short_until_calls_tell() {
        check(
            "claude-opus-4-5",
            0,
            0,
            50_000,
            "10000 of 50000 tokens are kept free, the counts are estimates that may be 25 % short, and no call of the \
             session tells more",
        );
        let learned = "7082 of 50000 tokens are kept free, by what 60 calls of the session reported";
        check("claude-opus-4-5-20251101", 60, 1_145, 50_000, learned);
        check("claude-opus-4-5", 60, 900, 50_000, "none, by what 60 calls of the session reported");
    }

    /// Calls of an agent whose transcript shows neither its instructions nor its tools: 20 000 tokens of them, a provider that counts
    /// a fifth more than we do, and thinking in the answers of which only a seal is left.
    fn hidden_session(meter: &Arc<Meter>, thinking: u64) -> EventLine {
        let own = |fact| Event::from_fact(fact, None);
        let mut events = Vec::new();
        let (mut counted, mut thought) = (Tokens(0), Tokens(0));
        for call in 0..40_u64 {
            let asked = own(Fact::UserSaid {
                parts: vec![ContentPart::text("Look at the reader again. ".repeat(200))],
            });
            counted += meter.event(&asked, None);
            let answer = Some(format!("answer {call}").into());
            let parts = vec![
                ContentPart::Reasoning {
                    text: String::new(),
                    seal: Some(ReasoningSeal::Encrypted("seal".into())),
                },
                ContentPart::text("Yes."),
            ];
            let said = own(Fact::AssistantSaid {
                answer: answer.clone(),
                model: Some("claude-opus-4-5".into()),
                parts,
            });
            let size = meter.event(&said, None);
            let usage = Usage {
                uncached: Tokens(20_000 + counted.0 * 6 / 5) + thought,
                output: size + Tokens(thinking),
                ..Usage::default()
            };
            counted += size;
            thought += Tokens(thinking);
            events.extend([asked, said, own(Fact::UsageReported { answer, model: None, usage })]);
        }
        line(events).count_missing(meter)
    }

    #[test]
    fn what_a_transcript_does_not_show_is_no_error_of_the_counts() {
        let profiles = Profiles::builtin();
        let profile = profiles.find("claude-opus-4-5").unwrap();
        let meter = Arc::new(profile.meter());
        for thinking in [0, 900] {
            let line = hidden_session(&meter, thinking);
            let trust = CountAccuracy::from_calls(&line, &meter, Some(profile.margin), |_| true);
            let margin = trust.margin(Tokens(50_000));
            assert_eq!(margin.basis, MarginBasis::Calls(40));
            // A fifth of the context is a sixth of the limit; the rest is for few comparisons.
            assert!((8_333..10_000).contains(&margin.tokens.0), "{margin:?} with {thinking}");
        }
    }

    #[test]
    fn calls_of_another_model_tell_nothing() {
        let prior = "10000 of 50000 tokens are kept free, the counts are estimates that may be 25 % short, and no \
                     call of the session tells more";
        check("claude-haiku-4-5", 60, 1_145, 50_000, prior);
    }

    #[test]
    fn what_is_kept_free_is_enough_for_what_was_reported() {
        for limit in [1, 7, 2_000, 49_999, 1_000_000] {
            let profiles = Profiles::builtin();
            let meter = Arc::new(profiles.find("claude-opus-4-5").unwrap().meter());
            let line = session(&meter, "m", 60, 1_145);
            let trust = CountAccuracy::from_calls(&line, &meter, None, |name| name.0 == "m");
            let (budget, _) = trust.budget_within(Tokens(limit));
            let real = budget.ceiling().0 * 1_145 / 1_000;
            assert!(real <= limit, "{real} of {limit}");
        }
    }

    #[test]
    fn a_window_keeps_room_for_the_answer_and_the_margin() {
        let profiles = Profiles::builtin();
        let profile = profiles.find("claude-opus-4-5").unwrap();
        let trust = CountAccuracy::from_calls(
            &EventLine::default(),
            &Arc::new(profile.meter()),
            Some(profile.margin),
            |_| true,
        );
        let (budget, margin) = trust.whole_window(profile);
        assert_eq!((margin.limit, margin.tokens), (Tokens(184_000), Tokens(36_800)));
        assert_eq!(budget.ceiling(), Tokens(147_200));
        assert!(budget.target() < budget.trigger());
        let exact = CountAccuracy::exact().whole_window(profile).1;
        assert_eq!(exact.to_string(), "none, the counts are by the model's own vocabulary");
    }
}
