//! Ids of calls as they are written.
//!
//! Providers reuse ids ("call_1" in every turn), and some refuse a request that holds one twice. So each call gets
//! the id it had, made safe if it comes from another format, with a number appended if the request holds it already.
//! Only calls written before decide, so that a request that grows at its end keeps its ids.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use epitome_core::{ContentPart, Digest};

use super::{CallPosition, HistoryLine, SourceEvent};

/// Scope within which an id must be unique.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdScope {
    /// None: ids are written as they were recorded.
    Nowhere,
    /// Among the calls of one answer.
    InAnswer,
    /// In the whole request.
    InRequest,
}

/// Ids that differ from those in the log, by the event and the index of the call.
pub(crate) struct WrittenCallIds {
    changed: HashMap<(usize, usize), String>,
}

impl WrittenCallIds {
    /// Gives every call its id. `safe` makes one from another format valid; calls for which `is_fixed` holds have
    /// none.
    pub(crate) fn of(
        lines: &[HistoryLine<'_, '_>],
        unique: IdScope,
        safe: impl Fn(&str) -> String,
        is_fixed: impl Fn(&SourceEvent<'_>, usize) -> bool,
    ) -> Self {
        let mut changed = HashMap::new();
        let mut taken = AssignedIds::default();
        for line in lines {
            let HistoryLine::Answer(fragments) = line else { continue };
            if unique == IdScope::InAnswer {
                taken = AssignedIds::default();
            }
            for fragment in fragments {
                for (place, part) in fragment.shown() {
                    let ContentPart::ToolCall(call) = part else { continue };
                    if is_fixed(fragment.entry, place) {
                        continue;
                    }
                    let own = fragment.entry.own.is_some();
                    let mut id = if own { call.id.0.clone() } else { safe(&call.id.0) };
                    if unique != IdScope::Nowhere {
                        id = taken.take(id);
                    }
                    if id != call.id.0 {
                        changed.insert((fragment.entry.index, place), id);
                    }
                }
            }
        }
        Self { changed }
    }

    /// Id of a call, if it is not the log's.
    pub(crate) fn changed(&self, entry: &SourceEvent<'_>, place: usize) -> Option<&str> {
        self.changed.get(&(entry.index, place)).map(String::as_str)
    }

    /// Id of a call.
    pub(crate) fn of_site<'i>(&'i self, site: &CallPosition<'_, 'i>) -> &'i str {
        self.changed(site.entry, site.place).unwrap_or(&site.call.id.0)
    }
}

/// The ids given so far.
#[derive(Default)]
struct AssignedIds {
    ids: HashSet<String>,
    /// Last number appended to each id, so that a thousand equal ones are not tried one by one.
    numbers: HashMap<String, u64>,
}

impl AssignedIds {
    fn take(&mut self, wanted: String) -> String {
        if self.ids.insert(wanted.clone()) {
            return wanted;
        }
        let number = self.numbers.entry(wanted.clone()).or_insert(1);
        loop {
            *number += 1;
            let id = format!("{wanted}_{number}");
            if self.ids.insert(id.clone()) {
                return id;
            }
        }
    }
}

/// An id of at most `most` bytes: a longer one is cut, and made distinct by a digest.
pub(crate) fn shortened(id: &str, most: usize) -> Cow<'_, str> {
    if id.len() <= most {
        return id.into();
    }
    let kept = id.floor_char_boundary(most.saturating_sub(9));
    let digest = Digest::of(id.as_bytes()).to_string();
    format!("{}_{}", &id[..kept], &digest[..8]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_taken_gets_the_next_number() {
        let mut taken = AssignedIds::default();
        let ids = ["a", "a", "a_2", "a", "b"].map(|id| taken.take(id.to_owned()));
        assert_eq!(ids, ["a", "a_2", "a_2_2", "a_3", "b"]);
    }

    #[test]
    fn a_long_id_is_cut_and_stays_its_own() {
        assert_eq!(shortened("call_1", 32), "call_1");
        let (one, other) = (format!("{}1", "ä".repeat(40)), format!("{}2", "ä".repeat(40)));
        assert!(shortened(&one, 32).len() <= 32);
        assert_ne!(shortened(&one, 32), shortened(&other, 32));
    }
}
