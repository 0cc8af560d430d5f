//! Whatever comes from outside may be wrong: a clear word, no panic, and nothing already stored is lost.

use std::fs;

use super::harness::{Bench, text};

const GOOD: &str = r#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#;

/// Importing `content` fails with words that hold `expect`, and what was stored before is still whole.
fn check(content: &[u8], expect: &str) {
    let bench = Bench::new();
    bench.session("good.json", GOOD);
    let file = bench.write("bad.json", content);
    let said = bench.fails(&["import", text(&file)]);
    assert!(said.contains(expect), "expected `{expect}` in:\n{said}");
    assert!(said.contains("bad.json"), "the file is named:\n{said}");
    assert_eq!(bench.json(&["sessions"]).len(), 1);
    assert_eq!(bench.json(&["doctor"])[0]["healthy"], true);
}

#[test]
fn a_file_that_is_not_json_is_refused() {
    check(b"dear diary", "not JSON");
}

#[test]
fn a_truncated_file_is_refused() {
    check(&GOOD.as_bytes()[..40], "cut off");
}

#[test]
fn a_binary_file_is_refused() {
    check(b"\x7fELF\x02\x01\x01\0\0\0\0\0", "not text");
}

#[test]
fn an_empty_file_is_refused() {
    check(b"", "empty");
}

#[test]
fn nesting_a_hundred_thousand_deep_is_refused() {
    check("[".repeat(100_000).as_bytes(), "nested too deeply");
}

#[test]
fn a_message_nested_a_hundred_thousand_deep_is_carried_with_a_warning() {
    let bench = Bench::new();
    let deep = format!(r#"{{"role":"user","content":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let file = bench.write("deep.json", format!(r#"[{{"role":"user","content":"hello"}},{deep}]"#));
    let lines = bench.json(&["import", text(&file)]);
    assert!(
        lines[0]["warnings"][0].as_str().is_some_and(|warning| warning.contains("nested")),
        "{}",
        lines[0]
    );
    let session = lines[0]["session"].as_str().expect("a session");
    let exported = bench.ok(&["export", session, "--format", "jsonl"]);
    let last: serde_json::Value =
        serde_json::from_str(exported.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["raw"], deep.as_str(), "nothing of it is lost");
    assert_eq!(bench.json(&["doctor"])[0]["healthy"], true);
}

#[test]
fn invalid_utf8_is_refused() {
    check(b"[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]", "not text");
}

#[test]
fn a_transcript_of_an_unknown_agent_is_refused_with_what_is_known() {
    check(br#"{"conversation":{"turns":[]}}"#, "claude-code");
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_the_rest_is_kept() {
    let bench = Bench::new();
    let file = bench.write(
        "session.jsonl",
        "{\"role\":\"user\",\"content\":\"one\"}\n{\"role\":\"assist\n{\"role\":\"assistant\",\"content\":\"two\"}\n",
    );
    let lines = bench.json(&["import", text(&file)]);
    assert_eq!(lines[0]["messages"], 2);
    let warning = lines[0]["warnings"][0].as_str().expect("a warning");
    assert!(warning.starts_with("line 2:"), "{warning}");
}

#[test]
fn a_line_over_the_limit_is_reported_and_the_limit_can_be_raised() {
    let bench = Bench::new();
    let long = "x".repeat(5_000);
    let file = bench.write(
        "session.jsonl",
        format!(
            "{{\"role\":\"user\",\"content\":\"one\"}}\n{{\"role\":\"assistant\",\"content\":\"{long}\"}}\n"
        ),
    );
    let lines = bench.json(&["import", text(&file), "--max-line", "1000"]);
    assert_eq!(lines[0]["messages"], 1);
    let warning = lines[0]["warnings"][0].as_str().expect("a warning");
    assert!(warning.contains("1000"), "{warning}");
    let lines = bench.json(&["import", text(&file), "--max-line", "10000"]);
    assert_eq!(lines[0]["messages"], 2);
}

#[test]
fn a_missing_file_is_named() {
    let bench = Bench::new();
    let said = bench.fails(&["import", "/no/such/file.jsonl"]);
    assert!(said.contains("/no/such/file.jsonl"), "{said}");
}

#[test]
fn files_in_a_folder_that_are_no_transcripts_are_passed_over() {
    let bench = Bench::new();
    let folder = bench.path("folder");
    fs::create_dir(&folder).expect("a writable folder");
    fs::write(folder.join("package.json"), r#"{"name":"x","version":"1"}"#).expect("writable");
    fs::write(folder.join("notes.md"), "# notes").expect("writable");
    fs::write(folder.join("talk.json"), GOOD).expect("writable");
    let said = bench.ok(&["import", text(&folder)]);
    assert!(said.contains("1 session in 1 file") && said.contains("package.json"), "{said}");
}

#[test]
fn a_session_not_found_suggests_the_nearest() {
    let bench = Bench::new();
    bench.session("good.json", GOOD);
    let said = bench.fails(&["show", "helo"]);
    assert!(said.contains("no session is called `helo`") && said.contains("`hello`"), "{said}");
}

#[test]
fn a_database_that_is_none_is_left_alone() {
    let bench = Bench::new();
    bench.write("log.db", "this is a text file, and a rather long one: ".repeat(50));
    let before = fs::read(bench.path("log.db")).expect("readable");
    let said = bench.fails(&["sessions"]);
    assert!(said.contains("not a database"), "{said}");
    assert_eq!(fs::read(bench.path("log.db")).expect("readable"), before);
}

#[test]
fn a_damaged_page_is_found_by_the_doctor() {
    let bench = Bench::new();
    let long: Vec<String> = (0..200)
        .map(|number| format!(r#"{{"role":"user","content":"message {number} {}"}}"#, "words ".repeat(200)))
        .collect();
    bench.session("long.json", &format!("[{}]", long.join(",")));
    // Folds the write-ahead log into the file, then damages the middle of it.
    bench.ok(&["backup", text(&bench.path("whole.db"))]);
    let mut bytes = fs::read(bench.path("whole.db")).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8_192].fill(0x5a);
    bench.write("damaged.db", bytes);
    let said = bench.fails(&["doctor", "--db", text(&bench.path("damaged.db"))]);
    assert!(!said.contains("healthy."), "{said}");
    assert!(said.contains("backup"), "{said}");
}

#[test]
fn a_database_that_is_named_by_a_url_is_refused_and_nothing_is_made() {
    for url in [
        "postgres://me:canary@host/db",
        "postgresql://host/db",
        "MySQL://host/db",
        "http://host/log.db",
        "s3://bucket/log.db",
        "sqlite:///tmp/log.db",
        "sqlite:log.db",
        "file:log.db?mode=ro",
        "jdbc:sqlite:log.db",
    ] {
        let bench = Bench::new();
        let folder = bench.path("");
        let good = bench.write("good.json", GOOD);
        for args in [
            &["import", text(&good)][..],
            &["sessions"],
            &["doctor"],
            &["serve", "--check"],
            &["serve", "--listen", "127.0.0.1:0"],
            &["show", "x"],
        ] {
            for by_flag in [true, false] {
                let mut command = bench.command();
                command.current_dir(&folder).args(args);
                if by_flag {
                    command.args(["--db", url]);
                } else {
                    command.env("EPITOME_DB", url);
                }
                let output = command.output().expect("the binary runs");
                let said = String::from_utf8(output.stderr).expect("UTF-8");
                assert!(!output.status.success(), "{url} {args:?}");
                assert!(said.contains("is a URL") && said.contains("SQLite"), "{url} {args:?}: {said}");
                assert!(!said.contains("canary"), "{said}");
            }
        }
        let made: Vec<_> =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry")).collect();
        assert_eq!(made.len(), 1, "{url}: {made:?}");
    }
}

#[test]
fn a_copy_is_a_file_too_and_a_path_with_a_colon_is_still_a_path() {
    let bench = Bench::new();
    bench.session("good.json", GOOD);
    let said = bench.fails(&["backup", "postgres://host/db"]);
    assert!(said.contains("is a URL"), "{said}");
    for name in ["a:b.db", "./file:x.db", "./postgres:x"] {
        let mut command = bench.command();
        command.current_dir(bench.path("")).args(["--db", name, "sessions", "--json"]);
        assert!(command.output().expect("the binary runs").status.success(), "{name}");
    }
}

/// Requests that break a rule whose breach only their author can mend: the request, and the place and rule that are named.
const ILLEGAL: [(&str, &str, &str); 11] = [
    (r#"{"messages":[{"role":"narrator","content":"hello"}]}"#, "/messages/0/role", "role-known"),
    (
        r#"{"messages":[{"role":"narrator","content":"hello"},{"role":"user","content":"hello"}]}"#,
        "/messages/0/role",
        "role-known",
    ),
    (
        r#"{"messages":[{"content":"hello"},{"role":"user","content":"hello"}]}"#,
        "/messages/0",
        "role-present",
    ),
    (
        r#"{"messages":[{"role":"narrator","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},
        {"role":"user","content":"hello"}]}"#,
        "/messages/0/role",
        "role-known",
    ),
    (r#"{"input":[{"role":"narrator","content":"hello"}]}"#, "/input/0/role", "role-known"),
    (r#"{"input":[{"content":"hello"},{"role":"user","content":"hello"}]}"#, "/input/0", "item-has-type"),
    (r#"{"messages":["hello",{"role":"user","content":"hello"}]}"#, "/messages/0", "message-is-object"),
    (
        r#"{"model":"gpt-5.1","messages":[{"role":"user","content":"hello"},{"role":"narrator","content":"…"}]}"#,
        "/messages/1/role",
        "role-known",
    ),
    (
        r#"{"model":"gpt-5.1","messages":[{"role":"user","content":"hello"},{"role":"user","content":7}]}"#,
        "/messages/1/content",
        "content-type",
    ),
    (
        r#"{"model":"gpt-5.1","input":[{"role":"user","content":"hello"},{"content":"whose?"}]}"#,
        "/input/1",
        "item-has-type",
    ),
    (
        r#"{"model":"claude-opus-4-5","max_tokens":9,"messages":[{"role":"user","content":"hello"},{"role":"assistant",
        "content":[{"type":"tool_use","id":"t1","input":{}}]},{"role":"user","content":[{"type":"tool_result",
        "tool_use_id":"t1","content":"done"}]}]}"#,
        "/messages/1/content/0",
        "call-has-name",
    ),
];

#[test]
fn what_a_provider_would_refuse_is_named_and_nothing_is_written() {
    let bench = Bench::new();
    let out = bench.path("out.json");
    for (request, place, rule) in ILLEGAL {
        let file = bench.write("request.json", request);
        let named = format!("{place}: ");
        let run = bench.run(&["compact", text(&file), "--budget", "50k", "--out", text(&out)]);
        assert_eq!(run.code, Some(3), "{rule}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(&named) && run.stderr.contains(rule), "{rule}: {}", run.stderr);
        assert!(!out.exists(), "{rule}");
        let run = bench.run(&["compact", text(&file), "--budget", "50k"]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{rule}: {}", run.stderr);
        let run = bench.run(&["compact", text(&file), "--budget", "50k", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        let illegal = &report["illegal"][0];
        assert_eq!((&illegal["place"], &illegal["rule"]), (&place.into(), &rule.into()), "{report}");
        assert_eq!(run.code, Some(3), "{rule}");
    }
}

#[test]
fn what_a_provider_would_refuse_is_written_where_that_is_asked_for() {
    for (request, place, rule) in ILLEGAL {
        let bench = Bench::new();
        let (file, out) = (bench.write("request.json", request), bench.path("out.json"));
        let run = bench.run(&["compact", text(&file), "--budget", "50k", "--force", "--out", text(&out)]);
        assert_eq!(run.code, Some(3), "{rule}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(place) && run.stderr.contains(rule), "{rule}: {}", run.stderr);
        let written = fs::read_to_string(&out).expect("it is written");
        assert!(written.contains("hello"), "{written}");
    }
}

#[test]
fn what_can_be_mended_without_guessing_is_mended_and_said() {
    let bench = Bench::new();
    let request = r#"{"model":"gpt-5.1","messages":[{"role":"user","content":"hello"},{"role":"assistant","tool_calls":[
        {"id":"c1","type":"function","function":{"name":"look","arguments":{"at":1}}}]},
        {"role":"tool","tool_call_id":"c9","content":"nobody asked"},{"role":"user","content":"go on"}]}"#;
    let (file, out) = (bench.write("request.json", request), bench.path("out.json"));
    let report = &bench.json(&["compact", text(&file), "--out", text(&out)])[0];
    let mended: Vec<_> =
        report["mended"].as_array().expect("a list").iter().map(|found| &found["rule"]).collect();
    for rule in ["arguments-are-text", "call-answered", "result-answers-call"] {
        assert!(mended.iter().any(|found| *found == rule), "no {rule} in {report}");
    }
    assert_eq!(report["illegal"], serde_json::json!([]), "{report}");
    let again = &bench.json(&["compact", text(&out), "--out", text(&bench.path("again.json"))])[0];
    assert_eq!(
        (&again["mended"], &again["illegal"]),
        (&serde_json::json!([]), &serde_json::json!([])),
        "{again}"
    );
}
