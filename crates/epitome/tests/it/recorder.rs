//! Whose session a request is: by ids and history together, whatever clients change by themselves.

use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

use epitome::{
    core::{Digest, Fact, Seq, SessionId, ThreadId, event::Timestamp},
    recorder::{
        EndedExchange, ExchangeOutcome, PendingRecord, PlacementKind, RequestArrival, TrafficRecorder,
    },
    session::call_replay,
    store::{StoreLocation, StoreOptions, ThreadStart, open_store, records::SessionRow, temporary_store},
    wire::Format,
};
use serde_json::{Value, json};

/// A recorder over a store of its own.
struct Gateway {
    recorder: TrafficRecorder,
    clock: i64,
}

impl Gateway {
    fn new() -> Self {
        let store = temporary_store(StoreOptions::default()).unwrap();
        Self { recorder: TrafficRecorder::new(store), clock: 1_000 }
    }

    /// Another process beside this one, on the same database.
    fn beside(&self) -> Self {
        Self { recorder: TrafficRecorder::new(Arc::clone(self.recorder.store())), clock: self.clock }
    }

    /// Another process on the same database: nothing is remembered.
    fn restarted(self) -> Self {
        Self { recorder: TrafficRecorder::new(Arc::clone(self.recorder.store())), clock: self.clock }
    }

    fn ask_as(
        &mut self,
        principal: &str,
        format: Format,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> PendingRecord {
        self.clock += 1_000;
        let (body, owned) = (body.to_string(), headers.to_vec());
        let header = |name: &str| owned.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let arrival = RequestArrival {
            principal,
            format,
            body: &body,
            shared: None,
            header: &header,
            at: Timestamp(self.clock),
            purpose: None,
        };
        self.recorder.record_deferred(&arrival).unwrap()
    }

    /// Every call of a thread, written again from the log and the records: it must be what was sent.
    fn written_again(&self, thread: ThreadId) -> Vec<String> {
        let store = self.recorder.store();
        let calls = store.calls(thread, 0, 100).unwrap();
        let again = |number: u64| call_replay::verify_call(&**store, thread, number).unwrap().rendered.body;
        calls.iter().map(|row| again(row.number)).collect()
    }

    fn ask(&mut self, format: Format, headers: &[(&str, &str)], body: &Value) -> PendingRecord {
        self.ask_as("", format, headers, body)
    }

    fn end(
        &mut self,
        ticket: PendingRecord,
        format: Format,
        answer: Option<&Value>,
        ending: ExchangeOutcome,
    ) {
        self.clock += 500;
        let answer = answer.map(|answer| format.decode_response(&answer.to_string()).unwrap());
        let end = EndedExchange {
            answer: answer.unwrap_or_default(),
            ending,
            status: Some(200),
            bytes: 10,
            first_byte: None,
            took: Duration::from_millis(500),
            at: Timestamp(self.clock),
            observed: None,
            told: None,
        };
        self.recorder.finish(ticket, end).unwrap();
    }

    /// A request and its whole answer; gives how it was placed.
    fn call(&mut self, format: Format, headers: &[(&str, &str)], body: &Value, answer: &Value) -> Where {
        let ticket = self.ask(format, headers, body);
        let placed = Where { session: ticket.session, thread: ticket.thread, placed: ticket.placed };
        self.end(ticket, format, Some(answer), ExchangeOutcome::Complete);
        placed
    }

    fn sessions(&self) -> Vec<SessionRow> {
        self.recorder.store().sessions().unwrap()
    }

    /// What a thread holds, in short: who spoke, in order.
    fn story(&self, thread: ThreadId) -> String {
        let events = self.recorder.store().read(thread, Seq(1), 1_000).unwrap();
        let told: Vec<String> = events
            .iter()
            .filter(|logged| {
                !matches!(logged.event.fact, Fact::Instructed { .. } | Fact::UsageReported { .. })
            })
            .map(|logged| match &logged.event.fact {
                Fact::Compacted(compaction) => {
                    format!("[compacted through {}]", compaction.through)
                }
                Fact::ToolReturned { results, .. } => format!("<{}", results[0].call.0),
                Fact::Carried { kind } => format!("({kind})"),
                fact => match fact.calls().next() {
                    Some(call) => format!(">{}", call.id.0),
                    None => fact.text(),
                },
            })
            .collect();
        told.join(" | ")
    }
}

#[derive(Clone, Copy, Debug)]
struct Where {
    session: SessionId,
    thread: ThreadId,
    placed: PlacementKind,
}

const CHAT: Format = Format::OpenaiChat;
const MESSAGES: Format = Format::Anthropic;
const RESPONSES: Format = Format::OpenaiResponses;
const NOBODY: &[(&str, &str)] = &[];

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn chat(messages: &[Value]) -> Value {
    json!({"model": "test-model", "messages": messages})
}

fn chat_answer(id: &str, text: &str) -> Value {
    json!({"id": id, "object": "chat.completion", "created": 1, "model": "test-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}})
}

fn messages(system: &str, history: &[Value]) -> Value {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 10, "system": system, "messages": history,
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}]})
}

fn message_answer(id: &str, content: &Value) -> Value {
    json!({"id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": content,
        "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 2}})
}

fn responses(input: &Value) -> Value {
    json!({"model": "gpt-5", "input": input})
}

fn response(id: &str, output: &Value) -> Value {
    json!({"id": id, "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed",
        "output": output, "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}})
}

fn output(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

#[test]
fn every_request_that_was_recorded_can_be_shown_again() {
    let mut gateway = Gateway::new();
    let mut history = vec![user("look"), said("I look."), user("and?")];
    let mut thread = None;
    let mut sent = Vec::new();
    for turn in 0..4 {
        // Marks move with the end of the history, and what stands around it changes.
        let mut marked = history.clone();
        let last = marked.last_mut().unwrap();
        last["content"] =
            json!([{"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}]);
        let system = format!("You are careful. {}", "x".repeat(700 + turn / 2));
        let body = messages(&system, &marked);
        sent.push(body.to_string());
        let answer = format!("Answer {turn}. {}", "y".repeat(200));
        let told = message_answer(&format!("m{turn}"), &json!([{"type": "text", "text": answer}]));
        let placed = gateway.call(Format::Anthropic, NOBODY, &body, &told);
        assert_eq!(*thread.get_or_insert(placed.thread), placed.thread, "turn {turn}");
        history.extend([said(&answer), user(&format!("next {turn}"))]);
        if turn == 2 {
            gateway = gateway.restarted();
        }
    }
    let thread = thread.unwrap();
    assert_eq!(gateway.written_again(thread), sent);
    let rows = gateway.recorder.store().calls(thread, 0, 100).unwrap();
    for (row, body) in rows.iter().zip(&sent) {
        assert!(row.call.is_relayed());
        assert_eq!((row.call.bytes, row.call.hash), (body.len() as u64, Digest::of(body.as_bytes())));
        assert_eq!(row.outcomes.iter().filter_map(|outcome| outcome.usage).count(), 1);
    }
    let told: usize = rows.iter().filter_map(|row| row.call.script.as_ref()).map(String::len).sum();
    assert!(told < 4_000, "what is in the log is not stored again: {told}");
}

#[test]
fn requests_without_a_history_of_their_own_can_be_shown_again() {
    let mut gateway = Gateway::new();
    let bare = responses(&json!("hi"));
    let one = gateway.call(RESPONSES, NOBODY, &bare, &response("r1", &json!([output("m1", "hello")])));
    let mut following = responses(&json!([user("go on")]));
    following["previous_response_id"] = "r1".into();
    let two = gateway.call(RESPONSES, NOBODY, &following, &response("r2", &json!([output("m2", "done")])));
    let again = [gateway.written_again(one.thread), gateway.written_again(two.thread)].concat();
    for body in [bare, following] {
        assert!(again.contains(&body.to_string()), "{again:?}");
    }
    let mut keyed = responses(&json!("hi"));
    keyed["tools"] = json!([{"type": "mcp", "server_url": "http://h", "authorization": "canary"}]);
    let three = gateway.call(RESPONSES, NOBODY, &keyed, &response("r3", &json!([output("m3", "hello")])));
    let again = gateway.written_again(three.thread).pop().unwrap();
    assert!(again.contains("server_url") && !again.contains("canary"), "{again}");
}

#[test]
fn what_is_asked_again_and_what_parts_has_calls_of_its_own() {
    const ANNA: &[(&str, &str)] = &[("x-epitome-session", "anna")];
    let mut gateway = Gateway::new();
    let first = chat(&[user("a")]);
    let one = gateway.call(CHAT, ANNA, &first, &chat_answer("1", "b"));
    let second = chat(&[user("a"), said("b"), user("c")]);
    let waits = gateway.ask(CHAT, ANNA, &second);
    let again = gateway.ask(CHAT, ANNA, &second);
    assert_eq!(again.placed, PlacementKind::Retried);
    gateway.end(waits, CHAT, Some(&chat_answer("2", "d")), ExchangeOutcome::Complete);
    gateway.end(again, CHAT, Some(&chat_answer("3", "other")), ExchangeOutcome::Complete);
    let earlier = gateway.call(CHAT, ANNA, &first, &chat_answer("4", "b"));
    let parts = chat(&[user("a"), said("b"), user("x")]);
    let parted = gateway.call(CHAT, ANNA, &parts, &chat_answer("5", "y"));
    let texts = |bodies: &[&Value]| bodies.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(earlier.thread, one.thread);
    assert_eq!(gateway.written_again(one.thread), texts(&[&first, &second, &second, &first]));
    assert_ne!(parted.thread, one.thread);
    assert_eq!(gateway.written_again(parted.thread), texts(&[&first, &parts]));
    let outcomes = gateway.recorder.store().calls(one.thread, 0, 100).unwrap();
    assert!(outcomes.iter().all(|row| row.outcomes.len() == 1), "{outcomes:?}");
}

#[test]
fn an_answer_has_the_time_of_this_clock_whatever_its_provider_says() {
    let mut gateway = Gateway::new();
    for (format, body, answer) in [
        (CHAT, chat(&[user("a")]), chat_answer("1", "b")),
        (RESPONSES, responses(&json!([user("a")])), response("r", &json!([output("m", "b")]))),
    ] {
        let begun = gateway.clock;
        let placed = gateway.call(format, NOBODY, &body, &answer);
        let events = gateway.recorder.store().read(placed.thread, Seq(1), 10).unwrap();
        let times: Vec<_> = events.iter().map(|event| event.event.time.unwrap().0).collect();
        let (asked, answered) = times.split_at(times.len() - 2);
        assert!(!asked.is_empty() && asked.iter().all(|time| *time == begun + 1_000), "{format}: {times:?}");
        assert_eq!(answered, [begun + 1_500; 2], "{format}");
        assert!(events.iter().any(|event| event.event.raw.json.contains(":1,")), "what it says is kept");
    }
}

#[test]
fn a_history_continues_its_thread_without_an_id() {
    let mut gateway = Gateway::new();
    let one = gateway.call(CHAT, NOBODY, &chat(&[user("a")]), &chat_answer("1", "b"));
    let two = gateway.call(CHAT, NOBODY, &chat(&[user("a"), said("b"), user("c")]), &chat_answer("2", "d"));
    assert_eq!((one.placed, two.placed), (PlacementKind::Began, PlacementKind::Continued));
    assert_eq!(one.thread, two.thread);
    let mut gateway = gateway.restarted();
    let history = [user("a"), said("b"), user("c"), said("d"), user("e")];
    let three = gateway.call(CHAT, NOBODY, &chat(&history), &chat_answer("3", "f"));
    assert_eq!((three.placed, three.thread), (PlacementKind::Continued, one.thread));
    assert_eq!(gateway.story(one.thread), "a | b | c | d | e | f");
    let sessions = gateway.sessions();
    assert_eq!((sessions.len(), sessions[0].turns, sessions[0].title.as_str()), (1, 3, "a"));
}

#[test]
fn a_history_that_parts_is_a_fork_and_a_new_root_a_session() {
    let mut gateway = Gateway::new();
    let one = gateway.call(CHAT, NOBODY, &chat(&[user("a")]), &chat_answer("1", "b"));
    gateway.call(CHAT, NOBODY, &chat(&[user("a"), said("b"), user("c")]), &chat_answer("2", "d"));
    let other = chat(&[user("a"), said("b"), user("instead")]);
    let fork = gateway.call(CHAT, NOBODY, &other, &chat_answer("3", "e"));
    assert_eq!((fork.placed, fork.session), (PlacementKind::Forked, one.session));
    assert_eq!(gateway.story(fork.thread), "a | b | instead | e");
    assert_eq!(gateway.story(one.thread), "a | b | c | d");
    let on = chat(&[user("a"), said("b"), user("instead"), said("e"), user("f")]);
    let on = gateway.call(CHAT, NOBODY, &on, &chat_answer("4", "g"));
    assert_eq!((on.placed, on.thread), (PlacementKind::Continued, fork.thread));
    let root = gateway.call(CHAT, NOBODY, &chat(&[user("x")]), &chat_answer("5", "y"));
    assert_eq!(root.placed, PlacementKind::Began);
    assert_eq!(gateway.sessions().len(), 2);
}

#[test]
fn a_request_is_written_with_its_answer_or_when_another_needs_it() {
    let session = session_of();
    let mut gateway = Gateway::new();
    let first = gateway.ask(CHAT, session, &chat(&[user("a")]));
    let other = gateway.ask(CHAT, &[("x-session-id", "t")], &chat(&[user("x")]));
    assert_eq!(gateway.sessions().len(), 0);
    let again = gateway.ask(CHAT, session, &chat(&[user("a")]));
    assert_eq!((again.placed, again.thread), (PlacementKind::Retried, first.thread));
    assert_eq!(gateway.story(first.thread), "a");
    assert_eq!(gateway.sessions().len(), 1, "nobody asked for the other one");
    let threads = [first.thread, other.thread];
    gateway.end(first, CHAT, None, ExchangeOutcome::Cancelled);
    gateway.end(again, CHAT, Some(&chat_answer("1", "b")), ExchangeOutcome::Complete);
    gateway.end(other, CHAT, Some(&chat_answer("2", "y")), ExchangeOutcome::Complete);
    assert_eq!(threads.map(|thread| gateway.story(thread)), ["a | b", "x | y"]);
    assert!(gateway.recorder.store().doctor().unwrap().is_healthy());
}

#[test]
fn a_request_whose_answer_takes_its_time_is_written_before() {
    let mut gateway = Gateway::new();
    let ticket = gateway.ask(CHAT, NOBODY, &chat(&[user("a")]));
    let thread = ticket.thread;
    gateway.recorder.write_deferred_before(Timestamp(gateway.clock)).wait();
    // What is written for nobody in particular is behind what somebody has written.
    gateway.call(CHAT, NOBODY, &chat(&[user("x")]), &chat_answer("1", "y"));
    assert_eq!(gateway.sessions().len(), 1, "it came no earlier than that");
    gateway.recorder.write_deferred_before(Timestamp(gateway.clock)).wait();
    gateway.call(CHAT, NOBODY, &chat(&[user("z")]), &chat_answer("2", "y"));
    assert_eq!(gateway.story(thread), "a");
    gateway.end(ticket, CHAT, Some(&chat_answer("3", "b")), ExchangeOutcome::Complete);
    assert_eq!(gateway.story(thread), "a | b");
}

#[test]
fn requests_that_two_gateways_hold_for_one_session_are_both_kept() {
    let check = |ours: &str, theirs: &str, expect: &[&str]| {
        let session = session_of();
        let mut gateway = Gateway::new();
        gateway.call(CHAT, session, &chat(&[user("a")]), &chat_answer("1", "b"));
        let mut other = gateway.beside();
        let asked = |words: &str| chat(&[user("a"), said("b"), user(words)]);
        let own = gateway.ask(CHAT, session, &asked(ours));
        let others = other.ask(CHAT, session, &asked(theirs));
        other.end(others, CHAT, Some(&chat_answer("2", "theirs")), ExchangeOutcome::Complete);
        gateway.end(own, CHAT, Some(&chat_answer("3", "ours")), ExchangeOutcome::Complete);
        let [session] = &gateway.sessions()[..] else { panic!("one session") };
        let threads = gateway.recorder.store().threads(session.id).unwrap();
        let stories: Vec<String> = threads.iter().map(|thread| gateway.story(thread.id)).collect();
        assert_eq!(stories, expect);
        assert_eq!(gateway.recorder.store().exchanges(session.id, 0, 10).unwrap().len(), 3);
        let history = [user("a"), said("b"), user(ours), said("ours"), user("on")];
        let on = gateway.call(CHAT, session_of(), &chat(&history), &chat_answer("4", "so"));
        assert_eq!((on.placed, on.thread), (PlacementKind::Continued, threads[1].id));
        assert!(gateway.recorder.store().doctor().unwrap().is_healthy());
    };
    check("c", "d", &["a | b | d | theirs", "a | b | c | ours"]);
    check("c", "c", &["a | b | c | theirs", "a | b | c | ours"]);
}

#[test]
fn a_session_that_two_gateways_begin_is_one() {
    let check = |ours: &str, theirs: &str, expect: &[&str]| {
        let mut gateway = Gateway::new();
        let mut other = gateway.beside();
        let own = gateway.ask(CHAT, session_of(), &chat(&[user(ours)]));
        other.clock += 1;
        let others = other.ask(CHAT, session_of(), &chat(&[user(theirs)]));
        assert_ne!(own.session, others.session, "neither knows of the other");
        other.end(others, CHAT, Some(&chat_answer("1", "theirs")), ExchangeOutcome::Complete);
        gateway.end(own, CHAT, Some(&chat_answer("2", "ours")), ExchangeOutcome::Complete);
        let [session] = &gateway.sessions()[..] else { panic!("one session") };
        let threads = gateway.recorder.store().threads(session.id).unwrap();
        let stories: Vec<String> = threads.iter().map(|thread| gateway.story(thread.id)).collect();
        assert_eq!(stories, expect);
        assert_eq!(gateway.recorder.store().exchanges(session.id, 0, 10).unwrap().len(), 2);
        let history = [user(ours), said("ours"), user("on")];
        let on = gateway.call(CHAT, session_of(), &chat(&history), &chat_answer("3", "so"));
        assert_eq!((on.placed, on.thread, on.session), (PlacementKind::Continued, threads[1].id, session.id));
        assert!(gateway.recorder.store().doctor().unwrap().is_healthy());
    };
    check("a", "b", &["b | theirs", "a | ours"]);
    check("a", "a", &["a | theirs", "a | ours"]);
}

#[test]
fn sessions_that_two_processes_begin_at_the_same_moment_are_one_each() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("log.db");
    let start = Barrier::new(2);
    let run = |clock: i64| {
        let store = open_store(&StoreLocation::named(&file).unwrap(), StoreOptions::default()).unwrap();
        let mut gateway = Gateway { recorder: TrafficRecorder::new(store), clock };
        let mut sessions = Vec::new();
        for number in 0..40 {
            let key = format!("session-{number}");
            let headers = [("x-session-id", key.as_str())];
            let body = chat(&[user(&key)]).to_string();
            let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            gateway.clock += 10;
            start.wait();
            let at = Timestamp(gateway.clock);
            let arrival = RequestArrival {
                principal: "",
                format: CHAT,
                body: &body,
                shared: None,
                header: &header,
                at,
                purpose: None,
            };
            let ticket = gateway.recorder.record(&arrival).unwrap();
            sessions.push(ticket.session);
            gateway.end(
                ticket,
                CHAT,
                Some(&chat_answer(&key, &clock.to_string())),
                ExchangeOutcome::Complete,
            );
        }
        sessions
    };
    let (ones, others) = std::thread::scope(|scope| {
        let (one, other) = (scope.spawn(|| run(1_000)), scope.spawn(|| run(1_001)));
        (one.join().unwrap(), other.join().unwrap())
    });
    assert_eq!(ones, others);
    let store = open_store(&StoreLocation::named(&file).unwrap(), StoreOptions::default()).unwrap();
    assert_eq!(store.sessions().unwrap().len(), 40);
    for session in ones {
        assert_eq!(store.exchanges(session, 0, 10).unwrap().len(), 2);
    }
    assert!(store.doctor().unwrap().is_healthy());
}

fn session_of() -> &'static [(&'static str, &'static str)] {
    &[("x-session-id", "s")]
}

#[test]
fn runs_of_one_prompt_are_sessions_of_their_own() {
    let mut gateway = Gateway::new();
    let prompt = chat(&[user("a")]);
    let first = gateway.ask(CHAT, NOBODY, &prompt);
    let beside = gateway.ask(CHAT, NOBODY, &prompt);
    assert_ne!(first.session, beside.session);
    gateway.end(first, CHAT, Some(&chat_answer("1", "b")), ExchangeOutcome::Complete);
    gateway.end(beside, CHAT, Some(&chat_answer("2", "b")), ExchangeOutcome::Complete);
    gateway.call(CHAT, NOBODY, &prompt, &chat_answer("3", "b"));
    assert_eq!(gateway.sessions().len(), 3);
}

#[test]
fn runs_that_are_answered_alike_each_keep_their_session() {
    let mut gateway = Gateway::new();
    let (first, next) = (chat(&[user("a")]), chat(&[user("a"), said("b"), user("c")]));
    let begun = [1, 2].map(|_| gateway.call(CHAT, NOBODY, &first, &chat_answer("1", "b")).session);
    assert_ne!(begun[0], begun[1]);
    let on = [1, 2].map(|_| gateway.call(CHAT, NOBODY, &next, &chat_answer("2", "d")));
    assert_eq!(on.map(|on| on.placed), [PlacementKind::Continued; 2]);
    assert_ne!(on[0].session, on[1].session);
    for id in ["x", "y"] {
        let headers = [("x-session-id", id)];
        let one = gateway.call(CHAT, &headers, &first, &chat_answer("3", "b"));
        let two = gateway.call(CHAT, &headers, &next, &chat_answer("4", "d"));
        assert_eq!((two.placed, two.session), (PlacementKind::Continued, one.session), "{id}");
    }
    assert_eq!(gateway.sessions().len(), 4);
}

#[test]
fn a_retry_is_no_progress() {
    for headers in [NOBODY, &[("x-session-id", "s")]] {
        let mut gateway = Gateway::new();
        let prompt = chat(&[user("a")]);
        let refused = gateway.ask(CHAT, headers, &prompt);
        let (thread, head) = (refused.thread, refused.head);
        gateway.end(refused, CHAT, None, ExchangeOutcome::Refused);
        let again = gateway.ask(CHAT, headers, &prompt);
        assert_eq!((again.placed, again.thread, again.head), (PlacementKind::Retried, thread, head));
        gateway.end(again, CHAT, Some(&chat_answer("1", "b")), ExchangeOutcome::Complete);
        assert_eq!(gateway.story(thread), "a | b");
        assert_eq!(gateway.recorder.store().exchanges(gateway.sessions()[0].id, 0, 9).unwrap().len(), 2);
    }
}

#[test]
fn another_answer_to_the_same_question_stands_beside_the_first() {
    let mut gateway = Gateway::new();
    let headers = [("x-session-id", "s")];
    let prompt = chat(&[user("a")]);
    let one = gateway.call(CHAT, &headers, &prompt, &chat_answer("1", "b"));
    gateway.call(CHAT, &headers, &prompt, &chat_answer("2", "b"));
    assert_eq!(gateway.sessions()[0].threads, 1, "the same answer says nothing new");
    gateway.call(CHAT, &headers, &prompt, &chat_answer("3", "other"));
    let session = gateway.sessions().remove(0);
    assert_eq!((session.threads, session.id), (2, one.session));
    assert_eq!(gateway.story(session.head.unwrap()), "a | other");
    let on = chat(&[user("a"), said("other"), user("c")]);
    let on = gateway.call(CHAT, &headers, &on, &chat_answer("4", "d"));
    assert_eq!((on.placed, Some(on.thread)), (PlacementKind::Continued, session.head));
}

#[test]
fn an_answer_that_broke_off_does_not_part_a_history() {
    let mut gateway = Gateway::new();
    let headers = [("x-session-id", "s")];
    let cut = gateway.ask(CHAT, &headers, &chat(&[user("a")]));
    let thread = cut.thread;
    gateway.end(cut, CHAT, Some(&chat_answer("1", "half")), ExchangeOutcome::Cancelled);
    let next = gateway.call(CHAT, &headers, &chat(&[user("a"), user("b")]), &chat_answer("2", "c"));
    assert_eq!((next.placed, next.thread), (PlacementKind::Continued, thread));
    assert_eq!(gateway.story(thread), "a | (answer_cut) | b | c");
}

#[test]
fn a_client_that_goes_on_without_waiting_loses_nothing() {
    let mut gateway = Gateway::new();
    let headers = [("x-session-id", "s")];
    let slow = gateway.ask(CHAT, &headers, &chat(&[user("a")]));
    let next = gateway.call(CHAT, &headers, &chat(&[user("a"), user("b")]), &chat_answer("2", "c"));
    gateway.end(slow, CHAT, Some(&chat_answer("1", "late")), ExchangeOutcome::Complete);
    assert_eq!(gateway.story(next.thread), "a | b | c");
    let session = gateway.sessions().remove(0);
    assert_eq!((session.threads, session.head), (2, Some(next.thread)));
    let late = gateway.recorder.store().threads(session.id).unwrap().remove(1);
    assert_eq!(gateway.story(late.id), "a | late");
}

#[test]
fn what_clients_change_by_themselves_parts_nothing() {
    let mut gateway = Gateway::new();
    let headers = [("x-claude-code-session-id", "s")];
    let text = |text: &str| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    let call = json!([{"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]);
    let first = messages("clean", &[json!({"role": "user", "content": text("a")})]);
    let one = gateway.call(MESSAGES, &headers, &first, &message_answer("m1", &call));
    let result = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": text("out")}]});
    let next = [user("a"), json!({"role": "assistant", "content": call}), result.clone()];
    let two =
        gateway.call(MESSAGES, &headers, &messages("?? hello.txt", &next), &message_answer("m2", &text("b")));
    let plain =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "out"}]});
    let unthinking = json!({"role": "assistant", "content": [call[1].clone()]});
    let third = [json!({"role": "user", "content": text("a")}), unthinking, plain, said("b"), user("c")];
    let three = gateway.call(
        MESSAGES,
        &headers,
        &messages("?? hello.txt", &third),
        &message_answer("m3", &text("d")),
    );
    assert_eq!((two.placed, three.placed), (PlacementKind::Continued, PlacementKind::Continued));
    assert_eq!((one.thread, one.thread), (two.thread, three.thread));
    assert_eq!(gateway.story(one.thread), "a | >t1 | <t1 | b | c | d");
}

#[test]
fn a_note_that_moves_parts_nothing() {
    let mut gateway = Gateway::new();
    let headers = [("agent-session-id", "20261115_1")];
    let note = |minute: u64| format!("<info-msg>\nIt is currently 10:0{minute}\n</info-msg>");
    let system = json!({"role": "system", "content": "You are goose."});
    let first = [system.clone(), user(&format!("{}\na", note(1)))];
    let call = json!({"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{\"command\": \"ls\"}"}}]});
    let answer = json!({"id": "1", "object": "chat.completion", "created": 1, "model": "test-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": null,
            "reasoning_content": "hm", "tool_calls": call["tool_calls"]}, "finish_reason": "tool_calls"}]});
    let one = gateway.call(CHAT, &headers, &chat(&first), &answer);
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": "out"});
    let next = [system.clone(), user("a"), user(&note(2)), call.clone(), result.clone()];
    let two = gateway.call(CHAT, &headers, &chat(&next), &chat_answer("2", "b"));
    let last = [system, user("a"), call, result, user(&note(3)), said("b"), user("c")];
    let three = gateway.call(CHAT, &headers, &chat(&last), &chat_answer("3", "d"));
    assert_eq!((two.placed, three.placed), (PlacementKind::Continued, PlacementKind::Continued));
    assert_eq!((one.thread, one.thread), (two.thread, three.thread));
    assert_eq!(gateway.sessions().len(), 1);
}

#[test]
fn an_id_that_is_given_twice_is_two_sessions() {
    let mut gateway = Gateway::new();
    let headers = [("agent-session-id", "20261115_1")];
    gateway.call(CHAT, &headers, &chat(&[user("a")]), &chat_answer("1", "b"));
    let other = gateway.call(CHAT, &headers, &chat(&[user("x")]), &chat_answer("2", "y"));
    assert_eq!(other.placed, PlacementKind::Began);
    let on = chat(&[user("x"), said("y"), user("z")]);
    let on = gateway.call(CHAT, &headers, &on, &chat_answer("3", "!"));
    assert_eq!((on.placed, on.session), (PlacementKind::Continued, other.session));
    assert_eq!(gateway.sessions().len(), 2);
}

#[test]
fn the_same_past_under_another_id_is_a_fork_in_a_session_of_its_own() {
    let mut gateway = Gateway::new();
    let first = messages("s", &[user("a")]);
    let b = json!([{"type": "text", "text": "b"}]);
    let one = gateway.call(MESSAGES, &[("x-claude-code-session-id", "s1")], &first, &message_answer("1", &b));
    let on = messages("s", &[user("a"), said("b"), user("c")]);
    let two = gateway.call(MESSAGES, &[("x-claude-code-session-id", "s2")], &on, &message_answer("2", &b));
    assert_eq!(two.placed, PlacementKind::Forked);
    assert_ne!(two.session, one.session);
    let row = gateway.recorder.store().thread(two.thread).unwrap();
    assert!(matches!(row.start, ThreadStart::Fork { of, .. } if of == one.thread));
    assert_eq!(gateway.story(two.thread), "a | b | c | b");
}

#[test]
fn a_subagent_is_linked_to_the_call_that_started_it() {
    let mut gateway = Gateway::new();
    let main = [("x-claude-code-session-id", "s")];
    let calls = json!([
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "t2", "name": "Agent", "input": {"prompt": "find \"it\"\nnow", "description": "d"}}]);
    let one = gateway.call(MESSAGES, &main, &messages("s", &[user("a")]), &message_answer("1", &calls));
    let agent = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a1")];
    let b = json!([{"type": "text", "text": "found"}]);
    let sub = messages("sub", &[user("find \"it\"\nnow")]);
    let two = gateway.call(MESSAGES, &agent, &sub, &message_answer("2", &b));
    assert_eq!((two.placed, two.session), (PlacementKind::Joined, one.session));
    let row = gateway.recorder.store().thread(two.thread).unwrap();
    let ThreadStart::Spawned { by, call } = row.start else { panic!("{row:?}") };
    assert_eq!((by.unwrap().thread, call.unwrap().0.as_str()), (one.thread, "t2"));
    let results = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "x"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "found"}]});
    let on = messages("s", &[user("a"), json!({"role": "assistant", "content": calls}), results]);
    let on = gateway.call(MESSAGES, &main, &on, &message_answer("3", &b));
    assert_eq!((on.placed, on.thread), (PlacementKind::Continued, one.thread));
    assert_eq!(gateway.sessions().len(), 1);
    assert_eq!(gateway.sessions()[0].head, Some(one.thread));
}

#[test]
fn a_title_stands_apart_whichever_comes_first() {
    let title = json!({"model": "test-model", "messages": [
        {"role": "system", "content": "You are a title generator. You output ONLY a thread title."},
        user("Generate a title for this conversation:\n"), user("a")]});
    let turn = json!({"model": "test-model", "messages": [user("a")],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}]});
    let headers = [("x-session-id", "ses_1"), ("user-agent", "opencode/1.18")];
    for title_first in [true, false] {
        let mut gateway = Gateway::new();
        let asked = |gateway: &mut Gateway, body: &Value| gateway.ask(CHAT, &headers, body);
        let (a, b) = if title_first {
            let a = asked(&mut gateway, &title);
            (a, asked(&mut gateway, &turn))
        } else {
            let b = asked(&mut gateway, &turn);
            (asked(&mut gateway, &title), b)
        };
        assert_eq!(a.session, b.session, "{title_first}");
        let main = b.thread;
        gateway.end(a, CHAT, Some(&chat_answer("1", "A title")), ExchangeOutcome::Complete);
        gateway.end(b, CHAT, Some(&chat_answer("2", "b")), ExchangeOutcome::Complete);
        let session = gateway.sessions().remove(0);
        assert_eq!((session.threads, session.head), (2, Some(main)), "{title_first}");
        assert_eq!(gateway.story(main), "a | b");
    }
}

/// Claude Code: the request for a summary looks like a turn, and what comes after keeps a tail.
#[test]
fn a_session_goes_on_after_its_client_compacted_it() {
    let mut gateway = Gateway::new();
    let headers = [("x-claude-code-session-id", "s")];
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let first = messages("s", &[user("a")]);
    let one = gateway.call(MESSAGES, &headers, &first, &message_answer("1", &text("b")));
    let mut history = vec![user("a"), said("b"), user("c")];
    gateway.call(MESSAGES, &headers, &messages("s", &history), &message_answer("2", &text("d")));
    history.extend([said("d"), user("e")]);
    let refused = gateway.ask(MESSAGES, &headers, &messages("s", &history));
    gateway.end(refused, MESSAGES, None, ExchangeOutcome::Refused);
    let prompt = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nAn <analysis> block followed by a <summary> block";
    let asks =
        json!({"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": prompt}]});
    let asking = messages("s", &[user("a"), said("b"), asks]);
    let summary =
        "<analysis>hm</analysis>\n<summary>\nThe user said a, and was told b, at some length.\n</summary>";
    let aside = gateway.call(MESSAGES, &headers, &asking, &message_answer("3", &text(summary)));
    assert_eq!((aside.placed, aside.session), (PlacementKind::Forked, one.session));
    let mut gateway = gateway.restarted();
    let opening = "This session is being continued from a previous conversation that ran out of context.\n\
        The user said a, and was told b, at some length.\n\nContinue.";
    let mut after = vec![user(opening), said("d"), user("e")];
    let on = gateway.call(MESSAGES, &headers, &messages("s", &after), &message_answer("4", &text("f")));
    assert_eq!((on.placed, on.thread), (PlacementKind::Compacted, one.thread));
    assert_eq!(gateway.story(one.thread), "a | b | c | d | e | [compacted through 7] | f");
    after.extend([said("f"), user("g")]);
    let mut gateway = gateway.restarted();
    let more = gateway.call(MESSAGES, &headers, &messages("s", &after), &message_answer("5", &text("h")));
    assert_eq!((more.placed, more.thread), (PlacementKind::Continued, one.thread));
    let session = gateway.sessions().remove(0);
    assert_eq!((session.compactions, session.head), (1, Some(one.thread)));
}

/// pi on Chat: no id at all, and the request for a summary tells the conversation as text.
#[test]
fn a_session_without_an_id_goes_on_after_its_client_compacted_it() {
    let mut gateway = Gateway::new();
    let tools = json!([{"type": "function", "function": {"name": "bash", "parameters": {}}}]);
    let turn = |history: &[Value]| json!({"model": "test-model", "messages": history, "tools": tools});
    let one = gateway.call(CHAT, NOBODY, &turn(&[user("Please do the thing")]), &chat_answer("1", "done"));
    let told = json!({"model": "test-model", "messages": [
        {"role": "system", "content": "You are a context summarization assistant. Summarize."},
        user("<conversation>\n[User]: Please do the thing\n[Assistant]: done\n</conversation>")]});
    let summary = "The thing was asked for and is done, all of it.";
    let aside = gateway.call(CHAT, NOBODY, &told, &chat_answer("2", summary));
    assert_eq!((aside.placed, aside.session), (PlacementKind::Joined, one.session));
    let opening = format!(
        "The conversation history before this point was compacted into the following \
        summary:\n\n<summary>\n{summary}\n</summary>"
    );
    let on = gateway.call(CHAT, NOBODY, &turn(&[user(&opening), user("next")]), &chat_answer("3", "ok"));
    assert_eq!((on.placed, on.thread), (PlacementKind::Compacted, one.thread));
    assert_eq!(gateway.sessions().len(), 1);
}

#[test]
fn a_response_that_is_named_is_followed() {
    let mut gateway = Gateway::new();
    let one = gateway.call(
        RESPONSES,
        NOBODY,
        &responses(&json!("a")),
        &response("resp_1", &json!([output("m1", "b")])),
    );
    let next = json!({"model": "gpt-5", "previous_response_id": "resp_1", "input": "c"});
    let two = gateway.call(RESPONSES, NOBODY, &next, &response("resp_2", &json!([output("m2", "d")])));
    assert_eq!((two.placed, two.thread), (PlacementKind::Continued, one.thread));
    let other = json!({"model": "gpt-5", "previous_response_id": "resp_1", "input": "instead"});
    let fork = gateway.call(RESPONSES, NOBODY, &other, &response("resp_3", &json!([output("m3", "e")])));
    assert_eq!((fork.placed, fork.session), (PlacementKind::Forked, one.session));
    assert_eq!(gateway.story(one.thread), "a | b | c | d");
    assert_eq!(gateway.story(fork.thread), "a | b | instead | e");
    let unknown = json!({"model": "gpt-5", "previous_response_id": "resp_of_another", "input": "x"});
    let marked = gateway.call(RESPONSES, NOBODY, &unknown, &response("resp_4", &json!([output("m4", "y")])));
    assert_eq!(marked.placed, PlacementKind::Began);
    assert_eq!(gateway.story(marked.thread), "x | (unresolved_past) | y");
}

#[test]
fn items_that_are_named_are_what_was_recorded() {
    let mut gateway = Gateway::new();
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "{}",
        "status": "completed"});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let one = gateway.call(
        RESPONSES,
        NOBODY,
        &responses(&json!([user("a")])),
        &response("r1", &json!([reasoning, call])),
    );
    let next = responses(&json!([user("a"), {"type": "item_reference", "id": "rs_1"},
        {"type": "item_reference", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "out"}]));
    let two = gateway.call(RESPONSES, NOBODY, &next, &response("r2", &json!([output("m2", "b")])));
    assert_eq!((two.placed, two.thread), (PlacementKind::Continued, one.thread));
}

#[test]
fn a_conversation_that_the_provider_keeps_is_one_session() {
    let mut gateway = Gateway::new();
    let body = |text: &str| json!({"model": "gpt-5", "conversation": {"id": "conv_1"}, "input": text});
    let one = gateway.call(RESPONSES, NOBODY, &body("a"), &response("r1", &json!([output("m1", "b")])));
    let two = gateway.call(RESPONSES, NOBODY, &body("c"), &response("r2", &json!([output("m2", "d")])));
    assert_eq!((two.placed, two.thread), (PlacementKind::Continued, one.thread));
    assert_eq!(gateway.story(one.thread), "a | b | c | d");
}

#[test]
fn what_is_sent_again_is_recorded_again_however_it_names_its_past() {
    let mut gateway = Gateway::new();
    let one = gateway.call(
        RESPONSES,
        NOBODY,
        &responses(&json!("a")),
        &response("r1", &json!([output("m1", "b")])),
    );
    let next = json!({"model": "gpt-5", "previous_response_id": "r1", "input": "c"});
    for _ in 0..3 {
        let refused = gateway.ask(RESPONSES, NOBODY, &next);
        assert_eq!(refused.thread, one.thread);
        gateway.end(refused, RESPONSES, None, ExchangeOutcome::Refused);
    }
    for answer in ["d", "e", "e"] {
        gateway.call(RESPONSES, NOBODY, &next, &response("r2", &json!([output("m2", answer)])));
    }
    assert_eq!(gateway.story(one.thread), "a | b | c | d");
    assert_eq!(gateway.sessions()[0].threads, 2);
    assert_eq!(gateway.recorder.store().exchanges(one.session, 0, 99).unwrap().len(), 7);

    let kept = json!({"model": "gpt-5", "conversation": "conv_1", "input": "a"});
    let refused = gateway.ask(RESPONSES, NOBODY, &kept);
    gateway.end(refused, RESPONSES, None, ExchangeOutcome::Refused);
    let two = gateway.call(RESPONSES, NOBODY, &kept, &response("r3", &json!([output("m3", "b")])));
    assert_eq!((two.placed, gateway.story(two.thread).as_str()), (PlacementKind::Retried, "a | b"));
}

#[test]
fn a_summary_that_is_asked_for_again_is_another_one() {
    let mut gateway = Gateway::new();
    let headers = [("x-claude-code-session-id", "s")];
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let one =
        gateway.call(MESSAGES, &headers, &messages("s", &[user("a")]), &message_answer("1", &text("b")));
    let prompt = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nAn <analysis> block, then a <summary> block";
    let asking = messages("s", &[user("a"), said("b"), user(prompt)]);
    for _ in 0..3 {
        let refused = gateway.ask(MESSAGES, &headers, &asking);
        assert_eq!((refused.session, refused.placed), (one.session, PlacementKind::Forked));
        gateway.end(refused, MESSAGES, None, ExchangeOutcome::Refused);
    }
    assert_eq!(gateway.sessions()[0].head, Some(one.thread));
}

#[test]
fn examples_that_a_script_brings_along_are_no_answers() {
    let mut gateway = Gateway::new();
    let prompt = |asks: &str| chat(&[user("2+2?"), said("4"), user("3+3?"), said("6"), user(asks)]);
    for asks in ["5+5?", "5+5?", "6+6?"] {
        let run = gateway.call(CHAT, NOBODY, &prompt(asks), &chat_answer("1", "ten"));
        assert_eq!(run.placed, PlacementKind::Began, "{asks}");
    }
    for id in ["x", "y"] {
        let run = gateway.call(CHAT, &[("x-session-id", id)], &prompt("5+5?"), &chat_answer("2", "ten"));
        assert_eq!(run.placed, PlacementKind::Began, "{id}");
    }
    assert_eq!(gateway.sessions().len(), 5);
}

#[test]
fn a_session_stands_where_its_client_went_on() {
    let mut gateway = Gateway::new();
    let headers = [("x-session-id", "s")];
    let one = gateway.call(CHAT, &headers, &chat(&[user("a")]), &chat_answer("1", "b"));
    let fork = chat(&[user("a"), said("b"), user("c")]);
    gateway.call(CHAT, &headers, &fork, &chat_answer("2", "d"));
    let other =
        gateway.call(CHAT, &headers, &chat(&[user("a"), said("b"), user("e")]), &chat_answer("3", "f"));
    assert_eq!(gateway.sessions()[0].head, Some(other.thread));
    let back = chat(&[user("a"), said("b"), user("c"), said("d"), user("g")]);
    let back = gateway.call(CHAT, &headers, &back, &chat_answer("4", "h"));
    assert_eq!((back.placed, back.thread), (PlacementKind::Continued, one.thread));
    assert_eq!(gateway.sessions()[0].head, Some(one.thread));
}

#[test]
fn nobody_continues_somebody_elses_session() {
    let mut gateway = Gateway::new();
    let headers = [("x-session-id", "s")];
    let one = gateway.ask_as("ann", CHAT, &headers, &chat(&[user("a")]));
    let anns = one.session;
    gateway.end(one, CHAT, Some(&chat_answer("1", "b")), ExchangeOutcome::Complete);
    let history = chat(&[user("a"), said("b"), user("c")]);
    for (who, headers) in [("bob", NOBODY), ("eve", &headers)] {
        let two = gateway.ask_as(who, CHAT, headers, &history);
        assert_ne!(two.session, anns);
        assert_eq!(two.placed, PlacementKind::Began);
    }
    let named = json!({"model": "gpt-5", "previous_response_id": "1", "input": "x"});
    assert_eq!(gateway.ask_as("bob", RESPONSES, NOBODY, &named).placed, PlacementKind::Began);
}

#[test]
fn an_answer_that_its_client_tells_in_other_words_parts_no_session() {
    let call = json!([{"id": "call_abc123", "type": "function",
        "function": {"name": "run", "arguments": "{\"command\": \"ls -la /srv\"}"}}]);
    let mut answer = chat_answer("1", "");
    answer["choices"][0]["message"] = json!({"role": "assistant", "content": null, "tool_calls": call});
    let told = said("Calling tools:\n[{'id': 'call_abc123', 'function': {'name': 'run'}}]");
    let mut gateway = Gateway::new();
    let one = gateway.call(CHAT, NOBODY, &chat(&[user("a")]), &answer);
    let next = [user("a"), told.clone(), user("Observation: nothing")];
    let two = gateway.call(CHAT, NOBODY, &chat(&next), &chat_answer("2", "There is nothing at all."));
    assert_eq!((two.placed, two.session), (PlacementKind::Forked, one.session));
    // Whoever asks the same again is in the same session, and so is whoever goes on, also after a restart.
    let again = gateway.call(CHAT, NOBODY, &chat(&next), &chat_answer("3", "There is nothing at all."));
    assert_eq!(again.session, one.session);
    let mut gateway = gateway.restarted();
    let more = [&next[..], &[said("Final: there is nothing at all."), user("Sure?")]].concat();
    let three = gateway.call(CHAT, NOBODY, &chat(&more), &chat_answer("4", "Yes."));
    assert_eq!((three.placed, three.session), (PlacementKind::Forked, one.session));
    assert_eq!(
        gateway.story(three.thread),
        "a | Calling tools:\n[{'id': 'call_abc123', 'function': {'name': 'run'}}] | \
        Observation: nothing | Final: there is nothing at all. | Sure? | Yes."
    );
    assert_eq!(gateway.sessions().len(), 1);
}

#[test]
fn a_history_with_another_answer_to_the_same_prompt_is_a_session_of_its_own() {
    let mut gateway = Gateway::new();
    let one = gateway.call(CHAT, NOBODY, &chat(&[user("hi")]), &chat_answer("1", "Hello, what can I do?"));
    let other = chat(&[user("hi"), said("Hey there, it is a fine day."), user("Mend the roof.")]);
    let other = gateway.call(CHAT, NOBODY, &other, &chat_answer("2", "Done."));
    assert_eq!(other.placed, PlacementKind::Began);
    assert_ne!(other.session, one.session);
    // Nor is it one that has gone on already.
    let gone = chat(&[user("hi"), said("Hello, what can I do?"), user("Nothing.")]);
    gateway.call(CHAT, NOBODY, &gone, &chat_answer("3", "Fine."));
    let told = chat(&[user("hi"), said("It said: Hello, what can I do?"), user("Sing.")]);
    assert_eq!(gateway.call(CHAT, NOBODY, &told, &chat_answer("4", "La.")).placed, PlacementKind::Began);
}

#[test]
fn a_message_that_moves_parts_no_session() {
    let (files, ok) = (user("These are the files: x"), said("Ok."));
    for edited in [false, true] {
        let mut gateway = Gateway::new();
        let first = chat(&[files.clone(), ok.clone(), user("Change x.")]);
        let one = gateway.call(CHAT, NOBODY, &first, &chat_answer("1", "x is changed."));
        let files = if edited { user("These are the files: y") } else { files.clone() };
        let done = [user("Change x."), said("x is changed.")];
        let next = chat(&[&done[..], &[files.clone(), ok.clone(), user("And again.")]].concat());
        let two = gateway.call(CHAT, NOBODY, &next, &chat_answer("2", "Again."));
        assert_eq!((two.placed, two.session), (PlacementKind::Forked, one.session), "{edited}");
        let done = [&done[..], &[user("And again."), said("Again.")]].concat();
        let last = chat(&[&done[..], &[files, ok.clone(), user("Good.")]].concat());
        let three = gateway.call(CHAT, NOBODY, &last, &chat_answer("3", "Yes."));
        assert_eq!((three.placed, three.session), (PlacementKind::Forked, one.session), "{edited}");
        assert_eq!(gateway.sessions().len(), 1, "{edited}");
    }
    // Where nothing moved, the same answer is no reason.
    let mut gateway = Gateway::new();
    let first = chat(&[files.clone(), ok.clone(), user("Change x.")]);
    gateway.call(CHAT, NOBODY, &first, &chat_answer("1", "x is changed."));
    let other = chat(&[user("Change x."), said("x is changed."), user("Thanks.")]);
    assert_eq!(gateway.call(CHAT, NOBODY, &other, &chat_answer("2", "!")).placed, PlacementKind::Began);
}

#[test]
fn a_session_that_its_user_names_holds_everything_under_that_name() {
    let named = |id: &'static str| [("x-epitome-session", id)];
    let mut gateway = Gateway::new();
    let one = gateway.call(CHAT, &named("mine"), &chat(&[user("a")]), &chat_answer("1", "b"));
    let parts = chat(&[user("a"), said("other"), user("c")]);
    let parts = gateway.call(CHAT, &named("mine"), &parts, &chat_answer("2", "d"));
    assert_eq!((parts.placed, parts.session), (PlacementKind::Forked, one.session));
    let apart = gateway.call(CHAT, &named("mine"), &chat(&[user("x")]), &chat_answer("3", "y"));
    assert_eq!(apart.session, one.session);
    let mut gateway = gateway.restarted();
    let on = chat(&[user("x"), said("y"), user("z")]);
    let on = gateway.call(CHAT, &named("mine"), &on, &chat_answer("4", "!"));
    assert_eq!((on.placed, on.thread), (PlacementKind::Continued, apart.thread));
    // The same name, whatever ids the client itself sends.
    let both = [("x-claude-code-session-id", "s1"), ("x-epitome-session", "mine")];
    let text = json!([{"type": "text", "text": "b"}]);
    let code = gateway.call(MESSAGES, &both, &messages("s", &[user("q")]), &message_answer("5", &text));
    assert_eq!((code.session, gateway.sessions().len()), (one.session, 1));
    // Another name, another principal: another session.
    let other = gateway.call(CHAT, &named("other"), &chat(&[user("x")]), &chat_answer("6", "y"));
    assert_ne!(other.session, one.session);
    let eve = gateway.ask_as("eve", CHAT, &named("mine"), &chat(&[user("a"), said("b"), user("c")]));
    assert_eq!(eve.placed, PlacementKind::Began);
    assert_ne!(eve.session, one.session);
}

#[test]
fn nobody_continues_somebody_elses_session_by_telling_its_answers() {
    let mut gateway = Gateway::new();
    let (files, ok) = (user("These are the files: x"), said("Ok."));
    let first = chat(&[files.clone(), ok.clone(), user("Change x.")]);
    let one = gateway.ask_as("ann", CHAT, NOBODY, &first);
    let anns = one.session;
    gateway.end(one, CHAT, Some(&chat_answer("1", "The file x is changed.")), ExchangeOutcome::Complete);
    let told = said("It said: The file x is changed.");
    let moved = [user("Change x."), said("The file x is changed."), files.clone(), ok.clone(), user("More.")];
    for history in [&[files, ok, user("Change x."), told, user("More.")][..], &moved] {
        let bobs = gateway.ask_as("bob", CHAT, NOBODY, &chat(history));
        assert_eq!(bobs.placed, PlacementKind::Began);
        assert_ne!(bobs.session, anns);
        gateway.end(bobs, CHAT, Some(&chat_answer("2", "No.")), ExchangeOutcome::Complete);
    }
}
