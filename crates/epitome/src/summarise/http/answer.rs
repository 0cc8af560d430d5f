//! What a server says when it does not answer: its words, and when to come back.

use std::time::Duration;

use epitome_wire::{Format, WireError};
use jiff::fmt::rfc2822;
use reqwest::header::{self, HeaderMap};
use secrecy::{ExposeSecret, SecretString};

/// As much of a server's words as an error repeats, in characters.
const WORDS: usize = 300;

/// The words of an error in a format's JSON, else the body as it is.
pub(super) fn said(format: Format, body: &str) -> String {
    match format.reply(body) {
        Err(WireError::NoAnswer { said, .. }) => said,
        _ => body.to_owned(),
    }
}

/// The beginning of a text, on one line.
pub(super) fn short(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > WORDS {
            return line.chars().take(WORDS).chain(['…']).collect();
        }
    }
    if line.is_empty() { "it does not say why".to_owned() } else { line }
}

/// The text without the key, if it holds it.
pub(super) fn redacted(text: &str, key: Option<&SecretString>) -> String {
    match key {
        Some(key) => text.replace(key.expose_secret(), "[key]"),
        None => text.to_owned(),
    }
}

/// When the server wants to be asked again. A date is read by the server's own clock, which goes along with it: ours may
/// be wrong, and nobody here looks at one.
pub(super) fn after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok());
    let asked = header::RETRY_AFTER.as_str();
    if let Some(milliseconds) = number("retry-after-ms") {
        return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
    }
    if let Some(seconds) = number(asked) {
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO));
    }
    let date = |name: &str| text(name).and_then(|text| rfc2822::parse(text).ok());
    let wait = date(asked)?.timestamp().as_millisecond() - date("date")?.timestamp().as_millisecond();
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn when_to_come_back_is_read_as_seconds_milliseconds_or_a_date() {
        let check = |list: &[(&'static str, &str)], expect: Option<u64>| {
            assert_eq!(after(&headers(list)), expect.map(Duration::from_millis), "{list:?}");
        };
        check(&[], None);
        check(&[("retry-after", "7")], Some(7_000));
        check(&[("retry-after", " 0.5 ")], Some(500));
        check(&[("retry-after", "9"), ("retry-after-ms", "250")], Some(250));
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        check(&[date, ("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], Some(60_000));
        check(&[date, ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], Some(0));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], None);
        check(&[date, ("retry-after", "soon")], None);
        check(&[("retry-after", "-3")], Some(0));
        check(&[("retry-after", "NaN")], Some(0));
        assert!(after(&headers(&[("retry-after", "1e15")])).unwrap() > Duration::from_secs(1_000_000));
    }

    #[test]
    fn a_servers_words_are_one_short_line_without_the_key() {
        assert_eq!(said(Format::OpenaiChat, r#"{"error":{"message":"no\nsuch model"}}"#), "no\nsuch model");
        assert_eq!(said(Format::Anthropic, "<html>"), "<html>");
        assert_eq!(short("no\n such\u{7}model"), "no such model");
        assert_eq!(short(" \n"), "it does not say why");
        assert_eq!(short(&"x".repeat(100_000)).chars().count(), WORDS + 1);
        assert_eq!(redacted("a canary b canary", Some(&"canary".into())), "a [key] b [key]");
    }
}
