//! One request from its arrival to the end of its answer: the numbers that are counted and the data that its
//! record needs.
//!
//! Every request ends here, however it ends: a passage that is dropped on the way was cut short by its
//! client.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use epitome::{
    core::{
        event::Usage,
        id::{AnswerId, ModelName},
    },
    recorder::ExchangeOutcome,
    rewrite::{self, RewriteReport},
    wire::Format,
};
use http::{HeaderMap, StatusCode, Uri};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Gateway,
    answer_copy::{AnswerCopy, CopiedAnswer, is_streamed},
    metrics::{
        FinishedRequest, GatewayMetrics, InFlightGuard, UnrecordedReason, compact_calls::OverflowOutcome,
    },
    outcome_header::CompactOutcome,
    recall_body::SplicedAnswer,
    recording::{ComposedRequest, ExchangeRecording, OverlongRequest, RecallRequest, RecordResult},
    telemetry::{self, RecordLocation, RequestLogEntry},
    upstream::Upstream,
};
use crate::config::GatewayMode;

/// One request in progress.
#[derive(Debug)]
pub(super) struct RequestScope {
    gateway: Arc<Gateway>,
    stats: RequestStats,
    started: Instant,
    copy: Option<AnswerCopy>,
    recording: Option<ExchangeRecording>,
    /// Treatment of the request in mode `compact`.
    fate: Option<CompactOutcome>,
    /// Result of sending the request again, if its provider refused it as too long.
    overflow: Option<OverflowOutcome>,
    /// The client's view of the answer, if it does not see all of it.
    spliced: Option<SplicedAnswer>,
    hidden: HiddenExchanges,
    stage: ScopeStage,
    _place: OwnedSemaphorePermit,
    _in_flight: InFlightGuard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScopeStage {
    Passing,
    Ended,
}

/// Way in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyEnding {
    /// The answer came to its end.
    Ended,
    /// The answer broke off.
    Broke,
    /// The client disconnected.
    Left,
    /// There was no answer.
    Unreached,
    /// The gateway refused the request.
    Refused,
}

impl ProxyEnding {
    /// Ending under which the exchange is recorded, taking into account what the answer itself shows.
    pub(super) fn ending(self, status: Option<StatusCode>, read: Option<&CopiedAnswer>) -> ExchangeOutcome {
        match (self, read) {
            (Self::Ended, Some(read)) => read.ending,
            (Self::Ended, None) => {
                let is_error = |status: StatusCode| status.is_client_error() || status.is_server_error();
                if status.is_some_and(is_error) {
                    ExchangeOutcome::Refused
                } else {
                    ExchangeOutcome::Complete
                }
            }
            (Self::Broke, _) => ExchangeOutcome::Cut,
            (Self::Left, _) => ExchangeOutcome::Cancelled,
            (Self::Unreached, _) => ExchangeOutcome::Unreached,
            (Self::Refused, _) => ExchangeOutcome::Refused,
        }
    }
}

/// Numbers and names of a request, for metrics and logs.
#[derive(Clone, Debug)]
pub(super) struct RequestStats {
    principal: Arc<str>,
    path: Uri,
    began: SystemTime,
    upstream: Option<Arc<Upstream>>,
    format: Option<Format>,
    mode: GatewayMode,
    status: Option<StatusCode>,
    /// True if the status is a provider's.
    is_answered: bool,
    is_streamed: bool,
    bytes_in: u64,
    /// Bytes of the answer.
    pub(super) bytes_out: u64,
    /// Time to the first byte of the answer.
    pub(super) first_byte: Option<Duration>,
    /// Time until the end.
    pub(super) took: Duration,
}

/// Facts that an answer states about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerFacts {
    /// The provider's id of the answer.
    pub(super) answer: Option<AnswerId>,
    /// The model that answered.
    pub(super) model: Option<ModelName>,
    /// Usage of the answer.
    pub(super) usage: Option<Usage>,
}

impl RequestStats {
    /// Status of the provider's answer.
    pub(super) fn provider_status(&self) -> Option<StatusCode> {
        self.status.filter(|_| self.is_answered)
    }

    /// Counts the request and writes it to the log.
    pub(super) fn report(
        &self,
        metrics: &GatewayMetrics,
        ending: ExchangeOutcome,
        said: &AnswerFacts,
        place: Option<RecordLocation>,
    ) {
        let model = said.model.as_ref().map(|model| model.0.as_str());
        let finished = FinishedRequest {
            principal: &self.principal,
            format: self.format,
            mode: self.mode,
            status: self.status.map(|status| status.as_u16()),
            ending,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            first_byte: self.first_byte,
            took: self.took,
            model,
            usage: said.usage.as_ref(),
        };
        metrics.finished(&finished);
        telemetry::log_request(&RequestLogEntry {
            finished: &finished,
            path: self.path.path(),
            began: self.began,
            upstream: self.upstream.as_ref().map(|upstream| upstream.config()),
            streamed: self.is_streamed,
            place,
            answer: said.answer.as_ref().map(|answer| answer.0.as_str()),
            answered_by: model,
        });
    }
}

/// Answers and calls between the gateway and the provider that the client does not see.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HiddenExchanges {
    /// Number of recorded answers that asked back.
    pub(super) answers: u64,
    /// Number of calls of the recall tool that were answered.
    pub(super) recalls: u64,
    /// Usage of the answers that asked back.
    pub(super) usage: Usage,
}

impl HiddenExchanges {
    /// Usage of these answers and another one together.
    pub(super) fn with(&self, other: &Usage) -> Usage {
        Usage {
            uncached: self.usage.uncached + other.uncached,
            cache_read: self.usage.cache_read + other.cache_read,
            cache_write: self.usage.cache_write + other.cache_write,
            cache_write_hour: self.usage.cache_write_hour + other.cache_write_hour,
            output: self.usage.output + other.output,
        }
    }
}

/// A request that has ended, with everything that its record needs.
#[derive(Debug)]
pub(super) struct RequestCompletion {
    /// Numbers and names that are counted.
    pub(super) passed: RequestStats,
    /// Copy of the answer.
    pub(super) copy: Option<AnswerCopy>,
    /// Way in which it ended.
    pub(super) how: ProxyEnding,
    /// Result of composing it in mode `compact`.
    pub(super) composed: Option<RewriteReport>,
    /// Result of sending it again, if its provider refused it as too long.
    pub(super) overflow: Option<OverflowOutcome>,
    /// The client's view of the answer, if it does not see all of it.
    pub(super) spliced: Option<SplicedAnswer>,
    /// Answers that the client did not see.
    pub(super) hidden: HiddenExchanges,
    /// Notified when the exchange is recorded.
    pub(super) done: oneshot::Sender<RecordResult>,
}

impl RequestScope {
    /// Starts with a request that has just arrived.
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        place: OwnedSemaphorePermit,
        principal: Arc<str>,
        path: Uri,
        format: Option<Format>,
        mode: GatewayMode,
    ) -> Self {
        let stats = RequestStats {
            principal,
            path,
            began: SystemTime::now(),
            upstream: None,
            format,
            mode,
            status: None,
            is_answered: false,
            is_streamed: false,
            bytes_in: 0,
            bytes_out: 0,
            first_byte: None,
            took: Duration::ZERO,
        };
        Self {
            gateway: Arc::clone(gateway),
            stats,
            started: Instant::now(),
            copy: None,
            recording: None,
            fate: (mode == GatewayMode::Compact).then_some(CompactOutcome::Refused),
            overflow: None,
            spliced: None,
            hidden: HiddenExchanges::default(),
            stage: ScopeStage::Passing,
            _place: place,
            _in_flight: gateway.metrics.arrived(),
        }
    }

    /// The gateway that handles the request.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Owner of the request.
    pub(super) fn principal(&self) -> &str {
        &self.stats.principal
    }

    /// Counts bytes of the request.
    pub(super) fn set_request_bytes(&mut self, bytes: u64) {
        self.stats.bytes_in = bytes;
    }

    /// Notes the provider that the request is sent to.
    pub(super) fn set_upstream(&mut self, upstream: &Arc<Upstream>) {
        self.stats.upstream = Some(Arc::clone(upstream));
    }

    /// Notes the recording of the request.
    pub(super) fn set_recording(&mut self, recording: ExchangeRecording) {
        self.recording = Some(recording);
    }

    /// Waits until the request is recorded, and composed if that is configured.
    pub(super) async fn wait_until_recorded(&mut self) -> Result<Option<ComposedRequest>, UnrecordedReason> {
        match &mut self.recording {
            Some(recording) => recording.wait_until_recorded().await,
            None => Ok(None),
        }
    }

    /// Notes that the request is sent as it came; `counted` receives its counts once they are known.
    pub(super) fn set_sent_unchanged(&mut self, counted: oneshot::Receiver<RewriteReport>) {
        self.fate = Some(CompactOutcome::Whole);
        if let Some(recording) = &mut self.recording {
            recording.set_count_receiver(counted);
        }
    }

    /// Composes the request again, smaller, because its provider refused it as too long; `None` if that is
    /// impossible.
    pub(super) async fn compose_smaller(
        &mut self,
        refused: OverlongRequest,
    ) -> Option<rewrite::RewrittenRequest> {
        let recording = self.recording.as_mut()?;
        if let Some(done) = recording.wait_for_counts().await {
            self.fate = Some(CompactOutcome::Composed(done));
        }
        recording.compose_smaller(refused).await
    }

    /// Summarises the session in its provider's place; `None` if that is impossible.
    pub(super) async fn summarise_instead(
        &mut self,
        refused: OverlongRequest,
    ) -> Option<rewrite::SessionSummaryAnswer> {
        self.recording.as_ref()?.summarise_instead(refused).await
    }

    /// Composes the request that continues with what the model asked back for; `None` if there is none. The
    /// model's answer is recorded with it.
    pub(super) async fn recall(&mut self, asked: RecallRequest) -> Option<rewrite::RewrittenRequest> {
        let calls = asked.recalls.calls.len() as u64;
        let recalled = self.recording.as_ref()?.recall(asked).await?;
        self.copy = None;
        self.hidden.answers += 1;
        self.hidden.recalls += calls;
        self.hidden.usage = self.hidden.with(&recalled.usage.unwrap_or_default());
        Some(recalled.outgoing)
    }

    /// Notes the result of composing the call that is sent. What was done for an earlier call of the same
    /// request is added.
    pub(super) fn set_composed(&mut self, done: RewriteReport) {
        if let Some(before) = self.fate.as_ref().and_then(CompactOutcome::done) {
            self.gateway.metrics.record_earlier_call(before);
        }
        self.fate = Some(CompactOutcome::Composed(done));
    }

    /// Notes the client's view of the answer.
    pub(super) fn spliced(&mut self, spliced: SplicedAnswer) {
        self.hidden.recalls += spliced.recall_count();
        self.spliced = Some(spliced);
    }

    /// Notes the treatment of the request in mode `compact`.
    pub(super) fn set_outcome(&mut self, fate: CompactOutcome) {
        self.fate = Some(fate);
    }

    /// Notes that the provider refused the request as too long, and what came of it.
    pub(super) fn overflowed(&mut self, overflow: OverflowOutcome) {
        self.overflow = Some(overflow);
    }

    /// Treatment of the request in mode `compact`, as far as it is known by now; `None` in other modes.
    pub(super) fn outcome(&mut self) -> Option<&CompactOutcome> {
        if let Some(done) = self.recording.as_mut().and_then(ExchangeRecording::try_take_counts) {
            self.fate = Some(CompactOutcome::Composed(done));
        }
        self.fate.as_ref()
    }

    /// Notes the head of the provider's answer.
    pub(super) fn begin_provider_answer(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.stats.is_answered = true;
        self.begin_answer(status, headers);
    }

    /// Notes the head of the answer, from the provider or the gateway.
    pub(super) fn begin_answer(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.stats.status = Some(status);
        self.stats.is_streamed = is_streamed(headers);
        if let (Some(format), Some(_)) = (self.stats.format, &self.recording) {
            self.copy = Some(AnswerCopy::new(format, status, headers));
        }
    }

    /// Takes bytes of the answer that are passed on.
    pub(super) fn pass_bytes(&mut self, bytes: &Bytes) {
        self.count_client_bytes(bytes);
        self.copy_provider_bytes(bytes);
    }

    /// Counts bytes that the client receives.
    pub(super) fn count_client_bytes(&mut self, bytes: &[u8]) {
        if self.stats.first_byte.is_none() {
            self.stats.first_byte = Some(self.started.elapsed());
        }
        self.stats.bytes_out += bytes.len() as u64;
    }

    /// Copies bytes that the provider sent.
    pub(super) fn copy_provider_bytes(&mut self, bytes: &Bytes) {
        if let Some(copy) = &mut self.copy {
            copy.take(bytes);
        }
    }

    /// Returns true if the answer is complete, though more bytes may follow.
    pub(super) fn is_over(&self) -> bool {
        self.copy.as_ref().is_some_and(AnswerCopy::is_over)
    }

    /// Ends the request with an error that the client is told with this status.
    pub(super) fn end_with_error(&mut self, status: StatusCode, how: ProxyEnding) {
        self.stats.status = Some(status);
        self.end(how);
    }

    /// Ends the request. The receiver is notified when that is recorded; `None` if nothing is recorded.
    pub(super) fn end(&mut self, how: ProxyEnding) -> Option<oneshot::Receiver<RecordResult>> {
        if std::mem::replace(&mut self.stage, ScopeStage::Ended) == ScopeStage::Ended {
            return None;
        }
        let passed = RequestStats { took: self.started.elapsed(), ..self.stats.clone() };
        let copy = self.copy.take();
        let Some(recording) = self.recording.take() else {
            passed.report(
                &self.gateway.metrics,
                how.ending(passed.status, None),
                &AnswerFacts::default(),
                None,
            );
            return None;
        };
        let (done, recorded) = oneshot::channel();
        let composed = self.fate.as_ref().and_then(CompactOutcome::done).cloned();
        let (overflow, spliced, hidden) = (self.overflow, self.spliced.take(), self.hidden);
        recording.finish(RequestCompletion { passed, copy, how, composed, overflow, spliced, hidden, done });
        Some(recorded)
    }
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        // A gateway that is stopping cuts answers short itself.
        let how = if self.gateway.health.is_closing() { ProxyEnding::Broke } else { ProxyEnding::Left };
        self.end(how);
    }
}
