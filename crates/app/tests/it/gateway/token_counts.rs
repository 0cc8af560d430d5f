//! Counting routes in mode `compact`: what is counted is what would be sent, and counting leaves no trace.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use epitome::wire::Format;
use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    composing::fate,
    http::Message,
    played::{Gateway, Parrot, ok, post},
    recorded::Recorded,
};

/// Formats with the paths of their calls and of their counts.
const ROUTES: [(Format, &str, &str); 3] = [
    (Format::Anthropic, "/v1/messages", "/v1/messages/count_tokens"),
    (Format::OpenaiResponses, "/v1/responses", "/v1/responses/input_tokens"),
    (Format::Gemini, "/v1beta/models/m:generateContent", "/v1beta/models/m:countTokens"),
];

const HEADERS: &str = "x-epitome-session: s\r\nx-epitome-window: 12000\r\n";

/// What the provider says to everybody who has it count.
const PROVIDERS_COUNT: u64 = 777_777;

/// A provider that answers calls, says what it used, and counts. Its tokens have so many bytes; `newest` is the newest call's.
fn provider(bytes_per_token: u64, counts: bool, newest: &Arc<AtomicU64>) -> Parrot {
    let refusal = (!counts).then_some("{\"error\":{\"message\":\"no such route\"}}");
    refusing_provider(bytes_per_token, refusal, newest)
}

/// The same provider; `refusal` is what it says when it is to count.
fn refusing_provider(bytes_per_token: u64, refusal: Option<&'static str>, newest: &Arc<AtomicU64>) -> Parrot {
    let newest = Arc::clone(newest);
    Parrot::new(move |request| {
        let is_count =
            ["count_tokens", "input_tokens", "countTokens"].iter().any(|name| request.line.contains(name));
        if is_count && let Some(body) = refusal {
            return vec![
                format!("HTTP/1.1 404 No\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes(),
            ];
        }
        if is_count {
            let body = json!({ "input_tokens": PROVIDERS_COUNT, "totalTokens": PROVIDERS_COUNT });
            return vec![ok("Content-Type: application/json\r\n", &body.to_string()).into_bytes()];
        }
        let used = request.body.len() as u64 / bytes_per_token;
        newest.store(used, Ordering::SeqCst);
        let words = format!("part {} is fine", newest.load(Ordering::SeqCst));
        let body = if request.line.contains("/v1/messages") {
            json!({ "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "content": [{ "type": "text", "text": words }],
                "usage": { "input_tokens": used, "output_tokens": 5 } })
        } else if request.line.contains("/v1/responses") {
            json!({ "id": format!("r{used}"), "object": "response", "status": "completed", "model": "m",
                "output": [{ "id": format!("i{used}"), "type": "message", "role": "assistant", "status": "completed",
                    "content": [{ "type": "output_text", "text": words, "annotations": [] }] }],
                "usage": { "input_tokens": used, "output_tokens": 5, "total_tokens": used + 5 } })
        } else {
            json!({ "responseId": "g", "candidates": [{ "index": 0, "finishReason": "STOP",
                "content": { "role": "model", "parts": [{ "text": words }] } }],
                "usageMetadata": { "promptTokenCount": used, "candidatesTokenCount": 5 } })
        };
        vec![ok("Content-Type: application/json\r\n", &body.to_string()).into_bytes()]
    })
}

fn gateway(provider: &Parrot, mode: &str) -> Gateway {
    let url = provider.url();
    let flags = ["--mode", mode, "--fail-closed", "--gemini-upstream", &url];
    let flags = if mode == "off" { &[flags[0], flags[1], flags[3], flags[4]][..] } else { &flags[..] };
    Gateway::on(&Arc::new(Bench::new()), &url, flags, "")
}

/// A history with a question at its end, in a format, as a call or as a count.
fn body(format: Format, history: &[(bool, String)], is_count: bool) -> String {
    let message = |(is_user, text): &(bool, String)| match (format, is_user) {
        (Format::Gemini, true) => json!({ "role": "user", "parts": [{ "text": text }] }),
        (Format::Gemini, false) => json!({ "role": "model", "parts": [{ "text": text }] }),
        (_, true) => json!({ "role": "user", "content": text }),
        (_, false) => json!({ "role": "assistant", "content": text }),
    };
    let history: Vec<Value> = history.iter().map(message).collect();
    let body = match (format, is_count) {
        (Format::Gemini, false) => json!({ "contents": history }),
        (Format::Gemini, true) => {
            json!({ "generateContentRequest": { "model": "models/m", "contents": history } })
        }
        (Format::OpenaiResponses, false) => {
            json!({ "model": "m", "input": history, "max_output_tokens": 100 })
        }
        (Format::OpenaiResponses, true) => json!({ "model": "m", "input": history }),
        (_, false) => {
            json!({ "model": "m", "system": "You are careful.", "messages": history, "max_tokens": 100 })
        }
        (_, true) => json!({ "model": "m", "system": "You are careful.", "messages": history }),
    };
    body.to_string()
}

#[track_caller]
fn counted(answer: &Message) -> u64 {
    assert_eq!(answer.status(), 200, "{answer:?}");
    let body: Value = serde_json::from_str(&answer.text()).expect("JSON");
    body["input_tokens"].as_u64().or(body["totalTokens"].as_u64()).unwrap_or_else(|| panic!("{body}"))
}

#[track_caller]
fn tells(answer: &Message, key: &str) -> u64 {
    let fate = fate(answer);
    let found = fate.split(", ").find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
    found.unwrap_or_else(|| panic!("no {key} in {fate}"))
}

/// What an answer of the provider says.
fn said(format: Format, answer: &Message) -> String {
    format.read_answer(&answer.text()).expect("an answer").text()
}

fn question(turn: usize) -> String {
    format!("Look at part {turn}. {}", "It has to work, and it has to work soon. ".repeat(90))
}

/// Plays a session, counting each request before it is sent. Gives the counts of composed requests beside what was then
/// sent, by our count and by the provider's.
fn played(format: Format, bytes_per_token: u64) -> Vec<(u64, u64, u64)> {
    let (_, path, count_path) = *ROUTES.iter().find(|(other, ..)| *other == format).expect("a format");
    let newest = Arc::default();
    let provider = provider(bytes_per_token, true, &newest);
    let gateway = gateway(&provider, "compact");
    let (mut history, mut counts) = (Vec::new(), Vec::new());
    for turn in 0..24 {
        history.push((true, question(turn)));
        let count = counted(&gateway.ask(&post(count_path, HEADERS, &body(format, &history, true))));
        let answer = gateway.ask(&post(path, HEADERS, &body(format, &history, false)));
        assert_eq!(answer.status(), 200, "{answer:?}");
        let (before, after) = (tells(&answer, "before"), tells(&answer, "after"));
        if before == after {
            // It went on as it came, so its provider has counted it.
            assert_eq!(count, PROVIDERS_COUNT, "{format} turn {turn}");
        } else {
            assert_ne!(count, PROVIDERS_COUNT, "{format} turn {turn}");
            counts.push((count, after, newest.load(Ordering::SeqCst)));
        }
        history.push((false, said(format, &answer)));
    }
    assert!(counts.len() > 8, "{format}: {counts:?}");
    counts
}

#[test]
fn what_is_counted_is_what_is_then_sent() {
    for (format, ..) in ROUTES {
        // Its tokens are longer than ours are thought to be: nothing has to be corrected.
        for (count, after, _) in played(format, 6) {
            let apart = count.abs_diff(after) * 100 / after;
            assert!(apart <= 1, "{format}: {count} and {after}");
        }
    }
}

#[test]
fn counts_agree_with_a_provider_that_counts_more_within_the_error_that_is_stated() {
    for (format, ..) in ROUTES {
        // Once three calls have shown how their provider counts, three percent are kept free.
        for (count, after, provider) in played(format, 3) {
            assert!(count >= after, "{format}: {count} and {after}");
            let apart = count.abs_diff(provider) * 100 / provider;
            assert!(apart <= 3, "{format}: {count}, and {provider} counted by the provider");
        }
    }
}

#[test]
fn counting_leaves_no_trace() {
    let newest = Arc::default();
    let provider = provider(4, true, &newest);
    let gateway = gateway(&provider, "compact");
    let (format, path, count_path) = ROUTES[0];
    let mut history = Vec::new();
    let ask = |history: &[(bool, String)]| {
        let answer = gateway.ask(&post(path, HEADERS, &body(format, history, false)));
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer
    };
    for turn in 0..12 {
        history.push((true, question(turn)));
        history.push((false, said(format, &ask(&history))));
    }
    history.push((true, question(12)));
    let recorded = Recorded::on(&gateway.bench);
    let state = || {
        let threads: Vec<_> = recorded.threads().iter().map(|thread| (thread.id, thread.head.seq)).collect();
        (threads, recorded.calls().len(), recorded.exchanges().len(), recorded.orders())
    };
    let metrics = || {
        let text = gateway.metrics();
        let counts = |line: &&str| line.contains("compactions_adopted") || line.contains("composed_epochs");
        text.lines().filter(counts).map(str::to_owned).collect::<Vec<_>>()
    };
    recorded.endings(12);
    let before = (state(), metrics());
    // The next request, one that goes back, one that parts, another session, and one that a provider would refuse.
    let parted = [&history[..7], &[(false, "Something else.".to_owned()), (true, question(50))]].concat();
    for history in [&history[..], &history[..9], &parted, &[(true, "hello".to_owned())], &[]] {
        for headers in [HEADERS, "x-epitome-session: other\r\nx-epitome-window: 12000\r\n"] {
            let answer = gateway.ask(&post(count_path, headers, &body(format, history, true)));
            assert_eq!(answer.status(), 200, "{answer:?}");
            assert!(answer.header("x-epitome").is_empty());
        }
    }
    assert_eq!((state(), metrics()), before);
    let answer = ask(&history);
    assert!(!fate(&answer).contains("cause="), "{answer:?}");
    recorded.check_calls();
}

#[test]
fn a_provider_without_a_counting_route_is_helped_out() {
    let newest = Arc::default();
    let provider = provider(4, false, &newest);
    let gateway = gateway(&provider, "compact");
    for (format, _, count_path) in ROUTES {
        let history = [(true, question(0))];
        let answer = gateway.ask(&post(count_path, "", &body(format, &history, true)));
        let count = counted(&answer);
        assert!((500..1_500).contains(&count), "{format}: {count}");
    }
}

#[test]
fn only_a_404_about_the_address_is_helped_out() {
    let check = |refusal: &'static str, is_helped: bool| {
        let provider = refusing_provider(4, Some(refusal), &Arc::default());
        let gateway = gateway(&provider, "compact");
        let (format, _, count_path) = ROUTES[0];
        let answer = gateway.ask(&post(count_path, "", &body(format, &[(true, question(0))], true)));
        if is_helped {
            assert!((500..1_500).contains(&counted(&answer)), "{refusal}");
        } else {
            assert_eq!((answer.status(), answer.text().as_str()), (404, refusal));
        }
    };
    check("", true);
    check("404 page not found", true);
    check("<html>Not Found</html>", true);
    check(r#"{"detail":"Not Found"}"#, true);
    check(r#"{"error":{"message":"Invalid URL (POST /v1/models/m:countTokens)"}}"#, true);
    check(r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#, false);
    check(r#"{"error":{"message":"The model `m` does not exist.","code":"model_not_found"}}"#, false);
    check(
        r#"{"error":{"message":"models/m is not found. Call ListModels to see supported methods."}}"#,
        false,
    );
    check(r#"{"error":"model 'm' not found"}"#, false);
    check(r#"{"error":{"message":"Previous response with id 'r' not found."}}"#, false);
}

#[test]
fn in_other_modes_the_provider_counts() {
    let newest = Arc::default();
    let provider = provider(4, true, &newest);
    for mode in ["off", "record", "observe"] {
        let gateway = gateway(&provider, mode);
        for (format, _, count_path) in ROUTES {
            let answer = gateway.ask(&post(count_path, "", &body(format, &[(true, question(0))], true)));
            assert_eq!(counted(&answer), PROVIDERS_COUNT, "{mode} {format}");
        }
    }
}
