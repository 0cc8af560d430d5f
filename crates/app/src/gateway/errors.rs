//! Answers of the gateway itself, sent where there is no provider's answer to pass on. They have the form of
//! the provider that the client meant to speak to, because that is what the client can read.
//!
//! A header `x-epitome-error` tells these answers from a provider's own.

use bytes::Bytes;
use epitome::{
    core::Tokens,
    wire::{Format, endpoint::ErrorDetails},
};
use http::{
    HeaderName, Method, Response, StatusCode,
    header::{self, HeaderValue},
};
use http_body_util::Full;

use super::{admission, metrics::UnrecordedReason, response_body::ResponseBody};
use crate::config::{GatewayMode, allowed_routes::RouteList};

/// Header that marks an answer as the gateway's own.
const ERROR: HeaderName = HeaderName::from_static("x-epitome-error");

/// Most letters of a path that a message quotes.
const ROUTE_LETTERS: usize = 200;

/// An error that the gateway reports to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GatewayError {
    /// Status of the answer.
    pub(super) status: StatusCode,
    /// Name of the error, for programs.
    pub(super) code: &'static str,
    /// Description of the error and of what to do about it, for people.
    pub(super) message: String,
}

impl GatewayError {
    /// Makes an error of these parts.
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// The path leads to no route.
    pub(super) fn unknown_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown_path",
            "Epitome's gateway serves POST /v1/chat/completions, POST /v1/responses, POST /v1/messages and Gemini's \
             calls below /v1beta/models, passes on everything else under /v1, and has /healthz, /readyz, /metrics and /epitome/savings: check the client's \
             base address",
        )
    }

    /// The gateway opens no sockets. This status makes clients that try one first go on without.
    pub(super) fn no_sockets() -> Self {
        Self::new(
            StatusCode::UPGRADE_REQUIRED,
            "no_sockets",
            "Epitome's gateway opens no WebSocket: send the request as an HTTP POST",
        )
    }

    /// The request states its length in two ways, which two servers may read as two different requests.
    pub(super) fn two_lengths() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "two_lengths",
            "the request has both Content-Length and Transfer-Encoding: send one of them",
        )
    }

    /// The gateway is at its limit of requests.
    pub(super) fn busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "Epitome's gateway has as many requests at a time as it is set up for: try again, or raise limits.requests",
        )
    }

    /// The request's body is larger than the gateway takes.
    pub(super) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "the request is larger than Epitome's gateway is set up to take: send less, or raise limits.body",
        )
    }

    /// The client paused in the middle of its request.
    pub(super) fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            "the rest of the request did not come in time: send it again",
        )
    }

    /// The request cannot be recorded, and must be.
    pub(super) fn unrecorded(reason: UnrecordedReason) -> Self {
        let (status, why) = match reason {
            UnrecordedReason::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "it is larger than limits.body when it is decompressed")
            }
            UnrecordedReason::Store
            | UnrecordedReason::UnreadableRequest
            | UnrecordedReason::UnreadableAnswer => {
                (StatusCode::SERVICE_UNAVAILABLE, "the store failed, see the gateway's log")
            }
        };
        let message = format!("the request was not sent, because Epitome could not record it: {why}");
        Self::new(status, "unrecorded", message)
    }

    /// No provider is configured for this route or model.
    pub(super) fn no_upstream() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no_upstream",
            "no upstream of Epitome's gateway takes this format and model: add one to its configuration",
        )
    }

    /// The mode that was asked for does not exist.
    pub(super) fn unknown_mode() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "unknown_mode",
            "x-epitome-mode is none of off, record, observe and compact: send one of these, or leave the header out",
        )
    }

    /// The mode that was asked for does less than the mode that is set.
    pub(super) fn lowered_mode(set: GatewayMode, asked: GatewayMode) -> Self {
        let (set, asked) = (set.name(), asked.name());
        let message = format!(
            "the mode of this request is set to {set}, and x-epitome-mode asks for {asked}, which does less: leave the \
             header out, or have the operator of Epitome's gateway set allow_override = true (--allow-override)"
        );
        Self::new(StatusCode::FORBIDDEN, "override", message)
    }

    /// The window that was asked for is larger than the window that is set.
    pub(super) fn raised_window(set: Tokens) -> Self {
        let message = format!(
            "the window of this request is set to {} tokens, and x-epitome-window asks for more: ask for less, leave \
             the header out, or have the operator of Epitome's gateway set allow_override = true (--allow-override)",
            set.0
        );
        Self::new(StatusCode::FORBIDDEN, "override", message)
    }

    /// The client may not use this route.
    pub(super) fn route_not_allowed(method: &Method, path: &str, allowed: &RouteList) -> Self {
        let path: String = path.chars().take(ROUTE_LETTERS).collect();
        let message = format!(
            "Epitome's gateway does not let this client use {method} {path}, only {allowed}: have its operator add the \
             route to `allow` in the configuration, such as allow = [\"inference\", \"models\", \"GET /v1/files/*\"]"
        );
        Self::new(StatusCode::FORBIDDEN, "route", message)
    }

    /// A header may turn this route into another one at the provider.
    pub(super) fn disguised_route() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "route",
            "Epitome's gateway does not let this client name another method or path in a header \
             (X-HTTP-Method-Override, X-Original-URL and the like): leave the header out, or have the gateway's \
             operator set allow = [\"all\"]",
        )
    }

    /// The window that was asked for is no number of tokens.
    pub(super) fn wrong_window() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "wrong_window",
            "x-epitome-window is no positive number of tokens: send one such as 128000 or 128k, or leave the header out",
        )
    }

    /// The focus of a compaction is too long.
    pub(super) fn long_focus(limit: usize) -> Self {
        let message = format!("x-epitome-compact is longer than {limit} letters: say it shorter");
        Self::new(StatusCode::BAD_REQUEST, "long_focus", message)
    }

    /// There is no key to show to the provider.
    pub(super) fn no_key() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "no_key",
            "the token was taken, but Epitome's gateway has no key for this upstream: set its key_env, or show the \
             token in x-epitome-token and the provider's key where it belongs",
        )
    }

    /// Writes the error as an answer in `format`.
    pub(super) fn answer(&self, format: Format) -> Response<ResponseBody> {
        let body = format.error_body(&ErrorDetails {
            status: self.status.as_u16(),
            code: Some(self.code),
            message: &self.message,
        });
        let mut answer = gateway_response(self.status, "application/json", body);
        answer.headers_mut().insert(ERROR, HeaderValue::from_static(self.code));
        if self.code == "busy" {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

impl From<admission::AdmissionError> for GatewayError {
    fn from(refusal: admission::AdmissionError) -> Self {
        match refusal {
            admission::AdmissionError::NoToken => Self::new(
                StatusCode::UNAUTHORIZED,
                "no_token",
                "Epitome's gateway needs a token: show one in x-epitome-token, or as the API key",
            ),
            admission::AdmissionError::Page => Self::new(
                StatusCode::FORBIDDEN,
                "page",
                "Epitome's gateway takes no requests from web pages (Origin) unless it is set up with tokens",
            ),
            admission::AdmissionError::Host => Self::new(
                StatusCode::FORBIDDEN,
                "host",
                "Epitome's gateway takes only requests whose Host is this machine, unless it is set up with tokens",
            ),
        }
    }
}

/// Makes an answer of the gateway's own.
pub(super) fn gateway_response(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::Own(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
