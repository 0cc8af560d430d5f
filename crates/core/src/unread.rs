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
    let is_settings = matches!(event.fact, Fact::Instructed { what: Instruction::Settings, .. });
    if is_settings && is_wire(event) {
        return settings(&event.raw.json, &mut |text| see(Payer::Event, text));
    }
    if !leaves_as_it_came(event) {
        return;
    }
    let raw: &str = &event.raw.json;
    let mut walk = Walk::of(event);
    let mut scope = Scope::default();
    walk.value(None, raw.trim(), 0, &mut scope);
    let first = walk.payers.first().copied().unwrap_or(Payer::Event);
    walk.found.extend(scope.rest.into_iter().map(|text| (scope.payer.unwrap_or(first), text)));
    for joined in walk.joined.into_iter().filter(|joined| joined.is_whole) {
        walk.found.extend(joined.pieces.into_iter().map(|piece| (joined.payer, piece)));
    }
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
    is_message && is_wire(event)
}

fn is_wire(event: &Event) -> bool {
    match event.raw.dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Anthropic => true,
        Dialect::Epitome | Dialect::Native(_) => false,
    }
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

/// Members that say what something is or which one it is.
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

/// The longest number that is only one.
const LONGEST_NUMBER: usize = 24;

/// The longest mark for a cache.
const MARK: usize = 128;

/// Members that name a call.
const IDS: [&str; 4] = ["id", "call_id", "tool_call_id", "tool_use_id"];

/// Members of a message that are shown as its reasoning is.
const REASONING: [&str; 3] = ["reasoning", "reasoning_content", "reasoning_details"];

/// Members that ask a cache to keep what it has read, or repeat how likely each word was: no model sees them.
const UNSEEN: [&str; 3] = ["cache_control", "prompt_cache_breakpoint", "logprobs"];

/// Members that hold or name a medium.
const MEDIA: [&str; 8] = ["data", "url", "image_url", "file_data", "file_id", "file_url", "result", "id"];

/// Members whose values a reader may join: the pieces of reasoning, and what a command wrote.
const PIECES: [&str; 4] = ["text", "summary", "stdout", "stderr"];

/// Settings of how a model answers, and of what becomes of its answer: it reads none of them.
const SETTINGS: [&str; 53] = [
    "anthropic_beta",
    "anthropic_version",
    "audio",
    "background",
    "betas",
    "conversation",
    "context_management",
    "container",
    "frequency_penalty",
    "include",
    "inference_geo",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "max_tool_calls",
    "metadata",
    "min_p",
    "modalities",
    "model",
    "models",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "provider",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "response_id",
    "safety_identifier",
    "seed",
    "service_tier",
    "speed",
    "stop",
    "stop_sequences",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "thinking",
    "tool_choice",
    "top_k",
    "top_logprobs",
    "top_p",
    "transforms",
    "truncation",
    "user",
    "verbosity",
];

/// The longest value that one of these has.
const LONGEST_SETTING: usize = 2_048;

/// How deep a value is looked into; what is deeper counts whole.
const DEEPEST: usize = 12;

/// Names up to this length, of values that say nothing, are paid for by the wrapping of what they stand in.
const SHORT_NAME: usize = 32;

/// What is found in a value until it is known which part it belongs to.
#[derive(Default)]
struct Scope<'r> {
    payer: Option<Payer>,
    rest: Vec<Cow<'r, str>>,
}

/// A text that a reader may have joined of several values.
struct Joined<'e> {
    payer: Payer,
    whole: &'e str,
    /// How far values of it were met, and which.
    met: usize,
    pieces: Vec<Cow<'e, str>>,
    /// Whether it stands somewhere as it is: then its pieces are said once more.
    is_whole: bool,
}

struct Walk<'e> {
    /// Everything that can pay.
    payers: Vec<Payer>,
    /// Whether what can pay is shown, or left out, each by itself.
    is_split: bool,
    /// The texts of the parts, each as often as parts have it.
    known: HashMap<&'e str, VecDeque<Payer>>,
    /// The calls that are made, or answered, by their ids.
    ids: HashMap<&'e str, VecDeque<Payer>>,
    joined: Vec<Joined<'e>>,
    /// Reasoning, which some servers send in two members.
    reasoning: Vec<(Payer, &'e str)>,
    /// How many bytes each of the event's media takes.
    media: Vec<(Payer, usize)>,
    /// Whether of the outermost object only its role and content are sent.
    is_answer: bool,
    found: Vec<(Payer, Cow<'e, str>)>,
}

impl<'e> Walk<'e> {
    fn of(event: &'e Event) -> Self {
        let is_said = matches!(event.fact, Fact::AssistantSaid { .. });
        let (results, parts) = (event.fact.results(), event.fact.parts());
        let mut walk = Self {
            payers: (0..results.len()).map(Payer::Result).chain((0..parts.len()).map(Payer::Part)).collect(),
            is_split: is_said || !results.is_empty(),
            known: HashMap::new(),
            ids: HashMap::new(),
            joined: Vec::new(),
            reasoning: Vec::new(),
            media: Vec::new(),
            is_answer: event.raw.dialect == Dialect::Anthropic && is_said,
            found: Vec::new(),
        };
        for (index, result) in results.iter().enumerate() {
            walk.ids.entry(&result.call.0).or_default().push_back(Payer::Result(index));
            result.parts.iter().for_each(|part| walk.expect(Payer::Result(index), part));
        }
        for (index, part) in parts.iter().enumerate() {
            walk.expect(Payer::Part(index), part);
        }
        walk
    }

    fn expect(&mut self, payer: Payer, part: &'e Part) {
        part.visit_text(&mut |text| self.known.entry(text).or_default().push_back(payer));
        let mut join = |whole| {
            self.joined.push(Joined { payer, whole, met: 0, pieces: Vec::new(), is_whole: false });
        };
        match part {
            Part::Reasoning { text, seal } => {
                join(text);
                self.reasoning.push((payer, text));
                if let Some(Seal::Signature(sealed) | Seal::Encrypted(sealed)) = seal
                    && is_code(sealed)
                {
                    self.known.entry(sealed).or_default().push_back(payer);
                }
            }
            Part::Text { text } if matches!(payer, Payer::Result(_)) => join(text),
            Part::Media(media) => {
                let bytes = match &media.place {
                    // As base64 in a data URL.
                    Place::Inline { size, .. } => {
                        usize::try_from(size.div_ceil(3) * 4).unwrap_or(usize::MAX).saturating_add(64)
                    }
                    Place::Elsewhere(link) => link.len(),
                };
                self.media.push((payer, bytes));
            }
            Part::ToolCall(call) => self.ids.entry(&call.id.0).or_default().push_back(payer),
            Part::Text { .. } | Part::Refusal { .. } | Part::Opaque { .. } => {}
        }
    }

    fn take(&mut self, text: &str) -> Option<Payer> {
        let payer = self.known.get_mut(text)?.pop_front()?;
        for joined in self.joined.iter_mut().filter(|joined| joined.whole == text) {
            (joined.met, joined.is_whole) = (text.len(), true);
        }
        Some(payer)
    }

    fn value(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut Scope<'e>) {
        match raw.as_bytes().first() {
            Some(b'"') => self.text(key, raw, depth, scope),
            Some(b'{' | b'[') => {
                if let Some(payer) = self.take(raw) {
                    scope.payer.get_or_insert(payer);
                } else if depth > DEEPEST || !key.is_none_or(|key| CONTAINERS.contains(&key)) {
                    whole(key, raw, scope);
                } else if raw.starts_with('[') {
                    self.list(key, raw, depth, scope);
                } else if depth == 1 {
                    // A member of a message that may be a part of its own.
                    let mut inner = Scope::default();
                    self.object(raw, depth, &mut inner);
                    self.close(key, depth, inner, scope);
                } else {
                    self.object(raw, depth, scope);
                }
            }
            Some(_) => whole(key, raw, scope),
            None => {}
        }
    }

    fn list(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut Scope<'e>) {
        let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(raw) else { return whole(key, raw, scope) };
        for element in elements {
            let (raw, mut inner) = (element.get(), Scope::default());
            // One of them says nothing, but a list of them may.
            if is_nothing(raw) {
                match self.take(raw) {
                    Some(payer) => inner.payer = Some(payer),
                    None => inner.rest.push(Cow::Borrowed(raw)),
                }
            } else {
                self.value(key, raw, depth + 1, &mut inner);
            }
            self.close(key, depth, inner, scope);
        }
    }

    /// Gives what was found in a value within another one to whoever pays for it.
    fn close(&mut self, key: Option<&str>, depth: usize, inner: Scope<'e>, scope: &mut Scope<'e>) {
        let is_reasoning = depth == 1 && key.is_some_and(|key| REASONING.contains(&key));
        let thought = self.reasoning.first().filter(|_| is_reasoning).map(|(payer, _)| *payer);
        match inner.payer.or(thought) {
            Some(payer) => {
                scope.payer.get_or_insert(payer);
                self.found.extend(inner.rest.into_iter().map(|text| (payer, text)));
            }
            // A block that stays may be nobody's: so everybody pays, and whoever is left has paid.
            None if self.is_split && depth == 1 && matches!(key, Some("content" | "tool_calls")) => {
                for payer in &self.payers {
                    self.found.extend(inner.rest.iter().map(|text| (*payer, text.clone())));
                }
            }
            None => scope.rest.extend(inner.rest),
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
        // What the wrapping of a message, or of a block of an answer, pays for.
        let mut free = if depth == 0 { 2 } else { u8::from(self.is_split) };
        for (key, value) in members {
            let value = value.get();
            if is_answer && !matches!(&*key, "role" | "content") {
                continue;
            }
            if UNSEEN.contains(&&*key)
                && (key == "logprobs" || value.len() <= MARK)
                && value.starts_with(['{', '[', 'n'])
            {
                continue;
            }
            if free > 0 && is_nothing(value) && key.len() <= SHORT_NAME && !is_known(&key) {
                free -= 1;
                continue;
            }
            self.value(Some(&key), value, depth + 1, scope);
        }
    }

    fn text(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut Scope<'e>) {
        let Ok(Key(text)) = serde_json::from_str::<Key<'e>>(raw) else { return whole(key, raw, scope) };
        let is_named = |names: &[&str]| key.is_some_and(|key| names.contains(&key));
        let is_word = text.len() <= SHORT && !text.contains(char::is_whitespace);
        if is_word && is_named(&IDS) && self.identify(&text, scope) {
            return;
        }
        let is_framing = is_word && self.is_framing(key.unwrap_or_default(), depth);
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
        if is_named(&MEDIA)
            && let Some((payer, bytes)) = self.media.iter_mut().find(|(_, bytes)| text.len() <= *bytes)
        {
            *bytes -= text.len();
            scope.payer.get_or_insert(*payer);
            return;
        }
        if is_named(&PIECES) && self.repeats_reasoning(&text, scope) {
            return;
        }
        // The id of a call stands once more in whatever answers it, be that only a stand-in.
        if is_named(&["id", "call_id"]) {
            scope.rest.push(text.clone());
        }
        if let Some(key) = key.filter(|key| !is_known(key)) {
            scope.rest.push(Cow::Owned(key.to_owned()));
        }
        scope.rest.push(text);
    }

    /// Whether the wrapping pays for a word under this name. What a message says of itself it does; in what stands in a
    /// message, only what everything there says.
    fn is_framing(&self, key: &str, depth: usize) -> bool {
        match key {
            "type" => true,
            "media_type" | "detail" | "format" | "filename" => depth == 1 || !self.media.is_empty(),
            "role" | "id" | "call_id" | "tool_call_id" | "status" | "name" | "phase" => depth == 1,
            _ => false,
        }
    }

    /// Whether a word is the id of a call that is made or answered here, which tells whose the value is.
    fn identify(&mut self, word: &str, scope: &mut Scope<'e>) -> bool {
        let Some(payers) = self.ids.get_mut(word) else { return false };
        // Whatever has the id of another is that other's.
        let payer = if payers.len() > 1 { payers.pop_front() } else { payers.front().copied() };
        if let Some(payer) = payer {
            scope.payer.get_or_insert(payer);
        }
        payer.is_some()
    }

    /// Whether a text is the next piece of one that a reader joined.
    #[expect(clippy::ptr_arg, reason = "the piece is kept, borrowed where it can be")]
    fn is_part_of_joined(&mut self, text: &Cow<'e, str>, scope: &mut Scope<'e>) -> bool {
        for joined in self.joined.iter_mut().filter(|_| !text.is_empty()) {
            if let Some(at) = joined.whole.get(joined.met..).and_then(|rest| rest.find(&**text)) {
                joined.met += at + text.len();
                joined.pieces.push(text.clone());
                scope.payer.get_or_insert(joined.payer);
                return true;
            }
        }
        false
    }

    /// Whether a text is reasoning that stands in a second member: that is the same reasoning, once.
    fn repeats_reasoning(&mut self, text: &str, scope: &mut Scope<'e>) -> bool {
        let Some(at) = self.reasoning.iter().position(|(_, known)| *known == text) else { return false };
        let (payer, _) = self.reasoning.swap_remove(at);
        scope.payer.get_or_insert(payer);
        true
    }
}

/// Shows what a model may read of a request's settings: whatever is no setting of how it answers.
fn settings(raw: &str, see: &mut dyn FnMut(&str)) {
    let Ok(Members(members)) = serde_json::from_str::<Members<'_>>(raw) else { return see(raw) };
    for (key, value) in members {
        let value = value.get();
        let is_setting = SETTINGS.contains(&&*key) && value.len() <= LONGEST_SETTING;
        // What became an event of its own left its place behind.
        if !is_setting && value != "null" {
            see(&key);
            see(value);
        }
    }
}

/// Whether a value says nothing.
fn is_nothing(raw: &str) -> bool {
    matches!(raw, "{}" | "[]" | "\"\"") || (!raw.starts_with(['{', '[', '"']) && raw.len() <= LONGEST_NUMBER)
}

/// Counts a value whole, with the name that nobody expects. A known name with nothing to say is part of the wrapping.
fn whole<'r>(key: Option<&str>, raw: &'r str, scope: &mut Scope<'r>) {
    if is_nothing(raw) && key.is_none_or(is_known) {
        return;
    }
    if let Some(key) = key.filter(|key| !is_known(key)) {
        scope.rest.push(Cow::Owned(key.to_owned()));
    }
    scope.rest.push(Cow::Borrowed(raw));
}

fn is_known(key: &str) -> bool {
    let names: [&[&str]; 4] = [
        &CONTAINERS,
        &FRAMING,
        &MEDIA,
        &["text", "refusal", "thinking", "arguments", "input", "signature", "is_error", "exit_code", "index"],
    ];
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
