//! Content in which an edit replaced some parts: unchanged parts keep their bytes.

use std::borrow::Cow;

use epitome_core::ContentPart;

use crate::json::Json;

/// Writes the blocks of `shown`, given `own`, the blocks of `original`. A part that is still there keeps its block,
/// the others are written by `fresh`, which may return none.
pub(crate) fn edited_blocks(
    own: &[Cow<'_, str>],
    original: &[ContentPart],
    shown: &[ContentPart],
    fresh: impl Fn(&ContentPart) -> Option<String>,
) -> Vec<String> {
    let kept = if own.len() == original.len() { aligned(original, shown) } else { vec![None; shown.len()] };
    let block = |(part, kept): (&ContentPart, Option<usize>)| match kept.and_then(|place| own.get(place)) {
        Some(block) => Some(block.clone().into_owned()),
        None => fresh(part),
    };
    shown.iter().zip(kept).filter_map(block).collect()
}

/// The blocks of content: a string is its only one, in the form `text` gives it.
pub(crate) fn own_blocks<'j>(content: Option<&Json<'j>>, text: impl Fn(&str) -> String) -> Vec<Cow<'j, str>> {
    let Some(content) = content.filter(|content| !content.is_null()) else { return Vec::new() };
    match (content.as_text(), content.as_array()) {
        (Some(""), _) => Vec::new(),
        (Some(_), _) => vec![text(content.raw).into()],
        (_, Some(blocks)) => blocks.iter().map(|block| block.raw.into()).collect(),
        _ => vec![content.raw.into()],
    }
}

/// For each shown part the index of the same part in the original, if it has kept its position: counted from the
/// beginning or, after the first change, from the end. Edits replace parts in place, or a middle by less.
fn aligned(original: &[ContentPart], shown: &[ContentPart]) -> Vec<Option<usize>> {
    let same = |(one, other): &(&ContentPart, &ContentPart)| one == other;
    if original.len() == shown.len() {
        let pairs = original.iter().zip(shown).enumerate();
        return pairs.map(|(place, pair)| same(&pair).then_some(place)).collect();
    }
    let head = original.iter().zip(shown).take_while(same).count();
    let rest = original[head..].iter().rev().zip(shown[head..].iter().rev());
    let tail = rest.take_while(same).count();
    let place = |index: usize| {
        if index < head {
            Some(index)
        } else {
            (index >= shown.len() - tail).then(|| index + original.len() - shown.len())
        }
    };
    // The last parts are shifted by as much as the original is longer.
    (0..shown.len()).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stayed_is_found_again() {
        let check = |original: &str, shown: &str, expect: &[Option<usize>]| {
            let parts = |text: &str| text.chars().map(ContentPart::text).collect::<Vec<_>>();
            assert_eq!(aligned(&parts(original), &parts(shown)), expect, "{original} {shown}");
        };
        check("abc", "abc", &[Some(0), Some(1), Some(2)]);
        check("abc", "axc", &[Some(0), None, Some(2)]);
        check("abcd", "axd", &[Some(0), None, Some(3)]);
        check("abcd", "d", &[Some(3)]);
        check("a", "xay", &[None, None, None]);
        check("aa", "aaa", &[Some(0), Some(1), None]);
        check("abcd", "", &[]);
    }
}
