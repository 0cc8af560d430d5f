//! The examples, run against a scripted server: what they say they do, they do.

use epitome::{
    core::Tokens,
    session::{LifecycleEvent, Session},
};
use serde_json::{Value, json};

use crate::scripted::{Behaviour, Scripted};

/// An example, as a module.
macro_rules! example {
    ($name:ident, $path:literal) => {
        #[path = $path]
        #[expect(dead_code, reason = "its command line is for people")]
        mod $name;
    };
}

example!(agent, "../../examples/agent.rs");
example!(agent_anthropic, "../../examples/agent_anthropic.rs");
example!(stateless, "../../examples/stateless.rs");
example!(custom_reducer, "../../examples/custom_reducer.rs");
example!(custom_summariser, "../../examples/custom_summariser.rs");
example!(hook, "../../examples/hook.rs");
example!(replay, "../../examples/replay.rs");

fn chat(message: &Value) -> Behaviour {
    let body = json!({"id": "a", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}});
    Behaviour::Answer(body.to_string())
}

fn chat_says(text: &str) -> Behaviour {
    chat(&json!({"role": "assistant", "content": text}))
}

fn chat_calls(id: &str, name: &str, arguments: &Value) -> Behaviour {
    chat(&json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}}]}))
}

fn anthropic(content: &Value, stop: &str) -> Behaviour {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop, "usage": {"input_tokens": 100, "output_tokens": 20}});
    Behaviour::Answer(body.to_string())
}

/// Every call of a session is made again, byte for byte.
async fn assert_replays(session: &Session, calls: usize) {
    let made = session.calls().await.unwrap();
    assert_eq!(made.len(), calls);
    for call in made {
        session.replay(call.number).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_calls_its_tools_until_it_has_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("log.db"), folder.path().join("data"));
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("colour.txt"), "blue").unwrap();
    let server = Scripted::start([
        chat_calls("c1", "list_files", &json!({"path": path})),
        chat_calls("c2", "read_file", &json!({"path": path.join("colour.txt")})),
        chat_calls("c3", "read_file", &json!({"path": path.join("nothing.txt")})),
        chat_calls("c4", "run", &json!({"command": "echo $((6 * 7))"})),
        chat_says("It is blue, and 42."),
    ])
    .await;
    let session = agent::agent("m", Tokens(8_000)).unwrap().file(&file).begin().await.unwrap();
    let said = agent::answer(&session, &server.url(), "What colour is it?").await.unwrap();
    assert_eq!(said, "It is blue, and 42.");
    let seen = server.seen();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[0].line, "POST /v1/chat/completions");
    let request = seen[4].json();
    let results: Vec<&Value> = request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| &message["content"])
        .collect();
    assert_eq!(results[0], "colour.txt");
    assert_eq!(results[1], "blue");
    assert!(results[2].as_str().unwrap().contains("No such file"), "{results:?}");
    assert_eq!(results[3], "42\n");
    assert_eq!(request["tools"].as_array().unwrap().len(), 3);
    assert_replays(&session, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_asks_again_smaller_when_a_request_was_too_long_and_tells_any_other_error() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("long.txt");
    std::fs::write(&long, "a line of a long file\n".repeat(700)).unwrap();
    let too_long = json!({"error": {"message": "This model's maximum context length is 3000 tokens. However, your \
        messages resulted in 3600 tokens.", "type": "invalid_request_error", "code": "context_length_exceeded"}});
    let server = Scripted::start([
        chat_calls("c1", "read_file", &json!({"path": long})),
        Behaviour::Status(400, Vec::new(), too_long.to_string()),
        chat_says("It is long."),
        Behaviour::Status(401, Vec::new(), r#"{"error":{"message":"no key"}}"#.to_owned()),
    ])
    .await;
    let file = folder.path().join("log.db");
    let session = agent::agent("m", Tokens(20_000)).unwrap().file(file).begin().await.unwrap();
    let said = agent::answer(&session, &server.url(), "How long is it?").await.unwrap();
    assert_eq!(said, "It is long.");
    let seen = server.seen();
    assert!(seen[2].body.len() < seen[1].body.len(), "{} {}", seen[2].body.len(), seen[1].body.len());
    let error = agent::answer(&session, &server.url(), "And now?").await.unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("no key"), "{error}");
    assert_replays(&session, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_speaks_anthropic_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("colour.txt");
    std::fs::write(&path, "blue\n".repeat(1_000)).unwrap();
    let too_long = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "prompt is too long: 210000 tokens > 200000 maximum"}});
    let server = Scripted::start([
        anthropic(
            &json!([{"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": path}},
            {"type": "tool_use", "id": "t2", "name": "fly", "input": {}}]),
            "tool_use",
        ),
        Behaviour::Status(400, Vec::new(), too_long.to_string()),
        anthropic(&json!([{"type": "text", "text": "Blue."}]), "end_turn"),
    ])
    .await;
    let file = folder.path().join("log.db");
    let session =
        agent_anthropic::agent("claude-sonnet-4-5", Tokens(8_000)).unwrap().file(file).begin().await.unwrap();
    assert_eq!(agent_anthropic::answer(&session, &server.url(), "What colour?").await.unwrap(), "Blue.");
    let seen = server.seen();
    assert_eq!(seen[0].line, "POST /v1/messages");
    assert_eq!(seen[0].header("anthropic-version"), Some("2023-06-01"));
    assert!(seen[2].body.len() < seen[1].body.len());
    let request = seen[2].json();
    assert!(request["max_tokens"].as_u64().unwrap() > 0);
    let results = &request["messages"][2]["content"];
    assert_eq!(results[0]["tool_use_id"], "t1");
    assert_eq!(results[1]["is_error"], true, "{results}");
    assert!(results[1].to_string().contains("no tool called fly"), "{results}");
    assert_replays(&session, 3).await;
}

#[test]
fn the_agents_have_fewer_than_sixty_lines() {
    for code in [include_str!("../../examples/agent.rs"), include_str!("../../examples/agent_anthropic.rs")] {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = code.lines().filter(is_code).count();
        assert!(lines < 60, "{lines}");
    }
}

#[test]
fn a_request_is_made_smaller_without_a_session() {
    let mut messages = vec![json!({"role": "user", "content": "Mend it."})];
    for call in 0..10 {
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("c{call}"),
            "type": "function", "function": {"name": "run", "arguments": "{}"}}]}));
        messages.push(
            json!({"role": "tool", "tool_call_id": format!("c{call}"), "content": "output\n".repeat(400)}),
        );
    }
    let request = json!({"model": "m", "messages": messages}).to_string();
    let smaller = stateless::smaller(request.as_bytes(), Tokens(3_000)).unwrap();
    assert!(smaller.len() < request.len() / 2 && smaller.contains("Mend it."), "{smaller}");
    assert_eq!(stateless::smaller(request.as_bytes(), Tokens(100_000)).unwrap(), request);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reducer_of_ones_own_decides_what_is_shown() {
    let body = custom_reducer::play().await.unwrap();
    let shortened = body.matches("test result: ok. 100 passed; 0 failed\\n[all of it: ").count();
    assert!(shortened >= 3, "{shortened} in {body}");
    let whole = body.matches(&"test a::b ... ok\\n".repeat(100)).count();
    assert!((1..=3).contains(&whole), "the newest is whole: {whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summariser_of_ones_own_is_asked_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    let notes = "## Session Intent\n- Count the lines of the files.\n\n## Current Task\n- Counting goes on.\n\n\
                 ## Next Steps\n- Count the rest.\n";
    let script = format!("cat >> {}; printf '%s' \"$0\"", asked.display());
    let command = ["sh", "-c", &script, notes].map(str::to_owned);
    let summariser = custom_summariser::Program::new(&command, Tokens(32_000));
    let question = |number: usize| format!("Count {number}. {}", "It matters to me. ".repeat(40));
    let server = Scripted::start((0..60).map(|number| chat_says(&format!("Counted {number}.")))).await;
    let file = folder.path().join("log.db");
    let session =
        agent::agent("m", Tokens(8_000)).unwrap().file(file).summariser(summariser).begin().await.unwrap();
    let mut events = session.events();
    for number in 0..60 {
        agent::answer(&session, &server.url(), &question(number)).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(40)).await;
    }
    let mut told = Vec::new();
    while let Ok(happened) = events.try_recv() {
        told.push(happened);
    }
    let adopted = told
        .iter()
        .filter(|happened| matches!(happened, LifecycleEvent::Adopted { by, .. } if by.starts_with("sh -c")));
    assert!(adopted.count() >= 1, "{told:#?}");
    let question = std::fs::read_to_string(asked).unwrap();
    assert!(question.contains("conversation begins") && question.contains("Count 3"), "{question}");
    assert_replays(&session, 60).await;
    let proved = replay::prove(&**session.store(), session.thread()).unwrap();
    assert!(proved.starts_with("60 calls, each made again with the hash of what was sent"), "{proved}");
    assert!(
        proved.contains("the largest had 100 tokens by the provider's count; 0 refused or failed"),
        "{proved}"
    );
    assert!(proved.contains(": adopted as "), "{proved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_is_an_error_with_its_name() {
    use epitome::summarise::{Summarize as _, SummaryRequest};
    let request = SummaryRequest { system: String::new(), user: String::new(), limit: Tokens(9), warm: None };
    for command in [vec!["false"], vec!["there-is-no-such-program"], vec![]] {
        let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let summariser = custom_summariser::Program::new(&command, Tokens(1));
        let error = summariser.summarize(&request).await.unwrap_err().to_string();
        assert!(error.contains(&command.join(" ")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_adds_its_notes_once_and_in_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let notes = hook::Notes("Cache: it is an LRU map.\nqueue: it is bounded.\n".to_owned());
    let server = Scripted::start([chat_says("Small."), chat_says("Yes.")]).await;
    let file = folder.path().join("log.db");
    let session = agent::agent("m", Tokens(8_000)).unwrap().file(file).hook(notes).begin().await.unwrap();
    agent::answer(&session, &server.url(), "How large is the cache?").await.unwrap();
    agent::answer(&session, &server.url(), "Sure?").await.unwrap();
    let seen = server.seen();
    let added = "From the notes:\\nCache: it is an LRU map.";
    assert_eq!(seen[0].body.matches(added).count(), 1, "{}", seen[0].body);
    assert_eq!(seen[1].body.matches(added).count(), 1);
    assert!(!seen[1].body.contains("queue"));
    assert_replays(&session, 2).await;
}
