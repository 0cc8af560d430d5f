//! An agent that works on and on and sends its whole history each time, and a provider that looks at every request it gets.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use epitome::wire::{
    Format,
    legality::{self, ProviderRules},
};
use serde_json::{Value, json};

use super::{
    http::Message,
    played::{Gateway, Parrot, ok, post},
};

/// The window of the models here, in tokens.
pub(super) const WINDOW: u32 = 16_000;

/// Longer than any request takes that waits for nobody, on a machine that is busy.
const PROMPT: Duration = Duration::from_secs(5);

/// An agent.
pub(super) struct Agent {
    pub(super) format: Format,
    model: String,
    pub(super) path: String,
    pub(super) headers: String,
    pub(super) history: Vec<Value>,
    turn: usize,
    /// Servers with tools that its provider calls.
    pub(super) servers: Option<Value>,
}

impl Agent {
    /// Speaks Chat to a model that nobody knows anything about.
    pub(super) fn chat(headers: &str) -> Self {
        Self::new(Format::OpenaiChat, "some-model", headers)
    }

    /// Speaks Anthropic's format to a model whose prices are known.
    pub(super) fn anthropic(headers: &str) -> Self {
        Self::new(Format::Anthropic, "claude-opus-4-5", headers)
    }

    fn new(format: Format, model: &str, headers: &str) -> Self {
        let task =
            json!({ "role": "user", "content": "Find out why the build fails, and mend src/main.rs." });
        let path = if format == Format::Anthropic { "/v1/messages" } else { "/v1/chat/completions" };
        let (model, path, headers) = (model.to_owned(), path.to_owned(), headers.to_owned());
        Self { format, model, path, headers, history: vec![task], turn: 0, servers: None }
    }

    /// At another address.
    pub(super) fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The request for the next step.
    pub(super) fn body(&self) -> String {
        let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
        let (model, history) = (&self.model, &self.history);
        let mut body = match self.format {
            Format::Anthropic => json!({ "model": model, "max_tokens": 100, "system": "You are careful.",
                "messages": history, "tools": [{ "name": "bash", "input_schema": schema }] }),
            _ => json!({ "model": model, "messages": history,
                "tools": [{ "type": "function", "function": { "name": "bash", "parameters": schema } }] }),
        };
        if let Some(servers) = &self.servers {
            body["mcp_servers"] = servers.clone();
        }
        body.to_string()
    }

    /// Asks for the next step and takes it; what became of its request. No request waits for a summary.
    #[track_caller]
    pub(super) fn goes_on(&mut self, gateway: &Gateway) -> Fate {
        let began = Instant::now();
        let answer = gateway.ask(&post(&self.path, &self.headers, &self.body()));
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
        assert_eq!(answer.status(), 200, "{answer:?}");
        let said: Value = serde_json::from_str(&answer.text()).expect("an answer");
        let (call, turn) = (format!("call_{}", self.turn), self.turn);
        let line = format!("step {turn} has found nothing out of order in what it looked at so far\n");
        let result = line.repeat(32);
        if self.format == Format::Anthropic {
            self.history.push(json!({ "role": "assistant", "content": said["content"] }));
            self.history.push(json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": call, "content": result }] }));
        } else {
            self.history.push(said["choices"][0]["message"].clone());
            self.history.push(json!({ "role": "tool", "tool_call_id": call, "content": result }));
        }
        self.turn += 1;
        Fate::of(&answer)
    }

    /// Goes on until a request is smaller than what the agent sent.
    #[track_caller]
    pub(super) fn until_compacted(&mut self, gateway: &Gateway) -> Vec<Fate> {
        let mut fates = Vec::new();
        while fates.last().is_none_or(|fate: &Fate| fate.before == fate.after) {
            assert!(fates.len() < 60, "{fates:?}");
            fates.push(self.goes_on(gateway));
        }
        fates
    }
}

/// What the gateway says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) left: String,
    pub(super) cause: Option<String>,
    pub(super) before: u32,
    pub(super) after: u32,
}

impl Fate {
    fn of(answer: &Message) -> Self {
        let said = answer.header("x-epitome").concat();
        let find = |name: &str| {
            let mut members = said.split(", ").filter_map(|member| member.split_once('='));
            members.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"').to_owned())
        };
        let number = |name: &str| find(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        Self {
            left: find("left").expect("it is said"),
            cause: find("cause"),
            before: number("before"),
            after: number("after"),
        }
    }
}

/// A provider of models with a small window, which are asked for the next step, or for a summary.
pub(super) struct Watchful {
    parrot: Parrot,
    seen: Arc<Mutex<Seen>>,
}

/// What a provider got.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Requests of agents.
    pub(super) requests: Vec<Message>,
    /// Questions for a summary.
    pub(super) questions: Vec<Message>,
    /// What is wrong with any of them.
    wrong: Vec<String>,
}

impl Watchful {
    /// Answers questions for a summary with the pieces that `notes` gives; with none, it never does.
    pub(super) fn new(notes: impl Fn(&Message) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let watched = Arc::clone(&seen);
        let parrot = Parrot::new(move |request| {
            let mut seen = watched.lock().expect("no panic");
            if is_question(request) {
                seen.questions.push(request.clone());
                drop(seen);
                return notes(request);
            }
            seen.wrong.extend(faults(request));
            let answer = step(request, &seen.requests);
            seen.requests.push(request.clone());
            vec![answer.into_bytes()]
        });
        Self { parrot, seen }
    }

    pub(super) fn url(&self) -> String {
        self.parrot.url()
    }

    /// Looks at what came: every request of an agent must be one that a provider takes.
    #[track_caller]
    pub(super) fn saw<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        let seen = self.seen.lock().expect("no panic");
        assert_eq!(seen.wrong, Vec::<String>::new());
        look(&seen)
    }
}

fn format(request: &Message) -> Format {
    if request.line.contains("/v1/messages") { Format::Anthropic } else { Format::OpenaiChat }
}

/// Whether a request asks for a summary: apart, or by going on with a session's own.
pub(super) fn is_question(request: &Message) -> bool {
    let body = request.text();
    body.contains("You keep the notes of somebody else's work")
        || body.contains("Stop here: this message does not continue the task")
}

/// What a provider would refuse.
fn faults(request: &Message) -> Vec<String> {
    let (format, body) = (format(request), request.text());
    let mut faults: Vec<String> =
        legality::check(format, &body, &ProviderRules::of(format)).iter().map(ToString::to_string).collect();
    if body.len() / 4 > WINDOW as usize {
        faults.push(format!("{} bytes are more than the window holds", body.len()));
    }
    faults
}

/// What the agent says with every step.
const ABOUT: &str = "I look at every part because one of them is broken.";

/// The next step, and what it used.
fn step(request: &Message, before: &[Message]) -> String {
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    let (number, turns) = (before.len(), body["messages"].as_array().map_or(0, Vec::len));
    let Used { read, written } = Used::by(request, before.last());
    // A history names each call once, however much of it is left.
    let turn = calls(&request.text()).map_or(0, |newest| newest + 1);
    let (call, words) = (format!("call_{turn}"), format!("{ABOUT} Now for the next of {turns}."));
    let arguments = json!({ "command": format!("look at part {turn}") });
    let body = if format(request) == Format::Anthropic {
        json!({ "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": body["model"],
            "content": [{ "type": "text", "text": words },
                { "type": "tool_use", "id": call, "name": "bash", "input": arguments }],
            "stop_reason": "tool_use", "usage": { "input_tokens": 0, "output_tokens": 20,
                "cache_read_input_tokens": read, "cache_creation_input_tokens": written } })
    } else {
        json!({ "id": format!("chat_{number}"), "object": "chat.completion", "model": body["model"],
            "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": words, "tool_calls": [{ "id": call, "type": "function",
                    "function": { "name": "bash", "arguments": arguments.to_string() } }] } }],
            "usage": { "prompt_tokens": read + written, "completion_tokens": 20 } })
    };
    ok("Content-Type: application/json\r\n", &body.to_string())
}

/// The input of a request, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// Read from the cache.
    pub(super) read: u32,
    /// Written to it.
    pub(super) written: u32,
}

impl Used {
    /// What a request uses that comes after another one.
    pub(super) fn by(request: &Message, last: Option<&Message>) -> Self {
        // As a cache sees it: what changes least comes first.
        let text = |request: &Message| {
            let mut body: Value = serde_json::from_slice(&request.body).expect("JSON");
            unmark(&mut body);
            ["tools", "system", "messages"].map(|part| body[part].to_string()).concat()
        };
        let (now, before) = (text(request), last.map(text).unwrap_or_default());
        let same = now.bytes().zip(before.bytes()).take_while(|(now, before)| now == before).count();
        let tokens = |bytes: usize| u32::try_from(bytes / 4).expect("few");
        Self { read: tokens(same), written: tokens(now.len() - same) }
    }
}

/// Takes out the marks of what is to be cached, which move, and what words need to bear one.
fn unmark(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            if let Some(Value::String(words)) = members.get("content") {
                let block = json!([{ "type": "text", "text": words }]);
                members.insert("content".to_owned(), block);
            }
            members.values_mut().for_each(unmark);
        }
        Value::Array(elements) => elements.iter_mut().for_each(unmark),
        _ => {}
    }
}

/// The number of the newest call in a history.
fn calls(body: &str) -> Option<usize> {
    let number = |rest: &str| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok();
    body.split("call_").skip(1).filter_map(number).max()
}
