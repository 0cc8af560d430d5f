//! What a model said after it had thought.

use super::DraftError;

/// An answer without the thoughts before it.
pub(super) fn without_reasoning(text: &str) -> Result<&str, DraftError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(DraftError::Empty);
    }
    // Some servers keep the tag that ends the thoughts and lose the one that begins them. Inside a line it is only spoken of.
    for name in TAGS {
        let end = format!("</{name}>");
        let after = rest.rsplit_once(&format!("{end}\n")).map(|(_, after)| after.trim());
        rest = after.or(rest.ends_with(&end).then_some("")).unwrap_or(rest);
    }
    let opens = |name: &str| {
        let tag = rest.get(..name.len() + 2);
        tag.is_some_and(|tag| tag.eq_ignore_ascii_case(&format!("<{name}>")))
    };
    if rest.is_empty() || TAGS.iter().any(|name| opens(name)) {
        return Err(DraftError::ReasoningOnly);
    }
    Ok(rest)
}

const TAGS: [&str; 6] = ["think", "thinking", "thought", "reasoning", "reflection", "scratchpad"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_taken_off_and_thoughts_alone_are_nothing() {
        let check = |text: &str, expect: Result<&str, DraftError>| {
            assert_eq!(without_reasoning(text), expect, "{text}");
        };
        check("<think>\nhm\n</think>\n## A", Ok("## A"));
        check("<thinking>hm</thinking>\n\n## A", Ok("## A"));
        check("hm\n</think>\n## A", Ok("## A"));
        check("<think>hm", Err(DraftError::ReasoningOnly));
        check("<THINK>hm", Err(DraftError::ReasoningOnly));
        check("<think>hm</think>  \n", Err(DraftError::ReasoningOnly));
        check(" \n\t", Err(DraftError::Empty));
        check("## A\n- the tag </think> is lost", Ok("## A\n- the tag </think> is lost"));
    }
}
