//! One request from its arrival to the end of its answer: what is counted of it, and what its record needs.
//!
//! However it ends, it ends here: a passage that is dropped on the way was cut short by its client.

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

/// One request on its way.
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
    /// Whether the status is a provider's.
    is_answered: bool,
    is_streamed: bool,
    bytes_in: u64,
    bytes_out: u64,
    first_byte: Option<Duration>,
    copy: Option<AnswerCopy>,
    recording: Option<Recording>,
    /// What became of it in mode `compact`.
    fate: Option<Fate>,
    /// What became of it after its provider refused it as too long.
    overflow: Option<Overflowed>,
    /// What the client sees of an answer that is not all for it.
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

/// How a passage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The answer came to its end.
    Ended,
    /// The answer broke off.
    Broke,
    /// The client went away.
    Left,
    /// There was no answer.
    Unreached,
    /// The gateway did not let it pass.
    Refused,
}

impl How {
    /// What that is called, by what the answer itself says.
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

/// What is counted and told of a passage.
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
    /// How long its first byte took.
    pub(super) first_byte: Option<Duration>,
    /// How long all took.
    pub(super) took: Duration,
}

/// What an answer says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// What its provider calls it.
    pub(super) answer: Option<AnswerId>,
    /// The model that gave it.
    pub(super) model: Option<ModelName>,
    /// What it used.
    pub(super) usage: Option<Usage>,
}

impl Passed {
    /// The status the provider gave.
    pub(super) fn answered(&self) -> Option<StatusCode> {
        self.status.filter(|_| self.is_answered)
    }

    /// Counts it, and tells of it.
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

/// What passed between the gateway and the provider only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hidden {
    /// How many answers are recorded that were gone on from.
    pub(super) answers: u64,
    /// How many calls of the recall tool were answered.
    pub(super) recalls: u64,
    /// What the answers used that made them.
    pub(super) usage: Usage,
}

impl Hidden {
    /// What all used together with another answer.
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

/// A passage that is over, as its record needs it.
#[derive(Debug)]
pub(super) struct Departure {
    /// What is counted of it.
    pub(super) passed: Passed,
    /// The copy of its answer.
    pub(super) copy: Option<AnswerCopy>,
    /// How it ended.
    pub(super) how: How,
    /// What was done to it in mode `compact`.
    pub(super) composed: Option<Done>,
    /// What became of it after its provider refused it as too long.
    pub(super) overflow: Option<Overflowed>,
    /// What the client has of its answer, if that is not all for it.
    pub(super) spliced: Option<Spliced>,
    /// What the client did not see of it.
    pub(super) hidden: Hidden,
    /// Told when it is recorded.
    pub(super) done: oneshot::Sender<Recorded>,
}

impl Passage {
    /// A request that has just come.
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

    /// The gateway it passes.
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Whose request it is.
    pub(super) fn principal(&self) -> &str {
        &self.principal
    }

    /// So many bytes of the request have come.
    pub(super) fn came(&mut self, bytes: u64) {
        self.bytes_in = bytes;
    }

    /// It goes to this provider.
    pub(super) fn goes_to(&mut self, upstream: &Arc<Upstream>) {
        self.upstream = Some(Arc::clone(upstream));
    }

    /// It is being recorded.
    pub(super) fn recorded_by(&mut self, recording: Recording) {
        self.recording = Some(recording);
    }

    /// Waits until its request is recorded, and composed if it is to be.
    pub(super) async fn arrived(&mut self) -> Result<Option<Composed>, Reason> {
        match &mut self.recording {
            Some(recording) => recording.arrived().await,
            None => Ok(None),
        }
    }

    /// It goes on as it came, and how it was counted is told when that is known.
    pub(super) fn goes_on_whole(&mut self, counted: oneshot::Receiver<Done>) {
        self.fate = Some(Fate::Whole);
        if let Some(recording) = &mut self.recording {
            recording.is_counted_by(counted);
        }
    }

    /// The request as it is composed anew, smaller, because its provider refused it as too long; `None` if it cannot be.
    pub(super) async fn smaller(&mut self, refused: Refused) -> Option<compose::Outgoing> {
        let recording = self.recording.as_mut()?;
        if let Some(done) = recording.when_counted().await {
            self.fate = Some(Fate::Composed(done));
        }
        recording.smaller(refused).await
    }

    /// The request that goes on with what its model asked back for; `None` if there is none. What the model said is
    /// recorded with it.
    pub(super) async fn recall(&mut self, asked: AskedBack) -> Option<compose::Outgoing> {
        let calls = asked.recalls.calls.len() as u64;
        let recalled = self.recording.as_ref()?.recall(asked).await?;
        self.copy = None;
        self.hidden.answers += 1;
        self.hidden.recalls += calls;
        self.hidden.usage = self.hidden.with(&recalled.usage.unwrap_or_default());
        Some(recalled.outgoing)
    }

    /// It goes on as a call to its provider, which this was done to. What was done for one before it is done, too.
    pub(super) fn goes_on(&mut self, done: Done) {
        if let Some(before) = self.fate.as_ref().and_then(Fate::done) {
            self.gateway.metrics.followed(before);
        }
        self.fate = Some(Fate::Composed(done));
    }

    /// The client has this of its answer.
    pub(super) fn spliced(&mut self, spliced: Spliced) {
        self.hidden.recalls += spliced.given_back();
        self.spliced = Some(spliced);
    }

    /// In mode `compact`, this became of it.
    pub(super) fn came_to(&mut self, fate: Fate) {
        self.fate = Some(fate);
    }

    /// Its provider refused it as too long, and this became of it.
    pub(super) fn overflowed(&mut self, overflow: Overflowed) {
        self.overflow = Some(overflow);
    }

    /// What became of it in mode `compact`, as far as that is known by now; nothing in other modes.
    pub(super) fn fate(&mut self) -> Option<&Fate> {
        if let Some(done) = self.recording.as_mut().and_then(Recording::counted) {
            self.fate = Some(Fate::Composed(done));
        }
        self.fate.as_ref()
    }

    /// The head of its answer has come.
    pub(super) fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.is_answered = true;
        self.says(status, headers);
    }

    /// It is answered under this head, by its provider or here.
    pub(super) fn says(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = Some(status);
        self.is_streamed = is_streamed(headers);
        if let (Some(format), Some(_)) = (self.format, &self.recording) {
            self.copy = Some(AnswerCopy::new(format, status, headers));
        }
    }

    /// More of its answer passes.
    pub(super) fn passes(&mut self, bytes: &Bytes) {
        self.shows(bytes);
        self.hears(bytes);
    }

    /// The client is shown these bytes.
    pub(super) fn shows(&mut self, bytes: &[u8]) {
        if self.first_byte.is_none() {
            self.first_byte = Some(self.started.elapsed());
        }
        self.bytes_out += bytes.len() as u64;
    }

    /// The provider said this.
    pub(super) fn hears(&mut self, bytes: &Bytes) {
        if let Some(copy) = &mut self.copy {
            copy.take(bytes);
        }
    }

    /// Whether its answer has said its last word, though more bytes may follow.
    pub(super) fn is_over(&self) -> bool {
        self.copy.as_ref().is_some_and(AnswerCopy::is_over)
    }

    /// It did not pass: the client is told so with this status.
    pub(super) fn fails(&mut self, status: StatusCode, how: How) {
        self.status = Some(status);
        self.end(how);
    }

    /// It ended. Tells when that is recorded, if it is.
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
        // A gateway that stops cuts answers short itself.
        let how = if self.gateway.health.is_closing() { How::Broke } else { How::Left };
        self.end(how);
    }
}
