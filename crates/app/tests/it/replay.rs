//! `replay`, on small sessions whose usage is made up to fit.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use super::harness::{Bench, text};

/// What Claude Code would have sent before everything that its transcript shows.
const UNSEEN: u64 = 12_000;

/// A transcript as Claude Code writes it, line after line.
#[derive(Default)]
struct Transcript {
    lines: Vec<String>,
    /// What a request would hold, in letters.
    letters: usize,
    sent: u64,
}

impl Transcript {
    fn line(&mut self, minutes: usize, kind: &str, more: &Value) {
        let number = self.lines.len();
        let mut line = json!({
            "uuid": format!("u{number}"), "parentUuid": number.checked_sub(1).map(|before| format!("u{before}")),
            "sessionId": "5b2e4a0c-0000-4000-8000-000000000001", "type": kind,
            "timestamp": format!("2026-01-05T{:02}:{:02}:00.000Z", 10 + minutes / 60, minutes % 60),
        });
        for (name, value) in more.as_object().expect("an object") {
            line[name] = value.clone();
        }
        self.letters += more["message"]["content"].to_string().len();
        self.lines.push(line.to_string());
    }

    fn user(&mut self, minutes: usize, content: &Value) {
        self.line(minutes, "user", &json!({"message": {"role": "user", "content": content}}));
    }

    /// An answer, with the usage of a cache that holds what was sent before unless a pause was long.
    fn answer(&mut self, minutes: usize, id: usize, content: &Value, warm: bool) {
        let input = UNSEEN + self.letters as u64 * 2 / 5;
        let read = if warm { self.sent } else { 0 };
        let usage = json!({
            "input_tokens": 0, "cache_read_input_tokens": read, "cache_creation_input_tokens": input - read,
            "output_tokens": 60,
        });
        self.sent = input;
        self.line(
            minutes,
            "assistant",
            &json!({"message": {
            "id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": "claude-opus-4-5",
            "content": content, "usage": usage}}),
        );
    }

    fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

/// A session that reads a file a minute, with a pause of half an hour in the middle.
fn session(turns: usize) -> Transcript {
    let mut session = Transcript::default();
    session.user(0, &json!("Find the leak. Never touch build.lock."));
    let minutes = |turn: usize| turn + if turn > turns / 2 { 30 } else { 0 };
    for turn in 0..turns {
        let path = format!("/src/module_{}.rs", turn % 7);
        let call = json!([{"type": "tool_use", "id": format!("t{turn}"), "name": "Read", "input": {"file_path": path}}]);
        session.answer(minutes(turn), turn, &call, turn != 0 && turn != turns / 2 + 1);
        let body =
            format!("fn leak_{turn}_of_many() {{ allocate(0x{turn:04x}); }} // line {turn}\n").repeat(40);
        let result = json!([{"type": "tool_result", "tool_use_id": format!("t{turn}"), "content": body}]);
        session.user(minutes(turn + 1), &result);
    }
    session.answer(turns + 31, turns, &json!([{"type": "text", "text": "leak_3_of_many is it."}]), true);
    session
}

/// A bench with a session of 20 calls in a file.
fn bench() -> (Bench, String) {
    let bench = Bench::new();
    let file = bench.write("session.jsonl", session(20).text());
    let name = text(&file).to_owned();
    (bench, name)
}

#[test]
fn a_session_is_told_in_a_table_with_what_was_assumed_and_a_chart() {
    let (bench, file) = bench();
    let policies = "none,sliding_window,clear_tools";
    let told = bench.ok(&["replay", &file, "--policy", policies, "--budget", "20k", "--drift"]);
    assert!(told.lines().all(|line| line.chars().count() <= 120), "{told}");
    insta::assert_snapshot!(told, @r"
    1 thread in 1 session, each session's own model, a window of 20k tokens, breakpoints cache
    policy         calls peak mean sent cached resets sums   cost share over illegal   kept words names handle  lost   said
    none              21  30k  21k 445k  88.4%      0    0 $0.551 1.000   12       0 100.0%  0.0%  0.0%   0.0%  0.0% 100.0%
    sliding_window    21  18k  16k 342k  82.7%      4    0 $0.542 0.984    0       0  78.6%  0.0%  0.0%   0.0% 21.4% 100.0%
    clear_tools       21  16k  15k 311k  74.1%     17    0 $0.650 1.181    0       0  94.7% 29.0%  0.0%   0.0%  5.3% 100.0%

    kept, and of how many needed facts, by how many compactions a request stood on
    policy               0   of  1  of  2  of  3+  of
    none            100.0%  262  –   0  –   0   –   0
    sliding_window   78.6%  262  –   0  –   0   –   0
    clear_tools      94.7%  262  –   0  –   0   –   0

    as recorded: how far the simulation is off where each session is sent as it was sent, 21 calls of 1 thread
    unseen prefix from  cache        input: median  mean  reads: median  mean  price  cold: found  missed  wrong
    all usage           breakpoints           0.2%  0.2%           0.2%  0.2%  +0.0%            1       0      0
    all usage           ideal                 0.2%  0.2%           0.2%  0.2%  +0.0%            1       0      0
    the first usage     breakpoints           0.3%  0.3%           0.2%  0.3%  +0.0%            1       0      0
    the first usage     ideal                 0.3%  0.3%           0.2%  0.3%  +0.0%            1       0      0
    cold: calls that found less than half of what the call before had sent; price: of an input token
    far off: session.jsonl, call 10: of 20241 cached tokens 20159 were read
    far off: session.jsonl, call 9: of 19320 cached tokens 19254 were read
    far off: session.jsonl, call 20: 29502 tokens were read, of which 29440 are accounted for

    1 thread: system prompt and tools are not in the transcript: 12k tokens are charged for them, by recorded usage

    session.jsonl
    21 calls · window of 20k tokens · claude-opus-4-5

    none  peak 30k · $0.551 · 12 too large · 0 resets · mean 21k
        30k                                                             ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
                                                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
        20k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▂▂▂▂▃▃▃▃▅▅▅▅▆▆▆▆▇▇▇▇████████████████████████████████████████████████
            ▄▄▄▄▅▅▅▅▇▇▇▇████████████████████████████████████████████████████████████████████████
            ████████████████████████████████████████████████████████████████████████████████████
          0 ████████████████████████████████████████████████████████████████████████████████████
       cold                                             ○

    sliding_window  peak 18k · $0.542 (0.98× none) · 4 resets · mean 16k
        30k

        20k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▂▂▂▂▃▃▃▃▅▅▅▅▆▆▆▆▂▂▂▂▃▃▃▃▅▅▅▅▆▆▆▆▂▂▂▂▃▃▃▃▅▅▅▅▆▆▆▆▂▂▂▂▃▃▃▃▅▅▅▅▆▆▆▆▂▂▂▂
            ▄▄▄▄▅▅▅▅▇▇▇▇████████████████████████████████████████████████████████████████████████
            ████████████████████████████████████████████████████████████████████████████████████
          0 ████████████████████████████████████████████████████████████████████████████████████
      reset                                 ▾               ▾               ▾               ▾
       cold                                             ○

    clear_tools  peak 16k · $0.650 (1.18× none) · 17 resets · mean 15k
        30k

        20k ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
            ▄▄▄▄▅▅▅▅▇▇▇▇████████████████████████████████████████████████████████████████████████
            ████████████████████████████████████████████████████████████████████████████████████
          0 ████████████████████████████████████████████████████████████████████████████████████
      reset                 ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾   ▾
       cold                                             ○
            ┴───────────────────┴───────────────────┴───────────────────┴───────────────────┴───
       call 0                   5                   10                  15                  20

    █ tokens sent   ┄ window 20k   ▒ larger than the window   ▾ reset: what was sent before was changed
    ○ a pause: the cache went cold
    ");
}

#[test]
fn every_policy_and_baseline_is_there_and_no_request_of_theirs_is_over_or_illegal() {
    let (bench, file) = bench();
    let told = &bench.json(&["replay", &file, "--budget", "20k", "--cache", "ideal,breakpoints"])[0];
    let rows = told["policies"].as_array().expect("rows");
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    for name in ["epitome", "none", "sliding_window", "drop_oldest", "summarise", "clear_tools"] {
        assert!(names.contains(name), "{names:?}");
    }
    assert_eq!(rows.len(), 2 * names.len());
    for row in rows {
        assert_eq!(row["calls"], 21, "{row}");
        assert_eq!(row["illegal"], 0, "{row}");
        assert_eq!(row["refused"], 0, "{row}");
        assert_eq!(row["overflows"] == 0, row["policy"] != "none", "{row}");
        assert_eq!(row["unpriced_calls"], 0, "{row}");
        let facts: u64 = sums(&row["facts"]);
        let by_drift: u64 =
            row["drift"].as_array().expect("steps").iter().map(|step| sums(&step["facts"])).sum();
        assert!(facts > 0 && facts == by_drift, "{row}");
        let said = &row["user_messages"];
        assert!(said["kept"].as_u64() <= said["all"].as_u64(), "{row}");
    }
    let of = |policy: &str| rows.iter().find(|row| row["policy"] == policy).expect("a row");
    assert_eq!(of("none")["cost_to_none"], 1.0);
    assert_eq!(of("none")["kept_share"], 1.0);
    assert_eq!(of("none")["drift"][0]["needed"], sums(&of("none")["facts"]), "it never compacts");
    assert!(of("summarise")["summaries"].as_u64() > Some(0));
    assert!(of("summarise")["summariser_output_tokens"].as_u64() > Some(0), "its summaries are paid for");
    assert!(of("summarise")["drift"][1]["needed"].as_u64() > Some(0), "{}", of("summarise")["drift"]);
}

/// All numbers of an object of objects.
fn sums(facts: &Value) -> u64 {
    let kinds = facts.as_object().expect("kinds").values();
    kinds.flat_map(|kind| kind.as_object().expect("ways").values()).filter_map(Value::as_u64).sum()
}

#[test]
fn the_unseen_prefix_is_inferred_and_the_simulation_is_held_against_the_recording() {
    let (bench, file) = bench();
    let told = &bench.json(&["replay", &file, "--policy", "none"])[0];
    let unseen = told["sessions"][0]["unseen"]["prefix"].as_u64().expect("tokens");
    assert!(unseen.abs_diff(UNSEEN) < 300, "{unseen}");
    let recorded = &told["recorded"];
    assert_eq!((&recorded["threads"], &recorded["calls"]), (&json!(1), &json!(21)));
    let modes = recorded["modes"].as_array().expect("modes");
    let kinds: Vec<(&str, &str)> =
        modes.iter().filter_map(|mode| Some((mode["prefix"].as_str()?, mode["cache"].as_str()?))).collect();
    let expect = [
        ("recorded", "breakpoints"),
        ("recorded", "ideal"),
        ("inferred", "breakpoints"),
        ("inferred", "ideal"),
    ];
    assert_eq!(kinds, expect);
    let best = &modes[0];
    assert!(best["input_error"]["median"].as_f64() < Some(0.02), "{best}");
    assert_eq!(best["cold"], json!({"found": 1, "missed": 0, "wrong": 0}), "the pause of half an hour");
    assert!(recorded["worst"][0]["why"].is_string(), "{recorded}");

    // Whichever model is charged, it is held against the one that answered.
    let other = &bench.json(&["replay", &file, "--policy", "none", "--model", "gpt-5.4"])[0];
    assert_eq!(other["recorded"], *recorded);
    assert_eq!(other["policies"][0]["model"], "gpt-5.4");
    let none = &bench.json(&["replay", &file, "--policy", "none", "--no-recorded"])[0];
    assert_eq!(none["recorded"], Value::Null);
}

#[test]
fn comma_separated_values_have_a_header_and_a_row_for_all_and_for_each_session() {
    let (bench, file) = bench();
    let other = bench.write("b, c.jsonl", session(3).text());
    let csv = bench.ok(&[
        "replay",
        &file,
        text(&other),
        "--policy",
        "none,epitome",
        "--budget",
        "30k,60k",
        "--csv",
    ]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 3 * 2 * 2, "{csv}");
    let names: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(names[0], "session");
    for name in ["policy", "window", "dollars", "facts_file_lost", "user_messages_kept"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    for line in &lines[1..] {
        let rest =
            line.strip_prefix("\"b, c.jsonl\",").or_else(|| line.split_once(',').map(|(_, rest)| rest));
        assert_eq!(rest.map(|rest| rest.split(',').count()), Some(names.len() - 1), "{line}");
    }
}

#[test]
fn what_is_dumped_can_be_put_together_again() {
    let (bench, file) = bench();
    let folder = bench.path("dump");
    let policies = "epitome,none,summarise,clear_tools";
    bench.ok(&["replay", &file, "--policy", policies, "--budget", "20k", "--dump", text(&folder)]);
    for policy in policies.split(',') {
        check_dump(&folder.join(policy).join("session.jsonl"), policy);
    }
}

fn check_dump(path: &Path, policy: &str) {
    let dumped = fs::read_to_string(path).expect("a file for each policy");
    let mut messages: Vec<Value> = Vec::new();
    let (mut resets, mut summarised) = (0, 0);
    for (number, line) in dumped.lines().enumerate() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let keys: BTreeSet<&str> = line.as_object().expect("an object").keys().map(String::as_str).collect();
        let expect = ["call", "answer", "time", "prefix_messages", "request", "summarizer"];
        assert_eq!(keys, BTreeSet::from(expect), "{policy}");
        assert_eq!(line["call"], number);
        assert_eq!(line["answer"], format!("msg_{number}"));
        assert!(line["time"].as_str().is_some_and(|time| time.starts_with("2026-01-05T1")), "{line}");
        let same = usize::try_from(line["prefix_messages"].as_u64().expect("a number")).expect("few");
        let own = line["request"]["messages"].as_array().expect("messages");
        assert!(same <= messages.len(), "{policy}, call {number}");
        assert_ne!(
            own.first(),
            messages.get(same).filter(|_| same < messages.len()),
            "they would be the same too"
        );
        resets += usize::from(same < messages.len());
        messages.truncate(same);
        messages.extend(own.iter().cloned());
        check_legal(&messages, policy);
        if line["summarizer"].is_object() {
            summarised += 1;
            let keys: BTreeSet<&str> =
                line["summarizer"].as_object().expect("an object").keys().map(String::as_str).collect();
            assert_eq!(keys, BTreeSet::from(["input_tokens", "cached_tokens", "output_tokens", "request"]));
            assert!(line["summarizer"]["request"]["messages"].is_array());
        }
    }
    assert_eq!(dumped.lines().count(), 21, "{policy}");
    assert_eq!(resets == 0, policy == "none", "{policy}");
    assert_eq!(summarised > 0, policy == "summarise", "{policy}");
}

/// Roles alternate, and every result follows its call at once.
fn check_legal(messages: &[Value], policy: &str) {
    let ids = |message: &Value, kind: &str, name: &str| -> BTreeSet<String> {
        let blocks = message["content"].as_array().into_iter().flatten();
        let of_kind = blocks.filter(|block| block["type"] == kind);
        of_kind.filter_map(|block| block[name].as_str()).map(str::to_owned).collect()
    };
    assert_eq!(messages[0]["role"], "user", "{policy}");
    for pair in messages.windows(2) {
        assert_ne!(pair[0]["role"], pair[1]["role"], "{policy}: {pair:?}");
        assert_eq!(
            ids(&pair[0], "tool_use", "id"),
            ids(&pair[1], "tool_result", "tool_use_id"),
            "{policy}: {pair:?}"
        );
    }
}

#[test]
fn a_picture_is_written_of_the_session_with_the_most_calls() {
    let (bench, file) = bench();
    let other = bench.write("short.jsonl", session(3).text());
    let svg = bench.path("a picture.svg");
    let args =
        ["replay", text(&other), &file, "--policy", "epitome,none", "--budget", "20k", "--svg", text(&svg)];
    let run = bench.run(&args);
    assert!(run.success, "{}", run.stderr);
    assert!(run.stderr.contains("shows session.jsonl, the session with the most calls"), "{}", run.stderr);
    assert!(!run.stdout.contains('█'), "many sessions are drawn only if that is asked for:\n{}", run.stdout);
    let drawn = fs::read_to_string(&svg).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    assert!(drawn.contains("session.jsonl") && drawn.contains("21 model calls"), "{drawn}");
    assert!(drawn.contains("--policy epitome,none --budget 20000"), "how to make it again:\n{drawn}");
    assert!(drawn.contains("System prompt and tools are not in the transcript: 12k tokens"), "{drawn}");

    let plotted = bench.ok(&["replay", text(&other), &file, "--policy", "none", "--plot"]);
    assert!(
        plotted.contains("of 2 sessions the one with the most calls:\nsession.jsonl\n21 calls"),
        "{plotted}"
    );
    let told = &bench.json(&args)[0];
    assert_eq!(told["svg"]["session"], "session.jsonl");
}

#[test]
fn the_same_bytes_come_out_every_time() {
    let bench = Bench::new();
    let folder = bench.path("sessions");
    fs::create_dir(&folder).expect("writable");
    for turns in 2..9 {
        fs::write(folder.join(format!("{turns}.jsonl")), session(turns).text()).expect("writable");
    }
    for format in ["--json", "--csv", "--plot"] {
        let args = ["replay", text(&folder), "--budget", "16k", format];
        let first = bench.ok(&args);
        for _ in 0..3 {
            assert!(bench.ok(&args) == first, "{format} differs");
        }
    }
}

#[test]
fn what_the_client_did_itself_is_left_out_and_said() {
    let mut session = session(4);
    session.line(
        40,
        "assistant",
        &json!({"message": {"id": "none", "type": "message", "role": "assistant",
        "model": "<synthetic>", "content": [{"type": "text", "text": "No response requested."}]}}),
    );
    session.line(
        41,
        "system",
        &json!({"subtype": "compact_boundary", "content": "Conversation compacted",
        "compactMetadata": {"trigger": "auto", "preTokens": 9000}}),
    );
    session.line(
        41,
        "user",
        &json!({"isCompactSummary": true, "message": {"role": "user", "content":
        "This session is being continued: a leak was looked for."}}),
    );
    session.answer(42, 9, &json!([{"type": "text", "text": "It goes on."}]), false);
    let bench = Bench::new();
    let file = bench.write("session.jsonl", session.text());
    let told = &bench.json(&["replay", text(&file), "--policy", "none"])[0];
    assert_eq!(told["policies"][0]["calls"], 6, "{told}");
    let notes: Vec<&str> =
        told["sessions"][0]["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    assert!(notes.contains(&"1 compaction of the client left out"), "{notes:?}");
    assert!(notes.contains(&"1 answer that the client wrote itself passed over"), "{notes:?}");
}

#[test]
fn a_session_of_the_log_is_played_as_its_file_is() {
    let (bench, file) = bench();
    let session = bench.json(&["import", &file])[0]["session"].as_str().expect("an id").to_owned();
    let rows = |name: &str| bench.json(&["replay", name, "--policy", "none,epitome"])[0]["policies"].clone();
    assert_eq!(rows(&session), rows(&file));
}

#[test]
fn what_is_named_twice_is_played_once() {
    let (bench, file) = bench();
    let folder = bench.path("");
    let told = &bench.json(&["replay", &file, text(&folder), &file, "--policy", "none"])[0];
    assert_eq!(told["policies"][0]["calls"], 21);
}

#[test]
fn a_changed_policy_stands_beside_the_one_it_was() {
    let (bench, file) = bench();
    let changed = bench.ok(&["policies", "pivot"]);
    let path = bench.write("mine.toml", format!("{changed}\n"));
    let same = bench.json(&["replay", &file, "--policy", &format!("pivot,{}", text(&path))]);
    assert_eq!(same[0]["policies"].as_array().map(Vec::len), Some(1), "it is the same policy");
    let path = bench.write("mine.toml", changed.replace("name = \"pivot\"", "name = \"none\""));
    let both = &bench.json(&["replay", &file, "--policy", &format!("none,{}", text(&path))])[0];
    assert_eq!(both["policies"][1]["policy"], text(&path), "{both}");
}

/// Replaying `content` works, and tells `expect`.
fn assumes(content: &str, expect: &[&str]) {
    let bench = Bench::new();
    let file = bench.write("session.json", content);
    let told = bench.ok(&["replay", text(&file), "--policy", "epitome,none"]);
    // Long notes are broken.
    let flat = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for expect in expect {
        assert!(flat.contains(expect), "expected `{expect}` in:\n{told}");
    }
}

#[test]
fn a_session_of_one_turn_without_times_usage_or_model_is_played_with_what_is_assumed() {
    assumes(
        r#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#,
        &[
            "1 thread in 1 session",
            "1 thread: no times: every call is taken to come while the cache is warm",
            "1 thread: no call says what it used: nothing is charged for a system prompt and tools that are not in the \
             transcript, and answers are counted by their text",
            "1 thread: no model is named: charged as",
        ],
    );
}

#[test]
fn an_unknown_model_is_charged_as_one_that_is_known() {
    let text = session(2).text().replace("claude-opus-4-5", "claude-unheard-of");
    assumes(&text, &["1 thread: the model claude-unheard-of is not known: charged as claude-sonnet-4-5"]);
}

#[test]
fn a_window_smaller_than_what_is_unseen_refuses_every_call_and_says_so() {
    let (bench, file) = bench();
    let told = bench.ok(&["replay", &file, "--policy", "epitome,none", "--budget", "5k"]);
    assert!(
        told.contains("1 thread: system prompt and tools alone, 12k tokens, do not fit into 5.0k"),
        "{told}"
    );
    let told = &bench.json(&["replay", &file, "--policy", "epitome,none", "--budget", "5k"])[0];
    let [epitome, none] = [0, 1].map(|row| &told["policies"][row]);
    assert_eq!((&epitome["refused"], &none["overflows"]), (&json!(21), &json!(21)));
    assert_eq!(epitome["kept_share"], 0.0, "what was not sent kept nothing");
}

/// Replaying with these arguments fails at once with words that hold `expect`.
fn refused(args: &[&str], expect: &str) {
    let (bench, file) = bench();
    let said = bench.fails(&[&["replay", &file], args].concat());
    assert!(said.contains(expect), "expected `{expect}` in:\n{said}");
    assert!(!said.contains("calls"), "nothing was played:\n{said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused_before_anything_is_played() {
    refused(&["--policy", "epitom"], "baselines (none, sliding_window, drop_oldest, summarise, clear_tools)");
    refused(&["--policy", "epitom"], "policies (epitome,");
    refused(&["--policy", "/no/such.toml"], "cannot read the policy /no/such.toml");
    refused(
        &["--model", "claude-unheard-of"],
        "--model claude-unheard-of is not known: epitome models lists",
    );
    refused(&["--budget", "0"], "not an amount of tokens");
    refused(&["--budget", "50%"], "not an amount of tokens");
    refused(&["--svg", "/no/such/folder/a.svg"], "there is no folder /no/such/folder");
    refused(&["--svg", "/"], "this is a folder");
    refused(&["--dump", "/dev/null"], "cannot make the folder /dev/null");
    refused(
        &["--dump", "/tmp/none", "--budget", "20k,30k"],
        "give one model, one budget and one kind of cache",
    );
    refused(&["--plot", "--csv"], "cannot be used with");
}

/// Replaying this file fails with words that hold `expect` and say what to do.
fn nothing_in(content: &str, expect: &str) {
    let bench = Bench::new();
    let file = bench.write("session.jsonl", content);
    let said = bench.fails(&["replay", text(&file)]);
    assert!(said.contains(expect) && said.contains("Name transcripts, folders of them"), "{said}");
    assert!(!said.contains("policy"), "there is no table without calls:\n{said}");
}

#[test]
fn having_nothing_to_replay_is_an_error_that_says_what_to_do() {
    nothing_in("", "session.jsonl: the file is empty");
    nothing_in("dear diary", "not JSON");
    nothing_in("{\"role\":\"user\",\"content\":\"hello\"}\n", "no model was called");
    nothing_in("{\"conversation\":{\"turns\":[]}}", "claude-code");
    let bench = Bench::new();
    let folder = bench.path("empty");
    fs::create_dir(&folder).expect("writable");
    assert!(bench.fails(&["replay", text(&folder)]).contains("no transcript of a known agent was found"));
    assert!(bench.fails(&["replay", "/no/such.jsonl"]).contains("there is no file /no/such.jsonl"));
    assert!(bench.fails(&["replay", "a session"]).contains("there is no database"));
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_still_told() {
    let (bench, file) = bench();
    let bad = bench.write("bad.jsonl", "dear diary");
    for format in ["--csv", "--plot", "--json"] {
        let run = bench.run(&["replay", &file, text(&bad), "--policy", "none", format]);
        assert!(!run.success);
        assert!(run.stdout.contains("21"), "{}", run.stdout);
        let said = if format == "--json" { &run.stdout } else { &run.stderr };
        assert!(said.contains("bad.jsonl: the file is not JSON"), "{format}: {said}");
    }
}

#[test]
fn the_default_buys_no_summary_that_code_makes_for_nothing() {
    let (bench, file) = bench();
    let replay = |more: &[&str]| {
        let asked = ["replay", &file, "--policy", "epitome,tiered,none", "--budget", "20k"];
        let told = bench.json(&[&asked[..], more].concat())[0]["policies"].clone();
        let of = |name: &str| {
            let rows = told.as_array().expect("rows").iter();
            rows.clone().find(|row| row["policy"] == name).expect("a row").clone()
        };
        (of("epitome"), of("tiered"))
    };
    let ((free, _), (paid, tiered)) = (replay(&[]), replay(&["--summariser", "session"]));
    assert!(paid["summaries"].as_u64() > Some(0) && paid["summariser_output_tokens"] == 0, "{paid}");
    assert_eq!((&paid["dollars"], &paid["kept_share"]), (&free["dollars"], &free["kept_share"]));
    assert!(paid["cost_to_none"].as_f64() <= tiered["cost_to_none"].as_f64(), "{paid} {tiered}");
    assert!(paid["kept_share"].as_f64() >= tiered["kept_share"].as_f64(), "{paid} {tiered}");
}

#[test]
fn a_transcript_has_its_figures_as_recorded_and_made_again_live() {
    let (bench, file) = bench();
    let recorded = &bench.json(&["metrics", &file])[0];
    let met = |told: &Value, at: usize| told["rows"][at]["met"].clone();
    assert_eq!((&recorded["rows"][0]["name"], met(recorded, 0)), (&json!("compression"), json!("unknown")));
    assert_eq!(met(recorded, 1), "yes", "the provider reported what its cache held: {recorded}");
    let live = &bench.json(&["metrics", &file, "--window", "28k"])[0];
    assert_ne!(met(live, 0), "unknown", "{live}");
    assert_eq!(met(live, 2), "unknown", "the answers are recorded ones: {live}");
    let replayed = bench.json(&["replay", &file, "--policy", "epitome", "--window", "28k"])[0].clone();
    let peaks =
        [&live["peak"], &replayed["policies"][0]["peak_tokens"]].map(|peak| peak.as_f64().expect("a size"));
    assert!((peaks[0] / peaks[1] - 1.0).abs() < 0.05 && peaks[0] < 21_000.0, "{peaks:?}");
    let table = bench.ok(&["metrics", &file, "--window", "28k", "--policy", "tiered"]);
    assert!(table.contains("1 session, 21 calls, under tiered in a window of 28k"), "{table}");
    assert!(bench.fails(&["metrics", &file, "--policy", "tiered"]).contains("--window"));
}
