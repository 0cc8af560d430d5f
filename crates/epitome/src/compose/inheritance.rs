//! What a fork takes along from the thread it parts from, where that has gone on.
//!
//! A fork shares what happened before it, and what was decided for the calls made by then. Where its parent has made calls
//! since, a compaction may have been adopted that covers only what both share, and the provider's cache holds a request
//! that begins as the fork's does. So that goes on here: the same summary, the same words, in the same places.

use std::collections::BTreeSet;

use epitome_core::{
    Event, Fact, Logged, Seq, ThreadId,
    context::{Change, Recorded},
    view::{ForkOrigin, Pass, Sent},
};
use epitome_store::{Sqlite, StoreError, records::CallRow};
use epitome_wire::weave::Plan;

use crate::session::setup::Rendering;

/// What a fork takes along from the thread it parts from.
#[derive(Clone, Debug)]
pub(crate) struct Inheritance {
    /// A compaction of what both share, to be the fork's first event.
    pub(super) compaction: Option<Event>,
    /// What the parent sent last, as far as both share it.
    pub(crate) origin: ForkOrigin,
    /// The parent's last call.
    pub(crate) call: CallRow,
    /// How the parent's last request was written, as far as that is about what both share.
    pub(super) plan: Option<Plan>,
}

impl Inheritance {
    /// What a fork of a thread after the event `at` takes along, which shares so many units of its client's history and goes
    /// on with `new`; nothing if no call was made since. What another version has recorded in a way of its own is left behind.
    pub(super) fn read(
        store: &Sqlite,
        of: ThreadId,
        at: Seq,
        units: usize,
        new: &[Event],
    ) -> Result<Option<Self>, StoreError> {
        let Some(call) = store.last_made_call(of)?.filter(|row| row.call.head > at) else { return Ok(None) };
        let Ok(sent) = serde_json::from_str::<Sent>(&call.call.sent) else { return Ok(None) };
        // What goes on with a turn that both share, or brings nothing, needs that turn: a summary must not have taken it in.
        let kept = if begins_a_turn(new) { at.next() } else { at };
        let compaction = shared_compaction(store, of, at, kept)?;
        let moved = compaction.as_ref().map(|logged| (logged.id.seq, at.next()));
        let mut edits = Vec::new();
        for (_, head, pass) in store.passes(of)? {
            if head <= at {
                continue;
            }
            let Ok(pass) = serde_json::from_str::<Pass>(&pass) else { continue };
            edits.extend(pass.edits.into_iter().filter_map(|edit| shared_edit(edit, at, moved)));
        }
        let rendering = store.content(call.call.rendering)?;
        let rendering = rendering.and_then(|text| serde_json::from_str::<Rendering>(&text).ok());
        let plan = rendering.and_then(|rendering| rendering.weave).filter(|plan| plan.onward <= units);
        let sent = Sent { head: moved.map_or(at, |(_, here)| here), ..sent };
        let compaction = compaction.map(|logged| logged.event);
        Ok(Some(Self { compaction, origin: ForkOrigin { sent, edits }, call, plan }))
    }
}

/// Whether what a fork brings begins with a question or an answer, and not with results of a call that both share.
fn begins_a_turn(new: &[Event]) -> bool {
    let first = new.iter().find(|event| event.normal.is_some());
    first.is_some_and(|event| matches!(event.fact, Fact::UserSaid { .. } | Fact::AssistantSaid { .. }))
}

/// The newest compaction of a thread after an event that keeps what comes from `kept` on, and holds.
fn shared_compaction(
    store: &Sqlite,
    thread: ThreadId,
    at: Seq,
    kept: Seq,
) -> Result<Option<Logged>, StoreError> {
    let kinds = ["compacted", "compaction_reverted", "compaction_restored"];
    let events = store.of_kinds(thread, &kinds)?;
    let mut undone: BTreeSet<Seq> = BTreeSet::new();
    for logged in &events {
        match logged.event.fact {
            Fact::CompactionReverted { compaction } => undone.insert(compaction),
            Fact::CompactionRestored { compaction } => undone.remove(&compaction),
            _ => false,
        };
    }
    let is_shared = |logged: &Logged| match &logged.event.fact {
        // What a client compacted itself is another history.
        Fact::Compacted(compaction) if logged.event.normal.is_none() => {
            logged.id.seq > at
                && compaction.kept_from(logged.id.seq) <= kept
                && !undone.contains(&logged.id.seq)
        }
        _ => false,
    };
    Ok(events.into_iter().rev().find(is_shared))
}

/// A decision that is about what both share. `moved` says where the parent's compaction stands, and where the fork's copy.
fn shared_edit(edit: Recorded, at: Seq, moved: Option<(Seq, Seq)>) -> Option<Recorded> {
    let last = match &edit.change {
        Change::Show { at, .. } | Change::Drop { at } => at.seq,
        Change::Fold { last, .. } => last.seq,
    };
    if last > at {
        return None;
    }
    let summary_of = match (edit.summary_of, moved) {
        (Some(known), _) if known <= at => Some(known),
        (Some(known), Some((there, here))) if known == there => Some(here),
        (Some(_), _) => return None,
        (None, _) => None,
    };
    Some(Recorded { summary_of, ..edit })
}
