//! Answers to a model's calls of the recall tool: parts of its session that were left out.
//!
//! A model that calls the recall tool is answered by the gateway. The client never sees the call: these calls and
//! results are in the log as [hidden](epitome_wire::weave::HIDDEN), are sent again in their place, and are passed
//! over when the client's history is compared.

use std::fmt::Write;

use epitome_core::{Event, Fact, Logged, Noted, Part, Seq, ThreadId, event::ToolCall};
use epitome_store::{
    Sqlite, StoreError,
    records::{Excerpt, Found, Record, Scope, Search},
};
use epitome_wire::{
    Format,
    recall::{self, Asked, Recalls},
    say::{Ended, SaidResult},
    seen::{Seen, recognisable},
    weave::HIDDEN,
};

use super::{Outgoing, composition::weave_request, weaving::Request};
use crate::{
    recorder::{Arrival, RecordError, Recorder, TRIES, Ticket},
    session::{SessionError, arriving::Arriving, audit},
};

/// Largest number of letters returned at a time.
pub(crate) const MOST: usize = 24_000;

/// Largest number of places that a search returns.
const PLACES: usize = 8;

/// Form in which a client received an answer that called the recall tool.
#[derive(Clone, Debug)]
pub enum Told {
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

impl Recorder {
    /// Handles an answer that called the recall tool and nothing else: records it with the results, and returns the
    /// request that goes on from there. `None` if there is no such request.
    pub fn recall(
        &self,
        ticket: &mut Ticket,
        arrival: &Arrival<'_>,
        recalls: &Recalls,
    ) -> Result<Option<Outgoing>, RecordError> {
        let (Some(call), Some(live)) = (ticket.call, self.lives.of(ticket)) else { return Ok(None) };
        let mut seen = Seen::read(arrival.format, arrival.body, &self.memo)?;
        self.resolve(arrival.principal, &mut seen)?;
        if !self.write_now(ticket)? {
            return Ok(None);
        }
        let format = arrival.format;
        let answer = format.decode_response(&recalls.answer)?;
        let records = vec![Record::Outcome(self.outcome_of(ticket, call, &answer, arrival.at))];
        let mut events = hidden_calls(ticket, recognisable(format, answer));
        let most = live.room()?.map_or(MOST, |room| (room / 2).min(MOST));
        events.extend(self.results(ticket.thread, format, &recalls.calls, most / recalls.calls.len().max(1)));
        let events: Vec<Noted> = events.into_iter().map(|event| event.at(Some(arrival.at)).into()).collect();
        let mut after = ticket.head;
        let mut tries = 0;
        loop {
            let Some(frame) = seen.frame() else { return Ok(None) };
            let unsent = Some(ticket.unsent.unwrap_or(after.next()));
            let (events, records) = (events.clone(), records.clone());
            let arriving = Arriving { events, records, ..Arriving::default() };
            let request = Request {
                seen: &seen,
                shared: arrival.shared,
                frame,
                unsent,
                recall: true,
                takes_tools: true,
                below: None,
                client: None,
            };
            let made = weave_request(&live, (after, arriving), request);
            if let Err(SessionError::Store(error)) = &made
                && tries < TRIES
                && let Some(head) = self.moved_unsaid(ticket, error)?
            {
                if let Err(error) = live.starts_over() {
                    return self.once_more(ticket, Err(error));
                }
                (after, tries) = (head, tries + 1);
                continue;
            }
            let recalled = self.once_more(ticket, made)?;
            if recalled.is_some() {
                ticket.unsent = unsent;
            }
            return Ok(recalled);
        }
    }

    /// Current end of a request's thread, if only events without messages were added meanwhile: a compaction, or a
    /// pin.
    fn moved_unsaid(&self, ticket: &Ticket, error: &StoreError) -> Result<Option<Seq>, StoreError> {
        if !error.is_conflict() {
            return Ok(None);
        }
        let head = self.store().thread(ticket.thread)?.head;
        Ok((head.link.normal == ticket.link).then_some(head.seq))
    }

    /// Results for calls of the tool, as events that the client does not have.
    pub(crate) fn results(
        &self,
        thread: ThreadId,
        format: Format,
        calls: &[ToolCall],
        most: usize,
    ) -> Vec<Event> {
        let texts: Vec<(String, Ended)> =
            calls.iter().map(|call| given(self.store(), thread, call, most)).collect();
        let results: Vec<SaidResult<'_>> = calls
            .iter()
            .zip(&texts)
            .map(|(call, (text, ended))| SaidResult { call, text, ended: *ended })
            .collect();
        format.say_results(&results).into_iter().map(hidden).collect()
    }
}

/// An answer as it is recorded, if its client has it in another form.
pub(crate) fn as_told(ticket: &Ticket, answer: Vec<Event>, told: &Told) -> Vec<Event> {
    let seen = match told {
        Told::Joined(seen) | Told::Without { seen, .. } => seen,
    };
    if ticket.format == Format::OpenaiResponses {
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
fn hidden_calls(ticket: &Ticket, answer: Vec<Event>) -> Vec<Event> {
    let is_call = |event: &Event| event.fact.calls().any(|call| recall::is_recall_call(call).is_some());
    let hide = |event: Event| match ticket.format {
        _ if !is_said(&event) => event,
        // The provider has not stored this item, and would refuse a reference to it.
        Format::OpenaiResponses if !ticket.keeps_answer && is_unsealed(&event) => {
            Event { fact: Fact::Carried { kind: "reasoning_unsealed".to_owned() }, ..hidden(event) }
        }
        Format::OpenaiResponses if !is_call(&event) => Event { origin: Some(HIDDEN.to_owned()), ..event },
        _ => hidden(event),
    };
    answer.into_iter().map(hide).collect()
}

fn is_said(event: &Event) -> bool {
    matches!(event.fact, Fact::AssistantSaid { .. })
}

/// Returns true if an item is reasoning that only its provider could recognise.
fn is_unsealed(event: &Event) -> bool {
    let is_open = |part: &Part| matches!(part, Part::Reasoning { seal: None, .. });
    !event.fact.parts().is_empty() && event.fact.parts().iter().all(is_open)
}

fn hidden(event: Event) -> Event {
    Event { origin: Some(HIDDEN.to_owned()), normal: None, ..event }
}

/// Result of one call of the tool, and its outcome.
fn given(store: &Sqlite, thread: ThreadId, call: &ToolCall, most: usize) -> (String, Ended) {
    let asked = recall::is_recall_call(call).unwrap_or_default();
    match found(store, thread, &asked, most) {
        Ok(text) => (cut(text, most), Ended::Well),
        Err(text) => (text, Ended::Badly),
    }
}

fn found(store: &Sqlite, thread: ThreadId, asked: &Asked, most: usize) -> Result<String, String> {
    if let Some(handle) = &asked.handle {
        let mut text = String::new();
        let mut tell = |Logged { id, event, .. }: Logged| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "[{} {}]\n{}\n", id.seq, event.fact.kind(), event.fact.text());
            text.len() <= most
        };
        audit::recall_while(store, thread, handle, &mut tell).map_err(|error| error.to_string())?;
        return Ok(text);
    }
    let Some(query) = &asked.query else {
        return Err(
            "Say which: `handle` as a summary or a stub gives it, or `query` with words to look for."
                .to_owned(),
        );
    };
    let search = Search { words: query.clone(), scope: Scope::Thread(thread), limit: PLACES };
    let hits = store.search(&search).map_err(|error| error.to_string())?;
    let mut text = String::new();
    for hit in &hits {
        if let Found::Event { id, .. } = &hit.found {
            let snippet: String = hit
                .snippet
                .iter()
                .map(|excerpt| match excerpt {
                    Excerpt::Plain(text) | Excerpt::Match(text) => text.as_str(),
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
