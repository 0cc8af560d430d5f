//! Metrics of a gateway, for Prometheus.
//!
//! No text from clients becomes a label as it is: routes, formats and endings are ours, and models have a
//! limited set of labels (see [`models`]).

mod baseline_usage;
pub(crate) mod compact_calls;
mod epoch_causes;
mod model_labels;
mod principals;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use epitome::{
    core::{
        Tokens,
        event::{CompactionTrigger, Usage},
        profile::{Money, Profiles},
    },
    observe::PolicyObservation,
    recorder::{ExchangeOutcome, PlacementKind},
    rewrite::RewriteReport,
    session::LifecycleEvent,
    wire::Format,
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::config::GatewayMode;
use compact_calls::{CompactMetrics, FinishedCompactCall};
use model_labels::ModelLabelCache;
use principals::PrincipalMetrics;

/// Metrics of a gateway.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    registry: Registry,
    models: ModelLabelCache,
    requests: Family<RequestLabels, Counter>,
    by_principal: PrincipalMetrics,
    in_flight: Gauge,
    bytes: Family<DirectionLabels, Counter>,
    first_byte: Family<FormatLabels, Histogram, fn() -> Histogram>,
    duration: Family<FormatLabels, Histogram, fn() -> Histogram>,
    placed: Family<PlacementLabels, Counter>,
    unrecorded: Family<ReasonLabels, Counter>,
    uncomposed: Family<ReasonLabels, Counter>,
    tokens: Family<ModelTokenLabels, Counter>,
    cost: Family<ModelCostLabels, Counter<f64, AtomicU64>>,
    observed_tokens: Family<ObservedUsageLabels, Counter>,
    observed_cost: Family<ObservedUsageLabels, Counter<f64, AtomicU64>>,
    observed_calls: Family<ObservedCallLabels, Counter>,
    composed: CompactMetrics,
}

/// A finished request.
#[derive(Clone, Debug)]
pub(crate) struct FinishedRequest<'a> {
    /// Principal, by its name in the configuration; empty without tokens.
    pub(crate) principal: &'a str,
    /// Format of the request; `None` if it was not a model call.
    pub(crate) format: Option<Format>,
    /// Mode of the request.
    pub(crate) mode: GatewayMode,
    /// Status that the client was given, if any.
    pub(crate) status: Option<u16>,
    /// Ending of the request.
    pub(crate) ending: ExchangeOutcome,
    /// Bytes of the request's body.
    pub(crate) bytes_in: u64,
    /// Bytes of the answer's body.
    pub(crate) bytes_out: u64,
    /// Time to the first byte of the answer.
    pub(crate) first_byte: Option<Duration>,
    /// Time until the end.
    pub(crate) took: Duration,
    /// The requested model.
    pub(crate) model: Option<&'a str>,
    /// Usage that the provider reported.
    pub(crate) usage: Option<&'a Usage>,
}

/// Reason why something was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UnrecordedReason {
    /// The request could not be read.
    UnreadableRequest,
    /// The answer could not be read.
    UnreadableAnswer,
    /// The body is larger than the limit, as it came or decompressed.
    TooLarge,
    /// The store failed.
    Store,
}

impl UnrecordedReason {
    /// Name in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UnreadableRequest => "unreadable_request",
            Self::UnreadableAnswer => "unreadable_answer",
            Self::TooLarge => "too_large",
            Self::Store => "store",
        }
    }
}

/// Reason why a request was not composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UncomposedReason {
    /// It could not be recorded.
    Unrecorded(UnrecordedReason),
    /// The store took longer than requests wait for it.
    Late,
}

impl UncomposedReason {
    /// Name in logs and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unrecorded(reason) => reason.name(),
            Self::Late => "late",
        }
    }
}

/// A request in progress: counted as such until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Gauge);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl GatewayMetrics {
    /// Starts all counts at zero, and takes prices from `profiles`.
    pub(crate) fn new(profiles: Arc<Profiles>) -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("epitome"),
            models: ModelLabelCache::new(profiles),
            requests: Family::default(),
            by_principal: PrincipalMetrics::default(),
            in_flight: Gauge::default(),
            bytes: Family::default(),
            first_byte: Family::new_with_constructor(seconds),
            duration: Family::new_with_constructor(seconds),
            placed: Family::default(),
            unrecorded: Family::default(),
            uncomposed: Family::default(),
            tokens: Family::default(),
            cost: Family::default(),
            observed_tokens: Family::default(),
            observed_cost: Family::default(),
            observed_calls: Family::default(),
            composed: CompactMetrics::default(),
        };
        metrics.registered()
    }

    /// Counts a request that has arrived, as in progress until the result is dropped.
    pub(crate) fn arrived(&self) -> InFlightGuard {
        self.in_flight.inc();
        InFlightGuard(self.in_flight.clone())
    }

    /// Counts a finished request.
    pub(crate) fn finished(&self, request: &FinishedRequest<'_>) {
        let format = format_name(request.format);
        let labels = RequestLabels {
            format,
            mode: request.mode.name(),
            status: class(request.status),
            ending: request.ending.name(),
        };
        self.requests.get_or_create(&labels).inc();
        self.bytes.get_or_create(&DirectionLabels { direction: "in" }).inc_by(request.bytes_in);
        self.bytes.get_or_create(&DirectionLabels { direction: "out" }).inc_by(request.bytes_out);
        let kind = FormatLabels { format };
        if let Some(first_byte) = request.first_byte {
            self.first_byte.get_or_create(&kind).observe(first_byte.as_secs_f64());
        }
        self.duration.get_or_create(&kind).observe(request.took.as_secs_f64());
        let cost = request.usage.and_then(|usage| self.used(request.model.unwrap_or_default(), usage));
        self.by_principal.finished(request, cost);
    }

    /// Counts a request that was recorded.
    pub(crate) fn recorded(&self, placed: PlacementKind) {
        self.placed.get_or_create(&PlacementLabels { placed: placed.name() }).inc();
    }

    /// Counts a request or an answer that was not recorded though it should have been.
    pub(crate) fn unrecorded(&self, reason: UnrecordedReason) {
        self.unrecorded.get_or_create(&ReasonLabels { reason: reason.name() }).inc();
    }

    /// Counts a request that was to be composed but was sent as it came.
    pub(crate) fn uncomposed(&self, reason: UncomposedReason) {
        self.uncomposed.get_or_create(&ReasonLabels { reason: reason.name() }).inc();
    }

    /// Counts what a policy would have done with a call.
    pub(crate) fn observed(&self, observed: &PolicyObservation) {
        let outcome = match (&observed.refused, &observed.cause) {
            (Some(_), _) => "refused",
            (None, Some(_)) => "reset",
            (None, None) => "extended",
        };
        self.observed_calls.get_or_create(&ObservedCallLabels { outcome }).inc();
        if observed.refused.is_some() {
            return;
        }
        let (full, policy) = (ObservedUsageLabels { sent: "full" }, ObservedUsageLabels { sent: "policy" });
        self.observed_tokens.get_or_create(&full).inc_by(observed.full.0);
        self.observed_tokens.get_or_create(&policy).inc_by(observed.sent.0);
        if let (Some(cost_full), Some(cost)) = (observed.cost_full, observed.cost) {
            self.observed_cost.get_or_create(&full).inc_by(cost_full.dollars());
            self.observed_cost.get_or_create(&policy).inc_by(cost.dollars());
        }
    }

    /// Counts a finished call in mode `compact`, in addition to [`finished`](Self::finished).
    pub(crate) fn composed(&self, call: &FinishedCompactCall<'_>) {
        self.composed.call(call, &self.models.get(call.model.unwrap_or_default()));
    }

    /// Counts the composing of a call that another call followed before the client had its answer.
    pub(crate) fn record_earlier_call(&self, done: &RewriteReport) {
        self.composed.changed(done);
    }

    /// Counts a compaction that took effect without a call to a model.
    pub(crate) fn compacted(&self, trigger: CompactionTrigger, by: &str) {
        self.composed.compacted(trigger, by);
    }

    /// Counts an event in the life of a summary.
    pub(crate) fn record_lifecycle(&self, happened: &LifecycleEvent) {
        self.composed.record_lifecycle(happened);
    }

    /// Savings that a principal may see, as JSON.
    pub(crate) fn savings(&self, principal: &str) -> String {
        serde_json::to_string(&self.composed.page(principal)).expect("numbers and names are JSON")
    }

    /// All metrics, as Prometheus reads them (`application/openmetrics-text; version=1.0.0; charset=utf-8`).
    pub(crate) fn text(&self) -> String {
        self.composed.settle();
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    /// Counts the usage of a call, and returns its cost if known.
    fn used(&self, model: &str, usage: &Usage) -> Option<Money> {
        let model = self.models.get(model);
        for (kind, tokens) in kinds(usage) {
            let labels = ModelTokenLabels { model: Arc::clone(&model.label), kind };
            self.tokens.get_or_create(&labels).inc_by(tokens.0);
        }
        let money = model.prices.as_ref().and_then(|prices| prices.cost(usage).ok())?;
        self.cost.get_or_create(&ModelCostLabels { model: Arc::clone(&model.label) }).inc_by(money.dollars());
        Some(money)
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register(
            "requests",
            "Requests that are over, by format, mode, class of status and ending",
            self.requests.clone(),
        );
        self.by_principal.register(registry);
        registry.register("requests_in_flight", "Requests that are being worked on", self.in_flight.clone());
        registry.register_with_unit(
            "relayed",
            "Bytes of bodies, from clients (in) and back to them (out)",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register_with_unit(
            "first_byte",
            "From a request's arrival to the first byte of its answer",
            Unit::Seconds,
            self.first_byte.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "From a request's arrival to the end of its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
        registry.register("recorded", "Requests that were recorded, by their place", self.placed.clone());
        registry.register(
            "unrecorded",
            "Requests and answers that could not be recorded, by reason",
            self.unrecorded.clone(),
        );
        registry.register(
            "uncomposed",
            "Requests in mode compact that went on as they came because the store failed or was late, by reason",
            self.uncomposed.clone(),
        );
        registry.register("tokens", "Tokens that providers reported, by model and kind", self.tokens.clone());
        registry.register(
            "cost_dollars",
            "What the reported tokens cost, where the model's prices are known",
            self.cost.clone(),
        );
        registry.register(
            "observed_calls",
            "Calls by what the observed policy would have done: extended, reset or refused the request",
            self.observed_calls.clone(),
        );
        registry.register(
            "observed_tokens",
            "Tokens of requests, as sent (full) and as the observed policy would have sent them",
            self.observed_tokens.clone(),
        );
        registry.register(
            "observed_cost_dollars",
            "What those tokens cost: full less policy is what it would have saved",
            self.observed_cost.clone(),
        );
        self.composed.register(registry);
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    format: &'static str,
    mode: &'static str,
    status: &'static str,
    ending: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FormatLabels {
    format: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlacementLabels {
    placed: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelTokenLabels {
    model: Arc<str>,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelCostLabels {
    model: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObservedUsageLabels {
    sent: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObservedCallLabels {
    outcome: &'static str,
}

/// Tokens by kind, without kinds that are zero.
fn kinds(usage: &Usage) -> impl Iterator<Item = (&'static str, Tokens)> {
    let kinds = [
        ("input", usage.uncached),
        ("cached", usage.cache_read),
        ("written", usage.cache_write),
        ("output", usage.output),
    ];
    kinds.into_iter().filter(|(_, tokens)| *tokens > Tokens(0))
}

/// Buckets for times. A model may think for minutes: the last buckets are for this.
fn seconds() -> Histogram {
    Histogram::new([0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0])
}

fn format_name(format: Option<Format>) -> &'static str {
    format.map_or("none", Format::name)
}

fn class(status: Option<u16>) -> &'static str {
    match status.map(|status| status / 100) {
        Some(1) => "1xx",
        Some(2) => "2xx",
        Some(3) => "3xx",
        Some(4) => "4xx",
        Some(5) => "5xx",
        Some(_) => "other",
        None => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> GatewayMetrics {
        GatewayMetrics::new(Arc::new(Profiles::builtin()))
    }

    fn finished(usage: Option<&Usage>) -> FinishedRequest<'_> {
        FinishedRequest {
            principal: "anna",
            format: Some(Format::Anthropic),
            mode: GatewayMode::Record,
            status: Some(200),
            ending: ExchangeOutcome::Complete,
            bytes_in: 100,
            bytes_out: 2_000,
            first_byte: Some(Duration::from_millis(30)),
            took: Duration::from_secs(2),
            model: Some("claude-opus-4-5"),
            usage,
        }
    }

    #[track_caller]
    fn check(metrics: &GatewayMetrics, lines: &[&str]) {
        let text = metrics.text();
        for line in lines {
            assert!(text.lines().any(|said| said == *line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn a_request_that_is_over_is_counted_with_its_bytes_times_and_tokens() {
        let metrics = metrics();
        let usage = Usage {
            uncached: Tokens(1_000),
            cache_read: Tokens(2_000),
            output: Tokens(100),
            ..Usage::default()
        };
        metrics.finished(&finished(Some(&usage)));
        check(
            &metrics,
            &[
                r#"epitome_requests_total{format="anthropic",mode="record",status="2xx",ending="complete"} 1"#,
                r#"epitome_relayed_bytes_total{direction="in"} 100"#,
                r#"epitome_relayed_bytes_total{direction="out"} 2000"#,
                r#"epitome_first_byte_seconds_bucket{le="0.05",format="anthropic"} 1"#,
                r#"epitome_request_duration_seconds_sum{format="anthropic"} 2.0"#,
                r#"epitome_tokens_total{model="claude-opus-4-5",kind="cached"} 2000"#,
                r#"epitome_tokens_total{model="claude-opus-4-5",kind="output"} 100"#,
                r#"epitome_cost_dollars_total{model="claude-opus-4-5"} 0.0085"#,
                r#"epitome_principal_requests_total{principal="anna",status="2xx"} 1"#,
                r#"epitome_principal_tokens_total{principal="anna",kind="cached"} 2000"#,
                r#"epitome_principal_cost_dollars_total{principal="anna"} 0.0085"#,
            ],
        );
    }

    #[test]
    fn a_request_is_in_flight_until_it_is_let_go() {
        let metrics = metrics();
        let (first, second) = (metrics.arrived(), metrics.arrived());
        check(&metrics, &["epitome_requests_in_flight 2"]);
        drop((first, second));
        check(&metrics, &["epitome_requests_in_flight 0"]);
    }

    #[test]
    fn what_was_recorded_and_what_was_not_are_counted_by_kind() {
        let metrics = metrics();
        for placed in [
            PlacementKind::Began,
            PlacementKind::Continued,
            PlacementKind::Continued,
            PlacementKind::Forked,
            PlacementKind::Retried,
        ] {
            metrics.recorded(placed);
        }
        metrics.unrecorded(UnrecordedReason::Store);
        check(
            &metrics,
            &[
                r#"epitome_recorded_total{placed="began"} 1"#,
                r#"epitome_recorded_total{placed="continued"} 2"#,
                r#"epitome_recorded_total{placed="forked"} 1"#,
                r#"epitome_recorded_total{placed="retried"} 1"#,
                r#"epitome_unrecorded_total{reason="store"} 1"#,
            ],
        );
    }

    #[test]
    fn an_observation_is_counted_before_and_after() {
        let metrics = metrics();
        let saved = PolicyObservation {
            full: Tokens(90_000),
            sent: Tokens(40_000),
            cost_full: Some(Money(2_000_000_000)),
            cost: Some(Money(500_000_000)),
            cause: Some("the trigger was reached".to_owned()),
            epoch: 1,
            refused: None,
        };
        metrics.observed(&saved);
        metrics.observed(&PolicyObservation { cause: None, ..saved.clone() });
        metrics.observed(&PolicyObservation { refused: Some("too long".to_owned()), ..saved });
        check(
            &metrics,
            &[
                r#"epitome_observed_tokens_total{sent="full"} 180000"#,
                r#"epitome_observed_tokens_total{sent="policy"} 80000"#,
                r#"epitome_observed_cost_dollars_total{sent="full"} 4.0"#,
                r#"epitome_observed_cost_dollars_total{sent="policy"} 1.0"#,
                r#"epitome_observed_calls_total{outcome="reset"} 1"#,
                r#"epitome_observed_calls_total{outcome="extended"} 1"#,
                r#"epitome_observed_calls_total{outcome="refused"} 1"#,
            ],
        );
    }
}
