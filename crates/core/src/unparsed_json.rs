//! Values of a message's JSON that none of its parts holds, and that are sent all the same.
//!
//! A reader takes the parts of a message that it understands. The rest leaves with the bytes it came with:
//! unknown members, known ones of another type, values in unexpected places. A provider may read all of it,
//! so it is counted, each value with the part in whose block it stands. Only values that the wrapping of a
//! message pays for are free: names of kinds and roles, ids, marks for a cache, and values by which a part is
//! measured otherwise, such as the bytes of an image.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    event::{ContentPart, Event, Fact, InstructionKind, RawDialect, ReasoningSeal},
    media::MediaLocation,
};

/// Part of an event to which an unread value is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargedPart {
    /// One of its results.
    Result(usize),
    /// One of its parts.
    Part(usize),
    /// Each of its results and parts, or the event as a whole if it has neither.
    Everyone,
    /// The event as a whole: it has neither.
    Event,
}

/// Shows every unread value of an event to `see`, with the part to which it is charged.
pub(crate) fn visit_unparsed(event: &Event, see: &mut dyn FnMut(ChargedPart, &str)) {
    let is_settings = matches!(event.fact, Fact::Instructed { what: InstructionKind::Settings, .. });
    if is_settings && is_wire(event) {
        return settings(&event.raw.json, &mut |text| see(ChargedPart::Event, text));
    }
    if !leaves_as_it_came(event) {
        return;
    }
    let raw: &str = &event.raw.json;
    let mut walk = ValueWalk::of(event);
    let mut scope = ValueScope::default();
    walk.value(None, raw.trim(), 0, &mut scope);
    let payer = scope.payer.unwrap_or(walk.first);
    walk.found.extend(scope.rest.into_iter().map(|text| (payer, text)));
    for joined in walk.joined.into_iter().filter(|joined| joined.is_whole) {
        walk.found.extend(joined.pieces.into_iter().map(|piece| (joined.payer, piece)));
    }
    for (payer, text) in &walk.found {
        see(*payer, text);
    }
}

/// Returns true if an event's raw form is sent to a provider. A record of an agent's own is written anew from
/// its parts, and carried values are counted whole.
fn leaves_as_it_came(event: &Event) -> bool {
    let is_message = match &event.fact {
        Fact::Instructed { what, .. } => *what != InstructionKind::Settings,
        Fact::UserSaid { .. } | Fact::AssistantSaid { .. } | Fact::ToolReturned { .. } => true,
        _ => false,
    };
    is_message && is_wire(event)
}

fn is_wire(event: &Event) -> bool {
    match event.raw.dialect {
        RawDialect::OpenaiChat | RawDialect::OpenaiResponses | RawDialect::Anthropic | RawDialect::Gemini => {
            true
        }
        RawDialect::Epitome | RawDialect::Native(_) => false,
    }
}

/// Members in which a reader looks for parts.
const CONTAINERS: [&str; 21] = [
    "parts",
    "functionCall",
    "functionResponse",
    "functionDeclarations",
    "inlineData",
    "fileData",
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

/// Members that hold a kind or an id.
const FRAMING: [&str; 17] = [
    "mimeType",
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

/// Members that ask a cache to keep its content, or repeat how likely each word was: no model sees them.
const UNSEEN: [&str; 3] = ["cache_control", "prompt_cache_breakpoint", "logprobs"];

/// Members that hold or name a medium.
const MEDIA: [&str; 9] =
    ["data", "fileUri", "url", "image_url", "file_data", "file_id", "file_url", "result", "id"];

/// Members whose values a reader may join: the pieces of reasoning, and the output of a command.
const PIECES: [&str; 4] = ["text", "summary", "stdout", "stderr"];

/// Settings of how a model answers, and of the use of its answer: it reads none of them.
const SETTINGS: [&str; 58] = [
    "cachedContent",
    "generationConfig",
    "labels",
    "safetySettings",
    "toolConfig",
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

/// Depth to which a value is looked into; deeper values count whole.
const DEEPEST: usize = 12;

/// Longest name, of values without content, that the wrapping around them pays for.
const SHORT_NAME: usize = 32;

/// Number of times that the bytes of a message may be searched in vain. Input with pieces of no text must not
/// make the search for them quadratic; a piece that is not found counts by itself, which is never too little.
const SEARCHES: usize = 64;

/// Findings in a value until the part it belongs to is known.
#[derive(Default)]
struct ValueScope<'r> {
    payer: Option<ChargedPart>,
    rest: Vec<Cow<'r, str>>,
}

/// A text that a reader may have joined of several values.
struct JoinedText<'e> {
    payer: ChargedPart,
    whole: &'e str,
    /// Number of its values that were met, and their positions.
    met: usize,
    pieces: Vec<Cow<'e, str>>,
    /// True if it stands somewhere as it is: then its pieces are repetitions.
    is_whole: bool,
}

struct ValueWalk<'e> {
    /// The first that can pay.
    first: ChargedPart,
    /// True if parts that can pay are shown, or left out, each by itself.
    is_split: bool,
    /// The texts of the parts, each as often as parts have it.
    known: BTreeMap<&'e str, VecDeque<ChargedPart>>,
    /// The calls that are made, or answered, by their ids.
    ids: BTreeMap<&'e str, VecDeque<ChargedPart>>,
    joined: Vec<JoinedText<'e>>,
    /// Indices of the joined texts that were not met whole, by their text.
    joined_at: BTreeMap<&'e str, Vec<usize>>,
    /// Remaining number of vain searches for the texts that pieces belong to.
    searches_left: usize,
    /// Reasoning, which some servers send in two members.
    reasoning: Vec<(ChargedPart, &'e str)>,
    /// Number of bytes of each of the event's media.
    media: Vec<(ChargedPart, usize)>,
    /// True if only the role and content of the outermost object are sent.
    is_answer: bool,
    found: Vec<(ChargedPart, Cow<'e, str>)>,
}

impl<'e> ValueWalk<'e> {
    fn of(event: &'e Event) -> Self {
        let is_said = matches!(event.fact, Fact::AssistantSaid { .. });
        let (results, parts) = (event.fact.results(), event.fact.parts());
        let first = if results.is_empty() { ChargedPart::Part(0) } else { ChargedPart::Result(0) };
        let mut walk = Self {
            first: if results.is_empty() && parts.is_empty() { ChargedPart::Event } else { first },
            is_split: is_said || !results.is_empty(),
            known: BTreeMap::new(),
            ids: BTreeMap::new(),
            joined: Vec::new(),
            joined_at: BTreeMap::new(),
            searches_left: event.raw.json.len().saturating_mul(SEARCHES),
            reasoning: Vec::new(),
            media: Vec::new(),
            is_answer: event.raw.dialect == RawDialect::Anthropic && is_said,
            found: Vec::new(),
        };
        for (index, result) in results.iter().enumerate() {
            walk.ids.entry(&result.call.0).or_default().push_back(ChargedPart::Result(index));
            result.parts.iter().for_each(|part| walk.expect(ChargedPart::Result(index), part));
        }
        for (index, part) in parts.iter().enumerate() {
            walk.expect(ChargedPart::Part(index), part);
        }
        walk
    }

    fn expect(&mut self, payer: ChargedPart, part: &'e ContentPart) {
        part.visit_text(&mut |text| self.known.entry(text).or_default().push_back(payer));
        let mut join = |whole: &'e str| {
            if !whole.is_empty() {
                self.joined_at.entry(whole).or_default().push(self.joined.len());
                self.joined.push(JoinedText { payer, whole, met: 0, pieces: Vec::new(), is_whole: false });
            }
        };
        match part {
            ContentPart::Reasoning { text, seal } => {
                join(text);
                self.reasoning.push((payer, text));
                match seal {
                    Some(ReasoningSeal::Encrypted(sealed)) => {
                        self.known.entry(sealed).or_default().push_back(payer);
                    }
                    // Anything but code may be read; a part is not measured by its signature.
                    Some(ReasoningSeal::Signature(sealed)) if is_code(sealed) => {
                        self.known.entry(sealed).or_default().push_back(payer);
                    }
                    Some(ReasoningSeal::Signature(_)) | None => {}
                }
            }
            ContentPart::Text { text } if matches!(payer, ChargedPart::Result(_)) => join(text),
            ContentPart::Media(media) => {
                let bytes = match &media.place {
                    // As base64 in a data URL.
                    MediaLocation::Inline { size, .. } => {
                        usize::try_from(size.div_ceil(3) * 4).unwrap_or(usize::MAX).saturating_add(64)
                    }
                    MediaLocation::Elsewhere(link) => link.len(),
                };
                self.media.push((payer, bytes));
            }
            ContentPart::ToolCall(call) => self.ids.entry(&call.id.0).or_default().push_back(payer),
            ContentPart::Text { .. } | ContentPart::Refusal { .. } | ContentPart::Opaque { .. } => {}
        }
    }

    fn take(&mut self, text: &str) -> Option<ChargedPart> {
        let payer = self.known.get_mut(text)?.pop_front()?;
        for at in self.joined_at.remove(text).unwrap_or_default() {
            if let Some(joined) = self.joined.get_mut(at) {
                (joined.met, joined.is_whole) = (text.len(), true);
            }
        }
        Some(payer)
    }

    fn value(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut ValueScope<'e>) {
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
                    let mut inner = ValueScope::default();
                    self.object(raw, depth, &mut inner);
                    self.assign_rest(key, depth, inner, scope);
                } else {
                    self.object(raw, depth, scope);
                }
            }
            Some(_) => whole(key, raw, scope),
            None => {}
        }
    }

    fn list(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut ValueScope<'e>) {
        let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(raw) else { return whole(key, raw, scope) };
        for element in elements {
            let (raw, mut inner) = (element.get(), ValueScope::default());
            // A single one has no content, but a list of them may.
            if is_nothing(raw) {
                match self.take(raw) {
                    Some(payer) => inner.payer = Some(payer),
                    None => inner.rest.push(Cow::Borrowed(raw)),
                }
            } else {
                self.value(key, raw, depth + 1, &mut inner);
            }
            self.assign_rest(key, depth, inner, scope);
        }
    }

    /// Assigns findings in a value within another one to the part that pays for it.
    fn assign_rest(
        &mut self,
        key: Option<&str>,
        depth: usize,
        inner: ValueScope<'e>,
        scope: &mut ValueScope<'e>,
    ) {
        let is_reasoning = depth == 1 && key.is_some_and(|key| REASONING.contains(&key));
        let thought = self.reasoning.first().filter(|_| is_reasoning).map(|(payer, _)| *payer);
        match inner.payer.or(thought) {
            Some(payer) => {
                scope.payer.get_or_insert(payer);
                self.found.extend(inner.rest.into_iter().map(|text| (payer, text)));
            }
            // Every part pays, because any of them may be the one that stays.
            None if self.is_split
                && depth == 1
                && matches!(key, Some("content" | "parts" | "tool_calls")) =>
            {
                self.found.extend(inner.rest.into_iter().map(|text| (ChargedPart::Everyone, text)));
            }
            None => scope.rest.extend(inner.rest),
        }
    }

    fn object(&mut self, raw: &'e str, depth: usize, scope: &mut ValueScope<'e>) {
        let Ok(JsonMembers(members)) = serde_json::from_str::<JsonMembers<'e>>(raw) else {
            return whole(None, raw, scope);
        };
        let has = |wanted: &str| members.iter().any(|(key, _)| key == wanted);
        let is_message = || members.iter().any(|(key, value)| key == "type" && value.get() == "\"message\"");
        // Of an answer in the form of a response only its content is sent back.
        let is_answer = depth == 0 && self.is_answer && (has("id") || has("usage") || is_message());
        // Values that the wrapping of a message, or of a block of an answer, pays for.
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

    fn text(&mut self, key: Option<&str>, raw: &'e str, depth: usize, scope: &mut ValueScope<'e>) {
        let Ok(JsonKey(text)) = serde_json::from_str::<JsonKey<'e>>(raw) else {
            return whole(key, raw, scope);
        };
        let is_named = |names: &[&str]| key.is_some_and(|key| names.contains(&key));
        let is_word = text.len() <= SHORT && !text.contains(char::is_whitespace);
        if is_word && is_named(&IDS) && self.claim_by_id(&text, scope) {
            return;
        }
        // The signature of a thought, which stands in the part that came after it: a part is not measured by it.
        if is_named(&["thoughtSignature"]) && is_code(&text) {
            return;
        }
        let is_framing = is_word && self.is_framing(key.unwrap_or_default(), depth);
        // A tool's name is a text of its call, and so identifies the call.
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
        // The id of a call stands once more in its answer, even if that is only a stand-in.
        if is_named(&["id", "call_id"]) {
            scope.rest.push(text.clone());
        }
        if let Some(key) = key.filter(|key| !is_known(key)) {
            scope.rest.push(Cow::Owned(key.to_owned()));
        }
        scope.rest.push(text);
    }

    /// Returns true if the wrapping pays for a word under this name. It does for a message's own members; for
    /// values inside a message, only for the members that all of them have.
    fn is_framing(&self, key: &str, depth: usize) -> bool {
        match key {
            "type" => true,
            "media_type" | "mimeType" | "detail" | "format" | "filename" => {
                depth == 1 || !self.media.is_empty()
            }
            "role" | "id" | "call_id" | "tool_call_id" | "status" | "name" | "phase" => depth == 1,
            _ => false,
        }
    }

    /// Returns true if a word is the id of a call that is made or answered here, which identifies the part
    /// the value belongs to.
    fn claim_by_id(&mut self, word: &str, scope: &mut ValueScope<'e>) -> bool {
        let Some(payers) = self.ids.get_mut(word) else { return false };
        // A value with the id of another part belongs to that part.
        let payer = if payers.len() > 1 { payers.pop_front() } else { payers.front().copied() };
        if let Some(payer) = payer {
            scope.payer.get_or_insert(payer);
        }
        payer.is_some()
    }

    /// Returns true if a text is the next piece of one that a reader joined.
    #[expect(clippy::ptr_arg, reason = "the piece is kept, borrowed where it can be")]
    fn is_part_of_joined(&mut self, text: &Cow<'e, str>, scope: &mut ValueScope<'e>) -> bool {
        for joined in self.joined.iter_mut().filter(|_| !text.is_empty()) {
            let rest = joined.whole.get(joined.met..).unwrap_or_default();
            if let Some(at) = rest.find(&**text) {
                joined.met += at + text.len();
                joined.pieces.push(text.clone());
                scope.payer.get_or_insert(joined.payer);
                return true;
            }
            let Some(left) = self.searches_left.checked_sub(rest.len() + 1) else { return false };
            self.searches_left = left;
        }
        false
    }

    /// Returns true if a text is reasoning that stands in a second member: that is the same reasoning, once.
    fn repeats_reasoning(&mut self, text: &str, scope: &mut ValueScope<'e>) -> bool {
        let Some(left) = self.searches_left.checked_sub(self.reasoning.len()) else { return false };
        self.searches_left = left;
        let Some(at) = self.reasoning.iter().position(|(_, known)| *known == text) else { return false };
        let (payer, _) = self.reasoning.swap_remove(at);
        scope.payer.get_or_insert(payer);
        true
    }
}

/// Shows the parts of a request's settings that a model may read: everything but settings of how it answers.
fn settings(raw: &str, see: &mut dyn FnMut(&str)) {
    let Ok(JsonMembers(members)) = serde_json::from_str::<JsonMembers<'_>>(raw) else { return see(raw) };
    for (key, value) in members {
        let value = value.get();
        let is_setting = SETTINGS.contains(&&*key) && value.len() <= LONGEST_SETTING;
        // A value that became an event of its own left its place behind.
        if !is_setting && value != "null" {
            see(&key);
            see(value);
        }
    }
}

/// Returns true if a value has no content.
fn is_nothing(raw: &str) -> bool {
    matches!(raw, "{}" | "[]" | "\"\"") || (!raw.starts_with(['{', '[', '"']) && raw.len() <= LONGEST_NUMBER)
}

/// Counts a value whole, with its unexpected name. A known name without content is part of the wrapping.
fn whole<'r>(key: Option<&str>, raw: &'r str, scope: &mut ValueScope<'r>) {
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

/// Returns true if a text is the hidden form of something, as providers write it: base64, or the like.
pub(crate) fn is_code(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_.:".contains(&byte))
}

/// A string of a JSON text, without a copy where it has no escapes.
#[derive(Deserialize)]
struct JsonKey<'r>(#[serde(borrow)] Cow<'r, str>);

/// The members of an object in order, those that repeat a name too: all of them are sent.
struct JsonMembers<'r>(Vec<(Cow<'r, str>, &'r RawValue)>);

impl<'de: 'r, 'r> Deserialize<'de> for JsonMembers<'r> {
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
        while let Some((JsonKey(key), value)) = map.next_entry::<JsonKey<'de>, &'de RawValue>()? {
            members.push((key, value));
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{
        event::{RawJson, ToolResult},
        id::CallId,
        tokens::Tokens,
    };

    const MANY: usize = 20_000;

    /// Words of the unread values that each result, each part and the rest of an event pays for.
    #[track_caller]
    fn counted(event: &Event) -> Vec<u64> {
        let began = Instant::now();
        let words = |text: &str| Tokens(text.split_whitespace().count() as u64);
        let counted = event.count_unread(words).into_iter().map(|tokens| tokens.0).collect();
        // A debug build on a busy machine takes a second; quadratic code takes minutes.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        counted
    }

    fn answer(parts: Vec<ContentPart>, blocks: &[String]) -> Event {
        let json = format!(r#"{{"role":"assistant","content":[{}]}}"#, blocks.join(","));
        sent(Fact::AssistantSaid { answer: None, model: None, parts }, json)
    }

    fn sent(fact: Fact, json: String) -> Event {
        Event {
            raw: RawJson { dialect: RawDialect::Anthropic, json: json.into() },
            ..Event::from_fact(fact, None)
        }
    }

    fn redacted(sealed: &str) -> ContentPart {
        ContentPart::Reasoning {
            text: String::new(),
            seal: Some(ReasoningSeal::Encrypted(sealed.to_owned())),
        }
    }

    #[test]
    fn every_part_pays_for_a_block_of_none() {
        let blocks = [r#"{"type":"text","text":"a"}"#, r#"{"type":"text","text":"b"}"#, r#"{"odd":"c d"}"#];
        let blocks: Vec<String> = blocks.map(str::to_owned).into();
        assert_eq!(
            counted(&answer(vec![ContentPart::text("a"), ContentPart::text("b")], &blocks)),
            [3, 3, 0]
        );
        assert_eq!(counted(&answer(vec![], &blocks[2..])), [3], "without a part the event pays");
    }

    #[test]
    fn sealed_reasoning_is_its_parts_whatever_it_holds() {
        let block = r#"{"type":"redacted_thinking","data":"a b"}"#.to_owned();
        let event = answer(vec![ContentPart::text("x"), redacted("a b")], &[block]);
        // Its part is measured by it.
        assert_eq!(counted(&event), [] as [u64; 0]);
    }

    #[test]
    fn many_blocks_beside_many_parts_are_counted_once() {
        let parts = vec![ContentPart::text("x"); MANY];
        let blocks = vec![r#"{"odd":"c d"}"#.to_owned(); MANY];
        let all = MANY as u64 * 3;
        let expect: Vec<u64> = std::iter::repeat_n(all, MANY).chain([0]).collect();
        assert_eq!(counted(&answer(parts, &blocks)), expect);
    }

    #[test]
    fn many_sealed_blocks_are_read_once() {
        let block = r#"{"type":"redacted_thinking","data":"a b"}"#.to_owned();
        assert_eq!(counted(&answer(vec![redacted("a b"); MANY], &vec![block; MANY])), [] as [u64; 0]);
        let thought = |number: usize| ContentPart::Reasoning { text: format!("t {number}"), seal: None };
        let block = |number: usize| format!(r#"{{"type":"thinking","thinking":"t {number}"}}"#);
        let event = answer((0..MANY).map(thought).collect(), &(0..MANY).map(block).collect::<Vec<_>>());
        assert_eq!(counted(&event), [] as [u64; 0]);
    }

    #[test]
    fn pieces_that_belong_to_no_text_are_not_looked_for_without_end() {
        let result = |number: usize| ToolResult {
            call: CallId(format!("c{number}")),
            name: None,
            parts: vec![ContentPart::text(format!("{number} {}", "some words of a result ".repeat(8)))],
            error: false,
        };
        let results: Vec<ToolResult> = (0..MANY).map(result).collect();
        let pieces = vec![r#"{"stdout":"x y"}"#.to_owned(); MANY];
        let json = format!(r#"{{"role":"user","content":[{}]}}"#, pieces.join(","));
        let all = MANY as u64 * 3;
        let expect: Vec<u64> = std::iter::repeat_n(all, MANY).chain([0]).collect();
        assert_eq!(counted(&sent(Fact::ToolReturned { results, parts: vec![] }, json)), expect);
    }
}
