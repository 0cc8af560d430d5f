//! Compaction items of Responses: made here where a provider has none, read here and nowhere else, and left alone where
//! somebody else made them.

use std::{fs, sync::Arc};

use epitome::wire::Format;
use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    composing::fate,
    http::Message,
    played::{Gateway, Parrot, ok, post},
    recorded::Recorded,
};

const RULE: &str = "Never touch the file config/limits.toml, whatever happens.";

const HEADERS: &str = "x-epitome-session: codex\r\n";

/// A provider that has no compaction items, and answers everything else; it keeps what it gets.
struct Plain {
    parrot: Parrot,
    seen: Arc<std::sync::Mutex<Vec<Message>>>,
}

impl Plain {
    fn new() -> Self {
        let seen: Arc<std::sync::Mutex<Vec<Message>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let parrot = Parrot::new(move |request| {
            kept.lock().expect("no panic").push(request.clone());
            vec![answer(request).into_bytes()]
        });
        Self { parrot, seen }
    }

    fn requests(&self) -> Vec<Message> {
        self.seen.lock().expect("no panic").clone()
    }

    fn newest(&self) -> String {
        self.requests().last().expect("a request").text()
    }
}

fn answer(request: &Message) -> String {
    let refuses = |status: &str, message: &str| {
        let body = json!({ "error": { "message": message, "type": "invalid_request_error" } }).to_string();
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    if request.line.contains("/v1/responses/compact") {
        return refuses("404 Not Found", "Not Found");
    }
    if request.text().contains("\"compaction_trigger\"") {
        return refuses(
            "400 Bad Request",
            "Invalid value: 'compaction_trigger'. Supported values are: 'message'.",
        );
    }
    let body = json!({ "id": "r", "object": "response", "status": "completed", "model": "m",
        "output": [{ "id": "i", "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "It is done.", "annotations": [] }] }] });
    ok("Content-Type: application/json\r\n", &body.to_string())
}

fn gateway(provider: &Plain, file: &str) -> Gateway {
    Gateway::on(
        &Arc::new(Bench::new()),
        &provider.parrot.url(),
        &["--mode", "compact", "--fail-closed"],
        file,
    )
}

/// A history of Codex's, with more or less behind it.
fn history(turns: usize) -> Vec<Value> {
    let mut items = vec![json!({ "role": "user", "content": format!("Mend crates/parser. {RULE}") })];
    for turn in 0..turns {
        let call = format!("call_{turn}");
        items.push(json!({ "type": "function_call", "call_id": call, "name": "shell",
            "arguments": format!("{{\"command\":\"look {turn}\"}}") }));
        items.push(json!({ "type": "function_call_output", "call_id": call,
            "output": format!("part {turn} is as it should be\n").repeat(40) }));
    }
    items.push(json!({ "role": "assistant", "content": "The parser fails at token 4711." }));
    items
}

fn ask(gateway: &Gateway, path: &str, headers: &str, body: &Value) -> Message {
    gateway.ask(&post(path, &format!("{HEADERS}{headers}"), &body.to_string()))
}

/// The one item of an answer.
#[track_caller]
fn item(answer: &Message) -> Value {
    assert_eq!(answer.status(), 200, "{answer:?}");
    let text = answer.text();
    let whole: Value = if answer.header("content-type").concat().contains("event-stream") {
        let events: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        let items = events.iter().filter(|event| event["type"] == "response.output_item.done");
        assert_eq!(items.count(), 1, "{text}");
        let last = events.last().expect("events");
        assert_eq!(last["type"], "response.completed", "{text}");
        last["response"].clone()
    } else {
        serde_json::from_str(&text).expect("JSON")
    };
    let output = whole["output"].as_array().expect("items");
    assert_eq!(output.len(), 1, "{whole}");
    assert_eq!(output[0]["type"], "compaction");
    output[0].clone()
}

/// A client goes on with an item in place of its history, and its provider gets our summary.
#[track_caller]
fn check_goes_on(gateway: &Gateway, provider: &Plain, item: &Value) {
    let sealed = item["encrypted_content"].as_str().expect("a text");
    assert!(!sealed.contains("parser"), "{sealed}");
    let mut items = vec![json!({ "role": "user", "content": "Mend it." }), item.clone()];
    for turn in 0..3 {
        items.push(json!({ "role": "user", "content": format!("And then part {turn}?") }));
        let answer = ask(gateway, "/v1/responses", "", &json!({ "model": "m", "input": items }));
        assert!(fate(&answer).contains("left=composed"), "{answer:?}");
        let seen = provider.newest();
        assert!(!seen.contains("\"compaction\"") && !seen.contains(sealed), "{seen}");
        for words in [RULE, "crates/parser", "token 4711"] {
            assert!(seen.contains(words), "{words}: {seen}");
        }
        items.push(json!({ "role": "assistant", "content": "It is done." }));
    }
    let recorded = Recorded::on(&gateway.bench);
    let session = recorded.session();
    assert_eq!(session.compactions, 2, "the summary, and the history that begins with it: {session:?}");
    recorded.check_calls();
}

#[test]
fn a_provider_without_compaction_items_is_helped_out_and_its_client_goes_on() {
    let input = history(20);
    let mut triggered = input.clone();
    triggered.push(json!({ "type": "compaction_trigger" }));
    for (path, body) in [
        ("/v1/responses/compact", json!({ "model": "m", "input": input })),
        ("/v1/responses", json!({ "model": "m", "input": triggered })),
        ("/v1/responses", json!({ "model": "m", "input": triggered, "stream": true })),
    ] {
        let provider = Plain::new();
        let gateway = gateway(&provider, "");
        let mut first = input.clone();
        first.pop();
        ask(&gateway, "/v1/responses", "", &json!({ "model": "m", "input": first }));
        let answer = ask(&gateway, path, "", &body);
        assert_eq!(fate(&answer), "left=summarised");
        assert_eq!(provider.newest(), body.to_string(), "it was asked first");
        check_goes_on(&gateway, &provider, &item(&answer));
    }
}

#[test]
fn where_it_is_configured_nobody_else_is_asked() {
    let provider = Plain::new();
    let gateway = gateway(&provider, "[compact]\ncompaction_items = 'gateway'\n");
    let mut input = history(20);
    input.push(json!({ "type": "compaction_trigger" }));
    let answer = ask(&gateway, "/v1/responses", "", &json!({ "model": "m", "input": input }));
    assert!(provider.requests().is_empty());
    check_goes_on(&gateway, &provider, &item(&answer));
}

#[test]
fn above_the_window_an_item_is_made_here() {
    let provider = Plain::new();
    let gateway = gateway(&provider, "");
    let body = json!({ "model": "m", "input": history(80) });
    let answer = ask(&gateway, "/v1/responses/compact", "x-epitome-window: 12000\r\n", &body);
    assert_eq!(fate(&answer), "left=summarised");
    assert!(provider.requests().is_empty());
    let whole: Value = serde_json::from_str(&answer.text()).expect("JSON");
    assert_eq!(whole["object"], "response.compaction");
    check_goes_on(&gateway, &provider, &item(&answer));
}

#[test]
fn an_item_outlives_its_gateway_and_is_nobody_elses_to_read() {
    let provider = Plain::new();
    let bench = Arc::new(Bench::new());
    let start = |bench: &Arc<Bench>| {
        let file = "[[token]]\nprincipal = 'anna'\nenv = 'ANNA_TOKEN'\n[[token]]\nprincipal = 'bob'\nenv = 'BOB_TOKEN'\n";
        Gateway::on(bench, &provider.parrot.url(), &["--mode", "compact", "--fail-closed"], file)
    };
    let anna = "x-epitome-token: t-anna\r\n";
    let gateway = start(&bench);
    let body = json!({ "model": "m", "input": history(20) });
    let item = item(&ask(&gateway, "/v1/responses/compact", anna, &body));
    drop(gateway);
    let gateway = start(&bench);
    let goes_on = json!({ "model": "m", "input": [item, { "role": "user", "content": "And now?" }] });
    ask(&gateway, "/v1/responses", anna, &goes_on);
    assert!(provider.newest().contains(RULE));
    // Another principal, and a gateway with another key, pass it on as it came.
    ask(&gateway, "/v1/responses", "x-epitome-token: t-bob\r\n", &goes_on);
    assert_eq!(provider.newest(), goes_on.to_string());
    let other = start(&Arc::new(Bench::new()));
    ask(&other, "/v1/responses", anna, &goes_on);
    assert_eq!(provider.newest(), goes_on.to_string());
    // The key stands beside the database, and in nothing that leaves the gateway.
    let key = fs::read(bench.path("log.db.seal")).expect("a key");
    assert_eq!(key.len(), 32);
    let holds = |text: &[u8]| text.windows(key.len()).any(|part| part == key);
    assert!(!provider.requests().iter().any(|request| holds(&request.body)));
    assert!(!holds(gateway.log().as_bytes()));
    assert!(!holds(&fs::read(bench.path("log.db")).expect("readable")));
}

#[test]
fn foreign_and_forged_items_pass_untouched() {
    let provider = Plain::new();
    let gateway = gateway(&provider, "");
    for (number, content) in
        ["gAAAAABk_made_by_the_provider", "epitome1.AAAAAAAAAAAAAAAAAAAAAAAAAAAA", "epitome1."]
            .iter()
            .enumerate()
    {
        let item = json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": content });
        let body = json!({ "model": "m", "input": [item, { "role": "user", "content": format!("Go on, {number}.") }] });
        let answer = ask(&gateway, "/v1/responses", &format!("x-epitome-session: s-{number}\r\n"), &body);
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert_eq!(provider.newest(), body.to_string());
    }
}

#[test]
fn what_one_provider_sealed_is_never_shown_to_another() {
    let bench = Bench::new();
    let items = json!([{ "type": "message", "role": "user", "content": "Mend it." },
        { "type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABk_made_by_openai" },
        { "type": "message", "role": "user", "content": "Go on." }]);
    let file = bench.write("r.json", json!({ "model": "gpt-5", "input": items }).to_string());
    for format in Format::ALL.into_iter().filter(|format| *format != Format::OpenaiResponses) {
        let written = bench.ok(&["compact", file.to_str().expect("UTF-8"), "--format", format.name()]);
        assert!(!written.contains("made_by_openai"), "{format}: {written}");
    }
}
