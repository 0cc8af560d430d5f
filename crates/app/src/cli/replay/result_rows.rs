//! The numbers of a replay as JSON and as comma-separated values: a row for each setting and policy.

use std::collections::BTreeMap;

use epitome_measure::replay::{
    ReplayCandidate, ReplayTotals, RequestRoom,
    retention::{FactRetention, NeededFactKind, RetentionForm},
};
use serde_json::{Value, json};

use super::{CacheMode, ReplaySetting};

/// Name of a cache mode.
pub(super) fn cache_name(cache: CacheMode) -> &'static str {
    match cache {
        CacheMode::Ideal => "ideal",
        CacheMode::Breakpoints => "breakpoints",
    }
}

/// Names of the numbers of compactions.
pub(super) const COMPACTION_COUNT_NAMES: [&str; 4] = ["0", "1", "2", "3+"];

/// A row, for programs.
pub(super) fn row(
    setting: &ReplaySetting<'_>,
    contender: &ReplayCandidate,
    total: &ReplayTotals,
    full: Option<&ReplayTotals>,
) -> Value {
    json!({
        "model": setting.model.map(|profile| &profile.name),
        "window": setting.limit.map(RequestRoom::tokens),
        "cache": cache_name(setting.cache),
        "policy": contender.name(),
        "calls": total.calls,
        "peak_tokens": total.peak,
        "mean_tokens": total.mean(),
        "sent_tokens": total.usage.input(),
        "cache_read_tokens": total.usage.cache_read,
        "cache_write_tokens": total.usage.cache_write,
        "output_tokens": total.usage.output,
        "summariser_input_tokens": total.summariser.input(),
        "summariser_output_tokens": total.summariser.output,
        "cache_hit_share": total.hits(),
        "resets": total.resets,
        "summaries": total.summaries,
        "dollars": total.money.dollars(),
        "cost_to_none": full.and_then(|full| total.against(full)),
        "unpriced_calls": total.unpriced,
        "overflows": total.overflows,
        "refused": total.refused,
        "illegal": total.illegal,
        "kept_share": total.retention.in_request(),
        "facts": facts(&total.retention),
        "user_messages": total.retention.user_messages,
    })
}

/// Retention after each number of compactions, for programs.
pub(super) fn drift(total: &ReplayTotals) -> Value {
    let step = |(after, retention): (&&str, &FactRetention)| {
        json!({
            "compactions": after,
            "needed": retention.total(),
            "kept_share": retention.in_request(),
            "facts": facts(retention),
            "user_messages": retention.user_messages,
        })
    };
    COMPACTION_COUNT_NAMES.iter().zip(total.drift.steps()).map(step).collect()
}

fn facts(retention: &FactRetention) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let of_kind = |kind: NeededFactKind| {
        RetentionForm::ALL.into_iter().map(move |held| (held.name(), retention.count(kind, held)))
    };
    NeededFactKind::ALL.into_iter().map(|kind| (kind.name(), of_kind(kind).collect())).collect()
}

/// A line of comma-separated values.
pub(super) fn line<'c>(cells: impl IntoIterator<Item = &'c str>) -> String {
    cells.into_iter().map(quoted).collect::<Vec<_>>().join(",")
}

/// The cells of a row by name; nested cells have both names.
pub(super) fn flatten_row(row: &Value) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    let Value::Object(members) = row else { return cells };
    for (name, value) in members {
        match value {
            Value::Object(_) => {
                cells.extend(
                    flatten_row(value).into_iter().map(|(inner, cell)| (format!("{name}_{inner}"), cell)),
                );
            }
            Value::Null => cells.push((name.clone(), String::new())),
            Value::String(text) => cells.push((name.clone(), text.clone())),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                cells.push((name.clone(), value.to_string()));
            }
        }
    }
    cells
}

fn quoted(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted_where_a_reader_would_split_it() {
        assert_eq!(line(["a", "b, c", "say \"d\"", "e\nf"]), "a,\"b, c\",\"say \"\"d\"\"\",\"e\nf\"");
    }
}
