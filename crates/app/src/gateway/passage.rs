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
    compose::{self, Done},
    core::{
        event::Usage,
        id::{AnswerId, ModelName},
    },
    recorder::Ending,
    wire::Format,
};
use http::{HeaderMap, StatusCode, Uri};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Gateway,
    config::Mode,
    copy::{AnswerCopy, Read, is_streamed},
    fate::Fate,
    metrics::{Finished, InFlight, Metrics, Reason, composed::Overflowed},
    recalling::Spliced,
    recording::{AskedBack, Composed, Recorded, Recording, Refused},
    telemetry::{self, Place, Told},
    upstream::Upstream,
};

/// One request in progress.
#[derive(Debug)]
pub(super) struct Passage {
    gateway: Arc<Gateway>,
    principal: Arc<str>,
    path: Uri,
    upstream: Option<Arc<Upstream>>,
    format: Option<Format>,
    mode: Mode,
    began: SystemTime,
    started: Instant,
    status: Option<StatusCode>,
    /// True if the status is a provider's.
    is_answered: bool,
    is_streamed: bool,
    bytes_in: u64,
    bytes_out: u64,
    first_byte: Option<Duration>,
    copy: Option<AnswerCopy>,
    recording: Option<Recording>,
    /// Treatment of the request in mode `compact`.
    fate: Option<Fate>,
    /// Result of sending the request again, if its provider refused it as too long.
    overflow: Option<Overflowed>,
    /// The client's view of the answer, if it does not see all of it.
    spliced: Option<Spliced>,
    hidden: Hidden,
    stage: Stage,
    _place: OwnedSemaphorePermit,
    _in_flight: InFlight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Passing,
    Ended,
}

/// Way in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
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

impl How {
    /// Ending under which the exchange is recorded, taking into account what the answer itself shows.
    pub(super) fn ending(self, status: Option<StatusCode>, read: Option<&Read>) -> Ending {
        match (self, read) {
            (Self::Ended, Some(read)) => read.ending,
            (Self::Ended, None) => {
                let is_error = |status: StatusCode| status.is_client_error() || status.is_server_error();
                if status.is_some_and(is_error) { Ending::Refused } else { Ending::Complete }
            }
            (Self::Broke, _) => Ending::Cut,
            (Self::Left, _) => Ending::Cancelled,
            (Self::Unreached, _) => Ending::Unreached,
            (Self::Refused, _) => Ending::Refused,
        }
    }
}

/// Numbers and names of a request, for metrics and logs.
#[derive(Debug)]
pub(super) struct Passed {
    principal: Arc<str>,
    path: Uri,
    began: SystemTime,
    upstream: Option<Arc<Upstream>>,
    format: Option<Format>,
    mode: Mode,
    status: Option<StatusCode>,
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
pub(super) struct Said {
    /// The provider's id of the answer.
    pub(super) answer: Option<AnswerId>,
    /// The model that answered.
    pub(super) model: Option<ModelName>,
    /// Usage of the answer.
    pub(super) usage: Option<Usage>,
}

impl Passed {
    /// Status of the provider's answer.
    pub(super) fn answered(&self) -> Option<StatusCode> {
        self.status.filter(|_| self.is_answered)
    }

    /// Counts the request and writes it to the log.
    pub(super) fn tell(&self, metrics: &Metrics, ending: Ending, said: &Said, place: Option<Place>) {
        let model = said.model.as_ref().map(|model| model.0.as_str());
        let finished = Finished {
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
        telemetry::tell(&Told {
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
pub(super) struct Hidden {
    /// Number of recorded answers that asked back.
    pub(super) answers: u64,
    /// Number of calls of the recall tool that were answered.
    pub(super) recalls: u64,
    /// Usage of the answers that asked back.
    pub(super) usage: Usage,
}

impl Hidden {
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
pub(super) struct Departure {
    /// Numbers and names that are counted.
    pub(super) passed: Passed,
    /// Copy of the answer.
    pub(super) copy: Option<AnswerCopy>,
    /// Way in which it ended.
    pub(super) how: How,
    /// Result of composing it in mode `compact`.
    pub(super) composed: Option<Done>,
    /// Result of sending it again, if its provider refused it as too long.
    pub(super) overflow: Option<Overflowed>,
    /// The client's view of the answer, if it does not see all of it.
    pub(super) spliced: Option<Spliced>,
    /// Answers that the client did not see.
    pub(super) hidden: Hidden,
    /// Notified when the exchange is recorded.
    pub(super) done: oneshot::Sender<Recorded>,
}

impl Passage {
    /// Starts with a request that has just arrived.
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        place: OwnedSemaphorePermit,
        principal: Arc<str>,
        path: Uri,
        format: Option<Format>,
        mode: Mode,
    ) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            principal,
            path,
            upstream: None,
            format,
            mode,
            began: SystemTime::now(),
            started: Instant::now(),
            status: None,
            is_answered: false,
            is_streamed: false,
            bytes_in: 0,
            bytes_out: 0,
            first_byte: None,
            copy: None,
            recording: None,
            fate: (mode == Mode::Compact).then_some(Fate::Refused),
            overflow: None,
            spliced: None,
            hidden: Hidden::default(),
            stage: Stage::Passing,
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
        &self.principal
    }

    /// Counts bytes of the request.
    pub(super) fn came(&mut self, bytes: u64) {
        self.bytes_in = bytes;
    }

    /// Notes the provider that the request is sent to.
    pub(super) fn goes_to(&mut self, upstream: &Arc<Upstream>) {
        self.upstream = Some(Arc::clone(upstream));
    }

    /// Notes the recording of the request.
    pub(super) fn recorded_by(&mut self, recording: Recording) {
        self.recording = Some(recording);
    }

    /// Waits until the request is recorded, and composed if that is configured.
    pub(super) async fn arrived(&mut self) -> Result<Option<Composed>, Reason> {
        match &mut self.recording {
            Some(recording) => recording.arrived().await,
            None => Ok(None),
        }
    }

    /// Notes that the request is sent as it came; `counted` receives its counts once they are known.
    pub(super) fn goes_on_whole(&mut self, counted: oneshot::Receiver<Done>) {
        self.fate = Some(Fate::Whole);
        if let Some(recording) = &mut self.recording {
            recording.is_counted_by(counted);
        }
    }

    /// Composes the request again, smaller, because its provider refused it as too long; `None` if that is
    /// impossible.
    pub(super) async fn smaller(&mut self, refused: Refused) -> Option<compose::Outgoing> {
        let recording = self.recording.as_mut()?;
        if let Some(done) = recording.when_counted().await {
            self.fate = Some(Fate::Composed(done));
        }
        recording.smaller(refused).await
    }

    /// Composes the request that continues with what the model asked back for; `None` if there is none. The
    /// model's answer is recorded with it.
    pub(super) async fn recall(&mut self, asked: AskedBack) -> Option<compose::Outgoing> {
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
    pub(super) fn goes_on(&mut self, done: Done) {
        if let Some(before) = self.fate.as_ref().and_then(Fate::done) {
            self.gateway.metrics.followed(before);
        }
        self.fate = Some(Fate::Composed(done));
    }

    /// Notes the client's view of the answer.
    pub(super) fn spliced(&mut self, spliced: Spliced) {
        self.hidden.recalls += spliced.given_back();
        self.spliced = Some(spliced);
    }

    /// Notes the treatment of the request in mode `compact`.
    pub(super) fn came_to(&mut self, fate: Fate) {
        self.fate = Some(fate);
    }

    /// Notes that the provider refused the request as too long, and what came of it.
    pub(super) fn overflowed(&mut self, overflow: Overflowed) {
        self.overflow = Some(overflow);
    }

    /// Treatment of the request in mode `compact`, as far as it is known by now; `None` in other modes.
    pub(super) fn fate(&mut self) -> Option<&Fate> {
        if let Some(done) = self.recording.as_mut().and_then(Recording::counted) {
            self.fate = Some(Fate::Composed(done));
        }
        self.fate.as_ref()
    }

    /// Notes the head of the provider's answer.
    pub(super) fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.is_answered = true;
        self.says(status, headers);
    }

    /// Notes the head of the answer, from the provider or the gateway.
    pub(super) fn says(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = Some(status);
        self.is_streamed = is_streamed(headers);
        if let (Some(format), Some(_)) = (self.format, &self.recording) {
            self.copy = Some(AnswerCopy::new(format, status, headers));
        }
    }

    /// Takes bytes of the answer that are passed on.
    pub(super) fn passes(&mut self, bytes: &Bytes) {
        self.shows(bytes);
        self.hears(bytes);
    }

    /// Counts bytes that the client receives.
    pub(super) fn shows(&mut self, bytes: &[u8]) {
        if self.first_byte.is_none() {
            self.first_byte = Some(self.started.elapsed());
        }
        self.bytes_out += bytes.len() as u64;
    }

    /// Copies bytes that the provider sent.
    pub(super) fn hears(&mut self, bytes: &Bytes) {
        if let Some(copy) = &mut self.copy {
            copy.take(bytes);
        }
    }

    /// Returns true if the answer is complete, though more bytes may follow.
    pub(super) fn is_over(&self) -> bool {
        self.copy.as_ref().is_some_and(AnswerCopy::is_over)
    }

    /// Ends the request with an error that the client is told with this status.
    pub(super) fn fails(&mut self, status: StatusCode, how: How) {
        self.status = Some(status);
        self.end(how);
    }

    /// Ends the request. The receiver is notified when that is recorded; `None` if nothing is recorded.
    pub(super) fn end(&mut self, how: How) -> Option<oneshot::Receiver<Recorded>> {
        if std::mem::replace(&mut self.stage, Stage::Ended) == Stage::Ended {
            return None;
        }
        let passed = Passed {
            principal: Arc::clone(&self.principal),
            path: std::mem::take(&mut self.path),
            began: self.began,
            upstream: self.upstream.take(),
            format: self.format,
            mode: self.mode,
            status: self.status,
            is_answered: self.is_answered,
            is_streamed: self.is_streamed,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            first_byte: self.first_byte,
            took: self.started.elapsed(),
        };
        let copy = self.copy.take();
        let Some(recording) = self.recording.take() else {
            passed.tell(&self.gateway.metrics, how.ending(passed.status, None), &Said::default(), None);
            return None;
        };
        let (done, recorded) = oneshot::channel();
        let composed = self.fate.as_ref().and_then(Fate::done).cloned();
        let (overflow, spliced, hidden) = (self.overflow, self.spliced.take(), self.hidden);
        recording.depart(Departure { passed, copy, how, composed, overflow, spliced, hidden, done });
        Some(recorded)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // A gateway that is stopping cuts answers short itself.
        let how = if self.gateway.health.is_closing() { How::Broke } else { How::Left };
        self.end(how);
    }
}
