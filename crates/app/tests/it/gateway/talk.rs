//! A client that goes on with what it was told, in OpenAI's Chat format, and a provider's words for it.

use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::{
    http::{End, Message, Wire, chunked},
    played::{Gateway, Parrot, addressed, ok, post},
};

/// A conversation, as its client holds it.
pub(super) struct Talk {
    headers: String,
    messages: Vec<Value>,
    is_streamed: bool,
}

impl Talk {
    /// Under an id of the client's.
    pub(super) fn called(id: &str) -> Self {
        Self { headers: format!("x-session-id: {id}\r\n"), messages: Vec::new(), is_streamed: false }
    }

    /// Under no id.
    pub(super) fn nameless() -> Self {
        Self { headers: String::new(), messages: Vec::new(), is_streamed: false }
    }

    /// With answers that are streamed.
    pub(super) fn streamed(self) -> Self {
        Self { is_streamed: true, ..self }
    }

    /// With headers beside.
    pub(super) fn with(self, headers: &str) -> Self {
        Self { headers: self.headers + headers, ..self }
    }

    /// The user says something.
    pub(super) fn says(&mut self, words: &str) {
        self.messages.push(json!({ "role": "user", "content": words }));
    }

    /// The user says something, unless what was said last has no answer yet.
    pub(super) fn says_next(&mut self, words: &str) {
        if self.messages.last().is_none_or(|last| last["role"] != "user") {
            self.says(words);
        }
    }

    /// The client keeps what it was answered.
    pub(super) fn heard(&mut self, words: &str) {
        self.messages.push(json!({ "role": "assistant", "content": words }));
    }

    /// The client goes back to where it had said and heard so much.
    pub(super) fn goes_back_to(&mut self, messages: usize) {
        self.messages.truncate(messages);
    }

    /// The request for what comes next.
    pub(super) fn request(&self) -> String {
        let body = json!({ "model": "m", "stream": self.is_streamed, "messages": self.messages });
        post("/v1/chat/completions", &self.headers, &body.to_string())
    }

    /// Asks, and leaves the answer on the wire.
    pub(super) fn asks(&self, gateway: &Gateway) -> Wire {
        let mut wire = Wire::to(gateway.address);
        wire.send(addressed(&self.request(), gateway.address).as_bytes());
        wire
    }

    /// Asks, if somebody is there; the answer as far as it comes.
    pub(super) fn asks_if_there(&self, address: SocketAddr) -> Option<Message> {
        let mut wire = Wire::over(TcpStream::connect(address).ok()?);
        wire.try_send(addressed(&self.request(), address).as_bytes()).ok()?;
        wire.answer_if_any()
    }

    /// Says something and keeps the answer, which must come to its end.
    pub(super) fn goes_on(&mut self, gateway: &Gateway, words: &str) -> String {
        self.says(words);
        let answer = self.asks(gateway).answer();
        assert_eq!(answer.status(), 200, "{answer:?}");
        let told = told(&answer).expect("a whole answer");
        self.heard(&told);
        told
    }
}

/// What an answer says, if it came to its end.
pub(super) fn told(answer: &Message) -> Option<String> {
    let text = answer.text();
    if answer.end == End::Broken {
        return None;
    }
    let Some(events) = text.strip_suffix("data: [DONE]\n\n") else {
        let whole: Value = serde_json::from_str(&text).ok()?;
        return whole["choices"][0]["message"]["content"].as_str().map(str::to_owned);
    };
    let piece = |line: &str| {
        let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).ok()?;
        event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)
    };
    Some(events.lines().filter_map(piece).collect())
}

/// The answer that is one piece of JSON.
pub(super) fn said(words: &str) -> String {
    let choice = json!({
        "index": 0, "message": { "role": "assistant", "content": words }, "finish_reason": "stop",
    });
    let body = json!({ "id": format!("c-{words}"), "model": "m", "choices": [choice] });
    ok("Content-Type: application/json\r\n", &body.to_string())
}

/// The head of an answer that is a stream.
pub(super) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// An event of a stream, in a chunk of its own.
pub(super) fn piece(words: &str) -> Vec<u8> {
    let event =
        json!({ "id": "c", "model": "m", "choices": [{ "index": 0, "delta": { "content": words } }] });
    one(&format!("data: {event}\n\n"))
}

/// The events that end a stream, and its last chunk.
pub(super) fn last() -> Vec<u8> {
    let end = json!({ "id": "c", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    [one(&format!("data: {end}\n\n")), chunked(b"data: [DONE]\n\n", 1 << 10)].concat()
}

/// Text in a chunk of its own.
pub(super) fn one(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// A provider that answers what was said last, in pieces if it is asked to.
pub(super) fn parrot() -> Parrot {
    Parrot::new(|request| {
        let body: Value = serde_json::from_slice(&request.body).expect("a request of ours");
        let asked = body["messages"].as_array().and_then(|messages| messages.last()?["content"].as_str());
        let words = format!("answer to {}", asked.expect("a user's words"));
        if body["stream"] == true {
            let pieces = words.split_inclusive(' ').map(piece);
            std::iter::once(STREAM.as_bytes().to_vec()).chain(pieces).chain([last()]).collect()
        } else {
            vec![said(&words).into_bytes()]
        }
    })
}
