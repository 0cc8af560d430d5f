//! The table of texts that clients write in the user's name: for each its mark, its kind, and if it holds for
//! the whole session.
//!
//! Rows come from real sessions and from the clients' sources. A new client or a new text is a row here and
//! an example in the tests; its words are known nowhere else.

use super::ClientTextKind::{
    self, Attachment, ClientPrompt, CommandEcho, CommandOutput, Continuation, ControlToken, EditorState,
    Environment, HookOutput, Instructions, Interruption, MediaPlaceholder, Notification, Reminder, Skill,
    ToolOutput, UserWordsFrame,
};

/// A text that a client writes in the user's name.
#[derive(Debug)]
pub(crate) struct ClientText {
    /// Its kind.
    pub(crate) kind: ClientTextKind,
    /// Mark by which it is recognised.
    pub(crate) mark: TextMark,
    /// Rule that decides if it is standing context.
    pub(crate) standing: StandingRule,
}

/// The mark by which a text of a client is recognised. A *part* is a text block of a message; most clients send what
/// they write as a part of its own.
#[derive(Debug)]
pub(crate) enum TextMark {
    /// A block from `<name …>`, where a line begins, to `</name>`.
    Tag(&'static str),
    /// The same for every tag whose name has this prefix.
    TagPrefix(&'static str),
    /// The same for every tag whose name has this suffix.
    TagSuffix(&'static str),
    /// A tag around words of the user: only the tags are the client's.
    Frame(&'static str),
    /// A tag around the words that the user typed behind a command: the user's words if they read as such.
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
    /// A whole part that begins with a name between two texts.
    NamedOpening {
        /// The text before the name.
        before: &'static str,
        /// The text behind it.
        behind: &'static str,
    },
    /// A whole part that says only this.
    Exactly(&'static str),
    /// A whole part that is one bracket, which begins so.
    Bracket(&'static str),
    /// A whole part whose first line has this beginning and end, and whose second line begins with one of
    /// some texts.
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
    /// A line that consists only of brackets with this opening.
    BracketLine(&'static str),
}

/// Rule by which a text is [standing context](crate::standing_context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandingRule {
    /// It holds for a moment.
    Never,
    /// It holds until a newer one takes its place.
    Always,
    /// Its content decides.
    ByContent,
}

const fn text(kind: ClientTextKind, mark: TextMark) -> ClientText {
    ClientText { kind, mark, standing: StandingRule::Never }
}

const fn standing(kind: ClientTextKind, mark: TextMark) -> ClientText {
    ClientText { kind, mark, standing: StandingRule::Always }
}

const fn reminder(tag: &'static str) -> ClientText {
    ClientText { kind: Reminder, mark: Tag(tag), standing: StandingRule::ByContent }
}

use TextMark::{
    Arguments, Bracket, BracketLine, Exactly, FirstLine, Footer, Frame, Header, LastWord, NamedOpening,
    Opening, Quotes, Section, Tag, TagPrefix, TagSuffix,
};

/// The rows, by client. The first that matches counts, so exact names stand before beginnings and ends of names.
#[rustfmt::skip]
pub(crate) static TABLE: &[ClientText] = &[
    // Reminders quote a user who spoke while tools ran; everything else in them is the client's.
    text(Reminder, Quotes { tag: "system-reminder", before: "The user sent the following message", behind: "Please address this message" }),
    text(Reminder, Quotes { tag: "system-reminder", before: "The user sent a new message while you were working", behind: "IMPORTANT: After completing your current task" }),
    reminder("system-reminder"),
    reminder("system_reminder"),

    // Claude Code.
    text(Notification, Tag("task-notification")),
    text(Notification, Tag("teammate-message")),
    text(Notification, Tag("agent-message")),
    text(Notification, Tag("cross-session-message")),
    text(Notification, Tag("mcp-resource-update")),
    text(Notification, Tag("mcp-polling-update")),
    text(Notification, Opening("[SYSTEM NOTIFICATION")),
    text(CommandEcho, Arguments("command-args")),
    text(CommandEcho, TagPrefix("command-")),
    text(CommandEcho, Tag("bash-input")),
    text(CommandEcho, Tag("local-command-caveat")),
    text(CommandEcho, Opening("Caveat: The messages below were generated by the user while running local commands")),
    text(CommandOutput, TagPrefix("local-command-")),
    text(CommandOutput, Tag("bash-stdout")),
    text(CommandOutput, Tag("bash-stderr")),
    text(HookOutput, Tag("user-prompt-submit-hook")),
    text(HookOutput, Tag("session-start-hook")),
    text(HookOutput, Opening("Operation stopped by hook:")),
    text(HookOutput, Opening("UserPromptSubmit operation blocked by hook:")),
    text(HookOutput, Opening("Stop hook feedback:")),
    text(EditorState, TagPrefix("ide_")),
    text(EditorState, Tag("new-diagnostics")),
    text(UserWordsFrame, Frame("user-memory-input")),
    text(Skill, Opening("Base directory for this skill: ")),
    text(Interruption, Bracket("[Request interrupted by user")),
    text(Interruption, Bracket("[Tool use interrupted")),
    text(Continuation, Opening("This session is being continued from a previous conversation")),
    text(Continuation, Footer { begins: "If you need specific details from before exiting plan mode", ends: "" }),
    text(ClientPrompt, Opening("CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.")),
    text(ClientPrompt, Opening("Your task is to create a detailed summary of the conversation so far")),
    text(ClientPrompt, Opening("Your tool call was malformed and could not be parsed.")),
    text(MediaPlaceholder, BracketLine("[Image")),
    text(MediaPlaceholder, Exactly("(no content)")),

    // Codex.
    text(Notification, Tag("subagent_notification")),
    text(CommandOutput, Tag("user_shell_command")),
    text(HookOutput, Tag("hook_prompt")),
    text(Interruption, Tag("turn_aborted")),
    text(Skill, Tag("skill")),
    text(Reminder, Tag("model_switch")),
    text(Reminder, Tag("token_budget")),
    text(Reminder, Tag("rollout_budget")),
    text(Reminder, Opening("Warning: The maximum number of unified exec processes")),
    text(Reminder, Opening("Warning: apply_patch was requested via")),
    text(ClientPrompt, Tag("user_action")),
    text(ClientPrompt, Opening("You are performing a CONTEXT CHECKPOINT COMPACTION")),
    text(ClientPrompt, Opening("The following is the Codex agent history")),
    text(Continuation, Opening("Another language model started to solve this problem and produced a summary")),
    text(EditorState, Header { begins: "# Context from my IDE setup:", to: "## My request for Codex:" }),
    text(Attachment, Header { begins: "# Files mentioned by the user:", to: "## My request for Codex:" }),
    text(Attachment, Header { begins: "# Diff comments:", to: "## My request for Codex:" }),
    text(Attachment, Header { begins: "# Selected text:", to: "## My request for Codex:" }),
    text(MediaPlaceholder, Bracket("<image ")),
    text(MediaPlaceholder, Exactly("</image>")),
    standing(Instructions, Section { begins: "# AGENTS.md instructions", to: "</INSTRUCTIONS>" }),
    standing(Instructions, Tag("permissions instructions")),
    standing(Instructions, Tag("collaboration_mode")),
    standing(Instructions, Tag("multi_agent_mode")),
    standing(Instructions, Tag("personality_spec")),
    standing(Environment, Tag("recommended_plugins")),

    // OpenCode.
    text(ToolOutput, Opening("Called the Read tool with the following input: {")),
    text(ToolOutput, Opening("Called the list tool with the following input: {")),
    text(ToolOutput, Exactly("The following tool was executed by the user")),
    text(Attachment, FirstLine { begins: "<path>", ends: "</path>", then: &["<type>"] }),
    text(Attachment, FirstLine { begins: "<file>", ends: "<file>", then: &["00001| "] }),
    text(ClientPrompt, Opening("Continue if you have next steps, or stop and ask for clarification")),
    text(ClientPrompt, Opening("The previous request exceeded the provider's size limit due to large media attachments")),
    text(ClientPrompt, Opening("Summarize the task tool output above and continue with your task.")),
    text(ClientPrompt, Opening("You are writing a compact live recap for ")),
    text(Notification, Opening("▣ DCP | ")),

    // pi.
    text(CommandOutput, FirstLine { begins: "Ran `", ends: "`", then: &["```", "(no output)"] }),
    text(Continuation, Opening("The conversation history before this point was compacted into the following summary:")),
    text(Continuation, Opening("The following is a summary of a branch that this conversation came back from:")),

    // Gemini CLI.
    // Before it used tags; so do Qwen Code and others that descend from it.
    standing(Environment, NamedOpening { before: "This is the ", behind: ". We are setting up the context" }),
    text(Continuation, Tag("state_snapshot")),
    text(ClientPrompt, Exactly("System: Please continue.")),
    text(ClientPrompt, Opening("System: Potential loop detected.")),
    text(CommandOutput, Opening("I ran the following shell command:\n```sh\n")),
    text(Attachment, Section { begins: "--- Content from referenced files ---", to: "--- End of content ---" }),

    // goose.
    standing(Environment, Tag("info-msg")),
    text(ClientPrompt, Opening("Please summarize the conversation history provided in the system prompt")),

    // Cline and its kin.
    text(UserWordsFrame, Frame("task")),
    text(UserWordsFrame, Frame("feedback")),
    text(ToolOutput, FirstLine { begins: "[", ends: "] Result:", then: &[] }),
    text(Attachment, Tag("file_content")),
    text(Attachment, Tag("folder_content")),
    text(Attachment, Tag("url_content")),
    text(EditorState, Tag("workspace_diagnostics")),
    text(EditorState, Tag("git_working_state")),
    text(Reminder, Opening("[ERROR] You did not use a tool in your previous response!")),
    text(Interruption, Opening("[TASK RESUMPTION]")),
    standing(Environment, Tag("environment_details")),

    // Cursor.
    text(UserWordsFrame, Frame("user_query")),
    text(EditorState, Tag("open_and_recently_viewed_files")),
    text(Attachment, Tag("attached_files")),
    text(Attachment, Tag("additional_data")),
    text(Notification, Tag("system_notification")),
    standing(Environment, Tag("user_info")),
    standing(Environment, Tag("project_layout")),
    standing(Environment, Tag("git_status")),
    standing(Instructions, Tag("agent_skills")),

    // Copilot.
    text(UserWordsFrame, Frame("userRequest")),
    text(Reminder, Tag("reminderInstructions")),
    text(EditorState, Tag("editorContext")),
    standing(Environment, Tag("environment_info")),
    standing(Environment, Tag("workspace_info")),

    // OpenHands.
    text(ClientPrompt, Opening("Please continue working on the task on whatever approach you think is suitable.")),
    standing(Environment, Tag("REPOSITORY_INFO")),
    standing(Instructions, Tag("REPOSITORY_INSTRUCTIONS")),
    standing(Environment, Tag("RUNTIME_INFORMATION")),
    standing(Environment, Tag("EXTRA_INFO")),
    standing(Instructions, Tag("CONVERSATION_INSTRUCTIONS")),

    // SWE-agent.
    text(Instructions, Opening("Here is a demonstration of how to correctly accomplish this task.")),
    text(Environment, Footer { begins: "(Open file: ", ends: "bash-$" }),
    text(ToolOutput, Opening("OBSERVATION:\n")),
    text(ToolOutput, FirstLine { begins: "<returncode>", ends: "</returncode>", then: &["<output>", "<warning>"] }),

    // aider.
    text(Attachment, Opening("I have *added these files to the chat*")),
    text(Attachment, Opening("Here are some READ ONLY files, provided for your reference.")),
    text(Environment, Opening("Here are summaries of some files present in my git repository.")),
    text(Environment, Opening("I am not sharing any files that you can edit yet.")),

    // Epitome, where one agent goes on with the session of another.
    text(ToolOutput, Opening("[Tool calls of the earlier session, told in words:]")),
    text(Continuation, Exactly("[The earlier session goes on here.]")),

    // tau-bench.
    text(ControlToken, LastWord("###STOP###")),
    text(ControlToken, LastWord("###TRANSFER###")),
    text(ControlToken, LastWord("###OUT-OF-SCOPE###")),

    // Several clients.
    standing(Instructions, Tag("instructions")),
    standing(Instructions, Tag("INSTRUCTIONS")),
    standing(Instructions, Tag("rules")),
    standing(Instructions, Tag("memory")),
    standing(Instructions, Tag("memories")),
    standing(Instructions, Tag("skills")),
    standing(Environment, Tag("env")),
    standing(Instructions, TagSuffix("_instructions")),
    standing(Instructions, TagSuffix("-instructions")),
    standing(Environment, TagSuffix("_context")),
    standing(Environment, TagSuffix("-context")),
    standing(Instructions, TagSuffix("_rules")),
    standing(Instructions, TagSuffix("-rules")),
    standing(Instructions, TagSuffix("_memory")),
    standing(Instructions, TagSuffix("_memories")),
    standing(Instructions, TagSuffix("_skills")),
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

/// Limit for the length of a client's name.
const LONGEST_NAME: usize = 64;

/// The beginning of a text up to the end of `behind`, if it is a name between these two.
pub(crate) fn named_opening<'t>(text: &'t str, before: &str, behind: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(before)?;
    let name = rest.get(..rest.floor_char_boundary(LONGEST_NAME + behind.len()))?.find(behind)?;
    let is_line = !rest.get(..name)?.contains('\n');
    text.get(..before.len() + name + behind.len()).filter(|_| is_line)
}
