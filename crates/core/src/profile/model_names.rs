//! Model names as they are met: with a vendor before them, a date or a tag behind them.
//!
//! A profile is found only by its names: decorations that never change the model are taken off, and a name
//! that then matches none is unknown.

/// The names a model may be meant by, the most literal first.
pub(super) fn candidates(model: &str) -> Vec<String> {
    let literal = model.trim().to_ascii_lowercase();
    let mut names = vec![literal.clone()];
    let vendorless = without_vendor(&literal);
    for name in [vendorless, &without_decoration(vendorless)] {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The name without vendor, date and version, by which two spellings of one model are the same.
pub fn bare(model: &str) -> String {
    candidates(model).pop().unwrap_or_default()
}

/// `openrouter/anthropic/claude-x`, `us.anthropic.claude-x` and `models/gemini-x` without the vendor before
/// them.
fn without_vendor(name: &str) -> &str {
    let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
    name.split_once("anthropic.").map_or(name, |(_, name)| name)
}

/// Without `-20251101`, `-2025-04-14`, `@20251101`, `-v1:0`, `-latest`; a tag in brackets stays, for it changes the model.
fn without_decoration(name: &str) -> String {
    let (name, tag) = name.find('[').map_or((name, ""), |at| name.split_at(at));
    let name = name.split_once(':').filter(|(_, version)| is_digits(version)).map_or(name, |(name, _)| name);
    let name = name.strip_suffix("-v1").unwrap_or(name);
    let name = name.strip_suffix("-latest").or_else(|| name.strip_suffix("@latest")).unwrap_or(name);
    format!("{}{tag}", without_date(name).unwrap_or(name))
}

fn without_date(name: &str) -> Option<&str> {
    let dated = |length: usize| {
        let (name, date) = name.split_at_checked(name.len().checked_sub(length)?)?;
        Some((name.strip_suffix(['-', '@'])?, date))
    };
    match (dated(8), dated(10)) {
        (Some((name, date)), _) if is_digits(date) => Some(name),
        (_, Some((name, date))) => {
            let parts: Vec<&str> = date.split('-').collect();
            let is_date =
                parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.into_iter().all(is_digits);
            is_date.then_some(name)
        }
        _ => None,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if `pattern`, in which `*` stands for any text, matches all of `name`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The names nearest to `wanted`, the nearest first.
pub(super) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    // A name may come from anywhere: a text longer than any real name is no typing error.
    let wanted: Vec<char> = bare(wanted).chars().take(64).collect();
    let mut known: Vec<(usize, &str)> = known.map(|name| (distance(&wanted, name), name)).collect();
    known.sort_unstable();
    let close = |(distance, name): &(usize, &str)| *distance <= wanted.len().max(name.len()) / 2;
    known.into_iter().filter(close).take(3).map(|(_, name)| name).collect()
}

/// Number of characters that must be added, removed or changed.
fn distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (line, to) in to.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (at, from) in from.iter().enumerate() {
            let changed = diagonal + usize::from(*from != to);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decorations_come_off_and_nothing_else() {
        let check = |model: &str, expected: &str| assert_eq!(bare(model), expected, "{model}");
        check("claude-opus-4-5-20251101", "claude-opus-4-5");
        check("Anthropic/Claude-Opus-4-5", "claude-opus-4-5");
        check("us.anthropic.claude-opus-4-6-v1:0", "claude-opus-4-6");
        check("claude-sonnet-4-5@20250929", "claude-sonnet-4-5");
        check("claude-sonnet-4-5-20250929[1m]", "claude-sonnet-4-5[1m]");
        check("gpt-4.1-2025-04-14", "gpt-4.1");
        check("openrouter/openai/gpt-5.2", "gpt-5.2");
        check("models/gemini-2.5-flash", "gemini-2.5-flash");
        check("gpt-4.1-mini", "gpt-4.1-mini");
        check("ft:gpt-4.1-2025-04-14:org:name:id", "ft:gpt-4.1-2025-04-14:org:name:id");
        check("x-1234-56-789", "x-1234-56-789");
        check("", "");
        check("20251101", "20251101");
        check("ü2345678", "ü2345678");
    }

    #[test]
    fn a_star_stands_for_anything() {
        let check = |pattern: &str, name: &str, expected: bool| {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        };
        check("gpt-5", "gpt-5", true);
        check("gpt-5", "gpt-5.1", false);
        check("gpt-5*", "gpt-5.1", true);
        check("*maverick", "openrouter-llama-4-maverick", true);
        check("ft:*:org:*", "ft:gpt-4.1:org:x", true);
        check("ft:*:org:*", "ft:gpt-4.1:other:x", false);
        check("a*a", "a", false);
        check("*", "", true);
    }

    proptest! {
        #[test]
        fn no_name_is_too_strange(model in "\\PC{0,80}", pattern in "[a-c*]{0,8}") {
            let once = bare(&model);
            prop_assert!(once.len() <= model.to_ascii_lowercase().len());
            let _ = (matches(&pattern, &model), nearest(&model, ["gpt-5", "claude"].into_iter()));
        }
    }
}
