//! Compactions as Claude Code records them: a boundary line, then the summary as a user message.

use epitome_core::{
    Fact, Seq, Tokens,
    event::{Compaction, CompactionTrigger, Summary},
};

use crate::json::Json;

/// Data of a boundary line about the compaction whose summary follows it.
pub(super) struct ClaudeCompactBoundary {
    trigger: CompactionTrigger,
    focus: Option<String>,
    tokens_before: Option<Tokens>,
    tokens_after: Option<Tokens>,
    /// The first of the lines that were kept.
    pub(super) kept: Option<String>,
}

impl Default for ClaudeCompactBoundary {
    /// Data for a summary without a boundary before it.
    fn default() -> Self {
        Self {
            trigger: CompactionTrigger::Unknown,
            focus: None,
            tokens_before: None,
            tokens_after: None,
            kept: None,
        }
    }
}

impl ClaudeCompactBoundary {
    /// Reads a boundary line.
    pub(super) fn read(line: &Json<'_>) -> Self {
        let metadata = line.get("compactMetadata").unwrap_or(line);
        let text = |value: Option<&Json<'_>>, key: &str| {
            value.and_then(|value| value.text_at(key)).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let tokens = |key: &str| metadata.get(key).and_then(Json::as_count).map(Tokens);
        Self {
            trigger: match metadata.text_at("trigger") {
                Some("auto") => CompactionTrigger::Threshold,
                Some("manual") => CompactionTrigger::Manual,
                _ => CompactionTrigger::Unknown,
            },
            focus: text(Some(metadata), "userContext"),
            tokens_before: tokens("preTokens"),
            tokens_after: tokens("postTokens"),
            kept: text(metadata.get("preservedSegment"), "headUuid"),
        }
    }

    /// The marker of a requested compaction.
    pub(super) fn request_fact(&self) -> Fact {
        Fact::CompactionRequested { trigger: self.trigger, focus: self.focus.clone() }
    }

    /// The compaction, of everything through `last` except the kept lines.
    pub(super) fn compaction_fact(self, summary: String, last: Seq, first_kept: Option<Seq>) -> Fact {
        Fact::Compacted(Compaction {
            summary: Summary::Text(summary),
            through: first_kept.map_or(last, Seq::previous),
            first_kept,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
            trigger: self.trigger,
        })
    }
}
