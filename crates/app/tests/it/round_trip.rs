//! In and out again: what a client sent is what an export gives, to the byte.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde_json::{Value, value::RawValue};

use super::harness::{Bench, text, workspace};

fn fixtures(format: &str) -> Vec<PathBuf> {
    let folder = workspace().join("crates/wire/tests/fixtures").join(format);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| !path.to_string_lossy().ends_with(".response.json"))
        .collect();
    files.sort();
    files
}

type Top = BTreeMap<String, Box<RawValue>>;

/// The messages of a request, each with its own bytes; the rest of the request without them.
fn split(request: &str) -> (Vec<String>, BTreeMap<String, Value>) {
    let mut top: Top = serde_json::from_str(request).expect("an object");
    let history = top.remove("messages").or_else(|| top.remove("input")).expect("a history");
    let messages = match serde_json::from_str::<Vec<Box<RawValue>>>(history.get()) {
        Ok(messages) => messages.into_iter().map(|message| message.get().to_owned()).collect(),
        Err(_) => vec![history.get().to_owned()],
    };
    let rest = top.into_iter().map(|(key, value)| (key, serde_json::from_str(value.get()).expect("JSON")));
    (messages, rest.collect())
}

fn check(format: &str) {
    let files = fixtures(format);
    assert!(!files.is_empty(), "no fixtures for {format}");
    for file in files {
        let bench = Bench::new();
        let lines = bench.json(&["import", text(&file)]);
        assert_eq!(lines[0]["format"], format, "{}", file.display());
        let session = lines[0]["session"].as_str().expect("a session");
        let exported = bench.ok(&["export", session, "--format", format]);
        let original = fs::read_to_string(&file).expect("UTF-8");
        let ((before, settings), (after, settings_after)) = (split(&original), split(&exported));
        assert_eq!(settings, settings_after, "{}", file.display());
        assert_eq!(before, after, "{}", file.display());
    }
}

#[test]
fn openai_chat_leaves_as_it_came() {
    check("openai-chat");
}

#[test]
fn openai_responses_leave_as_they_came() {
    check("openai-responses");
}

#[test]
fn anthropic_messages_leave_as_they_came() {
    check("anthropic");
}

/// The lines of an export without the places of the events: another log has other threads.
fn without_places(export: &str) -> Vec<Value> {
    let line = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("every line is JSON");
        line.as_object_mut().expect("a line is an object").remove("id");
        line
    };
    export.lines().map(line).collect()
}

#[test]
fn an_exported_log_is_the_same_log_when_it_is_imported() {
    for format in ["openai-chat", "openai-responses", "anthropic"] {
        for file in fixtures(format) {
            let (from, to) = (Bench::new(), Bench::new());
            let session = from.json(&["import", text(&file)])[0]["session"].as_str().expect("it").to_owned();
            let exported = from.ok(&["export", &session, "--format", "jsonl"]);
            let path = to.write("log.jsonl", &exported);
            let imported = to.json(&["import", text(&path)]);
            assert_eq!(imported[0]["format"], "epitome", "{}", file.display());
            let copy = imported[0]["session"].as_str().expect("a session");
            let again = to.ok(&["export", copy, "--format", "jsonl"]);
            assert_eq!(without_places(&again), without_places(&exported), "{}", file.display());
            to.ok(&["doctor"]);
            // Where it came from it is a session beside the first.
            let beside = from.json(&["import", text(&path)]);
            assert_ne!(beside[0]["session"], session.as_str());
        }
    }
}
