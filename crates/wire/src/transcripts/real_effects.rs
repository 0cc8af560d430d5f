//! Effects of tools in real sessions, compared with the agents' own records of them.
//!
//! The truth never comes from a call's arguments: it is the patch that an agent computed, the snapshot that it took,
//! the file that a tool named in its answer, or the final diff of a run. A session may also change files in ways that
//! no call names (a formatter over a folder, a build); if the record shows such files, they are counted apart.

use std::collections::{BTreeMap, BTreeSet};

use epitome_core::{
    ContentPart, Seq,
    event::{ToolCall, ToolResult},
    pairing::{CallOutcome, pair},
    summary::tools::{ToolEffect, effects, failure},
};
use serde_json::Value;

use super::{TranscriptLimits, TranscriptSession, read, real_sessions::files};

type ChangedPaths = BTreeSet<String>;

/// The calls of a session, each with its result.
fn calls(session: &TranscriptSession) -> Vec<(ToolCall, Option<ToolResult>)> {
    let mut calls = Vec::new();
    for thread in &session.threads {
        let facts = || (1..).map(Seq).zip(thread.events.iter().map(|event| &event.fact));
        for exchange in pair(facts()).exchanges {
            let result = match &exchange.outcome {
                CallOutcome::Returned { result, .. } => Some((*result).clone()),
                CallOutcome::Unanswered => None,
            };
            calls.push((exchange.call.clone(), result));
        }
    }
    calls
}

/// The files that the calls of a session changed.
fn changed(session: &TranscriptSession) -> ChangedPaths {
    let mut paths = ChangedPaths::new();
    for (call, result) in calls(session) {
        for effect in effects(&call, result.as_ref()) {
            if let ToolEffect::Changed { path, .. } = effect {
                paths.insert(path);
            }
        }
    }
    paths
}

/// Returns true if two paths name one file: the same, or one of them seen from a folder above.
fn same(one: &str, other: &str) -> bool {
    let ends = |whole: &str, part: &str| whole.strip_suffix(part).is_some_and(|rest| rest.ends_with('/'));
    one == other || ends(one, other) || ends(other, one)
}

/// Score of a format's sessions.
#[derive(Default)]
struct EffectScore {
    sessions: usize,
    files: usize,
    missed: Vec<String>,
    unnamed: Vec<String>,
    beside: usize,
}

impl EffectScore {
    /// Compares the changes found in a session with the truth. `unnamed` are files that changed without a call.
    fn session(&mut self, name: &str, found: &ChangedPaths, truth: &ChangedPaths, unnamed: &ChangedPaths) {
        self.sessions += 1;
        self.files += truth.len();
        let is_found = |path: &&String| found.iter().any(|found| same(found, path));
        self.missed.extend(truth.iter().filter(|path| !is_found(path)).map(|path| format!("{name}: {path}")));
        self.unnamed
            .extend(unnamed.iter().filter(|path| !is_found(path)).map(|path| format!("{name}: {path}")));
        let known = |path: &&String| truth.iter().chain(unnamed).any(|known| same(known, path));
        self.beside += found.iter().filter(|path| !known(path)).count();
    }

    fn check(self, format: &str) {
        if self.sessions == 0 {
            return;
        }
        let found = self.files - self.missed.len();
        #[expect(clippy::cast_precision_loss, reason = "there are not that many files")]
        let recall = 100.0 * found as f64 / self.files as f64;
        println!(
            "{format}: {} sessions, {} changed files, {found} found, recall {recall:.1} %, {} more that only commands \
             name, {} that no call names",
            self.sessions,
            self.files,
            self.beside,
            self.unnamed.len(),
        );
        for path in &self.unnamed {
            println!("  no call names {path}");
        }
        assert!(self.files > 0, "{format} has no truth to compare with");
        assert!(self.missed.is_empty(), "{format} missed: {:#?}", self.missed);
    }
}

fn values(bytes: &[u8]) -> impl Iterator<Item = Value> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

fn sessions(file: &str, bytes: &[u8]) -> Vec<TranscriptSession> {
    read(file, bytes, &TranscriptLimits::default()).expect("it is a transcript").sessions
}

/// The files of a diff that git made.
fn in_diff(diff: &str) -> ChangedPaths {
    let names = diff.lines().filter_map(|line| line.trim_end().strip_prefix("diff --git a/"));
    names.filter_map(|names| names.split(" b/").next()).map(str::to_owned).collect()
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn claude_codes_own_patches_and_backups_are_found() {
    let mut score = EffectScore::default();
    for (file, bytes, _) in files("claude-code") {
        let found = sessions(&file, &bytes).iter().flat_map(changed).collect();
        let mut truth = ChangedPaths::new();
        for line in values(&bytes) {
            let result = &line["toolUseResult"];
            if result["structuredPatch"].is_array() {
                truth.extend(result["filePath"].as_str().map(str::to_owned));
            }
            let backups = line["snapshot"]["trackedFileBackups"].as_object();
            truth.extend(backups.into_iter().flat_map(|backups| backups.keys().cloned()));
        }
        score.session(&file, &found, &truth, &ChangedPaths::new());
    }
    score.check("claude-code");
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn codexs_own_record_of_patches_is_found() {
    let mut score = EffectScore::default();
    for (file, bytes, _) in files("codex") {
        let found = sessions(&file, &bytes).iter().flat_map(changed).collect();
        let mut truth = ChangedPaths::new();
        for line in values(&bytes) {
            let payload = &line["payload"];
            if payload["type"] == "patch_apply_end" && payload["success"] == true {
                let changes = payload["changes"].as_object().expect("a patch has changes");
                for (path, change) in changes {
                    truth.insert(path.clone());
                    truth.extend(change["move_path"].as_str().map(str::to_owned));
                }
            }
            // Older versions record a patch only in the words that it answers with.
            let output = payload["output"].as_str().unwrap_or_default();
            let inner: Value = serde_json::from_str(output).unwrap_or_default();
            let text = inner["output"].as_str().unwrap_or(output);
            if let Some((_, list)) = text.split_once("Success. Updated the following files:\n") {
                let paths = list.lines().filter_map(|line| line.get(2..));
                truth.extend(paths.map(str::to_owned));
            }
        }
        score.session(&file, &found, &truth, &ChangedPaths::new());
    }
    score.check("codex");
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn codexs_own_record_of_commands_agrees() {
    let mut compared = 0;
    for (file, bytes, _) in files("codex") {
        let mut truth: BTreeMap<String, i64> = BTreeMap::new();
        for line in values(&bytes) {
            let payload = &line["payload"];
            if payload["type"] == "exec_command_end"
                && let (Some(call), Some(exit)) = (payload["call_id"].as_str(), payload["exit_code"].as_i64())
            {
                truth.insert(call.to_owned(), exit);
            }
        }
        for (call, result) in sessions(&file, &bytes).iter().flat_map(calls) {
            let (Some(exit), Some(result)) = (truth.get(&call.id.0), result) else { continue };
            let told = effects(&call, Some(&result)).into_iter().find_map(|effect| match effect {
                ToolEffect::Ran { exit, .. } => exit,
                _ => None,
            });
            // A command that still ran when it was answered has no code yet.
            if let Some(told) = told {
                assert_eq!(told, *exit, "{file}: {call:?}");
                compared += 1;
            }
        }
    }
    println!("codex: {compared} exit codes agree");
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn opencodes_snapshots_are_found() {
    let mut score = EffectScore::default();
    for (file, bytes, _) in files("opencode") {
        let document: Value = serde_json::from_slice(&bytes).expect("it is JSON");
        let messages = document["messages"].as_array().expect("it has messages");
        let parts = || messages.iter().flat_map(|message| message["parts"].as_array().expect("it has parts"));
        let snapshots = parts().filter(|part| part["type"] == "patch");
        let snapshots = snapshots.flat_map(|part| part["files"].as_array().expect("a patch has files"));
        let snapshots: ChangedPaths = snapshots.filter_map(Value::as_str).map(str::to_owned).collect();
        // A tool's report of its own work tells its files from those that something else changed.
        let own: ChangedPaths = parts()
            .filter_map(|part| {
                let metadata = &part["state"]["metadata"];
                let diff = metadata["diff"].as_str().and_then(|diff| diff.strip_prefix("Index: "));
                metadata["filepath"].as_str().or_else(|| diff?.lines().next()).map(str::to_owned)
            })
            .collect();
        let truth: ChangedPaths = snapshots.union(&own).filter(|path| own.contains(*path)).cloned().collect();
        let unnamed: ChangedPaths = snapshots.difference(&own).cloned().collect();
        let found = sessions(&file, &bytes).iter().flat_map(changed).collect();
        score.session(&file, &found, &truth, &unnamed);
    }
    score.check("opencode");
}

#[test]
fn pis_and_geminis_answers_are_found() {
    for folder in ["pi", "gemini"] {
        let mut score = EffectScore::default();
        for (file, bytes, _) in files(folder) {
            let sessions = sessions(&file, &bytes);
            let found = sessions.iter().flat_map(changed).collect();
            let mut truth = ChangedPaths::new();
            for (_, result) in sessions.iter().flat_map(calls) {
                let texts =
                    result.into_iter().flat_map(|result| result.parts).filter_map(|part| match part {
                        ContentPart::Text { text } => Some(text),
                        _ => None,
                    });
                truth.extend(texts.filter_map(|text| named_in(&text).map(str::to_owned)));
            }
            score.session(&file, &found, &truth, &ChangedPaths::new());
        }
        score.check(folder);
    }
}

/// The file that an editor reports as changed.
fn named_in(answer: &str) -> Option<&str> {
    let rest = answer.strip_prefix("Successfully ")?;
    let start =
        [" in ", " bytes to ", " file: "].iter().find_map(|word| Some(rest.find(word)? + word.len()))?;
    let path = &rest[start..];
    Some(path.split(". ").next().unwrap_or(path).trim_end_matches('.'))
}

/// Editors of benchmarks that are not read: `SWE-agent`'s works on a file that is open and that its calls do not name, and
/// early versions of `OpenHands` called theirs from Python.
#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn final_diffs_of_benchmark_runs_are_found() {
    let mut score = EffectScore::default();
    for (file, bytes, _) in files("openhands") {
        for (session, line) in sessions(&file, &bytes).iter().zip(values(&bytes)) {
            if calls(session).iter().any(|(call, _)| call.arguments.contains("edit_file_by_")) {
                continue;
            }
            let diff = line["git_patch"].as_str().or_else(|| line["test_result"]["git_patch"].as_str());
            let truth = in_diff(diff.unwrap_or_default());
            score.session(&session.key, &changed(session), &truth, &ChangedPaths::new());
        }
    }
    score.check("openhands");
}

#[test]
fn results_that_agents_mark_as_errors_have_their_words() {
    let (mut marked, mut told, mut unmarked) = (0, 0, 0);
    for folder in ["claude-code", "codex", "opencode", "pi", "gemini", "swe-agent", "openhands", "tau-bench"]
    {
        for (file, bytes, _) in files(folder) {
            for (call, result) in sessions(&file, &bytes).iter().flat_map(calls) {
                let Some(result) = result else { continue };
                let failure = failure(&call, &result);
                let text: String = result.parts.iter().map(readable).collect();
                for line in failure.iter().flat_map(|failure| failure.words.lines()) {
                    // A result that is JSON itself has its lines escaped.
                    let escaped = serde_json::to_string(line).expect("a text is JSON");
                    let verbatim = text.contains(line) || text.contains(escaped.trim_matches('"'));
                    assert!(verbatim, "{file}: {line:?} is not in the result of {call:?}");
                }
                if result.error {
                    marked += 1;
                    told += usize::from(failure.is_some());
                    // A search that found nothing exits as if it had failed.
                    let nothing = call.arguments.contains("grep") && text.contains("code 1");
                    assert!(failure.is_some() || nothing, "{file}: {call:?} failed: {text}");
                } else {
                    unmarked += usize::from(failure.is_some());
                }
            }
        }
    }
    println!("{marked} results are marked as errors, {told} of them are failures, as are {unmarked} others");
}

fn readable(part: &ContentPart) -> &str {
    match part {
        ContentPart::Text { text } => text,
        _ => "",
    }
}
