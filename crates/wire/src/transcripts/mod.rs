//! Transcript files of agents, read into events.
//!
//! A reader takes the bytes of a file and returns the sessions in it. It is prefix-stable: reading a file that has
//! grown gives the old events first, unchanged, then the new ones, so that an import can append the new events.

mod assemble;
mod claude_code;
mod codex;
mod continuation;
mod detect;
mod epitome;
mod error;
#[cfg(test)]
mod fuzz;
mod gemini;
mod gemini_requests;
mod goose;
mod json_lines;
mod opencode;
mod openhands;
mod pi;
mod provider_messages;
mod raw_json;
#[cfg(test)]
mod real_effects;
#[cfg(test)]
mod real_lines;
#[cfg(test)]
mod real_sessions;
mod shape_probe;
mod swe_agent;
mod tau2;
mod tau_bench;
#[cfg(test)]
mod testing;
mod threads;
mod time;
mod unanswered_calls;
mod zst;

use std::{collections::BTreeMap, fmt};

use epitome_core::{Event, Seq, SessionId, ThreadId, id::CallId};

pub use continuation::{
    Continuation, ContinuedContent, ContinuedMessage, ResumableAgent, SessionTarget, WriteSessionError,
    WrittenSession,
};
pub use error::TranscriptError;
pub use json_lines::TranscriptLimits;

/// Reads a transcript file of any agent.
///
/// The format is recognised from the content, never from the file's name. `name` is a stable name of the file, such
/// as its absolute path: sessions that have no id of their own are named after it, with `#` and their index if the
/// file holds many. Files compressed with zstd are unpacked.
///
/// ```
/// use epitome_wire::transcripts::{TranscriptFormat, TranscriptLimits, read};
///
/// let file = br#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]"#;
/// let reading = read("/chat.json", file, &TranscriptLimits::default())?;
/// assert_eq!(reading.format, TranscriptFormat::OpenaiChat);
/// assert_eq!(reading.sessions[0].threads[0].events.len(), 2);
/// # Ok::<(), epitome_wire::transcripts::TranscriptError>(())
/// ```
pub fn read(name: &str, bytes: &[u8], limits: &TranscriptLimits) -> Result<TranscriptFile, TranscriptError> {
    let mut reading = if zst::is_compressed(bytes) {
        detect::read(name, &zst::decompress(bytes, limits)?, limits)?
    } else {
        detect::read(name, bytes, limits)?
    };
    unanswered_calls::warn_unanswered(&mut reading);
    Ok(reading)
}

/// Contents of a file.
#[derive(Clone, Debug)]
pub struct TranscriptFile {
    /// Format of the file.
    pub format: TranscriptFormat,
    /// The sessions, in the order they stand in the file.
    pub sessions: Vec<TranscriptSession>,
    /// Oddities found, with their lines.
    pub warnings: Vec<TranscriptWarning>,
    /// Number of records passed over because they are not part of a conversation, by type.
    pub skipped: BTreeMap<String, u64>,
}

/// One session of a file.
#[derive(Clone, Debug)]
pub struct TranscriptSession {
    /// Agent's own session id if that is a UUID, else derived from the format and `key`.
    pub id: SessionId,
    /// Agent's own name for the session, or its position (file name and index).
    pub key: String,
    /// Title, if the agent recorded one.
    pub title: Option<String>,
    /// Folder in which the agent worked, if it recorded one.
    pub folder: Option<String>,
    /// The threads: parents before their forks, the main one first.
    pub threads: Vec<TranscriptThread>,
    /// Newest thread of the session.
    pub head: ThreadId,
}

/// One thread of a session.
#[derive(Clone, Debug)]
pub struct TranscriptThread {
    /// Derived from the session and the agent's name for the thread.
    pub id: ThreadId,
    /// Name for display: `main`, an agent's id, a branch.
    pub name: String,
    /// Origin of the thread.
    pub start: TranscriptThreadStart,
    /// Its own events; those of a fork come after the ones it shares.
    pub events: Vec<Event>,
}

impl TranscriptSession {
    /// The events of a thread as the thread sees them: a fork shares its parents' up to where it left them.
    pub fn thread_events(&self, thread: ThreadId) -> Vec<Event> {
        let mut chain = Vec::new();
        let mut at = (thread, u64::MAX);
        while let Some(thread) = self.threads.iter().find(|thread| thread.id == at.0) {
            let (parent, before) = match &thread.start {
                TranscriptThreadStart::Fork { of, at } => (Some(*of), at.0),
                TranscriptThreadStart::Root | TranscriptThreadStart::Spawned { .. } => (None, 0),
            };
            let own = usize::try_from(at.1.saturating_sub(before)).unwrap_or(usize::MAX);
            chain.push(thread.events.iter().take(own));
            match parent {
                // It may leave its parent before the parent has events of its own.
                Some(parent) => at = (parent, before.min(at.1)),
                None => break,
            }
        }
        chain.into_iter().rev().flatten().cloned().collect()
    }
}

/// Origin of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscriptThreadStart {
    /// No parent.
    Root,
    /// It shares another thread's events up to and with `at`.
    Fork {
        /// The thread it forks from.
        of: ThreadId,
        /// The last shared event.
        at: Seq,
    },
    /// A tool call of another thread started it; it shares no events.
    Spawned {
        /// The thread that made the call, if known.
        by: Option<ThreadId>,
        /// The call, if known.
        call: Option<CallId>,
    },
}

/// An oddity in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptWarning {
    /// The line, counted from 1, in files of lines.
    pub line: Option<u64>,
    /// Description of the oddity, and the way it was handled.
    pub what: String,
}

impl fmt::Display for TranscriptWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => self.what.fmt(f),
        }
    }
}

/// Formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TranscriptFormat {
    /// Claude Code's JSONL.
    ClaudeCode,
    /// Codex's rollout JSONL.
    Codex,
    /// OpenCode's export JSON.
    Opencode,
    /// pi's JSONL tree.
    Pi,
    /// Gemini CLI's JSON and JSONL.
    Gemini,
    /// SWE-agent's trajectories.
    SweAgent,
    /// OpenHands' `output.jsonl`.
    Openhands,
    /// tau-bench results.
    TauBench,
    /// tau2-bench results.
    Tau2,
    /// OpenAI Chat messages.
    OpenaiChat,
    /// OpenAI Responses items.
    OpenaiResponses,
    /// Anthropic messages.
    Anthropic,
    /// Contents of Gemini's `generateContent`.
    GeminiRequest,
    /// Epitome's own export, an event a line.
    Epitome,
}

impl TranscriptFormat {
    /// Every format.
    pub const ALL: [Self; 14] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Opencode,
        Self::Pi,
        Self::Gemini,
        Self::SweAgent,
        Self::Openhands,
        Self::TauBench,
        Self::Tau2,
        Self::OpenaiChat,
        Self::OpenaiResponses,
        Self::Anthropic,
        Self::GeminiRequest,
        Self::Epitome,
    ];

    /// Stable name of the format, in one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Pi => "pi",
            Self::Gemini => "gemini",
            Self::SweAgent => "swe-agent",
            Self::Openhands => "openhands",
            Self::TauBench => "tau-bench",
            Self::Tau2 => "tau2",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::GeminiRequest => "gemini-request",
            Self::Epitome => "epitome",
        }
    }
}

impl fmt::Display for TranscriptFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}
