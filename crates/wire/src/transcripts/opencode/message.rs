//! Conversion of one message of an OpenCode session to its events.

use std::{borrow::Cow, collections::HashMap};

use epitome_core::{
    ContentPart, Event, Fact, Seq, Tokens,
    event::{Compaction, CompactionTrigger, ReasoningSeal, Summary, Timestamp, ToolCall, ToolResult, Usage},
    id::AnswerId,
    media::Media,
};

use super::{
    super::{
        TranscriptFile,
        assemble::{carried_event, next, text_parts},
        raw_json,
    },
    DIALECT,
};
use crate::{json::Json, media};

/// The events of a session, as they are gathered.
#[derive(Debug, Default)]
pub(super) struct OpencodeLog {
    pub(super) events: Vec<Event>,
    /// First event of each message.
    starts: HashMap<String, Seq>,
    /// Compaction that was requested and has not happened yet.
    requested: Option<OpencodeCompaction>,
}

/// A requested compaction.
#[derive(Debug)]
struct OpencodeCompaction {
    at: Seq,
    trigger: CompactionTrigger,
    /// The first message that the agent meant to keep.
    tail: Option<String>,
}

/// A message with its parts.
#[derive(Debug)]
pub(super) struct OpencodeMessage<'a> {
    json: Json<'a>,
}

impl<'a> OpencodeMessage<'a> {
    /// Reads a message; `None` if it is not shaped like one.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let json = Json::parse(text, "an OpenCode message").ok()?;
        let shaped = json.get("info").is_some_and(Json::is_object)
            && json.get("parts").is_some_and(|parts| parts.as_array().is_some());
        shaped.then_some(Self { json })
    }

    /// Returns true if it is an answer that the model, or a tool, has not finished.
    pub(super) fn is_unfinished(&self) -> bool {
        let begun = self.role() == "assistant" && self.time("created").is_some();
        begun && self.time("completed").is_none() && self.error().is_none()
    }

    /// Returns true if it marks the place of a compaction.
    pub(super) fn asks_for_compaction(&self) -> bool {
        self.role() == "user" && self.compaction().is_some()
    }

    fn info(&self, key: &str) -> Option<&Json<'a>> {
        self.json.get("info")?.get(key)
    }

    fn role(&self) -> &str {
        self.info("role").and_then(Json::as_text).unwrap_or_default()
    }

    fn id(&self) -> Option<&str> {
        self.info("id").and_then(Json::as_text)
    }

    fn time(&self, key: &str) -> Option<Timestamp> {
        time(self.info("time")?.get(key)?)
    }

    fn error(&self) -> Option<&Json<'a>> {
        self.info("error").filter(|error| error.is_object())
    }

    fn parts(&self) -> &[Json<'a>] {
        self.json.array_at("parts")
    }

    fn compaction(&self) -> Option<&Json<'a>> {
        self.parts().iter().find(|part| kind(part) == "compaction")
    }

    fn is_summary(&self) -> bool {
        self.info("summary").is_some_and(|summary| summary.raw == "true")
    }

    /// The message as it was when it was first complete, without members that OpenCode adds later.
    fn raw(&self) -> Cow<'a, str> {
        let whole = self.json.raw;
        let mut later: Vec<_> = self.parts().iter().filter_map(|part| pruned(whole, part)).collect();
        if let Some(info) = self.json.get("info")
            && self.role() == "user"
        {
            later.extend(raw_json::member_range(whole, info, "summary"));
        }
        raw_json::cut(whole, later)
    }
}

impl OpencodeLog {
    /// Takes the next message.
    pub(super) fn message(&mut self, index: usize, text: &str, reading: &mut TranscriptFile) {
        let Some(message) = OpencodeMessage::parse(text) else {
            reading.warn(format!("message {index} is not shaped like one; it was carried as it is"));
            self.events.push(carried_event(DIALECT, text, "message").from_origin(format!("#{index}")));
            return;
        };
        let origin = message.id().map_or_else(|| format!("#{index}"), str::to_owned);
        self.starts.insert(origin.clone(), next(&self.events));
        match message.role() {
            "user" => self.user(&message, &origin, reading),
            "assistant" if message.is_summary() => self.summary(&message, &origin, reading),
            "assistant" => self.assistant(&message, &origin, reading),
            role => {
                reading
                    .warn(format!("message {origin} has the unknown role `{role}`; it was carried as it is"));
                self.events.push(carried_event(DIALECT, text, role).from_origin(origin));
            }
        }
    }

    fn user(&mut self, message: &OpencodeMessage<'_>, origin: &str, reading: &mut TranscriptFile) {
        let (added, own): (Vec<&Json<'_>>, Vec<&Json<'_>>) =
            message.parts().iter().partition(|part| kind(part) == "text" && is_true(part, SYNTHETIC));
        let parts: Vec<ContentPart> = own.into_iter().filter_map(|part| asked(part, reading)).collect();
        let event = |fact| {
            Event::native(DIALECT, message.raw(), fact).at(message.time("created")).from_origin(origin)
        };
        let said = (!parts.is_empty()).then(|| next(&self.events));
        if said.is_some() {
            self.events.push(event(Fact::UserSaid { parts }));
        }
        self.added(message, origin, &added, said, reading);
        if let Some(part) = message.compaction() {
            let trigger = trigger(part);
            let tail = part.text_at("tail_start_id").map(str::to_owned);
            self.requested = Some(OpencodeCompaction { at: next(&self.events), trigger, tail });
            self.events.push(event(Fact::CompactionRequested { trigger, focus: None }));
        }
    }

    /// Logs text that OpenCode wrote into a user message by itself: the content of attached files, or the prompt to
    /// continue. The model saw it, but these are not the user's words.
    fn added(
        &mut self,
        message: &OpencodeMessage<'_>,
        origin: &str,
        added: &[&Json<'_>],
        beside: Option<Seq>,
        reading: &mut TranscriptFile,
    ) {
        let parts: Vec<ContentPart> = added.iter().filter_map(|part| asked(part, reading)).collect();
        if parts.is_empty() {
            return;
        }
        // Beside the user's words the raw message is kept with those.
        let (raw, origin) = match beside {
            Some(_) => {
                let raws: Vec<&str> = added.iter().map(|part| part.raw).collect();
                (Cow::Owned(raw_json::join_values(&raws)), format!("{origin}/{SYNTHETIC}"))
            }
            None => (message.raw(), origin.to_owned()),
        };
        let fact = Fact::Injected { hook: SYNTHETIC.to_owned(), beside, parts };
        let event = Event::native(DIALECT, raw, fact).at(message.time("created"));
        self.events.push(event.from_origin(origin));
    }

    /// The answer to a request for a compaction.
    fn summary(&mut self, message: &OpencodeMessage<'_>, origin: &str, reading: &mut TranscriptFile) {
        let texts = message.parts().iter().filter(|part| kind(part) == "text");
        let texts: Vec<&str> = texts.filter_map(|part| part.text_at("text")).collect();
        let request = self.requested.take();
        if message.error().is_some() || texts.iter().all(|text| text.is_empty()) {
            reading.skip("failed compaction");
            return;
        }
        let end = request.as_ref().map_or_else(|| next(&self.events), |request| request.at).previous();
        let tail = request.as_ref().and_then(|request| request.tail.as_deref());
        let first_kept = tail.and_then(|tail| self.starts.get(tail)).copied().filter(|kept| *kept <= end);
        if let Some(tail) = tail
            && first_kept.is_none()
        {
            reading.warn(format!(
                "compaction {origin} keeps messages from {tail} on, which is not there before it"
            ));
        }
        let compaction = Compaction {
            summary: Summary::Text(texts.join("\n\n")),
            through: first_kept.map_or(end, Seq::previous),
            first_kept,
            tokens_before: None,
            tokens_after: None,
            trigger: request.map_or(CompactionTrigger::Unknown, |request| request.trigger),
        };
        let event = Event::native(DIALECT, message.raw(), Fact::Compacted(compaction));
        self.events.push(event.at(message.time("completed")).from_origin(origin));
        for part in message.parts().iter().filter(|part| kind(part) == "step-finish") {
            self.usage(part, message, &origin.into());
        }
    }

    fn assistant(&mut self, message: &OpencodeMessage<'_>, origin: &str, reading: &mut TranscriptFile) {
        let before = self.events.len();
        let steps = steps(message.parts());
        for (number, step) in (1..).zip(&steps) {
            let answer = if number == 1 { origin.to_owned() } else { format!("{origin}/{number}") };
            let raw = match steps.len() {
                1 => message.raw().into_owned(),
                _ => step_raw(message, number, step),
            };
            self.step(message, step, &answer.into(), raw, reading);
        }
        if self.events.len() == before {
            let name = message.error().and_then(|error| error.text_at("name"));
            reading.skip(&name.map_or("empty answer".to_owned(), |name| format!("empty answer: {name}")));
            return;
        }
        let reported = message.parts().iter().any(|part| kind(part) == "step-finish");
        if !reported
            && let Some(info) = message.json.get("info")
            && used(info).is_some_and(|usage| usage != Usage::default())
        {
            self.usage(info, message, &origin.into());
        }
    }

    /// Logs one call of the model, the results of its tools, and its usage.
    fn step(
        &mut self,
        message: &OpencodeMessage<'_>,
        step: &[Json<'_>],
        answer: &AnswerId,
        raw: String,
        reading: &mut TranscriptFile,
    ) {
        let parts: Vec<ContentPart> = step.iter().filter_map(|part| answered(part, reading)).collect();
        if !parts.is_empty() {
            let model = message.info("modelID").and_then(Json::as_text).map(Into::into);
            let fact = Fact::AssistantSaid { answer: Some(answer.clone()), model, parts };
            let event = Event::native(DIALECT, raw, fact);
            self.events.push(event.at(message.time("created")).from_origin(answer.0.clone()));
        }
        let returned: Vec<(&Json<'_>, ToolResult)> =
            step.iter().filter_map(|part| Some((part, returned(part, reading)?))).collect();
        if let Some((first, _)) = returned.first() {
            let raws: Vec<Cow<'_, str>> = returned.iter().map(|(part, _)| settled_raw(part)).collect();
            let ended =
                returned.iter().filter_map(|(part, _)| time(part.get("state")?.get("time")?.get("end")?));
            let time = ended.max();
            let origin = first.text_at("id").map_or_else(|| format!("{answer}/results"), str::to_owned);
            let results = returned.into_iter().map(|(_, result)| result).collect();
            let fact = Fact::ToolReturned { results, parts: Vec::new() };
            self.events.push(
                Event::native(DIALECT, raw_json::join_values(&raws), fact).at(time).from_origin(origin),
            );
        }
        for part in step.iter().filter(|part| kind(part) == "step-finish") {
            self.usage(part, message, answer);
        }
    }

    fn usage(&mut self, report: &Json<'_>, message: &OpencodeMessage<'_>, answer: &AnswerId) {
        let Some(usage) = used(report) else { return };
        let model = message.info("modelID").and_then(Json::as_text).map(Into::into);
        let fact = Fact::UsageReported { answer: Some(answer.clone()), model, usage };
        let origin = report.text_at("id").unwrap_or(&answer.0).to_owned();
        let event = Event::native(DIALECT, report.raw, fact);
        self.events.push(event.at(message.time("completed")).from_origin(origin));
    }
}

/// OpenCode's name for text that it writes itself.
const SYNTHETIC: &str = "synthetic";

/// Content of a part of a user message, as the model sees it.
fn asked(part: &Json<'_>, reading: &mut TranscriptFile) -> Option<ContentPart> {
    match kind(part) {
        // A text marked as ignored is for the person's eyes only.
        "text" if is_true(part, "ignored") => {
            reading.skip("ignored text");
            None
        }
        "text" => part.text_at("text").filter(|text| !text.is_empty()).map(ContentPart::text),
        // The content of a text file or a folder stands beside it, as synthetic text.
        "file" if matches!(part.text_at("mime"), Some("text/plain" | "application/x-directory")) => None,
        "file" => Some(file(part, reading)),
        "subtask" => part.text_at("prompt").map(ContentPart::text),
        "compaction" | "agent" | "snapshot" | "patch" | "step-start" | "step-finish" => None,
        other => Some(ContentPart::Opaque { name: other.to_owned(), json: part.raw.to_owned() }),
    }
}

/// Content of a part of an assistant message.
fn answered(part: &Json<'_>, reading: &mut TranscriptFile) -> Option<ContentPart> {
    match kind(part) {
        "text" => part.text_at("text").filter(|text| !text.is_empty()).map(ContentPart::text),
        "reasoning" => reasoning(part),
        "tool" => Some(ContentPart::ToolCall(call(part))),
        "file" => Some(file(part, reading)),
        "step-start" | "step-finish" | "snapshot" | "patch" | "compaction" => None,
        "retry" => {
            reading.skip("retry");
            None
        }
        other => Some(ContentPart::Opaque { name: other.to_owned(), json: part.raw.to_owned() }),
    }
}

/// Reasoning, with the signature that its provider requires when it is sent back.
fn reasoning(part: &Json<'_>) -> Option<ContentPart> {
    let text = part.text_at("text").unwrap_or_default().to_owned();
    let providers = part.get("metadata").map(Json::members).unwrap_or_default();
    let seal = providers.iter().find_map(|(_, provider)| {
        let text = |key: &str| provider.text_at(key).map(str::to_owned);
        let hidden = || text("reasoningEncryptedContent").or_else(|| text("redactedData"));
        text("signature").map(ReasoningSeal::Signature).or_else(|| hidden().map(ReasoningSeal::Encrypted))
    });
    (!text.is_empty() || seal.is_some()).then_some(ContentPart::Reasoning { text, seal })
}

fn call(part: &Json<'_>) -> ToolCall {
    let id = part.text_at("callID").or_else(|| part.text_at("id")).unwrap_or_default();
    let input = part.get("state").and_then(|state| state.get("input"));
    let arguments = input.map_or_else(|| "{}".to_owned(), |input| raw_json::compact(input.raw));
    ToolCall::function(id, part.text_at("tool").unwrap_or_default(), arguments)
}

/// Result in a tool part; `None` if it is not one, or has not ended.
fn returned(part: &Json<'_>, reading: &mut TranscriptFile) -> Option<ToolResult> {
    if kind(part) != "tool" {
        return None;
    }
    let state = part.get("state")?;
    let (text, error) = match state.text_at("status")? {
        "completed" => (state.text_at("output"), false),
        "error" => (state.text_at("error"), true),
        _ => return None,
    };
    let mut parts = text_parts(text.unwrap_or_default());
    parts.extend(state.array_at("attachments").iter().map(|attachment| file(attachment, reading)));
    let ToolCall { id, name, .. } = call(part);
    Some(ToolResult { call: id, name: Some(name), parts, error })
}

fn file(part: &Json<'_>, reading: &mut TranscriptFile) -> ContentPart {
    let mime = part.text_at("mime").unwrap_or_default();
    let url = part.text_at("url").unwrap_or_default();
    media::url_part(mime, url).unwrap_or_else(|| {
        let name = part.text_at("filename").unwrap_or("a file");
        reading.warn(format!("the data of {name} is not base64; it stays in the raw JSON only"));
        ContentPart::Media(Media::elsewhere(mime, name))
    })
}

/// The parts of each call of the model: a step begins at its mark. Parts before the first mark belong to the first
/// step.
fn steps<'j, 'a>(parts: &'j [Json<'a>]) -> Vec<&'j [Json<'a>]> {
    let marks =
        parts.iter().enumerate().filter(|(_, part)| kind(part) == "step-start").map(|(index, _)| index);
    let mut steps = Vec::new();
    let mut from = 0;
    for mark in marks.skip(1) {
        steps.push(&parts[from..mark]);
        from = mark;
    }
    steps.push(&parts[from..]);
    steps
}

/// The message with only the parts of one step. Its other members stay with the first step: repeated for each, they
/// could be larger than all the steps together.
fn step_raw(message: &OpencodeMessage<'_>, number: usize, step: &[Json<'_>]) -> String {
    let info = message.json.get("info").filter(|_| number == 1);
    let info = info.map_or_else(String::new, |info| format!("\"info\":{},", info.raw));
    let parts: Vec<Cow<'_, str>> = step.iter().map(settled_raw).collect();
    format!("{{{info}\"parts\":[{}]}}", parts.join(","))
}

/// A part without the mark that its output was pruned.
fn settled_raw<'a>(part: &Json<'a>) -> Cow<'a, str> {
    raw_json::cut(part.raw, pruned(part.raw, part).into_iter().collect())
}

/// Position in `whole` of the mark that a part's output was pruned.
fn pruned(whole: &str, part: &Json<'_>) -> Option<std::ops::Range<usize>> {
    raw_json::member_range(whole, part.get("state")?.get("time")?, "compacted")
}

/// Reads usage. Input leaves out tokens that the cache read and wrote, and output leaves out reasoning: in real
/// sessions the five numbers add up to `total`.
fn used(report: &Json<'_>) -> Option<Usage> {
    let tokens = report.get("tokens").filter(|tokens| tokens.is_object())?;
    let cache = |key: &str| tokens.get("cache").map_or(0, |cache| cache.count_at(key));
    Some(Usage {
        uncached: Tokens(tokens.count_at("input")),
        cache_read: Tokens(cache("read")),
        cache_write: Tokens(cache("write")),
        cache_write_hour: Tokens(0),
        output: Tokens(tokens.count_at("output")) + Tokens(tokens.count_at("reasoning")),
    })
}

fn trigger(compaction: &Json<'_>) -> CompactionTrigger {
    if is_true(compaction, "overflow") {
        CompactionTrigger::Overflow
    } else if is_true(compaction, "auto") {
        CompactionTrigger::Threshold
    } else {
        CompactionTrigger::Manual
    }
}

fn kind<'j>(part: &'j Json<'_>) -> &'j str {
    part.text_at("type").unwrap_or_default()
}

fn is_true(part: &Json<'_>, key: &str) -> bool {
    part.get(key).is_some_and(|value| value.raw == "true")
}

fn time(milliseconds: &Json<'_>) -> Option<Timestamp> {
    i64::try_from(milliseconds.as_count()?).ok().map(Timestamp)
}
