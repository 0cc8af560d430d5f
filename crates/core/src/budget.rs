//! The budget: one ceiling, what must stay free under it, and optional caps.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{context::Tier, tokens::Tokens};

/// How much a context may hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    ceiling: Tokens,
    target: Tokens,
    caps: BTreeMap<Tier, Tokens>,
}

impl Budget {
    /// At most `ceiling` tokens of input; a reduction goes down to the ceiling and no further.
    pub fn new(ceiling: Tokens) -> Self {
        Self { ceiling, target: ceiling, caps: BTreeMap::new() }
    }

    /// The same ceiling less `reserved`, which something else will fill: an answer, injected content, a margin.
    pub fn reserve(self, reserved: Tokens) -> Self {
        let ceiling = Tokens(self.ceiling.0.saturating_sub(reserved.0));
        Self { ceiling, target: self.target.min(ceiling), ..self }
    }

    /// A reduction, once begun, goes down to `target`.
    pub fn aim(self, target: Tokens) -> Self {
        Self { target: target.min(self.ceiling), ..self }
    }

    /// At most `tokens` of one tier.
    pub fn cap(mut self, tier: Tier, tokens: Tokens) -> Self {
        self.caps.insert(tier, tokens);
        self
    }

    /// The most a context may hold.
    pub fn ceiling(&self) -> Tokens {
        self.ceiling
    }

    /// What a reduction goes down to.
    pub fn target(&self) -> Tokens {
        self.target
    }

    /// The cap of a tier, if it has one.
    pub fn cap_of(&self, tier: Tier) -> Option<Tokens> {
        self.caps.get(&tier).copied()
    }

    /// The tiers that have caps.
    pub fn caps(&self) -> impl Iterator<Item = (Tier, Tokens)> {
        self.caps.iter().map(|(tier, tokens)| (*tier, *tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_lower_the_ceiling_and_the_target_never_exceeds_it() {
        let budget = Budget::new(Tokens(100)).aim(Tokens(90)).reserve(Tokens(20));
        assert_eq!((budget.ceiling(), budget.target()), (Tokens(80), Tokens(80)));
        assert_eq!(Budget::new(Tokens(5)).reserve(Tokens(9)).ceiling(), Tokens(0));
    }
}
