//! Claude Code's JSONL: Anthropic messages in envelopes, linked into a tree.
//!
//! A message keeps the exact bytes of the inner `message`. An answer is spread over several lines that share the
//! message's id, one content block each, with results of earlier blocks in between: each line is a fragment.
//!
//! The model saw these lines: user and assistant lines, hidden (`isMeta`) ones included; attachments, which the agent
//! words as reminders beside the user's messages; output of local commands; text typed while the agent was at work.
//! It did not see the agent's own error messages, progress, snapshots, titles, statistics. Those are counted and
//! passed over.

mod agents;
mod attachment;
mod compaction;
mod log;
mod queue;
#[cfg(test)]
pub(super) mod tests;
mod write;

pub(super) use self::write::write;

use self::log::ClaudeLog;
use super::{
    TranscriptError, TranscriptFile, TranscriptFormat,
    json_lines::{TranscriptLimits, values},
};
use crate::json::Json;

/// Returns true if a file that begins with this value is Claude Code's.
pub(crate) fn recognises(first: &serde_json::Value) -> bool {
    let has = |key: &str| first.get(key).is_some_and(serde_json::Value::is_string);
    let named = has("sessionId") && first.get("projectHash").is_none() && first.get("payload").is_none();
    let first_line = match first.get("type").and_then(serde_json::Value::as_str) {
        Some("summary") => has("leafUuid"),
        Some("file-history-snapshot") => has("messageId"),
        Some(_) => named,
        None => false,
    };
    first_line || (named && has("uuid"))
}

/// Reads a session. A file that holds no conversation yet has none.
pub(crate) fn read(
    name: &str,
    bytes: &[u8],
    limits: &TranscriptLimits,
) -> Result<TranscriptFile, TranscriptError> {
    let mut reading = TranscriptFile::new(TranscriptFormat::ClaudeCode);
    let mut titles = ClaudeTitles::default();
    let mut log: Option<ClaudeLog> = None;
    let mut seen = false;
    for (number, line) in values(bytes, limits) {
        match line {
            Ok(line) => {
                seen = true;
                let kind = line.text_at("type").unwrap_or("line without a type");
                if titles.take(kind, &line) {
                    reading.skip(kind);
                    continue;
                }
                // Lines with content always name their session; notes before them may not.
                if line.text_at("sessionId").is_some() || line.get("message").is_some() {
                    log.get_or_insert_with(|| ClaudeLog::new(name, &line));
                }
                match &mut log {
                    Some(log) => log.take(number, kind, &line, &mut reading),
                    None => reading.skip(kind),
                }
            }
            Err(warning) => reading.warnings.push(warning),
        }
    }
    if !seen {
        return Err(TranscriptError::nothing("Claude Code", &reading.warnings));
    }
    if let Some(log) = log {
        let title = titles.title(&log);
        reading.sessions.push(log.into_session(title));
    } else {
        reading.warn("no line names a session yet; the file will be read once its conversation has begun");
    }
    Ok(reading)
}

/// Titles of the session: from its user, from the agent, or from a summary of it.
#[derive(Default)]
struct ClaudeTitles {
    custom: Option<String>,
    made: Option<String>,
    /// Summaries with the last line that each covers, which may be another file's.
    summaries: Vec<(String, String)>,
}

impl ClaudeTitles {
    /// Takes a line that is only a title, and returns true if it was one.
    fn take(&mut self, kind: &str, line: &Json<'_>) -> bool {
        let text = |key: &str| line.text_at(key).filter(|title| !title.is_empty()).map(str::to_owned);
        match kind {
            "custom-title" => self.custom = text("customTitle").or(self.custom.take()),
            "ai-title" => self.made = text("aiTitle").or(self.made.take()),
            "summary" => self.summaries.extend(text("leafUuid").zip(text("summary"))),
            _ => return false,
        }
        true
    }

    fn title(self, log: &ClaudeLog) -> Option<String> {
        let own = self.summaries.into_iter().rev().find(|(leaf, _)| log.knows(leaf));
        self.custom.or(self.made).or(own.map(|(_, summary)| summary))
    }
}
