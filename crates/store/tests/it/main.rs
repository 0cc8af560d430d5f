//! The store from outside: what must hold, under bad conditions too.

mod conditions;
mod conformance;
mod crash;
mod erasure;
mod foreign;
mod invariants;
mod media;
mod records;
mod sessions;
mod support;
mod texts;
