//! Explains whether the agent forgot a text or it was compacted out.
//!
//! The text is searched in all events of the session. For each event that holds it, the result lists the
//! calls that saw it word for word, and what the others saw instead: by which rule, from which call on, and
//! how to get it back. This is no opinion about what should have been sent: past calls are rendered again
//! from their records, and the result says how many of them came out with exactly the bytes that were sent.
//!
//! Not every call is rendered again. What is shown of an event changes only at a call that decided something
//! about it, or that builds on another compaction than the call before; those are few, and never more than
//! [`MAX_REPLAYED_CALLS`]. Every event of the thread is read once: a full-text index finds whole words, but people
//! copy parts of words out of an answer.

mod answer_text;
mod text_search;
mod visibility;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use epitome::{
    core::{
        EventId, Fact, Seq, ThreadId,
        context::{ContextChange, EventNaming},
        event::Timestamp,
        pairing::{CallOutcome, pair},
        projection::{EventLine, project},
        seq_set::SeqSet,
    },
    session::{SessionError, call_replay::CallReplayer},
    store::{Store, records::CallRow},
};
use serde::Serialize;

use self::{
    text_search::{TextNeedle, TextOccurrence, find},
    visibility::{SightContext, sight},
};

/// Most calls that are rendered again for one answer.
pub const MAX_REPLAYED_CALLS: usize = 128;

/// Number of the first events with the text that are reported, and of the newest.
const FIRST: usize = 4;
const NEWEST: usize = 8;

/// Fate of a text in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextFate {
    /// The text.
    pub text: String,
    /// Kind of the match.
    pub matched: MatchKind,
    /// Basis of the answer.
    pub basis: TextFateBasis,
    /// Events that hold the text, oldest first.
    pub events: Vec<EventTrace>,
    /// Further events that hold it and are not reported.
    #[serde(skip_serializing_if = "SeqSet::is_empty")]
    pub others: SeqSet,
}

/// Kind of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchKind {
    /// The exact text.
    Exact,
    /// The text in different case.
    IgnoringCase,
    /// No match.
    Nowhere,
}

/// Basis of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum TextFateBasis {
    /// Calls that were rendered again.
    Calls {
        /// Number of recorded calls.
        recorded: u64,
        /// Number of calls that were rendered again.
        replayed: u64,
        /// Number of those that came out with exactly the bytes that were sent.
        same: u64,
        /// Number of further calls at which something may have changed.
        skipped: u64,
    },
    /// No call is recorded, so the log alone, with its compactions.
    Log,
}

/// Fate of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventTrace {
    /// The event.
    pub event: EventId,
    /// Its kind, as [`Fact::kind`] names it.
    pub kind: &'static str,
    /// Time of the event.
    pub time: Option<Timestamp>,
    /// The text with its surroundings.
    pub excerpt: String,
    /// Views of it, one stretch of calls after the other. Without recorded calls: its state in the context of
    /// each event.
    pub seen: Vec<CallStretch>,
    /// View of it in the request that would be sent now, if nothing more were decided.
    pub now: EventVisibility,
    /// Handle that brings it back.
    pub handle: String,
}

/// Successive calls with the same view of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallStretch {
    /// First of the calls.
    pub first: u64,
    /// Last of the calls.
    pub last: u64,
    /// Their view.
    pub sight: EventVisibility,
    /// Cause of the change at the first of them, if it changed something sent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// View of an event in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventVisibility {
    /// Form in which it is shown.
    pub how: VisibilityForm,
    /// Author of this form: a reducer, or the summariser that wrote the summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Compaction whose summary stands for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Seq>,
    /// Presence of the text itself.
    pub words: TextPresence,
}

/// Form in which an event is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VisibilityForm {
    /// In full.
    Verbatim,
    /// By its beginning and its end.
    Cut,
    /// By a path or a command to get it again.
    Referred,
    /// By a line that says what was there.
    Stubbed,
    /// By a note that stands for several events.
    Folded,
    /// By the summary of a compaction.
    Summarised,
    /// Left out.
    LeftOut,
    /// Never sent by itself: it is no message.
    Unsent,
}

/// Presence of a text in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TextPresence {
    /// The text is gone.
    Gone,
    /// The text is there.
    There,
}

/// Explains the fate of a text in a thread's view: which calls saw it, and what the others saw instead.
pub fn why(store: &dyn Store, thread: ThreadId, text: &str) -> Result<TextFate, SessionError> {
    let past = CallReplayer::read(store, thread, None)?;
    let (matched, mut found) = find(past.line(), text);
    let others = set_aside(&mut found);
    let calls = store.calls(thread, 0, usize::MAX)?;
    let witness = SightContext::new(store, past.line(), TextNeedle::new(text, matched))?;
    let (basis, seen) = if calls.is_empty() {
        (TextFateBasis::Log, in_log(&past, thread, &found, &witness))
    } else {
        in_calls(&past, &calls, &found, &witness)?
    };
    let now = past.now(thread, calls.last())?;
    let events = found.iter().zip(seen).map(|(found, seen)| EventTrace {
        event: found.event.id,
        kind: found.event.event.fact.kind(),
        time: found.event.event.time,
        excerpt: witness.needle.excerpt(&found.text()),
        seen,
        now: sight(now.context(), found, &witness),
        handle: EventNaming::Thread(thread).handle(found.event.id.seq),
    });
    Ok(TextFate { text: text.to_owned(), matched, basis, events: events.collect(), others })
}

/// Keeps the first and the newest events; returns the others.
fn set_aside(found: &mut Vec<TextOccurrence>) -> SeqSet {
    let newest = found.len().saturating_sub(NEWEST).max(FIRST.min(found.len()));
    let mut others = SeqSet::default();
    for found in found.drain(FIRST.min(newest)..newest) {
        others.insert(found.event.id.seq);
    }
    others
}

/// Views of each found event in the calls.
fn in_calls(
    past: &CallReplayer<'_>,
    calls: &[CallRow],
    found: &[TextOccurrence],
    witness: &SightContext,
) -> Result<(TextFateBasis, Vec<Vec<CallStretch>>), SessionError> {
    let turning: Vec<BTreeSet<u64>> = found.iter().map(|found| turning_points(past, calls, found)).collect();
    let mut wanted: Vec<u64> =
        turning.iter().flatten().copied().collect::<BTreeSet<u64>>().into_iter().collect();
    let skipped = wanted.len().saturating_sub(MAX_REPLAYED_CALLS);
    if skipped > 0 {
        // The first appearance and the final state matter most, so calls in the middle are skipped.
        wanted.drain(MAX_REPLAYED_CALLS / 2..MAX_REPLAYED_CALLS / 2 + skipped);
    }
    let (mut same, mut seen) = (0, vec![Vec::new(); found.len()]);
    for number in &wanted {
        let Some(row) = row(calls, *number) else { continue };
        let replayed = past.replay(row.clone())?;
        same += u64::from(replayed.is_same());
        for (at, found) in found.iter().enumerate().filter(|(at, _)| turning[*at].contains(number)) {
            let sight = sight(replayed.view.context(), found, witness);
            let cause = row.call.cause.clone();
            seen[at].push(CallStretch { first: *number, last: *number, sight, cause });
        }
    }
    let last = calls.last().map_or(0, |row| row.number);
    let seen = seen.into_iter().map(|points| stretches(points, last)).collect();
    let (recorded, replayed) = (calls.len() as u64, wanted.len() as u64);
    Ok((TextFateBasis::Calls { recorded, replayed, same, skipped: skipped as u64 }, seen))
}

fn row(calls: &[CallRow], number: u64) -> Option<&CallRow> {
    calls.binary_search_by_key(&number, |row| row.number).ok().map(|at| &calls[at])
}

/// Calls at which the view of an event may differ from the call before, including the first that could see
/// it, and the last as a check.
fn turning_points(past: &CallReplayer<'_>, calls: &[CallRow], found: &TextOccurrence) -> BTreeSet<u64> {
    let seq = found.event.id.seq;
    let shown = &calls[calls.partition_point(|row| row.call.head < seq)..];
    let Some(first) = shown.first() else { return BTreeSet::new() };
    let mut points: BTreeSet<u64> = [first.number].into();
    points.extend(shown.last().map(|row| row.number));
    let moved = shown.windows(2).filter(|pair| pair[0].call.summary != pair[1].call.summary);
    points.extend(moved.map(|pair| pair[1].number));
    let holders = holders(past.line(), found);
    for (number, pass) in past.passes().iter().filter(|(number, _)| *number >= first.number) {
        let about = |change: &ContextChange| match change {
            // A compaction's summary is shown in place 0, and may stand for any event.
            ContextChange::Show { at, .. } | ContextChange::Drop { at } => {
                at.part == 0 || holders.contains(&at.seq)
            }
            ContextChange::Fold { note, .. } => note.folded.events.contains(seq),
        };
        if pass.edits.iter().any(|edit| about(&edit.change)) {
            points.insert(*number);
        }
    }
    if matches!(found.event.event.fact, Fact::Instructed { .. }) {
        // A later instruction of the same kind replaces it.
        points.extend(replacing(past.line(), shown, seq));
    }
    points
}

/// Events by which decisions name what is shown of an event: its own, and those that made the calls it
/// answers.
fn holders(line: &EventLine, found: &TextOccurrence) -> BTreeSet<Seq> {
    let seq = found.event.id.seq;
    let mut holders: BTreeSet<Seq> = [seq].into();
    if matches!(found.event.event.fact, Fact::ToolReturned { .. }) {
        let before = line.events().take_while(|event| event.id.seq <= seq);
        let paired = pair(before.map(|event| (event.id.seq, &event.event.fact)));
        let answered = paired.exchanges.iter().filter(|exchange| match exchange.outcome {
            CallOutcome::Returned { at, .. } => at == seq,
            CallOutcome::Unanswered => false,
        });
        holders.extend(answered.map(|exchange| exchange.at));
    }
    holders
}

/// First call after each later instruction.
fn replacing<'c>(line: &'c EventLine, shown: &'c [CallRow], seq: Seq) -> impl Iterator<Item = u64> + 'c {
    let later = line
        .events()
        .filter(move |event| event.id.seq > seq && matches!(event.event.fact, Fact::Instructed { .. }));
    later.filter_map(move |event| {
        shown.get(shown.partition_point(|row| row.call.head < event.id.seq)).map(|row| row.number)
    })
}

/// Views from the log alone: the contexts of a thread without records, from compaction to compaction.
fn in_log(
    past: &CallReplayer<'_>,
    thread: ThreadId,
    found: &[TextOccurrence],
    witness: &SightContext,
) -> Vec<Vec<CallStretch>> {
    let is_turning = |fact: &Fact| {
        matches!(fact, Fact::Compacted(_) | Fact::CompactionReverted { .. } | Fact::CompactionRestored { .. })
    };
    let mut points: BTreeMap<Seq, Vec<usize>> = BTreeMap::new();
    for (at, found) in found.iter().enumerate() {
        points.entry(found.event.id.seq).or_default().push(at);
    }
    for event in past.line().events().filter(|event| is_turning(&event.event.fact)) {
        let before = found.iter().enumerate().filter(|(_, found)| found.event.id.seq < event.id.seq);
        points.entry(event.id.seq).or_default().extend(before.map(|(at, _)| at));
    }
    let mut seen = vec![Vec::new(); found.len()];
    for (point, about) in points {
        let mut line = EventLine::default();
        for (event, pieces) in past.line().events_with_counts().take_while(|(event, _)| event.id.seq <= point)
        {
            line.push(Arc::clone(event), pieces.unwrap_or_default().to_vec());
        }
        let meter = Arc::clone(past.meter());
        let context = project(&line, meter, EventNaming::Thread(thread));
        for at in about {
            let sight = sight(&context, &found[at], witness);
            seen[at].push(CallStretch { first: point.0, last: point.0, sight, cause: None });
        }
    }
    let last = past.line().last().map_or(0, |event| event.id.seq.0);
    seen.into_iter().map(|points| stretches(points, last)).collect()
}

/// Joins stretches without a change between them.
fn stretches(points: Vec<CallStretch>, last: u64) -> Vec<CallStretch> {
    let mut joined: Vec<CallStretch> = Vec::new();
    for point in points {
        match joined.last_mut() {
            Some(before) if before.sight == point.sight => {}
            before => {
                if let Some(before) = before {
                    before.last = point.first.saturating_sub(1);
                }
                joined.push(point);
            }
        }
    }
    if let Some(newest) = joined.last_mut() {
        newest.last = last;
    }
    joined
}
