//! An exchange that has ended: everything that is recorded of its answer, and everything that is counted.

use std::sync::Arc;

use epitome::{
    core::id::ModelName,
    observe::PolicyObservation,
    recorder::{EndedExchange, ExchangeOutcome, PendingRecord, TrafficRecorder},
    rewrite::RewriteReport,
};
use tokio::sync::oneshot;

use super::{
    answer_copy::{AnswerCopy, CopiedAnswer},
    metrics::{
        GatewayMetrics, UnrecordedReason,
        compact_calls::{FinishedCompactCall, OverflowOutcome},
    },
    recording::{self, RecordResult, RecordedRequest},
    request_scope::{AnswerFacts, HiddenExchanges, RequestCompletion, RequestStats},
    telemetry::RecordLocation,
};

/// An exchange that has ended.
pub(super) struct CompletedExchange {
    /// The record of its request, and the recorder that holds it.
    pub(super) recorded: Result<(PendingRecord, Arc<TrafficRecorder>), UnrecordedReason>,
    /// Its end, to be recorded.
    pub(super) end: EndedExchange,
    /// Notified when that is done.
    pub(super) done: oneshot::Sender<RecordResult>,
    pub(super) counts: ExchangeCounts,
}

/// Numbers of an exchange, for metrics and logs.
pub(super) struct ExchangeCounts {
    /// True if there was an answer that could not be read.
    pub(super) is_unreadable: bool,
    passed: RequestStats,
    ending: ExchangeOutcome,
    said: AnswerFacts,
    location: Option<RecordLocation>,
    model: Option<ModelName>,
    observed: Option<PolicyObservation>,
    composed: Option<RewriteReport>,
    overflow: Option<OverflowOutcome>,
    hidden: HiddenExchanges,
}

impl CompletedExchange {
    /// Reads the copy of the answer.
    pub(super) fn read(
        arrived: Result<Box<RecordedRequest>, UnrecordedReason>,
        completion: RequestCompletion,
    ) -> Self {
        let RequestCompletion { passed, copy, how, mut composed, overflow, spliced, hidden, done } =
            completion;
        let (recorded, observed, asked_back) = match arrived {
            Ok(arrived) => {
                let RecordedRequest { ticket, recorder, observed, asked_back, counted } = *arrived;
                composed = composed.or(counted);
                (Ok((ticket, recorder)), observed, asked_back)
            }
            Err(reason) => (Err(reason), None, 0),
        };
        let mut read = copy.map(AnswerCopy::read);
        let told = spliced.zip(read.as_mut()).and_then(|(spliced, read)| spliced.client_view(read));
        let ending = how.ending(passed.provider_status(), read.as_ref());
        let is_unreadable = read.as_ref().is_some_and(|read| !read.is_readable);
        let said = read.as_ref().map(CopiedAnswer::facts).unwrap_or_default();
        let ticket = recorded.as_ref().ok().map(|(ticket, _)| ticket);
        let location = ticket.map(|ticket| RecordLocation { session: ticket.session, thread: ticket.thread });
        let model = ticket.and_then(|ticket| ticket.model.clone());
        // An answer that asked back may be recorded even if its receiver has gone.
        let answer = read.filter(|_| asked_back <= hidden.answers).map(|read| read.events);
        let end = EndedExchange {
            answer: answer.unwrap_or_default(),
            ending,
            status: passed.provider_status().map(|status| status.as_u16()),
            bytes: passed.bytes_out,
            first_byte: passed.first_byte,
            took: passed.took,
            at: recording::now(),
            observed: observed.as_ref().and_then(|observed| serde_json::to_string(observed).ok()),
            told,
        };
        let counts = ExchangeCounts {
            is_unreadable,
            passed,
            ending,
            said,
            location,
            model,
            observed,
            composed,
            overflow,
            hidden,
        };
        Self { recorded, end, done, counts }
    }
}

impl ExchangeCounts {
    /// Counts what a policy would have sent. A refused request costs nothing, with or without a policy.
    pub(super) fn count_observation(&self, metrics: &GatewayMetrics) {
        if let (ExchangeOutcome::Complete, Some(observed)) = (self.ending, &self.observed) {
            metrics.observed(observed);
        }
    }

    /// Counts the exchange, and writes it to the log.
    pub(super) fn report(self, metrics: &GatewayMetrics, principal: &str) {
        let Self { passed, ending, said, location, model, composed, overflow, hidden, .. } = self;
        let used = said.usage;
        let said = AnswerFacts { usage: used.map(|used| hidden.with(&used)), ..said };
        passed.report(metrics, ending, &said, location);
        if let (Some(done), Some(location)) = (&composed, location) {
            metrics.composed(&FinishedCompactCall {
                principal,
                session: location.session,
                model: model.as_ref().map(|model| model.0.as_str()),
                done,
                usage: used.as_ref(),
                overflow: overflow.map(|overflow| overflow.after(ending)),
                recalls: hidden.recalls,
                hidden: hidden.usage,
            });
        }
    }
}
