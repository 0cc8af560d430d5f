//! The gateway: stands between an agent and its provider, relays every byte, and records what passes.

mod admission;
mod answer_copy;
pub(crate) mod banner;
mod compact_options;
mod compact_request;
mod completed_exchange;
mod connection_threads;
mod decompress;
mod delivery;
mod errors;
mod framing;
mod headers;
mod health;
mod history_tools;
mod io_timeout;
mod lifecycle_metrics;
pub(crate) mod metrics;
mod outcome_header;
mod outgoing_request;
mod peeked_response;
mod proxy;
mod recall_body;
mod recording;
mod reopening_store;
mod request_body;
mod request_scope;
mod response_body;
mod route;
mod savings;
pub(crate) mod sealed_summary;
mod server;
mod signals;
pub(crate) mod summariser;
pub(crate) mod telemetry;
mod tls;
mod token_count;
mod treatment;
mod upstream;

use std::{net::SocketAddr, ops::Deref, sync::Arc};

use anyhow::{Context, bail};
use epitome::{
    core::{
        Tokens,
        inject::{Hook, Hooks},
        policy::Policy,
    },
    observe::PolicyObserver,
    recorder::RecordError,
    rewrite::{LifecycleHub, RewriteSettings, SessionFunctions},
    store::Store,
};
use tokio::{net::TcpListener, runtime::Handle, sync::Semaphore};

use self::{
    admission::ClientAdmission,
    connection_threads::ConnectionThreads,
    health::GatewayHealth,
    metrics::{GatewayMetrics, UncomposedReason, UnrecordedReason},
    reopening_store::ReopeningStore,
    sealed_summary::SummarySeal,
    signals::ProcessSignals,
    summariser::SessionSummarisers,
    treatment::{PolicyInUse, TreatmentRules},
    upstream::UpstreamPool,
};
use crate::config::{GatewayConfig, GatewayLimits, StoreFailureAction};

/// Serves until a signal says to stop. `ready` is called with the address once the gateway listens. Without a
/// store nothing is recorded. `reload` reads the configuration again, whenever a signal asks for that.
pub(crate) async fn serve(
    config: GatewayConfig,
    (store, seal): (Option<Arc<dyn Store>>, Option<SummarySeal>),
    ready: impl FnOnce(SocketAddr),
    reload: impl Fn() -> anyhow::Result<GatewayConfig>,
) -> anyhow::Result<()> {
    let signals = ProcessSignals::listen()?;
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("listening on {}", config.listen))?;
    let address = listener.local_addr().context("finding out where the gateway listens")?;
    let gateway = Arc::new(Gateway::new(config, address, store, seal)?);
    let threads = ConnectionThreads::start()?;
    lifecycle_metrics::begin(&gateway);
    ready(address);
    server::run(gateway, listener, threads, signals, reload).await;
    Ok(())
}

/// Refuses to listen to other machines without tokens.
fn check_exposure(config: &GatewayConfig, listening: SocketAddr) -> anyhow::Result<()> {
    if config.tokens.is_empty() && !listening.ip().to_canonical().is_loopback() {
        bail!(
            "without a token the gateway listens to this machine only, and {listening} is open to others: add a token, \
             or listen on 127.0.0.1"
        );
    }
    Ok(())
}

/// State that all requests share under one configuration.
#[derive(Debug)]
struct Gateway {
    admission: ClientAdmission,
    treatments: TreatmentRules,
    upstreams: Arc<UpstreamPool>,
    limits: GatewayLimits,
    unrecorded: StoreFailureAction,
    /// Address that is configured to listen on.
    listen: SocketAddr,
    /// Sources of the summaries of composed requests.
    summarisers: SessionSummarisers,
    lasting: LongLivedState,
}

/// State that is kept when the configuration is read again.
#[derive(Clone, Debug)]
struct LongLivedState {
    /// Address that the gateway listens on.
    listening: SocketAddr,
    shelf: Option<Arc<ReopeningStore>>,
    /// Key of the summaries that clients keep; `None` if nothing is recorded.
    seal: Option<Arc<SummarySeal>>,
    metrics: Arc<GatewayMetrics>,
    health: Arc<GatewayHealth>,
    /// Receiver of the outcomes of summaries.
    heard: LifecycleHub,
    /// Permits of requests in progress.
    places: Arc<Semaphore>,
    /// Permits of requests being recorded: more, because records may be made after the answer has left.
    records: Arc<Semaphore>,
    /// Runtime on which records are made.
    runtime: Handle,
}

impl Deref for Gateway {
    type Target = LongLivedState;

    fn deref(&self) -> &LongLivedState {
        &self.lasting
    }
}

impl Gateway {
    fn new(
        config: GatewayConfig,
        listening: SocketAddr,
        store: Option<Arc<dyn Store>>,
        seal: Option<SummarySeal>,
    ) -> anyhow::Result<Self> {
        let shelf = store.map(|store| Arc::new(ReopeningStore::new(store)));
        let health = if config.records() {
            GatewayHealth::recording(shelf.clone())
        } else {
            GatewayHealth::relaying(shelf.clone())
        };
        let profiles = Arc::clone(&config.profiles);
        let places = config.limits.requests.clamp(1, Semaphore::MAX_PERMITS / 2);
        let lasting = LongLivedState {
            listening,
            shelf,
            seal: seal.map(Arc::new),
            metrics: Arc::new(GatewayMetrics::new(profiles)),
            health: Arc::new(health),
            heard: LifecycleHub::default(),
            places: Arc::new(Semaphore::new(places)),
            records: Arc::new(Semaphore::new(2 * places)),
            runtime: Handle::current(),
        };
        Self::with(config, lasting)
    }

    fn with(config: GatewayConfig, lasting: LongLivedState) -> anyhow::Result<Self> {
        check_exposure(&config, lasting.listening)?;
        let GatewayConfig {
            listen,
            mode,
            routes,
            upstreams,
            tokens,
            access,
            limits,
            unrecorded,
            policy,
            profiles,
            compact,
        } = config;
        let (window, summary_time) = (compact.window.map(Tokens), compact.summary_time());
        let hooks = compact.hooks.into_iter().map(|hook| Box::new(hook) as Box<dyn Hook>);
        let careful =
            compact.careful.map(|careful| summariser::remote(careful, summary_time, window, &profiles));
        let functions = Arc::new(SessionFunctions {
            careful: careful.transpose()?.flatten(),
            instructions: compact.instructions,
            idle: compact.idle,
            memory: compact.memory_files,
            hooks: Arc::new(Hooks::new(hooks.collect())?),
            overflow_check: compact.overflow_check,
        });
        let in_use = |policy: &Policy| {
            let composing = RewriteSettings {
                policy: policy.clone().with_tool_limits(
                    compact.tool_limits.iter().map(|(tool, limit)| (&**tool, Tokens(*limit))),
                ),
                profiles: Arc::clone(&profiles),
                window,
                holdout: compact.holdout,
                command: compact.command.clone(),
                recall: compact.recall,
                own_items: compact.own_items,
                with_answers: unrecorded == StoreFailureAction::Forward,
                heard: lasting.heard.clone(),
                functions: Arc::clone(&functions),
            };
            let observer = PolicyObserver::new(policy.clone(), Arc::clone(&profiles));
            PolicyInUse { named: policy.clone(), composing, observer }
        };
        let named = tokens.iter().map(|token| &token.rules).chain(routes.values());
        let others = named.filter_map(|rules| rules.policy.as_deref());
        let treatments =
            TreatmentRules::new(mode, in_use(&policy), others.map(in_use).collect(), routes.clone());
        Ok(Self {
            admission: ClientAdmission::new(tokens, access, lasting.listening),
            treatments,
            upstreams: Arc::new(UpstreamPool::new(upstreams, &limits)?),
            limits,
            unrecorded,
            listen,
            summarisers: SessionSummarisers::new(compact.summariser, summary_time, window, &profiles)?,
            lasting,
        })
    }

    /// Makes the same gateway under another configuration. Also returns the changed settings that take a
    /// restart to apply.
    fn reloaded(&self, mut config: GatewayConfig) -> anyhow::Result<(Self, Vec<&'static str>)> {
        if config.records() && self.shelf.is_none() {
            bail!(
                "the database is only opened when the gateway starts, with a mode that records: restart it"
            );
        }
        let mut unchanged = Vec::new();
        let mut keep = |name, differs: bool| unchanged.extend(differs.then_some(name));
        keep("listen", config.listen != self.listen);
        // These settings decide how the store was opened and how many permits exist, so they stay as they
        // are.
        keep("on_store_failure", config.unrecorded != self.unrecorded);
        keep("limits.requests", config.limits.requests != self.limits.requests);
        config.listen = self.listen;
        config.unrecorded = self.unrecorded;
        config.limits.requests = self.limits.requests;
        Ok((Self::with(config, self.lasting.clone())?, unchanged))
    }

    /// Notes that something was not recorded though it should have been.
    fn report_unrecorded(&self, reason: UnrecordedReason, error: Option<&RecordError>) -> UnrecordedReason {
        self.metrics.unrecorded(reason);
        telemetry::unrecorded(reason, error);
        reason
    }

    /// Notes that a principal's request is passed on unread: its effect on the provider's cache is unknown to
    /// the savings.
    fn note_unread_request(&self, principal: &str) {
        if let Some(shelf) = &self.shelf {
            shelf.current().note_unread(principal, recording::now());
        }
    }

    /// Counts a request that was to be composed but was sent as it came.
    fn uncomposed(&self, reason: UncomposedReason) {
        self.metrics.uncomposed(reason);
        telemetry::uncomposed(reason);
    }
}
