//! What a later summary gives away: words that only came up after the fork.
//!
//! An item names the events it came from, but whoever wrote it had read more. If one of its words was said after the
//! fork and never before, it is not of the fork's past, whatever its sources say.

use std::collections::HashSet;

use epitome_core::{
    Event, Fact, Seq,
    project::Line,
    summary::{Brief, Detail, Item},
};

/// A summary without the items that say what was only said after `at`. The line holds what was said before and after.
pub(super) fn without_leaks(mut brief: Brief, line: &Line, at: Seq) -> Brief {
    let mut unknown: HashSet<String> = HashSet::new();
    for item in &brief.items {
        visit_item(item, &mut |text| each_word(text, &mut |word| unknown.extend([word.to_lowercase()])));
    }
    // What was known at the fork goes first; of the rest only what was said later gives anything away.
    let (before, after): (Vec<_>, Vec<_>) = line.events().partition(|event| event.id.seq <= at);
    for event in before {
        visit_event(&event.event, &mut |word| {
            unknown.remove(&word.to_lowercase());
        });
    }
    let mut leaked: HashSet<String> = HashSet::new();
    // A summary's words are its own until somebody says them.
    for event in after.into_iter().filter(|event| !matches!(event.event.fact, Fact::Compacted(_))) {
        visit_event(&event.event, &mut |word| leaked.extend(unknown.take(&word.to_lowercase())));
    }
    brief.items.retain(|item| {
        let mut clean = true;
        visit_item(item, &mut |text| {
            each_word(text, &mut |word| clean &= !leaked.contains(&word.to_lowercase()));
        });
        clean
    });
    brief
}

/// Shows every text of an item, those that the next summary would carry on too.
fn visit_item(item: &Item, see: &mut impl FnMut(&str)) {
    see(&item.text);
    if let Some(key) = &item.key {
        see(key);
    }
    match &item.detail {
        Some(Detail::Error { of, words, resolved, .. }) => {
            see(of);
            see(words);
            if let Some(resolved) = resolved {
                see(resolved);
            }
        }
        Some(Detail::Progress { changed, .. }) => changed.iter().for_each(|path| see(path)),
        Some(
            Detail::Wish(_)
            | Detail::File { .. }
            | Detail::Command { .. }
            | Detail::Attempt(_)
            | Detail::Step(_),
        )
        | None => {}
    }
}

fn visit_event(event: &Event, see: &mut impl FnMut(&str)) {
    event.visit_counted(&mut |text| each_word(text, see));
}

/// Shows the words of a text. What follows a backslash may be the second half of an escape, as in the JSON of a tool call:
/// it is shown with its first letter and without.
fn each_word(text: &str, see: &mut impl FnMut(&str)) {
    for (index, piece) in text.split('\\').enumerate() {
        words(piece, see);
        if let Some(first) = piece.chars().next().filter(|_| index > 0) {
            words(&piece[first.len_utf8()..], see);
        }
    }
}

fn words(text: &str, see: &mut impl FnMut(&str)) {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
        .for_each(see);
}
