//! An answer of ours in Chat's form.

use serde_json::{Value, json};

use crate::synthetic_response::{SyntheticContent, SyntheticResponse};

/// Writes the answer, whole or streamed.
pub(crate) fn response(said: &SyntheticContent<'_>) -> SyntheticResponse {
    if said.asked.is_streamed {
        return SyntheticResponse::events(chat_chunks(said));
    }
    SyntheticResponse::whole(&chat(said))
}

fn chat(said: &SyntheticContent<'_>) -> Value {
    let message = json!({ "role": "assistant", "content": said.text, "refusal": null });
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": "stop" });
    json!({
        "id": format!("chatcmpl-{}", said.name),
        "object": "chat.completion",
        "created": said.seconds,
        "model": said.asked.model,
        "choices": [choice],
        "usage": chat_usage(),
    })
}

fn chat_chunks(said: &SyntheticContent<'_>) -> String {
    let chunk = |choices: Value| {
        json!({
            "id": format!("chatcmpl-{}", said.name),
            "object": "chat.completion.chunk",
            "created": said.seconds,
            "model": said.asked.model,
            "choices": choices,
        })
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]))
    };
    let mut chunks = vec![
        delta(json!({ "role": "assistant", "content": "" }), Value::Null),
        delta(json!({ "content": said.text }), Value::Null),
        delta(json!({}), "stop".into()),
    ];
    if said.asked.wants_usage {
        let mut last = chunk(json!([]));
        last["usage"] = chat_usage();
        chunks.push(last);
    }
    let lines = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    lines.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn chat_usage() -> Value {
    json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 })
}
