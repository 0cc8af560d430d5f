//! Properties of the pieces of a request: pieces seen before are found by their bytes, the rest is read.
//!
//! Most of a history was seen before, so its items are not looked up one by one but in runs: one lookup finds them
//! all. Runs are counted from the beginning, so they stay the same as a history grows, and a change that a client
//! makes near its end touches only the last of them.

use std::sync::Arc;

use epitome_core::{Digest, Event};

use super::{
    HistoryItem,
    memo::{MemoEntry, MemoKey, MessageMemo, PieceKind},
    piece_properties::PieceProperties,
    prefix_memo::MatchedPrefix,
    read_item,
    split::RequestSlice,
};
use crate::{error::WireError, format::Format, json::Json, normal_digest, request};

/// Number of items in a run: enough for there to be few, and few enough that little is looked up again one by one.
pub(super) const ITEMS_PER_RUN: usize = 16;

/// Looks up pieces of a request, and reads those that are new.
pub(super) fn look_up_pieces<'a>(
    format: Format,
    wanted: &[(PieceKind, RequestSlice<'a>)],
    memo: &MessageMemo,
) -> Result<Vec<HistoryItem<'a>>, WireError> {
    let keys: Vec<MemoKey> =
        wanted.iter().map(|(place, slice)| memo.key(format, *place, slice.raw)).collect();
    let mut fresh = Vec::new();
    let mut items = Vec::with_capacity(wanted.len());
    for ((found, key), (place, slice)) in memo.find(&keys).into_iter().zip(keys).zip(wanted) {
        let (known, event) = if let Some([known]) = found.as_deref() {
            (Arc::clone(known), None)
        } else {
            let (known, event) = meet(format, *place, slice.raw)?;
            let known = Arc::new(known);
            fresh.push((key, [Arc::clone(&known)].into()));
            (known, event.map(Box::new))
        };
        items.push(HistoryItem { slice: *slice, known, event });
    }
    memo.keep(fresh);
    Ok(items)
}

/// Looks up the items of a history, a list in `body`, after its known beginning.
pub(super) fn history<'a>(
    format: Format,
    body: &'a str,
    slices: &[RequestSlice<'a>],
    begun: Option<&MatchedPrefix>,
    memo: &MessageMemo,
) -> Result<Vec<HistoryItem<'a>>, WireError> {
    let known = begun.map_or(&[][..], |begun| begun.beginning.known());
    let known = slices.iter().zip(known.iter().map(Arc::clone));
    let mut items = Vec::with_capacity(slices.len());
    items.extend(known.map(|(slice, known)| HistoryItem { slice: *slice, known, event: None }));
    // A beginning consists of whole runs.
    let runs = runs(format, body, slices.get(items.len()..).unwrap_or_default(), memo);
    let unknown = runs.iter().filter(|run| run.known.is_none()).flat_map(|run| run.slices);
    let unknown: Vec<_> = unknown.map(|slice| (PieceKind::Item, *slice)).collect();
    let mut single = look_up_pieces(format, &unknown, memo)?.into_iter();

    let mut fresh = Vec::new();
    for run in runs {
        if let Some(known) = run.known {
            let known = known.iter().map(Arc::clone);
            let known = run.slices.iter().zip(known);
            items.extend(known.map(|(slice, known)| HistoryItem { slice: *slice, known, event: None }));
            continue;
        }
        let from = items.len();
        items.extend(single.by_ref().take(run.slices.len()));
        let all = items.get(from..).unwrap_or_default();
        // A new item may be sent in another form in the next call, since marks move, so its run is not kept yet.
        if let Some(key) = run.key
            && all.iter().all(|item| item.event.is_none())
        {
            fresh.push((key, all.iter().map(|item| Arc::clone(&item.known)).collect()));
        }
    }
    memo.keep(fresh);
    Ok(items)
}

/// Consecutive items.
struct ItemRun<'s, 'a> {
    slices: &'s [RequestSlice<'a>],
    /// Key of the run as a whole, if it is full, so that no item can join it.
    key: Option<MemoKey>,
    /// Properties of each item, if they were seen together before.
    known: Option<MemoEntry>,
}

fn runs<'s, 'a>(
    format: Format,
    body: &str,
    slices: &'s [RequestSlice<'a>],
    memo: &MessageMemo,
) -> Vec<ItemRun<'s, 'a>> {
    let key = |slices: &[RequestSlice<'_>]| {
        let (first, last) = (slices.first()?, slices.last().filter(|_| slices.len() == ITEMS_PER_RUN)?);
        // The same bytes are split into the same items, so the run needs no more than its bytes.
        let bytes = body.get(first.start..last.start + last.raw.len())?;
        Some(memo.key(format, PieceKind::Run, bytes))
    };
    let mut runs: Vec<ItemRun<'_, '_>> = slices
        .chunks(ITEMS_PER_RUN)
        .map(|slices| ItemRun { slices, key: key(slices), known: None })
        .collect();
    let keys: Vec<MemoKey> = runs.iter().filter_map(|run| run.key).collect();
    let complete = runs.iter_mut().filter(|run| run.key.is_some());
    for (run, found) in complete.zip(memo.find(&keys)) {
        run.known = found.filter(|known| known.len() == run.slices.len());
    }
    runs
}

fn meet(format: Format, place: PieceKind, raw: &str) -> Result<(PieceProperties, Option<Event>), WireError> {
    let parse = || Json::parse(raw, request::request_name(format));
    Ok(match place {
        PieceKind::Item | PieceKind::Run | PieceKind::Beginning | PieceKind::Bare => {
            let (event, known) = read_item(format, place, raw)?;
            (known, Some(event))
        }
        PieceKind::System => (PieceProperties::system(format, &parse()?), None),
        PieceKind::Tools => (PieceProperties::tools(format, &parse()?), None),
        PieceKind::Setting => {
            let mut out = Vec::new();
            normal_digest::plain(&mut out, &parse()?);
            (PieceProperties::setting(Digest::of(&out)), None)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::split;

    /// Number of a history's runs that are known before it is read.
    fn see(history: &str, memo: &MessageMemo) -> usize {
        let body = format!(r#"{{"messages":{history}}}"#);
        let members = split::members(&body, "messages", |_| None).unwrap();
        let slices = &members[0].list.as_ref().unwrap().elements[..];
        let known = runs(Format::Anthropic, &body, slices, memo);
        let known = known.iter().filter(|run| run.known.is_some()).count();
        let items = super::history(Format::Anthropic, &body, slices, None, memo).unwrap();
        let digests = |items: Vec<HistoryItem<'_>>| -> Vec<_> {
            items.into_iter().map(|item| (item.slice.start, item.known.digest)).collect()
        };
        let alone: Vec<_> = slices.iter().map(|slice| (PieceKind::Item, *slice)).collect();
        let alone = look_up_pieces(Format::Anthropic, &alone, &MessageMemo::default()).unwrap();
        assert_eq!(digests(items), digests(alone), "{history}");
        known
    }

    fn items(count: usize) -> Vec<String> {
        (0..count).map(|at| format!(r#"{{"role":"user","content":"{at}"}}"#)).collect()
    }

    #[test]
    fn runs_are_known_once_all_their_items_were() {
        let memo = MessageMemo::default();
        let check = |items: &[String], between: &str, expect: usize| {
            assert_eq!(see(&format!("[{}]", items.join(between)), &memo), expect);
        };
        check(&items(40), ",", 0);
        check(&items(40), ",", 0);
        check(&items(40), ",", 2);
        check(&items(15), ",", 0);
        check(&items(47), ",", 2);
        // Its last run was not all known when it was complete.
        check(&items(48), ",", 2);
        check(&items(48), ",", 2);
        check(&items(48), ",", 3);
        let mut changed = items(48);
        changed[20] = r#"{"role":"user","content":"changed"}"#.to_owned();
        check(&changed, ",", 2);
        check(&changed[1..], ",", 0);
        check(&items(48), " ,", 0);
        check(&items(48), ",", 3);
    }

    #[test]
    fn what_stands_between_items_is_no_part_of_what_they_say() {
        let memo = MessageMemo::default();
        for (between, expect) in [(",", 0), (",", 0), (" , ", 0), ("\n,", 0), (" , ", 1), (",", 1)] {
            assert_eq!(see(&format!("[ {} ]", items(16).join(between)), &memo), expect, "{between:?}");
        }
    }
}
