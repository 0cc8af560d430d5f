//! Headers that are passed on, in their order and number and with the values they came with, and headers that
//! are not.
//!
//! Headers that concern one connection only (RFC 9110, 7.6.1) and headers meant for the gateway are left out.
//! So is `Expect`: the gateway asks for the body itself. Maps are built anew, because taking an entry out of
//! one changes the order of the rest.

use std::sync::LazyLock;

use epitome::wire::{Format, endpoint::KeyHeader};
use http::{
    HeaderMap, HeaderName,
    header::{self, HeaderValue},
};

/// A key that a provider is shown instead of the client's.
#[derive(Debug)]
pub(super) struct UpstreamKey {
    /// The key by itself.
    pub(super) plain: HeaderValue,
    /// The key after `Bearer`.
    pub(super) bearer: HeaderValue,
}

/// Headers of a request as its provider gets them: with `host` of the provider, and `key` in place of the
/// client's, if given.
pub(super) fn to_provider(
    headers: &HeaderMap,
    host: &HeaderValue,
    key: Option<(&UpstreamKey, Format)>,
) -> HeaderMap {
    let named = ConnectionHeaders::by(headers);
    let mut sent = HeaderMap::with_capacity(headers.keys_len() + 2);
    let mut keys = key.map(|(key, format)| keyed(key, format));
    let is_replaced = keys.is_some();
    for (name, value) in headers {
        if *name == header::HOST {
            if !sent.contains_key(header::HOST) {
                sent.append(header::HOST, host.clone());
            }
        } else if is_replaced && is_key(name) {
            if let Some((name, value)) = keys.take() {
                sent.append(name, value);
            }
        } else if *name == header::TRANSFER_ENCODING {
            // The size of chunks is the connection's business, but a body that comes in chunks also leaves in
            // chunks.
            sent.append(name, value.clone());
        } else if !is_of_connection(name) && !named.holds(name) && !is_ours(name) && *name != header::EXPECT {
            sent.append(name, value.clone());
        }
    }
    if let Some((name, value)) = keys {
        sent.append(name, value);
    }
    if !sent.contains_key(header::HOST) {
        sent.insert(header::HOST, host.clone());
    }
    sent
}

/// Returns true for headers in which some provider looks for its key.
pub(super) fn is_key(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || KEY_HEADERS.contains(&name.as_str())
}

/// Headers of which the whole value is a key.
pub(super) static KEY_HEADERS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let names = Format::ALL.into_iter().filter_map(|format| match format.endpoint().key {
        KeyHeader::Named(name) => Some(name),
        KeyHeader::Bearer => None,
    });
    names.collect()
});

/// Headers of an answer as the client gets them.
pub(super) fn to_client(headers: HeaderMap) -> HeaderMap {
    let named = ConnectionHeaders::by(&headers);
    if !headers.keys().any(|name| is_of_connection(name) || named.holds(name)) {
        return headers;
    }
    let mut sent = HeaderMap::with_capacity(headers.keys_len());
    let mut current = None;
    for (name, value) in headers {
        if name.is_some() {
            current = name.filter(|name| !is_of_connection(name) && !named.holds(name));
        }
        if let Some(name) = &current {
            sent.append(name, value);
        }
    }
    sent
}

/// Headers of a request whose body replaces the client's, is not compressed and has `length` bytes. Headers
/// that describe the client's bytes are left out.
pub(super) fn for_replaced_body(headers: &HeaderMap, length: u64) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers {
        if *name == header::CONTENT_LENGTH {
            sent.insert(name, HeaderValue::from(length));
        } else if !is_of_bytes(name) {
            sent.append(name, value.clone());
        }
    }
    sent
}

/// Headers of a request whose answer must not be compressed, because it is read on its way.
pub(super) fn uncompressed(headers: &HeaderMap) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.keys_len() + 1);
    for (name, value) in headers.iter().filter(|(name, _)| *name != header::ACCEPT_ENCODING) {
        sent.append(name, value.clone());
    }
    sent.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    sent
}

/// Headers of a request that replaces another one. The original's idempotency key is left out: a provider
/// that honours it would repeat its first answer.
pub(super) fn for_resent_request(headers: &HeaderMap) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers.iter().filter(|(name, _)| !is_of_one_request(name)) {
        sent.append(name, value.clone());
    }
    sent
}

/// Headers of a request that continues another one and has `length` bytes.
pub(super) fn for_continued_request(headers: &HeaderMap, length: u64) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.keys_len() + 1);
    for (name, value) in headers {
        let is_of_first = *name == header::CONTENT_LENGTH || is_of_one_request(name);
        if !is_of_first && !is_of_connection(name) && !is_of_bytes(name) {
            sent.append(name, value.clone());
        }
    }
    sent.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    sent
}

/// Headers of an answer whose body differs from the provider's bytes.
pub(super) fn for_rewritten_answer(headers: &HeaderMap) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers {
        if *name != header::CONTENT_LENGTH && !is_of_bytes(name) {
            sent.append(name, value.clone());
        }
    }
    sent
}

/// Headers of a request of our own, derived from those of a client's request: not compressed, and answered
/// uncompressed in one piece of JSON.
pub(super) fn for_summary_request(headers: &HeaderMap) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(headers.keys_len() + 1);
    for (name, value) in headers {
        let is_of_request = *name == header::CONTENT_LENGTH
            || *name == header::CONTENT_TYPE
            || *name == header::ACCEPT
            || *name == header::ACCEPT_ENCODING
            || is_of_one_request(name);
        if !is_of_request && !is_of_connection(name) && !is_of_bytes(name) {
            sent.append(name, value.clone());
        }
    }
    let json = HeaderValue::from_static("application/json");
    sent.insert(header::CONTENT_TYPE, json.clone());
    sent.insert(header::ACCEPT, json);
    sent
}

/// Returns true for headers that keep one request from being carried out twice.
fn is_of_one_request(name: &HeaderName) -> bool {
    name.as_str() == "idempotency-key"
}

/// Returns true for headers that describe the exact bytes of a body.
fn is_of_bytes(name: &HeaderName) -> bool {
    *name == header::CONTENT_ENCODING
        || matches!(name.as_str(), "content-md5" | "digest" | "content-digest" | "repr-digest")
}

/// Writes a key into the header in which a provider of `format` expects it.
fn keyed(key: &UpstreamKey, format: Format) -> (HeaderName, HeaderValue) {
    match format.endpoint().key {
        KeyHeader::Named(name) => (HeaderName::from_static(name), key.plain.clone()),
        KeyHeader::Bearer => (header::AUTHORIZATION, key.bearer.clone()),
    }
}

fn is_of_connection(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::TE
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-epitome-")
}

/// Headers that `Connection` names besides the usual ones: they concern this connection only.
struct ConnectionHeaders(Vec<HeaderName>);

impl ConnectionHeaders {
    fn by(headers: &HeaderMap) -> Self {
        let mut named = Vec::new();
        for value in headers.get_all(header::CONNECTION) {
            for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                let is_usual =
                    option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close");
                if !is_usual && let Ok(name) = HeaderName::from_bytes(option) {
                    named.push(name);
                }
            }
        }
        Self(named)
    }

    fn holds(&self, name: &HeaderName) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn lines(map: &HeaderMap) -> Vec<(&str, &str)> {
        map.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("ASCII"))).collect()
    }

    const HOST: HeaderValue = HeaderValue::from_static("api.example");

    #[test]
    fn what_is_not_about_the_connection_goes_on_in_its_order_and_number() {
        let headers = map(&[
            ("host", "127.0.0.1:8787"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
            ("x-epitome-token", "t"),
            ("x-epitome-mode", "off"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("expect", "100-continue"),
            ("content-length", "2"),
            ("authorization", "Bearer sk"),
        ]);
        let expect = [
            ("host", "api.example"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
            ("content-length", "2"),
            ("authorization", "Bearer sk"),
        ];
        assert_eq!(lines(&to_provider(&headers, &HOST, None)), expect);
    }

    #[test]
    fn a_configured_key_takes_the_place_of_whatever_the_client_showed() {
        let key = UpstreamKey {
            plain: HeaderValue::from_static("k"),
            bearer: HeaderValue::from_static("Bearer k"),
        };
        let headers = map(&[
            ("x-api-key", "t"),
            ("accept", "*/*"),
            ("authorization", "Bearer t"),
            ("authorization", "Basic u"),
            ("host", "h"),
        ]);
        let expect = [("x-api-key", "k"), ("accept", "*/*"), ("host", "api.example")];
        assert_eq!(lines(&to_provider(&headers, &HOST, Some((&key, Format::Anthropic)))), expect);
        let expect = [("accept", "*/*"), ("authorization", "Bearer k"), ("host", "api.example")];
        let bare = map(&[("accept", "*/*")]);
        assert_eq!(lines(&to_provider(&bare, &HOST, Some((&key, Format::OpenaiChat)))), expect);
    }

    #[test]
    fn of_another_body_the_headers_say_nothing_of_the_clients_bytes() {
        let headers = map(&[
            ("host", "h"),
            ("content-encoding", "gzip"),
            ("content-length", "9"),
            ("content-digest", "sha-256=:x:"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
        ]);
        let expect =
            [("host", "h"), ("content-length", "1000"), ("anthropic-beta", "a"), ("anthropic-beta", "b")];
        assert_eq!(lines(&for_replaced_body(&headers, 1_000)), expect);
        let chunked = map(&[("transfer-encoding", "chunked"), ("accept", "*/*")]);
        assert_eq!(lines(&for_replaced_body(&chunked, 7)), lines(&chunked));
    }

    #[test]
    fn a_request_in_anothers_place_is_another_one() {
        let headers = map(&[("host", "h"), ("idempotency-key", "once"), ("x", "a"), ("x", "b")]);
        assert_eq!(lines(&for_resent_request(&headers)), [("host", "h"), ("x", "a"), ("x", "b")]);
    }

    #[test]
    fn a_request_that_goes_on_from_another_is_measured_anew_and_not_the_same_once_more() {
        let headers = map(&[
            ("host", "h"),
            ("accept-encoding", "gzip"),
            ("content-encoding", "gzip"),
            ("transfer-encoding", "chunked"),
            ("idempotency-key", "once"),
            ("accept-encoding", "br"),
            ("anthropic-beta", "a"),
        ]);
        let expect = [
            ("host", "h"),
            ("anthropic-beta", "a"),
            ("accept-encoding", "identity"),
            ("content-length", "7"),
        ];
        assert_eq!(lines(&for_continued_request(&uncompressed(&headers), 7)), expect);
        let answer = map(&[("content-length", "7"), ("content-digest", "sha-256=:x:"), ("request-id", "r")]);
        assert_eq!(lines(&for_rewritten_answer(&answer)), [("request-id", "r")]);
    }

    #[test]
    fn a_question_has_the_headers_of_a_request_but_what_they_say_of_its_body_and_answer() {
        let headers = map(&[
            ("host", "h"),
            ("content-encoding", "gzip"),
            ("content-length", "9"),
            ("transfer-encoding", "chunked"),
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "text/event-stream"),
            ("accept-encoding", "br"),
            ("idempotency-key", "once"),
            ("authorization", "Bearer k"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
        ]);
        let expect = [
            ("host", "h"),
            ("authorization", "Bearer k"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
            ("content-type", "application/json"),
            ("accept", "application/json"),
        ];
        assert_eq!(lines(&for_summary_request(&headers)), expect);
    }

    #[test]
    fn an_answers_headers_keep_their_order_too() {
        let headers = map(&[
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=1"),
            ("connection", "close"),
            ("set-cookie", "b=2"),
            ("request-id", "r"),
        ]);
        assert_eq!(
            lines(&to_client(headers)),
            [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("request-id", "r")]
        );
    }
}
