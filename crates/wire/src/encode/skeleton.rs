//! The request around the history: the settings' raw form with everything filled in again.
//!
//! A value that was taken out left a `null`, which is filled from the newest event of its kind. An instruction that
//! is newer than the settings counts even if they have no place for it; one that is older counts only if they kept
//! its place, since a client that stopped sending its tools wants none.

use epitome_core::{Fact, Part, event::Instruction};

use super::{Completion, Encoded, Entry, History, Layout, Placed, Written, portable::Portable};
use crate::{
    format::Format,
    json::{Json, quoted},
    request::Keys,
    tools,
};

/// What stands beside the history.
pub(super) struct Head<'a> {
    pub(super) settings: Option<Entry<'a>>,
    /// The system prompt, with what other formats say as their first messages.
    pub(super) system: Vec<Entry<'a>>,
    pub(super) tools: Option<Entry<'a>>,
}

impl Head<'_> {
    /// Whether `setting` is set to something.
    pub(super) fn has(&self, setting: &str) -> bool {
        let settings = self.settings.as_ref().and_then(|entry| entry.own.as_ref());
        settings.and_then(|settings| settings.get(setting)).is_some_and(|value| !value.is_null())
    }
}

/// Writes the whole request.
pub(super) fn fill(format: Format, head: &Head<'_>, mut history: History, completion: Completion) -> Encoded {
    let keys = Keys::of(format);
    let settings = head.settings.as_ref().and_then(|entry| entry.own.as_ref()).filter(|own| own.is_object());
    let mut body = Body { settings, edits: Vec::new(), added: Vec::new() };
    if let Some(last) = head.system.last() {
        match keys.system {
            Some(key) => body.offer(key, last, head, system(&head.system)),
            None => history.messages.splice(0..0, system_message(&head.system)).for_each(drop),
        }
    }
    if let Some(entry) = &head.tools {
        body.offer(keys.tools, entry, head, tool_list(format, entry));
    }
    // A history of which nothing is left is still a list.
    let emptied = completion == Completion::Legal && body.place(keys.history).is_some_and(Json::is_null);
    if !history.messages.is_empty() || emptied {
        body.put(keys.history, Value::History(history));
    }
    body.written()
}

/// A request in the making.
struct Body<'s, 'a> {
    settings: Option<&'s Json<'a>>,
    /// Values to be replaced, by where they begin.
    edits: Vec<(&'s Json<'a>, Value)>,
    /// Members to be added at the end.
    added: Vec<(&'static str, Value)>,
}

enum Value {
    Json(String),
    History(History),
}

impl<'s, 'a> Body<'s, 'a> {
    fn place(&self, key: &str) -> Option<&'s Json<'a>> {
        self.settings.and_then(|settings| settings.get(key))
    }

    /// Puts an instruction in its place, if it still counts.
    fn offer(&mut self, key: &'static str, entry: &Entry<'_>, head: &Head<'_>, value: String) {
        let newer = head.settings.as_ref().is_none_or(|settings| settings.index < entry.index);
        if newer || self.place(key).is_some_and(Json::is_null) {
            self.put(key, Value::Json(value));
        }
    }

    fn put(&mut self, key: &'static str, value: Value) {
        match self.place(key) {
            Some(place) => self.edits.push((place, value)),
            None => self.added.push((key, value)),
        }
    }

    fn written(mut self) -> Encoded {
        let mut out = Encoded { body: String::new(), messages: Vec::new() };
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
            out.body.push_str(&quoted(key));
            out.body.push(':');
            value.write(&mut out);
        }
        out.body.push('}');
        out
    }
}

impl Value {
    fn write(&self, out: &mut Encoded) {
        let history = match self {
            Self::Json(json) => return out.body.push_str(json),
            Self::History(history) => history,
        };
        let (open, close) = if history.layout == Layout::Bare { ("", "") } else { ("[", "]") };
        out.body.push_str(open);
        for (index, message) in history.messages.iter().enumerate() {
            if index > 0 {
                out.body.push(',');
            }
            let start = out.body.len();
            out.body.push_str(&message.json);
            out.messages.push(Placed { bytes: start..out.body.len(), events: message.events.clone() });
        }
        out.body.push_str(close);
    }
}

fn system(entries: &[Entry<'_>]) -> String {
    match entries {
        [Entry { own: Some(own), .. }] => own.raw.to_owned(),
        _ => quoted(&system_text(entries)),
    }
}

/// A format without a place for the system prompt has it as its first message.
fn system_message(entries: &[Entry<'_>]) -> Option<Written> {
    let text = system_text(entries);
    let json = format!(r#"{{"role":"system","content":{}}}"#, quoted(&text));
    let events = entries.iter().map(|entry| entry.index).collect();
    (!text.is_empty()).then_some(Written { json, events })
}

fn system_text(entries: &[Entry<'_>]) -> String {
    let texts = entries.iter().map(|entry| Portable::of(entry.event).plain(entry.event.fact.parts()));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn tool_list(format: Format, entry: &Entry<'_>) -> String {
    if let Some(own) = &entry.own {
        return own.raw.to_owned();
    }
    let definitions = match &entry.event.fact {
        Fact::Instructed { what: Instruction::Tools, parts } => parts.as_slice(),
        _ => &[],
    };
    let tools: Vec<String> = definitions
        .iter()
        .filter_map(|part| match part {
            Part::Opaque { json, .. } => Some(json),
            _ => None,
        })
        .flat_map(|definition| tools::translated(definition, format))
        .collect();
    format!("[{}]", tools.join(","))
}
