//! The path of every request through the gateway: the request is sent on, the provider's answer is passed
//! back, and neither is changed unless the request is to be composed.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use epitome::{
    recorder::ExchangeOutcome,
    rewrite::RequestOverrides,
    wire::{Format, endpoint::CallRoute, synthetic_response::SyntheticResponse},
};
use http::{HeaderMap, Request, Response, StatusCode, Version, request::Parts};
use http_body::Body;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    Gateway,
    admission::{AdmittedClient, ClientKeyKind, ProviderKeyOwner},
    compact_options::parse_options,
    compact_request::{CompactRequest, ProxyOutcome},
    decompress::{ContentCoding, expand},
    errors::{GatewayError, gateway_response},
    headers, history_tools,
    metrics::{FinishedRequest, UnrecordedReason},
    outcome_header,
    outgoing_request::{ProxyError, record, send},
    peeked_response::{self, PeekedBody},
    recall_body::RecallContext,
    recording::{self, ShutdownGuard},
    request_body::{BodyFraming, InboundBody, OutboundBody},
    request_scope::{ProxyEnding, RequestScope},
    response_body::{self, ForwardedAnswer, ResponseBody},
    route::{self, Route},
    token_count::CountRequest,
    treatment::RequestTreatment,
    upstream::{Upstream, UpstreamChoice},
};
use crate::config::{GatewayMode, StoreFailureAction};

/// Answers a request.
pub(super) async fn answer(
    gateway: Arc<Gateway>,
    alive: ShutdownGuard,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let (head, body) = request.into_parts();
    let route = Route::of(&head);
    let format = route.format(&head.headers);
    let answered = match route {
        Route::Call(format) => relay(&gateway, alive, RouteKind::Call(format), head, body).await,
        Route::Count(format) => relay(&gateway, alive, RouteKind::Count(format), head, body).await,
        Route::Pass(formats) => relay(&gateway, alive, RouteKind::Pass(formats), head, body).await,
        Route::Greeting | Route::Health | Route::Ready => page(&gateway, route, &head.headers).await,
        Route::Metrics => counted(&gateway, &head.headers),
        Route::Savings => saved(&gateway, &head.headers),
        Route::HistoryTools => history_tools::answer(&gateway, head, body).await,
        Route::Socket => Err(GatewayError::no_sockets()),
        Route::Unknown => Err(GatewayError::unknown_path()),
    };
    answered.unwrap_or_else(|trouble| trouble.answer(format))
}

/// Refuses a request with ambiguous framing. hyper closes the connection after the answer.
pub(super) fn refuse_framing(gateway: &Gateway, request: Request<Incoming>) -> Response<ResponseBody> {
    let (head, _) = request.into_parts();
    let route = Route::of(&head);
    let trouble = GatewayError::two_lengths();
    let call = if let Route::Call(format) = route { Some(format) } else { None };
    turned_away(gateway, call, &trouble);
    trouble.answer(route.format(&head.headers))
}

/// Kind of a request that is sent on.
#[derive(Clone, Copy, Debug)]
enum RouteKind {
    /// It calls a model, and may be recorded.
    Call(Format),
    /// It has a call's tokens counted.
    Count(Format),
    /// It is only passed on.
    Pass(&'static [Format]),
}

impl RouteKind {
    fn formats(&self) -> &[Format] {
        match self {
            Self::Call(format) | Self::Count(format) => std::slice::from_ref(format),
            Self::Pass(formats) => formats,
        }
    }

    fn call(self) -> Option<Format> {
        match self {
            Self::Call(format) => Some(format),
            Self::Count(_) | Self::Pass(_) => None,
        }
    }

    /// Format of the request that it sends, or has counted.
    fn treated(self) -> Option<Format> {
        match self {
            Self::Call(format) | Self::Count(format) => Some(format),
            Self::Pass(_) => None,
        }
    }
}

/// Answers with a page that needs no token.
async fn page(
    gateway: &Gateway,
    route: Route,
    headers: &HeaderMap,
) -> Result<Response<ResponseBody>, GatewayError> {
    gateway.admission.admit_visitor(headers)?;
    let text = match route {
        Route::Ready => match gateway.health.ready().await {
            Ok(()) => "ready\n".to_owned(),
            Err(why) => {
                return Ok(gateway_response(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "text/plain",
                    format!("{why}\n"),
                ));
            }
        },
        Route::Health => "ok\n".to_owned(),
        _ => "Epitome's gateway is here.\n".to_owned(),
    };
    Ok(gateway_response(StatusCode::OK, "text/plain", text))
}

fn counted(gateway: &Gateway, headers: &HeaderMap) -> Result<Response<ResponseBody>, GatewayError> {
    const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    gateway.admission.admit(headers)?;
    Ok(gateway_response(StatusCode::OK, KIND, gateway.metrics.text()))
}

/// Answers with the savings of a principal's sessions.
fn saved(gateway: &Gateway, headers: &HeaderMap) -> Result<Response<ResponseBody>, GatewayError> {
    let admitted = gateway.admission.admit(headers)?;
    Ok(gateway_response(StatusCode::OK, "application/json", gateway.metrics.savings(&admitted.principal)))
}

async fn relay(
    gateway: &Arc<Gateway>,
    alive: ShutdownGuard,
    lane: RouteKind,
    head: Parts,
    body: Incoming,
) -> Result<Response<ResponseBody>, GatewayError> {
    let entered = gateway.admission.admit(&head.headers).map_err(GatewayError::from).and_then(|admitted| {
        let treatment = gateway.treatments.of(lane.treated(), &head, &admitted)?;
        let place = Arc::clone(&gateway.places).try_acquire_owned().map_err(|_| GatewayError::busy())?;
        Ok((admitted, treatment, place))
    });
    let (admitted, treatment, place) =
        entered.inspect_err(|trouble| turned_away(gateway, lane.call(), trouble))?;
    let mut passage = RequestScope::new(
        gateway,
        place,
        Arc::clone(&admitted.principal),
        head.uri.clone(),
        lane.call(),
        if lane.call().is_some() { treatment.mode } else { GatewayMode::Off },
    );
    let errand = ProxyRequest { alive, lane, treatment, admitted, head };
    let answered = match errand.run(&mut passage, body).await {
        Ok(ProxyOutcome::Provider(response)) => return Ok(passed(passage, response, None).await),
        Ok(ProxyOutcome::Watched(response, onward)) => {
            return Ok(passed(passage, response, Some(onward)).await);
        }
        Ok(ProxyOutcome::Here(reply)) => replied(&mut passage, reply).await,
        Err(ProxyError { how, trouble }) => {
            passage.end_with_error(trouble.status, how);
            Err(trouble)
        }
    };
    match (passage.outcome(), lane.call()) {
        (Some(fate), Some(format)) => {
            let mut answer = answered.unwrap_or_else(|trouble| trouble.answer(format));
            answer.headers_mut().insert(outcome_header::OUTCOME_HEADER, fate.header());
            Ok(answer)
        }
        _ => answered,
    }
}

/// Counts a request that was not let in. No log line is written: clients without a token must not be able to
/// fill the disk.
fn turned_away(gateway: &Gateway, call: Option<Format>, trouble: &GatewayError) {
    gateway.metrics.finished(&FinishedRequest {
        principal: "",
        format: call,
        mode: gateway.treatments.usual_mode(),
        status: Some(trouble.status.as_u16()),
        ending: ExchangeOutcome::Refused,
        bytes_in: 0,
        bytes_out: 0,
        first_byte: None,
        took: Duration::ZERO,
        model: None,
        usage: None,
    });
}

/// Passes a provider's answer on to the client.
async fn passed(
    mut passage: RequestScope,
    response: Response<PeekedBody>,
    onward: Option<Box<RecallContext>>,
) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    passage.begin_provider_answer(head.status, &head.headers);
    let watch = onward.and_then(|onward| onward.watch(head.status, &head.headers));
    head.headers = headers::to_client(head.headers);
    if let Some(fate) = passage.outcome() {
        head.headers.insert(outcome_header::OUTCOME_HEADER, fate.header());
    }
    // The provider's HTTP version does not concern the client's connection.
    head.version = Version::HTTP_11;
    if let Some(watch) = watch {
        head.headers = headers::for_rewritten_answer(&head.headers);
        let (body, status) = watch.begin(passage, body).await;
        head.status = status;
        return Response::from_parts(head, ResponseBody::Recalling(Box::new(body)));
    }
    let pause = passage.gateway().limits.pause;
    Response::from_parts(head, ResponseBody::Passing(Box::new(ForwardedAnswer::new(body, passage, pause))))
}

/// Answers in a model's place, once the answer is in the log, like any other.
async fn replied(
    passage: &mut RequestScope,
    reply: SyntheticResponse,
) -> Result<Response<ResponseBody>, GatewayError> {
    let body = Bytes::from(reply.body);
    let answer = gateway_response(StatusCode::OK, reply.kind, body.clone());
    passage.begin_answer(StatusCode::OK, answer.headers());
    passage.pass_bytes(&body);
    let Some(recorded) = passage.end(ProxyEnding::Ended) else { return Ok(answer) };
    match passage.gateway().unrecorded {
        StoreFailureAction::Forward => {
            // The answer is sent even if it could not be recorded in time.
            let _ = timeout(response_body::MAX_RECORD_WAIT, recorded).await;
            Ok(answer)
        }
        StoreFailureAction::Refuse => match recorded.await.unwrap_or(Err(UnrecordedReason::Store)) {
            Err(UnrecordedReason::Store) => Err(GatewayError::unrecorded(UnrecordedReason::Store)),
            Ok(()) | Err(_) => Ok(answer),
        },
    }
}

/// A request that was let in, with everything needed to handle it.
struct ProxyRequest {
    alive: ShutdownGuard,
    lane: RouteKind,
    treatment: RequestTreatment,
    admitted: AdmittedClient,
    head: Parts,
}

impl ProxyRequest {
    async fn run(mut self, passage: &mut RequestScope, body: Incoming) -> Result<ProxyOutcome, ProxyError> {
        let gateway = Arc::clone(passage.gateway());
        let lane = self.lane;
        let formats = lane.formats();
        let by_model = gateway.upstreams.choice(formats) == UpstreamChoice::ByModel;
        let framing = BodyFraming::of(&self.head.headers);
        passage.set_request_bytes(body.size_hint().lower());
        let mode = self.treatment.mode;
        let wishes = if mode == GatewayMode::Compact { self.wishes()? } else { RequestOverrides::default() };
        let inbound = InboundBody::new(body, &gateway.limits)?;
        let path = self.head.uri.path();
        let called = match lane {
            RouteKind::Call(_) => route::call(path, self.head.uri.query().unwrap_or_default()),
            RouteKind::Count(_) => route::counted_call(path),
            RouteKind::Pass(_) => None,
        };
        let route = called.map(|(_, route)| route).unwrap_or_default();
        let (outbound, whole) = if by_model || mode != GatewayMode::Off {
            let whole = inbound.gather().await?;
            passage.set_request_bytes(whole.len() as u64);
            let (sent, whole) = self.targeted(whole, &route, gateway.limits.body);
            let (sent, whole) = self.unsealed((sent, whole), &gateway);
            (OutboundBody::whole(sent, framing), whole)
        } else {
            (OutboundBody::Streamed(inbound), Bytes::new())
        };
        let model = if by_model { model(&self.head.headers, &whole, gateway.limits.body) } else { None };
        let upstream =
            gateway.upstreams.choose(formats, model.as_deref()).ok_or_else(GatewayError::no_upstream)?;
        self.may_use(upstream)?;
        passage.set_upstream(upstream);
        let (head, headers) = self.addressed(upstream)?;
        if let (GatewayMode::Record | GatewayMode::Observe | GatewayMode::Compact, Some(format)) =
            (mode, self.lane.treated())
        {
            if self.lane.call().is_none() && mode != GatewayMode::Compact {
                let response = send(passage, upstream, Request::from_parts(head, outbound)).await?;
                return Ok(ProxyOutcome::Provider(peeked_response::without_peeking(response)));
            }
            let principal = Arc::clone(&self.admitted.principal);
            let (body, policy) = (whole, Arc::clone(&self.treatment.policy));
            let means = if mode == GatewayMode::Compact {
                gateway.summarisers.model_access(&head, format)
            } else {
                None
            };
            let request = recording::RecordableRequest {
                principal,
                format,
                headers,
                body,
                mode,
                policy,
                purpose: route.purpose,
                wishes,
                means,
            };
            let request = Arc::new(request);
            if self.lane.call().is_none() {
                return CountRequest { passage, upstream, head, outbound, request }.run().await;
            }
            if mode == GatewayMode::Compact {
                return CompactRequest { passage, upstream, head, framing, request }.run(self.alive).await;
            }
            record(passage, self.alive, request).await?;
        } else if self.lane.call().is_some() {
            gateway.note_unread_request(&self.admitted.principal);
        }
        let response = send(passage, upstream, Request::from_parts(head, outbound)).await?;
        Ok(ProxyOutcome::Provider(peeked_response::without_peeking(response)))
    }

    /// The body to send, and the same with what its path says, if that is a part of the request: then neither is
    /// compressed.
    fn targeted(&mut self, body: Bytes, route: &CallRoute, limit: usize) -> (Bytes, Bytes) {
        let (Some(format), Some(target)) = (self.lane.treated(), &route.target) else {
            return (body.clone(), body);
        };
        let coding = ContentCoding::of(&self.head.headers);
        let plain = match coding {
            ContentCoding::Identity => body.clone(),
            coding => match expand(coding, &body, limit) {
                Ok(plain) => Bytes::from(plain),
                Err(_) => return (body.clone(), body),
            },
        };
        let Ok(text) = str::from_utf8(&plain) else { return (body.clone(), body) };
        let asked =
            if self.lane.call().is_some() { Cow::Borrowed(text) } else { format.counted_request(text) };
        let whole = Bytes::from(format.with_target(&asked, target).into_owned());
        if coding != ContentCoding::Identity {
            self.head.headers = headers::for_replaced_body(&self.head.headers, plain.len() as u64);
        }
        (plain, whole)
    }

    /// The same two bodies with our own summaries in place of the items by which a client keeps them. What others sealed
    /// stays.
    fn unsealed(&mut self, (sent, whole): (Bytes, Bytes), gateway: &Gateway) -> (Bytes, Bytes) {
        let (Some(format), Some(seal)) = (self.lane.treated(), &gateway.seal) else { return (sent, whole) };
        let plain = match ContentCoding::of(&self.head.headers) {
            ContentCoding::Identity => whole.clone(),
            coding => match expand(coding, &whole, gateway.limits.body) {
                Ok(plain) => Bytes::from(plain),
                Err(_) => return (sent, whole),
            },
        };
        let Some(expanded) = seal.expanded(&self.admitted.principal, format, &plain) else {
            return (sent, whole);
        };
        self.head.headers = headers::for_replaced_body(&self.head.headers, expanded.len() as u64);
        (expanded.clone(), expanded)
    }

    /// Reads the request's options for composing.
    fn wishes(&self) -> Result<RequestOverrides, GatewayError> {
        let wishes = parse_options(&self.head.headers)?;
        match (wishes.window, self.treatment.window) {
            (Some(asked), Some(set)) if asked > set && !self.admitted.may_lower() => {
                Err(GatewayError::raised_window(set))
            }
            (asked, set) => Ok(RequestOverrides { window: asked.or(set), ..wishes }),
        }
    }

    /// Refuses a request that is not among the routes its client may use at `upstream`.
    fn may_use(&self, upstream: &Upstream) -> Result<(), GatewayError> {
        let key =
            if upstream.key().is_some() { ProviderKeyOwner::Gateways } else { ProviderKeyOwner::Clients };
        let Some(routes) = self.admitted.routes(key) else { return Ok(()) };
        let path = self.head.uri.path();
        if !routes.permits(&self.head.method, path) {
            return Err(GatewayError::route_not_allowed(&self.head.method, path, &routes));
        }
        if route::is_disguised(&self.head.headers) { Err(GatewayError::disguised_route()) } else { Ok(()) }
    }

    /// Makes the head of the request as `upstream` gets it; also returns the headers that it came with.
    fn addressed(&mut self, upstream: &Upstream) -> Result<(Parts, HeaderMap), GatewayError> {
        if self.admitted.key == ClientKeyKind::Ours && upstream.key().is_none() {
            return Err(GatewayError::no_key());
        }
        let path = self.head.uri.path_and_query().cloned().ok_or_else(GatewayError::unknown_path)?;
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.head.method.clone();
        head.uri = upstream.at(path).map_err(|_| GatewayError::unknown_path())?;
        let key = upstream.key().zip(upstream.format(self.lane.formats()));
        head.headers = headers::to_provider(&self.head.headers, upstream.host(), key);
        // The extensions hold the spelling of the client's header names.
        head.extensions = std::mem::take(&mut self.head.extensions);
        Ok((head, std::mem::take(&mut self.head.headers)))
    }
}

/// Name of the model that a request asks for, if the body can be read.
fn model(headers: &HeaderMap, body: &[u8], limit: usize) -> Option<String> {
    let expanded;
    let body = match ContentCoding::of(headers) {
        ContentCoding::Identity => body,
        coding => {
            expanded = expand(coding, body, limit).ok()?;
            &expanded
        }
    };
    asked(body)
}

/// Name of the model in a body that is not compressed.
fn asked(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct RequestedModel {
        model: String,
    }
    serde_json::from_slice(body).ok().map(|RequestedModel { model }| model)
}
