//! Texts made shorter: by their middle, at the ends of lines where that is possible, and arguments value by value.

use serde_json::Value;

/// What stands where something was left out of a text.
pub(in crate::summary) const CUT_MARK: &str = "[…]";

/// Below this a text is not worth cutting: so little of it says nothing.
const LEAST: usize = 12;

/// A text within `letters`, without its middle. Beginnings say what a text is about and ends how it came out; of a text
/// that was cut before, the gap is in the part that goes.
pub(in crate::summary) fn without_middle(text: &str, letters: usize) -> String {
    if text.len() <= letters {
        return text.to_owned();
    }
    let room = letters.saturating_sub(CUT_MARK.len() + 2);
    if room < LEAST {
        return String::new();
    }
    let head = room - room * 2 / 5;
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - room * 2 / 5)..];
    // A line that is cut reads as another one; half a text in one line has no other place to cut.
    let (head, head_gap) = match head.rfind('\n').filter(|end| *end * 2 > head.len()) {
        Some(end) => (&head[..end], '\n'),
        None => (head, ' '),
    };
    let (tail, tail_gap) = match tail.find('\n').filter(|start| *start * 2 < tail.len()) {
        Some(start) => (&tail[start + 1..], '\n'),
        None => (tail, ' '),
    };
    let (head, head_gap) = without_gap_at_end(head).unwrap_or((head, head_gap));
    let (tail, tail_gap) = without_gap_at_start(tail).unwrap_or((tail, tail_gap));
    // A line break beside the gap says that the line there is whole: `whole_words` goes by it.
    format!("{head}{head_gap}{CUT_MARK}{tail_gap}{tail}")
}

/// What is left of a text that was cut, without the words that a cut may have gone through.
pub(in crate::summary) fn whole_words(text: &str) -> impl Iterator<Item = &str> {
    let last = text.matches(CUT_MARK).count();
    text.split(CUT_MARK).enumerate().map(move |(place, piece)| {
        let piece = if place == 0 || piece.starts_with('\n') {
            piece
        } else {
            piece.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest)
        };
        if place == last || piece.ends_with('\n') {
            piece
        } else {
            piece.trim_end().rsplit_once(char::is_whitespace).map_or("", |(rest, _)| rest)
        }
    })
}

/// A beginning that ended in an earlier gap, without it, and what stood before the gap.
fn without_gap_at_end(text: &str) -> Option<(&str, char)> {
    let text = text.trim_end().strip_suffix(CUT_MARK)?;
    Some((text.trim_end(), if text.ends_with('\n') { '\n' } else { ' ' }))
}

/// An end that began with an earlier gap, without it, and what stood after the gap.
fn without_gap_at_start(text: &str) -> Option<(&str, char)> {
    let text = text.trim_start().strip_prefix(CUT_MARK)?;
    Some((text.trim_start(), if text.starts_with('\n') { '\n' } else { ' ' }))
}

/// The arguments of a call within `letters` or a little more: long values lose their middle, short ones stay, and so do
/// all names.
pub(super) fn arguments_within(arguments: &str, letters: usize) -> String {
    if arguments.len() <= letters {
        return arguments.to_owned();
    }
    let Ok(mut value) = serde_json::from_str::<Value>(arguments) else {
        return without_middle(arguments, letters);
    };
    let mut lengths = Vec::new();
    visit_texts(&mut value, &mut |text| lengths.push(text.len()));
    let texts: usize = lengths.iter().sum();
    let cap = even_share(&lengths, letters.saturating_sub(arguments.len().saturating_sub(texts)));
    visit_texts(&mut value, &mut |text| {
        if text.len() > cap {
            *text = without_middle(text, cap.max(LEAST * 2));
        }
    });
    let shorter = value.to_string();
    // Numbers and names have no middle: where they are too many, the whole is cut as a text.
    if shorter.len() > letters.saturating_mul(2).max(LEAST * 8) {
        without_middle(&shorter, letters)
    } else {
        shorter
    }
}

/// The length to which the longest of some texts must be cut so that all of them fit.
fn even_share(lengths: &[usize], room: usize) -> usize {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let mut left = room;
    for (place, length) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - place);
        if *length > share {
            return share;
        }
        left -= length;
    }
    usize::MAX
}

/// Shows every text in some JSON to `see`.
pub(in crate::summary) fn visit_texts(value: &mut Value, see: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(values) => values.iter_mut().for_each(|value| visit_texts(value, see)),
        Value::Object(fields) => fields.values_mut().for_each(|value| visit_texts(value, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_loses_its_middle_at_the_ends_of_lines() {
        let lines: Vec<String> = (1..=40).map(|at| format!("line {at} of it")).collect();
        insta::assert_snapshot!(without_middle(&lines.join("\n"), 100), @r"
        line 1 of it
        line 2 of it
        line 3 of it
        line 4 of it
        […]
        line 39 of it
        line 40 of it
        ");
        assert_eq!(without_middle("short", 100), "short");
        assert_eq!(without_middle("no room for anything", 10), "");
        assert_eq!(
            without_middle(&"word ".repeat(30), 60),
            "word word word word word word wo […]  word word word word "
        );
    }

    #[test]
    fn a_word_that_a_cut_went_through_is_not_whole() {
        let check = |text: &str, expect: &[&str]| assert_eq!(whole_words(text).collect::<Vec<_>>(), expect);
        check("all of it", &["all of it"]);
        check("see src/ca […] che.rs and more", &["see", "and more"]);
        check("whole lines\n[…]\nof it", &["whole lines\n", "\nof it"]);
        check("a […] b […] c", &["", "", ""]);
    }

    #[test]
    fn a_cut_through_a_line_of_many_leaves_no_piece_of_a_name() {
        let text = format!("first\n{}\nlast", "raise UploadExpired ".repeat(20));
        let is_whole = |word: &str| ["first", "raise", "UploadExpired", "last"].contains(&word);
        for letters in 60..text.len() {
            let once = without_middle(&text, letters);
            let twice = without_middle(&once, letters / 2);
            for cut in [once, twice] {
                let mut words = whole_words(&cut).flat_map(str::split_whitespace);
                assert_eq!(words.find(|word| !is_whole(word)), None, "in {cut:?}");
            }
        }
    }

    #[test]
    fn long_values_are_cut_and_names_and_short_values_stay() {
        let arguments =
            serde_json::json!({ "file_path": "src/a.rs", "old_string": "o".repeat(300), "limit": 20 });
        insta::assert_snapshot!(
            arguments_within(&arguments.to_string(), 120),
            @r#"{"file_path":"src/a.rs","old_string":"oooooooooooooooooooooooooooooooooooooo […] oooooooooooooooooooooooo","limit":20}"#
        );
        let many: Vec<u64> = (0..1_000).collect();
        assert!(arguments_within(&serde_json::json!({ "ids": many }).to_string(), 200).len() <= 200);
        assert_eq!(arguments_within("{\"a\":1}", 3), "{\"a\":1}");
    }

    proptest! {
        #[test]
        fn whatever_is_cut_is_no_longer_than_it_may_be_and_ends_as_it_ended(text in "(?s).{0,400}", letters in 0usize..300) {
            let cut = without_middle(&text, letters);
            prop_assert!(cut.len() <= letters.max(text.len().min(letters)));
            let again = without_middle(&cut, letters / 2);
            prop_assert!(again.len() <= letters / 2 || again.len() == cut.len());
            prop_assert!(again.matches(CUT_MARK).count() <= 1 + text.matches(CUT_MARK).count());
        }

        #[test]
        fn arguments_of_any_kind_are_borne(text in "(?s).{0,200}", letters in 0usize..200) {
            arguments_within(&text, letters);
            let cut = arguments_within(&serde_json::json!({ "a": text, "b": [text] }).to_string(), letters);
            prop_assert!(cut.len() <= (letters * 2).max(450));
        }
    }
}
