//! A request names what it leaves out only to a model that can ask for it.

use epitome::{
    core::policy::Policy,
    session::{Session, verify_call},
    store::{StoreOptions, temporary_store},
    wire::{Format, recall_tool::RECALL_TOOL},
};
use serde_json::{Value, json};

use super::{
    agent::{self, Hands},
    compose::{Agent, Gateway, result, sent},
};

/// A long task under a policy: the requests that were sent, and how many of them began an epoch.
fn play(policy: &Policy, format: Format, recall: bool) -> (Vec<String>, u64) {
    let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
    gateway.composing.policy = policy.clone();
    gateway.composing.recall = recall;
    let (mut bodies, mut epochs) = (Vec::new(), 0);
    for turn in 0..32 {
        if turn % 9 == 8 {
            gateway = gateway.restarted();
            let said =
                json!({"role": "user", "content": format!("Mind part {turn}. {}", "And so on. ".repeat(60))});
            agent.history.push(said);
        }
        let body = agent.body();
        let (ticket, outgoing) = gateway.forward(format, &body);
        let woven = sent(&outgoing, &body);
        epochs = outgoing.done.epoch;
        let (thread, call) = outgoing.done.call.unwrap();
        gateway.answer(ticket, format, &agent.answer());
        let again = verify_call(&**gateway.recorder.store(), thread, call).unwrap();
        assert_eq!(again.rendered.body, woven, "{}, {format}, turn {turn}", policy.name);
        bodies.push(woven);
        agent.goes_on(&format!("{}\n{}", result(turn), result(turn + 100)));
    }
    (bodies, epochs)
}

/// The requests that name something by a handle.
fn with_handles(bodies: &[String]) -> usize {
    bodies.iter().filter(|body| body.replace(RECALL_TOOL, "").contains("recall ")).count()
}

#[test]
fn a_gateway_names_what_it_leaves_out_if_it_offers_the_tool_and_else_does_not() {
    for policy in Policy::builtin() {
        for format in crate::SCRIPTED {
            let (bodies, epochs) = play(policy, format, false);
            assert!(epochs > 0, "{}, {format}: nothing was left out", policy.name);
            for (turn, body) in bodies.iter().enumerate() {
                assert!(!body.contains("recall"), "{}, {format}, turn {turn}: {body}", policy.name);
            }
        }
        let (bodies, _) = play(policy, Format::Anthropic, true);
        // Of the tool's own description one handle is an example.
        let last = bodies.last().unwrap();
        let messages: Value = serde_json::from_str::<Value>(last).unwrap()["messages"].take();
        assert!(with_handles(&[messages.to_string()]) > 0, "{}: {last}", policy.name);
    }
}

/// What a session of the library sends whose model has these tools.
async fn library(tools: &[&str]) -> Vec<String> {
    let hands = Hands::default();
    let define = |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let tools: Vec<Value> = tools.iter().map(define).collect();
    let session: Session = agent::builder(&hands)
        .policy(&agent::summaries_only())
        .tools(tools)
        .store(temporary_store(StoreOptions::default()).unwrap())
        .begin()
        .await
        .unwrap();
    session.user(agent::TASK).await.unwrap();
    let mut bodies = Vec::new();
    for turn in 0..40 {
        hands.set(turn);
        let request = agent::turn_of(&session, turn, &agent::output(turn)).await;
        let body: Value = serde_json::from_str(&request.body).unwrap();
        bodies.push(body["messages"].to_string());
    }
    bodies
}

#[tokio::test]
async fn a_session_names_what_it_leaves_out_if_its_tools_can_bring_it_back() {
    let without = library(&["read_file", "recall_memory"]).await;
    assert!(without.iter().any(|body| body.contains("This message stands for")));
    assert!(without.iter().all(|body| !body.contains("recall ")), "{}", without.last().unwrap());
    for name in [RECALL_TOOL, "mcp__epitome__recall"] {
        let with = library(&["read_file", name]).await;
        assert!(with_handles(&with) > 0, "{name}: {}", with.last().unwrap());
    }
}
