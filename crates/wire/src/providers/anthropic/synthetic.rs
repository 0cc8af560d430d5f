//! An answer of ours in Anthropic's form.

use serde_json::{Value, json};

use crate::synthetic_response::{SyntheticContent, SyntheticResponse, named_events};

/// Writes the answer, whole or streamed.
pub(crate) fn response(said: &SyntheticContent<'_>) -> SyntheticResponse {
    if said.asked.is_streamed {
        return SyntheticResponse::events(named_events(message_events(said)));
    }
    let content = json!([{ "type": "text", "text": said.text }]);
    SyntheticResponse::whole(&message(said, &content, Some("end_turn")))
}

fn message(said: &SyntheticContent<'_>, content: &Value, stop_reason: Option<&str>) -> Value {
    json!({
        "id": format!("msg_{}", said.name),
        "type": "message",
        "role": "assistant",
        "model": said.asked.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": {
            "input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        },
    })
}

fn message_events(said: &SyntheticContent<'_>) -> Vec<Value> {
    let start = json!({ "type": "text", "text": "" });
    let delta = json!({ "type": "text_delta", "text": said.text });
    let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
    vec![
        json!({ "type": "message_start", "message": message(said, &json!([]), None) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": start }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 0 } }),
        json!({ "type": "message_stop" }),
    ]
}
