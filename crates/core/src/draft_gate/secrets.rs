//! Keys and passwords: what no model may carry into a summary.
//!
//! A summary lives as long as its session and is sent with every request, so that a key echoed into one is leaked for
//! good. Known prefixes and names are looked for, not randomness: a commit's hash is random too, and is wanted.

use std::{ops::Range, sync::LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// What stands in place of a key.
const LEFT_OUT: &str = "[a key, left out]";

/// Whether a text looks as if it held a key or a password.
pub(crate) fn holds_secret(text: &str) -> bool {
    !keys_in(text).is_empty() || names_value(text) || has_login(text)
}

/// Prefixes of issued keys, by how many letters follow at least.
const KEYS: [(usize, &[&str]); 6] = [
    (10, &["xoxb-", "xoxp-", "xoxa-", "xoxs-"]),
    (12, &["sk_live_", "sk_test_", "rk_live_", "pk_live_"]),
    (16, &["sk-", "AKIA", "ASIA", "glpat-"]),
    (20, &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "gsk_"]),
    (30, &["AIza", "npm_", "hf_", "SG."]),
    (60, &["eyJ"]),
];

/// How the line before a private key begins, and that of much else.
const PRIVATE_KEY: &str = "-----BEGIN ";

/// Finds the beginning of any key in one pass: few texts have one.
static BEGINNINGS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let beginnings = KEYS.iter().flat_map(|(_, prefixes)| *prefixes).chain([&PRIVATE_KEY]);
    let search = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(beginnings);
    search.expect("the prefixes are few")
});

/// A text with a mark in place of each issued key and each private one. Unlike [`holds_secret`] it leaves alone what only
/// names a secret, as code does.
pub(crate) fn without_keys(text: &str) -> String {
    let mut keys = keys_in(text);
    keys.sort_by_key(|key| key.start);
    let mut left = String::with_capacity(text.len());
    let mut told = 0;
    for key in keys {
        if key.start >= told {
            left.push_str(&text[told..key.start]);
            left.push_str(LEFT_OUT);
            told = key.end;
        }
    }
    left.push_str(&text[told..]);
    left
}

/// Where keys stand in a text.
fn keys_in(text: &str) -> Vec<Range<usize>> {
    if !BEGINNINGS.is_match(text) {
        return Vec::new();
    }
    let prefixes =
        KEYS.iter().flat_map(|(least, prefixes)| prefixes.iter().map(move |prefix| (prefix, least)));
    let issued = prefixes.flat_map(|(prefix, least)| issued_keys_in(text, prefix, *least));
    issued.chain(private_keys_in(text)).collect()
}

/// Where the keys with a prefix stand in a text.
fn issued_keys_in(text: &str, prefix: &str, least: usize) -> Vec<Range<usize>> {
    let is_of_key = |letter: char| letter.is_ascii_alphanumeric() || "-_./+~".contains(letter);
    let mut keys = Vec::new();
    // A run of letters of a key is read once, however often the prefix stands in it: whatever begins later in it is shorter.
    let mut read = 0;
    for (at, _) in text.match_indices(prefix) {
        let before = &text[..at];
        // In JSON the letter before a word may be that of an escape.
        let is_escape = before.len() >= 2 && before.as_bytes()[before.len() - 2] == b'\\';
        let begins = is_escape || before.chars().next_back().is_none_or(|letter| !letter.is_alphanumeric());
        if at < read || !begins {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let length = rest.find(|letter| !is_of_key(letter)).unwrap_or(rest.len());
        read = at + prefix.len() + length;
        if rest[..length].bytes().filter(u8::is_ascii_alphanumeric).count() >= least {
            keys.push(at..read);
        }
    }
    keys
}

/// Where private keys stand in a text, from their first line to their last; one without a last line goes on to the end.
fn private_keys_in(text: &str) -> Vec<Range<usize>> {
    const LONGEST_KIND: usize = 40;
    let mut keys = Vec::new();
    let mut from = 0;
    while let Some(begin) = text[from..].find(PRIVATE_KEY).map(|at| from + at) {
        from = begin + PRIVATE_KEY.len();
        let line = &text[from..text.floor_char_boundary(from + LONGEST_KIND)];
        if line.split("-----").next().is_some_and(|kind| kind.contains("PRIVATE KEY")) {
            let last = text[from..].find("-----END ").map(|at| from + at + "-----END ".len());
            let end = last.and_then(|last| text[last..].find("-----").map(|at| last + at + "-----".len()));
            from = end.unwrap_or(text.len());
            keys.push(begin..from);
        }
    }
    keys
}

/// `password=…`, `api_key: …`, `Authorization: Bearer …`
fn names_value(text: &str) -> bool {
    const NAMES: &str = "password passwd passphrase secret secret_key secretkey api_key apikey api-key _token private_key bearer";
    let lower = text.to_ascii_lowercase();
    NAMES.split(' ').any(|name| {
        lower.match_indices(name).any(|(at, _)| {
            let rest = &text[at + name.len()..];
            let rest = rest.trim_start_matches(['"', '\'', '`']);
            match (name, rest.chars().next()) {
                ("bearer", Some(' ')) => is_random_value(value(rest)),
                // With a colon and a space words may follow as well as a value.
                (_, Some(':')) if rest[1..].starts_with(' ') => is_random_value(value(&rest[1..])),
                (_, Some('=' | ':')) => is_value(value(&rest[1..])),
                _ => false,
            }
        })
    })
}

fn value(text: &str) -> &str {
    // A value is judged by how it begins: one that never ends is not read again from each name in it.
    const LONGEST: usize = 256;
    let text = &text[..text.floor_char_boundary(LONGEST)];
    let text = text.trim_start_matches([' ', '"', '\'', '`']);
    text.split(|letter: char| letter.is_whitespace() || "\"'`,;)}&".contains(letter))
        .next()
        .unwrap_or_default()
}

/// Whether what is assigned is a value, and not a variable or a blank to be filled in.
fn is_value(value: &str) -> bool {
    const BLANKS: [&str; 8] =
        ["none", "null", "true", "false", "required", "changeme", "undefined", "process.env"];
    let lower = value.to_ascii_lowercase();
    value.len() >= 4
        && !value.starts_with(['$', '<', '{', '[', '%', '*', '('])
        && !value.contains("***")
        && !value.contains("...")
        && !BLANKS.iter().any(|blank| lower.starts_with(blank))
        && !value.contains('(')
}

fn is_random_value(value: &str) -> bool {
    let has = |kind: fn(&char) -> bool| value.chars().any(|letter| kind(&letter));
    is_value(value) && value.len() >= 8 && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

/// `https://user:password@host`
fn has_login(text: &str) -> bool {
    text.match_indices("://").any(|(at, mark)| {
        let rest = &text[at + mark.len()..];
        let end = rest
            .find(|letter: char| letter.is_whitespace() || "/\"'`<>".contains(letter))
            .unwrap_or(rest.len());
        let login = rest[..end].rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
        login.is_some_and(|(_, password)| is_value(password))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_passwords_are_seen_and_words_about_them_are_not() {
        for text in [
            "the key is sk-abcdefghijklmnopqrstuvwx",
            "use `sk-ant-api03-AbCdEfGhIjKlMnOpQr`",
            "AKIAIOSFODNN7EXAMPLE",
            "token=ghp_0123456789abcdefghijABCDEFGHIJ",
            "-----BEGIN RSA PRIVATE KEY----- MIIE",
            "DB password=hunter22",
            "\"api_key\": \"a8f3k2j1h4g5\"",
            "Authorization: Bearer abc123def456",
            "postgres://app:s3cretpw@db/x",
        ] {
            assert!(holds_secret(text), "{text}");
        }
        for text in [
            "the password: it must be hashed with argon2",
            "password=$DB_PASSWORD",
            "password=<redacted>",
            "the api_key is read from the environment",
            "commit 3f2a9c1d8e7b6a5f4e3d2c1b0a99887766554433",
            "sk-learn is used",
            "https://example.org/a@b",
            "the bearer token is missing",
            "password field added to src/login.rs",
        ] {
            assert!(!holds_secret(text), "{text}");
        }
    }

    #[test]
    fn keys_are_taken_out_of_a_text_and_names_of_secrets_stay() {
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(3));
        let check = |text: &str, expect: &str| assert_eq!(without_keys(text), expect);
        check(&format!("token={key}; {key}"), "token=[a key, left out]; [a key, left out]");
        check(&format!(r#"{{"env":"A\n{key}\nB"}}"#), r#"{"env":"A\n[a key, left out]\nB"}"#);
        check("let password: String = task-sk-list;", "let password: String = task-sk-list;");
        check("", "");
    }

    #[test]
    fn a_private_key_is_taken_out_to_its_last_line_or_to_the_end() {
        let check = |text: &str, expect: &str| assert_eq!(without_keys(text), expect);
        let key =
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----";
        check(&format!("$ cat id\n{key}\n$ ls"), "$ cat id\n[a key, left out]\n$ ls");
        check(&key[..60], "[a key, left out]");
        check(&format!("{key}{key}"), "[a key, left out][a key, left out]");
        let public = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----";
        check(public, public);
    }

    #[test]
    fn what_looks_like_the_beginning_of_a_key_again_and_again_is_read_once() {
        // Read anew from each beginning, a megabyte of them takes a quarter of an hour.
        for piece in ["sk-", "eyJ", "x-sk-", "password=", "-----BEGIN ", "-----BEGIN PRIVATE KEY"] {
            let text = piece.repeat(1_000_000 / piece.len()) + "(";
            without_keys(&text);
            holds_secret(&text);
        }
    }
}
