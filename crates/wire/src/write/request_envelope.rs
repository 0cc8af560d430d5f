//! The request around the history: the settings' raw form with all values filled in again.
//!
//! A value that was taken out left a `null`, which is filled from the newest event of its kind. An instruction that
//! is newer than the settings counts even if they have no member for it; one that is older counts only if they kept
//! its member, since a client that stopped sending its tools wants none.

use std::ops::Range;

use epitome_core::{ContentPart, Fact, Tokens, event::InstructionKind};

use super::{
    AlternatingRole, HistoryLayout, SourceEvent, WriteOptions, WrittenHistory, WrittenMessage,
    portable::PortableEvent,
};
use crate::{
    format::Format,
    json::{Json, quote},
    request::bare_item,
    tools,
};

/// A written request.
pub(crate) struct AssembledRequest {
    pub(crate) body: String,
    /// Byte range of each message, and its entries.
    pub(crate) messages: Vec<(Range<usize>, Vec<usize>)>,
}

/// Parts of a request other than its history.
pub(crate) struct RequestHead<'e, 'a> {
    pub(crate) settings: Option<&'e SourceEvent<'a>>,
    /// The system prompt, with the leading system messages of other formats.
    pub(crate) system: Vec<&'e SourceEvent<'a>>,
    pub(crate) tools: Option<&'e SourceEvent<'a>>,
    /// Model to ask instead of the one in the settings.
    pub(crate) model: Option<&'a str>,
    /// Output limit, used if the format requires one and the settings have none.
    pub(crate) answer: Option<Tokens>,
}

impl RequestHead<'_, '_> {
    /// Returns true if `setting` has a value.
    pub(crate) fn has(&self, setting: &str) -> bool {
        let settings = self.settings.and_then(|entry| entry.own.as_ref());
        settings.and_then(|settings| settings.get(setting)).is_some_and(|value| !value.is_null())
    }
}

/// Writes the whole request.
pub(crate) fn write_request(
    format: Format,
    head: &RequestHead<'_, '_>,
    mut history: WrittenHistory,
    manner: WriteOptions<'_>,
) -> AssembledRequest {
    let provider = format.provider();
    let keys = provider.facts().keys;
    let settings = head.settings.and_then(|entry| entry.own.as_ref()).filter(|own| own.is_object());
    let mut body = RequestDraft { settings, edits: Vec::new(), added: Vec::new() };
    if let Some(model) = head.model {
        body.put("model", MemberValue::Json(provider.model_value(model)));
    }
    if let (Some(limit), Some(answer)) = (provider.facts().required_limit, head.answer)
        && !head.has(limit)
    {
        body.put(limit, MemberValue::Json(answer.to_string()));
    }
    if let Some(last) = head.system.last() {
        match (keys.system, system(format, &head.system, manner)) {
            (Some(key), SystemPlacement::Prompt(prompt)) => body.offer(key, last, head, prompt),
            (_, SystemPlacement::Prompt(message) | SystemPlacement::Message(message)) => {
                history.lead(WrittenMessage {
                    json: message,
                    events: head.system.iter().map(|entry| entry.index).collect(),
                    speaker: AlternatingRole::Other,
                });
            }
            (_, SystemPlacement::Nothing) => {}
        }
    }
    if let Some(entry) = head.tools {
        body.offer(keys.tools, entry, head, tool_list(format, entry));
    }
    // A history that became empty is still a list.
    let emptied = manner.is_legal() && body.place(keys.history).is_some_and(Json::is_null);
    if !history.messages.is_empty() || emptied {
        body.put(keys.history, MemberValue::History(history));
    }
    body.written()
}

impl WrittenHistory {
    /// Puts a message before all others.
    fn lead(&mut self, message: WrittenMessage) {
        if self.layout == HistoryLayout::Bare {
            for message in &mut self.messages {
                message.json = bare_item(&message.json);
            }
            self.layout = HistoryLayout::List;
        }
        self.messages.insert(0, message);
    }
}

/// A request while it is written.
struct RequestDraft<'s, 'a> {
    settings: Option<&'s Json<'a>>,
    /// Values to replace.
    edits: Vec<(&'s Json<'a>, MemberValue)>,
    /// Members to add at the end.
    added: Vec<(&'static str, MemberValue)>,
}

enum MemberValue {
    Json(String),
    History(WrittenHistory),
}

impl<'s, 'a> RequestDraft<'s, 'a> {
    fn place(&self, key: &str) -> Option<&'s Json<'a>> {
        self.settings.and_then(|settings| settings.get(key))
    }

    /// Fills in an instruction, if it still counts.
    fn offer(
        &mut self,
        key: &'static str,
        entry: &SourceEvent<'_>,
        head: &RequestHead<'_, '_>,
        value: String,
    ) {
        let newer = head.settings.is_none_or(|settings| settings.index < entry.index);
        if newer || self.place(key).is_some_and(Json::is_null) {
            self.put(key, MemberValue::Json(value));
        }
    }

    fn put(&mut self, key: &'static str, value: MemberValue) {
        match self.place(key) {
            Some(place) => self.edits.push((place, value)),
            None => self.added.push((key, value)),
        }
    }

    fn written(mut self) -> AssembledRequest {
        let mut out = AssembledRequest { body: String::new(), messages: Vec::new() };
        let raw = self.settings.map_or("{}", |settings| settings.raw);
        let is_empty = self.settings.is_none_or(|settings| settings.members().is_empty());
        self.edits.sort_by_key(|(place, _)| place.start);
        let mut from = 0;
        for (place, value) in &self.edits {
            out.body.push_str(raw.get(from..place.start).unwrap_or_default());
            value.write(&mut out);
            from = place.start + place.raw.len();
        }
        // Everything but the closing brace.
        out.body.push_str(raw.get(from..raw.len() - 1).unwrap_or_default());
        for (index, (key, value)) in self.added.iter().enumerate() {
            if index > 0 || !is_empty {
                out.body.push(',');
            }
            out.body.push_str(&quote(key));
            out.body.push(':');
            value.write(&mut out);
        }
        out.body.push('}');
        out
    }
}

impl MemberValue {
    fn write(&self, out: &mut AssembledRequest) {
        let history = match self {
            Self::Json(json) => return out.body.push_str(json),
            Self::History(history) => history,
        };
        let (open, close) = if history.layout == HistoryLayout::Bare { ("", "") } else { ("[", "]") };
        out.body.push_str(open);
        for (index, message) in history.messages.iter().enumerate() {
            if index > 0 {
                out.body.push(',');
            }
            let start = out.body.len();
            out.body.push_str(&message.json);
            out.messages.push((start..out.body.len(), message.events.clone()));
        }
        out.body.push_str(close);
    }
}

/// Place of a system prompt.
pub(crate) enum SystemPlacement {
    /// Its own member or, if the format has none, the first message.
    Prompt(String),
    /// A message in any case.
    Message(String),
    Nothing,
}

fn system(format: Format, entries: &[&SourceEvent<'_>], manner: WriteOptions<'_>) -> SystemPlacement {
    let provider = format.provider();
    if let [SourceEvent { own: Some(own), .. }] = entries
        && let Some(own) = provider.own_system(own, manner)
    {
        return SystemPlacement::Prompt(own);
    }
    let texts: Vec<String> = entries
        .iter()
        .flat_map(|entry| PortableEvent::of(entry, manner.meter).texts(entry.parts()))
        .filter(|text| !text.trim().is_empty())
        .collect();
    if texts.is_empty() { SystemPlacement::Nothing } else { provider.write_system(&texts) }
}

fn tool_list(format: Format, entry: &SourceEvent<'_>) -> String {
    if let Some(own) = &entry.own {
        return own.raw.to_owned();
    }
    let definitions = match &entry.event.fact {
        Fact::Instructed { what: InstructionKind::Tools, parts } => parts.as_slice(),
        _ => &[],
    };
    let tools: Vec<String> = definitions
        .iter()
        .filter_map(|part| match part {
            ContentPart::Opaque { json, .. } => Some(json),
            _ => None,
        })
        .flat_map(|definition| tools::translated(definition, format))
        .collect();
    format.provider().tool_list(&tools)
}
