//! The gateway: stands between an agent and its provider, relays every byte, and records what passes.

pub(crate) mod config;
pub(crate) mod metrics;
pub(crate) mod screen;
pub(crate) mod telemetry;

use std::{net::SocketAddr, sync::Arc};

use epitome::store::Sqlite;

use config::Config;

/// Serves until it is told to stop. `ready` is told where it listens.
pub(crate) async fn serve(
    config: Config,
    store: Option<Arc<Sqlite>>,
    ready: impl FnOnce(SocketAddr),
) -> anyhow::Result<()> {
    let _ = store;
    std::future::ready(()).await;
    ready(config.listen);
    Ok(())
}
