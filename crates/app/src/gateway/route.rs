//! Routes of requests, read from the method, the path and a few headers.
//!
//! Only the path is ever used: a host that a client names, in an absolute address or in a header, is ignored.
//!
//! Servers read paths more loosely than they are written: with doubled slashes, escaped letters or capitals.
//! So a call is recognised in any spelling, lest it pass unrecorded, and a path that climbs out of its folder
//! in any spelling is refused.

use std::borrow::Cow;

use epitome::wire::{Format, endpoint::CallRoute};
use http::{HeaderMap, HeaderName, Method, header, request::Parts};

use super::compact_options::unescaped;

/// Route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A call of a model that continues a conversation.
    Call(Format),
    /// The count of a call's tokens.
    Count(Format),
    /// Any other route of a provider; the formats say which providers may have it.
    Pass(&'static [Format]),
    /// A WebSocket, which the gateway does not open.
    Socket,
    /// The gateway's root page, which shows that it is running.
    Greeting,
    /// Status page: the gateway is running.
    Health,
    /// Status page: the gateway can do its work.
    Ready,
    /// Metrics of the gateway.
    Metrics,
    /// Savings by compaction.
    Savings,
    /// Tools by which agents ask about recorded sessions.
    HistoryTools,
    /// No known route.
    Unknown,
}

/// Formats of OpenAI, for routes that do not distinguish them.
const OPENAI: &[Format] = &[Format::OpenaiChat, Format::OpenaiResponses];

/// Headers by which some servers replace the method or path of a request.
const OTHER_ROUTE: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// Most times that a path is unescaped. Servers do it once, a few of them twice.
const UNESCAPED: usize = 4;

/// Name of the route under which the configuration knows a call of this path.
pub(super) fn own_route(path: &str) -> Cow<'_, str> {
    match call(path, "").or_else(|| counted_call(path)) {
        Some((format, _)) => Cow::Borrowed(format.endpoint().route),
        None => plain(path),
    }
}

/// The call at a path, and the format it is in.
pub(super) fn call(path: &str, query: &str) -> Option<(Format, CallRoute)> {
    let path = plain(path);
    Format::ALL.into_iter().find_map(|format| Some((format, format.call_at(&path, query)?)))
}

/// The call whose tokens are counted at a path, and the format it is in.
pub(super) fn counted_call(path: &str) -> Option<(Format, CallRoute)> {
    let path = plain(path);
    Format::ALL.into_iter().find_map(|format| Some((format, format.counted_call_at(&path)?)))
}

/// Returns true if a path is below a version of some provider's interface.
fn is_versioned(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    Format::ALL.into_iter().any(|format| format.has_version(first))
}

/// Returns true if the provider may read another method or path from the headers of a request.
pub(super) fn is_disguised(headers: &HeaderMap) -> bool {
    OTHER_ROUTE.iter().any(|name| headers.contains_key(name))
}

impl Route {
    /// Finds the route of a request with this head.
    pub(super) fn of(head: &Parts) -> Self {
        let path = head.uri.path();
        let is_below = is_versioned(path) && path.matches('/').count() > 1;
        match (&head.method, path) {
            (_, path) if is_below && (path.ends_with('/') && path.matches('/').count() == 2) => Self::Unknown,
            (_, path) if is_below && climbs(path) => Self::Unknown,
            (&Method::CONNECT, _) => Self::Unknown,
            (&Method::POST, path) if let Some((format, _)) = call(path, "") => Self::Call(format),
            (&Method::POST, path) if let Some((format, _)) = counted_call(path) => Self::Count(format),
            _ if is_below && wants_socket(&head.headers) => Self::Socket,
            (_, path) if is_below => Self::Pass(formats(path, &head.headers)),
            (&Method::GET | &Method::HEAD, "/") => Self::Greeting,
            (&Method::GET | &Method::HEAD, "/healthz") => Self::Health,
            (&Method::GET | &Method::HEAD, "/readyz") => Self::Ready,
            (&Method::GET | &Method::HEAD, "/metrics") => Self::Metrics,
            (&Method::GET | &Method::HEAD, "/epitome/savings") => Self::Savings,
            (_, "/mcp") => Self::HistoryTools,
            _ => Self::Unknown,
        }
    }

    /// Format in which errors of this route are written.
    pub(super) fn format(self, headers: &HeaderMap) -> Format {
        match self {
            Self::Call(format) | Self::Count(format) => format,
            Self::Pass(formats) => formats[0],
            Self::Socket
            | Self::Greeting
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::Savings
            | Self::HistoryTools
            | Self::Unknown => client_format(headers).unwrap_or(Format::OpenaiChat),
        }
    }
}

/// Formats of the providers that may serve `path`.
fn formats(path: &str, headers: &HeaderMap) -> &'static [Format] {
    let owner = Format::ALL.into_iter().find(|format| format.owns_path(path));
    match owner.or_else(|| client_format(headers)) {
        Some(format) => alone(format),
        None => OPENAI,
    }
}

/// A format in a list of its own.
fn alone(format: Format) -> &'static [Format] {
    Format::ALL.iter().position(|other| *other == format).map_or(OPENAI, |at| &ALL[at..=at])
}

/// Every format, at an address that stays.
static ALL: [Format; Format::ALL.len()] = Format::ALL;

/// Format of the client that the headers show, for paths that do not tell.
fn client_format(headers: &HeaderMap) -> Option<Format> {
    let shows = |format: &Format| headers.keys().any(|name| format.is_client_header(name.as_str()));
    Format::ALL.into_iter().find(shows)
}

fn wants_socket(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    asked.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

/// Normalises a path as the loosest server reads it: unescaped, in lower case, without empty segments and a
/// slash at its end.
fn plain(path: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/_.-:".contains(&byte);
    if path.bytes().all(is_plain) && !path.contains("//") && !path.ends_with('/') {
        return Cow::Borrowed(path);
    }
    let Some(unescaped) = wholly_unescaped(path) else { return Cow::Borrowed(path) };
    let text = String::from_utf8_lossy(&unescaped).to_ascii_lowercase();
    let segments = text.split(['/', '\\']).filter(|segment| !segment.is_empty());
    Cow::Owned(segments.fold(String::with_capacity(text.len()), |path, segment| path + "/" + segment))
}

/// Unescapes a path completely; `None` if escapes are nested too deeply.
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

/// Returns true if a path climbs above the root with `..`: some servers would follow it, with the provider's
/// key in hand.
fn climbs(path: &str) -> bool {
    if !path.contains(['.', '%', '\\']) {
        return false;
    }
    let Some(path) = wholly_unescaped(path) else { return true };
    // Servers that support path parameters do not count the text behind a semicolon as part of a segment's
    // name.
    let name = |segment: &[u8]| segment.split(|byte| *byte == b';').next().map(<[u8]>::to_vec);
    path.split(|byte| b"/\\".contains(byte))
        .filter_map(name)
        .any(|name| matches!(name.as_slice(), b"." | b".."))
}

#[cfg(test)]
mod tests {
    use epitome::wire::caller::RequestPurpose;

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
            (&*own_route("/v1//Responses/compact"), &*own_route("/v1/Messages/")),
            ("/v1/responses", "/v1/messages")
        );
        let compaction = call("/v1/responses/%63ompact", "").and_then(|(_, route)| route.purpose);
        assert_eq!(compaction, Some(RequestPurpose::Compaction));
        check("POST /v1/messages/batches", &[], Route::Pass(&[Format::Anthropic]));
    }

    #[test]
    fn what_else_is_a_providers_passes_to_the_one_that_has_it() {
        check("POST /v1/responses/compact", &[], Route::Call(Format::OpenaiResponses));
        check("GET /v1/responses/resp_1", &[], Route::Pass(&[Format::OpenaiResponses]));
        check("POST /v1/messages/count_tokens", &[], Route::Count(Format::Anthropic));
        check("GET /v1/messages/count_tokens", &[], Route::Pass(&[Format::Anthropic]));
        check("POST /V1//responses/input%5ftokens/", &[], Route::Count(Format::OpenaiResponses));
        check("POST /v1beta/models/gemini-2.5-pro:countTokens", &[], Route::Count(Format::Gemini));
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
        check("POST /mcp", &[], Route::HistoryTools);
        check("POST /mcp/x", &[], Route::Unknown);
        check("GET /epitome/savings/", &[], Route::Unknown);
        check("GET /v1", &[], Route::Unknown);
        check("OPTIONS *", &[], Route::Unknown);
    }
}
