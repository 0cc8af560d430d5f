//! Numbers, times and long texts, formatted for people.

use comfy_table::{CellAlignment, Table, presets};
use epitome::core::event::Timestamp;
use jiff::tz::TimeZone;

pub(crate) use crate::units::{parse_time, rfc3339};
pub(crate) use epitome_measure::text_format::{count, one_line, short, tokens, wrapped};

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

/// The current time.
pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
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
