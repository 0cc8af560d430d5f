//! Patterns of names and paths.

/// Returns true if a name fits a pattern, in which `*` stands for any text.
pub(crate) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expect) in [
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5.1", false),
            ("gpt-*", "gpt-", true),
            ("*mini", "o4-mini", true),
            ("*mini", "mini-o4", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), expect, "{pattern} {name}");
        }
    }
}
