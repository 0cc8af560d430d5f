//! Answers to a model's calls of the recall tool: parts of its session that were left out.
//!
//! A model that calls the recall tool is answered by the gateway. The client never sees the call: these calls and
//! results are in the log as [hidden](epitome_wire::history_rewrite::HIDDEN_ORIGIN), are sent again in their place, and are passed
//! over when the client's history is compared.

use std::fmt::Write;

use epitome_core::{AnnotatedEvent, ContentPart, Event, Fact, LoggedEvent, Seq, ThreadId, event::ToolCall};
use epitome_store::{
    Store, StoreError,
    records::{CommitRecord, HitLocation, SearchQuery, SearchScope, SnippetPart},
};
use epitome_wire::{
    Format,
    history_rewrite::HIDDEN_ORIGIN,
    incoming::{IncomingRequest, with_unit_digests},
    message_builder::{ToolResultInput, ToolResultStatus},
    recall_tool::{self, RecallArguments, RecallCalls},
};

use super::{
    RewrittenRequest, client_call::rewrite_request, repeated_request::mark_replaced,
    rewrite_body::RewriteInput, thread_cache::CachedThread,
};
use crate::{
    recorder::{MAX_PLACE_ATTEMPTS, PendingRecord, RecordError, RequestArrival, TrafficRecorder},
    session::{SessionError, call_input::CallInput, call_replay},
};

/// Largest number of letters returned at a time.
pub(crate) const MAX_RECALL_CHARS: usize = 24_000;

/// Largest number of places that a search returns.
const PLACES: usize = 8;

/// Form in which a client received an answer that called the recall tool.
#[derive(Clone, Debug)]
pub enum RecallAnswerForm {
    /// The answer that continued others, as the end of one answer, in the client's form.
    Joined(Vec<Event>),
    /// An answer without its calls of the tool, which had others beside them.
    Without {
        /// The answer in the client's form.
        seen: Vec<Event>,
        /// The calls.
        calls: Vec<ToolCall>,
    },
}

/// Handles an answer that called the recall tool and nothing else: records it with the results, and returns the
/// request that goes on from there. `None` if there is no such request.
pub fn recall(
    recorder: &TrafficRecorder,
    ticket: &mut PendingRecord,
    arrival: &RequestArrival<'_>,
    recalls: &RecallCalls,
) -> Result<Option<RewrittenRequest>, RecordError> {
    let (Some(call), Some(cached)) = (ticket.call, recorder.threads.of(ticket)) else { return Ok(None) };
    let mut seen = IncomingRequest::read(arrival.format, arrival.body, &recorder.memo)?;
    recorder.resolve(arrival.principal, &mut seen)?;
    if !recorder.write_now(ticket)? {
        return Ok(None);
    }
    let (events, records) = recall_exchange(recorder, ticket, (call, &cached), arrival, recalls)?;
    let mut after = ticket.head;
    let mut tries = 0;
    loop {
        let Some(frame) = seen.frame() else { return Ok(None) };
        let unsent = Some(ticket.unsent.unwrap_or(after.next()));
        let (events, records) = (events.clone(), records.clone());
        let arriving = CallInput { events, records, ..CallInput::default() };
        let request = RewriteInput {
            unsent,
            recall: true,
            takes_tools: true,
            ..RewriteInput::new(&seen, frame, arrival.shared)
        };
        let made = rewrite_request(&cached, (after, arriving), request);
        if let Err(SessionError::Store(error)) = &made
            && tries < MAX_PLACE_ATTEMPTS
            && let Some(head) = moved_unsaid(recorder, ticket, error)?
        {
            if let Err(error) = cached.reload() {
                return mark_replaced(recorder, ticket, Err(error));
            }
            (after, tries) = (head, tries + 1);
            continue;
        }
        let recalled = mark_replaced(recorder, ticket, made)?;
        if recalled.is_some() {
            ticket.unsent = unsent;
        }
        return Ok(recalled);
    }
}

/// The answer that called the tool, with the results, and the record of its call.
fn recall_exchange(
    recorder: &TrafficRecorder,
    ticket: &PendingRecord,
    (call, cached): (u64, &CachedThread),
    arrival: &RequestArrival<'_>,
    recalls: &RecallCalls,
) -> Result<(Vec<AnnotatedEvent>, Vec<CommitRecord>), RecordError> {
    let format = arrival.format;
    let answer = format.decode_response(&recalls.answer)?;
    let records = vec![CommitRecord::Outcome(recorder.outcome_of(ticket, call, &answer, arrival.at))];
    let mut events = hidden_calls(ticket, with_unit_digests(format, answer));
    let most = cached.remaining_chars()?.map_or(MAX_RECALL_CHARS, |room| (room / 2).min(MAX_RECALL_CHARS));
    let each = most / recalls.calls.len().max(1);
    events.extend(recall_results(&**recorder.store(), ticket.thread, format, &recalls.calls, each));
    Ok((events.into_iter().map(|event| event.at(Some(arrival.at)).into()).collect(), records))
}

/// Current end of a request's thread, if only events without messages were added meanwhile: a compaction, or a
/// pin.
fn moved_unsaid(
    recorder: &TrafficRecorder,
    ticket: &PendingRecord,
    error: &StoreError,
) -> Result<Option<Seq>, StoreError> {
    if !error.is_conflict() {
        return Ok(None);
    }
    let head = recorder.store().thread(ticket.thread)?.head;
    Ok((head.link.normal == ticket.link).then_some(head.seq))
}

/// Results for calls of the tool, as events that the client does not have.
pub(crate) fn recall_results(
    store: &dyn Store,
    thread: ThreadId,
    format: Format,
    calls: &[ToolCall],
    most: usize,
) -> Vec<Event> {
    let texts: Vec<(String, ToolResultStatus)> =
        calls.iter().map(|call| given(store, thread, call, most)).collect();
    let results: Vec<ToolResultInput<'_>> = calls
        .iter()
        .zip(&texts)
        .map(|(call, (text, ended))| ToolResultInput { call, text, ended: *ended })
        .collect();
    format.say_results(&results).into_iter().map(hidden).collect()
}

/// An answer as it is recorded, if its client has it in another form.
pub(crate) fn as_client_saw(
    ticket: &PendingRecord,
    answer: Vec<Event>,
    told: &RecallAnswerForm,
) -> Vec<Event> {
    let seen = match told {
        RecallAnswerForm::Joined(seen) | RecallAnswerForm::Without { seen, .. } => seen,
    };
    if ticket.format.answers_are_items() {
        // In Responses every item is separate, and only the calls are hidden.
        return hidden_calls(ticket, answer);
    }
    // The digest of the client's form recognises it later.
    let known = seen.iter().rev().find_map(|event| event.normal);
    let mut answer: Vec<Event> = answer
        .into_iter()
        .map(|event| if is_said(&event) { Event { normal: None, ..hidden(event) } } else { event })
        .collect();
    if let Some(last) = answer.iter_mut().rev().find(|event| is_said(event)) {
        last.normal = known;
    }
    answer
}

/// The events of an answer that calls the tool. If items are separate the client has all but these calls; they are
/// still sent again as the model wrote them.
fn hidden_calls(ticket: &PendingRecord, answer: Vec<Event>) -> Vec<Event> {
    let is_call = |event: &Event| event.fact.calls().any(|call| recall_tool::is_recall_call(call).is_some());
    let hide = |event: Event| match event {
        event if !is_said(&event) => event,
        // The provider has not stored this item, and would refuse a reference to it.
        event if !ticket.keeps_answer && is_unsealed(&event) => {
            Event { fact: Fact::Carried { kind: "reasoning_unsealed".to_owned() }, ..hidden(event) }
        }
        event if !is_call(&event) => Event { origin: Some(HIDDEN_ORIGIN.to_owned()), ..event },
        event => hidden(event),
    };
    answer.into_iter().map(hide).collect()
}

fn is_said(event: &Event) -> bool {
    matches!(event.fact, Fact::AssistantSaid { .. })
}

/// Returns true if an item is reasoning that only its provider could recognise.
fn is_unsealed(event: &Event) -> bool {
    let is_open = |part: &ContentPart| matches!(part, ContentPart::Reasoning { seal: None, .. });
    !event.fact.parts().is_empty() && event.fact.parts().iter().all(is_open)
}

fn hidden(event: Event) -> Event {
    Event { origin: Some(HIDDEN_ORIGIN.to_owned()), normal: None, ..event }
}

/// Result of one call of the tool, and its outcome.
fn given(store: &dyn Store, thread: ThreadId, call: &ToolCall, most: usize) -> (String, ToolResultStatus) {
    let asked = recall_tool::is_recall_call(call).unwrap_or_default();
    match found(store, thread, &asked, most) {
        Ok(text) => (cut(text, most), ToolResultStatus::Well),
        Err(text) => (text, ToolResultStatus::Badly),
    }
}

fn found(
    store: &dyn Store,
    thread: ThreadId,
    asked: &RecallArguments,
    most: usize,
) -> Result<String, String> {
    if let Some(handle) = &asked.handle {
        let mut text = String::new();
        let mut tell = |LoggedEvent { id, event, .. }: LoggedEvent| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "[{} {}]\n{}\n", id.seq, event.fact.kind(), event.fact.text());
            text.len() <= most
        };
        call_replay::recall_while(store, thread, handle, &mut tell).map_err(|error| error.to_string())?;
        return Ok(text);
    }
    let Some(query) = &asked.query else {
        return Err(
            "Say which: `handle` as a summary or a stub gives it, or `query` with words to look for."
                .to_owned(),
        );
    };
    let scope = SearchScope::Thread(thread);
    let search = SearchQuery { scope, limit: PLACES, ..SearchQuery::everything(query.as_str()) };
    let hits = store.search(&search).map_err(|error| error.to_string())?;
    let mut text = String::new();
    for hit in &hits {
        if let HitLocation::Event { id, .. } = &hit.found {
            let snippet: String = hit
                .snippet
                .iter()
                .map(|excerpt| match excerpt {
                    SnippetPart::Plain(text) | SnippetPart::Match(text) => text.as_str(),
                })
                .collect();
            let _ = writeln!(text, "recall {}:{}: {snippet}", thread.short(), id.seq);
        }
    }
    if text.is_empty() { Err(format!("Nothing in this session says `{query}`.")) } else { Ok(text) }
}

/// Cuts a text to the length returned at a time.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("\n[there is more: ask for fewer events at a time]");
    }
    text
}
