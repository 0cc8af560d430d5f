//! Keys and passwords: what no model may carry into a summary.
//!
//! A summary lives as long as its session and is sent with every request, so that a key echoed into one is leaked for
//! good. Known prefixes and names are looked for, not randomness: a commit's hash is random too, and is wanted.

/// Whether a text looks as if it held a key or a password.
pub(crate) fn holds_secret(text: &str) -> bool {
    text.contains("-----BEGIN ") && text.contains("PRIVATE KEY")
        || text.split(is_between).any(is_key)
        || names_value(text)
        || has_login(text)
}

fn is_between(letter: char) -> bool {
    letter.is_whitespace() || "\"'`<>()[]{},;=:|&?#“”‘’".contains(letter)
}

/// Prefixes of issued keys, and how many letters follow at least.
const KEYS: [(&str, usize); 24] = [
    ("sk-", 16),
    ("sk_live_", 12),
    ("sk_test_", 12),
    ("rk_live_", 12),
    ("pk_live_", 12),
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xoxs-", 10),
    ("AIza", 30),
    ("npm_", 30),
    ("hf_", 30),
    ("SG.", 30),
    ("gsk_", 20),
    ("eyJ", 60),
];

fn is_key(word: &str) -> bool {
    let fits = |rest: &str, least: usize| {
        let letters = rest.chars().filter(char::is_ascii_alphanumeric).count();
        letters >= least
            && rest.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./+~".contains(letter))
    };
    KEYS.iter().any(|(prefix, least)| word.strip_prefix(prefix).is_some_and(|rest| fits(rest, *least)))
}

/// `password=…`, `api_key: …`, `Authorization: Bearer …`
fn names_value(text: &str) -> bool {
    const NAMES: [&str; 14] = [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "secret_key",
        "secretkey",
        "client_secret",
        "api_key",
        "apikey",
        "api-key",
        "access_token",
        "auth_token",
        "private_key",
        "bearer",
    ];
    let lower = text.to_ascii_lowercase();
    NAMES.iter().any(|name| {
        lower.match_indices(name).any(|(at, _)| {
            let rest = &text[at + name.len()..];
            let rest = rest.trim_start_matches(['"', '\'', '`']);
            match (*name, rest.chars().next()) {
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
    let text = text.trim_start_matches([' ', '"', '\'', '`']);
    text.split(|letter: char| letter.is_whitespace() || "\"'`,;)}&".contains(letter))
        .next()
        .unwrap_or_default()
}

/// Whether what is assigned is a value, and not a variable or a blank to be filled in.
fn is_value(value: &str) -> bool {
    const BLANKS: [&str; 10] = [
        "none",
        "null",
        "true",
        "false",
        "required",
        "changeme",
        "undefined",
        "string",
        "redacted",
        "process.env",
    ];
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
}
