//! Tests of the readers on real sessions, where these are available.
//!
//! The files are not part of the project: they are looked for in `EPITOME_DATA`, or in `../shared/data` beside the
//! workspace, and the tests report their absence and pass if they are not there.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use epitome_core::{
    Fact, Seq,
    pairing::{CallOutcome, pair},
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{TranscriptFile, TranscriptFormat, TranscriptLimits, read, testing::is_prefix};

/// Folder of the real sessions, if it exists.
fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let data = std::env::var_os("EPITOME_DATA").map_or_else(beside, PathBuf::from);
    let found = data.join("MANIFEST.json").is_file();
    if !found {
        println!("skipped: no real sessions at {}", data.display());
    }
    found.then_some(data)
}

/// Every file of a folder, with its row of the manifest.
pub(super) fn files(folder: &str) -> Vec<(String, Vec<u8>, Value)> {
    let Some(data) = data() else { return Vec::new() };
    let manifest: Vec<Value> = serde_json::from_slice(&fs::read(data.join("MANIFEST.json")).unwrap())
        .expect("the manifest is a list");
    let rows = manifest.into_iter().filter_map(|row| {
        let file = row["file"].as_str()?.to_owned();
        let bytes = file.starts_with(&format!("{folder}/")).then(|| fs::read(data.join(&file)).unwrap())?;
        Some((file, bytes, row))
    });
    let rows: Vec<_> = rows.collect();
    assert!(!rows.is_empty(), "the manifest names no file of {folder}");
    rows
}

/// Counts of a reading.
#[derive(Debug, Default, PartialEq, Eq)]
struct TranscriptCounts {
    kinds: BTreeMap<&'static str, u64>,
    calls: u64,
    unanswered: u64,
    strays: u64,
}

impl TranscriptCounts {
    fn of(reading: &TranscriptFile) -> Self {
        let mut counts = Self::default();
        for thread in reading.sessions.iter().flat_map(|session| &session.threads) {
            for event in &thread.events {
                *counts.kinds.entry(event.fact.kind()).or_default() += 1;
                assert!(serde_json::from_str::<IgnoredAny>(&event.raw.json).is_ok(), "raw JSON is one value");
                let empty = matches!(&event.fact, Fact::AssistantSaid { parts, .. } if parts.is_empty());
                assert!(!empty, "an answer says something: {}", event.raw.json);
            }
            let paired = pair((1..).map(Seq).zip(thread.events.iter().map(|event| &event.fact)));
            let open = paired.exchanges.iter().filter(|exchange| exchange.outcome == CallOutcome::Unanswered);
            counts.unanswered += open.count() as u64;
            counts.calls += paired.exchanges.len() as u64;
            counts.strays += paired.strays.len() as u64;
        }
        counts
    }

    fn kind(&self, kind: &str) -> u64 {
        self.kinds.get(kind).copied().unwrap_or_default()
    }
}

/// Reads all files of a folder: each must be of `format` and pair every result.
fn read_all(
    folder: &str,
    format: TranscriptFormat,
) -> Vec<(TranscriptFile, TranscriptCounts, Value, Vec<u8>)> {
    let read = |(file, bytes, row): (String, Vec<u8>, Value)| {
        let reading = read(&file, &bytes, &TranscriptLimits::default())
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(reading.format, format, "{file}");
        // The images of two OpenCode sessions were redacted before they were published.
        let odd: Vec<_> = reading.warnings.iter().filter(|odd| !odd.what.contains("is not base64")).collect();
        assert!(odd.is_empty(), "{file}: {odd:?}");
        let counts = TranscriptCounts::of(&reading);
        assert_eq!(counts.strays, 0, "{file}");
        (reading, counts, row, bytes)
    };
    files(folder).into_iter().map(read).collect()
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn opencode_sessions_hold_what_the_manifest_counts() {
    for (reading, counts, row, _) in read_all("opencode", TranscriptFormat::Opencode) {
        // The manifest counts every message. Two kinds of them have no content for the model: answers that failed or
        // were stopped before their first word, and notes of a plugin, each a message of one ignored text.
        let silent: u64 = reading
            .skipped
            .iter()
            .filter(|(kind, _)| kind.starts_with("empty answer") || *kind == "ignored text")
            .map(|(_, count)| count)
            .sum();
        let messages = counts.kind("user_said") + counts.kind("assistant_said") + silent;
        assert_eq!(Some(messages), row["messages"].as_u64(), "{row}");
        assert_eq!(Some(counts.calls), row["tool_calls"].as_u64(), "{row}");
        assert_eq!(Some(counts.kind("compacted")), row["compactions"].as_u64(), "{row}");
        assert_eq!(
            (counts.unanswered, counts.kind("usage_reported")),
            (0, counts.kind("assistant_said")),
            "{row}"
        );
    }
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn swe_agent_runs_have_an_outcome_for_every_action() {
    for (reading, counts, row, bytes) in read_all("swe-agent", TranscriptFormat::SweAgent) {
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let history = document["history"].as_array().unwrap();
        let answers = history.iter().filter(|message| message["role"] == "assistant").count() as u64;
        assert_eq!(
            (counts.kind("assistant_said"), counts.calls, counts.unanswered),
            (answers, answers, 0),
            "{row}"
        );
        assert_eq!(reading.sessions.len(), 1);
    }
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn openhands_sessions_are_whole() {
    let all = read_all("openhands", TranscriptFormat::Openhands);
    for (reading, counts, row, bytes) in &all {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(reading.sessions.len(), lines.len(), "{row}");
        let events = lines.iter().flat_map(|line| line["history"].as_array().unwrap());
        let acted = events.filter(|event| {
            !["system", "recall", "message"].contains(&event["action"].as_str().unwrap_or("message"))
        });
        // Every action is an answer. The only calls without an outcome are those that finish a run.
        assert_eq!(counts.kind("assistant_said"), acted.count() as u64, "{row}");
        assert!(counts.unanswered <= lines.len() as u64, "{row}: {counts:?}");
    }
    let usage: u64 = all.iter().map(|(_, counts, ..)| counts.kind("usage_reported")).sum();
    assert!(all.is_empty() || usage == 105, "every call of the newer file has its usage: {usage}");
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn tau_bench_results_are_a_session_each() {
    for (reading, counts, row, bytes) in read_all("tau-bench", TranscriptFormat::TauBench) {
        let results: Vec<Value> = serde_json::from_slice(&bytes).unwrap();
        let messages: usize = results.iter().map(|result| result["traj"].as_array().unwrap().len()).sum();
        assert_eq!(reading.sessions.len(), results.len(), "{row}");
        assert_eq!((counts.kinds.values().sum::<u64>(), counts.unanswered), (messages as u64, 0), "{row}");
    }
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn tau2_simulations_keep_both_sides_apart() {
    for (reading, counts, row, bytes) in read_all("tau2", TranscriptFormat::Tau2) {
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let simulations = document["simulations"].as_array().unwrap();
        assert_eq!(reading.sessions.len(), simulations.len(), "{row}");
        assert_eq!(counts.unanswered, 0, "{row}");
        for (session, simulation) in reading.sessions.iter().zip(simulations) {
            let messages = simulation["messages"].as_array().unwrap();
            let unseen = messages.iter().filter(|message| {
                message["requestor"] == "user" || message["tool_calls"][0]["requestor"] == "user"
            });
            let user = session.threads.get(1).map_or(0, |thread| thread.events.len());
            assert_eq!(user, unseen.count(), "{}", session.key);
            let said = session.threads[0]
                .events
                .iter()
                .filter(|event| !matches!(event.fact, Fact::UsageReported { .. } | Fact::Instructed { .. }));
            assert_eq!(said.count() + user, messages.len(), "{}", session.key);
        }
    }
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn real_sessions_read_the_same_while_they_grow() {
    let shorten = |value: &mut Value, part: usize| {
        let list = value.as_array_mut().expect("it is a list");
        list.truncate(list.len() * part / 3);
    };
    let check = |file: &str, document: &Value, key: &[&str]| {
        let whole = read(file, document.to_string().as_bytes(), &TranscriptLimits::default()).unwrap();
        for part in 1..3 {
            let mut early = document.clone();
            shorten(key.iter().fold(&mut early, |value, key| &mut value[*key]), part);
            let Ok(early) = read(file, early.to_string().as_bytes(), &TranscriptLimits::default()) else {
                continue;
            };
            is_prefix(&early, &whole, part);
        }
    };
    for (folder, key) in [("opencode", "messages"), ("swe-agent", "history"), ("tau2", "simulations")] {
        // The larger files cover nothing that the smaller do not, and take their time.
        for (file, bytes, _) in files(folder).into_iter().filter(|(_, bytes, _)| bytes.len() < 1 << 20) {
            let mut document: Value = serde_json::from_slice(&bytes).unwrap();
            // A run that has ended does not grow any more.
            document["info"].as_object_mut().map(|info| info.remove("exit_status"));
            check(&file, &document, &[key]);
        }
    }
    for (file, bytes, _) in files("openhands") {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            check(&file, &serde_json::from_slice(line).unwrap(), &["history"]);
        }
    }
}
