//! Count of unanswered calls.
//!
//! An interrupted call has no result, and that is no error. But a reader that loses results, or a file that lacks
//! them, looks the same, so an import reports the number of such calls. Calls of a thread's last answer are not
//! counted: their tools may be running.

use std::collections::{HashMap, HashSet};

use epitome_core::{
    Fact, Seq, ThreadId,
    id::{AnswerId, CallId},
    pairing::{CallOutcome, pair},
};

use super::{TranscriptFile, TranscriptSession, TranscriptThread, TranscriptThreadStart};

/// Warns once a session of its unanswered calls.
pub(super) fn warn_unanswered(reading: &mut TranscriptFile) {
    let many = reading.sessions.len() > 1;
    for index in 0..reading.sessions.len() {
        let session = &reading.sessions[index];
        let what = match unanswered(session) {
            0 => continue,
            1 => "1 call has no result".to_owned(),
            count => format!("{count} calls have no result"),
        };
        let about = if many { format!("{}: ", session.key) } else { String::new() };
        reading.warn(format!("{about}{what}"));
    }
}

/// An event of a session: its thread, by its place among them, and its place in that thread.
type EventLocation = (usize, Seq);

/// Number of a session's calls that no thread answers, other than those of a thread's last answer.
///
/// Each thread's own events are paired once; results in a fork for calls in its shared events are strays there, and
/// found by their ids. So the cost follows the size of the file, however often its threads fork.
fn unanswered(session: &TranscriptSession) -> usize {
    let mut open: Vec<(EventLocation, &CallId)> = Vec::new();
    let mut strays: HashMap<&CallId, usize> = HashMap::new();
    for (index, thread) in session.threads.iter().enumerate() {
        let paired = pair(own(thread));
        let calls =
            paired.exchanges.into_iter().filter(|exchange| exchange.outcome == CallOutcome::Unanswered);
        open.extend(calls.map(|exchange| ((index, exchange.at), &exchange.call.id)));
        for (_, result) in paired.strays {
            *strays.entry(&result.call).or_default() += 1;
        }
    }
    // As ids are used again, a result belongs to the newest call.
    open.reverse();
    open.retain(|(_, id)| match strays.get_mut(id) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    });
    if !open.is_empty() {
        let last = LastAnswers::of(session);
        open.retain(|(place, _)| !last.have(session, *place));
    }
    open.len()
}

/// A thread's own events. The numbers of a fork's events continue from the shared ones.
fn own(thread: &TranscriptThread) -> impl Iterator<Item = (Seq, &Fact)> {
    let shared = shared(thread);
    (shared.0 + 1..).map(Seq).zip(thread.events.iter().map(|event| &event.fact))
}

fn shared(thread: &TranscriptThread) -> Seq {
    match thread.start {
        TranscriptThreadStart::Fork { at, .. } => at,
        TranscriptThreadStart::Root | TranscriptThreadStart::Spawned { .. } => Seq::START,
    }
}

/// An answer's id, if it has one.
fn answer_of(fact: &Fact) -> Option<&AnswerId> {
    match fact {
        Fact::AssistantSaid { answer, .. } => answer.as_ref(),
        _ => None,
    }
}

/// The last answer of every thread, which may be one that the thread shares.
struct LastAnswers<'a> {
    /// The events, for answers of one event.
    places: HashSet<EventLocation>,
    /// The answers that may have several.
    ids: HashSet<&'a AnswerId>,
}

impl<'a> LastAnswers<'a> {
    fn of(session: &'a TranscriptSession) -> Self {
        let mut last = Self { places: HashSet::new(), ids: HashSet::new() };
        let mut known: HashMap<ThreadId, usize> = HashMap::new();
        let mut answers: Vec<Vec<Seq>> = Vec::new();
        // For each thread, the last answer that it shares: parents stand before their forks.
        let mut inherited: Vec<Option<EventLocation>> = Vec::new();
        for (index, thread) in session.threads.iter().enumerate() {
            let before = match &thread.start {
                TranscriptThreadStart::Fork { of, at } => known.get(of).and_then(|&parent| {
                    let upto = answers[parent].partition_point(|seq| seq <= at);
                    let own = upto.checked_sub(1).map(|newest| (parent, answers[parent][newest]));
                    own.or(inherited[parent])
                }),
                TranscriptThreadStart::Root | TranscriptThreadStart::Spawned { .. } => None,
            };
            let is_answer = |(_, fact): &(Seq, &Fact)| matches!(fact, Fact::AssistantSaid { .. });
            answers.push(own(thread).filter(is_answer).map(|(seq, _)| seq).collect());
            inherited.push(before);
            known.insert(thread.id, index);
            let place = answers[index].last().map(|seq| (index, *seq)).or(before);
            last.places.extend(place);
            last.ids.extend(place.and_then(|place| answer_of(fact_at(session, place)?)));
        }
        last
    }

    fn have(&self, session: &TranscriptSession, place: EventLocation) -> bool {
        let id = fact_at(session, place).and_then(answer_of);
        self.places.contains(&place) || id.is_some_and(|id| self.ids.contains(id))
    }
}

fn fact_at(session: &TranscriptSession, (thread, seq): EventLocation) -> Option<&Fact> {
    let thread = session.threads.get(thread)?;
    let index = usize::try_from(seq.0.checked_sub(shared(thread).0 + 1)?).ok()?;
    thread.events.get(index).map(|event| &event.fact)
}

#[cfg(test)]
mod tests {
    use epitome_core::{
        ContentPart, Event, SessionId,
        event::{ToolCall, ToolResult},
    };

    use super::*;
    use crate::transcripts::{
        TranscriptFormat,
        testing::{any_reading, is_prefix},
    };

    /// Threads of events, a word an event: `u`, `call:ID`, `call:ID@ANSWER`, `result:ID`. Thread 0 is the root, each
    /// other one a fork of the thread and place it begins with.
    fn check(threads: &[(usize, u64, &str)], expect: usize) {
        let id = |index: usize| ThreadId::derived(&[&index.to_string()]);
        let thread = |(index, (of, at, words)): (usize, &(usize, u64, &str))| TranscriptThread {
            id: id(index),
            name: index.to_string(),
            start: if *at == 0 {
                TranscriptThreadStart::Root
            } else {
                TranscriptThreadStart::Fork { of: id(*of), at: Seq(*at) }
            },
            events: words.split_whitespace().map(event).collect(),
        };
        let threads: Vec<TranscriptThread> = threads.iter().enumerate().map(thread).collect();
        let session = TranscriptSession {
            id: SessionId::derived(&["s"]),
            key: "s".to_owned(),
            title: None,
            folder: None,
            head: threads[0].id,
            threads,
        };
        assert_eq!(unanswered(&session), expect);
    }

    fn event(word: &str) -> Event {
        let (kind, id) = word.split_once(':').unwrap_or((word, ""));
        let (id, answer) = id.split_once('@').map_or((id, None), |(id, answer)| (id, Some(answer.into())));
        let fact = match kind {
            "call" => {
                let parts = vec![ContentPart::ToolCall(ToolCall::function(id, "t", "{}"))];
                Fact::AssistantSaid { answer, model: None, parts }
            }
            "result" => {
                let result = ToolResult { call: id.into(), name: None, parts: vec![], error: false };
                Fact::ToolReturned { results: vec![result], parts: vec![] }
            }
            _ => Fact::UserSaid { parts: vec![] },
        };
        Event::from_fact(fact, None)
    }

    #[test]
    fn calls_that_can_no_longer_be_answered_are_counted() {
        check(&[(0, 0, "u call:a result:a call:b u call:c result:c")], 1);
        check(&[(0, 0, "u call:a u call:a u call:c result:c")], 2);
    }

    #[test]
    fn the_last_answer_may_still_be_answered() {
        check(&[(0, 0, "u call:a u")], 0);
        check(&[(0, 0, "u call:a@1 call:b@1 result:b")], 0);
        check(&[(0, 0, "u call:a call:b result:b")], 1);
        // A fork without events of its own stands at an answer that it shares, even through another such fork.
        check(&[(0, 0, "u call:a u call:b result:b"), (0, 3, "u"), (1, 4, "u")], 0);
        check(&[(0, 0, "u call:a u call:b result:b"), (0, 3, "call:c result:c")], 1);
    }

    #[test]
    fn what_a_fork_answers_is_answered() {
        check(&[(0, 0, "u call:a u call:b result:b"), (0, 2, "result:a call:c result:c")], 0);
        let twice = (0, 2, "result:a call:c result:c");
        check(&[(0, 0, "u call:a u call:b result:b"), twice, twice], 0);
        check(&[(0, 0, "u call:a u call:a u call:b result:b"), (0, 4, "result:a call:c result:c")], 1);
    }

    #[test]
    fn a_reading_says_how_many_and_stays_the_same_otherwise() {
        let call =
            r#"{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]}"#;
        let asked = r#"{"role":"user","content":"hi"}"#;
        let early = any_reading(&format!("{asked}\n{call}\n{asked}\n"));
        assert_eq!(early.warnings, []);
        let later = any_reading(&format!("{asked}\n{call}\n{asked}\n{call}\n{call}\n"));
        assert_eq!(later.format, TranscriptFormat::OpenaiChat);
        is_prefix(&early, &later, 3);
        let said: Vec<String> = later.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["2 calls have no result"]);
        let one = format!("{{\"messages\":[{call},{call}]}}");
        let several = any_reading(&format!("{one}\n{one}\n"));
        let said: Vec<String> = several.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["file#1: 1 call has no result", "file#2: 1 call has no result"]);
    }
}
