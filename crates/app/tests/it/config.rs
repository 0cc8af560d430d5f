//! The configuration file of the gateway and of the commands that act on sessions.

use std::fs;

use serde_json::Value;

use super::harness::{Bench, text};

const FILE: &str = "policy = 'pivot'\nmode = 'compact'\n[compact]\nwindow = '128k'\nmemory_files = 'notes'\n\
                    focus = 'the workbench'\n[[compact.hook]]\nname = 'manners'\nreserve = 100\ntext = 'Be kind.'\n";

fn row<'r>(rows: &'r [Value], key: &str) -> &'r Value {
    rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key} is not shown"))
}

#[test]
fn what_holds_is_shown_with_its_place() {
    let bench = Bench::new();
    let file = bench.write("epitome.toml", FILE);
    let rows = bench.json(&["config", "--config", text(&file)]);
    let at = |key: &str| (row(&rows, key)["value"].clone(), row(&rows, key)["from"].clone());
    let line = |line: u64| Value::from(format!("{}:{line}", file.display()));
    assert_eq!(at("policy"), ("'pivot'".into(), line(1)));
    assert_eq!(at("compact.window"), ("'128k'".into(), line(4)));
    assert_eq!(at("compact.hook[0].reserve"), ("100".into(), line(9)));
    assert_eq!(at("limits.body"), ("64MiB".into(), "default".into()));
    assert_eq!(at("db").1, Value::from("EPITOME_DB"));
    let defaults = bench.json(&["config"]);
    assert!(defaults.iter().all(|row| row["from"] == "default" || row["key"] == "db"), "{defaults:?}");
    assert!(bench.ok(&["config"]).contains("There is no configuration file"));
}

#[test]
fn a_file_is_checked_and_the_line_that_is_wrong_is_named() {
    let bench = Bench::new();
    let right = bench.write("right.toml", FILE);
    assert!(bench.ok(&["config", "--check", text(&right)]).contains("is right"));
    for (wrong, expect) in [
        ("mode = 'loud'", "line 1"),
        ("[compact]\nwindw = 3", "line 2: unknown field `windw`"),
        ("[compact]\n\nwindow = 0", "line 3: `window` is 0"),
        ("policy = 'nobody'", "nobody"),
    ] {
        let file = bench.write("wrong.toml", wrong);
        let said = bench.fails(&["config", "--check", text(&file)]);
        assert!(said.contains(expect), "{wrong}: {said}");
    }
}

#[test]
fn every_key_is_listed_and_the_schema_is_json() {
    let bench = Bench::new();
    let keys = bench.json(&["config", "--keys"]);
    assert!(
        keys.len() > 50
            && keys.iter().all(|key| key["about"].as_str().is_some_and(|about| !about.is_empty()))
    );
    let listed = bench.ok(&["config", "--keys"]);
    let schema: Value = serde_json::from_str(&bench.ok(&["config", "--schema"])).expect("JSON");
    assert_eq!(schema["properties"]["compact"]["properties"]["auto"]["type"], "boolean");
    for key in &keys {
        assert!(listed.contains(key["key"].as_str().expect("a key")));
    }
}

#[test]
fn commands_that_act_on_sessions_go_by_the_file() {
    let bench = Bench::new();
    let session = bench.session("talk.json", &super::compaction::talk());
    let policy =
        bench.write("short.toml", "name = 'short'\nbase = 'epitome'\n[summary]\nkeep = { turns = 2 }\n");
    let file = bench.write(
        "epitome.toml",
        format!("policy = '{}'\n[compact]\nmemory_files = 'notes'\nfocus = 'bench'\n", policy.display()),
    );
    let turn = &bench.json(&["compact", &session, "--config", text(&file)])[0];
    assert_eq!((&turn["by"], &turn["focus"]), (&"built-in".into(), &"bench".into()), "{turn}");
    let notes = fs::read_dir(bench.path("notes")).expect("a folder").count();
    assert_eq!(notes, 1, "a folder for the session");
    // The same file may come from the environment, and name the database.
    let elsewhere = bench.write("elsewhere.toml", "db = 'other.db'\n");
    let shown = bench
        .command()
        .env_remove("EPITOME_DB")
        .env("EPITOME_CONFIG", &elsewhere)
        .args(["show", "x"])
        .output();
    let shown = shown.expect("the binary runs");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("other.db"), "{shown:?}");
}
