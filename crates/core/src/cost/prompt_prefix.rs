//! The prefixes of a request, each with a hash that covers everything a cache compares.
//!
//! A link covers the model, the settings that reach its layer, and every block so far. So two requests have a link in
//! common exactly as far as a cache would read one for the other, and no invalidation needs to be carried out: the old
//! entries are simply not found.

use std::collections::BTreeMap;

use super::{CacheLayer, SimulatedCall};
use crate::{
    hash_chain::Digest,
    profile::{InvalidationScope, RequestAspect},
    tokens::Tokens,
};

/// Fingerprints of settings that are in no block but may invalidate a cache: tool choice, thinking, effort,
/// format, presence of images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingDigests(pub BTreeMap<RequestAspect, Digest>);

/// All prefixes of a request that end with a block.
#[derive(Debug)]
pub(super) struct PromptPrefixes {
    /// Covers everything up to and including a block.
    pub(super) links: Vec<Digest>,
    /// The tokens up to and including a block.
    pub(super) ends: Vec<Tokens>,
}

impl PromptPrefixes {
    /// The prefixes of a call under a provider's rules of invalidation.
    pub(super) fn of(
        call: &SimulatedCall<'_>,
        invalidated_by: &BTreeMap<RequestAspect, InvalidationScope>,
    ) -> Self {
        let blocks = &call.prompt.blocks;
        let (mut links, mut ends) = (Vec::with_capacity(blocks.len()), Vec::with_capacity(blocks.len()));
        let mut link = Digest::of(call.model.as_bytes());
        let mut end = Tokens(0);
        let mut reached = None;
        for block in blocks {
            // Another model invalidates everything regardless of the rules: caches belong to one model.
            for scope in
                [InvalidationScope::All, InvalidationScope::SystemAndMessages, InvalidationScope::Messages]
            {
                let is_new = reached.is_none_or(|layer| layer < first_layer(scope));
                if is_new && first_layer(scope) <= block.layer {
                    link = with_settings(link, scope, call.settings, invalidated_by);
                }
            }
            reached = reached.max(Some(block.layer));
            link = next(link, block.layer, block.digest);
            end += block.tokens;
            links.push(link);
            ends.push(end);
        }
        Self { links, ends }
    }

    /// The tokens of the first `blocks` blocks.
    pub(super) fn tokens(&self, blocks: usize) -> Tokens {
        blocks.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or_default()
    }

    /// The tokens of the whole request.
    pub(super) fn total(&self) -> Tokens {
        self.tokens(self.ends.len())
    }
}

/// The first layer that a change of this scope invalidates.
pub(super) fn first_layer(scope: InvalidationScope) -> CacheLayer {
    match scope {
        InvalidationScope::All => CacheLayer::Tools,
        InvalidationScope::SystemAndMessages => CacheLayer::System,
        InvalidationScope::Messages => CacheLayer::Messages,
    }
}

fn with_settings(
    mut link: Digest,
    scope: InvalidationScope,
    settings: &SettingDigests,
    invalidated_by: &BTreeMap<RequestAspect, InvalidationScope>,
) -> Digest {
    for (change, digest) in &settings.0 {
        if invalidated_by.get(change) == Some(&scope) {
            let mut hasher = blake3::Hasher::new_derive_key("epitome cache setting v1");
            // A setting keeps its name, so that two of them cannot trade places.
            hasher.update(&link.0).update(format!("{change:?}").as_bytes()).update(&digest.0);
            link = Digest(*hasher.finalize().as_bytes());
        }
    }
    link
}

fn next(link: Digest, layer: CacheLayer, digest: Digest) -> Digest {
    let layer = match layer {
        CacheLayer::Tools => 0,
        CacheLayer::System => 1,
        CacheLayer::Messages => 2,
    };
    // There is one of these for every block of every call, and none is ever stored: a plain hash will do.
    let mut bytes = [0; 65];
    bytes[..32].copy_from_slice(&link.0);
    bytes[32..64].copy_from_slice(&digest.0);
    bytes[64] = layer;
    Digest::of(&bytes)
}
