//! In and out again: what a client sent is what an export gives, to the byte.

use std::{fs, path::PathBuf};

use serde_json::{Value, value::RawValue};

use super::harness::{Bench, text, workspace};

fn fixtures(format: &str) -> Vec<PathBuf> {
    let folder = workspace().join("crates/wire/tests/fixtures").join(format.replace('-', "_"));
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| !path.to_string_lossy().ends_with(".response.json"))
        .collect();
    files.sort();
    files
}

/// The messages of a request, each with its own bytes.
fn messages(request: &str) -> Vec<String> {
    let top: std::collections::BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(request).expect("an object");
    let history = top.get("messages").or_else(|| top.get("input")).expect("a history").get();
    match serde_json::from_str::<Vec<Box<RawValue>>>(history) {
        Ok(messages) => messages.into_iter().map(|message| message.get().to_owned()).collect(),
        Err(_) => vec![history.to_owned()],
    }
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
        let (before, after): (Value, Value) =
            (serde_json::from_str(&original).expect("JSON"), serde_json::from_str(&exported).expect("JSON"));
        assert_eq!(before, after, "{}", file.display());
        assert_eq!(messages(&original), messages(&exported), "{}", file.display());
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
