//! A request's body on its way in: never read beyond the limit, and never waited for too long.

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use epitome::wire::Format;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::io_timeout::PauseTimeout;
use crate::config::GatewayLimits;

/// A request's body as its provider gets it.
#[derive(Debug)]
pub(super) enum OutboundBody {
    /// Passed on as it comes in.
    Streamed(InboundBody),
    /// Complete, in one piece or several.
    Whole {
        /// Pieces still to be sent; none is empty.
        left: VecDeque<Bytes>,
        /// Framing of the body, as it came and as it leaves.
        framing: BodyFraming,
    },
}

/// Way in which the length of a body is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// By a header, beforehand.
    Length,
    /// By its last chunk.
    Chunks,
}

impl BodyFraming {
    /// Reads the framing of a body from its headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key(http::header::TRANSFER_ENCODING) { Self::Chunks } else { Self::Length }
    }
}

/// Reason why a body did not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestBodyError {
    /// The body is larger than the limit.
    TooLarge,
    /// The client paused.
    TooSlow,
    /// The client disconnected, or sent invalid bytes.
    Broken,
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the request is larger than the limit",
            Self::TooSlow => "the client paused in its request",
            Self::Broken => "the request broke off",
        })
    }
}

impl Error for RequestBodyError {}

/// A body that is coming in, under the limits of size and time.
#[derive(Debug)]
pub(super) struct InboundBody {
    inner: Incoming,
    left: usize,
    /// Limit for a pause.
    patience: PauseTimeout,
    /// Limit for the whole body: a client that sends a byte now and then never pauses for long.
    deadline: PauseTimeout,
}

/// Size below which a body may share the buffer of everything that was read with it.
const SMALL: usize = 16 << 10;

/// Returns true if a gathered body holds on to no more memory than its own length.
pub(super) fn is_its_own(gathered: &Bytes) -> bool {
    gathered.len() >= SMALL
}

impl InboundBody {
    /// Starts to read a body under the limits.
    pub(super) fn new(inner: Incoming, limits: &GatewayLimits) -> Result<Self, RequestBodyError> {
        if inner.size_hint().lower() > limits.body as u64 {
            return Err(RequestBodyError::TooLarge);
        }
        let (patience, deadline) = (PauseTimeout::new(limits.client), PauseTimeout::new(limits.upload));
        Ok(Self { inner, left: limits.body, patience, deadline })
    }

    /// Reads the whole body into one piece, which is [its own](is_its_own) unless it is small.
    pub(super) async fn gather(mut self) -> Result<Bytes, RequestBodyError> {
        /// Most bytes that are allocated on the strength of the declared length alone.
        const BELIEVED: usize = 1 << 20;
        let declared = usize::try_from(self.inner.size_hint().lower()).unwrap_or(usize::MAX);
        let first = self.data().await?.unwrap_or_default();
        if self.inner.is_end_stream() {
            return Ok(if first.len() < SMALL { first } else { Bytes::copy_from_slice(&first) });
        }
        let mut whole = Vec::with_capacity(declared.clamp(first.len(), BELIEVED));
        whole.extend_from_slice(&first);
        while let Some(more) = self.data().await? {
            if whole.capacity() - whole.len() < more.len() {
                // Room grows to twice the bytes received, and never beyond the declared end.
                let missing = declared.checked_sub(whole.len()).unwrap_or(whole.len());
                whole.reserve_exact(missing.min(whole.len()).max(more.len()));
            }
            whole.extend_from_slice(&more);
        }
        Ok(whole.into_boxed_slice().into())
    }

    async fn data(&mut self) -> Result<Option<Bytes>, RequestBodyError> {
        loop {
            match self.frame().await.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => return Ok(Some(data)),
                // Trailers of a request are ignored.
                Some(Err(_)) => {}
                None => return Ok(None),
            }
        }
    }
}

impl Body for InboundBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            if self.deadline.poll_expired(cx).is_pending() {
                ready!(self.patience.poll_expired(cx));
            }
            return Poll::Ready(Some(Err(RequestBodyError::TooSlow)));
        };
        self.patience.reset();
        let frame = match frame {
            None => return Poll::Ready(None),
            Some(Err(_)) => return Poll::Ready(Some(Err(RequestBodyError::Broken))),
            Some(Ok(frame)) => frame,
        };
        let size = frame.data_ref().map_or(0, Buf::remaining);
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(RequestBodyError::TooLarge))),
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Streamed(inbound) => Pin::new(inbound).poll_frame(cx),
            Self::Whole { left, .. } => Poll::Ready(left.pop_front().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Streamed(inbound) => inbound.is_end_stream(),
            Self::Whole { left, framing } => left.is_empty() && *framing == BodyFraming::Length,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Streamed(inbound) => inbound.size_hint(),
            Self::Whole { framing: BodyFraming::Chunks, .. } => SizeHint::default(),
            Self::Whole { left, .. } => {
                SizeHint::with_exact(left.iter().map(|piece| piece.len() as u64).sum())
            }
        }
    }
}

impl OutboundBody {
    /// Makes a body of one complete piece.
    pub(super) fn whole(bytes: Bytes, framing: BodyFraming) -> Self {
        Self::pieces([bytes], framing)
    }

    /// Makes the body of a request in `format` of its pieces, without what stands in the path.
    pub(super) fn addressed(
        pieces: impl IntoIterator<Item = Bytes>,
        framing: BodyFraming,
        format: Format,
    ) -> (Self, u64) {
        let mut pieces: Vec<Bytes> = pieces.into_iter().collect();
        if format.has_target() {
            let whole = pieces.concat();
            let text = String::from_utf8_lossy(&whole);
            pieces = vec![Bytes::from(format.without_target(&text).into_owned())];
        }
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        (Self::pieces(pieces, framing), length)
    }

    /// Makes a body of several pieces.
    pub(super) fn pieces(pieces: impl IntoIterator<Item = Bytes>, framing: BodyFraming) -> Self {
        // An empty chunk would be the last one.
        let left = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        Self::Whole { left, framing }
    }
}
