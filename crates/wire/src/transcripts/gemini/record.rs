//! Conversion of one record of a Gemini CLI session to facts.
//!
//! The agent writes an answer again when it gains calls, results or token counts, so of each record only the new
//! parts are logged. Calls are logged one by one, each followed by its result: that order holds however the record
//! grows.

use std::collections::HashSet;

use epitome_core::{
    ContentPart, Fact, Tokens,
    event::{InstructionKind, ReasoningSeal, ToolCall, ToolResult, Usage},
    id::{AnswerId, ModelName},
};

use crate::{
    decode_parts::opaque_part,
    is_project_preamble,
    json::{Json, JsonValue},
    media,
    transcripts::raw_json::compact,
};

/// Parts of one message that are in the log.
#[derive(Debug, Default)]
pub(super) struct GeminiLoggedParts {
    thoughts: usize,
    content: bool,
    calls: HashSet<String>,
    usage: Option<Usage>,
}

/// A fact and the value it comes from.
pub(super) type GeminiFact<'a> = (Fact, &'a str);

/// Content of a user's record. `returned` are the calls whose results are in the log: the agent repeats them when it
/// writes its whole context anew.
pub(super) fn user_fact<'a>(record: &Json<'a>, returned: &mut HashSet<String>) -> Option<GeminiFact<'a>> {
    let pieces = content(record);
    let results: Vec<ToolResult> = pieces.iter().filter_map(|piece| result(piece)).collect();
    let answers = !results.is_empty();
    let results: Vec<ToolResult> =
        results.into_iter().filter(|result| returned.insert(result.call.0.clone())).collect();
    let parts: Vec<ContentPart> = pieces
        .iter()
        .filter(|piece| piece.get("functionResponse").is_none())
        .map(|piece| part(piece))
        .collect();
    let preamble =
        |part: &ContentPart| matches!(part, ContentPart::Text { text } if is_project_preamble(text));
    let fact = if !results.is_empty() {
        Fact::ToolReturned { results, parts }
    } else if answers && parts.is_empty() {
        return None;
    } else if parts.iter().any(preamble) {
        Fact::Instructed { what: InstructionKind::Project, parts }
    } else {
        Fact::UserSaid { parts }
    };
    Some((fact, record.raw))
}

/// Parts of an answer's record that are not in the log yet.
pub(super) fn answer_facts<'a>(
    record: &Json<'a>,
    told: &mut GeminiLoggedParts,
    returned: &mut HashSet<String>,
) -> Vec<GeminiFact<'a>> {
    let answer = record.text_at("id").map(AnswerId::from);
    let model = record.text_at("model").map(ModelName::from);
    let said = |parts| Fact::AssistantSaid { answer: answer.clone(), model: model.clone(), parts };
    let mut news = Vec::new();
    for thought in record.array_at("thoughts").iter().skip(told.thoughts) {
        told.thoughts += 1;
        news.push((said(vec![ContentPart::Reasoning { text: thinking(thought), seal: None }]), thought.raw));
    }
    let calls = record.array_at("toolCalls");
    if !told.content {
        // If the calls are listed, those in the content are the same ones.
        let listed = |piece: &&&Json<'_>| calls.is_empty() || piece.get("functionCall").is_none();
        let pieces = content(record);
        let parts: Vec<ContentPart> = pieces.iter().filter(listed).map(|piece| part(piece)).collect();
        if let Some(content) = record.get("content").filter(|_| !parts.is_empty()) {
            told.content = true;
            news.push((said(parts), content.raw));
        }
    }
    if let Some(tokens) = record.get("tokens").filter(|tokens| tokens.is_object())
        && let usage = usage(tokens)
        && told.usage.replace(usage) != Some(usage)
    {
        let fact = Fact::UsageReported { answer: answer.clone(), model: model.clone(), usage };
        news.push((fact, tokens.raw));
    }
    for call in calls {
        news.extend(called(call, told).map(|part| (said(vec![part]), call.raw)));
        news.extend(came_back(call, returned));
    }
    news
}

/// The text of a state snapshot, which stands for everything before it.
pub(super) fn snapshot(record: &Json<'_>) -> Option<String> {
    let pieces = content(record);
    let texts: Vec<&str> = pieces.iter().filter_map(|piece| text(piece)).collect();
    let text = texts.join("\n");
    text.contains("<state_snapshot>").then_some(text)
}

fn called(call: &Json<'_>, told: &mut GeminiLoggedParts) -> Option<ContentPart> {
    let id = call.text_at("id").unwrap_or_default();
    if !told.calls.insert(id.to_owned()) {
        return None;
    }
    let name = call.text_at("name").unwrap_or_default();
    let arguments = call.get("args").map_or_else(|| "{}".to_owned(), |given| compact(given.raw));
    Some(ContentPart::ToolCall(ToolCall::function(id, name, arguments)))
}

/// A listed call's result, once it has one.
fn came_back<'a>(call: &Json<'a>, returned: &mut HashSet<String>) -> Option<GeminiFact<'a>> {
    let status = call.text_at("status").unwrap_or_default();
    let value = call.get("result").filter(|result| !result.is_null());
    if value.is_none() && !matches!(status, "success" | "error" | "cancelled") {
        return None;
    }
    let id = call.text_at("id").unwrap_or_default();
    if !returned.insert(id.to_owned()) {
        return None;
    }
    let pieces = value.map(elements).unwrap_or_default();
    let failed = pieces.iter().any(|piece| result(piece).is_some_and(|result| result.error));
    let parts = pieces
        .iter()
        .flat_map(|piece| result(piece).map_or_else(|| vec![part(piece)], |result| result.parts));
    let result = ToolResult {
        call: id.into(),
        name: call.text_at("name").map(Into::into),
        parts: parts.collect(),
        error: failed || matches!(status, "error" | "cancelled"),
    };
    let raw = value.map_or(call.raw, |value| value.raw);
    Some((Fact::ToolReturned { results: vec![result], parts: Vec::new() }, raw))
}

/// Reads a function response: the tool's output, as text if it uses the usual members.
fn result(piece: &Json<'_>) -> Option<ToolResult> {
    let answer = piece.get("functionResponse")?;
    let response = answer.get("response");
    let member = |key: &str| response.and_then(|response| response.get(key));
    let text = |value: &Json<'_>| ContentPart::text(value.as_text().unwrap_or(value.raw));
    let written = member("output").or_else(|| member("error")).or(response);
    let beside = answer.array_at("parts").iter().map(part);
    Some(ToolResult {
        call: answer.text_at("id").or_else(|| answer.text_at("name")).unwrap_or_default().into(),
        name: answer.text_at("name").map(Into::into),
        parts: written.map(text).into_iter().chain(beside).collect(),
        error: member("output").is_none() && member("error").is_some(),
    })
}

fn part(piece: &Json<'_>) -> ContentPart {
    let known = match (text(piece), piece.get("functionCall")) {
        (Some(thought), _)
            if matches!(piece.get("thought").map(|flag| &flag.value), Some(JsonValue::Bool(true))) =>
        {
            let seal = piece
                .text_at("thoughtSignature")
                .map(|signature| ReasoningSeal::Signature(signature.to_owned()));
            Some(ContentPart::Reasoning { text: thought.to_owned(), seal })
        }
        (Some(text), _) => Some(ContentPart::text(text)),
        (None, Some(call)) => call.text_at("name").map(|name| {
            let arguments = call.get("args").map_or_else(|| "{}".to_owned(), |given| compact(given.raw));
            ContentPart::ToolCall(ToolCall::function(call.text_at("id").unwrap_or(name), name, arguments))
        }),
        (None, None) => medium(piece),
    };
    known.unwrap_or_else(|| opaque_part(piece, "part"))
}

fn medium(piece: &Json<'_>) -> Option<ContentPart> {
    let mime = |data: &Json<'_>| data.text_at("mimeType").unwrap_or_default().to_owned();
    if let Some(data) = piece.get("inlineData") {
        return media::inline_part(&mime(data), data.text_at("data")?);
    }
    let file = piece.get("fileData")?;
    Some(media::linked_part(&mime(file), file.text_at("fileUri")?))
}

fn text<'j>(piece: &'j Json<'_>) -> Option<&'j str> {
    piece.as_text().or_else(|| piece.text_at("text"))
}

fn thinking(thought: &Json<'_>) -> String {
    let pieces = ["subject", "description"].into_iter().filter_map(|key| thought.text_at(key));
    let text = pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>().join("\n");
    if text.is_empty() { thought.as_text().unwrap_or(thought.raw).to_owned() } else { text }
}

/// The pieces of a record's content: text, a part, or a list of those. Empty text is none.
fn content<'j, 'a>(record: &'j Json<'a>) -> Vec<&'j Json<'a>> {
    let pieces = record.get("content").map(elements).unwrap_or_default();
    pieces.into_iter().filter(|piece| !piece.is_null() && text(piece) != Some("")).collect()
}

fn elements<'j, 'a>(value: &'j Json<'a>) -> Vec<&'j Json<'a>> {
    value.as_array().map_or_else(|| vec![value], |elements| elements.iter().collect())
}

/// Reads usage. Input includes tokens that the cache read, and leaves out those that tools put into the prompt;
/// thoughts come on top of output.
fn usage(tokens: &Json<'_>) -> Usage {
    let (input, cached) = (tokens.count_at("input"), tokens.count_at("cached"));
    Usage {
        uncached: Tokens(input.saturating_sub(cached).saturating_add(tokens.count_at("tool"))),
        cache_read: Tokens(cached),
        output: Tokens(tokens.count_at("output").saturating_add(tokens.count_at("thoughts"))),
        ..Usage::default()
    }
}
