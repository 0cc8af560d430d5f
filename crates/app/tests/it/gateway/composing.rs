//! Mode `compact` on the road: what the provider gets, what the client is told of it, and how long anybody waits.

use std::{
    io::Write,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use epitome::wire::Format;
use flate2::{Compression, write::GzEncoder};
use serde_json::json;

use super::{
    http::{End, Message, PATIENCE, Wire, chunked},
    played::{Gateway, Provider, Step, addressed, eventually, get, ok, post},
    recorded::Recorded,
    stores::{Failing, Held},
    talk::{STREAM, Talk, last, one, piece, said},
};

pub(super) const PATHS: [(Format, &str); 3] = [
    (Format::OpenaiChat, "/v1/chat/completions"),
    (Format::OpenaiResponses, "/v1/responses"),
    (Format::Anthropic, "/v1/messages"),
];

/// What the gateway says of an answer's request.
#[track_caller]
pub(super) fn fate(answer: &Message) -> String {
    let said = answer.header("x-epitome");
    assert_eq!(said.len(), 1, "{answer:?}");
    said[0].to_owned()
}

fn asked(text: &str) -> String {
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }).to_string()
}

#[test]
fn an_answer_says_what_was_done_in_this_mode_and_in_no_other() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--mode", "compact", "--allow-override"], "");
    let request = |mode: &str| post("/v1/chat/completions", mode, &asked("hi"));
    provider.answers(said("hello"));
    let answer = gateway.ask(&request(""));
    assert!(fate(&answer).starts_with("epoch=") && fate(&answer).contains("left=composed"), "{answer:?}");
    provider.answers("HTTP/1.1 500 Oh\r\nX-Epitome: mine\r\nContent-Length: 2\r\n\r\nno");
    let answer = gateway.ask(&request(""));
    assert_eq!((answer.status(), answer.text().as_str()), (500, "no"));
    assert!(fate(&answer).contains("left=composed"), "{answer:?}");
    provider.plays(vec![Step::Hang]);
    let answer = gateway.ask(&request(""));
    assert_eq!((answer.status(), answer.header("x-epitome-error")), (502, vec!["broken"]));
    assert!(fate(&answer).contains("left=composed"), "{answer:?}");
    for mode in ["off", "record", "observe"] {
        provider.answers(said("hello"));
        let answer = gateway.ask(&request(&format!("x-epitome-mode: {mode}\r\n")));
        assert_eq!((answer.status(), answer.header("x-epitome")), (200, vec![]), "{mode}");
    }
    provider.answers(ok("", "{}"));
    assert_eq!(gateway.ask(&get("/v1/models", "")).header("x-epitome"), Vec::<&str>::new());
}

#[test]
fn what_needs_no_compaction_goes_on_with_the_bytes_and_in_the_way_it_came() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let body =
        " {\"model\" : \"m\", \"messages\":[{\"content\":\"h\\u0069\",\"role\":\"user\"}] ,\"x\":1.0}\n";
    for (_, path) in PATHS {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body.as_bytes()).expect("a vector takes all");
        let packed = encoder.finish().expect("a vector takes all");
        for (headers, bytes) in [("", body.as_bytes()), ("Content-Encoding: gzip\r\n", &packed)] {
            provider.answers(ok("", "{}"));
            gateway.ask_with(path, headers, bytes);
            let seen = provider.saw();
            assert_eq!((&seen.body[..], seen.end), (bytes, End::Length), "{path} {headers}");
            assert_eq!(seen.header("content-length"), [bytes.len().to_string()], "{path} {headers}");
            assert_eq!(seen.header("content-encoding").is_empty(), headers.is_empty(), "{path}");
            let mut wire = Wire::to(gateway.address);
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: HOST\r\n{headers}Transfer-Encoding: chunked\r\n\r\n");
            provider.answers(ok("", "{}"));
            wire.send(&[addressed(&head, gateway.address).as_bytes(), &chunked(bytes, 17)].concat());
            assert_eq!(wire.answer().status(), 200);
            let seen = provider.saw();
            assert_eq!((&seen.body[..], seen.end), (bytes, End::Chunks), "{path} {headers}");
        }
    }
}

#[test]
fn wishes_that_cannot_be_read_are_refused_with_a_reason() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--mode", "compact", "--allow-override"], "");
    for (header, code) in [
        ("x-epitome-window: lots\r\n".to_owned(), "wrong_window"),
        ("x-epitome-window: 0\r\n".to_owned(), "wrong_window"),
        (format!("x-epitome-compact: {}\r\n", "a".repeat(2_001)), "long_focus"),
    ] {
        let answer = gateway.ask(&post("/v1/messages", &header, &asked("hi")));
        assert_eq!((answer.status(), answer.header("x-epitome-error")), (400, vec![code]));
        assert_eq!(fate(&answer), "left=refused");
        assert!(answer.text().contains(header.split(':').next().expect("a name")), "{answer:?}");
    }
    assert!(provider.saw_nothing());
    // They are wishes of this mode only, and never the provider's to see.
    provider.answers(said("hello"));
    let header = "x-epitome-mode: record\r\nx-epitome-window: lots\r\n";
    assert_eq!(gateway.ask(&post("/v1/chat/completions", header, &asked("hi"))).status(), 200);
    assert!(provider.saw().header("x-epitome-window").is_empty());
}

#[test]
fn a_title_is_only_recorded() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let body = json!({ "model": "m", "messages": [
        { "role": "system", "content": "You are a title generator." }, { "role": "user", "content": "fix it" },
    ] });
    provider.answers(said("Fixing it"));
    let answer = gateway.ask(&post("/v1/chat/completions", "x-session-id: ses_1\r\n", &body.to_string()));
    assert!(fate(&answer).contains("left=aside"), "{answer:?}");
    assert_eq!(provider.saw().text(), body.to_string());
    assert_eq!(Recorded::on(&gateway.bench).endings(1), ["complete"]);
}

#[test]
fn what_its_provider_would_refuse_goes_on_as_it_came_and_is_named() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &["--mode", "compact", "--allow-override"], "");
    let turns: Vec<_> = (0..80)
        .map(|turn| {
            let role = if turn % 2 == 0 { "user" } else { "assistant" };
            json!({ "role": role, "content": format!("{turn} {}", "and so on ".repeat(50)) })
        })
        .collect();
    let narrator = json!({ "role": "narrator", "content": "Meanwhile" });
    let nobody = json!({ "content": "whose?" });
    let nameless =
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "t", "input": {} }] });
    let cases = [
        ("messages", narrator, "role-known at /messages/80/role"),
        ("input", nobody, "item-has-type at /input/80"),
        ("messages", nameless, "call-has-name at /messages/80/content/0"),
    ];
    for ((_, path), (history, message, named)) in PATHS.into_iter().zip(cases) {
        let messages = [&turns[..], &[message]].concat();
        // Spaces and escapes that nobody would write again.
        let body = format!(" {}\n", json!({ "model": "m", history: messages, "x": 1.0 })).replacen(
            "and so on",
            "\\u0061nd so on",
            1,
        );
        provider.answers("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}");
        let answer = gateway.ask(&post(path, "x-epitome-window: 4000\r\n", &body));
        assert_eq!(answer.status(), 400, "{answer:?}");
        let said = fate(&answer);
        assert!(said.contains("left=illegal") && said.contains(&format!("cause=\"{named}\"")), "{said}");
        assert!(provider.saw().text() == body, "{path}: another body arrived");
        let (rule, place) = named.split_once(" at ").expect("a rule and its place");
        eventually("the log warns", || {
            let log = gateway.log();
            let warns = |line: &str| {
                let said = ["WARN", rule, place, "would refuse"];
                said.iter().all(|word| line.contains(word))
            };
            log.lines().any(warns)
        });
    }
    let metrics = gateway.metrics();
    assert!(metrics.contains("epitome_composed_calls_total{left=\"illegal\"} 3\n"), "{metrics}");
}

#[test]
fn what_nobody_can_read_goes_on_as_it_came() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    for (headers, body) in [("", &b"{nonsense"[..]), ("", b"\xff"), ("Content-Encoding: gzip\r\n", b"none")] {
        provider.answers("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}");
        let answer = gateway.ask_with("/v1/messages", headers, body);
        assert_eq!((answer.status(), fate(&answer).as_str()), (400, "left=unrecorded"));
        assert_eq!(provider.saw().body, body);
    }
    let counted = "epitome_uncomposed_total{reason=\"unreadable_request\"} 3\n";
    assert!(gateway.metrics().contains(counted), "{}", gateway.metrics());
}

#[test]
fn a_request_waits_for_the_store_but_not_for_long() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut talk = Talk::called("s-1");
    talk.says("one");
    provider.answers(said("hi"));
    assert_eq!(talk.asks(&gateway).answer().status(), 200);
    assert!(provider.saw().text().contains("one"));
    let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
    store.fails();
    let began = Instant::now();
    provider.answers(said("hello"));
    // Asked once more it is a fork, which is on record before it leaves.
    let mut wire = talk.asks(&gateway);
    assert!(provider.saw().text().contains("one"));
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    let answer = wire.answer();
    assert_eq!((answer.status(), fate(&answer).as_str()), (200, "left=unrecorded"));
    assert!(gateway.metrics().contains("epitome_uncomposed_total{reason=\"late\"} 1\n"));
    assert!(gateway.log().contains("\"not composed\""), "{}", gateway.log());
    store.mends();
    talk.heard("hello");
    provider.answers(said("again"));
    talk.goes_on(&gateway, "two");
    let recorded = Recorded::on(&gateway.bench);
    eventually("it is recorded", || {
        recorded.threads().iter().any(|thread| recorded.story(thread.id).join(" ") == "one hello two again")
    });
}

#[test]
fn a_request_that_only_grows_does_not_wait_for_the_store() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let mut talk = Talk::called("s-1");
    provider.answers(said("hello"));
    talk.goes_on(&gateway, "one");
    let mut store = Held { bench: Arc::clone(&gateway.bench), by: None };
    store.fails();
    let (go, wait) = mpsc::channel();
    provider.plays(vec![Step::Wait(wait), Step::Send(said("there").into())]);
    talk.says("two");
    let mut wire = talk.asks(&gateway);
    provider.saw();
    assert!(provider.saw().text().contains("two"));
    let recorded = Recorded::on(&gateway.bench);
    assert_eq!(recorded.calls().len(), 1);
    store.mends();
    // If the answer takes its time, it is written without it.
    eventually("it is written", || recorded.calls().len() == 2);
    go.send(()).expect("the provider waits");
    let answer = wire.answer();
    assert_eq!(answer.status(), 200);
    assert!(fate(&answer).contains("left=composed"), "{}", fate(&answer));
    assert_eq!(recorded.endings(2), ["complete"; 2]);
    assert_eq!((recorded.session().threads, recorded.calls().len()), (1, 2));
    recorded.check_calls();
}

#[test]
fn a_stream_that_has_told_is_held_no_longer() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let (go, wait) = mpsc::channel();
    provider.plays(vec![
        Step::Send([STREAM.as_bytes(), &one(": working\n\n"), &piece("hel")].concat()),
        Step::Wait(wait),
        Step::Send([piece("lo"), last()].concat()),
    ]);
    let mut talk = Talk::nameless().streamed();
    talk.says("one");
    let mut wire = talk.asks(&gateway);
    wire.until(b"\r\n\r\n").expect("a head");
    // The provider has said no more than this.
    wire.until(b": working\n\n").expect("a comment");
    wire.until(b"hel").expect("the first words");
    go.send(()).expect("the provider waits");
    wire.until(b"data: [DONE]\n\n").expect("the end");
    let recorded = Recorded::on(&gateway.bench);
    assert_eq!(recorded.endings(1), ["complete"]);
    assert_eq!(recorded.story(recorded.threads()[0].id), ["one", "hello"]);
}

#[test]
fn a_stream_that_tells_nothing_is_not_held_for_long() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let created = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"error\":null}}\n\n";
    let (go, wait) = mpsc::channel();
    provider.plays(vec![
        Step::Send([STREAM.as_bytes(), &one(created)].concat()),
        Step::Wait(wait),
        Step::Send(b"0\r\n\r\n".to_vec()),
    ]);
    let body =
        json!({ "model": "m", "stream": true, "input": [{ "role": "user", "content": "hi" }] }).to_string();
    let mut wire = Wire::to(gateway.address);
    let began = Instant::now();
    wire.send(addressed(&post("/v1/responses", "", &body), gateway.address).as_bytes());
    wire.until(created.as_bytes()).expect("what was held");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    go.send(()).expect("the provider waits");
    assert!(wire.until(b"0\r\n\r\n").is_some());
}

#[test]
fn a_client_that_leaves_while_its_answer_is_held_cancels_its_request() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "compact");
    let heads = [STREAM, "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\n{"];
    for head in heads {
        let (tell, gone) = mpsc::channel();
        provider.plays(vec![Step::Send(head.into()), Step::Watch(tell)]);
        let mut talk = Talk::nameless();
        talk.says("one");
        let wire = talk.asks(&gateway);
        provider.saw();
        drop(wire);
        gone.recv_timeout(PATIENCE).expect("the provider is told");
    }
    assert_eq!(Recorded::on(&gateway.bench).endings(2), ["cancelled", "cancelled"]);
}

/// A request that asks for a compaction, in each format.
fn wishing(format: Format, path: &str, is_streamed: bool) -> String {
    let turns = json!([
        { "role": "user", "content": "find the bug" }, { "role": "assistant", "content": "it is in main.rs" },
        { "role": "user", "content": "and now?" },
    ]);
    let history = if format == Format::OpenaiResponses { "input" } else { "messages" };
    let body = json!({ "model": "m", "stream": is_streamed, "max_tokens": 100, history: turns });
    post(path, "x-epitome-compact: the%20bug\r\n", &body.to_string())
}

#[test]
fn a_wish_to_compact_is_answered_as_the_model_would_and_reaches_no_provider() {
    let provider = Provider::new();
    for (format, path) in PATHS {
        for is_streamed in [false, true] {
            let gateway = Gateway::before(&provider, "compact");
            let answer = gateway.ask(&wishing(format, path, is_streamed));
            assert_eq!((answer.status(), fate(&answer).as_str()), (200, "left=answered"), "{answer:?}");
            let kind = if is_streamed { "text/event-stream" } else { "application/json" };
            assert_eq!(answer.header("content-type"), [kind]);
            let read = if is_streamed {
                format.read_answer_stream(&answer.body)
            } else {
                format.read_answer(&answer.text())
            };
            let words = read.expect("an answer").text();
            assert!(!words.is_empty());
            assert!(provider.saw_nothing());
            let recorded = Recorded::on(&gateway.bench);
            assert_eq!(recorded.endings(1), ["complete"]);
            let thread = recorded.threads()[0].id;
            assert_eq!(recorded.story(thread).last(), Some(&words));
        }
    }
}
