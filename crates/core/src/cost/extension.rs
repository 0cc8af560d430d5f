//! Comparison of a request with the one before it: an extension keeps the epoch and the cache valid.

use super::{CacheLayer, Prompt};

/// Relation of a request to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestExtension {
    /// It begins with all of the one before.
    Extends,
    /// Something that was sent is not there any more, or not as it was.
    Differs {
        /// The first block of the one before that is not in its place.
        at: usize,
        /// The layer that changed: of the two that meet there the earlier one, since a tool more pushes the system prompt
        /// away without changing it.
        layer: CacheLayer,
    },
}

/// Compares two requests as a cache does: block by block from the beginning, breakpoints aside.
///
/// A message that grew at its end extends its earlier form, because blocks are compared and not messages.
///
/// ```
/// use epitome_core::{Digest, Tokens, cost::{PromptBlock, RequestExtension, CacheLayer, Prompt, extends}};
///
/// let block = |layer: CacheLayer, said: &str| {
///     let digest = Digest::of(said.as_bytes());
///     PromptBlock { layer, digest, tokens: Tokens(1), tool: false, breakpoint: None }
/// };
/// let (system, asked) = (block(CacheLayer::System, "Be kind."), block(CacheLayer::Messages, "Hello."));
/// let first = Prompt { blocks: vec![system.clone(), asked] };
/// let mut second = first.clone();
/// second.blocks.push(block(CacheLayer::Messages, "Hi!"));
/// assert_eq!(extends(&first, &second), RequestExtension::Extends);
/// assert_eq!(extends(&second, &first), RequestExtension::Differs { at: 2, layer: CacheLayer::Messages });
/// ```
pub fn extends(previous: &Prompt, next: &Prompt) -> RequestExtension {
    let mut followed = next.blocks.iter();
    for (at, before) in previous.blocks.iter().enumerate() {
        match followed.next() {
            Some(now) if (now.layer, now.digest) == (before.layer, before.digest) => {}
            Some(now) => return RequestExtension::Differs { at, layer: before.layer.min(now.layer) },
            None => return RequestExtension::Differs { at, layer: before.layer },
        }
    }
    RequestExtension::Extends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cost::PromptBlock, hash_chain::Digest, tokens::Tokens};

    /// A letter a block: capitals are tools, digits the system prompt, small letters messages.
    fn prompt(blocks: &str) -> Prompt {
        let block = |letter: char| PromptBlock {
            layer: match letter {
                'A'..='Z' => CacheLayer::Tools,
                '0'..='9' => CacheLayer::System,
                _ => CacheLayer::Messages,
            },
            digest: Digest::of(letter.to_string().as_bytes()),
            tokens: Tokens(1),
            tool: false,
            breakpoint: None,
        };
        Prompt { blocks: blocks.chars().map(block).collect() }
    }

    fn check(previous: &str, next: &str, expect: RequestExtension) {
        assert_eq!(extends(&prompt(previous), &prompt(next)), expect, "{previous} {next}");
    }

    #[test]
    fn what_grows_at_the_end_extends() {
        check("", "", RequestExtension::Extends);
        check("", "A1a", RequestExtension::Extends);
        check("AB1ab", "AB1ab", RequestExtension::Extends);
        check("AB1ab", "AB1abc", RequestExtension::Extends);
    }

    #[test]
    fn anything_else_differs_where_it_begins_to() {
        let differs = |at, layer| RequestExtension::Differs { at, layer };
        check("A1ab", "A1a", differs(3, CacheLayer::Messages));
        check("A1ab", "A1xb", differs(2, CacheLayer::Messages));
        check("A1ab", "A2ab", differs(1, CacheLayer::System));
        check("A1ab", "AB1ab", differs(1, CacheLayer::Tools));
        check("AB1ab", "A1ab", differs(1, CacheLayer::Tools));
        check("A1ab", "A12ab", differs(2, CacheLayer::System));
        check("A1", "", differs(0, CacheLayer::Tools));
    }

    #[test]
    fn breakpoints_and_counts_are_no_difference() {
        let (one, mut other) = (prompt("A1a"), prompt("A1a"));
        for block in &mut other.blocks {
            block.breakpoint = Some(300);
            block.tokens = Tokens(9);
        }
        assert_eq!(extends(&one, &other), RequestExtension::Extends);
    }
}
