//! `/mcp` at the gateway: each principal asks about its own sessions, and nobody else about any.

use serde_json::{Value, json};

use super::{
    http::Message,
    played::{Gateway, Provider, eventually, ok, post},
    recorded::Recorded,
};

const ANNA: &str = "x-epitome-token: t-anna\r\n";
const BOB: &str = "x-epitome-token: t-bob\r\n";
const TOKENS: &str = "[[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n[[token]]\nprincipal = \"bob\"\nenv = \"BOB_TOKEN\"\n";
const SAID: &str =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"The walrus sings at noon.\"}]}";
const ANSWER: &str = "{\"id\":\"c1\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\
                      \"content\":\"Noted.\"},\"finish_reason\":\"stop\"}]}";

fn asked(gateway: &Gateway, headers: &str, method: &str, params: &Value) -> Message {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let accepted = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                    MCP-Protocol-Version: 2025-06-18\r\n";
    gateway.ask(&post("/mcp", &format!("{accepted}{headers}"), &body))
}

fn found(gateway: &Gateway, headers: &str) -> usize {
    let call = json!({"name": "search", "arguments": {"query": "walrus", "scope": "all"}});
    let answer = asked(gateway, headers, "tools/call", &call);
    assert_eq!(answer.status(), 200, "{answer:?}");
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    answer["result"]["structuredContent"]["items"].as_array().expect("items").len()
}

#[test]
fn a_principal_finds_its_own_sessions_and_nobody_elses() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--mode", "record"], TOKENS);
    provider.answers(ok("Content-Type: application/json\r\n", ANSWER));
    let answer = gateway.ask(&post(
        "/v1/chat/completions",
        &format!("{ANNA}Content-Type: application/json\r\n"),
        SAID,
    ));
    assert_eq!(answer.status(), 200, "{answer:?}");
    eventually("it is recorded", || !Recorded::on(&gateway.bench).sessions().is_empty());
    assert_eq!(found(&gateway, ANNA), 1);
    assert_eq!(found(&gateway, BOB), 0);

    let listed: Value =
        serde_json::from_str(&asked(&gateway, ANNA, "tools/list", &json!({})).text()).expect("JSON");
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(7));
    for wrong in ["", "x-epitome-token: t-nobody\r\n"] {
        let refused = asked(&gateway, wrong, "tools/list", &json!({}));
        assert_eq!(refused.status(), 401, "{refused:?}");
        assert!(!refused.text().contains("walrus"));
    }
    let broken = gateway.ask(&post(
        "/mcp",
        &format!("{ANNA}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"),
        "{",
    ));
    assert!((400..500).contains(&broken.status()), "{broken:?}");
}

#[test]
fn what_changes_a_session_needs_its_name_and_a_list_of_routes_counts() {
    let provider = Provider::new();
    let tokens = TOKENS.replace("principal = \"bob\"", "principal = \"bob\"\nallow = [\"inference\"]");
    let gateway = Gateway::with(&provider, &["--mode", "record"], &tokens);
    provider.answers(ok("Content-Type: application/json\r\n", ANSWER));
    let path = "/v1/chat/completions";
    gateway.ask(&post(path, &format!("{ANNA}Content-Type: application/json\r\n"), SAID));
    eventually("it is recorded", || !Recorded::on(&gateway.bench).sessions().is_empty());
    for call in
        [json!({"name": "pin", "arguments": {"text": "x"}}), json!({"name": "compact", "arguments": {}})]
    {
        let answer = asked(&gateway, ANNA, "tools/call", &call).text();
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(answer.to_string().contains("`session` is missing"), "{answer}");
    }
    let refused = asked(&gateway, BOB, "tools/list", &json!({}));
    assert_eq!(refused.status(), 403, "{refused:?}");
}

#[test]
fn without_a_database_there_is_no_such_page() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "off");
    assert_eq!(asked(&gateway, "", "tools/list", &json!({})).status(), 404);
    assert!(provider.saw_nothing());
}
