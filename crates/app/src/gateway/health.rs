//! State of the gateway: able to do its work or not, and running or stopping.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use epitome::{core::SessionId, store::StoreError};
use tokio::{sync::Mutex, time::timeout};

use super::reopening_store::ReopeningStore;

/// Longest time that a store may take to answer that it is writable.
const STORE_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which a failed record makes the gateway report that it is not ready. Load balancers that read
/// this status send no requests meanwhile; it has to end, because only another recorded request can show that
/// records work again.
const FAILURE_COOLDOWN: Duration = Duration::from_secs(5);

/// State of the gateway.
#[derive(Debug)]
pub(super) struct GatewayHealth {
    store: Option<Arc<ReopeningStore>>,
    needs_store: bool,
    /// Time of the last failed record, if none has succeeded since.
    failed: std::sync::Mutex<Option<Instant>>,
    stops: AtomicBool,
    closes: AtomicBool,
    /// Held while the store is being asked, so that requests for the status do not pile up behind a store
    /// that is stuck.
    asking: Arc<Mutex<()>>,
}

impl GatewayHealth {
    /// State of a gateway that records into `store`, if there is one.
    pub(super) fn recording(store: Option<Arc<ReopeningStore>>) -> Self {
        Self { needs_store: true, ..Self::relaying(store) }
    }

    /// State of a gateway that need not record anything.
    pub(super) fn relaying(store: Option<Arc<ReopeningStore>>) -> Self {
        Self {
            store,
            needs_store: false,
            failed: std::sync::Mutex::default(),
            stops: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            asking: Arc::default(),
        }
    }

    /// Notes that a record failed.
    pub(super) fn record_failure(&self) {
        *self.failed() = Some(Instant::now());
    }

    /// Notes that a record succeeded.
    pub(super) fn record_success(&self) {
        if self.failed().take().is_some() {
            tracing::info!("exchanges are recorded again");
        }
    }

    /// Notes that no new connections are taken.
    pub(super) fn set_stopping(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// Notes that requests still in progress are cut off.
    pub(super) fn set_closing(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Returns true if requests still in progress are cut off.
    pub(super) fn is_closing(&self) -> bool {
        self.closes.load(Ordering::Relaxed)
    }

    /// Checks that requests should be sent here; the error says why not.
    pub(super) async fn ready(&self) -> Result<(), &'static str> {
        if self.stops.load(Ordering::Relaxed) {
            return Err("the gateway is stopping");
        }
        if !self.needs_store {
            return Ok(());
        }
        let Some(store) = &self.store else { return Err("there is no store: requests are not recorded") };
        if !self.is_writable(store).await {
            return Err("the store cannot be written: requests are not recorded");
        }
        if self.failed().is_some_and(|failed| failed.elapsed() < FAILURE_COOLDOWN) {
            return Err("the last exchange was not recorded: see the log");
        }
        Ok(())
    }

    async fn is_writable(&self, store: &Arc<ReopeningStore>) -> bool {
        let Ok(asking) = Arc::clone(&self.asking).try_lock_owned() else { return false };
        let store = Arc::clone(store);
        let asked = tokio::task::spawn_blocking(move || {
            let _asking = asking;
            // This takes the lock for writing, and finds nothing to write.
            let nobody = SessionId::derived(&["the gateway asks whether the store can be written"]);
            let answer = store.recorder().store().remove_label(nobody, "");
            matches!(answer, Ok(()) | Err(StoreError::UnknownSession { .. }))
        });
        matches!(timeout(STORE_CHECK_TIMEOUT, asked).await, Ok(Ok(true)))
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
