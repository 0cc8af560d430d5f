//! A client's history with decisions made in it, where that can be seen without a client.

use epitome_core::{Seq, event::Event};
use epitome_wire::{
    Format,
    legality::{Rules, check},
    render::RenderOptions,
    weave::{History, Piece, is_marked, rewritten},
};
use serde_json::{Value, json};

use crate::histories::{context, logged};

/// A history in which every message of the user came as the newest, and marked.
fn marked() -> Vec<Value> {
    let said = |turn: usize| {
        json!({ "role": "user", "content": [
            { "type": "text", "text": format!("question {turn}"), "cache_control": { "type": "ephemeral" } }] })
    };
    let answer = |turn: usize| json!({ "role": "assistant", "content": format!("answer {turn}") });
    (0..7).flat_map(|turn| [said(turn), answer(turn)]).chain([said(7)]).collect()
}

#[test]
fn a_history_that_is_written_afresh_repeats_no_marks() {
    let request = json!({ "model": "claude-sonnet-4-5", "max_tokens": 9, "messages": marked() });
    let events: Vec<Event> = Format::Anthropic.decode_request(&request.to_string()).unwrap();
    let events = logged(events);
    let ends: Vec<Seq> =
        events.iter().filter(|event| event.event.normal.is_some()).map(|event| event.id.seq).collect();
    let options = RenderOptions::of(Format::Anthropic);
    let history = History { ends: &ends, unsent: None };
    let plan = rewritten(Format::Anthropic, &context(&events), &options, history).unwrap();
    let said: Vec<Value> = plan
        .pieces
        .iter()
        .map(|piece| match piece {
            Piece::Own(text) => serde_json::from_str(text).unwrap(),
            Piece::Units { .. } => panic!("{piece:?}"),
        })
        .collect();
    assert_eq!(said.len(), 15);
    let body = json!({ "model": "claude-sonnet-4-5", "max_tokens": 9, "messages": said }).to_string();
    assert!(!is_marked(Format::Anthropic, &body), "{body}");
    assert_eq!(check(Format::Anthropic, &body, &Rules::of(Format::Anthropic)), []);
}

#[test]
fn only_what_a_provider_reads_is_a_mark() {
    let check = |message: Value, expect: bool| {
        let body = json!({ "model": "m", "max_tokens": 9, "messages": [message] });
        for body in [body.to_string(), format!("{body:#}")] {
            assert_eq!(is_marked(Format::Anthropic, &body), expect, "{body}");
        }
    };
    let mark = json!({ "type": "ephemeral" });
    check(
        json!({ "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": mark }] }),
        true,
    );
    check(
        json!({ "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": null }] }),
        false,
    );
    check(json!({ "role": "user", "content": "what is cache_control?" }), false);
    check(json!({ "role": "user", "content": "{\"cache_control\": {\"type\": \"ephemeral\"}}" }), false);
    let call = json!({ "type": "tool_use", "id": "a", "name": "b", "input": { "cache_control": mark } });
    check(json!({ "role": "assistant", "content": [call] }), false);
}
