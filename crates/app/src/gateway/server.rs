//! Connections: accepted, served by one task each on a thread of its own runtime, and closed in order.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    Gateway,
    connection_threads::ConnectionThreads,
    framing::FramedStream,
    io_timeout::WriteTimeoutStream,
    proxy,
    recording::{self, ShutdownGuard},
    signals::{ProcessSignals, SignalAction},
};
use crate::config::GatewayConfig;

/// Longest time for the last records after everything else has ended.
const FLUSH: Duration = Duration::from_secs(10);

/// Phase of the gateway's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GatewayPhase {
    /// Serving requests.
    Serving,
    /// Finishing requests in progress and accepting no new ones.
    Stopping,
    /// Cutting off requests still in progress.
    Closing,
}

/// Serves until a signal comes, and then finishes the requests in progress. A second signal ends the process
/// at once. If the gateway runs behind a load balancer, `/readyz` reports the stop some time before the port
/// closes.
pub(super) async fn run(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    threads: ConnectionThreads,
    mut signals: ProcessSignals,
    reload: impl Fn() -> anyhow::Result<GatewayConfig>,
) {
    if let Some(shelf) = &gateway.shelf {
        tokio::spawn(recording::write_unanswered(Arc::downgrade(shelf)));
    }
    let (alive, mut gone) = mpsc::channel(1);
    let (phase, watched) = watch::channel(GatewayPhase::Serving);
    let (current, gateways) = watch::channel(gateway);
    // Time at which the port closes, once that is known.
    let mut closing = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            order = signals.next() => match order {
                SignalAction::Reload => {
                    reloaded(&current, &reload);
                    continue;
                }
                SignalAction::Terminate if closing.is_none() => {
                    let notice = announced(&current.borrow());
                    if notice.is_zero() {
                        break;
                    }
                    closing = Some(Instant::now() + notice);
                    continue;
                }
                SignalAction::Interrupt if closing.is_none() => break,
                SignalAction::Terminate | SignalAction::Interrupt => insisted(),
            },
            () = until(closing) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (gateways, alive, watched) = (gateways.clone(), alive.clone(), watched.clone());
                threads.serve(accepted_connection(gateways, stream, alive, watched));
            }
            Err(error) => {
                // Most likely too many files are open; others will be closed.
                tracing::warn!(%error, "a connection was not taken");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop((listener, alive, watched, gateways));
    let gateway = Arc::clone(&current.borrow());
    gateway.health.set_stopping();
    tracing::info!("stopping: what is on its way is finished first");
    let ended = async {
        phase.send_replace(GatewayPhase::Stopping);
        if timeout(gateway.limits.shutdown, gone.recv()).await.is_err() {
            tracing::warn!("what is still on its way is cut off");
            gateway.health.set_closing();
            phase.send_replace(GatewayPhase::Closing);
            let _ = timeout(FLUSH, gone.recv()).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = signals.stop() => insisted(),
    }
}

/// Ends the process at once, on a second signal.
fn insisted() -> ! {
    tracing::warn!("told twice to stop: ending at once");
    std::process::exit(1);
}

/// Reports on `/readyz` that the gateway is stopping. Returns the time until its port closes.
fn announced(gateway: &Gateway) -> Duration {
    gateway.health.set_stopping();
    let notice = gateway.limits.notice_at(gateway.listening);
    if !notice.is_zero() {
        tracing::info!(?notice, "stopping: /readyz says so before the port closes");
    }
    notice
}

/// Waits until a time, or forever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Applies the configuration as it is now. If it is invalid, the old one stays.
fn reloaded(current: &watch::Sender<Arc<Gateway>>, reload: impl Fn() -> anyhow::Result<GatewayConfig>) {
    let gateway = Arc::clone(&current.borrow());
    match reload().and_then(|config| gateway.reloaded(config)) {
        Ok((gateway, unchanged)) => {
            current.send_replace(Arc::new(gateway));
            tracing::info!("the configuration was reloaded");
            if !unchanged.is_empty() {
                let restart = unchanged.join(", ");
                tracing::warn!(
                    restart,
                    "this was changed in the configuration, and takes effect after a restart"
                );
            }
        }
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(error, "the configuration was not reloaded: the old one stays");
        }
    }
}

/// Serves a connection that was accepted by another thread.
async fn accepted_connection(
    gateways: watch::Receiver<Arc<Gateway>>,
    stream: TcpStream,
    alive: ShutdownGuard,
    phase: watch::Receiver<GatewayPhase>,
) {
    // This thread is told when there is something to read, and no longer the one that accepted it.
    match stream.into_std().and_then(TcpStream::from_std) {
        Ok(stream) => serve(gateways, stream, alive, phase).await,
        Err(error) => tracing::warn!(%error, "a connection was not taken"),
    }
}

async fn serve(
    gateways: watch::Receiver<Arc<Gateway>>,
    stream: TcpStream,
    alive: ShutdownGuard,
    mut phase: watch::Receiver<GatewayPhase>,
) {
    // Pieces of a stream are small and must not wait for one another.
    let _ = stream.set_nodelay(true);
    let limits = gateways.borrow().limits.clone();
    let longest = limits.head.max(MINIMUM);
    let (stream, faults) = FramedStream::new(stream, longest);
    let io = WriteTimeoutStream::within(limits.pause, TokioIo::new(stream));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.client)
        .max_buf_size(longest)
        .preserve_header_case(true)
        .auto_date_header(false);
    let kept = &alive;
    let service = service_fn(|request: Request<Incoming>| {
        let (gateway, alive) = (Arc::clone(&gateways.borrow()), kept.clone());
        let is_faulty = faults.check_next_request();
        async move {
            Ok::<_, Infallible>(if is_faulty {
                proxy::refuse_framing(&gateway, request)
            } else {
                proxy::answer(gateway, alive, request).await
            })
        }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    // The client sees any error itself, so none is logged.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = reached(&mut phase, GatewayPhase::Stopping) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = reached(&mut phase, GatewayPhase::Closing) => {}
    }
}

/// Smallest read buffer of a connection.
const MINIMUM: usize = 8 << 10;

async fn reached(phase: &mut watch::Receiver<GatewayPhase>, expected: GatewayPhase) {
    // The sender may be gone: then there is nothing left to wait for.
    let _ = phase.wait_for(|phase| *phase >= expected).await;
}
