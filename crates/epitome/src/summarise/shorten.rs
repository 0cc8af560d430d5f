//! Shortening of texts from the middle out.
//!
//! The beginning of a text shows what it is about, and its end how it ended. Only the parts that may stay are
//! counted, so the cost depends on the limit and not on the text's size. Reducers cut by the counts kept
//! beside the log; here there are none.

use std::borrow::Cow;

use epitome_core::{Tokens, meter::Meter};

/// The end of a text that matters more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FavouredEnd {
    /// The beginning: texts by people and models.
    Head,
    /// The end: output of programs.
    Tail,
}

/// Most bytes a token has in any text worth counting.
const MOST_BYTES_A_TOKEN: u64 = 16;

/// Room for the line in the middle.
const LINE: Tokens = Tokens(16);

/// Shortens a text to `most` tokens: the text itself, or its two ends with a line between them that says what
/// is missing.
pub(super) fn cut<'t>(text: &'t str, most: Tokens, lean: FavouredEnd, meter: &Meter) -> Cow<'t, str> {
    let longest = usize::try_from(most.0.saturating_mul(MOST_BYTES_A_TOKEN)).unwrap_or(usize::MAX);
    let mut keep = if text.len() > longest {
        longest / 4
    } else {
        let tokens = meter.text(text);
        if tokens <= most {
            return Cow::Borrowed(text);
        }
        scaled(text.len(), most, tokens)
    };
    let room = most.less(LINE);
    loop {
        let (head, tail) = ends(text, keep, lean);
        let tokens = meter.text(head) + meter.text(tail);
        if tokens <= room {
            let missing = text[head.len()..text.len() - tail.len()].chars().count();
            return Cow::Owned(format!("{head}\n[… {missing} characters left out …]\n{tail}"));
        }
        if keep == 0 {
            return Cow::Owned(String::new());
        }
        keep = scaled(keep, room, tokens).min(keep - 1);
    }
}

/// Scales `bytes`, which have `tokens` tokens, down to `most` tokens and a little less.
fn scaled(bytes: usize, most: Tokens, tokens: Tokens) -> usize {
    let scaled = bytes as u128 * u128::from(most.0) / u128::from(tokens.0.max(1));
    let scaled = usize::try_from(scaled).unwrap_or(bytes).min(bytes);
    scaled - scaled / 16
}

/// Cuts about `keep` bytes of both ends together, between characters, and between lines where one ends
/// nearby.
fn ends(text: &str, keep: usize, lean: FavouredEnd) -> (&str, &str) {
    let head = match lean {
        FavouredEnd::Head => keep / 3 * 2,
        FavouredEnd::Tail => keep / 3,
    };
    let head = text.floor_char_boundary(head);
    let tail = text.ceil_char_boundary(text.len() - (keep - head).min(text.len() - head));
    let head = &text[..head];
    let head = head.rfind('\n').filter(|at| *at >= head.len() / 2).map_or(head, |at| &head[..at]);
    let tail = &text[tail..];
    let tail = tail.find('\n').filter(|at| *at < tail.len() / 2).map_or(tail, |at| &tail[at + 1..]);
    (head, tail)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use epitome_core::{meter::TokenOverhead, tokens::EstimateCounter};
    use proptest::prelude::*;

    use super::*;

    fn meter() -> Meter {
        Meter::new(Arc::new(EstimateCounter), TokenOverhead::default())
    }

    #[test]
    fn both_ends_stay_and_the_line_between_says_how_much_is_missing() {
        let lines: Vec<String> = (0..1_000).map(|line| format!("line {line}")).collect();
        let text = lines.join("\n") + "\n";
        let meter = meter();
        let whole = cut(&text, Tokens::MAX, FavouredEnd::Head, &meter);
        assert!(matches!(whole, Cow::Borrowed(_)));
        let short = cut(&text, Tokens(100), FavouredEnd::Head, &meter);
        assert!(short.starts_with("line 0\nline 1\n") && short.ends_with("line 999\n"), "{short}");
        assert!(short.contains("\n[… ") && meter.text(&short) <= Tokens(100), "{short}");
        let by_tail = cut(&text, Tokens(100), FavouredEnd::Tail, &meter);
        let count = |text: &str| text.lines().position(|line| line.starts_with('[')).unwrap();
        assert!(count(&by_tail) < count(&short), "{by_tail}");
    }

    #[test]
    fn a_huge_text_costs_what_its_limit_is_worth() {
        let text = "x/".repeat(20 << 20);
        let short = cut(&text, Tokens(50), FavouredEnd::Head, &meter());
        assert!(meter().text(&short) <= Tokens(50));
    }

    proptest! {
        #[test]
        fn no_text_goes_over_its_limit(text in any::<String>(), times in 1..40_usize, most in 0..200_u64) {
            let (text, meter) = (text.repeat(times), meter());
            for lean in [FavouredEnd::Head, FavouredEnd::Tail] {
                prop_assert!(meter.text(&cut(&text, Tokens(most), lean, &meter)) <= Tokens(most.max(LINE.0)));
            }
        }
    }
}
