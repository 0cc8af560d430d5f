//! Values: what results say in figures, with what makes it findable: the key of an issue, a name with the number it is set to, an
//! amount with what was counted.
//!
//! A name can be looked up again; a figure that is no longer shown is gone, or made up. So the index tells these as they stood.

/// The values in a line, in order.
pub(super) fn values_in<'t>(line: &'t str, see: &mut impl FnMut(&'t str)) {
    let mut words = words(line).peekable();
    while let Some((at, word)) = words.next() {
        if is_key(word) {
            see(word);
        } else if let Some(end) = end_of_setting(line, at + word.len(), word) {
            see(&line[at..end]);
        } else if is_amount(word)
            && let Some((next, unit)) = words.peek()
            && &line[at + word.len()..*next] == " "
            && is_unit(unit)
        {
            see(&line[at..next + unit.len()]);
        }
    }
}

/// Whether a name of an index is such a value, and not a name.
pub(super) fn is_value(name: &str) -> bool {
    name.contains([' ', '=']) || is_key(name)
}

/// What a value is the value of, if it has a name.
pub(super) fn name_of(value: &str) -> Option<&str> {
    let (name, _) = value.split_once([' ', '=', ':'])?;
    name.contains('_').then_some(name)
}

/// The words of a line and where they begin. A dot or a dash at the end is no part of one.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/');
    let mut next = 0;
    let pieces = line.split_inclusive(move |letter| !is_part(letter)).map(move |piece| {
        let at = next;
        next += piece.len();
        (at, piece.trim_end_matches(|letter| !is_part(letter)).trim_end_matches(['.', '-']))
    });
    pieces.filter(|(_, word)| !word.is_empty())
}

/// `ABC-1234`.
fn is_key(word: &str) -> bool {
    word.split_once('-').is_some_and(|(project, number)| {
        (2..=10).contains(&project.len())
            && project.bytes().all(|letter| letter.is_ascii_uppercase())
            && (2..=7).contains(&number.len())
            && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Where `retry_after_ms = 500` ends, of which the name ends at `at`. A colon needs a space behind it, or any place in a file would
/// be a setting.
fn end_of_setting(line: &str, at: usize, name: &str) -> Option<usize> {
    const LONGEST: usize = 60;
    let is_name = name.len() <= LONGEST
        && name.contains('_')
        && name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
    let behind = line.get(at..).filter(|_| is_name)?;
    let sign = [" = ", "=", ": "].into_iter().find(|sign| behind.starts_with(sign))?;
    let value = &behind[sign.len()..];
    let is_part = |letter: &u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'.');
    let value = value[..value.bytes().take_while(is_part).count()].trim_end_matches('.');
    let is_number = value.starts_with(|letter: char| letter.is_ascii_digit());
    (is_number && (2..=16).contains(&value.len())).then_some(at + sign.len() + value.len())
}

/// A number that is no counter of lines.
fn is_amount(word: &str) -> bool {
    (4..=12).contains(&word.len()) && word.bytes().all(|digit| digit.is_ascii_digit())
}

/// A word for what was counted, or for what became of it.
fn is_unit(word: &str) -> bool {
    const NONE: [&str; 20] = [
        "and", "are", "as", "at", "but", "by", "for", "from", "if", "in", "is", "it", "of", "on", "or",
        "that", "the", "to", "was", "with",
    ];
    !NONE.contains(&word)
        && (2..=20).contains(&word.len())
        && word.bytes().all(|letter| letter.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_with_what_they_belong_to() {
        let check = |line: &str, expect: &[&str]| {
            let mut found = Vec::new();
            values_in(line, &mut |value| found.push(value));
            assert_eq!(found, expect, "{line}");
            assert!(found.iter().all(|value| is_value(value)));
        };
        check("See ABC-1234.", &["ABC-1234"]);
        check(
            "The limit is `retry_after_ms = 51142`, or max_len=0.95.",
            &["retry_after_ms = 51142", "max_len=0.95"],
        );
        check("  pool_size: 64k", &["pool_size: 64k"]);
        check("1543 passed; they counted 36860 parcels before noon", &["1543 passed", "36860 parcels"]);
        // Places in files, columns of listings, code and dates are none.
        for line in [
            "cache_entry:12: found",
            "-rw-r--r-- 1 root root 22443 Nov 16 01:33 a_b",
            "   1234\tlet a_b = other;",
            "let a_b = 7;",
            "12345  two spaces",
            "12345 and 8080 is",
            "UTF-8 é-1234 AB-12345678",
            "",
        ] {
            check(line, &[]);
        }
    }
}
