//! What a sentence is about: the words by which two sentences are found to be about the same.

use std::collections::BTreeSet;

use super::prose::Sentence;

/// Words that say nothing of the topic.
const EMPTY: &[&str] = &[
    "a",
    "about",
    "actually",
    "after",
    "again",
    "all",
    "also",
    "always",
    "am",
    "an",
    "and",
    "any",
    "anymore",
    "are",
    "as",
    "at",
    "back",
    "be",
    "because",
    "been",
    "before",
    "but",
    "by",
    "can",
    "cannot",
    "chose",
    "could",
    "decided",
    "did",
    "do",
    "does",
    "dont",
    "drop",
    "earlier",
    "else",
    "ever",
    "fine",
    "for",
    "forget",
    "from",
    "get",
    "go",
    "going",
    "had",
    "has",
    "have",
    "here",
    "how",
    "i",
    "if",
    "ill",
    "im",
    "in",
    "instead",
    "into",
    "is",
    "it",
    "its",
    "just",
    "keep",
    "let",
    "lets",
    "like",
    "longer",
    "make",
    "may",
    "me",
    "mind",
    "more",
    "must",
    "my",
    "need",
    "never",
    "no",
    "not",
    "now",
    "of",
    "off",
    "ok",
    "okay",
    "on",
    "once",
    "one",
    "only",
    "or",
    "other",
    "our",
    "out",
    "over",
    "please",
    "rather",
    "rule",
    "said",
    "should",
    "since",
    "so",
    "some",
    "still",
    "sure",
    "switch",
    "switching",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "to",
    "too",
    "touch",
    "up",
    "use",
    "using",
    "very",
    "was",
    "we",
    "well",
    "were",
    "what",
    "when",
    "which",
    "while",
    "will",
    "with",
    "without",
    "would",
    "you",
    "your",
];

/// The words that matter, plurals as singulars.
pub(super) fn topic(sentence: &Sentence) -> BTreeSet<String> {
    let words = sentence.words.iter().map(|word| word.text.as_str());
    words.filter(|word| word.len() >= 2 && EMPTY.binary_search(word).is_err()).map(stem).collect()
}

/// Whether two sentences are about the same: they share two words that matter, or half of those of the shorter.
pub(super) fn is_shared(one: &BTreeSet<String>, other: &BTreeSet<String>) -> bool {
    let shared = one.intersection(other).count();
    let shorter = one.len().min(other.len());
    shared > 0 && (shared >= 2 || shared * 2 >= shorter)
}

/// A word without the endings that change with its use; crude, and the same for both sides.
fn stem(word: &str) -> String {
    const ENDINGS: [&str; 6] = ["ing", "ies", "ed", "es", "s", "e"];
    let shortened =
        ENDINGS.iter().find_map(|ending| word.strip_suffix(ending).filter(|stem| stem.len() >= 3));
    shortened.unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::prose::sentences;

    #[test]
    fn the_table_is_sorted() {
        assert!(EMPTY.is_sorted());
    }

    #[test]
    fn sentences_about_the_same_share_words_that_matter() {
        let check = |one: &str, other: &str, expect: bool| {
            let [one, other] = [one, other].map(|text| topic(&sentences(text)[0]));
            assert_eq!(is_shared(&one, &other), expect, "{one:?} {other:?}");
        };
        check("Never touch the migrations folder.", "You can now change the migration folder.", true);
        check("Never touch the migrations.", "The migrations are fine now.", true);
        check(
            "No new dependencies, please, in the core crate.",
            "You can now run the integration tests.",
            false,
        );
        check("Please never do it.", "It is what it is.", false);
    }
}
