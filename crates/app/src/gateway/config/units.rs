//! Sizes and times as people write them.

use std::time::Duration;

/// Bytes: `64MiB`, `500kB`, `4096`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{}` is no size: write bytes such as 4096, 500kB or 64MiB", printable(text));
    let (number, unit) = match text.find(|letter: char| !letter.is_ascii_digit() && letter != '_') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let number: usize = number.replace('_', "").parse().map_err(|_| wrong())?;
    let factor = match unit.trim() {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// Tokens: `128000`, `128_000`, `128k`, `1M`.
pub(super) fn tokens(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{}` is no number of tokens: write it as 128000, 128k or 1M", printable(text));
    let (number, factor) = match text.strip_suffix(['k', 'K', 'm', 'M']) {
        Some(number) if text.ends_with(['k', 'K']) => (number, 1_000),
        Some(number) => (number, 1_000_000),
        None => (text, 1),
    };
    let number: u64 = number.replace('_', "").parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|tokens| *tokens > 0).ok_or_else(wrong)
}

/// A time: `250ms`, `30s`, `10m`, `1h 30m`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    time.filter(|time| !time.is_zero() && *time <= Duration::from_hours(24)).ok_or_else(|| {
        format!("`{}` is no time of at most a day: write it as 250ms, 30s, 10m or 1h 30m", printable(text))
    })
}

/// A time, or none: `0s`.
pub(super) fn time_or_none(text: &str) -> Result<Duration, String> {
    if text.trim() == "0s" { Ok(Duration::ZERO) } else { time(text) }
}

/// Writes a share given in millionths as percent.
pub(super) fn percent(millionths: u32) -> String {
    format!("{} %", f64::from(millionths) / 1e4)
}

/// Writes bytes in the largest unit that is exact.
pub(super) fn format_size(bytes: usize) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let exact = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// Writes a time in units that people use.
pub(super) fn format_time(time: Duration) -> String {
    jiff::SignedDuration::try_from(time).map_or_else(|_| format!("{time:?}"), |time| format!("{time:#}"))
}

/// Shortens a user's text to one line, for messages.
pub(super) fn printable(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_is_in_bytes() {
        for (text, expect) in
            [("4096", 4_096), ("1_000", 1_000), ("500kB", 500_000), ("64MiB", 64 << 20), ("2 GiB", 2 << 30)]
        {
            assert_eq!(size(text), Ok(expect), "{text}");
        }
        for text in ["", "0", "-1", "1.5MB", "64mib", "99999999999999GiB", "ten"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_are_counted_in_thousands_or_one_by_one() {
        for (text, expect) in [("4096", 4_096), ("128_000", 128_000), ("128k", 128_000), ("1M", 1_000_000)] {
            assert_eq!(tokens(text), Ok(expect), "{text}");
        }
        for text in ["", "0", "0k", "-1", "1.5k", "k", "128kB", "99999999999999999M"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        for (text, expect) in [("250ms", 250), ("30s", 30_000), ("10m", 600_000), ("1h 30m", 5_400_000)] {
            assert_eq!(time(text), Ok(Duration::from_millis(expect)), "{text}");
        }
        for text in ["", "0s", "-5s", "30", "25h", "soon", "1 month"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_said_is_what_was_written() {
        for text in ["64 MiB", "1 KiB", "1500 bytes"] {
            let bytes = size(text.trim_end_matches("ytes").trim_end_matches('b').trim()).expect(text);
            assert_eq!(format_size(bytes), text);
        }
        for text in ["30s", "10m", "1h 30m", "250ms"] {
            assert_eq!(format_time(time(text).expect(text)), text);
        }
    }
}
