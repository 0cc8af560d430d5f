//! Demands of a provider on a request, and the behaviour of its prompt cache.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{event::RawDialect, tokens::Tokens};

/// The request format a model is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireProtocol {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Gemini generateContent.
    Gemini,
}

impl WireProtocol {
    /// Dialect of its JSON.
    pub fn dialect(self) -> RawDialect {
        match self {
            Self::Anthropic => RawDialect::Anthropic,
            Self::OpenaiChat => RawDialect::OpenaiChat,
            Self::OpenaiResponses => RawDialect::OpenaiResponses,
            Self::Gemini => RawDialect::Gemini,
        }
    }
}

/// Something a provider demands of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderRule {
    /// User and assistant take turns.
    RolesAlternate,
    /// The first message is the user's.
    FirstIsUser,
    /// Every call is answered before the next message of anyone else.
    CallsAnswered,
    /// Results come first in the message that carries them.
    ResultsFirst,
    /// No text block is empty.
    NoEmptyText,
    /// A thinking block is sent back byte for byte, with its signature, or not at all.
    ThinkingVerbatim,
    /// The thinking of an open tool loop is kept.
    ThinkingStaysInOpenLoop,
    /// A thinking block holds only while system, tools and every earlier message are unchanged.
    PreservedThinking,
    /// A reasoning item stays with the item that followed it.
    ReasoningStaysWithItem,
    /// The reasoning of a turn that called tools is sent back in every later request.
    ReasoningReturned,
    /// The first call of each step in the current turn carries its signature.
    CallsSigned,
    /// A compaction item is used as it came, and items before the newest one may be left out.
    CompactionItemOpaque,
    /// The last message is not the assistant's.
    PrefillRefused,
}

/// Behaviour of a prompt cache. Unknown facts are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheRules {
    /// Places at which entries are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<CacheWriteMode>,
    /// Most breakpoints that a request may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakpoints: Option<u32>,
    /// Distance before a breakpoint in which an older entry is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_back: Option<u32>,
    /// The shortest prefix that is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_prefix: Option<Tokens>,
    /// Unit of cached lengths: they are multiples of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Tokens>,
    /// Lifetimes that may be requested for entries, in seconds, the usual one first. Empty if none is
    /// promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetimes: Option<Vec<u64>>,
    /// Part of the cache that each change invalidates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub invalidated_by: BTreeMap<RequestAspect, InvalidationScope>,
}

/// Places at which cache entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheWriteMode {
    /// At the breakpoints of the request and nowhere else.
    Breakpoints,
    /// At places that the provider chooses.
    Automatic,
    /// One at the end by itself, more at breakpoints; or at breakpoints only.
    ImplicitAndExplicit,
}

/// A part of a request that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestAspect {
    /// The model.
    Model,
    /// Tool definitions.
    Tools,
    /// The system prompt.
    System,
    /// Tool that must be called.
    ToolChoice,
    /// Presence of images.
    Images,
    /// Amount of thinking, if any.
    Thinking,
    /// Effort of the model.
    Effort,
    /// The format of the answer.
    Format,
}

/// Part of the cache that a change invalidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidationScope {
    /// Messages.
    Messages,
    /// The system prompt and messages.
    SystemAndMessages,
    /// Everything.
    All,
}

impl CacheRules {
    /// These rules, with missing ones from `base`.
    pub(super) fn merged_over(self, base: Self) -> Self {
        let mut invalidated_by = base.invalidated_by;
        invalidated_by.extend(self.invalidated_by);
        Self {
            written: self.written.or(base.written),
            breakpoints: self.breakpoints.or(base.breakpoints),
            look_back: self.look_back.or(base.look_back),
            minimum_prefix: self.minimum_prefix.or(base.minimum_prefix),
            granularity: self.granularity.or(base.granularity),
            lifetimes: self.lifetimes.or(base.lifetimes),
            invalidated_by,
        }
    }
}
