//! Numbers and long texts, formatted for people.

use epitome::core::Tokens;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `1 turn`, `2 turns`, `1.2k turns`.
pub fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", short(number))
}

/// `873`, `1.2k`, `41k`, `1.3M`.
pub fn short(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let scaled = |unit: u64| number as f64 / unit as f64;
    match number {
        0..1_000 => number.to_string(),
        1_000..9_950 => format!("{:.1}k", scaled(1_000)),
        9_950..999_500 => format!("{:.0}k", scaled(1_000)),
        999_500..9_950_000 => format!("{:.1}M", scaled(1_000_000)),
        _ => format!("{:.0}M", scaled(1_000_000)),
    }
}

/// Tokens, short.
pub fn tokens(tokens: Tokens) -> String {
    short(tokens.0)
}

/// Folds a text to one line of at most `width` columns: white space folded, control characters removed, cut
/// with `…`.
pub fn one_line(text: &str, width: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
            used += 1;
        }
        for letter in word.chars().filter(|letter| !letter.is_control()) {
            let columns = letter.width().unwrap_or(0);
            if used + columns > width {
                while line.width() + 1 > width && line.pop().is_some() {}
                line.push('…');
                return line;
            }
            line.push(letter);
            used += columns;
        }
    }
    line
}

/// Wraps a text into lines of at most `width` letters, broken between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_monotone() {
        let shown: Vec<_> =
            [0, 999, 1_000, 9_949, 9_950, 41_234, 999_499, 999_500, 12_000_000].map(short).into();
        assert_eq!(shown, ["0", "999", "1.0k", "9.9k", "10k", "41k", "999k", "1.0M", "12M"]);
    }

    #[test]
    fn a_line_is_folded_cut_by_columns_and_never_holds_an_escape() {
        assert_eq!(one_line("a\n  b\tc", 10), "a b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("日本語です", 5), "日本…");
        assert_eq!(one_line("x\u{1b}[31mred", 20), "x[31mred");
    }
}
