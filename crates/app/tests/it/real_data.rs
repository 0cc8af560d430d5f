//! Real sessions, where they are at hand: everything imports, importing twice adds nothing, the log is sound.

use std::{env, fs, path::PathBuf};

use serde_json::Value;

use super::harness::{Bench, text, workspace};

/// Where real sessions lie, unless `EPITOME_DATA` says otherwise. They are no part of the project.
fn data() -> Option<PathBuf> {
    let folder =
        env::var_os("EPITOME_DATA").map_or_else(|| workspace().join("../shared/data"), PathBuf::from);
    if folder.join("MANIFEST.json").exists() {
        return Some(folder);
    }
    println!("skipped: no real sessions at {} (set EPITOME_DATA)", folder.display());
    None
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn every_real_session_imports_once() {
    let Some(data) = data() else { return };
    let manifest: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(data.join("MANIFEST.json")).expect("UTF-8")).expect("JSON");
    let files: Vec<String> = manifest
        .iter()
        .map(|row| text(&data.join(row["file"].as_str().expect("a file"))).to_owned())
        .collect();
    let mut args = vec!["import"];
    args.extend(files.iter().map(String::as_str));

    let bench = Bench::new();
    let first = bench.json(&args);
    for file in &files {
        let lines = first.iter().filter(|line| line["file"] == file.as_str()).count();
        assert!(lines > 0, "{file} gave no session");
    }
    let second = bench.json(&args);
    assert_eq!(first.len(), second.len());
    for line in &second {
        assert_eq!(line["appended"], 0, "imported twice: {}", line["file"]);
    }
    let report = &bench.json(&["doctor"])[0];
    assert_eq!(report["healthy"], true, "{report}");
}
