//! A client that does anything at any time, in any order: whatever goes on is legal and fits, and all of it is on record.

use std::time::Duration;

use epitome::{
    core::{Digest, ThreadId, Tokens, event::Timestamp},
    recorder::{EndedExchange, ExchangeOutcome, PendingRecord},
    rewrite::{RequestDisposition, RequestOverrides, RewriteStatus, RewrittenRequest},
    session::verify_call,
    wire::{
        Format,
        legality::{self, ProviderRules},
        overflow::ContextOverflow,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::compose::{Gateway, WINDOW, sent};

/// What a client does next.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// It runs so many tools at a time, with results of so many lines.
    Runs(usize, usize),
    /// It is answered in words, and says something.
    Talks(usize),
    /// It has the last answer written again.
    Again,
    /// It drops so many of its last turns.
    GoesBack(usize),
    /// It changes what it said so many turns ago.
    Edits(usize),
    /// The provider refuses the next request as too long.
    Overflows,
    /// The next answer breaks off.
    Breaks,
    /// The gateway is started again.
    Restarts,
    /// It asks for a compaction.
    Compacts,
    /// It has another system prompt and other tools.
    Instructs(usize),
    /// It writes its JSON in another way.
    Spaces,
    /// It asks another model, or with another window.
    Switches(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (1_usize..4, 1_usize..90).prop_map(|(calls, lines)| Deed::Runs(calls, lines)),
        3 => (1_usize..60).prop_map(Deed::Talks),
        1 => Just(Deed::Again),
        1 => (1_usize..6).prop_map(Deed::GoesBack),
        1 => (0_usize..8).prop_map(Deed::Edits),
        1 => Just(Deed::Overflows),
        1 => Just(Deed::Breaks),
        1 => Just(Deed::Restarts),
        1 => Just(Deed::Compacts),
        1 => (0_usize..3).prop_map(Deed::Instructs),
        1 => Just(Deed::Spaces),
        1 => (0_usize..3).prop_map(Deed::Switches),
    ]
}

/// A turn, as its client holds it: what was said or returned, and the answer.
#[derive(Clone, Debug)]
struct Turn {
    said: Vec<Value>,
    answer: Vec<Value>,
}

struct Client {
    format: Format,
    gateway: Gateway,
    turns: Vec<Turn>,
    /// What it says next.
    next: Vec<Value>,
    count: usize,
    instructs: usize,
    is_spaced: bool,
    model: usize,
    overflows: bool,
    breaks: bool,
    calls: Vec<(ThreadId, u64, String)>,
}

fn lines(count: usize, number: usize) -> String {
    let line = |line| format!("{number}.{line}: file src/part_{number}_{line}.rs was looked at");
    (0..count).map(line).collect::<Vec<_>>().join("\n")
}

impl Client {
    fn new(format: Format) -> Self {
        let task = json!({"role": "user", "content": "Find out why the build fails, and mend it."});
        Self {
            format,
            gateway: Gateway::new(),
            turns: Vec::new(),
            next: vec![task],
            count: 0,
            instructs: 0,
            is_spaced: false,
            model: 0,
            overflows: false,
            breaks: false,
            calls: Vec::new(),
        }
    }

    fn body(&self) -> String {
        let said = self.turns.iter().flat_map(|turn| turn.said.iter().chain(&turn.answer)).chain(&self.next);
        let mut history: Vec<Value> = said.cloned().collect();
        let system =
            ["You are careful.", "You are quick.", "You are careful, and quick, too."][self.instructs];
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let tools = 1 + self.instructs;
        let tool = |number: usize| {
            let name = if number == 0 { "bash".to_owned() } else { format!("tool_{number}") };
            match self.format {
                Format::Anthropic => json!({"name": name, "input_schema": schema}),
                Format::OpenaiChat => {
                    json!({"type": "function", "function": {"name": name, "parameters": schema}})
                }
                Format::OpenaiResponses => json!({"type": "function", "name": name, "parameters": schema}),
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            }
        };
        let tools: Vec<Value> = (0..tools).map(tool).collect();
        let model = self.model_name();
        let body = match self.format {
            Format::Anthropic => json!({"model": model, "max_tokens": 100, "system": system,
                "messages": history, "tools": tools, "stream": true}),
            Format::OpenaiChat => {
                history.insert(0, json!({"role": "system", "content": system}));
                json!({"model": model, "messages": history, "stream": true, "tools": tools})
            }
            Format::OpenaiResponses => json!({"model": model, "instructions": system, "input": history,
                "store": false, "tools": tools}),
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        if self.is_spaced { serde_json::to_string_pretty(&body).unwrap() } else { body.to_string() }
    }

    fn model_name(&self) -> &'static str {
        match (self.format, self.model) {
            (Format::Anthropic, 1) => "claude-opus-4-1",
            (Format::Anthropic, _) => "claude-sonnet-4-5",
            (_, 1) => "gpt-5",
            (_, _) => "some-model",
        }
    }

    fn wishes(&self) -> RequestOverrides {
        RequestOverrides { window: (self.model == 2).then_some(Tokens(WINDOW * 3 / 4)), compact: None }
    }

    /// What the model answers, whole and as the client sends it back: words, or calls of tools.
    fn answer(&self, calls: usize) -> (Value, Vec<Value>) {
        let number = self.count;
        let words = format!("Now step {number}.");
        let call =
            |at: usize| (format!("call_{number}_{at}"), json!({"command": format!("step {number}.{at}")}));
        let calls: Vec<(String, Value)> = (0..calls).map(call).collect();
        let mut items = Vec::new();
        let whole = match self.format {
            Format::Anthropic => {
                let mut content = vec![json!({"type": "text", "text": words})];
                content.extend(calls.iter().map(
                    |(id, input)| json!({"type": "tool_use", "id": id, "name": "bash", "input": input}),
                ));
                items.push(json!({"role": "assistant", "content": content}));
                let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
                json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant",
                    "model": self.model_name(), "stop_reason": reason, "content": content,
                    "usage": {"input_tokens": 5, "output_tokens": 2}})
            }
            Format::OpenaiChat => {
                let mut message = json!({"role": "assistant", "content": words});
                if !calls.is_empty() {
                    let call = |(id, arguments): &(String, Value)| {
                        json!({"id": id, "type": "function",
                            "function": {"name": "bash", "arguments": arguments.to_string()}})
                    };
                    message["tool_calls"] = calls.iter().map(call).collect();
                }
                items.push(message.clone());
                let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
                json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 1,
                    "model": self.model_name(),
                    "choices": [{"index": 0, "finish_reason": reason, "message": message}]})
            }
            Format::OpenaiResponses => {
                items.push(json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [],
                    "encrypted_content": "x"}));
                if calls.is_empty() {
                    items.push(json!({"type": "message", "id": format!("m_{number}"), "role": "assistant",
                        "status": "completed",
                        "content": [{"type": "output_text", "text": words, "annotations": []}]}));
                }
                items.extend(calls.iter().map(|(id, arguments)| {
                    json!({"type": "function_call", "call_id": id, "name": "bash",
                        "arguments": arguments.to_string()})
                }));
                json!({"id": format!("resp_{number}"), "object": "response", "created_at": 1,
                    "model": self.model_name(), "status": "completed", "output": items})
            }
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        };
        (whole, items)
    }

    /// What the client sends after an answer: results of its calls, or words.
    fn replies(&self, calls: usize, count: usize) -> Vec<Value> {
        let number = self.count;
        if calls == 0 {
            return vec![json!({"role": "user", "content": lines(count, number)})];
        }
        let results = (0..calls).map(|at| {
            let (id, text) = (format!("call_{number}_{at}"), lines(count, number * 10 + at));
            match self.format {
                Format::Anthropic => json!({"type": "tool_result", "tool_use_id": id, "content": text}),
                Format::OpenaiChat => json!({"role": "tool", "tool_call_id": id, "content": text}),
                Format::OpenaiResponses => {
                    json!({"type": "function_call_output", "call_id": id, "output": text})
                }
                Format::Gemini => unreachable!("it is tried in tests of its own"),
            }
        });
        if self.format == Format::Anthropic {
            return vec![json!({"role": "user", "content": results.collect::<Vec<_>>()})];
        }
        results.collect()
    }

    fn does(&mut self, deed: Deed) {
        self.count += 1;
        match deed {
            Deed::Runs(calls, lines) => self.turn(calls, lines),
            Deed::Talks(lines) => self.turn(0, lines),
            Deed::Again => {
                if let Some(turn) = self.turns.pop() {
                    self.next = turn.said;
                    self.turn(1, 5);
                }
            }
            Deed::GoesBack(turns) => {
                let left = self.turns.len().saturating_sub(turns);
                if left < self.turns.len() {
                    self.next.clone_from(&self.turns[left].said);
                    self.turns.truncate(left);
                    self.turn(0, 3);
                }
            }
            Deed::Edits(turns) => self.edit(turns),
            Deed::Overflows => self.overflows = true,
            Deed::Breaks => self.breaks = true,
            Deed::Restarts => {
                let gateway = std::mem::replace(&mut self.gateway, Gateway::new());
                self.gateway = gateway.restarted();
            }
            Deed::Compacts => self.compact(),
            Deed::Instructs(how) => self.instructs = how,
            Deed::Spaces => self.is_spaced = !self.is_spaced,
            Deed::Switches(model) => self.model = model,
        }
    }

    /// The client changes a text of its own, and goes on.
    fn edit(&mut self, turns: usize) {
        // With other first words it would be another session.
        let at = self.turns.len().saturating_sub(turns + 1).max(1);
        let Some(turn) = self.turns.get_mut(at) else { return };
        let Some(item) = turn.said.last_mut() else { return };
        let other = json!(format!("What was here was wrong; this is right: {}.", self.count));
        if item.get("output").is_some() {
            item["output"] = other;
        } else if item["content"][0]["type"] == "tool_result" {
            item["content"][0]["content"] = other;
        } else {
            item["content"] = other;
        }
    }

    fn turn(&mut self, calls: usize, lines: usize) {
        let body = self.body();
        let (ticket, outgoing) = self.asks(&body);
        let ticket = self.refused(ticket, &outgoing, &body);
        let (whole, items) = self.answer(calls);
        if std::mem::take(&mut self.breaks) {
            self.end(ticket, Vec::new(), ExchangeOutcome::Cut);
            return;
        }
        let answer = self.format.decode_response(&whole.to_string()).unwrap();
        self.end(ticket, answer, ExchangeOutcome::Complete);
        let said = std::mem::take(&mut self.next);
        self.turns.push(Turn { said, answer: items });
        self.next = self.replies(calls, lines);
    }

    fn asks(&mut self, body: &str) -> (PendingRecord, RewrittenRequest) {
        let (ticket, way) = self.gateway.compose(self.format, body, &self.wishes());
        let RequestDisposition::Forward(outgoing) = way else { panic!("{way:?}") };
        self.check(&outgoing, body);
        (ticket, outgoing)
    }

    fn refused(
        &mut self,
        mut ticket: PendingRecord,
        outgoing: &RewrittenRequest,
        body: &str,
    ) -> PendingRecord {
        let after = outgoing.done.after;
        // No provider takes as little as a task and its tools.
        if after > Tokens(WINDOW / 3) && std::mem::take(&mut self.overflows) {
            let refused = ContextOverflow { limit: Some(Tokens(after.0 * 9 / 10)), asked: Some(after) };
            if let Some(smaller) = self.gateway.smaller(&mut ticket, self.format, body, refused) {
                assert!(smaller.done.after < after, "{:?} after {after}", smaller.done);
                self.check(&smaller, body);
            }
        }
        ticket
    }

    fn check(&mut self, outgoing: &RewrittenRequest, body: &str) {
        let woven = sent(outgoing, body);
        let done = &outgoing.done;
        assert_eq!(done.left, RewriteStatus::Composed, "{done:?}");
        let window = self.wishes().window.unwrap_or(Tokens(WINDOW));
        assert!(done.after <= window && done.after <= done.before, "{done:?}");
        let found = legality::check(self.format, &woven, &ProviderRules::of(self.format));
        assert!(found.is_empty(), "{found:?}\n{woven}\n{body}");
        let (thread, call) = done.call.unwrap();
        self.calls.push((thread, call, woven));
    }

    fn end(&mut self, ticket: PendingRecord, answer: Vec<epitome::core::Event>, ending: ExchangeOutcome) {
        let end = EndedExchange {
            answer,
            told: None,
            ending,
            status: Some(200),
            bytes: 10,
            first_byte: None,
            took: Duration::from_millis(1),
            at: Timestamp(1_000_000),
            observed: None,
        };
        self.gateway.recorder.finish(ticket, end).unwrap();
    }

    /// In place of the next request.
    fn compact(&mut self) {
        let wishes = RequestOverrides { compact: Some(String::new()), ..self.wishes() };
        let (ticket, way) = self.gateway.compose(self.format, &self.body(), &wishes);
        let RequestDisposition::Answer { words, .. } = way else { panic!("{way:?}") };
        let (mut whole, mut items) = self.answer(0);
        let said = json!(words);
        match self.format {
            Format::Anthropic => {
                whole["content"][0]["text"] = said.clone();
                items[0]["content"][0]["text"] = said;
            }
            Format::OpenaiChat => {
                whole["choices"][0]["message"]["content"] = said.clone();
                items[0]["content"] = said;
            }
            Format::OpenaiResponses => {
                whole["output"][1]["content"][0]["text"] = said.clone();
                items[1]["content"][0]["text"] = said;
            }
            Format::Gemini => unreachable!("it is tried in tests of its own"),
        }
        let answer = self.format.decode_response(&whole.to_string()).unwrap();
        self.end(ticket, answer, ExchangeOutcome::Complete);
        let said = std::mem::take(&mut self.next);
        self.turns.push(Turn { said, answer: items });
        self.next = self.replies(0, 2);
    }

    fn check_record(&self) {
        let store = self.gateway.recorder.store();
        for (thread, call, body) in &self.calls {
            let again = verify_call(&**store, *thread, *call).unwrap();
            assert_eq!(&again.rendered.body, body, "call {call} of {thread}");
            assert_eq!(again.row.call.hash, Digest::of(body.as_bytes()));
        }
        let report = store.doctor().unwrap();
        assert!(report.is_healthy(), "{report:#?}");
        assert_eq!(store.sessions().unwrap().len(), 1);
    }
}

fn check(format: Format, deeds: &[Deed]) {
    let mut client = Client::new(format);
    for deed in deeds {
        client.does(*deed);
    }
    client.check_record();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_client_does_to_a_chat_it_fits_and_is_on_record(deeds in prop::collection::vec(deed(), 10..45)) {
        check(Format::OpenaiChat, &deeds);
    }

    #[test]
    fn whatever_a_client_does_to_messages_they_fit_and_are_on_record(deeds in prop::collection::vec(deed(), 10..45)) {
        check(Format::Anthropic, &deeds);
    }

    #[test]
    fn whatever_a_client_does_to_responses_they_fit_and_are_on_record(deeds in prop::collection::vec(deed(), 10..45)) {
        check(Format::OpenaiResponses, &deeds);
    }
}

#[test]
fn what_a_compaction_shows_again_is_on_record_as_the_client_wrote_it() {
    let deeds = [
        Deed::Runs(2, 9),
        Deed::Runs(3, 46),
        Deed::Runs(1, 18),
        Deed::Talks(39),
        Deed::Runs(1, 80),
        Deed::Overflows,
        Deed::Runs(2, 59),
        Deed::Runs(2, 46),
        Deed::Runs(2, 40),
        // From here on it writes its requests in another form than the log has them.
        Deed::Spaces,
        Deed::Edits(0),
        Deed::Runs(1, 76),
        Deed::Breaks,
        Deed::Runs(1, 1),
        Deed::Compacts,
        Deed::Runs(1, 1),
    ];
    check(Format::OpenaiChat, &deeds);
}
