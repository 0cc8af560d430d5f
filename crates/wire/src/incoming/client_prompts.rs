//! Client prompts that ask for something other than the next turn: a name for a session, or a summary of it.

use memchr::memmem;

use crate::caller::RequestPurpose;

/// Longest text that can be a prompt for a title.
const MAX_TITLE_PROMPT_BYTES: usize = 8_000;

/// Largest distance between the word `title` and the verb before it.
const NEAR: usize = 60;

/// Returns true if a body may ask for a summary of its session. It is not read: a history that speaks of such a request looks
/// the same.
pub fn may_ask_for_summary(body: &[u8]) -> bool {
    const WORDS: [&str; 4] = [
        "CRITICAL: Respond with TEXT ONLY",
        "CONTEXT CHECKPOINT COMPACTION",
        "Please summarize the conversation history",
        "\"compaction_trigger\"",
    ];
    WORDS.into_iter().any(|words| memmem::find(body, words.as_bytes()).is_some())
}

/// Returns true if a text of a user's message is a client's prompt for a summary of the session.
pub(crate) fn asks_for_summary(text: &str) -> bool {
    let says = |words: &str| memmem::find(text.as_bytes(), words.as_bytes()).is_some();
    // Claude Code.
    says("CRITICAL: Respond with TEXT ONLY") && says("<summary>")
        // Codex.
        || text.trim_start().starts_with("You are performing a CONTEXT CHECKPOINT COMPACTION")
        // goose.
        || text.trim_start().starts_with("Please summarize the conversation history provided in the system prompt")
}

/// Purpose that a user's message shows.
pub(super) fn user_purpose(text: &str) -> Option<RequestPurpose> {
    let says = |words: &str| memmem::find(text.as_bytes(), words.as_bytes()).is_some();
    if asks_for_summary(text) {
        return Some(RequestPurpose::Compaction);
    }
    // People have titles written for other things too.
    let names_itself = says("conversation") || says("session");
    (names_itself && asks_for_title(text)).then_some(RequestPurpose::Title)
}

/// Purpose that a system prompt shows. OpenCode and pi call their summariser an agent or assistant for summaries.
pub(super) fn system_purpose(text: &str) -> Option<RequestPurpose> {
    let opening: String = text.trim_start().chars().take(200).collect::<String>().to_lowercase();
    if opening.contains("context summarization") {
        return Some(RequestPurpose::Compaction);
    }
    asks_for_title(text).then_some(RequestPurpose::Title)
}

/// Matches "Generate a short title …", "… extract a 2-3 word title", "You are a title generator", "… in 4 words or
/// less".
fn asks_for_title(text: &str) -> bool {
    const VERBS: [&str; 7] = ["generate", "write", "create", "extract", "provide", "suggest", "give"];
    if text.len() > MAX_TITLE_PROMPT_BYTES {
        return false;
    }
    let text = text.to_lowercase();
    let near = |at: usize| {
        let from =
            text.get(..at).map_or(at, |before| text.floor_char_boundary(before.len().saturating_sub(NEAR)));
        text.get(from..at).unwrap_or_default()
    };
    let mut titles = text.match_indices("title").map(|(at, _)| at);
    titles.any(|at| VERBS.iter().any(|verb| near(at).contains(verb)))
        || text.contains("title generator")
        || ["description of this session", "name for this session"].iter().any(|what| {
            text.contains(what) && (text.contains("words or less") || text.contains("words or fewer"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_off_the_prompt() {
        let check = |read: fn(&str) -> Option<RequestPurpose>, text: &str, expect: Option<RequestPurpose>| {
            assert_eq!(read(text), expect, "{text}");
        };
        let (title, compaction) = (Some(RequestPurpose::Title), Some(RequestPurpose::Compaction));
        check(
            system_purpose,
            "You are a title generator. You output ONLY a thread title. Nothing else.",
            title,
        );
        check(
            system_purpose,
            "Generate a concise, sentence-case title (3-7 words) that captures the main topic",
            title,
        );
        check(
            system_purpose,
            "Analyze if this starts a new topic. If it does, extract a 2-3 word title for it.",
            title,
        );
        check(system_purpose, "Generate a short title (four words or less) for this conversation.", title);
        check(user_purpose, "Please write a 5-10 word title for the following conversation:", title);
        check(user_purpose, "provide a concise description of this session in 4 words or less", title);
        check(user_purpose, "Generate a title for this conversation:\n", title);
        check(system_purpose, "You are a context summarization agent. You read …", compaction);
        check(system_purpose, "You are a context summarization assistant. Your task …", compaction);
        check(
            user_purpose,
            "Please summarize the conversation history provided in the system prompt.",
            compaction,
        );
        check(
            user_purpose,
            "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff …",
            compaction,
        );
        check(
            user_purpose,
            "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools. … an <analysis> block followed by a <summary> block",
            compaction,
        );
        check(user_purpose, "CRITICAL: Respond with TEXT ONLY.", None);
        check(user_purpose, "Fix the title bar", None);
        check(user_purpose, "Write a title for my novel", None);
        check(user_purpose, "é title 😀 tïtle", None);
        check(system_purpose, "You are a coding agent. Summarization of context is not your job.", None);
        check(user_purpose, &format!("Generate a title{}", " long".repeat(MAX_TITLE_PROMPT_BYTES)), None);
    }
}
