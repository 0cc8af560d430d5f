//! Examples that a client supplies: questions and answers at the head of its first request that were not asked or
//! given here.
//!
//! They instruct the model as a system prompt does. Once a limit demands a compaction they are recorded as
//! instructions, in the first request or in a fork: in their place and as they came, they outlast every compaction,
//! and the provider's cache goes on holding them. They are dropped only if a request cannot fit otherwise: then it is
//! recorded in a fork in which they are ordinary history.

use std::ops::Range;

use epitome_core::{
    ContentPart, Event, Fact, Seq, ThreadId, Tokens,
    context::{Context, SegmentBody, Tier},
    event::InstructionKind,
    meter::Meter,
};
use epitome_store::{Store, StoreError};

/// Largest share of a request's room that instructions and examples may take, as a fraction. With less than a third
/// left, every few calls would be summarised.
const MAX_INSTRUCTION_SHARE: (u64, u64) = (2, 3);

/// Number of events that a thread may begin with before the first message.
const OPENING: usize = 64;

/// Room for examples.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExampleBudget<'m> {
    /// Tokens that a request may hold.
    pub(super) ceiling: Tokens,
    /// Tokens above which a policy acts at any cost.
    pub(super) force: Tokens,
    /// Tokens of the new question beside them.
    pub(super) asked: Tokens,
    pub(super) meter: &'m Meter,
}

/// Turns the examples that a first request begins with into instructions, if they leave enough room for everything
/// else. Returns true if there are any.
pub(super) fn convert_to_instructions(events: &mut [Event], room: ExampleBudget<'_>) -> bool {
    let examples = examples(events);
    if examples.is_empty() || !room.holds(&events[..examples.end]) {
        return false;
    }
    for event in &mut events[examples] {
        if let Fact::UserSaid { parts } | Fact::AssistantSaid { parts, .. } = &mut event.fact {
            let parts = std::mem::take(parts);
            event.fact = Fact::Instructed { what: InstructionKind::Message, parts };
        }
    }
    true
}

/// Tokens of the question at the end of a request.
pub(super) fn question_tokens(events: &[Event], meter: &Meter) -> Tokens {
    let asked = events.iter().rev().take_while(|event| matches!(event.fact, Fact::UserSaid { .. }));
    asked.map(|event| meter.event(event, None)).sum()
}

/// Number of messages in a thread's first request; 0 if it is unknown.
pub(super) fn first_seen(store: &dyn Store, thread: ThreadId) -> Result<usize, StoreError> {
    let first = match store.call(thread, 0) {
        Ok(row) => row.call.head,
        Err(StoreError::UnknownCall { .. }) => return Ok(0),
        Err(error) => return Err(error),
    };
    let digests = store.digests(thread, Seq(1), usize::try_from(first.0).unwrap_or(usize::MAX))?;
    Ok(digests.into_iter().filter(|(seq, digest, _)| *seq <= first && digest.is_some()).count())
}

/// Returns true if a context has examples among its instructions.
pub(super) fn are_in(context: &Context) -> bool {
    let prefix = &context.segments()[..context.prefix_len()];
    prefix.iter().any(|segment| match segment.body() {
        SegmentBody::Prefix(event) => is_example(&event.event),
        _ => false,
    })
}

/// Returns true if a context's instructions leave too little room for `asked`. Some is left for a summary.
pub(super) fn instructions_exceed_room(context: &Context, asked: Tokens, ceiling: Tokens) -> bool {
    let taken = context.tier_tokens(Tier::Prefix) + context.meter().overhead().request + asked;
    taken + Tokens(ceiling.0 / SUMMARY_DIVISOR) > ceiling
}

/// Divisor of a request's room: this part is left for a summary.
const SUMMARY_DIVISOR: u64 = 10;

/// Returns true if an event was recorded as an example: an instruction that the client sends back as a message of its
/// history.
fn is_example(event: &Event) -> bool {
    matches!(event.fact, Fact::Instructed { what: InstructionKind::Message, .. }) && event.normal.is_some()
}

/// The last event before a thread's history; `None` if there is none.
pub(super) fn last_opening_event(store: &dyn Store, thread: ThreadId) -> Result<Option<Seq>, StoreError> {
    let events = store.read(thread, Seq(1), OPENING)?;
    let opening = events.iter().take_while(|logged| is_opening(&logged.event));
    Ok(opening.last().map(|logged| logged.id.seq))
}

/// The last event before a thread's examples; `None` if it has none.
pub(super) fn before_examples(store: &dyn Store, thread: ThreadId) -> Result<Option<Seq>, StoreError> {
    let events = store.read(thread, Seq(1), OPENING)?;
    let mut lead = events.iter().skip_while(|logged| is_opening(&logged.event));
    let has_examples = lead.any(|logged| is_example(&logged.event));
    if has_examples { last_opening_event(store, thread) } else { Ok(None) }
}

/// Returns true if an event stands before a history: an instruction that is not a message of it.
fn is_opening(event: &Event) -> bool {
    matches!(event.fact, Fact::Instructed { .. }) && event.normal.is_none()
}

/// The questions and answers between a request's instructions and its first real question. Calls are work, and not
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

/// Returns true if a fact is a question or an answer in words alone.
fn is_talk(fact: &Fact) -> bool {
    let is_text = |part: &ContentPart| matches!(part, ContentPart::Text { .. });
    match fact {
        Fact::UserSaid { .. } => true,
        Fact::AssistantSaid { parts, .. } => parts.iter().all(is_text),
        _ => false,
    }
}

impl ExampleBudget<'_> {
    /// Returns true if there is room for a request's instructions and examples beside the new question.
    fn holds(&self, head: &[Event]) -> bool {
        let (times, of) = MAX_INSTRUCTION_SHARE;
        let most = Tokens(self.ceiling.0 / of * times);
        self.fits(head, most.min(self.force.less(self.asked)))
    }

    /// Returns true if a limit demands that a part of a request is dropped.
    pub(super) fn is_exceeded(&self, events: &[Event]) -> bool {
        !self.fits(events, self.force)
    }

    /// Returns true if events take at most `most` tokens. Nearly always their bytes show it, and nothing is counted.
    fn fits(&self, events: &[Event], most: Tokens) -> bool {
        let bytes = events.iter().map(|event| event.raw.json.len() as u64).sum::<u64>();
        if bytes <= most.0 {
            return true;
        }
        // On average no text has as many bytes per token.
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
        // An assistant's calls are work, not examples.
        check(&[user, call, result, model, user].join(","), 0..0);
        check(&[user, model, user, call, result, model, user].join(","), 0..2);
        // An answer at the end is to be continued.
        check(&[user, model].join(","), 0..0);
    }
}
