//! What is counted of calls in mode compact: what was done to them, and what that saved.
//!
//! Counters of tokens and money are only of calls whose answer says what it used: what was refused has cost nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64};

use epitome::{
    compose::{Done, Left},
    core::{
        SessionId, Tokens,
        event::{Trigger, Usage},
        profile::Money,
    },
    holdout::Arm,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{causes, models::Counted};
use crate::gateway::savings::{Page, Paid, Saving, Savings};

/// A call in mode compact that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Whose it is.
    pub(crate) principal: &'a str,
    /// Its session.
    pub(crate) session: SessionId,
    /// The group that its session is in.
    pub(crate) arm: Arm,
    /// The model that was asked.
    pub(crate) model: Option<&'a str>,
    /// What was done to it.
    pub(crate) done: &'a Done,
    /// What the provider said it used; nothing if there was no answer.
    pub(crate) usage: Option<&'a Usage>,
    /// What its input would have cost as the client sent it, by our estimate. The answer is the same, and is added here.
    pub(crate) full_input: Option<Money>,
    /// The compaction that took effect with it.
    pub(crate) adopted: Option<Adopted>,
    /// What became of it when its provider refused it as too long.
    pub(crate) overflow: Option<Overflowed>,
    /// How many times the model got back what was left out.
    pub(crate) recalls: u64,
}

/// A compaction that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// Who wrote its summary.
    pub(crate) by: Writer,
    /// Why it was made.
    pub(crate) trigger: Trigger,
}

/// Who wrote a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The built-in summariser.
    BuiltIn,
    /// A model.
    Model,
}

/// What became of a request that was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflowed {
    /// A smaller one was answered.
    Recovered,
    /// The client was told.
    Lost,
}

/// What came of asking a summariser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// A summary that can be used.
    Ready,
    /// A draft that the session does not bear out.
    Rejected,
    /// No draft.
    Failed,
}

/// Whether a summariser is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaker {
    /// It is.
    Closed,
    /// It has failed too often, and rests.
    Open,
}

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Composed {
    calls: Family<Why, Counter>,
    tokens: Family<Sent, Counter>,
    input: Family<Input, Counter>,
    epochs: Family<Cause, Counter>,
    resets: Counter,
    compactions: Family<Compaction, Counter>,
    overflows: Family<Outcome, Counter>,
    attempts: Family<Outcome, Counter>,
    breaker: Gauge,
    recalls: Counter,
    cost: Family<Cost, Counter>,
    sessions: Family<Group, Gauge>,
    share: Family<Bound, Gauge<f64, AtomicU64>>,
    savings: Mutex<Savings>,
}

impl Composed {
    /// Counts a call to a model that is counted like this.
    pub(super) fn call(&self, call: &Call<'_>, model: &Counted) {
        let Call { done, arm, .. } = *call;
        self.calls.get_or_create(&Why { left: done.left.name() }).inc();
        if let Some(cause) = done.cause.as_deref().map(causes::name) {
            self.epochs.get_or_create(&Cause { cause }).inc();
            if causes::is_reset(cause) {
                self.resets.inc();
            }
        }
        if let Some(Adopted { by, trigger }) = call.adopted {
            self.compactions
                .get_or_create(&Compaction { by: by.name(), trigger: trigger_name(trigger) })
                .inc();
        }
        if let Some(overflow) = call.overflow {
            self.overflows.get_or_create(&Outcome { outcome: overflow.name() }).inc();
        }
        self.recalls.inc_by(call.recalls);
        if let Some(usage) = call.usage {
            self.used(arm, done, usage);
            self.paid(call, usage, model);
        }
    }

    fn used(&self, arm: Arm, done: &Done, usage: &Usage) {
        let arm = arm.name();
        if done.left == Left::Composed {
            self.tokens.get_or_create(&Sent { sent: "full" }).inc_by(done.before.0);
            self.tokens.get_or_create(&Sent { sent: "policy" }).inc_by(done.after.0);
        }
        let kinds =
            [("uncached", usage.uncached), ("read", usage.cache_read), ("written", usage.cache_write)];
        for (kind, tokens) in kinds {
            if tokens > Tokens(0) {
                self.input.get_or_create(&Input { arm, kind }).inc_by(tokens.0);
            }
        }
    }

    fn paid(&self, call: &Call<'_>, usage: &Usage, model: &Counted) {
        let price = |usage: &Usage| model.prices.as_ref().and_then(|prices| prices.cost(usage).ok());
        let answer = Usage { output: usage.output, ..Usage::default() };
        let cost = price(usage);
        let full = call.full_input.zip(price(&answer)).map(|(input, answer)| input + answer);
        if let (Some(cost), Some(full), Arm::Treated) = (cost, full, call.arm) {
            for (sent, money) in [("policy", cost), ("full", full)] {
                let labels = Cost { model: Arc::clone(&model.label), sent };
                self.cost.get_or_create(&labels).inc_by(micro(money));
            }
        }
        let Call { principal, session, arm, .. } = *call;
        self.savings().record(&Paid { principal, session, arm, input: usage.input(), cost, full });
    }

    /// Counts what came of asking a summariser.
    pub(super) fn attempt(&self, attempt: Attempt) {
        self.attempts.get_or_create(&Outcome { outcome: attempt.name() }).inc();
    }

    /// Says whether a summariser is asked.
    pub(super) fn breaker(&self, breaker: Breaker) {
        self.breaker.set(match breaker {
            Breaker::Closed => 0,
            Breaker::Open => 1,
        });
    }

    /// What somebody may see of what was saved.
    pub(super) fn page(&self, principal: &str) -> Page {
        self.savings().page(principal)
    }

    /// Says what is saved by now. What is not known has no gauge.
    pub(super) fn settle(&self) {
        let (estimated, measured, totals) = {
            let savings = self.savings();
            let totals = [Arm::Treated, Arm::HeldOut].map(|arm| (arm, savings.total(arm).sessions));
            (savings.estimated(), savings.measured(), totals)
        };
        for (arm, sessions) in totals {
            let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
            self.sessions.get_or_create(&Group { arm: arm.name() }).set(sessions);
        }
        for (kind, Saving { point, low, high, .. }) in [("estimated", estimated), ("measured", measured)] {
            for (bound, share) in [("low", low), ("point", point), ("high", high)] {
                let labels = Bound { kind, bound };
                match share.filter(|share| share.is_finite()) {
                    Some(share) => {
                        self.share.get_or_create(&labels).set(share);
                    }
                    None => {
                        self.share.remove(&labels);
                    }
                }
            }
        }
    }

    fn savings(&self) -> MutexGuard<'_, Savings> {
        // Nothing in there is ever half done: a sum that is wrong would be, and none can be.
        self.savings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `registry` tell all of it.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "composed_calls",
            "Calls in mode compact, by whether a policy was in charge and if not, why not",
            self.calls.clone(),
        );
        registry.register(
            "composed_tokens",
            "Tokens of composed requests by our count, as the client sent them (full) and as they went on (policy)",
            self.tokens.clone(),
        );
        registry.register(
            "composed_input_tokens",
            "Input that providers counted in mode compact, by group of sessions: read from their cache, written to it, or \
             neither",
            self.input.clone(),
        );
        registry.register(
            "composed_epochs",
            "Requests that did not extend the one before, by cause",
            self.epochs.clone(),
        );
        registry.register(
            "composed_resets",
            "Those of them that gave up a warm cache: not a first call, and not after a pause",
            self.resets.clone(),
        );
        registry.register(
            "compactions_adopted",
            "Compactions that took effect, by who wrote the summary and why",
            self.compactions.clone(),
        );
        registry.register(
            "overflows",
            "Requests that a provider refused as too long, by what became of them",
            self.overflows.clone(),
        );
        registry.register(
            "summariser_attempts",
            "Summaries that were asked for, by what came of it",
            self.attempts.clone(),
        );
        registry.register(
            "summariser_breaker_open",
            "1 while a summariser that failed too often is not asked",
            self.breaker.clone(),
        );
        registry.register("recalls", "Calls of the recall tool that were answered", self.recalls.clone());
        registry.register(
            "composed_cost_microdollars",
            "What compacted sessions cost (policy), and what the same calls would have by our estimate (full)",
            self.cost.clone(),
        );
        registry.register(
            "composed_sessions",
            "Sessions with an answer in mode compact, by group: compacted, or left as they are to compare with",
            self.sessions.clone(),
        );
        registry.register(
            "gateway_saving_share",
            "The share that is saved, estimated and measured against sessions left as they are, with a 95 % interval",
            self.share.clone(),
        );
    }
}

impl Writer {
    fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::Model => "model",
        }
    }
}

impl Overflowed {
    fn name(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Lost => "lost",
        }
    }
}

impl Attempt {
    fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Threshold => "threshold",
        Trigger::Overflow => "overflow",
        Trigger::Manual => "manual",
        Trigger::Agent => "agent",
        Trigger::Idle => "idle",
        Trigger::ModelSwitch => "model_switch",
        Trigger::Unknown => "unknown",
    }
}

/// Money in parts of a million of a dollar.
fn micro(money: Money) -> u64 {
    money.0.saturating_add(500) / 1_000
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    left: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Sent {
    sent: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Input {
    arm: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Compaction {
    by: &'static str,
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cost {
    model: Arc<str>,
    sent: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Group {
    arm: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bound {
    kind: &'static str,
    bound: &'static str,
}

#[cfg(test)]
mod tests {
    use epitome::core::profile::Profiles;

    use super::{super::Metrics, *};

    fn done(left: Left, cause: Option<&str>) -> Done {
        Done {
            call: None,
            epoch: 1,
            cause: cause.map(str::to_owned),
            before: Tokens(90_000),
            after: Tokens(30_000),
            left,
        }
    }

    fn call<'a>(number: u64, done: &'a Done, usage: Option<&'a Usage>) -> Call<'a> {
        Call {
            principal: "anna",
            session: SessionId::derived(&[&number.to_string()]),
            arm: if done.left == Left::HeldOut { Arm::HeldOut } else { Arm::Treated },
            model: Some("claude-opus-4-5"),
            done,
            usage,
            full_input: None,
            adopted: None,
            overflow: None,
            recalls: 0,
        }
    }

    #[track_caller]
    fn check(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.text();
        for line in lines {
            assert!(text.lines().any(|said| said == *line), "no {line} in\n{text}");
        }
    }

    fn metrics() -> Metrics {
        Metrics::new(Arc::new(Profiles::builtin()))
    }

    #[test]
    fn a_composed_call_is_counted_with_what_was_done_and_paid() {
        let metrics = metrics();
        let usage = Usage {
            uncached: Tokens(10_000),
            cache_read: Tokens(20_000),
            output: Tokens(1_000),
            ..Usage::default()
        };
        let done = done(Left::Composed, Some("over the trigger"));
        metrics.composed(&Call {
            // At 5 dollars a million: 0.2 of input, and 0.025 for the answer beside.
            full_input: Some(Money(200_000_000)),
            adopted: Some(Adopted { by: Writer::Model, trigger: Trigger::Threshold }),
            overflow: Some(Overflowed::Recovered),
            recalls: 2,
            ..call(1, &done, Some(&usage))
        });
        check(
            &metrics,
            &[
                r#"epitome_composed_calls_total{left="composed"} 1"#,
                r#"epitome_composed_tokens_total{sent="full"} 90000"#,
                r#"epitome_composed_tokens_total{sent="policy"} 30000"#,
                r#"epitome_composed_input_tokens_total{arm="treated",kind="read"} 20000"#,
                r#"epitome_composed_input_tokens_total{arm="treated",kind="uncached"} 10000"#,
                r#"epitome_composed_epochs_total{cause="trigger"} 1"#,
                "epitome_composed_resets_total 1",
                r#"epitome_compactions_adopted_total{by="model",trigger="threshold"} 1"#,
                r#"epitome_overflows_total{outcome="recovered"} 1"#,
                "epitome_recalls_total 2",
                r#"epitome_composed_cost_microdollars_total{model="claude-opus-4-5",sent="policy"} 85000"#,
                r#"epitome_composed_cost_microdollars_total{model="claude-opus-4-5",sent="full"} 225000"#,
                r#"epitome_composed_sessions{arm="treated"} 1"#,
                r#"epitome_gateway_saving_share{kind="estimated",bound="point"} 0.6222222222222222"#,
            ],
        );
        let text = metrics.text();
        assert!(!text.contains(r#"bound="low""#) && !text.contains(r#"kind="measured""#), "{text}");
    }

    #[test]
    fn what_got_no_answer_cost_nothing() {
        let metrics = metrics();
        metrics
            .composed(&Call { overflow: Some(Overflowed::Lost), ..call(1, &done(Left::Unfit, None), None) });
        check(
            &metrics,
            &[
                r#"epitome_composed_calls_total{left="unfit"} 1"#,
                r#"epitome_overflows_total{outcome="lost"} 1"#,
                r#"epitome_composed_sessions{arm="treated"} 0"#,
                "epitome_composed_resets_total 0",
            ],
        );
        assert!(!metrics.text().contains("epitome_composed_tokens_total{"));
    }

    #[test]
    fn what_is_saved_is_told_with_its_interval_once_there_are_sessions_enough() {
        let metrics = metrics();
        let (composed, left) = (done(Left::Composed, None), done(Left::HeldOut, None));
        for number in 0..40 {
            let (done, input) = if number % 2 == 0 { (&composed, 10_000) } else { (&left, 20_000) };
            let usage = Usage { uncached: Tokens(input + number), ..Usage::default() };
            let full_input = Some(Money(100_000_000));
            metrics.composed(&Call { full_input, ..call(number, done, Some(&usage)) });
        }
        let text = metrics.text();
        for kind in ["estimated", "measured"] {
            let value = |bound: &str| -> f64 {
                let head = format!(r#"epitome_gateway_saving_share{{kind="{kind}",bound="{bound}"}} "#);
                let said = text.lines().find_map(|line| line.strip_prefix(&head)).expect(&head);
                said.parse().expect("a number")
            };
            let (low, point, high) = (value("low"), value("point"), value("high"));
            assert!(low < point && point < high && (point - 0.5).abs() < 0.01, "{low} {point} {high}");
        }
        check(&metrics, &[r#"epitome_composed_sessions{arm="held_out"} 20"#]);
        let page: serde_json::Value = serde_json::from_str(&metrics.savings("anna")).expect("JSON");
        assert_eq!(
            (&page["held_out"]["sessions"], page["sessions"].as_array().map(Vec::len)),
            (&20.into(), Some(40))
        );
        let nobody: serde_json::Value = serde_json::from_str(&metrics.savings("bob")).expect("JSON");
        assert_eq!(
            (&nobody["treated"]["calls"], &nobody["estimated"]["point"]),
            (&0.into(), &serde_json::Value::Null)
        );
    }

    #[test]
    fn a_summariser_is_counted_by_what_came_of_it_and_whether_it_rests() {
        let metrics = metrics();
        for attempt in [Attempt::Ready, Attempt::Rejected, Attempt::Failed, Attempt::Failed] {
            metrics.summarised(attempt);
        }
        check(&metrics, &["epitome_summariser_breaker_open 0"]);
        metrics.breaker(Breaker::Open);
        check(
            &metrics,
            &[
                r#"epitome_summariser_attempts_total{outcome="failed"} 2"#,
                r#"epitome_summariser_attempts_total{outcome="ready"} 1"#,
                "epitome_summariser_breaker_open 1",
            ],
        );
        metrics.breaker(Breaker::Closed);
        check(&metrics, &["epitome_summariser_breaker_open 0"]);
    }
}
