//! Writes an answer as one message, whatever fragments it was logged in.

use std::{borrow::Cow, collections::HashMap};

use epitome_core::{ContentPart, Fact};

use super::{ChatWriter, ReasoningMember, call_json, filled, text_part};
use crate::{
    json::{self, Json, quote},
    normal_digest::CHAT_ECHOED_MEMBERS,
    openai_chat::{ChatPartIndices, REASONING_MEMBERS},
    write::{
        AlternatingRole, ShownFragment, SourceEvent, WrittenMessage, is_short,
        portable::{PortableEvent, PortablePiece},
    },
};

/// Writes an answer, its fragments joined; `None` if it has no content that can be written here.
pub(crate) fn write<'e>(
    fragments: &[ShownFragment<'e, 'e>],
    pen: ChatWriter<'e, '_>,
) -> Option<WrittenMessage> {
    let legal = pen.manner.is_legal();
    if legal && !fragments.iter().any(says_something) {
        return None;
    }
    let own: Option<Vec<Cow<'_, str>>> = fragments.iter().map(|fragment| own_json(fragment, pen)).collect();
    let json = match (own.as_deref(), fragments) {
        (Some([only]), [fragment]) if !is_named(fragment.entry) => Some(only.to_string()),
        (Some(own), _) => Some(joined(own)),
        (None, fragments) => synthesised(fragments, pen),
    }?;
    let calls = || {
        fragments
            .iter()
            .flat_map(ShownFragment::shown)
            .any(|(_, part)| matches!(part, ContentPart::ToolCall(_)))
    };
    let json = match pen.reasoning {
        ReasoningMember::WithCalls if calls() => with_reasoning(json),
        ReasoningMember::WithCalls | ReasoningMember::AsShown => json,
    };
    let events = fragments.iter().map(|fragment| fragment.entry.index).collect();
    Some(WrittenMessage { json, events, speaker: AlternatingRole::Assistant })
}

/// Returns true if a call has no id, so that its name stands for it.
pub(crate) fn is_called_by_name(entry: &SourceEvent<'_>, place: usize) -> bool {
    entry.own.as_ref().is_some_and(|own| ChatPartIndices::of(own).function_call == Some(place))
}

/// Returns true if there is content or a call: an answer without either would be refused. A call that this crate
/// could not read cannot be answered, and does not count.
fn says_something(fragment: &ShownFragment<'_, '_>) -> bool {
    let places = fragment.entry.own.as_ref().map(ChatPartIndices::of);
    let is_call = |place: usize| places.as_ref().is_some_and(|places| places.is_call(place));
    fragment.shown().any(|(place, part)| match part {
        ContentPart::Text { text } | ContentPart::Refusal { text } => !text.is_empty(),
        ContentPart::Reasoning { .. } => false,
        ContentPart::Opaque { .. } => !is_call(place),
        ContentPart::ToolCall(_) | ContentPart::Media(_) => true,
    })
}

/// Returns true if the answer has a name: then its message came from a response, or in fragments.
fn is_named(entry: &SourceEvent<'_>) -> bool {
    matches!(&entry.event.fact, Fact::AssistantSaid { answer: Some(_), .. })
}

/// The shown part of a message in this format, its values' bytes untouched; `None` if it is in another.
fn own_json<'e>(fragment: &ShownFragment<'e, 'e>, pen: ChatWriter<'e, '_>) -> Option<Cow<'e, str>> {
    let own = fragment.entry.own.as_ref()?;
    let view = ShownMessage { fragment, places: ChatPartIndices::of(own), pen };
    if view.is_whole() {
        return Some(if pen.manner.is_legal() { filled(own, "null").into() } else { own.raw.into() });
    }
    if view.places.count() != fragment.entry.parts().len() {
        // It is unknown which member shows which part.
        return None;
    }
    let members = own.members().iter();
    let members = members.filter_map(|(key, value)| Some((&**key, view.member(key, value)?)));
    Some(json::object(members).into())
}

/// Members that clients send back even if they are empty.
const ECHOED: [&str; 7] = [
    "refusal",
    "audio",
    "function_call",
    "reasoning_content",
    "annotations",
    "provider_specific_fields",
    "thinking_blocks",
];

/// Returns true if a member that shows no part stays with a message that is shown in part. Unknown members are
/// dropped: the part that paid for them may be gone.
fn is_wrapping(key: &str, value: &Json<'_>) -> bool {
    match key {
        "role" | "name" => is_short(value),
        key => ECHOED.contains(&key) && matches!(value.raw, "null" | "[]" | "{}" | "\"\""),
    }
}

/// The shown part of one message.
struct ShownMessage<'v, 'e> {
    fragment: &'v ShownFragment<'e, 'e>,
    places: ChatPartIndices,
    pen: ChatWriter<'e, 'v>,
}

impl ShownMessage<'_, '_> {
    /// Returns true if all of it leaves as it came.
    fn is_whole(&self) -> bool {
        let renamed = |place: usize| self.pen.ids.changed(self.fragment.entry, place).is_some();
        self.is_all_shown()
            && !self.places.calls.clone().any(renamed)
            && !self.fragment.entry.own.as_ref().is_some_and(|own| self.mends(own))
    }

    fn is_all_shown(&self) -> bool {
        (0..self.places.count()).all(|place| self.shows(place))
    }

    /// Returns true if a call has arguments that are not text.
    fn mends(&self, own: &Json<'_>) -> bool {
        let has_odd = |call: &Json<'_>| odd_arguments(call).is_some();
        self.pen.manner.is_legal() && own.array_at("tool_calls").iter().any(has_odd)
    }

    /// Returns true if the part at an index stays. A call that cannot be answered is refused, and dropped.
    fn shows(&self, place: usize) -> bool {
        let unreadable = || {
            let part = self.fragment.entry.parts().get(place);
            self.places.is_call(place) && !matches!(part, Some(ContentPart::ToolCall(_)))
        };
        self.fragment.shows(place) && !(self.pen.manner.is_legal() && unreadable())
    }

    fn member(&self, key: &str, value: &Json<'_>) -> Option<String> {
        let place = match key {
            "content" => return Some(self.content(value)),
            "tool_calls" => return self.calls(value),
            "reasoning_content" | "reasoning" | "reasoning_details" => self.places.reasoning,
            "refusal" => self.places.refusal,
            "audio" => self.places.audio,
            "function_call" => self.places.function_call,
            _ => None,
        };
        let is_shown = match place {
            Some(place) => self.shows(place),
            None => self.is_all_shown() || is_wrapping(key, value),
        };
        is_shown.then(|| value.raw.to_owned())
    }

    fn content(&self, value: &Json<'_>) -> String {
        let places = self.places.content.clone();
        let shown = places.clone().filter(|place| self.shows(*place));
        let parts = match value.as_array() {
            Some(parts) => {
                some_of(shown.filter_map(|place| Some(parts.get(place - places.start)?.raw.to_owned())))
            }
            None => (places.is_empty() || shown.count() > 0).then(|| value.raw.to_owned()),
        };
        parts.unwrap_or_else(|| "null".to_owned())
    }

    fn calls(&self, value: &Json<'_>) -> Option<String> {
        let places = self.places.calls.clone();
        let shown = places.clone().filter(|place| self.shows(*place));
        let Some(made) = value.as_array() else {
            return (places.is_empty() || shown.count() > 0).then(|| value.raw.to_owned());
        };
        some_of(shown.filter_map(|place| {
            let call = made.get(place - places.start)?;
            let id = self.pen.ids.changed(self.fragment.entry, place).map(quote);
            let renamed = call.get("id").zip(id.as_deref());
            // Arguments that a model wrote as an object are sent as the text of that object.
            let odd = odd_arguments(call).filter(|_| self.pen.manner.is_legal());
            let text = odd.map(|arguments| (arguments, quote(arguments.raw)));
            let text = text.as_ref().map(|(arguments, text)| (*arguments, text.as_str()));
            Some(json::replace_members(call, &renamed.into_iter().chain(text).collect::<Vec<_>>()))
        }))
    }
}

/// The arguments of a function call, if they are an object or a list instead of a text.
fn odd_arguments<'j>(call: &'j Json<'j>) -> Option<&'j Json<'j>> {
    let arguments = call.get("function")?.get("arguments")?;
    (arguments.is_object() || arguments.as_array().is_some()).then_some(arguments)
}

/// The same answer, with a member for its reasoning. An empty one means that there is none to return.
fn with_reasoning(answer: String) -> String {
    let Ok(read) = Json::parse(&answer, "an answer") else { return answer };
    if REASONING_MEMBERS.into_iter().any(|key| read.text_at(key).is_some()) {
        return answer;
    }
    let [key, _] = REASONING_MEMBERS;
    let mut members: Vec<(&str, String)> =
        read.members().iter().map(|(key, value)| (&**key, value.raw.to_owned())).collect();
    members.retain(|(known, _)| *known != key);
    members.push((key, quote("")));
    json::object(members.into_iter())
}

/// A list, unless it is empty.
fn some_of(elements: impl Iterator<Item = String>) -> Option<String> {
    let mut elements = elements.peekable();
    elements.peek()?;
    Some(json::list(elements))
}

/// Joins the fragments of one answer into one message that a request may hold: texts and calls are concatenated, and
/// of other members the last value counts.
fn joined(fragments: &[Cow<'_, str>]) -> String {
    let read = fragments.iter().filter_map(|fragment| Json::parse(fragment, "a fragment of an answer").ok());
    let read: Vec<Json<'_>> = read.collect();
    let mut keys: Vec<&str> = Vec::new();
    let mut values: HashMap<&str, Vec<&Json<'_>>> = HashMap::new();
    for (key, value) in read.iter().flat_map(Json::members) {
        if is_echoed(key, value) {
            let known = values.entry(key).or_default();
            if known.is_empty() {
                keys.push(key);
            }
            known.push(value);
        }
    }
    json::object(keys.into_iter().filter_map(|key| Some((key, combined(key, values.get(key)?)))))
}

fn is_echoed(key: &str, value: &Json<'_>) -> bool {
    let is_empty = value.is_null() || (key == "tool_calls" && value.as_array().is_some_and(<[_]>::is_empty));
    CHAT_ECHOED_MEMBERS.contains(&key) && (!is_empty || key == "content")
}

fn echoed(key: &str, value: &Json<'_>) -> String {
    match (key, value.get("id")) {
        ("audio", Some(id)) => format!(r#"{{"id":{}}}"#, id.raw),
        _ => value.raw.to_owned(),
    }
}

fn combined(key: &str, values: &[&Json<'_>]) -> String {
    let said: Vec<&&Json<'_>> =
        values.iter().filter(|value| !value.is_null() && value.as_text() != Some("")).collect();
    match (key, said.as_slice()) {
        (_, []) => values.first().map_or("null", |value| value.raw).to_owned(),
        (_, [only]) => echoed(key, only),
        ("content", several) => json::list(several.iter().flat_map(|content| match content.as_array() {
            Some(parts) => parts.iter().map(|part| part.raw.to_owned()).collect(),
            None => vec![text_part(content.raw)],
        })),
        ("tool_calls" | "reasoning_details", several) => {
            let elements = several.iter().filter_map(|value| value.as_array()).flatten();
            json::list(elements.map(|element| element.raw.to_owned()))
        }
        ("reasoning_content" | "reasoning" | "refusal", several) => {
            quote(&several.iter().filter_map(|value| value.as_text()).collect::<String>())
        }
        (_, [.., last]) => echoed(key, last),
    }
}

/// Writes an answer that came, at least in part, in another format.
fn synthesised<'e>(fragments: &[ShownFragment<'e, 'e>], pen: ChatWriter<'e, '_>) -> Option<String> {
    let (mut text, mut refusal, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for fragment in fragments {
        let portable = PortableEvent::of(fragment.entry, pen.manner.meter);
        for piece in portable.said_at(fragment.shown()) {
            match piece {
                PortablePiece::Call(call, place) => {
                    calls.push(call_json(call, pen.ids.changed(fragment.entry, place).unwrap_or(&call.id.0)));
                }
                PortablePiece::Refusal(said) => refusal.push(said.to_owned()),
                PortablePiece::Text(_) | PortablePiece::Medium { .. } => {
                    text.extend(piece.note().map(str::to_owned));
                }
            }
        }
    }
    let (text, refusal) = (text.join("\n"), refusal.join("\n"));
    if text.is_empty() && refusal.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() { "null".to_owned() } else { quote(&text) };
    let mut members = vec![("role", quote("assistant")), ("content", content)];
    if !refusal.is_empty() {
        members.push(("refusal", quote(&refusal)));
    }
    if !calls.is_empty() {
        members.push(("tool_calls", json::list(calls.into_iter())));
    }
    Some(json::object(members.into_iter()))
}
