//! Requirements on every store, tested on any implementation.
//!
//! A database brings a [`DatabaseFactory`] and runs [`check_store`] in its own tests. It panics with the names of the checks
//! that failed; each of them has said before what did not hold. Random cases follow `PROPTEST_RNG_SEED`.

#![expect(clippy::unwrap_used, reason = "everything in here is a test, helpers included")]

mod annotated_events;
mod calls;
mod erasure;
mod jobs;
mod log;
mod lookups;
mod maintenance;
mod media;
mod random_calls;
mod random_jobs;
mod random_lookups;
mod recognition;
pub mod samples;
mod search;
mod sessions;
mod turns;
mod windows;

use std::{
    any::Any,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{Store, StoreError, StoreLocation, StoreOptions, open_store};

/// A database to try things on.
pub struct TestDatabase {
    location: StoreLocation,
    /// Removes the database when it is dropped.
    _guard: Box<dyn Any + Send + Sync>,
}

impl TestDatabase {
    /// A database that is empty, or that is made when it is opened. `guard` removes it when it is dropped.
    pub fn new(location: StoreLocation, guard: impl Any + Send + Sync) -> Self {
        Self { location, _guard: Box::new(guard) }
    }

    /// Opens it with a token counter. Several stores may have it open at once, as several processes would.
    pub fn open(&self) -> Arc<dyn Store> {
        self.open_with(samples::counting())
    }

    /// The same, but what is derived is put off for as long as nobody asks for it.
    pub fn open_late(&self) -> Arc<dyn Store> {
        self.open_with(samples::late())
    }

    /// Opens it with other options.
    pub fn open_with(&self, options: StoreOptions) -> Arc<dyn Store> {
        open_store(&self.location, options).expect("the store opens")
    }

    /// Its location.
    pub fn location(&self) -> &StoreLocation {
        &self.location
    }
}

/// Makes an empty database. It is called from several threads.
pub type DatabaseFactory<'f> = dyn Fn() -> TestDatabase + Sync + 'f;

/// One requirement.
#[derive(Clone, Copy)]
pub struct ConformanceCheck {
    name: &'static str,
    run: fn(&DatabaseFactory<'_>),
}

/// Lists the checks of a module.
macro_rules! checks {
    ($($name:ident,)*) => {
        pub(super) const CHECKS: &[ConformanceCheck] =
            &[$(ConformanceCheck { name: concat!(module_path!(), "::", stringify!($name)), run: $name }),*];
    };
}
use checks;

/// Tries everything.
pub fn check_store(databases: &DatabaseFactory<'_>) {
    let all = [
        log::CHECKS,
        windows::CHECKS,
        media::CHECKS,
        annotated_events::CHECKS,
        sessions::CHECKS,
        turns::CHECKS,
        search::CHECKS,
        recognition::CHECKS,
        lookups::CHECKS,
        calls::CHECKS,
        jobs::CHECKS,
        erasure::CHECKS,
        random_calls::CHECKS,
        random_jobs::CHECKS,
        random_lookups::CHECKS,
        maintenance::CHECKS,
    ];
    run(&all.concat(), databases);
}

/// Tries only the log. The factory may give the same database every time, to several callers at once.
pub fn check_log(databases: &DatabaseFactory<'_>) {
    run(log::CHECKS, databases);
}

/// Runs checks on as many threads as there are cores.
fn run(checks: &[ConformanceCheck], databases: &DatabaseFactory<'_>) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed)) {
            // A thread of that name, so that a panic says which check it was.
            let outcome = thread::scope(|scope| {
                let named = thread::Builder::new().name(check.name.to_owned());
                named.spawn_scoped(scope, || (check.run)(databases)).expect("a thread can be started").join()
            });
            if outcome.is_err() {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(check.name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failed.is_empty(), "{} of {} checks failed: {failed:#?}", failed.len(), checks.len());
}

/// Checks that an outcome is an error, and of which kind.
fn expect_error<T: std::fmt::Debug>(outcome: &Result<T, StoreError>, is_it: impl Fn(&StoreError) -> bool) {
    assert!(outcome.as_ref().is_err_and(&is_it), "{outcome:?}");
}
