//! The record of one exchange: its request as soon as it has come, its answer when it has ended.
//!
//! The recorder blocks, so it runs on threads of its own while bytes are passed on. A request is recorded
//! during the wait for its answer; an answer that ends sooner is recorded by the same thread, right after.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use epitome::{
    core::{
        Fact,
        event::{Timestamp, Usage},
    },
    observe::PolicyObservation,
    recorder::{
        EndedExchange, FinishOutcome, PendingRecord, PlacementKind, RecordError, RequestArrival,
        TrafficRecorder,
    },
    rewrite::{
        self, RequestCount, RequestDisposition, RequestOverrides, RequestRewrite, RewriteReport,
        RewrittenRequest, SessionSummaryAnswer,
    },
    store::Store,
    wire::{Format, caller::RequestPurpose, overflow::ContextOverflow, recall_tool::RecallCalls},
};
use http::{HeaderMap, header};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
};

use super::{
    Gateway,
    admission::TOKEN_HEADER,
    answer_copy::AnswerCopy,
    completed_exchange::CompletedExchange,
    decompress::{ContentCoding, DecompressError, expand},
    delivery::{DeliveryGuard, WaitingRequest},
    headers::KEY_HEADERS,
    metrics::UnrecordedReason,
    reopening_store::ReopeningStore,
    request_body,
    request_scope::RequestCompletion,
    summariser::ModelAccess,
    telemetry,
    treatment::PolicyInUse,
};
use crate::config::{GatewayMode, StoreFailureAction};

/// Held by every task that must not be cut off when the gateway stops.
pub(super) type ShutdownGuard = mpsc::Sender<()>;

/// A request that is to be recorded.
#[derive(Debug)]
pub(super) struct RecordableRequest {
    /// Owner of the request.
    pub(super) principal: Arc<str>,
    /// Format of the request.
    pub(super) format: Format,
    /// Headers of the request.
    pub(super) headers: HeaderMap,
    /// Body of the request, as it came.
    pub(super) body: Bytes,
    /// Mode of the request: whether a policy is applied to it, computed beside it, or neither.
    pub(super) mode: GatewayMode,
    /// Policy of the request.
    pub(super) policy: Arc<PolicyInUse>,
    /// Purpose of the request, if its path shows it.
    pub(super) purpose: Option<RequestPurpose>,
    /// Options of the client for composing, from its headers.
    pub(super) wishes: RequestOverrides,
    /// Access to the session's own model, for summaries.
    pub(super) means: Option<Arc<ModelAccess>>,
}

/// A request whose treatment is decided.
#[derive(Debug)]
pub(super) struct ComposedRequest {
    /// Treatment of the request.
    pub(super) way: ComposeDecision,
    /// The client's body, not compressed, from which the request is composed.
    pub(super) body: Bytes,
}

/// Treatment of a request in mode `compact`.
#[derive(Debug)]
pub(super) enum ComposeDecision {
    /// This was decided and recorded.
    Decided(RequestDisposition),
    /// It is sent as it came, and counted and recorded meanwhile.
    Whole(oneshot::Receiver<RewriteReport>),
}

/// A composed request that its provider refused as too long.
#[derive(Debug)]
pub(super) struct OverlongRequest {
    /// The original request.
    pub(super) request: Arc<RecordableRequest>,
    /// Its body, not compressed.
    pub(super) body: Bytes,
    /// Length limit that the provider states.
    pub(super) overflow: ContextOverflow,
}

/// A composed request whose model asks back for what was left out.
#[derive(Debug)]
pub(super) struct RecallRequest {
    /// The original request.
    pub(super) request: Arc<RecordableRequest>,
    /// Its body, not compressed.
    pub(super) body: Bytes,
    /// Calls of the recall tool.
    pub(super) recalls: RecallCalls,
}

/// The request that goes on after a model asked back.
#[derive(Debug)]
pub(super) struct RecallContinuation {
    /// The request.
    pub(super) outgoing: RewrittenRequest,
    /// Usage of the answer that asked back.
    pub(super) usage: Option<Usage>,
}

/// Time after which a request is written without its answer, and interval at which that is checked.
const WRITE_WITHOUT_ANSWER_AFTER: Duration = Duration::from_secs(1);
const UNANSWERED_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Writes down requests whose answers take long, for as long as the store exists.
pub(super) async fn write_unanswered(shelf: Weak<ReopeningStore>) {
    loop {
        tokio::time::sleep(UNANSWERED_CHECK_INTERVAL).await;
        let Some(shelf) = shelf.upgrade() else { return };
        let before = Timestamp(
            now().0.saturating_sub(i64::try_from(WRITE_WITHOUT_ANSWER_AFTER.as_millis()).unwrap_or(i64::MAX)),
        );
        // A task of its own, because the store may be stuck and another opened in its place.
        tokio::spawn(async move {
            let begin = move || shelf.recorder().write_deferred_before(before);
            if let Ok(pending) = tokio::task::spawn_blocking(begin).await {
                pending.written().await;
            }
        });
    }
}

/// Result of recording an exchange.
pub(super) type RecordResult = Result<(), UnrecordedReason>;

/// Result of recording a request, with the composed request if there is one.
pub(super) type ComposeResult = Result<Option<DeliveryGuard<ComposedRequest>>, UnrecordedReason>;

/// The record of an exchange.
#[derive(Debug)]
pub(super) struct ExchangeRecording {
    task: Arc<RecordTask>,
    /// Receives the result once the request is recorded.
    arrived: Option<oneshot::Receiver<ComposeResult>>,
    /// Receives the counts of a request that was sent before they were known.
    counted: Option<oneshot::Receiver<RewriteReport>>,
}

#[derive(Debug)]
struct RecordTask {
    gateway: Arc<Gateway>,
    shelf: Arc<ReopeningStore>,
    /// Owner of the exchange.
    principal: Arc<str>,
    stage: Mutex<RecordStage>,
    _alive: ShutdownGuard,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum RecordStage {
    /// The request is being recorded, or composed again.
    Arriving,
    /// The request is recorded, or could not be; there is no answer yet.
    Arrived(Result<Box<RecordedRequest>, UnrecordedReason>),
    /// The answer ended while another thread was busy with the request. That thread records the answer.
    Leaving(Box<RequestCompletion>),
    /// The exchange is finished.
    Gone,
}

/// A request that is recorded.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub(super) ticket: PendingRecord,
    /// The recorder that holds the request.
    pub(super) recorder: Arc<TrafficRecorder>,
    /// The request that the policy would have sent.
    pub(super) observed: Option<PolicyObservation>,
    /// Number of recorded answers that asked back.
    pub(super) asked_back: u64,
    /// Result of composing it, if it was sent before that was known.
    pub(super) counted: Option<RewriteReport>,
}

impl ExchangeRecording {
    /// Begins to record a request.
    pub(super) fn begin(
        gateway: &Arc<Gateway>,
        alive: ShutdownGuard,
        request: Arc<RecordableRequest>,
    ) -> Result<Self, UnrecordedReason> {
        let shelf = gateway.shelf.as_ref().ok_or(UnrecordedReason::Store)?;
        // Without this limit, requests that wait for a stuck store would fill the memory.
        let place = Arc::clone(&gateway.records).try_acquire_owned().map_err(|_| UnrecordedReason::Store)?;
        let task = Arc::new(RecordTask {
            gateway: Arc::clone(gateway),
            shelf: Arc::clone(shelf),
            principal: Arc::clone(&request.principal),
            stage: Mutex::new(RecordStage::Arriving),
            _alive: alive,
            _place: place,
        });
        let (tell, arrived) = oneshot::channel();
        let working = Arc::clone(&task);
        gateway.runtime.spawn_blocking(move || working.arrive(&request, tell));
        Ok(Self { task, arrived: Some(arrived), counted: None })
    }

    /// Waits until the request is recorded and composed, or until it is known to be sent as it came.
    pub(super) async fn wait_until_recorded(&mut self) -> Result<Option<ComposedRequest>, UnrecordedReason> {
        match self.arrived.take() {
            Some(arrived) => arrived
                .await
                .unwrap_or(Err(UnrecordedReason::Store))
                .map(|taken| taken.and_then(DeliveryGuard::take)),
            None => Ok(None),
        }
    }

    /// Notes that the request was sent as it came; `counted` receives its counts.
    pub(super) fn set_count_receiver(&mut self, counted: oneshot::Receiver<RewriteReport>) {
        self.counted = Some(counted);
    }

    /// Takes the counts of a request that was sent before they were known, if they have arrived.
    pub(super) fn try_take_counts(&mut self) -> Option<RewriteReport> {
        let done = self.counted.as_mut()?.try_recv().ok()?;
        self.counted = None;
        Some(done)
    }

    /// Waits for the same counts. `None` if they never come, or were taken before.
    pub(super) async fn wait_for_counts(&mut self) -> Option<RewriteReport> {
        self.counted.take()?.await.ok()
    }

    /// Composes the request again, smaller; `None` if that is impossible.
    pub(super) async fn compose_smaller(&self, refused: OverlongRequest) -> Option<RewrittenRequest> {
        self.anew(move |task, arrived| task.smaller(arrived, &refused)).await
    }

    /// Summarises the session in its provider's place; `None` if that is impossible.
    pub(super) async fn summarise_instead(&self, refused: OverlongRequest) -> Option<SessionSummaryAnswer> {
        self.anew(move |task, arrived| task.summarise_instead(arrived, &refused)).await
    }

    /// Composes the request again, with what its model asked back for; `None` if that is impossible.
    pub(super) async fn recall(&self, asked: RecallRequest) -> Option<RecallContinuation> {
        self.anew(move |task, arrived| task.recall(arrived, &asked)).await
    }

    /// Runs `make` for a request that is recorded, on a thread that may block.
    async fn anew<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RecordTask, &mut RecordedRequest) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let mut arrived = {
            let mut stage = self.task.stage();
            match std::mem::replace(&mut *stage, RecordStage::Arriving) {
                RecordStage::Arrived(Ok(arrived)) => arrived,
                other => {
                    *stage = other;
                    return None;
                }
            }
        };
        let (tell, told) = oneshot::channel();
        let working = Arc::clone(&self.task);
        self.task.gateway.runtime.spawn_blocking(move || {
            let made = unless_it_panics(|| work(&working, &mut arrived)).flatten();
            working.hands_over(tell, arrived, made, |heard| heard);
        });
        told.await.ok().flatten().and_then(DeliveryGuard::take)
    }

    /// Records how the exchange ended.
    pub(super) fn finish(self, departure: RequestCompletion) {
        let departure = Box::new(departure);
        let mut stage = self.task.stage();
        match std::mem::replace(&mut *stage, RecordStage::Gone) {
            RecordStage::Arriving => *stage = RecordStage::Leaving(departure),
            RecordStage::Arrived(arrived) => {
                drop(stage);
                if is_soon_read(&arrived, &departure) {
                    return self.task.depart(arrived, *departure);
                }
                let runtime = self.task.gateway.runtime.clone();
                runtime.spawn_blocking(move || self.task.depart(arrived, *departure));
            }
            // An exchange has one recording, which ends with this.
            RecordStage::Leaving(_) | RecordStage::Gone => {}
        }
    }
}

impl RecordTask {
    fn arrive(self: Arc<Self>, request: &RecordableRequest, tell: oneshot::Sender<ComposeResult>) {
        let recorder = self.shelf.recorder();
        let mut waiting = WaitingRequest::Waits(tell);
        let taken = unless_it_panics(|| self.record(&recorder, request, &mut waiting));
        let (ticket, composed) = match taken.unwrap_or_else(|| Err(self.missed(UnrecordedReason::Store))) {
            Ok(taken) => taken,
            Err(reason) => {
                self.gateway.note_unread_request(&self.principal);
                if let Some(tell) = waiting.take_waiting_sender() {
                    // The receiver may be gone, here and below.
                    let _ = tell.send(Err(reason));
                }
                return self.done_with(Err(reason));
            }
        };
        self.gateway.metrics.recorded(ticket.placed);
        let mut arrived =
            Box::new(RecordedRequest { ticket, recorder, observed: None, asked_back: 0, counted: None });
        match (waiting.take_waiting_sender(), composed) {
            (Some(tell), Some(composed)) => self.hands_over(tell, arrived, Some(composed), Ok),
            (
                None,
                Some(ComposedRequest {
                    way: ComposeDecision::Decided(RequestDisposition::Forward(outgoing)),
                    ..
                }),
            ) => {
                let tell = waiting.take_count_sender();
                arrived.counted = tell.as_ref().map(|_| outgoing.done.clone());
                // The receiver may ask at once for a smaller request, so the state is put back first.
                self.done_with(Ok(arrived));
                if let Some(tell) = tell {
                    let _ = tell.send(outgoing.done);
                }
            }
            (tell, _) => {
                // An observation is made after the reply, so that the request does not wait for it.
                if let Some(tell) = tell {
                    let _ = tell.send(Ok(None));
                }
                let store = arrived.recorder.store();
                arrived.observed = unless_it_panics(|| observe(&**store, request, &arrived.ticket)).flatten();
                self.done_with(Ok(arrived));
            }
        }
    }

    fn smaller(&self, arrived: &mut RecordedRequest, refused: &OverlongRequest) -> Option<RewrittenRequest> {
        let OverlongRequest { request, body, overflow } = refused;
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(str::from_utf8(body).ok()?, &header);
        let composing = &request.policy.composing;
        let RecordedRequest { recorder, ticket, .. } = arrived;
        let composed = rewrite::compose_smaller(recorder, ticket, &arrival, composing, *overflow);
        composed.map_err(|error| self.failed(&error)).ok().flatten()
    }

    fn summarise_instead(
        &self,
        arrived: &mut RecordedRequest,
        refused: &OverlongRequest,
    ) -> Option<SessionSummaryAnswer> {
        let OverlongRequest { request, body, .. } = refused;
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(str::from_utf8(body).ok()?, &header);
        let RecordedRequest { recorder, ticket, .. } = arrived;
        let summary = rewrite::summarise_instead(recorder, ticket, &arrival, &request.policy.composing);
        summary.map_err(|error| self.failed(&error)).ok().flatten()
    }

    fn recall(&self, arrived: &mut RecordedRequest, asked: &RecallRequest) -> Option<RecallContinuation> {
        let RecallRequest { request, body, recalls } = asked;
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(str::from_utf8(body).ok()?, &header);
        let recalled = rewrite::recall(&arrived.recorder, &mut arrived.ticket, &arrival, recalls);
        let outgoing = recalled.map_err(|error| self.failed(&error)).ok().flatten()?;
        arrived.asked_back += 1;
        let answer = request.format.decode_response(&recalls.answer).unwrap_or_default();
        let usage = answer.iter().rev().find_map(|event| match &event.fact {
            Fact::UsageReported { usage, .. } => Some(*usage),
            _ => None,
        });
        Some(RecallContinuation { outgoing, usage })
    }

    /// Hands the result to the task that waits for it. If no task waits any more, the request is recorded as
    /// one that never left.
    fn hands_over<T, H>(
        self: Arc<Self>,
        tell: oneshot::Sender<H>,
        mut arrived: Box<RecordedRequest>,
        mut made: Option<T>,
        told: impl FnOnce(Option<DeliveryGuard<T>>) -> H,
    ) {
        if tell.is_closed() && made.take().is_some() {
            self.never_left(&arrived.recorder, &mut arrived.ticket);
        }
        // The receiver may ask for another request at once, so the state is put back first.
        Arc::clone(&self).done_with(Ok(arrived));
        let runtime = self.gateway.runtime.clone();
        let lost = move || drop(runtime.spawn_blocking(move || self.handle_undelivered()));
        // The receiver may be gone by now.
        let _ = tell.send(told(made.map(|made| DeliveryGuard::new(made, lost))));
    }

    /// Handles a result whose receiver stopped waiting just as it was sent.
    fn handle_undelivered(self: Arc<Self>) {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, RecordStage::Arriving) {
            RecordStage::Arrived(Ok(mut arrived)) => {
                drop(stage);
                self.never_left(&arrived.recorder, &mut arrived.ticket);
                self.done_with(Ok(arrived));
            }
            other => *stage = other,
        }
    }

    /// Records that a composed request never left: the client's own request was sent instead, or none.
    fn never_left(&self, recorder: &TrafficRecorder, ticket: &mut PendingRecord) {
        if let Err(error) = recorder.note_call_not_sent(ticket, now()) {
            self.failed(&error);
        }
    }

    /// Puts the request back when a thread has finished with it.
    fn done_with(self: Arc<Self>, arrived: Result<Box<RecordedRequest>, UnrecordedReason>) {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, RecordStage::Gone) {
            RecordStage::Leaving(departure) => {
                drop(stage);
                self.depart(arrived, *departure);
            }
            RecordStage::Arriving | RecordStage::Arrived(_) | RecordStage::Gone => {
                *stage = RecordStage::Arrived(arrived);
            }
        }
    }

    fn record(
        &self,
        recorder: &TrafficRecorder,
        request: &RecordableRequest,
        waiting: &mut WaitingRequest,
    ) -> Result<(PendingRecord, Option<ComposedRequest>), UnrecordedReason> {
        let plain = match ContentCoding::of(&request.headers) {
            ContentCoding::Identity => request.body.clone(),
            coding => {
                let expanded = expand(coding, &request.body, self.gateway.limits.body);
                expanded.map(Bytes::from).map_err(|error| match error {
                    DecompressError::TooLarge => self.missed(UnrecordedReason::TooLarge),
                    DecompressError::Garbage => self.missed(UnrecordedReason::UnreadableRequest),
                })?
            }
        };
        let Ok(body) = str::from_utf8(&plain) else {
            return Err(self.missed(UnrecordedReason::UnreadableRequest));
        };
        let header = |name: &str| shown(&request.headers, name);
        let arrival = request.arrival(body, &header);
        if request.mode != GatewayMode::Compact {
            // A request that is only passed on may be written with its answer, because it does not wait for
            // the record.
            let ticket = match (request.mode, self.gateway.unrecorded) {
                (GatewayMode::Record, StoreFailureAction::Forward) => recorder.record_deferred(&arrival),
                _ => recorder.record(&arrival),
            };
            return Ok((ticket.map_err(|error| self.failed(&error))?, None));
        }
        let composed = self.compose(recorder, request, &arrival, (waiting, &plain));
        let rewrite::RewriteOutcome { ticket, way } = composed.map_err(|error| self.failed(&error))?;
        Ok((ticket, Some(ComposedRequest { way: ComposeDecision::Decided(way), body: plain })))
    }

    /// Composes a request. One that is certain to go on as it came leaves before it is counted and recorded.
    fn compose(
        &self,
        recorder: &TrafficRecorder,
        request: &RecordableRequest,
        arrival: &RequestArrival<'_>,
        (waiting, plain): (&mut WaitingRequest, &Bytes),
    ) -> Result<rewrite::RewriteOutcome, RecordError> {
        let mut rewrite = begin_rewrite(&self.gateway, recorder, request, arrival)?;
        loop {
            let decision = rewrite.decide()?;
            if decision.may_leave() {
                waiting.send_unchanged(plain);
                rewrite.note_left();
            }
            if let Some(outcome) = rewrite.carry_out(decision)? {
                return Ok(outcome);
            }
        }
    }

    /// Records the end of an exchange. This does not wait for the store's writes.
    fn depart(
        self: Arc<Self>,
        arrived: Result<Box<RecordedRequest>, UnrecordedReason>,
        completion: RequestCompletion,
    ) {
        let CompletedExchange { recorded, end, done, counts } = CompletedExchange::read(arrived, completion);
        if recorded.is_ok() && counts.is_unreadable {
            self.missed(UnrecordedReason::UnreadableAnswer);
        }
        let (gateway, principal) = (Arc::clone(&self.gateway), Arc::clone(&self.principal));
        counts.count_observation(&gateway.metrics);
        match recorded {
            Ok((ticket, recorder)) => self.finish(ticket, recorder, end, done),
            // The receiver may be gone: the client may have disconnected.
            Err(reason) => drop(done.send(Err(reason))),
        }
        counts.report(&gateway.metrics, &principal);
    }

    /// Has the store write the end of an exchange.
    fn finish(
        self: Arc<Self>,
        ticket: PendingRecord,
        recorder: Arc<TrafficRecorder>,
        end: EndedExchange,
        done: oneshot::Sender<RecordResult>,
    ) {
        let pending = recorder.begin_finish(ticket, end);
        // The thread of the connection waits, if this is one: it has the answer, and no other has to wake for it.
        let runtime = Handle::try_current().unwrap_or_else(|_| self.gateway.runtime.clone());
        runtime.spawn(async move {
            match pending.outcome().await {
                Ok(FinishOutcome::Unsettled(unfinished)) => {
                    let runtime = self.gateway.runtime.clone();
                    runtime.spawn_blocking(move || self.departed(recorder.settle(*unfinished), done));
                }
                Ok(FinishOutcome::Done) => self.departed(Ok(()), done),
                Err(error) => self.departed(Err(error), done),
            }
        });
    }

    fn departed(&self, recorded: Result<(), RecordError>, done: oneshot::Sender<RecordResult>) {
        let recorded = recorded.map_err(|error| self.failed(&error));
        if recorded.is_ok() {
            self.gateway.health.record_success();
        }
        let _ = done.send(recorded);
    }

    fn failed(&self, error: &RecordError) -> UnrecordedReason {
        let reason = if let RecordError::Unreadable(_) = error {
            UnrecordedReason::UnreadableRequest
        } else {
            self.gateway.health.record_failure();
            UnrecordedReason::Store
        };
        self.gateway.report_unrecorded(reason, Some(error))
    }

    fn missed(&self, reason: UnrecordedReason) -> UnrecordedReason {
        self.gateway.report_unrecorded(reason, None)
    }

    fn stage(&self) -> MutexGuard<'_, RecordStage> {
        // Every change under this lock is complete, so a poisoned lock is usable.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordableRequest {
    /// Body of the request, not compressed, if it asks for a compaction.
    pub(super) fn asks_to_compact(&self, limit: usize) -> Option<Bytes> {
        let composing = &self.policy.composing;
        if self.wishes.compact.is_none() && composing.command.is_none() {
            return None;
        }
        let plain = match ContentCoding::of(&self.headers) {
            ContentCoding::Identity => self.body.clone(),
            coding => expand(coding, &self.body, limit).ok()?.into(),
        };
        let header = |name: &str| shown(&self.headers, name);
        let arrival = self.arrival(str::from_utf8(&plain).ok()?, &header);
        let is_told = composing.asks_for_compaction(&arrival, &self.wishes);
        is_told.then_some(plain)
    }

    /// Counts the request as it would be sent. Nothing of it is recorded.
    pub(super) fn count(&self, gateway: &Gateway) -> Option<RequestCount> {
        let recorder = gateway.shelf.as_ref()?.recorder();
        let plain = match ContentCoding::of(&self.headers) {
            ContentCoding::Identity => self.body.clone(),
            coding => expand(coding, &self.body, gateway.limits.body).ok()?.into(),
        };
        let header = |name: &str| shown(&self.headers, name);
        let arrival = self.arrival(str::from_utf8(&plain).ok()?, &header);
        unless_it_panics(|| begin_rewrite(gateway, &recorder, self, &arrival)?.count())?.ok()
    }

    /// Describes the request to the recorder: its body, not compressed, and its headers.
    fn arrival<'a>(
        &'a self,
        body: &'a str,
        header: &'a dyn Fn(&str) -> Option<&'a str>,
    ) -> RequestArrival<'a> {
        let Self { principal, format, purpose, .. } = self;
        let shared = Some(&self.body).filter(|body| request_body::is_its_own(body));
        RequestArrival { principal, format: *format, body, shared, header, at: now(), purpose: *purpose }
    }
}

/// Begins to compose a request, with the model that writes its session's summaries.
fn begin_rewrite<'r, 'b>(
    gateway: &Gateway,
    recorder: &'r TrafficRecorder,
    request: &'r RecordableRequest,
    arrival: &'r RequestArrival<'b>,
) -> Result<RequestRewrite<'r, 'b>, RecordError> {
    let Gateway { summarisers, upstreams, .. } = gateway;
    let (composing, wishes) = (&request.policy.composing, &request.wishes);
    let mut rewrite = RequestRewrite::begin(recorder, arrival, composing, wishes)?;
    let summariser = rewrite
        .model()
        .and_then(|model| summarisers.of(upstreams, (request.format, &model.0), request.means.as_ref()));
    rewrite.set_summariser(summariser);
    Ok(rewrite)
}

/// Runs `work` and returns its result unless it panics. Whatever goes wrong with a record, the answer is
/// passed on.
fn unless_it_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    // A panic releases all locks, and state that it left half done is read again from the store.
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Computes the request that the policy would have sent. A failure here has no consequences, because the
/// result is only compared.
fn observe(
    store: &dyn Store,
    request: &RecordableRequest,
    ticket: &PendingRecord,
) -> Option<PolicyObservation> {
    // A request that is sent again has been observed already.
    if request.mode != GatewayMode::Observe
        || ticket.purpose != RequestPurpose::Turn
        || ticket.placed == PlacementKind::Retried
    {
        return None;
    }
    let PendingRecord { thread, head, model, .. } = ticket;
    let policy = &request.policy;
    let seen = policy.observer.call(store, *thread, *head, model.as_ref(), request.format, now());
    match seen {
        Ok(observed) => Some(observed),
        Err(error) => {
            telemetry::unobserved(&error);
            None
        }
    }
}

/// Returns true if the remaining work takes less time than handing it to another thread.
fn is_soon_read(
    arrived: &Result<Box<RecordedRequest>, UnrecordedReason>,
    departure: &RequestCompletion,
) -> bool {
    /// Most bytes that are read on the spot; reading more takes longer than waking a thread.
    const BYTES: usize = 16 << 10;
    // Results of the recall tool are read from the store.
    let request = arrived.as_ref().map_or(0, |arrived| match departure.spliced {
        Some(_) => usize::MAX,
        None => arrived.ticket.unwritten_bytes(),
    });
    let answer = departure.copy.as_ref().map_or(0, AnswerCopy::expected_work);
    request.saturating_add(answer) <= BYTES
}

/// A header as the recorder may see it: headers with keys are withheld, so that no key reaches the store.
fn shown<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let is_secret =
        [header::AUTHORIZATION.as_str(), header::PROXY_AUTHORIZATION.as_str(), header::COOKIE.as_str()]
            .contains(&name)
            || name == TOKEN_HEADER.as_str()
            || KEY_HEADERS.contains(&name);
    if is_secret { None } else { headers.get(name)?.to_str().ok() }
}

pub(super) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}
