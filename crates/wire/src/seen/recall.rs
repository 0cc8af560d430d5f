//! Properties of the pieces of a request: pieces seen before are found by their bytes, the rest is read.
//!
//! Most of a history was seen before, so its items are not looked up one by one but in runs: one lookup finds them
//! all. Runs are counted from the beginning, so they stay the same as a history grows, and a change that a client
//! makes near its end touches only the last of them.

use std::sync::Arc;

use epitome_core::{Digest, Event};

use super::{
    Item,
    beginning::Begun,
    known::Known,
    memo::{Kept, Key, Memo, Place},
    read_item,
    split::Slice,
};
use crate::{error::WireError, format::Format, json::Json, normal, request};

/// Number of items in a run: enough for there to be few, and few enough that little is looked up again one by one.
pub(super) const RUN: usize = 16;

/// Looks up pieces of a request, and reads those that are new.
pub(super) fn pieces<'a>(
    format: Format,
    wanted: &[(Place, Slice<'a>)],
    memo: &Memo,
) -> Result<Vec<Item<'a>>, WireError> {
    let keys: Vec<Key> = wanted.iter().map(|(place, slice)| memo.key(format, *place, slice.raw)).collect();
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
        items.push(Item { slice: *slice, known, event });
    }
    memo.keep(fresh);
    Ok(items)
}

/// Looks up the items of a history, a list in `body`, after its known beginning.
pub(super) fn history<'a>(
    format: Format,
    body: &'a str,
    slices: &[Slice<'a>],
    begun: Option<&Begun>,
    memo: &Memo,
) -> Result<Vec<Item<'a>>, WireError> {
    let known = begun.map_or(&[][..], |begun| begun.beginning.known());
    let known = slices.iter().zip(known.iter().map(Arc::clone));
    let mut items = Vec::with_capacity(slices.len());
    items.extend(known.map(|(slice, known)| Item { slice: *slice, known, event: None }));
    // A beginning consists of whole runs.
    let runs = runs(format, body, slices.get(items.len()..).unwrap_or_default(), memo);
    let unknown = runs.iter().filter(|run| run.known.is_none()).flat_map(|run| run.slices);
    let unknown: Vec<_> = unknown.map(|slice| (Place::Item, *slice)).collect();
    let mut single = pieces(format, &unknown, memo)?.into_iter();

    let mut fresh = Vec::new();
    for run in runs {
        if let Some(known) = run.known {
            let known = known.iter().map(Arc::clone);
            let known = run.slices.iter().zip(known);
            items.extend(known.map(|(slice, known)| Item { slice: *slice, known, event: None }));
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
struct Run<'s, 'a> {
    slices: &'s [Slice<'a>],
    /// Key of the run as a whole, if it is full, so that no item can join it.
    key: Option<Key>,
    /// Properties of each item, if they were seen together before.
    known: Option<Kept>,
}

fn runs<'s, 'a>(format: Format, body: &str, slices: &'s [Slice<'a>], memo: &Memo) -> Vec<Run<'s, 'a>> {
    let key = |slices: &[Slice<'_>]| {
        let (first, last) = (slices.first()?, slices.last().filter(|_| slices.len() == RUN)?);
        // The same bytes are split into the same items, so the run needs no more than its bytes.
        let bytes = body.get(first.start..last.start + last.raw.len())?;
        Some(memo.key(format, Place::Run, bytes))
    };
    let mut runs: Vec<Run<'_, '_>> =
        slices.chunks(RUN).map(|slices| Run { slices, key: key(slices), known: None }).collect();
    let keys: Vec<Key> = runs.iter().filter_map(|run| run.key).collect();
    let complete = runs.iter_mut().filter(|run| run.key.is_some());
    for (run, found) in complete.zip(memo.find(&keys)) {
        run.known = found.filter(|known| known.len() == run.slices.len());
    }
    runs
}

fn meet(format: Format, place: Place, raw: &str) -> Result<(Known, Option<Event>), WireError> {
    let parse = || Json::parse(raw, request::what(format));
    Ok(match place {
        Place::Item | Place::Run | Place::Beginning | Place::Bare => {
            let (event, known) = read_item(format, place, raw)?;
            (known, Some(event))
        }
        Place::System => (Known::system(format, &parse()?), None),
        Place::Tools => (Known::tools(format, &parse()?), None),
        Place::Setting => {
            let mut out = Vec::new();
            normal::plain(&mut out, &parse()?);
            (Known::setting(Digest::of(&out)), None)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::split;

    /// Number of a history's runs that are known before it is read.
    fn see(history: &str, memo: &Memo) -> usize {
        let body = format!(r#"{{"messages":{history}}}"#);
        let members = split::members(&body, "messages", |_| None).unwrap();
        let slices = &members[0].list.as_ref().unwrap().elements[..];
        let known = runs(Format::Anthropic, &body, slices, memo);
        let known = known.iter().filter(|run| run.known.is_some()).count();
        let items = super::history(Format::Anthropic, &body, slices, None, memo).unwrap();
        let digests = |items: Vec<Item<'_>>| -> Vec<_> {
            items.into_iter().map(|item| (item.slice.start, item.known.digest)).collect()
        };
        let alone: Vec<_> = slices.iter().map(|slice| (Place::Item, *slice)).collect();
        let alone = pieces(Format::Anthropic, &alone, &Memo::default()).unwrap();
        assert_eq!(digests(items), digests(alone), "{history}");
        known
    }

    fn items(count: usize) -> Vec<String> {
        (0..count).map(|at| format!(r#"{{"role":"user","content":"{at}"}}"#)).collect()
    }

    #[test]
    fn runs_are_known_once_all_their_items_were() {
        let memo = Memo::default();
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
        let memo = Memo::default();
        for (between, expect) in [(",", 0), (",", 0), (" , ", 0), ("\n,", 0), (" , ", 1), (",", 1)] {
            assert_eq!(see(&format!("[ {} ]", items(16).join(between)), &memo), expect, "{between:?}");
        }
    }
}
