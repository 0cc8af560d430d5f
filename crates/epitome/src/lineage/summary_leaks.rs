//! Leaks of a later summary: words that only came up after the fork.
//!
//! An item names its source events, but its author had read more. If one of its words first appeared after
//! the fork, the item does not belong to the fork's past, whatever its sources.

use std::collections::HashSet;

use epitome_core::{
    Event, Fact, Seq,
    projection::EventLine,
    summary::{ItemDetail, StructuredSummary, SummaryItem},
};

/// Removes the items whose words first appear after `at`. The line holds the events before and after.
pub(super) fn remove_leaks(mut brief: StructuredSummary, line: &EventLine, at: Seq) -> StructuredSummary {
    let mut unknown: HashSet<String> = HashSet::new();
    for item in &brief.items {
        visit_item(item, &mut |text| each_word(text, &mut |word| unknown.extend([word.to_lowercase()])));
    }
    // Words known at the fork are no leak; the others are if they appear later.
    let (before, after): (Vec<_>, Vec<_>) = line.events().partition(|event| event.id.seq <= at);
    for event in before {
        visit_event(&event.event, &mut |word| {
            unknown.remove(&word.to_lowercase());
        });
    }
    let mut leaked: HashSet<String> = HashSet::new();
    // A summary's own words do not count as said until another event contains them.
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

/// Calls `see` with every text of an item, including those that the next summary would carry on.
fn visit_item(item: &SummaryItem, see: &mut impl FnMut(&str)) {
    see(&item.text);
    if let Some(key) = &item.key {
        see(key);
    }
    match &item.detail {
        Some(ItemDetail::Error { of, words, resolved, .. }) => {
            see(of);
            see(words);
            if let Some(resolved) = resolved {
                see(resolved);
            }
        }
        Some(ItemDetail::Progress { changed, .. }) => changed.iter().for_each(|path| see(path)),
        Some(
            ItemDetail::Wish(_)
            | ItemDetail::File { .. }
            | ItemDetail::Command { .. }
            | ItemDetail::Attempt(_)
            | ItemDetail::Step(_),
        )
        | None => {}
    }
}

fn visit_event(event: &Event, see: &mut impl FnMut(&str)) {
    event.visit_counted(&mut |text| each_word(text, see));
}

/// Calls `see` with the words of a text. A letter after a backslash may be part of an escape, as in the JSON
/// of a tool call, so the word is passed with it and without.
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
