//! What clients and providers write into every field that is read: it is stored as what it is, and never becomes a line of
//! a log, a statement or a sample.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    played::{Gateway, Provider, RECORDING, Setup, get, ok, post},
    recorded::Recorded,
};

/// As much as a header can hold.
const SQL: &str = "x'; DROP TABLE sessions; --\"%s$(id)`{}\\";

/// As much as JSON can hold.
const WILD: &str = "x'); DELETE FROM events; --\"\r\n{\"level\":\"ERROR\",\"message\":\"forged\"}\n\u{1b}[2J\u{0}\u{2028}\u{9b}\u{202e}\n\
                    epitome_forged_total 1\n2026-01-01T00:00:00Z ERROR forged";

/// Every header that says who sends a request.
const HEADERS: [&str; 19] = [
    "user-agent",
    "originator",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "x-codex-turn-metadata",
    "x-codex-window-id",
    "x-codex-parent-thread-id",
    "x-client-request-id",
    "x-openai-subagent",
    "session-id",
    "thread-id",
    "session_id",
    "conversation_id",
    "x-session-id",
    "x-session-affinity",
    "x-parent-session-id",
    "agent-session-id",
    "x-epitome-session",
];

fn requests() -> Vec<String> {
    let chat = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    let mut requests: Vec<String> = HEADERS
        .iter()
        .map(|name| post("/v1/chat/completions", &format!("{name}: {SQL}\r\n"), &chat))
        .collect();
    let turn = json!({ "session_id": WILD, "thread_id": WILD, "request_kind": WILD }).to_string();
    // JSON in a header is escaped, and what it says is not.
    requests.push(post("/v1/responses", &format!("x-codex-turn-metadata: {}\r\n", ascii(&turn)), &chat));
    let user = json!({ "session_id": WILD, "device_id": WILD }).to_string();
    let tool = json!({ "type": "function", "function": { "name": WILD, "parameters": {} } });
    let call = json!({ "id": WILD, "type": "function", "function": { "name": WILD, "arguments": WILD } });
    for body in [
        json!({ "model": WILD, "messages": [{ "role": "user", "content": WILD, "name": WILD }] }),
        json!({ "model": "m", "messages": [{ "role": WILD, "content": WILD }] }),
        json!({ "model": "m", "metadata": { "session_id": WILD, "user_id": WILD }, "messages": [], "user": WILD }),
        json!({ "model": "m", "metadata": { "user_id": user }, "messages": [{ "role": "user", "content": "a" }] }),
        json!({ "model": "m", "metadata": { "user_id": format!("user_session_{WILD}") }, "messages": [] }),
        json!({ "model": "m", WILD: WILD, "tools": [tool], "messages": [
            { "role": "user", "content": "b" },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": WILD, "content": WILD },
        ] }),
    ] {
        requests.push(post("/v1/chat/completions", "", &body.to_string()));
    }
    for body in [
        json!({ "model": WILD, "input": WILD, "previous_response_id": WILD }),
        json!({ "model": WILD, "input": WILD, "conversation": WILD, "prompt_cache_key": WILD }),
        json!({ "model": WILD, "input": WILD, "conversation": { "id": WILD }, "client_metadata": { "x-codex-turn-metadata": turn } }),
        json!({ "model": WILD, "input": [{ "type": "item_reference", "id": WILD }, { "type": WILD, "id": WILD }] }),
    ] {
        requests.push(post("/v1/responses", "session_id: s\r\n", &body.to_string()));
    }
    requests.push(post(
        "/v1/messages",
        "",
        &json!({ "model": WILD, "system": WILD, "messages": [
        { "role": "user", "content": [{ "type": WILD, "text": WILD }] },
    ] })
        .to_string(),
    ));
    requests.push(get("/v1/x%0d%0a%1b[2J;DROP%20TABLE?key=%0a", ""));
    requests
}

/// The same JSON in ASCII only.
fn ascii(json: &str) -> String {
    let mut plain = String::new();
    for letter in json.chars() {
        if letter.is_ascii() {
            plain.push(letter);
        } else {
            plain.extend(["\\u", &format!("{:04x}", u32::from(letter))]);
        }
    }
    plain
}

fn answer() -> String {
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1 });
    let call = json!({ "id": WILD, "type": "function", "function": { "name": WILD, "arguments": WILD } });
    let message = json!({ "role": "assistant", "content": WILD, "tool_calls": [call] });
    let body = json!({ "id": WILD, "model": WILD, "usage": usage,
        "choices": [{ "index": 0, "message": message, "finish_reason": WILD }] });
    ok("Content-Type: application/json\r\nrequest-id: x'; DROP TABLE\r\n", &body.to_string())
}

/// Sends everything; the log.
fn logged(log: &str, mode: &str) -> (Gateway, String) {
    let provider = Provider::new();
    let bench = Arc::new(Bench::new());
    let url = provider.url();
    let flags = ["--openai-upstream", &url, "--anthropic-upstream", &url, "--mode", mode];
    let gateway = Gateway::start(&Setup { bench: &bench, log, flags: &flags, file: "", environment: &[] });
    for request in requests() {
        provider.answers(answer());
        assert_eq!(gateway.ask(&request).status(), 200, "{request}");
    }
    let mut gateway = gateway;
    let metrics = gateway.metrics();
    assert!(metrics.lines().all(|line| line.starts_with('#') || line.starts_with("epitome_")), "{metrics}");
    assert!(!metrics.contains("forged_total") || !metrics.contains("\nepitome_forged"), "{metrics}");
    gateway.terminate();
    assert!(gateway.child.wait().expect("it ends").success());
    let said = gateway.log();
    (gateway, said)
}

#[test]
fn nothing_that_is_sent_becomes_a_line_of_a_log_of_json() {
    for mode in RECORDING {
        let (gateway, log) = logged("json", mode);
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .collect();
        let done = lines.iter().filter(|line| line["message"] == "done").count();
        assert_eq!(done, requests().len(), "{log}");
        assert!(lines.iter().all(|line| line["level"] != "ERROR"), "{log}");
        assert!(
            !log.chars().any(|letter| letter != '\n' && (letter.is_control() || letter == '\u{2028}')),
            "{log}"
        );

        let recorded = Recorded::on(&gateway.bench);
        recorded.check_health();
        let keys: Vec<_> = recorded.sessions().into_iter().filter_map(|session| session.key).collect();
        assert!(keys.iter().any(|key| key == SQL), "{keys:?}");
        // What is no text of one line is no id.
        assert!(
            keys.iter().all(|key| !key.chars().any(|letter| letter.is_control() && letter != '\t')),
            "{keys:?}"
        );
        let asked: Vec<_> = recorded.exchanges().into_iter().filter_map(|row| row.exchange.model).collect();
        assert!(asked.iter().any(|model| model == WILD), "{asked:?}");
        let told =
            recorded.threads().iter().any(|thread| recorded.story(thread.id).iter().any(|said| said == WILD));
        assert!(told, "it is stored as it was said");
    }
}

#[test]
fn nothing_that_is_sent_becomes_a_line_of_a_log_of_text() {
    let (_, log) = logged("text", "observe");
    assert!(
        !log.chars().any(|letter| letter != '\n' && (letter.is_control() || letter == '\u{2028}')),
        "{log}"
    );
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" request{id=")).collect();
    let done = log.lines().filter(|line| line.contains("done path=")).count();
    assert_eq!(done, requests().len(), "{lines:#?}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01T00:00:00Z ERROR")), "{log}");
}

#[test]
fn a_header_that_is_no_line_is_no_header() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    for wild in ["a\rb", "a\0b", "a\nb", "a\r\n b"] {
        let request = post("/v1/messages", &format!("x-session-id: {wild}\r\n"), "{}");
        assert_eq!(gateway.ask(&request).status(), 400, "{wild:?}");
    }
    assert!(provider.saw_nothing());
}
