//! What things cost in a request: texts by a counter, media by their size, and the wrapping around them.
//!
//! Every number is an upper bound of what a recount of the rendered request gives, so that a context that fits by the
//! meter fits in fact. Texts of logged events are never counted again: their counts come along from the log.

mod costs;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

pub use self::costs::Costs;
use crate::{
    event::Part,
    media::{Media, Place},
    tokens::{TokenCounter, Tokens},
};

/// Counts what a request will hold.
#[derive(Clone)]
pub struct Meter {
    counter: Arc<dyn TokenCounter>,
    overhead: Overhead,
    /// The counts of words met before. Stubs and notes are made of few words, over and over.
    words: Arc<Mutex<HashMap<Box<str>, Tokens>>>,
}

/// Texts up to this many bytes are counted word by word.
const LINE: usize = 512;

/// Words up to this many bytes are remembered.
const WORD: usize = 48;

/// How many words are remembered at a time.
const WORDS: usize = 1 << 15;

/// Tokens of wrapping that no text shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overhead {
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
    /// Around all of them together, if there are any: what a provider tells the model about tools as such.
    pub tools: Tokens,
    /// What an image costs whose size is unknown, and the most that any image costs.
    pub image: Tokens,
    /// What a page of a document, or a piece of any other medium of this many bytes, costs.
    pub document_bytes_a_token: u64,
}

impl Overhead {
    /// Around a summary, which may go out as an answer, with a question before it and a word to go on behind it.
    pub fn around_summary(&self) -> Tokens {
        self.message + self.message + self.message + self.summary
    }
}

impl Default for Overhead {
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

impl Overhead {
    /// Around so many tool definitions.
    pub fn around_tools(&self, count: usize) -> Tokens {
        let all = if count == 0 { Tokens(0) } else { self.tools };
        all + Tokens(self.tool.0.saturating_mul(count as u64))
    }
}

impl Meter {
    /// Counts texts with `counter` and wraps them as `overhead` says.
    pub fn new(counter: Arc<dyn TokenCounter>, overhead: Overhead) -> Self {
        Self { counter, overhead, words: Arc::default() }
    }

    /// The name of the counter, under which counts are stored.
    pub fn name(&self) -> &'static str {
        self.counter.name()
    }

    /// The wrapping.
    pub fn overhead(&self) -> &Overhead {
        &self.overhead
    }

    /// A text. A short one is counted word by word where that gives the same, and a word only the first time.
    pub fn text(&self, text: &str) -> Tokens {
        if text.len() > LINE || !self.counter.adds_up_by_words() {
            return self.counter.count(text);
        }
        words(text).map(|word| self.word(word)).sum()
    }

    fn word(&self, word: &str) -> Tokens {
        if word.len() > WORD {
            return self.counter.count(word);
        }
        let mut known = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokens) = known.get(word) {
            return *tokens;
        }
        if known.len() >= WORDS {
            known.clear();
        }
        let tokens = self.counter.count(word);
        known.insert(word.into(), tokens);
        tokens
    }

    /// Texts and media together, without any wrapping.
    pub fn parts(&self, parts: &[Part]) -> Tokens {
        parts.iter().map(|part| self.part(part)).sum()
    }

    /// One part, without any wrapping.
    pub fn part(&self, part: &Part) -> Tokens {
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
            (None, Place::Inline { size, .. }) if !media.mime.starts_with("image/") => {
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

/// Splits a text before each single space between two words, and before a colon that follows a letter or digit: a
/// handle is a thread met before, and a number.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let is_word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_graphic);
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= bytes.len() {
            return None;
        }
        let first = start + 1;
        let end = (first..bytes.len())
            .find(|&at| match bytes[at] {
                b' ' => is_word(at - 1) && is_word(at + 1),
                b':' => bytes[at - 1].is_ascii_alphanumeric(),
                _ => false,
            })
            .unwrap_or(bytes.len());
        let word = &text[start..end];
        start = end;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Estimate;

    #[test]
    fn media_cost_by_size_and_never_more_than_the_most() {
        let meter = Meter::new(Arc::new(Estimate), Overhead::default());
        let image = |dimensions| Media { dimensions, ..Media::inline("image/png", b"x") };
        assert_eq!(meter.media(&image(Some((64, 33)))), Tokens(4));
        assert_eq!(meter.media(&image(Some((20_000, 20_000)))), Tokens(1_800));
        assert_eq!(meter.media(&image(None)), Tokens(1_800));
        assert_eq!(meter.media(&Media::inline("application/pdf", &[0; 100])), Tokens(5));
    }

    #[test]
    fn words_are_split_before_single_spaces_and_nothing_is_lost() {
        let split = |text| words(text).collect::<Vec<_>>();
        assert_eq!(split("[read 12 lines]"), ["[read", " 12", " lines]"]);
        assert_eq!(split("recall 1b2c:57]"), ["recall", " 1b2c", ":57]"]);
        assert_eq!(split(" a  b\n c "), [" a  b\n c "]);
        assert_eq!(split(""), Vec::<&str>::new());
    }

    #[cfg(feature = "bpe")]
    mod exact {
        use proptest::prelude::*;

        use super::*;
        use crate::tokens::O200k;

        proptest! {
            #[test]
            fn a_short_text_counts_as_the_vocabulary_counts_it(
                text in "([a-zA-Z]{1,8}|[0-9]{1,6}|[\\[\\];:,.×'/_-]{1,3}|[ ]{1,3}|[\n\t\u{a0}]|[äé日本語ї]{1,3}){0,40}",
            ) {
                let meter = Meter::new(Arc::new(O200k), Overhead::default());
                prop_assert_eq!(meter.text(&text), O200k.count(&text));
                prop_assert_eq!(meter.text(&text), O200k.count(&text), "and the second time");
            }
        }
    }
}
