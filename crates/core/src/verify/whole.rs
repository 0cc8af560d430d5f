//! A draft as a whole: whether it is a summary at all.
//!
//! Summarisers fail in ways that look like success: a refusal, an error page, thoughts without an answer, half an answer.
//! What shows no title of a section is none, and its first words say what it is; what shows one is taken at its word,
//! because a session may well be about error pages and tool calls.

use super::{Finish, Rejected, draft::Draft, secrets::holds_secret};
use crate::summary::one_line;

/// What a model said after it had thought.
pub(super) fn without_reasoning(text: &str) -> Result<&str, Rejected> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(Rejected::Empty);
    }
    // Some servers keep the tag that ends the thoughts and lose the one that begins them.
    for name in TAGS {
        if let Some(after) = after_last_alone(rest, &format!("</{name}>")) {
            rest = after;
        }
    }
    let opens = |name: &str| {
        let tag = rest.get(..name.len() + 2);
        tag.is_some_and(|tag| tag.eq_ignore_ascii_case(&format!("<{name}>")))
    };
    if rest.is_empty() || TAGS.iter().any(|name| opens(name)) {
        return Err(Rejected::ReasoningOnly);
    }
    Ok(rest)
}

const TAGS: [&str; 6] = ["think", "thinking", "thought", "reasoning", "reflection", "scratchpad"];

/// What stands behind the last occurrence of a tag that ends its line or begins it; a tag inside a sentence is only
/// spoken of.
fn after_last_alone<'t>(text: &'t str, tag: &str) -> Option<&'t str> {
    let (at, _) = text.rmatch_indices(tag).find(|(at, _)| {
        let after = &text[at + tag.len()..];
        let begins = text[..*at].trim_end_matches([' ', '\t']).ends_with('\n') || *at == 0;
        let ends = after.trim_start_matches([' ', '\t']).starts_with('\n') || after.trim().is_empty();
        begins || ends
    })?;
    Some(text[at + tag.len()..].trim())
}

/// Turns away what is no summary.
pub(super) fn judge(text: &str, finish: Finish, draft: &Draft) -> Result<(), Rejected> {
    if finish == Finish::CutOff {
        return Err(Rejected::CutOff);
    }
    if draft.titles == 0 && draft.items.is_empty() {
        let begins = if holds_secret(text) { "(withheld)".to_owned() } else { one_line(text, 80) };
        return Err(Rejected::Unparsable { begins });
    }
    if finish == Finish::Unknown && is_unfinished(text) {
        return Err(Rejected::CutOff);
    }
    Ok(())
}

/// Whether a text ends in the middle, as far as that can be seen: in an open fence, quotation or bracket, after a mark that
/// something must follow, or with a title.
fn is_unfinished(text: &str) -> bool {
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    if fences % 2 == 1 {
        return true;
    }
    let Some(last) = text.lines().map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with("```"))
    else {
        return false;
    };
    if last.starts_with('#') || last.trim_start_matches(['-', '*', ' ']).is_empty() {
        return true;
    }
    if last.ends_with([',', ':', '(', '[', '{', '/', '—', '–', '=', '+', '&', '"', '\\'])
        && !last.ends_with("\".")
    {
        // A closing quotation mark ends well if another opened it.
        return !(last.ends_with('"') && last.matches('"').count() % 2 == 0);
    }
    let open = |opens: char, closes: char| last.matches(opens).count() > last.matches(closes).count();
    last.matches('`').count() % 2 == 1 || open('(', ')') || open('[', ']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_taken_off_and_thoughts_alone_are_nothing() {
        let check = |text: &str, expect: Result<&str, Rejected>| {
            assert_eq!(without_reasoning(text), expect, "{text}");
        };
        check("<think>\nhm\n</think>\n## A", Ok("## A"));
        check("<thinking>hm</thinking>\n\n## A", Ok("## A"));
        check("hm\n</think>\n## A", Ok("## A"));
        check("<think>hm", Err(Rejected::ReasoningOnly));
        check("<THINK>hm", Err(Rejected::ReasoningOnly));
        check("<think>hm</think>  \n", Err(Rejected::ReasoningOnly));
        check(" \n\t", Err(Rejected::Empty));
        check("## A\n- the tag </think> is lost", Ok("## A\n- the tag </think> is lost"));
    }

    #[test]
    fn an_end_in_the_middle_is_seen() {
        for text in ["- a\n- b,", "- see `foo", "- a (b", "- a\n## Next", "- a\n-", "```\nx", "- a:"] {
            assert!(is_unfinished(text), "{text}");
        }
        for text in
            ["- a.", "- src/a.rs (edited)", "- says \"no\"", "- `cargo test`", "- a\n```\nx\n```", "None."]
        {
            assert!(!is_unfinished(text), "{text}");
        }
    }
}
