//! Distinctive words, which show that a later text drew on an earlier one.
//!
//! A word is distinctive by its form. Words that could be English, plain numbers, and names that every model
//! knows say nothing about their source and are skipped.

use super::{
    common_names::{COMMON_EXTENSIONS, COMMON_NAMES, COMMON_OPTIONS, COMMON_PATHS},
    search_patterns::MatchEdge,
};

/// Form of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum WordForm {
    /// An identifier.
    Name,
    /// A name of several words with digits: a UUID, a dated id, a ticket.
    Id,
    /// A hash, or its beginning.
    Hash,
    /// A number of four or more digits.
    Number,
    /// A version.
    Version,
    /// A long option of several words.
    Flag,
    /// A URL.
    Url,
    /// A path or the name of a file.
    Path,
}

impl WordForm {
    /// Text that may surround the word.
    pub(super) fn edge(self) -> MatchEdge {
        match self {
            Self::Name | Self::Id | Self::Number | Self::Version | Self::Url => MatchEdge::Word,
            Self::Hash => MatchEdge::Hash,
            Self::Flag => MatchEdge::Flag,
            Self::Path => MatchEdge::Path,
        }
    }
}

/// Longest word; anything longer is data.
const MAX_WORD_BYTES: usize = 200;

/// Calls `see` with every distinctive word of a text.
pub(super) fn distinctive<'t>(text: &'t str, see: &mut impl FnMut(&'t str, WordForm)) {
    for chunk in text.split(is_break) {
        if chunk.len() < 4 || chunk.len() > MAX_WORD_BYTES {
            continue;
        }
        // Escapes within a text, as in JSON, also separate words.
        let mut rest = chunk;
        while let Some(at) = rest.find('\\') {
            of_chunk(&rest[..at], see);
            rest = rest[at + 1..].strip_prefix(['n', 't', 'r']).unwrap_or(&rest[at + 1..]);
        }
        of_chunk(rest, see);
    }
}

fn is_break(letter: char) -> bool {
    letter.is_whitespace()
        || !letter.is_ascii() && !letter.is_alphanumeric()
        || matches!(
            letter,
            '"' | '\''
                | '`'
                | '('
                | ')'
                | '['
                | ']'
                | '{'
                | '}'
                | '<'
                | '>'
                | ','
                | ';'
                | '|'
                | '*'
                | '!'
                | '^'
                | '='
        )
}

fn of_chunk<'t>(chunk: &'t str, see: &mut impl FnMut(&'t str, WordForm)) {
    if let Some(at) = chunk.find("://") {
        let start =
            chunk[..at].rfind(|letter: char| !letter.is_ascii_alphabetic()).map_or(0, |last| last + 1);
        let url = chunk[start..].trim_end_matches(['.', ':', '/', '?', '-', '#', '&']);
        if matches!(&chunk[start..at], "http" | "https" | "ssh" | "git") && url.len() >= at - start + 8 {
            see(url, WordForm::Url);
        }
        return;
    }
    let chunk = chunk.trim_end_matches(['.', ':', '-', '+', '~', '?', '&', '#', '%', '$', '@']);
    if let Some(name) = chunk.strip_prefix("--") {
        if is_long_option(name) {
            see(chunk, WordForm::Flag);
        }
        return;
    }
    let path = without_place(chunk.trim_start_matches([':', '@', '+', '#', '%', '&', '-', '?']));
    if path.contains('/') {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        if is_path(path) {
            see(path, WordForm::Path);
            return;
        }
    } else if is_file_name(path) {
        see(path, WordForm::Path);
        return;
    }
    for word in chunk.split(['/', ':', '@', '+', '#', '%', '$', '~', '?', '&']) {
        of_word(word.trim_matches(['.', '-']), see);
    }
}

fn of_word<'t>(word: &'t str, see: &mut impl FnMut(&'t str, WordForm)) {
    if is_version(word) {
        see(word, WordForm::Version);
    } else if word.contains('-') && is_id(word) {
        see(word, WordForm::Id);
    } else {
        for piece in word.split(['.', '-']) {
            if is_number(piece) {
                see(piece, WordForm::Number);
            } else if is_hash(piece) {
                see(piece, WordForm::Hash);
            } else if is_name(piece) {
                see(piece, WordForm::Name);
            }
        }
    }
}

/// Removes the position from names such as `src/a.rs:12:5`.
fn without_place(chunk: &str) -> &str {
    let mut path = chunk;
    while let Some((head, tail)) = path.rsplit_once(':') {
        if tail.is_empty() || !tail.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            break;
        }
        path = head;
    }
    path
}

/// Returns true for options such as `no-verify`, but not `help`.
fn is_long_option(name: &str) -> bool {
    name.len() >= 6
        && name.contains('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !COMMON_OPTIONS.contains(&name)
}

/// Returns true if a text with a slash is a path and not several words.
fn is_path(text: &str) -> bool {
    let mut components =
        text.strip_prefix('/').or_else(|| text.strip_prefix("~/")).unwrap_or(text).split('/');
    let is_component = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+@~%$".contains(&byte))
    };
    let count = components.clone().count();
    let last = components.clone().next_back().unwrap_or_default();
    let rooted = text.starts_with(['/', '~']);
    let named = components.clone().any(|part| part.contains(['_', '.']) || part.matches('-').count() >= 2);
    (count >= 2 || rooted && is_file_name(last))
        && text.len() >= 8
        && components.all(is_component)
        && text.contains(|letter: char| letter.is_ascii_alphabetic())
        && (rooted && count >= 3
            || is_file_name(last)
            || named && count >= 2 && text.len() >= 12
            || count >= 4)
        && !COMMON_PATHS.contains(&text)
}

/// Returns true if a word ends like a file name.
pub(super) fn is_file_name(word: &str) -> bool {
    let Some((stem, ending)) = word.rsplit_once('.') else { return false };
    stem.len() >= 2
        && stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+@".contains(&byte))
        && stem.contains(|letter: char| letter.is_ascii_alphabetic())
        && COMMON_EXTENSIONS.contains(&ending)
        && !COMMON_PATHS.contains(&word)
}

/// Returns true for versions such as `1.2.3`, `v1.2`, `1.2.3-rc1`.
fn is_version(word: &str) -> bool {
    let bare = word.strip_prefix('v').unwrap_or(word);
    let (numbers, more) = bare.split_once(['-', '+']).unwrap_or((bare, ""));
    let parts = numbers.split('.').count();
    let digits = numbers
        .split('.')
        .all(|part| (1..=6).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()));
    let least = if word.len() > bare.len() { 2 } else { 3 };
    digits
        && parts >= least
        && parts <= 4
        && more.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-')
        && !matches!(
            word,
            "127.0.0.1" | "0.0.0.0" | "1.0.0" | "0.0.0" | "0.1.0" | "1.2.3" | "v1.0" | "v1.0.0"
        )
}

/// Returns true for a name of several words with so many digits that a model cannot have guessed it.
fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let ticket = word.split_once('-').is_some_and(|(project, number)| {
        (2..=6).contains(&project.len())
            && project.bytes().all(|byte| byte.is_ascii_uppercase())
            && (2..=6).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && !matches!(project, "UTF" | "SHA" | "AES" | "ISO" | "RFC" | "HTTP" | "MD")
    });
    let range = word.split('-').all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    // `1234-1300` is a range of two numbers; `2026-01-29` is a date.
    plain && (ticket || digits >= 4 && word.len() >= 8 && (!range || word.matches('-').count() >= 2))
}

/// Returns true for four digits or more that a model would not guess.
fn is_number(word: &str) -> bool {
    let digits = word.len() >= 4 && word.len() <= 20 && word.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = word.parse::<u64>().ok().filter(|_| digits) else { return false };
    let year = word.len() == 4 && (1900..=2100).contains(&number);
    let sequence = "1234567890".starts_with(word) || "0123456789".starts_with(word);
    let same = word.bytes().all(|byte| byte == word.as_bytes()[0]);
    let port = matches!(number, 8080 | 8443 | 5432 | 3306 | 6379);
    !(year || sequence || same || port || number % 100 == 0 || number.is_power_of_two() || number % 3600 == 0)
}

/// Returns true for seven or more hexadecimal digits with both letters and numbers.
fn is_hash(word: &str) -> bool {
    (7..=64).contains(&word.len())
        && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Returns true for an identifier of several words, or with digits, that is no English word.
pub(super) fn is_name(word: &str) -> bool {
    let bytes = word.as_bytes();
    if word.len() < 6 || !bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return false;
    }
    let core = word.trim_matches('_');
    let joined = core.contains('_') && core.bytes().any(|byte| byte.is_ascii_alphabetic());
    let humps = core
        .as_bytes()
        .windows(2)
        .filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let digits = core.bytes().filter(u8::is_ascii_digit).count();
    let letters = core.bytes().filter(u8::is_ascii_alphabetic).count();
    let lettered = digits >= 2 && letters >= 3;
    // `SESSION` and `Sessions` are English, `_____` is a rule, `10ms` an amount.
    (joined || humps.count() >= 1 || lettered)
        && !bytes[0].is_ascii_digit()
        && letters >= 4
        && COMMON_NAMES.binary_search(&word).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[(&str, WordForm)]) {
        let mut found = Vec::new();
        distinctive(text, &mut |word, form| found.push((word, form)));
        assert_eq!(found, expect, "{text:?}");
    }

    #[test]
    fn common_names_are_sorted() {
        assert!(COMMON_NAMES.is_sorted());
    }

    #[test]
    fn words_are_told_by_their_form() {
        check(
            "see parseHeader() in snake_case.",
            &[("parseHeader", WordForm::Name), ("snake_case", WordForm::Name)],
        );
        check("at src/net/http.go:120:4,", &[("src/net/http.go", WordForm::Path)]);
        check(
            "./docs/plan.md and README.md",
            &[("docs/plan.md", WordForm::Path), ("README.md", WordForm::Path)],
        );
        check(
            "commit 3f2a9bc1d of v1.24.3-rc1",
            &[("3f2a9bc1d", WordForm::Hash), ("v1.24.3-rc1", WordForm::Version)],
        );
        check("lines 4821-4903", &[("4821", WordForm::Number), ("4903", WordForm::Number)]);
        check("--allow-unrelated-histories=yes", &[("--allow-unrelated-histories", WordForm::Flag)]);
        check("(https://example.org/a?b=1).", &[("https://example.org/a?b", WordForm::Url)]);
        check(
            "b82405ba-a054-4152-bc86-e9b0d4832b68",
            &[("b82405ba-a054-4152-bc86-e9b0d4832b68", WordForm::Id)],
        );
        check("{\\n  \\\"fooBar\\\": 1", &[("fooBar", WordForm::Name)]);
        check("DEV-1021: the PR", &[("DEV-1021", WordForm::Id)]);
    }

    #[test]
    fn plain_words_and_numbers_are_not_distinctive() {
        check(
            "Sessions fail and/or hang in 2024 after 1000 or 4096 ms, read/write, SESSION, e.g. main, test.",
            &[],
        );
        check(
            "well-known end-to-end GitHub HasPrefix uint64 --help --oneline -n /dev/null 10.5 1,000,000",
            &[],
        );
    }
}
