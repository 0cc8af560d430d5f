//! An answer of ours in Gemini's form.

use serde_json::{Value, json};

use crate::synthetic_response::{SyntheticContent, SyntheticResponse};

/// Writes the answer, whole, as a stream of one event, or as a list of one piece.
pub(crate) fn response(said: &SyntheticContent<'_>) -> SyntheticResponse {
    let whole = whole(said);
    if said.asked.is_streamed {
        SyntheticResponse::events(format!("data: {whole}\n\n"))
    } else if said.asked.is_listed {
        SyntheticResponse::whole(&json!([whole]))
    } else {
        SyntheticResponse::whole(&whole)
    }
}

fn whole(said: &SyntheticContent<'_>) -> Value {
    json!({
        "candidates": [{
            "content": { "parts": [{ "text": said.text }], "role": "model" },
            "finishReason": "STOP",
            "index": 0,
        }],
        "usageMetadata": { "promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0 },
        "modelVersion": said.asked.model,
        "responseId": said.name,
    })
}
