//! Recognition of user messages that are instructions: project files, environment and memory that an agent sends in
//! the user's name before the user has said anything.

use epitome_core::{ContentPart, Event, Fact, event::InstructionKind, standing_context::setup_opening};

/// Beginning of such a message that is not enclosed in a tag: Codex.
const OPENING: &str = "# AGENTS.md instructions for ";

/// Tags that enclose such messages: Codex, Gemini CLI, goose, Claude Code.
const TAGS: [&str; 6] = [
    "user_instructions",
    "environment_context",
    "INSTRUCTIONS",
    "session_context",
    "info-msg",
    "system-reminder",
];

/// Returns true if `text`, a whole leading user message or one of its parts, was written by the agent and not by the
/// user.
///
/// ```
/// use epitome_wire::is_project_preamble;
///
/// assert!(is_project_preamble("<environment_context>\n  <cwd>/src</cwd>\n</environment_context>"));
/// assert!(!is_project_preamble("<environment_context> is what I want to read about"));
/// ```
pub fn is_project_preamble(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(OPENING)
        || setup_opening(text).is_some()
        || TAGS.iter().any(|tag| is_enclosed(text, tag))
}

/// Turns the user messages before the first real one into project instructions.
pub(crate) fn mark_preamble(events: &mut [Event]) {
    for event in events {
        match &mut event.fact {
            Fact::UserSaid { parts } if are_preamble(parts) => {
                let parts = std::mem::take(parts);
                event.fact = Fact::Instructed { what: InstructionKind::Project, parts };
            }
            Fact::Instructed { .. } | Fact::Carried { .. } => {}
            _ => return,
        }
    }
}

/// Returns true if the whole of a user message was written by the agent.
pub(crate) fn are_preamble(parts: &[ContentPart]) -> bool {
    !parts.is_empty()
        && parts.iter().all(|part| matches!(part, ContentPart::Text { text } if is_project_preamble(text)))
}

fn is_enclosed(text: &str, tag: &str) -> bool {
    let opened = text.strip_prefix('<').and_then(|rest| rest.strip_prefix(tag));
    let closed = text.strip_suffix('>').and_then(|rest| rest.strip_suffix(tag));
    opened.is_some_and(|rest| rest.starts_with(['>', ' ', '\n']))
        && closed.is_some_and(|rest| rest.ends_with("</"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_send_in_the_users_name_is_told_from_what_users_say() {
        let check = |text: &str, expect: bool| assert_eq!(is_project_preamble(text), expect, "{text}");
        check("# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>", true);
        check("<user_instructions>\n\nBe kind.\n\n</user_instructions>\n", true);
        check("<INSTRUCTIONS>a</INSTRUCTIONS>", true);
        check("This is the Gemini CLI. We are setting up the context for our chat.\nToday is …", true);
        check("This is the Qwen Code. We are setting up the context for our chat.\nToday is …", true);
        check("This is the place where it fails.", false);
        check("<session_context>\nToday is …\n</session_context>", true);
        check("<info-msg>\nIt is 10:31\n</info-msg>", true);
        check("<info-msg>\nIt is 10:31\n</info-msg>\nPlease fix the test", false);
        check("<system-reminder>\ncontext\n</system-reminder>", true);
        check("<environment_contexts>a</environment_contexts>", false);
        check("Please fix the test", false);
        check("", false);
    }
}
