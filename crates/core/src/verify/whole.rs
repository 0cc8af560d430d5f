//! A draft as a whole: whether it is a summary at all.
//!
//! Summarisers fail in ways that look like success: a refusal, an error page, thoughts without an answer, half an answer.
//! What shows no title of a section is judged by how it reads; what shows one is taken at its word, because a session may
//! well be about error pages and tool calls.

use serde_json::Value;

use super::{Finish, Rejected, draft::Draft, secrets::holds_secret};
use crate::summary::one_line;

/// How much of a text is looked at to tell what it is.
const LOOK: usize = 2_000;

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
    if draft.titles == 0 {
        return Err(what_it_is(text));
    }
    if finish == Finish::Unknown && is_unfinished(text) {
        return Err(Rejected::CutOff);
    }
    Ok(())
}

/// What a text without any section is.
fn what_it_is(text: &str) -> Rejected {
    let begins = if holds_secret(&text[..text.floor_char_boundary(LOOK)]) {
        "(withheld)".to_owned()
    } else {
        one_line(text, 80)
    };
    let look = text[..text.floor_char_boundary(LOOK)].replace('’', "'").to_lowercase();
    let bare = look.trim_start_matches(['`', '\n', ' ']).trim_start_matches("json").trim_start();
    match json(text) {
        Some(Json::Call) => return Rejected::ToolCall,
        Some(Json::Error) => return Rejected::ErrorText { begins },
        Some(Json::Other) => return Rejected::Unparsable { begins },
        None => {}
    }
    if CALLS.iter().any(|mark| bare.starts_with(mark))
        || CALLS_ANYWHERE.iter().any(|mark| look.contains(mark))
    {
        Rejected::ToolCall
    } else if REFUSALS.iter().any(|words| look[..look.floor_char_boundary(160)].contains(words)) {
        Rejected::Refusal
    } else if is_error(&look) {
        Rejected::ErrorText { begins }
    } else {
        Rejected::Unparsable { begins }
    }
}

const CALLS: [&str; 6] =
    ["<invoke", "[tool_call", "<tool_use", "functions.", "to=functions", "<|python_tag|>"];
const CALLS_ANYWHERE: [&str; 6] =
    ["<tool_call", "<function=", "<function_call", "<|tool_call", "[tool_calls]", "<parameter="];

const REFUSALS: [&str; 22] = [
    "i can't help",
    "i cannot help",
    "i can't assist",
    "i cannot assist",
    "i can't provide",
    "i cannot provide",
    "i can't summar",
    "i cannot summar",
    "i can't comply",
    "i cannot comply",
    "i won't be able",
    "i'm unable to",
    "i am unable to",
    "i'm not able to",
    "i am not able to",
    "i must decline",
    "can't fulfill",
    "cannot fulfill",
    "ich kann dabei nicht",
    "je ne peux pas",
    "no puedo ayudar",
    "抱歉",
];

fn is_error(look: &str) -> bool {
    const BEGINS: [&str; 12] = [
        "error",
        "http/",
        "http error",
        "http 4",
        "http 5",
        "<!doctype",
        "<html",
        "<?xml",
        "traceback (most",
        "failed to",
        "exception",
        "upstream",
    ];
    const SAYS: [&str; 16] = [
        "rate limit",
        "rate_limit",
        "too many requests",
        "context length",
        "context_length_exceeded",
        "maximum context",
        "prompt is too long",
        "internal server error",
        "bad gateway",
        "service unavailable",
        "gateway timeout",
        "overloaded",
        "insufficient_quota",
        "invalid api key",
        "connection refused",
        "request timed out",
    ];
    let start = look.trim_start();
    BEGINS.iter().any(|words| start.starts_with(words)) || SAYS.iter().any(|words| look.contains(words))
}

/// What a JSON value is.
enum Json {
    Call,
    Error,
    Other,
}

fn json(text: &str) -> Option<Json> {
    let bare = text.trim().trim_start_matches("```json").trim_matches('`').trim();
    if !bare.starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(bare).ok()?;
    let value = match &value {
        Value::Array(values) => values.first()?,
        value => value,
    };
    let has = |name: &str| value.get(name).is_some_and(|value| !value.is_null());
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    let arguments = ["arguments", "parameters", "input", "args"].iter().any(|name| has(name));
    let called = ((has("name") || has("tool") || has("function")) && arguments)
        || ["tool_calls", "function_call", "tool_call"].iter().any(|name| has(name))
        || matches!(kind, "tool_use" | "function_call" | "function");
    let failed = has("error") || has("errors") || kind == "error" || has("detail");
    Some(match (called, failed) {
        (true, _) => Json::Call,
        (false, true) => Json::Error,
        (false, false) => Json::Other,
    })
}

/// Whether a text ends in the middle, as far as that can be seen: in an open fence, quotation or bracket, after a word or
/// mark that something must follow, or with a title.
fn is_unfinished(text: &str) -> bool {
    const DANGLING: [&str; 24] = [
        "a", "an", "and", "are", "as", "at", "because", "but", "by", "for", "from", "if", "into", "is", "of",
        "or", "so", "than", "that", "the", "to", "was", "when", "with",
    ];
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
    if last.matches('`').count() % 2 == 1 || open('(', ')') || open('[', ']') {
        return true;
    }
    let word = last.rsplit(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    DANGLING.contains(&word)
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
        for text in [
            "- a\n- b,",
            "- see `foo",
            "- a (b",
            "- we chose the",
            "- a\n## Next",
            "- a\n-",
            "```\nx",
            "- a:",
        ] {
            assert!(is_unfinished(text), "{text}");
        }
        for text in
            ["- a.", "- src/a.rs (edited)", "- says \"no\"", "- `cargo test`", "- a\n```\nx\n```", "None."]
        {
            assert!(!is_unfinished(text), "{text}");
        }
    }
}
