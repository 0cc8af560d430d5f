//! Each command, on sessions small enough to read here.

use serde_json::{Value, json};

use super::harness::{Bench, text, workspace};

const TALK: &str = r#"[
{"role":"system","content":"Be brief."},
{"role":"user","content":"Read the notes."},
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"notes.md\"}"}}]},
{"role":"tool","tool_call_id":"c1","content":"buy zebrawood\nsharpen the plane"},
{"role":"assistant","content":"Two notes."},
{"role":"user","content":"Which wood?"},
{"role":"assistant","content":"Zebrawood."}
]"#;

#[test]
fn a_first_look_says_what_to_do() {
    let bench = Bench::new();
    insta::assert_snapshot!(bench.ok(&["sessions"]), @"No sessions here yet. Import some: epitome import FILE|DIR…");
    assert!(!bench.path("log.db").exists(), "looking makes no database");
    let said = bench.fails(&["show", "x"]);
    assert!(said.contains("import a session first"), "{said}");
}

#[test]
fn an_imported_session_is_counted() {
    let bench = Bench::new();
    let file = bench.write("talk.json", TALK);
    let lines = bench.json(&["import", text(&file)]);
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    let numbers = ["threads", "messages", "turns", "loops", "tool_calls", "compactions", "appended"];
    assert_eq!(numbers.map(|name| line[name].as_u64().expect(name)), [1, 7, 3, 2, 1, 0, 7]);
    assert_eq!(line["format"], "openai-chat");
    assert_eq!(line["warnings"], json!([]));
    assert!(line["tokens"].as_u64().expect("tokens") > 20);

    let sessions = bench.json(&["sessions"]);
    assert_eq!(sessions[0]["id"], line["session"]);
    assert_eq!(sessions[0]["title"], "Read the notes.");
    assert!(sessions[0]["head"].is_string());
}

#[test]
fn importing_again_adds_nothing_and_a_grown_file_only_what_is_new() {
    let bench = Bench::new();
    let file = bench.write("talk.json", TALK);
    bench.json(&["import", text(&file)]);
    assert_eq!(bench.json(&["import", text(&file)])[0]["appended"], 0);

    let grown = TALK.trim_end().trim_end_matches(']').trim_end().to_owned()
        + r#",{"role":"user","content":"Thanks."}]"#;
    bench.write("talk.json", grown);
    let lines = bench.json(&["import", text(&file)]);
    assert_eq!((&lines[0]["appended"], &lines[0]["messages"]), (&json!(1), &json!(8)));
    assert_eq!(bench.json(&["sessions"]).len(), 1);
}

#[test]
fn a_file_whose_past_was_rewritten_becomes_a_fork_and_nothing_is_lost() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    let file = bench.write("talk.json", TALK.replace("Zebrawood.", "Ebony."));
    for appended in [1, 0] {
        let lines = bench.json(&["import", text(&file)]);
        assert_eq!(lines[0]["appended"], appended, "the second time finds the fork");
        assert_eq!(lines[0]["threads"], 2);
    }
    let head = bench.ok(&["export", &session, "--format", "openai-chat"]);
    assert!(head.contains("Ebony.") && !head.contains("Zebrawood."), "{head}");
    let main = bench.ok(&["export", &session, "--format", "openai-chat", "--thread", "main"]);
    assert!(main.contains("Zebrawood."), "{main}");
}

#[test]
fn show_tells_a_session_turn_by_turn() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    let shown = bench.ok(&["show", &session]).replace(&session, "SESSION");
    insta::assert_snapshot!(shown);
    let one = &bench.json(&["show", &session, "--turns", "2"])[0];
    assert_eq!(one["turns"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["turns"][0]["answered"][0]["fact"]["parts"][0]["text"], "Two notes.");
}

#[test]
fn a_fork_shares_the_past_and_goes_its_own_way() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    let fork = bench.json(&["fork", &session, "--at", "2", "--title", "the other way"]);
    assert_eq!(fork[0]["at"], 5);
    let exported = bench.ok(&["export", "the other way", "--format", "openai-chat"]);
    let request: Value = serde_json::from_str(&exported).expect("JSON");
    assert_eq!(request["messages"].as_array().map(Vec::len), Some(5));
    let said = bench.fails(&["fork", &session, "--at", "9"]);
    assert!(said.contains("the thread has turns 1 to 3"), "{said}");
}

#[test]
fn history_walks_through_compactions_and_says_what_each_covered() {
    let bench = Bench::new();
    let line = |value: Value| value.to_string() + "\n";
    let user = |id: &str, parent: Value, content: &str| {
        line(
            json!({"type":"user","uuid":id,"parentUuid":parent,"sessionId":"0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a11",
            "timestamp":"2026-01-05T10:00:00.000Z","message":{"role":"user","content":content}}),
        )
    };
    let answer = |id: &str, parent: &str, text: &str| {
        line(
            json!({"type":"assistant","uuid":id,"parentUuid":parent,"sessionId":"0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a11",
            "timestamp":"2026-01-05T10:00:01.000Z","message":{"id":format!("msg_{id}"),"type":"message","role":"assistant",
            "model":"claude-opus-4-5","content":[{"type":"text","text":text}],
            "usage":{"input_tokens":5,"output_tokens":3,"cache_read_input_tokens":7,"cache_creation_input_tokens":0}}}),
        )
    };
    let boundary = |id: &str, parent: &str| {
        line(
            json!({"type":"system","subtype":"compact_boundary","uuid":id,"parentUuid":null,"logicalParentUuid":parent,
            "sessionId":"0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a11","timestamp":"2026-01-05T10:00:02.000Z","content":"Conversation compacted",
            "compactMetadata":{"trigger":"auto","preTokens":155_000}}),
        )
    };
    let summary = |id: &str, parent: &str, text: &str| {
        line(
            json!({"type":"user","uuid":id,"parentUuid":parent,"sessionId":"0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a11",
            "timestamp":"2026-01-05T10:00:03.000Z","isCompactSummary":true,"message":{"role":"user","content":text}}),
        )
    };
    let file = bench.write(
        "session.jsonl",
        [
            user("u1", Value::Null, "one"),
            answer("a1", "u1", "first"),
            user("u2", json!("a1"), "two"),
            answer("a2", "u2", "second"),
            boundary("b1", "a2"),
            summary("s1", "b1", "They counted to two."),
            user("u3", json!("s1"), "three"),
            answer("a3", "u3", "third"),
            boundary("b2", "a3"),
            summary("s2", "b2", "They counted to three."),
        ]
        .concat(),
    );
    assert_eq!(bench.json(&["import", text(&file)])[0]["compactions"], 2);
    let session = "0b5d9f6e";
    let chain = bench.json(&["history", session]);
    let kinds: Vec<_> = chain.iter().map(|turn| turn["type"].as_str().expect("a type")).collect();
    assert_eq!(kinds, ["normal", "normal", "compaction", "normal", "compaction"]);
    assert_eq!(chain[2]["summary"], "They counted to two.");
    assert_eq!(chain[2]["tokens_before"], 155_000);
    assert_eq!(chain[3]["parent"], chain[2]["id"]);
    let covered = |turn: &str| -> Vec<u64> {
        let lines = bench.json(&["history", session, "--summarized-by", turn]);
        lines.iter().map(|line| line["turn"].as_u64().expect("a number")).collect()
    };
    assert_eq!(covered("3"), [1, 2]);
    assert_eq!(covered("5"), [3, 4], "the compaction before, and what came since");
    let said = bench.fails(&["history", session, "--summarized-by", "1"]);
    assert!(said.contains("not a compaction; these are: 3, 5"), "{said}");
}

#[test]
fn search_finds_words_in_sessions_and_in_the_ledger() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    bench.ok(&[
        "ledger",
        "add",
        "the zebrawood has arrived",
        "--channel",
        "mail",
        "--turn",
        &format!("{session}/3"),
    ]);
    let hits = bench.json(&["search", "zebrawood"]);
    let found: Vec<_> = hits.iter().map(|hit| hit["found"].as_str().expect("where")).collect();
    assert_eq!(found.iter().filter(|place| **place == "event").count(), 2);
    assert_eq!(found.iter().filter(|place| **place == "ledger").count(), 1);
    assert_eq!(bench.json(&["search", "zebrawood", "--ledger"]).len(), 1);
    assert_eq!(bench.json(&["search", "\"sharpen the plane\""]).len(), 1);
    assert!(bench.json(&["search", "') OR 1=1; --\" NEAR( *"]).is_empty());
}

#[test]
fn the_ledger_takes_an_entry_once_and_lists_by_turn() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    let turn = format!("{session}/2");
    let add = [
        "ledger",
        "add",
        "hello",
        "--channel",
        "chat",
        "--id",
        "m1",
        "--time",
        "2026-01-05",
        "--turn",
        &turn,
    ];
    assert_eq!(bench.json(&add)[0]["new"], true);
    assert_eq!(bench.json(&add)[0]["new"], false);
    assert_eq!(bench.json(&["ledger", "list", "--turn", &turn]).len(), 1);
    assert!(bench.json(&["ledger", "list", "--channel", "other"]).is_empty());
    let said = bench.fails(&[
        "ledger",
        "add",
        "other words",
        "--channel",
        "chat",
        "--id",
        "m1",
        "--time",
        "2026-01-05",
    ]);
    assert!(said.contains("never changed"), "{said}");
}

#[test]
fn an_erased_session_is_gone_and_its_forks_are_not() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    bench.ok(&["fork", &session, "--at", "1", "--title", "kept"]);
    let said = bench.fails(&["erase", &session]);
    assert!(said.contains("--yes"), "{said}");
    let erased = &bench.json(&["erase", &session, "--yes"])[0];
    assert_eq!((&erased["events"], &erased["shared"]), (&json!(3), &json!(4)));
    assert!(bench.fails(&["show", &session]).contains("no session"));
    let kept = bench.ok(&["export", "kept", "--format", "openai-chat"]);
    assert!(kept.contains("sharpen the plane"), "{kept}");
    assert!(bench.json(&["search", "\"Which wood\""]).is_empty());
    assert_eq!(bench.json(&["doctor"])[0]["healthy"], true);
}

#[test]
fn a_backup_is_a_database_of_its_own() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    let copy = bench.path("copy.db");
    bench.ok(&["backup", text(&copy)]);
    let exported = bench.ok(&["export", &session, "--format", "jsonl", "--db", text(&copy)]);
    assert_eq!(exported, bench.ok(&["export", &session, "--format", "jsonl"]));
    assert!(bench.fails(&["backup", text(&copy)]).contains("not overwritten"));
}

#[test]
fn sessions_are_named_labelled_and_found_by_either() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    bench.ok(&["rename", &session[..8], "The zebra"]);
    bench.ok(&["label", "the zebra", "wood", "draft"]);
    bench.ok(&["label", "The zebra", "--remove", "draft"]);
    let listed = bench.json(&["sessions", "--label", "wood"]);
    assert_eq!(listed[0]["labels"], json!(["wood"]));
    let said = bench.fails(&["show", "The zebro"]);
    assert!(said.contains("The zebra"), "nearest names are suggested: {said}");
}

#[test]
fn export_as_json_lines_holds_facts_raw_bytes_and_hashes() {
    let bench = Bench::new();
    let indented =
        serde_json::to_string_pretty(&serde_json::from_str::<Value>(TALK).expect("JSON")).expect("JSON");
    let session = bench.session("talk.json", &indented);
    let exported = bench.ok(&["export", &session, "--format", "jsonl"]);
    let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[3]["kind"], "tool_returned");
    let raw = lines[3]["raw"].as_str().expect("the raw bytes, as text");
    assert!(indented.contains(raw) && raw.contains("sharpen the plane") && raw.contains('\n'), "{raw}");
    assert!(lines.iter().all(|line| line["raw_hash"].as_str().is_some_and(|hash| hash.len() == 64)));
}

#[test]
fn the_same_session_serialised_otherwise_is_the_same_session() {
    let bench = Bench::new();
    let file = bench.write("talk.json", TALK);
    bench.json(&["import", text(&file)]);
    let indented =
        serde_json::to_string_pretty(&serde_json::from_str::<Value>(TALK).expect("JSON")).expect("JSON");
    bench.write("talk.json", indented);
    let line = &bench.json(&["import", text(&file)])[0];
    assert_eq!((&line["appended"], &line["threads"], &line["turns"]), (&json!(0), &json!(1), &json!(3)));
}

#[test]
fn two_files_of_one_session_at_once_become_one_session() {
    let bench = Bench::new();
    let line = |number: u64| {
        json!({"type":"user","uuid":format!("u{number}"),"parentUuid":null,
            "sessionId":"0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a12","timestamp":"2026-01-05T10:00:00.000Z",
            "message":{"role":"user","content":format!("message {number}")}})
        .to_string()
            + "\n"
    };
    let folder = bench.path("folder");
    std::fs::create_dir(&folder).expect("a writable folder");
    for copy in 0..6_u64 {
        let lines: String = (0..2_000 + copy * 50).map(line).collect();
        std::fs::write(folder.join(format!("copy-{copy}.jsonl")), lines).expect("writable");
    }
    bench.json(&["import", text(&folder)]);
    let sessions = bench.json(&["sessions"]);
    assert_eq!(sessions.len(), 1);
    assert_eq!((&sessions[0]["threads"], &sessions[0]["messages"]), (&json!(1), &json!(2_250)));
}

#[test]
fn an_erased_session_can_be_imported_again_and_its_fork_stays_what_it_was() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    bench.ok(&["fork", &session, "--at", "1", "--title", "kept"]);
    let before = bench.ok(&["export", "kept", "--format", "openai-chat"]);
    bench.ok(&["erase", &session, "--yes"]);
    let again = bench.json(&["import", text(&bench.path("talk.json"))]);
    assert_eq!((&again[0]["turns"], &again[0]["appended"]), (&json!(3), &json!(7)));
    assert_eq!(bench.ok(&["export", "kept", "--format", "openai-chat"]), before);
    assert_eq!(bench.json(&["doctor"])[0]["healthy"], true);
}

#[test]
fn a_fork_counts_and_finds_what_it_shares() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    let fork = bench.json(&["fork", &session, "--at", "2"])[0]["session"].as_str().expect("an id").to_owned();
    let rows = bench.json(&["sessions"]);
    let row = rows.iter().find(|row| row["id"] == fork.as_str()).expect("the fork is listed");
    assert_eq!((&row["messages"], &row["turns"]), (&json!(5), &json!(2)));
    assert_eq!(bench.json(&["search", "zebrawood", "--session", &fork]).len(), 1);
}

#[test]
fn one_missing_folder_does_not_stop_the_others() {
    let bench = Bench::new();
    let file = bench.write("talk.json", TALK);
    let run = bench.run(&["import", "/no/such/folder", text(&file), "--json"]);
    assert!(!run.success);
    let lines: Vec<Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(
        lines[0]["error"].as_str().is_some_and(|error| error.contains("/no/such/folder")),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1]["messages"], 7);
}

#[test]
fn titles_cannot_speak_to_the_terminal() {
    let bench = Bench::new();
    let session = bench.session("evil.json", r#"[{"role":"user","content":"\u001b]0;owned\u0007 hi"}]"#);
    for command in [vec!["show", &session], vec!["history", &session], vec!["rename", &session, "\u{1b}[2J"]]
    {
        let said = bench.ok(&command);
        assert!(
            !said.contains("\u{1b}]") && !said.contains("\u{1b}[2J") && !said.contains('\u{7}'),
            "{said:?}"
        );
    }
}

#[test]
fn an_empty_variable_is_none() {
    let bench = Bench::new();
    let home = bench.path("home");
    let output = bench
        .command()
        .env("EPITOME_DB", "")
        .env("HOME", &home)
        .env_remove("XDG_DATA_HOME")
        .arg("sessions")
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_command_that_needs_another_shows_its_help_wherever_the_database_is_named() {
    let bench = Bench::new();
    for (args, expect) in [
        (&[][..], "epitome sessions"),
        (&["--json"][..], "epitome sessions"),
        (&["ledger"][..], "Usage: epitome ledger"),
    ] {
        let said = bench.fails(args);
        assert!(said.contains("Usage: ") && said.contains(expect), "{args:?}: {said}");
        assert!(!said.contains("error:"), "{args:?}: {said}");
    }
}

#[test]
fn turns_that_are_not_there_are_an_error() {
    let bench = Bench::new();
    let session = bench.session("talk.json", TALK);
    for turns in ["9", "0", "3-2"] {
        let said = bench.fails(&["show", &session, "--turns", turns]);
        assert!(said.contains("turns 1 to 3"), "{said}");
    }
}

#[test]
fn an_interrupted_call_is_exported_as_recorded_or_made_legal() {
    let bench = Bench::new();
    let interrupted = r#"[{"role":"user","content":"go"},
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
{"role":"user","content":"stop"}]"#;
    let session = bench.session("cut.json", interrupted);
    let export = |more: &[&str]| -> Value {
        let args = [&["export", &session, "--format", "openai-chat"], more].concat();
        serde_json::from_str(&bench.ok(&args)).expect("JSON")
    };
    assert_eq!(export(&[])["messages"], serde_json::from_str::<Value>(interrupted).expect("JSON"));
    let legal = export(&["--legal"]);
    assert_eq!(legal["messages"][2]["role"], "tool");
    assert_eq!(legal["messages"][2]["tool_call_id"], "c1");
}

/// The first command of the README does what it says, and every other one exists with the options shown.
#[test]
fn the_readme_is_true() {
    let bench = Bench::new();
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let first = readme
        .lines()
        .find_map(|line| line.strip_prefix("cargo run --release -- "))
        .expect("a first command");
    let words: Vec<&str> = first.split_whitespace().collect();
    let shipped = workspace().join(words[1]);
    let words: Vec<&str> =
        words.iter().map(|word| if *word == words[1] { text(&shipped) } else { word }).collect();
    let output = bench.command().current_dir(bench.path("")).args(&words).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("summarised"), "{said}");
    assert!(bench.path("smaller.json").exists());

    let mut shown = 0;
    for line in readme.lines().filter_map(|line| line.strip_prefix("epitome ")) {
        let words: Vec<&str> = line.split('#').next().unwrap_or(line).split_whitespace().collect();
        let command: Vec<&str> =
            words.iter().take(if words[0] == "ledger" { 2 } else { 1 }).copied().collect();
        let help = bench.ok(&[command.as_slice(), &["--help"]].concat());
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "`epitome {line}`: no {option} in\n{help}");
        }
        shown += 1;
    }
    assert!(shown >= 8, "the README shows the commands");
}

#[test]
fn completions_are_scripts() {
    let bench = Bench::new();
    assert!(bench.ok(&["completions", "bash"]).contains("_epitome"));
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    use std::process::Stdio;
    let bench = Bench::new();
    let session = bench.session("talk.json", &TALK.replace("buy zebrawood", &"wood ".repeat(100_000)));
    let mut child = bench
        .command()
        .args(["export", &session, "--format", "jsonl"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
