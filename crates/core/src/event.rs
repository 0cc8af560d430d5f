//! Facts: the events of a session, in the past tense, each kept with the JSON it came from.
//!
//! A [`Fact`] is the part of an event that the rest of Epitome understands; [`RawJson`] is the part that must
//! leave with the very bytes it came with. An event is never changed once it is logged.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    hash_chain::{ChainLink, Digest},
    id::{AnswerId, CallId, EventId, ModelName, Seq, ToolName},
    media::Media,
    summary::StructuredSummary,
    tokens::Tokens,
    unparsed_json::{self, ChargedPart},
};

/// Something that happened, not yet in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, if known.
    pub time: Option<Timestamp>,
    /// Its name where it came from: a line's uuid, a message's id.
    pub origin: Option<String>,
    /// The event as a fact.
    pub fact: Fact,
    /// The JSON it came from.
    pub raw: RawJson,
    /// The normalised digest of the part that a client would send back, or `None` if no client ever would.
    pub normal: Option<Digest>,
}

/// An event in its place in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    /// The thread that owns it, and its place there.
    pub id: EventId,
    /// The event itself.
    pub event: Event,
    /// Both chains, up to and with this event.
    pub link: ChainLink,
}

impl Event {
    /// A fact of Epitome's own: it has no provider's JSON, so it is its own raw form.
    pub fn from_fact(fact: Fact, time: Option<Timestamp>) -> Self {
        let json = json(&fact).into();
        Self { time, origin: None, fact, raw: RawJson { dialect: RawDialect::Epitome, json }, normal: None }
    }

    /// A fact read from a file that is not in a provider's format. Its content stands in for the normalised
    /// form.
    pub fn native(dialect: &'static str, raw: impl Into<Arc<str>>, fact: Fact) -> Self {
        let normal = fact.is_message().then(|| Digest::of(json(&fact).as_bytes()));
        let raw = RawJson { dialect: RawDialect::Native(dialect.to_owned()), json: raw.into() };
        Self { time: None, origin: None, fact, raw, normal }
    }

    /// Shows every text whose tokens are counted and kept: the texts of the fact and, of unknown content that
    /// a client would send back, its JSON.
    pub fn visit_counted<'a>(&'a self, see: &mut impl FnMut(&'a str)) {
        self.fact.visit_text(see);
        if matches!(self.fact, Fact::Carried { .. }) && self.normal.is_some() {
            see(&self.raw.json);
        }
    }

    /// Tokens by `count` of each of these texts, in order, and then of the values sent beside them, as
    /// [`count_unread`](Self::count_unread) gives them.
    pub fn count_by(&self, mut count: impl FnMut(&str) -> Tokens) -> Vec<Tokens> {
        let mut pieces = Vec::new();
        self.visit_counted(&mut |text| pieces.push(count(text)));
        pieces.extend(self.count_unread(count));
        pieces
    }

    /// Tokens by `count` of the values that are sent though no part holds them: for each result, for each
    /// part, and for the rest of the event. Empty if there are none, as is usual.
    pub fn count_unread(&self, mut count: impl FnMut(&str) -> Tokens) -> Vec<Tokens> {
        let (results, parts) = (self.fact.results().len(), self.fact.parts().len());
        let rest = results + parts;
        let mut pieces = Vec::new();
        // Counted once, however many pay for it.
        let mut shared = Tokens(0);
        unparsed_json::visit_unparsed(self, &mut |payer, text| {
            if pieces.is_empty() {
                pieces.resize(rest + 1, Tokens(0));
            }
            let at = match payer {
                ChargedPart::Result(index) => index,
                ChargedPart::Part(index) => results + index,
                ChargedPart::Everyone if rest > 0 => {
                    shared += count(text);
                    return;
                }
                ChargedPart::Everyone | ChargedPart::Event => rest,
            };
            pieces[at] += count(text);
        });
        pieces.iter_mut().take(rest).for_each(|tokens| *tokens += shared);
        pieces
    }

    /// The same event, at a time.
    pub fn at(mut self, time: Option<Timestamp>) -> Self {
        self.time = time;
        self
    }

    /// The same event, named as its source names it.
    pub fn from_origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// The fact as it is stored.
    pub fn fact_json(&self) -> String {
        json(&self.fact)
    }
}

fn json(fact: &Fact) -> String {
    serde_json::to_string(fact).expect("facts hold only strings, numbers and lists")
}

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// The JSON an event came from, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawJson {
    /// Format of the JSON.
    pub dialect: RawDialect,
    /// One JSON value.
    pub json: Arc<str>,
}

/// Format of a raw value's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum RawDialect {
    /// A fact of Epitome's own.
    Epitome,
    /// An OpenAI Chat Completions message, tool list or request.
    OpenaiChat,
    /// An OpenAI Responses item, tool list or request.
    OpenaiResponses,
    /// An Anthropic Messages message, system prompt, tool list or request.
    Anthropic,
    /// A content, system instruction, tool list or request of Gemini's `generateContent`.
    Gemini,
    /// A record of an agent's own transcript format.
    Native(String),
}

impl RawDialect {
    /// The name it is stored under.
    pub fn name(&self) -> &str {
        match self {
            Self::Epitome => "epitome",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            // Records of Gemini CLI are stored as `gemini`.
            Self::Gemini => "gemini-api",
            Self::Native(name) => name,
        }
    }
}

impl From<String> for RawDialect {
    fn from(name: String) -> Self {
        match name.as_str() {
            "epitome" => Self::Epitome,
            "openai-chat" => Self::OpenaiChat,
            "openai-responses" => Self::OpenaiResponses,
            "anthropic" => Self::Anthropic,
            "gemini-api" => Self::Gemini,
            _ => Self::Native(name),
        }
    }
}

impl From<RawDialect> for String {
    fn from(dialect: RawDialect) -> Self {
        dialect.name().to_owned()
    }
}

impl fmt::Display for RawDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// An event of a session, in the past tense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fact {
    /// The model was given instructions or tools.
    Instructed {
        /// Kind of instruction.
        what: InstructionKind,
        /// Its content; a tool definition is an opaque part named after the tool.
        parts: Vec<ContentPart>,
    },
    /// The user said something.
    UserSaid {
        /// Content of the message.
        parts: Vec<ContentPart>,
    },
    /// The model answered. Several events may share an answer: they are its fragments, in order.
    AssistantSaid {
        /// The provider's id of the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<AnswerId>,
        /// The model that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelName>,
        /// Text, reasoning, tool calls, refusals.
        parts: Vec<ContentPart>,
    },
    /// Tools returned.
    ToolReturned {
        /// The results, in the order they were sent.
        results: Vec<ToolResult>,
        /// Content of the same message beside them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parts: Vec<ContentPart>,
    },
    /// Someone asked for a compaction: the marker.
    CompactionRequested {
        /// Cause of the request.
        trigger: CompactionTrigger,
        /// Topic that the summary should focus on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        focus: Option<String>,
    },
    /// A span was compacted: a turn of its own, which carries its summary.
    Compacted(Compaction),
    /// A compaction was undone: contexts are made as if it had not been.
    CompactionReverted {
        /// The compaction.
        compaction: Seq,
    },
    /// An undone compaction was brought back: contexts are made as if it had never been undone.
    CompactionRestored {
        /// The compaction.
        compaction: Seq,
    },
    /// Something was pinned: no compaction may lose it.
    Pinned {
        /// The pinned content.
        pin: Pin,
    },
    /// A pin was taken away.
    Unpinned {
        /// The content that had been pinned.
        pin: Pin,
    },
    /// A hook added content beside a user message.
    Injected {
        /// The hook.
        hook: String,
        /// The user message it stands beside.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<Seq>,
        /// Content that was added.
        parts: Vec<ContentPart>,
    },
    /// The provider reported the usage of a call. The last report about an answer counts.
    UsageReported {
        /// The answer it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<AnswerId>,
        /// The model that was billed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelName>,
        /// Tokens that were used.
        usage: Usage,
    },
    /// Another model took over.
    ModelChanged {
        /// The model from here on.
        model: ModelName,
    },
    /// Something that is none of the above, carried untouched.
    Carried {
        /// Name of the kind in its source.
        #[serde(rename = "type")]
        kind: String,
    },
}

/// Kind of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionKind {
    /// Settings of a request beside its history: model, limits, metadata.
    Settings,
    /// The system prompt, where it stands apart from the history.
    System,
    /// The tool definitions.
    Tools,
    /// A system or developer message inside the history.
    Message,
    /// Project instructions, environment or memory that an agent sends as a leading message.
    Project,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model's reasoning.
    Reasoning {
        /// Readable part of it; empty if all of it is hidden.
        text: String,
        /// The provider's proof or hidden form of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<ReasoningSeal>,
    },
    /// A tool was called.
    ToolCall(ToolCall),
    /// The model refused.
    Refusal {
        /// In these words.
        text: String,
    },
    /// An image, document or sound.
    Media(Media),
    /// A block this version does not know, or one only its provider may interpret.
    Opaque {
        /// Name that the provider gives it.
        name: String,
        /// The block.
        json: String,
    },
}

/// Proof that makes reasoning acceptable to its provider again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningSeal {
    /// Readable reasoning, signed.
    Signature(String),
    /// Reasoning that only the provider can read.
    Encrypted(String),
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id. Not unique over a session.
    pub id: CallId,
    /// The tool.
    pub name: ToolName,
    /// The arguments exactly as the model wrote them: usually JSON, not always valid.
    pub arguments: String,
    /// The namespace the tool lives in, where the provider has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Form in which the tool takes its arguments.
    #[serde(default, skip_serializing_if = "CallForm::is_function")]
    pub form: CallForm,
}

impl ToolCall {
    /// A call of a function with JSON arguments.
    pub fn function(id: impl Into<CallId>, name: impl Into<ToolName>, arguments: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            namespace: None,
            form: CallForm::Function,
        }
    }
}

/// Form in which a tool takes its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallForm {
    /// As a JSON object.
    #[default]
    Function,
    /// As free text.
    Custom,
}

impl CallForm {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_function(&self) -> bool {
        *self == Self::Function
    }
}

/// Result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call it answers.
    pub call: CallId,
    /// The tool, where the source says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ToolName>,
    /// Text and media.
    pub parts: Vec<ContentPart>,
    /// True if the tool reported an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub error: bool,
}

/// Reason for which a compaction was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionTrigger {
    /// A threshold was passed.
    Threshold,
    /// The provider refused a request as too long.
    Overflow,
    /// A person asked.
    Manual,
    /// The agent asked.
    Agent,
    /// The session was idle for a while.
    Idle,
    /// A model with a smaller window takes over.
    ModelSwitch,
    /// The recording does not say.
    Unknown,
}

impl CompactionTrigger {
    /// Returns true if a compaction was requested explicitly, and not by a threshold.
    pub fn is_requested(self) -> bool {
        match self {
            Self::Manual | Self::Agent | Self::Idle | Self::ModelSwitch | Self::Overflow => true,
            Self::Threshold | Self::Unknown => false,
        }
    }
}

/// A compaction: the span it covers and the summary in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// Summary that stands for the span.
    pub summary: Summary,
    /// The last event the summary covers.
    pub through: Seq,
    /// The first event kept verbatim; `None` if no event before the compaction was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_kept: Option<Seq>,
    /// The context's size before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<Tokens>,
    /// The context's size after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<Tokens>,
    /// Reason for which it was made.
    pub trigger: CompactionTrigger,
}

impl Compaction {
    /// Beginning of the events that it keeps, given its own place: its first kept event, if that is before
    /// it.
    pub fn kept_from(&self, at: Seq) -> Seq {
        self.first_kept.filter(|first| *first < at).unwrap_or(at)
    }
}

/// Replacement of a compacted span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Summary {
    /// Text anyone can read.
    Text(String),
    /// Items that name the events they came from, and the words they were sent in.
    Structured {
        /// Text that is sent.
        text: String,
        /// Its content as data.
        brief: Box<StructuredSummary>,
    },
    /// A provider's own form, which only it can read.
    Encrypted(String),
}

impl Summary {
    /// The readable text; empty for an encrypted one.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Structured { text, .. } => text,
            Self::Encrypted(_) => "",
        }
    }
}

/// Content that a pin holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pin {
    /// An event.
    Event(Seq),
    /// Words.
    Text(String),
}

/// Usage of one call, in the same terms for every provider: the four numbers never overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input that no cache helped with.
    pub uncached: Tokens,
    /// Input read from the cache.
    pub cache_read: Tokens,
    /// Input written to the cache.
    pub cache_write: Tokens,
    /// The part of `cache_write` that was paid to live for an hour.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_hour: Tokens,
    /// Output, reasoning included.
    pub output: Tokens,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(tokens: &Tokens) -> bool {
    tokens.0 == 0
}

impl Usage {
    /// All input: the measured size of the context.
    pub fn input(&self) -> Tokens {
        self.uncached + self.cache_read + self.cache_write
    }

    /// Input and output: the size of the context in the next call.
    pub fn total(&self) -> Tokens {
        self.input() + self.output
    }
}

impl Fact {
    /// The name of its kind, as it is stored.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Instructed { .. } => "instructed",
            Self::UserSaid { .. } => "user_said",
            Self::AssistantSaid { .. } => "assistant_said",
            Self::ToolReturned { .. } => "tool_returned",
            Self::CompactionRequested { .. } => "compaction_requested",
            Self::Compacted(_) => "compacted",
            Self::CompactionReverted { .. } => "compaction_reverted",
            Self::CompactionRestored { .. } => "compaction_restored",
            Self::Pinned { .. } => "pinned",
            Self::Unpinned { .. } => "unpinned",
            Self::Injected { .. } => "injected",
            Self::UsageReported { .. } => "usage_reported",
            Self::ModelChanged { .. } => "model_changed",
            Self::Carried { .. } => "carried",
        }
    }

    /// Returns true if it gives the model a recall tool of Epitome, by which the model gets back content that
    /// requests leave out, under any name that a client or its tool server gives it: `epitome_recall`,
    /// `mcp__epitome__recall`.
    pub fn has_recall_tool(&self) -> bool {
        let Self::Instructed { what: InstructionKind::Tools, parts } = self else { return false };
        let is_recall = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.contains("epitome") && name.ends_with("recall")
        };
        parts.iter().any(|part| matches!(part, ContentPart::Opaque { name, .. } if is_recall(name)))
    }

    /// Returns true if it is part of the history that a client sends with each request.
    pub fn is_message(&self) -> bool {
        match self {
            Self::Instructed { what, .. } => *what != InstructionKind::Settings,
            Self::UserSaid { .. }
            | Self::AssistantSaid { .. }
            | Self::ToolReturned { .. }
            | Self::Carried { .. } => true,
            Self::CompactionRequested { .. }
            | Self::Compacted(_)
            | Self::CompactionReverted { .. }
            | Self::CompactionRestored { .. }
            | Self::Pinned { .. }
            | Self::Unpinned { .. }
            | Self::Injected { .. }
            | Self::UsageReported { .. }
            | Self::ModelChanged { .. } => false,
        }
    }

    /// Content of the message, tool results aside.
    pub fn parts(&self) -> &[ContentPart] {
        match self {
            Self::Instructed { parts, .. }
            | Self::UserSaid { parts }
            | Self::AssistantSaid { parts, .. }
            | Self::ToolReturned { parts, .. }
            | Self::Injected { parts, .. } => parts,
            Self::CompactionRequested { .. }
            | Self::Compacted(_)
            | Self::CompactionReverted { .. }
            | Self::CompactionRestored { .. }
            | Self::Pinned { .. }
            | Self::Unpinned { .. }
            | Self::UsageReported { .. }
            | Self::ModelChanged { .. }
            | Self::Carried { .. } => &[],
        }
    }

    /// The results a tool message carries.
    pub fn results(&self) -> &[ToolResult] {
        match self {
            Self::ToolReturned { results, .. } => results,
            _ => &[],
        }
    }

    /// The tool calls an answer makes.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        let parts = match self {
            Self::AssistantSaid { parts, .. } => parts.as_slice(),
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            ContentPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Every medium it carries.
    pub fn media(&self) -> impl Iterator<Item = &Media> {
        let inner = self.results().iter().flat_map(|result| &result.parts);
        inner.chain(self.parts()).filter_map(|part| match part {
            ContentPart::Media(media) => Some(media),
            _ => None,
        })
    }

    /// Shows every text in it to `see`, in the order it was sent, for counting and searching.
    pub fn visit_text<'a>(&'a self, see: &mut impl FnMut(&'a str)) {
        for result in self.results() {
            for part in &result.parts {
                part.visit_text(see);
            }
        }
        for part in self.parts() {
            part.visit_text(see);
        }
        match self {
            Self::Compacted(compaction) => see(compaction.summary.text()),
            Self::Pinned { pin: Pin::Text(text) }
            | Self::Unpinned { pin: Pin::Text(text) }
            | Self::CompactionRequested { focus: Some(text), .. } => see(text),
            _ => {}
        }
    }

    /// All its text, pieces separated by a line break.
    pub fn text(&self) -> String {
        let mut all = String::new();
        self.visit_text(&mut |text| {
            if !all.is_empty() {
                all.push('\n');
            }
            all.push_str(text);
        });
        all
    }
}

impl ContentPart {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The plain texts among some parts.
    pub fn texts(parts: &[Self]) -> impl Iterator<Item = &str> {
        parts.iter().filter_map(|part| match part {
            Self::Text { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Shows every text in it to `see`.
    pub fn visit_text<'a>(&'a self, see: &mut impl FnMut(&'a str)) {
        match self {
            Self::Text { text } | Self::Refusal { text } | Self::Reasoning { text, .. } => see(text),
            Self::ToolCall(call) => {
                see(&call.name.0);
                see(&call.arguments);
            }
            Self::Opaque { json, .. } => see(json),
            Self::Media(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_reads_back_as_it_was_stored() {
        let fact = Fact::AssistantSaid {
            answer: Some("msg_1".into()),
            model: None,
            parts: vec![
                ContentPart::Reasoning {
                    text: String::new(),
                    seal: Some(ReasoningSeal::Encrypted("x".into())),
                },
                ContentPart::ToolCall(ToolCall::function("c", "read", "{not json")),
                ContentPart::Media(Media::inline("image/png", b"x")),
            ],
        };
        let event = Event::from_fact(fact.clone(), None);
        assert_eq!(serde_json::from_str::<Fact>(&event.fact_json()).unwrap(), fact);
        assert_eq!(fact.text(), "\nread\n{not json".trim_start());
    }
}
