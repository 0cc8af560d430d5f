//! Line numbers in what tools write: `cat -n` and its relatives.

/// The number that a line begins with, and what follows it.
pub(super) fn numbered(line: &str) -> Option<(u64, &str)> {
    let line = line.trim_start_matches(' ');
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let number = line.get(..digits).filter(|digits| (1..=9).contains(&digits.len()))?.parse().ok()?;
    let rest = &line[digits..];
    let rest = rest.strip_prefix(['\t', '→', '|']).or_else(|| {
        let rest = rest.strip_prefix(':')?;
        Some(rest.strip_prefix(' ').unwrap_or(rest))
    })?;
    Some((number, rest))
}

/// The first run of numbered lines in a text, if it begins near the text's beginning.
pub(super) fn run(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines().map(numbered);
    let (first, _) = lines.by_ref().take(12).flatten().next()?;
    let last =
        lines.zip(first + 1..).take_while(|(line, next)| line.is_some_and(|(number, _)| number == *next));
    Some((first, last.last().map_or(first, |(_, number)| number)))
}

/// Where in the numbered lines of a text the lines of another stand.
pub(super) fn place(text: &str, part: &str) -> Option<(u64, u64)> {
    let part: Vec<&str> = part.lines().map(str::trim_end).collect();
    let first = part.iter().position(|line| !line.is_empty())?;
    let (skipped, sought) = (first as u64, &part[first..]);
    let shown: Vec<(u64, &str)> = text.lines().filter_map(numbered).take(2_000).collect();
    // Lines that repeat could make this slow: only so many beginnings are tried.
    let mut starts = (0..shown.len()).filter(|at| shown[*at].1.trim_end() == sought[0]).take(64);
    let at = starts.find(|at| {
        let here = shown[*at..].iter().map(|(_, line)| line.trim_end());
        shown.len() - at >= sought.len() && here.zip(sought).all(|(shown, sought)| shown == *sought)
    })?;
    let from = shown[at].0.saturating_sub(skipped).max(1);
    Some((from, from + part.len() as u64 - 1))
}

/// Adds a line to runs of lines that grow at their end.
pub(super) fn add(runs: &mut Vec<(u64, u64)>, line: u64) {
    // Beyond so many runs the last one stands for the rest.
    let full = runs.len() >= MOST_RUNS;
    match runs.last_mut() {
        Some((_, to)) if full || line <= to.saturating_add(1) => *to = line.max(*to),
        _ => runs.push((line, line)),
    }
}

/// The most runs of lines that are told of one change.
const MOST_RUNS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_style_are_read() {
        for line in ["     7\tx", "7→x", "7: x", "7:x", "    7|x"] {
            assert_eq!(numbered(line), Some((7, "x")), "{line}");
        }
        for line in ["x", "7", "7 x", "1234567890: x", "-7: x"] {
            assert_eq!(numbered(line), None, "{line}");
        }
    }

    #[test]
    fn a_run_ends_where_the_numbers_do() {
        assert_eq!(run("File:\n  3\ta\n  4\tb\n\n 9\tc"), Some((3, 4)));
        assert_eq!(run("no numbers"), None);
    }

    #[test]
    fn a_part_is_found_where_it_stands() {
        assert_eq!(place("1→a\n2→b\n3→b\n4→c\n", "b\nc"), Some((3, 4)));
        assert_eq!(place("1→a\n", "z"), None);
        assert_eq!(place("1→\n2→a\n", "\na"), Some((1, 2)));
    }

    #[test]
    fn runs_join_and_have_a_bound() {
        let mut runs = Vec::new();
        for line in [1, 2, 3, 7, 7, 8] {
            add(&mut runs, line);
        }
        assert_eq!(runs, [(1, 3), (7, 8)]);
        (0..10_000).for_each(|line| add(&mut runs, line * 2 + 20));
        assert_eq!((runs.len(), runs.last()), (64, Some(&(142, 20_018))));
    }
}
