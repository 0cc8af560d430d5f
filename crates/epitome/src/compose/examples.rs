//! Examples that a client brings along: questions and answers at the head of its first request that nobody asked or gave
//! here.
//!
//! They instruct the model as a system prompt does. Once a limit demands a compaction they are recorded as instructions, in the
//! first request or in a fork: in their place and as they came, they outlast every compaction, and the provider's cache goes on
//! holding them. They go only where a request fits no other way: then it is told in a fork in which they are a past like any
//! other.

use std::ops::Range;

use epitome_core::{
    Event, Fact, Part, Seq, ThreadId, Tokens,
    context::{Body, Context, Tier},
    event::Instruction,
    meter::Meter,
};
use epitome_store::{EventLog, Sqlite, StoreError};

/// The share of what a request may hold that instructions and examples take at most, as a fraction. With less than a third
/// left, every few calls would be summarised.
const MOST: (u64, u64) = (2, 3);

/// How many events a thread may begin with before anybody speaks.
const OPENING: usize = 64;

/// Room for examples.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExampleRoom<'m> {
    /// What a request may hold.
    pub(super) ceiling: Tokens,
    /// Above which a policy acts whatever it costs.
    pub(super) force: Tokens,
    /// What is asked now, beside them.
    pub(super) asked: Tokens,
    pub(super) meter: &'m Meter,
}

/// Makes instructions of the examples that a first request begins with, if they leave enough room for everything else. Says
/// whether there are any.
pub(super) fn instruct(events: &mut [Event], room: ExampleRoom<'_>) -> bool {
    let examples = examples(events);
    if examples.is_empty() || !room.holds(&events[..examples.end]) {
        return false;
    }
    for event in &mut events[examples] {
        if let Fact::UserSaid { parts } | Fact::AssistantSaid { parts, .. } = &mut event.fact {
            let parts = std::mem::take(parts);
            event.fact = Fact::Instructed { what: Instruction::Message, parts };
        }
    }
    true
}

/// What a request asks at its end.
pub(super) fn asked(events: &[Event], meter: &Meter) -> Tokens {
    let asked = events.iter().rev().take_while(|event| matches!(event.fact, Fact::UserSaid { .. }));
    asked.map(|event| meter.event(event, None)).sum()
}

/// How many messages of a client's history its first request to a thread had; nothing if nobody knows.
pub(super) fn first_seen(store: &Sqlite, thread: ThreadId) -> Result<usize, StoreError> {
    let first = match store.call(thread, 0) {
        Ok(row) => row.call.head,
        Err(StoreError::UnknownCall { .. }) => return Ok(0),
        Err(error) => return Err(error),
    };
    let digests = store.digests(thread, Seq(1), usize::try_from(first.0).unwrap_or(usize::MAX))?;
    Ok(digests.into_iter().filter(|(seq, digest, _)| *seq <= first && digest.is_some()).count())
}

/// Whether a context has examples among its instructions.
pub(super) fn are_in(context: &Context) -> bool {
    let prefix = &context.segments()[..context.prefix_len()];
    prefix.iter().any(|segment| match segment.body() {
        Body::Prefix(event) => is_example(&event.event),
        _ => false,
    })
}

/// Whether a context's instructions leave too little room for `asked`. Some is left for a summary.
pub(super) fn leave_no_room(context: &Context, asked: Tokens, ceiling: Tokens) -> bool {
    let taken = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request + asked;
    taken + Tokens(ceiling.0 / SUMMARY) > ceiling
}

/// The part of what a request may hold that is left for a summary.
const SUMMARY: u64 = 10;

/// Whether an event was recorded as an example: an instruction that the client sends back as a message of its history.
fn is_example(event: &Event) -> bool {
    matches!(event.fact, Fact::Instructed { what: Instruction::Message, .. }) && event.normal.is_some()
}

/// The last event of what stands before a thread's history; `None` if nothing does.
pub(super) fn opening(store: &Sqlite, thread: ThreadId) -> Result<Option<Seq>, StoreError> {
    let events = store.read(thread, Seq(1), OPENING)?;
    let opening = events.iter().take_while(|logged| is_opening(&logged.event));
    Ok(opening.last().map(|logged| logged.id.seq))
}

/// The last event before a thread's examples; `None` if it has none.
pub(super) fn before_examples(store: &Sqlite, thread: ThreadId) -> Result<Option<Seq>, StoreError> {
    let events = store.read(thread, Seq(1), OPENING)?;
    let mut lead = events.iter().skip_while(|logged| is_opening(&logged.event));
    let has_examples = lead.any(|logged| is_example(&logged.event));
    if has_examples { opening(store, thread) } else { Ok(None) }
}

/// Whether an event stands before a history: an instruction that is no message of it.
fn is_opening(event: &Event) -> bool {
    matches!(event.fact, Fact::Instructed { .. }) && event.normal.is_none()
}

/// The questions and answers between a request's instructions and its first word to the model. Calls are work, and no
/// examples.
fn examples(events: &[Event]) -> Range<usize> {
    let is_said = |event: &&Event| matches!(event.fact, Fact::Instructed { .. } | Fact::Carried { .. });
    let start = events.iter().take_while(is_said).count();
    let talk = events[start..].iter().take_while(|event| is_talk(&event.fact));
    let answers = talk.enumerate().filter(|(_, event)| matches!(event.fact, Fact::AssistantSaid { .. }));
    let end = answers.last().map_or(start, |(at, _)| start + at + 1);
    let goes_on = matches!(events.get(end).map(|event| &event.fact), Some(Fact::UserSaid { .. }));
    if goes_on { start..end } else { start..start }
}

/// Whether a fact is a question or an answer in words alone.
fn is_talk(fact: &Fact) -> bool {
    let is_text = |part: &Part| matches!(part, Part::Text { .. });
    match fact {
        Fact::UserSaid { .. } => true,
        Fact::AssistantSaid { parts, .. } => parts.iter().all(is_text),
        _ => false,
    }
}

impl ExampleRoom<'_> {
    /// Whether there is room for a request's instructions and examples beside what is asked.
    fn holds(&self, head: &[Event]) -> bool {
        let (times, of) = MOST;
        let most = Tokens(self.ceiling.0 / of * times);
        self.fits(head, most.min(self.force.less(self.asked)))
    }

    /// Whether a limit demands that something of a request goes.
    pub(super) fn is_exceeded(&self, events: &[Event]) -> bool {
        !self.fits(events, self.force)
    }

    /// Whether events take no more than this. Nearly always their bytes say so, and nothing is counted.
    fn fits(&self, events: &[Event], most: Tokens) -> bool {
        let bytes = events.iter().map(|event| event.raw.json.len() as u64).sum::<u64>();
        if bytes <= most.0 {
            return true;
        }
        // No text has as many letters to a token by and large.
        if bytes / 8 > most.0 {
            return false;
        }
        events.iter().map(|event| self.meter.event(event, None)).sum::<Tokens>() <= most
    }
}

#[cfg(test)]
mod tests {
    use epitome_wire::Format;

    use super::*;

    fn check(messages: &str, expect: Range<usize>) {
        let body = format!(r#"{{"model":"m","messages":[{messages}]}}"#);
        let events = Format::OpenaiChat.decode_request(&body).unwrap();
        let found = examples(&events);
        let lead = events.iter().take_while(|event| matches!(event.fact, Fact::Instructed { .. })).count();
        assert_eq!(found.start.saturating_sub(lead)..found.end.saturating_sub(lead), expect, "{messages}");
    }

    #[test]
    fn examples_are_the_talk_before_the_first_word_to_the_model() {
        let system = r#"{"role":"system","content":"Sort."}"#;
        let user = r#"{"role":"user","content":"Paper?"}"#;
        let model = r#"{"role":"assistant","content":"Hardware."}"#;
        let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
        let result = r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#;
        check(&[system, user].join(","), 0..0);
        check(&[system, user, model, user].join(","), 0..2);
        check(&[user, model, user, model, user].join(","), 0..4);
        check(&[user, user, model, user, user].join(","), 0..3);
        // Work.
        check(&[user, call, result, model, user].join(","), 0..0);
        check(&[user, model, user, call, result, model, user].join(","), 0..2);
        // An answer that is to be gone on with.
        check(&[user, model].join(","), 0..0);
    }
}
