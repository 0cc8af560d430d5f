//! Gemini CLI's sessions: one JSON document, or the newer JSONL.
//!
//! Both hold records that the agent writes again when it knows more (see [`record`]). Every event's raw form is the
//! smallest value it came from: a thought, the content, a call, a result. Those no longer change when the record
//! around them does.
//!
//! JSONL also takes things back. `$rewindTo` drops a message and all after it: a fork. `$set` with `messages`
//! replaces the messages that the model sees: a compaction if a new state snapshot is among them, a fork if it drops
//! the end.

mod record;

use std::collections::{HashMap, HashSet};

use epitome_core::{
    Event, Fact, Seq,
    event::{Compaction, CompactionTrigger, Summary},
};

use self::record::{GeminiFact, GeminiLoggedParts};
use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, TranscriptThreadStart, TranscriptWarning,
    json_lines::{TranscriptLimits, values},
    threads::{ThreadIndex, ThreadPosition, ThreadTree, main_thread, session_identity},
    time::parse_time,
};
use crate::json::Json;

/// Returns true if a file that begins with this value, or is this value, is Gemini CLI's.
pub(crate) fn recognises(first: &serde_json::Value) -> bool {
    let has = |key: &str| first.get(key).is_some_and(serde_json::Value::is_string);
    has("sessionId") && has("projectHash")
}

/// Reads a session.
pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    let mut reading = TranscriptFile::new(TranscriptFormat::Gemini);
    let mut chat: Option<GeminiSession> = None;
    if let Some(document) = document(bytes) {
        chat.insert(GeminiSession::new(name, &document)).take(None, &document, &mut reading);
    } else {
        for (number, record) in values(bytes, limits) {
            match record {
                Ok(record) => {
                    let chat = chat.get_or_insert_with(|| GeminiSession::new(name, &record));
                    chat.take(Some(number), &record, &mut reading);
                }
                Err(warning) => reading.warnings.push(warning),
            }
        }
    }
    let chat = chat.ok_or_else(|| TranscriptError::nothing("Gemini CLI", &reading.warnings))?;
    reading.sessions.push(chat.threads.into_session(chat.key, chat.title, chat.thread));
    Ok(reading)
}

/// The file as one value, if it is one.
fn document(bytes: &[u8]) -> Option<Json<'_>> {
    let text = str::from_utf8(bytes).ok()?.trim_start_matches('\u{feff}');
    Json::parse(text, "a Gemini CLI session").ok()
}

/// State of the reading so far.
struct GeminiSession {
    threads: ThreadTree,
    /// The thread that is being written.
    thread: ThreadIndex,
    key: String,
    title: Option<String>,
    /// The messages as the agent holds them now, in order.
    current: Vec<String>,
    messages: HashMap<String, GeminiMessage>,
    /// The calls whose results are in the log.
    returned: HashSet<String>,
}

struct GeminiMessage {
    /// The place its events come after.
    before: ThreadPosition,
    told: GeminiLoggedParts,
}

impl GeminiSession {
    fn new(name: &str, metadata: &Json<'_>) -> Self {
        let (session, key) = session_identity(TranscriptFormat::Gemini, metadata.text_at("sessionId"), name);
        let start = if metadata.text_at("kind") == Some("subagent") {
            // A subagent's file lies in a folder named after the session that called it.
            let folder = name.rsplit(['/', '\\']).nth(1).and_then(|folder| folder.parse().ok());
            TranscriptThreadStart::Spawned { by: folder.map(main_thread), call: None }
        } else {
            TranscriptThreadStart::Root
        };
        Self {
            threads: ThreadTree::new(session, start),
            thread: ThreadTree::MAIN,
            key,
            title: None,
            current: Vec::new(),
            messages: HashMap::new(),
            returned: HashSet::new(),
        }
    }

    fn take(&mut self, line: Option<u64>, record: &Json<'_>, reading: &mut TranscriptFile) {
        if let Some(id) = record.text_at("$rewindTo") {
            self.rewind(line, id, &mut reading.warnings);
        } else if record.text_at("id").is_some() {
            self.message(record, reading);
        } else if let Some(update) = record.get("$set") {
            self.metadata(update, reading);
        } else if record.text_at("sessionId").is_some() {
            self.metadata(record, reading);
        } else {
            reading.skip("unknown record");
        }
    }

    fn metadata(&mut self, update: &Json<'_>, reading: &mut TranscriptFile) {
        if let Some(summary) = update.text_at("summary") {
            self.title = Some(summary.to_owned());
        }
        if let Some(messages) = update.get("messages").and_then(Json::as_array) {
            self.replace(messages, reading);
        }
    }

    fn message(&mut self, record: &Json<'_>, reading: &mut TranscriptFile) {
        let id = record.text_at("id").unwrap_or_default();
        let known = self.begin(id);
        let Some(message) = self.messages.get_mut(id) else { return };
        let news: Vec<GeminiFact<'_>> = match record.text_at("type").unwrap_or("message without a type") {
            "user" if known => vec![],
            "user" => record::user_fact(record, &mut self.returned).into_iter().collect(),
            "gemini" => record::answer_facts(record, &mut message.told, &mut self.returned),
            other => return reading.skip(other),
        };
        if news.is_empty() {
            reading.skip("message written again");
        }
        for (fact, raw) in news {
            self.log(record, raw, fact);
        }
    }

    /// Makes a message known, and returns true if it already was.
    fn begin(&mut self, id: &str) -> bool {
        if self.messages.contains_key(id) {
            return true;
        }
        let before = self.threads.end(self.thread);
        self.messages.insert(id.to_owned(), GeminiMessage { before, told: GeminiLoggedParts::default() });
        self.current.push(id.to_owned());
        false
    }

    fn log(&mut self, record: &Json<'_>, raw: &str, fact: Fact) {
        let event = Event::native("gemini", raw, fact).at(record.text_at("timestamp").and_then(parse_time));
        self.threads.push(self.thread, event.from_origin(record.text_at("id").unwrap_or_default()));
    }

    /// Takes a message and everything after it back.
    fn rewind(&mut self, line: Option<u64>, id: &str, warnings: &mut Vec<TranscriptWarning>) {
        let start = ThreadPosition { thread: ThreadTree::MAIN, seq: Seq::START };
        let found = self.current.iter().rposition(|known| known == id);
        let place = found.and_then(|_| self.messages.get(id)).map_or(start, |message| message.before);
        for dropped in self.current.split_off(found.unwrap_or(0)) {
            self.messages.remove(&dropped);
        }
        let last = self.current.last().and_then(|last| self.messages.get(last));
        let odd = if found.is_none() {
            Some(format!("it rewinds to {id}, which is not in the file; the agent starts over then"))
        } else if last.is_some_and(|last| last.before.seq > place.seq) {
            Some(format!(
                "it rewinds to {id}, which a compaction had kept; it is read as if that had not been"
            ))
        } else {
            None
        };
        warnings.extend(odd.map(|what| TranscriptWarning { line, what }));
        if self.threads.end(self.thread) != place {
            self.thread = self.threads.fork(place, format!("before {id}"));
        }
    }

    /// Takes a new list of messages that the model sees from here on.
    fn replace(&mut self, messages: &[Json<'_>], reading: &mut TranscriptFile) {
        let is_new = |message: &Json<'_>| id(message).is_some_and(|id| !self.messages.contains_key(id));
        let snapshot = |message: &Json<'_>| is_new(message) && record::snapshot(message).is_some();
        if let Some(at) = messages.iter().position(snapshot).filter(|_| !self.current.is_empty()) {
            return self.compact(messages, at, reading);
        }
        let same = self
            .current
            .iter()
            .zip(messages.iter().filter_map(id))
            .take_while(|(known, id)| known == id)
            .count();
        let rest: HashSet<&str> = messages.iter().filter_map(id).skip(same).collect();
        if let Some(gone) = self.current.get(same).cloned() {
            if self.current[same..].iter().any(|id| rest.contains(id.as_str())) {
                // A message in the middle changed: outputs were masked. That is a view; the log keeps them.
                reading.skip("rewritten context");
            } else {
                self.rewind(None, &gone, &mut reading.warnings);
            }
        }
        for message in messages.iter().filter(|message| id(message).is_some_and(|id| rest.contains(id))) {
            self.message(message, reading);
        }
    }

    /// Logs that the message at `at` stands for everything but the known messages after it.
    fn compact(&mut self, messages: &[Json<'_>], at: usize, reading: &mut TranscriptFile) {
        let summary = &messages[at];
        let last = self.threads.last(self.thread);
        let known = |message: &Json<'_>| id(message).and_then(|id| self.messages.get(id));
        let first_kept = messages[at..].iter().find_map(known).map(|message| message.before.seq.next());
        let first_kept = first_kept.filter(|first| *first <= last);
        let fact = Fact::Compacted(Compaction {
            summary: Summary::Text(record::snapshot(summary).unwrap_or_default()),
            through: first_kept.map_or(last, Seq::previous),
            first_kept,
            tokens_before: None,
            tokens_after: None,
            trigger: CompactionTrigger::Unknown,
        });
        self.current.clear();
        let mut fact = Some(fact);
        for (index, message) in messages.iter().enumerate() {
            let Some(id) = id(message) else { continue };
            if self.messages.contains_key(id) {
                self.current.push(id.to_owned());
            } else if index == at {
                self.begin(id);
                fact.take().into_iter().for_each(|fact| self.log(message, message.raw, fact));
            } else if index < at || (index == at + 1 && message.text_at("type") == Some("gemini")) {
                // Context sent again, or the words "understood", which the agent lets the model say.
                self.begin(id);
                reading.skip("frame of a compaction");
            } else {
                self.message(message, reading);
            }
        }
    }
}

fn id<'j>(message: &'j Json<'_>) -> Option<&'j str> {
    message.text_at("id")
}

#[cfg(test)]
pub(super) mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::transcripts::testing::{grows, is_prefix, reading, shown};

    const ASKED: &str =
        r#"{"id":"u1","timestamp":"2026-01-10T02:08:26.108Z","type":"user","content":"add text"}"#;
    const CALLED: &str = r#"{"id":"g1","timestamp":"2026-01-10T02:08:35.661Z","type":"gemini","content":"","thoughts":[{"subject":"Plan","description":"Read it.","timestamp":"t"}],"tokens":{"input":100,"output":18,"cached":40,"thoughts":31,"tool":2,"total":151},"model":"flash","toolCalls":[{"id":"read-1","name":"read_file","args":{ "path": "a b" },"result":[{"functionResponse":{"id":"read-1","name":"read_file","response":{"output":"hello"}}},{"inlineData":{"mimeType":"image/png","data":"aGk="}}],"status":"success"},{"id":"rm-1","name":"rm","args":{},"result":[{"functionResponse":{"id":"rm-1","name":"rm","response":{"error":"denied"}}}],"status":"cancelled"}]}"#;
    const NOTED: &str =
        r#"{"id":"i1","timestamp":"2026-01-10T02:08:40Z","type":"info","content":"Update available"}"#;
    const ANSWERED: &str = r#"{"id":"g2","timestamp":"2026-01-10T02:09:27.575Z","type":"gemini","content":"Done.","model":"flash"}"#;

    fn document(messages: &[&str]) -> String {
        let head = r#""sessionId":"faff42ab-6ea5-4f78-b8c4-f7dd6272af08","projectHash":"7e","startTime":"t""#;
        format!("{{\n{head},\"messages\":[\n{}\n]}}", messages.join(",\n"))
    }

    #[test]
    fn a_record_is_an_answer_its_calls_and_their_results() {
        assert_snapshot!(shown(&reading(read, &document(&[ASKED, CALLED, NOTED, ANSWERED]))), @r#"
        session faff42ab-6ea5-4f78-b8c4-f7dd6272af08: untitled, at main
         main
          1 [u1 @6108 gemini] user_said "add text"
          2 [g1 @15661 gemini] assistant_said g1/flash <Plan
        Read it.>
          3 [g1 @15661 gemini] usage_reported g1/flash 62+40+0>49
          4 [g1 @15661 gemini] assistant_said g1/flash read_file(read-1 {"path":"a b"})
          5 [g1 @15661 gemini] tool_returned read-1 "hello" media image/png
          6 [g1 @15661 gemini] assistant_said g1/flash rm(rm-1 {})
          7 [g1 @15661 gemini] tool_returned rm-1 failed: "denied"
          8 [g2 @67575 gemini] assistant_said g2/flash "Done."
        skipped {"info": 1}
        "#);
    }

    #[test]
    fn a_document_with_more_messages_begins_as_it_did() {
        let bare =
            CALLED.replace(",\"toolCalls\"", "}\0").split('\0').next().expect("it has calls").to_owned();
        let all = [ASKED, CALLED, NOTED, ANSWERED];
        let whole = reading(read, &document(&all));
        for end in 0..=all.len() {
            is_prefix(&reading(read, &document(&all[..end])), &whole, end);
        }
        // The last record is written before its calls are made.
        is_prefix(&reading(read, &document(&[ASKED, &bare])), &whole, 2);
    }

    /// A session with every operation of the JSONL form.
    pub(crate) const LINES: &str = r#"{"sessionId":"s-1","projectHash":"7e","startTime":"2026-01-10T02:00:00Z","kind":"main"}
{"id":"c","timestamp":"2026-01-10T02:00:00Z","type":"user","content":[{"text":"<session_context>\nToday.\n</session_context>"}]}
{"id":"u1","timestamp":"2026-01-10T02:00:01Z","type":"user","content":[{"text":"look at "},{"text":"a.txt"}],"displayContent":"look"}
{"$set":{"lastUpdated":"2026-01-10T02:00:01Z"}}
{"id":"g1","timestamp":"2026-01-10T02:00:02Z","type":"gemini","content":"Reading.","thoughts":[],"tokens":null,"model":"pro"}
{"id":"g1","timestamp":"2026-01-10T02:00:02Z","type":"gemini","content":"Reading.","thoughts":[],"tokens":{"input":10,"output":2,"cached":0,"thoughts":0,"tool":0,"total":12},"model":"pro"}
{"id":"g1","timestamp":"2026-01-10T02:00:02Z","type":"gemini","content":"Reading.","thoughts":[],"tokens":{"input":10,"output":2,"cached":0,"thoughts":0,"tool":0,"total":12},"model":"pro","toolCalls":[{"id":"k1","name":"read_file","args":{"path":"a.txt"},"status":"executing"}]}
{"id":"g1","timestamp":"2026-01-10T02:00:02Z","type":"gemini","content":"Reading.","thoughts":[],"tokens":{"input":10,"output":2,"cached":0,"thoughts":0,"tool":0,"total":12},"model":"pro","toolCalls":[{"id":"k1","name":"read_file","args":{"path":"a.txt"},"status":"success","result":[{"functionResponse":{"id":"k1","name":"read_file","response":{"output":"A"}}}]}]}
{"id":"g1","timestamp":"2026-01-10T02:00:02Z","type":"gemini","content":[{"text":"Reading."},{"functionCall":{"id":"k1","name":"read_file","args":{"path":"a.txt"}}}],"model":"pro","toolCalls":[{"id":"k1","name":"read_file","args":{"path":"a.txt"},"status":"success","result":[{"functionResponse":{"id":"k1","name":"read_file","response":{"output":"masked"}}}]}]}
{"id":"u2","timestamp":"2026-01-10T02:00:03Z","type":"user","content":"wrong"}
{"id":"g2","timestamp":"2026-01-10T02:00:04Z","type":"gemini","content":"Sorry.","model":"pro"}
{"$rewindTo":"u2"}
{"id":"u3","timestamp":"2026-01-10T02:00:05Z","type":"user","content":{"text":"right"}}
{"id":"g3","timestamp":"2026-01-10T02:00:06Z","type":"gemini","content":"Thanks.","model":"pro"}
{"$set":{"messages":[{"id":"s","timestamp":"2026-01-10T02:00:07Z","type":"user","content":[{"text":"<state_snapshot>\nall\n</state_snapshot>"}]},{"id":"ack","type":"gemini","content":[{"text":"Got it."}]},{"id":"u3","type":"user","content":[{"text":"right"}]},{"id":"g3","type":"gemini","content":[{"text":"Thanks."}]}]}}
{"$set":{"messages":[{"id":"s","type":"user","content":[]},{"id":"ack","type":"gemini","content":[]},{"id":"u3","type":"user","content":"masked"},{"id":"g3","type":"gemini","content":[]}]}}
{"id":"u4","timestamp":"2026-01-10T02:00:08Z","type":"user","content":"go on"}
{"$set":{"messages":[{"id":"s","type":"user","content":[{"text":"<state_snapshot>\nall\n</state_snapshot>"}]},{"id":"ack","type":"gemini","content":[]},{"id":"u3","type":"user","content":[{"text":"right"}]},{"id":"g3","type":"gemini","content":[{"text":"Thanks."}]}]}}
{"id":"u5","timestamp":"2026-01-10T02:00:09Z","type":"user","content":[{"functionResponse":{"id":"k1","name":"read_file","response":{"output":"A"}}}]}
{"id":"u6","timestamp":"2026-01-10T02:00:09Z","type":"user","content":[{"functionResponse":{"id":"k9","name":"late","response":{"n":1}}},{"text":"see"}]}
{"$set":{"summary":"Looking at a.txt"}}
{"$rewindTo":"u3"}
{"$rewindTo":"never"}
{"id":"u7","timestamp":"2026-01-10T02:00:10Z","type":"user","content":"anew"}
"#;

    #[test]
    fn lines_grow_take_back_and_compact() {
        assert_snapshot!(shown(&reading(read, LINES)), @r#"
        session s-1: Looking at a.txt, at before never
         main
          1 [c @0 gemini] instructed Project "<session_context>\nToday.\n</session_context>"
          2 [u1 @1000 gemini] user_said "look at " "a.txt"
          3 [g1 @2000 gemini] assistant_said g1/pro "Reading."
          4 [g1 @2000 gemini] usage_reported g1/pro 10+0+0>2
          5 [g1 @2000 gemini] assistant_said g1/pro read_file(k1 {"path":"a.txt"})
          6 [g1 @2000 gemini] tool_returned k1 "A"
          7 [u2 @3000 gemini] user_said "wrong"
          8 [g2 @4000 gemini] assistant_said g2/pro "Sorry."
         before u2, forked from main at 6
          7 [u3 @5000 gemini] user_said "right"
          8 [g3 @6000 gemini] assistant_said g3/pro "Thanks."
          9 [s @7000 gemini] compacted through 6 kept 7 before ? Unknown "<state_snapshot>\nall\n</state_snapshot>"
          10 [u4 @8000 gemini] user_said "go on"
         before u4, forked from before u2 at 9
          10 [u6 @9000 gemini] tool_returned k9 "{\"n\":1}" "see"
         before u3, forked from main at 6
         before never
          1 [u7 @10000 gemini] user_said "anew"
        ! line 22: it rewinds to u3, which a compaction had kept; it is read as if that had not been
        ! line 23: it rewinds to never, which is not in the file; the agent starts over then
        skipped {"frame of a compaction": 1, "message written again": 2}
        "#);
    }

    #[test]
    fn a_grown_file_begins_as_it_did() {
        grows(read, LINES);
    }

    #[test]
    fn a_subagent_belongs_to_the_session_its_folder_names() {
        let line = r#"{"sessionId":"sub","projectHash":"7e","kind":"subagent"}"#;
        let parent = "faff42ab-6ea5-4f78-b8c4-f7dd6272af08";
        let start = |name: &str| {
            let reading = read(name, line.as_bytes(), &TranscriptLimits::default()).expect("it can be read");
            reading.sessions[0].threads[0].start.clone()
        };
        let by = main_thread(parent.parse().expect("a UUID"));
        assert_eq!(
            start(&format!("/chats/{parent}/sub.jsonl")),
            TranscriptThreadStart::Spawned { by: Some(by), call: None }
        );
        assert_eq!(start("sub.jsonl"), TranscriptThreadStart::Spawned { by: None, call: None });
    }

    #[test]
    fn gemini_is_told_by_its_metadata() {
        let check = |json: &str, expect: bool| {
            assert_eq!(recognises(&serde_json::from_str(json).unwrap()), expect, "{json}");
        };
        check(&document(&[ASKED]), true);
        check(r#"{"sessionId":"s","projectHash":"p"}"#, true);
        check(r#"{"sessionId":"s","type":"user"}"#, false);
        check("1", false);
    }
}
