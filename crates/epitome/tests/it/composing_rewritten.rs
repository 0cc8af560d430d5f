//! Clients that tell their newest answer in words of their own, or keep a message near the end of every request: one session
//! each, whose compactions hold, and whose provider's cache is used as well as without a gateway.

use std::{collections::BTreeSet, time::Duration};

use epitome::{
    core::{
        Digest, SessionId, Tokens,
        cost::{CacheAssumption, SettingDigests, SimulatedCache, SimulatedCall},
        event::{Timestamp, Usage},
        profile::Profiles,
    },
    recorder::{EndedExchange, ExchangeOutcome, FinishOutcome, PendingRecord, PlacementKind, RequestArrival},
    rewrite::{RequestDisposition, RequestOverrides, RewrittenRequest, compose},
    session::verify_call,
    wire::{Format, PromptMemo},
};
use serde_json::{Value, json};

use super::compose::{Gateway, result, sent};

const FORMAT: Format = Format::OpenaiChat;
const MODEL: &str = "gpt-5";
const CALLS: usize = 20;

/// What a client does with its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    /// Sends back what it was answered, to compare with.
    Plain,
    /// Writes the call into the answer's text, and the complaint of its validation behind it.
    Instructor,
    /// Tells calls and results as text.
    Smolagents,
    /// Keeps the files it edits before the newest prompt, and its rules in a message behind it.
    Aider,
    /// The same with its rules in the newest prompt.
    AiderWithRulesInPrompt,
    /// Lists its folder in its first message, anew with each of its starts.
    QwenCode,
}

impl Client {
    const ALL: [Self; 5] =
        [Self::Instructor, Self::Smolagents, Self::Aider, Self::AiderWithRulesInPrompt, Self::QwenCode];

    fn is_aider(self) -> bool {
        matches!(self, Self::Aider | Self::AiderWithRulesInPrompt)
    }
}

/// A client at work.
struct Script {
    client: Client,
    /// What was said so far, as the client keeps it.
    done: Vec<Value>,
    turn: usize,
    /// Which of several scripts that are alike this is.
    number: usize,
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

const RULES: &str = "# *SEARCH/REPLACE block* Rules: every block must match the file exactly.";

impl Script {
    fn new(client: Client, number: usize) -> Self {
        let done = match client {
            Client::Plain | Client::Instructor | Client::QwenCode => {
                vec![user("Extract every part of the build from the report below.")]
            }
            Client::Smolagents => {
                vec![
                    json!({"role": "user", "content": [{"type": "text", "text": "New task:\nFind the slow part."}]}),
                ]
            }
            Client::Aider | Client::AiderWithRulesInPrompt => Vec::new(),
        };
        Self { client, done, turn: 0, number }
    }

    fn prompt(&self) -> String {
        format!("Now change part {} of run {}, and say why.\n{}", self.turn, self.number, result(self.turn))
    }

    fn body(&self) -> String {
        let mut messages = vec![json!({"role": "system", "content": "You are careful. ".repeat(200)})];
        if self.client == Client::QwenCode {
            messages.extend([user(&self.folder()), said("Got it. Thanks for the context!")]);
        }
        messages.extend(self.done.iter().cloned());
        if self.client.is_aider() {
            // The files change with every third edit.
            let files = format!(
                "I have *added these files to the chat*.\nmain.rs version {}\n{}",
                self.turn / 3,
                result(900)
            );
            messages.extend([user(&files), said("Ok, any changes I propose will be to those files.")]);
            match self.client {
                Client::AiderWithRulesInPrompt => {
                    messages.push(user(&format!("{}\n\n{RULES}", self.prompt())));
                }
                _ => messages.extend([user(&self.prompt()), json!({"role": "system", "content": RULES})]),
            }
        }
        let mut body = json!({"model": MODEL, "messages": messages});
        if !self.client.is_aider() {
            let parameters = json!({"type": "object", "properties": {"command": {"type": "string"}}});
            let function = json!({"name": "run", "parameters": parameters});
            body["tools"] = json!([{"type": "function", "function": function}]);
        }
        body.to_string()
    }

    /// What the client says of its folder; it was started anew with every fifth call.
    fn folder(&self) -> String {
        let files: Vec<String> = (0..self.turn / 5).map(|file| format!("├───read-{file}")).collect();
        let files = files.join("\n");
        format!(
            "This is the Qwen Code. We are setting up the context for our chat.\nThe folder has:\n{files}"
        )
    }

    fn call(&self) -> (String, String) {
        let arguments = json!({"command": format!("look at part {} of run {}", self.turn, self.number)});
        (format!("call_{}_{}", self.number, self.turn), arguments.to_string())
    }

    fn answer(&self) -> Value {
        let message = if self.client.is_aider() {
            json!({"role": "assistant", "content": self.words()})
        } else {
            let (id, arguments) = self.call();
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "run", "arguments": arguments}}]})
        };
        json!({"id": format!("chatcmpl-{}-{}", self.number, self.turn), "object": "chat.completion", "created": 1,
            "model": MODEL, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
    }

    fn words(&self) -> String {
        format!("Part {} of run {} was changed because it was slow.", self.turn, self.number)
    }

    /// Takes the answer as the client does.
    fn goes_on(&mut self) {
        let (id, arguments) = self.call();
        let told = format!("{}\n{}", result(2 * self.turn), result(2 * self.turn + 1));
        match self.client {
            Client::Plain | Client::QwenCode => {
                let call = json!({"id": id, "type": "function", "function": {"name": "run", "arguments": arguments}});
                self.done.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
                self.done.push(json!({"role": "tool", "tool_call_id": id, "content": told}));
            }
            Client::Instructor => {
                let function = json!({"name": "run", "arguments": arguments});
                let call = json!({"id": id, "type": "function", "function": function});
                let content = function.to_string();
                self.done.push(json!({"role": "assistant", "content": content, "tool_calls": [call]}));
                let error = format!("Validation Error found:\n{told}\nRecall the function correctly.");
                self.done.push(json!({"role": "tool", "tool_call_id": id, "name": "run", "content": error}));
            }
            Client::Smolagents => {
                let call = format!(
                    "Calling tools:\n[{{'id': '{id}', 'type': 'function', 'function': {{'name': 'run', 'arguments': {arguments}}}}}]"
                );
                self.done.push(json!({"role": "assistant", "content": [{"type": "text", "text": call}]}));
                let seen = format!("Observation:\n{told}");
                self.done.push(json!({"role": "user", "content": [{"type": "text", "text": seen}]}));
            }
            Client::Aider | Client::AiderWithRulesInPrompt => {
                self.done.extend([user(&self.prompt()), said(&self.words())]);
            }
        }
        self.turn += 1;
    }
}

/// A provider that remembers what it was sent.
struct Provider {
    cache: SimulatedCache,
    memo: PromptMemo,
    total: Usage,
    clock: i64,
}

impl Provider {
    fn new() -> Self {
        let profiles = Profiles::builtin();
        let profile = profiles.find(MODEL).unwrap();
        let cache =
            SimulatedCache::new(&profile.cache, &profile.prices, CacheAssumption::Breakpoints).unwrap();
        let memo = PromptMemo::new(std::sync::Arc::new(profile.meter()));
        Self { cache, memo, total: Usage::default(), clock: 0 }
    }

    fn serve(&mut self, body: &str) {
        self.clock += 2_000;
        let prompt = FORMAT.prompt(body, &mut self.memo).unwrap();
        let settings = SettingDigests::default();
        let call = SimulatedCall {
            at: Timestamp(self.clock),
            model: MODEL,
            prompt: &prompt,
            settings: &settings,
            output: Tokens(50),
        };
        let usage = self.cache.serve(&call).usage;
        self.total.uncached += usage.uncached;
        self.total.cache_read += usage.cache_read;
        self.total.cache_write += usage.cache_write;
    }

    /// How many of a hundred tokens were read from the cache.
    fn cached(&self) -> u64 {
        100 * self.total.cache_read.0 / self.total.input().0
    }

    fn cost(&self) -> u128 {
        u128::from(self.total.cache_read.0)
            + 10 * u128::from(self.total.uncached.0 + self.total.cache_write.0)
    }
}

fn ask(
    gateway: &Gateway,
    headers: &[(&str, &str)],
    body: &str,
    at: i64,
) -> (PendingRecord, RewrittenRequest) {
    let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let at = Timestamp(at);
    let arrival = RequestArrival {
        principal: "",
        format: FORMAT,
        body,
        shared: None,
        header: &header,
        at,
        purpose: None,
    };
    let composed =
        compose(&gateway.recorder, &arrival, &gateway.composing, &RequestOverrides::default()).unwrap();
    let RequestDisposition::Forward(outgoing) = composed.way else { panic!("{:?}", composed.way) };
    (composed.ticket, outgoing)
}

fn end(gateway: &Gateway, ticket: PendingRecord, answer: &Value, at: i64) {
    let end = EndedExchange {
        answer: FORMAT.decode_response(&answer.to_string()).unwrap(),
        ending: ExchangeOutcome::Complete,
        status: Some(200),
        bytes: 10,
        first_byte: None,
        took: Duration::from_millis(500),
        at: Timestamp(at),
        observed: None,
        told: None,
    };
    let finish = gateway.recorder.begin_finish(ticket, end).wait();
    if let FinishOutcome::Unsettled(unfinished) = finish.unwrap() {
        gateway.recorder.settle(*unfinished).unwrap();
    }
}

/// Every call verifies to the bytes that were sent.
fn check_record(gateway: &Gateway) {
    let store = gateway.recorder.store();
    for session in store.sessions().unwrap() {
        for thread in store.threads(session.id).unwrap() {
            let calls = store.calls(thread.id, 0, usize::MAX >> 1).unwrap();
            for row in calls.into_iter().filter(|row| row.thread == thread.id) {
                assert!(verify_call(&**store, thread.id, row.number).unwrap().is_same(), "{row:?}");
            }
        }
    }
    let report = store.doctor().unwrap();
    assert!(report.is_healthy(), "{report:#?}");
}

/// What twenty calls came to.
struct Played {
    sessions: BTreeSet<SessionId>,
    compactions: usize,
    direct: Provider,
    through: Provider,
    gateway: Gateway,
}

fn play(client: Client, window: u64, headers: &[(&str, &str)]) -> Played {
    let mut gateway = Gateway::new();
    gateway.composing.window = Some(Tokens(window));
    let (mut direct, mut through) = (Provider::new(), Provider::new());
    let (mut sessions, mut compactions) = (BTreeSet::new(), 0);
    let mut script = Script::new(client, 0);
    for turn in 0..CALLS {
        if turn == CALLS / 2 {
            gateway = gateway.restarted();
        }
        let body = script.body();
        let at = 1_000 * i64::try_from(turn).unwrap();
        let (ticket, outgoing) = ask(&gateway, headers, &body, at);
        let woven = sent(&outgoing, &body);
        let (thread, call) = outgoing.done.call.unwrap();
        let row = gateway.recorder.store().call(thread, call);
        if let Ok(row) = row {
            assert_eq!(row.call.hash, Digest::of(woven.as_bytes()), "{client:?}, turn {turn}");
        }
        assert!(outgoing.done.after <= Tokens(window), "{client:?}, turn {turn}: {:?}", outgoing.done);
        if client == Client::QwenCode {
            let folder = json!(script.folder()).to_string();
            assert!(woven.contains(&folder), "turn {turn}: the folder as it is now");
        }
        direct.serve(&body);
        through.serve(&woven);
        sessions.insert(ticket.session);
        compactions += usize::from(outgoing.done.compaction.is_some());
        end(&gateway, ticket, &script.answer(), at + 500);
        script.goes_on();
    }
    check_record(&gateway);
    Played { sessions, compactions, direct, through, gateway }
}

#[test]
fn clients_that_rewrite_their_history_are_one_session_and_use_their_providers_cache() {
    for client in Client::ALL {
        for headers in [&[][..], &[("x-epitome-session", "mine")]] {
            let Played { sessions, compactions, direct, through, gateway } = play(client, 60_000, headers);
            let told = format!(
                "{client:?} {headers:?}: cached {} direct, {} through; {compactions} compactions",
                direct.cached(),
                through.cached()
            );
            assert_eq!(sessions.len(), 1, "{told}");
            assert_eq!(gateway.recorder.store().sessions().unwrap().len(), 1, "{told}");
            assert!(through.cached() + 10 >= direct.cached(), "{told}");
            assert!(through.cost() <= direct.cost(), "{told}");
        }
    }
}

#[test]
fn what_was_compacted_for_a_client_that_rewrites_its_history_stays_compacted() {
    // A window that no client fits into without a gateway: what it costs a client that changes nothing is what is to be had.
    let plain = play(Client::Plain, 16_000, &[]);
    for client in Client::ALL {
        let Played { sessions, compactions, direct, through, .. } = play(client, 16_000, &[]);
        let told = format!(
            "{client:?}: cached {} direct, {} through, {} plain; {compactions} compactions, {} plain",
            direct.cached(),
            through.cached(),
            plain.through.cached(),
            plain.compactions
        );
        assert_eq!(sessions.len(), 1, "{told}");
        assert!((1..=plain.compactions + 1).contains(&compactions), "{told}");
        // Whoever changes what it sent and is compacted pays for both.
        let both = direct.cached() * plain.through.cached() / 100;
        assert!(through.cached() >= both, "{told}");
    }
}

#[test]
fn scripts_that_are_alike_each_keep_their_session() {
    for client in Client::ALL {
        let gateway = Gateway::new();
        let mut scripts = [Script::new(client, 1), Script::new(client, 2)];
        let mut sessions: [BTreeSet<SessionId>; 2] = Default::default();
        for turn in 0..6 {
            let tickets = scripts.each_ref().map(|script| ask(&gateway, &[], &script.body(), turn).0);
            for ((ticket, script), sessions) in tickets.into_iter().zip(&mut scripts).zip(&mut sessions) {
                sessions.insert(ticket.session);
                if turn > 0 {
                    let placed = if client == Client::QwenCode {
                        PlacementKind::Continued
                    } else {
                        PlacementKind::Forked
                    };
                    assert_eq!(ticket.placed, placed, "{client:?}, turn {turn}");
                }
                end(&gateway, ticket, &script.answer(), turn);
                script.goes_on();
            }
        }
        assert_eq!(sessions.each_ref().map(BTreeSet::len), [1, 1], "{client:?}");
        assert_ne!(sessions[0], sessions[1], "{client:?}");
        check_record(&gateway);
    }
}
