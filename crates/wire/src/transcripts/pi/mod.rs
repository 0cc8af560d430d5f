//! pi's JSONL: a tree of entries.
//!
//! Each entry names its parent, so going back and writing another message leaves two children under one entry. The
//! first child with content continues its parent's thread, every later one forks there. Files older than version 2
//! have no ids: each entry follows the one before it, and a compaction names its first kept entry by index.

mod write;

pub(super) use self::write::write;

use std::collections::HashMap;

use epitome_core::{
    ContentPart, Event, Fact, Seq, Tokens,
    event::{Compaction, CompactionTrigger, ReasoningSeal, Summary, ToolCall, ToolResult, Usage},
    id::{AnswerId, ModelName},
};

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, TranscriptSession, TranscriptThreadStart,
    TranscriptWarning,
    json_lines::{TranscriptLimits, values},
    threads::{ThreadPosition, ThreadTree, session_identity},
    time::parse_time,
};
use crate::{
    decode_parts::{self, opaque_part},
    json::{Json, JsonValue},
    media,
};

/// Returns true if a file that begins with this value is pi's.
pub(crate) fn recognises(first: &serde_json::Value) -> bool {
    let has = |key: &str| first.get(key).is_some_and(serde_json::Value::is_string);
    first.get("type").is_some_and(|kind| kind == "session") && has("id") && has("timestamp")
}

/// Reads a session.
pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    let mut reading = TranscriptFile::new(TranscriptFormat::Pi);
    let mut tree: Option<PiTree> = None;
    for (number, entry) in values(bytes, limits) {
        match entry {
            Ok(entry) => {
                tree.get_or_insert_with(|| PiTree::new(name, &entry)).take(number, &entry, &mut reading);
            }
            Err(warning) => reading.warnings.push(warning),
        }
    }
    let tree = tree.ok_or_else(|| TranscriptError::nothing("pi", &reading.warnings))?;
    let PiTree { threads, key, title, folder, last, .. } = tree;
    reading.sessions.push(TranscriptSession { folder, ..threads.into_session(key, title, last.thread) });
    Ok(reading)
}

/// State of the reading so far.
struct PiTree {
    threads: ThreadTree,
    key: String,
    title: Option<String>,
    folder: Option<String>,
    /// Events of each entry, by id.
    spans: HashMap<String, PiSpan>,
    /// Events of each entry, by its index in the file; the header is the first.
    order: Vec<PiSpan>,
    /// Place after the entry before.
    last: ThreadPosition,
}

/// The places around an entry's events; the same place twice if it has none.
#[derive(Clone, Copy)]
struct PiSpan {
    before: ThreadPosition,
    after: ThreadPosition,
}

impl PiSpan {
    /// Place of the entry's first event, or the entry's own place if it has none.
    fn stands(self) -> ThreadPosition {
        if self.before == self.after {
            self.before
        } else {
            ThreadPosition { thread: self.after.thread, ..self.before.next() }
        }
    }
}

impl PiTree {
    fn new(name: &str, header: &Json<'_>) -> Self {
        let own = header.text_at("id").filter(|_| header.text_at("type") == Some("session"));
        let (session, key) = session_identity(TranscriptFormat::Pi, own, name);
        let threads = ThreadTree::new(session, TranscriptThreadStart::Root);
        let last = threads.end(ThreadTree::MAIN);
        let folder = header.text_at("cwd").map(str::to_owned);
        Self { threads, key, title: None, folder, spans: HashMap::new(), order: Vec::new(), last }
    }

    fn take(&mut self, number: u64, entry: &Json<'_>, reading: &mut TranscriptFile) {
        let before = self.parent(number, entry, &mut reading.warnings);
        let facts = match entry.text_at("type").unwrap_or_default() {
            "session" => self.header(number, entry, &mut reading.warnings),
            "compaction" => vec![self.compaction(before, entry)],
            "session_info" => {
                self.title = entry.text_at("name").map(str::to_owned);
                vec![]
            }
            kind => facts(kind, entry, number),
        };
        let kind = entry.text_at("type").unwrap_or("entry without a type");
        match kind {
            _ if !facts.is_empty() => {}
            "session" => {}
            "message" => reading.skip("message excluded from context"),
            _ => reading.skip(kind),
        }
        let after = self.log(before, number, entry, facts);
        let span = PiSpan { before, after };
        self.order.push(span);
        if let Some(id) = entry.text_at("id") {
            self.spans.insert(id.to_owned(), span);
        }
        self.last = after;
    }

    /// The place the entry comes after.
    fn parent(&self, number: u64, entry: &Json<'_>, warnings: &mut Vec<TranscriptWarning>) -> ThreadPosition {
        let parent = match entry.get("parentId").map(|parent| &parent.value) {
            Some(JsonValue::String(parent)) => &**parent,
            Some(JsonValue::Null) => return ThreadPosition { thread: ThreadTree::MAIN, seq: Seq::START },
            _ => return self.last,
        };
        if let Some(span) = self.spans.get(parent) {
            return span.after;
        }
        let what =
            format!("its parent {parent} is not in the file; it was read as following the entry before it");
        warnings.push(TranscriptWarning::at(number, what));
        self.last
    }

    fn header(&self, number: u64, entry: &Json<'_>, warnings: &mut Vec<TranscriptWarning>) -> Vec<PiFact> {
        if let Some(parent) = entry.text_at("parentSession").or_else(|| entry.text_at("branchedFrom")) {
            let what =
                format!("the session was branched from {parent}; what it shares with that is repeated here");
            warnings.push(TranscriptWarning::at(number, what));
        }
        // Old headers name the first model; newer files have a model_change for it.
        let model = entry.text_at("modelId").filter(|_| self.threads.is_empty());
        model.map(|model| PiFact::whole(Fact::ModelChanged { model: model.into() })).into_iter().collect()
    }

    fn compaction(&self, before: ThreadPosition, entry: &Json<'_>) -> PiFact {
        let by_id = entry.text_at("firstKeptEntryId").and_then(|id| self.spans.get(id));
        let by_index =
            || self.order.get(usize::try_from(entry.get("firstKeptEntryIndex")?.as_count()?).ok()?);
        let kept =
            by_id.or_else(by_index).filter(|span| self.threads.has_in_view(before.thread, span.stands()));
        let first_kept = kept.map(|span| span.before.seq.next()).filter(|first| *first <= before.seq);
        PiFact::whole(Fact::Compacted(Compaction {
            summary: Summary::Text(entry.text_at("summary").unwrap_or_default().to_owned()),
            through: first_kept.map_or(before.seq, Seq::previous),
            first_kept,
            tokens_before: entry.get("tokensBefore").and_then(Json::as_count).map(Tokens),
            tokens_after: None,
            trigger: CompactionTrigger::Unknown,
        }))
    }

    fn log(
        &mut self,
        mut place: ThreadPosition,
        number: u64,
        entry: &Json<'_>,
        facts: Vec<PiFact>,
    ) -> ThreadPosition {
        let origin = entry.text_at("id").map_or_else(|| format!("#{number}"), str::to_owned);
        let at = entry.text_at("timestamp").and_then(parse_time);
        for PiFact { fact, raw, echoed } in facts {
            let raw = raw.unwrap_or_else(|| entry.raw.to_owned());
            let mut event = Event::native("pi", raw, fact).at(at).from_origin(origin.as_str());
            if echoed == PiEcho::Never {
                event.normal = None;
            }
            place = self.threads.push_after(place, event, || format!("branch at {origin}"));
        }
        place
    }
}

/// A fact to be logged.
struct PiFact {
    fact: Fact,
    /// The part of the entry it comes from; the whole entry if there is none.
    raw: Option<String>,
    echoed: PiEcho,
}

/// Reports whether a client would send the event back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PiEcho {
    AsMessage,
    Never,
}

impl PiFact {
    fn whole(fact: Fact) -> Self {
        Self { fact, raw: None, echoed: PiEcho::AsMessage }
    }
}

/// Facts of an entry that does not depend on others.
fn facts(kind: &str, entry: &Json<'_>, number: u64) -> Vec<PiFact> {
    let fact = match kind {
        "message" => match entry.get("message") {
            Some(message) => return said(entry, message, number),
            None => Some(Fact::Carried { kind: kind.to_owned() }),
        },
        "model_change" => entry.text_at("modelId").map(|model| Fact::ModelChanged { model: model.into() }),
        // pi sends both as user messages, but no user wrote them.
        "custom_message" => Some(injected(entry.text_at("customType").unwrap_or(kind), entry.get("content"))),
        "branch_summary" => entry
            .get("summary")
            .filter(|summary| summary.as_text() != Some(""))
            .map(|text| injected(kind, Some(text))),
        _ => None,
    };
    fact.map(PiFact::whole).into_iter().collect()
}

fn said(entry: &Json<'_>, message: &Json<'_>, number: u64) -> Vec<PiFact> {
    let content = message.get("content");
    let fact = match message.text_at("role").unwrap_or_default() {
        "user" => Fact::UserSaid { parts: decode_parts::parts(content, |block| part(block, "")) },
        "assistant" => return answered(entry, message, number),
        "toolResult" => Fact::ToolReturned {
            results: vec![ToolResult {
                call: message.text_at("toolCallId").unwrap_or_default().into(),
                name: message.text_at("toolName").map(Into::into),
                parts: decode_parts::parts(content, |block| part(block, "")),
                error: is_true(message, "isError"),
            }],
            parts: vec![],
        },
        "bashExecution" if is_true(message, "excludeFromContext") => return vec![],
        "bashExecution" => Fact::UserSaid { parts: vec![ContentPart::text(ran(message))] },
        "custom" | "hookMessage" => injected(message.text_at("customType").unwrap_or("custom"), content),
        "branchSummary" | "compactionSummary" => injected("branch_summary", message.get("summary")),
        other => Fact::Carried { kind: other.to_owned() },
    };
    vec![PiFact::whole(fact)]
}

fn answered(entry: &Json<'_>, message: &Json<'_>, number: u64) -> Vec<PiFact> {
    let api = message.text_at("api").unwrap_or_default();
    let parts = decode_parts::parts(message.get("content"), |block| part(block, api));
    if parts.is_empty() && message.get("errorMessage").is_some() {
        // The call failed before the model's first word.
        let fact = Fact::Carried { kind: "failed call".to_owned() };
        return vec![PiFact { fact, raw: None, echoed: PiEcho::Never }];
    }
    // The answer is named after its entry: not every provider gives its answers ids of their own.
    let answer = Some(AnswerId(entry.text_at("id").map_or_else(|| format!("#{number}"), str::to_owned)));
    let model = message.text_at("model").map(ModelName::from);
    let mut all =
        vec![PiFact::whole(Fact::AssistantSaid { answer: answer.clone(), model: model.clone(), parts })];
    let reported = message.get("usage").map(|used| (used, usage(used)));
    if let Some((used, usage)) = reported.filter(|(_, usage)| *usage != Usage::default()) {
        let fact = Fact::UsageReported { answer, model, usage };
        all.push(PiFact { fact, raw: Some(used.raw.to_owned()), echoed: PiEcho::Never });
    }
    all
}

/// Reads usage. pi reports input without tokens that the cache read and wrote, and output with reasoning.
fn usage(usage: &Json<'_>) -> Usage {
    Usage {
        uncached: Tokens(usage.count_at("input")),
        cache_read: Tokens(usage.count_at("cacheRead")),
        cache_write: Tokens(usage.count_at("cacheWrite")),
        cache_write_hour: Tokens(0),
        output: Tokens(usage.count_at("output")),
    }
}

fn part(block: &Json<'_>, api: &str) -> ContentPart {
    let known = match block.text_at("type") {
        Some("text") => block.text_at("text").map(ContentPart::text),
        Some("thinking") => block
            .text_at("thinking")
            .map(|text| ContentPart::Reasoning { text: text.to_owned(), seal: seal(block, api) }),
        Some("toolCall") => block.text_at("id").zip(block.text_at("name")).map(|(id, name)| {
            let arguments = block.get("arguments").map_or("{}", |given| given.as_text().unwrap_or(given.raw));
            ContentPart::ToolCall(ToolCall::function(id, name, arguments))
        }),
        Some("image") => block
            .text_at("data")
            .and_then(|data| media::inline_part(block.text_at("mimeType").unwrap_or_default(), data)),
        _ => None,
    };
    known.unwrap_or_else(|| opaque_part(block, "block"))
}

/// Reads pi's signature, which is a signature, the whole reasoning item, or only the field the text came in.
fn seal(block: &Json<'_>, api: &str) -> Option<ReasoningSeal> {
    let signature = block.text_at("thinkingSignature").filter(|signature| !signature.is_empty())?.to_owned();
    match api {
        "openai-completions" => None,
        _ if api.ends_with("-responses") || is_true(block, "redacted") => {
            Some(ReasoningSeal::Encrypted(signature))
        }
        _ => Some(ReasoningSeal::Signature(signature)),
    }
}

fn injected(hook: &str, content: Option<&Json<'_>>) -> Fact {
    Fact::Injected {
        hook: hook.to_owned(),
        beside: None,
        parts: decode_parts::parts(content, |block| part(block, "")),
    }
}

/// A command the user ran, in the words that the model sees.
fn ran(message: &Json<'_>) -> String {
    let command = message.text_at("command").unwrap_or_default();
    let output = message.text_at("output").unwrap_or_default();
    let shown = if output.is_empty() { "(no output)".to_owned() } else { format!("```\n{output}\n```") };
    let code = message.get("exitCode").and_then(Json::as_count).filter(|code| *code != 0);
    let ended = match code {
        _ if is_true(message, "cancelled") => "\n\n(command cancelled)".to_owned(),
        Some(code) => format!("\n\nCommand exited with code {code}"),
        None => String::new(),
    };
    format!("Ran `{command}`\n{shown}{ended}")
}

fn is_true(object: &Json<'_>, key: &str) -> bool {
    matches!(object.get(key).map(|flag| &flag.value), Some(JsonValue::Bool(true)))
}

#[cfg(test)]
pub(super) mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::transcripts::testing::{grows, reading, shown};

    /// A conversation that goes back after its first answer, compacts, and goes back again.
    pub(crate) const TREE: &str = r#"{"type":"session","version":3,"id":"019f7526-e56b-7b5f-a63c-68bff34eb1f1","timestamp":"2026-07-18T12:15:11.219Z","cwd":"/src"}
{"type":"model_change","id":"m","parentId":null,"timestamp":"2026-07-18T12:15:11.300Z","provider":"p","modelId":"big"}
{"type":"thinking_level_change","id":"t","parentId":"m","timestamp":"2026-07-18T12:15:11.300Z","thinkingLevel":"high"}
{"type":"message","id":"u1","parentId":"t","timestamp":"2026-07-18T12:15:12Z","message":{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","data":"aGk=","mimeType":"image/png"}]}}
{"type":"message","id":"a1","parentId":"u1","timestamp":"2026-07-18T12:15:13Z","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"},{"type":"text","text":"ok"},{"type":"toolCall","id":"c1","name":"read","arguments":{"path": "a"}}],"api":"anthropic-messages","provider":"p","model":"big","usage":{"input":5,"output":7,"cacheRead":11,"cacheWrite":13,"totalTokens":36},"stopReason":"toolUse"}}
{"type":"message","id":"r1","parentId":"a1","timestamp":"2026-07-18T12:15:14Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"read","content":[{"type":"text","text":"no such file"}],"isError":true}}
{"type":"message","id":"a2","parentId":"r1","timestamp":"2026-07-18T12:15:15Z","message":{"role":"assistant","content":"gone","model":"big"}}
{"type":"label","id":"l","parentId":"a2","timestamp":"2026-07-18T12:15:15Z","targetId":"a1","label":"here"}
{"type":"branch_summary","id":"b","parentId":"r1","timestamp":"2026-07-18T12:15:16Z","fromId":"a2","summary":"it was gone"}
{"type":"message","id":"u2","parentId":"b","timestamp":"2026-07-18T12:15:17Z","message":{"role":"user","content":"try b"}}
{"type":"message","id":"a3","parentId":"u2","timestamp":"2026-07-18T12:15:18Z","message":{"role":"assistant","content":[],"model":"big","stopReason":"error","errorMessage":"500"}}
{"type":"compaction","id":"k","parentId":"a3","timestamp":"2026-07-18T12:15:19Z","summary":"so far","firstKeptEntryId":"u2","tokensBefore":900}
{"type":"custom_message","id":"x","parentId":"k","timestamp":"2026-07-18T12:15:20Z","customType":"todo","content":"do b","display":true}
{"type":"message","id":"s","parentId":"l","timestamp":"2026-07-18T12:15:21Z","message":{"role":"bashExecution","command":"ls","output":"a\nb","exitCode":2,"cancelled":false}}
{"type":"message","id":"s2","parentId":"s","timestamp":"2026-07-18T12:15:21Z","message":{"role":"bashExecution","command":"env","output":"","excludeFromContext":true}}
{"type":"compaction","id":"k2","parentId":"s2","timestamp":"2026-07-18T12:15:22Z","summary":"all","firstKeptEntryId":"u2","tokensBefore":50}
{"type":"session_info","id":"i","parentId":"k2","timestamp":"2026-07-18T12:15:23Z","name":"Looking"}
{"type":"custom","id":"z","parentId":"x","timestamp":"2026-07-18T12:15:24Z","customType":"state","data":{}}
"#;

    #[test]
    fn the_first_child_continues_and_later_ones_fork() {
        assert_snapshot!(shown(&reading(read, TREE)), @r#"
        session 019f7526-e56b-7b5f-a63c-68bff34eb1f1: Looking, at branch at b
         main
          1 [m @11300 pi] model_changed big
          2 [u1 @12000 pi] user_said "look" media image/png
          3 [a1 @13000 pi] assistant_said a1/big <hm signed sig> "ok" read(c1 {"path": "a"})
          4 [a1 @13000 pi] usage_reported a1/big 5+11+13>7
          5 [r1 @14000 pi] tool_returned c1 failed: "no such file"
          6 [a2 @15000 pi] assistant_said a2/big "gone"
          7 [s @21000 pi] user_said "Ran `ls`\n```\na\nb\n```\n\nCommand exited with code 2"
          8 [k2 @22000 pi] compacted through 7 kept none before 50 Unknown "all"
         branch at b, forked from main at 5
          6 [b @16000 pi] injected branch_summary "it was gone"
          7 [u2 @17000 pi] user_said "try b"
          8 [a3 @18000 pi] carried failed call
          9 [k @19000 pi] compacted through 6 kept 7 before 900 Unknown "so far"
          10 [x @20000 pi] injected todo "do b"
        skipped {"custom": 1, "label": 1, "message excluded from context": 1, "session_info": 1, "thinking_level_change": 1}
        "#);
    }

    #[test]
    fn a_grown_file_begins_as_it_did() {
        grows(read, TREE);
        grows(read, LINEAR);
    }

    pub(crate) const LINEAR: &str = r#"{"type":"session","id":"old","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/src","provider":"p","modelId":"small","branchedFrom":"/other.jsonl"}
{"type":"message","timestamp":"2025-11-20T23:33:51Z","message":{"role":"user","content":[{"type":"text","text":"hi"}]}}
{"type":"message","timestamp":"2025-11-20T23:33:52Z","message":{"role":"assistant","content":[{"type":"thinking","thinking":"a","thinkingSignature":"reasoning"},{"type":"text","text":"yes"}],"api":"openai-completions","model":"small","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0}}}
{"type":"thinking_level_change","timestamp":"2025-11-20T23:33:53Z","thinkingLevel":"off"}
{"type":"message","timestamp":"2025-11-20T23:33:54Z","message":{"role":"user","content":"more"}}
{"type":"compaction","timestamp":"2025-11-20T23:33:55Z","summary":"greeted","firstKeptEntryIndex":3,"tokensBefore":7}
{"type":"message","timestamp":"2025-11-20T23:33:56Z","message":{"role":"hookMessage","customType":"h","content":"hooked"}}
"#;

    #[test]
    fn files_without_ids_are_one_line() {
        assert_snapshot!(shown(&reading(read, LINEAR)), @r#"
        session old: untitled, at main
         main
          1 [old @30805 pi] model_changed small
          2 [#2 @31000 pi] user_said "hi"
          3 [#3 @32000 pi] assistant_said #3/small <a> "yes"
          4 [#5 @34000 pi] user_said "more"
          5 [#6 @35000 pi] compacted through 3 kept 4 before 7 Unknown "greeted"
          6 [#7 @36000 pi] injected h "hooked"
        ! line 1: the session was branched from /other.jsonl; what it shares with that is repeated here
        skipped {"thinking_level_change": 1}
        "#);
    }

    #[test]
    fn odd_lines_are_told_and_the_rest_is_kept() {
        let text = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z"}
{"type":"message","id":"a","parentId":"nowhere","message":{"role":"user","content":"hi"}}
not json
{"type":"message","id":"b","parentId":"a","message":{"role":"weird"}}
{"id":"c","parentId":"b"}
{"type":"message","id":"d","par"#;
        assert_snapshot!(shown(&reading(read, text)), @r#"
        session s: untitled, at main
         main
          1 [a pi] user_said "hi"
          2 [b pi] carried weird
        ! line 2: its parent nowhere is not in the file; it was read as following the entry before it
        ! line 3: the line is not JSON (expected ident at line 1 column 2); it was left out
        ! line 6: the last line looks cut off; it will be read once it is complete
        skipped {"entry without a type": 1}
        "#);
    }

    #[test]
    fn pi_is_told_by_its_header() {
        let check = |json: &str, expect: bool| {
            assert_eq!(recognises(&serde_json::from_str(json).unwrap()), expect, "{json}");
        };
        check(
            r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}"#,
            true,
        );
        check(r#"{"type":"session"}"#, false);
        check(r#"{"type":"user","id":"s","timestamp":"t"}"#, false);
        check("[]", false);
    }
}
