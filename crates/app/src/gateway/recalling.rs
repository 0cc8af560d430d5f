//! An answer whose model may ask back for what was left out of its request. The gateway answers these calls
//! itself, in further requests to the provider; the client sees one answer and none of the calls.
//!
//! The answer is passed on as it comes, except for what a [`Splice`] withholds; what the provider said is
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
    compose::{self, Told},
    wire::{
        Format,
        recall::{Recalls, Splice, Verdict, joined},
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
    begun::{self, Begun},
    composing::{REFUSED, pieces, smaller},
    config::Unrecorded,
    copy::{Read, is_streamed},
    expand::Coding,
    headers,
    intake::{Framing, Outbound},
    metrics::Reason,
    passage::{How, Passage},
    passing::{Broken, HELD, broken},
    patience::Patience,
    recording::{self, AskedBack, Recorded, Refused},
    relay::send,
    upstream::Upstream,
};

/// Most times that a model may ask back in one answer.
const ROUNDS: usize = 8;

/// Most bytes of the client's view that are kept.
const SEEN: usize = 16 << 20;

/// Everything needed to continue a request whose model asks back.
pub(super) struct Onward {
    /// Provider of the request.
    pub(super) upstream: Arc<Upstream>,
    /// Head of the request, as the provider got it.
    pub(super) head: Parts,
    /// The request, as it came.
    pub(super) request: Arc<recording::Request>,
    /// The client's body, not compressed.
    pub(super) body: Bytes,
}

/// An answer that is to be watched for calls of the recall tool.
pub(super) struct Watch {
    onward: Onward,
    kind: Kind,
}

/// Kind of an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A stream of events.
    Stream,
    /// One piece of JSON, which is passed on only when it is complete.
    Whole,
}

impl Kind {
    /// Kind of the body of an answer under this head, if it can be watched.
    fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let is_open = status == StatusCode::OK && Coding::of(headers) == Coding::Identity;
        is_open.then(|| if is_streamed(headers) { Self::Stream } else { Self::Whole })
    }
}

impl Onward {
    /// Watches the answer under this head, if that is possible.
    pub(super) fn watch(self, status: StatusCode, headers: &HeaderMap) -> Option<Watch> {
        let kind = Kind::of(status, headers)?;
        Some(Watch { onward: self, kind })
    }
}

impl Watch {
    /// Makes the body and the status that the client gets: an answer in one piece has no status before it is
    /// complete.
    pub(super) async fn begin(self, passage: Passage, answer: Begun) -> (Recalling, StatusCode) {
        let Self { onward, kind } = self;
        let format = onward.request.format;
        let splice = match kind {
            Kind::Stream => Splice::stream(format),
            Kind::Whole => Splice::whole(format),
        };
        let (out, pieces) = mpsc::channel(1);
        let pump = Pump { passage, onward, kind, splice, seen: Some(Vec::new()), rounds: 0, out };
        let pump: Pumping = Box::pin(pump.run(answer));
        let mut recalling = Recalling { pump: Some(pump), pieces, next: None, has_shown: false };
        if kind == Kind::Whole {
            recalling.next = poll_fn(|cx| recalling.poll_piece(cx)).await;
        }
        let status = match &recalling.next {
            Some(Piece::Failed { status, .. }) => *status,
            Some(Piece::Shown(_) | Piece::Broke(_)) | None => StatusCode::OK,
        };
        (recalling, status)
    }
}

type Pumping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An answer that is being passed on, as its client sees it.
pub(super) struct Recalling {
    /// Task that makes the pieces, until all are made.
    pump: Option<Pumping>,
    pieces: mpsc::Receiver<Piece>,
    /// A piece that has been received already.
    next: Option<Piece>,
    /// True if a piece has just been passed on.
    has_shown: bool,
}

/// A piece of the client's view.
enum Piece {
    Shown(Bytes),
    /// An error that replaces the rest.
    Failed {
        status: StatusCode,
        told: Bytes,
    },
    /// The answer broke off.
    Broke(Broken),
}

impl Recalling {
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let piece = match self.next.take() {
            Some(piece) => Poll::Ready(Some(piece)),
            None => self.poll_piece(cx),
        };
        let had_shown = std::mem::take(&mut self.has_shown);
        match ready!(piece) {
            // A connection that ends with an error writes nothing more, so the shown pieces are written
            // first.
            Some(Piece::Broke(error)) if had_shown => {
                self.next = Some(Piece::Broke(error));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Piece::Broke(error)) => Poll::Ready(Some(Err(error))),
            Some(Piece::Shown(bytes) | Piece::Failed { told: bytes, .. }) => {
                self.has_shown = true;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            None => Poll::Ready(None),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if let Some(pump) = &mut self.pump
            && pump.as_mut().poll(cx).is_ready()
        {
            self.pump = None;
        }
        self.pieces.poll_recv(cx)
    }
}

impl fmt::Debug for Recalling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recalling").finish_non_exhaustive()
    }
}

/// Takes answers from the provider and passes pieces to the client.
struct Pump {
    passage: Passage,
    onward: Onward,
    kind: Kind,
    splice: Splice,
    /// Bytes that the client has seen; `None` if they are too many to keep.
    seen: Option<Vec<u8>>,
    /// Number of times the model has asked back.
    rounds: usize,
    out: mpsc::Sender<Piece>,
}

/// Ending of a provider's answer.
enum Came {
    Whole,
    Broke(Broken),
}

/// Reason why an answer does not go on.
struct Stop {
    how: How,
    status: StatusCode,
    message: String,
}

impl Stop {
    fn broke(why: &str) -> Self {
        Self::by(How::Broke, StatusCode::BAD_GATEWAY, why)
    }

    fn by(how: How, status: StatusCode, why: &str) -> Self {
        let message =
            format!("Epitome's gateway gave the model back what it asked for, but {why}: try again");
        Self { how, status, message }
    }
}

impl Pump {
    async fn run(mut self, mut answer: Begun) {
        loop {
            let (mut shown, came) = self.hears(&mut answer).await;
            match (self.splice.end(&mut shown), came) {
                (Verdict::Recall(recalls), _) => {
                    self.shows(shown).await;
                    match self.asks_again(recalls).await {
                        Ok(next) => answer = next,
                        Err(stop) => return self.stops(Vec::new(), stop).await,
                    }
                }
                (_, Came::Broke(error)) if self.rounds == 0 => {
                    self.shows(shown).await;
                    self.passage.end(How::Broke);
                    return self.sends(Piece::Broke(error)).await;
                }
                (_, Came::Broke(_)) => {
                    return self.stops(shown, Stop::broke("the answer to that broke off")).await;
                }
                (Verdict::Continued { answer: None }, Came::Whole) if self.kind == Kind::Stream => {
                    return self.stops(shown, Stop::broke("nothing was answered to that")).await;
                }
                (verdict, Came::Whole) => return self.ends(shown, verdict, answer).await,
            }
        }
    }

    /// Passes an answer on. The piece that completes it is returned instead.
    async fn hears(&mut self, answer: &mut Begun) -> (Vec<u8>, Came) {
        let mut patience = Patience::new(self.passage.gateway().limits.pause);
        loop {
            let mut shown = Vec::new();
            match next(answer, &mut patience).await {
                Ok(Some(bytes)) => {
                    self.passage.hears(&bytes);
                    self.splice.push(&bytes, &mut shown);
                }
                Ok(None) => return (shown, Came::Whole),
                Err(error) => return (shown, Came::Broke(error)),
            }
            if self.splice.is_over() || answer.is_end_stream() {
                return (shown, Came::Whole);
            }
            self.shows(shown).await;
        }
    }

    /// Gives the model what it asked for, and returns the next answer.
    async fn asks_again(&mut self, recalls: Recalls) -> Result<Begun, Stop> {
        if self.rounds == ROUNDS {
            return Err(Stop::broke("it asked again and again"));
        }
        self.rounds += 1;
        let Onward { request, body, .. } = &self.onward;
        let (request, body) = (Arc::clone(request), body.clone());
        let asked = AskedBack { request: Arc::clone(&request), body: body.clone(), recalls };
        let outgoing = match self.passage.gateway().unrecorded {
            Unrecorded::Refuse => self.passage.recall(asked).await,
            Unrecorded::Forward => timeout(REFUSED, self.passage.recall(asked)).await.ok().flatten(),
        };
        let outgoing = outgoing.ok_or_else(|| Stop::broke("no request could be made with that"))?;
        let response = self.sends_on(outgoing).await?;
        let (mut response, overflow) = begun::held(request.format, response).await;
        if let Some(overflow) = overflow
            && let Some(outgoing) = smaller(&mut self.passage, Refused { request, body, overflow }).await
        {
            response = begun::unread(self.sends_on(outgoing).await?);
        }
        let (status, headers) = (response.status(), response.headers());
        self.passage.answered(status, headers);
        if Kind::of(status, headers) != Some(self.kind) {
            let is_error = status.is_client_error() || status.is_server_error();
            let told = if is_error { status } else { StatusCode::BAD_GATEWAY };
            let why = format!("the provider refused that with status {}", status.as_u16());
            return Err(Stop::by(How::Refused, told, &why));
        }
        self.splice.continue_with();
        Ok(response.into_body())
    }

    /// Sends a request that continues the one before.
    async fn sends_on(&mut self, outgoing: compose::Outgoing) -> Result<Response<Incoming>, Stop> {
        let Onward { upstream, head, body, .. } = &self.onward;
        let pieces = pieces(outgoing.cuts, body);
        let pieces = pieces.ok_or_else(|| Stop::broke("no request could be made with that"))?;
        self.passage.goes_on(outgoing.done);
        let mut head = head.clone();
        head.headers = headers::of_next(&head.headers, pieces.iter().map(|piece| piece.len() as u64).sum());
        let next = Request::from_parts(head, Outbound::pieces(pieces, Framing::Length));
        send(&self.passage, upstream, next)
            .await
            .map_err(|failure| Stop::by(failure.how, StatusCode::BAD_GATEWAY, "got no answer to that"))
    }

    /// Finishes an answer that is complete.
    async fn ends(mut self, shown: Vec<u8>, verdict: Verdict, mut rest: Begun) {
        let is_untouched = self.rounds == 0 && matches!(verdict, Verdict::Passed | Verdict::Exposed);
        self.keeps(&shown);
        let (format, seen, is_continued) = (self.onward.request.format, self.seen.take(), self.rounds > 0);
        self.passage.spliced(Spliced { format, verdict, seen, is_continued });
        let recorded = self.passage.end(How::Ended);
        if !self.is_kept(recorded).await {
            return self.sends(Piece::Broke(broken("the answer could not be recorded"))).await;
        }
        if !shown.is_empty() {
            self.sends(Piece::Shown(shown.into())).await;
        }
        if is_untouched {
            self.passes_rest(&mut rest).await;
        }
    }

    /// Passes on what may follow a complete answer that was the client's in full.
    async fn passes_rest(&self, rest: &mut Begun) {
        let mut patience = Patience::new(self.passage.gateway().limits.pause);
        loop {
            match next(rest, &mut patience).await {
                Ok(Some(bytes)) => self.sends(Piece::Shown(bytes)).await,
                Ok(None) => return,
                Err(error) => return self.sends(Piece::Broke(error)).await,
            }
        }
    }

    /// Ends an answer that does not go on.
    async fn stops(mut self, shown: Vec<u8>, stop: Stop) {
        let Stop { how, status, message } = stop;
        let upstream = self.onward.upstream.name();
        tracing::warn!(upstream, error = message, "an answer does not go on");
        let told = self.splice.fail(&message);
        let told = match self.kind {
            Kind::Stream => [shown, told].concat(),
            Kind::Whole => told,
        };
        self.passage.shows(&told);
        let recorded = self.passage.end(how);
        // The error is passed on even if it could not be recorded.
        self.is_kept(recorded).await;
        self.sends(Piece::Failed { status, told: told.into() }).await;
    }

    /// Waits for the record, and returns true if it is made or not required.
    async fn is_kept(&self, recorded: Option<oneshot::Receiver<Recorded>>) -> bool {
        let Some(recorded) = recorded else { return true };
        match self.passage.gateway().unrecorded {
            Unrecorded::Refuse => recorded.await.unwrap_or(Err(Reason::Store)) != Err(Reason::Store),
            Unrecorded::Forward => {
                let _ = timeout(HELD, recorded).await;
                true
            }
        }
    }

    async fn shows(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.keeps(&bytes);
            self.sends(Piece::Shown(bytes.into())).await;
        }
    }

    fn keeps(&mut self, bytes: &[u8]) {
        self.passage.shows(bytes);
        match &mut self.seen {
            Some(seen) if seen.len() + bytes.len() <= SEEN => seen.extend_from_slice(bytes),
            seen => *seen = None,
        }
    }

    async fn sends(&self, piece: Piece) {
        // The receiver of the pieces polls this task, so it cannot be gone.
        let _ = self.out.send(piece).await;
    }
}

/// Reads the next bytes of an answer; `None` at its end.
async fn next(answer: &mut Begun, patience: &mut Patience) -> Result<Option<Bytes>, Broken> {
    loop {
        let frame = poll_fn(|cx| match Pin::new(&mut *answer).poll_frame(cx) {
            Poll::Ready(frame) => {
                patience.rewarded();
                Poll::Ready(frame.transpose().map_err(Broken::from))
            }
            Poll::Pending => {
                ready!(patience.poll_lost(cx));
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
pub(super) struct Spliced {
    format: Format,
    verdict: Verdict,
    seen: Option<Vec<u8>>,
    /// True if other answers came before it.
    is_continued: bool,
}

impl Spliced {
    /// Number of calls of the recall tool that are answered with the next request.
    pub(super) fn given_back(&self) -> u64 {
        match &self.verdict {
            Verdict::Mixed(recalls) => recalls.calls.len() as u64,
            Verdict::Passed
            | Verdict::Continued { .. }
            | Verdict::Recall(_)
            | Verdict::LeftOut(_)
            | Verdict::Exposed => 0,
        }
    }

    /// The client's view of an answer if it differs from the answer; calls that stay unanswered are taken out
    /// of the answer. This may take its time.
    pub(super) fn told(self, answer: &mut Read) -> Option<Told> {
        let Self { format, verdict, seen, is_continued } = self;
        if verdict == Verdict::Passed {
            return None;
        }
        let seen = joined(format, &seen?).ok()?;
        match verdict {
            Verdict::Mixed(recalls) => Some(Told::Without { seen, calls: recalls.calls }),
            Verdict::LeftOut(recalls) if is_continued => {
                let mut without = Vec::new();
                let mut splice = Splice::whole(format);
                splice.push(recalls.answer.as_bytes(), &mut without);
                splice.end(&mut without);
                answer.events = joined(format, &without).ok()?;
                Some(Told::Joined(seen))
            }
            Verdict::LeftOut(_) => {
                answer.events = seen;
                None
            }
            Verdict::Passed | Verdict::Continued { .. } | Verdict::Recall(_) | Verdict::Exposed => {
                is_continued.then_some(Told::Joined(seen))
            }
        }
    }
}
