//! The gateway: stands between an agent and its provider, relays every byte, and records what passes.

mod admission;
mod answers;
mod begun;
mod composing;
pub(crate) mod config;
mod copy;
mod expand;
mod fate;
mod framing;
mod headers;
mod health;
mod intake;
mod listening;
pub(crate) mod metrics;
mod passage;
mod passing;
mod patience;
mod recalling;
mod recording;
mod relay;
mod route;
mod savings;
pub(crate) mod screen;
mod server;
mod shelf;
mod shutdown;
mod summariser;
pub(crate) mod telemetry;
mod tls;
mod treatment;
mod unheard;
mod upstream;
mod waiting;
mod wishes;

use std::{net::SocketAddr, ops::Deref, sync::Arc};

use anyhow::{Context, bail};
use epitome::{
    compose::{Composing, Heard},
    core::{Tokens, policy::Policy, profile::Profiles},
    observe::Observer,
    recorder::RecordError,
    store::Sqlite,
};
use tokio::{net::TcpListener, runtime::Handle, sync::Semaphore};

use self::{
    admission::Admission,
    config::{Config, Limits, Unrecorded},
    health::Health,
    metrics::{Metrics, Reason, Uncomposed},
    shelf::Shelf,
    shutdown::Signals,
    summariser::Summarisers,
    treatment::{PolicyInUse, Treatments},
    upstream::Upstreams,
};

/// Serves until a signal says to stop. `ready` is called with the address once the gateway listens. Without a
/// store nothing is recorded. `reload` reads the configuration again, whenever a signal asks for that.
pub(crate) async fn serve(
    config: Config,
    store: Option<Arc<Sqlite>>,
    ready: impl FnOnce(SocketAddr),
    reload: impl Fn() -> anyhow::Result<Config>,
) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("listening on {}", config.listen))?;
    let address = listener.local_addr().context("finding out where the gateway listens")?;
    let gateway = Arc::new(Gateway::new(config, address, store)?);
    listening::begin(&gateway);
    ready(address);
    server::run(gateway, listener, signals, reload).await;
    Ok(())
}

/// Refuses to listen to other machines without tokens.
fn check_exposure(config: &Config, listening: SocketAddr) -> anyhow::Result<()> {
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
    admission: Admission,
    treatments: Treatments,
    upstreams: Arc<Upstreams>,
    limits: Limits,
    unrecorded: Unrecorded,
    /// Address that is configured to listen on.
    listen: SocketAddr,
    /// Sources of the summaries of composed requests.
    summarisers: Summarisers,
    lasting: Lasting,
}

/// State that is kept when the configuration is read again.
#[derive(Clone, Debug)]
struct Lasting {
    /// Address that the gateway listens on.
    listening: SocketAddr,
    shelf: Option<Arc<Shelf>>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    profiles: Arc<Profiles>,
    /// Receiver of the outcomes of summaries.
    heard: Heard,
    /// Permits of requests in progress.
    places: Arc<Semaphore>,
    /// Permits of requests being recorded: more, because records may be made after the answer has left.
    records: Arc<Semaphore>,
    /// Runtime on which records are made.
    runtime: Handle,
}

impl Deref for Gateway {
    type Target = Lasting;

    fn deref(&self) -> &Lasting {
        &self.lasting
    }
}

impl Gateway {
    fn new(config: Config, listening: SocketAddr, store: Option<Arc<Sqlite>>) -> anyhow::Result<Self> {
        let shelf = store.map(|store| Arc::new(Shelf::new(store)));
        let health =
            if config.records() { Health::recording(shelf.clone()) } else { Health::relaying(shelf.clone()) };
        let profiles = Arc::new(Profiles::builtin());
        let places = config.limits.requests.clamp(1, Semaphore::MAX_PERMITS / 2);
        let lasting = Lasting {
            listening,
            shelf,
            metrics: Arc::new(Metrics::new(Arc::clone(&profiles))),
            health: Arc::new(health),
            profiles,
            heard: Heard::default(),
            places: Arc::new(Semaphore::new(places)),
            records: Arc::new(Semaphore::new(2 * places)),
            runtime: Handle::current(),
        };
        Self::with(config, lasting)
    }

    fn with(config: Config, lasting: Lasting) -> anyhow::Result<Self> {
        check_exposure(&config, lasting.listening)?;
        let Config { listen, mode, routes, upstreams, tokens, access, limits, unrecorded, policy, compact } =
            config;
        let (window, summary_time) = (compact.window.map(Tokens), compact.summary_time());
        let in_use = |policy: &Policy| {
            let profiles = &lasting.profiles;
            let composing = Composing {
                policy: policy.clone(),
                profiles: Arc::clone(profiles),
                window,
                holdout: compact.holdout,
                command: compact.command.clone(),
                recall: compact.recall,
                with_answers: unrecorded == Unrecorded::Forward,
                heard: lasting.heard.clone(),
            };
            PolicyInUse { composing, observer: Observer::new(policy.clone(), Arc::clone(profiles)) }
        };
        let named = tokens.iter().map(|token| &token.rules).chain(routes.values());
        let others = named.filter_map(|rules| rules.policy.as_deref());
        let treatments = Treatments::new(mode, in_use(&policy), others.map(in_use).collect(), routes.clone());
        Ok(Self {
            admission: Admission::new(tokens, access, lasting.listening),
            treatments,
            upstreams: Arc::new(Upstreams::new(upstreams, &limits)?),
            limits,
            unrecorded,
            listen,
            summarisers: Summarisers::new(compact.summariser, summary_time, window, &lasting.profiles)?,
            lasting,
        })
    }

    /// Makes the same gateway under another configuration. Also returns the changed settings that take a
    /// restart to apply.
    fn reloaded(&self, mut config: Config) -> anyhow::Result<(Self, Vec<&'static str>)> {
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
    fn missed(&self, reason: Reason, error: Option<&RecordError>) -> Reason {
        self.metrics.unrecorded(reason);
        telemetry::unrecorded(reason, error);
        reason
    }

    /// Notes that a principal's request is passed on unread: its effect on the provider's cache is unknown to
    /// the savings.
    fn passes_unread(&self, principal: &str) {
        if let Some(shelf) = &self.shelf {
            shelf.current().passed_unread(principal, recording::now());
        }
    }

    /// Counts a request that was to be composed but was sent as it came.
    fn uncomposed(&self, reason: Uncomposed) {
        self.metrics.uncomposed(reason);
        telemetry::uncomposed(reason);
    }
}
