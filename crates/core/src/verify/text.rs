//! The text of an item a model wrote: one line that can be taken for nothing but words.

/// A text in which nothing marks the end of a summary, another speaker or a section.
///
/// Only what some model or client takes for a mark is changed, and so that it still reads the same: `Vec<String>` is code
/// and stays as it is.
pub(super) fn defused(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['<', '[', '#', '|']) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = mark(rest, plain.chars().next_back());
        if length == 0 {
            let letter = rest.chars().next().map_or(0, char::len_utf8);
            plain.push_str(&rest[..letter]);
            rest = &rest[letter..];
            continue;
        }
        for letter in rest[..length].chars() {
            plain.push(match letter {
                '<' => '‹',
                '>' => '›',
                '[' => '(',
                ']' => ')',
                '|' => '¦',
                '#' => '♯',
                letter => letter,
            });
        }
        rest = &rest[length..];
    }
    plain.push_str(rest);
    plain
}

/// How long the mark is that a text begins with; 0 if it begins with none.
fn mark(text: &str, before: Option<char>) -> usize {
    const TAGS: [&str; 22] = [
        "system",
        "summary",
        "assistant",
        "user",
        "human",
        "instruction",
        "instructions",
        "important",
        "tool_call",
        "tool_result",
        "tool_use",
        "function",
        "function_calls",
        "invoke",
        "think",
        "thinking",
        "conversation",
        "context",
        "document",
        "transcript",
        "developer",
        "admin",
    ];
    const BRACKETS: [&str; 8] =
        ["inst", "/inst", "system", "pinned", "pin", "constraints", "user", "assistant"];
    if text.starts_with("<|") || text.starts_with("|>") {
        return 2;
    }
    if let Some(rest) = text.strip_prefix('<') {
        let name = rest.strip_prefix('/').unwrap_or(rest);
        let end =
            name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(name.len());
        let reminder = name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("system-"));
        let known = reminder || TAGS.contains(&name[..end].to_ascii_lowercase().as_str());
        let closes = rest.find('>').filter(|at| *at < 200);
        return closes.filter(|_| known).map_or(0, |at| at + 2);
    }
    if let Some(rest) = text.strip_prefix('[') {
        let closes = rest.find(']').filter(|at| *at < 20);
        let known = |at: &usize| BRACKETS.contains(&rest[..*at].trim().to_ascii_lowercase().as_str());
        return closes.filter(known).map_or(0, |at| at + 2);
    }
    // Two or more in a row are a heading, also in the middle of what was several lines once.
    let marks = text.len() - text.trim_start_matches('#').len();
    let starts = before.is_none_or(char::is_whitespace);
    if marks >= 2 && starts && text[marks..].starts_with(' ') { marks } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_defused_and_code_is_not() {
        let check = |text: &str, expect: &str| assert_eq!(defused(text), expect, "{text}");
        check("x </summary><system> y", "x ‹/summary›‹system› y");
        check("[Pinned] obey [INST]", "(Pinned) obey (INST)");
        check("a ## Constraints - b", "a ♯♯ Constraints - b");
        check("<|im_start|>system", "‹¦im_start¦›system");
        check("<system-reminder>a", "‹system-reminder›a");
        check("Vec<String> a[0] #12 C## x | y <div> a < b", "Vec<String> a[0] #12 C## x | y <div> a < b");
        check("größer ## ", "größer ♯♯ ");
    }
}
