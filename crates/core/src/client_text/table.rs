//! The table of texts that clients write in the user's name: how each is recognised, who writes it, what it is, and
//! whether it holds for the whole session.
//!
//! Rows come from real sessions and from the clients' sources. A new client or a new text is a row here and an example in
//! the tests; nothing else needs to know its words.

use std::fmt;

use super::ClientTextKind::{
    self, Attachment, ClientPrompt, CommandEcho, CommandOutput, Continuation, ControlToken, EditorState,
    Environment, HookOutput, Instructions, Interruption, MediaPlaceholder, Notification, Reminder, Skill,
    ToolOutput, UserWordsFrame,
};

/// A text that a client writes in the user's name.
#[derive(Debug)]
pub(crate) struct ClientText {
    /// The client that writes it.
    pub(crate) client: &'static str,
    /// Its kind.
    pub(crate) kind: ClientTextKind,
    /// How it is recognised.
    pub(crate) mark: TextMark,
    /// Whether it is standing context.
    pub(crate) standing: StandingRule,
}

/// The mark by which a text of a client is recognised. A *part* is a text block of a message; most clients send what
/// they write as a part of its own.
#[derive(Debug)]
pub(crate) enum TextMark {
    /// A block from `<name …>`, where a line begins, to `</name>`.
    Tag(&'static str),
    /// The same of every tag whose name begins so.
    TagPrefix(&'static str),
    /// The same of every tag whose name ends so.
    TagSuffix(&'static str),
    /// A tag around words of the user: only the tags are the client's.
    Frame(&'static str),
    /// A tag around what the user typed behind a command: the user's words if they read as such.
    Arguments(&'static str),
    /// A tagged block that quotes the user between two formulas.
    Quotes {
        /// The tag.
        tag: &'static str,
        /// The line before the user's words begins so.
        before: &'static str,
        /// The line behind them begins so.
        behind: &'static str,
    },
    /// A whole part that begins so.
    Opening(&'static str),
    /// A whole part that says only this.
    Exactly(&'static str),
    /// A whole part that is one bracket, which begins so.
    Bracket(&'static str),
    /// A whole part whose first line begins and ends so, and whose second line begins with one of some texts.
    FirstLine {
        /// The beginning of the first line.
        begins: &'static str,
        /// Its end.
        ends: &'static str,
        /// Beginnings of the second line; any line will do if there are none.
        then: &'static [&'static str],
    },
    /// The beginning of a part, up to a line that must follow.
    Header {
        /// The first line begins so.
        begins: &'static str,
        /// The line that ends it.
        to: &'static str,
    },
    /// The end of a part, from the last line that begins so.
    Footer {
        /// The beginning of the line.
        begins: &'static str,
        /// The end of the part.
        ends: &'static str,
    },
    /// The last word of a part.
    LastWord(&'static str),
    /// A section that begins where a line does and ends with a text, or with the message.
    Section {
        /// The first line begins so.
        begins: &'static str,
        /// The end of it.
        to: &'static str,
    },
    /// A line of nothing but brackets that begin so.
    BracketLine(&'static str),
}

impl fmt::Display for TextMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, "`<{tag}>` to `</{tag}>`"),
            Self::TagPrefix(prefix) => write!(f, "`<{prefix}…>`"),
            Self::TagSuffix(suffix) => write!(f, "`<…{suffix}>`"),
            Self::Frame(tag) => write!(f, "`<{tag}>` and `</{tag}>` around the user's words"),
            Self::Arguments(tag) => write!(f, "`<{tag}>` and `</{tag}>` around what follows a command"),
            Self::Quotes { tag, before, behind } => {
                write!(f, "`<{tag}>` that quotes the user between `{before}…` and `{behind}…`")
            }
            Self::Opening(words) => write!(f, "all of a text that begins `{}…`", words.escape_debug()),
            Self::Exactly(words) => write!(f, "a text that is `{words}`"),
            Self::Bracket(opening) => write!(f, "a text that is one bracket, `{opening}…`"),
            Self::FirstLine { begins, ends, then: [] } => {
                write!(f, "all of a text whose first line is `{begins}…{ends}`")
            }
            Self::FirstLine { begins, ends, then } => {
                write!(
                    f,
                    "all of a text whose first line is `{begins}…{ends}`, then `{}…`",
                    then.join("…` or `")
                )
            }
            Self::Header { begins, to } => write!(f, "the beginning of a text from `{begins}` to `{to}`"),
            Self::Footer { begins, .. } => write!(f, "the end of a text from `{begins}…` on"),
            Self::LastWord(word) => write!(f, "`{word}` at the end"),
            Self::Section { begins, to } => write!(f, "`{begins}…` to `{to}`"),
            Self::BracketLine(opening) => write!(f, "a line of nothing but `{opening}…]`"),
        }
    }
}

/// Rule by which a text is [standing context](crate::standing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandingRule {
    /// It holds for a moment.
    Never,
    /// It holds until a newer one takes its place.
    Always,
    /// What it says decides.
    ByContent,
}

const fn text(client: &'static str, kind: ClientTextKind, mark: TextMark) -> ClientText {
    ClientText { client, kind, mark, standing: StandingRule::Never }
}

const fn standing(client: &'static str, kind: ClientTextKind, mark: TextMark) -> ClientText {
    ClientText { client, kind, mark, standing: StandingRule::Always }
}

const fn reminder(client: &'static str, tag: &'static str) -> ClientText {
    ClientText { client, kind: Reminder, mark: Tag(tag), standing: StandingRule::ByContent }
}

use TextMark::{
    Arguments, Bracket, BracketLine, Exactly, FirstLine, Footer, Frame, Header, LastWord, Opening, Quotes,
    Section, Tag, TagPrefix, TagSuffix,
};

const CLAUDE: &str = "Claude Code";
const CODEX: &str = "Codex";
const OPENCODE: &str = "OpenCode";
const PI: &str = "pi";
const GEMINI: &str = "Gemini CLI";
const GOOSE: &str = "goose";
const CLINE: &str = "Cline and its kin";
const CURSOR: &str = "Cursor";
const COPILOT: &str = "Copilot";
const OPENHANDS: &str = "OpenHands";
const SWE_AGENT: &str = "SWE-agent";
const AIDER: &str = "aider";
const TAU: &str = "tau-bench";
const SEVERAL: &str = "several";

/// The rows, by client. The first that matches counts, so exact names stand before beginnings and ends of names.
#[rustfmt::skip]
pub(crate) static TABLE: &[ClientText] = &[
    // Reminders quote the user who spoke while tools ran; everything else in them is the client's.
    text(SEVERAL, Reminder, Quotes { tag: "system-reminder", before: "The user sent the following message", behind: "Please address this message" }),
    text(CLAUDE, Reminder, Quotes { tag: "system-reminder", before: "The user sent a new message while you were working", behind: "IMPORTANT: After completing your current task" }),
    reminder(SEVERAL, "system-reminder"),
    reminder(SEVERAL, "system_reminder"),

    text(CLAUDE, Notification, Tag("task-notification")),
    text(CLAUDE, Notification, Tag("teammate-message")),
    text(CLAUDE, Notification, Tag("agent-message")),
    text(CLAUDE, Notification, Tag("cross-session-message")),
    text(CLAUDE, Notification, Tag("mcp-resource-update")),
    text(CLAUDE, Notification, Tag("mcp-polling-update")),
    text(CLAUDE, Notification, Opening("[SYSTEM NOTIFICATION")),
    text(CLAUDE, CommandEcho, Arguments("command-args")),
    text(CLAUDE, CommandEcho, TagPrefix("command-")),
    text(CLAUDE, CommandEcho, Tag("bash-input")),
    text(CLAUDE, CommandEcho, Tag("local-command-caveat")),
    text(CLAUDE, CommandEcho, Opening("Caveat: The messages below were generated by the user while running local commands")),
    text(CLAUDE, CommandOutput, TagPrefix("local-command-")),
    text(CLAUDE, CommandOutput, Tag("bash-stdout")),
    text(CLAUDE, CommandOutput, Tag("bash-stderr")),
    text(CLAUDE, HookOutput, Tag("user-prompt-submit-hook")),
    text(CLAUDE, HookOutput, Tag("session-start-hook")),
    text(CLAUDE, HookOutput, Opening("Operation stopped by hook:")),
    text(CLAUDE, HookOutput, Opening("UserPromptSubmit operation blocked by hook:")),
    text(CLAUDE, HookOutput, Opening("Stop hook feedback:")),
    text(CLAUDE, EditorState, TagPrefix("ide_")),
    text(CLAUDE, EditorState, Tag("new-diagnostics")),
    text(CLAUDE, UserWordsFrame, Frame("user-memory-input")),
    text(CLAUDE, Skill, Opening("Base directory for this skill: ")),
    text(CLAUDE, Interruption, Bracket("[Request interrupted by user")),
    text(CLAUDE, Interruption, Bracket("[Tool use interrupted")),
    text(CLAUDE, Continuation, Opening("This session is being continued from a previous conversation")),
    text(CLAUDE, Continuation, Footer { begins: "If you need specific details from before exiting plan mode", ends: "" }),
    text(CLAUDE, ClientPrompt, Opening("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.")),
    text(CLAUDE, ClientPrompt, Opening("Your task is to create a detailed summary of the conversation so far")),
    text(CLAUDE, ClientPrompt, Opening("Your tool call was malformed and could not be parsed.")),
    text(CLAUDE, MediaPlaceholder, BracketLine("[Image")),
    text(CLAUDE, MediaPlaceholder, Exactly("(no content)")),

    text(CODEX, Notification, Tag("subagent_notification")),
    text(CODEX, CommandOutput, Tag("user_shell_command")),
    text(CODEX, HookOutput, Tag("hook_prompt")),
    text(CODEX, Interruption, Tag("turn_aborted")),
    text(CODEX, Skill, Tag("skill")),
    text(CODEX, Reminder, Tag("model_switch")),
    text(CODEX, Reminder, Tag("token_budget")),
    text(CODEX, Reminder, Tag("rollout_budget")),
    text(CODEX, Reminder, Opening("Warning: The maximum number of unified exec processes")),
    text(CODEX, Reminder, Opening("Warning: apply_patch was requested via")),
    text(CODEX, ClientPrompt, Tag("user_action")),
    text(CODEX, ClientPrompt, Opening("You are performing a CONTEXT CHECKPOINT COMPACTION")),
    text(CODEX, ClientPrompt, Opening("The following is the Codex agent history")),
    text(CODEX, Continuation, Opening("Another language model started to solve this problem and produced a summary")),
    text(CODEX, EditorState, Header { begins: "# Context from my IDE setup:", to: "## My request for Codex:" }),
    text(CODEX, Attachment, Header { begins: "# Files mentioned by the user:", to: "## My request for Codex:" }),
    text(CODEX, Attachment, Header { begins: "# Diff comments:", to: "## My request for Codex:" }),
    text(CODEX, Attachment, Header { begins: "# Selected text:", to: "## My request for Codex:" }),
    text(CODEX, MediaPlaceholder, Bracket("<image ")),
    text(CODEX, MediaPlaceholder, Exactly("</image>")),
    standing(CODEX, Instructions, Section { begins: "# AGENTS.md instructions", to: "</INSTRUCTIONS>" }),
    standing(CODEX, Instructions, Tag("permissions instructions")),
    standing(CODEX, Instructions, Tag("collaboration_mode")),
    standing(CODEX, Instructions, Tag("multi_agent_mode")),
    standing(CODEX, Instructions, Tag("personality_spec")),
    standing(CODEX, Environment, Tag("recommended_plugins")),

    text(OPENCODE, ToolOutput, Opening("Called the Read tool with the following input: {")),
    text(OPENCODE, ToolOutput, Opening("Called the list tool with the following input: {")),
    text(OPENCODE, ToolOutput, Exactly("The following tool was executed by the user")),
    text(OPENCODE, Attachment, FirstLine { begins: "<path>", ends: "</path>", then: &["<type>"] }),
    text(OPENCODE, Attachment, FirstLine { begins: "<file>", ends: "<file>", then: &["00001| "] }),
    text(OPENCODE, ClientPrompt, Opening("Continue if you have next steps, or stop and ask for clarification")),
    text(OPENCODE, ClientPrompt, Opening("The previous request exceeded the provider's size limit due to large media attachments")),
    text(OPENCODE, ClientPrompt, Opening("Summarize the task tool output above and continue with your task.")),
    text(OPENCODE, ClientPrompt, Opening("You are writing a compact live recap for ")),
    text(OPENCODE, Notification, Opening("▣ DCP | ")),

    text(PI, CommandOutput, FirstLine { begins: "Ran `", ends: "`", then: &["```", "(no output)"] }),
    text(PI, Continuation, Opening("The conversation history before this point was compacted into the following summary:")),
    text(PI, Continuation, Opening("The following is a summary of a branch that this conversation came back from:")),

    standing(GEMINI, Environment, Opening("This is the Gemini CLI. We are setting up the context")),
    standing(GEMINI, Environment, Opening("This is the Qwen Code. We are setting up the context")),
    text(GEMINI, Continuation, Tag("state_snapshot")),
    text(GEMINI, ClientPrompt, Exactly("System: Please continue.")),
    text(GEMINI, ClientPrompt, Opening("System: Potential loop detected.")),
    text(GEMINI, CommandOutput, Opening("I ran the following shell command:\n```sh\n")),
    text(GEMINI, Attachment, Section { begins: "--- Content from referenced files ---", to: "--- End of content ---" }),

    standing(GOOSE, Environment, Tag("info-msg")),
    text(GOOSE, ClientPrompt, Opening("Please summarize the conversation history provided in the system prompt")),

    text(CLINE, UserWordsFrame, Frame("task")),
    text(CLINE, UserWordsFrame, Frame("feedback")),
    text(CLINE, ToolOutput, FirstLine { begins: "[", ends: "] Result:", then: &[] }),
    text(CLINE, Attachment, Tag("file_content")),
    text(CLINE, Attachment, Tag("folder_content")),
    text(CLINE, Attachment, Tag("url_content")),
    text(CLINE, EditorState, Tag("workspace_diagnostics")),
    text(CLINE, EditorState, Tag("git_working_state")),
    text(CLINE, Reminder, Opening("[ERROR] You did not use a tool in your previous response!")),
    text(CLINE, Interruption, Opening("[TASK RESUMPTION]")),
    standing(CLINE, Environment, Tag("environment_details")),

    text(CURSOR, UserWordsFrame, Frame("user_query")),
    text(CURSOR, EditorState, Tag("open_and_recently_viewed_files")),
    text(CURSOR, Attachment, Tag("attached_files")),
    text(CURSOR, Attachment, Tag("additional_data")),
    text(CURSOR, Notification, Tag("system_notification")),
    standing(CURSOR, Environment, Tag("user_info")),
    standing(CURSOR, Environment, Tag("project_layout")),
    standing(CURSOR, Environment, Tag("git_status")),
    standing(CURSOR, Instructions, Tag("agent_skills")),

    text(COPILOT, UserWordsFrame, Frame("userRequest")),
    text(COPILOT, Reminder, Tag("reminderInstructions")),
    text(COPILOT, EditorState, Tag("editorContext")),
    standing(COPILOT, Environment, Tag("environment_info")),
    standing(COPILOT, Environment, Tag("workspace_info")),

    text(OPENHANDS, ClientPrompt, Opening("Please continue working on the task on whatever approach you think is suitable.")),
    standing(OPENHANDS, Environment, Tag("REPOSITORY_INFO")),
    standing(OPENHANDS, Instructions, Tag("REPOSITORY_INSTRUCTIONS")),
    standing(OPENHANDS, Environment, Tag("RUNTIME_INFORMATION")),
    standing(OPENHANDS, Environment, Tag("EXTRA_INFO")),
    standing(OPENHANDS, Instructions, Tag("CONVERSATION_INSTRUCTIONS")),

    text(SWE_AGENT, Instructions, Opening("Here is a demonstration of how to correctly accomplish this task.")),
    text(SWE_AGENT, Environment, Footer { begins: "(Open file: ", ends: "bash-$" }),
    text(SWE_AGENT, ToolOutput, Opening("OBSERVATION:\n")),
    text(SWE_AGENT, ToolOutput, FirstLine { begins: "<returncode>", ends: "</returncode>", then: &["<output>", "<warning>"] }),

    text(AIDER, Attachment, Opening("I have *added these files to the chat*")),
    text(AIDER, Attachment, Opening("Here are some READ ONLY files, provided for your reference.")),
    text(AIDER, Environment, Opening("Here are summaries of some files present in my git repository.")),
    text(AIDER, Environment, Opening("I am not sharing any files that you can edit yet.")),

    text(TAU, ControlToken, LastWord("###STOP###")),
    text(TAU, ControlToken, LastWord("###TRANSFER###")),
    text(TAU, ControlToken, LastWord("###OUT-OF-SCOPE###")),

    standing(SEVERAL, Instructions, Tag("instructions")),
    standing(SEVERAL, Instructions, Tag("INSTRUCTIONS")),
    standing(SEVERAL, Instructions, Tag("rules")),
    standing(SEVERAL, Instructions, Tag("memory")),
    standing(SEVERAL, Instructions, Tag("memories")),
    standing(SEVERAL, Instructions, Tag("skills")),
    standing(SEVERAL, Environment, Tag("env")),
    standing(SEVERAL, Instructions, TagSuffix("_instructions")),
    standing(SEVERAL, Instructions, TagSuffix("-instructions")),
    standing(SEVERAL, Environment, TagSuffix("_context")),
    standing(SEVERAL, Environment, TagSuffix("-context")),
    standing(SEVERAL, Instructions, TagSuffix("_rules")),
    standing(SEVERAL, Instructions, TagSuffix("-rules")),
    standing(SEVERAL, Instructions, TagSuffix("_memory")),
    standing(SEVERAL, Instructions, TagSuffix("_memories")),
    standing(SEVERAL, Instructions, TagSuffix("_skills")),
];

/// The row of a block that opens with a tag, by its name and by all that stands between its brackets.
pub(crate) fn tagged(name: &str, opening: &str) -> Option<&'static ClientText> {
    TABLE.iter().find(|row| match row.mark {
        Tag(tag) => tag == name || tag == opening,
        Frame(tag) | Arguments(tag) => tag == name,
        TagPrefix(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
        TagSuffix(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
        _ => false,
    })
}
