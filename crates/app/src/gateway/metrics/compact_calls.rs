//! Metrics of calls in mode `compact`: what was done to them, and what that saved.
//!
//! Tokens and money are counted only for calls whose answer reports its usage: a refused call costs nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use epitome::{
    core::{
        SessionId, Tokens,
        event::{CompactionTrigger, Usage},
        profile::Money,
    },
    holdout::HoldoutGroup,
    recorder::ExchangeOutcome,
    rewrite::{ClientCache, RewriteReport, RewriteStatus},
    session::{AttemptFault, BUILT_IN_NAME, LifecycleEvent, NextStep},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{baseline_usage::baseline_usage, epoch_causes, model_labels::CountedModel};
use crate::gateway::savings::{PaidCall, SavingInterval, Savings, SavingsPage, group};

/// Time for which a summariser rests after repeated failures.
const BREAKER_REST: Duration = Duration::from_mins(5);

/// A finished call in mode `compact`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedCompactCall<'a> {
    /// Owner of the call.
    pub(crate) principal: &'a str,
    /// Session of the call.
    pub(crate) session: SessionId,
    /// The requested model.
    pub(crate) model: Option<&'a str>,
    /// Result of composing the call.
    pub(crate) done: &'a RewriteReport,
    /// Usage that the provider reported; `None` without an answer.
    pub(crate) usage: Option<&'a Usage>,
    /// Result of sending it again, if the provider refused it as too long.
    pub(crate) overflow: Option<OverflowOutcome>,
    /// Number of times that the model got back what was left out.
    pub(crate) recalls: u64,
    /// Usage of the answers in which it asked for that.
    pub(crate) hidden: Usage,
}

/// Result of a request that was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowOutcome {
    /// A smaller one was answered.
    Recovered,
    /// The client received the refusal.
    Lost,
}

/// Metrics of composed calls.
#[derive(Debug, Default)]
pub(super) struct CompactMetrics {
    calls: Family<CompactCallLabels, Counter>,
    tokens: Family<CompactTokenLabels, Counter>,
    input: Family<ArmInputLabels, Counter>,
    epochs: Family<EpochLabels, Counter>,
    resets: Counter,
    compactions: Family<CompactionLabels, Counter>,
    overflows: Family<OverflowLabels, Counter>,
    attempts: Family<SummaryAttemptLabels, Counter>,
    breaker: Gauge,
    /// End of the summariser's rest.
    rests: Mutex<Option<Instant>>,
    recalls: Counter,
    cost: Family<CompactCostLabels, Counter>,
    uncompared: Family<UncomparedLabels, Counter>,
    sessions: Family<ArmLabels, Gauge>,
    share: Family<SavingBoundLabels, Gauge<f64, AtomicU64>>,
    savings: Mutex<Savings>,
}

impl CompactMetrics {
    /// Counts a call to the given model.
    pub(super) fn call(&self, call: &FinishedCompactCall<'_>, model: &CountedModel) {
        let done = call.done;
        self.calls.get_or_create(&CompactCallLabels { left: done.left.name() }).inc();
        self.changed(done);
        if let Some(overflow) = call.overflow {
            self.overflows.get_or_create(&OverflowLabels { outcome: overflow.name() }).inc();
        }
        self.recalls.inc_by(call.recalls);
        if let (Some(usage), Some(arm)) = (call.usage, group(done.left)) {
            self.used(arm, done, &[*usage, call.hidden]);
            self.paid(call, arm, usage, model);
        }
    }

    /// Counts the changes of a request compared with the one before it.
    pub(super) fn changed(&self, done: &RewriteReport) {
        // An illegal request opened no epoch.
        let cause = done.cause.as_deref().filter(|_| done.left != RewriteStatus::Illegal);
        if let Some(cause) = cause.map(epoch_causes::name) {
            self.epochs.get_or_create(&EpochLabels { cause }).inc();
            if epoch_causes::is_reset(cause) {
                self.resets.inc();
            }
        }
        if let Some((trigger, by)) = &done.compaction {
            self.compacted(*trigger, by);
        }
    }

    /// Counts a compaction that took effect.
    pub(super) fn compacted(&self, trigger: CompactionTrigger, by: &str) {
        let labels = CompactionLabels { by: writer(by), trigger: trigger_name(trigger) };
        self.compactions.get_or_create(&labels).inc();
    }

    fn used(&self, arm: HoldoutGroup, done: &RewriteReport, usages: &[Usage]) {
        let arm = arm.name();
        if done.left == RewriteStatus::Composed {
            self.tokens.get_or_create(&CompactTokenLabels { sent: "full" }).inc_by(done.before.0);
            self.tokens.get_or_create(&CompactTokenLabels { sent: "policy" }).inc_by(done.after.0);
        }
        let kinds = |usage: &Usage| {
            [("uncached", usage.uncached), ("read", usage.cache_read), ("written", usage.cache_write)]
        };
        for (kind, tokens) in usages.iter().flat_map(kinds) {
            if tokens > Tokens(0) {
                self.input.get_or_create(&ArmInputLabels { arm, kind }).inc_by(tokens.0);
            }
        }
    }

    fn paid(&self, call: &FinishedCompactCall<'_>, arm: HoldoutGroup, usage: &Usage, model: &CountedModel) {
        let price = |usage: &Usage| model.prices.as_ref().and_then(|prices| prices.cost(usage).ok());
        // Without compaction the model would have had nothing to ask back for.
        let cost = price(usage).zip(price(&call.hidden)).map(|(seen, hidden)| seen + hidden);
        let full = match call.done.left {
            RewriteStatus::Composed => baseline_usage(call.done, usage, model.window).and_then(|full| {
                // Models with one price for all input have no price for cached tokens.
                let uncached = Usage { uncached: full.input(), output: full.output, ..Usage::default() };
                price(&full).or_else(|| price(&uncached))
            }),
            // The request was sent as it came.
            RewriteStatus::Unfit | RewriteStatus::Illegal | RewriteStatus::Ahead => cost,
            RewriteStatus::HeldOut
            | RewriteStatus::Managed
            | RewriteStatus::Remote
            | RewriteStatus::Aside
            | RewriteStatus::OwnSummary => None,
        };
        if let (Some(cost), Some(full)) = (cost, full) {
            for (sent, money) in [("policy", cost), ("full", full)] {
                let labels = CompactCostLabels { model: Arc::clone(&model.label), sent };
                self.cost.get_or_create(&labels).inc_by(micro(money));
            }
        }
        let unknown = match call.done.cache {
            ClientCache::Unknown(why) if call.done.left == RewriteStatus::Composed => Some(why),
            _ => None,
        };
        if let Some(why) = unknown {
            self.uncompared.get_or_create(&UncomparedLabels { reason: why.name() }).inc();
        }
        let FinishedCompactCall { principal, session, hidden, .. } = *call;
        let input = usage.input() + hidden.input();
        self.savings().record(&PaidCall { principal, session, arm, input, cost, full, unknown });
    }

    /// Counts an event in the life of a summary. Its adoption is counted with the call.
    pub(super) fn record_lifecycle(&self, happened: &LifecycleEvent) {
        let (by, outcome) = match happened {
            LifecycleEvent::Ended { by, .. } => (writer(by), "ready"),
            LifecycleEvent::Failed {
                by,
                fault: fault @ (AttemptFault::NoDraft | AttemptFault::Rejected),
                next,
                ..
            } => {
                if *next == NextStep::BuiltIn {
                    *self.rests() = Some(Instant::now() + BREAKER_REST);
                }
                (writer(by), if *fault == AttemptFault::Rejected { "rejected" } else { "failed" })
            }
            // No model was asked.
            LifecycleEvent::Failed { fault: AttemptFault::Unasked, .. }
            | LifecycleEvent::Started { .. }
            | LifecycleEvent::Adopted { .. }
            | LifecycleEvent::Reverted { .. }
            | LifecycleEvent::Restored { .. }
            | LifecycleEvent::NotesFailed { .. }
            | LifecycleEvent::Thrashing { .. } => return,
        };
        self.attempts.get_or_create(&SummaryAttemptLabels { by, outcome }).inc();
        if (by, outcome) == ("model", "ready") {
            *self.rests() = None;
        }
    }

    /// Savings that a principal may see.
    pub(super) fn page(&self, principal: &str) -> SavingsPage {
        self.savings().page(principal)
    }

    /// Updates the gauges of savings and of resting summarisers. Unknown values have no gauge.
    pub(super) fn settle(&self) {
        self.breaker.set(i64::from(self.rests().is_some_and(|until| Instant::now() < until)));
        let (estimated, measured, totals) = {
            let savings = self.savings();
            let totals =
                [HoldoutGroup::Treated, HoldoutGroup::HeldOut].map(|arm| (arm, savings.total(arm).sessions));
            (savings.estimated(), savings.measured(), totals)
        };
        for (arm, sessions) in totals {
            let sessions = i64::try_from(sessions).unwrap_or(i64::MAX);
            self.sessions.get_or_create(&ArmLabels { arm: arm.name() }).set(sessions);
        }
        for (kind, SavingInterval { point, low, high, .. }) in
            [("measured", measured), ("estimated", estimated)]
        {
            for (bound, share) in [("low", low), ("point", point), ("high", high)] {
                let labels = SavingBoundLabels { kind, bound };
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
        // Every change under this lock is complete, so a poisoned lock is usable.
        self.savings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rests(&self) -> MutexGuard<'_, Option<Instant>> {
        self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers these metrics.
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
            "Summaries that were asked for, of whom, and what came of it",
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
            "composed_uncompared_calls",
            "Calls of compacted sessions of which nobody knows what they would have cost as the client sent them",
            self.uncompared.clone(),
        );
        registry.register(
            "composed_sessions",
            "Sessions with an answer in mode compact, by group: compacted, or left as they are to compare with",
            self.sessions.clone(),
        );
        registry.register(
            "gateway_saving_share",
            "The share that is saved: measured against sessions left as they are, and estimated, with a 95 % interval",
            self.share.clone(),
        );
    }
}

impl OverflowOutcome {
    /// The final result: the smaller request may have been refused, too.
    pub(crate) fn after(self, ending: ExchangeOutcome) -> Self {
        match ending {
            ExchangeOutcome::Complete | ExchangeOutcome::Cut | ExchangeOutcome::Cancelled => self,
            ExchangeOutcome::Refused | ExchangeOutcome::Unreached => Self::Lost,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Lost => "lost",
        }
    }
}

/// Label for the author of a summary; models may have any name.
fn writer(by: &str) -> &'static str {
    if by == BUILT_IN_NAME { "built_in" } else { "model" }
}

fn trigger_name(trigger: CompactionTrigger) -> &'static str {
    match trigger {
        CompactionTrigger::Threshold => "threshold",
        CompactionTrigger::Overflow => "overflow",
        CompactionTrigger::Manual => "manual",
        CompactionTrigger::Agent => "agent",
        CompactionTrigger::Idle => "idle",
        CompactionTrigger::ModelSwitch => "model_switch",
        CompactionTrigger::Unknown => "unknown",
    }
}

/// Converts money to millionths of a dollar.
fn micro(money: Money) -> u64 {
    money.0.saturating_add(500) / 1_000
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompactCallLabels {
    left: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompactTokenLabels {
    sent: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArmInputLabels {
    arm: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EpochLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompactionLabels {
    by: &'static str,
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SummaryAttemptLabels {
    by: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OverflowLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompactCostLabels {
    model: Arc<str>,
    sent: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UncomparedLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ArmLabels {
    arm: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SavingBoundLabels {
    kind: &'static str,
    bound: &'static str,
}

#[cfg(test)]
mod tests {
    use epitome::core::{ThreadId, id::JobId, profile::Profiles};

    use super::{super::GatewayMetrics, *};

    fn done(left: RewriteStatus, cause: Option<&str>) -> RewriteReport {
        RewriteReport {
            call: None,
            epoch: 1,
            cause: cause.map(str::to_owned),
            before: Tokens(90_000),
            after: Tokens(30_000),
            cache: ClientCache::Held(Tokens(80_000)),
            compaction: None,
            left,
        }
    }

    fn call<'a>(number: u64, done: &'a RewriteReport, usage: Option<&'a Usage>) -> FinishedCompactCall<'a> {
        FinishedCompactCall {
            principal: "anna",
            session: SessionId::derived(&[&number.to_string()]),
            model: Some("claude-opus-4-5"),
            done,
            usage,
            overflow: None,
            recalls: 0,
            hidden: Usage::default(),
        }
    }

    #[test]
    fn what_a_model_asked_back_in_is_paid_for_and_would_not_have_been() {
        let metrics = metrics();
        let usage = Usage { uncached: Tokens(30_000), ..Usage::default() };
        let hidden = Usage { uncached: Tokens(10_000), output: Tokens(1_000), ..Usage::default() };
        let done = done(RewriteStatus::Composed, None);
        metrics.composed(&FinishedCompactCall { recalls: 1, hidden, ..call(1, &done, Some(&usage)) });
        // 150 000 for the answered calls, 75 000 for the refused one; 50 000 + 40 000 for the full requests.
        check(
            &metrics,
            &[
                r#"epitome_composed_input_tokens_total{arm="treated",kind="uncached"} 40000"#,
                r#"epitome_composed_cost_microdollars_total{model="claude-opus-4-5",sent="policy"} 225000"#,
                r#"epitome_composed_cost_microdollars_total{model="claude-opus-4-5",sent="full"} 90000"#,
            ],
        );
    }

    #[track_caller]
    fn check(metrics: &GatewayMetrics, lines: &[&str]) {
        let text = metrics.text();
        for line in lines {
            assert!(text.lines().any(|said| said == *line), "no {line} in\n{text}");
        }
    }

    fn metrics() -> GatewayMetrics {
        GatewayMetrics::new(Arc::new(Profiles::builtin()))
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
        let compaction = Some((CompactionTrigger::Threshold, "some-model".to_owned()));
        let done = RewriteReport { compaction, ..done(RewriteStatus::Composed, Some("over the trigger")) };
        // At 5 dollars a million, a tenth for cached input, and 25 for the answer: 50 000 + 10 000 + 25 000
        // for the request as sent, 50 000 + 40 000 + 25 000 for the full one.
        metrics.composed(&FinishedCompactCall {
            overflow: Some(OverflowOutcome::Recovered),
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
                r#"epitome_composed_cost_microdollars_total{model="claude-opus-4-5",sent="full"} 115000"#,
                r#"epitome_composed_sessions{arm="treated"} 1"#,
                r#"epitome_gateway_saving_share{kind="estimated",bound="point"} 0.26086956521739138"#,
            ],
        );
        let text = metrics.text();
        assert!(!text.contains(r#"bound="low""#) && !text.contains(r#"kind="measured""#), "{text}");
    }

    #[test]
    fn what_got_no_answer_cost_nothing() {
        let metrics = metrics();
        metrics.composed(&FinishedCompactCall {
            overflow: Some(OverflowOutcome::Lost),
            ..call(1, &done(RewriteStatus::Unfit, None), None)
        });
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
    fn an_illegal_request_opens_no_epoch() {
        let metrics = metrics();
        let done = done(RewriteStatus::Illegal, Some("role-known at /messages/1/role"));
        metrics.composed(&call(1, &done, None));
        check(
            &metrics,
            &[r#"epitome_composed_calls_total{left="illegal"} 1"#, "epitome_composed_resets_total 0"],
        );
        assert!(!metrics.text().contains("epitome_composed_epochs_total{"));
    }

    #[test]
    fn what_is_saved_is_told_with_its_interval_once_there_are_sessions_enough() {
        let metrics = metrics();
        let (composed, left) = (done(RewriteStatus::Composed, None), done(RewriteStatus::HeldOut, None));
        for number in 0..60 {
            let (done, input) = if number % 2 == 0 { (&composed, 10_000) } else { (&left, 20_000) };
            let usage =
                Usage { uncached: Tokens(input + input / 100 * (number / 2 % 5)), ..Usage::default() };
            metrics.composed(&call(number, done, Some(&usage)));
        }
        let text = metrics.text();
        for kind in ["estimated", "measured"] {
            let value = |bound: &str| -> f64 {
                let head = format!(r#"epitome_gateway_saving_share{{kind="{kind}",bound="{bound}"}} "#);
                let said = text.lines().find_map(|line| line.strip_prefix(&head)).expect(&head);
                said.parse().expect("a number")
            };
            let (low, point, high) = (value("low"), value("point"), value("high"));
            assert!(low <= point && point <= high, "{kind}: {low} {point} {high}");
            assert!(kind == "estimated" || (low..=high).contains(&0.5), "{low} {high}");
        }
        check(&metrics, &[r#"epitome_composed_sessions{arm="held_out"} 30"#]);
        let page: serde_json::Value = serde_json::from_str(&metrics.savings("anna")).expect("JSON");
        assert_eq!(
            (&page["held_out"]["sessions"], page["sessions"].as_array().map(Vec::len)),
            (&30.into(), Some(60))
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
        let (thread, job) = (ThreadId::derived(&["t"]), JobId::derived(&["j"]));
        let (by, none) = ("small at host".to_owned(), Tokens(0));
        let failed_by = |fault, next| LifecycleEvent::Failed {
            thread,
            job,
            by: by.clone(),
            fault,
            error: String::new(),
            next,
        };
        let failed = |next| failed_by(AttemptFault::NoDraft, next);
        let ended = |by: &str| LifecycleEvent::Ended {
            thread,
            job: None,
            by: by.to_owned(),
            tokens_before: none,
            tokens_after: none,
        };
        metrics.record_lifecycle(&failed(NextStep::Retry));
        check(&metrics, &["epitome_summariser_breaker_open 0"]);
        metrics.record_lifecycle(&failed(NextStep::BuiltIn));
        metrics.record_lifecycle(&ended(BUILT_IN_NAME));
        metrics.record_lifecycle(&failed_by(AttemptFault::Rejected, NextStep::Retry));
        metrics.record_lifecycle(&failed_by(AttemptFault::Unasked, NextStep::Nothing));
        check(
            &metrics,
            &[
                r#"epitome_summariser_attempts_total{by="model",outcome="failed"} 2"#,
                r#"epitome_summariser_attempts_total{by="model",outcome="rejected"} 1"#,
                r#"epitome_summariser_attempts_total{by="built_in",outcome="ready"} 1"#,
                "epitome_summariser_breaker_open 1",
            ],
        );
        metrics.record_lifecycle(&ended(&by));
        check(&metrics, &["epitome_summariser_breaker_open 0"]);
    }

    #[test]
    fn what_nobody_would_have_compacted_is_compared_with_nothing() {
        let metrics = metrics();
        let usage = Usage { uncached: Tokens(1_000), ..Usage::default() };
        for left in
            [RewriteStatus::Managed, RewriteStatus::Remote, RewriteStatus::Aside, RewriteStatus::OwnSummary]
        {
            metrics.composed(&call(1, &done(left, None), Some(&usage)));
        }
        // It was to be compacted, and was not: the saving is zero, and it counts.
        metrics.composed(&call(2, &done(RewriteStatus::Unfit, None), Some(&usage)));
        check(
            &metrics,
            &[
                r#"epitome_composed_calls_total{left="managed"} 1"#,
                r#"epitome_composed_sessions{arm="treated"} 1"#,
                r#"epitome_composed_sessions{arm="held_out"} 0"#,
                r#"epitome_gateway_saving_share{kind="estimated",bound="point"} 0.0"#,
            ],
        );
    }
}
