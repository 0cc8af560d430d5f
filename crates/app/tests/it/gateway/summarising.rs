//! Summaries that models write for mode `compact`, in the background: swapped in when they are good, and when nobody writes
//! any, or nonsense, the agent notices nothing.

use std::{fs, net::TcpListener, sync::Arc};

use epitome::wire::Format;
use serde_json::{Value, json};

use super::{
    super::harness::{Bench, text},
    agent::{Agent, WINDOW, Watchful},
    canary::check_clean,
    http::Message,
    played::{Gateway, Setup, eventually, get, ok},
    recorded::Recorded,
};

/// Notes of a model, in the agent's words.
const NOTES: &str = "## Key Decisions\n- I look at every part because one of them is broken.\n";

/// Words that only stand in a summary of a model.
const WORDS: &str = "## Key Decisions";

/// The answer to a question for a summary, in the question's format.
fn notes(question: &Message, text: &str) -> Vec<Vec<u8>> {
    let body: Value = serde_json::from_slice(&question.body).expect("JSON");
    let body = if question.line.contains("/v1/messages") {
        json!({ "id": "n", "type": "message", "role": "assistant", "model": body["model"],
            "content": [{ "type": "text", "text": text }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 9, "output_tokens": 9 } })
    } else {
        let message = json!({ "role": "assistant", "content": text });
        json!({ "model": body["model"],
            "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] })
    };
    vec![ok("Content-Type: application/json\r\n", &body.to_string()).into_bytes()]
}

/// The default policy, but that it pays a model for its summaries. By itself it leaves them to code where a model costs money.
const ASKS_MODELS: &str = r#"
name = "asks-models"
about = "The default, with summaries by a model wherever one is set up."
base = "epitome"

[summary]
keep = { tokens = 120_000 }
length = { scaled = { percent = 15, least = 1_500, most = 6_000 } }
caps = { trail = 800_000, index = 64_000 }
paid = "preferred"
"#;

fn gateway(provider: &Watchful, flags: &[&str]) -> Gateway {
    let (window, bench) = (WINDOW.to_string(), Bench::new());
    let policy = bench.write("asks.toml", ASKS_MODELS);
    let flags = [&["--mode", "compact", "--window", &window, "--policy", text(&policy)], flags].concat();
    Gateway::on(&Arc::new(bench), &provider.url(), &flags, "")
}

fn counts(gateway: &Gateway, line: &str) -> bool {
    gateway.metrics().lines().any(|said| said == line)
}

#[test]
fn a_summary_by_the_sessions_own_model_is_swapped_in_between_two_requests() {
    for (format, key) in [
        (Format::OpenaiChat, "Authorization: Bearer sk-of-anna"),
        (Format::Anthropic, "x-api-key: sk-of-anna"),
    ] {
        let provider = Watchful::new(|question| notes(question, NOTES));
        let gateway = gateway(&provider, &["--summariser", "session"]);
        let headers = format!("{key}\r\nanthropic-version: 2023-06-01\r\nIdempotency-Key: once\r\n");
        let mut agent =
            if format == Format::Anthropic { Agent::anthropic(&headers) } else { Agent::chat(&headers) };
        let recorded = Recorded::on(&gateway.bench);
        while recorded.orders() == 0 {
            let fate = agent.goes_on(&gateway);
            assert_eq!((fate.left.as_str(), fate.before), ("composed", fate.after), "{fate:?}");
        }
        let ready = "epitome_summariser_attempts_total{by=\"model\",outcome=\"ready\"} 1";
        eventually("the summary is ready", || counts(&gateway, ready));
        agent.until_compacted(&gateway);
        provider.saw(|seen| {
            let newest = seen.requests.last().expect("a request");
            assert!(newest.text().contains(WORDS), "{newest:?}");
            assert!(!seen.requests[seen.requests.len() - 2].text().contains(WORDS));
            // It was asked as the agent would ask, and no request of the agent's was asked twice.
            let question = &seen.questions[0];
            let (name, value) = key.split_once(": ").expect("a header");
            assert_eq!(question.header(name), [value]);
            assert_eq!(
                (question.line.as_str(), question.header("host")),
                (newest.line.as_str(), newest.header("host"))
            );
            assert!(question.header("idempotency-key").is_empty());
            let body: Value = serde_json::from_slice(&question.body).expect("JSON");
            // Where prices are known, the session's own request is gone on with: its provider has it in its cache.
            let is_warm = question.text().contains("You are careful.");
            assert_eq!(is_warm, format == Format::Anthropic, "{body}");
            assert!(body["stream"].is_null() || body["stream"] == false, "{body}");
        });
        let by_model = "epitome_compactions_adopted_total{by=\"model\",trigger=\"threshold\"} 1";
        eventually("the compaction is counted", || counts(&gateway, by_model));
        recorded.check_health();
    }
}

#[test]
fn a_request_with_keys_of_which_no_record_is_kept_is_not_gone_on_with() {
    let provider = Watchful::new(|question| notes(question, NOTES));
    let gateway = gateway(&provider, &["--summariser", "session"]);
    let mut agent = Agent::anthropic("x-api-key: sk-of-anna\r\nanthropic-version: 2023-06-01\r\n");
    agent.servers = Some(json!([{ "type": "url", "name": "tickets", "url": "https://mcp.example.com",
        "authorization_token": "sk-of-tickets" }]));
    let recorded = Recorded::on(&gateway.bench);
    while recorded.orders() == 0 {
        agent.goes_on(&gateway);
    }
    let ready = "epitome_summariser_attempts_total{by=\"model\",outcome=\"ready\"} 1";
    eventually("the summary is ready", || counts(&gateway, ready));
    provider.saw(|seen| {
        assert!(seen.requests.iter().all(|request| request.text().contains("sk-of-tickets")));
        let question = seen.questions[0].text();
        assert!(!question.contains("mcp_servers") && !question.contains("You are careful."), "{question}");
    });
}

#[test]
fn a_summary_by_another_model_is_asked_of_it_with_its_own_key() {
    let provider = Watchful::new(|_| Vec::new());
    let other = Watchful::new(|question| notes(question, NOTES));
    let url = format!("{}/v1", other.url());
    let flags = ["--summariser", &url, "--summariser-model", "small", "--summariser-key-env", "PROVIDER_KEY"];
    let gateway = gateway(&provider, &flags);
    let mut agent = Agent::chat("Authorization: Bearer sk-of-anna\r\n");
    let recorded = Recorded::on(&gateway.bench);
    while recorded.orders() == 0 {
        agent.goes_on(&gateway);
    }
    let ready = "epitome_summariser_attempts_total{by=\"model\",outcome=\"ready\"} 1";
    eventually("the summary is ready", || counts(&gateway, ready));
    agent.until_compacted(&gateway);
    assert!(
        provider.saw(
            |seen| seen.questions.is_empty() && seen.requests.last().expect("one").text().contains(WORDS)
        )
    );
    other.saw(|seen| {
        let question = &seen.questions[0];
        assert_eq!(question.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(question.header("authorization"), ["Bearer sk-configured"]);
        assert!(question.text().contains("\"model\":\"small\""), "{question:?}");
    });
}

/// The agent works on as if nothing were, and the built-in summariser takes over; what is counted of the other says this.
#[track_caller]
fn check_carried_on(provider: &Watchful, gateway: &Gateway, outcome: Option<&str>, unseen: &[&str]) {
    for mut agent in [Agent::chat(""), Agent::anthropic("x-api-key: k\r\n")] {
        let fates = agent.until_compacted(gateway);
        assert!(fates.iter().all(|fate| fate.left == "composed" && fate.after <= WINDOW), "{fates:?}");
        for _ in 0..8 {
            let fate = agent.goes_on(gateway);
            assert!(fate.after < fate.before, "{fate:?}");
        }
    }
    provider.saw(|seen| {
        for word in unseen {
            assert!(!seen.requests.iter().any(|request| request.text().contains(word)), "{word}");
        }
    });
    let text = gateway.metrics();
    assert!(
        text.contains("epitome_compactions_adopted_total{by=\"built_in\",trigger=\"threshold\"} "),
        "{text}"
    );
    assert!(!text.contains("epitome_compactions_adopted_total{by=\"model\""), "{text}");
    match outcome {
        Some(outcome) => eventually("it is counted", || {
            gateway.metrics().contains(&format!(
                "epitome_summariser_attempts_total{{by=\"model\",outcome=\"{outcome}\"}} "
            ))
        }),
        None => assert!(!text.contains("epitome_summariser_attempts_total{by=\"model\""), "{text}"),
    }
    Recorded::on(&gateway.bench).check_health();
}

#[test]
fn a_summariser_that_is_not_there_holds_up_nobody() {
    let provider = Watchful::new(|_| Vec::new());
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let url = format!("http://{nobody}");
    let gateway = gateway(&provider, &["--summariser", &url, "--summariser-model", "m"]);
    check_carried_on(&provider, &gateway, Some("failed"), &[]);
    check_warned(&gateway, &[" failed: "]);
}

/// The log warns of a summary that failed, and names its session and the reason.
#[track_caller]
fn check_warned(gateway: &Gateway, reason: &[&str]) {
    let sessions: Vec<String> =
        gateway.bench.json(&["sessions"]).iter().map(|row| told(&row["id"])).collect();
    eventually("the log warns", || {
        gateway.log().lines().any(|line| {
            let is_warning = line.contains("WARN") && line.contains("the summary by ");
            is_warning
                && reason.iter().all(|word| line.contains(word))
                && sessions.iter().any(|session| line.contains(session.as_str()))
        })
    });
}

fn told(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

#[test]
fn how_long_a_summary_may_take_is_a_setting() {
    let provider = Watchful::new(|_| Vec::new());
    for flags in [
        &["--summariser", "session", "--summariser-timeout", "100ms"][..],
        &["--summariser", &provider.url(), "--summariser-model", "m", "--summariser-timeout", "100ms"],
    ] {
        let gateway = gateway(&provider, flags);
        check_carried_on(&provider, &gateway, Some("failed"), &[]);
        check_warned(&gateway, &["took more than "]);
    }
}

#[test]
fn a_summariser_that_never_answers_holds_up_nobody() {
    let provider = Watchful::new(|_| Vec::new());
    let gateway = gateway(&provider, &["--summariser", "session"]);
    check_carried_on(&provider, &gateway, None, &[]);
    assert!(provider.saw(|seen| !seen.questions.is_empty()));
}

#[test]
fn a_summariser_that_answers_with_garbage_is_not_heard() {
    let provider =
        Watchful::new(|_| vec![ok("Content-Type: application/json\r\n", "<html>garbage</html>").into()]);
    let gateway = gateway(&provider, &["--summariser", "session"]);
    check_carried_on(&provider, &gateway, Some("failed"), &["garbage"]);
}

#[test]
fn a_summary_without_end_is_let_go_of() {
    // Of an answer no more than 8 MiB are read.
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let provider = Watchful::new(move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        let piece = super::talk::one(&"endless words ".repeat(75_000));
        std::iter::once(head.into()).chain((0..64).map(move |_| piece.clone())).collect()
    });
    let gateway = gateway(&provider, &["--summariser", "session"]);
    check_carried_on(&provider, &gateway, Some("failed"), &["endless words"]);
    assert!(sent.load(std::sync::atomic::Ordering::SeqCst) > 0, "somebody was asked");
}

#[test]
fn a_summariser_that_calls_a_tool_is_not_heard() {
    let provider = Watchful::new(|question| {
        let call =
            json!({ "id": "c", "type": "function", "function": { "name": "bash", "arguments": "{}" } });
        let message = json!({ "role": "assistant", "content": "Let me remove that.", "tool_calls": [call] });
        let chat = json!({ "choices": [{ "message": message, "finish_reason": "tool_calls" }] });
        let anthropic = json!({ "role": "assistant", "type": "message", "stop_reason": "tool_use", "content": [
            { "type": "text", "text": "Let me remove that." },
            { "type": "tool_use", "id": "t", "name": "bash", "input": {} }] });
        let body = if question.line.contains("/v1/messages") { anthropic } else { chat };
        vec![ok("Content-Type: application/json\r\n", &body.to_string()).into_bytes()]
    });
    let gateway = gateway(&provider, &["--summariser", "session"]);
    check_carried_on(&provider, &gateway, Some("rejected"), &["Let me remove that"]);
}

#[test]
fn a_summariser_that_invents_is_not_heard() {
    let draft = "## Key Decisions\n- Delete src/invented.rs, which holds 4711 errors.\n\n\
                 ## Failed Approaches\n- Run invent_everything() in src/invented.rs.\n";
    let provider = Watchful::new(move |question| notes(question, draft));
    let gateway = gateway(&provider, &["--summariser", "session"]);
    check_carried_on(&provider, &gateway, Some("rejected"), &["invented", "4711"]);
}

#[test]
fn the_key_of_a_request_is_nowhere_but_in_the_question() {
    // Says what it was shown, as an error and as notes.
    let echoed = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&echoed);
    let provider = Watchful::new(move |question| {
        let keys =
            [question.header("x-api-key"), question.header("authorization"), question.header("cookie")]
                .concat()
                .join(" ");
        assert!(keys.contains("sk-canary-api") && question.line.contains("sk-canary-query"), "{question:?}");
        match counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => {
                let body = json!({ "error": { "message": format!("{keys} {}", question.line) } }).to_string();
                let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n", body.len());
                vec![(head + &body).into_bytes()]
            }
            _ => notes(question, &format!("{NOTES}- Remember {keys} with patience.\n")),
        }
    });
    let bench = Arc::new(Bench::new());
    let (url, window, policy) = (provider.url(), WINDOW.to_string(), bench.write("asks.toml", ASKS_MODELS));
    let asks = ["--summariser", "session", "--policy", text(&policy)];
    let flags =
        [&["--mode", "compact", "--window", &window, "--anthropic-upstream", &url][..], &asks].concat();
    let environment = [("EPITOME_LOG", "trace")];
    let setup = Setup { bench: &bench, log: "json", flags: &flags, file: "", environment: &environment };
    let mut gateway = Gateway::start(&setup);
    let headers = "x-api-key: sk-canary-api\r\nAuthorization: Bearer sk-canary-bearer\r\nCookie: a=sk-canary-cookie\r\n";
    let mut agent = Agent::anthropic(headers).at("/v1/messages?key=sk-canary-query");
    agent.until_compacted(&gateway);
    for _ in 0..40 {
        if gateway.metrics().contains("epitome_summariser_attempts_total{by=\"model\",outcome=\"ready\"} ") {
            break;
        }
        agent.goes_on(&gateway);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let metrics = gateway.metrics();
    assert!(
        metrics.contains("epitome_summariser_attempts_total{by=\"model\",outcome=\"failed\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("epitome_summariser_attempts_total{by=\"model\",outcome=\"ready\"} "),
        "{metrics}"
    );
    check_clean("metrics", metrics.as_bytes());
    check_clean("savings", gateway.ask(&get("/epitome/savings", "")).text().as_bytes());
    gateway.terminate();
    assert!(gateway.child.wait().expect("it ends").success());
    check_clean("the log", gateway.log().as_bytes());
    let folder = bench.path("log.db").parent().expect("a folder").to_owned();
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        check_clean(&path.display().to_string(), &fs::read(&path).expect("readable"));
    }
    assert!(echoed.load(std::sync::atomic::Ordering::Relaxed) >= 2);
}
