//! A provider's answer whose beginning may be looked at before it goes on.
//!
//! A request that was too long can be sent again, smaller, as long as its client has heard nothing. So the beginning of an
//! answer is held until it tells whether that is so: a refusal to its end, a stream to its first telling event, and neither
//! for long. What was held goes on as it came.

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
    overflow::{Opening, Opens, Overflow, overflow},
};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    copy::is_streamed,
    expand::{Coding, Expander, expand},
};

/// How many bytes of an answer are looked at, as they came and expanded: no refusal that means this is longer.
const LOOKED_AT: usize = 256 << 10;

/// How long a stream is held. Most tell at once; whoever thinks longer must not be kept from saying so.
const STREAM: Duration = Duration::from_secs(1);

/// How long a refusal is held. Nobody reads one before it has ended, so this only bounds a server that never ends.
const REFUSAL: Duration = Duration::from_secs(5);

/// The body of an answer, with its beginning if that was looked at.
#[derive(Debug)]
pub(super) struct Begun {
    /// What was looked at and has not gone on.
    first: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
    /// Whether something that was held has just gone on.
    has_let_go: bool,
}

/// An answer that nobody has looked at.
pub(super) fn unread(response: Response<Incoming>) -> Response<Begun> {
    response.map(Begun::new)
}

/// Holds an answer until it tells whether the request was too long.
pub(super) async fn held(
    format: Format,
    response: Response<Incoming>,
) -> (Response<Begun>, Option<Overflow>) {
    let (head, body) = response.into_parts();
    let (mut begun, coding) = (Begun::new(body), Coding::of(&head.headers));
    let is_refusal = head.status.is_client_error() || head.status.is_server_error();
    let told = if is_refusal {
        timeout(REFUSAL, begun.refuses(format, head.status, coding)).await
    } else if head.status.is_success() && is_streamed(&head.headers) && coding.flows() {
        timeout(STREAM, begun.opens(format, coding)).await
    } else {
        Ok(None)
    };
    // What has not told in time may say what it likes.
    (Response::from_parts(head, begun), told.unwrap_or(None))
}

impl Begun {
    fn new(rest: Incoming) -> Self {
        Self { first: VecDeque::new(), rest, has_let_go: false }
    }

    /// Whether a refusal says that the request was too long.
    async fn refuses(&mut self, format: Format, status: StatusCode, coding: Coding) -> Option<Overflow> {
        let mut said = Vec::new();
        while let Some(bytes) = self.more().await.ok()? {
            said.extend_from_slice(&bytes);
            if said.len() > LOOKED_AT {
                return None;
            }
        }
        let said = if coding == Coding::Identity { said } else { expand(coding, &said, LOOKED_AT).ok()? };
        overflow(format, status.as_u16(), &said)
    }

    /// Whether a stream begins by saying that the request was too long.
    async fn opens(&mut self, format: Format, coding: Coding) -> Option<Overflow> {
        let (mut expander, mut opening) = (Expander::new(coding, LOOKED_AT), Opening::new(format));
        loop {
            let opens = match self.more().await.ok()? {
                Some(bytes) => opening.push(&expander.push(&bytes).ok()?),
                None => match opening.finish() {
                    Opens::Untold => Opens::Otherwise,
                    told => told,
                },
            };
            match opens {
                Opens::Untold => {}
                Opens::TooLong(overflow) => return Some(overflow),
                Opens::Otherwise => return None,
            }
        }
    }

    /// The next bytes, which are kept here too; `None` at the end. Nothing is lost if nobody waits for it to the end.
    async fn more(&mut self) -> Result<Option<Bytes>, Unread> {
        while !self.rest.is_end_stream() {
            let Some(frame) = poll_fn(|cx| Pin::new(&mut self.rest).poll_frame(cx)).await else { break };
            let bytes = frame.as_ref().map(|frame| frame.data_ref().cloned()).map_err(|_| Unread);
            self.first.push_back(frame);
            if let Some(bytes) = bytes? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// The answer broke off: whoever it goes on to will see.
struct Unread;

impl Body for Begun {
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
        // A connection that hears of an end by an error writes nothing more: what was held is to be written before.
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
        // The headers tell, if anybody knows.
        SizeHint::default()
    }
}
