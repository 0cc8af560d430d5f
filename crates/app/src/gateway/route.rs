//! Where a request wants to go, read from its method, its path and few of its headers.
//!
//! Only the path is ever used: a host that a client names, in an absolute address or in a header, leads nowhere.

use epitome::wire::{Format, caller::Purpose};
use http::{HeaderMap, Method, header, request::Parts};

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

/// The route by which the configuration knows a call of this path.
pub(super) fn own(path: &str) -> &str {
    if path == COMPACT { "/v1/responses" } else { path }
}

/// What a call of this path is for, where the path says so.
pub(super) fn purpose(path: &str) -> Option<Purpose> {
    (path == COMPACT).then_some(Purpose::Compaction)
}

impl Route {
    /// Where a request with this head wants to go.
    pub(super) fn of(head: &Parts) -> Self {
        let path = head.uri.path();
        match (&head.method, path) {
            (_, "/v1/") => Self::Unknown,
            (_, path) if path.starts_with("/v1/") && climbs(path) => Self::Unknown,
            (&Method::CONNECT, _) => Self::Unknown,
            (&Method::POST, "/v1/chat/completions") => Self::Call(Format::OpenaiChat),
            (&Method::POST, "/v1/responses" | COMPACT) => Self::Call(Format::OpenaiResponses),
            (&Method::POST, "/v1/messages") => Self::Call(Format::Anthropic),
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

/// Whether a path goes up again, out of what is served: some servers would follow it, with the provider's key in hand.
fn climbs(path: &str) -> bool {
    let is_dots = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(plain.as_str(), "." | "..")
    };
    let escaped = |path: &str| {
        path.as_bytes()
            .windows(3)
            .any(|three| three.eq_ignore_ascii_case(b"%2f") || three.eq_ignore_ascii_case(b"%5c"))
    };
    let suspicious = path.contains('.') || path.contains('%') || path.contains('\\');
    suspicious && (path.split(['/', '\\']).any(is_dots) || (escaped(path) && path.contains("..")))
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
        for path in
            ["/v1/../admin", "/v1/%2e%2E/admin", "/v1/x/./y", "/v1/..%2fadmin", "/v1/..%5Cadmin", "/v1/"]
        {
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
