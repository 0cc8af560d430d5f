//! Where a request wants to go, read from its method, its path and few of its headers.
//!
//! Only the path is ever used: a host that a client names, in an absolute address or in a header, leads nowhere.
//!
//! Servers read paths more loosely than they are written: with slashes doubled, letters escaped or capital. So a call is
//! known however it is spelt, lest it pass unrecorded, and a path that climbs in any spelling leads nowhere.

use std::borrow::Cow;

use epitome::wire::{Format, caller::Purpose};
use http::{HeaderMap, HeaderName, Method, header, request::Parts};

use super::wishes::unescaped;

/// Where a request wants to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To a model, which is to go on with a conversation.
    Call(Format),
    /// To something else that a provider has, whichever takes one of these formats.
    Pass(&'static [Format]),
    /// To a socket, which the gateway does not open.
    Socket,
    /// To the gateway itself, to see whether somebody is there.
    Greeting,
    /// Whether the gateway runs.
    Health,
    /// Whether the gateway can do its work.
    Ready,
    /// What the gateway counts.
    Metrics,
    /// What compaction saves.
    Savings,
    /// Nowhere.
    Unknown,
}

/// Where nothing says which of OpenAI's formats is meant.
const OPENAI: &[Format] = &[Format::OpenaiChat, Format::OpenaiResponses];

/// Where OpenAI compacts a history.
const COMPACT: &str = "/v1/responses/compact";

/// Headers by which some servers let a request be another one than its first line says.
const OTHER_ROUTE: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// How often a path is unescaped at most. Servers do it once, few of them twice.
const UNESCAPED: usize = 4;

/// The route by which the configuration knows a call of this path.
pub(super) fn own(path: &str) -> Cow<'_, str> {
    let path = plain(path);
    if path == COMPACT { Cow::Borrowed("/v1/responses") } else { path }
}

/// What a call of this path is for, where the path says so.
pub(super) fn purpose(path: &str) -> Option<Purpose> {
    (plain(path) == COMPACT).then_some(Purpose::Compaction)
}

/// Whether a request may be another one to its provider than its method and path say.
pub(super) fn is_disguised(headers: &HeaderMap) -> bool {
    OTHER_ROUTE.iter().any(|name| headers.contains_key(name))
}

impl Route {
    /// Where a request with this head wants to go.
    pub(super) fn of(head: &Parts) -> Self {
        let path = head.uri.path();
        match (&head.method, path) {
            (_, "/v1/") => Self::Unknown,
            (_, path) if path.starts_with("/v1/") && climbs(path) => Self::Unknown,
            (&Method::CONNECT, _) => Self::Unknown,
            (&Method::POST, path) if let Some(format) = called(path) => Self::Call(format),
            (_, path) if path.starts_with("/v1/") && wants_socket(&head.headers) => Self::Socket,
            (_, path) if path.starts_with("/v1/") => Self::Pass(formats(path, &head.headers)),
            (&Method::GET | &Method::HEAD, "/") => Self::Greeting,
            (&Method::GET | &Method::HEAD, "/healthz") => Self::Health,
            (&Method::GET | &Method::HEAD, "/readyz") => Self::Ready,
            (&Method::GET | &Method::HEAD, "/metrics") => Self::Metrics,
            (&Method::GET | &Method::HEAD, "/epitome/savings") => Self::Savings,
            _ => Self::Unknown,
        }
    }

    /// Whose words an error is said in.
    pub(super) fn format(self, headers: &HeaderMap) -> Format {
        match self {
            Self::Call(format) => format,
            Self::Pass(formats) => formats[0],
            Self::Socket
            | Self::Greeting
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Savings
            | Self::Unknown => {
                if is_anthropic(headers) {
                    Format::Anthropic
                } else {
                    Format::OpenaiChat
                }
            }
        }
    }
}

/// The formats of whoever has what stands at `path`.
fn formats(path: &str, headers: &HeaderMap) -> &'static [Format] {
    let below =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if below("/v1/messages") {
        &[Format::Anthropic]
    } else if below("/v1/responses") {
        &[Format::OpenaiResponses]
    } else if below("/v1/chat") {
        &[Format::OpenaiChat]
    } else if is_anthropic(headers) {
        &[Format::Anthropic]
    } else {
        OPENAI
    }
}

/// Whether a client speaks to Anthropic, where its path does not say so.
fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version") || headers.contains_key("x-api-key")
}

fn wants_socket(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    asked.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

/// The format of the calls that are made at `path`.
fn called(path: &str) -> Option<Format> {
    match &*plain(path) {
        "/v1/chat/completions" => Some(Format::OpenaiChat),
        "/v1/responses" | COMPACT => Some(Format::OpenaiResponses),
        "/v1/messages" => Some(Format::Anthropic),
        _ => None,
    }
}

/// A path as the loosest server reads it: unescaped, in small letters, without empty segments and a slash at its end.
fn plain(path: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/_.-".contains(&byte);
    if path.bytes().all(is_plain) && !path.contains("//") && !path.ends_with('/') {
        return Cow::Borrowed(path);
    }
    let Some(unescaped) = wholly_unescaped(path) else { return Cow::Borrowed(path) };
    let text = String::from_utf8_lossy(&unescaped).to_ascii_lowercase();
    let segments = text.split(['/', '\\']).filter(|segment| !segment.is_empty());
    Cow::Owned(segments.fold(String::with_capacity(text.len()), |path, segment| path + "/" + segment))
}

/// A path without escapes; `None` if it has escapes in escapes in escapes.
fn wholly_unescaped(path: &str) -> Option<Vec<u8>> {
    let mut path = path.as_bytes().to_vec();
    for _ in 0..UNESCAPED {
        let next = unescaped(&path);
        if next.len() == path.len() {
            return Some(next);
        }
        path = next;
    }
    None
}

/// Whether a path goes up again, out of what is served: some servers would follow it, with the provider's key in hand.
fn climbs(path: &str) -> bool {
    if !path.contains(['.', '%', '\\']) {
        return false;
    }
    let Some(path) = wholly_unescaped(path) else { return true };
    // What stands behind a semicolon is no part of a segment's name to servers that know such parameters.
    let name = |segment: &[u8]| segment.split(|byte| *byte == b';').next().map(<[u8]>::to_vec);
    path.split(|byte| b"/\\".contains(byte))
        .filter_map(name)
        .any(|name| matches!(name.as_slice(), b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, headers: &[(&str, &str)], expect: Route) {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let mut request = http::Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        assert_eq!(Route::of(&head), expect, "{line} {headers:?}");
    }

    #[test]
    fn the_three_calls_are_known_whatever_their_query_says() {
        check("POST /v1/chat/completions", &[], Route::Call(Format::OpenaiChat));
        check("POST /v1/responses?a=/v1/messages", &[], Route::Call(Format::OpenaiResponses));
        check("POST /v1/messages?beta=true", &[], Route::Call(Format::Anthropic));
    }

    #[test]
    fn a_call_is_known_however_it_is_spelt() {
        for path in [
            "/v1//chat/completions",
            "/v1/chat/completions/",
            "/v1/%63hat/completions",
            "/v1/chat%2fcompletions",
            "/v1/chat%252Fcompletions",
            "/v1/Chat/COMPLETIONS",
            "/v1/chat\\completions",
        ] {
            check(&format!("POST {path}"), &[], Route::Call(Format::OpenaiChat));
        }
        check("POST /v1/responses//compact", &[], Route::Call(Format::OpenaiResponses));
        assert_eq!(
            (&*own("/v1//Responses/compact"), &*own("/v1/Messages/")),
            ("/v1/responses", "/v1/messages")
        );
        assert_eq!(purpose("/v1/responses/%63ompact"), Some(Purpose::Compaction));
        check("POST /v1/messages/batches", &[], Route::Pass(&[Format::Anthropic]));
    }

    #[test]
    fn what_else_is_a_providers_passes_to_the_one_that_has_it() {
        check("POST /v1/responses/compact", &[], Route::Call(Format::OpenaiResponses));
        check("GET /v1/responses/resp_1", &[], Route::Pass(&[Format::OpenaiResponses]));
        check("POST /v1/messages/count_tokens", &[], Route::Pass(&[Format::Anthropic]));
        check("GET /v1/chat/completions", &[], Route::Pass(&[Format::OpenaiChat]));
        check("GET /v1/models?limit=1000", &[], Route::Pass(OPENAI));
        check("GET /v1/models", &[("anthropic-version", "2023-06-01")], Route::Pass(&[Format::Anthropic]));
        check("GET /v1/models", &[("x-api-key", "k")], Route::Pass(&[Format::Anthropic]));
        check("POST /v1/messagesque", &[], Route::Pass(OPENAI));
        check("DELETE /v1/files/a..b.txt", &[], Route::Pass(OPENAI));
    }

    #[test]
    fn only_the_path_of_an_absolute_address_counts() {
        check("POST http://evil.example/v1/messages", &[], Route::Call(Format::Anthropic));
        check("GET http://evil.example/v2/messages", &[], Route::Unknown);
        check("CONNECT evil.example:443", &[], Route::Unknown);
    }

    #[test]
    fn a_path_that_climbs_leads_nowhere() {
        for path in [
            "/v1/../admin",
            "/v1/%2e%2E/admin",
            "/v1/x/./y",
            "/v1/..%2fadmin",
            "/v1/..%5Cadmin",
            "/v1/models/%2e%2e%2ffiles",
            "/v1/models/%252e%252e/files",
            "/v1/models/..;x=1/files",
            "/v1/models/a%2f..%2f..%2ffiles",
            "/v1/models/%252525252e",
            "/v1/",
        ] {
            check(&format!("GET {path}"), &[], Route::Unknown);
        }
    }

    #[test]
    fn a_socket_is_told_apart_from_a_request() {
        check("GET /v1/responses", &[("upgrade", "WebSocket")], Route::Socket);
        check("GET /v1/responses", &[("upgrade", "h2c")], Route::Pass(&[Format::OpenaiResponses]));
    }

    #[test]
    fn the_gateways_own_pages_are_few() {
        check("HEAD /", &[], Route::Greeting);
        check("GET /healthz", &[], Route::Health);
        check("GET /readyz", &[], Route::Ready);
        check("GET /metrics", &[], Route::Metrics);
        check("POST /metrics", &[], Route::Unknown);
        check("GET /epitome/savings?x=1", &[], Route::Savings);
        check("POST /epitome/savings", &[], Route::Unknown);
        check("GET /epitome/savings/", &[], Route::Unknown);
        check("GET /v1", &[], Route::Unknown);
        check("OPTIONS *", &[], Route::Unknown);
    }
}
