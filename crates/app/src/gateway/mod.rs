//! The gateway: stands between an agent and its provider, relays every byte, and records what passes.

mod admission;
mod answers;
mod begun;
mod composing;
pub(crate) mod config;
mod copy;
mod expand;
mod fate;
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
mod unheard;
mod upstream;
mod wishes;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use anyhow::{Context, bail};
use epitome::{
    compose::{Composing, Heard},
    core::{Tokens, profile::Profiles},
    observe::Observer,
    recorder::RecordError,
    store::Sqlite,
    wire::Format,
};
use http::{HeaderValue, request::Parts};
use tokio::{net::TcpListener, runtime::Handle, sync::Semaphore};

use self::{
    admission::{Admission, Admitted},
    answers::Trouble,
    config::{Config, Limits, Mode, Unrecorded},
    health::Health,
    metrics::{Metrics, Reason, Uncomposed},
    shelf::Shelf,
    shutdown::Signals,
    summariser::Summarisers,
    upstream::Upstreams,
};

/// Serves until it is told to stop. `ready` hears where it listens once it does. Without a store nothing is recorded.
pub(crate) async fn serve(
    config: Config,
    store: Option<Arc<Sqlite>>,
    ready: impl FnOnce(SocketAddr),
) -> anyhow::Result<()> {
    if config.tokens.is_empty() && !config.listen.ip().is_loopback() {
        bail!(
            "without a token the gateway listens to this machine only, and {} is open to others: add a token, or \
             listen on 127.0.0.1",
            config.listen
        );
    }
    let signals = Signals::listen()?;
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("listening on {}", config.listen))?;
    let address = listener.local_addr().context("finding out where the gateway listens")?;
    let gateway = Arc::new(Gateway::new(config, address, store)?);
    listening::begin(&gateway);
    ready(address);
    server::run(gateway, listener, signals).await;
    Ok(())
}

/// What all requests share.
#[derive(Debug)]
struct Gateway {
    admission: Admission,
    mode: Mode,
    routes: BTreeMap<String, Mode>,
    upstreams: Arc<Upstreams>,
    limits: Limits,
    unrecorded: Unrecorded,
    shelf: Option<Arc<Shelf>>,
    /// How requests are composed in mode `compact`.
    composing: Composing,
    /// Who writes the summaries for that.
    summarisers: Summarisers,
    observer: Observer,
    metrics: Metrics,
    health: Health,
    /// A place for each request that is on its way.
    places: Arc<Semaphore>,
    /// A place for each that is being recorded: more, because records may be made after the answer has left.
    records: Arc<Semaphore>,
    /// Where records are made.
    runtime: Handle,
}

impl Gateway {
    fn new(config: Config, listening: SocketAddr, store: Option<Arc<Sqlite>>) -> anyhow::Result<Self> {
        let shelf = store.map(|store| Arc::new(Shelf::new(store)));
        let health =
            if config.records() { Health::recording(shelf.clone()) } else { Health::relaying(shelf.clone()) };
        let Config { mode, routes, upstreams, tokens, limits, unrecorded, policy, compact, listen: _ } =
            config;
        let profiles = Arc::new(Profiles::builtin());
        let summary_time = compact.summary_time();
        let composing = Composing {
            policy: policy.clone(),
            profiles: Arc::clone(&profiles),
            window: compact.window.map(Tokens),
            holdout: compact.holdout,
            command: compact.command,
            recall: compact.recall,
            with_answers: unrecorded == Unrecorded::Forward,
            heard: Heard::default(),
        };
        let summarisers = Summarisers::new(compact.summariser, summary_time, composing.window, &profiles)?;
        let places = limits.requests.clamp(1, Semaphore::MAX_PERMITS / 2);
        Ok(Self {
            admission: Admission::new(tokens, listening),
            mode,
            routes,
            upstreams: Arc::new(Upstreams::new(upstreams, &limits)?),
            limits,
            unrecorded,
            shelf,
            composing,
            summarisers,
            observer: Observer::new(policy, Arc::clone(&profiles)),
            metrics: Metrics::new(profiles),
            health,
            places: Arc::new(Semaphore::new(places)),
            records: Arc::new(Semaphore::new(2 * places)),
            runtime: Handle::current(),
        })
    }

    /// Something was not recorded though it should have been.
    fn missed(&self, reason: Reason, error: Option<&RecordError>) -> Reason {
        self.metrics.unrecorded(reason);
        telemetry::unrecorded(reason, error);
        reason
    }

    /// A request goes on as it came though it was to be composed.
    fn uncomposed(&self, reason: Uncomposed) {
        self.metrics.uncomposed(reason);
        telemetry::uncomposed(reason);
    }

    /// What is done with a request: as it asks itself, else as its token, its route or the configuration says. Only calls
    /// are recorded.
    fn mode(&self, call: Option<Format>, head: &Parts, admitted: &Admitted) -> Result<Mode, Trouble> {
        let asked = match head.headers.get("x-epitome-mode").map(HeaderValue::as_bytes) {
            None => None,
            Some(b"off") => Some(Mode::Off),
            Some(b"record") => Some(Mode::Record),
            Some(b"observe") => Some(Mode::Observe),
            Some(b"compact") => Some(Mode::Compact),
            Some(_) => return Err(Trouble::unknown_mode()),
        };
        if call.is_none() {
            return Ok(Mode::Off);
        }
        let configured = || self.routes.get(route::own(head.uri.path())).copied().unwrap_or(self.mode);
        Ok(asked.or(admitted.mode).unwrap_or_else(configured))
    }
}
