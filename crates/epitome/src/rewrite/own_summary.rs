//! A client's own request for a summary of its session that its provider's window does not hold: it is answered with
//! the built-in summary of the log. A model that gets such a request made smaller would summarise a summary.

use std::sync::Arc;

use epitome_core::{
    ChainLink, Event, EventId, Fact, LoggedEvent, Seq, ThreadId, Tokens,
    budget::Budget,
    context::{EventNaming, Tier},
    event::{Compaction, Summary},
    meter::Meter,
    projection::{EventLine, project},
    standing_context::StandingContext,
};
use epitome_store::{Store, ThreadStart, records::ThreadCommit};
use epitome_wire::{
    caller::RequestPurpose,
    incoming::IncomingRequest,
    summary_prompt::{SummaryAnswerForm, harmless_summary, without_summary_prompt},
};

use super::{RewriteSettings, SessionSummaryAnswer};
use crate::{
    lineage::{ForkDraftSettings, line_until},
    recorder::{PendingRecord, RecordError, RequestArrival, TrafficRecorder, placement::RequestPlace},
    session::{
        SessionError,
        setup::{ObservedLimits, SessionSetup},
        thread_reading::read_line,
    },
};

/// The history that a client wants summarised, and the rules for its summary.
pub(super) struct SummarySource<'s, 'b> {
    pub(super) store: &'s dyn Store,
    pub(super) seen: &'s IncomingRequest<'b>,
    pub(super) setup: &'s SessionSetup,
    /// Room of the conversation that goes on with the summary.
    pub(super) budget: Budget,
}

impl SummarySource<'_, '_> {
    /// Drafts the summary of a request that is not written yet. `None` if there is nothing to summarise, or nothing would be
    /// gained.
    pub(super) fn draft_at(&self, place: &RequestPlace) -> Result<Option<Compaction>, SessionError> {
        let meter = &self.setup.meter;
        let of_fork = place.opens.as_ref().map(|opens| match opens.thread.start {
            ThreadStart::Fork { of, at } => Some((of, at)),
            ThreadStart::Root | ThreadStart::Spawned { .. } => None,
        });
        let parent = of_fork.unwrap_or(Some((place.thread, place.after)));
        if parent.is_none() && !self.seen.has_own_history() {
            let is_new = place.opens.as_ref().is_some_and(|opens| opens.session.is_some());
            let head = if is_new { None } else { self.store.session_name(place.session)?.head };
            return match head {
                Some(head) => Ok(self.draft(head, &read_line(self.store, head, meter, None)?)),
                None => Ok(None),
            };
        }
        let mut line = match parent {
            Some((thread, at)) => read_line(self.store, thread, meter, Some(at))?,
            None => EventLine::default(),
        };
        for (event, seq) in place.new.iter().zip(place.after.0 + 1..) {
            let event = without_summary_prompt(self.seen.format(), event.clone());
            line = extended(line, event, EventId { thread: place.thread, seq: Seq(seq) });
        }
        Ok(self.draft(place.thread, &line))
    }

    /// The same for a request that is written already, at the end of `ticket`'s thread.
    fn draft_of(&self, ticket: &PendingRecord) -> Result<Option<Compaction>, SessionError> {
        let meter = &self.setup.meter;
        let whole = read_line(self.store, ticket.thread, meter, Some(ticket.head))?;
        if !self.seen.has_own_history() {
            let head = self.store.session_name(ticket.session)?.head.filter(|head| *head != ticket.thread);
            return match head {
                Some(head) => Ok(self.draft(head, &read_line(self.store, head, meter, None)?)),
                None => Ok(None),
            };
        }
        let asked = |logged: &&Arc<LoggedEvent>| {
            matches!(logged.event.fact, Fact::UserSaid { .. } | Fact::ToolReturned { .. })
        };
        let Some(last) = whole.events().rfind(asked).map(|last| last.id.seq) else { return Ok(None) };
        let mut line = line_until(&whole, last.previous());
        for logged in whole.events().filter(|logged| logged.id.seq >= last) {
            let event = without_summary_prompt(self.seen.format(), logged.event.clone());
            line = extended(line, event, logged.id);
        }
        Ok(self.draft(ticket.thread, &line))
    }

    /// Drafts the summary of all of a line.
    fn draft(&self, thread: ThreadId, line: &EventLine) -> Option<Compaction> {
        let (meter, names): (&Arc<Meter>, _) = (&self.setup.meter, EventNaming::Hidden(thread));
        let context = project(line, Arc::clone(meter), names);
        let prefix = context.tier_tokens(Tier::Prefix) + meter.overhead().request;
        let rules = self.setup.calls.policy.summary.unwrap_or_default();
        let drafting = rules.compaction_settings(&self.budget, prefix);
        let by = ForkDraftSettings { drafting: &drafting, meter, names };
        let event = by.summary_of_all(line, None)?;
        let Fact::Compacted(mut compaction) = event.fact else { return None };
        // What a client says of its project and its surroundings it says again after a compaction of its own.
        if let Summary::Structured { text, brief } = &mut compaction.summary {
            brief.standing = StandingContext::default();
            *text = harmless_summary(text);
        }
        Some(compaction)
    }
}

/// A line with one more event, if there is one.
fn extended(mut line: EventLine, event: Option<Event>, id: EventId) -> EventLine {
    if let Some(event) = event {
        line.push_uncounted(Arc::new(LoggedEvent { id, event, link: ChainLink::ROOT }));
    }
    line
}

/// Form in which the client of a request reads its summary.
pub(super) fn answer_form(arrival: &RequestArrival<'_>, seen: &IncomingRequest<'_>) -> SummaryAnswerForm {
    if arrival.purpose == Some(RequestPurpose::Compaction) {
        SummaryAnswerForm::Sealed
    } else {
        seen.summary_form()
    }
}

/// Writes a summary beside the request that asked for it, and returns the answer for the client.
pub(super) fn answer(
    recorder: &TrafficRecorder,
    ticket: &mut PendingRecord,
    arrival: &RequestArrival<'_>,
    (compaction, form): (Compaction, SummaryAnswerForm),
) -> Result<SessionSummaryAnswer, RecordError> {
    let summary = compaction.summary.clone();
    let compaction = Compaction { through: compaction.through.min(ticket.head), ..compaction };
    let event = Event::from_fact(Fact::Compacted(compaction), Some(arrival.at));
    let commit = ThreadCommit::new(ticket.thread, ticket.head, vec![event], Vec::new());
    let head = recorder.store().commit(commit)?.seq;
    recorder.threads.forget(ticket.thread);
    recorder.move_to_head(ticket, head, None);
    let text = summary.text().to_owned();
    ticket.summary = Some(summary);
    Ok(SessionSummaryAnswer { text, form })
}

/// Answers a client's own summarising request, which was sent and which its provider refused as too long. `None` if there is
/// nothing to answer with.
pub fn summarise_instead(
    recorder: &TrafficRecorder,
    ticket: &mut PendingRecord,
    arrival: &RequestArrival<'_>,
    composing: &RewriteSettings,
) -> Result<Option<SessionSummaryAnswer>, RecordError> {
    let mut seen = IncomingRequest::read(arrival.format, arrival.body, &recorder.memo)?;
    recorder.resolve(arrival.principal, &mut seen)?;
    let Some(model) = seen.model() else { return Ok(None) };
    if ticket.purpose != RequestPurpose::Compaction || !recorder.write_now(ticket)? {
        return Ok(None);
    }
    let setup = recorder.threads.setup(&**recorder.store(), seen.format(), &model.0, composing);
    let limit = setup.limit_of(composing.window, seen.answer_limit().map(Tokens));
    let budget = setup.budget_within(limit, ObservedLimits::default(), composing.functions.hooks.reserve());
    let source = SummarySource { store: &**recorder.store(), seen: &seen, setup: &setup, budget };
    match source.draft_of(ticket) {
        Ok(Some(compaction)) => {
            let form = answer_form(arrival, &seen);
            answer(recorder, ticket, arrival, (compaction, form)).map(Some)
        }
        Ok(None) => Ok(None),
        Err(SessionError::Store(error)) => Err(error.into()),
        Err(error) => {
            tracing::warn!(target: "epitome::compose", thread = %ticket.thread, %error, "a summary is left to its provider");
            Ok(None)
        }
    }
}
