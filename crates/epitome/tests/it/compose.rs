//! Clients that never heard of compaction stay inside the window, with their own bytes wherever nobody touched them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use epitome::{
    core::{
        Digest, Event, Fact, SessionId, ThreadId, Tokens, event::Timestamp, policy::Policy, profile::Profiles,
    },
    recorder::{
        EndedExchange, ExchangeOutcome, FinishOutcome, PendingRecord, RequestArrival, TrafficRecorder,
    },
    rewrite::{
        BodySlice, LifecycleHub, RecallAnswerForm, RequestDisposition, RequestOverrides, RewriteSettings,
        RewriteStatus, RewrittenRequest, compose, compose_smaller, recall,
    },
    session::verify_call,
    store::{Store, StoreOptions, records::ThreadCommit, temporary_store},
    wire::{
        Format,
        legality::{self, ProviderRules},
        overflow::ContextOverflow,
        recall_tool::{RECALL_TOOL, RecallSplice, SpliceVerdict, client_events},
    },
};
use serde_json::{Value, json};

pub(super) const WINDOW: u64 = 16_000;

/// A gateway that composes, over a store of its own.
pub(super) struct Gateway {
    pub(super) recorder: TrafficRecorder,
    pub(super) composing: RewriteSettings,
    clock: i64,
}

impl Gateway {
    pub(super) fn new() -> Self {
        Self::on(temporary_store(StoreOptions::default()).unwrap())
    }

    pub(super) fn on(store: Arc<dyn Store>) -> Self {
        let composing = RewriteSettings {
            policy: Policy::named("epitome").unwrap().clone(),
            profiles: Arc::new(Profiles::builtin()),
            window: Some(Tokens(WINDOW)),
            holdout: 0,
            command: Some("/compact".to_owned()),
            recall: false,
            own_items: false,
            with_answers: true,
            heard: LifecycleHub::default(),
            functions: Arc::default(),
        };
        Self { recorder: TrafficRecorder::new(store), composing, clock: 1_000 }
    }

    /// Another process on the same database: nothing is remembered.
    pub(super) fn restarted(self) -> Self {
        Self {
            recorder: TrafficRecorder::new(Arc::clone(self.recorder.store())),
            composing: self.composing,
            clock: self.clock,
        }
    }

    pub(super) fn compose(
        &mut self,
        format: Format,
        body: &str,
        wishes: &RequestOverrides,
    ) -> (PendingRecord, RequestDisposition) {
        self.clock += 1_000;
        let header = |name: &str| (name == "x-epitome-session").then_some("one");
        let at = Timestamp(self.clock);
        let shared = Bytes::copy_from_slice(body.as_bytes());
        let body = str::from_utf8(&shared).unwrap();
        let shared = Some(&shared);
        let arrival =
            RequestArrival { principal: "", format, body, shared, header: &header, at, purpose: None };
        let composed = compose(&self.recorder, &arrival, &self.composing, wishes).unwrap();
        (composed.ticket, composed.way)
    }

    pub(super) fn forward(&mut self, format: Format, body: &str) -> (PendingRecord, RewrittenRequest) {
        let (ticket, way) = self.compose(format, body, &RequestOverrides::default());
        let RequestDisposition::Forward(outgoing) = way else { panic!("{way:?}") };
        (ticket, outgoing)
    }

    pub(super) fn smaller(
        &mut self,
        ticket: &mut PendingRecord,
        format: Format,
        body: &str,
        refused: ContextOverflow,
    ) -> Option<RewrittenRequest> {
        let header = |_: &str| None;
        let at = Timestamp(self.clock);
        let arrival =
            RequestArrival { principal: "", format, body, shared: None, header: &header, at, purpose: None };
        compose_smaller(&self.recorder, ticket, &arrival, &self.composing, refused).unwrap()
    }

    pub(super) fn answer(&mut self, ticket: PendingRecord, format: Format, answer: &Value) {
        self.told(ticket, format, answer, None);
    }

    fn told(
        &mut self,
        ticket: PendingRecord,
        format: Format,
        answer: &Value,
        told: Option<RecallAnswerForm>,
    ) {
        self.clock += 500;
        let end = EndedExchange {
            answer: format.decode_response(&answer.to_string()).unwrap(),
            ending: ExchangeOutcome::Complete,
            status: Some(200),
            bytes: 10,
            first_byte: None,
            took: Duration::from_millis(500),
            at: Timestamp(self.clock),
            observed: None,
            told,
        };
        let finish = self.recorder.begin_finish(ticket, end).wait();
        if let FinishOutcome::Unsettled(unfinished) = finish.unwrap() {
            self.recorder.settle(*unfinished).unwrap();
        }
    }
}

/// An agent that calls a tool in every turn and sends its whole history each time.
pub(super) struct Agent {
    pub(super) format: Format,
    pub(super) history: Vec<Value>,
    pub(super) turns: usize,
    /// How it writes JSON: some leave a space after commas.
    pub(super) spaced: bool,
}

impl Agent {
    pub(super) fn new(format: Format) -> Self {
        let task = json!({"role": "user", "content": "Find out why the build fails, and mend it."});
        Self { format, history: vec![task], turns: 0, spaced: false }
    }

    pub(super) fn body(&self) -> String {
        let mut history: Vec<Value> = self.history.clone();
        let tool = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let body = match self.format {
            Format::Anthropic => {
                // Moves its marks, as clients do.
                mark(history.last_mut().unwrap());
                json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "You are careful.",
                    "messages": history, "tools": [{"name": "bash", "input_schema": tool}], "stream": true})
            }
            Format::OpenaiChat => {
                history.insert(0, json!({"role": "system", "content": "You are careful."}));
                json!({"model": "some-model", "messages": history, "stream": true,
                    "tools": [{"type": "function", "function": {"name": "bash", "parameters": tool}}]})
            }
            Format::OpenaiResponses => json!({"model": "some-model", "instructions": "You are careful.",
                "input": history, "store": false,
                "tools": [{"type": "function", "name": "bash", "parameters": tool}]}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        if self.spaced { spaced(&body) } else { body.to_string() }
    }

    /// What the model answers in this turn.
    pub(super) fn answer(&self) -> Value {
        let turn = self.turns;
        let (call, arguments) = (format!("call_{turn}"), json!({"command": format!("step {turn}")}));
        match self.format {
            Format::Anthropic => json!({"id": format!("msg_{turn}"), "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "stop_reason": "tool_use", "content": [
                    {"type": "text", "text": format!("Now step {turn}.")},
                    {"type": "tool_use", "id": call, "name": "bash", "input": arguments}],
                "usage": {"input_tokens": 5, "output_tokens": 2}}),
            Format::OpenaiChat => json!({"id": format!("chatcmpl-{turn}"), "object": "chat.completion",
                "created": 1, "model": "some-model", "choices": [{"index": 0, "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": format!("Now step {turn}."), "refusal": null,
                    "tool_calls": [{"id": call, "type": "function",
                        "function": {"name": "bash", "arguments": arguments.to_string()}}]}}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}),
            Format::OpenaiResponses => json!({"id": format!("resp_{turn}"), "object": "response",
                "created_at": 1, "model": "some-model", "status": "completed", "output": [
                    {"type": "reasoning", "id": format!("rs_{turn}"), "summary": [], "encrypted_content": "x"},
                    {"type": "function_call", "id": format!("fc_{turn}"), "call_id": call, "name": "bash",
                        "arguments": arguments.to_string(), "status": "completed"}],
                "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
    }

    /// Takes the answer as clients do, in words of its own, and runs the tool.
    pub(super) fn goes_on(&mut self, result: &str) {
        let turn = self.turns;
        let (call, arguments) = (format!("call_{turn}"), json!({"command": format!("step {turn}")}));
        match self.format {
            Format::Anthropic => {
                self.history.push(json!({"content": [{"text": format!("Now step {turn}."), "type": "text"},
                    {"id": call, "input": arguments, "name": "bash", "type": "tool_use"}], "role": "assistant"}));
                self.history.push(json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": call, "content": result}]}));
            }
            Format::OpenaiChat => {
                self.history.push(json!({"role": "assistant", "content": format!("Now step {turn}."),
                    "tool_calls": [{"id": call, "type": "function",
                        "function": {"name": "bash", "arguments": arguments.to_string()}}]}));
                self.history.push(json!({"role": "tool", "tool_call_id": call, "content": result}));
            }
            Format::OpenaiResponses => {
                self.history.push(
                    json!({"type": "reasoning", "id": format!("rs_{turn}"), "summary": [], "encrypted_content": "x"}),
                );
                self.history.push(json!({"type": "function_call", "call_id": call, "name": "bash",
                    "arguments": arguments.to_string()}));
                self.history.push(json!({"type": "function_call_output", "call_id": call, "output": result}));
            }
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
        self.turns += 1;
    }
}

pub(super) fn mark(message: &mut Value) {
    let cache = json!({"type": "ephemeral"});
    match &mut message["content"] {
        Value::Array(blocks) => blocks.last_mut().unwrap()["cache_control"] = cache,
        text => *text = json!([{"type": "text", "text": text.clone(), "cache_control": cache}]),
    }
}

/// JSON as Python writes it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{}: {}", json!(key), spaced(value))).collect();
            format!("{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}

pub(super) fn result(turn: usize) -> String {
    let lines = (0..40).map(|line| format!("{turn}.{line}: file src/part_{turn}_{line}.rs was looked at"));
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) fn sent(outgoing: &RewrittenRequest, body: &str) -> String {
    outgoing.cuts.iter().map(|cut| cut.text(body)).collect()
}

pub(super) fn history_of(format: Format, body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
    body[key].as_array().unwrap().clone()
}

/// What a long task came to.
struct Story {
    gateway: Gateway,
    thread: ThreadId,
    calls: Vec<u64>,
    bodies: Vec<String>,
    epochs: u64,
    agent: Agent,
}

/// Plays a long task; at some turns something happens first.
fn play(agent: Agent, turns: usize, mut before: impl FnMut(usize, Gateway) -> Gateway) -> Story {
    let (mut agent, mut gateway) = (agent, Gateway::new());
    let format = agent.format;
    let mut story: Option<(ThreadId, SessionId)> = None;
    let (mut calls, mut bodies, mut epochs) = (Vec::new(), Vec::new(), 0);
    for turn in 0..turns {
        gateway = before(turn, gateway);
        let body = agent.body();
        let (ticket, outgoing) = gateway.forward(format, &body);
        let place = (ticket.thread, ticket.session);
        assert_eq!(*story.get_or_insert(place), place, "turn {turn}");
        let woven = sent(&outgoing, &body);
        let done = &outgoing.done;
        assert_eq!(done.left, RewriteStatus::Composed, "turn {turn}");
        assert!(done.after <= Tokens(WINDOW) && done.after <= done.before, "turn {turn}: {done:?}");
        let found = legality::check(format, &woven, &ProviderRules::of(format));
        assert!(found.is_empty(), "turn {turn}: {found:?}\n{woven}");
        // What is sent is the client's own but for what stands in place of the old.
        let own = outgoing.cuts.iter().filter(|cut| matches!(cut, BodySlice::Own(_))).count();
        assert!(own < 60, "turn {turn}: {own} pieces");
        assert!(woven.matches("cache_control").count() <= 4, "turn {turn}: {woven}");
        let newest = history_of(format, &body).pop().unwrap();
        assert_eq!(history_of(format, &woven).pop(), Some(newest), "turn {turn}");
        calls.push(done.call.unwrap().1);
        epochs = done.epoch;
        bodies.push(woven);
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(turn));
    }
    let (thread, _) = story.unwrap();
    Story { gateway, thread, calls, bodies, epochs, agent }
}

impl Story {
    /// Every call can be written again, byte for byte.
    fn is_on_record(&self) {
        let store = self.gateway.recorder.store();
        for (call, body) in self.calls.iter().zip(&self.bodies) {
            let again = verify_call(&**store, self.thread, *call).unwrap();
            assert_eq!(&again.rendered.body, body, "call {call}");
            assert_eq!(again.row.call.hash, Digest::of(body.as_bytes()));
        }
        assert_eq!(store.sessions().unwrap().len(), 1);
    }

    /// Within an epoch every request extends the one before.
    fn resets(&self) -> usize {
        let format = self.agent.format;
        let bare = |body: &str| -> Vec<Value> {
            let mut history = history_of(format, body);
            history.iter_mut().for_each(unmark);
            history
        };
        let pairs = self.bodies.windows(2);
        pairs.filter(|pair| !bare(&pair[1]).starts_with(&bare(&pair[0]))).count()
    }
}

/// A message without its marks, with a text in place of a list of one.
fn unmark(message: &mut Value) {
    if let Value::Array(blocks) = &mut message["content"] {
        for block in blocks.iter_mut() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
        if let [block] = &blocks[..]
            && block["type"] == "text"
        {
            message["content"] = block["text"].clone();
        }
    }
}

#[test]
fn a_long_task_stays_inside_the_window_in_every_format() {
    for format in crate::SCRIPTED {
        let story = play(Agent::new(format), 60, |_, gateway| gateway);
        assert!(story.epochs >= 2 && story.epochs <= 16, "{format}: {} epochs", story.epochs);
        assert_eq!(story.resets() as u64, story.epochs, "{format}");
        story.is_on_record();
    }
}

#[test]
fn the_hash_of_a_request_is_that_of_its_bytes_whatever_the_client_changes() {
    for format in crate::SCRIPTED {
        let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
        let check = |gateway: &mut Gateway, agent: &mut Agent, body: &str| {
            let (ticket, outgoing) = gateway.forward(format, body);
            let (thread, call) = outgoing.done.call.unwrap();
            gateway.answer(ticket, format, &agent.answer());
            agent.goes_on("done");
            let again = verify_call(&**gateway.recorder.store(), thread, call).unwrap();
            assert_eq!(again.row.call.hash, Digest::of(sent(&outgoing, body).as_bytes()), "{format}: {body}");
        };
        for turn in 0..24 {
            let body = agent.body();
            let body = match turn {
                // Before the history, after it, between its messages, in the middle of one.
                12 => body.replace("careful", "bold"),
                15 => body.replace(r#""step 14""#, r#""step 14", "n": 1"#),
                18 => spaced(&serde_json::from_str(&body).unwrap()),
                21 => body.replace("why the build", "why\\u0020the build"),
                _ => body,
            };
            check(&mut gateway, &mut agent, &body);
        }
    }
}

#[test]
fn what_separates_messages_is_kept() {
    let story = play(Agent { spaced: true, ..Agent::new(Format::OpenaiChat) }, 25, |_, gateway| gateway);
    assert!(story.bodies[20].contains("}, {\"role\": "));
    story.is_on_record();
}

#[test]
fn a_gateway_that_restarts_at_every_call_sends_the_same() {
    for format in crate::SCRIPTED {
        let steady = play(Agent::new(format), 25, |_, gateway| gateway);
        let shaken = play(Agent::new(format), 25, |_, gateway| gateway.restarted());
        // Threads have the same names, so handles are the same too.
        assert_eq!(steady.thread, shaken.thread, "{format}");
        for (turn, (one, other)) in steady.bodies.iter().zip(&shaken.bodies).enumerate() {
            let differs = one.bytes().zip(other.bytes()).position(|(one, other)| one != other);
            assert!(one == other, "{format}, turn {turn}, byte {differs:?}");
        }
        shaken.is_on_record();
    }
}

#[test]
fn nothing_old_leaves_as_it_came() {
    for format in crate::SCRIPTED {
        let agent = Agent::new(format);
        let mut gateway = Gateway::new();
        let body = agent.body();
        let (_, outgoing) = gateway.forward(format, &body);
        if format == Format::Anthropic || !body.contains("cache_control") {
            assert_eq!(outgoing.cuts, [BodySlice::Client(0..body.len())], "{format}");
        }
        assert_eq!(sent(&outgoing, &body), body);
    }
}

#[test]
fn results_that_answer_together_are_kept_together() {
    // Two calls in an answer, and a word of the user right after: as clients send it.
    let mut gateway = Gateway::new();
    let format = Format::OpenaiChat;
    let mut history = vec![json!({"role": "user", "content": "Begin."})];
    for turn in 0..30 {
        let calls: Vec<Value> = (0..2)
            .map(|call| {
                json!({"id": format!("call_{turn}_{call}"), "type": "function",
                    "function": {"name": "bash", "arguments": json!({"command": format!("x {turn} {call}")}).to_string()}})
            })
            .collect();
        let body = json!({"model": "some-model", "messages": history}).to_string();
        let (ticket, outgoing) = gateway.forward(format, &body);
        let woven = sent(&outgoing, &body);
        let own =
            outgoing.cuts.iter().filter(|cut| matches!(cut, BodySlice::Own(text) if text.len() > 1)).count();
        assert!(own <= 2, "turn {turn}: {own} pieces in {woven}");
        let message = json!({"role": "assistant", "content": [{"type": "text", "text": "Going on."}], "tool_calls": calls});
        gateway.answer(
            ticket,
            format,
            &json!({"id": format!("chatcmpl-{turn}"), "object": "chat.completion", "created": 1,
                "model": "some-model",
                "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}),
        );
        history.push(message);
        for call in 0..2 {
            history.push(json!({"role": "tool", "tool_call_id": format!("call_{turn}_{call}"), "content": result(turn)}));
        }
        if turn % 3 == 0 {
            history.push(json!({"role": "user", "content": format!("Step {turn}.")}));
        }
    }
}

/// An answer that says something and calls tools.
fn calling(format: Format, name: &str, text: &str, calls: &[(&str, Value)]) -> Value {
    let mut answer = Agent::new(format).answer();
    match format {
        Format::Anthropic => {
            answer["id"] = json!(format!("msg_{name}"));
            let mut blocks = vec![json!({"type": "text", "text": text})];
            blocks.extend(calls.iter().map(|(tool, input)| {
                json!({"type": "tool_use", "id": format!("{name}_{tool}"), "name": tool, "input": input})
            }));
            answer["content"] = json!(blocks);
            answer["stop_reason"] = json!(if calls.is_empty() { "end_turn" } else { "tool_use" });
        }
        Format::OpenaiChat => {
            answer["id"] = json!(format!("chatcmpl-{name}"));
            let calls: Vec<Value> = calls
                .iter()
                .map(|(tool, input)| {
                    json!({"id": format!("{name}_{tool}"), "type": "function",
                        "function": {"name": tool, "arguments": input.to_string()}})
                })
                .collect();
            let message = &mut answer["choices"][0]["message"];
            message["content"] = json!(text);
            if calls.is_empty() {
                message.as_object_mut().unwrap().remove("tool_calls");
                answer["choices"][0]["finish_reason"] = json!("stop");
            } else {
                message["tool_calls"] = json!(calls);
            }
        }
        Format::OpenaiResponses => {
            answer["id"] = json!(format!("resp_{name}"));
            let mut output = vec![json!({"type": "message", "id": format!("m_{name}"), "role": "assistant",
                "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})];
            output.extend(calls.iter().map(|(tool, input)| {
                json!({"type": "function_call", "id": format!("f_{name}_{tool}"), "call_id": format!("{name}_{tool}"),
                    "name": tool, "arguments": input.to_string(), "status": "completed"})
            }));
            answer["output"] = json!(output);
        }
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
    answer
}

/// What a client keeps of an answer that it got whole.
fn kept(format: Format, seen: &[u8]) -> Vec<Value> {
    let seen: Value = serde_json::from_slice(seen).unwrap();
    match format {
        Format::Anthropic => vec![json!({"role": "assistant", "content": seen["content"]})],
        Format::OpenaiChat => vec![seen["choices"][0]["message"].clone()],
        Format::OpenaiResponses => seen["output"].as_array().unwrap().clone(),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    }
}

/// A model asks back with this answer: what goes on, and the answer as its client sees it so far.
fn asks_back(
    gateway: &Gateway,
    ticket: &mut PendingRecord,
    (format, body): (Format, &str),
    answer: &Value,
) -> (RewrittenRequest, RecallSplice) {
    let (mut splice, mut seen) = (RecallSplice::whole(format), Vec::new());
    splice.push(answer.to_string().as_bytes(), &mut seen);
    let SpliceVerdict::Recall(recalls) = splice.end(&mut seen) else { panic!("{format}: {answer}") };
    let header = |_: &str| None;
    let at = Timestamp(gateway.clock);
    let arrival =
        RequestArrival { principal: "", format, body, shared: None, header: &header, at, purpose: None };
    (recall(&gateway.recorder, ticket, &arrival, &recalls).unwrap().unwrap(), splice)
}

/// A long task whose model may ask back, and whose newest request began an epoch, so that the next ones have room.
fn just_compacted(format: Format) -> Story {
    let offered = |_: usize, mut gateway: Gateway| {
        gateway.composing.recall = true;
        gateway
    };
    let mut epochs = play(Agent::new(format), 20, offered).epochs;
    for turns in 21..60 {
        let story = play(Agent::new(format), turns, offered);
        if story.epochs > epochs {
            return story;
        }
        epochs = story.epochs;
    }
    panic!("{format}: it never fills its window");
}

#[test]
fn what_a_model_asks_back_is_given_and_stays_where_it_was_said() {
    for format in crate::SCRIPTED {
        let Story { mut gateway, thread, mut agent, .. } = just_compacted(format);
        gateway = gateway.restarted();
        gateway.composing.with_answers = false;
        let body = agent.body();
        let (mut ticket, outgoing) = gateway.forward(format, &body);
        let first = sent(&outgoing, &body);
        assert!(first.contains(RECALL_TOOL), "{format}");
        assert!(first.contains(&format!("recall {}:", thread.short())), "{format}");
        let handle = format!("{}:4-8", thread.short());
        // The model asks, gets it, and answers: the client sees one answer.
        let asks = calling(
            format,
            "one",
            "One moment.",
            &[(RECALL_TOOL, json!({"handle": format!("recall {handle}")}))],
        );
        let (next, mut splice) = asks_back(&gateway, &mut ticket, (format, &body), &asks);
        let mut seen = Vec::new();
        let second = sent(&next, &body);
        assert_eq!(next.done.cause, None, "{format}");
        assert!(history_of(format, &second).starts_with(&history_of(format, &first)), "{format}");
        assert!(second.contains("part_0_"), "{format}: what was asked for is there\n{second}");
        let found = legality::check(format, &second, &ProviderRules::of(format));
        assert!(found.is_empty(), "{format}: {found:?}");
        splice.continue_with();
        let says = calling(format, "two", "It is done.", &[]);
        splice.push(says.to_string().as_bytes(), &mut seen);
        let SpliceVerdict::Continued { answer: Some(answer) } = splice.end(&mut seen) else {
            panic!("{format}")
        };
        let told = RecallAnswerForm::Joined(client_events(format, &seen).unwrap());
        gateway.told(ticket, format, &serde_json::from_str(&answer).unwrap(), Some(told));
        // The client goes on with what it saw: the same session, and what it did not see is sent again.
        agent.history.extend(kept(format, &seen));
        agent.history.push(json!({"role": "user", "content": "Thank you. What now?"}));
        for shaken in [false, true] {
            if shaken {
                gateway = gateway.restarted();
            }
            let body = agent.body();
            let (ticket, outgoing) = gateway.forward(format, &body);
            let third = sent(&outgoing, &body);
            assert_eq!(ticket.thread, thread, "{format}");
            let found = legality::check(format, &third, &ProviderRules::of(format));
            assert!(found.is_empty(), "{format}: {found:?}");
            if !shaken {
                assert_eq!(outgoing.done.cause, None, "{format}");
            }
            let mut before = history_of(format, &second);
            before.iter_mut().for_each(unmark);
            let mut after = history_of(format, &third);
            after.iter_mut().for_each(unmark);
            assert!(after.starts_with(&before), "{format}: {third}");
            assert!(third.contains("It is done.") && third.contains("What now?"), "{format}");
            let call = outgoing.done.call.unwrap().1;
            assert_eq!(verify_call(&**gateway.recorder.store(), thread, call).unwrap().rendered.body, third);
        }
        let report = gateway.recorder.store().doctor().unwrap();
        assert!(report.is_healthy(), "{report:#?}");
    }
}

#[test]
fn what_a_model_asks_back_is_given_though_others_were_first_who_said_nothing() {
    for format in crate::SCRIPTED {
        for with_call in [false, true] {
            let mut gateway = Gateway::new();
            gateway.composing.recall = true;
            gateway.composing.with_answers = false;
            let mut agent = Agent::new(format);
            let body = agent.body();
            let (mut ticket, outgoing) = gateway.forward(format, &body);
            let first = history_of(format, &sent(&outgoing, &body));
            let store = Arc::clone(gateway.recorder.store());
            if with_call {
                // The same request once more, through another process.
                let mut other = Gateway::on(Arc::clone(&store));
                other.composing.recall = true;
                assert_eq!(other.forward(format, &body).0.thread, ticket.thread, "{format}");
            }
            let head = store.thread(ticket.thread).unwrap().head.seq;
            let noted = Fact::Carried { kind: "note".to_owned() };
            let noted = Event { normal: None, ..Event::native("test", "{}", noted) };
            store.commit(ThreadCommit::new(ticket.thread, head, vec![noted], Vec::new())).unwrap();
            let calls = [(RECALL_TOOL, json!({"query": "build fails"}))];
            let asks = calling(format, "one", "One moment.", &calls);
            let (next, mut splice) = asks_back(&gateway, &mut ticket, (format, &body), &asks);
            let second = sent(&next, &body);
            assert!(second.contains("One moment."), "{format}: {second}");
            assert!(history_of(format, &second).starts_with(&first), "{format}: {second}");
            splice.continue_with();
            let (says, mut seen) = (calling(format, "two", "It is found.", &[]), Vec::new());
            splice.push(says.to_string().as_bytes(), &mut seen);
            splice.end(&mut seen);
            let thread = ticket.thread;
            gateway.told(
                ticket,
                format,
                &says,
                Some(RecallAnswerForm::Joined(client_events(format, &seen).unwrap())),
            );
            agent.history.extend(kept(format, &seen));
            agent.history.push(json!({"role": "user", "content": "What now?"}));
            let body = agent.body();
            let (ticket, outgoing) = gateway.forward(format, &body);
            assert_eq!(ticket.thread, thread, "{format}");
            let third = sent(&outgoing, &body);
            assert!(third.contains("One moment.") && third.contains("It is found."), "{format}: {third}");
            let report = store.doctor().unwrap();
            assert!(report.is_healthy(), "{report:#?}");
        }
    }
}

#[test]
fn what_a_provider_would_refuse_of_its_own_answer_is_not_sent_back_to_it() {
    let arguments = json!({"query": "nothing says this"});
    let calls = [(RECALL_TOOL, arguments.clone())];
    let check = |format: Format, body: &str, asks: &Value, expect: &Value| {
        let mut gateway = Gateway::new();
        gateway.composing.recall = true;
        let (mut ticket, outgoing) = gateway.forward(format, body);
        let first = history_of(format, &sent(&outgoing, body));
        let (next, mut splice) = asks_back(&gateway, &mut ticket, (format, body), asks);
        let mut second = history_of(format, &sent(&next, body));
        assert_eq!(json!(second[first.len()..second.len() - 1]), *expect, "{format}");
        // Nor is it later, when the client has all of it.
        splice.continue_with();
        let (says, mut seen) = (calling(format, "two", "Nobody said it.", &[]), Vec::new());
        splice.push(says.to_string().as_bytes(), &mut seen);
        splice.end(&mut seen);
        gateway.told(
            ticket,
            format,
            &says,
            Some(RecallAnswerForm::Joined(client_events(format, &seen).unwrap())),
        );
        let mut body: Value = serde_json::from_str(body).unwrap();
        let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
        let history = body[key].as_array_mut().unwrap();
        history.extend(kept(format, &seen));
        history.push(json!({"role": "user", "content": "What now?"}));
        let body = body.to_string();
        let (_, outgoing) = gateway.forward(format, &body);
        let mut third = history_of(format, &sent(&outgoing, &body));
        second.iter_mut().chain(&mut third).for_each(unmark);
        assert!(third.starts_with(&second), "{format}: {third:?}\n{second:?}");
    };
    // Reasoning that its provider neither keeps nor sealed.
    let format = Format::OpenaiResponses;
    let mut asks = calling(format, "one", "One moment.", &calls);
    let open = json!({"type": "reasoning", "id": "rs_open", "summary": []});
    let sealed = json!({"type": "reasoning", "id": "rs_sealed", "summary": [], "encrypted_content": "x"});
    let output = asks["output"].as_array_mut().unwrap();
    output.splice(0..0, [open.clone(), sealed.clone()]);
    let all = json!(output);
    let without_open = json!(output[1..]);
    let stored = Agent::new(format).body().replace("\"store\":false", "\"store\":true");
    check(format, &stored, &asks, &all);
    check(format, &stored.replace("\"store\":true,", ""), &asks, &all);
    check(format, &Agent::new(format).body(), &asks, &without_open);
    // A text that says nothing.
    let format = Format::Anthropic;
    let asks = calling(format, "one", "\n", &calls);
    let call = json!({"type": "tool_use", "id": format!("one_{RECALL_TOOL}"), "name": RECALL_TOOL, "input": arguments});
    check(format, &Agent::new(format).body(), &asks, &json!([{"role": "assistant", "content": [call]}]));
    // An input that broke off.
    let mut asks = calling(format, "one", "One moment.", &calls);
    asks["content"][1]["input"] = json!("{\"ha");
    let mut said = asks["content"].clone();
    said[1]["input"] = json!({});
    check(format, &Agent::new(format).body(), &asks, &json!([{"role": "assistant", "content": said}]));
    // Members of an answer that no request has.
    let format = Format::OpenaiChat;
    let mut asks = calling(format, "one", "One moment.", &calls);
    let mut said = asks["choices"][0]["message"].clone();
    said.as_object_mut().unwrap().remove("refusal");
    for (key, value) in [("annotations", json!([])), ("audio", Value::Null)] {
        asks["choices"][0]["message"][key] = value;
    }
    check(format, &Agent::new(format).body(), &asks, &json!([said]));
}

#[test]
fn only_thoughts_that_are_cleared_keep_nobody_from_composing() {
    let mut agent = Agent::new(Format::Anthropic);
    let mut gateway = Gateway::new();
    for (kind, expect) in [
        ("clear_thinking_20251015", RewriteStatus::Composed),
        ("clear_tool_uses_20250919", RewriteStatus::Managed),
        ("compact_20260112", RewriteStatus::Managed),
    ] {
        let mut body: Value = serde_json::from_str(&agent.body()).unwrap();
        body["context_management"] = json!({"edits": [{"type": kind}]});
        let body = body.to_string();
        let (ticket, outgoing) = gateway.forward(Format::Anthropic, &body);
        assert_eq!(outgoing.done.left, expect, "{kind}");
        assert_eq!(sent(&outgoing, &body), body);
        gateway.answer(ticket, Format::Anthropic, &agent.answer());
        agent.goes_on("done");
    }
}
