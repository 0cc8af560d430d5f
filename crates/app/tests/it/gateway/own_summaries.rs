//! Clients that ask for a summary of their own session: whole as long as a window holds the request, ours above that, in the
//! form that each client reads; and the session goes on.

use std::sync::Arc;

use epitome::{
    core::{Fact, event::Summary},
    wire::Format,
};
use serde_json::{Value, json};

use super::{
    super::harness::Bench,
    composing::fate,
    http::{Message, chunked},
    played::{Gateway, Provider, ok, post},
    recorded::Recorded,
    talk::STREAM,
};

/// Formats, with the paths of their calls.
const PATHS: [(Format, &str); 4] = [
    (Format::OpenaiChat, "/v1/chat/completions"),
    (Format::OpenaiResponses, "/v1/responses"),
    (Format::Anthropic, "/v1/messages"),
    (Format::Gemini, "/v1beta/models/m:generateContent"),
];

/// A rule of the user's, which no summary may lose.
const RULE: &str = "Never touch the file config/limits.toml, whatever happens.";

const CLAUDE_CODE: &str = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nYour entire response must be plain text: \
                           an <analysis> block followed by a <summary> block.";
const CODEX: &str = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.";

fn prompt(format: Format) -> &'static str {
    if format == Format::Anthropic { CLAUDE_CODE } else { CODEX }
}

/// A client with a history in a format.
struct Client {
    format: Format,
    path: String,
    headers: &'static str,
    is_streamed: bool,
    history: Vec<(&'static str, String)>,
}

impl Client {
    fn new(format: Format, is_streamed: bool) -> Self {
        let path = PATHS.iter().find(|(other, _)| *other == format).expect("a path").1;
        let path = match (format, is_streamed) {
            (Format::Gemini, true) => "/v1beta/models/m:streamGenerateContent?alt=sse",
            _ => path,
        };
        let headers = "x-epitome-session: resumed\r\nx-epitome-window: 12000\r\n";
        Self { format, path: path.to_owned(), headers, is_streamed, history: Vec::new() }
    }

    fn says(&mut self, words: &str) {
        self.history.push(("user", words.to_owned()));
    }

    fn heard(&mut self, words: &str) {
        self.history.push(("assistant", words.to_owned()));
    }

    /// A history of which most lies behind.
    fn has_worked(&mut self, turns: usize) {
        self.says(&format!("Find out why the build of crates/parser fails. {RULE}"));
        for turn in 0..turns {
            self.heard(&format!("I looked at part {turn}: {}", "nothing is out of order there. ".repeat(60)));
            self.says(&format!("Go on with part {}. {}", turn + 1, "It has to work. ".repeat(20)));
        }
        self.heard("The parser fails at token 4711.");
    }

    fn body(&self) -> String {
        let history = self.history.iter();
        match self.format {
            Format::Gemini => {
                let contents = history.map(|(role, text)| {
                    let role = if *role == "user" { "user" } else { "model" };
                    json!({ "role": role, "parts": [{ "text": text }] })
                });
                json!({ "contents": contents.collect::<Vec<_>>() })
            }
            format => {
                let key = if format == Format::OpenaiResponses { "input" } else { "messages" };
                let history: Vec<Value> =
                    history.map(|(role, text)| json!({ "role": role, "content": text })).collect();
                json!({ "model": "m", "max_tokens": 100, "stream": self.is_streamed, key: history })
            }
        }
        .to_string()
    }

    fn asks(&self, gateway: &Gateway) -> Message {
        gateway.ask(&post(&self.path, self.headers, &self.body()))
    }

    /// The text of an answer, as the client's provider would write it.
    fn text(&self, answer: &Message) -> String {
        let read = if self.is_streamed {
            self.format.read_answer_stream(&answer.body)
        } else {
            self.format.read_answer(&answer.text())
        };
        read.expect("an answer in the provider's form").text()
    }
}

/// A provider's answer in one piece.
fn said(format: Format, words: &str) -> String {
    let body = match format {
        Format::OpenaiChat => {
            json!({ "id": "c", "model": "m", "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": words } }] })
        }
        Format::OpenaiResponses => {
            json!({ "id": "r", "object": "response", "status": "completed", "model": "m",
            "output": [{ "id": "i", "type": "message", "role": "assistant", "status": "completed",
                "content": [{ "type": "output_text", "text": words, "annotations": [] }] }] })
        }
        Format::Anthropic => json!({ "id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [{ "type": "text", "text": words }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 1, "output_tokens": 1 } }),
        Format::Gemini => json!({ "responseId": "g", "candidates": [{ "index": 0, "finishReason": "STOP",
            "content": { "role": "model", "parts": [{ "text": words }] } }] }),
    };
    ok("Content-Type: application/json\r\n", &body.to_string())
}

fn gateway(provider: &Provider) -> Gateway {
    let url = provider.url();
    Gateway::with(provider, &["--mode", "compact", "--fail-closed", "--gemini-upstream", &url], "")
}

/// What the client keeps of an answer to its prompt: what stands between the tags, if it asked for them.
#[track_caller]
fn kept(format: Format, answer: &str) -> String {
    if format != Format::Anthropic {
        return answer.to_owned();
    }
    assert!(answer.starts_with("<analysis>"), "{answer}");
    let (_, rest) = answer.split_once("<summary>").expect("a tag");
    rest.split_once("</summary>").expect("a tag").0.trim().to_owned()
}

/// Our summary is the answer, and nobody else was asked.
#[track_caller]
fn check_summarised(client: &Client, provider: &Provider, answer: &Message) -> String {
    assert_eq!((answer.status(), fate(answer).as_str()), (200, "left=summarised"), "{answer:?}");
    assert!(provider.saw_nothing());
    let summary = kept(client.format, &client.text(answer));
    for words in [RULE, "crates/parser", "token 4711"] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    // The words that asked for it are nobody's task.
    assert!(!summary.contains("TEXT ONLY") && !summary.contains("CHECKPOINT"), "{summary}");
    summary
}

/// The client goes on with a summary, until what it sends is compacted once more.
#[track_caller]
fn check_goes_on(client: &mut Client, gateway: &Gateway, provider: &Provider, summary: &str) {
    let format = client.format;
    client.is_streamed = false;
    client.path = client.path.replace("streamGenerateContent?alt=sse", "generateContent");
    client.history = vec![(
        "user",
        format!(
            "This session is being continued from a previous conversation.\n\n{summary}\n\nPlease go on."
        ),
    )];
    let mut before = u64::MAX;
    for turn in 0..40 {
        provider.answers(said(format, &format!("done {turn}")));
        let answer = client.asks(gateway);
        assert_eq!(answer.status(), 200, "{answer:?}");
        let seen = provider.saw();
        let number = |key: &str| {
            let fate = fate(&answer);
            let found =
                fate.split(", ").find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
            found.unwrap_or_else(|| panic!("no {key} in {fate}"))
        };
        before = number("before");
        let after: u64 = number("after");
        assert!(after <= 12_000, "{answer:?}");
        assert!(seen.text().contains("config/limits.toml"), "turn {turn}: {}", seen.text());
        if after < before {
            break;
        }
        client.heard(&format!("done {turn}"));
        client.says(&format!("And then part {turn}? {}", "It has to work, and soon. ".repeat(60)));
    }
    assert!(before > 8_000, "it was compacted in the end");
    let recorded = Recorded::on(&gateway.bench);
    let session = recorded.session();
    let head = session.head.expect("it goes on");
    assert_eq!(
        recorded.threads().iter().filter(|thread| thread.id == head && thread.name == "main").count(),
        1
    );
    assert!(session.compactions > 1, "{session:?}");
    // What came before the summary belongs to the session that goes on.
    assert!(recorded.raw(head).contains("I looked at part 0"));
    recorded.check_calls();
}

#[test]
fn above_the_window_a_client_that_asks_for_a_summary_gets_ours_and_goes_on() {
    for (format, _) in PATHS {
        for is_streamed in [false, true] {
            let provider = Provider::new();
            let gateway = gateway(&provider);
            let mut client = Client::new(format, false);
            client.has_worked(2);
            provider.answers(said(format, "The parser fails at token 4711."));
            client.history.pop();
            assert_eq!(client.asks(&gateway).status(), 200);
            provider.saw();
            client.history.clear();
            client.has_worked(60);
            let mut asking = Client { history: client.history.clone(), ..Client::new(format, is_streamed) };
            asking.says(prompt(format));
            let answer = asking.asks(&gateway);
            let summary = check_summarised(&asking, &provider, &answer);
            check_goes_on(&mut asking, &gateway, &provider, &summary);
        }
    }
}

#[test]
fn a_session_that_is_resumed_with_a_request_for_its_summary_ends_well() {
    for (format, _) in PATHS {
        for is_restarted in [false, true] {
            let provider = Provider::new();
            let mut gateway = gateway(&provider);
            let mut client = Client::new(format, true);
            client.has_worked(60);
            client.says(prompt(format));
            let answer = client.asks(&gateway);
            let summary = check_summarised(&client, &provider, &answer);
            if is_restarted {
                let (bench, url) = (Arc::clone(&gateway.bench), provider.url());
                drop(gateway);
                let flags = ["--mode", "compact", "--fail-closed", "--gemini-upstream", &url];
                gateway = Gateway::on(&bench, &url, &flags, "");
            }
            check_goes_on(&mut client, &gateway, &provider, &summary);
        }
    }
}

#[test]
fn a_session_that_is_resumed_whole_with_auto_compaction_off_ends_well_too() {
    for (format, _) in PATHS {
        let provider = Provider::new();
        let gateway = gateway(&provider);
        let mut client = Client::new(format, false);
        client.has_worked(60);
        client.says("Why does it fail there?");
        provider.answers(said(format, "A brace is missing."));
        let answer = client.asks(&gateway);
        assert!(fate(&answer).contains("left=composed"), "{answer:?}");
        let seen = provider.saw().text();
        for words in [RULE, "Why does it fail there?", "token 4711"] {
            assert!(seen.contains(words), "{words}: {seen}");
        }
        Recorded::on(&gateway.bench).check_calls();
    }
}

#[test]
fn what_its_provider_refuses_as_too_long_is_summarised_here() {
    for is_streamed in [false, true] {
        let provider = Provider::new();
        let gateway = gateway(&provider);
        let mut client = Client::new(Format::Anthropic, is_streamed);
        client.headers = "x-epitome-session: resumed\r\n";
        client.has_worked(60);
        client.says(CLAUDE_CODE);
        let error = json!({ "type": "error", "error": { "type": "invalid_request_error",
            "message": "prompt is too long: 20000 tokens > 10000 maximum" } })
        .to_string();
        if is_streamed {
            provider.answers(
                [STREAM.as_bytes(), &chunked(format!("event: error\ndata: {error}\n\n").as_bytes(), 23)]
                    .concat(),
            );
        } else {
            let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n", error.len());
            provider.answers(head + &error);
        }
        let answer = client.asks(&gateway);
        assert_eq!(provider.saw().text(), client.body());
        let summary = check_summarised(&client, &provider, &answer);
        client.headers = "x-epitome-session: resumed\r\nx-epitome-window: 12000\r\n";
        check_goes_on(&mut client, &gateway, &provider, &summary);
    }
}

#[test]
fn our_summary_is_on_record_with_its_sources() {
    let provider = Provider::new();
    let gateway = gateway(&provider);
    let mut client = Client::new(Format::Anthropic, false);
    client.has_worked(60);
    client.says(CLAUDE_CODE);
    let answer = client.asks(&gateway);
    let summary = check_summarised(&client, &provider, &answer);
    let bench: &Bench = &gateway.bench;
    let recorded = Recorded::on(bench);
    assert_eq!(recorded.endings(1), ["complete"]);
    let session = recorded.session().id.to_string();
    let row = recorded.calls().remove(0);
    assert!(row.outcomes[0].error.as_deref().is_some_and(|error| error.contains("answered by the gateway")));
    let thread = row.thread.to_string();
    let body = bench.ok(&["replay-call", &session, "0", "--thread", &thread, "--body"]);
    assert_eq!(body.trim_end(), client.body());
    let found = recorded.threads().iter().any(|thread| {
        recorded.facts(thread.id).iter().any(|fact| match fact {
            Fact::Compacted(compaction) => match &compaction.summary {
                Summary::Structured { text, brief } => *text == summary && !brief.items.is_empty(),
                Summary::Text(_) | Summary::Encrypted(_) => false,
            },
            _ => false,
        })
    });
    assert!(found);
    let counted = "epitome_compactions_adopted_total{by=\"built_in\",trigger=\"manual\"} 1";
    assert!(gateway.metrics().contains(counted), "{}", gateway.metrics());
}

#[test]
fn a_summary_that_the_window_holds_is_its_providers_own() {
    let provider = Provider::new();
    let gateway = gateway(&provider);
    for (format, _) in PATHS {
        let mut client = Client::new(format, false);
        client.headers = "";
        client.has_worked(3);
        client.says(prompt(format));
        provider.answers(said(format, "It went on for a while."));
        let answer = client.asks(&gateway);
        assert!(fate(&answer).contains("left=own-summary"), "{answer:?}");
        assert_eq!(provider.saw().text(), client.body(), "{format}");
    }
}
