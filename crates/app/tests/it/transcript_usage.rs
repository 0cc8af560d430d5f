//! Sessions that were imported: the usage that their transcripts record is what `calls`, `metrics` and `context` tell.

use serde_json::{Value, json};

use super::harness::{Bench, text};

/// A session of Claude Code, as it writes it down: three calls, of which the last comes after a pause.
fn transcript() -> String {
    let mut lines = Vec::new();
    let mut parent = Value::Null;
    let mut add = |kind: &str, minute: u32, message: Value| {
        let id = format!("00000000-0000-4000-8000-{:012}", lines.len() + 1);
        let line = json!({ "type": kind, "uuid": id, "parentUuid": parent, "sessionId": "s", "isSidechain": false,
            "timestamp": format!("2026-05-01T10:{minute:02}:00.000Z"), "cwd": "/work", "version": "2.1.197",
            "userType": "external", "message": message });
        parent = Value::from(id);
        lines.push(line.to_string());
    };
    for (number, minute, read) in [(1, 0, 0), (2, 1, 9_000), (3, 30, 0)] {
        add("user", minute, json!({ "role": "user", "content": format!("Question {number}: which wood?") }));
        add(
            "assistant",
            minute,
            json!({ "id": format!("msg_{number}"), "type": "message", "role": "assistant",
                "model": "claude-sonnet-4-5", "content": [{ "type": "text", "text": "Ash, for the bench." }],
                "stop_reason": "end_turn",
                "usage": { "input_tokens": 10, "cache_read_input_tokens": read,
                    "cache_creation_input_tokens": 9_990 - read, "output_tokens": 100 } }),
        );
    }
    lines.join("\n") + "\n"
}

fn imported() -> (Bench, String) {
    let bench = Bench::new();
    let file = bench.write("s.jsonl", transcript());
    let session = bench.json(&["import", text(&file)])[0]["session"].as_str().expect("an id").to_owned();
    (bench, session)
}

#[test]
fn calls_lists_what_a_transcript_records() {
    let (bench, session) = imported();
    let calls = bench.json(&["calls", &session]);
    let told: Vec<_> = calls
        .iter()
        .map(|call| (call["call"].as_u64(), call["actual"].as_u64(), call["usage"]["cache_read"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [(0, 0), (1, 9_000), (2, 0)].map(|(call, read)| (Some(call), Some(10_000), Some(read))),
        "{calls:?}"
    );
    assert!(calls.iter().all(|call| call["model"] == "claude-sonnet-4-5" && call["source"] == "transcript"));
    assert!(calls[0]["cost"].as_f64().is_some_and(|cost| cost > 0.03), "{}", calls[0]);
    assert_eq!(bench.json(&["calls", &session, "-n", "1"])[0]["call"], 2);
    let said = bench.ok(&["calls", &session]);
    assert!(said.contains("3 calls · 30k tokens in, 30 % of them from the cache"), "{said}");
    assert!(said.contains("from the transcript"), "{said}");
    // There is no request to write again, and that is said.
    assert!(bench.fails(&["replay-call", &session, "0"]).contains("this one was imported"));
}

#[test]
fn metrics_measures_the_cache_by_a_transcripts_usage() {
    let (bench, session) = imported();
    let cache = &bench.json(&["metrics", &session])[0]["metrics"]["cache"];
    let states: Vec<_> =
        cache["calls"].as_array().expect("calls").iter().map(|call| &call["state"]).collect();
    assert_eq!(states, ["cold", "warm", "cold"], "{cache}");
    assert_eq!(cache["unreported"], 0);
}

#[test]
fn context_says_what_the_provider_counted_last() {
    let (bench, session) = imported();
    let reported = &bench.json(&["context", &session])[0]["reported"];
    assert_eq!((&reported["input"], &reported["model"]), (&json!(10_000), &json!("claude-sonnet-4-5")));
    let said = bench.ok(&["context", &session]);
    assert!(said.contains("10k tokens as its provider counted it"), "{said}");
}

#[test]
fn a_compaction_prints_a_page_of_its_summary() {
    let bench = Bench::new();
    let messages: Vec<Value> = (0..200)
        .flat_map(|turn| {
            let words = "It is for a bench in the workshop, and it must not warp. ".repeat(12);
            [
                json!({ "role": "user", "content": format!("Question {turn}: which wood? {words}") }),
                json!({ "role": "assistant", "content": format!("Answer {turn}: ash number {turn}, for the bench.") }),
            ]
        })
        .collect();
    let session = bench.session("talk.json", &json!(messages).to_string());
    let said = bench.ok(&["compact", &session, "--keep-turns", "2"]);
    assert!(said.lines().count() < 40, "{} lines", said.lines().count());
    let more = said.lines().find(|line| line.contains("more line")).expect("it says that there is more");
    let handle =
        more.split("epitome recall ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a handle");
    let whole = bench.ok(&["recall", handle]);
    assert!(whole.lines().count() > 60, "{whole}");
    bench.ok(&["undo", &session]);
    let full = bench.ok(&["compact", &session, "--keep-turns", "3", "--full"]);
    assert!(full.lines().count() > 60 && !full.contains("more line"), "{full}");
}
