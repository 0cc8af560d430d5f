//! A provider's answer whose beginning may be inspected before it is passed on.
//!
//! A request that was too long can be sent again, smaller, as long as its client has received nothing. So the
//! beginning of an answer is held until it shows whether the request was too long: a refusal to its end, a
//! stream to its first event that settles it, and neither for long. The held bytes are passed on as they
//! came.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use epitome::wire::{
    Format,
    overflow::{ContextOverflow, OverflowDetector, OverflowVerdict, detect_overflow},
};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    answer_copy::is_streamed,
    decompress::{BodyDecompressor, ContentCoding, expand},
};

/// Most bytes of an answer that are inspected, both as they came and expanded. No refusal of an overlong
/// request is longer.
const MAX_PEEKED_BYTES: usize = 256 << 10;

/// Longest time that a stream is held. Most streams settle the question at once, and those of models that
/// think longer must not be delayed.
const STREAM: Duration = Duration::from_secs(1);

/// Longest time that a refusal is held. Clients read a refusal only when it has ended, so this only guards
/// against a server that never ends it.
const REFUSAL: Duration = Duration::from_secs(5);

/// Body of an answer, with its beginning if that was inspected.
#[derive(Debug)]
pub(super) struct PeekedBody {
    /// Pieces that were inspected and have not been passed on yet.
    first: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
    /// True if a held piece has just been passed on.
    has_let_go: bool,
    /// True if the answer was inspected to its end.
    is_whole: bool,
}

/// Wraps an answer that has not been inspected.
pub(super) fn without_peeking(response: Response<Incoming>) -> Response<PeekedBody> {
    response.map(PeekedBody::new)
}

/// Holds an answer until it shows whether the request was too long.
pub(super) async fn peek_overflow(
    format: Format,
    response: Response<Incoming>,
) -> (Response<PeekedBody>, Option<ContextOverflow>) {
    let (head, body) = response.into_parts();
    let (mut begun, coding) = (PeekedBody::new(body), ContentCoding::of(&head.headers));
    let is_refusal = head.status.is_client_error() || head.status.is_server_error();
    let told = if is_refusal {
        timeout(REFUSAL, begun.refuses(format, head.status, coding)).await
    } else if head.status.is_success() && is_streamed(&head.headers) && coding.flows() {
        timeout(STREAM, begun.opens(format, coding)).await
    } else {
        Ok(None)
    };
    // An answer that shows nothing in time is passed on.
    (Response::from_parts(head, begun), told.unwrap_or(None))
}

/// Holds a refusal to its end, if it ends in time and is not long.
pub(super) async fn peek_refusal(response: Response<Incoming>) -> Response<PeekedBody> {
    let mut response = without_peeking(response);
    let coding = ContentCoding::of(response.headers());
    // What is not there in time is passed on unread.
    let _ = timeout(REFUSAL, response.body_mut().read_refusal(coding)).await;
    response
}

/// Text of a refusal that is held to its end; `None` if it is not, or cannot be read.
pub(super) fn refusal_text(refusal: &Response<PeekedBody>) -> Option<String> {
    let body = refusal.body();
    let held = body.is_whole.then(|| body.held())?;
    let expanded = match ContentCoding::of(refusal.headers()) {
        _ if held.is_empty() => held,
        ContentCoding::Identity => held,
        coding => expand(coding, &held, MAX_PEEKED_BYTES).ok()?,
    };
    String::from_utf8(expanded).ok()
}

impl PeekedBody {
    fn new(rest: Incoming) -> Self {
        Self { first: VecDeque::new(), rest, has_let_go: false, is_whole: false }
    }

    /// What was inspected and not passed on, as text; empty if it is compressed.
    pub(super) fn held_text(&self) -> String {
        String::from_utf8(self.held()).unwrap_or_default()
    }

    fn held(&self) -> Vec<u8> {
        let held = self.first.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
        held.flat_map(|bytes| bytes.iter().copied()).collect()
    }

    /// Reports whether a refusal says that the request was too long.
    async fn refuses(
        &mut self,
        format: Format,
        status: StatusCode,
        coding: ContentCoding,
    ) -> Option<ContextOverflow> {
        detect_overflow(format, status.as_u16(), &self.read_refusal(coding).await?)
    }

    /// Reads a refusal to its end; `None` if it is too long or cannot be read.
    async fn read_refusal(&mut self, coding: ContentCoding) -> Option<Vec<u8>> {
        let mut said = Vec::new();
        while let Some(bytes) = self.more().await.ok()? {
            said.extend_from_slice(&bytes);
            if said.len() > MAX_PEEKED_BYTES {
                return None;
            }
        }
        self.is_whole = true;
        if coding == ContentCoding::Identity {
            return Some(said);
        }
        expand(coding, &said, MAX_PEEKED_BYTES).ok()
    }

    /// Reports whether a stream begins by saying that the request was too long.
    async fn opens(&mut self, format: Format, coding: ContentCoding) -> Option<ContextOverflow> {
        let (mut expander, mut opening) =
            (BodyDecompressor::new(coding, MAX_PEEKED_BYTES), OverflowDetector::new(format));
        loop {
            let opens = match self.more().await.ok()? {
                Some(bytes) => opening.push(&expander.push(&bytes).ok()?),
                None => match opening.finish() {
                    OverflowVerdict::Untold => OverflowVerdict::Otherwise,
                    told => told,
                },
            };
            match opens {
                OverflowVerdict::Untold => {}
                OverflowVerdict::TooLong(overflow) => return Some(overflow),
                OverflowVerdict::Otherwise => return None,
            }
        }
    }

    /// Reads the next bytes and keeps them for passing on; `None` at the end. No bytes are lost if the caller
    /// stops waiting.
    async fn more(&mut self) -> Result<Option<Bytes>, PeekError> {
        while !self.rest.is_end_stream() {
            let Some(frame) = poll_fn(|cx| Pin::new(&mut self.rest).poll_frame(cx)).await else { break };
            let bytes = frame.as_ref().map(|frame| frame.data_ref().cloned()).map_err(|_| PeekError);
            self.first.push_back(frame);
            if let Some(bytes) = bytes? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// The answer broke off. The reader of the body sees the error in its place.
struct PeekError;

impl Body for PeekedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let begun = self.get_mut();
        if let Some(Ok(_)) = begun.first.front() {
            begun.has_let_go = true;
            return Poll::Ready(begun.first.pop_front());
        }
        // A connection that ends with an error writes nothing more, so the held pieces are written first.
        if std::mem::take(&mut begun.has_let_go) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match begun.first.pop_front() {
            Some(error) => Poll::Ready(Some(error)),
            None => Pin::new(&mut begun.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // The length is in the headers, if it is known at all.
        SizeHint::default()
    }
}
