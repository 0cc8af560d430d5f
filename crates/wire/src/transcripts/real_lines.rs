//! Tests of the readers of Claude Code, Codex, pi and Gemini CLI on real sessions, where these are available.

use std::collections::{BTreeMap, BTreeSet};

use epitome_core::{
    ContentPart, Event, Fact, Seq,
    event::{RawDialect, Usage},
    pairing::pair,
};
use serde_json::Value;

use super::{
    TranscriptFile, TranscriptFormat, TranscriptLimits, TranscriptSession, TranscriptThread,
    TranscriptThreadStart, read,
    real_sessions::files,
    testing::{events, is_prefix},
};

/// A real file, read.
struct RealFile {
    file: String,
    text: String,
    row: Value,
    reading: TranscriptFile,
}

impl RealFile {
    fn session(&self) -> &TranscriptSession {
        assert_eq!(self.reading.sessions.len(), 1, "{}", self.file);
        &self.reading.sessions[0]
    }

    fn skipped(&self, kind: &str) -> usize {
        usize::try_from(self.reading.skipped.get(kind).copied().unwrap_or_default()).expect("a small number")
    }

    /// Every line of the file, parsed by serde_json.
    fn lines(&self) -> impl Iterator<Item = Value> {
        self.text.lines().map(|line| serde_json::from_str(line).expect("real files are whole"))
    }

    /// Asserts the counts of the manifest.
    fn counts(&self, messages: usize, calls: usize) {
        let compactions =
            self.session().threads.iter().flat_map(facts).filter(|fact| matches!(fact, Fact::Compacted(_)));
        let found = [("messages", messages), ("tool_calls", calls), ("compactions", compactions.count())];
        for (key, found) in found {
            assert_eq!(self.row[key].as_u64(), Some(found as u64), "{key} of {}", self.file);
        }
    }
}

/// Reads all files of a folder: each must be of `format`, pair every result and keep the bytes of everything.
fn read_all(folder: &str, format: TranscriptFormat) -> Vec<RealFile> {
    let read = |(file, bytes, row): (String, Vec<u8>, Value)| {
        let reading = read(&file, &bytes, &TranscriptLimits::default())
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(reading.format, format, "{file}");
        let read =
            RealFile { text: String::from_utf8(bytes).expect("real files are text"), file, row, reading };
        for thread in &read.session().threads {
            let paired = pair((1..).map(Seq).zip(facts(thread)));
            assert!(paired.strays.is_empty(), "{}: {:?}", read.file, paired.strays);
        }
        for event in events(read.session()) {
            let empty = matches!(&event.fact, Fact::AssistantSaid { parts, .. } if parts.is_empty());
            assert!(!empty, "{}: an answer says something: {}", read.file, event.raw.json);
            // Looking for every event in a large file would take its time and find no more.
            assert!(
                read.text.len() > 200_000 || read.text.contains(&*event.raw.json),
                "{}: {:?}",
                read.file,
                event.fact
            );
        }
        read
    };
    files(folder).into_iter().map(read).collect()
}

fn facts(thread: &TranscriptThread) -> impl Iterator<Item = &Fact> {
    thread.events.iter().map(|event| &event.fact)
}

fn is_report(event: &Event) -> bool {
    matches!(event.fact, Fact::UsageReported { .. })
}

/// The last report about each answer.
fn reports(session: &TranscriptSession) -> BTreeMap<String, Usage> {
    let report = |event: &Event| match &event.fact {
        Fact::UsageReported { answer, usage, .. } => Some((answer.clone()?.0, *usage)),
        _ => None,
    };
    events(session).filter_map(report).collect()
}

#[test]
fn claude_code_sessions_hold_what_the_manifest_counts() {
    for read in read_all("claude-code", TranscriptFormat::ClaudeCode) {
        // The manifest counts lines with messages. An agent's messages stand inside of progress lines there, and
        // attachments are no messages.
        let own = || {
            read.session()
                .threads
                .iter()
                .filter(|thread| !matches!(thread.start, TranscriptThreadStart::Spawned { .. }))
        };
        let messages = own()
            .flat_map(|thread| &thread.events)
            .filter(|event| event.raw.dialect == RawDialect::Anthropic && !is_report(event))
            .count();
        let calls = own().flat_map(facts).map(|fact| fact.calls().count()).sum();
        read.counts(messages + read.skipped("message about an API error"), calls);

        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for line in read.lines().filter(|line| line["type"] == "assistant") {
            let message = &line["message"];
            let id = message["id"].as_str().expect("an answer has an id").to_owned();
            if message["model"] != "<synthetic>" {
                last.insert(id, message["usage"]["output_tokens"].as_u64().expect("an answer has usage"));
            }
        }
        let reports = reports(read.session());
        for (id, output) in last {
            assert_eq!(reports.get(&id).map(|usage| usage.output.0), Some(output), "{id} of {}", read.file);
        }
    }
}

#[test]
fn claude_codes_agents_are_linked_to_the_calls_that_started_them() {
    let mut agents = 0;
    for read in read_all("claude-code", TranscriptFormat::ClaudeCode) {
        let session = read.session();
        for thread in &session.threads {
            let TranscriptThreadStart::Spawned { by, call } = &thread.start else { continue };
            agents += 1;
            let parent =
                session.threads.iter().find(|parent| Some(parent.id) == *by).expect("a thread started it");
            let found = facts(parent).flat_map(Fact::calls).find(|found| Some(&found.id) == call.as_ref());
            let name = found.expect("a call started it").name.0.as_str();
            assert!(["Task", "Agent"].contains(&name), "{name}");
        }
    }
    assert!(agents == 0 || agents == 9, "{agents} agents");
}

#[test]
fn codex_sessions_hold_what_the_manifest_counts() {
    for read in read_all("codex", TranscriptFormat::Codex) {
        // The manifest counts response items, and searches that the provider runs as tool calls; the base
        // instructions are no item.
        let session = read.session();
        let items =
            events(session).filter(|event| event.raw.dialect == RawDialect::OpenaiResponses).count() - 1;
        let is_search = |part: &&ContentPart| matches!(part, ContentPart::Opaque { name, .. } if name == "web_search_call");
        let calls = session
            .threads
            .iter()
            .flat_map(facts)
            .map(|fact| fact.calls().count() + fact.parts().iter().filter(is_search).count());
        read.counts(items, calls.sum());

        // Usage of all calls adds up to Codex's own total.
        let total = read
            .lines()
            .filter_map(|line| line["payload"]["info"]["total_token_usage"]["total_tokens"].as_u64())
            .last();
        let reported = events(session).filter_map(|event| match &event.fact {
            Fact::UsageReported { usage, .. } => Some(usage.total().0),
            _ => None,
        });
        assert_eq!(total, Some(reported.sum()), "{}", read.file);
        // Each report is about an answer of its own.
        let answers: BTreeSet<_> =
            events(session).filter(|event| is_report(event)).map(Event::fact_json).collect();
        assert_eq!(reports(session).len(), answers.len(), "{}", read.file);
    }
}

#[test]
fn pi_sessions_hold_what_the_manifest_counts() {
    for read in read_all("pi", TranscriptFormat::Pi) {
        let session = read.session();
        let is_message = |fact: &&Fact| {
            matches!(
                fact,
                Fact::UserSaid { .. }
                    | Fact::AssistantSaid { .. }
                    | Fact::ToolReturned { .. }
                    | Fact::Carried { .. }
            )
        };
        let all = || session.threads.iter().flat_map(facts);
        read.counts(all().filter(is_message).count(), all().map(|fact| fact.calls().count()).sum());
        // A compaction of these versions names the entry it kept from.
        for fact in all() {
            let Fact::Compacted(compaction) = fact else { continue };
            assert_eq!(compaction.first_kept, Some(compaction.through.next()), "{}", read.file);
        }
    }
}

#[test]
fn gemini_sessions_hold_what_the_manifest_counts() {
    for read in read_all("gemini", TranscriptFormat::Gemini) {
        let session = read.session();
        // The manifest counts records, notes to the user among them.
        let told: BTreeSet<_> = events(session).filter_map(|event| event.origin.as_deref()).collect();
        let notes = read.skipped("info") + read.skipped("warning");
        let calls = session.threads.iter().flat_map(facts).map(|fact| fact.calls().count());
        read.counts(told.len() + notes, calls.sum());
    }
}

#[test]
#[cfg_attr(not(real_sessions), ignore = "no real sessions beside the workspace: set EPITOME_DATA")]
fn real_files_read_the_same_while_they_grow() {
    for folder in ["claude-code", "codex", "pi"] {
        for (file, bytes, _) in files(folder).into_iter().filter(|(_, bytes, _)| bytes.len() < 1 << 20) {
            let whole = read(&file, &bytes, &TranscriptLimits::default()).expect("it can be read");
            for part in 1..6 {
                // Cut anywhere, even in the middle of a line.
                let end = bytes.len() * part / 6;
                if let Ok(early) = read(&file, &bytes[..end], &TranscriptLimits::default()) {
                    is_prefix(&early, &whole, end);
                }
            }
        }
    }
    for (file, bytes, _) in files("gemini") {
        let document: Value = serde_json::from_slice(&bytes).expect("it is a document");
        let read = |count: usize| {
            let mut document = document.clone();
            document["messages"].as_array_mut().expect("it has messages").truncate(count);
            read(&file, document.to_string().as_bytes(), &TranscriptLimits::default())
                .expect("it can be read")
        };
        let whole = read(usize::MAX);
        for count in 0..document["messages"].as_array().expect("it has messages").len() {
            is_prefix(&read(count), &whole, count);
        }
    }
}
