//! Comparison of the simulation with recorded usage, which shows how far the other numbers can be trusted.

use epitome_measure::replay::recorded_usage::{
    ComparisonTotals, PrefixSource, SimulationAccuracy, WorstCall,
};
use serde_json::{Value, json};

use super::{
    super::{
        output::{BOLD, CliOutput, DIM},
        text_format,
    },
    report::{percent, table},
};

const COLUMNS: [&str; 10] = [
    "unseen prefix from",
    "cache",
    "input: median",
    "mean",
    "reads: median",
    "mean",
    "price",
    "cold: found",
    "missed",
    "wrong",
];

/// Number of the worst calls that people are shown.
const MAX_LISTED_CALLS: usize = 3;

/// Writes the comparison for people.
pub(super) fn print_comparison(all: &ComparisonTotals, out: &mut CliOutput) -> anyhow::Result<()> {
    if all.threads == 0 {
        return Ok(());
    }
    out.line(format_args!(
        "{BOLD}as recorded{BOLD:#}: how far the simulation is off where each session is sent as it was sent, {} of {}",
        text_format::count(all.calls, "call"),
        text_format::count(all.threads, "thread"),
    ))?;
    let rows = all.reports().iter().map(cells).collect();
    out.line(table(&COLUMNS, 2, rows))?;
    out.line(format_args!(
        "{DIM}cold: calls that found less than half of what the call before had sent; price: of an input token{DIM:#}"
    ))?;
    for worst in all.worst.iter().take(MAX_LISTED_CALLS) {
        for (index, line) in text_format::wrapped(&words(worst), 116).iter().enumerate() {
            let indent = if index == 0 { "far off: " } else { "  " };
            out.line(format_args!("{DIM}{indent}{line}{DIM:#}"))?;
        }
    }
    out.line("")
}

/// The comparison for programs; null if it is switched off.
pub(super) fn json(all: &ComparisonTotals) -> Value {
    if all.threads + all.without_usage == 0 {
        return Value::Null;
    }
    json!({
        "threads": all.threads,
        "threads_without_usage": all.without_usage,
        "calls": all.calls,
        "modes": all.reports(),
        "worst": all.worst,
    })
}

fn cells(report: &SimulationAccuracy) -> Vec<String> {
    let prefix = match report.prefix {
        PrefixSource::Recorded => "all usage",
        PrefixSource::Inferred => "the first usage",
    };
    let off = |part: f64| percent(Some(part));
    let price = report.price_error.map_or_else(
        || "–".to_owned(),
        |part| match format!("{:+.1}%", part * 100.0) {
            zero if zero == "-0.0%" => "+0.0%".to_owned(),
            off => off,
        },
    );
    vec![
        prefix.to_owned(),
        report.cache.to_owned(),
        off(report.input_error.median),
        off(report.input_error.mean),
        off(report.read_error.median),
        off(report.read_error.mean),
        price,
        report.cold.found.to_string(),
        report.cold.missed.to_string(),
        report.cold.wrong.to_string(),
    ]
}

fn words(worst: &WorstCall) -> String {
    format!("{}, call {}: {}", text_format::one_line(&worst.thread, 60), worst.call, worst.why)
}
