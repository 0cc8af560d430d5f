//! `epitome hook`: what agents are answered, and that nothing that goes wrong stands in their way.

use std::{fs, io::Write, path::Path, process::Stdio};

use serde_json::{Value, json};

use crate::{
    harness::{Bench, Run, text},
    mcp::{SESSION, transcript},
};

/// A machine under load is no reason to say nothing here.
const PATIENCE: &str = "60000";

/// Runs a hook: what it writes. The lock of a watching process is held, so that none is started.
fn hook(bench: &Bench, agent: &str, event: &str, input: &str) -> Run {
    let lock = fs::File::create(bench.path("watch.lock")).expect("writable");
    lock.lock().expect("nobody watches");
    let mut child = bench
        .command()
        .args(["hook", agent, event, "--deadline", PATIENCE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // It may end before it has read everything.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    Run::from(child.wait_with_output().expect("it ends"))
}

fn said(bench: &Bench, agent: &str, event: &str, input: &Value) -> String {
    let run = hook(bench, agent, event, &input.to_string());
    assert!(run.success && run.stderr.is_empty(), "{}", run.stderr);
    let log = fs::read_to_string(bench.path("hook.log")).unwrap_or_default();
    assert_eq!(log, "", "{agent} {event}");
    run.stdout.trim_end().to_owned()
}

fn context(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    answer["hookSpecificOutput"]["additionalContext"].as_str().expect("context").to_owned()
}

fn about(path: &Path, more: &Value) -> Value {
    let mut input = json!({"session_id": SESSION, "transcript_path": text(path), "cwd": "/src/app"});
    input.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    input
}

#[test]
fn around_a_compaction_claude_code_is_told_the_facts_of_the_whole_session() {
    let bench = Bench::new();
    let file = bench.write("session.jsonl", transcript("/src/app"));
    let told = said(&bench, "claude-code", "PreCompact", &about(&file, &json!({"trigger": "auto"})));
    assert!(told.starts_with("Keep these facts of the session"), "{told}");
    assert!(told.contains("Never touch the lock file") && told.contains("src/parser.rs"), "{told}");
    assert!(told.chars().count() < 5_000);

    // The agent writes its own summary, and goes on in the same file.
    let boundary = json!({
        "type": "system", "subtype": "compact_boundary", "uuid": "b-1", "parentUuid": null, "logicalParentUuid": "u-11",
        "sessionId": SESSION, "timestamp": "2026-01-05T10:10:00Z", "content": "Conversation compacted",
        "compactMetadata": {"trigger": "auto", "preTokens": 9_000}, "cwd": "/src/app",
    });
    let summary = json!({
        "type": "user", "uuid": "b-2", "parentUuid": "b-1", "sessionId": SESSION, "isCompactSummary": true,
        "timestamp": "2026-01-05T10:10:01Z", "cwd": "/src/app",
        "message": {"role": "user", "content": "This session is being continued from a previous conversation. Something was done."},
    });
    fs::write(&file, format!("{}{boundary}\n{summary}\n", transcript("/src/app"))).expect("writable");
    for source in ["compact", "resume"] {
        let told =
            context(&said(&bench, "claude-code", "SessionStart", &about(&file, &json!({"source": source}))));
        assert!(told.starts_with("Facts of this session from before its compaction"), "{told}");
        for fact in ["Fix the parser", "Never touch the lock file", "cargo test parser"] {
            assert!(told.contains(fact), "{source}: {fact} is not in\n{told}");
        }
        assert!(told.chars().count() <= 10_000);
    }
    assert_eq!(said(&bench, "claude-code", "SessionStart", &about(&file, &json!({"source": "startup"}))), "");
    let codex = context(&said(&bench, "codex", "SessionStart", &about(&file, &json!({"source": "compact"}))));
    assert!(codex.contains("Never touch the lock file"), "{codex}");
    assert_eq!(said(&bench, "codex", "PreCompact", &about(&file, &json!({"trigger": "auto"}))), "");
}

#[test]
fn before_an_edit_a_failure_is_told_once_and_a_subagent_gets_the_rules() {
    let bench = Bench::new();
    let file = bench.write("session.jsonl", transcript("/src/app"));
    bench.ok(&["import", text(&file)]);
    let edit = about(
        &file,
        &json!({"tool_name": "Edit", "tool_input": {"file_path": "/src/app/src/parser.rs", "old_string": "q", "new_string": "r"}}),
    );
    let told = context(&said(&bench, "claude-code", "PreToolUse", &edit));
    assert!(told.contains("String to replace not found") && told.contains("It worked later"), "{told}");
    assert_eq!(said(&bench, "claude-code", "PreToolUse", &edit), "", "it is told once");
    let other =
        about(&file, &json!({"tool_name": "Edit", "tool_input": {"file_path": "/src/app/src/lexer.rs"}}));
    assert_eq!(said(&bench, "claude-code", "PreToolUse", &other), "");
    let prompt = about(&file, &json!({"prompt": "Now change parser.rs again."}));
    assert_eq!(said(&bench, "claude-code", "UserPromptSubmit", &prompt), "", "it was told already");

    let task = about(
        &file,
        &json!({"tool_name": "Task", "tool_input": {"prompt": "Look around.", "subagent_type": "x"}}),
    );
    let answer: Value =
        serde_json::from_str(&said(&bench, "claude-code", "PreToolUse", &task)).expect("JSON");
    let updated = &answer["hookSpecificOutput"]["updatedInput"];
    assert_eq!(updated["subagent_type"], "x");
    let prompt = updated["prompt"].as_str().expect("a prompt");
    assert!(
        prompt.starts_with("Look around.\n\n") && prompt.contains("Never touch the lock file"),
        "{prompt}"
    );
}

#[test]
fn opencode_hands_its_session_over_and_pi_gets_the_summary_itself() {
    let bench = Bench::new();
    let export = json!({
        "info": {"id": "ses_1", "title": "A title", "directory": "/src/app", "time": {"created": 1_767_600_000_000_u64}},
        "messages": [
            {"info": {"id": "msg_1", "role": "user", "sessionID": "ses_1", "time": {"created": 1_767_600_000_000_u64}},
             "parts": [{"id": "prt_1", "type": "text", "text": "Fix the parser. Never touch the lock file."}]},
            {"info": {"id": "msg_2", "role": "assistant", "sessionID": "ses_1", "modelID": "m", "providerID": "p",
                      "time": {"created": 1_767_600_001_000_u64, "completed": 1_767_600_002_000_u64}},
             "parts": [{"id": "prt_2", "type": "text", "text": "The parser is fixed."}]},
        ],
    });
    for event in ["compacting", "messages"] {
        let input = json!({"session_id": "ses_1", "cwd": "/src/app", "transcript": export});
        let answer: Value = serde_json::from_str(&said(&bench, "opencode", event, &input)).expect("JSON");
        let told = answer["context"].as_str().expect("context");
        assert!(told.contains("Never touch the lock file"), "{told}");
    }
    let lines = [
        json!({"type": "session", "version": 3, "id": "019f7526-e56b-7b5f-a63c-68bff34eb1f1", "timestamp": "2026-01-05T10:00:00Z", "cwd": "/src/app"}),
        json!({"type": "message", "id": "a", "parentId": null, "timestamp": "2026-01-05T10:00:01Z",
               "message": {"role": "user", "content": [{"type": "text", "text": "Fix the parser. Never touch the lock file."}]}}),
        json!({"type": "message", "id": "b", "parentId": "a", "timestamp": "2026-01-05T10:00:02Z",
               "message": {"role": "assistant", "content": [{"type": "text", "text": "It is fixed."}], "model": "m", "provider": "p", "api": "x"}}),
        json!({"type": "message", "id": "c", "parentId": "b", "timestamp": "2026-01-05T10:00:03Z",
               "message": {"role": "user", "content": [{"type": "text", "text": "Now the zebra."}]}}),
    ];
    let file = bench.write("pi.jsonl", lines.map(|line| line.to_string() + "\n").concat());
    let input = json!({"transcript_path": text(&file), "cwd": "/src/app", "first_kept": "c"});
    let answer: Value =
        serde_json::from_str(&said(&bench, "pi", "session_before_compact", &input)).expect("JSON");
    let summary = answer["summary"].as_str().expect("a summary");
    assert!(summary.contains("Never touch the lock file") && !summary.contains("zebra"), "{summary}");
}

#[test]
fn whatever_goes_wrong_it_says_nothing_and_ends_well_and_a_line_tells_why() {
    let bench = Bench::new();
    for (agent, event, input, why) in [
        ("claude-code", "PreCompact", "", "is no JSON"),
        ("claude-code", "PreCompact", "[]", "is no object"),
        ("claude-code", "Nothing", "{}", "Claude Code has no hook `Nothing`"),
        ("goose", "PreCompact", "{}", "goose has no hook"),
        (
            "codex",
            "SessionStart",
            "{\"source\": \"compact\", \"transcript_path\": \"/etc/hostname\"}",
            "codex SessionStart",
        ),
    ] {
        let run = hook(&bench, agent, event, input);
        assert!(
            run.success && run.stdout.is_empty() && run.stderr.is_empty(),
            "{}{}",
            run.stdout,
            run.stderr
        );
        let log = fs::read_to_string(bench.path("hook.log")).expect("a log");
        assert!(log.lines().last().expect("a line").contains(why), "{log}");
    }
    // Nothing is known of the session, and nothing is wrong.
    let before = fs::read_to_string(bench.path("hook.log")).expect("a log");
    let run = hook(
        &bench,
        "claude-code",
        "PreToolUse",
        "{\"session_id\": \"unknown\", \"tool_name\": \"Edit\", \"tool_input\": {}}",
    );
    assert!(run.success && run.stdout.is_empty());
    assert_eq!(fs::read_to_string(bench.path("hook.log")).expect("a log"), before);

    let broken = Bench::new();
    broken.write("log.db", "this is no database, it is a text of some length that goes on for a while");
    let run = hook(&broken, "claude-code", "PreCompact", "{\"session_id\": \"x\"}");
    assert!(run.success && run.stdout.is_empty() && run.stderr.is_empty(), "{}", run.stderr);
    assert!(fs::read_to_string(broken.path("hook.log")).expect("a log").contains("log.db"));
}

#[test]
fn a_command_line_that_is_wrong_ends_well_too() {
    let bench = Bench::new();
    for args in
        [&["hook", "nobody", "PreToolUse"][..], &["hook"], &["hook", "claude-code", "Stop", "--new-flag"]]
    {
        let run = Run::from(bench.command().args(args).output().expect("the binary runs"));
        assert!(run.success && run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}: {}", run.stderr);
    }
    let wrong = bench.command().args(["hooks", "nobody"]).output().expect("the binary runs");
    assert_eq!(wrong.status.code(), Some(2));
}
