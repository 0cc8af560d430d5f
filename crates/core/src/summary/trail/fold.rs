//! Old requests, folded: what was asked, which tools were called how often, what was changed, and what came of it.

use std::collections::BTreeMap;

use super::{
    AnswerPart, CallEffect, FoldedRequest, TrailEntry, TrailKind,
    cut::without_middle,
    entry_lengths::{focus_letters, least_letters},
};
use crate::{id::Seq, summary::focus::FocusRelevance};

/// How much of a request and of its report stays.
const WORDS: usize = 160;

/// How much stays of the very first request, which says what all of it is about.
const FIRST_WORDS: usize = 600;

/// How many changed files are named, and how many tools.
const CHANGED: usize = 12;
const TOOLS: usize = 8;

/// A request with more calls than this is folded in pieces, so that its end can stay.
const CALLS: usize = 12;

/// How much stays where there is hardly any room: of words, and of names.
const LEAST_WORDS: usize = 80;
const LEAST_NAMES: usize = 3;

/// Some entries that are folded together.
struct EntryGroup {
    entries: Vec<TrailEntry>,
    /// How much each of them has to do with a focus.
    relevance: Vec<FocusRelevance>,
}

impl EntryGroup {
    fn is_folded(&self) -> bool {
        matches!(self.entries.as_slice(), [TrailEntry { what: TrailKind::Request(_), .. }])
    }
}

/// The entries, with the oldest folded until the shortest forms of all fit `letters`; what a focus is about comes last. The
/// newest piece is folded only if nothing else is left to fold, and a line always stays. `relevance` is that of each entry,
/// before and behind.
pub(super) fn fold_old_requests(
    entries: Vec<TrailEntry>,
    relevance: Vec<FocusRelevance>,
    letters: usize,
) -> (Vec<TrailEntry>, Vec<FocusRelevance>) {
    let mut needed = least_letters(&entries);
    // What a focus is about gets up to half of the room before other requests are told one by one.
    let reserved = focus_letters(&entries, &relevance).min(letters / 2);
    if needed + reserved <= letters {
        return (entries, relevance);
    }
    // Clients may have written something before the user spoke.
    let speaks = |entry: &&TrailEntry| matches!(entry.what, TrailKind::User { .. } | TrailKind::Request(_));
    let first = entries.iter().find(speaks).map(|entry| entry.at);
    let mut folding = pieces(entries, relevance, CALLS);
    let newest = folding.pop();
    for relevance in FocusRelevance::MOST_RELEVANT_FIRST.into_iter().rev() {
        let letters = if relevance == FocusRelevance::About { letters } else { letters - reserved };
        let is_meant = |piece: &EntryGroup| piece.relevance.iter().max() == Some(&relevance);
        needed = fold_oldest(&mut folding, is_meant, first, needed, letters);
    }
    match newest {
        Some(newest) if needed > letters => {
            folding.extend(pieces(newest.entries, newest.relevance, 1));
            needed = fold_oldest(&mut folding, |_| true, first, needed, letters);
        }
        newest => folding.extend(newest),
    }
    if needed > letters {
        folding.iter_mut().flat_map(|piece| &mut piece.entries).for_each(shorten);
    }
    let pieces = folding;
    let (entries, relevance): (Vec<_>, Vec<_>) =
        pieces.into_iter().map(|piece| (piece.entries, piece.relevance)).unzip();
    (entries.concat(), relevance.concat())
}

/// Folds the pieces that are meant, the oldest first, until what is needed fits. Gives what is needed then.
fn fold_oldest(
    pieces: &mut Vec<EntryGroup>,
    is_meant: impl Fn(&EntryGroup) -> bool,
    very_first: Option<Seq>,
    mut needed: usize,
    letters: usize,
) -> usize {
    for piece in &mut *pieces {
        if needed <= letters {
            break;
        }
        if is_meant(piece) && !piece.is_folded() {
            needed = needed.saturating_sub(least_letters(&piece.entries));
            piece.entries = fold(std::mem::take(&mut piece.entries), very_first).into_iter().collect();
            piece.relevance.truncate(piece.entries.len());
            needed += least_letters(&piece.entries);
        }
    }
    pieces.retain(|piece| !piece.entries.is_empty());
    join_neighbours(pieces, needed, letters)
}

/// Makes one of folded pieces that stand side by side, the oldest first, until what is needed fits. Gives what is needed then.
fn join_neighbours(pieces: &mut Vec<EntryGroup>, mut needed: usize, letters: usize) -> usize {
    let mut joined: Vec<EntryGroup> = Vec::with_capacity(pieces.len());
    for piece in pieces.drain(..) {
        match joined.last_mut() {
            Some(last) if needed > letters && last.is_folded() && piece.is_folded() => {
                needed = needed.saturating_sub(least_letters(&last.entries) + least_letters(&piece.entries));
                for (first, second) in last.entries.iter_mut().zip(piece.entries) {
                    if let (TrailKind::Request(first), TrailKind::Request(second)) =
                        (&mut first.what, second.what)
                    {
                        join_requests(first, second);
                    }
                }
                needed += least_letters(&last.entries);
            }
            _ => joined.push(piece),
        }
    }
    *pieces = joined;
    needed
}

/// The entries in pieces: a request each, and no more than `most` calls. A request that is folded already is a piece of its
/// own: what came after it must not take the place of what it was about.
fn pieces(entries: Vec<TrailEntry>, relevance: Vec<FocusRelevance>, most: usize) -> Vec<EntryGroup> {
    let mut pieces: Vec<EntryGroup> = Vec::new();
    let mut calls = 0;
    for (entry, relevance) in entries.into_iter().zip(relevance) {
        let is_folded = |piece: &EntryGroup| piece.is_folded();
        let begins = matches!(entry.what, TrailKind::User { .. } | TrailKind::Request(_)) || calls == most;
        if begins || pieces.last().is_none_or(is_folded) {
            pieces.push(EntryGroup { entries: Vec::new(), relevance: Vec::new() });
            calls = 0;
        }
        calls += usize::from(matches!(entry.what, TrailKind::Call(_)));
        let piece = pieces.last_mut().expect("one was just put in");
        piece.entries.push(entry);
        piece.relevance.push(relevance);
    }
    pieces
}

/// One entry for all of a piece; none, if remarks and notes were all of it.
fn fold(piece: Vec<TrailEntry>, very_first: Option<Seq>) -> Option<TrailEntry> {
    // Results of calls made at once may come in any order.
    let at = piece.iter().map(|entry| entry.at).min()?;
    let mut request = FoldedRequest { last: at, ..FoldedRequest::default() };
    for entry in piece {
        request.last = request.last.max(entry.at);
        match entry.what {
            TrailKind::User { text } => {
                let letters = if Some(entry.at) == very_first { FIRST_WORDS } else { WORDS };
                request.asked = without_middle(&text, letters);
                request.requests += 1;
            }
            TrailKind::Assistant { text, part: AnswerPart::Report } => {
                request.concluded = without_middle(&text, WORDS);
            }
            TrailKind::Call(call) => {
                if call.effect == CallEffect::Changed {
                    change(&mut request.changed, call.subject);
                }
                *request.calls.entry(call.tool).or_default() += 1;
            }
            TrailKind::Request(other) => join_requests(&mut request, other),
            TrailKind::Assistant { part: AnswerPart::Remark, .. } | TrailKind::Client { .. } => {}
        }
    }
    if request.requests == 0 && request.calls.is_empty() && request.concluded.is_empty() {
        return None;
    }
    request.calls = most_called(request.calls, TOOLS);
    Some(TrailEntry { at, what: TrailKind::Request(request) })
}

/// Makes a folded request as short as one can be.
fn shorten(entry: &mut TrailEntry) {
    let TrailKind::Request(request) = &mut entry.what else { return };
    for words in [&mut request.asked, &mut request.concluded] {
        *words = without_middle(words, LEAST_WORDS);
    }
    request.changed.drain(..request.changed.len().saturating_sub(LEAST_NAMES));
    request.calls = most_called(std::mem::take(&mut request.calls), LEAST_NAMES);
}

/// Makes one of two folded requests.
fn join_requests(first: &mut FoldedRequest, second: FoldedRequest) {
    first.last = first.last.max(second.last);
    first.requests = first.requests.saturating_add(second.requests);
    // What a later request asked for is not what the first one did: a fork between them must not know it.
    for (tool, count) in second.calls {
        let calls = first.calls.entry(tool).or_default();
        *calls = calls.saturating_add(count);
    }
    first.calls = most_called(std::mem::take(&mut first.calls), TOOLS);
    second.changed.into_iter().for_each(|path| change(&mut first.changed, path));
    if !second.concluded.is_empty() {
        first.concluded = second.concluded;
    }
}

fn change(changed: &mut Vec<String>, path: String) {
    changed.retain(|known| *known != path);
    changed.push(path);
    changed.drain(..changed.len().saturating_sub(CHANGED));
}

/// The tools that were called most; the others become one.
fn most_called(calls: BTreeMap<String, u64>, most: usize) -> BTreeMap<String, u64> {
    const OTHERS: &str = "other tools";
    if calls.len() <= most {
        return calls;
    }
    let mut by_count: Vec<(String, u64)> = calls.into_iter().collect();
    by_count.sort_by_key(|(tool, count)| (tool == OTHERS, std::cmp::Reverse(*count)));
    let others = by_count.drain(most - 1..).map(|(_, count)| count).fold(0, u64::saturating_add);
    by_count.into_iter().chain([(OTHERS.to_owned(), others)]).collect()
}
