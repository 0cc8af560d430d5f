//! A request to count tokens, in mode `compact`: what is counted is the request that would be sent.
//!
//! A client that is told the size of what it holds would compact by itself, though its requests are small.

use std::sync::Arc;

use epitome::{rewrite::RequestCount, wire::synthetic_response::SyntheticResponse};
use http::{Request, Response, StatusCode, request::Parts};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    compact_request::ProxyOutcome,
    outgoing_request::{MAX_COMPOSE_WAIT, ProxyError, send},
    peeked_response::{self, PeekedBody},
    recording::RecordableRequest,
    request_body::OutboundBody,
    request_scope::RequestScope,
    upstream::Upstream,
};
use crate::config::StoreFailureAction;

/// A request to count tokens, and its destination.
pub(super) struct CountRequest<'p> {
    /// The request's way through the gateway.
    pub(super) passage: &'p mut RequestScope,
    /// Provider of the request.
    pub(super) upstream: &'p Arc<Upstream>,
    /// Head of the request, as the provider gets it.
    pub(super) head: Parts,
    /// Body of the request, as the provider gets it.
    pub(super) outbound: OutboundBody,
    /// The request that is to be counted.
    pub(super) request: Arc<RecordableRequest>,
}

impl CountRequest<'_> {
    /// Answers with the count of a composed request. One that would be sent as it came is counted by its provider, if that
    /// can.
    pub(super) async fn run(self) -> Result<ProxyOutcome, ProxyError> {
        let gateway = Arc::clone(self.passage.gateway());
        let (request, counting) = (Arc::clone(&self.request), Arc::clone(&gateway));
        let counted = gateway.runtime.spawn_blocking(move || request.count(&counting));
        let counted = match gateway.unrecorded {
            StoreFailureAction::Refuse => counted.await.ok().flatten(),
            // A count that is not there in time is the provider's.
            StoreFailureAction::Forward => {
                timeout(MAX_COMPOSE_WAIT, counted).await.ok().and_then(Result::ok).flatten()
            }
        };
        let format = self.request.format;
        let answer = |count: RequestCount| {
            ProxyOutcome::Here(SyntheticResponse::json(format.count_answer(count.tokens)))
        };
        if let Some(count) = counted.filter(|count| !count.is_unchanged) {
            return Ok(answer(count));
        }
        let response =
            send(self.passage, self.upstream, Request::from_parts(self.head, self.outbound)).await?;
        let Some(count) = counted.filter(|_| response.status().as_u16() >= 400) else {
            return Ok(ProxyOutcome::Provider(peeked_response::without_peeking(response)));
        };
        let refusal = peeked_response::peek_refusal(response).await;
        Ok(if is_no_route(&refusal) { answer(count) } else { ProxyOutcome::Provider(refusal) })
    }
}

/// Returns true if a provider's refusal, held to its end, says that it has no such route. Providers answer 404 for an unknown
/// model, too, and then nothing may be made up in their place.
pub(super) fn is_no_route(refusal: &Response<PeekedBody>) -> bool {
    match refusal.status() {
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => true,
        StatusCode::NOT_FOUND => {
            peeked_response::refusal_text(refusal).is_some_and(|text| tells_of_no_route(text.trim()))
        }
        _ => false,
    }
}

/// Returns true if the text of an answer 404 is about the address that was asked, not about a model or another resource.
fn tells_of_no_route(text: &str) -> bool {
    // A page or a line of text comes from a server that does not know the address.
    if !text.starts_with(['{', '[', '"']) {
        return true;
    }
    let Ok(said) = serde_json::from_str::<Value>(text) else { return false };
    let error = said.get("error").unwrap_or(&said);
    let field = |name: &str| error.get(name).and_then(Value::as_str);
    let message = error.as_str().or_else(|| field("message")).or_else(|| field("detail"));
    let message = message.unwrap_or_default().to_lowercase();
    let about = ["code", "type", "param"].map(|name| field(name).unwrap_or_default().to_lowercase());
    // The address itself may have a model in it.
    let is_address = |word: &&str| {
        let word = word.trim_start_matches(|letter: char| !letter.is_alphanumeric() && letter != '/');
        word.starts_with('/') || word.starts_with("http")
    };
    let names_model =
        message.split_whitespace().filter(|word| !is_address(word)).any(|word| word.contains("model"))
            || about.iter().any(|word| word.contains("model"));
    let names_route =
        ["path", "route", "method", "endpoint", "url"].iter().any(|word| message.contains(word));
    let is_bare = ["not found", "file not found", "page not found"].contains(&message.trim_end_matches('.'));
    !names_model && (names_route || is_bare)
}
