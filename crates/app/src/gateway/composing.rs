//! A request in mode `compact`, from its body to the beginning of its answer: composed, sent, and sent once
//! more, smaller, if its provider says that it is too long.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use epitome::{
    compose::{Cut, Left, Outgoing, Way},
    core::event::Time,
    wire::{
        recall::{RECALL_TOOL, offer},
        reply::Reply,
    },
};
use http::{Request, Response, request::Parts};
use hyper::body::Incoming;
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    begun::{self, Begun},
    config::Unrecorded,
    fate::Fate,
    headers,
    intake::{Framing, Outbound},
    metrics::composed::Overflowed,
    passage::Passage,
    recalling::Onward,
    recording::{self, Alive, Becomes, Composed, Refused},
    relay::{Failure, record, send},
    upstream::Upstream,
};

/// Longest time that a request waits for a slow store, if the configuration lets requests pass unrecorded.
pub(super) const HELD: Duration = Duration::from_secs(2);

/// Longest time that a refused request waits for a smaller one. It is longer because the only alternative is
/// the refusal itself.
pub(super) const REFUSED: Duration = Duration::from_secs(10);

/// Answer to a request for a compaction when the session could not be read in time. The compaction may still
/// be done.
const UNHEARD: &str = "This could not be recorded in time, so perhaps nothing was compacted. If the session stays long, ask again.";

/// A request that is to be composed, and its destination.
pub(super) struct Trip<'p> {
    /// The request's way through the gateway, which counts it.
    pub(super) passage: &'p mut Passage,
    /// Provider of the request.
    pub(super) upstream: &'p Arc<Upstream>,
    /// Head of the request, as the provider gets it with the client's body.
    pub(super) head: Parts,
    /// Framing of the body, as it came and as it leaves.
    pub(super) framing: Framing,
    /// The request, as it came.
    pub(super) request: Arc<recording::Request>,
}

/// Source of a request's answer.
pub(super) enum Reached {
    /// The provider answers.
    Provider(Response<Begun>),
    /// The provider answers, and the model may ask back for what was left out; with what is needed to go on
    /// then.
    Watched(Response<Begun>, Box<Onward>),
    /// The gateway answers in the model's place.
    Here(Reply),
}

impl Trip<'_> {
    /// Composes the request and sends it.
    pub(super) async fn run(mut self, alive: Alive) -> Result<Reached, Failure> {
        let composed = record(self.passage, alive, Arc::clone(&self.request)).await?;
        let Some(Composed { way, body }) = composed else { return self.untouched().await };
        let way = match way {
            Becomes::Decided(way) => way,
            Becomes::Whole(counted) => {
                self.passage.goes_on_whole(counted);
                let response = self.unchanged().await?;
                return self.fitting(response, body).await.map(Reached::Provider);
            }
        };
        match way {
            Way::Answer { words, compaction } => {
                if let Some((trigger, by)) = &compaction {
                    self.passage.gateway().metrics.compacted(*trigger, by);
                }
                self.passage.came_to(Fate::Answered);
                Ok(Reached::Here(self.reply(&body, &words)))
            }
            Way::Forward(outgoing) if self.may_ask_back(&outgoing, &body) => {
                self.head.headers = headers::uncompressed(&self.head.headers);
                let response = self.composed(outgoing, body.clone()).await?;
                let Self { upstream, head, request, .. } = self;
                let onward = Onward { upstream: Arc::clone(upstream), head, request, body };
                Ok(Reached::Watched(response, Box::new(onward)))
            }
            Way::Forward(outgoing) => self.composed(outgoing, body).await.map(Reached::Provider),
        }
    }

    async fn untouched(mut self) -> Result<Reached, Failure> {
        let limit = self.passage.gateway().limits.body;
        if let Some(body) = self.request.asks_to_compact(limit) {
            self.passage.came_to(Fate::Answered);
            return Ok(Reached::Here(self.reply(&body, UNHEARD)));
        }
        self.passage.came_to(Fate::Unrecorded);
        self.unchanged().await.map(begun::unread).map(Reached::Provider)
    }

    /// Sends the request as it came.
    async fn unchanged(&mut self) -> Result<Response<Incoming>, Failure> {
        let body = Outbound::whole(self.request.body.clone(), self.framing);
        send(self.passage, self.upstream, Request::from_parts(self.head.clone(), body)).await
    }

    /// Returns true if the model was offered the tool by which it gets back what was left out.
    fn may_ask_back(&self, outgoing: &Outgoing, body: &[u8]) -> bool {
        if !outgoing.recall {
            return false;
        }
        // A body that never names the tool does not offer it, and a model calls no tool that it was not
        // offered.
        str::from_utf8(body)
            .is_ok_and(|body| !body.contains(RECALL_TOOL) || offer(self.request.format, body).is_some())
    }

    /// Sends a composed request, and once more if it has to be smaller.
    async fn composed(&mut self, outgoing: Outgoing, body: Bytes) -> Result<Response<Begun>, Failure> {
        // Requests that the gateway leaves alone keep their provider's errors, too. A client's own summary is
        // left alone only as long as its provider takes it.
        let is_ours = outgoing.done.call.is_some() || outgoing.done.left == Left::OwnSummary;
        let response = self.sent(outgoing, &body).await?;
        if is_ours { self.fitting(response, body).await } else { Ok(begun::unread(response)) }
    }

    /// Sends a request, and a smaller one if its provider refuses it as too long; returns the answer.
    async fn fitting(
        &mut self,
        response: Response<Incoming>,
        body: Bytes,
    ) -> Result<Response<Begun>, Failure> {
        let (refusal, overflow) = begun::held(self.request.format, response).await;
        let Some(overflow) = overflow else { return Ok(refusal) };
        let request = Arc::clone(&self.request);
        match smaller(self.passage, Refused { request, body: body.clone(), overflow }).await {
            Some(outgoing) => {
                drop(refusal);
                self.head.headers = headers::of_another(&self.head.headers);
                self.sent(outgoing, &body).await.map(begun::unread)
            }
            None => Ok(refusal),
        }
    }

    async fn sent(&mut self, outgoing: Outgoing, body: &Bytes) -> Result<Response<Incoming>, Failure> {
        let Outgoing { cuts, done, .. } = outgoing;
        self.passage.goes_on(done);
        let mut head = self.head.clone();
        let body = match pieces(cuts, body).filter(|pieces| !is_whole(pieces, body)) {
            // Nothing was changed, so the original bytes are sent, with their compression.
            None => Outbound::whole(self.request.body.clone(), self.framing),
            Some(pieces) => {
                let length = pieces.iter().map(|piece| piece.len() as u64).sum();
                head.headers = headers::recut(&head.headers, length);
                Outbound::pieces(pieces, self.framing)
            }
        };
        send(self.passage, self.upstream, Request::from_parts(head, body)).await
    }

    fn reply(&self, body: &[u8], words: &str) -> Reply {
        let request = str::from_utf8(body).unwrap_or_default();
        let now = Time(jiff::Timestamp::now().as_millisecond());
        let name = Uuid::now_v7().simple().to_string();
        self.request.format.answer_as_model(request, words, &name, now)
    }
}

/// Composes the request again, smaller, because its provider refused it as too long; `None` if that is
/// impossible.
pub(super) async fn smaller(passage: &mut Passage, refused: Refused) -> Option<Outgoing> {
    // The outcome until a better one is known.
    passage.overflowed(Overflowed::Lost);
    let outgoing = match passage.gateway().unrecorded {
        Unrecorded::Refuse => passage.smaller(refused).await,
        Unrecorded::Forward => timeout(REFUSED, passage.smaller(refused)).await.ok().flatten(),
    };
    if outgoing.is_some() {
        passage.overflowed(Overflowed::Recovered);
    }
    outgoing
}

/// Cuts a body into pieces without copying the client's bytes; `None` if the cuts do not fit it.
pub(super) fn pieces(cuts: Vec<Cut>, body: &Bytes) -> Option<Vec<Bytes>> {
    let piece = |cut| match cut {
        Cut::Client(range) => body.get(range).map(|piece| body.slice_ref(piece)),
        Cut::Own(words) => Some(Bytes::from(words)),
    };
    cuts.into_iter().map(piece).collect()
}

/// Returns true if the pieces together are the whole body.
fn is_whole(pieces: &[Bytes], body: &Bytes) -> bool {
    let mut rest = &body[..];
    for piece in pieces {
        match rest.split_at_checked(piece.len()) {
            Some((start, after)) if start.as_ptr() == piece.as_ptr() || piece.is_empty() => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cuts: Vec<Cut>, text: &str, whole: bool) {
        let body = Bytes::from_static(b"client's own");
        let pieces = pieces(cuts, &body).expect("it has these pieces");
        assert_eq!((pieces.concat().as_slice(), is_whole(&pieces, &body)), (text.as_bytes(), whole));
    }

    #[test]
    fn a_body_is_whole_only_if_all_of_it_is_the_clients() {
        check(vec![Cut::Client(0..12)], "client's own", true);
        check(vec![Cut::Client(0..6), Cut::Client(6..6), Cut::Client(6..12)], "client's own", true);
        check(vec![Cut::Client(0..6)], "client", false);
        check(vec![Cut::Client(6..12), Cut::Client(0..6)], "'s ownclient", false);
        check(vec![Cut::Client(0..6), Cut::Own(String::new()), Cut::Client(6..12)], "client's own", true);
        check(vec![Cut::Client(0..6), Cut::Own("'s own".to_owned())], "client's own", false);
        check(vec![], "", false);
        assert_eq!(pieces(vec![Cut::Client(0..2)], &Bytes::from_static(b"x")), None);
    }
}
