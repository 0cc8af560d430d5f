//! A request in mode `compact`, from its body to the beginning of its answer: composed, sent, and sent once
//! more, smaller, if its provider says that it is too long.

use std::sync::Arc;

use bytes::Bytes;
use epitome::{
    core::event::{CompactionTrigger, Timestamp},
    rewrite::{RequestDisposition, RewriteStatus, RewrittenRequest, SessionSummaryAnswer},
    wire::{
        caller::RequestPurpose,
        overflow::ContextOverflow,
        recall_tool::{RECALL_TOOL, offer},
        summary_prompt::SummaryAnswerForm,
        synthetic_response::SyntheticResponse,
    },
};
use http::{Request, Response, StatusCode, request::Parts};
use hyper::body::Incoming;
use uuid::Uuid;

use super::{
    headers,
    outcome_header::CompactOutcome,
    outgoing_request::{ProxyError, compose_smaller, cut_body, record, send, summarise_instead},
    peeked_response::{self, PeekedBody},
    recall_body::RecallContext,
    recording::{self, ComposeDecision, ComposedRequest, OverlongRequest, ShutdownGuard},
    request_body::{BodyFraming, OutboundBody},
    request_scope::RequestScope,
    token_count::is_no_route,
    upstream::Upstream,
};

/// Answer to a request for a compaction when the session could not be read in time. The compaction may still
/// be done.
const COMPACTION_UNCONFIRMED: &str = "This could not be recorded in time, so perhaps nothing was compacted. If the session stays long, ask again.";

/// A request that is to be composed, and its destination.
pub(super) struct CompactRequest<'p> {
    /// The request's way through the gateway, which counts it.
    pub(super) passage: &'p mut RequestScope,
    /// Provider of the request.
    pub(super) upstream: &'p Arc<Upstream>,
    /// Head of the request, as the provider gets it with the client's body.
    pub(super) head: Parts,
    /// Framing of the body, as it came and as it leaves.
    pub(super) framing: BodyFraming,
    /// The request, as it came.
    pub(super) request: Arc<recording::RecordableRequest>,
}

/// Source of a request's answer.
pub(super) enum ProxyOutcome {
    /// The provider answers.
    Provider(Response<PeekedBody>),
    /// The provider answers, and the model may ask back for what was left out; with what is needed to go on
    /// then.
    Watched(Response<PeekedBody>, Box<RecallContext>),
    /// The gateway answers in the model's place.
    Here(SyntheticResponse),
}

impl CompactRequest<'_> {
    /// Composes the request and sends it.
    pub(super) async fn run(mut self, alive: ShutdownGuard) -> Result<ProxyOutcome, ProxyError> {
        let composed = record(self.passage, alive, Arc::clone(&self.request)).await?;
        let Some(ComposedRequest { way, body }) = composed else { return self.untouched().await };
        let way = match way {
            ComposeDecision::Decided(way) => way,
            ComposeDecision::Whole(counted) => {
                self.passage.set_sent_unchanged(counted);
                let response = self.unchanged().await?;
                return self.fitting(response, body).await.map(ProxyOutcome::Provider);
            }
        };
        match way {
            RequestDisposition::Answer { words, compaction } => {
                if let Some((trigger, by)) = &compaction {
                    self.passage.gateway().metrics.compacted(*trigger, by);
                }
                self.passage.set_outcome(CompactOutcome::Answered);
                Ok(ProxyOutcome::Here(self.reply(&body, &words)))
            }
            RequestDisposition::Summary(summary) => Ok(ProxyOutcome::Here(self.summarised(&body, &summary))),
            RequestDisposition::Forward(outgoing) if self.may_ask_back(&outgoing, &body) => {
                self.head.headers = headers::uncompressed(&self.head.headers);
                let response = self.composed(outgoing, body.clone()).await?;
                let Self { upstream, head, request, .. } = self;
                let onward = RecallContext { upstream: Arc::clone(upstream), head, request, body };
                Ok(ProxyOutcome::Watched(response, Box::new(onward)))
            }
            RequestDisposition::Forward(outgoing) if outgoing.done.left == RewriteStatus::OwnSummary => {
                self.own_summary(outgoing, body).await
            }
            RequestDisposition::Forward(outgoing) => {
                self.composed(outgoing, body).await.map(ProxyOutcome::Provider)
            }
        }
    }

    async fn untouched(mut self) -> Result<ProxyOutcome, ProxyError> {
        let limit = self.passage.gateway().limits.body;
        if let Some(body) = self.request.asks_to_compact(limit) {
            self.passage.set_outcome(CompactOutcome::Answered);
            return Ok(ProxyOutcome::Here(self.reply(&body, COMPACTION_UNCONFIRMED)));
        }
        self.passage.set_outcome(CompactOutcome::Unrecorded);
        self.unchanged().await.map(peeked_response::without_peeking).map(ProxyOutcome::Provider)
    }

    /// Sends the request as it came.
    async fn unchanged(&mut self) -> Result<Response<Incoming>, ProxyError> {
        let (body, _) =
            OutboundBody::addressed([self.request.body.clone()], self.framing, self.request.format);
        send(self.passage, self.upstream, Request::from_parts(self.head.clone(), body)).await
    }

    /// Returns true if the model was offered the tool by which it gets back what was left out.
    fn may_ask_back(&self, outgoing: &RewrittenRequest, body: &[u8]) -> bool {
        if !outgoing.recall {
            return false;
        }
        // A body that never names the tool does not offer it, and a model calls no tool that it was not
        // offered.
        str::from_utf8(body)
            .is_ok_and(|body| !body.contains(RECALL_TOOL) || offer(self.request.format, body).is_some())
    }

    /// Sends a composed request, and once more if it has to be smaller.
    async fn composed(
        &mut self,
        outgoing: RewrittenRequest,
        body: Bytes,
    ) -> Result<Response<PeekedBody>, ProxyError> {
        // Requests that the gateway leaves alone keep their provider's errors, too.
        let is_ours = outgoing.done.call.is_some();
        let response = self.sent(outgoing, &body).await?;
        if is_ours {
            self.fitting(response, body).await
        } else {
            Ok(peeked_response::without_peeking(response))
        }
    }

    /// Sends a client's own request for a summary. If its provider refuses it as too long, the client gets our summary.
    async fn own_summary(
        mut self,
        outgoing: RewrittenRequest,
        body: Bytes,
    ) -> Result<ProxyOutcome, ProxyError> {
        let response = self.sent(outgoing, &body).await?;
        let (refusal, overflow) = peeked_response::peek_overflow(self.request.format, response).await;
        let overflow = match overflow {
            Some(overflow) => overflow,
            None if self.has_no_compaction(&refusal) => ContextOverflow { limit: None, asked: None },
            None => return Ok(ProxyOutcome::Provider(refusal)),
        };
        let overlong = OverlongRequest { request: Arc::clone(&self.request), body: body.clone(), overflow };
        if let Some(summary) = summarise_instead(self.passage, overlong).await {
            return Ok(ProxyOutcome::Here(self.summarised(&body, &summary)));
        }
        let overlong = OverlongRequest { request: Arc::clone(&self.request), body: body.clone(), overflow };
        self.smaller(refusal, overlong).await.map(ProxyOutcome::Provider)
    }

    /// Returns true if a provider that was asked for a compaction item refuses because it has none to give.
    fn has_no_compaction(&self, refusal: &Response<PeekedBody>) -> bool {
        if self.request.purpose == Some(RequestPurpose::Compaction) {
            return is_no_route(refusal);
        }
        let refuses = is_no_route(refusal)
            || matches!(refusal.status(), StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        refuses && refusal.body().held_text().contains("compaction_trigger")
    }

    /// The answer with our summary, in the form that the client reads.
    fn summarised(&mut self, body: &[u8], summary: &SessionSummaryAnswer) -> SyntheticResponse {
        let by = epitome::session::BUILT_IN_NAME;
        self.passage.gateway().metrics.compacted(CompactionTrigger::Manual, by);
        self.passage.set_outcome(CompactOutcome::Summarised);
        if summary.form != SummaryAnswerForm::Sealed {
            return self.reply(body, &summary.form.answer_text(&summary.text));
        }
        let (gateway, request) = (self.passage.gateway(), str::from_utf8(body).unwrap_or_default());
        let sealed = gateway.seal.as_ref().and_then(|seal| seal.seal(&self.request.principal, &summary.text));
        let (name, now) = answer_name();
        let asked = (request, self.request.purpose == Some(RequestPurpose::Compaction));
        let answer =
            sealed.and_then(|sealed| self.request.format.answer_with_compaction(asked, &sealed, &name, now));
        // Without a random number there is no item; the text is at least readable.
        answer.unwrap_or_else(|| self.reply(body, &summary.text))
    }

    /// Sends a request, and a smaller one if its provider refuses it as too long; returns the answer.
    async fn fitting(
        &mut self,
        response: Response<Incoming>,
        body: Bytes,
    ) -> Result<Response<PeekedBody>, ProxyError> {
        let (refusal, overflow) = peeked_response::peek_overflow(self.request.format, response).await;
        let Some(overflow) = overflow else { return Ok(refusal) };
        let request = Arc::clone(&self.request);
        self.smaller(refusal, OverlongRequest { request, body, overflow }).await
    }

    /// Sends a smaller request in place of one that was refused as too long; returns the refusal if that is impossible.
    async fn smaller(
        &mut self,
        refusal: Response<PeekedBody>,
        overlong: OverlongRequest,
    ) -> Result<Response<PeekedBody>, ProxyError> {
        let body = overlong.body.clone();
        match compose_smaller(self.passage, overlong).await {
            Some(outgoing) => {
                drop(refusal);
                self.head.headers = headers::for_resent_request(&self.head.headers);
                self.sent(outgoing, &body).await.map(peeked_response::without_peeking)
            }
            None => Ok(refusal),
        }
    }

    async fn sent(
        &mut self,
        outgoing: RewrittenRequest,
        body: &Bytes,
    ) -> Result<Response<Incoming>, ProxyError> {
        let RewrittenRequest { cuts, done, .. } = outgoing;
        self.passage.set_composed(done);
        let mut head = self.head.clone();
        let body = match cut_body(cuts, body).filter(|pieces| !is_whole(pieces, body)) {
            // Nothing was changed, so the original bytes are sent, with their compression.
            None => OutboundBody::addressed([self.request.body.clone()], self.framing, self.request.format).0,
            Some(pieces) => {
                let (body, length) = OutboundBody::addressed(pieces, self.framing, self.request.format);
                head.headers = headers::for_replaced_body(&head.headers, length);
                body
            }
        };
        send(self.passage, self.upstream, Request::from_parts(head, body)).await
    }

    fn reply(&self, body: &[u8], words: &str) -> SyntheticResponse {
        let request = str::from_utf8(body).unwrap_or_default();
        let (name, now) = answer_name();
        self.request.format.answer_as_model(request, words, &name, now)
    }
}

/// A new name for an answer of ours, and its time.
fn answer_name() -> (String, Timestamp) {
    (Uuid::now_v7().simple().to_string(), Timestamp(jiff::Timestamp::now().as_millisecond()))
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
    use epitome::rewrite::BodySlice;

    use super::*;

    #[track_caller]
    fn check(cuts: Vec<BodySlice>, text: &str, whole: bool) {
        let body = Bytes::from_static(b"client's own");
        let pieces = cut_body(cuts, &body).expect("it has these pieces");
        assert_eq!((pieces.concat().as_slice(), is_whole(&pieces, &body)), (text.as_bytes(), whole));
    }

    #[test]
    fn a_body_is_whole_only_if_all_of_it_is_the_clients() {
        check(vec![BodySlice::Client(0..12)], "client's own", true);
        check(
            vec![BodySlice::Client(0..6), BodySlice::Client(6..6), BodySlice::Client(6..12)],
            "client's own",
            true,
        );
        check(vec![BodySlice::Client(0..6)], "client", false);
        check(vec![BodySlice::Client(6..12), BodySlice::Client(0..6)], "'s ownclient", false);
        check(
            vec![BodySlice::Client(0..6), BodySlice::Own(String::new()), BodySlice::Client(6..12)],
            "client's own",
            true,
        );
        check(vec![BodySlice::Client(0..6), BodySlice::Own("'s own".to_owned())], "client's own", false);
        check(vec![], "", false);
        assert_eq!(cut_body(vec![BodySlice::Client(0..2)], &Bytes::from_static(b"x")), None);
    }
}
