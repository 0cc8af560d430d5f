//! Words: a text as tokens that can be held against those of another text.
//!
//! Draft and session are taken apart by the same rules. Names and figures must be the same in both; a word may be
//! inflected otherwise. Punctuation parts clauses and sentences, because a word belongs to what stands beside it.

use std::{collections::HashMap, ops::Range, sync::LazyLock};

/// Words that add nothing to a claim, in the language that most agents answer in. A text without them is in a language
/// of which nothing is known: there no word is taken to be one that may be left out.
const FREE: &str = "the a an is are was were be been being am has have had do does did i we me us it its our my this \
                    that these those there here now also just already";

/// Words that turn what stands beside them into its opposite, or say that it was replaced.
const TURNING: &str = "not no never none nothing nobody neither nor without instead rather forget scratch revert reverted \
                       undo drop dropped replace replaced switch switching switched wrong longer actually";

/// Words that make of what stands beside them a wish, a plan, a condition or an exception.
const HEDGING: &str = "if unless until when except only but though although however almost will would shall should could \
                       can may might must let need want plan try tried trying going next todo later pending remaining \
                       yet maybe probably";

/// The words above by what they do: every word of a span is looked up here.
static KINDS: LazyLock<HashMap<&str, TokenKind>> = LazyLock::new(|| {
    let kinds = [(HEDGING, TokenKind::Hedging), (TURNING, TokenKind::Turning), (FREE, TokenKind::Free)];
    kinds.iter().flat_map(|(words, kind)| words.split_whitespace().map(|word| (word, *kind))).collect()
});

/// Words with which a clause begins that no punctuation parts from the one before.
const JOINING: [&str; 4] = ["and", "because", "so", "which"];

/// Endings in which two forms of a word differ.
const ENDINGS: [&str; 9] = ["", "e", "s", "es", "ing", "d", "ed", "n", "en"];

/// How the session's agent and its user are called by somebody else, and by the agent.
const SPEAKERS: [(&[&str], &[&str]); 2] = [
    (&["agent", "assistant"], &["i", "we", "me", "my", "our", "us"]),
    (&["user", "customer"], &["you", "your"]),
];

/// A word, a name or a figure, with where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WordToken {
    /// Its letters, in lower case.
    pub(super) text: String,
    pub(super) kind: TokenKind,
    /// The sentence it stands in, counted over the text.
    pub(super) sentence: usize,
    /// The clause it stands in, counted over the text.
    pub(super) clause: usize,
}

/// What a token does for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// It adds nothing.
    Free,
    /// It turns what stands beside it.
    Turning,
    /// It makes what stands beside it less than a fact.
    Hedging,
    /// It has figures or marks inside: a path, an id, a number.
    Name,
    /// Any other word.
    Word,
}

/// A text taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TextWords {
    pub(super) tokens: Vec<WordToken>,
    /// The sentences that say nothing by themselves: questions, and entries of a list whose title turns them.
    pub(super) mute: Vec<usize>,
}

impl TextWords {
    /// Takes a text apart.
    pub(super) fn of(text: &str) -> Self {
        let mut reader = WordReader::default();
        for line in text.lines() {
            reader.line(line);
        }
        reader.words
    }

    /// Where another text stands in this one from a token on.
    pub(super) fn place_of(&self, other: &Self, from: usize) -> Option<Range<usize>> {
        let length = other.tokens.len().max(1);
        let is_it = |own: &[WordToken]| {
            own.iter().map(|token| &token.text).eq(other.tokens.iter().map(|token| &token.text))
        };
        let start = from + self.tokens[from..].windows(length).position(is_it)?;
        Some(start..start + length)
    }

    /// The tokens of each sentence, in order.
    pub(super) fn sentences(&self) -> impl Iterator<Item = &[WordToken]> {
        self.tokens.chunk_by(|one, next| one.sentence == next.sentence)
    }
}

/// The tokens that say something.
pub(super) fn telling(tokens: &[WordToken]) -> impl Iterator<Item = &WordToken> {
    tokens.iter().filter(|token| token.kind != TokenKind::Free)
}

impl WordToken {
    /// Whether this token of a claim says what that token of the session says.
    pub(super) fn is_supported_by(&self, other: &Self) -> bool {
        if self.text == other.text {
            return true;
        }
        match (self.kind, other.kind) {
            (TokenKind::Name, TokenKind::Name) => {
                is_tail(&self.text, &other.text) || is_short_hash(&self.text, &other.text)
            }
            (TokenKind::Word, TokenKind::Word | TokenKind::Free) => {
                let is_speaker = |(others, agents): &(&[&str], &[&str])| {
                    others.contains(&self.text.as_str()) && agents.contains(&other.text.as_str())
                };
                SPEAKERS.iter().any(is_speaker) || is_inflected(&self.text, &other.text)
            }
            _ => false,
        }
    }

    /// Whether what stands beside it means something else without it.
    pub(super) fn changes_meaning(&self) -> bool {
        matches!(self.kind, TokenKind::Turning | TokenKind::Hedging)
    }

    /// Whether it says what a claim is about: no little word.
    pub(super) fn is_significant(&self) -> bool {
        let long = self.text.chars().count() > 2 || !self.text.is_ascii();
        self.kind == TokenKind::Name || (self.kind == TokenKind::Word && long)
    }

    /// Whether it is a number.
    pub(super) fn is_figure(&self) -> bool {
        self.text.starts_with(|letter: char| letter.is_numeric())
    }
}

/// Whether a path is the end of another, by whole components.
fn is_tail(tail: &str, path: &str) -> bool {
    path.strip_suffix(tail).is_some_and(|before| before.ends_with('/'))
}

/// Whether a hash is the beginning of another.
fn is_short_hash(short: &str, hash: &str) -> bool {
    const SHORTEST: usize = 7;
    short.len() >= SHORTEST && hash.starts_with(short) && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether two words are forms of one. What only names a deed does not bear that it was done: `add` is no `added`.
fn is_inflected(claimed: &str, said: &str) -> bool {
    const STEM: usize = 3;
    let shared =
        claimed.char_indices().zip(said.chars()).take_while(|((_, one), other)| one == other).count();
    let end = |word: &str, letters: usize| word.char_indices().nth(letters).map_or(word.len(), |(at, _)| at);
    // `moved` and `moving` differ behind `mov`, and an ending may begin before that.
    (STEM..=shared).rev().take(2).any(|stem| {
        let claimed = &claimed[end(claimed, stem)..];
        let said = &said[end(said, stem)..];
        let place = |ending| ENDINGS.iter().position(|known| *known == ending);
        let (Some(claimed), Some(said)) = (place(claimed), place(said)) else { return false };
        claimed < 5 || said > 1
    })
}

#[derive(Default)]
struct WordReader {
    words: TextWords,
    sentence: usize,
    clause: usize,
    /// Whether the entries of the list that is being read are turned by its title.
    turned: bool,
}

impl WordReader {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() {
            return;
        }
        let listed = text.starts_with(['-', '*', '•', '+'])
            || text.starts_with(|letter: char| letter.is_ascii_digit());
        if !listed {
            self.turned = false;
        }
        let first = self.words.tokens.len();
        let mut rest = text;
        while let Some(start) = rest.find(is_of_word) {
            self.part(&rest[..start]);
            rest = &rest[start..];
            let end = token_end(rest);
            self.token(&rest[..end]);
            rest = &rest[end..];
        }
        self.part(rest);
        if !listed && text.trim_end_matches(['*', '_']).ends_with(':') || text.starts_with('#') {
            self.turned = self.words.tokens[first..].iter().any(WordToken::changes_meaning);
        }
        self.end_sentence();
    }

    /// Reads what stands between two tokens.
    fn part(&mut self, between: &str) {
        if between.contains(['?', '？', '؟']) {
            self.words.mute.push(self.sentence);
        }
        if between.contains(['.', '!', '?', ';', '。', '！', '？', '؟', '；', '।']) {
            self.end_sentence();
        } else if between.contains([',', '(', ')', '—', '–', '、', '，', '،']) || between.contains(" - ")
        {
            self.clause += 1;
        }
    }

    fn end_sentence(&mut self) {
        if self.turned {
            self.words.mute.push(self.sentence);
        }
        self.sentence += 1;
        self.clause += 1;
    }

    fn token(&mut self, text: &str) {
        let lower = text.to_lowercase().replace('’', "'").replace('\\', "/");
        if lower.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'_')) {
            self.push(lower.replace([',', '_'], ""), TokenKind::Name);
        } else if lower
            .contains(|letter: char| letter.is_numeric() || matches!(letter, '/' | '.' | '_' | '@'))
        {
            self.push(lower, TokenKind::Name);
        } else {
            lower.split('-').for_each(|word| self.word(word));
        }
    }

    /// A word without marks inside but those of an omission.
    fn word(&mut self, word: &str) {
        let (word, cut) = word.split_once('\'').unwrap_or((word, ""));
        let negated = cut == "t" && word.ends_with('n') || word == "cannot";
        let word = match word {
            "cannot" | "can" if negated => "can",
            "won" if negated => "will",
            word if negated => word.strip_suffix('n').unwrap_or(word),
            word => word,
        };
        let kind = match word {
            word if JOINING.contains(&word) => {
                self.clause += 1;
                TokenKind::Free
            }
            word => KINDS.get(word).copied().unwrap_or(TokenKind::Word),
        };
        self.push(word.to_owned(), kind);
        match cut {
            _ if negated => self.push("not".to_owned(), TokenKind::Turning),
            "ll" => self.push("will".to_owned(), TokenKind::Hedging),
            "d" => self.push("would".to_owned(), TokenKind::Hedging),
            _ => {}
        }
    }

    fn push(&mut self, text: String, kind: TokenKind) {
        let (sentence, clause) = (self.sentence, self.clause);
        self.words.tokens.push(WordToken { text, kind, sentence, clause });
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric()
}

/// Letters of scripts that are written without spaces are tokens by themselves.
fn is_unspaced(letter: char) -> bool {
    matches!(u32::from(letter), 0x2E80..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x3FFFF)
}

/// How long the token is that a text begins with.
fn token_end(text: &str) -> usize {
    let mut letters = text.char_indices().peekable();
    let mut last = ' ';
    while let Some((at, letter)) = letters.next() {
        if is_unspaced(letter) {
            return if at == 0 { letter.len_utf8() } else { at };
        }
        if !is_of_word(letter) {
            let next = letters.peek().map_or(' ', |(_, next)| *next);
            let digits = last.is_ascii_digit() && next.is_ascii_digit();
            let joined = match letter {
                '/' | '\\' | '_' | '.' | '-' | '@' | '\'' | '’' => is_of_word(next) || next == '_',
                ':' | ',' => digits,
                _ => false,
            };
            if !joined {
                return at;
            }
        }
        last = letter;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let words = TextWords::of(text);
        let clauses = words.tokens.chunk_by(|one, next| one.clause == next.clause).map(|clause| {
            let mark = |token: &WordToken| match token.kind {
                TokenKind::Free => format!("({})", token.text),
                TokenKind::Turning | TokenKind::Hedging => format!("!{}", token.text),
                TokenKind::Name => format!("`{}`", token.text),
                TokenKind::Word => token.text.clone(),
            };
            clause.iter().map(mark).collect::<Vec<_>>().join(" ")
        });
        clauses.collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn a_text_is_taken_apart_into_clauses_names_and_words() {
        let check = |text: &str, expect: &str| assert_eq!(show(text), expect, "{text}");
        check(
            "I chose `src/a.rs`, because it’s read-only.",
            "(i) chose `src/a.rs` | (because) (it) read !only",
        );
        check("It didn't work; we can’t go on", "(it) (did) !not work | (we) !can !not go on");
        check("1,234 rows at 14:10, 82 kB", "`1234` rows at `14:10` | `82` kb");
        check("C:\\repo\\a.rs and K-204", "c `repo/a.rs` | (and) `k-204`");
        check("改了src/a.rs吗", "改 了 `src/a.rs` 吗");
        check("foo(bar, baz)", "foo | bar | baz");
    }

    #[test]
    fn words_are_known_in_other_forms_and_names_are_not() {
        let check = |claimed: &str, said: &str, expect: bool| {
            let (claimed, said) = (TextWords::of(claimed), TextWords::of(said));
            assert_eq!(claimed.tokens[0].is_supported_by(&said.tokens[0]), expect, "{claimed:?} {said:?}");
        };
        for (claimed, said) in [
            ("rejected", "rejects"),
            ("moved", "moving"),
            ("tests", "test"),
            ("a.rs", "src/a.rs"),
            ("3f2a9c1", "3f2a9c1d8e7b6a5f"),
            ("agent", "I"),
            ("user's", "your"),
            ("pass", "passes"),
        ] {
            check(claimed, said, true);
        }
        for (claimed, said) in [
            ("added", "add"),
            ("moved", "move"),
            ("Martin", "Marta"),
            ("fill", "film"),
            ("a.rs", "src/ba.rs"),
            ("12", "1234"),
            ("user", "I"),
            ("not", "note"),
            ("abc-124", "abc-123"),
            ("k-204", "k-311"),
        ] {
            check(claimed, said, false);
        }
    }

    #[test]
    fn questions_and_lists_of_what_is_to_come_say_nothing() {
        let mute = |text: &str| TextWords::of(text).mute.len();
        assert_eq!(mute("Shall we? We do."), 1);
        assert_eq!(mute("Next steps:\n- add retries\n- add tests\n\nI added a cache."), 3, "with the title");
        assert_eq!(mute("What I did:\n- added retries"), 0);
    }
}
