//! The log of a Claude Code session while its lines are read.
//!
//! Lines are logged in the order of the file, each on the thread of its parent. Real trees branch for harmless
//! reasons (the results of parallel calls hang on different blocks of one answer), so only one thing is taken for
//! going back in time: the user saying something new where the user had said something else before.

use std::collections::{BTreeSet, HashMap, HashSet};

use epitome_core::{
    ContentPart, Event, Fact, Seq,
    event::{RawDialect, RawJson, Timestamp, Usage},
    id::CallId,
};

use super::{
    agents::ClaudeAgents,
    attachment::{self, ClaudeAttachment},
    compaction::ClaudeCompactBoundary,
    queue::{ClaudeQueue, ClaudeQueueEntry},
};
use crate::{
    anthropic,
    json::{Json, JsonValue},
    transcripts::{
        TranscriptFile, TranscriptFormat, TranscriptSession, TranscriptThreadStart, TranscriptWarning,
        threads::{ThreadIndex, ThreadPosition, ThreadTree, session_identity},
        time::parse_time,
    },
};

/// State of the reading so far.
pub(super) struct ClaudeLog {
    threads: ThreadTree,
    key: String,
    /// Folder that the first line with one names: later ones may name a folder below it.
    folder: Option<String>,
    /// The thread the conversation stands at.
    head: ThreadIndex,
    /// The events of each line.
    spans: HashMap<String, ClaudeSpan>,
    /// Places after which the user said something.
    prompts: HashSet<ThreadPosition>,
    /// The last thing the user said, on each thread.
    asked: HashMap<ThreadIndex, Seq>,
    /// The last usage logged for each answer.
    usage: HashMap<String, Usage>,
    /// A compaction whose summary is still to come.
    boundary: Option<ClaudeCompactBoundary>,
    agents: ClaudeAgents,
    queue: ClaudeQueue,
    /// True if this version of the agent records attachments.
    attaches: bool,
    /// Names of other sessions that were met.
    others: BTreeSet<String>,
    /// True if a missing parent was reported.
    orphaned: bool,
}

/// The places around a line's events; the same place twice if it has none.
#[derive(Clone, Copy)]
struct ClaudeSpan {
    before: ThreadPosition,
    after: ThreadPosition,
}

/// A line on its way into the log.
struct ClaudeEntry<'j, 'a> {
    number: u64,
    line: &'j Json<'a>,
    uuid: &'j str,
    time: Option<Timestamp>,
}

impl ClaudeLog {
    /// Starts the log of the session that `line` belongs to.
    pub(super) fn new(name: &str, line: &Json<'_>) -> Self {
        let own = line.text_at("sessionId");
        let (session, key) = session_identity(TranscriptFormat::ClaudeCode, own, name);
        Self {
            threads: ThreadTree::new(session, TranscriptThreadStart::Root),
            key,
            folder: None,
            head: ThreadTree::MAIN,
            spans: HashMap::new(),
            prompts: HashSet::new(),
            asked: HashMap::new(),
            usage: HashMap::new(),
            boundary: None,
            agents: ClaudeAgents::default(),
            queue: ClaudeQueue::default(),
            attaches: false,
            others: own.map(str::to_owned).into_iter().collect(),
            orphaned: false,
        }
    }

    /// Returns true if a line of that name was read.
    pub(super) fn knows(&self, uuid: &str) -> bool {
        self.spans.contains_key(uuid)
    }

    /// The session as it is now.
    pub(super) fn into_session(self, title: Option<String>) -> TranscriptSession {
        let folder = self.folder;
        TranscriptSession { folder, ..self.threads.into_session(self.key, title, self.head) }
    }

    /// Logs a line.
    pub(super) fn take(&mut self, number: u64, kind: &str, line: &Json<'_>, reading: &mut TranscriptFile) {
        self.meet(number, line, &mut reading.warnings);
        if self.folder.is_none() {
            self.folder = line.text_at("cwd").map(str::to_owned);
        }
        let uuid = line.text_at("uuid").unwrap_or_default();
        if !uuid.is_empty() && self.knows(uuid) {
            return reading.skip("repeated line");
        }
        let entry = ClaudeEntry { number, line, uuid, time: line.text_at("timestamp").and_then(parse_time) };
        let passed_over = match kind {
            "user" | "assistant" => self.message(&entry, &mut reading.warnings),
            "attachment" => self.attachment(&entry, &mut reading.warnings),
            "system" => self.system(&entry, &mut reading.warnings),
            "progress" => self.progress(&entry),
            "queue-operation" => {
                self.queue.take(line);
                let heard = self.queue.take_visible();
                self.hear(heard);
                Some(kind.to_owned())
            }
            _ => Some(kind.to_owned()),
        };
        if let Some(kind) = passed_over {
            reading.skip(&kind);
        }
        if !self.knows(uuid) {
            // A child of a line without events follows that line's parent.
            let followed = parent(line).and_then(|parent| self.spans.get(parent)).map(|span| span.after);
            let place = followed.unwrap_or_else(|| self.threads.end(self.head));
            self.know(uuid, ClaudeSpan { before: place, after: place });
        }
    }

    /// Warns of lines that come from other sessions.
    fn meet(&mut self, number: u64, line: &Json<'_>, warnings: &mut Vec<TranscriptWarning>) {
        let forked = line.get("forkedFrom").and_then(|from| from.text_at("sessionId"));
        if let Some(other) = forked.filter(|other| self.others.insert((*other).to_owned())) {
            let what =
                format!("the session was forked from {other}; what it shares with that is repeated here");
            warnings.push(TranscriptWarning::at(number, what));
        }
        if let Some(other) = line.text_at("sessionId").filter(|other| self.others.insert((*other).to_owned()))
        {
            let what =
                format!("lines of session {other} stand here too; they were read as part of {}", self.key);
            warnings.push(TranscriptWarning::at(number, what));
        }
    }

    fn message(
        &mut self,
        entry: &ClaudeEntry<'_, '_>,
        warnings: &mut Vec<TranscriptWarning>,
    ) -> Option<String> {
        let line = entry.line;
        let Some(message) = line.get("message") else { return Some("line without a message".to_owned()) };
        if is_true(line, "isApiErrorMessage") {
            return Some("message about an API error".to_owned());
        }
        let mut event = anthropic::read_message(message);
        let is_main = !is_true(line, "isSidechain");
        let is_meta = is_true(line, "isMeta") && matches!(event.fact, Fact::UserSaid { .. });
        if is_main && !is_meta && matches!(event.fact, Fact::UserSaid { .. }) {
            let heard = self.queue.take_all();
            self.hear(heard);
        }
        let thread = self.thread(entry, speaker(line, &event.fact), warnings);
        if is_true(line, "isCompactSummary") {
            event.fact = self.compacted(thread, &event.fact);
            event.normal = None;
        } else if is_meta {
            event.fact = self.injected(thread, "meta", event.fact.parts().to_vec());
        }
        self.agents.note_agents(self.threads.id(thread), line, &event.fact, &mut self.threads);
        if is_main {
            self.queue.note_calls(&event.fact);
        }
        let reported = self.reported(message, &mut event);
        self.push(entry, thread, [Some(event), reported].into_iter().flatten());
        if is_main {
            let heard = self.queue.take_visible();
            self.hear(heard);
        }
        None
    }

    /// The report that a message makes about its own use of tokens, if it adds something new.
    fn reported(&mut self, message: &Json<'_>, event: &mut Event) -> Option<Event> {
        let Fact::AssistantSaid { answer, model, .. } = &mut event.fact else { return None };
        if model.as_ref().is_some_and(|model| model.0 == "<synthetic>") {
            // Text of the agent itself where an answer was due.
            *model = None;
            return None;
        }
        let used = message.get("usage").filter(|usage| usage.is_object())?;
        let usage = anthropic::read_usage(used);
        let id = answer.as_ref().map_or(String::new(), |answer| answer.0.clone());
        if self.usage.insert(id, usage) == Some(usage) {
            return None;
        }
        let fact = Fact::UsageReported { answer: answer.clone(), model: model.clone(), usage };
        let raw = RawJson { dialect: RawDialect::Anthropic, json: used.raw.into() };
        Some(Event { time: None, origin: None, fact, raw, normal: None })
    }

    fn attachment(
        &mut self,
        entry: &ClaudeEntry<'_, '_>,
        warnings: &mut Vec<TranscriptWarning>,
    ) -> Option<String> {
        self.attaches = true;
        let attachment = entry.line.get("attachment").unwrap_or(entry.line);
        let attached = attachment::read(attachment);
        if matches!(attached, ClaudeAttachment::Hidden) {
            return Some(format!("attachment/{}", attachment.text_at("type").unwrap_or("without a type")));
        }
        let thread = self.thread(entry, ClaudeAuthor::Agent, warnings);
        let fact = match attached {
            ClaudeAttachment::Said(parts) => Fact::UserSaid { parts },
            ClaudeAttachment::Added { hook, parts } => self.injected(thread, &hook, parts),
            ClaudeAttachment::Hidden => return None,
        };
        self.push(entry, thread, [native(attachment, fact)]);
        None
    }

    fn system(
        &mut self,
        entry: &ClaudeEntry<'_, '_>,
        warnings: &mut Vec<TranscriptWarning>,
    ) -> Option<String> {
        let line = entry.line;
        let subtype = line.text_at("subtype").unwrap_or("without a subtype");
        let (hook, parts) = match subtype {
            "local_command" => (subtype, attachment::texts(line, &["content"])),
            "stop_hook_summary" => ("Stop", attachment::texts(line, &["hookAdditionalContext"])),
            _ => (subtype, vec![]),
        };
        if parts.is_empty() && subtype != "compact_boundary" {
            return Some(format!("system/{subtype}"));
        }
        let thread = self.thread(entry, ClaudeAuthor::Agent, warnings);
        let fact = match subtype {
            "compact_boundary" => self.boundary.insert(ClaudeCompactBoundary::read(line)).request_fact(),
            _ => self.injected(thread, hook, parts),
        };
        self.push(entry, thread, [native(line, fact)]);
        None
    }

    /// Logs text that was typed during the answer and now reaches the model. Newer versions attach it, and it is read
    /// from there.
    fn hear(&mut self, heard: Vec<ClaudeQueueEntry>) {
        if self.attaches {
            return;
        }
        for ClaudeQueueEntry { text, raw, time } in heard {
            let is_made = text.trim_start().starts_with('<');
            let parts = vec![ContentPart::text(text)];
            let fact = if is_made {
                self.injected(self.head, "queued_command", parts)
            } else {
                Fact::UserSaid { parts }
            };
            self.log(self.head, Event::native("claude-code", raw, fact).at(time));
        }
    }

    /// Logs an agent's messages that the conversation that started it reports.
    fn progress(&mut self, entry: &ClaudeEntry<'_, '_>) -> Option<String> {
        let data = entry.line.get("data");
        let text = |key: &str| data.and_then(|data| data.text_at(key));
        let kind = format!("progress/{}", text("type").unwrap_or("without a type"));
        let reported = data.and_then(|data| data.get("message"));
        let Some((agent, reported)) =
            text("agentId").zip(reported).filter(|_| kind == "progress/agent_progress")
        else {
            return Some(kind);
        };
        let (Some(message), uuid) = (reported.get("message"), reported.text_at("uuid").unwrap_or_default())
        else {
            return Some(kind);
        };
        if self.knows(uuid) {
            return Some("repeated line".to_owned());
        }
        let caller = parent(entry.line).and_then(|parent| self.spans.get(parent));
        let caller = self.threads.id(caller.map_or(self.head, |span| span.after.thread));
        let call = entry.line.text_at("parentToolUseID").map(CallId::from);
        let thread = self.agents.report_thread(agent, caller, call, &mut self.threads);
        let time =
            reported.text_at("timestamp").or_else(|| entry.line.text_at("timestamp")).and_then(parse_time);
        let inner = ClaudeEntry { number: entry.number, line: reported, uuid, time };
        let mut event = anthropic::read_message(message);
        let usage = self.reported(message, &mut event);
        self.push(&inner, thread, [Some(event), usage].into_iter().flatten());
        None
    }

    /// The thread that a line continues.
    fn thread(
        &mut self,
        entry: &ClaudeEntry<'_, '_>,
        speaker: ClaudeAuthor,
        warnings: &mut Vec<TranscriptWarning>,
    ) -> ThreadIndex {
        let place = parent(entry.line).map(|parent| (parent, self.spans.get(parent).map(|span| span.after)));
        if is_true(entry.line, "isSidechain") {
            let thread = place.and_then(|(_, place)| place).map(|place| place.thread);
            return self.agents.sidechain_thread(entry.line, thread, &mut self.threads);
        }
        let thread = match place {
            Some((_, Some(place))) if speaker == ClaudeAuthor::User => {
                let went_back = !self.prompts.insert(place) && self.threads.end(place.thread) != place;
                if went_back {
                    self.threads.fork(place, format!("before {}", entry.uuid))
                } else {
                    place.thread
                }
            }
            Some((_, Some(place))) => place.thread,
            Some((parent, None)) => {
                if !std::mem::replace(&mut self.orphaned, true) {
                    let what =
                        format!("its parent {parent} is not in the file, which may continue another one");
                    warnings.push(TranscriptWarning::at(entry.number, what));
                }
                self.head
            }
            None => self.head,
        };
        self.head = thread;
        thread
    }

    fn push(
        &mut self,
        entry: &ClaudeEntry<'_, '_>,
        thread: ThreadIndex,
        events: impl IntoIterator<Item = Event>,
    ) {
        let before = self.threads.end(thread);
        let mut after = before;
        for mut event in events {
            event.time = entry.time;
            event.origin = Some(entry.uuid.to_owned()).filter(|uuid| !uuid.is_empty());
            after = self.log(thread, event);
        }
        self.know(entry.uuid, ClaudeSpan { before, after });
    }

    fn log(&mut self, thread: ThreadIndex, event: Event) -> ThreadPosition {
        let is_asked = matches!(event.fact, Fact::UserSaid { .. });
        let place = self.threads.push(thread, event);
        if is_asked {
            self.asked.insert(thread, place.seq);
        }
        place
    }

    fn know(&mut self, uuid: &str, span: ClaudeSpan) {
        if !uuid.is_empty() {
            self.spans.insert(uuid.to_owned(), span);
        }
    }

    fn injected(&self, thread: ThreadIndex, hook: &str, parts: Vec<ContentPart>) -> Fact {
        Fact::Injected { hook: hook.to_owned(), beside: self.asked.get(&thread).copied(), parts }
    }

    fn compacted(&mut self, thread: ThreadIndex, summary: &Fact) -> Fact {
        let last = self.threads.last(thread);
        let boundary = self.boundary.take().unwrap_or_default();
        let kept = boundary.kept.as_ref().and_then(|head| self.spans.get(head)).map(|span| span.first());
        let kept = kept.filter(|kept| kept.seq <= last && self.threads.has_in_view(thread, *kept));
        boundary.compaction_fact(summary.text(), last, kept.map(|kept| kept.seq))
    }
}

impl ClaudeSpan {
    /// The line's first event; the one after it if it has none.
    fn first(self) -> ThreadPosition {
        let thread = if self.before == self.after { self.before.thread } else { self.after.thread };
        ThreadPosition { thread, seq: self.before.seq.next() }
    }
}

/// Author of a line, as far as going back in time is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaudeAuthor {
    User,
    Agent,
}

/// Determines the author. Text that begins with a tag was put together by the agent: commands, their output,
/// notifications. So was the note that the user interrupted it. In doubt, the order of the file is kept.
fn speaker(line: &Json<'_>, fact: &Fact) -> ClaudeAuthor {
    let Fact::UserSaid { parts } = fact else { return ClaudeAuthor::Agent };
    let made = |text: &str| text.starts_with('<') || text.starts_with("[Request interrupted");
    let made = parts.iter().any(|part| matches!(part, ContentPart::Text { text } if made(text.trim_start())));
    let marked =
        ["isMeta", "isCompactSummary", "isVisibleInTranscriptOnly"].iter().any(|key| is_true(line, key));
    if made || marked || line.get("toolUseResult").is_some() {
        ClaudeAuthor::Agent
    } else {
        ClaudeAuthor::User
    }
}

/// The line that a line follows. After a compaction the link is only a logical one.
fn parent<'j>(line: &'j Json<'_>) -> Option<&'j str> {
    line.text_at("parentUuid").or_else(|| line.text_at("logicalParentUuid"))
}

fn native(raw: &Json<'_>, fact: Fact) -> Event {
    Event::native("claude-code", raw.raw, fact)
}

pub(super) fn is_true(object: &Json<'_>, key: &str) -> bool {
    matches!(object.get(key).map(|flag| &flag.value), Some(JsonValue::Bool(true)))
}
