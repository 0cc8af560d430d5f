//! Long first requests that leave before they are counted: what left is on record as it was sent, or as never sent.

use epitome::{
    core::{
        Digest, TokenCounter, Tokens,
        event::Timestamp,
        tokens::{EstimateCounter, O200kCounter},
    },
    recorder::{PendingRecord, RequestArrival},
    rewrite::{
        RequestDisposition, RequestOverrides, RequestRewrite, RewriteOutcome, RewriteStatus, RewrittenRequest,
    },
    session::verify_call,
    store::{Store, records::CallRow},
    wire::{Format, overflow::ContextOverflow},
};
use serde_json::json;

use crate::compose::{Agent, Gateway, result, sent};

/// An agent whose session is some time old when it is first seen.
fn agent(format: Format) -> Agent {
    let mut agent = Agent::new(format);
    for turn in 0..60 {
        agent.goes_on(&result(turn));
    }
    assert!(agent.body().len() > 40_000, "{format}");
    agent
}

fn gateway(window: u64) -> Gateway {
    let mut gateway = Gateway::new();
    gateway.composing.window = Some(Tokens(window));
    gateway
}

/// Composes a request for a client that does not wait; says whether it left before anything was on record.
fn compose(gateway: &Gateway, format: Format, body: &str) -> (PendingRecord, RewrittenRequest, bool) {
    let header = |name: &str| (name == "x-epitome-session").then_some("one");
    let arrival = RequestArrival {
        principal: "",
        format,
        body,
        shared: None,
        header: &header,
        at: Timestamp(1),
        purpose: None,
    };
    let (recorder, wishes) = (&gateway.recorder, RequestOverrides::default());
    let mut rewrite = RequestRewrite::begin(recorder, &arrival, &gateway.composing, &wishes).unwrap();
    let mut has_left = false;
    let composed = loop {
        let decision = rewrite.decide().unwrap();
        if decision.may_leave() {
            assert!(!has_left, "it leaves once");
            assert_eq!(recorder.store().sessions().unwrap().len(), 0, "nothing is on record yet");
            has_left = true;
            rewrite.note_left();
        }
        if let Some(composed) = rewrite.carry_out(decision).unwrap() {
            break composed;
        }
    };
    let RewriteOutcome { ticket, way: RequestDisposition::Forward(outgoing) } = composed else {
        panic!("it is answered")
    };
    (ticket, outgoing, has_left)
}

/// The calls of the one session, of which each can be written again.
fn calls(store: &dyn Store) -> Vec<CallRow> {
    let [session] = &store.sessions().unwrap()[..] else { panic!("one session") };
    let mut calls = Vec::new();
    for thread in store.threads(session.id).unwrap() {
        calls.extend(store.calls(thread.id, 0, 100).unwrap());
    }
    for row in &calls {
        assert!(verify_call(store, row.thread, row.number).unwrap().is_same(), "{row:#?}");
    }
    assert!(store.doctor().unwrap().is_healthy());
    calls
}

#[test]
fn a_long_first_request_that_fits_leaves_as_it_came_before_it_is_recorded() {
    for format in crate::SCRIPTED {
        let (mut gateway, mut agent) = (gateway(200_000), agent(format));
        let body = agent.body();
        let (ticket, outgoing, has_left) = compose(&gateway, format, &body);
        assert!(has_left, "{format}");
        assert_eq!(sent(&outgoing, &body), body, "{format}");
        assert_eq!(
            (outgoing.done.left, outgoing.done.call.unwrap().1),
            (RewriteStatus::Composed, 0),
            "{format}"
        );
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(60));
        // What follows is seen before, and waits for its turn.
        let (ticket, _, has_left) = compose(&gateway, format, &agent.body());
        assert!(!has_left, "{format}");
        gateway.answer(ticket, format, &agent.answer());
        let calls = calls(&**gateway.recorder.store());
        assert_eq!((calls.len(), calls[0].call.hash), (2, Digest::of(body.as_bytes())), "{format}");
        assert!(calls.iter().all(|row| row.outcomes[0].error.is_none()), "{format}");
    }
}

#[test]
fn what_may_be_changed_or_must_be_recorded_does_not_leave_before() {
    let format = Format::OpenaiChat;
    let body = agent(format).body();
    let left = |gateway: &Gateway, body: &str| compose(gateway, format, body).2;
    assert!(left(&gateway(200_000), &body));
    assert!(!left(&gateway(16_000), &body), "it does not fit");
    assert!(!left(&gateway(200_000), &Agent::new(format).body()), "it is short");
    let mut strict = gateway(200_000);
    strict.composing.with_answers = false;
    assert!(!left(&strict, &body), "it waits for the store");
    let mut recalling = gateway(200_000);
    recalling.composing.recall = true;
    assert!(!left(&recalling, &body), "a tool may be added");
    let mut cut = agent(format);
    cut.goes_on(&"some more words that a tool returned\n".repeat(10_000));
    assert!(!left(&gateway(400_000), &cut.body()), "a result is cut when it comes");
}

/// An agent whose first request is longer than it is estimated, and a gateway with a window between the two.
fn underestimated(format: Format) -> (Agent, Gateway) {
    // Words that no vocabulary holds cost more than their shape tells.
    let word = |seed: u64| {
        let letter = |at: u64| {
            char::from(b"bcdfghjklmnpqrstvwxz"[usize::try_from((seed * 7 + at * at * 13) % 20).unwrap()])
        };
        (0..12).map(letter).collect::<String>()
    };
    let mut agent = Agent::new(format);
    for turn in 0..40 {
        let words: Vec<String> = (0..200).map(|at| word(turn * 211 + at * 31)).collect();
        agent.history.push(json!({"role": "assistant", "content": words.join(" ")}));
        agent.history.push(json!({"role": "user", "content": "Go on."}));
    }
    let body = agent.body();
    let (estimated, exact) = (EstimateCounter.count(&body).0, O200kCounter.count(&body).0);
    assert!(estimated * 5 / 4 < exact, "{estimated} {exact}");
    // A quarter is left for the answer, and the policy acts at 95 % of the rest.
    let gateway = gateway(estimated.midpoint(exact) * 4 / 3 * 100 / 95);
    (agent, gateway)
}

#[test]
fn what_left_and_is_refused_as_too_long_is_made_smaller() {
    let format = Format::OpenaiChat;
    let (agent, mut gateway) = underestimated(format);
    let body = agent.body();
    let (mut ticket, outgoing, has_left) = compose(&gateway, format, &body);
    assert!(has_left && outgoing.done.left == RewriteStatus::Ahead);
    let smaller = gateway.smaller(&mut ticket, format, &body, ContextOverflow::default()).expect("it can be");
    assert!(smaller.done.after < smaller.done.before, "{smaller:?}");
    gateway.answer(ticket, format, &agent.answer());
    let calls = calls(&**gateway.recorder.store());
    assert!(calls.last().is_some_and(|row| row.outcomes[0].error.is_none()), "{calls:#?}");
}

#[test]
fn what_left_and_turns_out_too_long_is_on_record_as_a_call_that_never_left() {
    let format = Format::OpenaiChat;
    let (mut agent, mut gateway) = underestimated(format);
    let body = agent.body();
    let (ticket, outgoing, has_left) = compose(&gateway, format, &body);
    assert!(has_left);
    assert_eq!((sent(&outgoing, &body), outgoing.done.left), (body, RewriteStatus::Ahead));
    gateway.answer(ticket, format, &agent.answer());
    let before = calls(&**gateway.recorder.store());
    let never =
        |row: &CallRow| row.outcomes[0].error.as_deref().is_some_and(|error| error.starts_with("never left"));
    assert!(before.iter().all(never), "{before:#?}");
    // And the session goes on, made to fit.
    agent.goes_on(&result(1));
    let (ticket, outgoing, has_left) = compose(&gateway, format, &agent.body());
    assert!(!has_left && outgoing.done.after < outgoing.done.before, "{outgoing:?}");
    gateway.answer(ticket, format, &agent.answer());
    assert_eq!(calls(&**gateway.recorder.store()).len(), before.len() + 1);
}
