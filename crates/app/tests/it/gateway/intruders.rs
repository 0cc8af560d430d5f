//! Those who want in, or out to somewhere else, or to see what is somebody else's.

use std::net::TcpStream;

use serde_json::json;

use super::{
    http::{Message, Wire},
    played::{Gateway, Provider, addressed, get, ok, post},
    recorded::Recorded,
    talk::{Talk, said},
};

const BODY: &str = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

const TOKENS: &str = "[[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n\
                      [[token]]\nprincipal = \"bob\"\nenv = \"BOB_TOKEN\"\n";

#[test]
fn where_a_request_goes_is_never_the_clients_choice() {
    let (provider, elsewhere) = (Provider::new(), Provider::new());
    let gateway = Gateway::before(&provider, "record");
    let evil = elsewhere.url();
    let host = elsewhere.address;
    let named: Vec<String> = [
        "X-Forwarded-Host",
        "X-Forwarded-Server",
        "X-Original-Host",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Host",
        "Forwarded",
        "api_base",
        "base_url",
        "X-Base-Url",
        "X-Upstream",
        "X-Epitome-Upstream",
        "OpenAI-Base-Url",
        "Proxy-Host",
        "Referer",
        "Location",
    ]
    .into_iter()
    .flat_map(|name| [format!("{name}: {evil}\r\n"), format!("{name}: {host}\r\n")])
    .collect();
    let body = json!({
        "model": format!("{evil}/m"), "messages": [{ "role": "user", "content": "hi" }],
        "api_base": evil, "base_url": evil, "host": host.to_string(), "url": evil,
        "metadata": { "api_base": evil }, "extra_body": { "base_url": evil },
    });
    let mut requests = vec![
        (post("/v1/messages", "", &body.to_string()), "POST /v1/messages HTTP/1.1".to_owned()),
        (
            post(&format!("/v1/messages?api_base={evil}"), "", BODY),
            format!("POST /v1/messages?api_base={evil} HTTP/1.1"),
        ),
        (post(&format!("{evil}/v1/messages"), "", BODY), "POST /v1/messages HTTP/1.1".to_owned()),
        (
            post(&format!("http://user:word@{host}/v1/messages"), "", BODY),
            "POST /v1/messages HTTP/1.1".to_owned(),
        ),
        (get(&format!("/v1/@{host}/x"), ""), format!("GET /v1/@{host}/x HTTP/1.1")),
        (get(&format!("/v1//{host}/x"), ""), format!("GET /v1//{host}/x HTTP/1.1")),
    ];
    for headers in named {
        requests.push((post("/v1/messages", &headers, BODY), "POST /v1/messages HTTP/1.1".to_owned()));
    }
    for (request, line) in requests {
        provider.answers(ok("", "{}"));
        assert_eq!(gateway.ask(&request).status(), 200, "{request}");
        let seen = provider.saw();
        assert_eq!(seen.line, line);
        assert_eq!(seen.header("host"), [provider.address.to_string()], "{request}");
    }
    let mut request = get("/v1/models", "").replace("Host: HOST", "Host: evil.example");
    assert_eq!(gateway.ask(&request).status(), 403);
    request = format!("CONNECT {host} HTTP/1.1\r\nHost: HOST\r\n\r\n");
    assert_eq!(gateway.ask(&request).status(), 404);
    assert!(provider.saw_nothing() && elsewhere.saw_nothing());
}

#[test]
fn a_request_with_two_lengths_is_refused_and_what_it_hides_is_not_read() {
    let provider = Provider::new();
    for mode in ["off", "record", "compact"] {
        let gateway = Gateway::before(&provider, mode);
        let hidden = "GET /v1/hidden HTTP/1.1\r\nHost: HOST\r\n\r\n";
        let chunks = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
        let (short, long) = (BODY.len(), chunks.len() + hidden.len());
        for lengths in [
            format!("Content-Length: {short}\r\nTransfer-Encoding: chunked\r\n"),
            format!("Content-Length: {long}\r\nTransfer-Encoding: chunked\r\n"),
            format!("Transfer-Encoding: chunked\r\nContent-Length: {long}\r\n"),
            format!("transfer-encoding: Chunked\r\nX-Between: x\r\ncontent-length: {long}\r\n"),
            format!("Content-Length: {long}\r\nContent-Length: {long}\r\nTransfer-Encoding: chunked\r\n"),
            format!("Transfer-Encoding: chunked\r\nContent-Length: {long}\r\nContent-Length: {short}\r\n"),
            "Transfer-Encoding: chunked\r\nContent-Length: many\r\n".to_owned(),
        ] {
            let head = format!("POST /v1/messages HTTP/1.1\r\nHost: HOST\r\n{lengths}\r\n");
            let answer = gateway.ask(&format!("{head}{chunks}{hidden}"));
            assert_eq!(
                (answer.status(), answer.header("x-epitome-error")),
                (400, vec!["two_lengths"]),
                "{lengths}"
            );
            assert_eq!(answer.header("connection"), ["close"], "{lengths}");
        }
        for lengths in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 6\r\nContent-Length: 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5, 6\r\n",
            "Content-Length: -1\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            let answer = gateway
                .ask(&format!("POST /v1/messages HTTP/1.1\r\nHost: HOST\r\n{lengths}\r\nhello{hidden}"));
            assert_eq!(answer.status(), 400, "{lengths}");
        }
        assert!(provider.saw_nothing());
    }
}

#[test]
fn a_request_with_two_lengths_is_found_behind_others_on_its_connection() {
    let provider = Provider::new();
    let gateway = Gateway::before(&provider, "record");
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    // What only looks like such a head is a body like any other.
    let inside = format!(
        "{{\"model\":\"m\",\"messages\":[],\"x\":\"POST / HTTP/1.1\\r\\n{}\"}}",
        both.escape_default()
    );
    let plain = post("/v1/messages", "", &inside);
    let chunked = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{inside}\r\n0\r\n\r\n",
        inside.len()
    );
    let mut wire = Wire::over(TcpStream::connect(gateway.address).expect("somebody listens"));
    for request in [&plain, &chunked, &plain] {
        provider.answers(ok("", "{}"));
        wire.send(addressed(request, gateway.address).as_bytes());
        assert_eq!(wire.answer().status(), 200, "{request}");
        assert_eq!(provider.saw().text(), inside);
    }
    let faulty = format!("POST /v1/messages HTTP/1.1\r\nHost: HOST\r\n{both}{plain}");
    wire.send(addressed(&faulty, gateway.address).as_bytes());
    assert_eq!(wire.answer().status(), 400);
    assert!(wire.answer_if_any().is_none());
    // Also where the requests come all at once.
    provider.answers(ok("", "{}"));
    let mut wire = Wire::over(TcpStream::connect(gateway.address).expect("somebody listens"));
    wire.send(addressed(&format!("{chunked}{faulty}"), gateway.address).as_bytes());
    assert_eq!((wire.answer().status(), wire.answer().status()), (200, 400));
    provider.saw();
    assert!(wire.answer_if_any().is_none() && provider.saw_nothing());
}

#[test]
fn whoever_shows_no_whole_token_is_nobody_and_gets_nothing() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &[], TOKENS);
    let long = "t-anna".repeat(5_000);
    let shown = [
        "",
        "t",
        "t-ann",
        "-anna",
        "t-annaa",
        "T-ANNA",
        "t-Anna",
        "t-anna t-anna",
        "t-anna,t-bob",
        "t-anna\tx",
        "t-annat-bob",
        "anna",
        "bob",
        "null",
        "undefined",
        "*",
        "%",
        "' OR '1'='1",
        "t-%",
        &long,
    ];
    let doors = [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/responses/compact"),
        ("GET", "/v1/models"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/whatever"),
        ("GET", "/metrics"),
        ("GET", "/epitome/savings"),
    ];
    let knock = |method: &str, path: &str, headers: &str| -> Message {
        let length = BODY.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: HOST\r\n{headers}Content-Length: {length}\r\n\r\n{BODY}"
        );
        gateway.ask(&request)
    };
    let check = |headers: &str, answer: &Message| {
        let told = (answer.status(), answer.header("x-epitome-error"));
        assert_eq!(told, (401, vec!["no_token"]), "{headers} {answer:?}");
    };
    for headers in
        ["", "x-epitome-principal: anna\r\n", "x-epitome-token: t-anna\r\nx-epitome-token: t-bob\r\n"]
    {
        for (method, path) in doors {
            check(headers, &knock(method, path, headers));
        }
    }
    for (number, token) in shown.iter().enumerate() {
        for header in ["x-epitome-token: ", "Authorization: Bearer ", "x-api-key: ", "Authorization: Basic "]
        {
            // Every door once, not every door with every key.
            let (method, path) = doors[number % doors.len()];
            let headers = format!("{header}{token}\r\n");
            check(&headers, &knock(method, path, &headers));
        }
    }
    // A wrong token is not made good by a right one elsewhere.
    let both = "x-epitome-token: t-ann\r\nAuthorization: Bearer t-anna\r\n";
    check(both, &knock("POST", "/v1/messages", both));
    assert!(provider.saw_nothing());
    let recorded = Recorded::on(&gateway.bench);
    assert!(recorded.sessions().is_empty());

    // All tokens are tried, the last too.
    for (token, principal) in [("t-anna", "anna"), ("t-bob", "bob")] {
        provider.answers(ok("", "{}"));
        assert_eq!(knock("POST", "/v1/messages", &format!("x-epitome-token: {token}\r\n")).status(), 200);
        provider.saw();
        let known: Vec<_> = recorded.sessions().into_iter().map(|session| session.principal).collect();
        assert!(known.contains(&principal.to_owned()), "{known:?}");
    }
    assert_eq!(gateway.ask(&get("/metrics", "Authorization: Bearer t-bob\r\n")).status(), 200);
}

fn responses(token: &str, body: &serde_json::Value) -> String {
    post("/v1/responses", &format!("x-epitome-token: {token}\r\n"), &body.to_string())
}

fn responded(id: &str, words: &str) -> String {
    let item = json!({
        "id": format!("msg_{id}"), "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": words, "annotations": [] }],
    });
    let body =
        json!({ "id": id, "object": "response", "status": "completed", "model": "m", "output": [item] });
    ok("Content-Type: application/json\r\n", &body.to_string())
}

#[test]
fn the_same_ids_and_histories_under_two_tokens_never_meet() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &[], TOKENS);
    let recorded = Recorded::on(&gateway.bench);
    for named in [true, false] {
        for token in ["t-anna", "t-bob", "t-anna", "t-bob"] {
            let talk = if named { Talk::called("the-same-id") } else { Talk::nameless() };
            let mut talk = talk.with(&format!("x-epitome-token: {token}\r\n"));
            for turn in ["one", "two", "three"] {
                provider.answers(said(&format!("answer to {turn}")));
                talk.goes_on(&gateway, turn);
            }
        }
    }
    for session in recorded.sessions() {
        let threads = recorded.threads().into_iter().filter(|thread| thread.session == session.id);
        let count = threads.map(|thread| recorded.story(thread.id).len()).max();
        assert_eq!(count, Some(6), "{session:?}");
    }
    let exchanges = recorded.exchanges();
    let of = |principal: &str| {
        let sessions: Vec<_> =
            recorded.sessions().into_iter().filter(|session| session.principal == principal).collect();
        let threads: Vec<_> = recorded
            .threads()
            .into_iter()
            .filter(|thread| sessions.iter().any(|session| session.id == thread.session))
            .map(|thread| thread.id)
            .collect();
        exchanges.iter().filter(|row| threads.contains(&row.thread)).count()
    };
    assert_eq!((of("anna"), of("bob"), of("")), (12, 12, 0));
    recorded.check_health();
}

#[test]
fn what_somebody_else_was_answered_cannot_be_named() {
    let provider = Provider::new();
    let gateway = Gateway::with(&provider, &[], TOKENS);
    let recorded = Recorded::on(&gateway.bench);
    provider.answers(responded("resp_anna", "Anna's secret"));
    let first = json!({ "model": "m", "input": "hello", "conversation": "conv_1" });
    assert_eq!(gateway.ask(&responses("t-anna", &first)).status(), 200);
    provider.answers(responded("resp_other", "Anna's other secret"));
    assert_eq!(gateway.ask(&responses("t-anna", &json!({ "model": "m", "input": "hello" }))).status(), 200);
    let reaching = [
        json!({ "model": "m", "input": "and now?", "previous_response_id": "resp_anna" }),
        json!({ "model": "m", "input": "and now?", "previous_response_id": "resp_other" }),
        json!({ "model": "m", "input": "and now?", "conversation": "conv_1" }),
        json!({ "model": "m", "input": [
            { "type": "item_reference", "id": "msg_resp_anna" },
            { "type": "item_reference", "id": "msg_resp_other" },
            { "role": "user", "content": "and now?" },
        ] }),
    ];
    for (number, body) in reaching.iter().enumerate() {
        provider.answers(responded(&format!("resp_bob_{number}"), "nothing"));
        assert_eq!(gateway.ask(&responses("t-bob", body)).status(), 200);
    }
    let bobs: Vec<_> = recorded.sessions().into_iter().filter(|session| session.principal == "bob").collect();
    assert_eq!(bobs.len(), reaching.len(), "{bobs:#?}");
    for thread in recorded.threads() {
        if bobs.iter().any(|session| session.id == thread.session) {
            assert!(!recorded.raw(thread.id).contains("secret"), "{}", recorded.raw(thread.id));
        }
    }
    // Who was answered may name it.
    provider.answers(responded("resp_anna_2", "more"));
    let next = json!({ "model": "m", "input": "and now?", "previous_response_id": "resp_other" });
    assert_eq!(gateway.ask(&responses("t-anna", &next)).status(), 200);
    let annas = recorded.sessions().into_iter().filter(|session| session.principal == "anna").count();
    assert_eq!(annas, 2);
}
