//! An answer of ours in the form of Responses.

use serde_json::{Value, json};

use crate::synthetic_response::{SyntheticContent, SyntheticResponse, named_events};

/// Writes the answer, whole or streamed.
pub(crate) fn response(said: &SyntheticContent<'_>) -> SyntheticResponse {
    if said.asked.is_streamed {
        return SyntheticResponse::events(named_events(response_events(said)));
    }
    let output = json!([item(said, "completed", said.text)]);
    SyntheticResponse::whole(&response_object(said, "completed", &output))
}

/// Writes the answer that is a compaction: to a request for one (`is_compacted`), or in a conversation.
pub(crate) fn compaction(said: &SyntheticContent<'_>, is_compacted: bool) -> SyntheticResponse {
    let id = format!("cmp_{}", said.name);
    let item = json!({ "id": id, "type": "compaction", "encrypted_content": said.text });
    if is_compacted {
        return SyntheticResponse::whole(&json!({
            "id": format!("resp_{}", said.name),
            "object": "response.compaction",
            "created_at": said.seconds,
            "output": [item],
            "usage": no_usage(),
        }));
    }
    if !said.asked.is_streamed {
        return SyntheticResponse::whole(&response_object(said, "completed", &json!([item])));
    }
    let begun = response_object(said, "in_progress", &json!([]));
    let mut events = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": response_object(said, "completed", &json!([item])) }),
    ];
    for (number, event) in (0..).zip(&mut events) {
        event["sequence_number"] = Value::from(number);
    }
    SyntheticResponse::events(named_events(events))
}

fn no_usage() -> Value {
    json!({
        "input_tokens": 0,
        "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 0,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 0,
    })
}

fn response_object(said: &SyntheticContent<'_>, status: &str, output: &Value) -> Value {
    let mut response = json!({
        "id": format!("resp_{}", said.name),
        "object": "response",
        "created_at": said.seconds,
        "status": status,
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": null,
        "metadata": {},
        "model": said.asked.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "reasoning": { "effort": null, "summary": null },
        // No provider has stored it: a client that continues from it has to send it.
        "store": false,
        "temperature": 1.0,
        "text": { "format": { "type": "text" } },
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": null,
    });
    if status == "completed" {
        response["usage"] = no_usage();
    }
    response
}

fn item(said: &SyntheticContent<'_>, status: &str, text: &str) -> Value {
    let content = if status == "completed" { json!([part(text)]) } else { json!([]) };
    let id = format!("msg_{}", said.name);
    json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
}

fn response_events(said: &SyntheticContent<'_>) -> Vec<Value> {
    let begun = response_object(said, "in_progress", &json!([]));
    let done = item(said, "completed", said.text);
    let mut events = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
        json!({ "type": "response.output_item.added", "item": item(said, "in_progress", "") }),
        json!({ "type": "response.content_part.added", "part": part("") }),
        json!({ "type": "response.output_text.delta", "delta": said.text, "logprobs": [] }),
        json!({ "type": "response.output_text.done", "text": said.text, "logprobs": [] }),
        json!({ "type": "response.content_part.done", "part": part(said.text) }),
        json!({ "type": "response.output_item.done", "item": done }),
        json!({ "type": "response.completed", "response": response_object(said, "completed", &json!([done])) }),
    ];
    for (number, event) in (0..).zip(&mut events) {
        event["sequence_number"] = Value::from(number);
        let is_of_item = event.get("response").is_none();
        let is_of_part = is_of_item && event.get("item").is_none();
        if is_of_item {
            event["output_index"] = 0.into();
        }
        if is_of_part {
            event["content_index"] = 0.into();
            event["item_id"] = done["id"].clone();
        }
    }
    events
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}
