//! Counts the outcomes of summaries in the metrics.

use std::sync::{Arc, Weak};

use epitome::session::Lifecycle;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Gateway, metrics::Metrics};

/// Listens from now on, for as long as the gateway exists.
pub(super) fn begin(gateway: &Arc<Gateway>) {
    let heard = gateway.heard.listen();
    gateway.runtime.spawn(listen(Arc::downgrade(&gateway.metrics), heard));
}

async fn listen(metrics: Weak<Metrics>, mut heard: Receiver<Lifecycle>) {
    loop {
        match heard.recv().await {
            Ok(happened) => {
                let Some(metrics) = metrics.upgrade() else { return };
                metrics.heard(&happened);
            }
            // Missed messages are still in the records.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
