//! Times as agents write them.

use epitome_core::event::Timestamp;
use jiff::{civil::DateTime, tz::TimeZone};

/// Reads an ISO 8601 time. A time without an offset is taken as UTC: agents that leave it out do not record their
/// time zone, and only the order within the session is needed.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let stamp = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let local = text.parse::<DateTime>().ok()?;
        local.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })?;
    Some(Timestamp(stamp.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_and_utc_unless_they_say_otherwise() {
        let check =
            |text: &str, expect: Option<i64>| assert_eq!(parse_time(text), expect.map(Timestamp), "{text}");
        check("2026-02-07T00:35:24.538Z", Some(1_770_424_524_538));
        check("2026-02-07T01:35:24.538+01:00", Some(1_770_424_524_538));
        check("2026-02-07T00:35:24.538123", Some(1_770_424_524_538));
        check("yesterday", None);
        check("", None);
    }
}
