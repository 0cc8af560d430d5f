//! What clients do to a session that was compacted for them: they change their histories, go back, ask again, compact by
//! themselves, come in pairs, and are cut off. Whatever they do, what goes on is legal and fits, and all of it is on record.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use epitome::{
    core::{Digest, Fact, LoggedEvent, Seq, ThreadId, Tokens, event::Timestamp},
    recorder::{
        EndedExchange, ExchangeOutcome, PendingRecord, PlacementKind, RequestArrival, TrafficRecorder,
    },
    rewrite::{
        BodySlice, RequestDisposition, RequestOverrides, RewriteSettings, RewriteStatus, RewrittenRequest,
        SessionSummaryAnswer, compose,
    },
    session::verify_call,
    store::Store,
    wire::{
        Format,
        caller::RequestPurpose,
        legality::{self, ProviderRules},
        overflow::ContextOverflow,
        recall_tool::RECALL_TOOL,
        summary_prompt::SummaryAnswerForm,
    },
};
use serde_json::{Value, json};

use super::compose::{Agent, Gateway, WINDOW, history_of, sent};

/// What a tool returns: so much that a few turns fill the window.
fn result(turn: usize) -> String {
    super::compose::result(turn) + "\n" + &super::compose::result(turn + 1)
}

/// An agent's task, and what was sent for it.
struct Task {
    gateway: Gateway,
    agent: Agent,
    calls: Vec<(ThreadId, u64, String)>,
}

impl Task {
    /// One that has gone on for so many turns.
    fn of(format: Format, turns: usize) -> Self {
        let mut task = Self { gateway: Gateway::new(), agent: Agent::new(format), calls: Vec::new() };
        task.goes_on_for(turns);
        task
    }

    /// One that stands on a compaction, which covers its first turns and not its last, and that was answered.
    fn compacted(format: Format) -> Self {
        let mut task = Self::of(format, 14);
        let (ticket, outgoing) = task.asks();
        assert!(outgoing.done.epoch >= 1 && outgoing.done.after < outgoing.done.before, "{outgoing:?}");
        task.is_answered(ticket);
        task
    }

    fn goes_on_for(&mut self, turns: usize) {
        for _ in 0..turns {
            let (ticket, _) = self.asks();
            self.is_answered(ticket);
            self.agent.goes_on(&result(self.agent.turns));
        }
    }

    /// Sends the next request, which is taken over.
    #[track_caller]
    fn asks(&mut self) -> (PendingRecord, RewrittenRequest) {
        let (format, body) = (self.agent.format, self.agent.body());
        let (ticket, outgoing) = self.gateway.forward(format, &body);
        let woven = check_woven(format, &outgoing, &body);
        let (thread, call) = outgoing.done.call.unwrap();
        assert_eq!((thread, Some(call)), (ticket.thread, ticket.call));
        self.calls.push((thread, call, woven));
        (ticket, outgoing)
    }

    fn is_answered(&mut self, ticket: PendingRecord) {
        let answer = self.agent.answer();
        self.gateway.answer(ticket, self.agent.format, &answer);
    }

    fn store(&self) -> &dyn Store {
        &**self.gateway.recorder.store()
    }

    /// The last body that was sent.
    fn last(&self) -> &str {
        &self.calls.last().unwrap().2
    }

    /// All that was sent is on record and can be written again, and nothing is wrong with the database.
    #[track_caller]
    fn check_record(&self) {
        for (thread, call, body) in &self.calls {
            let row = self.store().call(*thread, *call).unwrap();
            assert_eq!(row.call.hash, Digest::of(body.as_bytes()), "call {call} of {thread}");
        }
        check_store(self.store());
    }
}

/// What goes on is legal, fits, and ends with the client's newest message; gives it.
#[track_caller]
fn check_woven(format: Format, outgoing: &RewrittenRequest, body: &str) -> String {
    let woven = sent(outgoing, body);
    let done = &outgoing.done;
    assert_eq!(done.left, RewriteStatus::Composed);
    assert!(done.after <= Tokens(WINDOW), "{done:?}");
    let found = legality::check(format, &woven, &ProviderRules::of(format));
    assert!(found.is_empty(), "{found:?}\n{woven}");
    assert_eq!(history_of(format, &woven).last(), history_of(format, body).last());
    woven
}

/// Every call of every thread verifies, and the database is healthy.
#[track_caller]
fn check_store(store: &dyn Store) {
    for session in store.sessions().unwrap() {
        for thread in store.threads(session.id).unwrap() {
            let calls = store.calls(thread.id, 0, usize::MAX >> 1).unwrap();
            // A fork has those of its parent, too.
            for row in calls.into_iter().filter(|row| row.thread == thread.id) {
                let again = verify_call(store, thread.id, row.number).unwrap();
                assert!(again.is_same(), "call {} of {}", row.number, thread.id);
            }
        }
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

/// Where the results of an agent's tools stand in its history.
fn results(agent: &Agent) -> Vec<usize> {
    let is_result = |item: &Value| match agent.format {
        Format::Anthropic => item["content"][0]["type"] == "tool_result",
        Format::OpenaiChat => item["role"] == "tool",
        Format::OpenaiResponses => item["type"] == "function_call_output",
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    (0..agent.history.len()).filter(|at| is_result(&agent.history[*at])).collect()
}

/// The client writes another result in place of one.
fn edit(agent: &mut Agent, at: usize) {
    let item = &mut agent.history[at];
    let text = match agent.format {
        Format::Anthropic => &mut item["content"][0]["content"],
        Format::OpenaiChat => &mut item["content"],
        Format::OpenaiResponses => &mut item["output"],
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    *text = json!("What was here was wrong; this is right.");
}

/// What a client does to its history.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// It edits its newest message.
    Newest,
    /// It edits a message that was kept.
    Tail,
    /// It edits a message that the summary covers.
    Covered,
    /// It drops its last turns.
    Rewound,
    /// It drops all but the first turns, which the summary covers.
    FarRewound,
    /// It has the last answer written again.
    Again,
    /// It drops its last turns, and says something else instead.
    Otherwise,
}

impl Change {
    const ALL: [Self; 7] = [
        Self::Newest,
        Self::Tail,
        Self::Covered,
        Self::Rewound,
        Self::FarRewound,
        Self::Again,
        Self::Otherwise,
    ];

    fn make(self, agent: &mut Agent) {
        let results = results(agent);
        let count = results.len();
        match self {
            Self::Newest => edit(agent, results[count - 1]),
            Self::Tail => edit(agent, results[count - 2]),
            Self::Covered => edit(agent, results[1]),
            Self::Rewound => agent.history.truncate(results[count - 3] + 1),
            Self::FarRewound => agent.history.truncate(results[2] + 1),
            Self::Again => {}
            Self::Otherwise => {
                agent.history.truncate(results[count - 3] + 1);
                edit(agent, results[count - 3]);
            }
        }
    }
}

#[test]
fn a_history_that_was_changed_is_a_fork_that_fits_and_what_it_parts_from_stays() {
    for format in crate::SCRIPTED {
        for change in Change::ALL {
            let mut task = Task::compacted(format);
            let (original, _, before) = task.calls.last().unwrap().clone();
            let head = task.store().head(original).unwrap();
            let calls = task.store().calls(original, 0, usize::MAX >> 1).unwrap();
            let (history, turns) = (task.agent.history.clone(), task.agent.turns);
            // Every answer is another.
            task.agent.turns += 100;
            change.make(&mut task.agent);
            let (ticket, _) = task.asks();
            assert_eq!(ticket.placed, PlacementKind::Forked, "{format}, {change:?}");
            assert_ne!(ticket.thread, original, "{format}, {change:?}");
            task.is_answered(ticket);
            task.agent.goes_on(&result(turns));
            task.goes_on_for(6);
            task.check_record();
            assert_eq!(task.store().head(original).unwrap(), head, "{format}, {change:?}");
            let now = task.store().calls(original, 0, usize::MAX >> 1).unwrap();
            assert_eq!(now, calls, "{format}, {change:?}");

            // And whoever goes back to it goes on where it was.
            (task.agent.history, task.agent.turns) = (history, turns);
            task.agent.goes_on(&result(turns));
            let (ticket, outgoing) = task.asks();
            assert_eq!(ticket.thread, original, "{format}, {change:?}");
            match outgoing.done.cause.as_deref() {
                None => check_extends(format, &before, task.last()),
                cause => assert_eq!(cause, Some("over the limit"), "{format}, {change:?}"),
            }
            task.is_answered(ticket);
            task.check_record();
            assert_eq!(task.store().sessions().unwrap().len(), 1);
        }
    }
}

#[test]
fn an_answer_may_be_written_again_any_number_of_times() {
    for format in crate::SCRIPTED {
        let mut task = Task::compacted(format);
        let before = task.last().to_owned();
        let mut threads = vec![task.calls.last().unwrap().0];
        for _ in 0..4 {
            task.agent.turns += 100;
            let (ticket, outgoing) = task.asks();
            assert_eq!((ticket.placed, outgoing.done.cause), (PlacementKind::Forked, None), "{format}");
            assert_eq!(task.last(), before, "{format}");
            assert!(!threads.contains(&ticket.thread), "{format}");
            threads.push(ticket.thread);
            // One that is cut off is asked again in its own place.
            end(&task.gateway.recorder, ticket, ExchangeOutcome::Cut, None);
            let (ticket, _) = task.asks();
            assert_eq!(Some(&ticket.thread), threads.last(), "{format}");
            task.is_answered(ticket);
        }
        task.agent.goes_on(&result(0));
        let (ticket, _) = task.asks();
        assert_eq!(Some(&ticket.thread), threads.last(), "{format}");
        task.is_answered(ticket);
        task.check_record();
    }
}

/// Ends a request without an answer.
fn end(recorder: &TrafficRecorder, ticket: PendingRecord, ending: ExchangeOutcome, status: Option<u16>) {
    let end = EndedExchange {
        answer: Vec::new(),
        ending,
        status,
        bytes: 0,
        first_byte: None,
        took: Duration::from_millis(1),
        at: Timestamp(i64::MAX >> 8),
        observed: None,
        told: None,
    };
    recorder.finish(ticket, end).unwrap();
}

/// A request without its cache marks extends another.
#[track_caller]
fn check_extends(format: Format, before: &str, after: &str) {
    let (before, after) = (bare(format, before), bare(format, after));
    assert!(after.starts_with(&before), "{before:#?}\n{after:#?}");
}

fn bare(format: Format, body: &str) -> Vec<Value> {
    let mut history = history_of(format, body);
    for item in &mut history {
        if let Value::Array(blocks) = &mut item["content"] {
            for block in blocks.iter_mut() {
                block.as_object_mut().unwrap().remove("cache_control");
            }
            if let [block] = &blocks[..]
                && block["type"] == "text"
            {
                item["content"] = block["text"].clone();
            }
        }
    }
    history
}

#[test]
fn a_crash_after_a_compaction_was_adopted_changes_no_byte_of_what_follows() {
    for format in crate::SCRIPTED {
        // Not so much at a time that compactions follow on each other's heels: how close they are is counted in calls.
        let result = |turn: usize| super::compose::result(turn);
        let (mut steady, mut shaken) = (Task::of(format, 0), Task::of(format, 0));
        let mut adopted = 0;
        for _ in 0..30 {
            let (ticket, _) = steady.asks();
            steady.is_answered(ticket);
            steady.agent.goes_on(&result(steady.agent.turns));

            let (mut ticket, outgoing) = shaken.asks();
            if outgoing.done.compaction.is_some() {
                adopted += 1;
                // Before the provider was asked; and once more, after what was sent again.
                for _ in 0..2 {
                    shaken.gateway = shaken.gateway.restarted();
                    let before = shaken.calls.pop().unwrap().2;
                    let (again, next) = shaken.asks();
                    assert_eq!((next.done.epoch, next.done.cause), (outgoing.done.epoch, None), "{format}");
                    assert_eq!(shaken.last(), before, "{format}");
                    ticket = again;
                }
            }
            shaken.is_answered(ticket);
            shaken.agent.goes_on(&result(shaken.agent.turns));
        }
        assert!(adopted > 1, "{format}: {adopted}");
        let bodies = |task: &Task| -> Vec<String> { task.calls.iter().map(|call| call.2.clone()).collect() };
        for (turn, (one, other)) in bodies(&steady).iter().zip(&bodies(&shaken)).enumerate() {
            let differs = one.bytes().zip(other.bytes()).position(|(one, other)| one != other);
            assert!(one == other, "{format}, turn {turn}, byte {differs:?}");
        }
        shaken.check_record();
    }
}

/// Somebody of whom there may be several at a time.
struct Someone<'g> {
    recorder: &'g TrafficRecorder,
    composing: &'g RewriteSettings,
    clock: &'g AtomicI64,
}

impl Someone<'_> {
    /// Sends a request and is answered. Gives the thread in which it was asked.
    fn sends(&self, format: Format, body: &str, answer: &Value) -> ThreadId {
        let at = Timestamp(self.clock.fetch_add(1, Ordering::Relaxed));
        let header = |name: &str| (name == "x-epitome-session").then_some("one");
        let arrival =
            RequestArrival { principal: "", format, body, shared: None, header: &header, at, purpose: None };
        let composed =
            compose(self.recorder, &arrival, self.composing, &RequestOverrides::default()).unwrap();
        let RequestDisposition::Forward(outgoing) = composed.way else { panic!("{:?}", composed.way) };
        let woven = check_woven(format, &outgoing, body);
        let (thread, call) = outgoing.done.call.unwrap();
        let end = EndedExchange {
            answer: format.decode_response(&answer.to_string()).unwrap(),
            ending: ExchangeOutcome::Complete,
            status: Some(200),
            bytes: 10,
            first_byte: None,
            took: Duration::from_millis(1),
            at,
            observed: None,
            told: None,
        };
        self.recorder.finish(composed.ticket, end).unwrap();
        let row = self.recorder.store().call(thread, call).unwrap();
        assert_eq!(row.call.hash, Digest::of(woven.as_bytes()));
        assert!(!row.outcomes.is_empty());
        thread
    }
}

#[test]
fn two_clients_of_one_session_at_once_are_both_served_and_both_on_record() {
    const ROUNDS: usize = 14;
    for format in crate::SCRIPTED {
        for is_same in [true, false] {
            let mut task = Task::of(format, 1);
            let clock = AtomicI64::new(1_000_000);
            let someone = Someone {
                recorder: &task.gateway.recorder,
                composing: &task.gateway.composing,
                clock: &clock,
            };
            for round in 0..ROUNDS {
                let barrier = Barrier::new(2);
                let [mut one, other] = [0, 1].map(|number| {
                    let mut agent = Agent { history: task.agent.history.clone(), ..Agent::new(format) };
                    agent.turns = 1_000 + 10 * round + number;
                    if !is_same && number == 1 {
                        let newest = *results(&agent).last().unwrap();
                        edit(&mut agent, newest);
                    }
                    agent
                });
                let ask = |agent: &Agent| {
                    let (body, answer) = (agent.body(), agent.answer());
                    barrier.wait();
                    someone.sends(format, &body, &answer)
                };
                let threads = thread::scope(|scope| {
                    let other = scope.spawn(|| ask(&other));
                    (ask(&one), other.join().unwrap())
                });
                // The same is a question asked once more if it comes before the answer, and else one asked again.
                assert!(is_same || threads.0 != threads.1, "{format}, round {round}");
                // It goes on with one of the answers.
                one.goes_on(&result(round));
                task.agent.history = one.history;
            }
            let store = task.gateway.recorder.store();
            let session = store.sessions().unwrap().remove(0);
            let exchanges = store.exchanges(session.id, 0, usize::MAX >> 1).unwrap();
            assert_eq!(exchanges.len(), 1 + 2 * ROUNDS, "{format}");
            task.check_record();
        }
    }
}

#[test]
fn the_clients_own_compaction_that_no_window_holds_is_answered_and_its_session_goes_on() {
    for format in crate::SCRIPTED {
        let mut task = Task::compacted(format);
        let thread = task.calls.last().unwrap().0;
        task.agent.goes_on(&result(0));
        let history = std::mem::take(&mut task.agent.history);
        let words = "Summarise all of this, so that somebody else can go on with it.";
        task.agent.history.clone_from(&history);
        user_says(&mut task.agent, words);
        // Of this model nothing is known but the window that was set.
        let body = task.agent.body().replace("claude-sonnet-4-5", "some-model");
        let header = |name: &str| (name == "x-epitome-session").then_some("one");
        let purpose = Some(RequestPurpose::Compaction);
        let at = Timestamp(1_000_000);
        let arrival =
            RequestArrival { principal: "", format, body: &body, shared: None, header: &header, at, purpose };
        let recorder = &task.gateway.recorder;
        let composed =
            compose(recorder, &arrival, &task.gateway.composing, &RequestOverrides::default()).unwrap();
        let RequestDisposition::Summary(SessionSummaryAnswer { text: summary, form }) = composed.way else {
            panic!("{:?}", composed.way)
        };
        assert_eq!(form, SummaryAnswerForm::Sealed, "{format}: its path asks for it");
        assert!(summary.contains("Find out why the build fails"), "{format}: {summary}");
        task.gateway.answer(composed.ticket, format, &plain(format, &summary));

        let opening = format!("This session is being continued from a previous one.\n{summary}\nContinue.");
        task.agent.history = vec![json!({"role": "user", "content": opening})];
        for restarts in [false, true] {
            if restarts {
                task.gateway = task.gateway.restarted();
            }
            let (ticket, outgoing) = task.asks();
            assert_eq!(ticket.thread, thread, "{format}");
            assert!(outgoing.done.after <= outgoing.done.before, "{format}: {outgoing:?}");
            assert_eq!(task.last(), task.agent.body(), "{format}");
            task.is_answered(ticket);
            task.agent.goes_on(&result(0));
        }
        // Whoever opens the session later need not read what was recorded before: all of it is said anew.
        let scripts = task.store().rewrite_records(thread).unwrap();
        let scripts: Vec<Value> =
            scripts.iter().map(|(_, _, text)| serde_json::from_str(text).unwrap()).collect();
        let first = scripts.iter().find(|script| script["lead"].is_array()).unwrap();
        for key in ["before", "after", "between"] {
            assert!(!first[key].is_null(), "{format}: no {key} in {first}");
        }
        // Until it has to be compacted again.
        task.goes_on_for(14);
        assert!(task.last().len() < task.agent.body().len(), "{format}");
        task.check_record();
        assert_eq!(task.store().sessions().unwrap().len(), 1, "{format}");
    }
}

/// How a client of a format asks for its own summary.
fn summary_prompt(format: Format) -> &'static str {
    match format {
        Format::Anthropic => {
            "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. Write an <analysis> and a <summary> block."
        }
        Format::OpenaiChat => "Please summarize the conversation history provided in the system prompt.",
        Format::OpenaiResponses => "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff.",
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

#[test]
fn the_clients_own_compaction_is_sent_as_it_came_while_its_providers_window_holds_it() {
    for format in crate::SCRIPTED {
        let mut task = Task::compacted(format);
        let thread = task.calls.last().unwrap().0;
        task.agent.goes_on(&result(0));
        let history = task.agent.history.clone();
        user_says(&mut task.agent, summary_prompt(format));
        // A model whose window is known, and larger than the one that was set.
        let body = task.agent.body().replace("some-model", "gpt-5");
        let mut ticket = check_untouched(&mut task.gateway, format, &body, RewriteStatus::OwnSummary);
        assert_eq!(ticket.purpose, RequestPurpose::Compaction, "{format}");
        assert_ne!(ticket.thread, thread, "{format}");

        // Its provider may hold less than is known of it.
        let refused = ContextOverflow { limit: Some(Tokens(WINDOW)), asked: None };
        let smaller = task.gateway.smaller(&mut ticket, format, &body, refused).unwrap();
        let woven = check_woven(format, &smaller, &body);
        assert!(woven.len() < body.len(), "{format}");
        let (aside, call) = smaller.done.call.unwrap();
        assert_eq!((aside, ticket.call), (ticket.thread, Some(call)), "{format}");
        task.calls.push((aside, call, woven));
        task.gateway.answer(ticket, format, &plain(format, "All was looked at."));

        // The conversation goes on as if nobody had asked.
        task.agent.history = history;
        let (ticket, _) = task.asks();
        assert_eq!(ticket.thread, thread, "{format}");
        task.is_answered(ticket);
        task.check_record();
    }
}

#[test]
fn whoever_summarises_what_no_window_holds_is_answered_and_the_session_keeps_its_tool() {
    for format in crate::SCRIPTED {
        let mut gateway = Gateway::new();
        gateway.composing.recall = true;
        let mut task = Task { gateway, agent: Agent::new(format), calls: Vec::new() };
        // So long that no window holds it, of a model of which nothing else is known.
        task.goes_on_for(14);
        assert!(task.last().contains(RECALL_TOOL), "{format}");
        let history = task.agent.history.clone();
        user_says(&mut task.agent, "Summarise all of this.");
        let body = task.agent.body().replace("claude-sonnet-4-5", "some-model");
        let with: Value = serde_json::from_str(&body).unwrap();
        let (mut without, mut with_none) = (with.clone(), with.clone());
        without.as_object_mut().unwrap().remove("tools");
        with_none["tools"] = json!([]);
        for (session, body) in [
            ("one", &with),
            ("one", &without),
            ("one", &with_none),
            ("another", &with),
            ("another", &without),
        ] {
            let header = |name: &str| (name == "x-epitome-session").then_some(session);
            let (body, at, purpose) =
                (body.to_string(), Timestamp(1_000_000), Some(RequestPurpose::Compaction));
            let principal = if session == "one" { "" } else { session };
            let arrival =
                RequestArrival { principal, format, body: &body, shared: None, header: &header, at, purpose };
            let Gateway { recorder, composing, .. } = &task.gateway;
            let composed = compose(recorder, &arrival, composing, &RequestOverrides::default()).unwrap();
            assert!(matches!(composed.way, RequestDisposition::Summary(_)), "{format} {session}: {body}");
        }
        // The session itself has it still.
        task.agent.history = history;
        task.goes_on_for(1);
        assert!(task.last().contains(RECALL_TOOL), "{format}");
    }
}

/// The user says something, after the results of tools.
fn user_says(agent: &mut Agent, words: &str) {
    if agent.format == Format::Anthropic {
        // There a user has one message at a time.
        let newest = agent.history.last_mut().unwrap()["content"].as_array_mut().unwrap();
        newest.push(json!({"type": "text", "text": words}));
    } else {
        agent.history.push(json!({"role": "user", "content": words}));
    }
}

/// An answer that is nothing but words.
fn plain(format: Format, words: &str) -> Value {
    match format {
        Format::Anthropic => json!({"id": "msg_words", "type": "message", "role": "assistant",
            "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": words}], "usage": {"input_tokens": 5, "output_tokens": 2}}),
        Format::OpenaiChat => json!({"id": "chatcmpl-words", "object": "chat.completion", "created": 1,
            "model": "some-model", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": words, "refusal": null}}]}),
        Format::OpenaiResponses => json!({"id": "resp_words", "object": "response", "created_at": 1,
            "model": "some-model", "status": "completed", "output": [{"type": "message", "id": "m",
                "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": words, "annotations": []}]}]}),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

/// A request goes on as it came, for this reason.
#[track_caller]
fn check_untouched(gateway: &mut Gateway, format: Format, body: &str, left: RewriteStatus) -> PendingRecord {
    let (ticket, outgoing) = gateway.forward(format, body);
    assert_eq!(outgoing.done.left, left);
    assert_eq!((outgoing.done.call, ticket.call), (None, None));
    assert_eq!(outgoing.cuts, [BodySlice::Client(0..body.len())]);
    ticket
}

#[test]
fn whoever_has_the_provider_manage_the_context_is_left_alone() {
    let managed = [
        (Format::Anthropic, json!({"edits": [{"type": "clear_tool_uses_20250919"}]})),
        (Format::OpenaiResponses, json!([{"type": "compaction", "compact_threshold": 1_000}])),
    ];
    for (format, settings) in managed {
        let mut task = Task::of(format, 2);
        let mut body: Value = serde_json::from_str(&task.agent.body()).unwrap();
        body["context_management"] = settings;
        let body = body.to_string();
        let mut ticket = check_untouched(&mut task.gateway, format, &body, RewriteStatus::Managed);
        let refused = ContextOverflow { limit: Some(Tokens(10)), asked: Some(Tokens(1_000)) };
        assert!(task.gateway.smaller(&mut ticket, format, &body, refused).is_none());
        end(&task.gateway.recorder, ticket, ExchangeOutcome::Refused, Some(400));
        // And when it does so no longer, it is not.
        task.goes_on_for(14);
        assert!(task.last().len() < task.agent.body().len(), "{format}");
        task.check_record();
    }
}

#[test]
fn whoever_leaves_its_history_with_the_provider_is_left_alone() {
    let format = Format::OpenaiResponses;
    let mut task = Task::of(format, 1);
    for (key, past) in [("previous_response_id", json!("resp_0")), ("conversation", json!("conv_1"))] {
        let body = json!({"model": "some-model", "input": [{"role": "user", "content": "and?"}], key: past});
        let ticket = check_untouched(&mut task.gateway, format, &body.to_string(), RewriteStatus::Remote);
        task.gateway.answer(ticket, format, &plain(format, key));
    }
    check_store(task.store());
}

#[test]
fn a_request_that_was_refused_as_too_long_is_made_smaller_and_what_follows_stays_below() {
    for format in crate::SCRIPTED {
        for said in [true, false] {
            let mut task = Task::of(format, 9);
            let (mut ticket, outgoing) = task.asks();
            let tried = outgoing.done.after;
            let limit = Tokens(tried.0 * 3 / 4);
            let refused = if said {
                ContextOverflow { limit: Some(limit), asked: Some(tried) }
            } else {
                ContextOverflow { limit: None, asked: None }
            };
            let body = task.agent.body();
            let smaller = task.gateway.smaller(&mut ticket, format, &body, refused).unwrap();
            let woven = check_woven(format, &smaller, &body);
            let least = if said { limit } else { Tokens(tried.0 * 4 / 5) };
            assert!(smaller.done.after <= least, "{format}: {:?} of {tried}", smaller.done);
            assert!(woven.len() < task.last().len(), "{format}");
            let (thread, call) = smaller.done.call.unwrap();
            assert_eq!((ticket.thread, ticket.call), (thread, Some(call)));
            task.calls.push((thread, call, woven));
            if said {
                task.is_answered(ticket);
            } else {
                end(&task.gateway.recorder, ticket, ExchangeOutcome::Refused, Some(400));
            }
            let rows = task.store().calls(thread, 0, usize::MAX >> 1).unwrap();
            assert!(rows.iter().all(|row| row.outcomes.len() == 1), "{format}: {rows:#?}");
            if said {
                task.agent.goes_on(&result(0));
            } else {
                task.agent.turns += 1;
            }
            for restarts in [false, true, false] {
                if restarts {
                    task.gateway = task.gateway.restarted();
                }
                let (ticket, outgoing) = task.asks();
                assert!(outgoing.done.after <= least, "{format}: {:?} of {least}", outgoing.done);
                task.is_answered(ticket);
                task.agent.goes_on(&result(0));
            }
            task.check_record();
        }
    }
}

#[test]
fn a_request_that_cannot_be_smaller_leaves_no_call_without_an_end() {
    for format in crate::SCRIPTED {
        let mut task = Task::of(format, 0);
        let (mut ticket, outgoing) = task.asks();
        let body = task.agent.body();
        let refused = ContextOverflow { limit: Some(Tokens(10)), asked: Some(outgoing.done.after) };
        assert!(task.gateway.smaller(&mut ticket, format, &body, refused).is_none(), "{format}");
        let thread = ticket.thread;
        end(&task.gateway.recorder, ticket, ExchangeOutcome::Refused, Some(400));
        let rows = task.store().calls(thread, 0, usize::MAX >> 1).unwrap();
        assert!(rows.iter().all(|row| !row.outcomes.is_empty()), "{format}: {rows:#?}");
        task.check_record();
    }
}

#[test]
fn a_refusal_that_names_no_sensible_limit_is_not_believed_for_good() {
    for format in crate::SCRIPTED {
        for restarts in [false, true] {
            let mut task = Task::of(format, 3);
            let (mut ticket, outgoing) = task.asks();
            let body = task.agent.body();
            let refused = ContextOverflow { limit: Some(Tokens(10)), asked: Some(outgoing.done.after) };
            assert!(task.gateway.smaller(&mut ticket, format, &body, refused).is_none(), "{format}");
            end(&task.gateway.recorder, ticket, ExchangeOutcome::Refused, Some(400));
            if restarts {
                task.gateway = task.gateway.restarted();
            }
            task.goes_on_for(40);
            let compacted = |call: &(ThreadId, u64, String)| {
                task.store().call(call.0, call.1).unwrap().call.summary.is_some()
            };
            assert!(task.calls.iter().any(compacted), "{format}: its window is known by its profile");
            task.check_record();
        }
    }
}

#[test]
fn who_is_refused_beside_somebody_else_ends_its_own_call() {
    for format in crate::SCRIPTED {
        let mut task = Task::of(format, 9);
        let (mut one, first) = task.asks();
        let (other, second) = task.asks();
        assert_eq!((one.thread, other.placed), (other.thread, PlacementKind::Retried), "{format}");
        let body = task.agent.body();
        let refused =
            ContextOverflow { limit: Some(Tokens(first.done.after.0 / 2)), asked: Some(first.done.after) };
        let smaller = task.gateway.smaller(&mut one, format, &body, refused).unwrap();
        let woven = check_woven(format, &smaller, &body);
        let third = smaller.done.call.unwrap();
        task.calls.push((third.0, third.1, woven));
        let ends = |task: &Task, call: Option<(ThreadId, u64)>| {
            let (thread, number) = call.unwrap();
            task.store().call(thread, number).unwrap().outcomes.len()
        };
        assert_eq!((ends(&task, first.done.call), ends(&task, second.done.call)), (1, 0), "{format}");
        task.is_answered(other);
        task.agent.turns += 100;
        task.is_answered(one);
        let calls = [first.done.call, second.done.call, Some(third)];
        assert_eq!(calls.map(|call| ends(&task, call)), [1, 1, 1], "{format}");
        task.check_record();
    }
}

#[test]
fn a_compaction_that_is_asked_for_is_made_and_the_next_request_stands_on_it() {
    for format in crate::SCRIPTED {
        for by_words in [true, false] {
            for restarts in [true, false] {
                let mut task = Task::of(format, 4);
                let (ticket, outgoing) = task.asks();
                let (thread, before) = (ticket.thread, outgoing.done.after);
                assert_eq!(outgoing.done.epoch, 0, "{format}: it fits by itself");
                let done = plain(format, "All is mended.");
                task.gateway.answer(ticket, format, &done);
                let says = |role: &str, words: &str| json!({"role": role, "content": words});
                task.agent.history.push(says("assistant", "All is mended."));
                if restarts {
                    task.gateway = task.gateway.restarted();
                }
                let (words, wishes) = if by_words {
                    ("/compact the parts of the build", RequestOverrides::default())
                } else {
                    let compact = Some("the parts of the build".to_owned());
                    ("Is it?", RequestOverrides { compact, ..RequestOverrides::default() })
                };
                task.agent.history.push(says("user", words));
                let (ticket, way) = task.gateway.compose(format, &task.agent.body(), &wishes);
                let RequestDisposition::Answer { words: told, .. } = way else { panic!("{way:?}") };
                assert!(told.starts_with("Compacted: "), "{told}");
                assert_eq!((ticket.thread, ticket.call), (thread, None));
                task.gateway.answer(ticket, format, &plain(format, &told));
                if restarts {
                    task.gateway = task.gateway.restarted();
                }
                task.agent.history.extend([says("assistant", &told), says("user", "Go on.")]);
                let body = task.agent.body();
                let events = task.store().read(thread, Seq(1), usize::MAX >> 1).unwrap();
                let is_compaction = |logged: &&LoggedEvent| matches!(logged.event.fact, Fact::Compacted(_));
                assert_eq!(events.iter().filter(is_compaction).count(), 1, "{format}");
                let (ticket, outgoing) = task.asks();
                let done = &outgoing.done;
                assert!(done.after < before && done.before > before, "{format}: {done:?} after {before}");
                assert!(task.last().len() < body.len(), "{format}");
                let row = task.store().call(thread, outgoing.done.call.unwrap().1).unwrap();
                assert!(row.call.summary.is_some(), "{format}");
                task.is_answered(ticket);
                task.agent.goes_on(&result(0));
                task.goes_on_for(2);
                task.check_record();
            }
        }
    }
}

#[test]
fn a_compaction_that_is_asked_for_too_soon_is_told_so_and_changes_nothing() {
    for format in crate::SCRIPTED {
        let mut task = Task::of(format, 0);
        let wishes = RequestOverrides { compact: Some(String::new()), ..RequestOverrides::default() };
        let (ticket, way) = task.gateway.compose(format, &task.agent.body(), &wishes);
        let RequestDisposition::Answer { words: told, .. } = way else { panic!("{way:?}") };
        assert!(told.contains("nothing"), "{told}");
        task.gateway.answer(ticket, format, &plain(format, &told));
        task.agent.history.push(json!({"role": "assistant", "content": told}));
        task.agent.history.push(json!({"role": "user", "content": "Then go on."}));
        let body = task.agent.body();
        let (ticket, _) = task.asks();
        assert_eq!(task.last(), body, "{format}");
        task.is_answered(ticket);
        task.check_record();
    }
}

#[test]
fn a_compaction_that_is_asked_for_reaches_no_provider_where_no_policy_is_in_charge() {
    let managed = json!([{"type": "compaction", "compact_threshold": 1_000}]);
    let format = Format::OpenaiResponses;
    let check = |settings: &[(&str, Value)], holdout: u32, told: &str| {
        let mut task = Task::of(format, 0);
        task.gateway.composing.holdout = holdout;
        for words in ["/compact all", "Is it?"] {
            user_says(&mut task.agent, words);
            let mut body: Value = serde_json::from_str(&task.agent.body()).unwrap();
            for (key, value) in settings {
                body[key] = value.clone();
            }
            let compact = (words == "Is it?").then(|| "all".to_owned());
            let wishes = RequestOverrides { compact, ..RequestOverrides::default() };
            let (ticket, way) = task.gateway.compose(format, &body.to_string(), &wishes);
            let RequestDisposition::Answer { words, compaction: None } = way else { panic!("{way:?}") };
            assert!(words.starts_with("Nothing was compacted: ") && words.contains(told), "{words}");
            task.gateway.answer(ticket, format, &plain(format, &words));
            task.agent.history.push(json!({"role": "assistant", "content": words}));
        }
        check_store(task.store());
    };
    check(&[], 1_000_000, "left as they are");
    check(&[("context_management", managed)], 0, "manage");
    check(&[("previous_response_id", json!("resp_1"))], 0, "only the provider");
    check(&[("model", Value::Null)], 0, "would take");
}

#[test]
fn who_has_its_provider_compact_by_another_path_gets_what_that_gives() {
    let (format, mut task) = (Format::OpenaiResponses, Task::of(Format::OpenaiResponses, 2));
    user_says(&mut task.agent, "/compact");
    let (body, header) = (task.agent.body(), |_: &str| None);
    let (at, purpose) = (Timestamp(1_000_000), Some(RequestPurpose::Compaction));
    let arrival =
        RequestArrival { principal: "", format, body: &body, shared: None, header: &header, at, purpose };
    let wishes = RequestOverrides { compact: Some(String::new()), ..RequestOverrides::default() };
    let composed = compose(&task.gateway.recorder, &arrival, &task.gateway.composing, &wishes).unwrap();
    assert!(matches!(composed.way, RequestDisposition::Forward(_)), "{:?}", composed.way);
}

#[test]
fn a_message_that_no_window_holds_is_cut_and_its_session_goes_on() {
    for format in crate::SCRIPTED {
        for restarts in [true, false] {
            let mut task = Task::compacted(format);
            task.agent.goes_on(&"a very long line, of which there are far too many\n".repeat(8_000));
            let body = task.agent.body();
            let (ticket, outgoing) = task.gateway.forward(format, &body);
            let woven = sent(&outgoing, &body);
            let found = legality::check(format, &woven, &ProviderRules::of(format));
            assert!(found.is_empty() && outgoing.done.after <= Tokens(WINDOW), "{format}: {found:?}");
            let (thread, call) = outgoing.done.call.unwrap();
            task.calls.push((thread, call, woven));
            task.is_answered(ticket);
            if restarts {
                task.gateway = task.gateway.restarted();
            }
            task.agent.goes_on(&result(0));
            task.goes_on_for(3);
            task.check_record();
            assert_eq!(task.store().sessions().unwrap().len(), 1, "{format}");
        }
    }
}
