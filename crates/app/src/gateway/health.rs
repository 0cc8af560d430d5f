//! Whether the gateway can do its work, and whether it still means to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use epitome::{
    core::SessionId,
    store::{Sqlite, StoreError},
};
use tokio::{sync::Mutex, time::timeout};

/// How long a store may take to say that it can be written.
const PROMPT: Duration = Duration::from_secs(2);

/// How the gateway is.
#[derive(Debug)]
pub(super) struct Health {
    store: Option<Arc<Sqlite>>,
    needs_store: bool,
    fails: AtomicBool,
    stops: AtomicBool,
    closes: AtomicBool,
    /// Held by whoever asks the store: those who ask must not pile up behind a store that is stuck.
    asking: Arc<Mutex<()>>,
}

impl Health {
    /// A gateway that records into `store`, if there is one.
    pub(super) fn recording(store: Option<Arc<Sqlite>>) -> Self {
        Self { needs_store: true, ..Self::relaying(store) }
    }

    /// A gateway that need not record anything.
    pub(super) fn relaying(store: Option<Arc<Sqlite>>) -> Self {
        Self {
            store,
            needs_store: false,
            fails: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            asking: Arc::default(),
        }
    }

    /// Something was not recorded.
    pub(super) fn fails(&self) {
        self.fails.store(true, Ordering::Relaxed);
    }

    /// Something was recorded.
    pub(super) fn works(&self) {
        if self.fails.load(Ordering::Relaxed) {
            self.fails.store(false, Ordering::Relaxed);
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
        if store.is_read_only() {
            return Err("the store is read-only: requests are not recorded");
        }
        if !self.is_writable(store).await {
            return Err("the store cannot be written: requests are not recorded");
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err("the last exchange was not recorded: see the log");
        }
        Ok(())
    }

    async fn is_writable(&self, store: &Arc<Sqlite>) -> bool {
        let Ok(asking) = Arc::clone(&self.asking).try_lock_owned() else { return false };
        let store = Arc::clone(store);
        let asked = tokio::task::spawn_blocking(move || {
            let _asking = asking;
            // It takes the lock for writing, and finds nothing to write.
            let nobody = SessionId::derived(&["the gateway asks whether the store can be written"]);
            let answer = store.remove_label(nobody, "");
            matches!(answer, Ok(()) | Err(StoreError::UnknownSession { .. }))
        });
        matches!(timeout(PROMPT, asked).await, Ok(Ok(true)))
    }
}
