//! Mode `compact` and a provider that says a request is too long: it is made smaller once, before the client hears of it; and
//! whatever cannot be helped is the client's to hear, as it was said.

use std::{
    io::Write,
    sync::mpsc,
    time::{Duration, Instant},
};

use epitome::wire::Format;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use super::{
    http::{End, Message, Wire, chunked},
    played::{Gateway, Provider, Step, addressed, eventually, ok, post},
    recorded::Recorded,
    talk::{STREAM, said},
};

const WORDS: &str = "prompt is too long: 20000 tokens > 10000 maximum";

fn refusal(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn streamed(events: &str) -> Vec<u8> {
    [STREAM.as_bytes(), &chunked(events.as_bytes(), 23)].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("a vector takes all");
    encoder.finish().expect("a vector takes all")
}

/// The ways in which a provider of each format says that a request is too long.
fn refusals() -> Vec<(Format, Vec<u8>)> {
    let anthropic =
        json!({ "type": "error", "error": { "type": "invalid_request_error", "message": WORDS } });
    let anthropic = anthropic.to_string();
    let openai = json!({ "error": { "message": WORDS, "code": "context_length_exceeded" } }).to_string();
    let failed = json!({ "type": "response.failed", "response": { "id": "r", "status": "failed",
        "error": { "code": "context_length_exceeded", "message": WORDS } } });
    let begun = ["response.created", "response.in_progress"].map(|kind| {
        format!("event: {kind}\ndata: {}\n\n", json!({ "type": kind, "response": { "error": null } }))
    });
    let responses = format!("{}event: response.failed\ndata: {failed}\n\n", begun.concat());
    let packed = gzip(openai.as_bytes());
    vec![
        (Format::Anthropic, refusal("400 Bad Request", "request-id: r\r\n", anthropic.as_bytes())),
        (Format::Anthropic, refusal("413 Payload Too Large", "", anthropic.as_bytes())),
        (Format::Anthropic, streamed(&format!("event: error\ndata: {anthropic}\n\n"))),
        (Format::OpenaiChat, refusal("400 Bad Request", "", openai.as_bytes())),
        (Format::OpenaiChat, refusal("400 Bad Request", "Content-Encoding: gzip\r\n", &packed)),
        (Format::OpenaiChat, refusal("500 Oh", "", openai.as_bytes())),
        (Format::OpenaiChat, streamed(&format!("data: {openai}\n\n"))),
        (Format::OpenaiResponses, refusal("400 Bad Request", "", openai.as_bytes())),
        (Format::OpenaiResponses, streamed(&responses)),
    ]
}

/// A conversation of `turns` long turns in a format, as a request.
fn request(format: Format, turns: usize) -> String {
    let turn = |number: usize| {
        let words = |of: &str| format!("{of} {number}: {}", "some long words that were said. ".repeat(100));
        let say = |role: &str, text: String| json!({ "role": role, "content": text });
        [say("user", words("question")), say("assistant", words("answer"))]
    };
    let history: Vec<Value> =
        (0..turns).flat_map(turn).chain([json!({ "role": "user", "content": "and now?" })]).collect();
    let (path, key) = match format {
        Format::OpenaiChat => ("/v1/chat/completions", "messages"),
        Format::OpenaiResponses => ("/v1/responses", "input"),
        Format::Anthropic => ("/v1/messages", "messages"),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    let once = "Idempotency-Key: once\r\n";
    post(path, once, &json!({ "model": "m", "max_tokens": 100, "stream": true, key: history }).to_string())
}

/// An answer of a provider as a client gets it without a gateway.
fn direct(provider: &Provider, request: &str) -> Message {
    let mut wire = Wire::to(provider.address);
    wire.send(addressed(request, provider.address).as_bytes());
    let answer = wire.answer();
    provider.saw();
    answer.end_to_end()
}

/// The answer is the provider's to the byte, after it was asked once.
#[track_caller]
fn check_relayed(gateway: &Gateway, provider: &Provider, request: &str, answer: &[u8]) {
    provider.answers(answer);
    let expect = direct(provider, request);
    provider.answers(answer);
    let mut got = gateway.ask(request).end_to_end();
    assert_eq!(got.header("x-epitome").len(), 1, "{got:?}");
    got.headers.retain(|(name, _)| name != "x-epitome");
    assert_eq!(got, expect);
    provider.saw();
    assert!(provider.saw_nothing());
}

#[test]
fn a_request_that_cannot_be_smaller_is_refused_in_the_providers_words() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    for (format, answer) in refusals() {
        check_relayed(&gateway, &provider, &request(format, 0), &answer);
    }
}

#[test]
fn errors_that_mean_something_else_pass_to_the_byte() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let request = request(Format::OpenaiChat, 14);
    let large = format!("{{\"error\":{{\"message\":\"{WORDS} {}\"}}}}", "x".repeat(300 << 10));
    for answer in [
        refusal("429 Too Many Requests", "Retry-After: 20\r\n", b"{\"error\":{\"message\":\"rate limit\"}}"),
        refusal("500 Oh", "", b"<html>no</html>"),
        refusal("400 Bad Request", "", b""),
        refusal("400 Bad Request", "Content-Encoding: br\r\n", b"garbage"),
        refusal("400 Bad Request", "", large.as_bytes()),
        [b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), chunked(b"{\"error\":1}", 3)]
            .concat(),
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_vec(),
        streamed("data: {\"error\":{\"message\":\"overloaded\"}}\n\n"),
        streamed(""),
        streamed(": nothing but this\n\n"),
        refusal("200 OK", "Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n", b"garbage"),
    ] {
        check_relayed(&gateway, &provider, &request, &answer);
    }
}

#[test]
fn a_refusal_that_breaks_off_breaks_off() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let begun = "HTTP/1.1 400 Bad Request\r\nContent-Length: 99\r\n\r\n{\"error\":";
    provider.plays(vec![Step::Send(begun.into()), Step::Hang]);
    let answer = gateway.ask(&request(Format::OpenaiChat, 0));
    assert_eq!((answer.status(), answer.text().as_str(), answer.end), (400, "{\"error\":", End::Broken));
}

/// An answer in each format, short and not streamed.
fn answered(format: Format) -> String {
    let body = match format {
        Format::OpenaiChat => return said("recovered"),
        Format::OpenaiResponses => {
            json!({ "id": "r", "object": "response", "status": "completed", "output": [
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "recovered" }] },
        ] })
        }
        Format::Anthropic => json!({ "id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [{ "type": "text", "text": "recovered" }], "stop_reason": "end_turn" }),
        Format::Gemini => unreachable!("it is tried in tests of its own"),
    };
    ok("Content-Type: application/json\r\n", &body.to_string())
}

#[track_caller]
fn check_counted(gateway: &Gateway, outcome: &str) {
    let line = format!("epitome_overflows_total{{outcome=\"{outcome}\"}} 1\n");
    eventually("it is counted", || gateway.metrics().contains(&line));
}

#[test]
fn a_request_that_was_too_long_is_sent_again_smaller_and_the_client_hears_nothing_of_it() {
    let provider = Provider::new();
    for (format, refused) in refusals() {
        let gateway = Gateway::before(&provider, "compact");
        provider.answers(refused);
        provider.answers(answered(format));
        let answer = gateway.ask(&request(format, 14));
        assert_eq!((answer.status(), answer.text().contains("recovered")), (200, true), "{answer:?}");
        let (first, second) = (provider.saw(), provider.saw());
        assert!(second.body.len() < first.body.len(), "{} {}", first.body.len(), second.body.len());
        assert_eq!(
            (second.end, second.header("content-length")),
            (End::Length, vec![&*second.body.len().to_string()])
        );
        assert!(second.text().contains("and now?"));
        // Nothing else of it is changed, but that it is not the first once more.
        assert_eq!(
            (first.header("idempotency-key"), second.header("idempotency-key")),
            (vec!["once"], vec![])
        );
        let other = |message: &Message| {
            let mut headers = message.headers.clone();
            headers.retain(|(name, _)| {
                !["content-length", "idempotency-key"].contains(&&*name.to_ascii_lowercase())
            });
            (message.line.clone(), headers)
        };
        assert_eq!(other(&first), other(&second));
        assert!(answer.header("x-epitome")[0].contains("left=composed"), "{answer:?}");
        let recorded = Recorded::on(&gateway.bench);
        assert_eq!(recorded.endings(1), ["complete"]);
        assert_eq!(recorded.story(recorded.threads()[0].id).last().map(String::as_str), Some("recovered"));
        check_counted(&gateway, "recovered");
    }
}

#[test]
fn what_was_done_before_a_request_was_refused_is_counted_too() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--mode", "compact", "--window", "16000"], "");
    let (format, refused) = refusals().swap_remove(0);
    let body = |request: &str| -> Value {
        serde_json::from_str(request.split_once("\r\n\r\n").expect("a head and a body").1).expect("JSON")
    };
    let (before, more) = (request(format, 10), body(&request(format, 16)));
    provider.answers(answered(format));
    gateway.ask(&before);
    // The client goes on, with so much at once that its window is full.
    let mut next = body(&before);
    let history = next["messages"].as_array_mut().expect("a history");
    history.push(json!({ "role": "assistant", "content": "recovered" }));
    history.extend(more["messages"].as_array().expect("a history").iter().cloned());
    provider.answers(refused);
    provider.answers(answered(format));
    let answer = gateway.ask(&post("/v1/messages", "", &next.to_string()));
    assert!(answer.text().contains("recovered"), "{answer:?}");
    check_counted(&gateway, "recovered");
    let metrics = gateway.metrics();
    let counted = |name: &str| -> Vec<String> {
        metrics.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    };
    assert_eq!(
        counted("epitome_composed_epochs_total"),
        ["epitome_composed_epochs_total{cause=\"force\"} 2"]
    );
    // The first request fits, and brings none; the second is compacted once for its window, and once more for the refusal.
    let compactions = "epitome_compactions_adopted_total{by=\"built_in\",trigger=\"threshold\"} 2";
    assert_eq!(counted("epitome_compactions_adopted_total"), [compactions]);
}

#[test]
fn a_request_is_made_smaller_once_and_then_its_provider_has_the_last_word() {
    let provider = Provider::new();
    for (format, refused) in refusals() {
        let gateway = Gateway::before(&provider, "compact");
        provider.answers(refused.clone());
        let expect = direct(&provider, &request(format, 14));
        provider.answers(refused.clone());
        provider.answers(refused);
        let mut got = gateway.ask(&request(format, 14)).end_to_end();
        got.headers.retain(|(name, _)| name != "x-epitome");
        assert_eq!(got, expect);
        assert!(provider.saw().body.len() > provider.saw().body.len());
        assert!(provider.saw_nothing());
        check_counted(&gateway, "lost");
    }
}

#[test]
fn who_shows_signs_of_life_and_nothing_else_is_not_held_for_long() {
    let created = r#"{"type":"response.created","response":{"id":"r","error":null}}"#;
    let alive = [
        (Format::OpenaiResponses, format!("data: {created}\n\n")),
        (Format::OpenaiChat, ": processing\n\n".to_owned()),
        (Format::Anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\n".to_owned()),
    ];
    for (format, sign) in alive {
        let provider = Provider::new();
        let gateway = Gateway::before(&provider, "compact");
        let (go, wait) = mpsc::channel();
        let piece = format!("{:x}\r\n{sign}\r\n", sign.len());
        let begun = [STREAM.as_bytes(), piece.as_bytes()].concat();
        provider.plays(vec![Step::Send(begun), Step::Wait(wait), Step::Hang]);
        let mut wire = Wire::to(gateway.address);
        let sent = Instant::now();
        wire.send(addressed(&request(format, 0), gateway.address).as_bytes());
        wire.until(sign.as_bytes()).expect("it passes while the provider waits");
        let took = sent.elapsed();
        assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&took), "{format}: {took:?}");
        drop(go);
    }
}

#[test]
fn a_body_that_came_compressed_and_in_chunks_leaves_plain_and_in_chunks_when_it_is_made_smaller() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let (_, refused) = refusals().swap_remove(0);
    provider.answers(refused);
    provider.answers(answered(Format::Anthropic));
    let whole = request(Format::Anthropic, 14);
    let (_, body) = whole.split_once("\r\n\r\n").expect("a head and a body");
    let packed = gzip(body.as_bytes());
    let head = "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut wire = Wire::to(gateway.address);
    let head = addressed(head, gateway.address);
    wire.send(&[head.as_bytes(), &chunked(&packed, 1 << 10)].concat());
    assert_eq!(wire.answer().status(), 200);
    let (first, second) = (provider.saw(), provider.saw());
    assert_eq!((first.body, first.end), (packed, End::Chunks));
    assert_eq!((second.end, second.header("content-encoding")), (End::Chunks, vec![]));
    assert!(second.body.len() < body.len() && second.body.starts_with(b"{"));
}
