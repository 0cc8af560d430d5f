//! Answers of a server: a draft, or an error with the time to ask again.

use std::time::Duration;

use epitome_wire::{Format, WireError, overflow::detect_overflow, plain_request::ReplyContent};
use jiff::fmt::rfc2822;
use reqwest::header::{self, HeaderMap};
use secrecy::{ExposeSecret, SecretString};

use crate::summarise::{ModelDraft, SummarizeError};

/// Most characters of a server's error message that are quoted.
const MAX_QUOTED_CHARS: usize = 300;

/// Reader of a server's answers, however the question was sent.
///
/// Every answer is searched for the secrets that the server was shown before it is passed on: some servers
/// echo what they were sent.
#[derive(Clone, Copy, Debug)]
pub struct ServerAnswerReader<'r> {
    /// Format of the answer.
    pub format: Format,
    /// Host of the server, as errors name it.
    pub host: &'r str,
    /// Secrets that the server was shown and that must be removed.
    pub secrets: &'r [SecretString],
}

impl ServerAnswerReader<'_> {
    /// Reads the draft from an answer with a successful status.
    pub fn answered(&self, body: &str) -> Result<ModelDraft, SummarizeError> {
        let host = || self.host.to_owned();
        let reply = self.format.read_plain_reply(body).map_err(|error| match error {
            WireError::NoAnswer { .. } => SummarizeError::Failed { host: host(), said: self.words(body) },
            source => SummarizeError::Unreadable { host: host(), source },
        })?;
        if reply.content == ReplyContent::ReasoningOnly {
            return Err(SummarizeError::ReasoningOnly { host: host() });
        }
        Ok(ModelDraft {
            text: self.redacted(&reply.text),
            finish: reply.finish,
            usage: reply.usage,
            model: reply.model.map(|model| self.redacted(&model)),
        })
    }

    /// Makes the error for an answer with any other status.
    pub fn refused(&self, status: u16, headers: &HeaderMap, body: &str) -> SummarizeError {
        let host = self.host.to_owned();
        let said = self.words(body);
        let after = after(headers);
        if detect_overflow(self.format, status, body.as_bytes()).is_some() {
            SummarizeError::Overflow { host, said }
        } else if status == 429 && !body.contains("insufficient_quota") {
            SummarizeError::RateLimited { host, after, said }
        } else {
            SummarizeError::Refused { host, status, said, after }
        }
    }

    /// Makes the error for a redirect. It is not followed.
    pub fn redirected(&self, to: Option<&str>) -> SummarizeError {
        let to = to.map_or_else(|| "an address that cannot be read".to_owned(), |to| self.redacted(to));
        SummarizeError::Redirected { host: self.host.to_owned(), to }
    }

    /// Error message of the server.
    fn words(&self, body: &str) -> String {
        short(&self.redacted(&said(self.format, body)))
    }

    fn redacted(&self, text: &str) -> String {
        redacted(text, self.secrets)
    }
}

/// The message in a format's error JSON, else the body as it is.
fn said(format: Format, body: &str) -> String {
    match format.read_plain_reply(body) {
        Err(WireError::NoAnswer { said, .. }) => said,
        _ => body.to_owned(),
    }
}

/// Beginning of a text, on one line.
fn short(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > MAX_QUOTED_CHARS {
            return line.chars().take(MAX_QUOTED_CHARS).chain(['…']).collect();
        }
    }
    if line.is_empty() { "it does not say why".to_owned() } else { line }
}

/// Removes the secrets from a text.
fn redacted(text: &str, secrets: &[SecretString]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| !secret.is_empty()) {
        if text.contains(secret) {
            text = text.replace(secret, "[key]");
        }
    }
    text
}

/// Time that the server asks to wait. A date is compared with the server's own `Date` header: our clock may
/// be wrong, and this library reads none.
fn after(headers: &HeaderMap) -> Option<Duration> {
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
        assert_eq!(short(&"x".repeat(100_000)).chars().count(), MAX_QUOTED_CHARS + 1);
        let secrets = ["canary".into(), "".into(), "bird".into()];
        assert_eq!(redacted("a canary b canary", &secrets), "a [key] b [key]");
        assert_eq!(redacted("a bird", &[]), "a bird");
    }
}
