//! Connections: taken, served one task each, and let go of in order.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{sleep, timeout},
};

use super::{
    Gateway,
    patience::Taken,
    recording::{self, Alive},
    relay,
    shutdown::Signals,
};

/// How long the last records may take when everything else has ended.
const FLUSH: Duration = Duration::from_secs(10);

/// How far the gateway is with stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It is not.
    Serving,
    /// What is on its way is finished, and nothing begun.
    Stopping,
    /// What is still on its way is cut off.
    Closing,
}

/// Serves until a signal comes, and then finishes what is on its way. A second signal ends at once.
pub(super) async fn run(gateway: Arc<Gateway>, listener: TcpListener, mut signals: Signals) {
    tokio::spawn(recording::look_after(Arc::downgrade(&gateway)));
    let (alive, mut gone) = mpsc::channel(1);
    let (phase, watched) = watch::channel(Phase::Serving);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = signals.next() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(serve(Arc::clone(&gateway), stream, alive.clone(), watched.clone()));
            }
            Err(error) => {
                // Too many files are open, most likely: some will be closed.
                tracing::warn!(%error, "a connection was not taken");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop((listener, alive, watched));
    gateway.health.stops();
    tracing::info!("stopping: what is on its way is finished first");
    let ended = async {
        phase.send_replace(Phase::Stopping);
        if timeout(gateway.limits.shutdown, gone.recv()).await.is_err() {
            tracing::warn!("what is still on its way is cut off");
            gateway.health.closes();
            phase.send_replace(Phase::Closing);
            let _ = timeout(FLUSH, gone.recv()).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = signals.next() => {
            tracing::warn!("told twice to stop: ending at once");
            std::process::exit(1);
        }
    }
}

async fn serve(gateway: Arc<Gateway>, stream: TcpStream, alive: Alive, mut phase: watch::Receiver<Phase>) {
    // Pieces of a stream are small and must not wait for one another.
    let _ = stream.set_nodelay(true);
    let limits = &gateway.limits;
    let io = Taken::within(limits.pause, TokioIo::new(stream));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.client)
        .max_buf_size(limits.head.max(MINIMUM))
        .preserve_header_case(true)
        .auto_date_header(false);
    let kept = &alive;
    let service = service_fn(|request: Request<Incoming>| {
        let (gateway, alive) = (Arc::clone(&gateway), kept.clone());
        async move { Ok::<_, Infallible>(relay::answer(gateway, alive, request).await) }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    // However it ends, its client knows better than a log.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = reached(&mut phase, Phase::Stopping) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = reached(&mut phase, Phase::Closing) => {}
    }
}

/// The least that a connection reads at a time.
const MINIMUM: usize = 8 << 10;

async fn reached(phase: &mut watch::Receiver<Phase>, expected: Phase) {
    // Whoever says so may be gone: then there is nothing left to wait for.
    let _ = phase.wait_for(|phase| *phase >= expected).await;
}
