//! Epochs: the calls between two deliberate resets of the provider's cache.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::context::{EditAuthor, Tier};

/// The calls in which each request extends the one before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Its number; the first is 0.
    pub number: u64,
    /// Cause that opened it.
    pub cause: EpochCause,
}

impl Epoch {
    /// The epoch of a session's first call.
    pub(super) const FIRST: Self = Self { number: 0, cause: EpochCause::First };

    pub(super) fn next(&self, cause: EpochCause) -> Self {
        Self { number: self.number + 1, cause }
    }
}

/// Cause for a new epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochCause {
    /// The first call.
    First,
    /// The trigger was passed.
    Trigger,
    /// The size at which a policy acts at any cost was passed.
    Force,
    /// The cache was cold, so that it was free.
    Cold,
    /// The last call used more than the model's input takes, by the provider's count.
    Usage,
    /// The saving is larger than the cost.
    BreakEven,
    /// A tier was over its cap.
    Cap(Tier),
    /// A reducer that is run before every call changed sent content.
    EveryCall(EditAuthor),
    /// The client changed sent content: its system prompt, its history.
    Client,
    /// The client changed its tools, or dropped them: they stand first in the cached content.
    Tools,
    /// The format requires extra words that no speaker wrote, a question before the first answer or a word to
    /// go on, and required others before.
    Format,
    /// Another model took over.
    Model,
    /// A compaction was undone, or brought back.
    Undone,
    /// A compaction was requested.
    Asked,
}

impl EpochCause {
    /// Returns true if a size demanded it: a trigger, a limit or a cap was passed.
    pub fn is_forced(&self) -> bool {
        matches!(self, Self::Trigger | Self::Force | Self::Usage | Self::Cap(_))
    }
}

impl fmt::Display for EpochCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Cow<'_, str> = match self {
            Self::First => "the first call".into(),
            Self::Trigger => "over the trigger".into(),
            Self::Force => "over the limit".into(),
            Self::Cold => "the cache was cold".into(),
            Self::Usage => "the last call used more than there is room for".into(),
            Self::BreakEven => "it pays".into(),
            Self::Cap(tier) => format!("{tier:?} over the cap").into(),
            Self::EveryCall(reducer) => format!("{reducer} on every call").into(),
            Self::Client => "the client changed its history".into(),
            Self::Tools => "the client changed its tools".into(),
            Self::Format => "the format wants other words around it".into(),
            Self::Model => "another model".into(),
            Self::Undone => "a compaction was undone or restored".into(),
            Self::Asked => "somebody asked for a compaction".into(),
        };
        f.write_str(&words)
    }
}
