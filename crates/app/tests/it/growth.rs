//! Files that go on after their session was compacted here: the compacted thread goes on, nothing is doubled, and whatever
//! the file says otherwise is kept beside it.

use serde_json::{Value, json};

use super::harness::{Bench, text};

const SESSION: &str = "0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a12";

/// A format of some client, as a session of so many questions in it.
struct ClientFormat {
    file: &'static str,
    write: fn(&[(String, String)]) -> String,
}

const FORMATS: [ClientFormat; 4] = [
    ClientFormat { file: "claude.jsonl", write: claude_code },
    ClientFormat { file: "codex.jsonl", write: codex },
    ClientFormat { file: "pi.jsonl", write: pi },
    ClientFormat { file: "plain.json", write: plain },
];

/// A record as a line of a file.
fn line(record: &Value) -> String {
    format!("{record}\n")
}

fn claude_code(turns: &[(String, String)]) -> String {
    let mut parent = Value::Null;
    let mut lines = String::new();
    for (at, (asked, answered)) in turns.iter().enumerate() {
        let (user, answer) = (format!("u{at}"), format!("a{at}"));
        let common = |kind: &str, id: &str, parent: &Value, message: Value| {
            json!({"type": kind, "uuid": id, "parentUuid": parent, "sessionId": SESSION,
                "timestamp": format!("2026-01-05T10:{at:02}:00.000Z"), "message": message})
        };
        let said = json!({"role": "user", "content": asked});
        lines += &line(&common("user", &user, &parent, said));
        let said = json!({"id": format!("msg_{at}"), "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": answered}], "usage": {"input_tokens": 10, "output_tokens": 5}});
        lines += &line(&common("assistant", &answer, &json!(user), said));
        parent = json!(answer);
    }
    lines
}

fn codex(turns: &[(String, String)]) -> String {
    let line = |at: usize, kind: &str, payload: Value| {
        format!(
            "{}\n",
            json!({"timestamp": format!("2026-05-31T11:{at:02}:00Z"), "type": kind, "payload": payload})
        )
    };
    let message = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    let meta = json!({"id": SESSION, "cwd": "/src", "base_instructions": {"text": "Be brief."}});
    let mut lines = line(0, "session_meta", meta);
    for (at, (asked, answered)) in turns.iter().enumerate() {
        lines += &line(at, "turn_context", json!({"turn_id": format!("t{at}"), "model": "gpt-5.1"}));
        lines += &line(at, "response_item", message("user", "input_text", asked));
        lines += &line(at, "response_item", message("assistant", "output_text", answered));
        let usage = json!({"input_tokens": 100 + at, "output_tokens": 9});
        let info = json!({"total_token_usage": usage, "last_token_usage": usage});
        lines += &line(at, "event_msg", json!({"type": "token_count", "info": info}));
    }
    lines
}

fn pi(turns: &[(String, String)]) -> String {
    let header = json!({"type": "session", "id": SESSION, "timestamp": "2025-11-20T23:33:50Z", "cwd": "/src",
        "provider": "p", "modelId": "small"});
    let message = |message: Value| {
        format!("{}\n", json!({"type": "message", "timestamp": "2025-11-20T23:33:51Z", "message": message}))
    };
    let turn = |(asked, answered): &(String, String)| {
        message(json!({"role": "user", "content": asked}))
            + &message(json!({"role": "assistant", "model": "small", "api": "openai-completions",
                "content": [{"type": "text", "text": answered}]}))
    };
    format!("{header}\n{}", turns.iter().map(turn).collect::<String>())
}

fn plain(turns: &[(String, String)]) -> String {
    let said = |(asked, answered): &(String, String)| {
        [json!({"role": "user", "content": asked}), json!({"role": "assistant", "content": answered})]
    };
    json!(turns.iter().flat_map(said).collect::<Vec<_>>()).to_string()
}

fn turns(count: usize) -> Vec<(String, String)> {
    let words = "It is for a bench in the workshop, and it must not warp. ".repeat(12);
    (1..=count)
        .map(|turn| (format!("Question {turn}: which wood? {words}"), format!("Answer {turn}: ash.")))
        .collect()
}

fn session_of(bench: &Bench) -> String {
    bench.json(&["sessions"])[0]["id"].as_str().expect("an id").to_owned()
}

/// The facts of the head thread.
fn log(bench: &Bench, session: &str) -> Vec<Value> {
    let log = bench.ok(&["export", session, "--format", "jsonl"]);
    log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What the model sees now.
fn seen(bench: &Bench, session: &str) -> String {
    bench.ok(&["compact", session, "--budget", "100k", "--format", "openai-chat"])
}

/// The texts of a log, with what is ours left out.
fn messages(log: &[Value]) -> Vec<&Value> {
    let is_message =
        |event: &&Value| ["user_said", "assistant_said"].contains(&event["kind"].as_str().expect("a kind"));
    log.iter().filter(is_message).map(|event| &event["fact"]["parts"]).collect()
}

#[test]
fn a_file_that_grew_goes_on_behind_a_compaction_of_ours() {
    for ClientFormat { file, write } in FORMATS {
        let bench = Bench::new();
        let path = bench.write(file, write(&turns(12)));
        bench.json(&["import", text(&path)]);
        let session = session_of(&bench);
        let before = log(&bench, &session).len();
        bench.json(&["compact", &session, "--keep-turns", "2"]);
        bench.write(file, write(&turns(15)));
        let line = bench.json(&["import", text(&path)]).remove(0);
        assert_eq!((&line["threads"], &line["compactions"]), (&json!(1), &json!(1)), "{file}: {line}");
        // The marker and the compaction are ours.
        let appended = line["appended"].as_u64().unwrap();
        let grown = log(&bench, &session);
        assert_eq!(grown.len() as u64, before as u64 + 2 + appended, "{file}");
        assert_eq!(messages(&grown).len(), 30, "{file}");
        assert_eq!(grown[before + 1]["kind"], "compacted", "{file}");
        let compacted = seen(&bench, &session);
        let is_in = |needle: &str| compacted.contains(needle);
        assert!(
            is_in("What Happened") && is_in("Answer 15: ash.") && is_in("Question 13:"),
            "{file}: {compacted}"
        );
        assert_eq!(bench.json(&["import", text(&path)])[0]["appended"], 0, "{file}");

        // Undone, it is what it would have been without.
        bench.ok(&["undo", &session]);
        let other = Bench::new();
        let whole = other.write(file, write(&turns(15)));
        other.json(&["import", text(&whole)]);
        assert_eq!(seen(&bench, &session), seen(&other, &session_of(&other)), "{file}");
        bench.ok(&["redo", &session]);
        assert_eq!(seen(&bench, &session), compacted, "{file}");

        // It goes on, and is compacted again on top of the first.
        bench.write(file, write(&turns(25)));
        let line = bench.json(&["import", text(&path)]).remove(0);
        assert_eq!(
            (&line["threads"], messages(&log(&bench, &session)).len()),
            (&json!(1), 50),
            "{file}: {line}"
        );
        bench.json(&["compact", &session, "--keep-turns", "2"]);
        bench.write(file, write(&turns(26)));
        let line = bench.json(&["import", text(&path)]).remove(0);
        assert_eq!((&line["threads"], &line["compactions"]), (&json!(1), &json!(2)), "{file}: {line}");
        assert_eq!(messages(&log(&bench, &session)).len(), 52, "{file}");
        assert_eq!(bench.json(&["doctor"])[0]["healthy"], true, "{file}");
    }
}

#[test]
fn a_file_that_was_rewritten_behind_a_compaction_becomes_a_fork_that_stands_on_it() {
    for ClientFormat { file, write } in FORMATS {
        let bench = Bench::new();
        let path = bench.write(file, write(&turns(12)));
        bench.json(&["import", text(&path)]);
        let session = session_of(&bench);
        bench.json(&["compact", &session, "--keep-turns", "2"]);
        bench.write(file, write(&turns(14)));
        bench.json(&["import", text(&path)]);
        let mut other = turns(15);
        other[13].1 = "Answer 14: ebony.".to_owned();
        bench.write(file, write(&other));
        for again in [false, true] {
            let run = bench.run(&["import", text(&path)]);
            assert_eq!(run.stdout.contains("both are kept"), !again, "{file}: {}", run.stdout);
        }
        let request = seen(&bench, &session);
        let is_in = |needle: &str| request.contains(needle);
        assert!(is_in("What Happened") && is_in("ebony") && is_in("Answer 15"), "{file}: {request}");
        assert!(!is_in("Answer 14: ash."), "{file}: {request}");
        let main = bench.ok(&["export", &session, "--format", "jsonl", "--thread", "main"]);
        assert!(main.contains("Answer 14: ash.") && !main.contains("ebony"), "{file}");
        assert_eq!(bench.json(&["doctor"])[0]["healthy"], true, "{file}");
    }
}

#[test]
fn a_file_that_was_rewritten_before_a_compaction_leaves_it_where_it_is() {
    for ClientFormat { file, write } in FORMATS {
        let bench = Bench::new();
        let path = bench.write(file, write(&turns(12)));
        bench.json(&["import", text(&path)]);
        let session = session_of(&bench);
        bench.json(&["compact", &session, "--keep-turns", "2"]);
        let mut other = turns(13);
        other[2].1 = "Answer 3: ebony.".to_owned();
        bench.write(file, write(&other));
        let line = bench.json(&["import", text(&path)]).remove(0);
        assert_eq!(line["threads"], 2, "{file}: {line}");
        let request = seen(&bench, &session);
        assert!(request.contains("ebony") && !request.contains("What Happened"), "{file}: {request}");
        let main = bench.ok(&["export", &session, "--format", "jsonl", "--thread", "main"]);
        assert!(main.contains("Answer 3: ash.") && main.contains("\"compacted\""), "{file}");
    }
}

#[test]
fn a_file_that_became_shorter_changes_nothing() {
    for ClientFormat { file, write } in FORMATS {
        let bench = Bench::new();
        let path = bench.write(file, write(&turns(12)));
        bench.json(&["import", text(&path)]);
        let session = session_of(&bench);
        bench.json(&["compact", &session, "--keep-turns", "2"]);
        let before = log(&bench, &session);
        bench.write(file, write(&turns(7)));
        let line = bench.json(&["import", text(&path)]).remove(0);
        assert_eq!((&line["appended"], &line["threads"]), (&json!(0), &json!(1)), "{file}: {line}");
        assert_eq!(log(&bench, &session), before, "{file}");
        // And it goes on where it was when it is whole again.
        bench.write(file, write(&turns(13)));
        bench.json(&["import", text(&path)]);
        assert_eq!(messages(&log(&bench, &session)).len(), 26, "{file}");
    }
}

/// A client compacts after we did: what it says of places is about its own file.
#[test]
fn a_compaction_of_the_client_behind_ours_names_the_events_it_means() {
    let bench = Bench::new();
    let path = bench.write("pi.jsonl", pi(&turns(12)));
    bench.json(&["import", text(&path)]);
    let session = session_of(&bench);
    bench.json(&["compact", &session, "--keep-turns", "2"]);
    // The header, 28 messages, and the compaction: the first entry that is kept is question 14.
    let compaction = json!({"type": "compaction", "timestamp": "2025-11-20T23:40:00Z", "summary": "They chose ash.",
        "firstKeptEntryIndex": 27, "tokensBefore": 7});
    bench.write("pi.jsonl", format!("{}{compaction}\n", pi(&turns(14))));
    bench.json(&["import", text(&path)]);
    let log = log(&bench, &session);
    let theirs = log.iter().rfind(|event| event["kind"] == "compacted").unwrap();
    let kept = theirs["fact"]["first_kept"].as_u64().unwrap();
    let first =
        log.iter().find(|event| event["id"].as_str().unwrap().ends_with(&format!(":{kept}"))).unwrap();
    assert!(first["fact"]["parts"][0]["text"].as_str().unwrap().starts_with("Question 14"), "{first}");
    let request = seen(&bench, &session);
    assert!(request.contains("They chose ash.") && request.contains("Question 14"), "{request}");
    assert!(!request.contains("Question 13"), "{request}");
    assert_eq!(bench.json(&["import", text(&path)])[0]["appended"], 0);
}

#[test]
fn an_exported_log_has_its_own_compactions_and_goes_on_behind_others() {
    let bench = Bench::new();
    let session = bench.session("plain.json", &plain(&turns(12)));
    bench.json(&["compact", &session, "--keep-turns", "2"]);
    bench.ok(&["pin", &session, "Port 8080."]);
    let exported = bench.ok(&["export", &session, "--format", "jsonl"]);

    let other = Bench::new();
    let path = other.write("log.jsonl", exported);
    other.json(&["import", text(&path)]);
    assert_eq!(other.json(&["import", text(&path)])[0]["appended"], 0);
    let session = session_of(&other);
    let count = log(&other, &session).len();
    other.json(&["compact", &session, "--keep-turns", "1"]);
    assert_eq!(other.json(&["import", text(&path)])[0]["appended"], 0);
    assert_eq!((log(&other, &session).len(), other.json(&["sessions"]).len()), (count + 2, 1));
}
