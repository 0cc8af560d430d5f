//! The store that a gateway records into, and whoever records.
//!
//! A store that could only be looked at when it was opened is opened again by whoever needs it: a right to write may have
//! been given back, a disk mounted anew. What a recorder remembers is lost with it, which costs a few lookups.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use epitome::{recorder::Recorder, store::Sqlite};

/// Where the store is kept.
#[derive(Debug)]
pub(super) struct Shelf {
    recorder: RwLock<Arc<Recorder>>,
    /// Held by whoever opens the store: the others go on with what there is.
    opening: Mutex<()>,
}

impl Shelf {
    /// Keeps a store.
    pub(super) fn new(store: Arc<Sqlite>) -> Self {
        Self { recorder: RwLock::new(Arc::new(Recorder::new(store))), opening: Mutex::default() }
    }

    /// Whoever records. Blocks while the store is opened again.
    pub(super) fn recorder(&self) -> Arc<Recorder> {
        let recorder = self.current();
        if !recorder.store().is_read_only() {
            return recorder;
        }
        let Ok(_opening) = self.opening.try_lock() else { return recorder };
        // Somebody may have done it in the meantime.
        let recorder = self.current();
        if !recorder.store().is_read_only() {
            return recorder;
        }
        match recorder.store().reopened() {
            Ok(store) if !store.is_read_only() => {
                let recorder = Arc::new(Recorder::new(Arc::new(store)));
                *self.recorder.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&recorder);
                recorder
            }
            Ok(_) | Err(_) => recorder,
        }
    }

    /// Whoever records, as it stands. Waits for nobody who opens the store.
    pub(super) fn current(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder.read().unwrap_or_else(PoisonError::into_inner))
    }
}
