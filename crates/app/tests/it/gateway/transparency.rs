//! Nothing that passes is changed: for each shape of request and answer, in each mode, what the provider saw and what the
//! client got are the same as without the gateway.

use std::{fs, sync::mpsc};

use serde_json::{Value, json};

use super::{
    super::harness::workspace,
    http::{End, Message, Wire, chunked},
    played::{Gateway, Provider, Step, addressed, get, ok, post},
};

/// What a client sends, and what its provider answers.
struct Shape {
    name: &'static str,
    request: String,
    answer: Vec<u8>,
}

fn shape(name: &'static str, request: String, answer: impl Into<Vec<u8>>) -> Shape {
    Shape { name, request, answer: answer.into() }
}

fn fixture(path: &str) -> String {
    fs::read_to_string(workspace().join("crates/wire/tests/fixtures").join(path)).expect("a fixture")
}

/// An answer in chunks of an odd size, so that they end in the middle of lines and letters.
fn streamed(events: &str, size: usize) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n\
                Transfer-Encoding: chunked\r\nX-Request-Id: req_1\r\n\r\n";
    [head.as_bytes(), &chunked(events.as_bytes(), size)].concat()
}

fn error(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const JSON: &str = "Content-Type: application/json\r\n";
const OPENAI: &str = "Authorization: Bearer sk-client\r\nContent-Type: application/json\r\naccept: */*\r\n";
const ANTHROPIC: &str = "X-Api-Key: sk-client\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: a\r\n\
                         Anthropic-Beta: b\r\nUser-Agent: test/1\r\nContent-Type: application/json\r\n";

fn calls() -> Vec<Shape> {
    let chat = || post("/v1/chat/completions", OPENAI, &fixture("openai-chat/messages.json"));
    let responses = || post("/v1/responses?a=1&b=%20", OPENAI, &fixture("openai-responses/codex.json"));
    let messages = || post("/v1/messages?beta=true", ANTHROPIC, &fixture("anthropic/claude-code.json"));
    let odd = ": a comment\n\nevent: unheard_of\ndata: {\"x\":1}\n\ndata: not json\n\n";
    let late = ": bye\n\n";
    vec![
        shape("chat", chat(), ok(JSON, &fixture("openai-chat/tools.response.json"))),
        shape("chat streamed", chat(), streamed(&format!("{odd}{}", fixture("openai-chat/tools.sse")), 7)),
        shape("responses", responses(), ok(JSON, &fixture("openai-responses/tools.response.json"))),
        shape(
            "responses streamed",
            responses(),
            streamed(&(fixture("openai-responses/tools.sse") + late), 13),
        ),
        shape("messages", messages(), ok(JSON, &fixture("anthropic/tools.response.json"))),
        shape("messages streamed", messages(), streamed(&(fixture("anthropic/tools.sse") + odd + late), 11)),
        shape("streamed in one piece", messages(), streamed(&fixture("anthropic/server.sse"), 1 << 20)),
        shape("a stream without an end", chat(), streamed("data: {\"choices\":[]}\n\ndata: {", 5)),
        shape("an answer that is no JSON", chat(), ok(JSON, "<html>oops</html>")),
        shape("an empty answer", chat(), ok("", "")),
        shape("no content", chat(), "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
        shape("an own reason", chat(), "HTTP/1.1 200 Fine By Me\r\nContent-Length: 2\r\n\r\n{}"),
        shape(
            "repeated headers",
            chat(),
            ok("Set-Cookie: a=1\r\nX-B: 1\r\nset-cookie: b=2\r\nDate: today\r\nVia: x\r\n", "{}"),
        ),
        shape("a body that is no JSON", post("/v1/messages", ANTHROPIC, "{nonsense \u{e9}"), ok(JSON, "{}")),
        shape("an empty body", post("/v1/responses", OPENAI, ""), error("400 Bad Request", "", "{}")),
        shape(
            "a body in chunks",
            "POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\n{\"mod\r\nb\r\nel\": \"gpt\"}\r\n0\r\n\r\n"
                .to_owned(),
            ok(JSON, "{}"),
        ),
    ]
}

fn errors() -> Vec<Shape> {
    let chat = || post("/v1/chat/completions", OPENAI, "{\"model\":\"gpt-5\",\"messages\":[]}");
    let messages = || post("/v1/messages", ANTHROPIC, "{\"model\":\"claude\",\"messages\":[]}");
    let long =
        r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    let busy =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#;
    vec![
        shape("400", chat(), error("400 Bad Request", "", long)),
        shape("401", messages(), error("401 Unauthorized", "WWW-Authenticate: x\r\n", "{}")),
        shape(
            "429",
            chat(),
            error("429 Too Many Requests", "Retry-After: 20\r\nx-should-retry: true\r\n", long),
        ),
        shape("529", messages(), error("529 ", "retry-after-ms: 300\r\n", busy)),
        shape("500", messages(), error("500 Internal Server Error", "", "no json")),
        shape(
            "307",
            chat(),
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://evil.example/v1\r\nContent-Length: 0\r\n\r\n",
        ),
    ]
}

fn passes() -> Vec<Shape> {
    vec![
        shape(
            "compact",
            post("/v1/responses/compact", OPENAI, "{\"input\":[]}"),
            ok(JSON, "{\"output\":[]}"),
        ),
        shape("count", post("/v1/messages/count_tokens", ANTHROPIC, "{}"), ok(JSON, "{\"input_tokens\":1}")),
        shape("models", get("/v1/models?limit=1000", "Accept-Encoding: gzip\r\n"), ok(JSON, "{\"data\":[]}")),
        shape(
            "unheard of",
            post("/v1/what/ever%2Fthere?q=a+b", OPENAI, "x=1"),
            ok("Content-Type: text/x\r\n", "?"),
        ),
        shape("a retrieved answer", get("/v1/responses/resp_1", OPENAI), ok(JSON, "{\"id\":\"resp_1\"}")),
        shape(
            "a deletion",
            "DELETE /v1/files/f.txt HTTP/1.1\r\nHost: HOST\r\n\r\n".to_owned(),
            "HTTP/1.1 204 No Content\r\n\r\n",
        ),
    ]
}

fn compressed() -> Shape {
    // {"id":"c","choices":[]} as gzip writes it.
    let gzip = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 1, 0x17, 0, 0xe8, 0xff, b'{', b'"', b'i', b'd', b'"', b':', b'"',
        b'c', b'"', b',', b'"', b'c', b'h', b'o', b'i', b'c', b'e', b's', b'"', b':', b'[', b']', b'}', 0, 0,
        0, 0, 0x17, 0, 0, 0,
    ];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", gzip.len());
    let request = post("/v1/chat/completions", OPENAI, "{\"model\":\"m\",\"messages\":[]}");
    shape("gzip", request, [head.as_bytes(), &gzip].concat())
}

#[test]
fn what_passes_is_what_would_have_passed_without_the_gateway() {
    let provider = Provider::new();
    for mode in ["off", "record", "observe", "compact"] {
        let gateway = Gateway::before(&provider, mode);
        let shapes = calls().into_iter().chain(errors()).chain(passes()).chain([compressed()]);
        for shape in shapes {
            let direct = exchange(&provider, provider.address, &shape);
            let mut relayed = exchange(&provider, gateway.address, &shape);
            // What the gateway says of itself, in the one mode in which it does.
            relayed.1.headers.retain(|(name, _)| mode != "compact" || name != "x-epitome");
            assert_eq!(relayed, direct, "{} in {mode}", shape.name);
        }
    }
}

/// A request as a provider reads it that keeps no prefixes: without the marks that ask for that.
fn unmarked(body: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("cache_control");
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    // A mark needs a block to stand on.
    fn blocks(message: &mut Value) {
        if let Value::String(text) = &message["content"] {
            message["content"] = json!([{ "type": "text", "text": text }]);
        }
    }
    let mut body: Value = serde_json::from_str(body).expect("JSON");
    strip(&mut body);
    if let Value::String(text) = &body["system"] {
        body["system"] = json!([{ "type": "text", "text": text }]);
    }
    body["messages"].as_array_mut().expect("messages").iter_mut().for_each(blocks);
    body
}

#[test]
fn where_nothing_is_old_only_marks_for_a_cache_are_added_and_only_where_the_client_asks_for_none() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let text = "Some words that a cache would like to keep for later. ".repeat(400);
    let messages = json!([
        { "role": "user", "content": text }, { "role": "assistant", "content": [{ "type": "text", "text": text }] },
        { "role": "user", "content": [{ "type": "text", "text": "and now?" }] },
    ]);
    let plain =
        json!({ "model": "claude-sonnet-4-5", "max_tokens": 9, "system": text, "messages": messages });
    let mut marked = plain.clone();
    marked["messages"][2]["content"][0]["cache_control"] = json!({ "type": "ephemeral" });
    for (number, body) in [plain, marked].into_iter().enumerate() {
        let body = body.to_string();
        for streamed_as in [ok(JSON, "{}").into_bytes(), streamed(&fixture("anthropic/tools.sse"), 11)] {
            let name = if number == 0 { "plain" } else { "marked" };
            let shape = shape(name, post("/v1/messages", ANTHROPIC, &body), streamed_as);
            let direct = exchange(&provider, provider.address, &shape);
            let (saw, got) = exchange(&provider, gateway.address, &shape);
            assert_eq!(got.header("x-epitome").len(), 1);
            assert_eq!((got.line, got.body, got.end), (direct.1.line, direct.1.body, direct.1.end), "{name}");
            if body.contains("cache_control") {
                assert_eq!(saw, direct.0);
                continue;
            }
            assert!(saw.text().contains("cache_control"), "{saw:?}");
            assert_eq!(unmarked(&saw.text()), unmarked(&body));
            let headers = |message: &Message| {
                let mut headers = message.headers.clone();
                headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
                (message.line.clone(), headers, message.end)
            };
            assert_eq!(headers(&saw), headers(&direct.0));
        }
    }
}

/// What the provider saw and what the client got.
fn exchange(provider: &Provider, to: std::net::SocketAddr, shape: &Shape) -> (Message, Message) {
    provider.answers(shape.answer.clone());
    let mut client = Wire::to(to);
    client.send(addressed(&shape.request, to).as_bytes());
    let got = if shape.answer.starts_with(b"HTTP/1.1 204") { client.bare_answer() } else { client.answer() };
    (provider.saw().end_to_end(), got.end_to_end())
}

#[test]
fn a_stream_passes_as_it_comes() {
    let provider = Provider::new();
    for mode in ["off", "record", "compact"] {
        let gateway = Gateway::before(&provider, mode);
        let (go, wait) = mpsc::channel();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (first, last) =
            (b"event: ping\ndata: {\"type\":\"ping\"}\n\n", b"data: {\"type\":\"message_stop\"}\n\n");
        let one = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        provider.plays(vec![
            Step::Send([head.as_bytes(), &one(first)].concat()),
            Step::Wait(wait),
            Step::Send([one(last), b"0\r\n\r\n".to_vec()].concat()),
        ]);
        let mut client = Wire::to(gateway.address);
        let request = post("/v1/messages", ANTHROPIC, "{\"model\":\"claude\",\"messages\":[]}");
        client.send(addressed(&request, gateway.address).as_bytes());
        client.until(b"\r\n\r\n").expect("a head");
        // The provider has not sent more than this yet.
        assert_eq!(client.chunk().as_deref(), Some(&first[..]), "{mode}");
        go.send(()).expect("the provider waits");
        assert_eq!(client.chunk().as_deref(), Some(&last[..]), "{mode}");
        assert_eq!(client.chunk().as_deref(), Some(&b""[..]), "{mode}");
        provider.saw();
    }
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    let mut client = Wire::to(gateway.address);
    for number in 0..3 {
        let body = format!("{{\"model\":\"m\",\"messages\":[],\"n\":{number}}}");
        provider.answers(ok(JSON, &format!("{{\"n\":{number}}}")));
        client.send(addressed(&post("/v1/chat/completions", OPENAI, &body), gateway.address).as_bytes());
        assert_eq!(client.answer().text(), format!("{{\"n\":{number}}}"));
        assert_eq!(provider.saw().text(), body);
    }
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let provider = Provider::new();
    for mode in ["off", "record", "compact"] {
        let gateway = Gateway::before(&provider, mode);
        provider.answers(ok(JSON, "{}"));
        let mut client = Wire::to(gateway.address);
        let request = post("/v1/messages", "Expect: 100-continue\r\n", "{\"model\":\"m\"}");
        let (head, body) = request.split_once("{\"").expect("a head and a body");
        client.send(addressed(head, gateway.address).as_bytes());
        assert_eq!(
            client.until(b"\r\n\r\n").as_deref(),
            Some(&b"HTTP/1.1 100 Continue\r\n\r\n"[..]),
            "{mode}"
        );
        client.send(format!("{{\"{body}").as_bytes());
        assert_eq!(client.answer().status(), 200, "{mode}");
        assert_eq!(provider.saw().text(), "{\"model\":\"m\"}", "{mode}");
    }
}

#[test]
fn only_the_path_of_an_absolute_address_is_used() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    provider.answers(ok(JSON, "{}"));
    let request =
        post("http://evil.example:1/v1/messages?x=1", ANTHROPIC, "{\"api_base\":\"http://evil.example\"}");
    assert_eq!(gateway.ask(&request).status(), 200);
    let seen = provider.saw();
    assert_eq!(seen.line, "POST /v1/messages?x=1 HTTP/1.1");
    assert_eq!(seen.header("host"), [provider.address.to_string()]);
    assert_eq!(seen.end, End::Length);
}
