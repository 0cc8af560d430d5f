//! Who sent a request, as far as it says: which agent, which of its sessions, which thread of it, and what for.
//!
//! Every client names its sessions in a way of its own, most in headers. An id is a hint and no proof: some are not
//! unique, a subagent may share its parent's, and a title may be asked for under the session's own. So whoever places
//! a request reads the history too.

use crate::{json::Json, seen::Seen};

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The program.
    pub client: Client,
    /// Its id of the session, shared by the session's subagents where the client does so.
    pub session: Option<String>,
    /// Who gave that id.
    pub naming: Naming,
    /// Its id of the thread within the session, where it has one: a subagent, an agent's own thread.
    pub thread: Option<String>,
    /// The thread, or session, that started this one.
    pub parent: Option<String>,
    /// What the request is for.
    pub purpose: Purpose,
}

/// Who gives a session its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// The client, by a habit of its own: a hint, since some clients give an id twice.
    Client,
    /// Whoever set the client up, in the header [`SESSION_HEADER`]: everything under that id is one session.
    User,
}

/// The header that names the session of a request, whatever ids its client sends.
pub const SESSION_HEADER: &str = "x-epitome-session";

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
    ///
    /// ```
    /// use epitome_wire::{Format, caller::{Caller, Client}, seen::{Memo, Seen}};
    ///
    /// let request = Seen::read(Format::OpenaiChat, r#"{"messages":[]}"#, &Memo::default())?;
    /// let header = |name: &str| (name == "agent-session-id").then_some("20261115_1");
    /// let caller = Caller::of(header, &request);
    /// assert_eq!((caller.client, caller.session.as_deref()), (Client::Goose, Some("20261115_1")));
    /// # Ok::<(), epitome_wire::WireError>(())
    /// ```
    pub fn of<'h>(header: impl Fn(&str) -> Option<&'h str>, request: &Seen<'_>) -> Self {
        let said = Said { header: &header, request };
        let (client, turn) = (said.client(), said.turn());
        let purpose = said.purpose(client, &turn);
        let Ids { session, thread, parent } = match client {
            Client::ClaudeCode => said.claude_code(),
            Client::Codex => said.codex(turn),
            Client::OpenCode => said.opencode(),
            Client::Goose => {
                Ids { session: said.named().or_else(|| said.id("agent-session-id")), ..Ids::default() }
            }
            Client::Pi => {
                let own = || said.id("session_id").or_else(|| said.cache_key());
                Ids { session: said.named().or_else(own), ..Ids::default() }
            }
            Client::Other => said.other(),
        };
        let naming = if said.named().is_some() { Naming::User } else { Naming::Client };
        Self { client, session, naming, thread, parent, purpose }
    }
}

/// What a client calls a request's place among its sessions.
#[derive(Default)]
struct Ids {
    session: Option<String>,
    thread: Option<String>,
    parent: Option<String>,
}

/// No client's id is longer; what is longer is cut.
const LONGEST_ID: usize = 200;

/// An id as it may be kept: nothing that could not stand in a line of text.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return None;
    }
    Some(text.get(..text.floor_char_boundary(LONGEST_ID)).unwrap_or(text).to_owned())
}

/// What a request says of whoever sent it.
struct Said<'s, 'h> {
    header: &'s dyn Fn(&str) -> Option<&'h str>,
    request: &'s Seen<'s>,
}

/// What Codex says of the turn that a request belongs to.
#[derive(Default)]
struct Turn {
    session: Option<String>,
    thread: Option<String>,
    compacts: bool,
}

impl Said<'_, '_> {
    /// A header that is an id.
    fn id(&self, name: &str) -> Option<String> {
        (self.header)(name).and_then(id)
    }

    fn first_id(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.id(name))
    }

    /// The session as the user calls it.
    fn named(&self) -> Option<String> {
        self.id(SESSION_HEADER)
    }

    fn client(&self) -> Client {
        let has = |name: &str| (self.header)(name).is_some();
        let named = |name: &str| (self.header)(name).unwrap_or_default().to_lowercase();
        let agent = named("user-agent");
        let is_opencode = |name: &str| (self.header)(name).is_some_and(|id| id.starts_with("ses_"));
        if has("x-claude-code-session-id") || agent.starts_with("claude-cli") || self.user_session().is_some()
        {
            Client::ClaudeCode
        } else if ["x-codex-turn-metadata", "x-codex-window-id"].into_iter().any(has)
            || (has("session-id") && has("thread-id"))
            || [&agent, &named("originator")].into_iter().any(|name| name.starts_with("codex"))
        {
            Client::Codex
        } else if agent.contains("opencode")
            || ["x-session-id", "x-session-affinity"].into_iter().any(is_opencode)
        {
            Client::OpenCode
        } else if has("agent-session-id") || agent.starts_with("goose") {
            Client::Goose
        } else if has("session_id") {
            Client::Pi
        } else {
            Client::Other
        }
    }

    /// A subagent shares its session's id, and has one of its own beside it.
    fn claude_code(&self) -> Ids {
        let own = || self.id("x-claude-code-session-id").or_else(|| self.user_session());
        let session = self.named().or_else(own);
        let thread = self.id("x-claude-code-agent-id");
        let started = || self.id("x-claude-code-parent-agent-id").or_else(|| session.clone());
        let parent = thread.as_ref().and_then(|_| started());
        Ids { session, thread, parent }
    }

    /// A subagent shares its session's id and cache key: only its thread differs.
    fn codex(&self, turn: Turn) -> Ids {
        let own = || self.first_id(&["session-id", "session_id", "conversation_id"]);
        let session = self.named().or_else(own);
        let thread = self.id("thread-id").or(turn.thread).or_else(|| self.id("x-client-request-id"));
        Ids {
            session: session.or(turn.session).or_else(|| self.cache_key()),
            thread,
            parent: self.id("x-codex-parent-thread-id"),
        }
    }

    /// A subagent has a session of its own, which names its parent.
    fn opencode(&self) -> Ids {
        let own = self.first_id(&["x-session-id", "x-session-affinity"]).or_else(|| self.cache_key());
        let parent = self.id("x-parent-session-id");
        let session = self.named().or_else(|| parent.clone()).or_else(|| own.clone());
        Ids { session, thread: own, parent }
    }

    fn other(&self) -> Ids {
        let metadata = || self.request.setting("metadata")?.text_at("session_id").and_then(id);
        // A cache key is no id: scripts give the same one to every run of a prompt.
        let session = self.named().or_else(|| self.id("x-session-id")).or_else(metadata);
        Ids { session, ..Ids::default() }
    }

    fn cache_key(&self) -> Option<String> {
        self.request.setting("prompt_cache_key")?.as_text().and_then(id)
    }

    /// The session in Claude Code's `metadata.user_id`: JSON, or a name that ends with it.
    fn user_session(&self) -> Option<String> {
        let metadata = self.request.setting("metadata")?;
        let user = metadata.text_at("user_id")?;
        if user.starts_with('{') {
            return Json::parse(user, "a user's id").ok()?.text_at("session_id").and_then(id);
        }
        let (_, session) = user.rsplit_once("_session_")?;
        id(session)
    }

    /// What Codex says of the turn, in a header and again in the body.
    fn turn(&self) -> Turn {
        const NAME: &str = "x-codex-turn-metadata";
        let metadata = self.request.setting("client_metadata");
        let said = (self.header)(NAME).or_else(|| metadata.as_ref()?.text_at(NAME));
        let Some(Ok(turn)) = said.map(|said| Json::parse(said, "a turn's metadata")) else {
            return Turn::default();
        };
        let text = |key: &str| turn.text_at(key).and_then(id);
        let compacts = turn.text_at("request_kind") == Some("compaction");
        Turn { session: text("session_id"), thread: text("thread_id"), compacts }
    }

    fn purpose(&self, client: Client, turn: &Turn) -> Purpose {
        let (system, last) = (self.request.system_asks(), self.request.last_asks());
        let apart = !self.request.has_tools();
        let compacts = turn.compacts
            || (self.header)("x-openai-subagent") == Some("compact")
            || last == Some(Purpose::Compaction)
            || (apart && system == Some(Purpose::Compaction));
        // Of these it is known that they have titles made, and how they ask for one.
        let has_titles = matches!(client, Client::ClaudeCode | Client::OpenCode | Client::Goose);
        if compacts {
            Purpose::Compaction
        } else if has_titles && apart && [system, last].contains(&Some(Purpose::Title)) {
            Purpose::Title
        } else {
            Purpose::Turn
        }
    }
}
