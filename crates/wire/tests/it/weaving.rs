//! A client's history with decisions made in it, where that can be seen without a client.

use epitome_core::{
    Seq,
    context::{SegmentEdit, Tier},
    event::Event,
};
use epitome_wire::{
    EncodeMode, Format,
    history_rewrite::{
        HistoryUnits, RewritePiece, RewritePlan, has_cache_marks, is_unsendable, plan_full_rewrite,
        plan_rewrite,
    },
    legality::{ProviderRules, check},
    render::RenderOptions,
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
    let history = HistoryUnits { ends: &ends, unsent: None };
    let plan = plan_full_rewrite(Format::Anthropic, &context(&events), &options, history).unwrap();
    let said: Vec<Value> = plan
        .pieces
        .iter()
        .map(|piece| match piece {
            RewritePiece::Own(text) => serde_json::from_str(text).unwrap(),
            RewritePiece::Units { .. } => panic!("{piece:?}"),
        })
        .collect();
    assert_eq!(said.len(), 15);
    let body = json!({ "model": "claude-sonnet-4-5", "max_tokens": 9, "messages": said }).to_string();
    assert!(!has_cache_marks(Format::Anthropic, &body), "{body}");
    assert_eq!(check(Format::Anthropic, &body, &ProviderRules::of(Format::Anthropic)), []);
}

#[test]
fn only_what_a_provider_reads_is_a_mark() {
    let check = |message: Value, expect: bool| {
        let body = json!({ "model": "m", "max_tokens": 9, "messages": [message] });
        for body in [body.to_string(), format!("{body:#}")] {
            assert_eq!(has_cache_marks(Format::Anthropic, &body), expect, "{body}");
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

/// A history whose second answer follows reasoning of which nothing is left.
fn with_empty_reasoning(reasoning: &str) -> String {
    let call = |id: &str| {
        format!(r#"{{"type":"function_call","call_id":"{id}","name":"t","arguments":"{{}}"}},"#)
            + &format!(
                r#"{{"type":"function_call_output","call_id":"{id}","output":"{}"}}"#,
                "word ".repeat(40)
            )
    };
    let user = r#"{"role":"user","content":"go"}"#;
    format!(r#"{{"input":[{user},{},{reasoning},{}]}}"#, call("a"), call("b"))
}

#[test]
fn reasoning_of_which_nothing_is_left_is_never_sent() {
    for (reasoning, is_empty) in [
        (r#"{"type":"reasoning","summary":[]}"#, true),
        (r#"{"summary":[],"id":null,"type":"reasoning","encrypted_content":"","status":"completed"}"#, true),
        (r#"{"type":"reasoning","content":null,"summary":[{"type":"summary_text","text":" "}]}"#, true),
        (r#"{"type":"reasoning","id":"rs_1","summary":[]}"#, false),
        (r#"{"type":"reasoning","summary":[],"encrypted_content":"x"}"#, false),
        (r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}"#, false),
        (r#"{"type":"reasoning","summary":[],"vendor":{"kept":true}}"#, false),
    ] {
        let format = Format::OpenaiResponses;
        let request = with_empty_reasoning(reasoning);
        let events: Vec<Event> = format.decode_request(&request).unwrap();
        assert_eq!(events.iter().filter(|event| is_unsendable(event)).count(), usize::from(is_empty));
        let encoded = |completion| format.encode(&events, completion).unwrap().body;
        assert_eq!(encoded(EncodeMode::AsRecorded), request, "what was recorded is shown as it was");
        assert_eq!(encoded(EncodeMode::Legal).contains("reasoning"), !is_empty, "{reasoning}");
        let logged = logged(events);
        let rendered = format.render(&context(&logged), &RenderOptions::of(format)).unwrap().body;
        assert_eq!(rendered.contains("reasoning"), !is_empty, "{reasoning}");
    }
}

#[test]
fn a_unit_with_empty_reasoning_is_written_without_it_once_anything_is_decided() {
    let format = Format::OpenaiResponses;
    let request = with_empty_reasoning(r#"{"type":"reasoning","summary":[]}"#);
    let events = logged(format.decode_request(&request).unwrap());
    // The user, the first call and its output; then reasoning and call are one unit.
    let ends: Vec<Seq> = [2, 3, 4, 6, 7].map(Seq).into();
    let mut first = true;
    let decided = context(&events).edit("test", |_, segment| {
        let is_first = segment.tier() == Tier::ToolResults && std::mem::take(&mut first);
        if is_first { SegmentEdit::Drop } else { SegmentEdit::Keep }
    });
    let options = RenderOptions::of(format);
    let RewritePlan { pieces, onward } =
        plan_rewrite(format, &decided, &options, HistoryUnits { ends: &ends, unsent: None }).unwrap();
    let call = r#"{"type":"function_call","call_id":"b","name":"t","arguments":"{}"}"#;
    assert_eq!(pieces, [RewritePiece::Units { from: 0, to: 1 }, RewritePiece::Own(call.to_owned())]);
    assert_eq!(onward, 4);
}
