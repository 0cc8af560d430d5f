//! State that a fork takes from its parent thread if the parent has continued after the fork point.
//!
//! A fork shares the events before it, and the decisions for the calls made by then. If its parent has made calls
//! since, a compaction may have been adopted that covers only shared events, and the provider's cache holds a request
//! that begins as the fork's does. So that state continues here: the same summary, the same words, in the same
//! places.

use std::collections::BTreeSet;

use epitome_core::{
    Event, Fact, LoggedEvent, Seq, ThreadId,
    context::{ContextChange, RecordedChange},
    model_view::{EditRecord, ForkOrigin, SentRecord},
};
use epitome_store::{Store, StoreError, records::CallRow};
use epitome_wire::history_rewrite::RewritePlan;

use crate::session::setup::RecordedRendering;

/// State that a fork takes from its parent thread.
#[derive(Clone, Debug)]
pub(crate) struct ForkInheritance {
    /// A compaction of shared events, to be the fork's first event.
    pub(super) compaction: Option<Event>,
    /// The parent's last request, as far as it is shared.
    pub(crate) origin: ForkOrigin,
    /// The parent's last call.
    pub(crate) call: CallRow,
    /// Plan of the parent's last request, as far as it concerns shared units.
    pub(super) plan: Option<RewritePlan>,
}

impl ForkInheritance {
    /// Reads the state for a fork of a thread after the event `at`, which shares `units` units of its client's
    /// history and continues with `new`; `None` if no call was made since. Records in another version's form are
    /// skipped.
    pub(super) fn read(
        store: &dyn Store,
        of: ThreadId,
        at: Seq,
        units: usize,
        new: &[Event],
    ) -> Result<Option<Self>, StoreError> {
        let Some(call) = store.last_composed_call(of)?.filter(|row| row.call.head > at) else {
            return Ok(None);
        };
        let Ok(sent) = serde_json::from_str::<SentRecord>(&call.call.sent) else { return Ok(None) };
        // A fork that continues a shared turn, or adds nothing, needs that turn: a summary must not cover it.
        let kept = if begins_a_turn(new) { at.next() } else { at };
        let compaction = shared_compaction(store, of, at, kept)?;
        let moved = compaction.as_ref().map(|logged| (logged.id.seq, at.next()));
        let mut edits = Vec::new();
        for (_, head, pass) in store.edit_records(of)? {
            if head <= at {
                continue;
            }
            let Ok(pass) = serde_json::from_str::<EditRecord>(&pass) else { continue };
            edits.extend(pass.edits.into_iter().filter_map(|edit| shared_edit(edit, at, moved)));
        }
        let rendering = store.content(call.call.rendering)?;
        let rendering = rendering.and_then(|text| serde_json::from_str::<RecordedRendering>(&text).ok());
        let plan = rendering.and_then(|rendering| rendering.weave).filter(|plan| plan.onward <= units);
        let sent = SentRecord { head: moved.map_or(at, |(_, here)| here), ..sent };
        let compaction = compaction.map(|logged| logged.event);
        Ok(Some(Self { compaction, origin: ForkOrigin { sent, edits }, call, plan }))
    }
}

/// Returns true if a fork's new events begin with a question or an answer, and not with results of a shared call.
fn begins_a_turn(new: &[Event]) -> bool {
    let first = new.iter().find(|event| event.normal.is_some());
    first.is_some_and(|event| matches!(event.fact, Fact::UserSaid { .. } | Fact::AssistantSaid { .. }))
}

/// The newest compaction of a thread after an event that keeps everything from `kept` on, and is in force.
fn shared_compaction(
    store: &dyn Store,
    thread: ThreadId,
    at: Seq,
    kept: Seq,
) -> Result<Option<LoggedEvent>, StoreError> {
    let kinds = ["compacted", "compaction_reverted", "compaction_restored"];
    let events = store.events_of_kinds(thread, &kinds)?;
    let mut undone: BTreeSet<Seq> = BTreeSet::new();
    for logged in &events {
        match logged.event.fact {
            Fact::CompactionReverted { compaction } => undone.insert(compaction),
            Fact::CompactionRestored { compaction } => undone.remove(&compaction),
            _ => false,
        };
    }
    let is_shared = |logged: &LoggedEvent| match &logged.event.fact {
        // A compaction by the client makes another history.
        Fact::Compacted(compaction) if logged.event.normal.is_none() => {
            logged.id.seq > at
                && compaction.kept_from(logged.id.seq) <= kept
                && !undone.contains(&logged.id.seq)
        }
        _ => false,
    };
    Ok(events.into_iter().rev().find(is_shared))
}

/// A decision about shared events. `moved` holds the places of the parent's compaction and of the fork's copy.
fn shared_edit(edit: RecordedChange, at: Seq, moved: Option<(Seq, Seq)>) -> Option<RecordedChange> {
    let last = match &edit.change {
        ContextChange::Show { at, .. } | ContextChange::Drop { at } => at.seq,
        ContextChange::Fold { last, .. } => last.seq,
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
    Some(RecordedChange { summary_of, ..edit })
}
