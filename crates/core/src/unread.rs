//! Values of a message's JSON that none of its parts holds, and that are sent all the same.
//!
//! A reader takes from a message what it understands. The rest leaves with the bytes it came with: members it does not know,
//! known ones of another type, values where nobody expects any. A provider may read all of it, so it is counted, each value
//! with the part in whose block it stands. Only what the wrapping of a message pays for is free: names of kinds and roles,
//! ids, marks for a cache, and what a part is measured by otherwise, such as the bytes of an image.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    event::{Dialect, Event, Fact, Instruction, Part, Seal},
    media::Place,
};

/// What of an event pays for an unread value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payer {
    /// One of its results.
    Result(usize),
    /// One of its parts.
    Part(usize),
    /// The event as a whole: it has neither.
    Event,
}

/// Shows every unread value of an event to `see`, with what pays for it.
pub(crate) fn visit(event: &Event, see: &mut dyn FnMut(Payer, &str)) {
    if !leaves_as_it_came(event) {
        return;
    }
    let raw: &str = &event.raw.json;
    let mut walk = Walk::of(event);
    let mut scope = Scope::default();
    walk.value(None, raw.trim(), 0, &mut scope);
    let has_results = !event.fact.results().is_empty();
    let first = match (has_results, event.fact.parts()) {
        (true, _) => Payer::Result(0),
        (false, []) => Payer::Event,
        (false, _) => Payer::Part(0),
    };
    walk.found.extend(scope.rest.into_iter().map(|text| (scope.payer.unwrap_or(first), text)));
    for (payer, text) in &walk.found {
        see(*payer, text);
    }
}

/// Whether an event's raw form is what a provider gets. A record of an agent's own is written anew from its parts, and what
/// is carried is counted whole.
fn leaves_as_it_came(event: &Event) -> bool {
    let is_message = match &event.fact {
        Fact::Instructed { what, .. } => *what != Instruction::Settings,
        Fact::UserSaid { .. } | Fact::AssistantSaid { .. } | Fact::ToolReturned { .. } => true,
        _ => false,
    };
    let is_wire = match event.raw.dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Anthropic => true,
        Dialect::Epitome | Dialect::Native(_) => false,
    };
    is_message && is_wire
}

/// Members in which a reader looks for parts.
const CONTAINERS: [&str; 15] = [
    "content",
    "tool_calls",
    "function",
    "custom",
    "function_call",
    "source",
    "input_audio",
    "audio",
    "file",
    "image_url",
    "output",
    "outcome",
    "summary",
    "tools",
    "reasoning_details",
];

/// Members that say what something is or which one it is: the wrapping pays for them as long as they are short.
const FRAMING: [&str; 16] = [
    "type",
    "role",
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "status",
    "name",
    "namespace",
    "media_type",
    "detail",
    "format",
    "phase",
    "model",
    "object",
    "filename",
];

/// The longest value that the wrapping pays for; ids of calls have up to 64 letters.
const SHORT: usize = 80;

/// Members that ask a cache to keep what it has read, or repeat how likely each word was: no model sees them.
const UNSEEN: [&str; 3] = ["cache_control", "prompt_cache_breakpoint", "logprobs"];

/// Members that hold or name a medium.
const MEDIA: [&str; 8] = ["data", "url", "image_url", "file_data", "file_id", "file_url", "result", "id"];

/// Members whose values a reader may join: the pieces of reasoning, and what a command wrote.
const PIECES: [&str; 4] = ["text", "summary", "stdout", "stderr"];

/// How deep a value is looked into; what is deeper counts whole.
const DEEPEST: usize = 12;

/// What is found in a value until it is known which part it belongs to.
#[derive(Default)]
struct Scope<'r> {
    payer: Option<Payer>,
    rest: Vec<Cow<'r, str>>,
}

struct Walk<'e> {
    /// The texts of the parts, each as often as parts have it.
    known: HashMap<&'e str, VecDeque<Payer>>,
    /// Texts that may be joined of several values, and how far values of them were met.
    joined: Vec<(Payer, &'e str, usize)>,
    /// Reasoning, which some servers send in two members.
    reasoning: Vec<&'e str>,
    /// How many bytes the event's media take.
    media: usize,
    /// Whether of the outermost object only its role and content are sent.
    is_answer: bool,
    found: Vec<(Payer, Cow<'e, str>)>,
}

impl<'e> Walk<'e> {
    fn of(event: &'e Event) -> Self {
        let is_answer =
            event.raw.dialect == Dialect::Anthropic && matches!(event.fact, Fact::AssistantSaid { .. });
        let mut walk = Self {
            known: HashMap::new(),
            joined: Vec::new(),
            reasoning: Vec::new(),
            media: 0,
            is_answer,
            found: Vec::new(),
        };
        for (index, result) in event.fact.results().iter().enumerate() {
            result.parts.iter().for_each(|part| walk.expect(Payer::Result(index), part));
        }
        for (index, part) in event.fact.parts().iter().enumerate() {
            walk.expect(Payer::Part(index), part);
        }
        walk
    }

    fn expect(&mut self, payer: Payer, part: &'e Part) {
        part.visit_text(&mut |text| self.known.entry(text).or_default().push_back(payer));
        match part {
            Part::Reasoning { text, seal } => {
                self.joined.push((payer, text, 0));
                self.reasoning.push(text);
                if let Some(Seal::Signature(sealed) | Seal::Encrypted(sealed)) = seal
                    && is_code(sealed)
                {
                    self.known.entry(sealed).or_default().push_back(payer);
                }
            }
            Part::Text { text } if matches!(payer, Payer::Result(_)) => self.joined.push((payer, text, 0)),
            Part::Media(media) => {
                self.media += match &media.place {
                    // As base64 in a data URL.
                    Place::Inline { size, .. } => {
                        usize::try_from(size.div_ceil(3) * 4).unwrap_or(usize::MAX) + 64
                    }
                    Place::Elsewhere(link) => link.len(),
                };
            }
            Part::Text { .. } | Part::ToolCall(_) | Part::Refusal { .. } | Part::Opaque { .. } => {}
        }
    }

    fn take(&mut self, text: &str) -> Option<Payer> {
        let payer = self.known.get_mut(text)?.pop_front()?;
        for (_, whole, met) in self.joined.iter_mut().filter(|(_, whole, _)| *whole == text) {
            *met = whole.len();
        }
        Some(payer)
    }

    fn value(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut Scope<'e>) {
        match raw.as_bytes().first() {
            Some(b'"') => self.text(key, raw, scope),
            Some(b'{' | b'[') => {
                if let Some(payer) = self.take(raw) {
                    scope.payer.get_or_insert(payer);
                } else if depth > DEEPEST || !key.is_none_or(|key| CONTAINERS.contains(&key)) {
                    whole(key, raw, scope);
                } else if raw.starts_with('[') {
                    self.list(key, raw, depth, scope);
                } else {
                    self.object(raw, depth, scope);
                }
            }
            // Numbers that say more than a number does.
            Some(_) if raw.len() > 24 => whole(key, raw, scope),
            Some(_) | None => {}
        }
    }

    fn list(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut Scope<'e>) {
        let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(raw) else { return whole(key, raw, scope) };
        for element in elements {
            let mut inner = Scope::default();
            self.value(key, element.get(), depth + 1, &mut inner);
            match inner.payer {
                Some(payer) => {
                    scope.payer.get_or_insert(payer);
                    self.found.extend(inner.rest.into_iter().map(|text| (payer, text)));
                }
                None => scope.rest.append(&mut inner.rest),
            }
        }
    }

    fn object(&mut self, raw: &'e str, depth: usize, scope: &mut Scope<'e>) {
        let Ok(Members(members)) = serde_json::from_str::<Members<'e>>(raw) else {
            return whole(None, raw, scope);
        };
        let has = |wanted: &str| members.iter().any(|(key, _)| key == wanted);
        let is_message = || members.iter().any(|(key, value)| key == "type" && value.get() == "\"message\"");
        // Of an answer in the form of a response only what it says is sent back.
        let is_answer = depth == 0 && self.is_answer && (has("id") || has("usage") || is_message());
        for (key, value) in members {
            if is_answer && !matches!(&*key, "role" | "content") {
                continue;
            }
            if UNSEEN.contains(&&*key) && value.get().starts_with(['{', '[', 'n']) {
                continue;
            }
            self.value(Some(&key), value.get(), depth + 1, scope);
        }
    }

    fn text(&mut self, key: Option<&str>, raw: &'e str, scope: &mut Scope<'e>) {
        let Ok(Key(text)) = serde_json::from_str::<Key<'e>>(raw) else { return whole(key, raw, scope) };
        if text.is_empty() {
            return;
        }
        let is_named = |names: &[&str]| key.is_some_and(|key| names.contains(&key));
        let is_framing = is_named(&FRAMING) && text.len() <= SHORT && !text.contains(char::is_whitespace);
        // A tool's name is a text of its call, and so tells whose the call is.
        if is_framing && !is_named(&["name"]) {
            return;
        }
        if let Some(payer) = self.take(&text) {
            scope.payer.get_or_insert(payer);
            return;
        }
        if is_framing || (is_named(&PIECES) && self.is_part_of_joined(&text, scope)) {
            return;
        }
        if is_named(&MEDIA) && text.len() <= self.media {
            self.media -= text.len();
            return;
        }
        if is_named(&PIECES) && self.reasoning.contains(&&*text) {
            // Reasoning that stands in a second member is the same reasoning.
            return;
        }
        if !key.is_none_or(is_known) {
            scope.rest.push(Cow::Owned(key.unwrap_or_default().to_owned()));
        }
        // The id of a call stands once more in whatever answers it, be that only a stand-in.
        if is_named(&["id", "call_id"]) {
            scope.rest.push(text.clone());
        }
        scope.rest.push(text);
    }

    /// Whether a text is the next piece of one that a reader joined.
    fn is_part_of_joined(&mut self, text: &str, scope: &mut Scope<'e>) -> bool {
        for (payer, whole, met) in &mut self.joined {
            if let Some(at) = whole.get(*met..).and_then(|rest| rest.find(text)) {
                *met += at + text.len();
                scope.payer.get_or_insert(*payer);
                return true;
            }
        }
        false
    }
}

/// Counts a value whole, with the name that nobody expects.
fn whole<'r>(key: Option<&str>, raw: &'r str, scope: &mut Scope<'r>) {
    if matches!(raw, "{}" | "[]") {
        return;
    }
    if let Some(key) = key.filter(|key| !is_known(key)) {
        scope.rest.push(Cow::Owned(key.to_owned()));
    }
    scope.rest.push(Cow::Borrowed(raw));
}

fn is_known(key: &str) -> bool {
    let names: [&[&str]; 4] =
        [&CONTAINERS, &FRAMING, &MEDIA, &["text", "refusal", "thinking", "arguments", "input"]];
    names.iter().any(|names| names.contains(&key))
}

/// Whether a text is the hidden form of something, as providers write it: base64, or the like.
pub(crate) fn is_code(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_.:".contains(&byte))
}

/// A string of a JSON text, without a copy where it has no escapes.
#[derive(Deserialize)]
struct Key<'r>(#[serde(borrow)] Cow<'r, str>);

/// The members of an object in order, those that repeat a name too: all of them are sent.
struct Members<'r>(Vec<(Cow<'r, str>, &'r RawValue)>);

impl<'de: 'r, 'r> Deserialize<'de> for Members<'r> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Self)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            members.push((key, value));
        }
        Ok(members)
    }
}
