//! One history of OpenHands events, to facts.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use epitome_core::{
    ContentPart, Event, Fact, Seq, Tokens,
    event::{
        Compaction, CompactionTrigger, InstructionKind, Summary, Timestamp, ToolCall, ToolResult, Usage,
    },
    id::{AnswerId, CallId, ModelName, ToolName},
};

use super::{
    super::{
        TranscriptFile,
        assemble::{carried_event, content_parts, next, text_parts},
        time::parse_time,
    },
    DIALECT,
};
use crate::{json::Json, media, openai_chat};

/// The events of a session, as they are gathered.
#[derive(Debug)]
pub(super) struct OpenhandsHistory {
    pub(super) events: Vec<Event>,
    model: Option<ModelName>,
    /// Number of records so far.
    count: usize,
    /// The call that each action made, by the action's id.
    calls: HashMap<String, (CallId, ToolName)>,
    /// The last call, for records that do not name their cause.
    last_call: Option<(CallId, ToolName)>,
    /// First fact of each record, by the record's id.
    places: BTreeMap<u64, Seq>,
    /// The user's last message.
    said: Option<Seq>,
    /// The answer that the last action was part of.
    answer: Option<AnswerId>,
    /// Usage of the session up to the last action.
    used: Usage,
    /// True if the agent requested the next compaction.
    requested: bool,
}

/// A record as its envelope presents it.
struct OpenhandsRecord<'j, 'a> {
    json: &'j Json<'a>,
    /// The action's arguments: inside the record, or the record itself in older files.
    args: &'j Json<'a>,
    origin: String,
    time: Option<Timestamp>,
    source: Option<&'j str>,
}

impl OpenhandsHistory {
    pub(super) fn new(model: Option<ModelName>) -> Self {
        Self {
            events: Vec::new(),
            model,
            count: 0,
            calls: HashMap::new(),
            last_call: None,
            places: BTreeMap::new(),
            said: None,
            answer: None,
            used: Usage::default(),
            requested: false,
        }
    }

    /// Takes the next record.
    pub(super) fn event(&mut self, text: &str, reading: &mut TranscriptFile) {
        let index = self.count;
        self.count += 1;
        let Some(json) = Json::parse(text, "an OpenHands event").ok().filter(Json::is_object) else {
            reading.warn(format!("event {index} cannot be read as one; it was carried as it is"));
            self.events.push(carried_event(DIALECT, text, "event").from_origin(format!("#{index}")));
            return;
        };
        let id = json.get("id").and_then(Json::as_count);
        if let Some(id) = id {
            self.places.insert(id, next(&self.events));
        }
        let record = OpenhandsRecord {
            json: &json,
            args: json.get("args").filter(|args| args.is_object()).unwrap_or(&json),
            origin: id.map_or_else(|| format!("#{index}"), |id| id.to_string()),
            time: json.text_at("timestamp").and_then(parse_time),
            source: json.text_at("source"),
        };
        match (json.text_at("action"), json.text_at("observation")) {
            (Some(action), _) => self.action(action, &record, reading),
            (None, Some(observation)) => self.observation(observation, &record, reading),
            (None, None) => {
                reading.warn(format!(
                    "event {} is neither action nor observation; it was carried",
                    record.origin
                ));
                let event = carried_event(DIALECT, json.raw, "event");
                self.events.push(event.at(record.time).from_origin(record.origin));
            }
        }
    }

    fn push(&mut self, record: &OpenhandsRecord<'_, '_>, fact: Fact) {
        self.push_piece(record, record.json.raw, fact);
    }

    fn push_piece(&mut self, record: &OpenhandsRecord<'_, '_>, raw: &str, fact: Fact) {
        if matches!(fact, Fact::UserSaid { .. }) {
            self.said = Some(next(&self.events));
        }
        let event = Event::native(DIALECT, raw, fact);
        self.events.push(event.at(record.time).from_origin(record.origin.clone()));
    }

    fn action(&mut self, action: &str, record: &OpenhandsRecord<'_, '_>, reading: &mut TranscriptFile) {
        match action {
            "system" => self.system(record),
            "message" => self.message(record),
            "condensation" => self.condensation(record),
            "condensation_request" => {
                self.requested = true;
                self.push(
                    record,
                    Fact::CompactionRequested { trigger: CompactionTrigger::Agent, focus: None },
                );
            }
            // The query to the memory is OpenHands' own action; the model sees only the memory's answer.
            "recall" | "change_agent_state" | "null" | "start" => reading.skip(&format!("action {action}")),
            _ if record.source == Some("user") => {
                let parts = text_parts(record.json.text_at("message").unwrap_or(action));
                self.push(record, Fact::UserSaid { parts });
            }
            _ => self.answer(action, record, reading),
        }
    }

    fn system(&mut self, record: &OpenhandsRecord<'_, '_>) {
        let parts = content_parts(record.args.get("content"));
        self.push(record, Fact::Instructed { what: InstructionKind::System, parts });
        if let Some(tools) = record.args.get("tools")
            && let Some(list) = tools.as_array().filter(|list| !list.is_empty())
        {
            let parts = list.iter().map(openai_chat::tool_part).collect();
            self.push_piece(record, tools.raw, Fact::Instructed { what: InstructionKind::Tools, parts });
        }
    }

    fn message(&mut self, record: &OpenhandsRecord<'_, '_>) {
        let mut parts = content_parts(record.args.get("content"));
        for key in ["image_urls", "images_urls"] {
            let urls = record.args.array_at(key).iter().filter_map(Json::as_text);
            parts.extend(urls.filter_map(|url| media::url_part(media::ANY_IMAGE, url)));
        }
        // Older files do not name the speaker. The first message is the task; after that the agent waits for an
        // answer to its messages, and the user does not.
        let waits = record.args.get("wait_for_response").is_some_and(|waits| waits.raw == "true");
        let agent = record.source.map_or(self.said.is_some() && waits, |source| source == "agent");
        if agent {
            self.answer = None;
            self.push(record, Fact::AssistantSaid { answer: None, model: self.model.clone(), parts });
            self.usage(record, self.model.clone(), None);
        } else {
            self.push(record, Fact::UserSaid { parts });
        }
    }

    /// An action that the model asked for.
    fn answer(&mut self, action: &str, record: &OpenhandsRecord<'_, '_>, reading: &mut TranscriptFile) {
        let metadata = record.json.get("tool_call_metadata").filter(|metadata| metadata.is_object());
        let response = metadata.and_then(|metadata| metadata.get("model_response"));
        let answer: Option<AnswerId> = response.and_then(|response| response.text_at("id")).map(Into::into);
        let continues = answer.is_some() && answer == self.answer;
        let message = response.and_then(|response| response.array_at("choices").first()?.get("message"));

        let mut parts = Vec::new();
        if !continues {
            parts = said(action, record, message);
        }
        // Without a call of the model's own, `finish` is its last message.
        if metadata.is_some() || action != "finish" {
            let call = metadata.map_or_else(
                || plain_call(action, record),
                |metadata| recorded_call(metadata, message, record),
            );
            let key = (call.id.clone(), call.name.clone());
            self.calls.insert(record.origin.clone(), key.clone());
            self.last_call = Some(key);
            parts.push(ContentPart::ToolCall(call));
        }
        if parts.is_empty() {
            return reading.skip(&format!("action {action} without words"));
        }
        let model = response.and_then(|response| response.text_at("model")).map(Into::into);
        let model: Option<ModelName> = model.or_else(|| self.model.clone());
        self.answer.clone_from(&answer);
        self.push(record, Fact::AssistantSaid { answer, model: model.clone(), parts });
        if !continues {
            self.usage(record, model, response.and_then(|response| response.get("usage")));
        }
    }

    /// Logs usage of a call: as its answer reports it, or as the growth of the session's total.
    fn usage(
        &mut self,
        record: &OpenhandsRecord<'_, '_>,
        model: Option<ModelName>,
        reported: Option<&Json<'_>>,
    ) {
        let metrics =
            record.json.get("llm_metrics").and_then(|metrics| metrics.get("accumulated_token_usage"));
        let total = metrics.map(accumulated);
        let grown = total.map(|total| less(total, self.used));
        let own =
            reported.filter(|usage| usage.is_object()).map(|usage| (usage, openai_chat::read_usage(usage)));
        if let Some(total) = total {
            self.used = total;
        }
        let Some((raw, usage)) = own.or_else(|| metrics.zip(grown)) else { return };
        if usage != Usage::default() {
            let fact = Fact::UsageReported { answer: self.answer.clone(), model, usage };
            self.push_piece(record, raw.raw, fact);
        }
    }

    fn observation(&mut self, kind: &str, record: &OpenhandsRecord<'_, '_>, reading: &mut TranscriptFile) {
        match kind {
            "agent_state_changed" | "null" => return reading.skip(&format!("observation {kind}")),
            "recall" => return self.recalled(record, reading),
            _ => {}
        }
        let parts = observed(record.json);
        match self.caused_by(record) {
            Some((call, name)) => {
                let error = failed(kind, record.json);
                let result = ToolResult { call, name: Some(name), parts, error };
                self.push(record, Fact::ToolReturned { results: vec![result], parts: Vec::new() });
            }
            // No recorded call caused it: the environment reported it by itself.
            None => self.push(record, Fact::Injected { hook: kind.to_owned(), beside: None, parts }),
        }
    }

    /// The call that an observation answers.
    fn caused_by(&mut self, record: &OpenhandsRecord<'_, '_>) -> Option<(CallId, ToolName)> {
        let last = self.last_call.take();
        if let Some(metadata) = record.json.get("tool_call_metadata")
            && let Some(id) = metadata.text_at("tool_call_id")
        {
            return Some((id.into(), metadata.text_at("function_name").unwrap_or_default().into()));
        }
        match record.json.get("cause").and_then(Json::as_count) {
            Some(cause) => self.calls.get(&cause.to_string()).cloned(),
            None if record.source.is_none() => last,
            None => {
                self.last_call = last;
                None
            }
        }
    }

    /// Logs the text that the memory added to the user's message.
    fn recalled(&mut self, record: &OpenhandsRecord<'_, '_>, reading: &mut TranscriptFile) {
        let extras = record.json.get("extras").unwrap_or(record.json);
        let mut texts: Vec<&str> =
            ["repo_instructions", "additional_agent_instructions", "conversation_instructions"]
                .into_iter()
                .filter_map(|key| extras.text_at(key))
                .collect();
        texts.extend(
            extras.array_at("microagent_knowledge").iter().filter_map(|known| known.text_at("content")),
        );
        let parts: Vec<ContentPart> =
            texts.into_iter().filter(|text| !text.is_empty()).map(ContentPart::text).collect();
        if parts.is_empty() {
            return reading.skip("observation recall");
        }
        self.push(record, Fact::Injected { hook: "recall".to_owned(), beside: self.said, parts });
    }

    /// OpenHands forgets some events and lets a summary stand for them. It may keep the very first ones as well;
    /// here the summary covers everything up to the last forgotten one.
    fn condensation(&mut self, record: &OpenhandsRecord<'_, '_>) {
        let listed = record.args.array_at("forgotten_event_ids").iter().filter_map(Json::as_count).max();
        let last = listed.or_else(|| record.args.get("forgotten_events_end_id").and_then(Json::as_count));
        let here = next(&self.events);
        // The forgotten span ends before the next record that is still there.
        let kept = last.and_then(|last| self.places.range((Bound::Excluded(last), Bound::Unbounded)).next());
        let first_kept = kept.map(|(_, place)| *place).filter(|place| *place < here);
        let compaction = Compaction {
            summary: Summary::Text(record.args.text_at("summary").unwrap_or_default().to_owned()),
            through: first_kept.unwrap_or(here).previous(),
            first_kept,
            tokens_before: None,
            tokens_after: None,
            trigger: if std::mem::take(&mut self.requested) {
                CompactionTrigger::Agent
            } else {
                CompactionTrigger::Unknown
            },
        };
        self.push(record, Fact::Compacted(compaction));
    }
}

/// The model's words before its action: its reasoning and its text, or the thought that an older file kept.
fn said(action: &str, record: &OpenhandsRecord<'_, '_>, message: Option<&Json<'_>>) -> Vec<ContentPart> {
    let Some(message) = message else {
        let key = if action == "finish" { ["thought", "final_thought"] } else { ["thought", ""] };
        let thought =
            key.into_iter().find_map(|key| record.args.text_at(key).filter(|text| !text.is_empty()));
        // The thought of `think` is the argument of the call itself.
        return thought.filter(|_| action != "think").map(ContentPart::text).into_iter().collect();
    };
    let reasoning = message.text_at("reasoning_content").filter(|text| !text.is_empty());
    let reasoning = reasoning.map(|text| ContentPart::Reasoning { text: text.to_owned(), seal: None });
    reasoning.into_iter().chain(content_parts(message.get("content"))).collect()
}

/// The call as the model made it.
fn recorded_call(
    metadata: &Json<'_>,
    message: Option<&Json<'_>>,
    record: &OpenhandsRecord<'_, '_>,
) -> ToolCall {
    let id = metadata.text_at("tool_call_id").unwrap_or_default();
    let made = message.and_then(|message| {
        message.array_at("tool_calls").iter().find(|call| call.text_at("id") == Some(id))?.get("function")
    });
    let arguments = made.and_then(|function| function.text_at("arguments")).map(str::to_owned);
    let name = metadata.text_at("function_name").unwrap_or_default();
    ToolCall::function(id, name, arguments.unwrap_or_else(|| arguments_of(record)))
}

/// A call for which only the action was kept.
fn plain_call(action: &str, record: &OpenhandsRecord<'_, '_>) -> ToolCall {
    let id = format!("oh-{}", record.origin.trim_start_matches('#'));
    ToolCall::function(id, action, arguments_of(record))
}

/// An action's arguments without the members that OpenHands adds to them.
fn arguments_of(record: &OpenhandsRecord<'_, '_>) -> String {
    const BESIDE: [&str; 17] = [
        "action",
        "action_risk",
        "blocking",
        "confirmation_state",
        "hidden",
        "id",
        "is_confirmed",
        "is_static",
        "keep_prompt",
        "kernel_init_code",
        "llm_metrics",
        "message",
        "security_risk",
        "source",
        "timestamp",
        "tool_call_metadata",
        "cause",
    ];
    // The thought of `think` is its argument; beside any other action it is text of the model.
    let thinks = record.json.text_at("action") == Some("think");
    let beside = |key: &str| BESIDE.contains(&key) || (key == "thought" && !thinks);
    let own = record.args.members().iter().filter(|(key, value)| !beside(key) && !value.is_null());
    let own: Vec<String> =
        own.map(|(key, value)| format!("{}:{}", crate::json::quote(key), value.raw)).collect();
    format!("{{{}}}", own.join(","))
}

/// The text of an observation, with the lines that OpenHands puts around a command's output, and its images.
fn observed(json: &Json<'_>) -> Vec<ContentPart> {
    let extras = json.get("extras");
    let metadata = extras.and_then(|extras| extras.get("metadata"));
    let around = |key: &str| metadata.and_then(|metadata| metadata.text_at(key)).unwrap_or_default();
    let mut parts = match json.text_at("content") {
        Some(content) => text_parts(&format!("{}{content}{}", around("prefix"), around("suffix"))),
        None => content_parts(json.get("content")),
    };
    let urls = extras.map(|extras| extras.array_at("image_urls")).unwrap_or_default();
    parts.extend(
        urls.iter().filter_map(Json::as_text).filter_map(|url| media::url_part(media::ANY_IMAGE, url)),
    );
    parts
}

fn failed(kind: &str, json: &Json<'_>) -> bool {
    let code = json.get("exit_code").or_else(|| json.get("extras")?.get("exit_code"));
    kind == "error"
        || json.get("success").is_some_and(|success| success.raw == "false")
        || code.is_some_and(|code| !matches!(code.raw, "0" | "-1" | "null"))
}

/// Reads a running total. The prompt includes tokens that the cache read and wrote.
fn accumulated(usage: &Json<'_>) -> Usage {
    let (read, written) = (usage.count_at("cache_read_tokens"), usage.count_at("cache_write_tokens"));
    Usage {
        uncached: Tokens(usage.count_at("prompt_tokens").saturating_sub(read.saturating_add(written))),
        cache_read: Tokens(read),
        cache_write: Tokens(written),
        cache_write_hour: Tokens(0),
        output: Tokens(usage.count_at("completion_tokens")),
    }
}

fn less(total: Usage, before: Usage) -> Usage {
    let less = |total: Tokens, before: Tokens| Tokens(total.0.saturating_sub(before.0));
    Usage {
        uncached: less(total.uncached, before.uncached),
        cache_read: less(total.cache_read, before.cache_read),
        cache_write: less(total.cache_write, before.cache_write),
        cache_write_hour: Tokens(0),
        output: less(total.output, before.output),
    }
}
