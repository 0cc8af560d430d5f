//! Continuations: a session in the words in which another session goes on from it.
//!
//! What stands in it was decided before, by a policy, in a context. Here that context becomes messages that any agent can
//! be given, and each agent's writer puts them into the agent's own transcript format. A message that nobody changed keeps
//! the agent's own record; calls of tools that another agent has are told in words, because an agent that reads calls of
//! tools it lacks makes such calls.

mod of_context;

pub(super) use self::of_context::STOPPED;

use std::sync::Arc;

use epitome_core::{
    ContentPart, SessionId, Tokens,
    event::{RawDialect, RawJson, Timestamp, ToolResult},
    id::{AnswerId, ModelName},
};

use super::{TranscriptFormat, claude_code, codex, goose, opencode, pi};

/// Agents whose sessions can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResumableAgent {
    /// Claude Code, which reads a JSONL file of its project folder.
    ClaudeCode,
    /// Codex, which reads a rollout.
    Codex,
    /// OpenCode, which imports an export.
    Opencode,
    /// pi, which reads a JSONL tree.
    Pi,
    /// goose, which imports an export.
    Goose,
}

impl ResumableAgent {
    /// Every agent.
    pub const ALL: [Self; 5] = [Self::ClaudeCode, Self::Codex, Self::Opencode, Self::Pi, Self::Goose];

    /// Stable name, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Pi => "pi",
            Self::Goose => "goose",
        }
    }

    /// Name as its makers write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Opencode => "OpenCode",
            Self::Pi => "pi",
            Self::Goose => "goose",
        }
    }

    /// The agent of this name, which may also be that of a transcript format.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    /// The agent that writes a transcript format, if its sessions can be written.
    pub fn of_format(format: TranscriptFormat) -> Option<Self> {
        Self::named(format.name())
    }

    /// Tokens of the agent's own instructions and tools in its first request, at most: measured without plugins, at the
    /// version that the writer was made for, as a quarter of the request's letters.
    pub fn own_tokens(self) -> Tokens {
        match self {
            Self::ClaudeCode => Tokens(30_000),
            Self::Codex => Tokens(11_000),
            Self::Opencode => Tokens(9_000),
            Self::Pi => Tokens(2_500),
            Self::Goose => Tokens(5_000),
        }
    }

    /// Writes a session that goes on from `continuation`.
    pub fn write(
        self,
        continuation: &Continuation,
        target: &SessionTarget,
    ) -> Result<WrittenSession, WriteSessionError> {
        match self {
            Self::ClaudeCode => Ok(claude_code::write(continuation, target)),
            Self::Codex => Ok(codex::write(continuation, target)),
            Self::Opencode => opencode::write(continuation, target),
            Self::Pi => Ok(pi::write(continuation, target)),
            Self::Goose => Ok(goose::write(continuation, target)),
        }
    }
}

/// Identity of a session that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTarget {
    /// Its id; agents with ids of another form get one that is made from it.
    pub id: SessionId,
    /// Folder that the agent works in, as an absolute path.
    pub directory: String,
    /// Time of the writing.
    pub now: Timestamp,
    /// Title for people.
    pub title: Option<String>,
    /// Model that the session goes on with, as the agent names it: `PROVIDER/MODEL`, or for Codex a provider.
    pub model: Option<String>,
}

impl SessionTarget {
    /// An id of something in the session, the same each time it is written.
    pub(super) fn part_id(&self, index: usize) -> SessionId {
        SessionId::derived(&[&self.id.to_string(), &index.to_string()])
    }

    /// The provider and the model, if both are named.
    pub(super) fn provider_and_model(&self) -> Option<(&str, &str)> {
        self.model.as_deref()?.split_once('/')
    }
}

/// A session in an agent's own format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenSession {
    /// Id by which the agent resumes it; goose gives one when it imports.
    pub key: Option<String>,
    /// Place in the agent's folder, or for an import the name of a file.
    pub path: String,
    /// Contents of the file.
    pub contents: String,
}

/// Reason why a session could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteSessionError {
    /// No message says which model the session goes on with.
    #[error(
        "OpenCode keeps a model with each message, and none is known here: name one that it has (--model PROVIDER/MODEL, as \
         `opencode models` lists them)"
    )]
    NoModel,
}

/// A session in the words in which another one goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuation {
    /// Text that stands for everything before the messages.
    pub summary: Option<String>,
    /// The messages, in order.
    pub messages: Vec<ContinuedMessage>,
    /// Size of the whole session.
    pub tokens_before: Tokens,
}

/// A message of a continuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinuedMessage {
    /// Time of the message, if known.
    pub time: Option<Timestamp>,
    /// Its content.
    pub content: ContinuedContent,
    /// The agent's own record of it, if the message is as it was and the agent the same.
    pub(super) own: Option<OwnRecord>,
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContinuedContent {
    /// The user said something.
    User(Vec<ContentPart>),
    /// The agent or a hook added a text, or calls are told in words.
    Added(String),
    /// The model answered: text, calls, reasoning that only its provider reads.
    Answer {
        /// The answer that it is part of.
        answer: Option<AnswerId>,
        /// The model.
        model: Option<ModelName>,
        /// Content of the answer.
        parts: Vec<ContentPart>,
    },
    /// Tools returned.
    Results(Vec<ToolResult>),
    /// A record that only its agent understands.
    Carried,
}

/// A record of an agent's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnRecord {
    pub(super) dialect: RawDialect,
    pub(super) json: Arc<str>,
}

impl From<&RawJson> for OwnRecord {
    fn from(raw: &RawJson) -> Self {
        Self { dialect: raw.dialect.clone(), json: Arc::clone(&raw.json) }
    }
}

impl Continuation {
    /// Size of all texts by `count`, with some tokens for the wrapping of each message.
    pub fn tokens(&self, count: impl Fn(&str) -> Tokens) -> Tokens {
        const WRAPPING: Tokens = Tokens(8);
        let mut total = self.summary.as_deref().map_or(Tokens(0), &count);
        for message in &self.messages {
            total += WRAPPING;
            message.visit_text(&mut |text| total += count(text));
        }
        total
    }
}

impl ContinuedMessage {
    /// Shows every text in it to `see`.
    pub fn visit_text<'a>(&'a self, see: &mut impl FnMut(&'a str)) {
        match &self.content {
            ContinuedContent::User(parts) | ContinuedContent::Answer { parts, .. } => {
                for part in parts {
                    part.visit_text(see);
                }
            }
            ContinuedContent::Added(text) => see(text),
            ContinuedContent::Results(results) => {
                for part in results.iter().flat_map(|result| &result.parts) {
                    part.visit_text(see);
                }
            }
            ContinuedContent::Carried => {
                if let Some(own) = &self.own {
                    see(&own.json);
                }
            }
        }
    }

    /// The agent's own record, if it is in this dialect.
    pub(super) fn own_in(&self, dialect: &RawDialect) -> Option<&str> {
        self.own.as_ref().filter(|own| own.dialect == *dialect).map(|own| &*own.json)
    }
}

/// The text of some parts, in paragraphs; media are only named.
pub(super) fn text_of(parts: &[ContentPart]) -> String {
    let texts: Vec<String> = parts.iter().filter_map(part_text).collect();
    texts.join("\n\n")
}

/// The text of a part that is told in words, if there is any.
pub(super) fn part_text(part: &ContentPart) -> Option<String> {
    match part {
        ContentPart::Text { text } | ContentPart::Refusal { text } => {
            (!text.trim().is_empty()).then(|| text.clone())
        }
        ContentPart::Media(media) => {
            let kind = if media.mime.is_empty() { "an attachment" } else { &media.mime };
            Some(format!("[{kind}, which stands in the earlier session]"))
        }
        ContentPart::Opaque { name, .. } => Some(format!("[{name}, which stands in the earlier session]")),
        ContentPart::Reasoning { .. } | ContentPart::ToolCall(_) => None,
    }
}

/// The arguments of a call as a JSON object, whatever the model wrote.
pub(super) fn arguments_object(arguments: &str) -> serde_json::Value {
    match serde_json::from_str(arguments) {
        Ok(serde_json::Value::Object(object)) => serde_json::Value::Object(object),
        _ => serde_json::json!({ "input": arguments }),
    }
}

/// A time as agents write it: to the millisecond, in UTC.
pub(super) fn iso_time(time: Timestamp) -> String {
    let stamp = jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    stamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
