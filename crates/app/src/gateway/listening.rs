//! Hears what becomes of summaries, and has it counted.

use std::sync::{Arc, Weak};

use epitome::session::Lifecycle;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{Gateway, metrics::Metrics};

/// Listens from now on, for as long as there is a gateway.
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
            // What was missed is in the records.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}
