//! The value that holds for each key, and where it is from: the file with its line, a variable, a flag, or the default.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::keys::KEYS;

/// A key with the value that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EffectiveValue {
    /// The key, with the number of each table of a list.
    pub(crate) key: String,
    /// Its value as a file has it; empty if none holds.
    pub(crate) value: String,
    /// Origin of the value.
    pub(crate) from: String,
}

/// The values of a file that was checked, and the defaults of the keys that it does not have.
pub(crate) fn effective_values(file: Option<&Path>) -> anyhow::Result<Vec<EffectiveValue>> {
    let mut values = Vec::new();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        values = values_of(&path.display().to_string(), &text);
    }
    let is_single = |key: &str| !key.contains("[]") && !key.contains('*');
    let mut shown = Vec::new();
    for known in KEYS {
        let is_of = |value: &&EffectiveValue| general(&value.key) == known.key;
        let set: Vec<EffectiveValue> = values.iter().filter(is_of).cloned().collect();
        if set.is_empty() && is_single(known.key) {
            let (key, value) = (known.key.to_owned(), known.default.to_owned());
            shown.push(EffectiveValue { key, value, from: "default".to_owned() });
        }
        shown.extend(set);
    }
    // A route that is its mode alone.
    shown.extend(values.into_iter().filter(|value| general(&value.key) == "routes.*"));
    Ok(shown)
}

/// The values of a file, each with its line.
fn values_of(name: &str, text: &str) -> Vec<EffectiveValue> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let mut values = Vec::new();
    visit(table.get_ref(), "", &mut |key, value| {
        let line = text.bytes().take(value.span().start).filter(|byte| *byte == b'\n').count() + 1;
        let shown = text.get(value.span()).unwrap_or_default().to_owned();
        values.push(EffectiveValue { key, value: shown, from: format!("{name}:{line}") });
    });
    values
}

fn visit(table: &DeTable<'_>, above: &str, see: &mut impl FnMut(String, &Spanned<DeValue<'_>>)) {
    for (name, value) in table {
        let name = name.get_ref();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        let name = if is_plain { name.to_string() } else { format!("\"{name}\"") };
        let key = if above.is_empty() { name } else { format!("{above}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) => visit(inner, &key, see),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => {
                for (index, item) in items.iter().enumerate() {
                    if let DeValue::Table(inner) = item.get_ref() {
                        visit(inner, &format!("{key}[{index}]"), see);
                    }
                }
            }
            _ => see(key, value),
        }
    }
}

/// The key of the list for a key of a file: `upstream[1].name` is `upstream[].name`.
fn general(key: &str) -> String {
    let mut general = String::new();
    let mut rest = key;
    if let Some(route) = key.strip_prefix("routes.") {
        let last = route.rsplit_once("\".").map_or("", |(_, last)| last);
        return if last.is_empty() { "routes.*".to_owned() } else { format!("routes.*.{last}") };
    }
    while let Some((before, after)) = rest.split_once('[') {
        general.push_str(before);
        general.push_str("[]");
        rest = after.split_once(']').map_or("", |(_, after)| after);
    }
    general + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_line_and_what_is_not_said_its_default() {
        let text = "mode = 'compact'\n[compact]\nwindow = '128k'\n[[compact.hook]]\nname = 'a'\nreserve = 5\n\
                    [routes]\n'/v1/messages' = 'observe'\n'/v1/responses' = { mode = 'compact', window = 9 }\n";
        let shown: Vec<String> = values_of("f.toml", text)
            .into_iter()
            .map(|value| format!("{} ({}) = {} {}", value.key, general(&value.key), value.value, value.from))
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
        compact.hook[0].name (compact.hook[].name) = 'a' f.toml:5
        compact.hook[0].reserve (compact.hook[].reserve) = 5 f.toml:6
        compact.window (compact.window) = '128k' f.toml:3
        mode (mode) = 'compact' f.toml:1
        routes."/v1/messages" (routes.*) = 'observe' f.toml:8
        routes."/v1/responses".mode (routes.*.mode) = 'compact' f.toml:9
        routes."/v1/responses".window (routes.*.window) = 9 f.toml:9
        "#);
    }
}
