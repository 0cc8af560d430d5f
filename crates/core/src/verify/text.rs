//! The text of an item a model wrote: one line that can be taken for nothing but words.

/// A text in which nothing marks the end of a summary, another speaker or a section.
///
/// Only what could be taken for a mark is changed, and so that it still reads the same: `Vec<String>` is code and stays as
/// it is.
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

/// How long the mark is that a text begins with; 0 if it begins with none. Code has its brackets behind a name.
fn mark(text: &str, before: Option<char>) -> usize {
    const LONGEST: usize = 200;
    let is_apart = !before.is_some_and(char::is_alphanumeric);
    let closed = |close: char| text.find(close).filter(|at| is_apart && *at < LONGEST).map(|at| at + 1);
    if text.starts_with("<|") || text.starts_with("|>") {
        return 2;
    }
    if let Some(inside) = text.strip_prefix('<') {
        let named = inside.starts_with(|letter: char| letter.is_alphabetic() || letter == '/');
        return closed('>').filter(|_| named).unwrap_or(0);
    }
    if text.starts_with('[') {
        let is_words =
            |end: &usize| text[1..*end - 1].chars().all(|letter| letter.is_alphabetic() || letter == '/');
        return closed(']').filter(is_words).unwrap_or(0);
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
        check("Vec<String> a[0] [k3] #12 C## x | y a < b", "Vec<String> a[0] [k3] #12 C## x | y a < b");
        check("größer ## ", "größer ♯♯ ");
    }
}
