//! The cost of a request, counted from its bytes: the check on every sum of a context.
//!
//! It does not know contexts. It reads the request as a provider would and counts its content: every text with the
//! meter's counter, media by their size, and the wrapping around messages, calls, results and tool definitions.
//! Members that a format adds to express the same content are wrapping, and not counted twice: the object around
//! arguments that are plain text, `{}` for none, the schema of a tool that takes text, the exit code beside a
//! command's output. Nor are marks for the provider's cache, which the model never sees.
//!
//! Of [`TokenOverhead::request`](epitome_core::meter::TokenOverhead) only the provider's own wrapping of a request is counted;
//! the rest of it pays for messages that a renderer had to add, and these are counted as the messages they are.

use epitome_core::{ContentPart, Event, Fact, Tokens, event::InstructionKind, meter::Meter};

use crate::{
    cache_marks,
    error::WireError,
    format::Format,
    json::Json,
    tools::{self, ToolDefinition, ToolParameters},
};

/// Counts a whole request.
///
/// ```
/// use std::sync::Arc;
///
/// use epitome_core::{TokenCounter, Tokens, meter::{Meter, TokenOverhead}};
/// use epitome_wire::{Format, render::recount};
///
/// struct Words;
/// impl TokenCounter for Words {
///     fn name(&self) -> &'static str {
///         "words"
///     }
///     fn count(&self, text: &str) -> Tokens {
///         Tokens(text.split_whitespace().count() as u64)
///     }
/// }
/// let meter = Meter::new(Arc::new(Words), TokenOverhead::default());
/// let request = r#"{"messages":[{"role":"user","content":"two words"}]}"#;
/// assert_eq!(recount(Format::Anthropic, request, &meter)?, Tokens(3 + 4 + 2));
/// # Ok::<(), epitome_wire::WireError>(())
/// ```
pub fn recount(format: Format, body: &str, meter: &Meter) -> Result<Tokens, WireError> {
    let events = format.decode_request(body)?;
    Ok(request_overhead(meter) + events.iter().map(|event| cost(event, meter)).sum())
}

/// Tokens that a provider adds around a request.
pub(crate) fn request_overhead(meter: &Meter) -> Tokens {
    Tokens(3).min(meter.overhead().request)
}

/// Counts one message or item.
pub(crate) fn message_cost(format: Format, json: &Json<'_>, meter: &Meter) -> Tokens {
    cost(&format.provider().read_item(json), meter)
}

fn cost(event: &Event, meter: &Meter) -> Tokens {
    let overhead = meter.overhead();
    let said = |parts: &[ContentPart]| parts.iter().map(|part| part_cost(part, meter)).sum::<Tokens>();
    match &event.fact {
        Fact::Instructed { what: InstructionKind::Settings, .. } => Tokens(0),
        Fact::Instructed { what: InstructionKind::Tools, parts } => {
            let around = if parts.is_empty() { Tokens(0) } else { overhead.tools };
            around + parts.iter().map(|part| tool_cost(part, meter)).sum()
        }
        // The system prompt is not a message.
        Fact::Instructed { what: InstructionKind::System, parts } => said(parts),
        Fact::ToolReturned { results, parts } => {
            let shell = shell_output(event, meter);
            let result = |parts: &[ContentPart]| shell.unwrap_or_else(|| said(parts)) + overhead.call;
            let results: Tokens = results.iter().map(|one| result(&one.parts)).sum();
            overhead.message + results + said(parts)
        }
        Fact::Carried { .. } => overhead.message + meter.text(&cache_marks::strip_marks(&event.raw.json)),
        fact => overhead.message + said(fact.parts()),
    }
}

pub(crate) fn part_cost(part: &ContentPart, meter: &Meter) -> Tokens {
    match part {
        ContentPart::ToolCall(call) => {
            let arguments = arguments_cost(&call.arguments, meter);
            meter.text(&call.name.0) + arguments + meter.overhead().call
        }
        ContentPart::Opaque { name, json } if name.starts_with("compaction") => compaction_cost(json, meter),
        ContentPart::Opaque { json, .. } => meter.text(&cache_marks::strip_marks(json)),
        ContentPart::Text { .. }
        | ContentPart::Refusal { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Media(_) => meter.part(part),
    }
}

/// Counts arguments by their content if they are an object only because the format requires one.
fn arguments_cost(arguments: &str, meter: &Meter) -> Tokens {
    let Ok(object) = Json::parse(arguments, "a call's arguments") else { return meter.text(arguments) };
    match object.members() {
        [] if object.is_object() => Tokens(0),
        [(key, value)] if matches!(&**key, "arguments" | "input") && value.as_text().is_some() => {
            meter.text(value.as_text().unwrap_or_default())
        }
        _ => meter.text(arguments),
    }
}

/// Counts a compaction by its content: words, and the part that only the provider can read.
fn compaction_cost(json: &str, meter: &Meter) -> Tokens {
    let Ok(block) = Json::parse(json, "a compaction") else { return meter.text(json) };
    let text = |key: &str| block.text_at(key).map_or(Tokens(0), |text| meter.text(text));
    let sealed = block.text_at("encrypted_content").map_or(Tokens(0), |sealed| meter.sealed(sealed));
    text("content") + text("summary") + sealed
}

/// Counts a tool definition by its name, its description and its parameters.
pub(crate) fn tool_cost(part: &ContentPart, meter: &Meter) -> Tokens {
    let ContentPart::Opaque { json, .. } = part else { return meter.overhead().tool + meter.part(part) };
    let Ok(definition) = Json::parse(json, "a tool definition") else { return meter.part(part) };
    let known = Some(&definition)
        .filter(|json| json.text_at("type") != Some("namespace"))
        .and_then(ToolDefinition::read);
    let said = known.map_or_else(
        || meter.text(&cache_marks::strip_marks(json)),
        |tool| {
            let takes = match tool.takes {
                ToolParameters::Object(tools::FREE_TEXT | tools::EMPTY_SCHEMA) => Tokens(0),
                ToolParameters::Object(schema) => meter.text(schema),
                ToolParameters::Text => grammar(&definition).map_or(Tokens(0), |grammar| meter.text(grammar)),
            };
            let described = tool.description.map_or(Tokens(0), |words| meter.text(words.trim_matches('"')));
            meter.text(tool.name) + described + takes
        },
    );
    meter.overhead().tool + said
}

/// Grammar of the text that a tool takes.
fn grammar<'j>(definition: &'j Json<'_>) -> Option<&'j str> {
    definition.get("custom").unwrap_or(definition).get("format").map(|grammar| grammar.raw)
}

/// Counts a command's output; `None` if the event is not one.
fn shell_output(event: &Event, meter: &Meter) -> Option<Tokens> {
    if !event.raw.json.contains("shell_call_output") {
        return None;
    }
    let item = Json::parse(&event.raw.json, "an item").ok()?;
    if item.text_at("type") != Some("shell_call_output") {
        return None;
    }
    let chunks = item.get("output").and_then(Json::as_array)?;
    let text = |chunk: &Json<'_>, key: &str| Some(meter.text(chunk.text_at(key)?));
    let chunk = |chunk: &Json<'_>| Some(text(chunk, "stdout")? + text(chunk, "stderr")?);
    chunks.iter().map(chunk).sum()
}
