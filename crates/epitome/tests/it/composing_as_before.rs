//! What a session began with it keeps, whatever happens around it: restarts, other settings, others that crowd it out.

use epitome::{
    core::{Tokens, event::Timestamp},
    recorder::RequestArrival,
    rewrite::{BodySlice, RequestDisposition, RequestOverrides, RewriteStatus, compose, recall},
    wire::{
        Format,
        caller::RequestPurpose,
        overflow::ContextOverflow,
        recall_tool::{RECALL_TOOL, RecallSplice, SpliceVerdict},
    },
};
use serde_json::{Value, json};

use super::compose::{Agent, Gateway, result, sent};

/// Plays some turns; gives what was sent, oldest first.
fn play(gateway: &mut Gateway, agent: &mut Agent, turns: usize) -> Vec<String> {
    let mut bodies = Vec::new();
    for _ in 0..turns {
        let body = agent.body();
        let (ticket, outgoing) = gateway.forward(agent.format, &body);
        assert_eq!(outgoing.done.left, RewriteStatus::Composed);
        bodies.push(sent(&outgoing, &body));
        gateway.answer(ticket, agent.format, &agent.answer());
        agent.goes_on(&result(agent.turns));
    }
    bodies
}

#[test]
fn the_tool_is_offered_from_a_sessions_first_call_on_or_never() {
    for format in crate::SCRIPTED {
        for begins_with in [false, true] {
            let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
            gateway.composing.recall = begins_with;
            let mut bodies = play(&mut gateway, &mut agent, 3);
            for restarts in [false, true] {
                gateway.composing.recall = !begins_with;
                if restarts {
                    gateway = gateway.restarted();
                }
                bodies.extend(play(&mut gateway, &mut agent, 3));
            }
            let offered: Vec<bool> = bodies.iter().map(|body| body.contains(RECALL_TOOL)).collect();
            assert_eq!(offered, [begins_with; 9], "{format}");
        }
    }
}

#[test]
fn the_tool_is_still_offered_after_the_client_had_its_history_compacted_without_tools() {
    let format = Format::OpenaiResponses;
    let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
    gateway.composing.recall = true;
    play(&mut gateway, &mut agent, 3);
    let mut body: Value = serde_json::from_str(&agent.body()).unwrap();
    body.as_object_mut().unwrap().remove("tools");
    let body = body.to_string();
    let header = |name: &str| (name == "x-epitome-session").then_some("one");
    let (at, purpose) = (Timestamp(1_000_000), Some(RequestPurpose::Compaction));
    let arrival =
        RequestArrival { principal: "", format, body: &body, shared: None, header: &header, at, purpose };
    let asked =
        compose(&gateway.recorder, &arrival, &gateway.composing, &RequestOverrides::default()).unwrap();
    let RequestDisposition::Forward(outgoing) = asked.way else { panic!("{:?}", asked.way) };
    assert!(!sent(&outgoing, &body).contains(RECALL_TOOL));
    let bodies = play(&mut gateway, &mut agent, 2);
    assert!(bodies.iter().all(|body| body.contains(RECALL_TOOL)));
}

#[test]
fn a_session_that_has_been_answered_before_is_offered_nothing() {
    for format in crate::SCRIPTED {
        let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
        gateway.composing.recall = true;
        agent.goes_on(&result(0));
        let bodies = play(&mut gateway, &mut agent, 3);
        assert!(bodies.iter().all(|body| !body.contains(RECALL_TOOL)), "{format}");
    }
}

#[test]
fn a_client_that_changes_its_history_begins_an_epoch_whether_or_not_the_gateway_restarted() {
    let format = Format::OpenaiResponses;
    for restarts in [false, true] {
        let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
        play(&mut gateway, &mut agent, 4);
        if restarts {
            gateway = gateway.restarted();
        }
        agent.history.retain(|item| item["type"] != "reasoning");
        let (_, outgoing) = gateway.forward(format, &agent.body());
        let done = outgoing.done;
        assert_eq!(
            (done.epoch, done.cause.as_deref()),
            (1, Some("the client changed its history")),
            "restarts: {restarts}"
        );
    }
}

#[test]
fn a_client_that_drops_its_tools_or_takes_them_up_again_begins_an_epoch() {
    for (format, restarts) in crate::SCRIPTED.into_iter().zip([false, true].into_iter().cycle()) {
        let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
        play(&mut gateway, &mut agent, 3);
        let mut epoch = 0;
        for (tools, changes) in
            [(None, true), (None, false), (Some(json!([])), false), (Some(Value::Null), false), (None, false)]
        {
            if restarts {
                gateway = gateway.restarted();
            }
            let mut body: Value = serde_json::from_str(&agent.body()).unwrap();
            body.as_object_mut().unwrap().remove("tools");
            if let Some(tools) = tools {
                body["tools"] = tools;
            }
            let (ticket, outgoing) = gateway.forward(format, &body.to_string());
            gateway.answer(ticket, format, &agent.answer());
            agent.goes_on(&result(agent.turns));
            epoch += u64::from(changes);
            let cause = changes.then_some("the client changed its tools");
            let done = outgoing.done;
            assert_eq!((done.epoch, done.cause.as_deref()), (epoch, cause), "{format}, {restarts}");
        }
        let (_, outgoing) = gateway.forward(format, &agent.body());
        let done = outgoing.done;
        assert_eq!(
            (done.epoch, done.cause.as_deref()),
            (epoch + 1, Some("the client changed its tools")),
            "{format}"
        );
    }
}

#[test]
fn cache_marks_are_placed_whatever_is_spoken_of() {
    for (words, marked, expect) in [
        ("Go on.", false, true),
        ("What is `cache_control` for?", false, true),
        ("It says {\"cache_control\": {\"type\": \"ephemeral\"}}.", false, true),
        ("Go on.", true, false),
    ] {
        let mut gateway = Gateway::new();
        let said = json!({"type": "text", "text": words});
        let tool = json!({"type": "object", "properties": {"cache_control": {"type": "string"}}});
        let mut body = json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "You are careful.",
            "messages": [{"role": "user", "content": [said]}],
            "tools": [{"name": "bash", "input_schema": tool}]});
        if marked {
            body["messages"][0]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
        }
        let body = body.to_string();
        for _ in 0..2 {
            let (_, outgoing) = gateway.forward(Format::Anthropic, &body);
            let placed = outgoing.cuts.iter().any(|cut| matches!(cut, BodySlice::Own(_)));
            assert_eq!(placed, expect, "{words} {marked}");
        }
    }
}

#[test]
fn how_long_an_answer_may_be_changes_the_budget_and_nothing_else() {
    let format = Format::OpenaiChat;
    let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
    let mut epochs = Vec::new();
    for turn in 0..40 {
        let mut body: Value = serde_json::from_str(&agent.body()).unwrap();
        let answer = 200 + 31 * (turn % 7);
        body["max_tokens"] = json!(answer);
        let body = body.to_string();
        let (ticket, outgoing) = gateway.forward(format, &body);
        assert!(outgoing.done.after <= Tokens(16_000 - answer), "{:?}", outgoing.done);
        epochs.push(outgoing.done.epoch);
        gateway.answer(ticket, format, &agent.answer());
        agent.goes_on(&result(agent.turns));
    }
    let begun = epochs.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((1..=16).contains(&begun), "{epochs:?}");
}

/// More sessions than are remembered come by.
fn crowd(gateway: &Gateway, from: usize) {
    let (format, body) = (Format::OpenaiChat, Agent::new(Format::OpenaiChat).body());
    for number in from..from + 520 {
        let id = format!("crowd-{number}");
        let header = |name: &str| (name == "x-epitome-session").then_some(&*id);
        let at = Timestamp(1_000_000);
        let arrival = RequestArrival {
            principal: "",
            format,
            body: &body,
            shared: None,
            header: &header,
            at,
            purpose: None,
        };
        compose(&gateway.recorder, &arrival, &gateway.composing, &RequestOverrides::default()).unwrap();
    }
}

#[test]
fn a_request_under_way_outlasts_what_is_remembered_of_its_session() {
    let format = Format::OpenaiChat;
    let (mut gateway, mut agent) = (Gateway::new(), Agent::new(format));
    gateway.composing.recall = true;
    play(&mut gateway, &mut agent, 9);
    let body = agent.body();
    let (mut ticket, outgoing) = gateway.forward(format, &body);
    crowd(&gateway, 0);
    let header = |_: &str| None;
    let at = Timestamp(1_000_000);
    let arrival = RequestArrival {
        principal: "",
        format,
        body: &body,
        shared: None,
        header: &header,
        at,
        purpose: None,
    };
    let answer = json!({"id": "chatcmpl-back", "object": "chat.completion", "created": 1, "model": "some-model",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
            "tool_calls": [{"id": "back", "type": "function",
                "function": {"name": RECALL_TOOL, "arguments": "{\"query\": \"part_0_1\"}"}}]}}]});
    let mut splice = RecallSplice::whole(format);
    splice.push(answer.to_string().as_bytes(), &mut Vec::new());
    let SpliceVerdict::Recall(recalls) = splice.end(&mut Vec::new()) else { panic!("it asks back") };
    assert!(recall(&gateway.recorder, &mut ticket, &arrival, &recalls).unwrap().is_some());
    crowd(&gateway, 520);
    let refused =
        ContextOverflow { limit: Some(Tokens(outgoing.done.after.0 / 2)), asked: Some(outgoing.done.after) };
    assert!(gateway.smaller(&mut ticket, format, &body, refused).is_some());
}
