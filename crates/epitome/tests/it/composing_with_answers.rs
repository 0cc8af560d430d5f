//! Composed requests that are written with their answers: whatever happens before, what left is on record as it was sent.

use std::sync::Arc;

use epitome::{
    core::{Digest, Event, Fact, event::Timestamp},
    recorder::{PendingRecord, PlacementKind},
    rewrite::RewrittenRequest,
    session::verify_call,
    store::{
        Store,
        records::{CallRow, ThreadCommit},
    },
    wire::Format,
};
use serde_json::json;

use crate::compose::{Agent, Gateway, result, sent};

/// An agent that has made two calls, and a third that waits for its answer.
struct Waiting {
    gateway: Gateway,
    agent: Agent,
    ticket: PendingRecord,
    outgoing: RewrittenRequest,
    body: String,
}

impl Waiting {
    fn new(format: Format) -> Self {
        let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
        for turn in 0..2 {
            turn_of(&mut gateway, &mut agent, turn);
        }
        let body = agent.body();
        let (ticket, outgoing) = gateway.forward(format, &body);
        let waiting = Self { gateway, agent, ticket, outgoing, body };
        let calls = waiting.store().calls(waiting.ticket.thread, 0, 10).unwrap();
        assert_eq!(
            (calls.len(), waiting.outgoing.done.call.unwrap().1),
            (2, 2),
            "{format}: it is not written"
        );
        waiting
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.gateway.recorder.store()
    }

    /// The call is answered, and the client goes on.
    fn ends(self) -> (Gateway, Agent) {
        let Self { mut gateway, mut agent, ticket, .. } = self;
        let format = agent.format;
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(2));
        (gateway, agent)
    }
}

/// One more call, answered.
fn turn_of(
    gateway: &mut Gateway,
    agent: &mut Agent,
    turn: usize,
) -> (PlacementKind, epitome::core::ThreadId) {
    let format = agent.format;
    let (ticket, _) = gateway.forward(format, &agent.body());
    let place = (ticket.placed, ticket.thread);
    gateway.answer(ticket, format, &agent.answer());
    agent.goes_on(&result(turn));
    place
}

/// All calls of the one session, each of which has an end and can be written again.
fn calls(store: &dyn Store) -> Vec<CallRow> {
    let sessions = store.sessions().unwrap();
    assert_eq!(sessions.len(), 1);
    let mut calls: Vec<CallRow> = Vec::new();
    for thread in store.threads(sessions[0].id).unwrap() {
        for row in store.calls(thread.id, 0, 100).unwrap() {
            assert_eq!(row.outcomes.len(), 1, "{row:#?}");
            assert!(verify_call(store, thread.id, row.number).unwrap().is_same(), "{row:#?}");
            if calls.iter().all(|known| (known.thread, known.number) != (row.thread, row.number)) {
                calls.push(row);
            }
        }
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
    calls
}

fn is_told_of(calls: &[CallRow], body: &str) -> bool {
    calls.iter().any(|row| row.call.hash == Digest::of(body.as_bytes()))
}

#[test]
fn a_request_that_only_grows_is_written_with_its_answer() {
    for format in crate::SCRIPTED {
        let waiting = Waiting::new(format);
        let left = sent(&waiting.outgoing, &waiting.body);
        let thread = waiting.ticket.thread;
        let (mut gateway, mut agent) = waiting.ends();
        assert_eq!(turn_of(&mut gateway, &mut agent, 3), (PlacementKind::Continued, thread));
        let calls = calls(&**gateway.recorder.store());
        assert!(calls.len() == 4 && is_told_of(&calls, &left), "{format}");
    }
}

#[test]
fn where_somebody_noted_something_meanwhile_the_call_is_told_beside_and_the_session_goes_on() {
    for format in crate::SCRIPTED {
        let waiting = Waiting::new(format);
        let left = sent(&waiting.outgoing, &waiting.body);
        let (store, thread) = (Arc::clone(waiting.store()), waiting.ticket.thread);
        let head = store.thread(thread).unwrap().head.seq;
        let noted = Fact::Carried { kind: "note".to_owned() };
        let noted = Event { normal: None, ..Event::native("test", "{}", noted) };
        store.commit(ThreadCommit::new(thread, head, vec![noted], Vec::new())).unwrap();
        let (mut gateway, mut agent) = waiting.ends();
        assert_eq!(turn_of(&mut gateway, &mut agent, 3), (PlacementKind::Continued, thread));
        let calls = calls(&*store);
        assert!(calls.len() == 4 && is_told_of(&calls, &left), "{format}");
        let beside = calls.iter().filter(|row| row.thread != thread).count();
        assert_eq!(beside, 1, "{format}");
    }
}

#[test]
fn where_somebody_else_went_on_meanwhile_both_go_on() {
    for format in crate::SCRIPTED {
        let waiting = Waiting::new(format);
        let left = sent(&waiting.outgoing, &waiting.body);
        let store = Arc::clone(waiting.store());
        // The same history, gone on with otherwise through another gateway.
        let mut other = Gateway::on(Arc::clone(&store));
        let mut elsewhere = Agent { format, history: waiting.agent.history.clone(), turns: 2, spaced: false };
        elsewhere.history.push(json!({"role": "user", "content": "And mind the time."}));
        let (_, theirs) = turn_of(&mut other, &mut elsewhere, 2);
        let (mut gateway, mut agent) = waiting.ends();
        let (_, ours) = turn_of(&mut gateway, &mut agent, 3);
        assert_ne!(ours, theirs, "{format}");
        assert_eq!(turn_of(&mut gateway, &mut agent, 4), (PlacementKind::Continued, ours), "{format}");
        assert_eq!(turn_of(&mut other, &mut elsewhere, 3), (PlacementKind::Continued, theirs), "{format}");
        let calls = calls(&*store);
        assert!(calls.len() == 7 && is_told_of(&calls, &left), "{format}: {}", calls.len());
    }
}

#[test]
fn where_two_begin_the_same_session_at_once_it_is_one() {
    for format in crate::SCRIPTED {
        let mut gateway = Gateway::new();
        let store = Arc::clone(gateway.recorder.store());
        let mut other = Gateway::on(Arc::clone(&store));
        let (mut agent, mut elsewhere) = (Agent::new(format), Agent::new(format));
        let body = agent.body();
        let (ticket, outgoing) = gateway.forward(format, &body);
        turn_of(&mut other, &mut elsewhere, 0);
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(0));
        turn_of(&mut gateway, &mut agent, 1);
        turn_of(&mut other, &mut elsewhere, 1);
        let calls = calls(&*store);
        assert!(calls.len() == 4 && is_told_of(&calls, &sent(&outgoing, &body)), "{format}");
    }
}

#[test]
fn a_call_that_never_left_is_not_told() {
    for format in crate::SCRIPTED {
        let mut waiting = Waiting::new(format);
        let left = sent(&waiting.outgoing, &waiting.body);
        waiting.gateway.recorder.note_call_not_sent(&mut waiting.ticket, Timestamp(9_000)).unwrap();
        let thread = waiting.ticket.thread;
        let (mut gateway, mut agent) = waiting.ends();
        assert_eq!(turn_of(&mut gateway, &mut agent, 3), (PlacementKind::Continued, thread));
        let calls = calls(&**gateway.recorder.store());
        assert!(calls.len() == 3 && !is_told_of(&calls, &left), "{format}");
    }
}

#[test]
fn what_a_kill_took_along_is_asked_again_and_nothing_is_there_twice() {
    for format in crate::SCRIPTED {
        let Waiting { gateway, mut agent, ticket, outgoing, body } = Waiting::new(format);
        let (thread, left) = (ticket.thread, sent(&outgoing, &body));
        let mut gateway = gateway.restarted();
        assert_eq!(turn_of(&mut gateway, &mut agent, 2), (PlacementKind::Continued, thread));
        let calls = calls(&**gateway.recorder.store());
        assert!(calls.len() == 3 && is_told_of(&calls, &left), "{format}: the same is sent");
    }
}

/// A gateway that gets the first request of a session, which its window does not hold.
fn too_long_at_first(format: Format) -> Waiting {
    let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
    for turn in 0..60 {
        agent.goes_on(&result(turn));
    }
    let body = agent.body();
    let (ticket, outgoing) = gateway.forward(format, &body);
    assert!(outgoing.done.compaction.is_some() && sent(&outgoing, &body).len() < body.len(), "{format}");
    let waiting = Waiting { gateway, agent, ticket, outgoing, body };
    assert_eq!(waiting.store().sessions().unwrap(), [], "{format}: it is not written");
    waiting
}

#[test]
fn what_is_decided_for_the_first_request_of_a_session_is_written_with_its_answer() {
    for format in crate::SCRIPTED {
        let mut waiting = too_long_at_first(format);
        let left = sent(&waiting.outgoing, &waiting.body);
        let thread = waiting.ticket.thread;
        waiting.gateway.answer(waiting.ticket, format, &waiting.agent.answer());
        waiting.agent.goes_on(&result(60));
        assert_eq!(turn_of(&mut waiting.gateway, &mut waiting.agent, 61), (PlacementKind::Continued, thread));
        let calls = calls(&**waiting.gateway.recorder.store());
        assert!(calls.len() == 2 && is_told_of(&calls, &left), "{format}");
        assert_eq!(calls[1].call.epoch, calls[0].call.epoch, "{format}: the summary stays");
    }
}

#[test]
fn what_was_decided_for_a_first_request_is_decided_again_after_a_kill() {
    for format in crate::SCRIPTED {
        let Waiting { gateway, agent, ticket, outgoing, body } = too_long_at_first(format);
        let left = sent(&outgoing, &body);
        drop(ticket);
        let mut gateway = gateway.restarted();
        let (ticket, outgoing) = gateway.forward(format, &body);
        assert_eq!(sent(&outgoing, &body), left, "{format}");
        gateway.answer(ticket, format, &agent.answer());
        let calls = calls(&**gateway.recorder.store());
        assert!(calls.len() == 1 && is_told_of(&calls, &left), "{format}");
    }
}

#[test]
fn a_first_request_that_was_compacted_and_never_left_goes_on_from_its_summary() {
    for format in crate::SCRIPTED {
        let Waiting { mut gateway, mut agent, mut ticket, outgoing, body } = too_long_at_first(format);
        gateway.recorder.note_call_not_sent(&mut ticket, Timestamp(9_000)).unwrap();
        let thread = ticket.thread;
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(60));
        assert_eq!(turn_of(&mut gateway, &mut agent, 61), (PlacementKind::Continued, thread), "{format}");
        let calls = calls(&**gateway.recorder.store());
        assert!(calls.len() == 1 && !is_told_of(&calls, &sent(&outgoing, &body)), "{format}");
    }
}

#[test]
fn where_two_compact_the_same_session_at_once_both_calls_are_on_record() {
    for format in crate::SCRIPTED {
        let Waiting { mut gateway, mut agent, ticket, outgoing, body } = too_long_at_first(format);
        let store = Arc::clone(gateway.recorder.store());
        let mut other = Gateway::on(Arc::clone(&store));
        let (theirs, elsewhere) = other.forward(format, &body);
        other.answer(theirs, format, &agent.answer());
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(60));
        turn_of(&mut gateway, &mut agent, 61);
        let calls = calls(&*store);
        assert_eq!(calls.len(), 3, "{format}");
        for outgoing in [&outgoing, &elsewhere] {
            assert!(is_told_of(&calls, &sent(outgoing, &body)), "{format}");
        }
    }
}
