//! Treatment of a request: its mode, its window and its policy, from its token, its route or the settings for
//! all requests.

use std::{collections::BTreeMap, sync::Arc};

use epitome::{
    compose::Composing,
    core::{Tokens, policy::Policy},
    observe::Observer,
    wire::Format,
};
use http::{HeaderValue, request::Parts};

use super::{
    admission::Admitted,
    answers::Trouble,
    config::{Mode, Rules},
    route,
};

/// Treatment of one request.
#[derive(Clone, Debug)]
pub(super) struct Treatment {
    /// Mode of the request.
    pub(super) mode: Mode,
    /// Configured window of the request's model, in tokens, if there is one.
    pub(super) window: Option<Tokens>,
    /// Policy of the request.
    pub(super) policy: Arc<PolicyInUse>,
}

/// A policy with the state that applying it needs.
#[derive(Debug)]
pub(super) struct PolicyInUse {
    /// Composer of requests under it.
    pub(super) composing: Composing,
    /// Observer that computes what it would have sent.
    pub(super) observer: Observer,
}

/// Rules by which requests are treated.
#[derive(Debug)]
pub(super) struct Treatments {
    mode: Mode,
    routes: BTreeMap<String, Rules>,
    usual: Arc<PolicyInUse>,
    /// Policies that tokens and routes name.
    others: Vec<Arc<PolicyInUse>>,
}

impl Treatments {
    /// Follows the configuration: `mode` and `usual` are for all requests, `others` are the policies that
    /// tokens and routes name.
    pub(super) fn new(
        mode: Mode,
        usual: PolicyInUse,
        others: Vec<PolicyInUse>,
        routes: BTreeMap<String, Rules>,
    ) -> Self {
        Self { mode, routes, usual: Arc::new(usual), others: others.into_iter().map(Arc::new).collect() }
    }

    /// Mode of requests without a mode of their own.
    pub(super) fn usual_mode(&self) -> Mode {
        self.mode
    }

    /// Decides how a request is treated: as its token, its route or the configuration says, or more strictly
    /// if it asks for that itself. It may ask for less only if the operator allows that. Only calls are
    /// recorded.
    pub(super) fn of(
        &self,
        call: Option<Format>,
        head: &Parts,
        admitted: &Admitted,
    ) -> Result<Treatment, Trouble> {
        let asked = asked_mode(head)?;
        if call.is_none() {
            return Ok(Treatment { mode: Mode::Off, window: None, policy: Arc::clone(&self.usual) });
        }
        let (token, route) = (&*admitted.rules, self.routes.get(&*route::own(head.uri.path())));
        let set = token.mode.or(route.and_then(|route| route.mode)).unwrap_or(self.mode);
        let mode = match asked {
            Some(asked) if asked < set && !admitted.may_lower() => {
                return Err(Trouble::lowered_mode(set, asked));
            }
            _ => asked.unwrap_or(set),
        };
        let window = token.window.or(route.and_then(|route| route.window)).map(Tokens);
        let policy = token.policy.as_ref().or(route.and_then(|route| route.policy.as_ref()));
        Ok(Treatment {
            mode,
            window: window.or(self.usual.composing.window),
            policy: policy.map_or_else(|| Arc::clone(&self.usual), |policy| self.in_use(policy)),
        })
    }

    fn in_use(&self, policy: &Policy) -> Arc<PolicyInUse> {
        let found = self.others.iter().find(|other| other.composing.policy == *policy);
        Arc::clone(found.unwrap_or(&self.usual))
    }
}

/// Mode that a request asks for itself.
fn asked_mode(head: &Parts) -> Result<Option<Mode>, Trouble> {
    match head.headers.get("x-epitome-mode").map(HeaderValue::as_bytes) {
        None => Ok(None),
        Some(b"off") => Ok(Some(Mode::Off)),
        Some(b"record") => Ok(Some(Mode::Record)),
        Some(b"observe") => Ok(Some(Mode::Observe)),
        Some(b"compact") => Ok(Some(Mode::Compact)),
        Some(_) => Err(Trouble::unknown_mode()),
    }
}
