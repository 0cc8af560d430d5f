//! Counts the outcomes of summaries in the metrics.

use std::sync::{Arc, Weak};

use epitome::session::LifecycleEvent;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Gateway, metrics::GatewayMetrics};

/// Listens from now on, for as long as the gateway exists.
pub(super) fn begin(gateway: &Arc<Gateway>) {
    let heard = gateway.heard.listen();
    gateway.runtime.spawn(listen(Arc::downgrade(&gateway.metrics), heard));
}

async fn listen(metrics: Weak<GatewayMetrics>, mut heard: Receiver<LifecycleEvent>) {
    loop {
        match heard.recv().await {
            Ok(happened) => {
                let Some(metrics) = metrics.upgrade() else { return };
                metrics.record_lifecycle(&happened);
            }
            // Missed messages are still in the records.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
