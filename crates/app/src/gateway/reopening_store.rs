//! The store that a gateway records into, with its recorder.
//!
//! A store that could only be opened for reading is opened again when a recorder is needed: the right to
//! write may have been restored, or a disk mounted again. The recorder's caches are lost with it, which costs
//! a few lookups.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use epitome::{recorder::TrafficRecorder, store::Store};

/// Holder of the store.
#[derive(Debug)]
pub(super) struct ReopeningStore {
    recorder: RwLock<Arc<TrafficRecorder>>,
    /// Held while the store is opened again; other threads use the current recorder meanwhile.
    opening: Mutex<()>,
}

impl ReopeningStore {
    /// Keeps a store.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { recorder: RwLock::new(Arc::new(TrafficRecorder::new(store))), opening: Mutex::default() }
    }

    /// The recorder. Blocks while the store is opened again.
    pub(super) fn recorder(&self) -> Arc<TrafficRecorder> {
        let recorder = self.current();
        if !recorder.store().is_read_only() {
            return recorder;
        }
        let Ok(_opening) = self.opening.try_lock() else { return recorder };
        // Another thread may have opened it in the meantime.
        let recorder = self.current();
        if !recorder.store().is_read_only() {
            return recorder;
        }
        match recorder.store().reopen() {
            Ok(store) if !store.is_read_only() => {
                let recorder = Arc::new(TrafficRecorder::new(store));
                *self.recorder.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&recorder);
                recorder
            }
            Ok(_) | Err(_) => recorder,
        }
    }

    /// The recorder as it stands, without waiting for the store to be opened.
    pub(super) fn current(&self) -> Arc<TrafficRecorder> {
        Arc::clone(&self.recorder.read().unwrap_or_else(PoisonError::into_inner))
    }
}
