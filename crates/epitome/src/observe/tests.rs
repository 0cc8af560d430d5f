use std::sync::Arc;

use epitome_core::{Event, SessionId};
use epitome_store::{NewThread, StoreOptions, ThreadStart, records::NewSession, temporary_store};
use serde_json::json;

use super::*;

/// A thread in a store of its own, written call by call.
struct Bench {
    store: Arc<dyn Store>,
    thread: ThreadId,
    head: Seq,
    now: i64,
}

/// A model with a small window, and prices like Anthropic's.
const SMALL: &str = "
    [[model]]
    name = \"small\"
    wire = \"openai-chat\"
    window = 12_000
    output_limit = 1_000
    price.input = 5.0
    price.output = 25.0
    price.cache_read = 0.1
    price.cache_write = 1.25
    cache.written = \"automatic\"
    cache.lifetimes = [300]
";

impl Bench {
    fn new() -> Self {
        let store = temporary_store(StoreOptions::default()).unwrap();
        let (session, thread) = (SessionId::derived(&["observed"]), ThreadId::derived(&["observed"]));
        store.create_session(&NewSession::with_title(session, "observed")).unwrap();
        let opened =
            NewThread { id: thread, session, name: "main".into(), key: None, start: ThreadStart::Root };
        store.open(&opened).unwrap();
        Self { store, thread, head: Seq::START, now: 1_000_000 }
    }

    fn append(&mut self, events: Vec<Event>) -> Seq {
        let at = Some(Timestamp(self.now));
        let events = events.into_iter().map(|event| Event { time: at, ..event }).collect();
        self.head = self.store.append(self.thread, self.head, events).unwrap().seq;
        self.now += 1_000;
        self.head
    }

    fn ask(&mut self, first: &str) -> Seq {
        self.instruct("Be brief.", first)
    }

    fn instruct(&mut self, system: &str, first: &str) -> Seq {
        let body = json!({"model": "small", "messages": [
            {"role": "system", "content": system}, {"role": "user", "content": first}]});
        self.append(Format::OpenaiChat.decode_request(&body.to_string()).unwrap())
    }

    /// The model calls a tool with a long result; the next call may be made.
    fn turn(&mut self, number: usize) -> Seq {
        let answer = json!({"id": format!("answer-{number}"), "model": "small", "choices": [{"index": 0,
            "finish_reason": "tool_calls", "message": {"role": "assistant", "content": format!("Step {number}."),
            "tool_calls": [{"id": format!("call-{number}"), "type": "function",
                "function": {"name": "run", "arguments": format!("{{\"step\":{number}}}")}}]}}]});
        self.append(Format::OpenaiChat.decode_response(&answer.to_string()).unwrap());
        let result = json!({"messages": [{"role": "tool", "tool_call_id": format!("call-{number}"),
            "content": format!("line {number} of the output\n").repeat(100)}]});
        let events = Format::OpenaiChat.decode_request(&result.to_string()).unwrap();
        self.append(events.into_iter().skip(1).collect())
    }

    fn observe(&self, observer: &PolicyObserver, head: Seq) -> PolicyObservation {
        let small = ModelName("small".to_owned());
        let at = Timestamp(self.now);
        observer.call(&*self.store, self.thread, head, Some(&small), Format::OpenaiChat, at).unwrap()
    }
}

fn observer() -> PolicyObserver {
    let mut profiles = Profiles::builtin();
    profiles.with_overrides(SMALL).unwrap();
    PolicyObserver::new(Policy::named("epitome").unwrap().clone(), Arc::new(profiles))
}

#[test]
fn as_long_as_nothing_is_decided_the_policy_sends_the_whole() {
    let (mut bench, observer) = (Bench::new(), observer());
    let head = bench.ask("Mend the uploader.");
    let first = bench.observe(&observer, head);
    assert!(first.full > Tokens(0) && first.cost.is_some_and(|cost| cost > Money(0)), "{first:?}");
    let head = bench.turn(0);
    let second = bench.observe(&observer, head);
    for observed in [&first, &second] {
        assert_eq!((observed.sent, observed.cost), (observed.full, observed.cost_full));
        assert_eq!((&observed.cause, observed.epoch, &observed.refused), (&None, 0, &None));
    }
    assert!(second.full > first.full);
    let json = serde_json::to_string(&second).unwrap();
    assert_eq!(serde_json::from_str::<PolicyObservation>(&json).unwrap(), second);
}

#[test]
fn a_thread_that_grows_too_long_would_have_been_made_smaller() {
    let (mut bench, observer) = (Bench::new(), observer());
    let mut head = bench.ask("Mend the uploader.");
    let (mut resets, mut last) = (0, PolicyObservation::default());
    for number in 0..30 {
        last = bench.observe(&observer, head);
        assert!(last.sent <= Tokens(11_000) && last.refused.is_none(), "{last:?}");
        resets += u64::from(last.cause.is_some());
        assert_eq!(last.epoch, resets);
        head = bench.turn(number);
    }
    assert!(resets > 0 && last.full > Tokens(15_000) && last.sent < last.full, "{last:?}");
    assert!(last.cost < last.cost_full, "{last:?}");
}

#[test]
fn a_watch_that_was_let_go_comes_to_the_same_again() {
    let (mut bench, watching) = (Bench::new(), observer());
    let mut head = bench.ask("Mend the uploader.");
    for number in 0..25 {
        let watched = bench.observe(&watching, head);
        if number % 6 == 5 {
            assert_eq!(bench.observe(&observer(), head), watched, "call {number}");
        }
        head = bench.turn(number);
    }
}

#[test]
fn a_call_from_before_and_one_made_again_are_observed_too() {
    let (mut bench, observer) = (Bench::new(), observer());
    let first = bench.ask("Mend the uploader.");
    let before = bench.observe(&observer, first);
    let last = (0..3).map(|number| bench.turn(number)).last().unwrap();
    let after = bench.observe(&observer, last);
    let again = bench.observe(&observer, last);
    assert_eq!((again.full, again.sent), (after.full, after.sent));
    assert!(again.cost < after.cost, "what was just sent is in the cache");
    assert_eq!(bench.observe(&observer, first).full, before.full);
    assert_eq!(bench.observe(&observer, last).full, after.full);
}

#[test]
fn a_model_nobody_knows_has_no_limit_and_no_price() {
    let (mut bench, observer) = (Bench::new(), observer());
    bench.ask("Mend the uploader.");
    let head = (0..30).map(|number| bench.turn(number)).last().unwrap();
    for model in [None, Some(ModelName("somebody's model".to_owned()))] {
        let (store, thread, at) = (&bench.store, bench.thread, Timestamp(bench.now));
        let seen = observer.call(&**store, thread, head, model.as_ref(), Format::OpenaiChat, at).unwrap();
        assert_eq!((seen.sent, seen.cost, seen.cost_full), (seen.full, None, None));
    }
}

#[test]
fn what_no_policy_could_send_is_refused_in_words() {
    let (mut bench, observer) = (Bench::new(), observer());
    let head = bench.instruct(&"a very long instruction, ".repeat(10_000), "Mend the uploader.");
    let seen = bench.observe(&observer, head);
    assert!(seen.full > Tokens(12_000) && seen.sent == Tokens(0), "{seen:?}");
    let said = seen.refused.expect("a refusal");
    assert!(!said.contains("a very long"), "{said}");
    let head = bench.turn(0);
    assert!(bench.observe(&observer, head).refused.is_some());
}

#[test]
fn a_thread_that_is_not_there_is_an_error_or_nothing() {
    let (bench, observer) = (Bench::new(), observer());
    let nowhere = ThreadId::derived(&["nowhere"]);
    let seen = observer.call(&*bench.store, nowhere, Seq(5), None, Format::Anthropic, Timestamp(0));
    assert!(seen.is_err() || seen.is_ok_and(|seen| seen.full < Tokens(100)));
}
