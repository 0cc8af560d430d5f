//! Token costs in a request: texts by a counter, media by their size, and the wrapping around them.
//!
//! Every number is an upper bound of a recount of the rendered request, so that a context that fits by the
//! meter fits in fact. Texts of logged events are never counted again: their counts come along from the log.

mod event_costs;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::event_costs::EventCosts;
use crate::{
    event::ContentPart,
    media::{Media, MediaLocation},
    tokens::{TokenCounter, Tokens},
};

/// Counts the tokens of a request's content.
#[derive(Clone)]
pub struct Meter {
    counter: Arc<dyn TokenCounter>,
    overhead: TokenOverhead,
}

/// Tokens of wrapping that no text shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenOverhead {
    /// Around a whole request, with the two short messages that a renderer may have to put in where a provider wants the
    /// user to speak first and last.
    pub request: Tokens,
    /// Around each message.
    pub message: Tokens,
    /// The words that a renderer may put around a summary: a question it answers, and a word to go on.
    pub summary: Tokens,
    /// Around each tool call and each result.
    pub call: Tokens,
    /// Around each tool definition.
    pub tool: Tokens,
    /// Around all of them together, if there are any: the provider's own instructions about tools.
    pub tools: Tokens,
    /// Cost of an image of unknown size, and the most that any image costs.
    pub image: Tokens,
    /// Number of bytes of a document, or of any other medium but an image, that cost one token.
    pub document_bytes_a_token: u64,
}

impl TokenOverhead {
    /// Around a summary, which may go out as an answer, with a question before it and a word to go on behind it.
    pub fn around_summary(&self) -> Tokens {
        self.message + self.message + self.message + self.summary
    }
}

impl Default for TokenOverhead {
    fn default() -> Self {
        Self {
            request: Tokens(20),
            message: Tokens(4),
            summary: Tokens(16),
            call: Tokens(8),
            tool: Tokens(8),
            tools: Tokens(0),
            image: Tokens(1_800),
            document_bytes_a_token: 20,
        }
    }
}

impl TokenOverhead {
    /// Around so many tool definitions.
    pub fn around_tools(&self, count: usize) -> Tokens {
        let all = if count == 0 { Tokens(0) } else { self.tools };
        all + Tokens(self.tool.0.saturating_mul(count as u64))
    }
}

impl Meter {
    /// Counts texts with `counter` and wraps them as `overhead` says.
    pub fn new(counter: Arc<dyn TokenCounter>, overhead: TokenOverhead) -> Self {
        Self { counter, overhead }
    }

    /// The name of the counter, under which counts are stored.
    pub fn name(&self) -> &'static str {
        self.counter.name()
    }

    /// The wrapping.
    pub fn overhead(&self) -> &TokenOverhead {
        &self.overhead
    }

    /// A text.
    pub fn text(&self, text: &str) -> Tokens {
        self.counter.count(text)
    }

    /// Texts and media together, without any wrapping.
    pub fn parts(&self, parts: &[ContentPart]) -> Tokens {
        parts.iter().map(|part| self.part(part)).sum()
    }

    /// One part, without any wrapping.
    pub fn part(&self, part: &ContentPart) -> Tokens {
        let mut tokens = Tokens(0);
        part.visit_text(&mut |text| tokens += self.text(text));
        tokens + self.beside_text(part)
    }

    /// An image by its dimensions (patches of 32 pixels, as providers cut them), anything else by its bytes.
    pub fn media(&self, media: &Media) -> Tokens {
        match (media.dimensions, &media.place) {
            (Some((width, height)), _) => {
                let patches = u64::from(width.div_ceil(32)) * u64::from(height.div_ceil(32));
                Tokens(patches).min(self.overhead.image)
            }
            (None, MediaLocation::Inline { size, .. }) if !media.mime.starts_with("image/") => {
                Tokens(size.div_ceil(self.overhead.document_bytes_a_token.max(1)))
            }
            (None, _) => self.overhead.image,
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("counter", &self.name())
            .field("overhead", &self.overhead)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::EstimateCounter;

    #[test]
    fn media_cost_by_size_and_never_more_than_the_most() {
        let meter = Meter::new(Arc::new(EstimateCounter), TokenOverhead::default());
        let image = |dimensions| Media { dimensions, ..Media::inline("image/png", b"x") };
        assert_eq!(meter.media(&image(Some((64, 33)))), Tokens(4));
        assert_eq!(meter.media(&image(Some((20_000, 20_000)))), Tokens(1_800));
        assert_eq!(meter.media(&image(None)), Tokens(1_800));
        assert_eq!(meter.media(&Media::inline("application/pdf", &[0; 100])), Tokens(5));
    }
}
