//! The gateway: stands between an agent and its provider, relays every byte, and records what passes.

pub(crate) mod config;
pub(crate) mod metrics;
