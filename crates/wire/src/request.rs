//! Reads a whole request into events.

use std::collections::HashMap;

use epitome_core::{
    ContentPart, Event, Fact,
    event::{InstructionKind, RawDialect},
    id::{AnswerId, ModelName},
};

use crate::{
    decode_parts,
    error::WireError,
    format::Format,
    json::{self, Json},
    normal_digest, openai_responses, preamble,
};

/// Names of a request's members in a format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestKeys {
    /// The history.
    pub(crate) history: &'static str,
    /// The content of a message.
    pub(crate) content: &'static str,
    /// The system prompt, if it is a member of its own.
    pub(crate) system: Option<&'static str>,
    /// The tool definitions.
    pub(crate) tools: &'static str,
}

impl RequestKeys {
    pub(crate) fn of(format: Format) -> Self {
        format.facts().keys
    }
}

/// Names of a format's bodies in error messages.
#[derive(Debug)]
pub(crate) struct BodyLabels {
    pub(crate) request: &'static str,
    pub(crate) response: &'static str,
}

/// Reads a request. A history that is not a list stays in the settings.
pub(crate) fn decode(format: Format, json: &str) -> Result<Vec<Event>, WireError> {
    let what = request_name(format);
    let request = Json::parse(json, what)?.require_object(what)?;
    let keys = RequestKeys::of(format);
    let said = |key: &'static str| request.get(key).filter(|value| !value.is_null());
    let system = keys.system.and_then(said);
    let tools = said(keys.tools).filter(|tools| tools.as_array().is_none_or(|tools| !tools.is_empty()));
    let history = said(keys.history).map(|value| (value, history(format, value)));
    let history = history.filter(|(_, events)| !events.is_empty());

    let taken = [system, tools, history.as_ref().map(|(value, _)| *value)];
    let blanks: Vec<_> = taken.into_iter().flatten().map(|value| (value, "null")).collect();
    let mut events = vec![settings(format, &json::replace_members(&request, &blanks))];
    events.extend(system.map(|system| system_event(format, system)));
    events.extend(tools.map(|tools| tools_event(format, tools)));
    events.extend(history.into_iter().flat_map(|(_, events)| events));
    Ok(events)
}

/// Name of a request in error messages.
pub(crate) fn request_name(format: Format) -> &'static str {
    format.facts().labels.request
}

/// Reads one message or item of a history.
pub(crate) fn read_item(format: Format, item: &Json<'_>) -> Event {
    format.provider().read_item(item)
}

/// Model that a request's settings ask for.
pub fn requested_model(event: &Event) -> Option<ModelName> {
    let Fact::Instructed { what: InstructionKind::Settings, .. } = event.fact else { return None };
    let settings = Json::parse(&event.raw.json, "settings").ok()?;
    let provider = Format::of_dialect(&event.raw.dialect).map(Format::provider);
    let model = settings.text_at("model")?;
    Some(ModelName::from(provider.map_or(model, |provider| provider.model_name(model))))
}

pub(crate) fn settings(format: Format, skeleton: &str) -> Event {
    let fact = Fact::Instructed { what: InstructionKind::Settings, parts: Vec::new() };
    let raw = epitome_core::event::RawJson { dialect: format.dialect(), json: skeleton.into() };
    Event { time: None, origin: None, fact, raw, normal: None }
}

pub(crate) fn system_event(format: Format, system: &Json<'_>) -> Event {
    let fact =
        Fact::Instructed { what: InstructionKind::System, parts: format.provider().system_parts(system) };
    let normal = normal_digest::instructions(&format.dialect(), system);
    decode_parts::event(format.dialect(), system, fact, Some(normal))
}

pub(crate) fn tools_event(format: Format, tools: &Json<'_>) -> Event {
    let parts = match tools.as_array() {
        Some(tools) => tools.iter().flat_map(|tool| format.provider().tool_parts(tool)).collect(),
        None => vec![decode_parts::opaque_part(tools, "tools")],
    };
    let fact = Fact::Instructed { what: InstructionKind::Tools, parts };
    decode_parts::event(format.dialect(), tools, fact, Some(normal_digest::tools(&format.dialect(), tools)))
}

fn history(format: Format, value: &Json<'_>) -> Vec<Event> {
    let messages = value.as_array().unwrap_or_default().iter();
    let mut events: Vec<Event> = match value.as_text() {
        Some(text) if format.facts().takes_bare_history => vec![bare_input(value, text)],
        _ => messages.map(|message| read_item(format, message)).collect(),
    };
    if format.facts().answer.is_items {
        name_answers(&mut events);
    }
    preamble::mark_preamble(&mut events);
    events
}

/// Reads an input that is only a string: the short way to write one user message, with the digest of that message.
pub(crate) fn bare_input(value: &Json<'_>, text: &str) -> Event {
    let item = bare_item(value.raw);
    let normal = openai_responses::item(&item).ok().and_then(|event| event.normal);
    let fact = Fact::UserSaid { parts: vec![ContentPart::text(text)] };
    decode_parts::event(RawDialect::OpenaiResponses, value, fact, normal)
}

/// Writes the item that a bare string stands for.
pub(crate) fn bare_item(literal: &str) -> String {
    format!(r#"{{"role":"user","content":{literal}}}"#)
}

/// Groups output items that follow each other as fragments of one answer, named after the first of them. Servers and
/// clients repeat ids, so a name that was given before is given again with a number.
fn name_answers(events: &mut [Event]) {
    let mut given: HashMap<String, u64> = HashMap::new();
    let mut current: Option<AnswerId> = None;
    for event in events {
        let derived = event.origin.clone().or_else(|| event.normal.map(|digest| digest.to_string()));
        let Fact::AssistantSaid { answer, .. } = &mut event.fact else {
            current = None;
            continue;
        };
        if current.is_none()
            && let Some(name) = derived
        {
            let times = given.entry(name.clone()).or_default();
            *times += 1;
            current = Some(if *times == 1 { name.into() } else { format!("{name}#{times}").into() });
        }
        answer.clone_from(&current);
    }
}
