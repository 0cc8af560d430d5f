//! Cost of a sequence of requests, by the part of each that the provider's prompt cache would have held.
//!
//! A cache sees a request as a [`Prompt`]: blocks in the provider's order, compared byte for byte,
//! breakpoints aside. [`SimulatedCache`] serves the calls of a session one after the other and reports for each the
//! tokens read, written and missed, and the reason; a [`Bill`] adds them up. Everything it knows of a
//! provider is in the profile.

mod bill;
mod cache_terms;
mod prompt_prefix;
mod simulated_cache;
#[cfg(test)]
mod tests;

pub use self::{
    bill::Bill,
    cache_terms::{CacheTerms, UnknownRuleError},
    prompt_prefix::SettingDigests,
    simulated_cache::{CacheAssumption, CacheMiss, CallCharge, SimulatedCache, SimulatedCall},
};

mod extension;

use serde::{Deserialize, Serialize};

pub use self::extension::{RequestExtension, extends};

use crate::{hash_chain::Digest, tokens::Tokens};

/// A request as a prompt cache sees it: tools, then system, then messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The blocks, in the provider's order.
    pub blocks: Vec<PromptBlock>,
}

/// A piece of a request that a cache compares as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptBlock {
    /// Layer of the cache that it belongs to.
    pub layer: CacheLayer,
    /// Digest of its bytes, `cache_control` aside.
    pub digest: Digest,
    /// Tokens, its share of the wrapping included.
    pub tokens: Tokens,
    /// True for a tool call or a result: a run of these is one position to look back over.
    pub tool: bool,
    /// The cache is asked to keep everything up to here, for so many seconds.
    pub breakpoint: Option<u64>,
}

/// The layers of a cache; a change in one invalidates those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheLayer {
    /// Tool definitions.
    Tools,
    /// The system prompt.
    System,
    /// The history.
    Messages,
}
