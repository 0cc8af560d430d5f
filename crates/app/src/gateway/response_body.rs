//! An answer's body on its way to the client: every byte as it comes, and the last ones once they are
//! recorded.
//!
//! The piece that completes an answer is held until the answer is in the log. So every answer that a client
//! received in full survives a crash of the gateway.

use std::{
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::oneshot;

use super::{
    io_timeout::PauseTimeout,
    metrics::UnrecordedReason,
    peeked_response::PeekedBody,
    recall_body::RecallBody,
    recording::RecordResult,
    request_scope::{ProxyEnding, RequestScope},
};
use crate::config::StoreFailureAction;

/// Longest time that an answer is held for a slow store, if the configuration lets answers pass unrecorded.
pub(super) const MAX_RECORD_WAIT: Duration = Duration::from_secs(2);

/// The body of an answer.
#[derive(Debug)]
pub(super) enum ResponseBody {
    /// An answer of the gateway itself.
    Own(Full<Bytes>),
    /// A provider's answer.
    Passing(Box<ForwardedAnswer>),
    /// A provider's answer that the client does not see all of.
    Recalling(Box<RecallBody>),
}

/// A provider's answer that is being passed on.
#[derive(Debug)]
pub(super) struct ForwardedAnswer {
    inner: PeekedBody,
    passage: RequestScope,
    patience: PauseTimeout,
    held: Option<HeldFrame>,
    is_done: bool,
}

/// The piece that completes an answer, held until the answer is recorded.
#[derive(Debug)]
struct HeldFrame {
    /// `None` for the end itself.
    frame: Option<Frame<Bytes>>,
    recorded: oneshot::Receiver<RecordResult>,
    patience: PauseTimeout,
}

/// Error that a body ends with if it breaks off.
pub(super) type BodyError = Box<dyn Error + Send + Sync>;

impl ForwardedAnswer {
    /// Passes an answer on whose pauses may take up to `pause`.
    pub(super) fn new(inner: PeekedBody, mut passage: RequestScope, pause: Duration) -> Self {
        let is_done = inner.is_end_stream();
        if is_done {
            // An empty answer has no last piece to hold.
            passage.end(ProxyEnding::Ended);
        }
        Self { inner, passage, patience: PauseTimeout::new(pause), held: None, is_done }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.held.is_some() {
                return self.poll_held(cx);
            }
            let Poll::Ready(next) = Pin::new(&mut self.inner).poll_frame(cx) else {
                ready!(self.patience.poll_expired(cx));
                self.passage.end(ProxyEnding::Broke);
                return Poll::Ready(Some(Err(broken("the provider paused for too long"))));
            };
            self.patience.reset();
            let frame = match next {
                Some(Err(error)) => {
                    self.passage.end(ProxyEnding::Broke);
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(frame)) => Some(frame),
                None => None,
            };
            if let Some(bytes) = frame.as_ref().and_then(Frame::data_ref) {
                self.passage.pass_bytes(bytes);
            }
            let is_last = frame.as_ref().is_none_or(Frame::is_trailers) || self.inner.is_end_stream();
            if (is_last || self.passage.is_over())
                && let Some(recorded) = self.passage.end(ProxyEnding::Ended)
            {
                self.held = Some(HeldFrame { frame, recorded, patience: PauseTimeout::new(MAX_RECORD_WAIT) });
                continue;
            }
            self.is_done = is_last;
            return Poll::Ready(frame.map(Ok));
        }
    }

    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(held) = &mut self.held else { return Poll::Ready(None) };
        let must = self.passage.gateway().unrecorded == StoreFailureAction::Refuse;
        let recorded = match Pin::new(&mut held.recorded).poll(cx) {
            Poll::Ready(recorded) => recorded.unwrap_or(Err(UnrecordedReason::Store)),
            Poll::Pending if must => return Poll::Pending,
            Poll::Pending => {
                ready!(held.patience.poll_expired(cx));
                Ok(())
            }
        };
        let frame = self.held.take().and_then(|held| held.frame);
        if must && recorded == Err(UnrecordedReason::Store) {
            return Poll::Ready(Some(Err(broken("the answer could not be recorded"))));
        }
        self.is_done = frame.as_ref().is_none_or(Frame::is_trailers) || self.inner.is_end_stream();
        Poll::Ready(frame.map(Ok))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Passing(passing) if passing.is_done => Poll::Ready(None),
            Self::Passing(passing) => passing.poll_next(cx),
            Self::Recalling(recalling) => recalling.poll_next(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Passing(passing) => passing.is_done,
            Self::Recalling(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            // The length is in the headers, if it is known at all.
            Self::Passing(passing) if passing.is_done => SizeHint::with_exact(0),
            Self::Passing(_) | Self::Recalling(_) => SizeHint::default(),
        }
    }
}

pub(super) fn broken(why: &'static str) -> BodyError {
    io::Error::other(why).into()
}
