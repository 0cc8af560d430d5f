//! Outputs of tools that are cut before they are first sent: once and for all, for the tools that were named, and whole in the
//! log.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    played::{Gateway, Provider, ok, post},
    recorded::Recorded,
};

const FILE: &str = "[compact]\nrecall = true\n[compact.tool_output]\nbash = 200\n";

fn request(turns: usize) -> String {
    let mut messages = vec![json!({ "role": "user", "content": "Look around." })];
    for turn in 0..turns {
        let tool = if turn % 2 == 0 { "bash" } else { "read" };
        let call = json!({ "id": format!("call_{turn}"), "type": "function",
            "function": { "name": tool, "arguments": format!("{{\"part\":{turn}}}") } });
        let lines: Vec<String> =
            (0..200).map(|line| format!("{tool} {turn}: line {line} of what was found")).collect();
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
        messages.push(
            json!({ "role": "tool", "tool_call_id": format!("call_{turn}"), "content": lines.join("\n") }),
        );
    }
    json!({ "model": "m", "messages": messages }).to_string()
}

fn seen(provider: &Provider) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&provider.saw().body).expect("JSON");
    body["messages"].as_array().expect("messages").clone()
}

fn answers(provider: &Provider) {
    let message = json!({ "role": "assistant", "content": "Fine." });
    let body = json!({ "id": "c", "model": "m", "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    provider.answers(ok("Content-Type: application/json\r\n", &body.to_string()));
}

#[test]
fn outputs_of_named_tools_are_cut_once_and_stay_so() {
    let provider = Provider::new();
    let bench = Arc::new(Bench::new());
    let mut gateway = Gateway::on(&bench, &provider.url(), &["--mode", "compact", "--fail-closed"], FILE);
    let mut before: Vec<Value> = Vec::new();
    for turns in 0..7 {
        if turns == 4 {
            drop(gateway);
            gateway = Gateway::on(&bench, &provider.url(), &["--mode", "compact", "--fail-closed"], FILE);
        }
        answers(&provider);
        let answer = gateway.ask(&post("/v1/chat/completions", "x-epitome-session: s\r\n", &request(turns)));
        assert_eq!(answer.status(), 200, "{answer:?}");
        let now = seen(&provider);
        assert!(now.starts_with(&before), "turn {turns}: what was sent stays as it was");
        before = now.clone();
        if turns == 0 {
            continue;
        }
        let newest = now.last().expect("a result")["content"].as_str().expect("a text");
        let (tool, turn) = (if turns % 2 == 1 { "bash" } else { "read" }, turns - 1);
        assert!(
            newest.contains(&format!("{tool} {turn}: line 0 ")) && newest.contains("line 199 "),
            "{newest}"
        );
        assert_eq!(newest.contains("left out"), tool == "bash", "{newest}");
        assert_eq!(newest.contains("line 100 "), tool == "read", "{newest}");
    }
    let recorded = Recorded::on(&bench);
    let session = recorded.session();
    let thread = session.head.expect("a thread");
    assert!(recorded.raw(thread).contains("bash 0: line 100 of what was found"), "the log has it whole");
    // The line that stands in its place says how to get it back.
    let cut = before[2]["content"].as_str().expect("a text");
    let marked = cut.split(" left out").nth(1).unwrap_or_else(|| panic!("{cut}"));
    let handle = marked.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == ':'));
    let is_handle =
        |word: &&str| word.split_once(':').is_some_and(|(thread, at)| thread.len() > 6 && !at.is_empty());
    let handle = handle.into_iter().find(is_handle).unwrap_or_else(|| panic!("{marked}"));
    assert!(bench.ok(&["recall", handle]).contains("bash 0: line 100 of"), "{cut}");
    recorded.check_calls();
}

#[test]
fn nothing_is_cut_by_default() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    answers(&provider);
    let body = request(3);
    assert_eq!(gateway.ask(&post("/v1/chat/completions", "", &body)).status(), 200);
    assert_eq!(provider.saw().text(), body);
}

#[test]
fn a_limit_that_is_too_small_is_refused_with_its_place() {
    let bench = Bench::new();
    let file = bench.write("gateway.toml", "[compact.tool_output]\nbash = 5\n");
    let said = bench.fails(&["serve", "--check", "--config", file.to_str().expect("UTF-8")]);
    assert!(said.contains("100 is the least") && said.contains("line 2"), "{said}");
    let file = bench
        .write("gateway.toml", "[compact.tool_output]\nbash = 500\n[compact]\ncompaction_items = 'me'\n");
    assert!(!bench.run(&["serve", "--check", "--config", file.to_str().expect("UTF-8")]).success);
}
