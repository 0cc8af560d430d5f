//! A request's body on its way in: never more than the limit of it, and never waited for too long.

use std::{
    collections::VecDeque,
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{config::Limits, patience::Patience};

/// A request's body as its provider gets it.
#[derive(Debug)]
pub(super) enum Outbound {
    /// Passed on as it comes.
    Streamed(Inbound),
    /// Here as a whole, in one piece or several.
    Whole {
        /// What is left to send; no piece is empty.
        left: VecDeque<Bytes>,
        /// How it came, and leaves.
        framing: Framing,
    },
}

/// How the length of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Beforehand.
    Length,
    /// By its last chunk.
    Chunks,
}

impl Framing {
    /// How the body under these headers comes.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if headers.contains_key(http::header::TRANSFER_ENCODING) { Self::Chunks } else { Self::Length }
    }
}

/// Why a body did not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntakeError {
    /// It is larger than the limit.
    TooLarge,
    /// The client paused.
    TooSlow,
    /// The client went away, or wrote nonsense.
    Broken,
}

impl fmt::Display for IntakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the request is larger than the limit",
            Self::TooSlow => "the client paused in its request",
            Self::Broken => "the request broke off",
        })
    }
}

impl Error for IntakeError {}

/// A body that comes in, watched.
#[derive(Debug)]
pub(super) struct Inbound {
    inner: Incoming,
    left: usize,
    /// For a pause.
    patience: Patience,
    /// For all of it: whoever sends a byte now and then never pauses for long.
    deadline: Patience,
}

/// A smaller body may be a part of what was read at once with it.
const SMALL: usize = 16 << 10;

/// Whether a body that was gathered holds on to no more memory than it is long.
pub(super) fn is_its_own(gathered: &Bytes) -> bool {
    gathered.len() >= SMALL
}

impl Inbound {
    /// Watches a body.
    pub(super) fn new(inner: Incoming, limits: &Limits) -> Result<Self, IntakeError> {
        if inner.size_hint().lower() > limits.body as u64 {
            return Err(IntakeError::TooLarge);
        }
        let (patience, deadline) = (Patience::new(limits.client), Patience::new(limits.upload));
        Ok(Self { inner, left: limits.body, patience, deadline })
    }

    /// All of it, in one piece, which is [its own](is_its_own) unless it is small.
    pub(super) async fn gather(mut self) -> Result<Bytes, IntakeError> {
        /// What is believed of a client's word about the length before it has sent that much.
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
                // To twice of what is here, and no further than to the end that was told.
                let missing = declared.checked_sub(whole.len()).unwrap_or(whole.len());
                whole.reserve_exact(missing.min(whole.len()).max(more.len()));
            }
            whole.extend_from_slice(&more);
        }
        Ok(whole.into_boxed_slice().into())
    }

    async fn data(&mut self) -> Result<Option<Bytes>, IntakeError> {
        loop {
            match self.frame().await.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => return Ok(Some(data)),
                // Trailers of a request: nobody reads them.
                Some(Err(_)) => {}
                None => return Ok(None),
            }
        }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = IntakeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IntakeError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            if self.deadline.poll_lost(cx).is_pending() {
                ready!(self.patience.poll_lost(cx));
            }
            return Poll::Ready(Some(Err(IntakeError::TooSlow)));
        };
        self.patience.rewarded();
        let frame = match frame {
            None => return Poll::Ready(None),
            Some(Err(_)) => return Poll::Ready(Some(Err(IntakeError::Broken))),
            Some(Ok(frame)) => frame,
        };
        let size = frame.data_ref().map_or(0, Buf::remaining);
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Some(Err(IntakeError::TooLarge))),
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

impl Body for Outbound {
    type Data = Bytes;
    type Error = IntakeError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IntakeError>>> {
        match self.get_mut() {
            Self::Streamed(inbound) => Pin::new(inbound).poll_frame(cx),
            Self::Whole { left, .. } => Poll::Ready(left.pop_front().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Streamed(inbound) => inbound.is_end_stream(),
            Self::Whole { left, framing } => left.is_empty() && *framing == Framing::Length,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Streamed(inbound) => inbound.size_hint(),
            Self::Whole { framing: Framing::Chunks, .. } => SizeHint::default(),
            Self::Whole { left, .. } => {
                SizeHint::with_exact(left.iter().map(|piece| piece.len() as u64).sum())
            }
        }
    }
}

impl Outbound {
    /// A body that is here as a whole.
    pub(super) fn whole(bytes: Bytes, framing: Framing) -> Self {
        Self::pieces([bytes], framing)
    }

    /// A body that is here in pieces.
    pub(super) fn pieces(pieces: impl IntoIterator<Item = Bytes>, framing: Framing) -> Self {
        // An empty chunk would be the last one.
        let left = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        Self::Whole { left, framing }
    }
}
