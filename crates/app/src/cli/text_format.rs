//! Numbers, times and long texts, formatted for people.

use comfy_table::{CellAlignment, Table, presets};
use epitome::core::{Tokens, event::Timestamp};
use jiff::tz::TimeZone;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `1 turn`, `2 turns`, `1.2k turns`.
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", short(number))
}

/// `873`, `1.2k`, `41k`, `1.3M`.
pub(crate) fn short(number: u64) -> String {
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
pub(crate) fn tokens(tokens: Tokens) -> String {
    short(tokens.0)
}

/// `2026-01-05 10:12`, in the user's time zone.
pub(crate) fn minute(time: Timestamp) -> String {
    zoned(time, "%Y-%m-%d %H:%M")
}

/// `10:12:33`, in the user's time zone.
pub(crate) fn clock(time: Timestamp) -> String {
    zoned(time, "%H:%M:%S")
}

fn zoned(time: Timestamp, format: &str) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(timestamp) => timestamp.to_zoned(TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("{} ms", time.0),
    }
}

/// RFC 3339 in UTC, for programs.
pub(crate) fn rfc3339(time: Timestamp) -> Option<String> {
    jiff::Timestamp::from_millisecond(time.0).ok().map(|timestamp| timestamp.to_string())
}

/// A time as people write it: RFC 3339, or a date.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(timestamp.as_millisecond()));
    }
    let civil = text
        .parse::<jiff::civil::DateTime>()
        .or_else(|_| text.parse::<jiff::civil::Date>().map(|date| date.at(0, 0, 0, 0)));
    let zoned = civil.and_then(|civil| civil.to_zoned(TimeZone::system()));
    zoned.map(|zoned| Timestamp(zoned.timestamp().as_millisecond())).map_err(|_| {
        "expected a time such as 2026-01-05, 2026-01-05T10:12 or 2026-01-05T10:12:00Z".to_owned()
    })
}

/// The current time.
pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

/// Folds a text to one line of at most `width` columns: white space folded, control characters removed, cut
/// with `…`.
pub(crate) fn one_line(text: &str, width: usize) -> String {
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
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
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

/// Width of the terminal; 100 columns without one.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0)).clamp(60, 160)
}

/// A table without borders; the columns listed in `right` are numbers.
pub(crate) fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
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
