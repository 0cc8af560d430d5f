//! Text from clients and providers, made safe for a log: on one line, in reading order, and short.

use std::borrow::Cow;

/// Most letters that are kept.
const LETTERS: usize = 200;

/// Replaces letters that would move, hide or end other text.
pub(super) fn escape_for_log(text: &str) -> Cow<'_, str> {
    let is_short = text.len() <= LETTERS || text.chars().nth(LETTERS).is_none();
    if is_short && !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len().min(2 * LETTERS));
    for letter in text.chars().take(LETTERS) {
        if acts(letter) {
            plain.extend(letter.escape_unicode());
        } else {
            plain.push(letter);
        }
    }
    if !is_short {
        plain.push('…');
    }
    Cow::Owned(plain)
}

/// Returns true if a letter affects its surroundings: ends a line, moves a cursor, or turns the reading
/// direction.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_line_or_moves_a_cursor_is_written_out() {
        for (text, expect) in [
            ("claude-opus-4-5", "claude-opus-4-5"),
            ("modèle", "modèle"),
            ("a\r\nINFO forged", "a\\u{d}\\u{a}INFO forged"),
            ("\u{1b}[2Jx", "\\u{1b}[2Jx"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("a\u{202e}b\u{2028}", "a\\u{202e}b\\u{2028}"),
        ] {
            assert_eq!(escape_for_log(text), expect, "{text:?}");
        }
    }

    #[test]
    fn what_is_long_is_cut() {
        let told = escape_for_log(&"é".repeat(10_000)).into_owned();
        assert_eq!(told.chars().count(), LETTERS + 1);
        assert!(told.ends_with('…'));
        assert!(matches!(escape_for_log(&"x".repeat(LETTERS)), Cow::Borrowed(_)));
    }
}
