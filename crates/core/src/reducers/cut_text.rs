//! Cutting a text to its head and its tail.
//!
//! Only the kept text is ever counted: its length is guessed from the text's known count, then corrected by
//! counting the guess. Cuts fall between lines where a line ends nearby, else between words, and never inside
//! a character. A text that was cut before is cut from the original again, so that the line in between names
//! everything that is left out.

use crate::{context::Segment, event::ContentPart, meter::Meter, tokens::Tokens};

/// A part of a segment, as it is shown and as it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct CuttablePart<'s> {
    /// Part that is shown.
    pub(super) part: &'s ContentPart,
    /// Tokens of this part.
    pub(super) tokens: Tokens,
    /// Source of the cut: the text as it was sent, with its tokens. The same part, if all of it is shown.
    pub(super) whole: (&'s ContentPart, Tokens),
}

/// The parts of a segment that were not replaced by a line.
pub(super) fn pieces(segment: &Segment) -> impl Iterator<Item = CuttablePart<'_>> {
    // A cut keeps the number of parts and their order.
    let is_whole = segment.original().count() == segment.parts_with_tokens().count();
    let mut original = segment.original().filter(move |_| is_whole);
    segment.parts_with_tokens().map(move |(part, tokens)| {
        let whole = match (original.next(), part) {
            (Some((sent @ ContentPart::Text { .. }, cost)), ContentPart::Text { .. }) => (sent, cost),
            _ => (part, tokens),
        };
        CuttablePart { part, tokens, whole }
    })
}

/// Amount of a text that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadAndTail {
    /// Tokens at the beginning.
    pub(super) head: Tokens,
    /// Tokens at the end.
    pub(super) tail: Tokens,
    /// Lines at the beginning, and as many at the end.
    pub(super) lines: Option<usize>,
}

/// Amount of text that a cut leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OmittedAmount {
    /// Line breaks in it, at least one line in any case.
    pub(super) lines: u64,
    /// Its tokens.
    pub(super) tokens: Tokens,
}

/// The head and the tail of `text`, which has `tokens`, with a line between them that `marker` writes. `None` if
/// everything would stay.
pub(super) fn cut(
    text: &str,
    tokens: Tokens,
    keep: HeadAndTail,
    meter: &Meter,
    marker: impl Fn(OmittedAmount) -> String,
) -> Option<String> {
    let mut end = bytes_of(text, tokens, keep.head);
    let mut start = text.len() - bytes_of(text, tokens, keep.tail);
    if let Some(lines) = keep.lines {
        end = end.min(end_of_lines(text, lines));
        start = start.max(start_of_last_lines(text, lines));
    }
    if end >= start {
        return None;
    }
    let (head, head_tokens) = head(text, end, keep.head, meter);
    let (tail, tail_tokens) = tail(text, start, keep.tail, meter);
    let middle = &text[head.len()..text.len() - tail.len()];
    let left = Tokens(tokens.0.saturating_sub(head_tokens.0).saturating_sub(tail_tokens.0));
    let marker = marker(OmittedAmount { lines: breaks(middle).max(1), tokens: left });
    let before = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    let after = if tail.is_empty() { "" } else { "\n" };
    Some(format!("{head}{before}{marker}{after}{tail}"))
}

/// Likely number of bytes for so many tokens of this text.
fn bytes_of(text: &str, tokens: Tokens, wanted: Tokens) -> usize {
    let bytes = text.len() as u128 * u128::from(wanted.0) / u128::from(tokens.0.max(1));
    usize::try_from(bytes).unwrap_or(usize::MAX).min(text.len())
}

/// The beginning of `text`, about until `end`, with at most `most` tokens.
fn head<'t>(text: &'t str, mut end: usize, most: Tokens, meter: &Meter) -> (&'t str, Tokens) {
    loop {
        end = text.floor_char_boundary(end);
        end = end_nearby(text, end);
        let kept = &text[..end];
        let tokens = meter.text(kept);
        if tokens <= most || kept.is_empty() {
            return (kept, tokens);
        }
        end = fewer(kept, tokens, most);
    }
}

/// The end of `text`, about from `start` on, with at most `most` tokens.
fn tail<'t>(text: &'t str, mut start: usize, most: Tokens, meter: &Meter) -> (&'t str, Tokens) {
    loop {
        start = text.ceil_char_boundary(start);
        start = start_nearby(text, start);
        let kept = &text[start..];
        let tokens = meter.text(kept);
        if tokens <= most || kept.is_empty() {
            return (kept, tokens);
        }
        start = text.len() - fewer(kept, tokens, most);
    }
}

/// The end of the last whole line before `end`, if it is in the second half; else that of the last word, if it is in the
/// last quarter.
fn end_nearby(text: &str, end: usize) -> usize {
    let kept = &text[..end];
    if text[end..].starts_with(char::is_whitespace) {
        return end;
    }
    let line = kept.rfind('\n').map(|at| at + 1).filter(|at| *at >= end / 2);
    let word = || kept.rfind(' ').filter(|at| *at >= end - end / 4);
    line.or_else(word).unwrap_or(end)
}

/// The start of the first whole line after `start`, if it is in the first half; else that of the first word, if it is in
/// the first quarter.
fn start_nearby(text: &str, start: usize) -> usize {
    let kept = &text[start..];
    if text[..start].ends_with('\n') {
        return start;
    }
    let line = kept.find('\n').filter(|at| *at < kept.len() / 2);
    let inside_a_word = !text[..start].ends_with(' ');
    let word = || kept.find(' ').filter(|at| inside_a_word && *at < kept.len() / 4);
    line.or_else(word).map_or(start, |at| start + at + 1)
}

/// Size of `text` to try next: a little less than in proportion, so that a dense passage takes two or three
/// rounds and not twenty, and always less than before.
fn fewer(text: &str, tokens: Tokens, most: Tokens) -> usize {
    let bytes = bytes_of(text, tokens, most).min(text.len() - 1);
    bytes - bytes / 16
}

fn breaks(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

/// End of the first `lines`.
fn end_of_lines(text: &str, lines: usize) -> usize {
    let Some(last) = lines.checked_sub(1) else { return 0 };
    text.match_indices('\n').nth(last).map_or(text.len(), |(at, _)| at + 1)
}

/// Beginning of the last `lines`.
fn start_of_last_lines(text: &str, lines: usize) -> usize {
    // A line break at the very end closes the last line and opens none.
    let body = text.strip_suffix('\n').unwrap_or(text);
    let Some(before) = lines.checked_sub(1) else { return text.len() };
    body.rmatch_indices('\n').nth(before).map_or(0, |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{meter::TokenOverhead, tokens::TokenCounter};

    /// Four bytes a token, rounded up.
    struct Quarters;

    impl TokenCounter for Quarters {
        fn name(&self) -> &'static str {
            "quarters"
        }

        fn count(&self, text: &str) -> Tokens {
            Tokens((text.len() as u64).div_ceil(4))
        }
    }

    fn marker(left: OmittedAmount) -> String {
        format!("[{} lines, {} tokens]", left.lines, left.tokens)
    }

    fn check(text: &str, head: u64, tail: u64, lines: Option<usize>, expect: Option<&str>) {
        let keep = HeadAndTail { head: Tokens(head), tail: Tokens(tail), lines };
        let meter = Meter::new(Arc::new(Quarters), TokenOverhead::default());
        let cut = cut(text, Quarters.count(text), keep, &meter, marker);
        assert_eq!(cut.as_deref(), expect);
    }

    #[test]
    fn cuts_fall_between_lines() {
        let text = "one 1\ntwo 2\nthree\nfour4\nfive5\nsix 6\n";
        check(text, 4, 4, None, Some("one 1\ntwo 2\n[2 lines, 3 tokens]\nfive5\nsix 6\n"));
    }

    #[test]
    fn a_cut_by_lines_keeps_as_many_at_each_end() {
        let text = "a\nb\nc\nd\ne\n";
        check(text, 100, 100, Some(2), Some("a\nb\n[1 lines, 1 tokens]\nd\ne\n"));
        check(text, 100, 100, Some(3), None);
        check("a\nb\nc\nd\ne", 100, 100, Some(1), Some("a\n[3 lines, 1 tokens]\ne"));
    }

    #[test]
    fn a_text_that_fits_stays_whole() {
        check("short", 10, 10, None, None);
        check("", 0, 0, None, None);
    }

    #[test]
    fn a_single_line_is_cut_inside_but_never_inside_a_character() {
        check(&"é".repeat(20), 2, 1, None, Some("éééé\n[1 lines, 7 tokens]\néé"));
    }

    #[test]
    fn with_no_room_only_the_marker_stays() {
        check("some words that go", 0, 0, None, Some("[1 lines, 5 tokens]"));
    }

    /// A counter for which the beginning of a text is a hundred times as dense as the rest.
    struct Lopsided;

    impl TokenCounter for Lopsided {
        fn name(&self) -> &'static str {
            "lopsided"
        }

        fn count(&self, text: &str) -> Tokens {
            Tokens(text.bytes().map(|byte| if byte == b'#' { 100 } else { 1 }).sum())
        }
    }

    proptest! {
        #[test]
        fn what_stays_is_the_text_and_never_over_its_share(
            text in "(#{0,40}[a-zé\n]{0,200}#{0,5})",
            head in 0..300u64,
            tail in 0..300u64,
            lines in prop::option::of(0..6usize),
        ) {
            let meter = Meter::new(Arc::new(Lopsided), TokenOverhead::default());
            let keep = HeadAndTail { head: Tokens(head), tail: Tokens(tail), lines };
            let Some(cut) = cut(&text, Lopsided.count(&text), keep, &meter, |_| "<cut>".to_owned()) else {
                return Ok(());
            };
            let (before, after) = cut.split_once("<cut>").unwrap();
            // The marker stands on a line of its own, for which a break may have been added.
            let before = before.strip_suffix('\n').unwrap_or(before);
            let after = after.strip_prefix('\n').unwrap_or(after);
            prop_assert!(text.starts_with(before) && text.ends_with(after));
            prop_assert!(before.len() + after.len() <= text.len());
            prop_assert!(Lopsided.count(before) <= Tokens(head) && Lopsided.count(after) <= Tokens(tail));
        }
    }
}
