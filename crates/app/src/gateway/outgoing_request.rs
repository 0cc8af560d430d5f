//! The steps of a request on its way out, whatever its mode: recorded, composed once more if it was too long, and sent.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use epitome::{
    rewrite::{BodySlice, RewrittenRequest, SessionSummaryAnswer},
    wire::incoming::may_ask_for_summary,
};
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    errors::GatewayError,
    metrics::{UncomposedReason, UnrecordedReason, compact_calls::OverflowOutcome},
    recording::{self, ComposedRequest, ExchangeRecording, OverlongRequest, ShutdownGuard},
    request_body::{OutboundBody, RequestBodyError},
    request_scope::{ProxyEnding, RequestScope},
    telemetry,
    upstream::{SendError, Upstream},
};
use crate::config::{GatewayMode, StoreFailureAction};

/// Longest time that a request waits for a slow store, if the configuration lets requests pass unrecorded.
pub(super) const MAX_COMPOSE_WAIT: Duration = Duration::from_secs(2);

/// Longest time that a refused request waits for a smaller one. It is longer because the only alternative is
/// the refusal itself.
pub(super) const MAX_SMALLER_WAIT: Duration = Duration::from_secs(10);

/// Reason why a request failed.
pub(super) struct ProxyError {
    /// Way in which the request ended with it.
    pub(super) how: ProxyEnding,
    pub(super) trouble: GatewayError,
}

/// Sends a request to `upstream`, and waits for the head of its answer.
pub(super) async fn send(
    passage: &RequestScope,
    upstream: &Upstream,
    request: Request<OutboundBody>,
) -> Result<Response<Incoming>, ProxyError> {
    passage.gateway().upstreams.send(request).await.map_err(|error| {
        telemetry::unanswered(passage.principal(), upstream.name(), &error);
        ProxyError { how: error.how(), trouble: error.trouble(upstream.name()) }
    })
}

/// Begins to record a request. If requests must not pass unrecorded, waits until it is recorded. A request
/// that is to be composed is waited for in any case, but only for a short time if it may pass unrecorded:
/// `None` if it was not composed.
pub(super) async fn record(
    passage: &mut RequestScope,
    alive: ShutdownGuard,
    request: Arc<recording::RecordableRequest>,
) -> Result<Option<ComposedRequest>, GatewayError> {
    let gateway = Arc::clone(passage.gateway());
    let (mode, principal) = (request.mode, Arc::clone(&request.principal));
    // A model takes minutes for a summary of a long session, so its reading may take some seconds.
    let asks_for_summary = request.purpose.is_some() || may_ask_for_summary(&request.body);
    let patience = if asks_for_summary { MAX_SMALLER_WAIT } else { MAX_COMPOSE_WAIT };
    let recorded = match ExchangeRecording::begin(&gateway, alive, request) {
        Ok(recording) => {
            passage.set_recording(recording);
            match (gateway.unrecorded, mode) {
                (StoreFailureAction::Refuse, _) => passage.wait_until_recorded().await,
                (StoreFailureAction::Forward, GatewayMode::Compact) => {
                    let composed = timeout(patience, passage.wait_until_recorded()).await;
                    composed.unwrap_or_else(|_| {
                        gateway.uncomposed(UncomposedReason::Late);
                        Ok(None)
                    })
                }
                (StoreFailureAction::Forward, _) => Ok(None),
            }
        }
        Err(reason) => {
            gateway.health.record_failure();
            gateway.note_unread_request(&principal);
            Err(gateway.report_unrecorded(reason, None))
        }
    };
    match (recorded, gateway.unrecorded) {
        (Ok(composed), _) => Ok(composed),
        (
            Err(reason @ (UnrecordedReason::Store | UnrecordedReason::TooLarge)),
            StoreFailureAction::Refuse,
        ) => Err(GatewayError::unrecorded(reason)),
        // A body that cannot be read cannot be recorded; the provider will report the error.
        (Err(reason), _) => {
            if mode == GatewayMode::Compact {
                gateway.uncomposed(UncomposedReason::Unrecorded(reason));
            }
            Ok(None)
        }
    }
}

/// Composes the request again, smaller, because its provider refused it as too long; `None` if that is
/// impossible.
pub(super) async fn compose_smaller(
    passage: &mut RequestScope,
    refused: OverlongRequest,
) -> Option<RewrittenRequest> {
    // The outcome until a better one is known.
    passage.overflowed(OverflowOutcome::Lost);
    let outgoing = match passage.gateway().unrecorded {
        StoreFailureAction::Refuse => passage.compose_smaller(refused).await,
        StoreFailureAction::Forward => {
            timeout(MAX_SMALLER_WAIT, passage.compose_smaller(refused)).await.ok().flatten()
        }
    };
    if outgoing.is_some() {
        passage.overflowed(OverflowOutcome::Recovered);
    }
    outgoing
}

/// Summarises a session in its provider's place, because the provider refused the client's own request for a summary as too
/// long; `None` if that is impossible.
pub(super) async fn summarise_instead(
    passage: &mut RequestScope,
    refused: OverlongRequest,
) -> Option<SessionSummaryAnswer> {
    passage.overflowed(OverflowOutcome::Lost);
    let summary = timeout(MAX_SMALLER_WAIT, passage.summarise_instead(refused)).await.ok().flatten();
    if summary.is_some() {
        passage.overflowed(OverflowOutcome::Recovered);
    }
    summary
}

/// Cuts a body into pieces without copying the client's bytes; `None` if the cuts do not fit it.
pub(super) fn cut_body(cuts: Vec<BodySlice>, body: &Bytes) -> Option<Vec<Bytes>> {
    let piece = |cut| match cut {
        BodySlice::Client(range) => body.get(range).map(|piece| body.slice_ref(piece)),
        BodySlice::Own(words) => Some(Bytes::from(words)),
    };
    cuts.into_iter().map(piece).collect()
}

impl From<GatewayError> for ProxyError {
    fn from(trouble: GatewayError) -> Self {
        Self { how: ProxyEnding::Refused, trouble }
    }
}

impl From<RequestBodyError> for ProxyError {
    fn from(error: RequestBodyError) -> Self {
        let error = SendError::Intake(error);
        Self { how: error.how(), trouble: error.trouble("") }
    }
}
