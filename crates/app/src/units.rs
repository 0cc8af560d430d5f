//! Sizes, times and amounts of tokens as people write them: on the command line, in configurations and headers.

use std::{fmt, time::Duration};

use epitome::core::event::Timestamp;
use jiff::tz::TimeZone;

/// Bytes: `64MiB`, `500kB`, `4096`.
pub(crate) fn size(text: &str) -> Result<usize, String> {
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

/// A number of tokens, or a share of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TokenAmount {
    Tokens(u64),
    Percent(f64),
}

impl fmt::Display for TokenAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(tokens) if tokens % 1_000 == 0 => write!(f, "{}k", tokens / 1_000),
            Self::Tokens(tokens) => tokens.fmt(f),
            Self::Percent(share) => write!(f, "{share}%"),
        }
    }
}

/// Tokens, `128000`, `128_000`, `128k` or `1.5M`, or a share of a window: `45%`.
pub(crate) fn parse_amount(text: &str) -> Result<TokenAmount, String> {
    let Some(number) = text.strip_suffix('%') else {
        return count_tokens(text).map(TokenAmount::Tokens).ok_or_else(|| {
            format!("`{}` is not an amount of tokens such as 50000, 50k, 1.5M or 45%", printable(text))
        });
    };
    let share = decimal(number).filter(|share| *share > 0.0 && *share <= 100.0);
    share
        .map(TokenAmount::Percent)
        .ok_or_else(|| format!("`{}` is not a share between 0 % and 100 %", printable(text)))
}

/// Tokens: `128000`, `128_000`, `128k`, `1.5M`.
pub(crate) fn parse_tokens(text: &str) -> Result<u64, String> {
    count_tokens(text)
        .ok_or_else(|| format!("`{}` is not an amount of tokens such as 50000, 50k or 1.5M", printable(text)))
}

/// The one grammar of tokens: on the command line, in a gateway's file and in its headers.
fn count_tokens(text: &str) -> Option<u64> {
    let (number, factor) = match text.strip_suffix(['k', 'K', 'm', 'M']) {
        Some(number) if text.ends_with(['k', 'K']) => (number, 1e3),
        Some(number) => (number, 1e6),
        None => (text, 1.0),
    };
    let number = decimal(number)?;
    // Tokens are whole; parts of thousands and millions are, too, as far as anybody writes them.
    let is_whole = factor > 1.0 || number.fract() == 0.0;
    let tokens = (number * factor).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be in range, and far below where numbers lose their last digit"
    )]
    (is_whole && (1.0..=MAX_TOKENS).contains(&(number * factor))).then_some(tokens as u64)
}

/// Largest number of tokens that is believed to be meant.
const MAX_TOKENS: f64 = 1e12;

/// A plain decimal number: neither a sign nor an exponent, but `_` between digits.
fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | '_'));
    text.replace('_', "").parse().ok().filter(|_| is_plain)
}

/// A time: `250ms`, `30s`, `10m`, `1h 30m`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    time.filter(|time| !time.is_zero() && *time <= Duration::from_hours(24)).ok_or_else(|| {
        format!("`{}` is no time of at most a day: write it as 250ms, 30s, 10m or 1h 30m", printable(text))
    })
}

/// A time, or none: `0s`.
pub(crate) fn time_or_none(text: &str) -> Result<Duration, String> {
    if text.trim() == "0s" { Ok(Duration::ZERO) } else { time(text) }
}

/// Writes a share given in millionths as percent.
pub(crate) fn percent(millionths: u32) -> String {
    format!("{} %", f64::from(millionths) / 1e4)
}

/// Writes bytes in the largest unit that is exact.
pub(crate) fn format_size(bytes: usize) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let exact = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// Writes a time in units that people use.
pub(crate) fn format_time(time: Duration) -> String {
    jiff::SignedDuration::try_from(time).map_or_else(|_| format!("{time:?}"), |time| format!("{time:#}"))
}

/// Shortens a user's text to one line, for messages.
pub(crate) fn printable(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    short.escape_debug().to_string()
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
    fn tokens_are_counted_in_thousands_or_millions_or_one_by_one() {
        for (text, expect) in [
            ("4096", 4_096),
            ("128_000", 128_000),
            ("50.0", 50),
            ("128k", 128_000),
            ("0.5k", 500),
            ("1.5K", 1_500),
            ("1M", 1_000_000),
            ("1.5M", 1_500_000),
            ("2m", 2_000_000),
        ] {
            assert_eq!(parse_tokens(text), Ok(expect), "{text}");
            assert_eq!(parse_amount(text), Ok(TokenAmount::Tokens(expect)), "{text}");
        }
        for text in [
            "",
            "k",
            "0",
            "0k",
            "-1",
            "-5k",
            "+5",
            "0.5",
            "1.5",
            "0.0004k",
            "5x",
            "1e6",
            "1e9k",
            "inf",
            "nan",
            "1.2.3",
            "128kB",
            "12 000",
            "9999999999999999",
            "99999999999999999M",
        ] {
            assert!(parse_tokens(text).is_err() && parse_amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_is_given_only_where_one_has_a_meaning() {
        assert_eq!(parse_amount("45%"), Ok(TokenAmount::Percent(45.0)));
        assert_eq!(parse_amount("0.5%"), Ok(TokenAmount::Percent(0.5)));
        for text in ["0%", "101%", "-5%", "%", "k%", "1e1%"] {
            assert!(parse_amount(text).is_err(), "{text}");
        }
        assert!(parse_tokens("45%").is_err());
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
