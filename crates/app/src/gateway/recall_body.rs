//! An answer whose model may ask back for what was left out of its request. The gateway answers these calls
//! itself, in further requests to the provider; the client sees one answer and none of the calls.
//!
//! The answer is passed on as it comes, except for what a [`RecallSplice`] withholds; what the provider said is
//! recorded. As with any answer, the piece that completes it is held until it is in the log. All of this runs
//! while the client reads its answer, and ends with it if the client disconnects.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use epitome::{
    rewrite::{self, RecallAnswerForm},
    wire::{
        Format,
        recall_tool::{RecallCalls, RecallSplice, SpliceVerdict, client_events},
    },
};
use http::{HeaderMap, Request, Response, StatusCode, request::Parts};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    answer_copy::{CopiedAnswer, is_streamed},
    decompress::ContentCoding,
    headers,
    io_timeout::PauseTimeout,
    metrics::UnrecordedReason,
    outgoing_request::{MAX_SMALLER_WAIT, compose_smaller, cut_body, send},
    peeked_response::{self, PeekedBody},
    recording::{self, OverlongRequest, RecallRequest, RecordResult},
    request_body::{BodyFraming, OutboundBody},
    request_scope::{ProxyEnding, RequestScope},
    response_body::{BodyError, MAX_RECORD_WAIT, broken},
    upstream::Upstream,
};
use crate::config::StoreFailureAction;

/// Most times that a model may ask back in one answer.
const MAX_RECALL_ROUNDS: usize = 8;

/// Most bytes of the client's view that are kept.
const MAX_SEEN_BYTES: usize = 16 << 20;

/// Everything needed to continue a request whose model asks back.
pub(super) struct RecallContext {
    /// Provider of the request.
    pub(super) upstream: Arc<Upstream>,
    /// Head of the request, as the provider got it.
    pub(super) head: Parts,
    /// The request, as it came.
    pub(super) request: Arc<recording::RecordableRequest>,
    /// The client's body, not compressed.
    pub(super) body: Bytes,
}

/// An answer that is to be watched for calls of the recall tool.
pub(super) struct RecallWatch {
    onward: RecallContext,
    kind: WatchedBodyKind,
}

/// Kind of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchedBodyKind {
    /// A stream of events.
    Stream,
    /// One piece of JSON, which is passed on only when it is complete.
    Whole,
}

impl WatchedBodyKind {
    /// Kind of the body of an answer under this head, if it can be watched.
    fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let is_open = status == StatusCode::OK && ContentCoding::of(headers) == ContentCoding::Identity;
        is_open.then(|| if is_streamed(headers) { Self::Stream } else { Self::Whole })
    }
}

impl RecallContext {
    /// Watches the answer under this head, if that is possible.
    pub(super) fn watch(self, status: StatusCode, headers: &HeaderMap) -> Option<RecallWatch> {
        let kind = WatchedBodyKind::of(status, headers)?;
        Some(RecallWatch { onward: self, kind })
    }
}

impl RecallWatch {
    /// Makes the body and the status that the client gets: an answer in one piece has no status before it is
    /// complete.
    pub(super) async fn begin(self, passage: RequestScope, answer: PeekedBody) -> (RecallBody, StatusCode) {
        let Self { onward, kind } = self;
        let format = onward.request.format;
        let splice = match kind {
            WatchedBodyKind::Stream => RecallSplice::stream(format),
            WatchedBodyKind::Whole => RecallSplice::whole(format),
        };
        let (out, pieces) = mpsc::channel(1);
        let pump = RecallDriver { passage, onward, kind, splice, seen: Some(Vec::new()), rounds: 0, out };
        let pump: RecallTask = Box::pin(pump.run(answer));
        let mut recalling = RecallBody { pump: Some(pump), pieces, next: None, has_shown: false };
        if kind == WatchedBodyKind::Whole {
            recalling.next = poll_fn(|cx| recalling.poll_piece(cx)).await;
        }
        let status = match &recalling.next {
            Some(ClientChunk::Failed { status, .. }) => *status,
            Some(ClientChunk::Shown(_) | ClientChunk::Broke(_)) | None => StatusCode::OK,
        };
        (recalling, status)
    }
}

type RecallTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An answer that is being passed on, as its client sees it.
pub(super) struct RecallBody {
    /// Task that makes the pieces, until all are made.
    pump: Option<RecallTask>,
    pieces: mpsc::Receiver<ClientChunk>,
    /// A piece that has been received already.
    next: Option<ClientChunk>,
    /// True if a piece has just been passed on.
    has_shown: bool,
}

/// A piece of the client's view.
enum ClientChunk {
    Shown(Bytes),
    /// An error that replaces the rest.
    Failed {
        status: StatusCode,
        told: Bytes,
    },
    /// The answer broke off.
    Broke(BodyError),
}

impl RecallBody {
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = match self.next.take() {
            Some(piece) => Poll::Ready(Some(piece)),
            None => self.poll_piece(cx),
        };
        let had_shown = std::mem::take(&mut self.has_shown);
        match ready!(piece) {
            // A connection that ends with an error writes nothing more, so the shown pieces are written
            // first.
            Some(ClientChunk::Broke(error)) if had_shown => {
                self.next = Some(ClientChunk::Broke(error));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(ClientChunk::Broke(error)) => Poll::Ready(Some(Err(error))),
            Some(ClientChunk::Shown(bytes) | ClientChunk::Failed { told: bytes, .. }) => {
                self.has_shown = true;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            None => Poll::Ready(None),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<ClientChunk>> {
        if let Some(pump) = &mut self.pump
            && pump.as_mut().poll(cx).is_ready()
        {
            self.pump = None;
        }
        self.pieces.poll_recv(cx)
    }
}

impl fmt::Debug for RecallBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recalling").finish_non_exhaustive()
    }
}

/// Takes answers from the provider and passes pieces to the client.
struct RecallDriver {
    passage: RequestScope,
    onward: RecallContext,
    kind: WatchedBodyKind,
    splice: RecallSplice,
    /// Bytes that the client has seen; `None` if they are too many to keep.
    seen: Option<Vec<u8>>,
    /// Number of times the model has asked back.
    rounds: usize,
    out: mpsc::Sender<ClientChunk>,
}

/// Ending of a provider's answer.
enum UpstreamEnding {
    Whole,
    Broke(BodyError),
}

/// Reason why an answer does not go on.
struct RecallError {
    how: ProxyEnding,
    status: StatusCode,
    message: String,
}

impl RecallError {
    fn broke(why: &str) -> Self {
        Self::by(ProxyEnding::Broke, StatusCode::BAD_GATEWAY, why)
    }

    fn by(how: ProxyEnding, status: StatusCode, why: &str) -> Self {
        let message =
            format!("Epitome's gateway gave the model back what it asked for, but {why}: try again");
        Self { how, status, message }
    }
}

impl RecallDriver {
    async fn run(mut self, mut answer: PeekedBody) {
        loop {
            let (mut shown, came) = self.hears(&mut answer).await;
            match (self.splice.end(&mut shown), came) {
                (SpliceVerdict::Recall(recalls), _) => {
                    self.shows(shown).await;
                    match self.asks_again(recalls).await {
                        Ok(next) => answer = next,
                        Err(stop) => return self.stops(Vec::new(), stop).await,
                    }
                }
                (_, UpstreamEnding::Broke(error)) if self.rounds == 0 => {
                    self.shows(shown).await;
                    self.passage.end(ProxyEnding::Broke);
                    return self.sends(ClientChunk::Broke(error)).await;
                }
                (_, UpstreamEnding::Broke(_)) => {
                    return self.stops(shown, RecallError::broke("the answer to that broke off")).await;
                }
                (SpliceVerdict::Continued { answer: None }, UpstreamEnding::Whole)
                    if self.kind == WatchedBodyKind::Stream =>
                {
                    return self.stops(shown, RecallError::broke("nothing was answered to that")).await;
                }
                (verdict, UpstreamEnding::Whole) => return self.ends(shown, verdict, answer).await,
            }
        }
    }

    /// Passes an answer on. The piece that completes it is returned instead.
    async fn hears(&mut self, answer: &mut PeekedBody) -> (Vec<u8>, UpstreamEnding) {
        let mut patience = PauseTimeout::new(self.passage.gateway().limits.pause);
        loop {
            let mut shown = Vec::new();
            match next(answer, &mut patience).await {
                Ok(Some(bytes)) => {
                    self.passage.copy_provider_bytes(&bytes);
                    self.splice.push(&bytes, &mut shown);
                }
                Ok(None) => return (shown, UpstreamEnding::Whole),
                Err(error) => return (shown, UpstreamEnding::Broke(error)),
            }
            if self.splice.is_over() || answer.is_end_stream() {
                return (shown, UpstreamEnding::Whole);
            }
            self.shows(shown).await;
        }
    }

    /// Gives the model what it asked for, and returns the next answer.
    async fn asks_again(&mut self, recalls: RecallCalls) -> Result<PeekedBody, RecallError> {
        if self.rounds == MAX_RECALL_ROUNDS {
            return Err(RecallError::broke("it asked again and again"));
        }
        self.rounds += 1;
        let RecallContext { request, body, .. } = &self.onward;
        let (request, body) = (Arc::clone(request), body.clone());
        let asked = RecallRequest { request: Arc::clone(&request), body: body.clone(), recalls };
        let outgoing = match self.passage.gateway().unrecorded {
            StoreFailureAction::Refuse => self.passage.recall(asked).await,
            StoreFailureAction::Forward => {
                timeout(MAX_SMALLER_WAIT, self.passage.recall(asked)).await.ok().flatten()
            }
        };
        let outgoing = outgoing.ok_or_else(|| RecallError::broke("no request could be made with that"))?;
        let response = self.sends_on(outgoing).await?;
        let (mut response, overflow) = peeked_response::peek_overflow(request.format, response).await;
        if let Some(overflow) = overflow
            && let Some(outgoing) =
                compose_smaller(&mut self.passage, OverlongRequest { request, body, overflow }).await
        {
            response = peeked_response::without_peeking(self.sends_on(outgoing).await?);
        }
        let (status, headers) = (response.status(), response.headers());
        self.passage.begin_provider_answer(status, headers);
        if WatchedBodyKind::of(status, headers) != Some(self.kind) {
            let is_error = status.is_client_error() || status.is_server_error();
            let told = if is_error { status } else { StatusCode::BAD_GATEWAY };
            let why = format!("the provider refused that with status {}", status.as_u16());
            return Err(RecallError::by(ProxyEnding::Refused, told, &why));
        }
        self.splice.continue_with();
        Ok(response.into_body())
    }

    /// Sends a request that continues the one before.
    async fn sends_on(
        &mut self,
        outgoing: rewrite::RewrittenRequest,
    ) -> Result<Response<Incoming>, RecallError> {
        let RecallContext { upstream, head, body, request } = &self.onward;
        let pieces = cut_body(outgoing.cuts, body);
        let pieces = pieces.ok_or_else(|| RecallError::broke("no request could be made with that"))?;
        self.passage.set_composed(outgoing.done);
        let mut head = head.clone();
        let (body, length) = OutboundBody::addressed(pieces, BodyFraming::Length, request.format);
        head.headers = headers::for_continued_request(&head.headers, length);
        let next = Request::from_parts(head, body);
        send(&self.passage, upstream, next)
            .await
            .map_err(|failure| RecallError::by(failure.how, StatusCode::BAD_GATEWAY, "got no answer to that"))
    }

    /// Finishes an answer that is complete.
    async fn ends(mut self, shown: Vec<u8>, verdict: SpliceVerdict, mut rest: PeekedBody) {
        let is_untouched =
            self.rounds == 0 && matches!(verdict, SpliceVerdict::Passed | SpliceVerdict::Exposed);
        self.keeps(&shown);
        let (format, seen, is_continued) = (self.onward.request.format, self.seen.take(), self.rounds > 0);
        self.passage.spliced(SplicedAnswer { format, verdict, seen, is_continued });
        let recorded = self.passage.end(ProxyEnding::Ended);
        if !self.is_kept(recorded).await {
            return self.sends(ClientChunk::Broke(broken("the answer could not be recorded"))).await;
        }
        if !shown.is_empty() {
            self.sends(ClientChunk::Shown(shown.into())).await;
        }
        if is_untouched {
            self.passes_rest(&mut rest).await;
        }
    }

    /// Passes on what may follow a complete answer that was the client's in full.
    async fn passes_rest(&self, rest: &mut PeekedBody) {
        let mut patience = PauseTimeout::new(self.passage.gateway().limits.pause);
        loop {
            match next(rest, &mut patience).await {
                Ok(Some(bytes)) => self.sends(ClientChunk::Shown(bytes)).await,
                Ok(None) => return,
                Err(error) => return self.sends(ClientChunk::Broke(error)).await,
            }
        }
    }

    /// Ends an answer that does not go on.
    async fn stops(mut self, shown: Vec<u8>, stop: RecallError) {
        let RecallError { how, status, message } = stop;
        let upstream = self.onward.upstream.name();
        tracing::warn!(upstream, error = message, "an answer does not go on");
        let told = self.splice.fail(&message);
        let told = match self.kind {
            WatchedBodyKind::Stream => [shown, told].concat(),
            WatchedBodyKind::Whole => told,
        };
        self.passage.count_client_bytes(&told);
        let recorded = self.passage.end(how);
        // The error is passed on even if it could not be recorded.
        self.is_kept(recorded).await;
        self.sends(ClientChunk::Failed { status, told: told.into() }).await;
    }

    /// Waits for the record, and returns true if it is made or not required.
    async fn is_kept(&self, recorded: Option<oneshot::Receiver<RecordResult>>) -> bool {
        let Some(recorded) = recorded else { return true };
        match self.passage.gateway().unrecorded {
            StoreFailureAction::Refuse => {
                recorded.await.unwrap_or(Err(UnrecordedReason::Store)) != Err(UnrecordedReason::Store)
            }
            StoreFailureAction::Forward => {
                let _ = timeout(MAX_RECORD_WAIT, recorded).await;
                true
            }
        }
    }

    async fn shows(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.keeps(&bytes);
            self.sends(ClientChunk::Shown(bytes.into())).await;
        }
    }

    fn keeps(&mut self, bytes: &[u8]) {
        self.passage.count_client_bytes(bytes);
        match &mut self.seen {
            Some(seen) if seen.len() + bytes.len() <= MAX_SEEN_BYTES => seen.extend_from_slice(bytes),
            seen => *seen = None,
        }
    }

    async fn sends(&self, piece: ClientChunk) {
        // The receiver of the pieces polls this task, so it cannot be gone.
        let _ = self.out.send(piece).await;
    }
}

/// Reads the next bytes of an answer; `None` at its end.
async fn next(answer: &mut PeekedBody, patience: &mut PauseTimeout) -> Result<Option<Bytes>, BodyError> {
    loop {
        let frame = poll_fn(|cx| match Pin::new(&mut *answer).poll_frame(cx) {
            Poll::Ready(frame) => {
                patience.reset();
                Poll::Ready(frame.transpose().map_err(BodyError::from))
            }
            Poll::Pending => {
                ready!(patience.poll_expired(cx));
                Poll::Ready(Err(broken("the provider paused for too long")))
            }
        });
        match frame.await?.map(Frame::into_data) {
            Some(Ok(bytes)) => return Ok(Some(bytes)),
            // Trailers are dropped: they would follow a body that is not the provider's.
            Some(Err(_)) => {}
            None => return Ok(None),
        }
    }
}

/// The client's view of an answer that it did not see all of.
#[derive(Debug)]
pub(super) struct SplicedAnswer {
    format: Format,
    verdict: SpliceVerdict,
    seen: Option<Vec<u8>>,
    /// True if other answers came before it.
    is_continued: bool,
}

impl SplicedAnswer {
    /// Number of calls of the recall tool that are answered with the next request.
    pub(super) fn recall_count(&self) -> u64 {
        match &self.verdict {
            SpliceVerdict::Mixed(recalls) => recalls.calls.len() as u64,
            SpliceVerdict::Passed
            | SpliceVerdict::Continued { .. }
            | SpliceVerdict::Recall(_)
            | SpliceVerdict::LeftOut(_)
            | SpliceVerdict::Exposed => 0,
        }
    }

    /// The client's view of an answer if it differs from the answer; calls that stay unanswered are taken out
    /// of the answer. This may take its time.
    pub(super) fn client_view(self, answer: &mut CopiedAnswer) -> Option<RecallAnswerForm> {
        let Self { format, verdict, seen, is_continued } = self;
        if verdict == SpliceVerdict::Passed {
            return None;
        }
        let seen = client_events(format, &seen?).ok()?;
        match verdict {
            SpliceVerdict::Mixed(recalls) => Some(RecallAnswerForm::Without { seen, calls: recalls.calls }),
            SpliceVerdict::LeftOut(recalls) if is_continued => {
                let mut without = Vec::new();
                let mut splice = RecallSplice::whole(format);
                splice.push(recalls.answer.as_bytes(), &mut without);
                splice.end(&mut without);
                answer.events = client_events(format, &without).ok()?;
                Some(RecallAnswerForm::Joined(seen))
            }
            SpliceVerdict::LeftOut(_) => {
                answer.events = seen;
                None
            }
            SpliceVerdict::Passed
            | SpliceVerdict::Continued { .. }
            | SpliceVerdict::Recall(_)
            | SpliceVerdict::Exposed => is_continued.then_some(RecallAnswerForm::Joined(seen)),
        }
    }
}
