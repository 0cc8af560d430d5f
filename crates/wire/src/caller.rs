//! The sender of a request, as far as the request tells: the agent, its session, the thread within it, and the
//! purpose of the request.
//!
//! Every client names its sessions in its own way, most in headers. An id is a hint and no proof: some are not
//! unique, a subagent may share its parent's, and a title may be requested under the session's own id. Code that
//! assigns a request to a session therefore reads the history too.

use crate::{incoming::IncomingRequest, json::Json};

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The program.
    pub client: ClientProgram,
    /// The client's id for the session, which its subagents share in some clients.
    pub session: Option<String>,
    /// Source of that id.
    pub naming: SessionIdSource,
    /// The client's id for the thread within the session, if it has one: a subagent's, or an agent's own thread.
    pub thread: Option<String>,
    /// Id of the thread or session that started this one.
    pub parent: Option<String>,
    /// Purpose of the request.
    pub purpose: RequestPurpose,
}

/// Source of a session's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionIdSource {
    /// The client, in its own way: a hint, since some clients use an id twice.
    Client,
    /// The person who set the client up, in the header [`SESSION_HEADER`]: everything under that id is one session.
    User,
}

/// The header that names a request's session and takes precedence over the ids its client sends.
pub const SESSION_HEADER: &str = "x-epitome-session";

/// A program that sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientProgram {
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
    /// Gemini CLI.
    GeminiCli,
    /// Any other program, such as a script that uses an SDK.
    Other,
}

impl ClientProgram {
    /// Name of the client, used to label its sessions.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::OpenCode => "opencode",
            Self::Goose => "goose",
            Self::Pi => "pi",
            Self::GeminiCli => "gemini-cli",
            Self::Other => "client",
        }
    }
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestPurpose {
    /// The next turn of a conversation.
    Turn,
    /// A name for the session.
    Title,
    /// The client's own summary of the session.
    Compaction,
}

impl RequestPurpose {
    /// Name of the purpose.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Title => "title",
            Self::Compaction => "compaction",
        }
    }
}

impl Caller {
    /// Reads the sender of `request` from its headers (`header` looks one up by its lower-case name) and its body.
    ///
    /// ```
    /// use epitome_wire::{Format, caller::{Caller, ClientProgram}, incoming::{MessageMemo, IncomingRequest}};
    ///
    /// let request = IncomingRequest::read(Format::OpenaiChat, r#"{"messages":[]}"#, &MessageMemo::default())?;
    /// let header = |name: &str| (name == "agent-session-id").then_some("20261115_1");
    /// let caller = Caller::of(header, &request);
    /// assert_eq!((caller.client, caller.session.as_deref()), (ClientProgram::Goose, Some("20261115_1")));
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn of<'h>(header: impl Fn(&str) -> Option<&'h str>, request: &IncomingRequest<'_>) -> Self {
        let said = CallerEvidence { header: &header, request };
        let (client, turn) = (said.client(), said.turn());
        let purpose = said.purpose(client, &turn);
        let ClientIds { session, thread, parent } = match client {
            ClientProgram::ClaudeCode => said.claude_code(),
            ClientProgram::Codex => said.codex(turn),
            ClientProgram::OpenCode => said.opencode(),
            ClientProgram::Goose => ClientIds {
                session: said.named().or_else(|| said.id("agent-session-id")),
                ..ClientIds::default()
            },
            ClientProgram::Pi => {
                let own = || said.id("session_id").or_else(|| said.cache_key());
                ClientIds { session: said.named().or_else(own), ..ClientIds::default() }
            }
            ClientProgram::GeminiCli | ClientProgram::Other => said.other(),
        };
        let naming = if said.named().is_some() { SessionIdSource::User } else { SessionIdSource::Client };
        Self { client, session, naming, thread, parent, purpose }
    }
}

/// Ids by which a client names the session and thread of a request.
#[derive(Default)]
struct ClientIds {
    session: Option<String>,
    thread: Option<String>,
    parent: Option<String>,
}

/// Longest id kept; a longer one is cut. No known client's id is longer.
const MAX_ID_BYTES: usize = 200;

/// Cleans an id for storage: characters that could not stand in a line of text are removed.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return None;
    }
    Some(text.get(..text.floor_char_boundary(MAX_ID_BYTES)).unwrap_or(text).to_owned())
}

/// Headers and body of a request, from which its sender is read.
struct CallerEvidence<'s, 'h> {
    header: &'s dyn Fn(&str) -> Option<&'h str>,
    request: &'s IncomingRequest<'s>,
}

/// Codex's description of the turn that a request belongs to.
#[derive(Default)]
struct CodexTurnMetadata {
    session: Option<String>,
    thread: Option<String>,
    compacts: bool,
}

impl CallerEvidence<'_, '_> {
    /// Reads a header that holds an id.
    fn id(&self, name: &str) -> Option<String> {
        (self.header)(name).and_then(id)
    }

    fn first_id(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.id(name))
    }

    /// Session id set by the user.
    fn named(&self) -> Option<String> {
        self.id(SESSION_HEADER)
    }

    fn client(&self) -> ClientProgram {
        let has = |name: &str| (self.header)(name).is_some();
        let named = |name: &str| (self.header)(name).unwrap_or_default().to_lowercase();
        let agent = named("user-agent");
        let is_opencode = |name: &str| (self.header)(name).is_some_and(|id| id.starts_with("ses_"));
        if has("x-claude-code-session-id") || agent.starts_with("claude-cli") || self.user_session().is_some()
        {
            ClientProgram::ClaudeCode
        } else if ["x-codex-turn-metadata", "x-codex-window-id"].into_iter().any(has)
            || (has("session-id") && has("thread-id"))
            || [&agent, &named("originator")].into_iter().any(|name| name.starts_with("codex"))
        {
            ClientProgram::Codex
        } else if agent.contains("opencode")
            || ["x-session-id", "x-session-affinity"].into_iter().any(is_opencode)
        {
            ClientProgram::OpenCode
        } else if has("agent-session-id") || agent.starts_with("goose") {
            ClientProgram::Goose
        } else if has("session_id") {
            ClientProgram::Pi
        } else if agent.starts_with("geminicli") || agent.contains("gemini-cli") {
            ClientProgram::GeminiCli
        } else {
            ClientProgram::Other
        }
    }

    /// Reads Claude Code's ids. A subagent shares its session's id and has a second id of its own.
    fn claude_code(&self) -> ClientIds {
        let own = || self.id("x-claude-code-session-id").or_else(|| self.user_session());
        let session = self.named().or_else(own);
        let thread = self.id("x-claude-code-agent-id");
        let started = || self.id("x-claude-code-parent-agent-id").or_else(|| session.clone());
        let parent = thread.as_ref().and_then(|_| started());
        ClientIds { session, thread, parent }
    }

    /// Reads Codex's ids. A subagent shares its session's id and cache key; only its thread differs.
    fn codex(&self, turn: CodexTurnMetadata) -> ClientIds {
        let own = || self.first_id(&["session-id", "session_id", "conversation_id"]);
        let session = self.named().or_else(own);
        let thread = self.id("thread-id").or(turn.thread).or_else(|| self.id("x-client-request-id"));
        ClientIds {
            session: session.or(turn.session).or_else(|| self.cache_key()),
            thread,
            parent: self.id("x-codex-parent-thread-id"),
        }
    }

    /// Reads OpenCode's ids. A subagent has a session of its own, which names its parent.
    fn opencode(&self) -> ClientIds {
        let own = self.first_id(&["x-session-id", "x-session-affinity"]).or_else(|| self.cache_key());
        let parent = self.id("x-parent-session-id");
        let session = self.named().or_else(|| parent.clone()).or_else(|| own.clone());
        ClientIds { session, thread: own, parent }
    }

    fn other(&self) -> ClientIds {
        let metadata = || self.request.setting("metadata")?.text_at("session_id").and_then(id);
        // A cache key is no id: scripts give the same one to every run of a prompt.
        let session = self.named().or_else(|| self.id("x-session-id")).or_else(metadata);
        ClientIds { session, ..ClientIds::default() }
    }

    fn cache_key(&self) -> Option<String> {
        self.request.setting("prompt_cache_key")?.as_text().and_then(id)
    }

    /// Session id in Claude Code's `metadata.user_id`, which is JSON or a name that ends with it.
    fn user_session(&self) -> Option<String> {
        let metadata = self.request.setting("metadata")?;
        let user = metadata.text_at("user_id")?;
        if user.starts_with('{') {
            return Json::parse(user, "a user's id").ok()?.text_at("session_id").and_then(id);
        }
        let (_, session) = user.rsplit_once("_session_")?;
        id(session)
    }

    /// Reads Codex's description of the turn, from a header or from the body, which repeats it.
    fn turn(&self) -> CodexTurnMetadata {
        const NAME: &str = "x-codex-turn-metadata";
        let metadata = self.request.setting("client_metadata");
        let said = (self.header)(NAME).or_else(|| metadata.as_ref()?.text_at(NAME));
        let Some(Ok(turn)) = said.map(|said| Json::parse(said, "a turn's metadata")) else {
            return CodexTurnMetadata::default();
        };
        let text = |key: &str| turn.text_at(key).and_then(id);
        let compacts = turn.text_at("request_kind") == Some("compaction");
        CodexTurnMetadata { session: text("session_id"), thread: text("thread_id"), compacts }
    }

    fn purpose(&self, client: ClientProgram, turn: &CodexTurnMetadata) -> RequestPurpose {
        let (system, last) = (self.request.system_purpose(), self.request.last_purpose());
        let apart = !self.request.has_tools();
        let compacts = turn.compacts
            || (self.header)("x-openai-subagent") == Some("compact")
            || last == Some(RequestPurpose::Compaction)
            || (apart && system == Some(RequestPurpose::Compaction));
        // These clients are known to request titles, and the wording of their requests is known.
        let has_titles =
            matches!(client, ClientProgram::ClaudeCode | ClientProgram::OpenCode | ClientProgram::Goose);
        if compacts {
            RequestPurpose::Compaction
        } else if has_titles && apart && [system, last].contains(&Some(RequestPurpose::Title)) {
            RequestPurpose::Title
        } else {
            RequestPurpose::Turn
        }
    }
}
