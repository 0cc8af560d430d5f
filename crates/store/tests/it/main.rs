//! The store from outside: what must hold, under bad conditions too.

#![expect(clippy::unwrap_used, reason = "everything in here is a test, helpers included")]

mod behind;
mod calls;
mod conditions;
mod conformance;
mod crash;
mod erasure;
mod foreign;
mod invariants;
mod jobs;
mod media;
mod model;
mod recognition;
mod records;
mod sessions;
mod support;
mod windows;
