//! Who sent a request, as far as it says: which agent, which of its sessions, which thread of it, and what for.
//!
//! Every client names its sessions in a way of its own, most in headers. An id is a hint and no proof: some are not
//! unique, a subagent may share its parent's, and a title may be asked for under the session's own. So whoever places
//! a request reads the history too.

use crate::seen::Seen;

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The program.
    pub client: Client,
    /// Its id of the session, shared by the session's subagents where the client does so.
    pub session: Option<String>,
    /// Its id of the thread within the session, where it has one: a subagent, an agent's own thread.
    pub thread: Option<String>,
    /// The thread, or session, that started this one.
    pub parent: Option<String>,
    /// What the request is for.
    pub purpose: Purpose,
}

/// A program that sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// OpenCode.
    OpenCode,
    /// goose.
    Goose,
    /// pi.
    Pi,
    /// A program nobody has described here: an SDK script.
    Other,
}

impl Client {
    /// Its name, as sessions are labelled with it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::OpenCode => "opencode",
            Self::Goose => "goose",
            Self::Pi => "pi",
            Self::Other => "client",
        }
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The next turn of a conversation.
    Turn,
    /// A name for the session.
    Title,
    /// The client's own summary of the session.
    Compaction,
}

impl Purpose {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Title => "title",
            Self::Compaction => "compaction",
        }
    }
}

impl Caller {
    /// Reads who sent `request` out of its headers (`header` looks one up by its lower-case name) and its body.
    pub fn of<'h>(header: impl Fn(&str) -> Option<&'h str>, request: &Seen<'_>) -> Self {
        let _ = request;
        let session = header("x-session-id").map(str::to_owned);
        Self { client: Client::Other, session, thread: None, parent: None, purpose: Purpose::Turn }
    }
}
