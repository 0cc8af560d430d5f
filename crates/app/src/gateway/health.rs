//! Whether the gateway can do its work, and whether it still means to.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use epitome::{core::SessionId, store::StoreError};
use tokio::{sync::Mutex, time::timeout};

use super::shelf::Shelf;

/// How long a store may take to say that it can be written.
const PROMPT: Duration = Duration::from_secs(2);

/// How long a record that failed is held against the gateway. Whoever sends requests by what is said here sends none in
/// that time; without any that is recorded, nobody would ever know that it would be.
const GRUDGE: Duration = Duration::from_secs(5);

/// How the gateway is.
#[derive(Debug)]
pub(super) struct Health {
    store: Option<Arc<Shelf>>,
    needs_store: bool,
    /// When something was last not recorded, if nothing was since.
    failed: std::sync::Mutex<Option<Instant>>,
    stops: AtomicBool,
    closes: AtomicBool,
    /// Held by whoever asks the store: those who ask must not pile up behind a store that is stuck.
    asking: Arc<Mutex<()>>,
}

impl Health {
    /// A gateway that records into `store`, if there is one.
    pub(super) fn recording(store: Option<Arc<Shelf>>) -> Self {
        Self { needs_store: true, ..Self::relaying(store) }
    }

    /// A gateway that need not record anything.
    pub(super) fn relaying(store: Option<Arc<Shelf>>) -> Self {
        Self {
            store,
            needs_store: false,
            failed: std::sync::Mutex::default(),
            stops: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            asking: Arc::default(),
        }
    }

    /// Something was not recorded.
    pub(super) fn fails(&self) {
        *self.failed() = Some(Instant::now());
    }

    /// Something was recorded.
    pub(super) fn works(&self) {
        if self.failed().take().is_some() {
            tracing::info!("exchanges are recorded again");
        }
    }

    /// No new connections are taken.
    pub(super) fn stops(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// What is still on its way is cut off.
    pub(super) fn closes(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Whether what is still on its way is cut off.
    pub(super) fn is_closing(&self) -> bool {
        self.closes.load(Ordering::Relaxed)
    }

    /// Whether requests should be sent here, and if not, why.
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
        if self.failed().is_some_and(|failed| failed.elapsed() < GRUDGE) {
            return Err("the last exchange was not recorded: see the log");
        }
        Ok(())
    }

    async fn is_writable(&self, store: &Arc<Shelf>) -> bool {
        let Ok(asking) = Arc::clone(&self.asking).try_lock_owned() else { return false };
        let store = Arc::clone(store);
        let asked = tokio::task::spawn_blocking(move || {
            let _asking = asking;
            // It takes the lock for writing, and finds nothing to write.
            let nobody = SessionId::derived(&["the gateway asks whether the store can be written"]);
            let answer = store.recorder().store().remove_label(nobody, "");
            matches!(answer, Ok(()) | Err(StoreError::UnknownSession { .. }))
        });
        matches!(timeout(PROMPT, asked).await, Ok(Ok(true)))
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
