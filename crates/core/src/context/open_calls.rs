//! Calls that are not answered yet, and the matching of results to them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::id::{CallId, Seq};

/// Calls without an answer, by id and event: the places of the parts that make them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenCalls(HashMap<CallId, BTreeMap<Seq, VecDeque<usize>>>);

impl OpenCalls {
    /// A part of an answer makes a call.
    pub(crate) fn open(&mut self, id: &CallId, at: Seq, part: usize) {
        self.0.entry(id.clone()).or_default().entry(at).or_default().push_back(part);
    }

    /// The open call that a result with this id belongs to: of the last message that made such calls, the first still
    /// open. Within one message a repeated id is answered in order; across messages the newest is meant.
    pub(crate) fn close(&mut self, id: &CallId) -> Option<(Seq, usize)> {
        let sites = self.0.get_mut(id)?;
        let mut newest = sites.last_entry()?;
        let site = newest.get_mut().pop_front().map(|part| (*newest.key(), part));
        if newest.get().is_empty() {
            newest.remove();
        }
        if sites.is_empty() {
            self.0.remove(id);
        }
        site
    }

    /// The events with calls that are still open.
    pub(crate) fn events(&self) -> impl Iterator<Item = Seq> {
        self.0.values().flat_map(|sites| sites.keys().copied())
    }
}
