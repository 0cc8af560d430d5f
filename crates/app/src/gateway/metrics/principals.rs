//! Metrics by principal. The names come from the configuration, so there are no more of them than tokens.

use std::sync::{Arc, atomic::AtomicU64};

use epitome::core::profile::Money;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::{FinishedRequest, class, kinds};

/// Requests, tokens and cost by principal.
#[derive(Debug, Default)]
pub(super) struct PrincipalMetrics {
    requests: Family<PrincipalStatusLabels, Counter>,
    tokens: Family<PrincipalTokenLabels, Counter>,
    cost: Family<PrincipalLabels, Counter<f64, AtomicU64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PrincipalStatusLabels {
    principal: Arc<str>,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PrincipalTokenLabels {
    principal: Arc<str>,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PrincipalLabels {
    principal: Arc<str>,
}

impl PrincipalMetrics {
    /// Counts a finished request, and its cost if known. Without tokens there are no principals.
    pub(super) fn finished(&self, request: &FinishedRequest<'_>, cost: Option<Money>) {
        if request.principal.is_empty() {
            return;
        }
        let principal: Arc<str> = request.principal.into();
        let labels =
            PrincipalStatusLabels { principal: Arc::clone(&principal), status: class(request.status) };
        self.requests.get_or_create(&labels).inc();
        for (kind, tokens) in request.usage.into_iter().flat_map(kinds) {
            let labels = PrincipalTokenLabels { principal: Arc::clone(&principal), kind };
            self.tokens.get_or_create(&labels).inc_by(tokens.0);
        }
        if let Some(cost) = cost {
            self.cost.get_or_create(&PrincipalLabels { principal }).inc_by(cost.dollars());
        }
    }

    /// Registers these metrics.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "principal_requests",
            "Requests that are over, by principal and class of status",
            self.requests.clone(),
        );
        registry.register(
            "principal_tokens",
            "Tokens that providers reported, by principal and kind",
            self.tokens.clone(),
        );
        registry.register(
            "principal_cost_dollars",
            "What the reported tokens cost, by principal, where the model's prices are known",
            self.cost.clone(),
        );
    }
}
