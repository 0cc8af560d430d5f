//! Codex's rollout JSONL: Responses items in envelopes, between notes about them.
//!
//! An item keeps the exact bytes of its payload. One model call is a run of items the model made; it ends where a
//! result, a message or a token count comes in, and is named after the line of its first item. Most notes repeat
//! what the items say and are passed over.
//!
//! A session that was forked or spawned repeats its parent's file after its own first line, its parent's
//! `session_meta` included. Those lines are part of what its model saw, so they are part of its thread.

mod write;

pub(super) use self::write::write;

use std::collections::{BTreeSet, VecDeque};

use epitome_core::{
    ContentPart, Event, Fact, Tokens,
    event::{Compaction, CompactionTrigger, InstructionKind, RawDialect, Summary, Timestamp, Usage},
    id::{AnswerId, ModelName},
};

use super::{
    TranscriptError, TranscriptFile, TranscriptFormat, TranscriptSession, TranscriptThreadStart,
    TranscriptWarning,
    assemble::session_id,
    json_lines::{TranscriptLimits, values},
    threads::{ThreadIndex, ThreadPosition, ThreadTree, main_thread, session_identity},
    time::parse_time,
};
use crate::{decode_parts, is_project_preamble, json::Json, normal_digest, openai_responses};

/// Returns true if a file that begins with this value is Codex's.
pub(crate) fn recognises(first: &serde_json::Value) -> bool {
    const TYPES: [&str; 7] = [
        "session_meta",
        "response_item",
        "event_msg",
        "turn_context",
        "compacted",
        "world_state",
        "inter_agent_communication",
    ];
    let kind = first.get("type").and_then(serde_json::Value::as_str);
    first.get("payload").is_some_and(serde_json::Value::is_object)
        && kind.is_some_and(|kind| TYPES.contains(&kind))
}

/// Reads a session.
pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    let mut reading = TranscriptFile::new(TranscriptFormat::Codex);
    let mut rollout: Option<CodexRollout> = None;
    for (number, line) in values(bytes, limits) {
        match line {
            Ok(line) => {
                let rollout =
                    rollout.get_or_insert_with(|| CodexRollout::new(name, number, &line, &mut reading));
                rollout.take(number, &line, &mut reading);
            }
            Err(warning) => reading.warnings.push(warning),
        }
    }
    let rollout = rollout.ok_or_else(|| TranscriptError::nothing("Codex", &reading.warnings))?;
    let CodexRollout { threads, key, title, folder, thread, .. } = rollout;
    reading.sessions.push(TranscriptSession { folder, ..threads.into_session(key, title, thread) });
    Ok(reading)
}

/// State of the reading so far.
struct CodexRollout {
    threads: ThreadTree,
    /// The thread that is being written.
    thread: ThreadIndex,
    /// Places before the user's messages.
    asked: Vec<ThreadPosition>,
    key: String,
    title: Option<String>,
    folder: Option<String>,
    /// The sessions whose `session_meta` was met.
    met: BTreeSet<String>,
    model: Option<ModelName>,
    call: CodexCall,
    /// The totals of the last token count, as they were written.
    totals: String,
    /// Size of the context at the last token count.
    size: Option<Tokens>,
    /// The newest project instructions in the log.
    project: VecDeque<String>,
}

/// Progress of the current model call.
#[derive(Default)]
struct CodexCall {
    answer: Option<AnswerId>,
    items: CodexItemState,
    usage: CodexUsageState,
}

/// Reports whether more items belong to the call.
#[derive(Default, PartialEq, Eq)]
enum CodexItemState {
    More,
    #[default]
    All,
}

/// Reports whether the call's usage is in the log.
#[derive(Default, PartialEq, Eq)]
enum CodexUsageState {
    Yes,
    #[default]
    NotYet,
}

impl CodexRollout {
    fn new(name: &str, number: u64, first: &Json<'_>, reading: &mut TranscriptFile) -> Self {
        let meta = first.get("payload").filter(|_| first.text_at("type") == Some("session_meta"));
        let text = |key: &str| meta.and_then(|meta| meta.text_at(key));
        let (session, key) = session_identity(TranscriptFormat::Codex, text("id"), name);
        if let Some(parent) = text("forked_from_id") {
            let what =
                format!("the session was forked from {parent}; what it shares with that is repeated here");
            reading.warnings.push(TranscriptWarning::at(number, what));
        }
        Self {
            threads: ThreadTree::new(session, meta.map_or(TranscriptThreadStart::Root, start)),
            thread: ThreadTree::MAIN,
            asked: Vec::new(),
            key,
            title: None,
            folder: text("cwd").map(str::to_owned),
            met: BTreeSet::new(),
            model: None,
            call: CodexCall::default(),
            totals: String::new(),
            size: None,
            project: VecDeque::new(),
        }
    }

    fn take(&mut self, number: u64, line: &Json<'_>, reading: &mut TranscriptFile) {
        let kind = line.text_at("type").unwrap_or("line without a type");
        let Some(payload) = line.get("payload") else {
            return reading.skip(kind);
        };
        let at = CodexLinePosition { number, time: line.text_at("timestamp").and_then(parse_time) };
        match kind {
            "response_item" => self.item(&at, payload),
            "session_meta" => self.meta(&at, payload, reading),
            "turn_context" => self.context(&at, payload),
            "compacted" => self.compacted(&at, payload),
            "inter_agent_communication" => self.told(&at, payload),
            "event_msg" => match payload.text_at("type").unwrap_or("without a type") {
                "token_count" if self.counted(&at, payload) => {}
                "thread_rolled_back" => self.roll_back(&at, payload),
                note => {
                    if let Some(title) =
                        payload.text_at("thread_name").filter(|_| note == "thread_name_updated")
                    {
                        self.title = Some(title.to_owned());
                    }
                    reading.skip(&format!("event_msg/{note}"));
                }
            },
            other => reading.skip(other),
        }
    }

    fn item(&mut self, at: &CodexLinePosition, payload: &Json<'_>) {
        let mut event = openai_responses::read_item(payload);
        match &mut event.fact {
            Fact::AssistantSaid { answer, model, .. } => {
                *answer = Some(self.call.of_item(at));
                model.clone_from(&self.model);
            }
            Fact::UserSaid { parts } if parts.iter().any(is_preamble) => {
                let parts = std::mem::take(parts);
                parts.iter().filter_map(text).for_each(|text| self.remember(text));
                event.fact = Fact::Instructed { what: InstructionKind::Project, parts };
                self.call.items = CodexItemState::All;
            }
            Fact::UserSaid { parts } => {
                self.call.items = CodexItemState::All;
                if let Some(hook) = parts.iter().find_map(context_tag) {
                    let parts = std::mem::take(parts);
                    event.fact = Fact::Injected { hook: hook.to_owned(), beside: None, parts };
                } else {
                    self.asked.push(self.threads.end(self.thread));
                }
            }
            // Its kind is unknown, so it may stand in the middle of an answer.
            Fact::Carried { .. } => {}
            _ => self.call.items = CodexItemState::All,
        }
        self.log(at, event);
    }

    fn meta(&mut self, at: &CodexLinePosition, payload: &Json<'_>, reading: &mut TranscriptFile) {
        let id = payload.text_at("id").unwrap_or_default();
        let first = self.met.is_empty();
        if self.met.insert(id.to_owned()) && !first {
            let what =
                format!("from here on the history of session {id} is repeated, which this one came from");
            reading.warnings.push(TranscriptWarning::at(at.number, what));
        }
        if !first {
            return reading.skip("session_meta");
        }
        let base = payload.get("base_instructions");
        let Some(text) =
            base.and_then(|base| base.get("text").or(Some(base))).filter(|text| text.as_text().is_some())
        else {
            return;
        };
        let parts = decode_parts::parts(Some(text), openai_responses::part);
        let fact = Fact::Instructed { what: InstructionKind::System, parts };
        let dialect = RawDialect::OpenaiResponses;
        let digest = normal_digest::instructions(&dialect, text);
        self.log(at, decode_parts::event(dialect, text, fact, Some(digest)));
    }

    fn context(&mut self, at: &CodexLinePosition, payload: &Json<'_>) {
        if let Some(model) = payload.text_at("model").map(ModelName::from)
            && self.model.as_ref() != Some(&model)
        {
            self.model = Some(model.clone());
            self.log(at, Event::native("codex", payload.raw, Fact::ModelChanged { model }));
        }
        // Older versions send the instructions as a message, too. Only those that came no other way are new.
        if let Some(told) = payload.text_at("user_instructions").filter(|told| !told.trim().is_empty())
            && !self.project.iter().any(|known| known.contains(told.trim()))
        {
            self.remember(told);
            let fact =
                Fact::Instructed { what: InstructionKind::Project, parts: vec![ContentPart::text(told)] };
            self.call.items = CodexItemState::All;
            self.log(at, Event::native("codex", payload.raw, fact));
        }
    }

    /// Takes back the user's last messages and everything after them.
    fn roll_back(&mut self, at: &CodexLinePosition, payload: &Json<'_>) {
        let turns = usize::try_from(payload.count_at("num_turns")).unwrap_or(usize::MAX);
        let kept = self.asked.len().saturating_sub(turns);
        if let Some(place) = self.asked.get(kept).copied() {
            self.asked.truncate(kept);
            self.call = CodexCall::default();
            self.thread = self.threads.fork(place, format!("rolled back at line {}", at.number));
        }
    }

    /// Remembers instructions, so as to notice when they are repeated: only a few of them, so that no file makes that
    /// slow.
    fn remember(&mut self, instructions: &str) {
        const REMEMBERED: usize = 8;
        if self.project.len() == REMEMBERED {
            self.project.pop_front();
        }
        self.project.push_back(instructions.to_owned());
    }

    fn compacted(&mut self, at: &CodexLinePosition, payload: &Json<'_>) {
        let fact = Fact::Compacted(Compaction {
            summary: summary(payload),
            through: self.threads.last(self.thread),
            first_kept: None,
            tokens_before: self.size.take(),
            tokens_after: None,
            trigger: CompactionTrigger::Unknown,
        });
        self.call = CodexCall::default();
        self.log(at, Event::native("codex", payload.raw, fact));
    }

    /// A message of another agent: the model sees it, but no user wrote it.
    fn told(&mut self, at: &CodexLinePosition, payload: &Json<'_>) {
        let author = payload.text_at("author").unwrap_or("another agent");
        let parts = match (payload.text_at("content").unwrap_or_default(), payload.get("encrypted_content")) {
            ("", Some(hidden)) => {
                vec![ContentPart::Opaque { name: "encrypted_content".into(), json: hidden.raw.into() }]
            }
            (said, _) => vec![ContentPart::text(said)],
        };
        let fact = Fact::Injected { hook: format!("message from {author}"), beside: None, parts };
        self.call.items = CodexItemState::All;
        self.log(at, Event::native("codex", payload.raw, fact));
    }

    /// Logs a token count that counts something new.
    fn counted(&mut self, at: &CodexLinePosition, payload: &Json<'_>) -> bool {
        let info = payload.get("info");
        let member = |key: &str| info.and_then(|info| info.get(key)).filter(|tokens| tokens.is_object());
        let Some((totals, last)) = member("total_token_usage").zip(member("last_token_usage")) else {
            return false;
        };
        if self.totals == totals.raw {
            return false;
        }
        totals.raw.clone_into(&mut self.totals);
        let usage = usage(last);
        self.size = Some(usage.total());
        let answer = self.call.counted(at);
        let fact = Fact::UsageReported { answer, model: self.model.clone(), usage };
        self.log(at, Event::native("codex", payload.raw, fact));
        true
    }

    fn log(&mut self, at: &CodexLinePosition, mut event: Event) {
        event.time = at.time;
        event.origin.get_or_insert_with(|| format!("#{}", at.number));
        self.threads.push(self.thread, event);
    }
}

/// Position of a line.
struct CodexLinePosition {
    number: u64,
    time: Option<Timestamp>,
}

impl CodexLinePosition {
    fn answer(&self) -> AnswerId {
        AnswerId(format!("line-{}", self.number))
    }
}

impl CodexCall {
    /// The answer that an item the model made belongs to.
    fn of_item(&mut self, at: &CodexLinePosition) -> AnswerId {
        match &self.answer {
            Some(answer) if self.items == CodexItemState::More => answer.clone(),
            _ => {
                let answer = at.answer();
                *self = Self {
                    answer: Some(answer.clone()),
                    items: CodexItemState::More,
                    usage: CodexUsageState::NotYet,
                };
                answer
            }
        }
    }

    /// The answer that a token count is about. A count that follows no items belongs to a call that left none.
    fn counted(&mut self, at: &CodexLinePosition) -> Option<AnswerId> {
        self.items = CodexItemState::All;
        match std::mem::replace(&mut self.usage, CodexUsageState::Yes) {
            CodexUsageState::NotYet => self.answer.clone(),
            CodexUsageState::Yes => Some(at.answer()),
        }
    }
}

/// Origin of the session, as the session that spawned it recorded it.
fn start(meta: &Json<'_>) -> TranscriptThreadStart {
    let spawned = meta.get("source").and_then(|source| source.get("subagent"));
    let parent = meta
        .text_at("parent_thread_id")
        .or_else(|| spawned?.get("thread_spawn")?.text_at("parent_thread_id"));
    match (spawned, parent) {
        (None, None) => TranscriptThreadStart::Root,
        (_, parent) => {
            let by = parent.map(|parent| main_thread(session_id(TranscriptFormat::Codex, parent)));
            TranscriptThreadStart::Spawned { by, call: None }
        }
    }
}

/// The summary that stands for the compacted span: its text, the provider's own form of it, or the messages that
/// replaced the history.
fn summary(payload: &Json<'_>) -> Summary {
    if let Some(message) = payload.text_at("message").filter(|message| !message.is_empty()) {
        return Summary::Text(message.to_owned());
    }
    let history = payload.array_at("replacement_history");
    let is_compaction =
        |item: &&Json<'_>| item.text_at("type").is_some_and(|kind| kind.contains("compaction"));
    let hidden = history.iter().filter(is_compaction).find_map(|item| item.text_at("encrypted_content"));
    if let Some(hidden) = hidden {
        return Summary::Encrypted(hidden.to_owned());
    }
    let message = |item: &Json<'_>| {
        let said = decode_parts::parts(item.get("content"), openai_responses::part);
        let said: Vec<&str> = said.iter().filter_map(text).collect();
        (!said.is_empty()).then(|| format!("{}: {}", item.text_at("role").unwrap_or("item"), said.join("\n")))
    };
    Summary::Text(history.iter().filter_map(message).collect::<Vec<_>>().join("\n\n"))
}

/// Reads usage. Input includes tokens that the cache read and wrote; output includes reasoning.
fn usage(tokens: &Json<'_>) -> Usage {
    let [input, read, written] =
        ["input_tokens", "cached_input_tokens", "cache_write_input_tokens"].map(|key| tokens.count_at(key));
    Usage {
        uncached: Tokens(input.saturating_sub(read).saturating_sub(written)),
        cache_read: Tokens(read),
        cache_write: Tokens(written),
        output: Tokens(tokens.count_at("output_tokens")),
        ..Usage::default()
    }
}

/// Returns true for a part of Codex's own. Codex does not mix its words with the user's in one message, so one such
/// part decides for the whole message.
fn is_preamble(part: &ContentPart) -> bool {
    text(part).is_some_and(is_project_preamble)
}

/// The tag around a text that Codex sends in the user's name while the session goes on.
fn context_tag(part: &ContentPart) -> Option<&'static str> {
    const TAGS: [&str; 4] = ["turn_aborted", "subagent_notification", "user_shell_command", "skill"];
    let inner = text(part)?.trim_start().strip_prefix('<')?;
    TAGS.into_iter().find(|tag| inner.strip_prefix(tag).is_some_and(|rest| rest.starts_with('>')))
}

fn text(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text { text } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::transcripts::testing::{grows, reading, shown};

    /// A session with every kind of line.
    pub(crate) const ROLLOUT: &str = r##"{"timestamp":"2026-05-31T11:07:41.436Z","type":"session_meta","payload":{"id":"019e7db7-d89c-7070-b812-4435399bcd61","cwd":"/src","base_instructions":{"text":"You are \u0041."}}}
{"timestamp":"2026-05-31T11:07:41.440Z","type":"event_msg","payload":{"type":"task_started","turn_id":"t1"}}
{"timestamp":"2026-05-31T11:07:43.028Z","type":"response_item","payload":{"type":"message","role":"developer","content":[{"type":"input_text","text":"sandbox"}]}}
{"timestamp":"2026-05-31T11:07:43.028Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<recommended_plugins>\nnone\n</recommended_plugins>"},{"type":"input_text","text":"# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>"}]}}
{"timestamp":"2026-05-31T11:07:43.028Z","type":"turn_context","payload":{"turn_id":"t1","model":"gpt-a","user_instructions":"Be kind.\n"}}
{"timestamp":"2026-05-31T11:07:43.030Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]}}
{"timestamp":"2026-05-31T11:07:43.030Z","type":"event_msg","payload":{"type":"user_message","message":"fix it"}}
{"timestamp":"2026-05-31T11:07:43.031Z","type":"event_msg","payload":{"type":"token_count","info":null}}
{"timestamp":"2026-05-31T11:07:45Z","type":"response_item","payload":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"look first"}],"encrypted_content":"gAAA"}}
{"timestamp":"2026-05-31T11:07:45Z","type":"response_item","payload":{ "type":"function_call", "name":"exec", "arguments":"{\"cmd\":\"ls\"}", "call_id":"c1" }}
{"timestamp":"2026-05-31T11:07:45Z","type":"response_item","payload":{"type":"custom_tool_call","status":"completed","call_id":"c2","name":"apply_patch","input":"*** Begin"}}
{"timestamp":"2026-05-31T11:07:46Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":100,"output_tokens":9},"last_token_usage":{"input_tokens":100,"cached_input_tokens":60,"cache_write_input_tokens":10,"output_tokens":9,"reasoning_output_tokens":4,"total_tokens":109}}}}
{"timestamp":"2026-05-31T11:07:46Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"a.rs"}}
{"timestamp":"2026-05-31T11:07:46Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":100,"output_tokens":9},"last_token_usage":{"input_tokens":100,"output_tokens":9}}}}
{"timestamp":"2026-05-31T11:07:46Z","type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"c2","output":"ok"}}
{"timestamp":"2026-05-31T11:07:47Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Half done."}]}}
{"timestamp":"2026-05-31T11:07:47Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":220,"output_tokens":12},"last_token_usage":{"input_tokens":120,"cached_input_tokens":100,"output_tokens":3}}}}
{"timestamp":"2026-05-31T11:07:48Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done."}]}}
{"timestamp":"2026-05-31T11:07:48Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":350,"output_tokens":14},"last_token_usage":{"input_tokens":130,"output_tokens":2}}}}
{"timestamp":"2026-05-31T11:07:49Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":390,"output_tokens":14},"last_token_usage":{"input_tokens":40,"output_tokens":0}}}}
{"timestamp":"2026-05-31T11:07:50Z","type":"compacted","payload":{"message":"","replacement_history":[{"type":"message","role":"user","content":[{"type":"input_text","text":"fix it"}]},{"type":"compaction","encrypted_content":"gBBB"}]}}
{"timestamp":"2026-05-31T11:07:50Z","type":"event_msg","payload":{"type":"context_compacted"}}
{"timestamp":"2026-05-31T11:07:51Z","type":"turn_context","payload":{"turn_id":"t2","model":"gpt-b","user_instructions":"Be brief."}}
{"timestamp":"2026-05-31T11:07:51Z","type":"world_state","payload":{"full":true,"state":{}}}
{"timestamp":"2026-05-31T11:07:52Z","type":"inter_agent_communication","payload":{"author":"/root/helper","recipient":"/root","content":"I found it.","trigger_turn":true}}
{"timestamp":"2026-05-31T11:07:53Z","type":"response_item","payload":{"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}}
{"timestamp":"2026-05-31T11:07:54Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"<turn_aborted>\nThe user interrupted.\n</turn_aborted>"}]}}
{"timestamp":"2026-05-31T11:07:54Z","type":"event_msg","payload":{"type":"turn_aborted","reason":"interrupted"}}
{"timestamp":"2026-05-31T11:07:54Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"never mind"}]}}
{"timestamp":"2026-05-31T11:07:54Z","type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":1}}
{"timestamp":"2026-05-31T11:07:55Z","type":"session_meta","payload":{"id":"019e7db7-d89c-7070-b812-4435399bcd61","base_instructions":{"text":"You are A."}}}
{"timestamp":"2026-05-31T11:07:55Z","type":"event_msg","payload":{"type":"thread_name_updated","thread_name":"Fixing"}}
{"timestamp":"2026-05-31T11:07:56Z","type":"compacted","payload":{"message":"all was fixed"}}
"##;

    #[test]
    fn runs_of_items_are_calls_and_notes_are_passed_over() {
        assert_snapshot!(shown(&reading(read, ROLLOUT)), @r##"
        session 019e7db7-d89c-7070-b812-4435399bcd61: Fixing, at rolled back at line 30
         main
          1 [#1 @61436 openai-responses] instructed System "You are A."
          2 [#3 @63028 openai-responses] instructed Message "sandbox"
          3 [#4 @63028 openai-responses] instructed Project "<recommended_plugins>\nnone\n</recommended_plugins>" "# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>"
          4 [#5 @63028 codex] model_changed gpt-a
          5 [#6 @63030 openai-responses] user_said "fix it"
          6 [rs_1 @65000 openai-responses] assistant_said line-9/gpt-a <look first hidden gAAA>
          7 [#10 @65000 openai-responses] assistant_said line-9/gpt-a exec(c1 {"cmd":"ls"})
          8 [#11 @65000 openai-responses] assistant_said line-9/gpt-a apply_patch(c2 *** Begin)
          9 [#12 @66000 codex] usage_reported line-9/gpt-a 30+60+10>9
          10 [#13 @66000 openai-responses] tool_returned c1 "a.rs"
          11 [#15 @66000 openai-responses] tool_returned c2 "ok"
          12 [#16 @67000 openai-responses] assistant_said line-16/gpt-a "Half done."
          13 [#17 @67000 codex] usage_reported line-16/gpt-a 20+100+0>3
          14 [#18 @68000 openai-responses] assistant_said line-18/gpt-a "Done."
          15 [#19 @68000 codex] usage_reported line-18/gpt-a 130+0+0>2
          16 [#20 @69000 codex] usage_reported line-20/gpt-a 40+0+0>0
          17 [#21 @70000 codex] compacted through 16 kept none before 40 Unknown encrypted "gBBB"
          18 [#23 @71000 codex] model_changed gpt-b
          19 [#23 @71000 codex] instructed Project "Be brief."
          20 [#25 @72000 codex] injected message from /root/helper "I found it."
          21 [#26 @73000 openai-responses] assistant_said line-26/gpt-b web_search_call{"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}
          22 [#27 @74000 openai-responses] injected turn_aborted "<turn_aborted>\nThe user interrupted.\n</turn_aborted>"
          23 [#29 @74000 openai-responses] user_said "never mind"
         rolled back at line 30, forked from main at 22
          23 [#33 @76000 codex] compacted through 22 kept none before ? Unknown "all was fixed"
        skipped {"event_msg/context_compacted": 1, "event_msg/task_started": 1, "event_msg/thread_name_updated": 1, "event_msg/token_count": 2, "event_msg/turn_aborted": 1, "event_msg/user_message": 1, "session_meta": 1, "world_state": 1}
        "##);
    }

    #[test]
    fn items_keep_their_bytes() {
        let reading = reading(read, ROLLOUT);
        let raw: Vec<&str> =
            reading.sessions[0].threads[0].events.iter().map(|event| &*event.raw.json).collect();
        assert_eq!(raw[0], r#""You are \u0041.""#);
        assert!(raw.iter().any(|raw| raw.starts_with(r#"{ "type":"function_call", "name""#)));
        assert!(raw.iter().all(|raw| ROLLOUT.contains(raw)));
    }

    #[test]
    fn a_grown_file_begins_as_it_did() {
        grows(read, ROLLOUT);
        grows(read, SPAWNED);
    }

    pub(crate) const SPAWNED: &str = r#"{"timestamp":"2026-04-11T20:27:39Z","type":"session_meta","payload":{"id":"019d7e3a-8c28-7662-aaba-a2d9ed140081","forked_from_id":"019d7d08-46c9-7f73-affe-4e6ca9852d56","source":{"subagent":{"thread_spawn":{"parent_thread_id":"019d7d08-46c9-7f73-affe-4e6ca9852d56","depth":1}}},"base_instructions":null}}
{"timestamp":"2026-04-11T20:27:39Z","type":"session_meta","payload":{"id":"019d7d08-46c9-7f73-affe-4e6ca9852d56","source":"cli"}}
{"timestamp":"2026-04-11T20:27:39Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}}
{"timestamp":"2026-04-11T20:27:40Z","type":"compacted","payload":{"message":"","replacement_history":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hello"}]}]}}
{"timestamp":"2026-04-11T20:27:41Z","type":"response_item"}
"#;

    #[test]
    fn a_spawned_session_knows_its_parent_and_repeats_it() {
        assert_snapshot!(shown(&reading(read, SPAWNED)), @r#"
        session 019d7e3a-8c28-7662-aaba-a2d9ed140081: untitled, at main
         main, spawned by elsewhere with ?
          1 [#3 @59000 openai-responses] user_said "hi"
          2 [#4 @60000 codex] compacted through 1 kept none before ? Unknown "user: hi\n\nassistant: hello"
        ! line 1: the session was forked from 019d7d08-46c9-7f73-affe-4e6ca9852d56; what it shares with that is repeated here
        ! line 2: from here on the history of session 019d7d08-46c9-7f73-affe-4e6ca9852d56 is repeated, which this one came from
        skipped {"response_item": 1, "session_meta": 1}
        "#);
        let reading = reading(read, SPAWNED);
        let parent = "019d7d08-46c9-7f73-affe-4e6ca9852d56".parse().expect("a UUID");
        let start = TranscriptThreadStart::Spawned { by: Some(main_thread(parent)), call: None };
        assert_eq!(reading.sessions[0].threads[0].start, start);
    }

    #[test]
    fn a_compressed_rollout_reads_as_the_plain_one() {
        let packed = ruzstd::encoding::compress_to_vec(
            ROLLOUT.as_bytes(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let unpacked =
            crate::transcripts::read("file", &packed, &TranscriptLimits::default()).expect("it can be read");
        assert_eq!(shown(&unpacked), shown(&reading(read, ROLLOUT)));
    }

    #[test]
    fn codex_is_told_by_its_envelopes() {
        let check = |json: &str, expect: bool| {
            assert_eq!(recognises(&serde_json::from_str(json).unwrap()), expect, "{json}");
        };
        check(r#"{"timestamp":"t","type":"session_meta","payload":{"id":"a"}}"#, true);
        check(r#"{"timestamp":"t","type":"event_msg","payload":{}}"#, true);
        check(r#"{"type":"message","payload":{}}"#, false);
        check(r#"{"type":"session_meta"}"#, false);
    }
}
