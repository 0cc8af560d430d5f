//! A request to count tokens, in mode `compact`: what is counted is the request that would be sent.
//!
//! A client that is told the size of what it holds would compact by itself, though its requests are small.

use std::sync::Arc;

use epitome::{rewrite::RequestCount, wire::synthetic_response::SyntheticResponse};
use http::{Request, StatusCode, request::Parts};
use tokio::time::timeout;

use super::{
    compact_request::ProxyOutcome,
    outgoing_request::{MAX_COMPOSE_WAIT, ProxyError, send},
    peeked_response,
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
        match counted {
            Some(count) if is_no_route(response.status()) => Ok(answer(count)),
            _ => Ok(ProxyOutcome::Provider(peeked_response::without_peeking(response))),
        }
    }
}

/// Returns true if a provider's refusal says that it has no such route.
pub(super) fn is_no_route(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
}
