//! Old requests, folded: what was asked, which tools were called how often, what was changed, and what came of it.

use std::collections::{BTreeMap, VecDeque};

use super::{AnswerPart, CallEffect, FoldedRequest, TrailEntry, TrailKind, cut::without_middle, fit::least};
use crate::id::Seq;

/// How much of a request and of its report stays.
const WORDS: usize = 160;

/// How much stays of the very first request, which says what all of it is about.
const FIRST_WORDS: usize = 600;

/// How many changed files are named, and how many tools.
const CHANGED: usize = 12;
const TOOLS: usize = 8;

/// A request with more calls than this is folded in pieces, so that its end can stay.
const CALLS: usize = 12;

/// The entries, with the oldest folded until the shortest forms of all fit `letters`. The newest piece is never folded.
pub(super) fn folded(entries: Vec<TrailEntry>, letters: usize) -> Vec<TrailEntry> {
    let mut needed = least(&entries);
    if needed <= letters {
        return entries;
    }
    let first = entries.first().map(|entry| entry.at);
    let mut pieces = pieces(entries);
    let mut told: Vec<TrailEntry> = Vec::new();
    while needed > letters && pieces.len() > 1 {
        let Some(piece) = pieces.pop_front() else { break };
        needed = needed.saturating_sub(least(&piece));
        let piece = fold(piece, first);
        needed += piece.as_ref().map_or(0, |entry| least(std::slice::from_ref(entry)));
        told.extend(piece);
    }
    while needed > letters && told.len() > 1 {
        needed = needed.saturating_sub(least(&told[..2]));
        let second = told.remove(1);
        join(&mut told[0], second);
        needed += least(&told[..1]);
    }
    told.into_iter().chain(pieces.into_iter().flatten()).collect()
}

/// The entries in pieces: a request each, and no more than some calls.
fn pieces(entries: Vec<TrailEntry>) -> VecDeque<Vec<TrailEntry>> {
    let mut pieces: VecDeque<Vec<TrailEntry>> = VecDeque::new();
    let mut calls = 0;
    for entry in entries {
        let begins = matches!(entry.what, TrailKind::User { .. } | TrailKind::Request(_)) || calls == CALLS;
        if begins || pieces.is_empty() {
            pieces.push_back(Vec::new());
            calls = 0;
        }
        calls += usize::from(matches!(entry.what, TrailKind::Call(_)));
        pieces.back_mut().expect("one was just put in").push(entry);
    }
    pieces
}

/// One entry for all of a piece.
fn fold(piece: Vec<TrailEntry>, very_first: Option<Seq>) -> Option<TrailEntry> {
    if let [TrailEntry { what: TrailKind::Request(_), .. }] = piece.as_slice() {
        return piece.into_iter().next();
    }
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
    request.calls = most_called(request.calls);
    Some(TrailEntry { at, what: TrailKind::Request(request) })
}

/// Makes one entry of two folded ones.
fn join(first: &mut TrailEntry, second: TrailEntry) {
    if let (TrailKind::Request(first), TrailKind::Request(second)) = (&mut first.what, second.what) {
        join_requests(first, second);
    }
}

fn join_requests(first: &mut FoldedRequest, second: FoldedRequest) {
    first.last = first.last.max(second.last);
    first.requests = first.requests.saturating_add(second.requests);
    // What a later request asked for is not what the first one did: a fork between them must not know it.
    for (tool, count) in second.calls {
        let calls = first.calls.entry(tool).or_default();
        *calls = calls.saturating_add(count);
    }
    first.calls = most_called(std::mem::take(&mut first.calls));
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
fn most_called(calls: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    const OTHERS: &str = "other tools";
    if calls.len() <= TOOLS {
        return calls;
    }
    let mut by_count: Vec<(String, u64)> = calls.into_iter().collect();
    by_count.sort_by_key(|(tool, count)| (tool == OTHERS, std::cmp::Reverse(*count)));
    let others = by_count.drain(TOOLS - 1..).map(|(_, count)| count).fold(0, u64::saturating_add);
    by_count.into_iter().chain([(OTHERS.to_owned(), others)]).collect()
}
