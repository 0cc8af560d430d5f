//! What changes in a text, line by line, as people read it.

use std::fmt::Write as _;

/// Lines shown around a change.
const AROUND: usize = 3;

/// Most pairs of lines that are compared one by one.
const MAX_PAIRS: usize = 4_000_000;

/// One line of a difference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiffLine<'t> {
    Same(&'t str),
    Removed(&'t str),
    Added(&'t str),
}

/// The difference of two texts; empty if there is none.
pub(super) fn diff(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let first = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (old, new) = (&before[first..], &after[first..]);
    let last = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
    let (old, new) = (&old[..old.len() - last], &new[..new.len() - last]);
    if old.is_empty() && new.is_empty() {
        return String::new();
    }
    let mut lines: Vec<DiffLine<'_>> =
        before[first.saturating_sub(AROUND)..first].iter().map(|line| DiffLine::Same(line)).collect();
    lines.extend(middle(old, new));
    lines.extend(before[before.len() - last..].iter().take(AROUND).map(|line| DiffLine::Same(line)));
    shown(&lines)
}

/// The shortest difference of two runs of lines, if that is affordable.
fn middle<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<DiffLine<'t>> {
    if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        let removed = old.iter().map(|line| DiffLine::Removed(line));
        return removed.chain(new.iter().map(|line| DiffLine::Added(line))).collect();
    }
    // Length of the longest common run of lines behind each pair of places.
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for one in (0..old.len()).rev() {
        for other in (0..new.len()).rev() {
            common[one * width + other] = if old[one] == new[other] {
                common[(one + 1) * width + other + 1] + 1
            } else {
                common[(one + 1) * width + other].max(common[one * width + other + 1])
            };
        }
    }
    let (mut one, mut other) = (0, 0);
    let mut lines = Vec::new();
    while one < old.len() || other < new.len() {
        if one < old.len() && other < new.len() && old[one] == new[other] {
            lines.push(DiffLine::Same(old[one]));
            (one, other) = (one + 1, other + 1);
        } else if other >= new.len()
            || (one < old.len() && common[(one + 1) * width + other] >= common[one * width + other + 1])
        {
            lines.push(DiffLine::Removed(old[one]));
            one += 1;
        } else {
            lines.push(DiffLine::Added(new[other]));
            other += 1;
        }
    }
    lines
}

/// The lines, where long runs of unchanged ones are left out.
fn shown(lines: &[DiffLine<'_>]) -> String {
    let is_near = |at: usize| {
        lines[at.saturating_sub(AROUND)..(at + AROUND + 1).min(lines.len())]
            .iter()
            .any(|line| !matches!(line, DiffLine::Same(_)))
    };
    let mut text = String::new();
    let mut is_gap = false;
    for (at, line) in lines.iter().enumerate() {
        let (mark, line) = match line {
            DiffLine::Same(_) if !is_near(at) => {
                if !is_gap {
                    text.push_str("  …\n");
                }
                is_gap = true;
                continue;
            }
            DiffLine::Same(line) => (' ', line),
            DiffLine::Removed(line) => ('-', line),
            DiffLine::Added(line) => ('+', line),
        };
        is_gap = false;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark} {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_shown_with_what_stands_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";
        let after = "1\n2\n3\n4\nnew\n5\n6\n7\n8\n9\n10\n11\nother\n";
        let expect = "  2\n  3\n  4\n+ new\n  5\n  6\n  7\n  …\n  9\n  10\n  11\n- 12\n+ other\n";
        assert_eq!(diff(before, after), expect);
        assert_eq!(diff("a", "a"), "");
        assert_eq!(diff("", "a\nb"), "+ a\n+ b\n");
    }
}
