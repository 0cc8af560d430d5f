//! The path of every request through the gateway: the request is sent on, the provider's answer is passed
//! back, and neither is changed unless the request is to be composed.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use epitome::{
    compose::Wishes,
    recorder::Ending,
    wire::{Format, reply::Reply},
};
use http::{HeaderMap, Request, Response, StatusCode, Version, request::Parts};
use http_body::Body;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    Gateway,
    admission::{Admitted, KeyShown, KeyUsed},
    answers::{Trouble, own},
    begun::{self, Begun},
    composing::{self, Reached, Trip},
    config::{Mode, Unrecorded},
    expand::{Coding, expand},
    fate, headers,
    intake::{Framing, Inbound, IntakeError, Outbound},
    metrics::{Finished, Reason, Uncomposed},
    passage::{How, Passage},
    passing::{self, Outgoing, Passing},
    recalling::Onward,
    recording::{self, Alive, Composed, Recording},
    route::{self, Route},
    telemetry,
    treatment::Treatment,
    upstream::{Choice, SendError, Upstream},
    wishes::wishes,
};

/// Answers a request.
pub(super) async fn answer(
    gateway: Arc<Gateway>,
    alive: Alive,
    request: Request<Incoming>,
) -> Response<Outgoing> {
    let (head, body) = request.into_parts();
    let route = Route::of(&head);
    let format = route.format(&head.headers);
    let answered = match route {
        Route::Call(format) => relay(&gateway, alive, Lane::Call(format), head, body).await,
        Route::Pass(formats) => relay(&gateway, alive, Lane::Pass(formats), head, body).await,
        Route::Greeting | Route::Health | Route::Ready => page(&gateway, route, &head.headers).await,
        Route::Metrics => counted(&gateway, &head.headers),
        Route::Savings => saved(&gateway, &head.headers),
        Route::Socket => Err(Trouble::no_sockets()),
        Route::Unknown => Err(Trouble::unknown_path()),
    };
    answered.unwrap_or_else(|trouble| trouble.answer(format))
}

/// Refuses a request with ambiguous framing. hyper closes the connection after the answer.
pub(super) fn refuse_framing(gateway: &Gateway, request: Request<Incoming>) -> Response<Outgoing> {
    let (head, _) = request.into_parts();
    let route = Route::of(&head);
    let trouble = Trouble::two_lengths();
    let call = if let Route::Call(format) = route { Some(format) } else { None };
    turned_away(gateway, call, &trouble);
    trouble.answer(route.format(&head.headers))
}

/// Kind of a request that is sent on.
#[derive(Clone, Copy, Debug)]
enum Lane {
    /// It calls a model, and may be recorded.
    Call(Format),
    /// It is only passed on.
    Pass(&'static [Format]),
}

impl Lane {
    fn formats(&self) -> &[Format] {
        match self {
            Self::Call(format) => std::slice::from_ref(format),
            Self::Pass(formats) => formats,
        }
    }

    fn call(self) -> Option<Format> {
        match self {
            Self::Call(format) => Some(format),
            Self::Pass(_) => None,
        }
    }
}

/// Answers with a page that needs no token.
async fn page(gateway: &Gateway, route: Route, headers: &HeaderMap) -> Result<Response<Outgoing>, Trouble> {
    gateway.admission.admit_visitor(headers)?;
    let text = match route {
        Route::Ready => match gateway.health.ready().await {
            Ok(()) => "ready\n".to_owned(),
            Err(why) => return Ok(own(StatusCode::SERVICE_UNAVAILABLE, "text/plain", format!("{why}\n"))),
        },
        Route::Health => "ok\n".to_owned(),
        _ => "Epitome's gateway is here.\n".to_owned(),
    };
    Ok(own(StatusCode::OK, "text/plain", text))
}

fn counted(gateway: &Gateway, headers: &HeaderMap) -> Result<Response<Outgoing>, Trouble> {
    const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    gateway.admission.admit(headers)?;
    Ok(own(StatusCode::OK, KIND, gateway.metrics.text()))
}

/// Answers with the savings of a principal's sessions.
fn saved(gateway: &Gateway, headers: &HeaderMap) -> Result<Response<Outgoing>, Trouble> {
    let admitted = gateway.admission.admit(headers)?;
    Ok(own(StatusCode::OK, "application/json", gateway.metrics.savings(&admitted.principal)))
}

async fn relay(
    gateway: &Arc<Gateway>,
    alive: Alive,
    lane: Lane,
    head: Parts,
    body: Incoming,
) -> Result<Response<Outgoing>, Trouble> {
    let entered = gateway.admission.admit(&head.headers).map_err(Trouble::from).and_then(|admitted| {
        let treatment = gateway.treatments.of(lane.call(), &head, &admitted)?;
        let place = Arc::clone(&gateway.places).try_acquire_owned().map_err(|_| Trouble::busy())?;
        Ok((admitted, treatment, place))
    });
    let (admitted, treatment, place) =
        entered.inspect_err(|trouble| turned_away(gateway, lane.call(), trouble))?;
    let mut passage = Passage::new(
        gateway,
        place,
        Arc::clone(&admitted.principal),
        head.uri.clone(),
        lane.call(),
        treatment.mode,
    );
    let errand = Errand { alive, lane, treatment, admitted, head };
    let answered = match errand.run(&mut passage, body).await {
        Ok(Reached::Provider(response)) => return Ok(passed(passage, response, None).await),
        Ok(Reached::Watched(response, onward)) => return Ok(passed(passage, response, Some(onward)).await),
        Ok(Reached::Here(reply)) => replied(&mut passage, reply).await,
        Err(Failure { how, trouble }) => {
            passage.fails(trouble.status, how);
            Err(trouble)
        }
    };
    match (passage.fate(), lane.call()) {
        (Some(fate), Some(format)) => {
            let mut answer = answered.unwrap_or_else(|trouble| trouble.answer(format));
            answer.headers_mut().insert(fate::HEADER, fate.header());
            Ok(answer)
        }
        _ => answered,
    }
}

/// Counts a request that was not let in. No log line is written: clients without a token must not be able to
/// fill the disk.
fn turned_away(gateway: &Gateway, call: Option<Format>, trouble: &Trouble) {
    gateway.metrics.finished(&Finished {
        principal: "",
        format: call,
        mode: gateway.treatments.usual_mode(),
        status: Some(trouble.status.as_u16()),
        ending: Ending::Refused,
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
    mut passage: Passage,
    response: Response<Begun>,
    onward: Option<Box<Onward>>,
) -> Response<Outgoing> {
    let (mut head, body) = response.into_parts();
    passage.answered(head.status, &head.headers);
    let watch = onward.and_then(|onward| onward.watch(head.status, &head.headers));
    head.headers = headers::to_client(head.headers);
    if let Some(fate) = passage.fate() {
        head.headers.insert(fate::HEADER, fate.header());
    }
    // The provider's HTTP version does not concern the client's connection.
    head.version = Version::HTTP_11;
    if let Some(watch) = watch {
        head.headers = headers::unmeasured(&head.headers);
        let (body, status) = watch.begin(passage, body).await;
        head.status = status;
        return Response::from_parts(head, Outgoing::Recalling(Box::new(body)));
    }
    let pause = passage.gateway().limits.pause;
    Response::from_parts(head, Outgoing::Passing(Box::new(Passing::new(body, passage, pause))))
}

/// Answers in a model's place, once the answer is in the log, like any other.
async fn replied(passage: &mut Passage, reply: Reply) -> Result<Response<Outgoing>, Trouble> {
    let body = Bytes::from(reply.body);
    let answer = own(StatusCode::OK, reply.kind, body.clone());
    passage.says(StatusCode::OK, answer.headers());
    passage.passes(&body);
    let Some(recorded) = passage.end(How::Ended) else { return Ok(answer) };
    match passage.gateway().unrecorded {
        Unrecorded::Forward => {
            // The answer is sent even if it could not be recorded in time.
            let _ = timeout(passing::HELD, recorded).await;
            Ok(answer)
        }
        Unrecorded::Refuse => match recorded.await.unwrap_or(Err(Reason::Store)) {
            Err(Reason::Store) => Err(Trouble::unrecorded(Reason::Store)),
            Ok(()) | Err(_) => Ok(answer),
        },
    }
}

/// A request that was let in, with everything needed to handle it.
struct Errand {
    alive: Alive,
    lane: Lane,
    treatment: Treatment,
    admitted: Admitted,
    head: Parts,
}

/// Reason why a request failed.
pub(super) struct Failure {
    /// Way in which the request ended with it.
    pub(super) how: How,
    trouble: Trouble,
}

impl Errand {
    async fn run(mut self, passage: &mut Passage, body: Incoming) -> Result<Reached, Failure> {
        let gateway = Arc::clone(passage.gateway());
        let formats = self.lane.formats();
        let by_model = gateway.upstreams.choice(formats) == Choice::ByModel;
        let framing = Framing::of(&self.head.headers);
        passage.came(body.size_hint().lower());
        let mode = self.treatment.mode;
        let wishes = if mode == Mode::Compact { self.wishes()? } else { Wishes::default() };
        let inbound = Inbound::new(body, &gateway.limits)?;
        let (outbound, whole) = if by_model || mode != Mode::Off {
            let whole = inbound.gather().await?;
            passage.came(whole.len() as u64);
            (Outbound::whole(whole.clone(), framing), whole)
        } else {
            (Outbound::Streamed(inbound), Bytes::new())
        };
        let model = if by_model { model(&self.head.headers, &whole, gateway.limits.body) } else { None };
        let upstream =
            gateway.upstreams.choose(formats, model.as_deref()).ok_or_else(Trouble::no_upstream)?;
        self.may_use(upstream)?;
        passage.goes_to(upstream);
        let (head, headers) = self.addressed(upstream)?;
        if let (Mode::Record | Mode::Observe | Mode::Compact, Some(format)) = (mode, self.lane.call()) {
            let principal = Arc::clone(&self.admitted.principal);
            let purpose = route::purpose(self.head.uri.path());
            let (body, policy) = (whole, Arc::clone(&self.treatment.policy));
            let means = if mode == Mode::Compact { gateway.summarisers.means(&head) } else { None };
            let request =
                recording::Request { principal, format, headers, body, mode, policy, purpose, wishes, means };
            let request = Arc::new(request);
            if mode == Mode::Compact {
                return Trip { passage, upstream, head, framing, request }.run(self.alive).await;
            }
            record(passage, self.alive, request).await?;
        } else if self.lane.call().is_some() {
            gateway.passes_unread(&self.admitted.principal);
        }
        let response = send(passage, upstream, Request::from_parts(head, outbound)).await?;
        Ok(Reached::Provider(begun::unread(response)))
    }

    /// Reads the request's options for composing.
    fn wishes(&self) -> Result<Wishes, Trouble> {
        let wishes = wishes(&self.head.headers)?;
        match (wishes.window, self.treatment.window) {
            (Some(asked), Some(set)) if asked > set && !self.admitted.may_lower() => {
                Err(Trouble::raised_window(set))
            }
            (asked, set) => Ok(Wishes { window: asked.or(set), ..wishes }),
        }
    }

    /// Refuses a request that is not among the routes its client may use at `upstream`.
    fn may_use(&self, upstream: &Upstream) -> Result<(), Trouble> {
        let key = if upstream.key().is_some() { KeyUsed::Gateways } else { KeyUsed::Clients };
        let Some(routes) = self.admitted.routes(key) else { return Ok(()) };
        let path = self.head.uri.path();
        if !routes.permits(&self.head.method, path) {
            return Err(Trouble::route_not_allowed(&self.head.method, path, &routes));
        }
        if route::is_disguised(&self.head.headers) { Err(Trouble::disguised_route()) } else { Ok(()) }
    }

    /// Makes the head of the request as `upstream` gets it; also returns the headers that it came with.
    fn addressed(&mut self, upstream: &Upstream) -> Result<(Parts, HeaderMap), Trouble> {
        if self.admitted.key == KeyShown::Ours && upstream.key().is_none() {
            return Err(Trouble::no_key());
        }
        let path = self.head.uri.path_and_query().cloned().ok_or_else(Trouble::unknown_path)?;
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = self.head.method.clone();
        head.uri = upstream.at(path).map_err(|_| Trouble::unknown_path())?;
        let key = upstream.key().zip(upstream.format(self.lane.formats()));
        head.headers = headers::to_provider(&self.head.headers, upstream.host(), key);
        // The extensions hold the spelling of the client's header names.
        head.extensions = std::mem::take(&mut self.head.extensions);
        Ok((head, std::mem::take(&mut self.head.headers)))
    }
}

/// Sends a request to `upstream`, and waits for the head of its answer.
pub(super) async fn send(
    passage: &Passage,
    upstream: &Upstream,
    request: Request<Outbound>,
) -> Result<Response<Incoming>, Failure> {
    passage.gateway().upstreams.send(request).await.map_err(|error| {
        telemetry::unanswered(passage.principal(), upstream.name(), &error);
        Failure { how: error.how(), trouble: error.trouble(upstream.name()) }
    })
}

/// Begins to record a request. If requests must not pass unrecorded, waits until it is recorded. A request
/// that is to be composed is waited for in any case, but only for a short time if it may pass unrecorded:
/// `None` if it was not composed.
pub(super) async fn record(
    passage: &mut Passage,
    alive: Alive,
    request: Arc<recording::Request>,
) -> Result<Option<Composed>, Trouble> {
    let gateway = Arc::clone(passage.gateway());
    let (mode, principal) = (request.mode, Arc::clone(&request.principal));
    let recorded = match Recording::begin(&gateway, alive, request) {
        Ok(recording) => {
            passage.recorded_by(recording);
            match (gateway.unrecorded, mode) {
                (Unrecorded::Refuse, _) => passage.arrived().await,
                (Unrecorded::Forward, Mode::Compact) => {
                    let composed = timeout(composing::HELD, passage.arrived()).await;
                    composed.unwrap_or_else(|_| {
                        gateway.uncomposed(Uncomposed::Late);
                        Ok(None)
                    })
                }
                (Unrecorded::Forward, _) => Ok(None),
            }
        }
        Err(reason) => {
            gateway.health.fails();
            gateway.passes_unread(&principal);
            Err(gateway.missed(reason, None))
        }
    };
    match (recorded, gateway.unrecorded) {
        (Ok(composed), _) => Ok(composed),
        (Err(reason @ (Reason::Store | Reason::TooLarge)), Unrecorded::Refuse) => {
            Err(Trouble::unrecorded(reason))
        }
        // A body that cannot be read cannot be recorded; the provider will report the error.
        (Err(reason), _) => {
            if mode == Mode::Compact {
                gateway.uncomposed(Uncomposed::Unrecorded(reason));
            }
            Ok(None)
        }
    }
}

/// Name of the model that a request asks for, if the body can be read.
fn model(headers: &HeaderMap, body: &[u8], limit: usize) -> Option<String> {
    let expanded;
    let body = match Coding::of(headers) {
        Coding::Identity => body,
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
    struct Asked {
        model: String,
    }
    serde_json::from_slice(body).ok().map(|Asked { model }| model)
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { how: How::Refused, trouble }
    }
}

impl From<IntakeError> for Failure {
    fn from(error: IntakeError) -> Self {
        let error = SendError::Intake(error);
        Self { how: error.how(), trouble: error.trouble("") }
    }
}
