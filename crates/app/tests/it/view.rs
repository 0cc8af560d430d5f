//! The commands that make views: `compact`, `context`, `explain`, `diff`, `models`, `sweep`.

use std::fs;

use epitome::wire::{
    Format,
    legality::{ProviderRules, check},
};
use serde_json::{Value, json};

use super::harness::{Bench, text, workspace};

/// A chat in which a tool returned `lines` lines, `turns` times.
fn long_chat(turns: usize, lines: usize) -> String {
    let mut messages = vec![
        json!({"role":"system","content":"You mend services."}),
        json!({"role":"user","content":"Mend the uploader. Never touch the public API."}),
    ];
    for turn in 0..turns {
        let call = json!({"id":format!("call_{turn}"),"type":"function","function":
            {"name":"run_command","arguments":format!("{{\"command\":\"make test-{turn}\"}}")}});
        messages
            .push(json!({"role":"assistant","content":format!("Trying step {turn}."),"tool_calls":[call]}));
        let line = |line: usize| format!("step {turn} line {line}: all is well so far");
        let output = (0..lines).map(line).collect::<Vec<_>>().join("\n");
        messages.push(json!({"role":"tool","tool_call_id":format!("call_{turn}"),"content":output}));
    }
    messages.push(json!({"role":"user","content":"What is left to do?"}));
    json!({"model":"gpt-5.1","messages":messages}).to_string()
}

#[test]
fn compact_needs_no_database_and_makes_a_request_that_fits() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(30, 60));
    let out = bench.path("smaller.json");
    let report = &bench.json(&["compact", text(&file), "--budget", "6k", "--out", text(&out)])[0];
    assert!(!bench.path("log.db").exists(), "no database was made");
    assert!(report["tokens_before"].as_u64() > Some(20_000), "{report}");
    assert!(report["tokens_after"].as_u64() <= Some(6_000), "{report}");
    assert_eq!((&report["budget"], &report["counter"]), (&json!(6_000), &json!("o200k")));
    assert_eq!(report["model"], "gpt-5.1");
    assert_eq!(report["policy"], "epitome");
    assert!(report["passes"].as_array().is_some_and(|passes| !passes.is_empty()), "{report}");
    let fitted = &bench.json(&["compact", text(&file), "--budget", "6k", "--policy", "fit"])[0];
    assert_eq!(fitted["policy"], Value::Null);
    assert!(fitted["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{fitted}");
    assert!(fitted["evictions"].as_array().is_some_and(|evictions| !evictions.is_empty()), "{fitted}");

    let request: Value = serde_json::from_str(&fs::read_to_string(&out).expect("written")).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    assert_eq!(messages.len() as u64, report["messages_after"].as_u64().expect("a number"));
    assert_eq!(request["model"], "gpt-5.1");
    assert_eq!(messages[0]["content"], "You mend services.");
    assert_eq!(messages.last().expect("a message")["content"], "What is left to do?");
    let all = request.to_string();
    assert!(all.contains("Never touch the public API"), "user messages are the last to go");
}

#[test]
fn compact_into_a_pipe_writes_the_request() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(4, 5));
    let said = bench.ok(&["compact", text(&file), "--budget", "100k"]);
    let request: Value = serde_json::from_str(&said).expect("JSON");
    let original: Value = serde_json::from_str(&long_chat(4, 5)).expect("JSON");
    assert_eq!(request, original, "what fits is not touched");
}

#[test]
fn compact_into_a_pipe_says_what_it_assumed_beside_the_request() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(4, 5).replace("gpt-5.1", "mystery-1"));
    let run = bench.run(&["compact", text(&file), "--budget", "100k"]);
    assert!(serde_json::from_str::<Value>(&run.stdout).is_ok(), "{}", run.stdout);
    assert!(run.stderr.contains("mystery-1 is not known"), "{}", run.stderr);
}

#[test]
fn what_is_left_out_without_a_line_is_counted_and_said() {
    let bench = Bench::new();
    let chat = |reasoning: Option<&str>| {
        let mut messages = vec![json!({"role":"user","content":"Go."})];
        for _ in 0..20 {
            let mut said = json!({"role":"assistant","content":"Yes."});
            if let Some(reasoning) = reasoning {
                said["reasoning_content"] = reasoning.repeat(40).into();
            }
            messages.extend([said, json!({"role":"user","content":"And on."})]);
        }
        json!({"model":"gpt-5.1","messages":messages}).to_string()
    };
    let file = bench.write("chat.json", chat(Some("hm so then ")));
    let out = bench.path("smaller.json");
    let said = bench.ok(&["compact", text(&file), "--policy", "fit", "--budget", "1k", "--out", text(&out)]);
    assert!(said.contains("pieces of 20 events left out"), "{said}");
    let said = bench.ok(&["explain", text(&file), "--budget", "1k"]);
    assert!(said.contains("what is left out has no line") && !said.contains("every one of them"), "{said}");
}

#[test]
fn a_summary_that_an_agent_made_before_is_not_reported_as_a_change() {
    let bench = Bench::new();
    let line = |id: &str, kind: &str, more: Value| {
        let mut line = json!({"type": kind, "uuid": id, "parentUuid": null, "sessionId": "0b5d9f6e-8c53-4c3a-9a53-2f1f4d1c7a11",
            "timestamp": "2026-01-05T10:00:00.000Z"});
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        line.to_string() + "\n"
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer = json!({"id": "m1", "type": "message", "role": "assistant", "model": "claude-opus-4-5",
        "content": [{"type": "text", "text": "first"}]});
    let file = bench.write(
        "session.jsonl",
        [
            line("u1", "user", json!({"message": user("one")})),
            line("a1", "assistant", json!({"parentUuid": "u1", "message": answer})),
            line(
                "b1",
                "system",
                json!({"logicalParentUuid": "a1", "subtype": "compact_boundary", "content": "Conversation compacted",
                    "compactMetadata": {"trigger": "auto", "preTokens": 155_000}}),
            ),
            line(
                "s1",
                "user",
                json!({"parentUuid": "b1", "isCompactSummary": true, "message": user("They counted to one.")}),
            ),
            line("u2", "user", json!({"parentUuid": "s1", "message": user("two")})),
        ]
        .concat(),
    );
    for policy in ["epitome", "fit"] {
        let out = bench.path("smaller.json");
        let said =
            bench.ok(&["compact", text(&file), "--policy", policy, "--budget", "100k", "--out", text(&out)]);
        assert!(said.contains("It fits as it is: nothing was changed."), "{policy}: {said}");
        assert!(said.contains("the session was compacted before"), "{policy}: {said}");
        assert!(!said.contains("summarised"), "{policy}: {said}");
    }
}

#[test]
fn an_unknown_policy_is_told_with_all_there_are() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(3, 6));
    let said = bench.fails(&["compact", text(&file), "--budget", "6k", "--policy", "nope"]);
    assert!(
        said.contains("there is no policy `nope`") && said.contains("epitome, ") && said.contains(", fit,"),
        "{said}"
    );
}

#[test]
fn compact_tells_people_what_was_done() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(30, 60));
    let out = bench.path("smaller.json");
    let tell = |policy| {
        bench.ok(&["compact", text(&file), "--policy", policy, "--budget", "6k", "--out", text(&out)])
    };
    for words in ["before ", "after ", "budget", "shortened", "kept whole", "Written to", "epitome explain"] {
        let said = tell("fit");
        assert!(said.contains(words), "`{words}` is missing in\n{said}");
    }
    for words in ["before ", "after ", "budget", "summarised  messages", "kept whole  the last", "Written to"]
    {
        let said = tell("epitome");
        assert!(said.contains(words), "`{words}` is missing in\n{said}");
    }
}

#[test]
fn compact_renders_to_another_providers_format() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(30, 60));
    for (name, format, history) in
        [("anthropic", Format::Anthropic, "messages"), ("openai-responses", Format::OpenaiResponses, "input")]
    {
        let said = bench.ok(&["compact", text(&file), "--budget", "6k", "--format", name]);
        assert_eq!(check(format, &said, &ProviderRules::of(format)), [], "{said}");
        let request: Value = serde_json::from_str(&said).expect("JSON");
        assert!(request[history].as_array().is_some_and(|history| history.len() > 2), "{said}");
    }
}

#[test]
fn a_budget_for_a_model_whose_tokens_are_estimated_keeps_a_margin_and_says_why() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(30, 60).replace("gpt-5.1", "claude-opus-4-5"));
    let out = bench.path("smaller.json");
    let args = ["compact", text(&file), "--budget", "10k", "--out", text(&out)];
    let report = &bench.json(&args)[0];
    assert_eq!((&report["budget"], &report["margin"]["tokens"]), (&json!(10_000), &json!(2_000)), "{report}");
    assert_eq!(report["margin"]["basis"], json!({"profile": 0.25}), "{report}");
    assert!(report["tokens_after"].as_u64() <= Some(8_000), "{report}");
    assert!(bench.ok(&args).contains("margin  2000 of 10000 tokens are kept free"));
    for command in ["context", "explain"] {
        let said = &bench.json(&[command, text(&file), "--budget", "5%"])[0];
        assert_eq!((&said["budget"], &said["margin"]["tokens"]), (&json!(10_000), &json!(2_000)), "{said}");
        assert!(said["margin"]["why"].as_str().is_some_and(|why| why.contains("25 % short")), "{said}");
    }
}

#[test]
fn without_a_budget_the_window_less_the_answers_room_is_taken() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(30, 60));
    let report = &bench.json(&["compact", text(&file)])[0];
    assert_eq!(report["budget"], 272_000, "{report}");
    assert_eq!((&report["margin"]["basis"], &report["steps"]), (&json!("exact"), &json!([])), "{report}");
    let file = bench.write("chat.json", long_chat(30, 60).replace("gpt-5.1", "claude-opus-4-5"));
    let report = &bench.json(&["compact", text(&file)])[0];
    assert_eq!(
        (&report["budget"], &report["margin"]["tokens"]),
        (&json!(184_000), &json!(36_800)),
        "{report}"
    );
    let file = bench.write("chat.json", long_chat(3, 3).replace("gpt-5.1", "mystery-1"));
    assert!(bench.fails(&["compact", text(&file)]).contains("--budget"));
}

#[test]
fn a_budget_smaller_than_the_system_prompt_is_refused_with_the_numbers() {
    let bench = Bench::new();
    let chat = long_chat(3, 3).replace("You mend services.", &"You mend services. ".repeat(400));
    let file = bench.write("chat.json", chat);
    let said = bench.fails(&["compact", text(&file), "--budget", "500"]);
    assert!(said.contains("500 tokens") && said.contains("instructions"), "{said}");
}

#[test]
fn what_is_no_amount_of_tokens_is_said_to_be_none() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(3, 3));
    for amount in ["-1", "0.5", "-k"] {
        let said = bench.fails(&["compact", text(&file), "--budget", amount]);
        assert!(said.contains(&format!("`{amount}` is not an amount of tokens")), "{said}");
    }
}

#[test]
fn a_single_message_larger_than_the_budget_is_cut_and_says_so() {
    let bench = Bench::new();
    let huge = "word ".repeat(50_000);
    let file = bench.write("chat.json", json!([{"role":"user","content":huge}]).to_string());
    let said = bench.ok(&["compact", text(&file), "--budget", "2k"]);
    let request: Value = serde_json::from_str(&said).expect("JSON");
    let shown = request["messages"][0]["content"].to_string();
    assert!(shown.len() < 20_000 && shown.contains("tokens"), "{}", &shown[..200.min(shown.len())]);
}

#[test]
fn an_unknown_model_is_said_and_never_guessed() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(3, 3));
    let said = bench.fails(&["compact", text(&file), "--model", "gpt-5.11", "--budget", "45%"]);
    assert!(said.contains("gpt-5.11") && said.contains("gpt-5.1"), "the nearest are named: {said}");
    assert!(said.contains("--profiles"), "{said}");
    let file = bench.write("other.json", long_chat(3, 3).replace("gpt-5.1", "mystery-1"));
    let report = &bench.json(&["compact", text(&file), "--budget", "10k"])[0];
    assert!(report["notes"][0].as_str().is_some_and(|note| note.contains("mystery-1")), "{report}");
    let said = bench.fails(&["compact", text(&file), "--budget", "45%"]);
    assert!(said.contains("window is known"), "{said}");
}

#[test]
fn a_users_profiles_add_models_and_bad_toml_names_the_line() {
    let bench = Bench::new();
    let good = bench.write(
        "good.toml",
        "[[model]]\nname = \"house-model\"\nsource = \"our own\"\ndate = 2026-11-01\nprovider = \"house\"\n\
         wire = \"openai-chat\"\nwindow = 20000\ntokenizer = \"o200k\"\n",
    );
    let file = bench.write("chat.json", long_chat(30, 60));
    let args =
        ["compact", text(&file), "--model", "house-model", "--budget", "50%", "--profiles", text(&good)];
    assert_eq!(bench.json(&args)[0]["budget"], 10_000);
    let bad = bench.write("bad.toml", "[[model]]\nname = \"x\"\nwindoww = 5\n");
    let said = bench.fails(&["models", "--profiles", text(&bad)]);
    assert!(said.contains("line 3") && said.contains("windoww"), "{said}");
}

#[test]
fn models_lists_what_is_known_and_where_it_is_from() {
    let bench = Bench::new();
    let models = bench.json(&["models"]);
    assert!(models.len() > 20);
    assert!(models.iter().all(|model| model["source"].as_str().is_some_and(|source| !source.is_empty())));
    let gemini = models.iter().find(|model| model["name"] == "gemini-2.5-pro").expect("it is known");
    assert!(
        gemini["unverified"].as_array().is_some_and(|fields| fields.contains(&json!("price"))),
        "{gemini}"
    );
    let listed = bench.ok(&["models"]);
    assert!(listed.contains("gemini-2.5-pro *") && listed.contains("* not all of it"), "{listed}");
    assert!(listed.contains("mimo-v2.5-free "), "{listed}");
    assert!(bench.ok(&["models", "gpt-5.1"]).contains("unverified  [\"input_limit\"]"));
    assert!(bench.ok(&["models", "claude-opus-4-5"]).contains("window"));
    assert!(bench.fails(&["models", "claude-opus-9"]).contains("claude-opus"));
}

#[test]
fn context_explain_and_diff_show_what_the_model_sees_and_why() {
    let bench = Bench::new();
    let session = bench.session("chat.json", &long_chat(30, 60));
    let context = &bench.json(&["context", &session, "--budget", "6k"])[0];
    let regions: u64 = context["regions"]
        .as_array()
        .expect("regions")
        .iter()
        .filter_map(|region| region["tokens"].as_u64())
        .sum();
    let tokens = context["tokens"].as_u64().expect("a number");
    assert_eq!(regions, tokens);
    assert!((3_000..=6_000).contains(&tokens), "{tokens}");
    let shown = bench.ok(&["context", &session, "--budget", "6k", "--segments"]);
    assert!(shown.contains("instructions") && shown.contains("tool results"), "{shown}");

    let explained = bench.ok(&["explain", &session, "--budget", "6k"]);
    assert!(explained.contains("what was done") && explained.contains("recall "), "{explained}");

    // At turn 2 the model had seen one exchange; now it sees more of some and less of others.
    let then = &bench.json(&["context", &session, "--at", "2", "--budget", "6k"])[0];
    assert!(then["tokens"].as_u64() < context["tokens"].as_u64());
    let changes = bench.json(&["diff", &session, "2", "--budget", "6k"]);
    let kinds: Vec<&str> = changes.iter().filter_map(|change| change["change"].as_str()).collect();
    assert!(kinds.contains(&"added") && (kinds.contains(&"changed") || kinds.contains(&"gone")), "{kinds:?}");
}

#[test]
fn a_file_is_shown_as_of_any_of_its_turns() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(30, 60));
    let session = bench.session("same.json", &long_chat(30, 60));
    let tokens = |args: &[&str]| bench.json(args)[0]["tokens"].as_u64().expect("a number");
    for turn in ["1", "2", "9"] {
        let seen = tokens(&["context", text(&file), "--at", turn, "--budget", "100k"]);
        assert_eq!(seen, tokens(&["context", &session, "--at", turn, "--budget", "100k"]), "at {turn}");
        assert!(seen < tokens(&["context", text(&file), "--budget", "100k"]));
    }
    // The fourth message is the first result: the first turn made its call.
    let first = tokens(&["context", text(&file), "--at", "1", "--budget", "100k"]);
    assert_eq!(tokens(&["context", text(&file), "--at", "message 4", "--budget", "100k"]), first);
    bench.ok(&["explain", text(&file), "--at", "9", "--budget", "3k"]);
    assert!(bench.json(&["diff", text(&file), "2", "9", "--budget", "6k"]).len() > 5);
    let said = |turn: &str| bench.fails(&["context", text(&file), "--at", turn, "--budget", "6k"]);
    assert!(said("99").contains("the file has 30 turns"), "{}", said("99"));
    assert!(said("0").contains("the file has 30 turns"), "{}", said("0"));
    assert!(said("x").contains("names no turn"), "{}", said("x"));
}

#[test]
fn a_sweep_of_the_shipped_session_finds_no_violation() {
    let bench = Bench::new();
    let tally = &bench.json(&["sweep", text(&workspace().join("examples/sessions"))])[0];
    assert_eq!(tally["violations"], 0, "{tally}");
    assert!(tally["renders"].as_u64() > Some(10), "{tally}");
    assert!(tally["by_their_models"].as_u64() > Some(2), "{tally}");
}

#[test]
fn a_handle_of_a_stub_names_its_turn_wherever_a_turn_is_named() {
    let bench = Bench::new();
    let session = bench.session("chat.json", &long_chat(30, 60));
    let explained = &bench.json(&["explain", &session, "--budget", "6k"])[0];
    let handle = explained["evictions"][0]["handle"].as_str().expect("a handle").to_owned();
    let (thread, event) = handle.trim_start_matches("recall ").split_once(':').expect("THREAD:NUMBER");
    let shown = &bench.json(&["context", &session, "--at", &handle, "--budget", "6k"])[0];
    assert!(shown["tokens"].as_u64() > Some(0), "{shown}");
    bench.ok(&["export", &session, "--thread", thread, "--format", "openai-chat"]);
    bench.ok(&["show", &session, "--thread", thread]);
    let fork = &bench.json(&["fork", &session, "--at", &format!("{thread}:{event}")])[0];
    let fork = fork["session"].as_str().expect("a session");
    bench.ok(&["show", &fork[fork.len() - 8..]]);
    let said = bench.fails(&["show", &session, "--thread", "ffffffff"]);
    assert!(said.contains(thread), "those there are, are listed: {said}");
    assert!(bench.fails(&["fork", &session, "--at", "ffffffff:3"]).contains("no turn"));
}

#[test]
fn a_policy_in_charge_sends_what_it_would_have_come_to() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(40, 60));
    let out = bench.path("smaller.json");
    for policy in ["epitome", "retention", "blocks", "lineage", "pivot", "tiered"] {
        let args = ["compact", text(&file), "--budget", "12k", "--policy", policy, "--out", text(&out)];
        let report = &bench.json(&args)[0];
        assert_eq!(report["policy"], policy);
        assert!(report["tokens_after"].as_u64() <= Some(12_000), "{report}");
        let passes = report["passes"].as_array().expect("what was done, call by call");
        assert!(!passes.is_empty(), "{policy} did nothing: {report}");
        let request = fs::read_to_string(&out).expect("written");
        assert!(
            check(Format::OpenaiChat, &request, &ProviderRules::of(Format::OpenaiChat)).is_empty(),
            "{policy}"
        );
        assert!(request.contains("Never touch the public API"), "{policy} lost what the user demands");
    }
    let said = bench.ok(&["explain", text(&file), "--budget", "12k", "--policy", "lineage"]);
    assert!(said.contains("lineage over 40 calls") && said.contains("over the trigger"), "{said}");
}

#[test]
fn a_request_of_a_file_is_filled_where_the_cache_is_minded() {
    let bench = Bench::new();
    let session = workspace().join("examples/sessions/flaky-upload.json");
    let report = |budget: &str| bench.json(&["compact", text(&session), "--budget", budget])[0].clone();
    let smaller = report("12k");
    let after = smaller["tokens_after"].as_u64().expect("a number");
    assert!((9_000..=11_400).contains(&after), "{after} of 12000: {smaller}");
    let said =
        bench.ok(&["compact", text(&session), "--budget", "12k", "--out", text(&bench.path("out.json"))]);
    assert!(said.contains("from the whole session at once"), "{said}");
    let said = bench.ok(&["explain", text(&session), "--budget", "12k", "--policy", "epitome"]);
    assert!(
        said.contains("epitome over 42 calls") && said.contains("made from the whole session at once"),
        "{said}"
    );
    let whole = report("200k");
    assert_eq!(whole["tokens_after"], whole["tokens_before"], "it fits as it is");
}

#[test]
fn two_policies_are_compared_at_the_same_turn() {
    let bench = Bench::new();
    let file = bench.write("chat.json", long_chat(40, 60));
    let compare = |against: &str| {
        let args = ["diff", text(&file), "--budget", "12k", "--policy", "lineage", "--against", against];
        bench.json(&args)
    };
    assert_eq!(compare("lineage"), Vec::<Value>::new(), "a policy does the same as itself");
    assert!(!compare("pivot").is_empty());
    let run = bench.run(&["diff", text(&file), "--budget", "12k"]);
    assert!(!run.success && run.stderr.contains("<FROM>"), "{}", run.stderr);
}

#[test]
fn policies_are_listed_printed_and_checked() {
    let bench = Bench::new();
    let names: Vec<Value> = bench.json(&["policies"]).iter().map(|policy| policy["name"].clone()).collect();
    assert_eq!(names, ["epitome", "retention", "blocks", "lineage", "pivot", "tiered"]);
    let printed = bench.ok(&["policies", "tiered"]);
    let file = bench.write("mine.toml", printed);
    assert!(bench.ok(&["policies", text(&file)]).contains("is right"));
    let wrong = bench.write("wrong.toml", "base = \"tiered\"\n\n[limits]\ntriger = 0.5\n");
    let run = bench.run(&["policies", text(&wrong)]);
    assert!(!run.success && run.stderr.contains("line 4"), "{}", run.stderr);
    let run = bench.run(&["policies", "tired"]);
    assert!(!run.success && run.stderr.contains("there is no policy `tired`"), "{}", run.stderr);
}

#[test]
fn a_sweep_under_every_policy_finds_no_violation() {
    let bench = Bench::new();
    let session = workspace().join("examples/sessions/flaky-upload.json");
    let swept = &bench.json(&["sweep", text(&session), "--policy", "all", "--budget", "8k,20k"])[0];
    assert_eq!(swept["violations"], 0, "{swept}");
    let rows = swept["swept"].as_array().expect("a row for each policy and budget");
    assert_eq!(rows.len(), 12);
    assert!(
        rows.iter().all(|row| row["calls"] == 42 && row["resets_in_an_epoch"].as_u64() <= Some(1)),
        "{swept}"
    );
    assert!(rows.iter().all(|row| row["resets"].as_u64() > Some(0)), "every policy acts on it: {swept}");
}

#[test]
fn a_structured_summary_tells_every_section_and_writes_no_request() {
    let bench = Bench::new();
    let example = workspace().join("examples/sessions/flaky-upload.json");
    let text_of =
        |args: &[&str]| bench.ok(&[&["compact", text(&example), "--format", "structured"], args].concat());
    let whole = text_of(&[]);
    let checklist = [
        "Session Intent",
        "Current Task",
        "Files Modified",
        "Files Read",
        "Key Decisions",
        "Failed Approaches",
        "Errors Encountered",
        "Next Steps",
    ];
    let places: Vec<Option<usize>> =
        checklist.iter().map(|title| whole.find(&format!("## {title}\n"))).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{places:?} in {whole}");
    assert!(whole.contains("partferry/reaper.py") && !whole.contains("What Happened"), "{whole}");
    assert!(text_of(&["--budget", "2k"]).len() < whole.len());
    let shown = bench.ok(&["context", text(&example), "--format", "structured"]);
    assert_eq!(shown, whole);

    let report = &bench.json(&["context", text(&example), "--format", "structured"])[0];
    let sections = report["sections"].as_array().unwrap();
    let titles: Vec<&str> = sections.iter().map(|section| section["title"].as_str().unwrap()).collect();
    assert!(checklist.iter().all(|title| titles.contains(title)), "{titles:?}");
    assert_eq!(report["text"].as_str().unwrap().trim_end(), whole.trim_end());
    let modified = sections.iter().find(|section| section["section"] == "files_modified").unwrap();
    assert!(modified["items"][0]["sources"].is_array(), "{modified}");

    let file = bench.path("summary.md");
    let said = text_of(&["--out", text(&file)]);
    assert!(said.contains("written to"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap().trim_end(), whole.trim_end());
    let refused = bench.fails(&["explain", text(&example), "--format", "structured"]);
    assert!(refused.contains("`compact` and `context` write it"), "{refused}");
    let refused = bench.fails(&["compact", text(&example), "--format", "structured", "--policy", "fit"]);
    assert!(refused.contains("no --policy"), "{refused}");
}
