//! Treatment of a request: its mode, its window and its policy, from its token, its route or the settings for
//! all requests.

use std::{collections::BTreeMap, sync::Arc};

use epitome::{
    core::{Tokens, policy::Policy},
    observe::PolicyObserver,
    rewrite::RewriteSettings,
    wire::Format,
};
use http::{HeaderValue, request::Parts};

use super::{admission::AdmittedClient, errors::GatewayError, route};
use crate::config::{GatewayMode, RequestRules};

/// Treatment of one request.
#[derive(Clone, Debug)]
pub(super) struct RequestTreatment {
    /// Mode of the request.
    pub(super) mode: GatewayMode,
    /// Configured window of the request's model, in tokens, if there is one.
    pub(super) window: Option<Tokens>,
    /// Policy of the request.
    pub(super) policy: Arc<PolicyInUse>,
}

/// A policy with the state that applying it needs.
#[derive(Debug)]
pub(super) struct PolicyInUse {
    /// The policy as tokens and routes name it.
    pub(super) named: Policy,
    /// Composer of requests under it.
    pub(super) composing: RewriteSettings,
    /// Observer that computes what it would have sent.
    pub(super) observer: PolicyObserver,
}

/// Rules by which requests are treated.
#[derive(Debug)]
pub(super) struct TreatmentRules {
    mode: GatewayMode,
    routes: BTreeMap<String, RequestRules>,
    usual: Arc<PolicyInUse>,
    /// Policies that tokens and routes name.
    others: Vec<Arc<PolicyInUse>>,
}

impl TreatmentRules {
    /// Follows the configuration: `mode` and `usual` are for all requests, `others` are the policies that
    /// tokens and routes name.
    pub(super) fn new(
        mode: GatewayMode,
        usual: PolicyInUse,
        others: Vec<PolicyInUse>,
        routes: BTreeMap<String, RequestRules>,
    ) -> Self {
        Self { mode, routes, usual: Arc::new(usual), others: others.into_iter().map(Arc::new).collect() }
    }

    /// Mode of requests without a mode of their own.
    pub(super) fn usual_mode(&self) -> GatewayMode {
        self.mode
    }

    /// Decides how a request is treated: as its token, its route or the configuration says, or more strictly
    /// if it asks for that itself. It may ask for less only if the operator allows that. Only calls are
    /// recorded.
    pub(super) fn of(
        &self,
        call: Option<Format>,
        head: &Parts,
        admitted: &AdmittedClient,
    ) -> Result<RequestTreatment, GatewayError> {
        let asked = asked_mode(head)?;
        if call.is_none() {
            return Ok(RequestTreatment {
                mode: GatewayMode::Off,
                window: None,
                policy: Arc::clone(&self.usual),
            });
        }
        let (token, route) = (&*admitted.rules, self.routes.get(&*route::own_route(head.uri.path())));
        let set = token.mode.or(route.and_then(|route| route.mode)).unwrap_or(self.mode);
        let mode = match asked {
            Some(asked) if asked < set && !admitted.may_lower() => {
                return Err(GatewayError::lowered_mode(set, asked));
            }
            _ => asked.unwrap_or(set),
        };
        let window = token.window.or(route.and_then(|route| route.window)).map(Tokens);
        let policy = token.policy.as_ref().or(route.and_then(|route| route.policy.as_ref()));
        Ok(RequestTreatment {
            mode,
            window: window.or(self.usual.composing.window),
            policy: policy.map_or_else(|| Arc::clone(&self.usual), |policy| self.in_use(policy)),
        })
    }

    fn in_use(&self, policy: &Policy) -> Arc<PolicyInUse> {
        let found = self.others.iter().find(|other| other.named == *policy);
        Arc::clone(found.unwrap_or(&self.usual))
    }
}

/// Mode that a request asks for itself.
fn asked_mode(head: &Parts) -> Result<Option<GatewayMode>, GatewayError> {
    match head.headers.get("x-epitome-mode").map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"off") => Ok(Some(GatewayMode::Off)),
        Some(b"record") => Ok(Some(GatewayMode::Record)),
        Some(b"observe") => Ok(Some(GatewayMode::Observe)),
        Some(b"compact") => Ok(Some(GatewayMode::Compact)),
        Some(_) => Err(GatewayError::unknown_mode()),
    }
}
